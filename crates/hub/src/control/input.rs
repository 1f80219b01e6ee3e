//! Input: a worker asks its caller a question; the caller answers, or sends unsolicited input.

use std::time::Duration;

use attache_protocol::{
    Actor, Code, InputId, Json, RunId, Timestamp, WorkerRequestId, digest,
    rules::run::{RunRefusal, RunStatus},
    wire::{
        adapter::AdapterInputAnswer,
        awcp,
        input_request::{CreateInputRequest, GiveInputRequest, GiveInputResponse, InputAnswer, WorkerRequestState},
        run::Run,
    },
};
use attache_store::{
    Error as StoreError,
    record::{
        AgentRef,
        worker_request::{
            InputTarget, NewInput, NewWorkerRequest, PermissionFilter, WorkerRequestKind, WorkerRequestRecord,
        },
    },
};
use serde::Deserialize;

use crate::{
    Error, Handle, Principal, Result, bus::Topic, check, error::about, identity::Action, render,
    start_secrets::InputRecipient, waiter::Waiter,
};

const MAX_PARTS: usize = 512 * 1024;

/// Input that the agent didn't get before its run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndeliveredInput {
    pub input_id: InputId,
    pub text: String,
}

/// What the log row of a run's end says about its input.
#[derive(Default, Deserialize)]
struct UndeliveredInputsData {
    #[serde(default)]
    undelivered_inputs: Vec<InputId>,
}

impl Handle {
    /// The caller gives input. It answers the named question, else the run's oldest open one, else none; unsolicited input
    /// answers none. The same key returns the same input.
    pub async fn give_input(&self, by: &Principal, run: RunId, request: GiveInputRequest) -> Result<GiveInputResponse> {
        self.give(by, run, request, None).await
    }

    /// The same for an A2A message, which is stored byte for byte. Its id is the key.
    pub async fn give_message(
        &self,
        by: &Principal,
        run: RunId,
        parts: Json,
        message: Json,
        key: String,
    ) -> Result<GiveInputResponse> {
        check::object("message", &message, MAX_PARTS)?;
        let request =
            GiveInputRequest { parts: Some(parts), idempotency_key: Some(key), ..GiveInputRequest::default() };
        self.give(by, run, request, Some(message)).await
    }

    async fn give(
        &self,
        by: &Principal,
        run: RunId,
        request: GiveInputRequest,
        message: Option<Json>,
    ) -> Result<GiveInputResponse> {
        let record = self.find_listener(&by.may(Action::GiveInput)?, run).await?;
        // A START says where the folder is, and everything else is between the delegator and the device too.
        let is_own = record.caller == by.actor() || by.own_runs().matches(&record);
        if record.spec.task_type == awcp::TASK_TYPE && !is_own {
            return Err(Error::forbidden("Only the delegator can send input to a delegation's run.")
                .hint("To end it, cancel the run or the delegation."));
        }
        if let Some(key) = &request.idempotency_key {
            check::token("idempotency_key", key, 1..=200)?;
        }
        let target = match (request.input_request_id, request.unsolicited) {
            (Some(_), true) => {
                let both = "can't be true for the answer to a question";
                return Err(Error::invalid("unsolicited", both).hint("Leave out input_request_id, or unsolicited."));
            }
            (Some(question), false) => InputTarget::Question(question),
            (None, true) => InputTarget::Agent,
            (None, false) => InputTarget::OldestQuestion,
        };
        let mut key = request.idempotency_key.as_deref().map(|key| key_hash(run, key));
        let given_key = request.idempotency_key.clone();
        let parts = parts(request)?;
        let size = parts.get().len() + message.as_ref().map_or(0, |message| message.get().len());
        self.check_space(size)?;
        self.admit_anonymous_bytes(by, size)?;
        if let Some(step) =
            self.answer_to_approve(by, &record, message.as_ref().unwrap_or(&parts), given_key.as_deref()).await?
        {
            let approval = self.approved(by, &step, 0).await?;
            key = Some(key_hash(run, &format!("approval:{approval}")));
        }
        let concealed = self.conceal(&record, parts, message).await?;
        let (id, kept) = (self.env().input_id(), concealed.kept);
        let new = NewInput { id, run, parts: concealed.parts, message: concealed.message, target, key };
        let given = match self.store().add_input(self.context(by), new).await {
            Ok(given) => given,
            Err(error @ StoreError::Refused { refusal: RunRefusal::NotRunning, .. }) => {
                self.drop_concealed(kept.as_deref()).await;
                let error = self.refusal(by, error).await;
                let why = "No runtime is working on the run, so the input can't be delivered.";
                return Err(Error { code: Code::NotWaiting, ..error.say(why) });
            }
            Err(error) => {
                self.drop_concealed(kept.as_deref()).await;
                return Err(self.refusal(by, error).await);
            }
        };
        Ok(GiveInputResponse { task_run_id: given.run, input_id: given.id, status: given.status })
    }

    /// A worker asks its caller, and the run waits. Asking again with the same name returns the same question.
    pub async fn request_input(&self, by: &Principal, run: RunId, request: CreateInputRequest) -> Result<InputAnswer> {
        self.create_worker_request(by, run, request, |prompt, parts| WorkerRequestKind::Input { prompt, parts }).await
    }

    /// A worker needs an authorization that is granted elsewhere. The run waits as for an approval, and the caller's
    /// next input is the answer.
    pub(crate) async fn request_authorization(
        &self,
        by: &Principal,
        run: RunId,
        request: CreateInputRequest,
    ) -> Result<InputAnswer> {
        self.create_worker_request(by, run, request, |prompt, parts| WorkerRequestKind::Authorization { prompt, parts })
            .await
    }

    async fn create_worker_request(
        &self,
        by: &Principal,
        run: RunId,
        request: CreateInputRequest,
        what: impl FnOnce(String, Option<Json>) -> WorkerRequestKind,
    ) -> Result<InputAnswer> {
        let worker = by.may(Action::Work)?.worker(request.epoch)?;
        check::text("prompt", &request.prompt, 1..=check::MAX_EVENT)?;
        if let Some(parts) = &request.parts {
            check::array("parts", parts, MAX_PARTS)?;
        }
        if let Some(name) = &request.request_id {
            check::token("request_id", name, 1..=200)?;
        }
        let ask = NewWorkerRequest {
            id: self.env().worker_request_id(),
            run,
            what: what(request.prompt, request.parts),
            request: request.request_id,
            expires_at: Some(self.now().plus(self.answer_time_left(by, run).await?)),
        };
        match self.store().create_worker_request(worker, ask, self.options().heartbeat_timeout, self.now()).await {
            Ok(asked) => Ok(self.show_worker_request(by, asked).await),
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// How long a new question of the run may wait: what its caller has left after earlier ones. Waiting for approvals is
    /// not theirs.
    async fn answer_time_left(&self, by: &Principal, run: RunId) -> Result<Duration> {
        let options = self.options();
        let record = match self.store().run(by.tenant, run).await {
            Ok(record) => record,
            // The question itself is refused with the reason.
            Err(StoreError::NotFound) => return Ok(options.input_timeout),
            Err(error) => return Err(Error::from_store("run", error)),
        };
        let account = self.store().account(by.tenant, AgentRef::Id(record.agent)).await.map_err(about("agent"))?;
        let all = match &record.caller {
            Actor::Anonymous => options.anonymous_input_timeout,
            _ if record.user == account.owner => options.input_timeout,
            _ => options.others_input_timeout.min(options.input_timeout),
        };
        let now = self.now();
        let waited = record.state.claim().map_or(Duration::ZERO, |claim| claim.waits.total(now));
        if waited.is_zero() {
            return Ok(all);
        }
        let filter = PermissionFilter { run: Some(run), ..PermissionFilter::default() };
        let what = "permission request";
        let mut asked = check::all_pages(what, |page| self.store().permissions(by.tenant, filter.clone(), page));
        let asked = asked.collect().await?.into_iter().filter(|asked| asked.epoch == record.state.epoch);
        let for_approvals = asked.map(|asked| (asked.requested_at, asked.settled.map_or(now, |settled| settled.at)));
        Ok(all.saturating_sub(waited.saturating_sub(covered(for_approvals.collect()))))
    }

    /// The worker no longer needs the answer.
    pub(crate) async fn withdraw_worker_request(
        &self,
        by: &Principal,
        run: RunId,
        ask: WorkerRequestId,
        epoch: i64,
    ) -> Result<InputAnswer> {
        let (worker, lease) = (by.worker(Some(epoch))?, self.options().heartbeat_timeout);
        match self.store().withdraw_worker_request(worker, run, ask, lease, self.now()).await {
            Ok(asked) => Ok(render::worker_request(asked)),
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// Unsolicited input that was accepted for a run, but that its agent didn't get before the run ended.
    pub async fn undelivered_inputs(&self, by: &Principal, run: &Run) -> Result<Vec<UndeliveredInput>> {
        if !matches!(run.status, RunStatus::Completed | RunStatus::Failed) {
            return Ok(Vec::new());
        }
        let last = self.run_events(by, run.task_run_id, Some((run.last_seq - 1).max(0)), Some(1)).await?.events;
        let end = last.last().and_then(|event| event.data.parse::<UndeliveredInputsData>().ok()).unwrap_or_default();
        let mut undelivered = Vec::with_capacity(end.undelivered_inputs.len());
        for id in end.undelivered_inputs {
            let given = self.store().input(run.task_run_id, id).await.map_err(about("input"))?;
            undelivered.push(UndeliveredInput { input_id: id, text: AdapterInputAnswer::text(&given.parts) });
        }
        Ok(undelivered)
    }

    /// The worker waits up to `wait` (at most a minute) for the answer.
    pub async fn input_answer(
        &self,
        by: &Principal,
        run: RunId,
        ask: WorkerRequestId,
        wait: Duration,
    ) -> Result<InputAnswer> {
        let (_, agent) = by.may(Action::Work)?.device()?;
        let _slot = self.wait_slot(by, wait)?;
        let mut waiter = Waiter::new(self, by, Topic::Asked(run), Some(wait.min(Waiter::MAX_WAIT)));
        // The claim's owner is read once. After that, only the answer is polled.
        let held = self.visible_run(by, run).await.map_err(|error| error.say("No such input request."))?;
        // Seeing a run does not mean working on it.
        if agent != held.agent {
            return Err(Error::not_found("input request"));
        }
        loop {
            let found = self.own_worker_request(by, run, ask).await?;
            if found.state != WorkerRequestState::Pending || !waiter.changed().await? {
                return Ok(self.show_worker_request(by, found).await);
            }
        }
    }

    async fn show_worker_request(&self, by: &Principal, ask: WorkerRequestRecord) -> InputAnswer {
        match by.device() {
            Ok((runtime, _)) => {
                render::worker_request(self.ask_in_full(by.tenant, ask, InputRecipient::Runtime(runtime)).await)
            }
            Err(_) => render::worker_request(ask),
        }
    }

    async fn own_worker_request(
        &self,
        by: &Principal,
        run: RunId,
        ask: WorkerRequestId,
    ) -> Result<WorkerRequestRecord> {
        let found = self.store().worker_request(by.tenant, ask).await.map_err(about("input request"))?;
        match found.what.waiting() {
            Some(_) if found.run == run => Ok(found),
            Some(_) | None => Err(Error::not_found("input request")),
        }
    }
}

/// How much time these spans cover together.
fn covered(mut spans: Vec<(Timestamp, Timestamp)>) -> Duration {
    spans.sort_unstable();
    let mut covered = Duration::ZERO;
    let mut until = None;
    for (from, to) in spans {
        let from = until.map_or(from, |until| from.max(until));
        covered += to.since(from);
        until = Some(to.max(from));
    }
    covered
}

/// Text becomes one part. Parts are stored byte for byte.
fn parts(request: GiveInputRequest) -> Result<Json> {
    match (request.text, request.parts) {
        (Some(text), None) => {
            check::text("text", &text, 1..=MAX_PARTS)?;
            Json::from_text(format!(r#"[{{"text":{}}}]"#, Json::of(&text).get()))
                .map_err(|error| Error::internal(&error))
        }
        (None, Some(parts)) => {
            check::array("parts", &parts, MAX_PARTS)?;
            Ok(parts)
        }
        (None, None) => Err(Error::invalid("text", "or `parts` is missing")),
        (Some(_), Some(_)) => Err(Error::invalid("parts", "and `text` cannot both be given")),
    }
}

fn key_hash(run: RunId, key: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(run.uuid().as_bytes());
    hasher.update(key.as_bytes());
    digest::half(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    /// Each second counts once, however many spans it is in.
    #[test]
    fn overlapping_time_counts_once() {
        let env = Env::seeded(6);
        for count in (0..6).cycle().take(600) {
            let mut drawn = [0_u8; 12];
            env.fill(&mut drawn);
            let at = |second: u64| Timestamp::from_millis(0).plus(Duration::from_secs(second));
            let spans = drawn.chunks(2).take(count).map(|pair| (u64::from(pair[0] % 20), u64::from(pair[1] % 20)));
            let spans: Vec<(u64, u64)> = spans.map(|(from, length)| (from, from + length)).collect();
            let seconds = (0..40).filter(|second| spans.iter().any(|(from, to)| from <= second && second < to)).count();
            let covered = covered(spans.iter().map(|(from, to)| (at(*from), at(*to))).collect());
            assert_eq!(covered, Duration::from_secs(seconds as u64), "{spans:?}");
        }
    }
}
