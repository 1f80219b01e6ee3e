//! Drives Claude Code: `claude -p` with stream-json both ways and its control protocol.

mod arguments;
mod conversation;
mod message;
mod permission;
mod plan;
mod request;
mod run;
mod session_record;
mod turn_result;

use attache_protocol::wire::adapter::TaskReply;

use super::{DriverRun, HostDialect, HostDriver};
use crate::HostSetup;

pub type ClaudeDriver = HostDriver<ClaudeDialect>;

#[derive(Debug)]
pub struct ClaudeDialect;

// === impl ClaudeDialect ===

impl HostDialect for ClaudeDialect {
    const PLANS: bool = true;

    async fn run(setup: HostSetup, job: DriverRun) -> Result<TaskReply, TaskReply> {
        run::run(&setup, &job).await
    }

    async fn try_start(setup: HostSetup, job: DriverRun) -> Result<TaskReply, TaskReply> {
        run::try_start(&setup, &job).await
    }
}
