//! Any agent that speaks the Agent Client Protocol, version 1, over its standard input and output.
//!
//! The protocol is spoken here and nowhere else: in version 2 a turn ends in another way, and files are no longer asked for.

mod calls;
mod conversation;
mod files;
mod message;
mod update;

use std::time::Duration;

use attache_protocol::wire::adapter::{Host, TaskReply};
use futures_util::{FutureExt as _, future::BoxFuture};

use self::conversation::Conversation;
use super::{Driver, Job};
use crate::host::{Launch, Memory, Process, Setup, Turn, Verdict, limits, outage, outcome, paths::Beneath, prompt};

#[derive(Debug, Clone)]
pub struct Acp {
    setup: Setup,
}

/// How long an agent may take to end after its turn; with a memory it has something to write down.
const END: Duration = Duration::from_millis(300);
const END_WITH_MEMORY: Duration = Duration::from_secs(3);

/// After a cancel it has had its time.
const END_AT_ONCE: Duration = Duration::from_millis(50);

// === impl Acp ===

impl Acp {
    pub const fn new(setup: Setup) -> Self {
        Self { setup }
    }
}

impl Driver for Acp {
    fn host(&self) -> Host {
        self.setup.host()
    }

    fn run(&self, job: Job) -> BoxFuture<'static, TaskReply> {
        execute(self.setup.clone(), job).map(|ended| ended.unwrap_or_else(|failure| failure)).boxed()
    }
}

async fn execute(setup: Setup, job: Job) -> Result<TaskReply, TaskReply> {
    let task = prompt::whole(prompt::system(&job).as_deref(), &job.text()?);
    limits::kept(job.task.sandbox.as_ref(), &setup.label, |limit| setup.enforces.contains(&limit))?;
    limits::harmless(&setup, &job)?;
    let no_folder = |error| {
        TaskReply::failed("host_crashed", format!("the folder `{}` cannot be opened: {error}", job.cwd.display()))
    };
    // An agent names files by this path, and links on the way to it must not make them look foreign.
    let cwd = job.cwd.canonicalize().map_err(no_folder)?;
    let files = Beneath::open(&cwd).map_err(no_folder)?;
    let turn = Turn::begin(&setup.label, &job);
    let launch = Launch { program: setup.program.clone(), args: setup.args.clone(), ..Launch::default() };
    let mut process = Process::start(&launch, &job)?;
    let mut conversation = Conversation::with(&mut process, turn, files);
    let verdict = tokio::select! {
        biased;
        verdict = conversation.talk(&setup, &job, &cwd, &task) => verdict,
        () = job.stop.cancelled() => Verdict::Stopped,
    };
    let patience = match (&verdict, &setup.memory) {
        (Verdict::Stopped | Verdict::OverBudget { .. }, _) => {
            conversation.halt().await;
            END_AT_ONCE
        }
        (_, Memory::PerConversation(_)) => END_WITH_MEMORY,
        (_, Memory::Stateless) => END,
    };
    let turn = conversation.close().finish();
    let ended = process.end(patience).await;
    Ok(outcome::reply(outage::honest(verdict, &turn.text), &turn, &ended))
}
