//! How one kind of agent is put to work. The service around it owns HTTP, the slot, the deadline and the outcome.

mod acp;
mod claude;
mod codex;
mod command;
mod conformance;
mod exec;
mod shell;

use std::{fmt, io, path::PathBuf};

use attache_protocol::{
    env::Env,
    wire::adapter::{HostInfo, RunTask, TaskOutput, TaskReply},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

pub use self::{
    acp::AcpDriver, claude::ClaudeDriver, codex::CodexDriver, command::CommandDriver, conformance::ConformanceDriver,
    exec::ExecDriver, shell::ShellDriver,
};
use crate::{Asker, Environment, EventSink, SandboxLimit, attachment::Attachment};

/// Drives one kind of agent. It is given one job at a time, unless the adapter is told to take more.
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// What `/health` says about the agent behind this adapter.
    fn host(&self) -> HostInfo;

    /// Whether its agent asks a person before it takes a risky step. Others reach one that does not only with an approval.
    fn asks(&self) -> bool {
        false
    }

    /// Whether its agent hears what a caller says while it works, without having asked (see [`Asker::unasked`]).
    fn accepts_unsolicited(&self) -> bool {
        false
    }

    /// The limits of tasks that its agent keeps.
    fn enforces(&self) -> Vec<SandboxLimit> {
        Vec::new()
    }

    /// Does the job and returns its outcome once everything that it started is gone.
    ///
    /// When `job.stop` is cancelled (cancel, deadline, shutdown) it stops at once and returns any failure: the
    /// service knows the reason and writes it into the reply. Dropping the future must stop the work too.
    fn run(&self, job: DriverRun) -> BoxFuture<'static, TaskReply>;

    /// Starts its agent as for this job, up to where it would be given the task, and ends it. Nothing of the task is told.
    fn try_start(&self, _job: DriverRun) -> BoxFuture<'static, TaskReply> {
        std::future::ready(TaskReply::done(&TaskOutput::default())).boxed()
    }
}

/// One run, as a driver gets it.
#[derive(Debug)]
pub struct DriverRun {
    pub task: RunTask,
    /// The folder to work in; it exists.
    pub cwd: PathBuf,
    /// The adapter's own instructions, which go with every task.
    pub standing: Option<String>,
    /// What child processes may see.
    pub environment: Environment,
    /// Where private folders of a run are made.
    pub scratch: PathBuf,
    pub env: Env,
    pub events: EventSink,
    /// How to ask people before a risky step, or for more to go on.
    pub asker: Asker,
    pub stop: CancellationToken,
}

/// A run that could not be begun has an answer as well.
fn reply_either_way(
    run: impl Future<Output = Result<TaskReply, TaskReply>> + Send + 'static,
) -> BoxFuture<'static, TaskReply> {
    run.map(|ended| ended.unwrap_or_else(|failure| failure)).boxed()
}

// === impl DriverRun ===

impl DriverRun {
    /// The instructions of the account and the conversation, then the adapter's own.
    pub fn instructions(&self) -> Option<String> {
        let parts = [self.task.instructions.as_deref(), self.standing.as_deref()];
        let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.trim().is_empty()).collect();
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }

    /// The folder to work in without links on the way to it: hosts compare paths by their letters.
    fn folder(&self) -> Result<PathBuf, TaskReply> {
        self.cwd.canonicalize().map_err(|error| self.no_folder(&error))
    }

    fn no_folder(&self, error: &io::Error) -> TaskReply {
        TaskReply::failed("host_crashed", format!("the folder `{}` cannot be opened: {error}", self.cwd.display()))
    }

    /// The same for a task that may be nothing but what comes with it.
    fn task_text(&self, attached: &[Attachment]) -> Result<String, TaskReply> {
        match self.text() {
            Err(_) if !attached.is_empty() => Ok("See what came with this task.".to_owned()),
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
