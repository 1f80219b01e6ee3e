//! In-process agents: a Rust program that embeds the hub can host agents that are called in memory.
//!
//! They behave like any other agent: runs are queued, claimed, renewed, fenced and ended by the same rules, and
//! watchers see the same events. Only HTTP is skipped.

mod run;

use std::{future::Future, sync::Arc, time::Duration};

use attache_protocol::{
    AgentId, Json, NodeId, RunId, RuntimeId, TenantId,
    rules::run::{FailureCode, RunStatus},
    secret::Kind,
    wire::{
        run::{ClaimedRun, FailRequest, SandboxLimit},
        runtime::HeartbeatRequest,
    },
};
use attache_store::record::{AgentRef, ClaimedRunRecord, NewRuntime, PairingProof, RunFilter, RuntimeKind};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use serde::Serialize;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{Error, Handle, NodeOptions, Principal, Result, bus::Topic, check, error::about, identity::Action, render};

pub use attache_store::record::peer::{NewPeerTask, PeerTask, PeerTaskChange};
pub use run::{AgentFailure, AgentOutput, InProcessRun};

/// An in-process agent.
///
/// ```
/// use attache_hub::in_process::{AgentFailure, AgentOutput, InProcessAgent, InProcessRun};
///
/// struct Echo;
///
/// impl InProcessAgent for Echo {
///     async fn work(&self, work: InProcessRun) -> Result<AgentOutput, AgentFailure> {
///         work.progress("listening", 0.5).await?;
///         Ok(AgentOutput::text(format!("you said: {}", work.text())))
///     }
/// }
/// ```
pub trait InProcessAgent: Send + Sync + 'static {
    /// Executes one task. The future is dropped when the run is cancelled or times out. A panic fails the run.
    fn work(&self, work: InProcessRun) -> impl Future<Output = std::result::Result<AgentOutput, AgentFailure>> + Send;

    /// The run no longer belongs to this agent: it was cancelled, timed out, or claimed by someone else. Work on it has
    /// stopped.
    fn lost(&self, work: InProcessRun) -> impl Future<Output = ()> + Send {
        drop(work);
        async {}
    }

    /// Resolves when the agent can accept work. Until then its runs wait.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Capabilities that calls can use in place of the agent's name.
    fn capabilities(&self) -> Vec<String> {
        Vec::new()
    }

    /// The run limits it enforces. Runs that require any other limit never reach it.
    fn enforces(&self) -> Vec<SandboxLimit> {
        Vec::new()
    }

    /// How many tasks it executes at a time.
    fn concurrency(&self) -> usize {
        16
    }
}

/// An agent hosted by the hub. Dropping it ends the hosting. The account stays.
#[derive(Debug)]
pub struct HostedAgent {
    agent: AgentId,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The interval between pulls, in case a hint is lost.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How many additional claims are made concurrently under load.
const MAX_EXTRA_CLAIMS: usize = 7;
/// How long work may continue when the hosting ends. The hub waits slightly longer for its tasks.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);

/// The labels of its runtime.
#[derive(Serialize)]
struct HostedAgentLabels {
    host_type: &'static str,
    capabilities: Vec<String>,
}

// === impl Handle ===

impl Handle {
    /// Hosts an agent under this name, creating it if needed. Any previous worker of the agent is superseded, as when
    /// another device is paired. If several nodes of a database host it, one of them works, and another one when that ends.
    pub async fn host(&self, by: &Principal, name: &str, agent: impl InProcessAgent) -> Result<HostedAgent> {
        by.may_all(Action::RegisterAgent)?;
        let id = self.agent_named(by, name).await?;
        let (stop, agent) = (CancellationToken::new(), Arc::new(agent));
        let task = match self.local_node() {
            None => {
                let worker = self.worker_of_program(by, id, agent, stop.clone()).await?;
                self.tasks().spawn(async move {
                    worker.serve(Vec::new()).await;
                })
            }
            Some(_) => self.tasks().spawn(self.clone().host_in_turn(by.clone(), id, agent, stop.clone())),
        };
        Ok(HostedAgent { agent: id, stop, task })
    }

    /// Works whenever no other node does.
    async fn host_in_turn(self, by: Principal, id: AgentId, agent: Arc<impl InProcessAgent>, stop: CancellationToken) {
        let wait = self.options().nodes.as_ref().map_or(NodeOptions::default().look_every, |nodes| nodes.look_every);
        loop {
            if let Some(lease) = self.lease_agent(id).await {
                let ended = match self.worker_of_program(&by, id, agent.clone(), stop.clone()).await {
                    Ok(worker) => worker.serve(Vec::new()).await,
                    Err(error) => {
                        tracing::warn!(agent.id = %id, %error, "can't host an agent");
                        HostedWorkerEnd::NodeLost
                    }
                };
                self.release_agent(id, lease).await;
                if ended == HostedWorkerEnd::Ended {
                    return;
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.drained() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Leases the agent to this node, for as long as it hosts it. `None` if another node does. If this hub is alone, there is
    /// nothing to lease, and everything is its own.
    async fn lease_agent(&self, agent: AgentId) -> Option<NodeId> {
        let node = self.node()?;
        let leased = self.store().lease(node, &lease_name(agent)).await;
        leased.is_ok_and(|is_own| is_own).then_some(node)
    }

    async fn release_agent(&self, agent: AgentId, node: NodeId) {
        if let Err(error) = self.store().release_lease(node, &lease_name(agent)).await {
            tracing::debug!(agent.id = %agent, %error, "the lease of an agent could not be released");
        }
    }

    /// A worker with a new runtime.
    async fn worker_of_program<A: InProcessAgent>(
        &self,
        by: &Principal,
        id: AgentId,
        agent: Arc<A>,
        stop: CancellationToken,
    ) -> Result<HostedWorker<A>> {
        let token = Kind::ApiKey.generate(self.env());
        let labels = HostedAgentLabels { host_type: "in_process", capabilities: agent.capabilities() };
        let new = NewRuntime {
            // With its own key, an agent can also call others.
            kind: RuntimeKind::AgentKey,
            id: self.env().runtime_id(),
            token: token.hash(),
            proof: PairingProof::Owner { tenant: by.tenant, agent: id },
            paired_by: by.own_user(),
            device_name: Some("in process".to_owned()),
            labels: Json::of(&labels),
        };
        self.store().attach_runtime(new, self.now()).await.map_err(about("agent"))?;
        self.credentials().forget_agent(id);
        let principal = self.authenticate_key(token.expose()).await?;
        // Online before its existence is announced.
        self.heartbeat_here(&principal, HeartbeatRequest { running: Some(Vec::new()), ..HeartbeatRequest::default() })
            .await?;
        Ok(HostedWorker {
            hub: self.clone(),
            principal,
            id,
            agent,
            stop,
            life: WorkLifetime::Program,
            node: self.node(),
        })
    }

    /// Hosts an agent that the hub itself works for. After a hub restart, it gets the runs it held again, so its work
    /// must be able to tell what was already done. `None` while another node of the database hosts it.
    pub async fn host_here(
        &self,
        tenant: TenantId,
        agent: AgentId,
        worker: impl InProcessAgent,
    ) -> Result<Option<HostedAgent>> {
        let node = self.node();
        let lease = match node {
            None => None,
            Some(_) => match self.lease_agent(agent).await {
                Some(lease) => Some(lease),
                None => return Ok(None),
            },
        };
        let account = self.store().account(tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?;
        let known = account.runtime.as_ref().filter(|runtime| runtime.kind == RuntimeKind::Hub);
        let runtime = match known {
            Some(runtime) => runtime.id,
            None => {
                let labels = HostedAgentLabels { host_type: "a2a", capabilities: worker.capabilities() };
                let new = NewRuntime {
                    kind: RuntimeKind::Hub,
                    id: self.env().runtime_id(),
                    // Never shown to anyone.
                    token: Kind::RuntimeToken.generate(self.env()).hash(),
                    proof: PairingProof::Owner { tenant, agent },
                    paired_by: None,
                    device_name: None,
                    labels: Json::of(&labels),
                };
                self.store().attach_runtime(new, self.now()).await.map_err(about("agent"))?.id
            }
        };
        self.credentials().forget_agent(agent);
        let principal = self.check_here(tenant, runtime).await?;
        let held = self.held_here(tenant, agent, runtime).await?;
        let running = Some(held.iter().map(|claimed| claimed.task_run_id).collect());
        self.heartbeat_here(&principal, HeartbeatRequest { running, ..HeartbeatRequest::default() }).await?;
        let stop = CancellationToken::new();
        let (worker, life) = (Arc::new(worker), WorkLifetime::Hub);
        let host =
            HostedWorker { hub: self.clone(), principal, id: agent, agent: worker, stop: stop.clone(), life, node };
        let hub = self.clone();
        let task = self.tasks().spawn(async move {
            host.serve(held).await;
            // Only once all work has stopped: the next program to host the agent gets its runs.
            if let Some(lease) = lease {
                hub.release_agent(agent, lease).await;
            }
        });
        Ok(Some(HostedAgent { agent, stop, task }))
    }

    /// The runs the runtime has claimed.
    async fn held_here(&self, tenant: TenantId, agent: AgentId, runtime: RuntimeId) -> Result<Vec<ClaimedRun>> {
        let filter = RunFilter { status: Some(RunStatus::Running), agent: Some(agent), ..RunFilter::default() };
        let mut held = Vec::new();
        let mut runs = check::all_pages("run", |page| self.store().runs(tenant, filter.clone(), page));
        while let Some(run) = runs.next().await? {
            if run.runtime == Some(runtime) {
                let left = self.store().left(tenant, run.id).await.map_err(about("run"))?;
                let claimed = ClaimedRunRecord {
                    run,
                    agent_instructions: None,
                    conversation_metadata: None,
                    instructing_owner: None,
                    left,
                };
                held.extend(render::claimed(claimed));
            }
        }
        Ok(held)
    }
}

// === impl HostedAgent ===

impl HostedAgent {
    pub const fn agent_id(&self) -> AgentId {
        self.agent
    }

    /// Whether the hosting has ended on its own, for example because the agent's runtime was revoked.
    pub fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Accepts no more work, and waits a few seconds for work in progress.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let _ = (&mut self.task).await;
    }
}

impl Drop for HostedAgent {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The worker behind one hosted agent.
struct HostedWorker<A> {
    hub: Handle,
    principal: Principal,
    id: AgentId,
    agent: Arc<A>,
    stop: CancellationToken,
    life: WorkLifetime,
    /// The node that it was leased to.
    node: Option<NodeId>,
}

/// Why a worker stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostedWorkerEnd {
    /// It was stopped or refused.
    Ended,
    /// The other nodes considered this one dead, and one of them may work now.
    NodeLost,
}

fn lease_name(agent: AgentId) -> String {
    format!("host/{agent}")
}

/// What happens to the work when the hosting ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkLifetime {
    /// It ends with the program.
    Program,
    /// It runs elsewhere and continues. The hub resumes it.
    Hub,
}

// === impl HostedWorker ===

impl<A: InProcessAgent> HostedWorker<A> {
    async fn serve(self, held: Vec<ClaimedRun>) -> HostedWorkerEnd {
        let agent = self.id.to_string();
        let limit = self.agent.concurrency().max(1);
        let beat_every = (self.hub.options().heartbeat_timeout / 4).max(Duration::from_millis(10));
        let mut beat = tokio::time::interval(beat_every);
        let mut running = RunningWork::default();
        for claimed in held {
            running.start(&self, claimed);
        }
        let ask = |wait: Duration| {
            let agent = agent.as_str();
            let host = &self;
            Box::pin(async move {
                host.agent.ready().await;
                (wait, host.hub.pull_here(&host.principal, agent, wait, host.agent.enforces()).await)
            })
        };
        // One pull waits for work. Under load, others claim more in the same commit.
        let (mut pulls, mut waits, mut eager) = (FuturesUnordered::new(), false, 0);
        loop {
            if !waits && running.tasks.len() + pulls.len() < limit {
                pulls.push(ask(POLL_INTERVAL));
                waits = true;
            }
            while pulls.len() < usize::from(waits) + eager && running.tasks.len() + pulls.len() < limit {
                pulls.push(ask(Duration::ZERO));
            }
            tokio::select! {
                Some((wait, pulled)) = pulls.next() => {
                    waits = waits && wait.is_zero();
                    match pulled {
                        Ok(pulled) => match pulled.delivered() {
                            Some(claimed) => {
                                eager = (eager + 1).min(MAX_EXTRA_CLAIMS);
                                running.start(&self, claimed);
                            }
                            None => eager = 0,
                        }
                        Err(error) if error.code.http_status() < 500 => return self.refused(&error),
                        Err(error) => {
                            tracing::debug!(%error, "could not pull work");
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
                () = self.lost_node() => {
                    running.tasks.shutdown().await;
                    return HostedWorkerEnd::NodeLost;
                }
            }
        }
        drop(pulls);
        if self.life == WorkLifetime::Hub {
            running.tasks.shutdown().await;
            return HostedWorkerEnd::Ended;
        }
        let finish = async {
            while let Some(ended) = running.tasks.join_next().await {
                running.ended(ended);
            }
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, finish).await.is_err() {
            running.tasks.shutdown().await;
            self.give_up(&running.runs).await;
        }
        HostedWorkerEnd::Ended
    }

    /// Resolves when the other nodes consider this one dead. Never, if this hub is the only one.
    async fn lost_node(&self) {
        let mut changes = self.hub.bus().watch(Topic::Peers);
        while self.hub.node() == self.node {
            changes.moved().await;
        }
    }

    /// Fails runs that were abandoned, so that no one has to wait for their lease to expire.
    async fn give_up(&self, runs: &[RunId]) {
        for run in runs {
            let failed =
                AgentFailure::new("The program that hosts the agent was stopped.").code(FailureCode::RuntimeLost);
            let request = FailRequest { epoch: None, output: failed.output(), usage: None, inputs_taken: None };
            if let Err(error) = self.hub.fail(&self.principal, *run, request).await {
                tracing::warn!(run.id = %run, %error, "could not fail an abandoned run");
            }
        }
    }

    fn refused(&self, error: &Error) -> HostedWorkerEnd {
        tracing::info!(agent.id = %self.id, %error, "an in-process agent no longer works here");
        HostedWorkerEnd::Ended
    }
}

/// The runs in progress.
#[derive(Default)]
struct RunningWork {
    tasks: JoinSet<RunId>,
    runs: Vec<RunId>,
}

// === impl RunningWork ===

impl RunningWork {
    fn start<A: InProcessAgent>(&mut self, host: &HostedWorker<A>, claimed: ClaimedRun) {
        self.runs.push(claimed.task_run_id);
        let work = InProcessRun::new(host.hub.clone(), host.principal.clone(), claimed);
        self.tasks.spawn(work.done_by(host.agent.clone()));
    }

    fn ended(&mut self, ended: std::result::Result<RunId, tokio::task::JoinError>) {
        if let Ok(run) = ended {
            self.runs.retain(|known| *known != run);
        }
    }
}
