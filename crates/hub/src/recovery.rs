//! What is known of work on devices: what they said last, kept in memory, and the one place that makes six states of it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use attache_protocol::{
    AgentId, ChannelId, RunId, RuntimeId, TenantId, Timestamp,
    rules::{
        recovery::{LastRunReport, Recovery, RecoveryFacts, recovery},
        run::Claim,
    },
    wire::run::Run,
};
use attache_store::record::{RunRecord, RuntimeKind, RuntimeRecord, channel::ChannelRecord};

use crate::{Error, Handle, Result, error::about, render};

/// Runs whose last event is remembered; more are looked up again.
const CAPACITY: usize = 4096;

/// What devices said since the hub started. It is bounded by the devices that are online and the runs that they hold.
#[derive(Debug, Default)]
pub(crate) struct DeviceReports {
    said: Mutex<HashMap<RuntimeId, DeviceReport>>,
    /// The newest event of a run that somebody looked at: its seq and time.
    moved: Mutex<HashMap<RunId, (i64, Timestamp)>>,
}

/// A device's last word about what it does.
#[derive(Debug, Clone)]
pub(crate) struct DeviceReport {
    pub(crate) agent: AgentId,
    pub(crate) at: Timestamp,
    /// The runs that it executes, if it says so.
    pub(crate) running: Option<Vec<RunId>>,
    /// The runs that have ended on the device and whose outcome the hub has not accepted yet.
    pub(crate) unreported: Vec<RunId>,
}

/// What was looked up for a list of runs.
#[derive(Debug, Default)]
struct RecoveryLookup {
    runtimes: HashMap<RuntimeId, RuntimeRecord>,
    channels: HashMap<ChannelId, ChannelRecord>,
}

// === impl DeviceReports ===

impl DeviceReports {
    pub(crate) fn record(&self, runtime: RuntimeId, said: DeviceReport) {
        lock(&self.said).insert(runtime, said);
    }

    pub(crate) fn forget(&self, runtimes: &[RuntimeId]) {
        lock(&self.said).retain(|runtime, _| !runtimes.contains(runtime));
    }

    /// Another device may work for the agent now.
    pub(crate) fn forget_agent(&self, agent: AgentId) {
        lock(&self.said).retain(|_, said| said.agent != agent);
    }

    fn of(&self, runtime: RuntimeId) -> Option<DeviceReport> {
        lock(&self.said).get(&runtime).cloned()
    }

    fn moved(&self, run: RunId, seq: i64) -> Option<Timestamp> {
        lock(&self.moved).get(&run).filter(|(known, _)| *known == seq).map(|(_, at)| *at)
    }

    fn remember(&self, run: RunId, seq: i64, at: Timestamp) {
        let mut moved = lock(&self.moved);
        if moved.len() >= CAPACITY {
            moved.clear();
        }
        moved.insert(run, (seq, at));
    }
}

/// Nothing in here is left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Handle ===

impl Handle {
    /// The run as everybody sees it, with what is known of its device.
    pub(crate) async fn show_run(&self, record: RunRecord) -> Result<Run> {
        let recovery = self.recovery(&record, &mut RecoveryLookup::default()).await?;
        Ok(Run { recovery, ..render::run(record) })
    }

    pub(crate) async fn show_runs(&self, records: impl IntoIterator<Item = RunRecord>) -> Result<Vec<Run>> {
        let mut known = RecoveryLookup::default();
        let mut runs = Vec::new();
        for record in records {
            let recovery = self.recovery(&record, &mut known).await?;
            runs.push(Run { recovery, ..render::run(record) });
        }
        Ok(runs)
    }

    async fn recovery(&self, run: &RunRecord, known: &mut RecoveryLookup) -> Result<Option<Recovery>> {
        let Some(claim) = run.state.claim() else { return Ok(None) };
        if self.known_runtime(run.tenant, claim.runtime, known).await?.kind == RuntimeKind::Hub {
            // The agent is outside: what is known of its task is what the bridge noted last.
            let task = self.store().peer_task(run.tenant, run.id).await.map_err(about("run"))?;
            return Ok(task.and_then(|task| task.recovery));
        }
        let said = self.device_reports().of(claim.runtime);
        let moved_at = self.moved_at(run, claim).await?;
        let facts = RecoveryFacts {
            status: run.state.status(),
            waiting: run.state.waiting(),
            connected: self.is_connected(run, claim, said.as_ref(), known).await?,
            word: self.last_report(run.id, claim, said.as_ref(), moved_at),
            moved_lately: self.now() < moved_at.plus(self.options().idle_after),
        };
        Ok(recovery(facts))
    }

    /// Over a channel the connection tells; over HTTP the heartbeat does.
    async fn is_connected(
        &self,
        run: &RunRecord,
        claim: &Claim,
        said: Option<&DeviceReport>,
        known: &mut RecoveryLookup,
    ) -> Result<bool> {
        let runtime = self.known_runtime(run.tenant, claim.runtime, known).await?;
        let timeout = self.options().heartbeat_timeout;
        // A device that says what it runs does so several times before it counts as silent.
        let patience = if said.is_some_and(|said| said.running.is_some()) { timeout / 2 } else { timeout };
        let speaks = match runtime.last_heartbeat_at {
            Some(at) => runtime.online && self.now() < at.plus(patience),
            // One that sends no heartbeats at all is judged by its lease, which its reports renew.
            None => self.now() < claim.lease_until,
        };
        let Some(channel) = run.channel else { return Ok(speaks) };
        let Some(channel) = self.known_channel(run.tenant, channel, known).await? else { return Ok(speaks) };
        // A device may go on over HTTP when its channel is cut.
        let since = said.map(|said| said.at).zip(channel.disconnected_at);
        Ok(channel.connected || speaks && since.is_some_and(|(said, gone)| said > gone))
    }

    fn last_report(
        &self,
        run: RunId,
        claim: &Claim,
        said: Option<&DeviceReport>,
        moved_at: Timestamp,
    ) -> LastRunReport {
        let Some(said) = said else { return LastRunReport::Nothing };
        // A list that was made right after the claim may not know of it yet.
        let settled = claim.claimed_at.plus(self.options().claim_grace / 5);
        match &said.running {
            _ if said.unreported.contains(&run) => LastRunReport::Ended,
            Some(running) if running.contains(&run) => LastRunReport::Holds,
            Some(_) if said.at > settled && said.at > moved_at => LastRunReport::DoesNotKnow,
            Some(_) | None => LastRunReport::Nothing,
        }
    }

    /// When the run's stream moved last.
    async fn moved_at(&self, run: &RunRecord, claim: &Claim) -> Result<Timestamp> {
        if let Some(at) = self.device_reports().moved(run.id, run.last_seq) {
            return Ok(at);
        }
        let read = self.store().run_events(run.tenant, run.id, run.last_seq - 1, 1).await.map_err(about("run"))?;
        let at = read.events.last().map_or(claim.claimed_at, |event| event.at);
        self.device_reports().remember(run.id, run.last_seq, at);
        Ok(at)
    }

    async fn known_runtime(
        &self,
        tenant: TenantId,
        runtime: RuntimeId,
        known: &mut RecoveryLookup,
    ) -> Result<RuntimeRecord> {
        if let Some(runtime) = known.runtimes.get(&runtime) {
            return Ok(runtime.clone());
        }
        let found = self.store().runtime(tenant, runtime).await.map_err(about("runtime"))?;
        known.runtimes.insert(runtime, found.clone());
        Ok(found)
    }

    /// `None` for a channel that is gone from the store.
    async fn known_channel(
        &self,
        tenant: TenantId,
        channel: ChannelId,
        known: &mut RecoveryLookup,
    ) -> Result<Option<ChannelRecord>> {
        if let Some(channel) = known.channels.get(&channel) {
            return Ok(Some(channel.clone()));
        }
        match self.store().channel(tenant, channel).await {
            Ok(found) => {
                known.channels.insert(channel, found.clone());
                Ok(Some(found))
            }
            Err(attache_store::Error::NotFound) => Ok(None),
            Err(error) => Err(Error::from_store("channel", error)),
        }
    }
}
