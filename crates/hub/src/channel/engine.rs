//! Actions of an engine: creates and follows runs, cancels them, and answers their questions.

use attache_protocol::{
    Code, Json, PermissionId, RunId, WorkerRequestId,
    rules::permission::DecisionScope,
    wire::{
        envelope::{Cancel, Envelope, Execute, Input, ResponsePayload},
        input_request::GiveInputRequest,
        permission::DecisionRequest,
        run::{CancelRequest, CreateRunRequest, Run},
    },
};
use attache_store::record::{
    channel::{FollowRecord, NewFollow},
    worker_request::WorkerRequestKind,
};
use uuid::Uuid;

use super::{
    outbox::FollowedRun,
    response::{FrameRefusal, yes},
    session::{ActionReply, ChannelSession},
    tools::ChannelTools,
};
use crate::{
    Error, Principal,
    bus::Topic,
    control::{CallHeaders, CreatedRun, DecisionOrigin},
    error::about,
    identity::Action,
};

/// The worker receives it in a frame of its own, which adds some overhead.
const MAX_RESULT: usize = 768 * 1024;

// === impl ChannelSession ===

impl ChannelSession {
    pub(super) async fn execute(
        &mut self,
        by: &Principal,
        frame: &Envelope,
        execute: Execute,
    ) -> Result<ActionReply, FrameRefusal> {
        let run = self.start(by, frame, execute).await?;
        Ok(ActionReply::Now(started(&run)?))
    }

    /// Creates the run, or finds it by the frame's `msg_id`, and follows it.
    pub(crate) async fn start(
        &mut self,
        by: &Principal,
        frame: &Envelope,
        execute: Execute,
    ) -> Result<Run, FrameRefusal> {
        let Some(open) = &self.open else {
            return Err(FrameRefusal::new(Code::NotRegistered, "This connection has no channel yet."));
        };
        if frame.header.to.is_empty() {
            return Err(FrameRefusal::missing("header.to"));
        }
        let ttl = match frame.ttl() {
            Some(..=0) => {
                let message = "This task was passed between agents too many times.";
                return Err(FrameRefusal::new(Code::LoopRefused, message).field("metadata.ttl"));
            }
            Some(ttl) => Some(ttl.min(self.hub.options().hops + 1) - 1),
            None => None,
        };
        let input = match (execute.input, execute.query) {
            (Some(input), _) => input,
            (None, Some(query)) => Json::from_text(format!(r#"{{"text":{}}}"#, Json::of(&query).get()))
                .map_err(|error| Error::internal(&error))?,
            (None, None) => return Err(FrameRefusal::missing("payload.query")),
        };
        if let Some(tools) = &execute.allowed_tools
            && tools.parse::<Vec<String>>().is_err()
        {
            return Err(FrameRefusal::wrong("payload.allowed_tools", "must be an array of names"));
        }
        let request = CreateRunRequest {
            agent_id: frame.header.to.clone(),
            task_type: execute.task_type,
            input: Some(input),
            conversation_id: execute.conversation_id,
            parent_task_run_id: execute.parent_task_run_id,
            timeout_ms: execute.timeout_ms,
            context_fragments: execute.context_fragments,
            allowed_tools: execute.allowed_tools,
            workspace_root: execute.workspace_root,
            ..CreateRunRequest::default()
        };
        let headers = CallHeaders {
            idempotency_key: Some(key(by, &frame.header.msg_id)),
            trace_id: frame.trace_id().map(str::to_owned),
            ttl,
            follow: Some(NewFollow { channel: open.channel, message: frame.header.msg_id.clone() }),
            ..CallHeaders::default()
        };
        let created = self.hub.create_run(by, request, headers).await.map_err(|error| {
            let refusal = FrameRefusal::from(error).rename("payload.agent_id", "header.to");
            refusal.rename("payload.input", "payload.query")
        })?;
        let (run, follow) = match created {
            CreatedRun::New(run) => (run, None),
            // Some of its events may already be frames of this channel.
            CreatedRun::Existing(run) => {
                let follow = self.hub.store().follower(run.task_run_id).await.map_err(about("run"))?;
                (run, follow)
            }
        };
        self.follow(run.task_run_id, &frame.header.msg_id, follow);
        Ok(run)
    }

    fn follow(&mut self, run: RunId, message: &str, known: Option<FollowRecord>) {
        let Some(open) = &mut self.open else { return };
        self.bell.add_topic(Topic::Run(run));
        if !open.follows.iter().any(|follow| follow.run == run) {
            let (channel, message) = (open.channel, message.to_owned());
            let known = known.filter(|known| known.channel == channel);
            let follow = known.unwrap_or(FollowRecord { channel, run, message, pushed: 0 });
            open.follows.push(FollowedRun::new(follow));
        }
        open.moved.push(run);
    }

    pub(super) async fn cancel(&self, by: &Principal, cancel: Cancel) -> Result<ActionReply, FrameRefusal> {
        let request = CancelRequest { reason: cancel.reason };
        let run = self.hub.cancel_run(by, cancel.task_run_id, request).await?;
        Ok(ActionReply::Now(yes("cancel", &status(&run)?)))
    }

    pub(super) async fn input(
        &self,
        by: &Principal,
        frame: &Envelope,
        input: Input,
    ) -> Result<ActionReply, FrameRefusal> {
        let idempotency_key = Some(frame.header.msg_id.clone());
        let request =
            GiveInputRequest { text: input.text, parts: input.parts, idempotency_key, ..GiveInputRequest::default() };
        let given = self.hub.give_input(by, input.task_run_id, request).await?;
        Ok(ActionReply::Now(yes("input", &Json::of(&given))))
    }

    /// The response to a request of the hub, named by `parent_id`.
    pub(super) async fn response(
        &self,
        by: &Principal,
        frame: &Envelope,
        response: ResponsePayload,
    ) -> Result<ActionReply, FrameRefusal> {
        let parent = frame.header.parent_id.as_deref().ok_or_else(|| FrameRefusal::missing("header.parent_id"))?;
        let bare = parent.rsplit('_').next().unwrap_or(parent);
        let parent = Uuid::try_parse(bare)
            .map_err(|_| FrameRefusal::wrong("header.parent_id", "is not the msg_id of a request from the hub"))?;
        if let Some(approved) = response.approved {
            self.decide(by, PermissionId::from_uuid(parent), approved, response.comment).await?;
        } else if let Some(parts) = response.parts {
            let ask = self
                .hub
                .store()
                .worker_request(by.tenant, WorkerRequestId::from_uuid(parent))
                .await
                .map_err(about("question"))?;
            let idempotency_key = Some(frame.header.msg_id.clone());
            let request = GiveInputRequest {
                parts: Some(parts),
                input_request_id: Some(ask.id),
                idempotency_key,
                ..GiveInputRequest::default()
            };
            self.hub.give_input(by, ask.run, request).await?;
        } else {
            self.answer_tool(by, WorkerRequestId::from_uuid(parent), frame, &response).await?;
        }
        Ok(ActionReply::Later)
    }

    /// Takes effect only if this principal may decide.
    async fn decide(
        &self,
        by: &Principal,
        permission: PermissionId,
        approved: bool,
        comment: Option<String>,
    ) -> Result<(), FrameRefusal> {
        let decision = DecisionRequest {
            approved,
            scope: DecisionScope::Once,
            tool_pattern: None,
            until: None,
            this_channel_only: false,
            comment,
        };
        let place = DecisionOrigin { via: "channel", from: self.origin.address.map(|address| address.to_string()) };
        self.hub.decide(by, permission, decision, place).await?;
        Ok(())
    }

    async fn answer_tool(
        &self,
        by: &Principal,
        id: WorkerRequestId,
        frame: &Envelope,
        response: &ResponsePayload,
    ) -> Result<(), FrameRefusal> {
        let permit = by.may(Action::GiveInput)?;
        if frame.payload.get().len() > MAX_RESULT {
            let message =
                "A tool's result can have at most 768 KiB. Upload larger data as an artifact and send its id.";
            return Err(FrameRefusal::new(Code::TooLarge, message).field("payload.result"));
        }
        let ask = self.hub.store().worker_request(by.tenant, id).await.map_err(about("tool call"))?;
        let WorkerRequestKind::Tool { tool, .. } = &ask.what else { return Err(Error::not_found("tool call").into()) };
        // The agent is told the result.
        self.hub.find_listener(&permit, ask.run).await.map_err(|error| match error.code {
            Code::NotFound => Error::not_found("tool call"),
            _ => error,
        })?;
        match (response.ok, &response.result, &response.error) {
            (Some(false), _, _) | (None, None, Some(_)) => {}
            (_, Some(result), _) => {
                let follow = self.hub.store().follower(ask.run).await.map_err(about("tool call"))?;
                let follow = follow.ok_or_else(|| Error::not_found("tool call"))?;
                let engine = self.hub.store().channel(by.tenant, follow.channel).await.map_err(about("channel"))?;
                let (tool, result) = (tool.clone(), result.clone());
                let check = move |tools: &ChannelTools| tools.check_result(&tool, &result);
                self.hub.live_channels().with_tools(&engine, check).await??;
            }
            (_, None, _) => return Err(FrameRefusal::missing("payload.result")),
        }
        let answered = self.hub.store().answer_tool_call(self.context(by), id, frame.payload.clone()).await;
        answered.map_err(about("tool call"))?;
        Ok(())
    }
}

/// The same frame from the same principal maps to the same run.
fn key(by: &Principal, msg_id: &str) -> String {
    format!("envelope:{}:{}", by.actor(), blake3::hash(msg_id.as_bytes()).to_hex())
}

/// The response payload for `execute`.
pub(crate) fn started(run: &Run) -> Result<Json, FrameRefusal> {
    Ok(yes("execute", &status(run)?))
}

fn status(run: &Run) -> Result<Json, FrameRefusal> {
    let text = format!(
        r#"{{"task_run_id":"{}","conversation_id":"{}","status":"{}"}}"#,
        run.task_run_id,
        run.conversation_id,
        run.status.as_str()
    );
    Json::from_text(text).map_err(|error| Error::internal(&error).into())
}
