//! What a worker asks of its caller and of the engine that follows its run, and what they answer.

use std::time::Duration;

use attache_protocol::{
    AskId, InputId, Json, RunId, TenantId, Timestamp,
    rules::run::{Command, FailureCode, Refusal, Status, Waiting, Worker},
    wire::ask::AskState,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{
    frames,
    journal::{Stamp, Written},
    rows::{self, Hot, Key16},
    writer::Transaction,
};
use crate::{
    Context, Error, Result, Woken,
    entry::{self, call},
    record::{
        ask::{Ask, AskWhat, Input, NewAsk, NewInput},
        channel::Frame,
    },
    weight::{Weigh as _, has_room},
};

/// The columns that [`ask`] reads, with their table.
const ASK: &str = "id, run, epoch, kind, text, content, request, asked, expires, state, answer, message from asks";
const INPUT: i64 = 0;
const TOOL: i64 = 1;
const AUTHORIZATION: i64 = 2;

// === impl Transaction ===

impl Transaction<'_, '_> {
    pub(super) fn ask(&mut self, by: Worker, new: NewAsk, lease: Duration, at: Timestamp) -> Result<Result<Ask>> {
        let hot = self.workers_run(by, new.run)?;
        let actor = entry::runtime_actor(by.runtime);
        let stamp = Stamp { actor: &actor, at };
        let command = match new.what.waiting() {
            Some(what) => Command::Ask { by, what, lease },
            None => Command::Progress { by, lease },
        };
        let asked = match self.judge(&hot, &command, at) {
            Ok(asked) => asked,
            Err(error) => return self.refuse(&hot, call::ASK, by, stamp, error),
        };
        if let Some(known) = self.named_before(&hot, &new)? {
            if known.what != new.what {
                return Err(Error::KeyReused);
            }
            let renewed = self.judge(&hot, &Command::Progress { by, lease }, at)?;
            self.renew(&hot, renewed.state)?;
            return Ok(Ok(known));
        }
        if !has_room(hot.log_bytes, new.what.weight()) {
            return Err(Error::LogFull);
        }
        let after = match &new.what {
            AskWhat::Input { prompt, parts } => {
                let required = entry::ask::input_required(new.id, prompt, parts.as_ref());
                let after = self.append_for(hot.clone(), stamp, &required)?;
                let after = self.append_for(after, stamp, &entry::ask::input_needed(new.id))?;
                self.wait(after, asked, stamp)?
            }
            AskWhat::Authorization { prompt, parts } => {
                let required = entry::ask::authorization_required(new.id, prompt, parts.as_ref());
                let after = self.append_for(hot.clone(), stamp, &required)?;
                self.wait(after, asked, stamp)?
            }
            AskWhat::Tool { tool, arguments } => {
                let engine = frames::follower(self.connection, new.run)?.ok_or(Error::NoEngine)?.channel;
                let (kind, data) = entry::ask::tool_called(new.id, tool, arguments);
                let calls = Hot { state: asked.state, calls: hot.calls + 1, ..hot.clone() };
                let after = self.append_chunk(calls, at, (kind, &data))?;
                self.tell(engine, Frame::ToolCall { ask: new.id })?;
                after
            }
        };
        self.put(&hot, &after, None)?;
        let NewAsk { id, run, what, request, expires_at } = new;
        let (epoch, state) = (hot.state.epoch, AskState::Pending);
        let ask = Ask { id, run, epoch, what, request, asked_at: at, expires_at, state, answer: None, message: None };
        self.insert_ask(&hot, &ask)?;
        Ok(Ok(ask))
    }

    fn insert_ask(&self, hot: &Hot, ask: &Ask) -> Result<()> {
        let (kind, text, content) = match &ask.what {
            AskWhat::Input { prompt, parts } => (INPUT, prompt, parts.as_ref()),
            AskWhat::Authorization { prompt, parts } => (AUTHORIZATION, prompt, parts.as_ref()),
            AskWhat::Tool { tool, arguments } => (TOOL, tool, Some(arguments)),
        };
        self.connection
            .prepare_cached(
                "insert into asks (id, tenant, run, epoch, kind, state, expires, asked, request, text, content)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                Key16(ask.id.uuid()),
                Key16(hot.tenant.uuid()),
                Key16(ask.run.uuid()),
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

    /// The ask of the same claim with the same name.
    fn named_before(&self, hot: &Hot, new: &NewAsk) -> Result<Option<Ask>> {
        let Some(name) = &new.request else { return Ok(None) };
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {ASK} where run = ?1 and epoch = ?2 and request = ?3 order by no limit 1"
            ))?
            .query_row(params![Key16(hot.id.uuid()), hot.state.epoch, name], ask)
            .optional()?)
    }

    pub(super) fn withdraw_ask(
        &mut self,
        by: Worker,
        run: RunId,
        id: AskId,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Result<Ask>> {
        let hot = self.workers_run(by, run)?;
        let actor = entry::runtime_actor(by.runtime);
        let stamp = Stamp { actor: &actor, at };
        let renewed = match self.judge(&hot, &Command::Progress { by, lease }, at) {
            Ok(renewed) => renewed,
            Err(error) => return self.refuse(&hot, call::ASK, by, stamp, error),
        };
        let ask = read_ask(self.connection, hot.tenant, id)?;
        let is_own = ask.run == run && ask.epoch == hot.state.epoch;
        let what = ask.what.waiting().filter(|_| is_own).ok_or(Error::NotFound)?;
        if ask.state != AskState::Pending {
            self.renew(&hot, renewed.state)?;
            return Ok(Ok(ask));
        }
        let after = Hot { state: renewed.state, ..hot.clone() };
        let after = self.append_for(after, stamp, &entry::ask::input_withdrawn(id))?;
        self.settle_ask(&after, id, AskState::Cancelled, None)?;
        let answered = self.judge(&after, &Command::Answer { what }, at)?;
        let after = self.wait(after, answered, stamp)?;
        self.put(&hot, &after, None)?;
        Ok(Ok(Ask { state: AskState::Cancelled, ..ask }))
    }

    pub(super) fn answer_tool(&mut self, context: &Context, id: AskId, reply: &Json) -> Result<Ask> {
        let ask = read_ask(self.connection, context.tenant, id)?;
        let AskWhat::Tool { tool, .. } = &ask.what else { return Err(Error::NotFound) };
        let is_engine = self
            .connection
            .prepare_cached(
                "select 1 from task_runs r cross join follows f on f.run = r.id
                    cross join channels c on c.no = f.channel
                 where r.uid = ?1 and c.principal = ?2",
            )?
            .exists(params![Key16(ask.run.uuid()), context.actor])?;
        if !is_engine {
            return Err(Error::NotFound);
        }
        if ask.state != AskState::Pending {
            return Ok(ask);
        }
        let hot = self.hot(ask.run)?;
        let (kind, data) = entry::ask::tool_answered(id, tool, reply);
        let answered = Hot { calls: hot.calls - 1, ..hot.clone() };
        let after = self.append_chunk(answered, context.at, (kind, &data))?;
        self.settle_ask(&after, id, AskState::Answered, Some(reply))?;
        self.put(&hot, &after, None)?;
        read_ask(self.connection, context.tenant, id)
    }

    /// Settles a pending ask, with its frame unless nobody waits for it.
    fn settle_ask(&mut self, hot: &Hot, id: AskId, state: AskState, answer: Option<&Json>) -> Result<()> {
        self.connection.prepare_cached("update asks set state = ?2, answer = ?3 where id = ?1")?.execute(params![
            Key16(id.uuid()),
            state.as_str(),
            answer.map(Json::get)
        ])?;
        self.woken.push(Woken::Asked(hot.id));
        match hot.channel {
            Some(channel) if state != AskState::Cancelled => self.tell(channel, Frame::Answer { ask: id }),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn cancel_asks(&mut self, run: RunId) -> Result<()> {
        self.connection
            .prepare_cached("update asks set state = 'cancelled' where run = ?1 and state = 'pending'")?
            .execute([Key16(run.uuid())])?;
        self.woken.push(Woken::Asked(run));
        Ok(())
    }

    pub(super) fn expire_asks(&mut self, at: Timestamp, runs: &mut Vec<RunId>) -> Result<()> {
        let stamp = Stamp { actor: Context::SYSTEM, at };
        let due = self
            .connection
            .prepare_cached(&format!(
                "select {ASK} indexed by asks_expiring
                 where state = 'pending' and expires is not null and expires <= ?1 order by no"
            ))?
            .query_map([at.millis()], ask)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for ask in due {
            let hot = self.hot(ask.run)?;
            // An earlier one may have ended the run, and cancelled this one.
            if hot.state.epoch != ask.epoch || hot.state.claim().is_none() {
                continue;
            }
            self.settle_ask(&hot, ask.id, AskState::Expired, None)?;
            match ask.what {
                AskWhat::Input { .. } | AskWhat::Authorization { .. } => {
                    let halt = Command::Halt { code: FailureCode::TimedOut };
                    self.step(&hot, &halt, stamp, Written::default())?;
                    runs.push(hot.id);
                }
                AskWhat::Tool { .. } => self.put(&hot, &Hot { calls: hot.calls - 1, ..hot.clone() }, None)?,
            }
        }
        Ok(())
    }

    pub(super) fn add_input(&mut self, context: &Context, new: NewInput) -> Result<Input> {
        let hot = self.own_run(context.tenant, new.run)?;
        if let Some(first) = self.given_before(&new)? {
            return if first.parts == new.parts { Ok(first) } else { Err(Error::KeyReused) };
        }
        let refusal = match hot.state.status() {
            Status::Running => None,
            Status::Pending => Some(Refusal::NotRunning),
            Status::Completed | Status::Failed | Status::Cancelled => Some(Refusal::Ended),
        };
        if let Some(refusal) = refusal {
            return Err(Error::Refused { refusal, run: Box::new(self.record_at(hot.row)?) });
        }
        if !has_room(hot.log_bytes, new.weight()) {
            return Err(Error::LogFull);
        }
        let stamp = context.stamp();
        let question = self.question(&hot, new.answers)?;
        if question.is_none() && new.answers.is_some() {
            return Err(Error::NotAsked);
        }
        let ask = question.map(|(ask, _)| ask);
        let NewInput { id, run, parts, message, answers: _, key } = new;
        let input = Input { id, run, parts, message, ask, status: Status::Running };
        let mut after = self.append_for(hot.clone(), stamp, &entry::ask::input_received(&input))?;
        match (question, hot.channel) {
            (Some((ask, what)), _) => {
                self.settle_ask(&after, ask, AskState::Answered, Some(&input.parts))?;
                self.keep_message(ask, input.message.as_ref())?;
                let answered = self.judge(&after, &Command::Answer { what }, context.at)?;
                after = self.wait(after, answered, stamp)?;
            }
            (None, Some(channel)) => self.tell(channel, Frame::Input { run, input: id })?,
            (None, None) => {}
        }
        self.put(&hot, &after, None)?;
        self.connection
            .prepare_cached("insert into inputs (id, run, ask, key, parts, message) values (?1, ?2, ?3, ?4, ?5, ?6)")?
            .execute(params![
                Key16(input.id.uuid()),
                Key16(input.run.uuid()),
                input.ask.map(|ask| Key16(ask.uuid())),
                key,
                input.parts.get(),
                input.message.as_ref().map(Json::get),
            ])?;
        Ok(input)
    }

    /// Keeps the message that brought an answer.
    fn keep_message(&self, ask: AskId, message: Option<&Json>) -> Result<()> {
        if let Some(message) = message {
            self.connection
                .prepare_cached("update asks set message = ?2 where id = ?1")?
                .execute(params![Key16(ask.uuid()), message.get()])?;
        }
        Ok(())
    }

    fn given_before(&self, new: &NewInput) -> Result<Option<Input>> {
        let Some(key) = new.key else { return Ok(None) };
        Ok(self
            .connection
            .prepare_cached("select id, run, parts, ask, message from inputs where run = ?1 and key = ?2")?
            .query_row(params![Key16(new.run.uuid()), key], input)
            .optional()?)
    }

    /// The question that the next input answers: the one that it names, or the oldest.
    fn question(&self, hot: &Hot, named: Option<AskId>) -> Result<Option<(AskId, Waiting)>> {
        if hot.state.waiting().is_none() {
            return Ok(None);
        }
        Ok(self
            .connection
            .prepare_cached(
                "select id, kind from asks where run = ?1 and state = 'pending' and kind <> 1
                    and (?2 is null or id = ?2) order by no limit 1",
            )?
            .query_row(params![Key16(hot.id.uuid()), named.map(|ask| Key16(ask.uuid()))], |row| {
                let what = if row.get::<_, i64>(1)? == INPUT { Waiting::Input } else { Waiting::Approval };
                Ok((rows::ask_id(row.get(0)?), what))
            })
            .optional()?)
    }
}

pub(super) fn read_ask(connection: &Connection, tenant: TenantId, id: AskId) -> Result<Ask> {
    connection
        .prepare_cached(&format!("select {ASK} where id = ?1 and tenant = ?2"))?
        .query_row([Key16(id.uuid()), Key16(tenant.uuid())], ask)
        .optional()?
        .ok_or(Error::NotFound)
}

/// The oldest pending request for input or an authorization.
pub(super) fn read_open_ask(connection: &Connection, tenant: TenantId, run: RunId) -> Result<Option<Ask>> {
    Ok(connection
        .prepare_cached(&format!(
            "select {ASK} where run = ?1 and tenant = ?2 and state = 'pending' and kind <> {TOOL} order by no limit 1"
        ))?
        .query_row([Key16(run.uuid()), Key16(tenant.uuid())], ask)
        .optional()?)
}

pub(super) fn read_input(connection: &Connection, run: RunId, id: InputId) -> Result<Input> {
    connection
        .prepare_cached("select id, run, parts, ask, message from inputs where id = ?1 and run = ?2")?
        .query_row([Key16(id.uuid()), Key16(run.uuid())], input)
        .optional()?
        .ok_or(Error::NotFound)
}

/// Reads [`ASK`].
fn ask(row: &Row<'_>) -> rusqlite::Result<Ask> {
    let what = match row.get::<_, i64>(3)? {
        INPUT => AskWhat::Input { prompt: row.get(4)?, parts: rows::maybe_json(row, 5)? },
        AUTHORIZATION => AskWhat::Authorization { prompt: row.get(4)?, parts: rows::maybe_json(row, 5)? },
        TOOL => AskWhat::Tool { tool: row.get(4)?, arguments: rows::json(row, 5)? },
        _ => return Err(rows::corrupt(3, "an unknown kind of question")),
    };
    let state = AskState::from_text(&row.get::<_, String>(9)?);
    Ok(Ask {
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
fn input(row: &Row<'_>) -> rusqlite::Result<Input> {
    Ok(Input {
        id: rows::input_id(row.get(0)?),
        run: rows::run_id(row.get(1)?),
        parts: rows::json(row, 2)?,
        ask: row.get::<_, Option<_>>(3)?.map(rows::ask_id),
        message: rows::maybe_json(row, 4)?,
        status: Status::Running,
    })
}
