//! Runs for workers: claim, work on, finish or release.

use std::time::Duration;

use attache_protocol::{
    AgentId, EventKind, InputId, Json, RunId, RuntimeId, Timestamp,
    rules::run::{RunCommand, RunPhase, RunRefusal, RunStatus, RunTransition, WorkerRef},
    wire::{event, run::SandboxLimit},
};

use super::state::{ModelRun, ModelState};
use crate::{
    Error, MAX_REFUSED, MAX_RUN_LOG_BYTES, Result, WakeHint,
    entry::{self, LogEntry, call},
    outcome,
    record::{
        ClaimedRunRecord, NewEvent, NewProgress, RunRecord, RunResult, RuntimeRecord,
        channel::{ChannelConnection, OutboxFrame},
    },
    weight::{self, has_room},
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn claim(
        &mut self,
        runtime: RuntimeId,
        via: Option<ChannelConnection>,
        enforces: &[SandboxLimit],
        lease: Duration,
        at: Timestamp,
    ) -> Result<Option<ClaimedRunRecord>> {
        let agent = self.working(runtime)?.agent;
        if let Some(via) = via {
            self.check_current(via)?;
            let channel = self.channels.get(&via.channel).map(|peer| &peer.channel);
            channel.filter(|channel| channel.connected && channel.runtime == Some(runtime)).ok_or(Error::NotFound)?;
        }
        let via = via.map(|via| via.channel);
        let mut refused = 0;
        let place = loop {
            let Some(place) = self.next_of(agent, at) else { return Ok(None) };
            if self.has_room(place, at) && self.keeps_limits(place, enforces, at) {
                break place;
            }
            refused += 1;
            if refused == MAX_REFUSED {
                self.woken.push(WakeHint::Queue(agent));
                return Ok(None);
            }
        };
        let RunTransition { state, .. } = self.judge(place, &RunCommand::Claim { runtime, lease }, at)?;
        let entry = entry::task_claimed(runtime, state.epoch, state.attempt);
        let epoch = state.epoch;
        self.settle(place, state, entry, &entry::runtime_actor(runtime), at);
        let stored = &mut self.runs[place];
        stored.record.channel = via;
        stored.claimed_seq = stored.record.last_seq;
        stored.report = None;
        if let Some(via) = via {
            let run = stored.record.id;
            self.add_frame(via, OutboxFrame::Execute { run, epoch });
        }
        let run = self.shown(place);
        let conversation = self.conversations.get(&run.conversation);
        Ok(Some(ClaimedRunRecord {
            agent_instructions: self.accounts[&agent].instructions.clone(),
            instructing_owner: self.accounts[&agent].instructing_owner(),
            conversation_metadata: conversation.and_then(|(_, conversation)| conversation.metadata.clone()),
            left: self.left(place),
            run,
        }))
    }

    /// The agent's next pending run.
    fn next_of(&self, agent: AgentId, at: Timestamp) -> Option<usize> {
        let claimable = |place: &usize| {
            let record = &self.runs[*place].record;
            let waits = matches!(record.state.phase, RunPhase::Pending { expires_at } if expires_at > at);
            record.agent == agent && waits
        };
        // `max_by_key` returns the last of several maxima. Iterating backwards, that is the oldest.
        let waiting = self.runs.places().into_iter().rev().filter(claimable);
        waiting.max_by_key(|place| self.runs[*place].record.spec.priority)
    }

    pub(super) fn progress(
        &mut self,
        by: WorkerRef,
        run: RunId,
        progress: NewProgress,
        lease: Duration,
        at: Timestamp,
    ) -> Result<RunStatus> {
        let NewProgress { events, usage, report } = progress;
        let place = self.work(by, run)?;
        let judged = self.judge_worker(place, &RunCommand::Progress { by, lease }, by, call::PROGRESS, at);
        let RunTransition { state, .. } = self.or_late_usage(judged, place, by, usage.as_ref(), at)?;
        let stored = &mut self.runs[place];
        stored.record.state = state;
        if let (Some(report), Some(newest)) = (report, stored.report)
            && report.source == newest.source
            && report.seq <= newest.seq
        {
            return Ok(stored.record.state.status());
        }
        if !has_room(stored.log_bytes, events.iter().map(|event| event.data.get().len()).sum()) {
            if stored.log_bytes <= MAX_RUN_LOG_BYTES {
                self.append_chunk(place, at, (EventKind::TaskLog, weight::full()));
                self.runs[place].log_bytes = MAX_RUN_LOG_BYTES + 1;
            }
            return Err(Error::LogFull);
        }
        stored.report = report.or(stored.report);
        for NewEvent { kind, data } in events {
            self.append_chunk(place, at, (kind, data));
        }
        if let Some(usage) = usage {
            self.report_usage(place, usage, at);
        }
        Ok(self.runs[place].record.state.status())
    }

    /// Appends an event that only the run's own stream has.
    pub(super) fn append_chunk(&mut self, place: usize, at: Timestamp, (kind, data): LogEntry) {
        let ModelRun { record, chunks, log_bytes, .. } = &mut self.runs[place];
        record.last_seq += 1;
        *log_bytes += data.get().len();
        chunks.push(event::Event { seq: record.last_seq, kind: kind.to_string(), at, data });
        self.woken.push(WakeHint::Run(record.id));
    }

    pub(super) fn finish(
        &mut self,
        by: WorkerRef,
        run: RunId,
        (outcome, usage, inputs_taken): (RunResult, Option<Json>, Option<Vec<InputId>>),
        at: Timestamp,
    ) -> Result<RunStatus> {
        let place = self.work(by, run)?;
        let digest = outcome::digest_of(&outcome);
        let command = match outcome {
            RunResult::Completed { .. } => RunCommand::Complete { by, outcome: digest },
            RunResult::Failed { code, .. } => RunCommand::Fail { by, code, outcome: digest },
            RunResult::Deferred { until } => RunCommand::Defer { by, until },
        };
        let judged = self.judge_worker(place, &command, by, call::finish(&outcome), at);
        let RunTransition { state, event } = self.or_late_usage(judged, place, by, usage.as_ref(), at)?;
        if event.is_none() {
            return Ok(state.status());
        }
        let undelivered: Vec<InputId> = match inputs_taken {
            Some(taken) => {
                let unsolicited = self.inputs.values().map(|given| &given.input);
                let unsolicited = unsolicited.filter(|input| input.run == run && input.ask.is_none());
                unsolicited.map(|input| input.id).filter(|input| !taken.contains(input)).collect()
            }
            None => Vec::new(),
        };
        let entry = entry::task_finished(&outcome, usage.as_ref(), &undelivered);
        let result = match outcome {
            RunResult::Completed { output, artifacts } => {
                let workspace = self.runs[place].record.conversation.workspace();
                for artifact in &artifacts {
                    let known = self.artifacts.get(artifact).is_some_and(|(_, known)| known.workspace == workspace);
                    if !known {
                        return Err(Error::ForeignArtifact(artifact.to_string()));
                    }
                }
                for artifact in &artifacts {
                    let (_, produced) = self.artifacts.get_mut(artifact).expect("it was just found");
                    produced.produced_by = Some(run);
                }
                Some(output)
            }
            RunResult::Failed { result, .. } => Some(result),
            RunResult::Deferred { .. } => None,
        };
        let record = &mut self.runs[place].record;
        record.result = result;
        record.usage = usage.or(record.usage.take());
        self.settle(place, state, entry, &entry::runtime_actor(by.runtime), at);
        Ok(self.runs[place].record.state.status())
    }

    pub(super) fn release(&mut self, by: WorkerRef, run: RunId, at: Timestamp) -> Result<RunRecord> {
        let place = self.work(by, run)?;
        let RunTransition { state, .. } =
            self.judge_worker(place, &RunCommand::Release { by }, by, call::RELEASE, at)?;
        self.settle(place, state, entry::task_requeued("released"), &entry::runtime_actor(by.runtime), at);
        Ok(self.shown(place))
    }

    /// The position of a run named by a worker. A run of another agent counts as not found.
    pub(super) fn work(&self, by: WorkerRef, run: RunId) -> Result<usize> {
        let RuntimeRecord { tenant, agent, .. } = *self.runtimes.get(&by.runtime).ok_or(Error::NotFound)?;
        let place = self.place(tenant, run)?;
        if self.runs[place].record.agent == agent { Ok(place) } else { Err(Error::NotFound) }
    }

    /// The decision of the rules for a worker. A stale epoch is recorded in the tenant's log.
    pub(super) fn judge_worker(
        &mut self,
        place: usize,
        command: &RunCommand,
        by: WorkerRef,
        call: &'static str,
        at: Timestamp,
    ) -> Result<RunTransition> {
        let judged = self.judge(place, command, at);
        if let Err(Error::Refused { refusal: RunRefusal::StaleEpoch, run }) = &judged {
            let entry = entry::task_refused(run.id, call, by);
            self.append(run.tenant, at, &entry::runtime_actor(by.runtime), entry);
        }
        judged
    }
}
