//! A worker's requests to its caller and to the engine that follows its run, and their answers.

use std::time::Duration;

use attache_protocol::{
    InputId, Json, RunId, TenantId, Timestamp, WorkerRequestId,
    rules::run::{FailureCode, RunCommand, RunRefusal, RunStatus, WorkerRef},
    wire::input_request::WorkerRequestState,
};

use super::state::{ModelInput, ModelState};
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

// === impl ModelState ===

impl ModelState {
    pub(super) fn create_worker_request(
        &mut self,
        by: WorkerRef,
        new: NewWorkerRequest,
        lease: Duration,
        at: Timestamp,
    ) -> Result<WorkerRequestRecord> {
        let place = self.work(by, new.run)?;
        let command = match new.what.waiting() {
            Some(what) => RunCommand::Ask { by, what, lease },
            None => RunCommand::Progress { by, lease },
        };
        let asked = self.judge_worker(place, &command, by, call::ASK, at)?;
        let record = &self.runs[place].record;
        let (tenant, epoch) = (record.tenant, record.state.epoch);
        if let Some(known) = self.find_repeated_request(&new, epoch) {
            if known.what != new.what {
                return Err(Error::KeyReused);
            }
            let renewed = self.judge(place, &RunCommand::Progress { by, lease }, at)?;
            self.runs[place].record.state = renewed.state;
            return Ok(known);
        }
        if !has_room(self.runs[place].log_bytes, new.what.weight()) {
            return Err(Error::LogFull);
        }
        let actor = entry::runtime_actor(by.runtime);
        match &new.what {
            WorkerRequestKind::Input { prompt, parts } => {
                let required = entry::worker_request::input_required(new.id, prompt, parts.as_ref());
                self.append_for(place, at, &actor, required);
                self.append_for(place, at, &actor, entry::worker_request::input_needed(new.id));
                self.wait(place, asked, &actor, at);
            }
            WorkerRequestKind::Authorization { prompt, parts } => {
                let required = entry::worker_request::authorization_required(new.id, prompt, parts.as_ref());
                self.append_for(place, at, &actor, required);
                self.wait(place, asked, &actor, at);
            }
            WorkerRequestKind::Tool { tool, arguments } => {
                let engine = self.follows.get(&new.run).ok_or(Error::NoEngine)?.channel;
                self.runs[place].record.state = asked.state;
                self.append_chunk(place, at, entry::worker_request::tool_called(new.id, tool, arguments));
                self.add_frame(engine, OutboxFrame::ToolCall { ask: new.id });
            }
        }
        let NewWorkerRequest { id, run, what, request, expires_at } = new;
        let state = WorkerRequestState::Pending;
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
        self.asks.insert(id, (tenant, ask.clone()));
        Ok(ask)
    }

    /// The request of the same claim with the same id.
    fn find_repeated_request(&self, new: &NewWorkerRequest, epoch: i64) -> Option<WorkerRequestRecord> {
        new.request.as_ref()?;
        let mut asks = self.asks.values().map(|(_, ask)| ask);
        asks.find(|ask| ask.run == new.run && ask.epoch == epoch && ask.request == new.request).cloned()
    }

    pub(super) fn withdraw_worker_request(
        &mut self,
        by: WorkerRef,
        run: RunId,
        id: WorkerRequestId,
        lease: Duration,
        at: Timestamp,
    ) -> Result<WorkerRequestRecord> {
        let place = self.work(by, run)?;
        let renewed = self.judge_worker(place, &RunCommand::Progress { by, lease }, by, call::ASK, at)?;
        let record = &self.runs[place].record;
        let ask = self.worker_request(record.tenant, id)?;
        let is_own = ask.run == run && ask.epoch == record.state.epoch;
        let what = ask.what.waiting().filter(|_| is_own).ok_or(Error::NotFound)?;
        self.runs[place].record.state = renewed.state;
        if ask.state != WorkerRequestState::Pending {
            return Ok(ask);
        }
        let actor = entry::runtime_actor(by.runtime);
        self.append_for(place, at, &actor, entry::worker_request::input_withdrawn(id));
        self.settle_worker_request(id, WorkerRequestState::Cancelled, None);
        let answered = self.judge(place, &RunCommand::Answer { what }, at)?;
        self.wait(place, answered, &actor, at);
        Ok(WorkerRequestRecord { state: WorkerRequestState::Cancelled, ..ask })
    }

    pub(super) fn worker_request(&self, tenant: TenantId, id: WorkerRequestId) -> Result<WorkerRequestRecord> {
        let (owner, ask) = self.asks.get(&id).ok_or(Error::NotFound)?;
        if *owner == tenant { Ok(ask.clone()) } else { Err(Error::NotFound) }
    }

    pub(super) fn answer_tool_call(
        &mut self,
        context: &WriteContext,
        id: WorkerRequestId,
        reply: Json,
    ) -> Result<WorkerRequestRecord> {
        let ask = self.worker_request(context.tenant, id)?;
        let WorkerRequestKind::Tool { tool, .. } = &ask.what else { return Err(Error::NotFound) };
        let engine = self.follows.get(&ask.run).map(|follow| &self.channels[&follow.channel].channel);
        engine.filter(|engine| engine.principal == context.actor).ok_or(Error::NotFound)?;
        if ask.state == WorkerRequestState::Pending {
            let answered = entry::worker_request::tool_answered(id, tool, &reply);
            self.append_chunk(self.places[&ask.run], context.at, answered);
            self.settle_worker_request(id, WorkerRequestState::Answered, Some(reply));
        }
        self.worker_request(context.tenant, id)
    }

    /// Settles a pending request, with its frame.
    fn settle_worker_request(&mut self, id: WorkerRequestId, state: WorkerRequestState, answer: Option<Json>) {
        let (_, ask) = self.asks.get_mut(&id).expect("callers have found it");
        ask.state = state;
        ask.answer = answer;
        let run = ask.run;
        self.woken.push(WakeHint::Asked(run));
        if let Some(channel) = self.runs[self.places[&run]].record.channel
            && state != WorkerRequestState::Cancelled
        {
            self.add_frame(channel, OutboxFrame::Answer { ask: id });
        }
    }

    /// In order of creation.
    fn pending_worker_requests(&self, wanted: impl Fn(&WorkerRequestRecord) -> bool) -> Vec<WorkerRequestId> {
        let asks = self.asks.values().map(|(_, ask)| ask);
        asks.filter(|ask| ask.state == WorkerRequestState::Pending && wanted(ask)).map(|ask| ask.id).collect()
    }

    /// The requests that the run waits for.
    fn waiting_worker_requests(&self, run: RunId) -> Vec<WorkerRequestId> {
        self.pending_worker_requests(|ask| ask.run == run && ask.what.waiting().is_some())
    }

    pub(super) fn open_worker_request(&self, tenant: TenantId, run: RunId) -> Result<Option<WorkerRequestRecord>> {
        let open =
            self.waiting_worker_requests(run).into_iter().map(|id| &self.asks[&id]).find(|(owner, _)| *owner == tenant);
        Ok(open.map(|(_, ask)| ask.clone()))
    }

    pub(super) fn cancel_worker_requests(&mut self, run: RunId) {
        for id in self.pending_worker_requests(|ask| ask.run == run) {
            self.settle_worker_request(id, WorkerRequestState::Cancelled, None);
        }
    }

    pub(super) fn expire_worker_requests(&mut self, at: Timestamp, runs: &mut Vec<RunId>) {
        for id in self.pending_worker_requests(|ask| ask.expires_at.is_some_and(|expires_at| expires_at <= at)) {
            let (_, WorkerRequestRecord { run, state, what, .. }) = &self.asks[&id];
            let (run, halts) = (*run, what.waiting().is_some());
            // An earlier one may have ended the run.
            if *state != WorkerRequestState::Pending {
                continue;
            }
            self.settle_worker_request(id, WorkerRequestState::Expired, None);
            if halts {
                let halt = RunCommand::Halt { code: FailureCode::TimedOut };
                self.by_rule(self.places[&run], &halt, WriteContext::SYSTEM, at);
                runs.push(run);
            }
        }
    }

    pub(super) fn add_input(&mut self, context: &WriteContext, new: NewInput) -> Result<InputRecord> {
        let place = self.place(context.tenant, new.run)?;
        let same = |given: &&ModelInput| given.input.run == new.run && new.key.is_some() && given.key == new.key;
        if let Some(first) = self.inputs.values().find(same) {
            let first = first.input.clone();
            return if first.parts == new.parts { Ok(first) } else { Err(Error::KeyReused) };
        }
        let refusal = match self.runs[place].record.state.status() {
            RunStatus::Running => None,
            RunStatus::Pending => Some(RunRefusal::NotRunning),
            RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled => Some(RunRefusal::Ended),
        };
        if let Some(refusal) = refusal {
            return Err(Error::Refused { refusal, run: Box::new(self.shown(place)) });
        }
        if !has_room(self.runs[place].log_bytes, new.weight()) {
            return Err(Error::LogFull);
        }
        let waiting = self.waiting_worker_requests(new.run);
        let ask = match new.target {
            InputTarget::Question(named) if !waiting.contains(&named) => return Err(Error::NotAsked),
            InputTarget::Question(named) => Some(named),
            InputTarget::OldestQuestion => waiting.first().copied(),
            InputTarget::Agent => None,
        };
        let what = ask.and_then(|ask| self.asks[&ask].1.what.waiting());
        let NewInput { id, run, parts, message, target: _, key } = new;
        let input = InputRecord { id, run, parts, message, ask, status: RunStatus::Running };
        self.append_for(place, context.at, &context.actor, entry::worker_request::input_received(&input));
        match ask.zip(what) {
            Some((ask, what)) => {
                self.settle_worker_request(ask, WorkerRequestState::Answered, Some(input.parts.clone()));
                self.asks.get_mut(&ask).expect("it was just settled").1.message.clone_from(&input.message);
                let answered = self.judge(place, &RunCommand::Answer { what }, context.at)?;
                self.wait(place, answered, &context.actor, context.at);
            }
            None => {
                if let Some(channel) = self.runs[place].record.channel {
                    self.add_frame(channel, OutboxFrame::Input { run, input: id });
                }
            }
        }
        self.inputs.insert(id, ModelInput { input: input.clone(), key });
        Ok(input)
    }

    pub(super) fn input(&self, run: RunId, id: InputId) -> Result<InputRecord> {
        let given = self.inputs.get(&id).filter(|given| given.input.run == run);
        given.map(|given| given.input.clone()).ok_or(Error::NotFound)
    }
}
