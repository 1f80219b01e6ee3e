//! Drives any agent that speaks the Agent Client Protocol, version 1, over standard input and output.
//!
//! All protocol details stay in this module, because version 2 ends turns differently and drops file requests.

mod conversation;
mod message;
mod tool_calls;
mod update;

use attache_protocol::wire::adapter::TaskReply;

use self::conversation::{AcpConversation, AcpTask};
use super::{DialectDriver, DriverRun, HostDialect};
use crate::{
    SandboxLimit, attachment,
    host::{HostLaunch, HostProcess, HostSetup, HostTurn, TurnVerdict, limits, outage, outcome, prompt},
};

pub type AcpDriver = DialectDriver<AcpDialect>;

#[derive(Debug)]
pub struct AcpDialect;

// === impl AcpDialect ===

impl HostDialect for AcpDialect {
    async fn run(setup: HostSetup, job: DriverRun) -> Result<TaskReply, TaskReply> {
        let attached = attachment::of(&job)?;
        let text = job.task_text(&attached)?;
        let limits = limits::agreed(&setup, &job)?;
        let task = AcpTask { system: prompt::system(&job), text, attached };
        let cwd = job.folder()?;
        let (process, mut conversation) = start(&setup, &job, &limits.walled).await?;
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

    /// Starts the agent up to the point where it would accept a task.
    async fn try_start(setup: HostSetup, job: DriverRun) -> Result<TaskReply, TaskReply> {
        let cwd = job.folder()?;
        let (process, mut conversation) = start(&setup, &job, &[]).await?;
        let verdict = conversation
            .open(&setup, &job, &cwd)
            .await
            .map_or_else(|verdict| verdict, |_| TurnVerdict::Done { text: None });
        let turn = conversation.close().finish();
        let ended = process.end_after(&verdict, &setup.memory).await;
        Ok(outcome::reply(verdict, &turn, &ended))
    }
}

async fn start(
    setup: &HostSetup,
    job: &DriverRun,
    walled: &[SandboxLimit],
) -> Result<(HostProcess, AcpConversation), TaskReply> {
    let turn = HostTurn::begin(&setup.label, job).inside(walled);
    let launch = HostLaunch { program: setup.program.clone(), args: setup.args.clone(), ..HostLaunch::default() };
    let mut process = HostProcess::start(setup, &launch, walled, job).await?;
    let conversation = AcpConversation::with(&mut process, turn);
    Ok((process, conversation))
}
