//! A runtime polls for work. A claim whose response was never sent goes back to the queue.

use std::time::Duration;

use attache_protocol::{
    Actor, RunId, RuntimeId,
    rules::run::WorkerRef,
    wire::run::{ClaimedRun, PullResponse, SandboxLimit},
};
use attache_store::{
    WriteContext,
    record::{AgentRef, ClaimedRunRecord, RuntimeKind, channel::ChannelConnection},
};

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    check,
    error::about,
    identity::{Action, PrincipalKind},
    waiter::Waiter,
};

/// The answer to a pull. Dropping it releases the claimed run; [`PullAnswer::delivered`] keeps the claim.
#[derive(Debug)]
pub struct PullAnswer {
    response: PullResponse,
    claim: Option<UndeliveredClaim>,
}

/// A claim its runtime does not know about yet.
#[derive(Debug)]
struct UndeliveredClaim {
    hub: Handle,
    run: RunId,
    worker: WorkerRef,
    delivered: bool,
}

// === impl Handle ===

impl Handle {
    /// Waits up to `wait` (at most a minute) for a run for the runtime's agent. For runtimes that enforce no limits.
    pub async fn pull(&self, by: &Principal, agent: &str, wait: Duration) -> Result<PullAnswer> {
        self.pull_enforcing(by, agent, wait, Vec::new()).await
    }

    /// The same for a runtime that enforces these limits.
    pub async fn pull_enforcing(
        &self,
        by: &Principal,
        agent: &str,
        wait: Duration,
        enforces: Vec<SandboxLimit>,
    ) -> Result<PullAnswer> {
        by.over_http()?;
        self.pull_here(by, agent, wait, enforces).await
    }

    /// The same for in-process workers, whatever their credential.
    pub(crate) async fn pull_here(
        &self,
        by: &Principal,
        agent: &str,
        wait: Duration,
        enforces: Vec<SandboxLimit>,
    ) -> Result<PullAnswer> {
        let (runtime, own) = by.may(Action::Work)?.device()?;
        let here = matches!(by.who, PrincipalKind::Runtime { kind: RuntimeKind::Hub, .. });
        let named = match check::agent_in_path(agent)? {
            AgentRef::Id(id) => id,
            name @ AgentRef::Name(_) => self.store().account(by.tenant, name).await.map_err(about("agent"))?.id,
        };
        if named != own {
            return Err(Error::not_found("agent"));
        }
        if wait.is_zero() {
            return self.claim(runtime, here, &enforces).await;
        }
        let _slot = self.wait_slot(by, wait)?;
        let mut waiter = Waiter::new(self, by, Topic::Queue(own), Some(wait.min(Waiter::MAX_WAIT)));
        loop {
            let pulled = self.claim(runtime, here, &enforces).await?;
            if pulled.claim.is_some() || !waiter.changed().await? {
                return Ok(pulled);
            }
        }
    }

    /// Claims in a separate task: if the caller disconnects meanwhile, the answer is dropped and the run is released.
    /// In-process workers need no token to reach the hub.
    async fn claim(&self, runtime: RuntimeId, here: bool, enforces: &[SandboxLimit]) -> Result<PullAnswer> {
        let (hub, enforces) = (self.clone(), enforces.to_vec());
        let task = self.tasks().spawn(async move {
            let claimed = hub.claim_next(runtime, None, &enforces).await.map_err(about("runtime"))?;
            let Some(claimed) = claimed else {
                return Ok(PullAnswer { response: PullResponse { task_run: None }, claim: None });
            };
            let worker = WorkerRef { runtime, epoch: Some(claimed.run.state.epoch) };
            let claim = UndeliveredClaim { run: claimed.run.id, worker, hub: hub.clone(), delivered: false };
            hub.metrics().runs_claimed.add(1);
            let mut task_run = hub.show_claim(claimed).await?;
            if let Some(task_run) = task_run.as_mut().filter(|_| here) {
                task_run.mcp = None;
            }
            Ok(PullAnswer { response: PullResponse { task_run }, claim: Some(claim) })
        });
        task.await.map_err(|error| Error::internal(&error))?
    }
}

impl Handle {
    /// Claims the next run for a worker that enforces these limits. The store fails a run that requires any other limit
    /// before a worker gets it, so that no worker can ignore a required limit. A run whose caller may no longer call the agent
    /// ends instead: it was allowed when it was queued, and an agent becomes private for everything that it starts.
    pub(crate) async fn claim_next(
        &self,
        runtime: RuntimeId,
        connection: Option<ChannelConnection>,
        enforces: &[SandboxLimit],
    ) -> attache_store::Result<Option<ClaimedRunRecord>> {
        let lease = self.options().heartbeat_timeout;
        loop {
            let claimed = self.store().claim(runtime, connection, enforces.to_vec(), lease, self.now()).await?;
            let Some(claimed) = claimed else { return Ok(None) };
            let lost = self.lost_right(&claimed.run).await;
            if matches!(lost, Ok(None)) {
                return Ok(Some(claimed));
            }
            let (run, now) = (&claimed.run, self.now());
            let worker = WorkerRef { runtime, epoch: Some(run.state.epoch) };
            // The worker never hears of it.
            self.store().release(worker, run.id, now).await?;
            if let Some(reason) = lost? {
                let context = WriteContext::new(run.tenant, Actor::System, now);
                self.store().cancel_run(context, run.id, Some(reason.to_owned())).await?;
            }
        }
    }
}

// === impl PullAnswer ===

impl PullAnswer {
    pub const fn response(&self) -> &PullResponse {
        &self.response
    }

    /// The answer was sent. The claim now belongs to the runtime.
    pub fn delivered(mut self) -> Option<ClaimedRun> {
        if let Some(claim) = &mut self.claim {
            claim.delivered = true;
        }
        self.response.task_run
    }

    pub(crate) const fn is_claim(&self) -> bool {
        self.claim.is_some()
    }
}

// === impl UndeliveredClaim ===

impl Drop for UndeliveredClaim {
    fn drop(&mut self) {
        if self.delivered {
            return;
        }
        let (hub, run, worker) = (self.hub.clone(), self.run, self.worker);
        tracing::debug!(run.id = %run, "a claim could not be delivered");
        self.hub.tasks().spawn(async move {
            if let Err(error) = hub.store().release(worker, run, hub.now()).await {
                tracing::debug!(run.id = %run, %error, "an undelivered claim was not released");
            }
        });
    }
}
