//! Appending to the log and moving a run through the rules: the two things that almost every write does.

use attache_protocol::{
    ChannelId, EventKind, Json, RunId, TenantId, Timestamp, log,
    rules::run::{Command, Event, Phase, State, Transition, apply},
};
use rusqlite::{OptionalExtension as _, params};

use super::{
    cache::Head,
    packed::Packed,
    rows::{self, Hot, Key16, Life, Whole},
    writer::Transaction,
};
use crate::{
    Error, Result, Woken,
    entry::Entry,
    outcome,
    record::{RunRecord, channel::Frame},
};

/// What a transition writes beside the state itself.
#[derive(Debug, Default)]
pub(super) struct Written<'a> {
    /// The worker's or the caller's own log entry; the rules' entry is used when there is none.
    pub(super) entry: Option<Entry>,
    /// The worker's or the caller's own result, likewise.
    pub(super) result: Option<&'a Json>,
    pub(super) usage: Option<&'a Json>,
    /// Of a claim: the channel over which it is made.
    pub(super) via: Option<ChannelId>,
}

/// Who and when, for the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp<'a> {
    pub(super) actor: &'a str,
    pub(super) at: Timestamp,
}

// === impl Transaction ===

impl Transaction<'_, '_> {
    /// Appends one row to the tenant's log and returns its seq. Every tenant has a head, so one without is unknown.
    pub(super) fn log(
        &mut self,
        tenant: TenantId,
        stamp: Stamp<'_>,
        (kind, data): &Entry,
        run: Option<(RunId, i64)>,
    ) -> Result<i64> {
        let head = self.cache.head(tenant).ok_or(Error::NotFound)?;
        let seq = head.seq + 1;
        let (run, run_seq) = run.unzip();
        let entry =
            log::Entry { seq, at: stamp.at, actor: stamp.actor, kind: kind.as_str(), run, run_seq, data: data.get() };
        let hash = entry.chain(&head.hash);
        self.statements.append_log.execute(params![
            head.keys.at(seq),
            stamp.at.millis(),
            stamp.actor,
            kind.as_str(),
            run.map(|run| Key16(run.uuid())),
            run_seq,
            data.get(),
            hash
        ])?;
        self.cache.set_head(tenant, Head { seq, hash, ..head });
        self.woken.push(Woken::Tenant(tenant));
        Ok(seq)
    }

    pub(super) fn hot(&self, run: RunId) -> Result<Hot> {
        if let Some(hot) = self.cache.held(run) {
            return Ok(hot.clone());
        }
        let read = self
            .connection
            .prepare_cached(&format!("select {} from task_runs where uid = ?1", rows::HOT))?
            .query_row([Key16(run.uuid())], rows::hot)
            .optional();
        // To its worker, a run whose row is damaged is not there any more.
        rows::readable("task_runs", 0, read)?.flatten().ok_or(Error::NotFound)
    }

    /// The hot statements leave the agent's name to the directory.
    pub(super) fn named(&mut self, mut whole: Whole) -> Result<Whole> {
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

    /// What the rules say; nothing is changed yet.
    pub(super) fn judge(&self, hot: &Hot, command: &Command, at: Timestamp) -> Result<Transition> {
        match apply(&hot.state, command, at) {
            Ok(transition) => Ok(transition),
            Err(refusal) => Err(Error::Refused { refusal, run: Box::new(self.record_at(hot.row)?) }),
        }
    }

    /// Applies a command of the rules: the new state, its log row and the memory move together. Nobody waits any more for
    /// what an unclaimed run asked, and its worker is told, unless it was the worker who said so.
    pub(super) fn step(&mut self, hot: &Hot, command: &Command, stamp: Stamp<'_>, written: Written<'_>) -> Result<Hot> {
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
        if matches!(moved.state.phase, Phase::Pending { .. }) {
            self.woken.push(Woken::Queue(hot.agent));
        }
        if let Some(channel) = moved.channel.filter(|_| leaves && !is_report(command)) {
            self.tell(channel, Frame::Cancel { run: hot.id })?;
        }
        Ok(moved)
    }

    /// Appends a row of a run, which is also the next event of the run's stream. The run is not stored yet.
    pub(super) fn append_for(&mut self, hot: Hot, stamp: Stamp<'_>, entry: &Entry) -> Result<Hot> {
        let run_seq = hot.last_seq + 1;
        let seq = self.log(hot.tenant, stamp, entry, Some((hot.id, run_seq)))?;
        self.woken.push(Woken::Run(hot.id));
        let log_bytes = hot.log_bytes + entry.1.get().len();
        let appended = Hot { last_seq: run_seq, life: Life::with(&hot.life, run_seq, seq), log_bytes, ..hot };
        self.push(&appended, stamp.at, entry.0)?;
        Ok(appended)
    }

    /// Appends what only the run's own stream shows. The run is not stored yet.
    pub(super) fn append_chunk(&mut self, hot: Hot, at: Timestamp, (kind, data): (EventKind, &Json)) -> Result<Hot> {
        let last_seq = hot.last_seq + 1;
        self.connection
            .prepare_cached("insert into chunks (run, seq, at, type, data) values (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![hot.row, last_seq, at.millis(), kind.as_str(), data.get()])?;
        self.woken.push(Woken::Run(hot.id));
        Ok(Hot { last_seq, log_bytes: hot.log_bytes + data.get().len(), ..hot })
    }

    /// Applies a question or an answer, with its row if what the run waits for changes. The run is not stored yet.
    pub(super) fn wait(&mut self, hot: Hot, transition: Transition, stamp: Stamp<'_>) -> Result<Hot> {
        let waits = Hot { state: transition.state, ..hot };
        match transition.event {
            Some(event) => self.append_for(waits, stamp, &entry_of(event)),
            None => Ok(waits),
        }
    }

    /// Stores a claimed run that stays claimed.
    pub(super) fn put(&mut self, before: &Hot, after: &Hot, usage: Option<&Json>) -> Result<()> {
        let until = after.state.claim().map(|claim| claim.lease_until.millis());
        self.connection
            .prepare_cached("update task_runs set until = ?2, state = ?3, usage = coalesce(?4, usage) where id = ?1")?
            .execute(params![after.row, until, Packed::of(after).bytes(), usage.map(Json::get)])?;
        self.cache.track(Some(before), after);
        Ok(())
    }

    /// A change that nobody needs to hear of: a longer lease, or none at all.
    pub(super) fn renew(&mut self, hot: &Hot, state: State) -> Result<Hot> {
        let renewed = Hot { state, ..hot.clone() };
        if renewed.state != hot.state {
            self.put(hot, &renewed, None)?;
        }
        Ok(renewed)
    }

    fn store(&mut self, hot: &Hot, at: Timestamp, result: Option<&Json>, usage: Option<&Json>) -> Result<()> {
        let state = &hot.state;
        let (until, ended) = match &state.phase {
            Phase::Pending { expires_at } => (Some(expires_at.millis()), None),
            Phase::Running(claim) => (Some(claim.lease_until.millis()), None),
            Phase::Ended { .. } => (None, Some(at.millis())),
        };
        self.statements.update_run.execute(params![
            hot.row,
            rows::status_number(state.status()),
            until,
            ended,
            Packed::of(hot).bytes(),
            result.map(Json::get),
            usage.map(Json::get),
        ])?;
        Ok(())
    }
}

/// The run as the event leaves it, which was logged already.
fn moved(hot: Hot, state: State, event: Event, via: Option<ChannelId>) -> Hot {
    let claim = state.claim().cloned();
    let mut moved = Hot {
        runtime: claim.as_ref().map(|claim| claim.runtime).or(hot.runtime),
        claimed: claim.as_ref().map(|claim| claim.claimed_at).or(hot.claimed),
        state,
        ..hot
    };
    if event == Event::Claimed {
        moved.channel = via;
        moved.claimed_seq = moved.last_seq;
        moved.report = None;
    }
    moved
}

/// Whether it is the worker itself who says that its work is over.
const fn is_report(command: &Command) -> bool {
    match command {
        Command::Complete { .. } | Command::Fail { .. } | Command::Release { .. } => true,
        Command::Claim { .. }
        | Command::Progress { .. }
        | Command::Renew { .. }
        | Command::Cancel { .. }
        | Command::Ask { .. }
        | Command::Answer { .. }
        | Command::Halt { .. }
        | Command::Undelivered
        | Command::Lose
        | Command::Tick => false,
    }
}

/// What the log says of an event that the rules decide.
fn entry_of(event: Event) -> Entry {
    match event {
        Event::Requeued { reason } => crate::entry::task_requeued(reason),
        Event::Failed { code } => crate::entry::task_failed(code),
        Event::Waiting { waiting } => crate::entry::task_waiting(waiting),
        Event::Claimed | Event::Completed | Event::Cancelled => {
            unreachable!("the caller of these commands writes the entry")
        }
    }
}

fn result_of(event: Event) -> Option<Json> {
    match event {
        Event::Failed { code } => Some(outcome::failed_by_rule(code)),
        Event::Claimed | Event::Requeued { .. } | Event::Waiting { .. } | Event::Completed | Event::Cancelled => None,
    }
}
