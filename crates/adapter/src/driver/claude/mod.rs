//! Drives Claude Code: `claude -p` with stream-json both ways and its control protocol.

mod arguments;
mod conversation;
mod message;
mod permission;
mod request;
mod run;
mod session_record;
mod turn_result;

use attache_protocol::wire::adapter::{HostInfo, TaskReply};
use futures_util::future::BoxFuture;

use super::{Driver, DriverRun, reply_either_way};
use crate::{HostSetup, SandboxLimit};

#[derive(Debug, Clone)]
pub struct ClaudeDriver {
    setup: HostSetup,
}

// === impl ClaudeDriver ===

impl ClaudeDriver {
    pub const fn new(setup: HostSetup) -> Self {
        Self { setup }
    }
}

impl Driver for ClaudeDriver {
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
        let setup = self.setup.clone();
        reply_either_way(async move { run::run(&setup, &job).await })
    }

    fn try_start(&self, job: DriverRun) -> BoxFuture<'static, TaskReply> {
        let setup = self.setup.clone();
        reply_either_way(async move { run::try_start(&setup, &job).await })
    }
}
