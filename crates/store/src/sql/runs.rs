//! Writes on runs: create, claim, progress, finish, cancel, release.

use std::{sync::Arc, time::Duration};

use super::connection::OptionalExtension as _;
use attache_protocol::{
    AgentId, EventKind, InputId, Json, RunId, RuntimeId, TenantId, Timestamp,
    rules::{
        quota::{self, QuotaVerdict},
        retention,
        run::{RunCommand, RunLifecycle, RunRefusal, RunStatus, WorkerRef},
    },
    wire::run::SandboxLimit,
};
use rusqlite::params;

use super::{
    journal::{LogStamp, TransitionWrites},
    lookup_cache::CachedAgent,
    packed_state::{PackedState, StoredRunSpec},
    rows::{self, IdBytes, LogPositions, RunState},
    writer::WriteTransaction,
};
use crate::{
    Error, MAX_REFUSED, MAX_RUN_LOG_BYTES, Result, WakeHint, WriteContext, entry, outcome,
    record::{
        AgentRef, ClaimedRunRecord, NewConversation, NewProgress, NewRun, RunCreation, RunRecord, RunResult, SpokenBy,
        channel::{ChannelConnection, OutboxFrame},
    },
    weight::{self, has_room},
};

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn create_run(&mut self, context: WriteContext, new: NewRun) -> Result<RunCreation> {
        if let Some(existing) = self.run_of_key(&context, &new)? {
            if let Some(follow) = &new.follow {
                self.follow_again(context.tenant, existing.id, follow)?;
            }
            return Ok(RunCreation::Existing(existing));
        }
        let agent = self.callee(context.tenant, &new.agent)?;
        let (opens, user) = match new.conversation.map(|id| (id, self.conversation(context.tenant, id))) {
            Some((id, Err(Error::NotFound))) if new.opens_conversation => (Some(id), context.user),
            Some((_, found)) => (None, found?.user),
            None => (None, context.user),
        };
        if let Some(parent) = new.spec.parent {
            self.own_run(context.tenant, parent)?;
        }
        if let Some(follow) = &new.follow {
            self.able_to_follow(context.tenant, follow.channel)?;
        }
        if let Some(approval) = new.approval {
            self.unused_approval(context.tenant, approval)?;
        }
        let request = quota::ReservationRequest { budget: new.spec.budget, ..quota::ReservationRequest::default() };
        let payer = new.payer.or(context.user);
        let reservation = self.reserve(&context, payer, agent.id, request)?;
        // No more checks after this.
        if let Some(approval) = new.approval {
            self.use_approval(approval, new.id)?;
        }
        if let Some(id) = opens {
            self.create_conversation(&context, &NewConversation { id, title: None, metadata: None, agent: None })?;
        }
        let state = RunLifecycle::created(new.limits, context.at);
        let stamp = LogStamp { actor: &context.actor, at: context.at };
        let created = entry::task_created(agent.id, &new.spec.task_type);
        let seq = self.log(context.tenant, stamp, &created, Some((new.id, 1)))?;
        let mut hot = RunState {
            row: 0,
            id: new.id,
            tenant: context.tenant,
            agent: agent.id,
            state: state.clone(),
            runtime: None,
            claimed: None,
            last_seq: 1,
            life: LogPositions::begun(seq),
            claimed_seq: 0,
            calls: 0,
            channel: None,
            report: None,
            created: context.at,
            payer,
            reservation,
            reported: false,
            calls_back: new.spec.callback.is_some(),
            refused: false,
            log_bytes: 0,
        };
        hot.row = self.insert_run(&context, &new, &hot)?;
        if let Some(conversation) = new.conversation {
            self.join_conversation(conversation, agent.id, context.at)?;
        }
        // Of a conversation of its own, the run itself says the same as long as it exists, except for a parent that is deleted.
        if SpokenBy::of(&new.spec, context.user, user) == SpokenBy::Others
            && (new.conversation.is_some() || new.spec.parent.is_some())
        {
            self.note_others(new.conversation.unwrap_or_else(|| new.id.own_conversation()))?;
        }
        if let Some(follow) = &new.follow {
            self.follow(hot.row, follow)?;
        }
        self.cache.track(None, &hot);
        if let Some(config) = new.push {
            self.push_from_start(&context, &hot, config)?;
        }
        if let Some(key) = new.idempotency_key {
            self.cache.set_key(context.tenant, key, hot.row, context.at);
        }
        self.woken.extend([WakeHint::Queue(agent.id), WakeHint::Run(new.id)]);
        Ok(RunCreation::New(RunRecord {
            id: new.id,
            tenant: context.tenant,
            agent: agent.id,
            agent_name: agent.name.clone(),
            conversation: new.conversation.unwrap_or_else(|| new.id.own_conversation()),
            spec: new.spec,
            caller: context.actor,
            user: context.user,
            payer,
            state,
            channel: None,
            runtime: None,
            claimed_at: None,
            result: None,
            usage: None,
            created_at: context.at,
            ended_at: None,
            last_seq: 1,
        }))
    }

    /// The agent of a new run.
    fn callee(&mut self, tenant: TenantId, agent: &AgentRef) -> Result<Arc<CachedAgent>> {
        let id = match agent {
            AgentRef::Id(id) => *id,
            AgentRef::Name(name) => self
                .connection
                .prepare_cached("select id from agent_accounts where tenant = ?1 and name = ?2 and archived is null")?
                .query_row(params![IdBytes(tenant.uuid()), name], |row| row.get(0).map(rows::agent_id))
                .optional()?
                .ok_or(Error::NotFound)?,
        };
        let agent = self.directory.agent(self.connection, id)?;
        match (agent.tenant == tenant, agent.archived) {
            (true, false) => Ok(agent),
            (true, true) => Err(Error::AgentArchived),
            (false, _) => Err(Error::NotFound),
        }
    }

    /// The run that the same request created before, if its key is still remembered.
    fn run_of_key(&self, context: &WriteContext, new: &NewRun) -> Result<Option<RunRecord>> {
        let Some(key) = new.idempotency_key else { return Ok(None) };
        let Some(row) = self.cache.run_of_key(context.tenant, key) else {
            let is_deleted = self.is_deleted_key(context.tenant, key)?;
            return if is_deleted { Err(Error::RunDeleted) } else { Ok(None) };
        };
        let record = self.record_at(row)?;
        if retention::is_key_over(record.created_at, self.cache.clock()) {
            return Ok(None);
        }
        let request: [u8; 16] = self
            .connection
            .prepare_cached("select substr(idempotency, 17) from task_runs where id = ?1")?
            .query_row([row], |row| row.get(0))?;
        if request == new.request_digest { Ok(Some(record)) } else { Err(Error::KeyReused) }
    }

    /// Writes the row of a new run and returns its id.
    fn insert_run(&mut self, context: &WriteContext, new: &NewRun, hot: &RunState) -> Result<i64> {
        let expires = attache_protocol::rules::run::next_deadline(&hot.state).map(Timestamp::millis);
        Ok(self.statements.insert_run.insert(params![
            IdBytes(new.id.uuid()),
            IdBytes(context.tenant.uuid()),
            IdBytes(hot.agent.uuid()),
            new.spec.priority,
            expires,
            context.at.millis(),
            new.conversation.map(|conversation| IdBytes(conversation.uuid())),
            new.spec.parent.map(|parent| IdBytes(parent.uuid())),
            new.idempotency_key.map(|key| [key, new.request_digest].concat()),
            PackedState::of(hot).bytes(),
            StoredRunSpec::of(&new.spec, &context.actor).text(),
            context.user.map(|user| IdBytes(user.uuid())),
            new.payer.map(|payer| IdBytes(payer.uuid())),
        ])?)
    }

    pub(super) fn claim(
        &mut self,
        runtime: RuntimeId,
        via: Option<ChannelConnection>,
        enforces: &[SandboxLimit],
        lease: Duration,
        at: Timestamp,
    ) -> Result<Option<ClaimedRunRecord>> {
        let agent = self.working(runtime)?;
        if let Some(via) = via {
            let line = self.check_current(via)?;
            if !line.connected || line.runtime != Some(runtime) {
                return Err(Error::NotFound);
            }
        }
        let via = via.map(|via| via.channel);
        let mut refused = 0;
        let whole = loop {
            let next = params![IdBytes(agent.uuid()), at.millis()];
            let found = self.statements.next_run.query_row(next, |row| {
                let number = row.get(0)?;
                Ok((number, rows::readable("task_runs", number, rows::loaded_run(row))?))
            });
            match found.optional()? {
                None => return Ok(None),
                Some((_, Some(whole))) => {
                    if self.has_room(&whole.hot, at)? && self.keeps_limits(&whole, enforces, at)? {
                        break self.named(whole)?;
                    }
                }
                // The request can't be read. The next run in the queue doesn't wait for that.
                Some((row, None)) => self.end_damaged(row, at)?,
            }
            refused += 1;
            if refused == MAX_REFUSED {
                self.woken.push(WakeHint::Queue(agent));
                return Ok(None);
            }
        };
        let account = self.directory.agent(self.connection, agent)?;
        self.lower_running_floor(whole.hot.row)?;
        let actor = entry::runtime_actor(runtime);
        let state = &whole.hot.state;
        let claimed = entry::task_claimed(runtime, state.epoch + 1, state.attempt + 1);
        let written = TransitionWrites { entry: Some(claimed), via, ..TransitionWrites::default() };
        let hot =
            self.step(&whole.hot, &RunCommand::Claim { runtime, lease }, LogStamp { actor: &actor, at }, written)?;
        if let Some(via) = via {
            self.add_frame(via, OutboxFrame::Execute { run: hot.id, epoch: hot.state.epoch })?;
        }
        let left = self.left(&hot, whole.record.usage.as_ref())?;
        let run = whole.after(hot, at, None, None);
        let conversation_metadata = match run.conversation == run.id.own_conversation() {
            true => None,
            false => self.conversation(run.tenant, run.conversation)?.metadata,
        };
        let agent_instructions = account.instructions.clone();
        let instructing_owner = account.instructing_owner;
        Ok(Some(ClaimedRunRecord { run, agent_instructions, conversation_metadata, instructing_owner, left }))
    }

    pub(super) fn progress(
        &mut self,
        by: WorkerRef,
        run: RunId,
        progress: &NewProgress,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Result<RunStatus>> {
        let NewProgress { events, usage, report } = progress;
        let hot = self.workers_run(by, run)?;
        let renewed = match self.judge(&hot, &RunCommand::Progress { by, lease }, at) {
            Ok(transition) => RunState { state: transition.state, ..hot.clone() },
            Err(error) => {
                let actor = entry::runtime_actor(by.runtime);
                let stamp = LogStamp { actor: &actor, at };
                return self.refuse_report(&hot, entry::call::PROGRESS, by, usage.as_ref(), stamp, error);
            }
        };
        if let (Some(report), Some(newest)) = (report, hot.report)
            && report.source == newest.source
            && report.seq <= newest.seq
        {
            let renewed = self.renew(&hot, renewed.state)?;
            return Ok(Ok(renewed.state.status()));
        }
        let mut moved = RunState { report: report.or(hot.report), ..renewed };
        if !has_room(hot.log_bytes, events.iter().map(|event| event.data.get().len()).sum()) {
            // Its last events are followed by a line that explains why nothing more follows.
            moved.report = hot.report;
            if hot.log_bytes <= MAX_RUN_LOG_BYTES {
                moved = self.append_chunk(moved, at, (EventKind::TaskLog, &weight::full()))?;
                moved.log_bytes = MAX_RUN_LOG_BYTES + 1;
            }
            self.put(&hot, &moved, None)?;
            return Ok(Err(Error::LogFull));
        }
        for event in events {
            moved = self.append_chunk(moved, at, (event.kind, &event.data))?;
        }
        let mut verdict = QuotaVerdict::Continue;
        if let Some(usage) = usage {
            (moved.reservation, verdict) = self.report_usage(&moved, usage)?;
            moved.reported = true;
        }
        if moved.state != hot.state || moved.last_seq != hot.last_seq || moved.report != hot.report || usage.is_some() {
            self.put(&hot, &moved, usage.as_ref())?;
        }
        if let QuotaVerdict::Stop(exceeded) = verdict {
            moved = self.exceed(&moved, &exceeded, at)?;
        }
        Ok(Ok(moved.state.status()))
    }

    pub(super) fn finish(
        &mut self,
        by: WorkerRef,
        run: RunId,
        (outcome, usage, inputs_taken): (&RunResult, Option<&Json>, Option<&[InputId]>),
        at: Timestamp,
    ) -> Result<Result<RunStatus>> {
        let hot = self.workers_run(by, run)?;
        let actor = entry::runtime_actor(by.runtime);
        let stamp = LogStamp { actor: &actor, at };
        let digest = outcome::digest_of(outcome);
        let (command, result) = match outcome {
            RunResult::Completed { output, .. } => (RunCommand::Complete { by, outcome: digest }, Some(output)),
            RunResult::Failed { code, result } => (RunCommand::Fail { by, code: *code, outcome: digest }, Some(result)),
            RunResult::Deferred { until } => (RunCommand::Defer { by, until: *until }, None),
        };
        let undelivered = match inputs_taken {
            Some(taken) => self.undelivered_inputs(run, taken)?,
            None => Vec::new(),
        };
        let entry = entry::task_finished(outcome, usage, &undelivered);
        let written = TransitionWrites { entry: Some(entry), result, usage, via: None };
        let after = match self.step(&hot, &command, stamp, written) {
            Ok(after) => after,
            Err(error) => return self.refuse_report(&hot, entry::call::finish(outcome), by, usage, stamp, error),
        };
        if let RunResult::Completed { artifacts, .. } = outcome
            && after.last_seq > hot.last_seq
        {
            self.link_artifacts(&hot, artifacts)?;
        }
        Ok(Ok(after.state.status()))
    }

    pub(super) fn cancel_run(&mut self, context: &WriteContext, run: RunId, reason: Option<&str>) -> Result<RunRecord> {
        let hot = self.own_run(context.tenant, run)?;
        self.cancel(&hot, LogStamp { actor: &context.actor, at: context.at }, reason)?;
        self.record_at(hot.row)
    }

    pub(super) fn cancel(&mut self, hot: &RunState, stamp: LogStamp<'_>, reason: Option<&str>) -> Result<()> {
        let result = outcome::cancelled(reason);
        let written = TransitionWrites {
            entry: Some(entry::task_cancelled(reason)),
            result: Some(&result),
            usage: None,
            via: None,
        };
        self.step(hot, &RunCommand::Cancel { outcome: outcome::NO_DIGEST }, stamp, written).map(drop)
    }

    pub(super) fn release(&mut self, by: WorkerRef, run: RunId, at: Timestamp) -> Result<Result<RunRecord>> {
        let hot = self.workers_run(by, run)?;
        let actor = entry::runtime_actor(by.runtime);
        let stamp = LogStamp { actor: &actor, at };
        match self.step(&hot, &RunCommand::Release { by }, stamp, TransitionWrites::default()) {
            Ok(_) => Ok(Ok(self.record_at(hot.row)?)),
            Err(error) => self.refuse(&hot, entry::call::RELEASE, by, stamp, error),
        }
    }

    /// The same for a call that may report the run's usage.
    fn refuse_report<T>(
        &mut self,
        hot: &RunState,
        call: &'static str,
        by: WorkerRef,
        usage: Option<&Json>,
        stamp: LogStamp<'_>,
        error: Error,
    ) -> Result<Result<T>> {
        match (&error, usage) {
            (Error::Refused { refusal: RunRefusal::Ended, .. }, Some(usage)) => {
                self.keep_late_usage(hot, by, usage, stamp)?;
                Ok(Err(error))
            }
            _ => self.refuse(hot, call, by, stamp, error),
        }
    }

    /// A stale epoch is recorded in the tenant's log; other refusals leave no trace.
    pub(super) fn refuse<T>(
        &mut self,
        hot: &RunState,
        call: &'static str,
        by: WorkerRef,
        stamp: LogStamp<'_>,
        error: Error,
    ) -> Result<Result<T>> {
        if matches!(error, Error::Refused { refusal: RunRefusal::StaleEpoch, .. }) {
            self.log(hot.tenant, stamp, &entry::task_refused(hot.id, call, by), None)?;
            return Ok(Err(error));
        }
        Err(error)
    }

    pub(super) fn own_run(&self, tenant: TenantId, run: RunId) -> Result<RunState> {
        let hot = self.run_state(run)?;
        if hot.tenant == tenant { Ok(hot) } else { Err(Error::NotFound) }
    }

    /// A run as its worker may see it. Runs of other agents count as not found.
    pub(super) fn workers_run(&mut self, by: WorkerRef, run: RunId) -> Result<RunState> {
        let hot = self.run_state(run)?;
        let holds = hot.runtime == Some(by.runtime);
        if holds || self.directory.runtime(self.connection, by.runtime)?.agent == hot.agent {
            Ok(hot)
        } else {
            Err(Error::NotFound)
        }
    }

    /// Every live run of an agent, oldest first.
    pub(super) fn live_runs(&self, agent: AgentId) -> Result<Vec<RunState>> {
        let mut pending = self
            .connection
            .prepare_cached(&format!("select {} from task_runs where agent = ?1 and status = 0", rows::RUN_STATE))?
            .query_map([IdBytes(agent.uuid())], |row| rows::readable("task_runs", row.get(0)?, rows::run_state(row)))?
            .filter_map(std::result::Result::transpose)
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for row in self.cache.running().collect::<Vec<_>>() {
            let Some(hot) = self.readable_hot(row)? else { continue };
            if hot.agent == agent && hot.state.status() == RunStatus::Running {
                pending.push(hot);
            }
        }
        pending.sort_by_key(|hot| hot.row);
        Ok(pending)
    }
}
