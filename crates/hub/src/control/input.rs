//! Input: a worker asks its caller, the caller answers or speaks unasked.

use std::time::Duration;

use attache_protocol::{
    AskId, Code, Json, RunId,
    rules::run::Refusal,
    wire::ask::{AskInput, AskState, InputAnswer, InputRequest, InputResponse},
};
use attache_store::{
    Error as StoreError,
    record::{
        AgentRef,
        ask::{Ask, AskWhat, NewAsk, NewInput},
    },
};
use tokio::time::Instant;

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    control::{check, pull::MAX_WAIT},
    error::about,
    handover::Holder,
    identity::{Action, Guard, Verdict},
    render,
};

const MAX_PARTS: usize = 512 * 1024;

impl Handle {
    /// The caller gives input. It answers the question that it names, or else the oldest open one of the run, or none; the
    /// same key again is the same input.
    pub async fn give_input(&self, by: &Principal, run: RunId, request: InputRequest) -> Result<InputResponse> {
        self.give(by, run, request, None).await
    }

    /// The same, brought by an A2A message, which is kept byte for byte. Its id is the key.
    pub async fn give_message(
        &self,
        by: &Principal,
        run: RunId,
        parts: Json,
        message: Json,
        key: String,
    ) -> Result<InputResponse> {
        check::object("message", &message, MAX_PARTS)?;
        let request = InputRequest { parts: Some(parts), idempotency_key: Some(key), ..InputRequest::default() };
        self.give(by, run, request, Some(message)).await
    }

    async fn give(
        &self,
        by: &Principal,
        run: RunId,
        request: InputRequest,
        message: Option<Json>,
    ) -> Result<InputResponse> {
        let record = match by.may(Action::GiveInput)? {
            Verdict::Own => self.own_run(by, run).await?,
            _ => self.open_run(by, run).await?,
        };
        if by.role().is_some() {
            let account = self.store().account(by.tenant, AgentRef::Id(record.agent)).await.map_err(about("agent"))?;
            self.check_caller(by, &account).await?;
        }
        if let Some(key) = &request.idempotency_key {
            check::token("idempotency_key", key, 1..=200)?;
        }
        let answers = request.input_request_id;
        let mut key = request.idempotency_key.as_deref().map(|key| key_hash(run, key));
        let given_key = request.idempotency_key.clone();
        let parts = parts(request)?;
        self.admit_guest_bytes(by, parts.get().len() + message.as_ref().map_or(0, |message| message.get().len()))?;
        if let Some(step) =
            self.words_to_approve(by, run, message.as_ref().unwrap_or(&parts), given_key.as_deref()).await?
        {
            let approval = self.approved(by, &step, 0).await?;
            key = Some(key_hash(run, &format!("approval:{approval}")));
        }
        let concealed = self.conceal(by.tenant, run, parts, message)?;
        let (id, place) = (self.env().input_id(), concealed.place());
        let new = NewInput { id, run, parts: concealed.parts, message: concealed.message, answers, key };
        let given = match self.store().add_input(self.context(by), new).await {
            Ok(given) => given,
            Err(error @ StoreError::Refused { refusal: Refusal::NotRunning, .. }) => {
                self.drop_concealed(place);
                let error = self.refusal(by, error).await;
                let why = "Nobody works on the run, so nobody would hear the input.";
                return Err(Error { code: Code::NotWaiting, ..error.say(why) });
            }
            Err(error) => {
                self.drop_concealed(place);
                return Err(self.refusal(by, error).await);
            }
        };
        Ok(InputResponse { task_run_id: given.run, input_id: given.id, status: given.status })
    }

    /// A worker asks its caller, and the run waits. Asking again with the same name gives the same question back.
    pub async fn ask_input(&self, by: &Principal, run: RunId, request: AskInput) -> Result<InputAnswer> {
        self.ask(by, run, request, |prompt, parts| AskWhat::Input { prompt, parts }).await
    }

    /// A worker needs an authorization that is given elsewhere, and the run waits as for an approval. What the caller says
    /// meanwhile is the answer.
    pub(crate) async fn ask_authorization(&self, by: &Principal, run: RunId, request: AskInput) -> Result<InputAnswer> {
        self.ask(by, run, request, |prompt, parts| AskWhat::Authorization { prompt, parts }).await
    }

    async fn ask(
        &self,
        by: &Principal,
        run: RunId,
        request: AskInput,
        what: impl FnOnce(String, Option<Json>) -> AskWhat,
    ) -> Result<InputAnswer> {
        by.may(Action::Work)?;
        let worker = by.worker(request.epoch)?;
        check::text("prompt", &request.prompt, 1..=check::MAX_EVENT)?;
        if let Some(parts) = &request.parts {
            check::array("parts", parts, MAX_PARTS)?;
        }
        if let Some(name) = &request.request_id {
            check::token("request_id", name, 1..=200)?;
        }
        let ask = NewAsk {
            id: self.env().ask_id(),
            run,
            what: what(request.prompt, request.parts),
            request: request.request_id,
            expires_at: Some(self.now().plus(self.options().input_timeout)),
        };
        match self.store().ask(worker, ask, self.options().heartbeat_timeout, self.now()).await {
            Ok(asked) => Ok(self.show_ask(by, asked).await),
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// The asker does not need the answer any more.
    pub(crate) async fn withdraw_ask(&self, by: &Principal, run: RunId, ask: AskId, epoch: i64) -> Result<InputAnswer> {
        let (worker, lease) = (by.worker(Some(epoch))?, self.options().heartbeat_timeout);
        match self.store().withdraw_ask(worker, run, ask, lease, self.now()).await {
            Ok(asked) => Ok(render::ask(asked)),
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// The asker waits up to `wait` (at most a minute) for the answer.
    pub async fn input_answer(&self, by: &Principal, run: RunId, ask: AskId, wait: Duration) -> Result<InputAnswer> {
        by.may(Action::Work)?;
        let deadline = Instant::now() + wait.min(MAX_WAIT);
        let mut asked = self.bus().watch(Topic::Asked(run));
        let mut guard = Guard::new(self, by);
        // Whose claim it was is read once; from then on only the answer is looked for.
        let held = self.visible_run(by, run).await.map_err(|error| error.say("There is no such input request."))?;
        // To see a run is not to work on it.
        if by.device()?.1 != held.agent {
            return Err(Error::not_found("input request"));
        }
        loop {
            let found = self.own_ask(by, run, ask).await?;
            if found.state != AskState::Pending || Instant::now() >= deadline {
                return Ok(self.show_ask(by, found).await);
            }
            let look_again = deadline.min(Instant::now() + self.options().poll_every);
            tokio::select! {
                () = asked.moved() => {}
                () = tokio::time::sleep_until(look_again) => {}
                () = self.drained() => return Ok(render::ask(found)),
                error = guard.broken() => return Err(error),
            }
        }
    }

    async fn show_ask(&self, by: &Principal, ask: Ask) -> InputAnswer {
        match by.device() {
            Ok((runtime, _)) => render::ask(self.ask_in_full(by.tenant, ask, Holder::Runtime(runtime)).await),
            Err(_) => render::ask(ask),
        }
    }

    async fn own_ask(&self, by: &Principal, run: RunId, ask: AskId) -> Result<Ask> {
        let found = self.store().asked(by.tenant, ask).await.map_err(about("input request"))?;
        match found.what.waiting() {
            Some(_) if found.run == run => Ok(found),
            Some(_) | None => Err(Error::not_found("input request")),
        }
    }
}

/// Text is one part; parts are kept byte for byte.
fn parts(request: InputRequest) -> Result<Json> {
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
    let mut half = [0; 16];
    half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    half
}
