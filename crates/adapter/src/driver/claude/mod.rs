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
use futures_util::{FutureExt as _, future::BoxFuture};

use super::{Driver, Job};
use crate::Setup;

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

    fn run(&self, job: Job) -> BoxFuture<'static, TaskReply> {
        let setup = self.setup.clone();
        async move { run::run(&setup, &job).await.unwrap_or_else(|failure| failure) }.boxed()
    }
}
