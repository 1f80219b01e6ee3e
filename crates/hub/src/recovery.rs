//! The state of work on devices: their latest reports, kept in memory, and the recovery state derived from them.

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

/// How many runs' last events are cached.
const CAPACITY: usize = 4096;

/// What devices have reported since the hub started. Bounded by the online devices and their runs.
#[derive(Debug, Default)]
pub(crate) struct DeviceReports {
    said: Mutex<HashMap<RuntimeId, DeviceReport>>,
    /// The newest event of recently viewed runs: seq and time.
    moved: Mutex<HashMap<RunId, (i64, Timestamp)>>,
}

/// A device's latest report.
#[derive(Debug, Clone)]
pub(crate) struct DeviceReport {
    pub(crate) agent: AgentId,
    pub(crate) at: Timestamp,
    /// The runs it executes, if reported.
    pub(crate) running: Option<Vec<RunId>>,
    /// The runs that have ended on the device, but whose outcome the hub has not accepted yet.
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

/// A panic leaves no inconsistent state here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Handle ===

impl Handle {
    /// The public view of the run, with its device's state.
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
            // An outside agent: the bridge's last record is all that is known about its task.
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

    /// Known from the connection over a channel, from the heartbeat over HTTP.
    async fn is_connected(
        &self,
        run: &RunRecord,
        claim: &Claim,
        said: Option<&DeviceReport>,
        known: &mut RecoveryLookup,
    ) -> Result<bool> {
        let runtime = self.known_runtime(run.tenant, claim.runtime, known).await?;
        let timeout = self.options().heartbeat_timeout;
        // A device that lists its runs does so several times before it counts as silent.
        let patience = if said.is_some_and(|said| said.running.is_some()) { timeout / 2 } else { timeout };
        let speaks = match runtime.last_heartbeat_at {
            Some(at) => runtime.online && self.now() < at.plus(patience),
            // A device that sends no heartbeats is judged by its lease, which its reports renew.
            None => self.now() < claim.lease_until,
        };
        let Some(channel) = run.channel else { return Ok(speaks) };
        let Some(channel) = self.known_channel(run.tenant, channel, known).await? else { return Ok(speaks) };
        // A device may continue over HTTP when its channel is cut.
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
        // A list made right after the claim may not include it yet.
        let settled = claim.claimed_at.plus(self.options().claim_grace / 5);
        match &said.running {
            _ if said.unreported.contains(&run) => LastRunReport::Ended,
            Some(running) if running.contains(&run) => LastRunReport::Holds,
            Some(_) if said.at > settled && said.at > moved_at => LastRunReport::DoesNotKnow,
            Some(_) | None => LastRunReport::Nothing,
        }
    }

    /// The time of the run's last event.
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

    /// `None` if the channel is gone from the store.
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
