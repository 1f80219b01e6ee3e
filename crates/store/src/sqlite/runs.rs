//! Writes on runs: create, claim, progress, finish, cancel, release.

use std::{sync::LazyLock, time::Duration};

use attache_protocol::{
    AgentId, Json, RunId, RuntimeId, TenantId, Timestamp,
    rules::run::{Command, Refusal, State, Status, Worker},
    wire::runtime::RuntimeState,
};
use rusqlite::{OptionalExtension as _, params};

use super::{
    cache::{KEY_LIFETIME, Place},
    journal::{Stamp, Written},
    rows::{self, Hot, Key16, Life, Whole},
    writer::Transaction,
};
use crate::{
    Context, Error, Result, Woken, entry, outcome,
    record::{AgentRef, Claimed, Created, NewEvent, NewRun, Outcome, RunRecord},
};

/// Who a new run is for.
struct Callee {
    id: AgentId,
    name: String,
}

/// The run that the next claim of an agent gets, with the agent's instructions as the last column.
static NEXT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "select {}, a.instructions from task_runs r indexed by task_runs_queue
         cross join agent_accounts a on a.id = r.agent
         where r.agent = ?1 and r.status = 0 and r.until > ?2 order by r.priority desc, r.id limit 1",
        rows::RUN
    )
});

// === impl Transaction ===

impl Transaction<'_> {
    pub(super) fn create_run(&mut self, context: &Context, new: &NewRun) -> Result<Created> {
        if let Some(existing) = self.run_of_key(context, new)? {
            return Ok(Created::Existing(existing));
        }
        let agent = self.callee(context.tenant, &new.agent)?;
        if let Some(conversation) = new.conversation {
            self.conversation(context.tenant, conversation)?;
        }
        if let Some(parent) = new.parent {
            self.own_run(context.tenant, parent)?;
        }
        let state = State::created(new.limits, context.at);
        let stamp = Stamp { actor: &context.actor, at: context.at };
        let created = entry::task_created(agent.id, &new.task_type);
        let seq = self.log(context.tenant, stamp, &created, Some((new.id, 1)))?;
        self.insert_run(context, new, agent.id, &state, seq)?;
        let row = self.connection.last_insert_rowid();
        self.cache.track(Place { tenant: context.tenant, row }, None, Some(&state));
        if let Some(key) = new.idempotency_key {
            self.cache.set_key(context.tenant, key, row, context.at);
        }
        self.woken.extend([Woken::Queue(agent.id), Woken::Run(new.id)]);
        Ok(Created::New(RunRecord {
            id: new.id,
            tenant: context.tenant,
            agent: agent.id,
            agent_name: agent.name,
            conversation: new.conversation.unwrap_or_else(|| new.id.own_conversation()),
            parent: new.parent,
            task_type: new.task_type.clone(),
            input: new.input.clone(),
            context_fragments: new.context_fragments.clone(),
            allowed_tools: new.allowed_tools.clone(),
            workspace_root: new.workspace_root.clone(),
            priority: new.priority,
            caller: context.actor.clone(),
            trace_id: new.trace_id.clone(),
            state,
            runtime: None,
            claimed_at: None,
            result: None,
            usage: None,
            created_at: context.at,
            ended_at: None,
            last_seq: 1,
        }))
    }

    /// The agent that a new run is for: just its id and name, because every run is created through here.
    fn callee(&self, tenant: TenantId, agent: &AgentRef) -> Result<Callee> {
        let read = |row: &rusqlite::Row<'_>| {
            let callee = Callee { id: rows::agent_id(row.get(0)?), name: row.get(1)? };
            Ok((callee, row.get::<_, Option<i64>>(2)?))
        };
        let tenant = Key16(tenant.uuid());
        let found = match agent {
            AgentRef::Id(id) => self
                .connection
                .prepare_cached("select id, name, archived from agent_accounts where id = ?1 and tenant = ?2")?
                .query_row([Key16(id.uuid()), tenant], read)
                .optional()?,
            AgentRef::Name(name) => self
                .connection
                .prepare_cached(
                    "select id, name, archived from agent_accounts
                     where tenant = ?1 and name = ?2 and archived is null",
                )?
                .query_row(params![tenant, name], read)
                .optional()?,
        };
        match found {
            Some((callee, None)) => Ok(callee),
            Some((_, Some(_))) => Err(Error::AgentArchived),
            None => Err(Error::NotFound),
        }
    }

    /// The run that the same request made before, if its key is still remembered.
    fn run_of_key(&self, context: &Context, new: &NewRun) -> Result<Option<RunRecord>> {
        let Some(row) = new.idempotency_key.and_then(|key| self.cache.run_of_key(context.tenant, key)) else {
            return Ok(None);
        };
        let record = self.record_at(row)?;
        if context.at.since(record.created_at) >= KEY_LIFETIME {
            return Ok(None);
        }
        let request: [u8; 16] = self
            .connection
            .prepare_cached("select request from task_runs where id = ?1")?
            .query_row([row], |row| row.get(0))?;
        if request == new.request_digest { Ok(Some(record)) } else { Err(Error::KeyReused) }
    }

    fn insert_run(&self, context: &Context, new: &NewRun, agent: AgentId, state: &State, seq: i64) -> Result<()> {
        let expires = attache_protocol::rules::run::next_deadline(state).map(Timestamp::millis);
        self.connection
            .prepare_cached(
                "insert into task_runs (uid, tenant, agent, status, priority, epoch, attempt, max_attempts, timeout,
                    queue_ttl, until, created, last_seq, life, idempotency, request, conversation, parent, task_type,
                    caller, trace, workspace_root, context_fragments, allowed_tools, input)
                 values (?1, ?2, ?3, 0, ?4, 0, 0, ?5, ?6, ?7, ?8, ?9, 1, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
                    ?19, ?20, ?21)",
            )?
            .execute(params![
                Key16(new.id.uuid()),
                Key16(context.tenant.uuid()),
                Key16(agent.uuid()),
                new.priority,
                new.limits.max_attempts,
                rows::millis(new.limits.timeout),
                rows::millis(new.limits.queue_ttl),
                expires,
                context.at.millis(),
                Life(vec![(1, seq)]).bytes(),
                new.idempotency_key,
                new.request_digest,
                new.conversation.map(|conversation| Key16(conversation.uuid())),
                new.parent.map(|parent| Key16(parent.uuid())),
                new.task_type,
                context.actor,
                new.trace_id,
                new.workspace_root,
                new.context_fragments.as_ref().map(Json::get),
                new.allowed_tools.as_ref().map(Json::get),
                new.input.get(),
            ])?;
        Ok(())
    }

    pub(super) fn claim(&mut self, runtime: RuntimeId, lease: Duration, at: Timestamp) -> Result<Option<Claimed>> {
        let (agent, state) = self.runtime_agent(runtime)?;
        if state != RuntimeState::Active {
            return Err(Error::RuntimeEnded(state));
        }
        let found = self
            .connection
            .prepare_cached(&NEXT)?
            .query_row(params![Key16(agent.uuid()), at.millis()], |row| {
                Ok((rows::whole(row)?, row.get::<_, Option<String>>(31)?))
            })
            .optional()?;
        let Some((whole, agent_instructions)) = found else { return Ok(None) };
        self.lower_running_floor(whole.hot.row)?;
        let actor = entry::runtime_actor(runtime);
        let state = &whole.hot.state;
        let claimed = entry::task_claimed(runtime, state.epoch + 1, state.attempt + 1);
        let written = Written { entry: Some(claimed), ..Written::default() };
        let hot = self.step(&whole.hot, &Command::Claim { runtime, lease }, Stamp { actor: &actor, at }, written)?;
        let run = whole.after(hot, at, None, None);
        let conversation_metadata = match run.conversation == run.id.own_conversation() {
            true => None,
            false => self.conversation(run.tenant, run.conversation)?.metadata,
        };
        Ok(Some(Claimed { run, agent_instructions, conversation_metadata }))
    }

    pub(super) fn progress(
        &mut self,
        by: Worker,
        run: RunId,
        events: &[NewEvent],
        usage: Option<&Json>,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Result<RunRecord>> {
        let whole = self.workers_run(by, run)?;
        let actor = entry::runtime_actor(by.runtime);
        let stamp = Stamp { actor: &actor, at };
        let renewed = match self.step(&whole.hot, &Command::Progress { by, lease }, stamp, Written::default()) {
            Ok(renewed) => renewed,
            Err(error) => return self.refuse(&whole.hot, entry::call::PROGRESS, by, stamp, error),
        };
        let first = renewed.last_seq + 1;
        for (seq, event) in (first..).zip(events) {
            self.connection
                .prepare_cached("insert into chunks (run, seq, at, type, data) values (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![renewed.row, seq, at.millis(), event.kind, event.data.get()])?;
        }
        let last_seq = renewed.last_seq + i64::try_from(events.len()).unwrap_or(i64::MAX);
        if last_seq > renewed.last_seq || usage.is_some() {
            self.connection
                .prepare_cached("update task_runs set last_seq = ?2, usage = coalesce(?3, usage) where id = ?1")?
                .execute(params![renewed.row, last_seq, usage.map(Json::get)])?;
            self.woken.push(Woken::Run(run));
        }
        Ok(Ok(whole.after(Hot { last_seq, ..renewed }, at, None, usage)))
    }

    pub(super) fn finish(
        &mut self,
        by: Worker,
        run: RunId,
        outcome: &Outcome,
        usage: Option<&Json>,
        at: Timestamp,
    ) -> Result<Result<RunRecord>> {
        let whole = self.workers_run(by, run)?;
        let actor = entry::runtime_actor(by.runtime);
        let stamp = Stamp { actor: &actor, at };
        let digest = outcome::digest_of(outcome);
        let (command, result) = match outcome {
            Outcome::Completed { output, .. } => (Command::Complete { by, outcome: digest }, output),
            Outcome::Failed { code, result } => (Command::Fail { by, code: *code, outcome: digest }, result),
        };
        let written =
            Written { entry: Some(entry::task_finished(outcome, usage)), result: Some(result.clone()), usage };
        match self.step(&whole.hot, &command, stamp, written) {
            Ok(after) if after.last_seq > whole.hot.last_seq => {
                if let Outcome::Completed { artifacts, .. } = outcome {
                    self.link_artifacts(&whole.hot, artifacts)?;
                }
                Ok(Ok(whole.after(after, at, Some(result), usage)))
            }
            Ok(_) => Ok(Ok(whole.record)),
            Err(error) => self.refuse(&whole.hot, entry::call::finish(outcome), by, stamp, error),
        }
    }

    pub(super) fn cancel_run(&mut self, context: &Context, run: RunId, reason: Option<&str>) -> Result<RunRecord> {
        let hot = self.own_run(context.tenant, run)?;
        self.cancel(&hot, Stamp { actor: &context.actor, at: context.at }, reason)?;
        self.record_at(hot.row)
    }

    pub(super) fn cancel(&mut self, hot: &Hot, stamp: Stamp<'_>, reason: Option<&str>) -> Result<()> {
        let written = Written {
            entry: Some(entry::task_cancelled(reason)),
            result: Some(outcome::cancelled(reason)),
            usage: None,
        };
        self.step(hot, &Command::Cancel { outcome: outcome::NO_DIGEST }, stamp, written).map(drop)
    }

    pub(super) fn release(&mut self, by: Worker, run: RunId, at: Timestamp) -> Result<Result<RunRecord>> {
        let whole = self.workers_run(by, run)?;
        let actor = entry::runtime_actor(by.runtime);
        let stamp = Stamp { actor: &actor, at };
        match self.step(&whole.hot, &Command::Release { by }, stamp, Written::default()) {
            Ok(after) => Ok(Ok(whole.after(after, at, None, None))),
            Err(error) => self.refuse(&whole.hot, entry::call::RELEASE, by, stamp, error),
        }
    }

    /// A stale epoch is recorded in the tenant's log; other refusals leave no trace.
    fn refuse<T>(
        &mut self,
        hot: &Hot,
        call: &'static str,
        by: Worker,
        stamp: Stamp<'_>,
        error: Error,
    ) -> Result<Result<T>> {
        if matches!(error, Error::Refused { refusal: Refusal::StaleEpoch, .. }) {
            self.log(hot.tenant, stamp, &entry::task_refused(hot.id, call, by), None)?;
            return Ok(Err(error));
        }
        Err(error)
    }

    pub(super) fn own_run(&self, tenant: TenantId, run: RunId) -> Result<Hot> {
        let hot = self.hot(run)?;
        if hot.tenant == tenant { Ok(hot) } else { Err(Error::NotFound) }
    }

    /// A run as its worker may see it: runs of other agents do not exist for it.
    fn workers_run(&self, by: Worker, run: RunId) -> Result<Whole> {
        let whole = self.whole(run)?;
        let holds = whole.hot.runtime == Some(by.runtime);
        if holds || self.runtime_agent(by.runtime)?.0 == whole.hot.agent { Ok(whole) } else { Err(Error::NotFound) }
    }

    /// Every live run of an agent, oldest first.
    pub(super) fn live_runs(&self, agent: AgentId) -> Result<Vec<Hot>> {
        let mut pending = self
            .connection
            .prepare_cached(&format!("select {} from task_runs where agent = ?1 and status = 0", rows::HOT))?
            .query_map([Key16(agent.uuid())], rows::hot)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for row in self.cache.running().collect::<Vec<_>>() {
            let hot = self.hot_at(row)?;
            if hot.agent == agent && hot.state.status() == Status::Running {
                pending.push(hot);
            }
        }
        pending.sort_by_key(|hot| hot.row);
        Ok(pending)
    }
}
