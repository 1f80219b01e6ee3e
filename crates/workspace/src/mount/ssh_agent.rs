//! The lease's key, only in the memory of the guard: ssh has it sign over a socket, as with any agent.
//!
//! Programs that work in the mounted folder run as the same user and could open the socket, too. So only the ssh that
//! this guard's own sshfs started is answered: the guard adopts the orphans of sshfs, and asks the kernel who is at the
//! other end.

use std::{
    fs::{self, DirBuilder},
    io::{self, Read as _, Write as _},
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use attache_os::machine;
use attache_protocol::Secret;
use aws_lc_rs::signature::Ed25519KeyPair;
use russh::keys::PrivateKey;
use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::{net::UnixListener, runtime};

/// The socket. Dropping it removes it.
pub(super) struct SshAgent {
    socket: PathBuf,
    /// Only if a folder was created for it.
    folder: Option<PathBuf>,
    served: Arc<Mutex<Vec<Pid>>>,
}

/// The signing key.
struct SshAgentKey {
    pair: Ed25519KeyPair,
    /// The public key in SSH wire format.
    public: Vec<u8>,
}

/// The maximum length of a socket's path, without the terminating byte.
const MAX_SOCKET_PATH: usize = 107;
/// Requests are small: a public key and the data to sign.
const MAX_REQUEST: u32 = 64 << 10;
/// How long a client has for its requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long sshfs can take to leave its ssh to the guard.
const ADOPTION_TIMEOUT: Duration = Duration::from_secs(2);
const SSH: &str = "ssh";
/// Message numbers of the agent protocol (draft-ietf-sshm-ssh-agent).
const FAILURE: u8 = 5;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES: u8 = 12;
const REQUEST_SIGNATURE: u8 = 13;
const SIGNATURE: u8 = 14;
const KIND: &[u8] = b"ssh-ed25519";

// === impl SshAgent ===

impl SshAgent {
    /// Serves the key until the process ends.
    pub(super) fn offer(private: &Path, key: &Secret<String>) -> io::Result<Self> {
        // Prevents other processes from reading the memory and open files of the process that has the key.
        machine::protect_memory();
        machine::inherit_orphans()?;
        let signer = SshAgentKey::read(key.expose())?;
        let (socket, folder) = socket_path(private)?;
        let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(&socket)?
        };
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
        let served = Arc::<Mutex<Vec<Pid>>>::default();
        let identity = Self { socket, folder, served: Arc::clone(&served) };
        thread::spawn(move || {
            while let Ok((stream, _)) = runtime.block_on(listener.accept()) {
                let Some(pid) = adopted_ssh(&stream) else {
                    tracing::warn!("a process other than the mount's ssh asked for the lease's key");
                    continue;
                };
                let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
                if !served.contains(&pid) {
                    served.push(pid);
                }
                drop(served);
                let blocking = stream.into_std().and_then(|stream| stream.set_nonblocking(false).map(|()| stream));
                let _ = blocking.and_then(|stream| signer.answer_all(stream));
            }
        });
        Ok(identity)
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// How many connections were made so far.
    pub(super) fn connections(&self) -> usize {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Reaps the adopted processes that have exited.
    pub(super) fn reap(&self) {
        for pid in self.served.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = waitpid(Some(*pid), WaitOptions::NOHANG);
        }
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// In the lease's own folder, or in a new one if that path is too long for a socket.
fn socket_path(private: &Path) -> io::Result<(PathBuf, Option<PathBuf>)> {
    let socket = private.join("agent");
    if socket.as_os_str().len() <= MAX_SOCKET_PATH {
        return Ok((socket, None));
    }
    for attempt in 0..100 {
        let folder = std::env::temp_dir().join(format!(".attache-{}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok((folder.join("agent"), Some(folder))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no usable path for a socket"))
}

/// The ssh at the other end, if our sshfs started it: it becomes our child.
fn adopted_ssh(stream: &tokio::net::UnixStream) -> Option<Pid> {
    let peer = stream.peer_cred().ok()?.pid().and_then(Pid::from_raw)?;
    let is_ours = || {
        let (parent, exe) = machine::parent_and_program(peer)?;
        let is_ssh = attache_os::program::find(SSH).and_then(|ssh| ssh.canonicalize().ok()) == Some(exe);
        (is_ssh && parent == std::process::id()).then_some(peer)
    };
    let since = Instant::now();
    loop {
        if let Some(pid) = is_ours() {
            return Some(pid);
        }
        if since.elapsed() > ADOPTION_TIMEOUT {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

// === impl SshAgentKey ===

impl SshAgentKey {
    fn read(key: &str) -> io::Result<Self> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the lease's private key is not an ed25519 key");
        let key = PrivateKey::from_openssh(key).map_err(|_| wrong())?;
        let pair = key.key_data().ed25519().ok_or_else(wrong)?;
        let (seed, public) = (pair.private.to_bytes(), pair.public.0);
        let pair = Ed25519KeyPair::from_seed_and_public_key(&seed, &public).map_err(|_| wrong())?;
        Ok(Self { pair, public: [string(KIND), string(&public)].concat() })
    }

    fn answer_all(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        loop {
            let mut length = [0; 4];
            stream.read_exact(&mut length)?;
            let length = u32::from_be_bytes(length);
            if length == 0 || length > MAX_REQUEST {
                return Ok(());
            }
            let mut request = vec![0; length as usize];
            stream.read_exact(&mut request)?;
            stream.write_all(&string(&self.answer(&request)))?;
        }
    }

    fn answer(&self, request: &[u8]) -> Vec<u8> {
        match request.split_first() {
            Some((&REQUEST_IDENTITIES, _)) => {
                let one = [&[IDENTITIES][..], &1_u32.to_be_bytes(), &string(&self.public), &string(b"")];
                one.concat()
            }
            Some((&REQUEST_SIGNATURE, rest)) => {
                let (Some((key, rest)), true) = (read_string(rest), !rest.is_empty()) else { return vec![FAILURE] };
                let Some((data, _)) = read_string(rest).filter(|_| key == self.public) else { return vec![FAILURE] };
                let signature = self.pair.sign(data);
                let signature = [string(KIND), string(signature.as_ref())].concat();
                [&[SIGNATURE][..], &string(&signature)].concat()
            }
            _ => vec![FAILURE],
        }
    }
}

/// A length-prefixed string in SSH wire format.
fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], bytes].concat()
}

fn read_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}
