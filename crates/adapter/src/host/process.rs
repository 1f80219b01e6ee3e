//! The process of a host: in its own process group, with an allow-listed environment and a separate standard error.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    os::fd::{AsRawFd as _, OwnedFd},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use attache_os::process_group::ProcessGroup;
use attache_protocol::wire::adapter::TaskReply;
use tokio::{
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
    task::JoinHandle,
};

use super::{
    HostMemory, HostSetup, SandboxLimit, TurnVerdict,
    git::{self, GitSettings},
    inside::HostEnclosure,
};
use crate::{
    DriverRun, EventSink,
    output::{ChunkBoundary, GatedText, TextGate, TextTail, pump},
    process::{self as plain, MAX_STDERR, MAX_STREAM},
    resources,
};

/// What to start.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostLaunch {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    /// Set in addition to the variables every task may see.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// A secret that stays open in the host.
    pub(crate) handed: Option<InheritedSecret>,
    /// Folders that it writes to besides the run's.
    pub(crate) writes: Vec<PathBuf>,
}

/// A text that only the host can read, and only once. It is in no file, variable or argument.
#[derive(Debug, Clone)]
pub(crate) struct InheritedSecret(Arc<OwnedFd>);

/// A running host. Dropping it kills all its processes.
#[derive(Debug)]
pub(crate) struct HostProcess {
    child: Child,
    group: ProcessGroup,
    errors: Arc<Mutex<TextTail>>,
    reader: JoinHandle<()>,
    events: EventSink,
    /// What is around it, if there are walls.
    _enclosure: Option<HostEnclosure>,
}

/// How a host's process exited.
#[derive(Debug)]
pub(crate) struct HostExit {
    /// `None` if it had to be stopped.
    pub(crate) status: Option<ExitStatus>,
    /// The end of its standard error, and which limit of the device it reached.
    pub(crate) errors: String,
}

/// How long the standard error is read after the process has exited.
const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

// === impl InheritedSecret ===

impl InheritedSecret {
    pub(crate) fn new(text: &str) -> io::Result<Self> {
        let (reader, mut writer) = io::pipe()?;
        // Short enough to fit into the pipe before anyone reads it.
        writer.write_all(text.as_bytes())?;
        Ok(Self(Arc::new(reader.into())))
    }

    /// The path the host opens.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/fd/{}", self.0.as_raw_fd()))
    }
}

// === impl HostProcess ===

impl HostProcess {
    /// `walled` are the limits that the machine's walls hold.
    pub(crate) async fn start(
        setup: &HostSetup,
        launch: &HostLaunch,
        walled: &[SandboxLimit],
        job: &DriverRun,
    ) -> Result<Self, TaskReply> {
        let not_started = |error: io::Error| plain::not_started(&launch.program, &error);
        let mut handed: Vec<_> = launch.handed.iter().map(|handed| handed.0.clone()).collect();
        let (mut enclosure, mut control) = (None, None);
        let mut command = match (&job.walls, &setup.needs) {
            (Some(walls), Some(needs)) if !walled.is_empty() => {
                let inside = HostEnclosure::prepare(setup, needs, (walled, &launch.writes), walls, job);
                let inside = inside.map_err(not_started)?;
                let (program, words) = walls.launcher.command(&inside.walls, &launch.program).map_err(not_started)?;
                handed.extend(inside.handed);
                control = walls.control_group(job.task.task_run_id).map_err(not_started)?;
                enclosure = Some(inside.enclosure);
                let mut command = plain::command_for_run(&program, job);
                command.args(words).env("TMPDIR", inside.temporary);
                command
            }
            _ => plain::command_outside_walls(&launch.program, job).map_err(not_started)?,
        };
        let settings = if enclosure.is_some() { GitSettings::Harmless } else { GitSettings::Own };
        command
            .args(&launch.args)
            .envs(git::variables(job, settings).await)
            .envs(launch.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (mut child, group) =
            ProcessGroup::spawn(&mut command, handed, control, job.task.task_run_id).map_err(not_started)?;
        // The proxy's socket ends with the process only if nobody else has it.
        drop(command);
        tracing::info!(run.id = %job.task.task_run_id, pid = child.id(), program = %launch.program.display(), "host started");
        let errors = Arc::new(Mutex::new(TextTail::new(MAX_STDERR)));
        let reader = tokio::spawn(read_errors(child.stderr.take(), errors.clone(), job.events.clone()));
        Ok(Self { child, group, errors, reader, events: job.events.clone(), _enclosure: enclosure })
    }

    /// Its standard input. Can be taken once.
    pub(crate) fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its standard output. Can be taken once.
    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Asks it to stop, as Ctrl-C would.
    pub(crate) fn interrupt(&self) {
        self.group.interrupt();
    }

    /// The programs currently running in it, if the system can tell.
    pub(crate) fn programs(&self) -> Vec<PathBuf> {
        self.group.programs()
    }

    /// Waits until it exits on its own. Can be called repeatedly.
    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Gives it time to exit on its own, then kills everything that is left. Close its standard input first.
    pub(crate) async fn end(mut self, patience: Duration) -> HostExit {
        drop(self.child.stdin.take());
        let status = tokio::time::timeout(patience, self.child.wait()).await.ok().and_then(Result::ok);
        let exceeded = self.group.end(&mut self.child).await;
        let _ = tokio::time::timeout(PIPE_DRAIN_TIMEOUT, &mut self.reader).await;
        self.reader.abort();
        let tail =
            std::mem::replace(&mut *self.errors.lock().unwrap_or_else(PoisonError::into_inner), TextTail::new(0));
        let mut errors = tail.into_text();
        if let Some(limit_reached) = resources::report(exceeded, &self.events) {
            errors.push_str(&format!("\n{limit_reached}"));
        }
        HostExit { status, errors }
    }

    /// Like [`Self::end`], after a conversation. A host with memory gets time to save its session. One that was cut
    /// short already had its time.
    pub(crate) async fn end_after(self, verdict: &TurnVerdict, memory: &HostMemory) -> HostExit {
        let patience = match memory {
            _ if verdict.cuts_short() => Duration::from_millis(50),
            HostMemory::PerConversation(_) | HostMemory::OfOwner(_) => Duration::from_secs(3),
            HostMemory::Stateless => Duration::from_millis(300),
        };
        self.end(patience).await
    }
}

async fn read_errors(stderr: Option<ChildStderr>, errors: Arc<Mutex<TextTail>>, events: EventSink) {
    let Some(stderr) = stderr else { return };
    let mut gate = TextGate::new(MAX_STREAM);
    let log = |text: &str| events.log("debug", text.strip_suffix('\n').unwrap_or(text));
    let take = |piece: &str| {
        errors.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
        match gate.pass(piece) {
            GatedText::All(text) => log(text),
            GatedText::Last(text) if !text.is_empty() => log(text),
            GatedText::Last(_) | GatedText::Nothing => {}
        }
    };
    // Ends with the pipe, or with the task that runs this.
    pump(stderr, std::future::pending(), ChunkBoundary::AtLineEnd, take).await;
}
