//! Runs inside the walls and tries to get out.

use std::{
    ffi::CString,
    fs, io,
    net::{SocketAddr, TcpStream, UdpSocket},
    os::{
        fd::{AsRawFd as _, RawFd},
        linux::net::SocketAddrExt as _,
        unix::{ffi::OsStrExt as _, fs::symlink, net},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, XattrFlags, inotify};
use serde::{Deserialize, Serialize};

use crate::{EscapeAttempt, EscapeAttemptResult};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// What is outside the sandbox, prepared by the process that evaluates the probe.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProbeTargets {
    /// A file outside the folder.
    pub(super) canary: PathBuf,
    /// One that can be read inside.
    pub(super) readable: PathBuf,
    /// To be created, if possible.
    pub(super) planted: PathBuf,
    pub(super) tcp: SocketAddr,
    pub(super) udp: SocketAddr,
    /// The name of an abstract socket.
    pub(super) socket: String,
    /// A service's socket that can be seen.
    pub(super) path_socket: PathBuf,
    /// The same for datagrams.
    pub(super) path_datagrams: PathBuf,
    /// One outside the folder, and one for datagrams.
    pub(super) outside_socket: PathBuf,
    pub(super) outside_datagrams: PathBuf,
    /// A process outside, of the same user.
    pub(super) process: i32,
    /// Stands in that process's environment.
    pub(super) marker: String,
}

/// Tries everything. An attempt whose success only shows outside is reported as held, and judged there.
pub fn probe(targets: &str) -> io::Result<Vec<EscapeAttemptResult>> {
    let targets: ProbeTargets = serde_json::from_str(targets).map_err(io::Error::other)?;
    let results = EscapeAttempt::ALL
        .iter()
        .map(|attempt| EscapeAttemptResult { attempt: *attempt, held: !out(*attempt, &targets) });
    Ok(results.collect())
}

/// Whether it got out.
fn out(attempt: EscapeAttempt, targets: &ProbeTargets) -> bool {
    match attempt {
        EscapeAttempt::ReadOutside => fs::read(&targets.canary).is_ok(),
        EscapeAttempt::WriteOutside => {
            let _ = fs::write(&targets.planted, "from inside");
            false
        }
        EscapeAttempt::ChangeOutside => changes_unseen(&targets.canary) || changes_readable(&targets.readable),
        EscapeAttempt::FollowLink => symlink(&targets.canary, "way-out").is_err() || fs::read("way-out").is_ok(),
        EscapeAttempt::ProcRoot => ["1", "self", &targets.process.to_string()].iter().any(|process| {
            let canary = targets.canary.strip_prefix("/").unwrap_or(&targets.canary);
            fs::read(PathBuf::from(format!("/proc/{process}/root")).join(canary)).is_ok()
        }),
        EscapeAttempt::Tcp => TcpStream::connect_timeout(&targets.tcp, CONNECT_TIMEOUT).is_ok(),
        EscapeAttempt::Udp => {
            let _ = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"from inside", targets.udp));
            false
        }
        EscapeAttempt::AbstractSocket => net::SocketAddr::from_abstract_name(&targets.socket)
            .is_ok_and(|address| net::UnixStream::connect_addr(&address).is_ok()),
        EscapeAttempt::PathSocket => reaches(&targets.path_socket, &targets.path_datagrams),
        EscapeAttempt::OutsideSocket => reaches(&targets.outside_socket, &targets.outside_datagrams),
        EscapeAttempt::Exec => {
            let mut program = Command::new("/bin/true");
            program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            program.status().is_ok()
        }
        EscapeAttempt::OtherEnvironment => reads_marker(&targets.marker),
        EscapeAttempt::SignalOther => {
            other(targets).is_some_and(|process| rustix::process::test_kill_process(process).is_ok())
        }
        EscapeAttempt::LimitOther => other(targets).is_some_and(limits),
        EscapeAttempt::Trace => traces(),
        EscapeAttempt::Mount => mounts(),
        EscapeAttempt::UserNamespace => makes_user_namespace(),
        EscapeAttempt::Keyring => reaches_keyring(),
        EscapeAttempt::NewPrivileges => !rustix::thread::no_new_privs().unwrap_or(false),
        EscapeAttempt::Terminal => types(),
    }
}

/// A file that can't even be seen, by its path.
fn changes_unseen(file: &Path) -> bool {
    let watches = || {
        let watcher = inotify::init(inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(&watcher, file, inotify::WatchFlags::ALL_EVENTS)
    };
    rustix::fs::chmod(file, Mode::RUSR).is_ok()
        || rustix::fs::chown(file, None, Some(rustix::process::getgid())).is_ok()
        || rustix::fs::setxattr(file, XATTR, b"1", XattrFlags::empty()).is_ok()
        || rustix::fs::utimensat(rustix::fs::CWD, file, &LONG_AGO, AtFlags::empty()).is_ok()
        || sets_attributes(libc::AT_FDCWD, file)
        || watches().is_ok()
}

/// A file that can only be read, through a descriptor. One that can't be opened was not tried.
fn changes_readable(file: &Path) -> bool {
    let Ok(file) = fs::File::open(file) else { return true };
    let set_flags = || rustix::fs::ioctl_getflags(&file).and_then(|flags| rustix::fs::ioctl_setflags(&file, flags));
    rustix::fs::fchmod(&file, Mode::RUSR).is_ok()
        || rustix::fs::fchown(&file, None, Some(rustix::process::getgid())).is_ok()
        || rustix::fs::fsetxattr(&file, XATTR, b"1", XattrFlags::empty()).is_ok()
        || rustix::fs::futimens(&file, &LONG_AGO).is_ok()
        || set_flags().is_ok()
        || sets_attributes(file.as_raw_fd(), Path::new(""))
        || leases(&file)
}

const XATTR: &str = "user.attache-probe";
const LONG_AGO: Timestamps = {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    Timestamps { last_access: second, last_modification: second }
};

/// With the newest call for it.
#[allow(unsafe_code, reason = "a system call that reads a path and an array")]
fn sets_attributes(folder: RawFd, path: &Path) -> bool {
    const FILE_SETATTR: libc::c_long = 469;
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let unchanged = [0_u64; 3];
    let (size, flags) = (size_of_val(&unchanged), libc::AT_EMPTY_PATH);
    // SAFETY: the path ends with NUL, the kernel reads as much of the array as it has, and both outlive the call.
    unsafe { libc::syscall(FILE_SETATTR, folder, path.as_ptr(), unchanged.as_ptr(), size, flags) == 0 }
}

#[allow(unsafe_code, reason = "a system call without pointers")]
fn leases(file: &fs::File) -> bool {
    // SAFETY: the descriptor is open, and only numbers are passed.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0 }
}

/// Through `/proc`, whatever number the process has here.
fn reads_marker(marker: &str) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| fs::read(entry.path().join("environ")).ok()).any(|variables| {
        let marker = format!("{MARKER}={marker}");
        variables.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
    })
}

/// The variable that carries the marker.
pub(super) const MARKER: &str = "ATTACHE_PROBE_OUTSIDE";

/// A service's sockets. One end of a pair can be sent elsewhere.
fn reaches(streams: &Path, datagrams: &Path) -> bool {
    let sent = |socket: &net::UnixDatagram| socket.send_to(b"from inside", datagrams).is_ok();
    net::UnixStream::connect(streams).is_ok()
        || net::UnixDatagram::unbound().is_ok_and(|socket| sent(&socket))
        || net::UnixDatagram::pair().is_ok_and(|(socket, _)| sent(&socket))
}

/// The process outside. One with the same number inside is another one, so it is looked at first.
fn other(targets: &ProbeTargets) -> Option<rustix::process::Pid> {
    let command = fs::read(format!("/proc/{}/comm", targets.process)).unwrap_or_default();
    rustix::process::Pid::from_raw(targets.process).filter(|_| command.trim_ascii() == b"cat")
}

/// To fewer files, and to a lower priority.
fn limits(process: rustix::process::Pid) -> bool {
    let fewer = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
    rustix::process::prlimit(Some(process), rustix::process::Resource::Nofile, fewer).is_ok()
        || rustix::process::setpriority_process(Some(process), 5).is_ok()
}

#[allow(unsafe_code, reason = "a system call without pointers")]
fn traces() -> bool {
    // SAFETY: asks to be traced by the parent, which changes nothing in this process.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0 }
}

/// Into the terminal that is its standard input, as if it had been started there.
#[allow(unsafe_code, reason = "a system call that reads one byte")]
fn types() -> bool {
    let _ = rustix::process::ioctl_tiocsctty(std::io::stdin());
    let letter = b'x';
    // SAFETY: the kernel reads the byte, which outlives the call.
    unsafe { libc::ioctl(0, libc::TIOCSTI, &raw const letter) == 0 }
}

fn mounts() -> bool {
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", ".", "tmpfs", flags, None).is_ok()
}

#[allow(unsafe_code, reason = "a system call without pointers")]
fn makes_user_namespace() -> bool {
    // SAFETY: this process has one thread and ends soon.
    unsafe { libc::unshare(libc::CLONE_NEWUSER) == 0 }
}

#[allow(unsafe_code, reason = "a system call without pointers")]
fn reaches_keyring() -> bool {
    const KEYCTL_GET_KEYRING_ID: libc::c_long = 0;
    const KEY_SPEC_PROCESS_KEYRING: libc::c_long = -2;
    // SAFETY: only numbers are passed.
    unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 1) >= 0 }
}
