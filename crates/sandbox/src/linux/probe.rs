//! Runs inside the walls and tries to get out.

use std::{
    fs, io,
    net::{SocketAddr, TcpStream, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{fs::symlink, net},
    },
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Attempt, AttemptResult};

const PATIENCE: Duration = Duration::from_secs(1);

/// What is outside, prepared by whoever judges.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProbeTargets {
    /// A file outside the folder.
    pub(super) canary: PathBuf,
    /// To be created, if possible.
    pub(super) planted: PathBuf,
    pub(super) tcp: SocketAddr,
    pub(super) udp: SocketAddr,
    /// The name of an abstract socket.
    pub(super) socket: String,
    /// A service's socket that can be seen.
    pub(super) path_socket: PathBuf,
    /// A process outside, of the same user.
    pub(super) process: i32,
    /// Stands in that process's environment.
    pub(super) marker: String,
}

/// Tries everything. An attempt whose success only shows outside is reported as held, and judged there.
pub fn probe(targets: &str) -> io::Result<Vec<AttemptResult>> {
    let targets: ProbeTargets = serde_json::from_str(targets).map_err(io::Error::other)?;
    let results =
        Attempt::ALL.iter().map(|attempt| AttemptResult { attempt: *attempt, held: !out(*attempt, &targets) });
    Ok(results.collect())
}

/// Whether it got out.
fn out(attempt: Attempt, targets: &ProbeTargets) -> bool {
    match attempt {
        Attempt::ReadOutside => fs::read(&targets.canary).is_ok(),
        Attempt::WriteOutside => {
            let _ = fs::write(&targets.planted, "from inside");
            false
        }
        Attempt::FollowLink => symlink(&targets.canary, "way-out").is_err() || fs::read("way-out").is_ok(),
        Attempt::ProcRoot => ["1", "self", &targets.process.to_string()].iter().any(|process| {
            let canary = targets.canary.strip_prefix("/").unwrap_or(&targets.canary);
            fs::read(PathBuf::from(format!("/proc/{process}/root")).join(canary)).is_ok()
        }),
        Attempt::Tcp => TcpStream::connect_timeout(&targets.tcp, PATIENCE).is_ok(),
        Attempt::Udp => {
            let _ = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"from inside", targets.udp));
            false
        }
        Attempt::AbstractSocket => net::SocketAddr::from_abstract_name(&targets.socket)
            .is_ok_and(|address| net::UnixStream::connect_addr(&address).is_ok()),
        Attempt::PathSocket => net::UnixStream::connect(&targets.path_socket).is_ok(),
        Attempt::Exec => {
            let mut program = Command::new("/bin/true");
            program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            program.status().is_ok()
        }
        Attempt::OtherEnvironment => reads_marker(&targets.marker),
        Attempt::SignalOther => signals(targets),
        Attempt::Trace => traces(),
        Attempt::Mount => mounts(),
        Attempt::UserNamespace => makes_user_namespace(),
        Attempt::Keyring => reaches_keyring(),
        Attempt::NewPrivileges => !rustix::thread::no_new_privs().unwrap_or(false),
        Attempt::Terminal => types(),
    }
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

/// A process with the same number inside is another one, so it is looked at first.
fn signals(targets: &ProbeTargets) -> bool {
    let Some(process) = rustix::process::Pid::from_raw(targets.process) else { return false };
    let command = fs::read(format!("/proc/{}/comm", targets.process)).unwrap_or_default();
    command.trim_ascii() == b"cat" && rustix::process::test_kill_process(process).is_ok()
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
