//! The state of work on devices: their latest reports, and the recovery state derived from them. A hub on its own keeps
//! the reports in memory. Together with others it keeps them in the store, because a device reports to any of them.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use attache_protocol::{
    AgentId, ChannelId, Json, RunId, RuntimeId, TenantId, Timestamp,
    rules::{
        recovery::{LastRunReport, Recovery, RecoveryFacts, recovery},
        run::Claim,
    },
    wire::{host_session::HostSession, run::Run},
};
use attache_store::record::{
    RunRecord, RuntimeKind, RuntimeRecord,
    channel::ChannelRecord,
    shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
};
use serde::{Deserialize, Serialize};

use crate::{Error, Handle, Result, error::about, render};

/// How many runs' last events are cached.
const CAPACITY: usize = 4096;
/// How many devices' sessions are kept in memory, the newest reports.
const MAX_SESSION_REPORTS: usize = 1000;
/// How long nodes remember the report of a device that sends no other.
const MAX_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What devices have reported to this hub since it started. Bounded by the online devices and their runs.
#[derive(Debug, Default)]
pub(crate) struct DeviceReports {
    said: Mutex<HashMap<RuntimeId, DeviceReport>>,
    /// The sessions that the devices' hosts keep, and when they said so. A device that sleeps still has them.
    /// Those of an agent's newest device.
    sessions: Mutex<HashMap<AgentId, ReportedSessions>>,
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

#[derive(Debug)]
struct ReportedSessions {
    runtime: RuntimeId,
    sessions: Vec<HostSession>,
    at: Timestamp,
}

/// A device's latest report, as nodes share it.
#[derive(Debug, Serialize, Deserialize)]
struct SharedReport {
    at: Timestamp,
    running: Option<Vec<RunId>>,
    unreported: Vec<RunId>,
    sessions: Vec<HostSession>,
}

/// What was looked up for a list of runs.
#[derive(Debug, Default)]
struct RecoveryLookup {
    runtimes: HashMap<RuntimeId, RuntimeRecord>,
    reports: HashMap<RuntimeId, Option<DeviceReport>>,
    channels: HashMap<ChannelId, ChannelRecord>,
}

// === impl DeviceReports ===

impl DeviceReports {
    fn record(&self, runtime: RuntimeId, said: DeviceReport, sessions: Vec<HostSession>) {
        self.record_sessions(said.agent, ReportedSessions { runtime, sessions, at: said.at });
        lock(&self.said).insert(runtime, said);
    }

    pub(crate) fn forget(&self, runtimes: &[RuntimeId]) {
        lock(&self.said).retain(|runtime, _| !runtimes.contains(runtime));
    }

    /// Another device may work for the agent now.
    pub(crate) fn forget_agent(&self, agent: AgentId) {
        lock(&self.said).retain(|_, said| said.agent != agent);
    }

    fn record_sessions(&self, agent: AgentId, reported: ReportedSessions) {
        let mut known = lock(&self.sessions);
        if known.len() >= MAX_SESSION_REPORTS && !known.contains_key(&agent) {
            let oldest = known.iter().min_by_key(|(_, reported)| reported.at).map(|(agent, _)| *agent);
            oldest.and_then(|oldest| known.remove(&oldest));
        }
        known.insert(agent, reported);
    }

    fn sessions(&self, agent: AgentId, runtime: RuntimeId) -> Option<(Vec<HostSession>, Timestamp)> {
        let known = lock(&self.sessions);
        let reported = known.get(&agent).filter(|reported| reported.runtime == runtime)?;
        Some((reported.sessions.clone(), reported.at))
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

/// Which sessions a host keeps is private to the agent's owner, so the database has it encrypted.
fn context(runtime: RuntimeId) -> String {
    format!("device_report/{runtime}")
}

// === impl Handle ===

impl Handle {
    /// Records what a device reported. `sessions` are private to the agent's owner.
    pub(crate) async fn record_report(
        &self,
        tenant: TenantId,
        runtime: RuntimeId,
        said: DeviceReport,
        sessions: Vec<HostSession>,
    ) -> Result<()> {
        if self.local_node().is_none() {
            self.device_reports().record(runtime, said, sessions);
            return Ok(());
        }
        let DeviceReport { agent, at, running, unreported } = said;
        let report = Json::of(&SharedReport { at, running, unreported, sessions });
        let value = SharedValue {
            kind: SharedValueKind::DeviceReport,
            name: runtime.to_string(),
            tenant,
            holder: agent.to_string(),
            value: self.seal(&context(runtime), report.get().as_bytes()),
            expires_at: at.plus(MAX_RETENTION),
        };
        self.store().keep_value(value, SharedValueLimit::None, at).await.map(drop).map_err(about("runtime"))
    }

    /// The sessions that a device's host keeps, and when it said so.
    pub(crate) async fn reported_sessions(
        &self,
        agent: AgentId,
        runtime: RuntimeId,
    ) -> Result<Option<(Vec<HostSession>, Timestamp)>> {
        if self.local_node().is_none() {
            return Ok(self.device_reports().sessions(agent, runtime));
        }
        Ok(self.shared_report(runtime).await?.map(|report| (report.sessions, report.at)))
    }

    /// The latest report of a device, unless it went offline since.
    async fn device_report(&self, runtime: &RuntimeRecord) -> Result<Option<DeviceReport>> {
        if self.local_node().is_none() {
            return Ok(self.device_reports().of(runtime.id));
        }
        if !runtime.online {
            return Ok(None);
        }
        let report = self.shared_report(runtime.id).await?;
        Ok(report.map(|SharedReport { at, running, unreported, .. }| DeviceReport {
            agent: runtime.agent,
            at,
            running,
            unreported,
        }))
    }

    async fn shared_report(&self, runtime: RuntimeId) -> Result<Option<SharedReport>> {
        let kept = self.store().shared_value(SharedValueKind::DeviceReport, &runtime.to_string(), self.now()).await;
        let Some(kept) = kept.map_err(about("runtime"))? else { return Ok(None) };
        let Ok(plain) = self.unseal(&context(runtime), &kept.value) else { return Ok(None) };
        Ok(serde_json::from_slice(plain.expose()).ok())
    }

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
        let runtime = self.known_runtime(run.tenant, claim.runtime, known).await?;
        if runtime.kind == RuntimeKind::Hub {
            // An outside agent: the bridge's last record is all that is known about its task.
            let task = self.store().peer_task(run.tenant, run.id).await.map_err(about("run"))?;
            return Ok(task.and_then(|task| task.recovery));
        }
        let said = self.known_report(&runtime, known).await?;
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

    async fn known_report(&self, runtime: &RuntimeRecord, known: &mut RecoveryLookup) -> Result<Option<DeviceReport>> {
        if let Some(report) = known.reports.get(&runtime.id) {
            return Ok(report.clone());
        }
        let report = self.device_report(runtime).await?;
        known.reports.insert(runtime.id, report.clone());
        Ok(report)
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

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    #[test]
    fn sessions_are_those_of_an_agents_newest_device_and_of_so_many_agents() {
        let (reports, env) = (DeviceReports::default(), Env::seeded(1));
        let session = HostSession {
            session_id: "ses_1".to_owned(),
            title: "Fix it".to_owned(),
            updated_at: Timestamp::from_millis(0),
            folder: "/srv".to_owned(),
            command: "cd /srv && claude --resume ses_1".to_owned(),
            conversation_id: None,
        };
        let report = |agent, at: usize| {
            let (runtime, at) = (env.runtime_id(), Timestamp::from_millis(i64::try_from(at).unwrap()));
            let said = DeviceReport { agent, at, running: None, unreported: Vec::new() };
            reports.record(runtime, said, vec![session.clone()]);
            runtime
        };
        let agent = env.agent_id();
        let devices: Vec<RuntimeId> = (0..3).map(|at| report(agent, at)).collect();
        assert!(reports.sessions(agent, devices[2]).is_some() && reports.sessions(agent, devices[1]).is_none());
        for at in 3..MAX_SESSION_REPORTS + 10 {
            report(env.agent_id(), at);
        }
        assert_eq!(lock(&reports.sessions).len(), MAX_SESSION_REPORTS);
        assert!(reports.sessions(agent, devices[2]).is_none(), "the oldest one went");
    }
}
