//! A worker's requests to its caller and to the engine that follows its run, and their answers.

use std::time::Duration;

use super::connection::{Connection, OptionalExtension as _, Row};
use attache_protocol::{
    InputId, Json, RunId, TenantId, Timestamp, WorkerRequestId,
    rules::run::{FailureCode, RunCommand, RunRefusal, RunStatus, WaitReason, WorkerRef},
    wire::input_request::WorkerRequestState,
};
use rusqlite::params;

use super::{
    frames,
    journal::{LogStamp, TransitionWrites},
    rows::{self, IdBytes, RunState},
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WakeHint, WriteContext,
    entry::{self, call},
    record::{
        channel::OutboxFrame,
        worker_request::{
            InputRecord, InputTarget, NewInput, NewWorkerRequest, WorkerRequestKind, WorkerRequestRecord,
        },
    },
    weight::{PageWeight as _, has_room},
};

/// The columns that [`worker_request`] reads, with their table.
const WORKER_REQUEST: &str =
    "id, run, epoch, kind, text, content, request, asked, expires, state, answer, message from asks";
const INPUT: i64 = 0;
const TOOL: i64 = 1;
const AUTHORIZATION: i64 = 2;

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn create_worker_request(
        &mut self,
        by: WorkerRef,
        new: NewWorkerRequest,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Result<WorkerRequestRecord>> {
        let hot = self.workers_run(by, new.run)?;
        let actor = entry::runtime_actor(by.runtime);
        let stamp = LogStamp { actor: &actor, at };
        let command = match new.what.waiting() {
            Some(what) => RunCommand::Ask { by, what, lease },
            None => RunCommand::Progress { by, lease },
        };
        let asked = match self.judge(&hot, &command, at) {
            Ok(asked) => asked,
            Err(error) => return self.refuse(&hot, call::ASK, by, stamp, error),
        };
        if let Some(known) = self.find_repeated_request(&hot, &new)? {
            if known.what != new.what {
                return Err(Error::KeyReused);
            }
            let renewed = self.judge(&hot, &RunCommand::Progress { by, lease }, at)?;
            self.renew(&hot, renewed.state)?;
            return Ok(Ok(known));
        }
        if !has_room(hot.log_bytes, new.what.weight()) {
            return Err(Error::LogFull);
        }
        let after = match &new.what {
            WorkerRequestKind::Input { prompt, parts } => {
                let required = entry::worker_request::input_required(new.id, prompt, parts.as_ref());
                let after = self.append_for(hot.clone(), stamp, &required)?;
                let after = self.append_for(after, stamp, &entry::worker_request::input_needed(new.id))?;
                self.wait(after, asked, stamp)?
            }
            WorkerRequestKind::Authorization { prompt, parts } => {
                let required = entry::worker_request::authorization_required(new.id, prompt, parts.as_ref());
                let after = self.append_for(hot.clone(), stamp, &required)?;
                self.wait(after, asked, stamp)?
            }
            WorkerRequestKind::Tool { tool, arguments } => {
                let engine = frames::follower(self.connection, new.run)?.ok_or(Error::NoEngine)?.channel;
                let (kind, data) = entry::worker_request::tool_called(new.id, tool, arguments);
                let calls = RunState { state: asked.state, calls: hot.calls + 1, ..hot.clone() };
                let after = self.append_chunk(calls, at, (kind, &data))?;
                self.add_frame(engine, OutboxFrame::ToolCall { ask: new.id })?;
                after
            }
        };
        self.put(&hot, &after, None)?;
        let NewWorkerRequest { id, run, what, request, expires_at } = new;
        let (epoch, state) = (hot.state.epoch, WorkerRequestState::Pending);
        let ask = WorkerRequestRecord {
            id,
            run,
            epoch,
            what,
            request,
            asked_at: at,
            expires_at,
            state,
            answer: None,
            message: None,
        };
        self.insert_worker_request(&hot, &ask)?;
        Ok(Ok(ask))
    }

    fn insert_worker_request(&self, hot: &RunState, ask: &WorkerRequestRecord) -> Result<()> {
        let (kind, text, content) = match &ask.what {
            WorkerRequestKind::Input { prompt, parts } => (INPUT, prompt, parts.as_ref()),
            WorkerRequestKind::Authorization { prompt, parts } => (AUTHORIZATION, prompt, parts.as_ref()),
            WorkerRequestKind::Tool { tool, arguments } => (TOOL, tool, Some(arguments)),
        };
        self.connection
            .prepare_cached(
                "insert into asks (id, tenant, run, epoch, kind, state, expires, asked, request, text, content)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                IdBytes(ask.id.uuid()),
                IdBytes(hot.tenant.uuid()),
                IdBytes(ask.run.uuid()),
                ask.epoch,
                kind,
                ask.state.as_str(),
                ask.expires_at.map(Timestamp::millis),
                ask.asked_at.millis(),
                ask.request,
                text,
                content.map(Json::get),
            ])?;
        Ok(())
    }

    /// The request of the same claim with the same id.
    fn find_repeated_request(&self, hot: &RunState, new: &NewWorkerRequest) -> Result<Option<WorkerRequestRecord>> {
        let Some(name) = &new.request else { return Ok(None) };
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {WORKER_REQUEST} where run = ?1 and epoch = ?2 and request = ?3 order by no limit 1"
            ))?
            .query_row(params![IdBytes(hot.id.uuid()), hot.state.epoch, name], worker_request)
            .optional()?)
    }

    pub(super) fn withdraw_worker_request(
        &mut self,
        by: WorkerRef,
        run: RunId,
        id: WorkerRequestId,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Result<WorkerRequestRecord>> {
        let hot = self.workers_run(by, run)?;
        let actor = entry::runtime_actor(by.runtime);
        let stamp = LogStamp { actor: &actor, at };
        let renewed = match self.judge(&hot, &RunCommand::Progress { by, lease }, at) {
            Ok(renewed) => renewed,
            Err(error) => return self.refuse(&hot, call::ASK, by, stamp, error),
        };
        let ask = read_worker_request(self.connection, hot.tenant, id)?;
        let is_own = ask.run == run && ask.epoch == hot.state.epoch;
        let what = ask.what.waiting().filter(|_| is_own).ok_or(Error::NotFound)?;
        if ask.state != WorkerRequestState::Pending {
            self.renew(&hot, renewed.state)?;
            return Ok(Ok(ask));
        }
        let after = RunState { state: renewed.state, ..hot.clone() };
        let after = self.append_for(after, stamp, &entry::worker_request::input_withdrawn(id))?;
        self.settle_worker_request(&after, id, WorkerRequestState::Cancelled, None)?;
        let answered = self.judge(&after, &RunCommand::Answer { what }, at)?;
        let after = self.wait(after, answered, stamp)?;
        self.put(&hot, &after, None)?;
        Ok(Ok(WorkerRequestRecord { state: WorkerRequestState::Cancelled, ..ask }))
    }

    pub(super) fn answer_tool_call(
        &mut self,
        context: &WriteContext,
        id: WorkerRequestId,
        reply: &Json,
    ) -> Result<WorkerRequestRecord> {
        let ask = read_worker_request(self.connection, context.tenant, id)?;
        let WorkerRequestKind::Tool { tool, .. } = &ask.what else { return Err(Error::NotFound) };
        let is_engine = self
            .connection
            .prepare_cached(
                "select 1 from task_runs r cross join follows f on f.run = r.id
                    cross join channels c on c.no = f.channel
                 where r.uid = ?1 and c.principal = ?2",
            )?
            .exists(params![IdBytes(ask.run.uuid()), context.actor.to_string()])?;
        if !is_engine {
            return Err(Error::NotFound);
        }
        if ask.state != WorkerRequestState::Pending {
            return Ok(ask);
        }
        let hot = self.run_state(ask.run)?;
        let (kind, data) = entry::worker_request::tool_answered(id, tool, reply);
        let answered = RunState { calls: hot.calls - 1, ..hot.clone() };
        let after = self.append_chunk(answered, context.at, (kind, &data))?;
        self.settle_worker_request(&after, id, WorkerRequestState::Answered, Some(reply))?;
        self.put(&hot, &after, None)?;
        read_worker_request(self.connection, context.tenant, id)
    }

    /// Settles a pending request, with its frame unless it isn't needed.
    fn settle_worker_request(
        &mut self,
        hot: &RunState,
        id: WorkerRequestId,
        state: WorkerRequestState,
        answer: Option<&Json>,
    ) -> Result<()> {
        self.connection.prepare_cached("update asks set state = ?2, answer = ?3 where id = ?1")?.execute(params![
            IdBytes(id.uuid()),
            state.as_str(),
            answer.map(Json::get)
        ])?;
        self.woken.push(WakeHint::Asked(hot.id));
        match hot.channel {
            Some(channel) if state != WorkerRequestState::Cancelled => {
                self.add_frame(channel, OutboxFrame::Answer { ask: id })
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn cancel_worker_requests(&mut self, run: RunId) -> Result<()> {
        self.connection
            .prepare_cached("update asks set state = 'cancelled' where run = ?1 and state = 'pending'")?
            .execute([IdBytes(run.uuid())])?;
        self.woken.push(WakeHint::Asked(run));
        Ok(())
    }

    pub(super) fn expire_worker_requests(&mut self, at: Timestamp, runs: &mut Vec<RunId>) -> Result<()> {
        let stamp = LogStamp { actor: WriteContext::SYSTEM, at };
        let due = self
            .connection
            .prepare_cached(&format!(
                "select {WORKER_REQUEST} indexed by asks_expiring
                 where state = 'pending' and expires is not null and expires <= ?1 order by no"
            ))?
            .query_map([at.millis()], worker_request)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for ask in due {
            let hot = self.run_state(ask.run)?;
            // An earlier one may have ended the run and cancelled this one.
            if hot.state.epoch != ask.epoch || hot.state.claim().is_none() {
                continue;
            }
            self.settle_worker_request(&hot, ask.id, WorkerRequestState::Expired, None)?;
            match ask.what {
                WorkerRequestKind::Input { .. } | WorkerRequestKind::Authorization { .. } => {
                    let halt = RunCommand::Halt { code: FailureCode::TimedOut };
                    self.step(&hot, &halt, stamp, TransitionWrites::default())?;
                    runs.push(hot.id);
                }
                WorkerRequestKind::Tool { .. } => {
                    self.put(&hot, &RunState { calls: hot.calls - 1, ..hot.clone() }, None)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn add_input(&mut self, context: &WriteContext, new: NewInput) -> Result<InputRecord> {
        let hot = self.own_run(context.tenant, new.run)?;
        if let Some(first) = self.find_repeated_input(&new)? {
            return if first.parts == new.parts { Ok(first) } else { Err(Error::KeyReused) };
        }
        let refusal = match hot.state.status() {
            RunStatus::Running => None,
            RunStatus::Pending => Some(RunRefusal::NotRunning),
            RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled => Some(RunRefusal::Ended),
        };
        if let Some(refusal) = refusal {
            return Err(Error::Refused { refusal, run: Box::new(self.record_at(hot.row)?) });
        }
        if !has_room(hot.log_bytes, new.weight()) {
            return Err(Error::LogFull);
        }
        let stamp = context.stamp();
        let question = self.question(&hot, new.target)?;
        if question.is_none() && matches!(new.target, InputTarget::Question(_)) {
            return Err(Error::NotAsked);
        }
        let ask = question.map(|(ask, _)| ask);
        let NewInput { id, run, parts, message, target: _, key } = new;
        let input = InputRecord { id, run, parts, message, ask, status: RunStatus::Running };
        let mut after = self.append_for(hot.clone(), stamp, &entry::worker_request::input_received(&input))?;
        match (question, hot.channel) {
            (Some((ask, what)), _) => {
                self.settle_worker_request(&after, ask, WorkerRequestState::Answered, Some(&input.parts))?;
                self.keep_message(ask, input.message.as_ref())?;
                let answered = self.judge(&after, &RunCommand::Answer { what }, context.at)?;
                after = self.wait(after, answered, stamp)?;
            }
            (None, Some(channel)) => self.add_frame(channel, OutboxFrame::Input { run, input: id })?,
            (None, None) => {}
        }
        self.put(&hot, &after, None)?;
        self.connection
            .prepare_cached("insert into inputs (id, run, ask, key, parts, message) values (?1, ?2, ?3, ?4, ?5, ?6)")?
            .execute(params![
                IdBytes(input.id.uuid()),
                IdBytes(input.run.uuid()),
                input.ask.map(|ask| IdBytes(ask.uuid())),
                key,
                input.parts.get(),
                input.message.as_ref().map(Json::get),
            ])?;
        Ok(input)
    }

    /// The run's unsolicited input other than this, oldest first.
    pub(super) fn undelivered_inputs(&self, run: RunId, taken: &[InputId]) -> Result<Vec<InputId>> {
        let mut statement =
            self.connection.prepare_cached("select id from inputs where run = ?1 and ask is null order by no")?;
        let ids = statement.query_map([IdBytes(run.uuid())], |row| Ok(rows::input_id(row.get(0)?)))?;
        let mut undelivered = Vec::new();
        for id in ids {
            undelivered.extend(Some(id?).filter(|id| !taken.contains(id)));
        }
        Ok(undelivered)
    }

    /// Stores the message that contained an answer.
    fn keep_message(&self, ask: WorkerRequestId, message: Option<&Json>) -> Result<()> {
        if let Some(message) = message {
            self.connection
                .prepare_cached("update asks set message = ?2 where id = ?1")?
                .execute(params![IdBytes(ask.uuid()), message.get()])?;
        }
        Ok(())
    }

    fn find_repeated_input(&self, new: &NewInput) -> Result<Option<InputRecord>> {
        let Some(key) = new.key else { return Ok(None) };
        Ok(self
            .connection
            .prepare_cached("select id, run, parts, ask, message from inputs where run = ?1 and key = ?2")?
            .query_row(params![IdBytes(new.run.uuid()), key], input)
            .optional()?)
    }

    /// The question that an input answers.
    fn question(&self, hot: &RunState, target: InputTarget) -> Result<Option<(WorkerRequestId, WaitReason)>> {
        let named = match target {
            InputTarget::OldestQuestion => None,
            InputTarget::Question(question) => Some(question),
            InputTarget::Agent => return Ok(None),
        };
        if hot.state.waiting().is_none() {
            return Ok(None);
        }
        Ok(self
            .connection
            .prepare_cached(
                "select id, kind from asks where run = ?1 and state = 'pending' and kind <> 1
                    and (id = ?2 or ?2 is null) order by no limit 1",
            )?
            .query_row(params![IdBytes(hot.id.uuid()), named.map(|ask| IdBytes(ask.uuid()))], |row| {
                let what = if row.get::<i64>(1)? == INPUT { WaitReason::Input } else { WaitReason::Approval };
                Ok((rows::ask_id(row.get(0)?), what))
            })
            .optional()?)
    }
}

pub(super) fn read_worker_request(
    connection: &Connection,
    tenant: TenantId,
    id: WorkerRequestId,
) -> Result<WorkerRequestRecord> {
    connection
        .prepare_cached(&format!("select {WORKER_REQUEST} where id = ?1 and tenant = ?2"))?
        .query_row([IdBytes(id.uuid()), IdBytes(tenant.uuid())], worker_request)
        .optional()?
        .ok_or(Error::NotFound)
}

/// The oldest pending request for input or an authorization.
pub(super) fn read_open_worker_request(
    connection: &Connection,
    tenant: TenantId,
    run: RunId,
) -> Result<Option<WorkerRequestRecord>> {
    Ok(connection
        .prepare_cached(&format!(
            "select {WORKER_REQUEST} where run = ?1 and tenant = ?2 and state = 'pending' and kind <> {TOOL} order by no limit 1"
        ))?
        .query_row([IdBytes(run.uuid()), IdBytes(tenant.uuid())], worker_request)
        .optional()?)
}

pub(super) fn read_input(connection: &Connection, run: RunId, id: InputId) -> Result<InputRecord> {
    connection
        .prepare_cached("select id, run, parts, ask, message from inputs where id = ?1 and run = ?2")?
        .query_row([IdBytes(id.uuid()), IdBytes(run.uuid())], input)
        .optional()?
        .ok_or(Error::NotFound)
}

/// Reads [`WORKER_REQUEST`].
fn worker_request(row: &Row<'_>) -> rusqlite::Result<WorkerRequestRecord> {
    let what = match row.get::<i64>(3)? {
        INPUT => WorkerRequestKind::Input { prompt: row.get(4)?, parts: rows::maybe_json(row, 5)? },
        AUTHORIZATION => WorkerRequestKind::Authorization { prompt: row.get(4)?, parts: rows::maybe_json(row, 5)? },
        TOOL => WorkerRequestKind::Tool { tool: row.get(4)?, arguments: rows::json(row, 5)? },
        _ => return Err(rows::corrupt(3, "an unknown kind of question")),
    };
    let state = WorkerRequestState::from_text(&row.get::<String>(9)?);
    Ok(WorkerRequestRecord {
        id: rows::ask_id(row.get(0)?),
        run: rows::run_id(row.get(1)?),
        epoch: row.get(2)?,
        what,
        request: row.get(6)?,
        asked_at: rows::time(row, 7)?,
        expires_at: rows::maybe_time(row, 8)?,
        state: state.ok_or_else(|| rows::corrupt(9, "an unknown state of a question"))?,
        answer: rows::maybe_json(row, 10)?,
        message: rows::maybe_json(row, 11)?,
    })
}

/// Reads `id, run, parts, ask, message`. Input is only given to running runs.
fn input(row: &Row<'_>) -> rusqlite::Result<InputRecord> {
    Ok(InputRecord {
        id: rows::input_id(row.get(0)?),
        run: rows::run_id(row.get(1)?),
        parts: rows::json(row, 2)?,
        ask: row.get::<Option<_>>(3)?.map(rows::ask_id),
        message: rows::maybe_json(row, 4)?,
        status: RunStatus::Running,
    })
}
