//! Stock sshfs, configured in its own file: one server with one key, only the guard's agent, no configuration of the
//! user or the machine, no shell.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use attache_protocol::wire::awcp::AccessMode;
use rustix::fs::Dir;

use super::{MountError, MountRequest, mount_point::MountPointPath, requirements};

/// The kernel's name for sshfs mounts.
pub(super) const KIND: &str = "fuse.sshfs";
/// The name of the server in the files that we write.
const ALIAS: &str = "lease";
/// How long fusermount3 can take before something harsher is tried.
const UNMOUNT_TIMEOUT: Duration = Duration::from_millis(1500);
const MAX_HOST: usize = 253;
const MAX_LOCATOR: usize = 1024;
const MAX_KEY: usize = 16 << 10;

/// Writes the files and starts sshfs. Of what the host sent, only the validated locator reaches a command line.
pub(super) fn start(at: &MountPointPath, request: &MountRequest, agent: &Path) -> Result<Child, MountError> {
    let program = |name: &'static str| {
        let missing = || requirements::missing().into_iter().find(|missing| missing.what == name);
        attache_os::program::find(name).ok_or_else(|| match missing() {
            Some(missing) => MountError::Missing(missing),
            None => MountError::Sshfs(format!("`{name}` is not in the program folders")),
        })
    };
    let (setpriv, sshfs) = (program(requirements::SETPRIV)?, program(requirements::SSHFS)?);
    if let Some(missing) = requirements::missing().into_iter().next() {
        return Err(MountError::Missing(missing));
    }
    let config = write_files(&at.private(), request, agent).map_err(|error| MountError::Guard(error.to_string()))?;
    // sshfs passes everything after -F on as one argument.
    let mut option = std::ffi::OsString::from("-F");
    option.push(&config);
    // The host decides permissions call by call. Checking here as well would cost a round trip each time.
    let mut options = "reconnect,nodev,nosuid,idmap=user,auto_cache".to_owned();
    if request.access_mode == AccessMode::Ro {
        options.push_str(",ro");
    }
    if rejects_links(&sshfs) {
        options.push_str(",no_contain_symlinks");
    }
    for option in &request.options {
        options.push(',');
        options.push_str(option);
    }
    let mut command = Command::new(setpriv);
    // If the guard is killed, sshfs unmounts itself.
    command.args(["--pdeathsig", "TERM", "--"]).arg(sshfs).arg("-f").arg(option).args(["-o", &options]);
    command.arg(format!("{ALIAS}:/{}", request.locator.trim_start_matches('/'))).arg(at.mount_point());
    command.env_clear().env("PATH", attache_os::program::SYSTEM_PATH).env("LC_ALL", "C").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().map_err(|error| MountError::Sshfs(error.to_string()))
}

/// Some builds of sshfs refuse to read links with `..`, such as those in `node_modules/.bin`, unless told otherwise.
/// Any link to another folder of the tree contains a `..`, however it is written, so the check must be turned off.
fn rejects_links(sshfs: &Path) -> bool {
    let output = Command::new(sshfs)
        .arg("--help")
        .env_clear()
        .env("PATH", attache_os::program::SYSTEM_PATH)
        .stdin(Stdio::null())
        .output();
    output.is_ok_and(|output| {
        let text = [output.stdout, output.stderr].concat();
        text.windows(19).any(|window| window == b"no_contain_symlinks")
    })
}

/// Sets the read-ahead to match the latency to the host. Only root can do that; without it, reading is slower.
pub(super) fn read_ahead(mount_point: &Path) {
    attache_os::mounts::set_read_ahead(mount_point, 8192);
}

/// Splits requested mount options: those that control caching are followed, but nothing that opens or runs anything.
/// The rest is returned to be reported.
pub(super) fn safe_options(requested: Vec<String>) -> (Vec<String>, Vec<String>) {
    const PLAIN: [&str; 5] = ["ro", "auto_cache", "noauto_cache", "no_readahead", "sync_readdir"];
    const NUMBERS: [(&str, u32); 7] = [
        ("entry_timeout", 3600),
        ("attr_timeout", 3600),
        ("negative_timeout", 3600),
        ("dcache_timeout", 3600),
        ("dcache_max_size", 1_000_000),
        ("max_conns", 8),
        ("remember", 3600),
    ];
    requested.into_iter().partition(|option| {
        let number = option.split_once('=').is_some_and(|(name, value)| {
            let most = NUMBERS.iter().find(|(known, _)| *known == name).map(|(_, most)| *most);
            most.zip(value.parse::<u32>().ok()).is_some_and(|(most, value)| value <= most)
        });
        number || PLAIN.contains(&option.as_str())
    })
}

fn write_files(folder: &Path, mounting: &MountRequest, agent: &Path) -> io::Result<PathBuf> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        // The folder is private to this lease. An existing entry, even a link, is replaced and never followed.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        Ok::<_, io::Error>(path)
    };
    let mut words = mounting.host_key.split_whitespace();
    let (kind, public) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let known_hosts = write("known_hosts", &format!("{ALIAS} {kind} {public}\n"))?;
    let (agent, known_hosts) = (agent.display(), known_hosts.display());
    let MountRequest { host, port, user, .. } = mounting;
    write(
        "ssh_config",
        &format!(
            "Host {ALIAS}\n\
             HostName {host}\nPort {port}\nUser {user}\nHostKeyAlias {ALIAS}\n\
             UserKnownHostsFile \"{known_hosts}\"\nGlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\n\
             HostKeyAlgorithms ssh-ed25519\nUpdateHostKeys no\nVerifyHostKeyDNS no\n\
             IdentityFile none\nIdentitiesOnly no\nIdentityAgent \"{agent}\"\nAddKeysToAgent no\n\
             PreferredAuthentications publickey\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             BatchMode yes\nForwardAgent no\nForwardX11 no\nClearAllForwardings yes\nPermitLocalCommand no\nProxyCommand none\n\
             ConnectTimeout 10\nServerAliveInterval 5\nServerAliveCountMax 3\nTCPKeepAlive yes\nCompression no\n\
             ControlMaster no\nControlPath none\nRequestTTY no\nLogLevel ERROR\n"
        ),
    )
}

/// Whether a path can be quoted in ssh's configuration without changing its meaning.
pub(super) fn is_plain(path: &Path) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@".contains(&byte);
    path.to_str().is_some_and(|text| text.bytes().all(plain))
}

/// Checks what the host sent: each value must be what it claims to be, and nothing that a program could mistake for an
/// option.
pub(super) fn check(mounting: &MountRequest) -> Result<(), MountError> {
    let is_word = |text: &str, more: &str, longest: usize| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || more.as_bytes().contains(&byte);
        !text.is_empty() && text.len() <= longest && text.bytes().all(fits) && !text.starts_with('-')
    };
    let MountRequest { host, user, locator, host_key, private_key, .. } = mounting;
    let wrong = |what: &str| Err(MountError::Terms(format!("can't follow START: {what}")));
    if host.parse::<IpAddr>().is_err() && !is_word(host, ".-_", MAX_HOST) {
        return wrong("`endpoint.host` is not a host name or address");
    }
    if !is_word(user, "._-", 64) {
        return wrong("`endpoint.user` is not a user name");
    }
    // Ours is a token. Another host's may be a path.
    if !is_word(locator, "/._-", MAX_LOCATOR) || locator.split('/').any(|part| matches!(part, "." | "..")) {
        return wrong("`export_locator` must be letters, digits, `/`, `.`, `_` and `-`");
    }
    let mut words = host_key.split_whitespace();
    let (kind, key) = (words.next(), words.next().unwrap_or_default());
    if kind != Some("ssh-ed25519") || !is_word(key, "+/=", 256) || host_key.contains('\n') {
        return wrong("`host_key` must be an ssh-ed25519 key in OpenSSH format");
    }
    let private_key = private_key.expose();
    if !private_key.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----") || private_key.len() > MAX_KEY {
        return Err(MountError::KeyRefused("the lease's private key is invalid".to_owned()));
    }
    Ok(())
}

/// Interprets the output of ssh and sshfs.
pub(super) fn explain(output: &str) -> MountError {
    // The other lines are about our files, which are gone by the time anyone reads this, or sshfs's own about its pipe.
    let is_noise = |line: &str| ["@", "read: ", "write: "].iter().any(|start| line.starts_with(start));
    let is_relevant = |line: &&str| !line.trim().is_empty() && !is_noise(line);
    let last = output.lines().rfind(is_relevant).unwrap_or("sshfs exited without a message").trim().to_owned();
    if output.contains("Host key verification failed") || output.contains("no matching host key type") {
        MountError::OtherHost(last)
    } else if output.contains("Permission denied (") || output.contains("Too many authentication failures") {
        MountError::KeyRefused(last)
    } else if !last.contains("No such file") && !last.starts_with("fuse") && !last.contains("fusermount") {
        MountError::Unreachable(last)
    } else {
        MountError::Sshfs(last)
    }
}

/// Unmounts: gracefully, so that everything is written, and forcibly if that is refused or takes long.
pub(super) fn detach(mount_point: &Path) {
    if !fusermount(&["-u", "-q"], mount_point) {
        fusermount(&["-u", "-z", "-q"], mount_point);
    }
}

/// Immediately, even if it is still in use.
pub(super) fn detach_mount(mount_point: &Path) {
    fusermount(&["-u", "-z", "-q"], mount_point);
}

fn fusermount(options: &[&str], mount_point: &Path) -> bool {
    let Some(program) = attache_os::program::find(requirements::FUSERMOUNT) else { return false };
    let mut command = Command::new(program);
    command.args(options).arg("--").arg(mount_point).env_clear().env("PATH", attache_os::program::SYSTEM_PATH);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let since = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if since.elapsed() < UNMOUNT_TIMEOUT => thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.try_wait();
                return false;
            }
        }
    }
}

/// Identifies a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FilesystemId(u64);

// === impl FilesystemId ===

impl FilesystemId {
    pub(super) const NONE: Self = Self(0);
}

/// The file system of the folder before anything is mounted over it.
pub(super) fn device(folder: &Path) -> io::Result<FilesystemId> {
    fs::metadata(folder).map(|found| FilesystemId(found.dev()))
}

/// Whether the server behind the mount answers, rather than the folder underneath: sshfs mounts before it connects, and
/// unmounts when it is refused, perhaps just before this check.
pub(super) fn answers(mount_point: &Path, underneath: FilesystemId) -> io::Result<()> {
    // One handle for both checks, because the mount may change in between.
    let folder = File::open(mount_point)?;
    if FilesystemId(folder.metadata()?.dev()) == underneath {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "it was unmounted again"));
    }
    Dir::new(folder)?.next().transpose()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use attache_protocol::Secret;

    use super::*;

    fn mounting() -> MountRequest {
        MountRequest {
            host: "10.0.0.7".to_owned(),
            port: 22,
            user: "lease".to_owned(),
            locator: "x1_Y-2".to_owned(),
            host_key: "ssh-ed25519 AAAAC3Nz+/= comment".to_owned(),
            private_key: Secret::new("-----BEGIN OPENSSH PRIVATE KEY-----\n".to_owned()),
            access_mode: AccessMode::Rw,
            lasts: Duration::from_secs(60),
            options: Vec::new(),
            transport: super::super::MountTransport::Sshfs,
        }
    }

    #[test]
    fn only_valid_values_from_a_host_are_accepted() {
        assert_eq!(check(&mounting()), Ok(()));
        for host in ["::1", "build.example.org", "localhost"] {
            assert_eq!(check(&MountRequest { host: host.to_owned(), ..mounting() }), Ok(()), "{host}");
        }
        for host in ["-oProxyCommand=x", "a b", "a\nProxyCommand x", "", "a;b", "%h", "x\"y"] {
            assert!(check(&MountRequest { host: host.to_owned(), ..mounting() }).is_err(), "{host}");
        }
        for locator in ["..", "../x", "/a/../b", "", "-o", "/a/./b", "a b", "a\n", "a,b", "a:b"] {
            assert!(check(&MountRequest { locator: locator.to_owned(), ..mounting() }).is_err(), "{locator}");
        }
        assert_eq!(check(&MountRequest { locator: "/exports/x1".to_owned(), ..mounting() }), Ok(()));
        for user in ["-x", "a@b", ""] {
            assert!(check(&MountRequest { user: user.to_owned(), ..mounting() }).is_err(), "{user}");
        }
        for host_key in ["ssh-rsa AAAA", "ssh-ed25519", "ssh-ed25519 AA\nother ssh-ed25519 BB", "@cert-authority AA"] {
            assert!(check(&MountRequest { host_key: host_key.to_owned(), ..mounting() }).is_err(), "{host_key}");
        }
    }

    #[test]
    fn only_harmless_mount_options_are_followed() {
        let requested = [
            "ro",
            "dcache_timeout=60",
            "max_conns=99",
            "ssh_command=/bin/sh",
            "allow_other",
            "ro,suid",
            "entry_timeout=x",
        ];
        let (followed, ignored) = safe_options(requested.map(str::to_owned).to_vec());
        assert_eq!((followed.len(), ignored.len()), (2, 5), "{followed:?}");
    }

    #[test]
    fn the_folder_underneath_does_not_answer_for_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let underneath = device(folder.path()).unwrap();
        assert_eq!(answers(folder.path(), underneath).unwrap_err().kind(), io::ErrorKind::NotConnected);
        // Another file system does. This one exists on every machine.
        answers(Path::new("/proc"), underneath).unwrap();
    }

    #[test]
    fn the_output_of_ssh_is_interpreted() {
        let refused = "lease@10.0.0.7: Permission denied (publickey).";
        let other = "@@@@\nHost key for lease has changed and you have requested strict checking.\nHost key verification failed.";
        let away = "ssh: connect to host 10.0.0.7 port 22: Connection refused";
        for (output, expected) in [
            (refused, MountError::KeyRefused(refused.to_owned())),
            (other, MountError::OtherHost("Host key verification failed.".to_owned())),
            (away, MountError::Unreachable(away.to_owned())),
            ("", MountError::Unreachable("sshfs exited without a message".to_owned())),
        ] {
            for pipe in ["read: Connection reset by peer", "write: Broken pipe"] {
                assert_eq!(explain(&format!("{output}\r\n{pipe}\n")), expected);
            }
        }
    }
}
