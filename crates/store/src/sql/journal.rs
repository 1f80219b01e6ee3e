//! Appends to the log and moves runs through the rules, which almost every write does.

use super::connection::OptionalExtension as _;
use attache_protocol::{
    Actor, ChannelId, EventKind, Json, RunId, TenantId, Timestamp, log,
    rules::run::{LifecycleEvent, RunCommand, RunLifecycle, RunPhase, RunTransition, apply},
};
use rusqlite::params;

use super::{
    cache::LogHead,
    packed_state::PackedState,
    rows::{self, IdBytes, LoadedRun, LogPositions, RunState},
    search,
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WakeHint,
    entry::LogEntry,
    outcome,
    record::{RunRecord, channel::OutboxFrame},
};

/// What a transition writes besides the state itself.
#[derive(Debug, Default)]
pub(super) struct TransitionWrites<'a> {
    /// The worker's or caller's own log entry. By default the rules' entry is used.
    pub(super) entry: Option<LogEntry>,
    /// The worker's or caller's own result, likewise.
    pub(super) result: Option<&'a Json>,
    pub(super) usage: Option<&'a Json>,
    /// For a claim: the channel over which it is made.
    pub(super) via: Option<ChannelId>,
}

/// Actor and time, for the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogStamp<'a> {
    pub(super) actor: &'a Actor,
    pub(super) at: Timestamp,
}

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    /// Appends one row to the tenant's log and returns its seq. Every tenant has a head, so one without is unknown.
    pub(super) fn log(
        &mut self,
        tenant: TenantId,
        stamp: LogStamp<'_>,
        (kind, data): &LogEntry,
        run: Option<(RunId, i64)>,
    ) -> Result<i64> {
        let head = self.cache.head(tenant).ok_or(Error::NotFound)?;
        let seq = head.seq + 1;
        let (run, run_seq) = run.unzip();
        let actor = stamp.actor.to_string();
        let entry = log::ChainedFields {
            seq,
            at: stamp.at,
            actor: &actor,
            kind: kind.as_str(),
            run,
            run_seq,
            data: data.get(),
        };
        let hash = entry.chain(&head.hash);
        self.statements.append_log.execute(params![
            head.keys.at(seq),
            stamp.at.millis(),
            actor,
            kind.as_str(),
            run.map(|run| IdBytes(run.uuid())),
            run_seq,
            data.get(),
            hash
        ])?;
        self.cache.set_head(tenant, LogHead { seq, hash, ..head });
        self.woken.push(WakeHint::Tenant(tenant));
        Ok(seq)
    }

    pub(super) fn run_state(&self, run: RunId) -> Result<RunState> {
        if let Some(hot) = self.cache.held(run) {
            return Ok(hot.clone());
        }
        let read = self
            .connection
            .prepare_cached(&format!("select {} from task_runs where uid = ?1", rows::RUN_STATE))?
            .query_row([IdBytes(run.uuid())], rows::run_state)
            .optional();
        // For its worker, a run with a damaged row no longer exists.
        rows::readable("task_runs", 0, read)?.flatten().ok_or(Error::NotFound)
    }

    /// The hot statements don't read the agent's name. It comes from the lookup cache.
    pub(super) fn named(&mut self, mut whole: LoadedRun) -> Result<LoadedRun> {
        whole.record.agent_name.clone_from(&self.directory.agent(self.connection, whole.hot.agent)?.name);
        Ok(whole)
    }

    pub(super) fn record_at(&self, row: i64) -> Result<RunRecord> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {} from task_runs r cross join agent_accounts a on a.id = r.agent where r.id = ?1",
                rows::RUN
            ))?
            .query_row([row], rows::run)?)
    }

    /// The decision of the rules. Nothing is changed yet.
    pub(super) fn judge(&self, hot: &RunState, command: &RunCommand, at: Timestamp) -> Result<RunTransition> {
        match apply(&hot.state, command, at) {
            Ok(transition) => Ok(transition),
            Err(refusal) => Err(Error::Refused { refusal, run: Box::new(self.record_at(hot.row)?) }),
        }
    }

    /// Applies a command of the rules: the new state, its log row and the memory move together. Questions of an
    /// unclaimed run are cancelled, and its worker is notified, unless the worker itself reported it.
    pub(super) fn step(
        &mut self,
        hot: &RunState,
        command: &RunCommand,
        stamp: LogStamp<'_>,
        written: TransitionWrites<'_>,
    ) -> Result<RunState> {
        let transition = self.judge(hot, command, stamp.at)?;
        let Some(event) = transition.event else {
            return self.renew(hot, transition.state);
        };
        let leaves = hot.state.claim().is_some() && transition.state.claim().is_none();
        let before = if leaves { self.cancel_questions(hot, stamp.at)? } else { hot.clone() };
        let entry = written.entry.unwrap_or_else(|| entry_of(event));
        let decided = result_of(event);
        let result = written.result.or(decided.as_ref());
        let logged = self.append_for(before, stamp, &entry)?;
        let moved = moved(logged, transition.state, event, written.via);
        self.store(&moved, stamp.at, result, written.usage)?;
        self.cache.track(Some(hot), &moved);
        if moved.state.status().is_terminal() {
            self.measures.ended(event);
            self.count_usage(&moved, stamp.at, written.usage)?;
            self.call_back(&moved, stamp.at)?;
        }
        if matches!(moved.state.phase, RunPhase::Pending { .. }) {
            self.woken.push(WakeHint::Queue(hot.agent));
        }
        if let Some(channel) = moved.channel.filter(|_| leaves && !is_report(command)) {
            self.add_frame(channel, OutboxFrame::Cancel { run: hot.id })?;
        }
        Ok(moved)
    }

    /// Appends a row of a run, which is also the next event of the run's stream. The run isn't stored yet.
    pub(super) fn append_for(&mut self, hot: RunState, stamp: LogStamp<'_>, entry: &LogEntry) -> Result<RunState> {
        let run_seq = hot.last_seq + 1;
        let seq = self.log(hot.tenant, stamp, entry, Some((hot.id, run_seq)))?;
        self.woken.push(WakeHint::Run(hot.id));
        let log_bytes = hot.log_bytes + entry.1.get().len();
        let appended =
            RunState { last_seq: run_seq, life: LogPositions::with(&hot.life, run_seq, seq), log_bytes, ..hot };
        self.push(&appended, stamp.at, entry.0)?;
        Ok(appended)
    }

    /// Appends an event that only the run's own stream has. The run isn't stored yet.
    pub(super) fn append_chunk(
        &mut self,
        hot: RunState,
        at: Timestamp,
        (kind, data): (EventKind, &Json),
    ) -> Result<RunState> {
        let last_seq = hot.last_seq + 1;
        self.connection
            .prepare_cached("insert into chunks (run, seq, at, type, data) values (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![hot.row, last_seq, at.millis(), kind.as_str(), data.get()])?;
        self.woken.push(WakeHint::Run(hot.id));
        Ok(RunState { last_seq, log_bytes: hot.log_bytes + data.get().len(), ..hot })
    }

    /// Applies a question or an answer, with its row if the wait reason changes. The run isn't stored yet.
    pub(super) fn wait(&mut self, hot: RunState, transition: RunTransition, stamp: LogStamp<'_>) -> Result<RunState> {
        let waits = RunState { state: transition.state, ..hot };
        match transition.event {
            Some(event) => self.append_for(waits, stamp, &entry_of(event)),
            None => Ok(waits),
        }
    }

    /// Stores a claimed run that stays claimed.
    pub(super) fn put(&mut self, before: &RunState, after: &RunState, usage: Option<&Json>) -> Result<()> {
        let until = after.state.claim().map(|claim| claim.lease_until.millis());
        self.connection
            .prepare_cached(
                "update task_runs set until = ?2, state = ?3, usage = coalesce(?4, usage),
                    micro_usd = case when ?4 is null then micro_usd else ?5 end
                 where id = ?1",
            )?
            .execute(params![
                after.row,
                until,
                PackedState::of(after).bytes(),
                usage.map(Json::get),
                search::cost_of(usage)
            ])?;
        self.cache.track(Some(before), after);
        Ok(())
    }

    /// A change without a notification: a longer lease, or none at all.
    pub(super) fn renew(&mut self, hot: &RunState, state: RunLifecycle) -> Result<RunState> {
        let renewed = RunState { state, ..hot.clone() };
        if renewed.state != hot.state {
            self.put(hot, &renewed, None)?;
        }
        Ok(renewed)
    }

    fn store(&mut self, hot: &RunState, at: Timestamp, result: Option<&Json>, usage: Option<&Json>) -> Result<()> {
        let state = &hot.state;
        let (until, ended) = match &state.phase {
            RunPhase::Pending { expires_at } => (Some(expires_at.millis()), None),
            // Without an expiry, so that no claim finds it.
            RunPhase::Deferred { .. } => (None, None),
            RunPhase::Running(claim) => (Some(claim.lease_until.millis()), None),
            RunPhase::Ended { .. } => (None, Some(at.millis())),
        };
        self.statements.update_run.execute(params![
            hot.row,
            rows::status_number(state.status()),
            until,
            ended,
            PackedState::of(hot).bytes(),
            result.map(Json::get),
            usage.map(Json::get),
            search::cost_of(usage),
        ])?;
        Ok(())
    }
}

/// The run after the event, which was already logged.
fn moved(hot: RunState, state: RunLifecycle, event: LifecycleEvent, via: Option<ChannelId>) -> RunState {
    let claim = state.claim().cloned();
    let mut moved = RunState {
        runtime: claim.as_ref().map(|claim| claim.runtime).or(hot.runtime),
        claimed: claim.as_ref().map(|claim| claim.claimed_at).or(hot.claimed),
        state,
        ..hot
    };
    if event == LifecycleEvent::Claimed {
        moved.channel = via;
        moved.claimed_seq = moved.last_seq;
        moved.report = None;
    }
    moved
}

/// Whether the worker itself reports that its work is over.
const fn is_report(command: &RunCommand) -> bool {
    match command {
        RunCommand::Complete { .. }
        | RunCommand::Fail { .. }
        | RunCommand::Defer { .. }
        | RunCommand::Release { .. } => true,
        RunCommand::Claim { .. }
        | RunCommand::Progress { .. }
        | RunCommand::Renew { .. }
        | RunCommand::Cancel { .. }
        | RunCommand::Ask { .. }
        | RunCommand::Answer { .. }
        | RunCommand::Halt { .. }
        | RunCommand::Undelivered
        | RunCommand::Lose
        | RunCommand::Tick => false,
    }
}

/// The log entry of an event decided by the rules.
fn entry_of(event: LifecycleEvent) -> LogEntry {
    match event {
        LifecycleEvent::Requeued { reason } => crate::entry::task_requeued(reason),
        LifecycleEvent::Failed { code } => crate::entry::task_failed(code),
        LifecycleEvent::Waiting { waiting } => crate::entry::task_waiting(waiting),
        LifecycleEvent::Claimed
        | LifecycleEvent::Deferred { .. }
        | LifecycleEvent::Completed
        | LifecycleEvent::Cancelled => {
            unreachable!("the caller of these commands writes the entry")
        }
    }
}

fn result_of(event: LifecycleEvent) -> Option<Json> {
    match event {
        LifecycleEvent::Failed { code } => Some(outcome::failed_by_rule(code)),
        LifecycleEvent::Claimed
        | LifecycleEvent::Requeued { .. }
        | LifecycleEvent::Deferred { .. }
        | LifecycleEvent::Waiting { .. }
        | LifecycleEvent::Completed
        | LifecycleEvent::Cancelled => None,
    }
}
