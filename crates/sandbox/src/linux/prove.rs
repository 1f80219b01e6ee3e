//! Prepares what is outside, runs the probe inside, and judges.

use std::{
    ffi::OsStr,
    fs, io,
    net::{TcpListener, UdpSocket},
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt as _,
        unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _, net},
    },
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use attache_protocol::wire::run::SandboxLimit;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::{EscapeAttempt, EscapeAttemptResult, Launcher, Mechanism, Proof, Walls};

use super::probe::{MARKER, ProbeTargets};

/// How long the probe can take on a busy machine.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// What the probe tries to reach. Kept until its results are evaluated.
struct ProbeEnvironment {
    targets: ProbeTargets,
    udp: UdpSocket,
    process: Child,
    /// The other end of a terminal.
    terminal: OwnedFd,
    _listeners: (TcpListener, [net::UnixListener; 3], [net::UnixDatagram; 2]),
}

pub(crate) fn prove(launcher: &Launcher, left_out: &[Mechanism]) -> Proof {
    let missing = match &launcher.bwrap {
        Some(_) => Vec::new(),
        None => vec![
            "bubblewrap is missing or can't create namespaces here: install it (`apt-get install bubblewrap`), and allow \
             user namespaces (`sysctl kernel.unprivileged_userns_clone=1`, or \
             `kernel.apparmor_restrict_unprivileged_userns=0` on Ubuntu). Without it, processes of a run are not kept apart."
                .to_owned(),
        ],
    };
    match attempt(launcher, left_out) {
        Ok(attempts) => Proof { made_of: made_of(launcher), attempts, missing },
        Err(error) => {
            let failed = format!("The sandbox can't be set up here: {error}");
            Proof { missing: missing.into_iter().chain([failed]).collect(), ..Proof::of_nothing("") }
        }
    }
}

fn made_of(launcher: &Launcher) -> String {
    let namespaces = launcher.bwrap.as_ref().map(|_| "bubblewrap");
    let landlock = landlock_version().map(|version| format!("Landlock {version}"));
    let parts = namespaces.map(str::to_owned).into_iter().chain(landlock).chain(["seccomp".to_owned()]);
    parts.collect::<Vec<_>>().join(", ")
}

#[allow(unsafe_code, reason = "a system call without pointers")]
fn landlock_version() -> Option<i64> {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag, the call only returns a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, LANDLOCK_CREATE_RULESET_VERSION) };
    (version > 0).then_some(version)
}

/// In the strictest walls, and in those of each single limit: a run may ask for any of them.
fn attempt(launcher: &Launcher, left_out: &[Mechanism]) -> io::Result<Vec<EscapeAttemptResult>> {
    // Side by side: most of the time goes into starting processes, and an adapter waits for all of it.
    let (strictest, single) = thread::scope(|scope| {
        let single = SandboxLimit::ALL.map(|limit| (limit, scope.spawn(move || within(launcher, &[limit], left_out))));
        let strictest = within(launcher, &SandboxLimit::ALL, left_out);
        let joined = single.map(|(limit, probe)| (limit, probe.join()));
        (strictest, joined)
    });
    let mut results = strictest?;
    for (limit, alone) in single {
        let alone = alone.map_err(|_| io::Error::other("a probe panicked"))??;
        let concerned = alone.iter().filter(|one| one.attempt.limits().contains(&limit));
        for open in concerned.filter(|one| !one.held) {
            results.iter_mut().filter(|one| one.attempt == open.attempt).for_each(|one| one.held = false);
        }
    }
    Ok(results)
}

fn within(
    launcher: &Launcher,
    limits: &[SandboxLimit],
    left_out: &[Mechanism],
) -> io::Result<Vec<EscapeAttemptResult>> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().canonicalize()?;
    let inside = root.join("inside");
    fs::create_dir(&inside)?;
    let mut outside = ProbeEnvironment::prepare(&root.join("outside"), &inside)?;
    let mut walls = Walls::open(&inside).limit(limits);
    walls.read.push(outside.targets.readable.clone());
    walls.without = left_out.to_vec();
    let results = run(launcher, &walls, &outside);
    outside.end();
    let mut results = results?;
    for result in &mut results {
        match result.attempt {
            EscapeAttempt::WriteOutside => result.held = !outside.targets.planted.exists(),
            EscapeAttempt::Udp => result.held = !outside.heard(),
            _ => {}
        }
    }
    Ok(results)
}

fn run(launcher: &Launcher, walls: &Walls, outside: &ProbeEnvironment) -> io::Result<Vec<EscapeAttemptResult>> {
    let (program, words) = launcher.command(walls, launcher.stage.program.as_os_str())?;
    let targets = serde_json::to_string(&outside.targets).map_err(io::Error::other)?;
    let mut probe = Command::new(program)
        .args(words)
        .args(&launcher.stage.probe)
        .arg(targets)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir(&walls.cwd)
        .stdin(outside.terminal()?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let begin = Instant::now();
    while probe.try_wait()?.is_none() {
        if begin.elapsed() > PROBE_TIMEOUT {
            probe.kill()?;
            probe.wait()?;
            return Err(io::Error::other("the probe did not end"));
        }
        thread::sleep(Duration::from_millis(1));
    }
    let output = probe.wait_with_output()?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!("the probe ended with {}: {}", output.status, said.trim()))
    })
}

// === impl ProbeEnvironment ===

impl ProbeEnvironment {
    fn prepare(folder: &Path, inside: &Path) -> io::Result<Self> {
        fs::create_dir(folder)?;
        let canary = folder.join("canary");
        fs::write(&canary, "outside")?;
        let readable = folder.join("readable");
        fs::write(&readable, "shown")?;
        let name = format!("attache-probe-{:016x}", getrandom::u64().map_err(io::Error::other)?);
        let (tcp, udp) = (TcpListener::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        let socket = net::UnixListener::bind_addr(&net::SocketAddr::from_abstract_name(&name)?)?;
        let path_socket = inside.join("service");
        let seen = net::UnixListener::bind(&path_socket)?;
        let path_datagrams = inside.join("datagrams");
        let seen_datagrams = net::UnixDatagram::bind(&path_datagrams)?;
        let outside_socket = folder.join("service");
        let unseen = net::UnixListener::bind(&outside_socket)?;
        let outside_datagrams = folder.join("datagrams");
        let unseen_datagrams = net::UnixDatagram::bind(&outside_datagrams)?;
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&terminal)?;
        unlockpt(&terminal)?;
        let mut process = Command::new("/bin/cat");
        let process = process.env(MARKER, &name).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = process.spawn()?;
        let targets = ProbeTargets {
            canary,
            readable,
            planted: folder.join("planted"),
            tcp: tcp.local_addr()?,
            udp: udp.local_addr()?,
            socket: name.clone(),
            path_socket,
            path_datagrams,
            outside_socket,
            outside_datagrams,
            process: i32::try_from(process.id()).map_err(io::Error::other)?,
            marker: name,
        };
        Ok(Self {
            targets,
            udp,
            process,
            terminal,
            _listeners: (tcp, [socket, seen, unseen], [seen_datagrams, unseen_datagrams]),
        })
    }

    fn terminal(&self) -> io::Result<fs::File> {
        let name = ptsname(&self.terminal, Vec::new())?;
        let path = Path::new(OsStr::from_bytes(name.to_bytes()));
        fs::File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path)
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    fn heard(&self) -> bool {
        let mut byte = [0; 1];
        self.udp.set_nonblocking(true).is_ok() && self.udp.recv_from(&mut byte).is_ok()
    }
}
