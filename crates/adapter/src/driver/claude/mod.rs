//! Drives Claude Code: `claude -p` with stream-json both ways and its control protocol.

mod arguments;
mod ending;
mod message;
mod permission;
mod record;
mod request;
mod run;
mod talk;

use attache_protocol::wire::adapter::{Host, TaskReply};
use futures_util::future::BoxFuture;

use super::{Driver, Job, settled};
use crate::{Limit, Setup};

#[derive(Debug, Clone)]
pub struct Claude {
    setup: Setup,
}

// === impl Claude ===

impl Claude {
    pub const fn new(setup: Setup) -> Self {
        Self { setup }
    }
}

impl Driver for Claude {
    fn host(&self) -> Host {
        self.setup.host()
    }

    fn enforces(&self) -> Vec<Limit> {
        self.setup.enforces.clone()
    }

    fn asks(&self) -> bool {
        self.setup.asks
    }

    fn run(&self, job: Job) -> BoxFuture<'static, TaskReply> {
        let setup = self.setup.clone();
        settled(async move { run::run(&setup, &job).await })
    }

    fn try_start(&self, job: Job) -> BoxFuture<'static, TaskReply> {
        let setup = self.setup.clone();
        settled(async move { run::try_start(&setup, &job).await })
    }
}
