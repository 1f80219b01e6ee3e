//! Drives any agent that speaks the Agent Client Protocol, version 1, over standard input and output.
//!
//! All protocol details stay in this module, because version 2 ends turns differently and drops file requests.

mod conversation;
mod files;
mod message;
mod tool_calls;
mod update;

use attache_os::confined::ConfinedFolder;
use attache_protocol::wire::adapter::{HostInfo, TaskReply};
use futures_util::future::BoxFuture;

use self::conversation::{AcpConversation, AcpTask};
use super::{Driver, DriverRun, reply_either_way};
use crate::{
    attachment,
    host::{HostLaunch, HostProcess, HostSetup, HostTurn, SandboxLimit, TurnVerdict, limits, outage, outcome, prompt},
};

#[derive(Debug, Clone)]
pub struct AcpDriver {
    setup: HostSetup,
}

// === impl AcpDriver ===

impl AcpDriver {
    pub const fn new(setup: HostSetup) -> Self {
        Self { setup }
    }
}

impl Driver for AcpDriver {
    fn host(&self) -> HostInfo {
        self.setup.host()
    }

    fn enforces(&self) -> Vec<SandboxLimit> {
        self.setup.enforces.clone()
    }

    fn asks(&self) -> bool {
        self.setup.asks
    }

    fn run(&self, job: DriverRun) -> BoxFuture<'static, TaskReply> {
        reply_either_way(execute(self.setup.clone(), job))
    }

    fn try_start(&self, job: DriverRun) -> BoxFuture<'static, TaskReply> {
        reply_either_way(try_start(self.setup.clone(), job))
    }
}

/// Starts the agent up to the point where it would accept a task.
async fn try_start(setup: HostSetup, job: DriverRun) -> Result<TaskReply, TaskReply> {
    let cwd = job.folder()?;
    let files = ConfinedFolder::open(&cwd).map_err(|error| job.no_folder(&error))?;
    let turn = HostTurn::begin(&setup.label, &job);
    let launch = HostLaunch { program: setup.program.clone(), args: setup.args.clone(), ..HostLaunch::default() };
    let mut process = HostProcess::start(&launch, &job).await?;
    let mut conversation = AcpConversation::with(&mut process, turn, files);
    let verdict = conversation
        .open(&setup, &job, &cwd)
        .await
        .map_or_else(|verdict| verdict, |_| TurnVerdict::Done { text: None });
    let turn = conversation.close().finish();
    let ended = process.end_after(&verdict, &setup.memory).await;
    Ok(outcome::reply(verdict, &turn, &ended))
}

async fn execute(setup: HostSetup, job: DriverRun) -> Result<TaskReply, TaskReply> {
    let attached = attachment::of(&job)?;
    let text = job.task_text(&attached)?;
    limits::agreed(&setup, &job)?;
    let task = AcpTask { system: prompt::system(&job), text, attached };
    let cwd = job.folder()?;
    let files = ConfinedFolder::open(&cwd).map_err(|error| job.no_folder(&error))?;
    let turn = HostTurn::begin(&setup.label, &job);
    let launch = HostLaunch { program: setup.program.clone(), args: setup.args.clone(), ..HostLaunch::default() };
    let mut process = HostProcess::start(&launch, &job).await?;
    let mut conversation = AcpConversation::with(&mut process, turn, files);
    let verdict = tokio::select! {
        biased;
        verdict = conversation.converse(&setup, &job, &cwd, task) => verdict,
        () = job.stop.cancelled() => TurnVerdict::Stopped,
    };
    if verdict.cuts_short() {
        conversation.cancel_turn().await;
    }
    let turn = conversation.close().finish();
    let ended = process.end_after(&verdict, &setup.memory).await;
    Ok(outcome::reply(outage::reclassify_failure(verdict, &turn.text), &turn, &ended))
}
