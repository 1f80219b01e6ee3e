//! Agents in the hub's own process: a Rust program that embeds the hub gives it agents that are called in memory.
//!
//! Such an agent is an agent like any other: its runs are queued, claimed, renewed, fenced and ended by the same rules, and
//! whoever watches sees the same events. Only there is no HTTP in between.

mod work;

use std::{future::Future, sync::Arc, time::Duration};

use attache_protocol::{
    AgentId, Json, RunId, RuntimeId, TenantId,
    rules::run::{FailureCode, Status},
    secret::Kind,
    wire::{
        run::{ClaimedRun, FailRequest},
        runtime::HeartbeatRequest,
    },
};
use attache_store::record::{Account, AgentRef, Claimed, NewRuntime, Page, Proof, RunFilter, RuntimeKind};
use futures_util::future::OptionFuture;
use serde::Serialize;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use self::work::Beginning;
use crate::{Error, Handle, Principal, Result, control::check, error::about, identity::Action, render};

pub use work::{Failure, Output, Work};

/// What an agent in this process does.
///
/// ```
/// use attache_hub::in_process::{Failure, InProcessAgent, Output, Work};
///
/// struct Echo;
///
/// impl InProcessAgent for Echo {
///     async fn work(&self, work: Work) -> Result<Output, Failure> {
///         work.progress("listening", 0.5).await?;
///         Ok(Output::text(format!("you said: {}", work.text())))
///     }
/// }
/// ```
pub trait InProcessAgent: Send + Sync + 'static {
    /// Does one task. The future is dropped when the run is cancelled or times out; a panic fails the run.
    fn work(&self, work: Work) -> impl Future<Output = std::result::Result<Output, Failure>> + Send;

    /// Goes on with a task that was under way when the hub stopped. Whoever cannot leaves it at this: the task is lost.
    fn resume(&self, work: Work) -> impl Future<Output = std::result::Result<Output, Failure>> + Send {
        drop(work);
        async {
            let lost = Failure::new("The program that hosts the agent was restarted.");
            Err(lost.code(FailureCode::RuntimeLost))
        }
    }

    /// What calls may ask for instead of the agent's name.
    fn capabilities(&self) -> Vec<String> {
        Vec::new()
    }

    /// How many tasks it does at the same time.
    fn concurrency(&self) -> usize {
        16
    }
}

/// An agent that the hub hosts. Dropping it ends the hosting; the account stays.
#[derive(Debug)]
pub struct Hosted {
    agent: AgentId,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Between asking for work, so that nothing is lost if a hint is.
const WAIT: Duration = Duration::from_secs(30);
/// How long work may go on when the hosting ends. The hub waits a little longer for its tasks.
const GOODBYE: Duration = Duration::from_secs(4);

/// The labels of its runtime.
#[derive(Serialize)]
struct Labels {
    host_type: &'static str,
    capabilities: Vec<String>,
}

// === impl Handle ===

impl Handle {
    /// Hosts an agent under this name, which is made if nobody has it yet. Whatever worked for the agent before is
    /// superseded, as by pairing another device.
    pub async fn host(&self, by: &Principal, name: &str, agent: impl InProcessAgent) -> Result<Hosted> {
        by.may(Action::RegisterAgent)?;
        let id = self.agent_named(by, name).await?;
        let token = Kind::ApiKey.generate(self.env());
        let labels = Labels { host_type: "in_process", capabilities: agent.capabilities() };
        let new = NewRuntime {
            // With a key of its own an agent also calls others.
            kind: RuntimeKind::AgentKey,
            id: self.env().runtime_id(),
            token: token.hash(),
            proof: Proof::Owner { tenant: by.tenant, agent: id },
            device_name: Some("in process".to_owned()),
            labels: Json::of(&labels),
        };
        self.store().attach_runtime(new, self.now()).await.map_err(about("agent"))?;
        self.credentials().forget_agent(id);
        let principal = self.authenticate_key(token.expose()).await?;
        // Online before anybody is told that it is there.
        self.heartbeat_here(&principal, HeartbeatRequest { running: Some(Vec::new()), ..HeartbeatRequest::default() })
            .await?;
        let stop = CancellationToken::new();
        let (agent, parting) = (Arc::new(agent), Parting::GiveUp);
        let host = Host { hub: self.clone(), principal, id, agent, stop: stop.clone(), parting };
        Ok(Hosted { agent: id, stop, task: self.tasks().spawn(host.serve(Vec::new())) })
    }

    /// Hosts an agent and goes on where the hub stopped: as the same runtime, with the claims that it still holds, which
    /// [`InProcessAgent::resume`] is handed. When this hosting ends, its claims stay for the next one, as long as their
    /// lease lasts. For the hub's own workers; an agent that a device or a key works for is refused.
    pub async fn resume_in_process(&self, tenant: TenantId, id: AgentId, agent: impl InProcessAgent) -> Result<Hosted> {
        let account = self.store().account(tenant, AgentRef::Id(id)).await.map_err(about("agent"))?;
        let runtime = match &account.runtime {
            Some(runtime) if runtime.kind == RuntimeKind::Hub => runtime.id,
            Some(_) => return Err(Error::from_store("agent", attache_store::Error::IsPaired)),
            None => self.attach_here(tenant, id, agent.capabilities()).await?,
        };
        let principal = self.check_here(tenant, runtime).await?;
        let held = self.held_by(&account, runtime).await?;
        let running = Some(held.iter().map(|claimed| claimed.task_run_id).collect());
        self.heartbeat_here(&principal, HeartbeatRequest { running, ..HeartbeatRequest::default() }).await?;
        let stop = CancellationToken::new();
        let (agent, parting) = (Arc::new(agent), Parting::Keep);
        let host = Host { hub: self.clone(), principal, id, agent, stop: stop.clone(), parting };
        Ok(Hosted { agent: id, stop, task: self.tasks().spawn(host.serve(held)) })
    }

    async fn attach_here(&self, tenant: TenantId, agent: AgentId, capabilities: Vec<String>) -> Result<RuntimeId> {
        let id = self.env().runtime_id();
        let new = NewRuntime {
            kind: RuntimeKind::Hub,
            id,
            // Nobody ever sees it.
            token: Kind::RuntimeToken.generate(self.env()).hash(),
            proof: Proof::Owner { tenant, agent },
            device_name: Some("hub".to_owned()),
            labels: Json::of(&Labels { host_type: "hub", capabilities }),
        };
        self.store().attach_runtime(new, self.now()).await.map_err(about("agent"))?;
        self.credentials().forget_agent(agent);
        Ok(id)
    }

    /// What the runtime holds, as it was handed out when it was claimed, oldest first.
    async fn held_by(&self, account: &Account, runtime: RuntimeId) -> Result<Vec<ClaimedRun>> {
        let filter = RunFilter { status: Some(Status::Running), agent: Some(account.id), ..RunFilter::default() };
        let (mut held, mut cursor) = (Vec::new(), None);
        loop {
            let page = Page { limit: check::MAX_PAGE, cursor };
            let listed = self.store().runs(account.tenant, filter.clone(), page).await.map_err(about("run"))?;
            for run in listed.items.into_iter().filter(|run| run.state.claim().is_some_and(|by| by.runtime == runtime))
            {
                let conversation = self.store().conversation(run.tenant, run.conversation).await;
                let conversation_metadata = conversation.map_err(about("conversation"))?.metadata;
                let agent_instructions = account.instructions.clone();
                held.extend(render::claimed(Claimed { run, agent_instructions, conversation_metadata }));
            }
            cursor = listed.next;
            if cursor.is_none() {
                held.reverse();
                return Ok(held);
            }
        }
    }
}

// === impl Hosted ===

impl Hosted {
    pub const fn agent_id(&self) -> AgentId {
        self.agent
    }

    /// Takes no more work, and waits a few seconds for what is under way.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The worker behind one hosted agent.
struct Host<A> {
    hub: Handle,
    principal: Principal,
    id: AgentId,
    agent: Arc<A>,
    stop: CancellationToken,
    parting: Parting,
}

/// What becomes of work that is under way when the hosting ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parting {
    /// It has a few seconds, then it is lost.
    GiveUp,
    /// It is dropped, and its claims stay for whoever resumes them.
    Keep,
}

// === impl Host ===

impl<A: InProcessAgent> Host<A> {
    async fn serve(self, held: Vec<ClaimedRun>) {
        let agent = self.id.to_string();
        let limit = self.agent.concurrency().max(1);
        let beat_every = (self.hub.options().heartbeat_timeout / 4).max(Duration::from_millis(10));
        let mut beat = tokio::time::interval(beat_every);
        let mut running = Running::default();
        for claimed in held {
            running.start(&self, claimed, Beginning::Resumed);
        }
        let mut pull = None;
        loop {
            if pull.is_none() && running.tasks.len() < limit {
                pull = Some(Box::pin(self.hub.pull_here(&self.principal, &agent, WAIT)));
            }
            tokio::select! {
                Some(pulled) = OptionFuture::from(pull.as_mut()) => {
                    pull = None;
                    match pulled {
                        Ok(pulled) => {
                            if let Some(claimed) = pulled.delivered() {
                                running.start(&self, claimed, Beginning::Fresh);
                            }
                        }
                        Err(error) if error.code.http_status() < 500 => return self.refused(&error),
                        Err(error) => {
                            tracing::debug!(%error, "work could not be asked for");
                            tokio::time::sleep(beat_every.min(Duration::from_millis(200))).await;
                        }
                    }
                }
                Some(ended) = running.tasks.join_next() => running.ended(ended),
                _ = beat.tick() => {
                    let request = HeartbeatRequest { running: Some(running.runs.clone()), ..HeartbeatRequest::default() };
                    if let Err(error) = self.hub.heartbeat_here(&self.principal, request).await
                        && error.code.http_status() < 500
                    {
                        return self.refused(&error);
                    }
                }
                () = self.stop.cancelled() => break,
                () = self.hub.drained() => break,
            }
        }
        drop(pull);
        if self.parting == Parting::Keep {
            return running.tasks.shutdown().await;
        }
        let finish = async {
            while let Some(ended) = running.tasks.join_next().await {
                running.ended(ended);
            }
        };
        if tokio::time::timeout(GOODBYE, finish).await.is_err() {
            running.tasks.shutdown().await;
            self.give_up(&running.runs).await;
        }
    }

    /// Nobody has to wait for a lease to run out to learn that the work is not done any more.
    async fn give_up(&self, runs: &[RunId]) {
        for run in runs {
            let failed = Failure::new("The program that hosts the agent was stopped.").code(FailureCode::RuntimeLost);
            let request = FailRequest { epoch: None, output: failed.output(), usage: None };
            if let Err(error) = self.hub.fail(&self.principal, *run, request).await {
                tracing::warn!(run.id = %run, %error, "a run that was given up could not be ended");
            }
        }
    }

    fn refused(&self, error: &Error) {
        tracing::info!(agent.id = %self.id, %error, "an agent in this process does not work here any more");
    }
}

/// The runs that are worked on.
#[derive(Default)]
struct Running {
    tasks: JoinSet<RunId>,
    runs: Vec<RunId>,
}

// === impl Running ===

impl Running {
    fn start<A: InProcessAgent>(&mut self, host: &Host<A>, claimed: ClaimedRun, beginning: Beginning) {
        self.runs.push(claimed.task_run_id);
        let work = Work::new(host.hub.clone(), host.principal.clone(), claimed);
        self.tasks.spawn(work.done_by(host.agent.clone(), beginning));
    }

    fn ended(&mut self, ended: std::result::Result<RunId, tokio::task::JoinError>) {
        if let Ok(run) = ended {
            self.runs.retain(|known| *known != run);
        }
    }
}
