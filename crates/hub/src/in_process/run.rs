//! One task in the hands of an agent in this process: what it is, how to report on it, and how it ends.

use std::{sync::Arc, time::Duration};

use attache_protocol::{
    ArtifactId, Json, RunId, WorkerRequestId,
    rules::run::{FailureCode, RunPhase},
    wire::{
        adapter::FullOutput,
        call::{CallId, CallRequest},
        envelope::FrameObject,
        event::ArtifactChange,
        input_request::{CreateInputRequest, InputAnswer},
        run::{
            ClaimedRun, CompleteRequest, FailRequest, OutputArtifact, OutputMessage, OutputReply, ProgressRequest,
            ReleaseRequest,
        },
    },
};
use attache_store::record::{
    Pagination, RunFilter,
    peer::{NewPeerTask, PeerTask, PeerTaskChange},
};
use axum::body::BodyDataStream;
use serde::Serialize;
use tokio::task::JoinSet;

use super::InProcessAgent;
use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    control::{ArtifactUpload, CallHeaders},
    error::about,
};

/// How often the end of a run is reported when the store is busy.
const MAX_REPORT_ATTEMPTS: u32 = 6;
/// How far back a conversation is looked through.
const MAX_EARLIER_RUNS: usize = 8;

/// A claimed run. Clones are the same work.
#[derive(Debug, Clone)]
pub struct InProcessRun {
    hub: Handle,
    principal: Principal,
    claimed: Arc<ClaimedRun>,
    text: Arc<str>,
    context: Option<Json>,
}

/// What an agent answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentOutput {
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
    /// What a caller that speaks A2A is told at the end; the text unless there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<OutputMessage>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<OutputArtifact>,
    /// Files that the hub keeps ([`InProcessRun::keep`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifact_refs: Vec<ArtifactId>,
    /// Where the rest is, when the text is not all of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_output: Option<FullOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<OutputReply>,
    /// `{"tokens","cost_usd"}`: the total of the run.
    #[serde(skip)]
    pub usage: Option<Json>,
}

/// Why an agent could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct AgentFailure {
    pub error: String,
    pub code: FailureCode,
    /// What a caller that speaks A2A is told instead of the error.
    pub message: Option<OutputMessage>,
    /// What was made before it failed.
    pub artifacts: Vec<OutputArtifact>,
}

#[derive(Serialize)]
struct FailureResult<'a> {
    error: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a OutputMessage>,
    #[serde(skip_serializing_if = "<[OutputArtifact]>::is_empty")]
    artifacts: &'a [OutputArtifact],
}

// === impl InProcessRun ===

impl InProcessRun {
    pub(super) fn new(hub: Handle, principal: Principal, claimed: ClaimedRun) -> Self {
        let input = FrameObject::read("input", claimed.input.get()).ok();
        let text = input.as_ref().and_then(|input| input.optional::<String>("text").ok().flatten());
        let context = input.and_then(|input| input.raw("context")).and_then(|text| Json::from_text(text).ok());
        let text = text.unwrap_or_default().into();
        Self { hub, principal, claimed: Arc::new(claimed), text, context }
    }

    /// What to do.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What the caller gave along, byte for byte.
    pub const fn context(&self) -> Option<&Json> {
        self.context.as_ref()
    }

    /// The whole claim.
    pub fn claim(&self) -> &ClaimedRun {
        &self.claimed
    }

    /// The hub that hosts the agent.
    pub const fn hub(&self) -> &Handle {
        &self.hub
    }

    /// As whom the agent acts: it may watch the calls that it makes, and read their results.
    pub const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Calls another agent as a part of this task. Work that is passed on in circles is refused.
    pub async fn call(&self, request: CallRequest) -> Result<CallId> {
        self.hub.call_within(&self.principal, Some(self.run()), request, CallHeaders::default()).await
    }

    /// A piece of the answer, for those who watch.
    pub async fn send_chunk(&self, text: &str) -> Result<()> {
        self.report(ProgressRequest { chunk: Some(Json::of(text)), ..ProgressRequest::default() }).await
    }

    /// What the agent thinks, for those who watch.
    pub async fn think(&self, text: &str) -> Result<()> {
        self.report(ProgressRequest { thought: Some(Json::of(text)), ..ProgressRequest::default() }).await
    }

    /// What the agent does now, where it cannot say how much of the whole that is.
    pub async fn note(&self, goal: &str) -> Result<()> {
        self.report(ProgressRequest { message: Some(goal.to_owned()), ..ProgressRequest::default() }).await
    }

    /// What the agent does now, and how much of the whole is done, from 0 to 1.
    pub async fn progress(&self, goal: &str, share: f64) -> Result<()> {
        let percent = Some((share * 1e8).round() / 1e6);
        self.report(ProgressRequest { message: Some(goal.to_owned()), percent, ..ProgressRequest::default() }).await
    }

    /// A line of the log: an object with a `message`.
    pub async fn log(&self, line: Json) -> Result<()> {
        self.report(ProgressRequest { log: Some(line), ..ProgressRequest::default() }).await
    }

    /// Something that the agent made, whole or a piece of it.
    pub async fn artifact(&self, change: &ArtifactChange) -> Result<()> {
        self.report(ProgressRequest { artifact: Some(Json::of(change)), ..ProgressRequest::default() }).await
    }

    /// Keeps bytes as an artifact of the run's workspace; returns how many there were.
    pub async fn keep(
        &self,
        name: &str,
        media_type: Option<String>,
        bytes: BodyDataStream,
    ) -> Result<(ArtifactId, u64)> {
        let upload = ArtifactUpload { name: name.to_owned(), media_type };
        let kept = self.hub.upload_artifact(&self.principal, self.claimed.workspace_id, upload, bytes).await?;
        Ok((kept.artifact_id, kept.size))
    }

    /// Asks the caller, and the run waits. Asking again with the same name gives the same question back.
    pub async fn request_input(&self, name: &str, prompt: &str, parts: Option<Json>) -> Result<InputAnswer> {
        self.hub.request_input(&self.principal, self.run(), self.question(name, prompt, parts)).await
    }

    /// Says that somebody must authorize the work elsewhere, and the run waits as for an approval. The caller may answer
    /// as if it was asked.
    pub async fn request_authorization(&self, name: &str, prompt: &str, parts: Option<Json>) -> Result<InputAnswer> {
        self.hub.request_authorization(&self.principal, self.run(), self.question(name, prompt, parts)).await
    }

    fn question(&self, name: &str, prompt: &str, parts: Option<Json>) -> CreateInputRequest {
        let (epoch, request_id) = (Some(self.claimed.epoch), Some(name.to_owned()));
        CreateInputRequest { epoch, prompt: prompt.to_owned(), parts, request_id }
    }

    /// The answer is not needed any more, and the run does not wait for it. One that has come already is given back.
    pub async fn withdraw(&self, ask: WorkerRequestId) -> Result<InputAnswer> {
        self.hub.withdraw_worker_request(&self.principal, self.run(), ask, self.claimed.epoch).await
    }

    /// The answer to a question, or how it is after `wait`.
    pub async fn answer(&self, ask: WorkerRequestId, wait: Duration) -> Result<InputAnswer> {
        self.hub.input_answer(&self.principal, self.run(), ask, wait).await
    }

    /// The task of an agent outside that does this run, if it was begun.
    pub async fn peer_task(&self) -> Result<Option<PeerTask>> {
        self.hub.store().peer_task(self.principal.tenant, self.run()).await.map_err(about("run"))
    }

    /// Notes what is about to be sent to an agent outside; what was noted before stays.
    pub async fn begin_peer_task(&self, task: NewPeerTask) -> Result<PeerTask> {
        let (by, lease) = (self.principal.worker(Some(self.claimed.epoch))?, self.hub.options().heartbeat_timeout);
        match self.hub.store().begin_peer_task(by, self.run(), task, lease, self.hub.now()).await {
            Ok(task) => Ok(task),
            Err(error) => Err(self.hub.refusal(&self.principal, error).await),
        }
    }

    /// Notes what the agent outside said of its task.
    pub async fn link_peer_task(&self, change: PeerTaskChange) -> Result<PeerTask> {
        let (by, lease) = (self.principal.worker(Some(self.claimed.epoch))?, self.hub.options().heartbeat_timeout);
        match self.hub.store().link_peer_task(by, self.run(), change, lease, self.hub.now()).await {
            Ok(task) => Ok(task),
            Err(error) => Err(self.hub.refusal(&self.principal, error).await),
        }
    }

    /// What agents outside did before in the same conversation, the newest first.
    pub async fn earlier_peer_tasks(&self) -> Result<Vec<PeerTask>> {
        let (tenant, claimed) = (self.principal.tenant, &self.claimed);
        let (conversation, agent) = (Some(claimed.conversation_id), Some(claimed.agent_id));
        let filter = RunFilter { conversation, agent, ..RunFilter::default() };
        let page = Pagination { limit: MAX_EARLIER_RUNS, cursor: None };
        let runs = self.hub.store().runs(tenant, filter, page).await.map_err(about("run"))?;
        let mut tasks = Vec::new();
        for run in runs.items.iter().filter(|run| run.id != claimed.task_run_id) {
            tasks.extend(self.hub.store().peer_task(tenant, run.id).await.map_err(about("run"))?);
        }
        Ok(tasks)
    }

    /// Gives the run back to the queue, before anything was done about it; the agent then hears that it lost it.
    pub async fn release(&self) -> Result<()> {
        let request = ReleaseRequest { epoch: self.claimed.epoch };
        self.hub.release(&self.principal, self.run(), request).await.map(drop)
    }

    /// Whether nothing happens to the run any more.
    pub async fn is_over(&self) -> bool {
        let found = self.hub.store().run(self.principal.tenant, self.run()).await;
        found.is_ok_and(|record| record.state.status().is_terminal())
    }

    async fn report(&self, request: ProgressRequest) -> Result<()> {
        let request = ProgressRequest { epoch: Some(self.claimed.epoch), ..request };
        self.hub.progress(&self.principal, self.run(), request).await.map(drop)
    }

    fn run(&self) -> RunId {
        self.claimed.task_run_id
    }

    /// Lets the agent work until it is done or the run is not its any more, and reports the end.
    pub(super) async fn done_by(self, agent: Arc<impl InProcessAgent>) -> RunId {
        let run = self.run();
        let mut watch = self.hub.bus().watch(Topic::Run(run));
        // In a task of its own, so that a panic is an answer too; it ends with this future.
        let mut task = JoinSet::new();
        let (work, worker) = (self.clone(), agent.clone());
        task.spawn(async move { worker.work(work).await });
        loop {
            tokio::select! {
                done = task.join_next() => {
                    let done = match done {
                        Some(Ok(done)) => done,
                        Some(Err(_)) | None => Err(AgentFailure::new("The agent crashed.").code(FailureCode::HostCrashed)),
                    };
                    self.finish(done).await;
                    return run;
                }
                () = watch.moved() => {}
                () = tokio::time::sleep(self.hub.options().poll_every) => {}
            }
            if !self.is_held().await {
                task.shutdown().await;
                agent.lost(self).await;
                return run;
            }
        }
    }

    /// Whether the claim is still this one. A store that cannot say so for a moment changes nothing.
    async fn is_held(&self) -> bool {
        match self.hub.store().run(self.principal.tenant, self.run()).await {
            Ok(record) => {
                matches!(record.state.phase, RunPhase::Running(_)) && record.state.epoch == self.claimed.epoch
            }
            Err(error) => !matches!(error, attache_store::Error::NotFound),
        }
    }

    async fn finish(&self, done: std::result::Result<AgentOutput, AgentFailure>) {
        for attempt in 0..MAX_REPORT_ATTEMPTS {
            let Err(error) = self.finish_once(&done).await else { return };
            if error.code.http_status() < 500 {
                tracing::debug!(run.id = %self.run(), %error, "the end of a run was refused");
                // What cannot be taken as an answer is at least known to have ended.
                if done.is_ok() && error.code.http_status() == 400 {
                    let _ = self.finish_once(&Err(AgentFailure::new(error.message.to_string()))).await;
                }
                return;
            }
            tokio::time::sleep(Duration::from_millis(20 << attempt)).await;
        }
        tracing::warn!(run.id = %self.run(), "the end of a run could not be reported");
    }

    async fn finish_once(&self, done: &std::result::Result<AgentOutput, AgentFailure>) -> Result<()> {
        let epoch = Some(self.claimed.epoch);
        match done {
            Ok(output) => {
                let request = CompleteRequest { epoch, output: Json::of(output), usage: output.usage.clone() };
                self.hub.complete(&self.principal, self.run(), request).await.map(drop)
            }
            Err(failure) => {
                let request = FailRequest { epoch, output: failure.output(), usage: None };
                self.hub.fail(&self.principal, self.run(), request).await.map(drop)
            }
        }
    }
}

// === impl AgentOutput ===

impl AgentOutput {
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            details: None,
            message: None,
            artifacts: Vec::new(),
            artifact_refs: Vec::new(),
            full_output: None,
            reply: None,
            usage: None,
        }
    }

    #[must_use]
    pub fn details(self, details: Json) -> Self {
        Self { details: Some(details), ..self }
    }

    #[must_use]
    pub fn message(self, message: OutputMessage) -> Self {
        Self { message: Some(message), ..self }
    }

    #[must_use]
    pub fn artifacts(self, artifacts: Vec<OutputArtifact>) -> Self {
        Self { artifacts, ..self }
    }

    /// An A2A caller is answered with a message instead of a task.
    #[must_use]
    pub fn as_message(self) -> Self {
        Self { reply: Some(OutputReply::Message), ..self }
    }

    /// `{"tokens","cost_usd"}`
    #[must_use]
    pub fn usage(self, usage: Json) -> Self {
        Self { usage: Some(usage), ..self }
    }
}

// === impl AgentFailure ===

impl AgentFailure {
    pub fn new(error: impl Into<String>) -> Self {
        Self { error: error.into(), code: FailureCode::TaskFailed, message: None, artifacts: Vec::new() }
    }

    #[must_use]
    pub fn code(self, code: FailureCode) -> Self {
        Self { code, ..self }
    }

    pub(super) fn output(&self) -> Json {
        let (message, artifacts) = (self.message.as_ref(), &*self.artifacts);
        Json::of(&FailureResult { error: &self.error, code: self.code.as_str(), message, artifacts })
    }
}

/// A report that was refused ends the work; the run has most likely ended already.
impl From<Error> for AgentFailure {
    fn from(error: Error) -> Self {
        Self::new(error.message.to_string())
    }
}
