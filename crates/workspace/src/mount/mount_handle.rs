//! A mount as the runtime holds it, connected to the guard process by a pipe.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::watch,
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    LostChange, MountError, MountPoint, MountPointProtection, MountRequest, MountTransport, UnmountReason,
    attache_fs::FLUSH_TIMEOUT,
    guard_protocol::{GuardInstructions, GuardReport},
};

/// How a guard is started: a program that calls [`run_guard`](super::run_guard) when given these arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

/// A mounted folder. Dropping it closes the guard's pipe, and the guard unmounts.
#[derive(Debug)]
pub struct MountHandle {
    mount_point: PathBuf,
    underneath: MountPointProtection,
    input: Option<ChildStdin>,
    ended: watch::Receiver<MountState>,
    _listener: AbortOnDropHandle<()>,
    guard: Child,
    /// How long the end can take, up to this time: a copy is sent as long as there is progress.
    flush_until: Option<Instant>,
    /// Its lock shows that the mount point is still in use.
    place: MountPoint,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MountState {
    Mounted,
    Unmounted(MountSummary),
    Removed(MountSummary),
}

/// How a mount ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSummary {
    pub why: UnmountReason,
    /// How often the connection to the host broke while it was mounted. Data that was written but not flushed may be
    /// lost then.
    pub outages: u32,
    /// What was acknowledged to programs and didn't reach the host.
    pub lost: Vec<LostChange>,
}

/// The guard's own timeouts are shorter.
const MOUNT_MARGIN: Duration = Duration::from_secs(20);
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(10).saturating_add(FLUSH_TIMEOUT);

/// Mounts the folder that START names at a reserved mount point, or returns why not. In that case, nothing is left
/// behind.
pub async fn mount(
    guard: &GuardCommand,
    mut place: MountPoint,
    mounting: MountRequest,
) -> Result<MountHandle, MountError> {
    let patience = mounting.transport.mount_timeout() + MOUNT_MARGIN;
    let is_copy = mounting.transport == MountTransport::Sync;
    let flush_until = Instant::now().checked_add(mounting.lasts).filter(|_| is_copy);
    let order =
        GuardInstructions::new(&place.at, mounting).write().map_err(|error| MountError::Guard(error.to_string()))?;
    let mut command = Command::new(&guard.program);
    command.args(&guard.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command
        .spawn()
        .map_err(|error| MountError::Guard(format!("can't start {}: {error}", guard.program.display())))?;
    // From here on, the guard cleans up, also if this is dropped.
    place.hand_over();
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(MountError::Guard("it has no pipes".to_owned()));
    };
    let mut lines = BufReader::new(output).lines();
    let report = async {
        input.write_all(format!("{order}\n").as_bytes()).await.ok()?;
        next(&mut lines).await
    };
    let mounted = match timeout(patience, report).await {
        Ok(Some(GuardReport::Mounted { underneath })) => Ok(underneath),
        Ok(Some(GuardReport::Failed { failure, message })) => Err(failure.error(message)),
        Ok(_) => Err(MountError::Guard("it exited without a report".to_owned())),
        Err(_) => Err(MountError::Guard("it did not respond".to_owned())),
    };
    let underneath = match mounted {
        Ok(underneath) => underneath,
        Err(error) => {
            drop(input);
            // The mount point exists until the guard is gone. What it leaves behind is removed here.
            wait_for_guard(&mut child, &place.mount_point()).await;
            place.reclaim();
            return Err(error);
        }
    };
    let (sender, ended) = watch::channel(MountState::Mounted);
    let listener = AbortOnDropHandle::new(tokio::spawn(listen(lines, sender)));
    let mount_point = place.mount_point();
    let input = Some(input);
    Ok(MountHandle { mount_point, underneath, input, ended, _listener: listener, guard: child, flush_until, place })
}

// === impl MountHandle ===

impl MountHandle {
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// What write-protects the mount point if the mount vanishes.
    pub const fn underneath(&self) -> MountPointProtection {
        self.underneath
    }

    /// The guard's process id, while it lives.
    pub fn guard_pid(&self) -> Option<u32> {
        self.guard.id()
    }

    /// Waits until the folder is gone without having been asked for it.
    pub async fn gone(&self) -> UnmountReason {
        let mut ended = self.ended.clone();
        let state = ended.wait_for(|state| *state != MountState::Mounted).await;
        state.map_or(UnmountReason::Unguarded, |state| state.end().why)
    }

    /// Whether the host still serves the folder. With `reconnect`, sshfs outlives a revoked lease.
    pub async fn is_alive(&self, patience: Duration) -> bool {
        // A name that was never looked up, so that neither sshfs nor the kernel can answer from a cache. attache-fs always
        // asks the host about such names.
        static ASKED: AtomicU64 = AtomicU64::new(0);
        let name = format!(".attache-{}-{}", std::process::id(), ASKED.fetch_add(1, Ordering::Relaxed));
        let path = self.mount_point.join(name);
        let looked = tokio::task::spawn_blocking(move || match path.symlink_metadata() {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        });
        *self.ended.borrow() == MountState::Mounted && matches!(timeout(patience, looked).await, Ok(Ok(true)))
    }

    /// Unmounts, and removes the mount point and the keys. When this returns, everything written has reached the host.
    pub async fn unmount(mut self) -> MountSummary {
        drop(self.input.take());
        let removed = self.ended.wait_for(|state| matches!(state, MountState::Removed(_)));
        let flush = self.flush_until.map(|until| until.saturating_duration_since(Instant::now()));
        let end = match timeout(UNMOUNT_TIMEOUT.saturating_add(flush.unwrap_or_default()), removed).await {
            Ok(Ok(state)) => state.end(),
            _ => MountSummary::unguarded(),
        };
        wait_for_guard(&mut self.guard, &self.mount_point).await;
        if end.why == UnmountReason::Unguarded {
            self.place.reclaim();
        }
        end
    }
}

// === impl MountState ===

impl MountState {
    fn end(&self) -> MountSummary {
        match self {
            Self::Mounted => MountSummary { why: UnmountReason::Asked, outages: 0, lost: Vec::new() },
            Self::Unmounted(end) | Self::Removed(end) => end.clone(),
        }
    }
}

// === impl MountSummary ===

impl MountSummary {
    fn unguarded() -> Self {
        Self { why: UnmountReason::Unguarded, outages: 0, lost: vec![LostChange::unknown()] }
    }
}

/// Waits for the guard to exit, which follows the end of its input.
async fn wait_for_guard(guard: &mut Child, mount_point: &Path) {
    if timeout(UNMOUNT_TIMEOUT, guard.wait()).await.is_err() {
        tracing::warn!(mount_point = %mount_point.display(), "the guard of a mount did not exit; killing it");
        let _ = guard.kill().await;
    }
}

async fn listen(mut lines: Lines<BufReader<ChildStdout>>, state: watch::Sender<MountState>) {
    while let Some(report) = next(&mut lines).await {
        match report {
            GuardReport::Unmounted { why, outages, lost } => {
                _ = state.send(MountState::Unmounted(MountSummary { why, outages, lost }));
            }
            GuardReport::Removed => state.send_modify(|state| *state = MountState::Removed(state.end())),
            GuardReport::Mounted { .. } | GuardReport::Failed { .. } => {}
        }
    }
    state.send_modify(|state| {
        if *state == MountState::Mounted {
            *state = MountState::Unmounted(MountSummary::unguarded());
        }
    });
}

/// The next report of the guard. Other output is skipped.
async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Option<GuardReport> {
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(report) = serde_json::from_str(&line) {
            return Some(report);
        }
    }
    None
}
