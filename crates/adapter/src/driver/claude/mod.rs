//! Drives Claude Code: `claude -p` with stream-json both ways and its control protocol.

mod arguments;
mod conversation;
mod kept_sessions;
mod message;
mod permission;
mod plan;
mod request;
mod run;
mod session_record;
mod turn_result;

use std::path::Path;

use attache_protocol::wire::{adapter::TaskReply, host_session::CLAUDE_RESUME};

use super::{DialectDriver, DriverRun, HostDialect};
use crate::{Environment, HostSetup, SessionChoice, StoredHostSession};

pub type ClaudeDriver = DialectDriver<ClaudeDialect>;

#[derive(Debug)]
pub struct ClaudeDialect;

// === impl ClaudeDialect ===

impl HostDialect for ClaudeDialect {
    const PLANS: bool = true;
    const TAKES_INPUT: bool = true;
    const RESUME: Option<&str> = Some(CLAUDE_RESUME);

    fn kept_sessions(environment: &Environment, folder: &Path, choice: SessionChoice<'_>) -> Vec<StoredHostSession> {
        run::config_folder(environment).map(|config| kept_sessions::list(&config, folder, choice)).unwrap_or_default()
    }

    async fn run(setup: HostSetup, job: DriverRun) -> Result<TaskReply, TaskReply> {
        run::run(&setup, &job).await
    }

    async fn try_start(setup: HostSetup, job: DriverRun) -> Result<TaskReply, TaskReply> {
        run::try_start(&setup, &job).await
    }
}
