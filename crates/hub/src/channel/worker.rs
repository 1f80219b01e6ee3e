//! Actions of a worker: credits, reports, questions and the end of its runs. Each uses the same action as over HTTP.

use attache_protocol::{
    AgentId, ChannelId, Code, Json, RunId, RuntimeId,
    rules::{permission::PermissionState, run::WorkerRef},
    wire::{
        envelope::{
            CallTool, Chunk, Done, Envelope, Extend, Fail, Log, Progress, Ready, Release, RequireApproval,
            RequireInput, Think,
        },
        input_request::{CreateInputRequest, WorkerRequestState},
        permission::CreatePermissionRequest,
        run::{CompleteRequest, FailRequest, ProgressRequest, ReleaseRequest, SandboxLimit},
    },
};
use attache_store::record::{
    channel::{OutboxFrame, ReportKey},
    worker_request::{NewWorkerRequest, WorkerRequestKind},
};

use super::{
    frame_text::{self, PendingRequest, PendingRequestKind},
    response::{FrameRefusal, yes},
    session::{ActionReply, ChannelSession, OpenChannel},
    tools::{ChannelTools, ToolBounds},
};
use crate::{Error, Principal, bus::Topic, check, control::worker_error, error::about, start_secrets::InputRecipient};

const MAX_CREDITS: u32 = 1000;
const MAX_ARGUMENTS: usize = 256 * 1024;
/// Pending questions per connection about runs that were claimed elsewhere.
const MAX_PENDING_REQUESTS: usize = 64;
/// How many pending frames are searched for one that is about to be sent.
const MAX_LOOK_AHEAD: usize = 256;

// === impl ChannelSession ===

impl ChannelSession {
    /// The channel of a worker. Other peers can't use claims.
    fn working(&self) -> Result<(ChannelId, RuntimeId, AgentId), FrameRefusal> {
        let open = self.open.as_ref();
        let worker = open.and_then(|open| open.worker.map(|(runtime, agent)| (open.channel, runtime, agent)));
        worker.ok_or_else(|| FrameRefusal::new(Code::Forbidden, "This channel is not registered as a worker."))
    }

    pub(super) fn ready(&mut self, ready: &Ready) -> Result<ActionReply, FrameRefusal> {
        let (_, _, agent) = self.working()?;
        let Some(granted) = u32::try_from(ready.credits).ok().filter(|granted| *granted <= MAX_CREDITS) else {
            return Err(FrameRefusal::wrong("payload.credits", "must be between 0 and 1000"));
        };
        if let (Some(open), Some(enforces)) = (&mut self.open, &ready.enforces) {
            open.enforces = SandboxLimit::known(enforces.iter().map(String::as_str));
        }
        self.grant(agent, granted);
        Ok(ActionReply::Now(yes("ready", &Json::empty_object())))
    }

    /// Adds credits. Zero revokes earlier ones.
    pub(super) fn grant(&mut self, agent: AgentId, granted: u32) {
        let Some(open) = &mut self.open else { return };
        open.credits = if granted == 0 { 0 } else { open.credits.saturating_add(granted).min(MAX_CREDITS) };
        open.claim = open.credits > 0;
        if open.claim {
            self.bell.add_topic(Topic::Queue(agent));
        } else {
            self.bell.remove_topic(Topic::Queue(agent));
        }
    }

    /// The peer is about to disconnect: it gets no more work, and keeps what it has until it releases it.
    pub(super) fn drain(&mut self) -> Result<ActionReply, FrameRefusal> {
        if let Ok((_, _, agent)) = self.working() {
            self.grant(agent, 0);
        }
        Ok(ActionReply::Now(yes("drain", &Json::empty_object())))
    }

    pub(super) async fn chunk(
        &mut self,
        by: &Principal,
        frame: &Envelope,
        chunk: Chunk,
    ) -> Result<ActionReply, FrameRefusal> {
        let request = ProgressRequest {
            epoch: Some(chunk.epoch),
            chunk: Some(string("payload.text", chunk.text)?),
            ..ProgressRequest::default()
        };
        self.report(by, frame, chunk.task_run_id, chunk.report, request, "chunk").await
    }

    pub(super) async fn think(
        &mut self,
        by: &Principal,
        frame: &Envelope,
        think: Think,
    ) -> Result<ActionReply, FrameRefusal> {
        let request = ProgressRequest {
            epoch: Some(think.epoch),
            thought: Some(string("payload.thought_text", think.thought_text)?),
            ..ProgressRequest::default()
        };
        self.report(by, frame, think.task_run_id, think.report, request, "think").await
    }

    pub(super) async fn log(
        &mut self,
        by: &Principal,
        frame: &Envelope,
        log: Log,
    ) -> Result<ActionReply, FrameRefusal> {
        let message = string("payload.message", log.message)?;
        let level = Json::of(&log.level);
        let line = format!(r#"{{"level":{},"message":{}}}"#, level.get(), message.get());
        let line = Json::from_text(line).map_err(|error| Error::internal(&error))?;
        let request = ProgressRequest { epoch: Some(log.epoch), log: Some(line), ..ProgressRequest::default() };
        self.report(by, frame, log.task_run_id, log.report, request, "log").await
    }

    pub(super) async fn progress(
        &mut self,
        by: &Principal,
        frame: &Envelope,
        progress: Progress,
    ) -> Result<ActionReply, FrameRefusal> {
        let request = ProgressRequest {
            epoch: Some(progress.epoch),
            message: progress.message,
            percent: progress.percent,
            usage: progress.usage_stats,
            artifact: progress.artifact,
            ..ProgressRequest::default()
        };
        self.report(by, frame, progress.task_run_id, progress.report, request, "progress").await
    }

    /// A report is counted by the worker itself, or by its channel's frames, so that repeats are recognised.
    async fn report(
        &self,
        by: &Principal,
        frame: &Envelope,
        run: RunId,
        count: Option<i64>,
        request: ProgressRequest,
        action: &'static str,
    ) -> Result<ActionReply, FrameRefusal> {
        let (channel, ..) = self.working()?;
        let own = count.map(|seq| ReportKey { source: None, seq });
        let report = own.or_else(|| frame.header.seq.map(|seq| ReportKey { source: Some(channel), seq }));
        let reported = self.hub.report(by, run, request, report).await.map_err(|error| {
            let refusal = FrameRefusal::from(error);
            let refusal = refusal.rename("payload.usage", "payload.usage_stats");
            let refusal = refusal.rename("payload.chunk", "payload.text");
            refusal.rename("payload.thought", "payload.thought_text").rename("payload.log", "payload.message")
        })?;
        Ok(ActionReply::Now(yes(action, &Json::of(&reported))))
    }

    /// Renews the lease without a report.
    pub(super) async fn extend(&self, by: &Principal, extend: Extend) -> Result<ActionReply, FrameRefusal> {
        self.working()?;
        let request = ProgressRequest { epoch: Some(extend.epoch), ..ProgressRequest::default() };
        let renewed = self.hub.report(by, extend.task_run_id, request, None).await?;
        Ok(ActionReply::Now(yes("extend", &Json::of(&renewed))))
    }

    pub(super) async fn done(&self, by: &Principal, done: Done) -> Result<ActionReply, FrameRefusal> {
        self.working()?;
        let output = match (done.output, done.result_summary) {
            (Some(output), _) => output,
            (None, Some(summary)) => {
                let summary = string("payload.result_summary", summary)?;
                let refs = done.artifact_refs.as_ref().map_or("[]", |refs| refs.get());
                let text = format!(r#"{{"text":{},"artifact_refs":{refs}}}"#, summary.get());
                Json::from_text(text).map_err(|error| Error::internal(&error))?
            }
            (None, None) => return Err(FrameRefusal::missing("payload.result_summary")),
        };
        let request = CompleteRequest {
            epoch: Some(done.epoch),
            output,
            usage: done.usage_stats,
            inputs_taken: done.inputs_taken,
        };
        let finished = self.hub.complete(by, done.task_run_id, request).await.map_err(|error| {
            let refusal = FrameRefusal::from(error).rename("payload.usage", "payload.usage_stats");
            refusal.rename("payload.output.artifact_refs", "payload.artifact_refs")
        })?;
        Ok(ActionReply::Now(yes("done", &Json::of(&finished))))
    }

    pub(super) async fn fail(&self, by: &Principal, fail: Fail) -> Result<ActionReply, FrameRefusal> {
        self.working()?;
        let output = match fail.output {
            Some(output) => output,
            None => {
                let error = fail.error.as_ref().map_or("null", Json::get);
                let code = Json::of(&fail.code);
                let text = match &fail.code {
                    Some(_) => format!(r#"{{"error":{error},"code":{}}}"#, code.get()),
                    None => format!(r#"{{"error":{error}}}"#),
                };
                Json::from_text(text).map_err(|error| Error::internal(&error))?
            }
        };
        let request =
            FailRequest { epoch: Some(fail.epoch), output, usage: fail.usage_stats, inputs_taken: fail.inputs_taken };
        let finished = self.hub.fail(by, fail.task_run_id, request).await;
        let finished =
            finished.map_err(|error| FrameRefusal::from(error).rename("payload.usage", "payload.usage_stats"))?;
        Ok(ActionReply::Now(yes("fail", &Json::of(&finished))))
    }

    pub(super) async fn release(&self, by: &Principal, release: Release) -> Result<ActionReply, FrameRefusal> {
        self.working()?;
        let released = self.hub.release(by, release.task_run_id, ReleaseRequest { epoch: release.epoch }).await?;
        let members = [("task_run_id", Json::of(&released.task_run_id)), ("status", Json::of(&released.status))];
        let members = members.map(|(name, value)| format!(r#""{name}":{}"#, value.get())).join(",");
        let members = Json::from_text(format!("{{{members}}}")).map_err(|error| Error::internal(&error))?;
        Ok(ActionReply::Now(yes("release", &members)))
    }

    pub(super) async fn require_approval(
        &mut self,
        by: &Principal,
        frame: &Envelope,
        ask: RequireApproval,
    ) -> Result<ActionReply, FrameRefusal> {
        let (channel, ..) = self.working()?;
        let run = ask.task_run_id;
        let request = CreatePermissionRequest {
            epoch: Some(ask.epoch),
            tool: ask.tool,
            input: ask.input,
            cwd: ask.cwd,
            paths: ask.paths.unwrap_or_default(),
            reason: ask.reason,
            risk: ask.risk,
            diff: ask.diff,
            undisclosed: ask.undisclosed.unwrap_or_default(),
            assured: ask.assured.unwrap_or_default(),
            request_id: Some(frame.header.msg_id.clone()),
        };
        let asked = self.hub.request_permission(by, run, request, Some(channel)).await?;
        let permission = asked.permission_request_id;
        let question = PendingRequestKind::Permission(permission);
        if asked.state == PermissionState::Pending {
            return self.wait_for(run, question, frame).await;
        }
        if self.is_on_its_way(OutboxFrame::Permission { permission }).await? {
            return Ok(ActionReply::Later);
        }
        let found = self.hub.store().permission(by.tenant, permission).await;
        Ok(ActionReply::Now(frame_text::permission(&found.map_err(about("permission request"))?)))
    }

    pub(super) async fn require_input(
        &mut self,
        by: &Principal,
        frame: &Envelope,
        ask: RequireInput,
    ) -> Result<ActionReply, FrameRefusal> {
        self.working()?;
        let run = ask.task_run_id;
        let request = CreateInputRequest {
            epoch: Some(ask.epoch),
            prompt: ask.prompt,
            parts: ask.parts,
            request_id: Some(frame.header.msg_id.clone()),
        };
        let asked = self.hub.request_input(by, run, request).await?;
        let ask = asked.input_request_id;
        self.answer_or_wait(by, run, PendingRequestKind::Ask(ask), asked.state, frame).await
    }

    /// Calls one of the caller's tools. Invalid calls don't reach the engine.
    pub(super) async fn call_tool(
        &mut self,
        by: &Principal,
        frame: &Envelope,
        call: CallTool,
    ) -> Result<ActionReply, FrameRefusal> {
        self.working()?;
        let arguments = call.arguments.unwrap_or_else(Json::empty_object);
        check::sized("arguments", &arguments, MAX_ARGUMENTS)?;
        let worker = by.worker(Some(call.epoch))?;
        self.check_tool(by, &worker, call.task_run_id, &call.tool_name, &arguments).await?;
        let new = NewWorkerRequest {
            id: self.hub.env().worker_request_id(),
            run: call.task_run_id,
            what: WorkerRequestKind::Tool { tool: call.tool_name, arguments },
            request: Some(frame.header.msg_id.clone()),
            expires_at: Some(self.hub.now().plus(self.hub.options().tool_timeout)),
        };
        let lease = self.hub.options().heartbeat_timeout;
        let asked = self.hub.store().create_worker_request(worker, new, lease, self.hub.now()).await;
        let asked = asked.map_err(|error| worker_error(by, error))?;
        self.answer_or_wait(by, call.task_run_id, PendingRequestKind::Ask(asked.id), asked.state, frame).await
    }

    async fn check_tool(
        &self,
        by: &Principal,
        worker: &WorkerRef,
        run: RunId,
        tool: &str,
        arguments: &Json,
    ) -> Result<(), FrameRefusal> {
        // Only the holder of the run may learn about its caller. The store checks this and renews the claim.
        let request = ProgressRequest { epoch: worker.epoch, ..ProgressRequest::default() };
        self.hub.report(by, run, request, None).await?;
        let run = self.hub.store().run(by.tenant, run).await.map_err(about("run"))?;
        let follow = self.hub.store().follower(run.id).await.map_err(about("run"))?;
        let Some(follow) = follow else { return Err(Error::from_store("run", attache_store::Error::NoEngine).into()) };
        let engine = self.hub.store().channel(by.tenant, follow.channel).await.map_err(about("channel"))?;
        let bounds = ToolBounds { allowed: run.spec.allowed_tools, root: run.spec.workspace_root };
        let (tool, arguments) = (tool.to_owned(), arguments.clone());
        let check = move |tools: &ChannelTools| tools.check_call(&tool, &arguments, &bounds);
        self.hub.live_channels().with_tools(&engine, check).await?
    }

    async fn answer_or_wait(
        &mut self,
        by: &Principal,
        run: RunId,
        question: PendingRequestKind,
        state: WorkerRequestState,
        frame: &Envelope,
    ) -> Result<ActionReply, FrameRefusal> {
        let PendingRequestKind::Ask(ask) = question else { return Ok(ActionReply::Later) };
        if state == WorkerRequestState::Pending {
            return self.wait_for(run, question, frame).await;
        }
        if self.is_on_its_way(OutboxFrame::Answer { ask }).await? {
            return Ok(ActionReply::Later);
        }
        let found = self.hub.store().worker_request(by.tenant, ask).await.map_err(about("question"))?;
        let (runtime, _) = by.device()?;
        let found = self.hub.ask_in_full(by.tenant, found, InputRecipient::Runtime(runtime)).await;
        Ok(ActionReply::Now(frame_text::answer(&found)))
    }

    /// The answer comes as an outbox frame, unless the run was claimed over HTTP: then it is polled here.
    async fn wait_for(
        &mut self,
        run: RunId,
        question: PendingRequestKind,
        frame: &Envelope,
    ) -> Result<ActionReply, FrameRefusal> {
        let Some(open) = &mut self.open else { return Ok(ActionReply::Later) };
        let record = self.hub.store().run(open.tenant, run).await.map_err(about("run"))?;
        if record.channel.is_some() || open.asked.iter().any(|asked| asked.question == question) {
            return Ok(ActionReply::Later);
        }
        if open.asked.len() >= MAX_PENDING_REQUESTS {
            return Err(FrameRefusal::new(Code::Overloaded, "This connection has too many unanswered questions."));
        }
        open.asked.push(PendingRequest { run, question, request: frame.header.msg_id.clone() });
        self.bell.add_topic(Topic::Asked(run));
        // It may have been settled before the subscription started.
        self.answer_pending(run).await;
        Ok(ActionReply::Later)
    }

    /// Whether the outbox contains this frame and it was not sent yet.
    async fn is_on_its_way(&self, wanted: OutboxFrame) -> Result<bool, FrameRefusal> {
        let Some(OpenChannel { channel, sent, .. }) = self.open.as_deref() else { return Ok(false) };
        let frames = self.hub.store().frames(*channel, *sent, MAX_LOOK_AHEAD).await.map_err(about("channel"))?;
        Ok(frames.frames.iter().any(|(_, frame)| *frame == wanted))
    }

    /// Releases claims that were never written to the connection.
    pub(super) async fn return_unsent(&self, open: &OpenChannel, by: &Principal) {
        let Some((runtime, _)) = open.worker else { return };
        let Ok(frames) = self.hub.store().frames(open.channel, open.sent, MAX_LOOK_AHEAD).await else { return };
        for (_, frame) in frames.frames {
            let OutboxFrame::Execute { run, epoch } = frame else { continue };
            let worker = WorkerRef { runtime, epoch: Some(epoch) };
            if let Err(error) = self.hub.store().release(worker, run, self.hub.now()).await {
                tracing::debug!(run.id = %run, %error, actor = %by.actor(), "an unsent claim was not released");
            }
        }
    }
}

/// A JSON string, kept as sent.
fn string(field: &str, given: Json) -> Result<Json, FrameRefusal> {
    if given.get().starts_with('"') { Ok(given) } else { Err(FrameRefusal::wrong(field, "must be a string")) }
}
