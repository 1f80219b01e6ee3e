//! What a worker asks of its caller and of the engine that follows its run, and what they answer.

use std::time::Duration;

use attache_protocol::{
    AskId, InputId, Json, RunId, TenantId, Timestamp,
    rules::run::{Command, FailureCode, Refusal, Status, Worker},
    wire::ask::AskState,
};

use super::state::{Given, State};
use crate::{
    Context, Error, Result, Woken,
    entry::{self, call},
    record::{
        ask::{Ask, AskWhat, Input, NewAsk, NewInput},
        channel::Frame,
    },
    weight::{Weigh as _, has_room},
};

// === impl State ===

impl State {
    pub(super) fn ask(&mut self, by: Worker, new: NewAsk, lease: Duration, at: Timestamp) -> Result<Ask> {
        let place = self.work(by, new.run)?;
        let command = match new.what.waiting() {
            Some(what) => Command::Ask { by, what, lease },
            None => Command::Progress { by, lease },
        };
        let asked = self.judge_worker(place, &command, by, call::ASK, at)?;
        let record = &self.runs[place].record;
        let (tenant, epoch) = (record.tenant, record.state.epoch);
        if let Some(known) = self.named_before(&new, epoch) {
            if known.what != new.what {
                return Err(Error::KeyReused);
            }
            let renewed = self.judge(place, &Command::Progress { by, lease }, at)?;
            self.runs[place].record.state = renewed.state;
            return Ok(known);
        }
        if !has_room(self.runs[place].log_bytes, new.what.weight()) {
            return Err(Error::LogFull);
        }
        let actor = entry::runtime_actor(by.runtime);
        match &new.what {
            AskWhat::Input { prompt, parts } => {
                let required = entry::ask::input_required(new.id, prompt, parts.as_ref());
                self.append_for(place, at, &actor, required);
                self.append_for(place, at, &actor, entry::ask::input_needed(new.id));
                self.wait(place, asked, &actor, at);
            }
            AskWhat::Authorization { prompt, parts } => {
                let required = entry::ask::authorization_required(new.id, prompt, parts.as_ref());
                self.append_for(place, at, &actor, required);
                self.wait(place, asked, &actor, at);
            }
            AskWhat::Tool { tool, arguments } => {
                let engine = self.follows.get(&new.run).ok_or(Error::NoEngine)?.channel;
                self.runs[place].record.state = asked.state;
                self.append_chunk(place, at, entry::ask::tool_called(new.id, tool, arguments));
                self.tell(engine, Frame::ToolCall { ask: new.id });
            }
        }
        let NewAsk { id, run, what, request, expires_at } = new;
        let state = AskState::Pending;
        let ask = Ask { id, run, epoch, what, request, asked_at: at, expires_at, state, answer: None, message: None };
        self.asks.insert(id, (tenant, ask.clone()));
        Ok(ask)
    }

    /// The ask of the same claim with the same name.
    fn named_before(&self, new: &NewAsk, epoch: i64) -> Option<Ask> {
        new.request.as_ref()?;
        let mut asks = self.asks.values().map(|(_, ask)| ask);
        asks.find(|ask| ask.run == new.run && ask.epoch == epoch && ask.request == new.request).cloned()
    }

    pub(super) fn withdraw_ask(
        &mut self,
        by: Worker,
        run: RunId,
        id: AskId,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Ask> {
        let place = self.work(by, run)?;
        let renewed = self.judge_worker(place, &Command::Progress { by, lease }, by, call::ASK, at)?;
        let record = &self.runs[place].record;
        let ask = self.asked(record.tenant, id)?;
        let is_own = ask.run == run && ask.epoch == record.state.epoch;
        let what = ask.what.waiting().filter(|_| is_own).ok_or(Error::NotFound)?;
        self.runs[place].record.state = renewed.state;
        if ask.state != AskState::Pending {
            return Ok(ask);
        }
        let actor = entry::runtime_actor(by.runtime);
        self.append_for(place, at, &actor, entry::ask::input_withdrawn(id));
        self.settle_ask(id, AskState::Cancelled, None);
        let answered = self.judge(place, &Command::Answer { what }, at)?;
        self.wait(place, answered, &actor, at);
        Ok(Ask { state: AskState::Cancelled, ..ask })
    }

    pub(super) fn asked(&self, tenant: TenantId, id: AskId) -> Result<Ask> {
        let (owner, ask) = self.asks.get(&id).ok_or(Error::NotFound)?;
        if *owner == tenant { Ok(ask.clone()) } else { Err(Error::NotFound) }
    }

    pub(super) fn answer_tool(&mut self, context: &Context, id: AskId, reply: Json) -> Result<Ask> {
        let ask = self.asked(context.tenant, id)?;
        let AskWhat::Tool { tool, .. } = &ask.what else { return Err(Error::NotFound) };
        let engine = self.follows.get(&ask.run).map(|follow| &self.channels[&follow.channel].channel);
        engine.filter(|engine| engine.principal == context.actor).ok_or(Error::NotFound)?;
        if ask.state == AskState::Pending {
            let answered = entry::ask::tool_answered(id, tool, &reply);
            self.append_chunk(self.places[&ask.run], context.at, answered);
            self.settle_ask(id, AskState::Answered, Some(reply));
        }
        self.asked(context.tenant, id)
    }

    /// Settles a pending ask, with its frame.
    fn settle_ask(&mut self, id: AskId, state: AskState, answer: Option<Json>) {
        let (_, ask) = self.asks.get_mut(&id).expect("callers have found it");
        ask.state = state;
        ask.answer = answer;
        let run = ask.run;
        self.woken.push(Woken::Asked(run));
        if let Some(channel) = self.runs[self.places[&run]].record.channel
            && state != AskState::Cancelled
        {
            self.tell(channel, Frame::Answer { ask: id });
        }
    }

    /// In order of creation.
    fn pending_asks(&self, wanted: impl Fn(&Ask) -> bool) -> Vec<AskId> {
        let asks = self.asks.values().map(|(_, ask)| ask);
        asks.filter(|ask| ask.state == AskState::Pending && wanted(ask)).map(|ask| ask.id).collect()
    }

    /// What the run waits with.
    fn waiting_asks(&self, run: RunId) -> Vec<AskId> {
        self.pending_asks(|ask| ask.run == run && ask.what.waiting().is_some())
    }

    pub(super) fn open_ask(&self, tenant: TenantId, run: RunId) -> Result<Option<Ask>> {
        let open = self.waiting_asks(run).into_iter().map(|id| &self.asks[&id]).find(|(owner, _)| *owner == tenant);
        Ok(open.map(|(_, ask)| ask.clone()))
    }

    pub(super) fn cancel_asks(&mut self, run: RunId) {
        for id in self.pending_asks(|ask| ask.run == run) {
            self.settle_ask(id, AskState::Cancelled, None);
        }
    }

    pub(super) fn expire_asks(&mut self, at: Timestamp, runs: &mut Vec<RunId>) {
        for id in self.pending_asks(|ask| ask.expires_at.is_some_and(|expires_at| expires_at <= at)) {
            let (_, Ask { run, state, what, .. }) = &self.asks[&id];
            let (run, halts) = (*run, what.waiting().is_some());
            // An earlier one may have ended the run.
            if *state != AskState::Pending {
                continue;
            }
            self.settle_ask(id, AskState::Expired, None);
            if halts {
                let halt = Command::Halt { code: FailureCode::TimedOut };
                self.by_rule(self.places[&run], &halt, Context::SYSTEM, at);
                runs.push(run);
            }
        }
    }

    pub(super) fn add_input(&mut self, context: &Context, new: NewInput) -> Result<Input> {
        let place = self.place(context.tenant, new.run)?;
        let same = |given: &&Given| given.input.run == new.run && new.key.is_some() && given.key == new.key;
        if let Some(first) = self.inputs.values().find(same) {
            let first = first.input.clone();
            return if first.parts == new.parts { Ok(first) } else { Err(Error::KeyReused) };
        }
        let refusal = match self.runs[place].record.state.status() {
            Status::Running => None,
            Status::Pending => Some(Refusal::NotRunning),
            Status::Completed | Status::Failed | Status::Cancelled => Some(Refusal::Ended),
        };
        if let Some(refusal) = refusal {
            return Err(Error::Refused { refusal, run: Box::new(self.shown(place)) });
        }
        if !has_room(self.runs[place].log_bytes, new.weight()) {
            return Err(Error::LogFull);
        }
        let waiting = self.waiting_asks(new.run);
        let ask = match new.answers {
            Some(named) if !waiting.contains(&named) => return Err(Error::NotAsked),
            Some(named) => Some(named),
            None => waiting.first().copied(),
        };
        let what = ask.and_then(|ask| self.asks[&ask].1.what.waiting());
        let NewInput { id, run, parts, message, answers: _, key } = new;
        let input = Input { id, run, parts, message, ask, status: Status::Running };
        self.append_for(place, context.at, &context.actor, entry::ask::input_received(&input));
        match ask.zip(what) {
            Some((ask, what)) => {
                self.settle_ask(ask, AskState::Answered, Some(input.parts.clone()));
                self.asks.get_mut(&ask).expect("it was just settled").1.message.clone_from(&input.message);
                let answered = self.judge(place, &Command::Answer { what }, context.at)?;
                self.wait(place, answered, &context.actor, context.at);
            }
            None => {
                if let Some(channel) = self.runs[place].record.channel {
                    self.tell(channel, Frame::Input { run, input: id });
                }
            }
        }
        self.inputs.insert(id, Given { input: input.clone(), key });
        Ok(input)
    }

    pub(super) fn input(&self, run: RunId, id: InputId) -> Result<Input> {
        let given = self.inputs.get(&id).filter(|given| given.input.run == run);
        given.map(|given| given.input.clone()).ok_or(Error::NotFound)
    }
}
