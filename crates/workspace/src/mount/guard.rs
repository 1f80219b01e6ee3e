//! The guard of one mount: a small separate process, in its own session, that owns the process which serves it (sshfs, or
//! attache-fs). It unmounts when its input ends (because the runtime asked, ended or was killed), when the lease expires,
//! or when that process dies.

use std::{
    io::{BufRead, Read as _, Write},
    process::ChildStderr,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    LostChange, MountError, MountPointProtection, MountRequest, MountTransport, UnmountReason, copied,
    guard_protocol::{GuardInstructions, GuardReport, GuardRole},
    mount_point::MountPointPath,
    sshfs::{self, FilesystemId},
    transport::{self, EXIT_TIMEOUT, MountProcess, is_mounted},
    underneath,
};

/// A mount while its guard lives.
struct GuardedMount {
    at: MountPointPath,
    /// The file system of the mount point when nothing is mounted there.
    underneath: FilesystemId,
    process: MountProcess,
    output: MountOutput,
}

/// What the process that serves a mount, and its own children, write.
struct MountOutput {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Never receives anything. It closes when no more output can come.
    over: Receiver<()>,
}

/// How long the server behind it can take to show the folder.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a mount is checked while it is made, and afterwards.
const MOUNT_POLL_INTERVAL: Duration = Duration::from_millis(10);
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait for the reason of a failure. ssh may outlive sshfs for a moment.
const REASON_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_OUTPUT: usize = 64 << 10;

/// The hidden command: mounts as its first input line says, and unmounts when the input ends. Returns the exit code. The
/// guard of an attache-fs mount starts the same command once more, with an order to serve it.
pub fn run_guard(input: impl BufRead + Send + 'static, mut output: impl Write) -> u8 {
    // Ctrl-C in the runtime's terminal must not reach us. Fails if this already is a session leader.
    let _ = rustix::process::setsid();
    let mut input = input;
    let mut line = String::new();
    if !matches!(input.read_line(&mut line), Ok(length) if length > 0) {
        return 0;
    }
    let (at, request) = match GuardInstructions::read(&line) {
        Ok(order) => {
            let role = order.role;
            let (at, request) = order.parts();
            if role != GuardRole::Guard {
                return transport::serve(role, &at, &request, input);
            }
            (at, request)
        }
        Err(error) => {
            send(&mut output, &GuardReport::failed(&MountError::Guard(format!("invalid order: {error}"))));
            return 1;
        }
    };
    let stop = listen(input);
    let code = match guard(&at, &request, &stop, &mut output) {
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
    request: &MountRequest,
    stop: &Receiver<()>,
    output: &mut impl Write,
) -> Result<(), MountError> {
    let _lock = at.lock_guard().map_err(|error| MountError::Guard(error.to_string()))?;
    let underneath = if request.transport == MountTransport::Sync {
        copied::prepare(at).map_err(|error| MountError::Unprotected(error.to_string()))?;
        MountPointProtection::Copy
    } else {
        underneath::protect(&at.mount_point()).map_err(MountError::Unprotected)?
    };
    // On the monotonic clock: the wall clock may be wrong, or be corrected meanwhile.
    let ends = Instant::now() + request.lasts;
    let mut guarded = GuardedMount::start(at, request)?;
    if let Err(error) = guarded.wait_until_mounted(stop, ends) {
        guarded.end(Duration::ZERO);
        return Err(error);
    }
    sshfs::read_ahead(&at.mount_point());
    send(output, &GuardReport::Mounted { underneath });
    let mut why = guarded.watch(stop, ends);
    let outages = guarded.outages();
    // It gives up by itself if it gets nowhere.
    let flush = if guarded.process.is_copy() { ends.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
    let (mut lost, is_settled) = guarded.end(flush);
    if why == UnmountReason::Asked && !is_settled {
        why = UnmountReason::Died;
        if lost.is_empty() {
            lost.push(LostChange::unknown());
        }
    }
    if why == UnmountReason::Died {
        lost.extend(GuardedMount::replay(at, request));
    }
    send(output, &GuardReport::Unmounted { why, outages, lost });
    // Until the input ends, programs that still work there must find a folder that can't be written.
    while stop.recv().is_ok() {}
    Ok(())
}

// === impl GuardedMount ===

impl GuardedMount {
    fn start(at: &MountPointPath, request: &MountRequest) -> Result<Self, MountError> {
        let underneath = sshfs::device(&at.mount_point()).map_err(|error| MountError::Guard(error.to_string()))?;
        let mut process = request.transport.start(at, request)?;
        let output = MountOutput::of(process.child.stderr.take());
        Ok(Self { at: at.clone(), underneath, process, output })
    }

    /// Waits until the folder is really mounted: listed in the kernel's table, and answering.
    fn wait_until_mounted(&mut self, stop: &Receiver<()>, ends: Instant) -> Result<(), MountError> {
        let (since, mount_point) = (Instant::now(), self.at.mount_point());
        let is_wanted = |time| {
            let over = match (stop_requested(stop, time), Instant::now() >= ends) {
                (true, _) => "cancelled before the folder was mounted",
                (false, true) => "the lease expired before the folder was mounted",
                (false, false) => return Ok(()),
            };
            Err(MountError::Guard(over.to_owned()))
        };
        let timeout = self.process.mount_timeout();
        while !self.process.is_ready(&mount_point, &self.output.within(Duration::ZERO)) {
            if let Ok(Some(_)) = self.process.child.try_wait() {
                return Err(self.explain());
            }
            if since.elapsed() > timeout {
                let text = format!("the folder did not appear within {} s", timeout.as_secs());
                return Err(MountError::Sshfs(text));
            }
            is_wanted(MOUNT_POLL_INTERVAL)?;
        }
        if self.process.is_copy() {
            return Ok(());
        }
        // A call into a file system whose server hangs may never return.
        let (sender, answer) = mpsc::channel();
        let underneath = self.underneath;
        thread::spawn(move || sender.send(sshfs::answers(&mount_point, underneath)));
        let since = Instant::now();
        loop {
            match answer.recv_timeout(WATCH_INTERVAL) {
                Ok(Ok(())) => return Ok(()),
                // It is mounted before the server is contacted.
                Ok(Err(_)) if self.ends_within(REASON_TIMEOUT) => return Err(self.explain()),
                Ok(Err(error)) => {
                    return Err(MountError::Sshfs(format!("the host doesn't show the folder: {error}")));
                }
                Err(RecvTimeoutError::Timeout) if since.elapsed() < ANSWER_TIMEOUT => is_wanted(Duration::ZERO)?,
                Err(_) => return Err(MountError::Unreachable("the host does not answer".to_owned())),
            }
        }
    }

    /// Why it exited on its own.
    fn explain(&self) -> MountError {
        self.process.explain(&self.output.within(REASON_TIMEOUT))
    }

    /// How often the connection to the host broke and was restored.
    fn outages(&self) -> u32 {
        self.process.outages(&self.output.within(Duration::ZERO))
    }

    fn watch(&mut self, stop: &Receiver<()>, ends: Instant) -> UnmountReason {
        let mount_point = self.at.mount_point();
        loop {
            let is_requested = stop_requested(stop, WATCH_INTERVAL);
            let is_there = self.process.is_copy() || is_mounted(&mount_point);
            if !matches!(self.process.child.try_wait(), Ok(None)) || !is_there {
                return UnmountReason::Died;
            }
            if is_requested {
                return UnmountReason::Asked;
            }
            if Instant::now() >= ends {
                return UnmountReason::Expired;
            }
            self.process.reap();
        }
    }

    /// Unmounts, and ends the process. Programs that still have files open there get errors from now on. Returns what
    /// was acknowledged to them and didn't reach the host, and whether that is known. `more` is time to send what is left.
    fn end(mut self, more: Duration) -> (Vec<LostChange>, bool) {
        let mount_point = self.at.mount_point();
        if is_mounted(&mount_point) {
            sshfs::detach(&mount_point);
        }
        drop(self.process.child.stdin.take());
        if !self.ends_within(self.process.exit_timeout().saturating_add(more)) {
            // Asked gracefully first, because it takes its ssh along.
            if let Some(pid) = i32::try_from(self.process.child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM);
            }
            if !self.ends_within(EXIT_TIMEOUT) {
                let _ = self.process.child.kill();
                let _ = self.process.child.wait();
            }
        }
        if is_mounted(&mount_point) {
            sshfs::detach_mount(&mount_point);
        }
        if self.process.is_copy() {
            copied::close(&mount_point);
        }
        let output = self.output.within(EXIT_TIMEOUT);
        (self.process.lost(&output), self.process.is_settled(&output))
    }

    /// Sends what the killed process had acknowledged. Returns what didn't reach the host.
    fn replay(at: &MountPointPath, request: &MountRequest) -> Vec<LostChange> {
        let started = request.transport.replay(at, request).transpose();
        let Ok(Some(mut process)) = started else { return Vec::new() };
        let output = MountOutput::of(process.child.stderr.take());
        let at = at.clone();
        let replay = Self { at, underneath: FilesystemId::NONE, process, output };
        replay.end(Duration::ZERO).0
    }

    fn ends_within(&mut self, time: Duration) -> bool {
        let since = Instant::now();
        loop {
            match self.process.child.try_wait() {
                Ok(None) if since.elapsed() < time => thread::sleep(MOUNT_POLL_INTERVAL),
                Ok(None) => return false,
                Ok(Some(_)) | Err(_) => return true,
            }
        }
    }
}

// === impl MountOutput ===

impl MountOutput {
    fn of(pipe: Option<ChildStderr>) -> Self {
        let output = Arc::new(Mutex::new(Vec::new()));
        let (open, over) = mpsc::sync_channel(0);
        if let Some(mut pipe) = pipe {
            let output = output.clone();
            thread::spawn(move || {
                let _open = open;
                let mut piece = [0; 4096];
                // Everything is read, because a full pipe would block them.
                while let Ok(length @ 1..) = pipe.read(&mut piece) {
                    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                    let room = MAX_OUTPUT.saturating_sub(output.len());
                    output.extend_from_slice(&piece[..length.min(room)]);
                }
            });
        }
        Self { bytes: output, over }
    }

    /// The complete output once no more can come, or what was written by then.
    fn within(&self, time: Duration) -> String {
        let _ = self.over.recv_timeout(time);
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// Whether anything arrived on the input within a time, or it has ended.
fn stop_requested(stop: &Receiver<()>, time: Duration) -> bool {
    !matches!(stop.recv_timeout(time), Err(RecvTimeoutError::Timeout))
}

/// One message for anything that arrives on the input. Disconnects once the input has ended.
fn listen(mut input: impl BufRead + Send + 'static) -> Receiver<()> {
    let (sender, stop) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut line = String::new();
        let _ = input.read_line(&mut line);
        let _ = sender.send(());
        let _ = std::io::copy(&mut input, &mut std::io::sink());
    });
    stop
}

/// There may be no reader any more, so errors are ignored.
fn send(output: &mut impl Write, report: &GuardReport) {
    if let Ok(line) = serde_json::to_string(report) {
        let _ = writeln!(output, "{line}").and_then(|()| output.flush());
    }
}
