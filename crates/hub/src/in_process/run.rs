//! One run of an in-process agent: its task, how to report on it, and how it ends.

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

/// How often to retry reporting a run's end to a busy store.
const MAX_REPORT_ATTEMPTS: u32 = 6;
/// How many earlier runs of a conversation are searched.
const MAX_EARLIER_RUNS: usize = 8;

/// A claimed run. Clones refer to the same run.
#[derive(Debug, Clone)]
pub struct InProcessRun {
    hub: Handle,
    principal: Principal,
    claimed: Arc<ClaimedRun>,
    text: Arc<str>,
    context: Option<Json>,
}

/// An agent's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentOutput {
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
    /// The final message for A2A callers. Default: the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<OutputMessage>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<OutputArtifact>,
    /// Files stored by the hub ([`InProcessRun::keep`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifact_refs: Vec<ArtifactId>,
    /// Where the complete output is, if the text is not all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_output: Option<FullOutput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<OutputReply>,
    /// `{"tokens","cost_usd"}`: the total of the run.
    #[serde(skip)]
    pub usage: Option<Json>,
}

/// Why an agent failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct AgentFailure {
    pub error: String,
    pub code: FailureCode,
    /// The final message for A2A callers, in place of the error.
    pub message: Option<OutputMessage>,
    /// Artifacts produced before the failure.
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

    /// The task.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The caller's context, byte for byte.
    pub const fn context(&self) -> Option<&Json> {
        self.context.as_ref()
    }

    /// The complete claim.
    pub fn claim(&self) -> &ClaimedRun {
        &self.claimed
    }

    /// The hub that hosts the agent.
    pub const fn hub(&self) -> &Handle {
        &self.hub
    }

    /// The agent's principal: it may watch the calls it makes and read their results.
    pub const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Calls another agent as a child of this run. Loops are refused.
    pub async fn call(&self, request: CallRequest) -> Result<CallId> {
        self.hub.call_within(&self.principal, Some(self.run()), request, CallHeaders::default()).await
    }

    /// Sends a piece of the answer to watchers.
    pub async fn send_chunk(&self, text: &str) -> Result<()> {
        self.report(ProgressRequest { chunk: Some(Json::of(text)), ..ProgressRequest::default() }).await
    }

    /// Sends a thought to watchers.
    pub async fn think(&self, text: &str) -> Result<()> {
        self.report(ProgressRequest { thought: Some(Json::of(text)), ..ProgressRequest::default() }).await
    }

    /// Reports what the agent is doing, without a share.
    pub async fn note(&self, goal: &str) -> Result<()> {
        self.report(ProgressRequest { message: Some(goal.to_owned()), ..ProgressRequest::default() }).await
    }

    /// Reports what the agent is doing, and the completed share from 0 to 1.
    pub async fn progress(&self, goal: &str, share: f64) -> Result<()> {
        let percent = Some((share * 1e8).round() / 1e6);
        self.report(ProgressRequest { message: Some(goal.to_owned()), percent, ..ProgressRequest::default() }).await
    }

    /// Writes a log line: an object with a `message`.
    pub async fn log(&self, line: Json) -> Result<()> {
        self.report(ProgressRequest { log: Some(line), ..ProgressRequest::default() }).await
    }

    /// Reports a complete artifact or a piece of one.
    pub async fn artifact(&self, change: &ArtifactChange) -> Result<()> {
        self.report(ProgressRequest { artifact: Some(Json::of(change)), ..ProgressRequest::default() }).await
    }

    /// Stores bytes as an artifact in the run's workspace. Returns their number.
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

    /// Asks the caller, and the run waits. Asking again with the same name returns the same question.
    pub async fn request_input(&self, name: &str, prompt: &str, parts: Option<Json>) -> Result<InputAnswer> {
        self.hub.request_input(&self.principal, self.run(), self.question(name, prompt, parts)).await
    }

    /// Reports that someone must authorize the work elsewhere. The run waits as for an approval, and the caller may
    /// answer as if it was asked.
    pub async fn request_authorization(&self, name: &str, prompt: &str, parts: Option<Json>) -> Result<InputAnswer> {
        self.hub.request_authorization(&self.principal, self.run(), self.question(name, prompt, parts)).await
    }

    fn question(&self, name: &str, prompt: &str, parts: Option<Json>) -> CreateInputRequest {
        let (epoch, request_id) = (Some(self.claimed.epoch), Some(name.to_owned()));
        CreateInputRequest { epoch, prompt: prompt.to_owned(), parts, request_id }
    }

    /// The answer is no longer needed, and the run stops waiting for it. Returns an answer that has already arrived.
    pub async fn withdraw(&self, ask: WorkerRequestId) -> Result<InputAnswer> {
        self.hub.withdraw_worker_request(&self.principal, self.run(), ask, self.claimed.epoch).await
    }

    /// The answer to a question, or its state after `wait`.
    pub async fn answer(&self, ask: WorkerRequestId, wait: Duration) -> Result<InputAnswer> {
        self.hub.input_answer(&self.principal, self.run(), ask, wait).await
    }

    /// The outside agent's task for this run, if it was started.
    pub async fn peer_task(&self) -> Result<Option<PeerTask>> {
        self.hub.store().peer_task(self.principal.tenant, self.run()).await.map_err(about("run"))
    }

    /// Records what is about to be sent to an outside agent. An existing record stays.
    pub async fn begin_peer_task(&self, task: NewPeerTask) -> Result<PeerTask> {
        let (by, lease) = (self.principal.worker(Some(self.claimed.epoch))?, self.hub.options().heartbeat_timeout);
        match self.hub.store().begin_peer_task(by, self.run(), task, lease, self.hub.now()).await {
            Ok(task) => Ok(task),
            Err(error) => Err(self.hub.refusal(&self.principal, error).await),
        }
    }

    /// Records what the outside agent reported about its task.
    pub async fn link_peer_task(&self, change: PeerTaskChange) -> Result<PeerTask> {
        let (by, lease) = (self.principal.worker(Some(self.claimed.epoch))?, self.hub.options().heartbeat_timeout);
        match self.hub.store().link_peer_task(by, self.run(), change, lease, self.hub.now()).await {
            Ok(task) => Ok(task),
            Err(error) => Err(self.hub.refusal(&self.principal, error).await),
        }
    }

    /// Earlier tasks of outside agents in the same conversation, newest first.
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

    /// Releases the run before any work was done. The agent is then notified that it lost the run.
    pub async fn release(&self) -> Result<()> {
        let request = ReleaseRequest { epoch: self.claimed.epoch };
        self.hub.release(&self.principal, self.run(), request).await.map(drop)
    }

    /// Whether the run can no longer change.
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

    /// Runs the agent until it is done or loses the run, and reports the outcome.
    pub(super) async fn done_by(self, agent: Arc<impl InProcessAgent>) -> RunId {
        let run = self.run();
        let mut watch = self.hub.bus().watch(Topic::Run(run));
        // In a separate task, so that a panic becomes a result too. It ends with this future.
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
                    // A worker may be the first to learn, from a refused report, that the run is no longer its own.
                    match self.is_held().await {
                        true => self.finish(done).await,
                        false => agent.lost(self).await,
                    }
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

    /// Whether this claim is still current. A temporary store failure changes nothing.
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
                tracing::debug!(run.id = %self.run(), %error, "the outcome of a run was refused");
                // An invalid output still ends the run.
                if done.is_ok() && error.code.http_status() == 400 {
                    let _ = self.finish_once(&Err(AgentFailure::new(error.message.to_string()))).await;
                }
                return;
            }
            tokio::time::sleep(Duration::from_millis(20 << attempt)).await;
        }
        tracing::warn!(run.id = %self.run(), "could not report the outcome of a run");
    }

    async fn finish_once(&self, done: &std::result::Result<AgentOutput, AgentFailure>) -> Result<()> {
        let epoch = Some(self.claimed.epoch);
        match done {
            Ok(output) => {
                let request = CompleteRequest {
                    epoch,
                    output: Json::of(output),
                    usage: output.usage.clone(),
                    inputs_taken: None,
                };
                self.hub.complete(&self.principal, self.run(), request).await.map(drop)
            }
            Err(failure) => {
                let request = FailRequest { epoch, output: failure.output(), usage: None, inputs_taken: None };
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

    /// Answers an A2A caller with a message instead of a task.
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

/// A refused report ends the work. The run has most likely already ended.
impl From<Error> for AgentFailure {
    fn from(error: Error) -> Self {
        Self::new(error.message.to_string())
    }
}
