//! The `Driver` trait: how one kind of agent runs a task. The service around it owns HTTP, the run slots, the deadline
//! and the outcome.

mod acp;
mod claude;
mod codex;
mod command;
mod conformance;
mod exec;
mod shell;

use std::{
    fmt, io,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use attache_os::confined::ConfinedFolder;
use attache_protocol::{
    env::Env,
    rules::permission_mode::PermissionMode,
    wire::{
        adapter::{ATTACHMENT_FOLDER, HostInfo, RunTask, TaskOutput, TaskReply},
        awcp,
        host_session::{HostSession, MAX_SESSIONS, resume_command},
    },
};
use attache_workspace::report::git::worktree::WorktreeAccess;
use futures_util::{FutureExt as _, future::BoxFuture};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

pub use self::{
    acp::AcpDriver, claude::ClaudeDriver, codex::CodexDriver, command::CommandDriver, conformance::ConformanceDriver,
    exec::ExecDriver, shell::ShellDriver,
};
use crate::{
    AdapterWalls, Environment, EventSink, HostMemory, HostSetup, QuestionHandle, SandboxLimit, SessionChoice,
    StoredHostSession, attachment::Attachment, host::limits,
};

/// Drives one kind of agent. Gets one run at a time, unless the adapter is configured for more.
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// The agent behind this adapter, as reported by `/health`.
    fn host(&self) -> HostInfo;

    /// Whether its agent asks a person before a risky step. Calls from others to an agent that doesn't ask need an
    /// approval first.
    fn asks(&self) -> bool {
        false
    }

    /// Whether its agent can be made to get its plan approved before it changes anything ([`DriverRun::plans_first`]).
    fn plans(&self) -> bool {
        false
    }

    /// Whether its agent keeps sessions that a run can continue ([`RunTask::host_session`]).
    fn continues_sessions(&self) -> bool {
        false
    }

    /// The sessions that its agent keeps for this folder, newest first. Reads files, so it must not run on the executor.
    fn sessions(&self, _environment: &Environment, _folder: &Path) -> Vec<HostSession> {
        Vec::new()
    }

    /// Whether its agent accepts unsolicited input from the caller while it works (see [`QuestionHandle::next_unsolicited`]).
    fn accepts_unsolicited(&self) -> bool {
        false
    }

    /// The task limits its agent enforces.
    fn enforces(&self) -> Vec<SandboxLimit> {
        Vec::new()
    }

    /// Whether its processes can run inside the machine's walls.
    fn runs_inside_walls(&self) -> bool {
        false
    }

    /// Runs the task and returns the outcome once everything it started is gone.
    ///
    /// When `job.stop` is cancelled (cancel, deadline, shutdown), it stops at once and returns any failure. The service
    /// knows the reason and puts it into the reply. Dropping the future must stop the work too.
    fn run(&self, job: DriverRun) -> BoxFuture<'static, TaskReply>;

    /// Starts its agent as for this run, up to the point where it would get the task, then stops it. The task is never
    /// sent.
    fn try_start(&self, _job: DriverRun) -> BoxFuture<'static, TaskReply> {
        std::future::ready(TaskReply::done(&TaskOutput::default())).boxed()
    }
}

/// One run, as passed to a driver.
#[derive(Debug)]
pub struct DriverRun {
    pub task: RunTask,
    /// The working folder. It exists.
    pub cwd: PathBuf,
    /// The adapter's own instructions, added to every task.
    pub standing: Option<String>,
    /// The environment of child processes.
    pub environment: Environment,
    /// Where runs create their private folders.
    pub scratch: PathBuf,
    /// What the run neither sees in walls nor names in its folder: folders of our own and, in walls, those of other agents.
    pub hidden: Vec<PathBuf>,
    /// The walls of this machine, for a driver that runs inside them.
    pub walls: Option<AdapterWalls>,
    /// What git needs of the repository, if the folder is a worktree of the run's own.
    pub worktree: Option<WorktreeAccess>,
    pub env: Env,
    pub events: EventSink,
    /// For asking people for approval, or the caller for input.
    pub question_handle: QuestionHandle,
    pub stop: CancellationToken,
}

/// The protocol that one kind of host speaks.
pub trait HostDialect: fmt::Debug + Send + Sync + 'static {
    /// See [`Driver::plans`].
    const PLANS: bool = false;

    /// See [`Driver::accepts_unsolicited`].
    const TAKES_INPUT: bool = false;

    /// The shell command that continues a session in a terminal, up to its id. `None` if runs can't continue sessions.
    const RESUME: Option<&str> = None;

    /// The sessions that the host keeps for this folder, which is named without links, newest first.
    fn kept_sessions(_environment: &Environment, _folder: &Path, _choice: SessionChoice<'_>) -> Vec<StoredHostSession> {
        Vec::new()
    }

    /// See [`Driver::run`]. `Err` if the run could not start.
    fn run(setup: HostSetup, job: DriverRun) -> impl Future<Output = Result<TaskReply, TaskReply>> + Send + 'static;

    /// See [`Driver::try_start`].
    fn try_start(
        setup: HostSetup,
        job: DriverRun,
    ) -> impl Future<Output = Result<TaskReply, TaskReply>> + Send + 'static;
}

/// Drives the host that the setup names, in its dialect.
#[derive(Debug)]
pub struct DialectDriver<D> {
    setup: HostSetup,
    dialect: PhantomData<D>,
}

/// Unwraps the reply of a run, whether or not it could start.
fn reply_either_way(
    run: impl Future<Output = Result<TaskReply, TaskReply>> + Send + 'static,
) -> BoxFuture<'static, TaskReply> {
    run.map(|ended| ended.unwrap_or_else(|failure| failure)).boxed()
}

// === impl DialectDriver ===

impl<D: HostDialect> DialectDriver<D> {
    pub const fn new(setup: HostSetup) -> Self {
        Self { setup, dialect: PhantomData }
    }
}

impl<D: HostDialect> Driver for DialectDriver<D> {
    fn host(&self) -> HostInfo {
        self.setup.host()
    }

    fn enforces(&self) -> Vec<SandboxLimit> {
        self.setup.enforces.clone()
    }

    fn asks(&self) -> bool {
        self.setup.asks
    }

    fn plans(&self) -> bool {
        D::PLANS
    }

    fn accepts_unsolicited(&self) -> bool {
        D::TAKES_INPUT
    }

    fn continues_sessions(&self) -> bool {
        D::RESUME.is_some() && self.setup.memory != HostMemory::Stateless
    }

    fn sessions(&self, environment: &Environment, folder: &Path) -> Vec<HostSession> {
        let Some(resume) = D::RESUME.filter(|_| self.continues_sessions()) else { return Vec::new() };
        let Some(shown) = folder.to_str() else { return Vec::new() };
        let conversations = self.setup.memory.conversations(&self.setup);
        let kept = D::kept_sessions(environment, folder, SessionChoice::Newest(MAX_SESSIONS));
        let session = |StoredHostSession { id, title, updated_at }: StoredHostSession| HostSession {
            conversation_id: conversations.get(&id).copied(),
            command: resume_command(shown, resume, &id),
            session_id: id,
            title,
            updated_at,
            folder: shown.to_owned(),
        };
        kept.into_iter().map(session).filter(HostSession::is_plain).collect()
    }

    fn runs_inside_walls(&self) -> bool {
        self.setup.needs.is_some()
    }

    fn run(&self, job: DriverRun) -> BoxFuture<'static, TaskReply> {
        reply_either_way(D::run(limits::setup_for(&self.setup, &job), job))
    }

    fn try_start(&self, job: DriverRun) -> BoxFuture<'static, TaskReply> {
        reply_either_way(D::try_start(self.setup.clone(), job))
    }
}

// === impl DriverRun ===

impl DriverRun {
    /// Whether nothing may be changed before a person has approved the agent's plan.
    pub fn plans_first(&self) -> bool {
        self.task.permission_mode == Some(PermissionMode::PlanFirst)
    }

    /// The files that a driver shows to people: those in the run's folder, but not our own, nor what came with other
    /// runs.
    pub(crate) fn files(&self) -> io::Result<ConfinedFolder> {
        let folder = ConfinedFolder::open(&self.cwd)?;
        let came = self.cwd.canonicalize()?.join(ATTACHMENT_FOLDER);
        let hidden: Vec<PathBuf> = self.hidden.iter().cloned().chain([came.clone()]).collect();
        Ok(folder.hiding(&hidden, Some(came.join(self.task.task_run_id.to_string()))))
    }

    /// The instructions of the account and the conversation, then the adapter's own.
    pub fn instructions(&self) -> Option<String> {
        let parts = [self.task.instructions.as_deref(), self.standing.as_deref()];
        let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.trim().is_empty()).collect();
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }

    /// The working folder, as it was when the adapter started: somebody who may write around it could have put a link in
    /// its place since. The folder of a delegation is made for its run, out of everybody's reach.
    pub(crate) fn real_folder(&self) -> io::Result<PathBuf> {
        let real = self.cwd.canonicalize()?;
        if self.task.task_type != awcp::TASK_TYPE && real != self.cwd {
            let why = format!("`{}` leads to `{}` since this adapter started", self.cwd.display(), real.display());
            return Err(io::Error::other(why));
        }
        Ok(real)
    }

    /// What was put into the folder for this run and others is hidden, too, where others work in it.
    pub(crate) fn hidden_from_git(&self, cwd: &Path) -> Vec<PathBuf> {
        let came = Some(cwd.join(ATTACHMENT_FOLDER)).filter(|_| self.task.task_type != awcp::TASK_TYPE);
        self.hidden.iter().cloned().chain(came).collect()
    }

    /// The folders in which runs of this device work, this one's first. Whoever lets an agent work in a home folder as a
    /// whole has every program of theirs in it.
    pub(crate) fn worked_in(&self) -> io::Result<Vec<PathBuf>> {
        let others = self.walls.as_ref().map(|walls| (walls.others.0)()).transpose()?.unwrap_or_default();
        let home = self.environment.get("HOME").map(Path::new);
        let is_part = |folder: &PathBuf| !home.is_some_and(|home| home.starts_with(folder));
        Ok(std::iter::once(self.cwd.clone()).chain(others).filter(is_part).collect())
    }

    /// The working folder with symlinks resolved, because hosts compare paths as strings.
    fn folder(&self) -> Result<PathBuf, TaskReply> {
        self.cwd.canonicalize().map_err(|error| self.no_folder(&error))
    }

    fn no_folder(&self, error: &io::Error) -> TaskReply {
        TaskReply::failed("host_crashed", format!("can't open the folder `{}`: {error}", self.cwd.display()))
    }

    /// Like [`Self::text`], for a task that may consist of attachments only.
    fn task_text(&self, attached: &[Attachment]) -> Result<String, TaskReply> {
        match self.text() {
            Err(_) if !attached.is_empty() => Ok("See the attachments of this task.".to_owned()),
            text => text,
        }
    }

    /// The text of the task: `input.text`, or `input` itself when it is a string.
    pub fn text(&self) -> Result<String, TaskReply> {
        #[derive(Deserialize)]
        struct TextInput {
            text: String,
        }
        let input = &self.task.input;
        let text = input.parse::<TextInput>().map(|input| input.text).or_else(|_| input.parse::<String>());
        match text {
            Ok(text) if !text.trim().is_empty() => Ok(text),
            _ => Err(TaskReply::failed(
                "rejected",
                "the task has no text; create it with an input like {\"text\":\"uname -a\"}",
            )),
        }
    }
}
