//! The guard of one mount: a small process of its own, in its own session, that owns sshfs. When its input ends, because the
//! runtime asked, ended or was killed, it unmounts; so it does when the lease is over or sshfs dies.

use std::{
    io::{BufRead, Read as _, Write},
    path::Path,
    process::{Child, ChildStderr},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    MountError, MountRequest, UnmountReason,
    guard_protocol::{GuardOrder, GuardReport},
    mount_point::MountPointPath,
    ssh_agent::SshAgent,
    sshfs::{self, FilesystemId},
    table, underneath,
};

/// A mount while its guard lives.
struct GuardedMount {
    at: MountPointPath,
    /// What the mount point is on when nothing is mounted there.
    underneath: FilesystemId,
    child: Child,
    output: SshfsOutput,
    identity: SshAgent,
}

/// What sshfs and ssh say, as long as they live.
struct SshfsOutput {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Nothing ever comes; it closes when nobody can say any more.
    over: Receiver<()>,
}

/// How long a mount may take to appear.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the server behind it may take to show the folder.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a mount is looked at while it is made, and after.
const MOUNT_POLL_INTERVAL: Duration = Duration::from_millis(10);
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// How long sshfs may take to end by itself once nothing is mounted.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the reason is waited for when it failed. ssh may outlive sshfs for a moment.
const REASON_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_OUTPUT: usize = 64 << 10;

/// What the hidden command does: mounts as its first line says, and unmounts when the input ends. Answers the exit code.
pub fn run_guard(input: impl BufRead + Send + 'static, mut output: impl Write) -> u8 {
    // A Ctrl-C in the runtime's terminal is not for us. It fails where this is a session already.
    let _ = rustix::process::setsid();
    let mut input = input;
    let mut line = String::new();
    if !matches!(input.read_line(&mut line), Ok(length) if length > 0) {
        return 0;
    }
    let (at, mounting) = match GuardOrder::read(&line) {
        Ok(order) => order,
        Err(error) => {
            send(
                &mut output,
                &GuardReport::failed(&MountError::Guard(format!("the order cannot be understood: {error}"))),
            );
            return 1;
        }
    };
    let asked = listen(input);
    let code = match guard(&at, &mounting, &asked, &mut output) {
        Ok(()) => 0,
        Err(error) => {
            send(&mut output, &GuardReport::failed(&error));
            1
        }
    };
    at.remove();
    send(&mut output, &GuardReport::Removed);
    code
}

fn guard(
    at: &MountPointPath,
    mounting: &MountRequest,
    asked: &Receiver<()>,
    output: &mut impl Write,
) -> Result<(), MountError> {
    let _lock = at.lock_guard().map_err(|error| MountError::Guard(error.to_string()))?;
    let underneath = underneath::protect(&at.mount_point()).map_err(MountError::Unprotected)?;
    // By a clock that nobody sets: what the wall clock says may be wrong, or be put right meanwhile.
    let ends = Instant::now() + mounting.lasts;
    let mut guarded = GuardedMount::start(at, mounting)?;
    if let Err(error) = guarded.wait_until_mounted(asked, ends) {
        guarded.end();
        return Err(error);
    }
    sshfs::read_ahead(&at.mount_point());
    send(output, &GuardReport::Mounted { underneath });
    let why = guarded.watch(asked, ends);
    let outages = guarded.outages();
    guarded.end();
    send(output, &GuardReport::Unmounted { why, outages });
    // Whoever still works there must find a folder into which nothing can be written, until the input ends.
    while asked.recv().is_ok() {}
    Ok(())
}

// === impl GuardedMount ===

impl GuardedMount {
    fn start(at: &MountPointPath, mounting: &MountRequest) -> Result<Self, MountError> {
        let underneath = sshfs::device(&at.mount_point()).map_err(|error| MountError::Guard(error.to_string()))?;
        sshfs::check(mounting)?;
        let identity = SshAgent::offer(&at.private(), &mounting.private_key)
            .map_err(|error| MountError::Guard(format!("the lease's key cannot be offered: {error}")))?;
        let mut child = sshfs::start(at, mounting, identity.socket())?;
        let words = SshfsOutput::of(child.stderr.take());
        Ok(Self { at: at.clone(), underneath, child, output: words, identity })
    }

    /// Waits until the folder is really there: in the kernel's table, and answering.
    fn wait_until_mounted(&mut self, asked: &Receiver<()>, ends: Instant) -> Result<(), MountError> {
        let (since, mount_point) = (Instant::now(), self.at.mount_point());
        let is_wanted = |time| {
            let over = match (stop_requested(asked, time), Instant::now() >= ends) {
                (true, _) => "it was called off before the folder was mounted",
                (false, true) => "the lease was over before the folder was mounted",
                (false, false) => return Ok(()),
            };
            Err(MountError::Guard(over.to_owned()))
        };
        while !is_mounted(&mount_point) {
            if let Ok(Some(_)) = self.child.try_wait() {
                return Err(self.explain());
            }
            if since.elapsed() > MOUNT_TIMEOUT {
                return Err(MountError::Sshfs(format!("nothing was mounted within {} s", MOUNT_TIMEOUT.as_secs())));
            }
            is_wanted(MOUNT_POLL_INTERVAL)?;
        }
        // A call into a file system whose server hangs may never return.
        let (sender, answer) = mpsc::channel();
        let underneath = self.underneath;
        thread::spawn(move || sender.send(sshfs::answers(&mount_point, underneath)));
        let since = Instant::now();
        loop {
            match answer.recv_timeout(WATCH_INTERVAL) {
                Ok(Ok(())) => return Ok(()),
                // It is mounted before the server is spoken to.
                Ok(Err(_)) if self.ends_within(REASON_TIMEOUT) => return Err(self.explain()),
                Ok(Err(error)) => {
                    return Err(MountError::Sshfs(format!("the host does not show the folder: {error}")));
                }
                Err(RecvTimeoutError::Timeout) if since.elapsed() < ANSWER_TIMEOUT => is_wanted(Duration::ZERO)?,
                Err(_) => return Err(MountError::Sshfs("the host does not answer".to_owned())),
            }
        }
    }

    /// Why sshfs ended by itself.
    fn explain(&self) -> MountError {
        sshfs::explain(&self.output.within(REASON_TIMEOUT))
    }

    /// How often the connection to the host broke, and was made again.
    fn outages(&self) -> u32 {
        u32::try_from(self.identity.connections().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    fn watch(&mut self, asked: &Receiver<()>, ends: Instant) -> UnmountReason {
        let mount_point = self.at.mount_point();
        loop {
            let is_asked = stop_requested(asked, WATCH_INTERVAL);
            if !matches!(self.child.try_wait(), Ok(None)) || !is_mounted(&mount_point) {
                return UnmountReason::Died;
            }
            if is_asked {
                return UnmountReason::Asked;
            }
            if Instant::now() >= ends {
                return UnmountReason::Expired;
            }
            self.identity.reap();
        }
    }

    /// Unmounts, and ends sshfs. Whoever still has files open there gets errors from now on.
    fn end(mut self) {
        let mount_point = self.at.mount_point();
        if is_mounted(&mount_point) {
            sshfs::detach(&mount_point);
        }
        if !self.ends_within(EXIT_TIMEOUT) {
            // Asked first, for it takes its ssh along.
            if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM);
            }
            if !self.ends_within(EXIT_TIMEOUT) {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
        if is_mounted(&mount_point) {
            sshfs::detach_mount(&mount_point);
        }
    }

    fn ends_within(&mut self, time: Duration) -> bool {
        let since = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(None) if since.elapsed() < time => thread::sleep(MOUNT_POLL_INTERVAL),
                Ok(None) => return false,
                Ok(Some(_)) | Err(_) => return true,
            }
        }
    }
}

// === impl SshfsOutput ===

impl SshfsOutput {
    fn of(pipe: Option<ChildStderr>) -> Self {
        let said = Arc::new(Mutex::new(Vec::new()));
        let (speaks, over) = mpsc::sync_channel(0);
        if let Some(mut pipe) = pipe {
            let said = said.clone();
            thread::spawn(move || {
                let _speaks = speaks;
                let mut piece = [0; 4096];
                // All of it is read, because a full pipe would stop them.
                while let Ok(length @ 1..) = pipe.read(&mut piece) {
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    let room = MAX_OUTPUT.saturating_sub(said.len());
                    said.extend_from_slice(&piece[..length.min(room)]);
                }
            });
        }
        Self { bytes: said, over }
    }

    /// Everything, as soon as nobody can say more; else what was said by then.
    fn within(&self, time: Duration) -> String {
        let _ = self.over.recv_timeout(time);
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

fn is_mounted(mount_point: &Path) -> bool {
    table::mounted_at(mount_point).ok().flatten().as_deref() == Some(sshfs::KIND)
}

/// Whether the input said anything within a time, or has ended.
fn stop_requested(asked: &Receiver<()>, time: Duration) -> bool {
    !matches!(asked.recv_timeout(time), Err(RecvTimeoutError::Timeout))
}

/// One word for everything that the input may still bring, and no more once it has ended.
fn listen(mut input: impl BufRead + Send + 'static) -> Receiver<()> {
    let (sender, asked) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut line = String::new();
        let _ = input.read_line(&mut line);
        let _ = sender.send(());
        let _ = std::io::copy(&mut input, &mut std::io::sink());
    });
    asked
}

/// Nobody may be left to hear it.
fn send(output: &mut impl Write, said: &GuardReport) {
    if let Ok(line) = serde_json::to_string(said) {
        let _ = writeln!(output, "{line}").and_then(|()| output.flush());
    }
}
