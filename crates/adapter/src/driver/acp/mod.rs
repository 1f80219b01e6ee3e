//! Any agent that speaks the Agent Client Protocol, version 1, over its standard input and output.
//!
//! The protocol is spoken here and nowhere else: in version 2 a turn ends in another way, and files are no longer asked for.

mod calls;
mod conversation;
mod files;
mod message;
mod update;

use attache_protocol::wire::adapter::{Host, TaskReply};
use futures_util::future::BoxFuture;

use self::conversation::{Conversation, Task};
use super::{Driver, Job, settled};
use crate::{
    attachment,
    host::{Launch, Limit, Process, Setup, Turn, Verdict, limits, outage, outcome, paths::Beneath, prompt},
};

#[derive(Debug, Clone)]
pub struct Acp {
    setup: Setup,
}

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

    fn enforces(&self) -> Vec<Limit> {
        self.setup.enforces.clone()
    }

    fn asks(&self) -> bool {
        self.setup.asks
    }

    fn run(&self, job: Job) -> BoxFuture<'static, TaskReply> {
        settled(execute(self.setup.clone(), job))
    }

    fn try_start(&self, job: Job) -> BoxFuture<'static, TaskReply> {
        settled(try_start(self.setup.clone(), job))
    }
}

/// The agent up to where it takes a task.
async fn try_start(setup: Setup, job: Job) -> Result<TaskReply, TaskReply> {
    let cwd = job.folder()?;
    let files = Beneath::open(&cwd).map_err(|error| job.no_folder(&error))?;
    let turn = Turn::begin(&setup.label, &job);
    let launch = Launch { program: setup.program.clone(), args: setup.args.clone(), ..Launch::default() };
    let mut process = Process::start(&launch, &job).await?;
    let mut conversation = Conversation::with(&mut process, turn, files);
    let verdict =
        conversation.open(&setup, &job, &cwd).await.map_or_else(|verdict| verdict, |_| Verdict::Done { text: None });
    let turn = conversation.close().finish();
    let ended = process.end_after(&verdict, &setup.memory).await;
    Ok(outcome::reply(verdict, &turn, &ended))
}

async fn execute(setup: Setup, job: Job) -> Result<TaskReply, TaskReply> {
    let attached = attachment::of(&job)?;
    let text = job.words(&attached)?;
    limits::agreed(&setup, &job)?;
    let task = Task { system: prompt::system(&job), text, attached };
    let cwd = job.folder()?;
    let files = Beneath::open(&cwd).map_err(|error| job.no_folder(&error))?;
    let turn = Turn::begin(&setup.label, &job);
    let launch = Launch { program: setup.program.clone(), args: setup.args.clone(), ..Launch::default() };
    let mut process = Process::start(&launch, &job).await?;
    let mut conversation = Conversation::with(&mut process, turn, files);
    let verdict = tokio::select! {
        biased;
        verdict = conversation.talk(&setup, &job, &cwd, task) => verdict,
        () = job.stop.cancelled() => Verdict::Stopped,
    };
    if verdict.cuts_short() {
        conversation.halt().await;
    }
    let turn = conversation.close().finish();
    let ended = process.end_after(&verdict, &setup.memory).await;
    Ok(outcome::reply(outage::honest(verdict, &turn.text), &turn, &ended))
}
