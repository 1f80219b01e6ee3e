//! Renders frames from store records. Changes nothing.

use attache_protocol::{
    ChannelId, EventKind, Json, PermissionId, RunId, TenantId, WorkerRequestId, digest,
    json::Members,
    rules::{permission, run::RunPhase},
    wire::{
        envelope::{ApprovalResponse, EnvelopeMetadata, ExecuteFrame, FrameType},
        event::Event,
        input_request::WorkerRequestState,
    },
};
use attache_store::record::{
    AgentRef, ClaimedRunRecord,
    channel::OutboxFrame,
    worker_request::{PermissionRecord, WorkerRequestKind, WorkerRequestRecord},
};
use uuid::Uuid;

use super::{
    response::{FrameDraft, no, object, yes},
    tools::ChannelTools,
};
use crate::{Error, Handle, Result, channel::FrameRefusal, error::about, start_secrets::InputRecipient};

/// A question whose answer doesn't come as an outbox frame.
#[derive(Debug, Clone)]
pub(super) struct PendingRequest {
    pub(super) run: RunId,
    pub(super) question: PendingRequestKind,
    /// The frame that asked.
    pub(super) request: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingRequestKind {
    Permission(PermissionId),
    Ask(WorkerRequestId),
}

/// Where a frame is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameAddress<'a> {
    pub(super) tenant: TenantId,
    pub(super) channel: ChannelId,
    pub(super) peer: &'a str,
    pub(super) seq: i64,
}

/// A frame's id is derived from its position, so that a repeated frame is recognised.
pub(super) fn msg_id(channel: ChannelId, seq: i64) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(channel.uuid().as_bytes());
    hasher.update(&seq.to_le_bytes());
    digest::uuid(hasher.finalize()).to_string()
}

/// A frame to a worker, or a tool call to an engine.
pub(super) async fn frame(
    hub: &Handle,
    to: FrameAddress<'_>,
    frame: OutboxFrame,
    fresh: Option<Box<ClaimedRunRecord>>,
) -> Result<String> {
    let id = msg_id(to.channel, to.seq);
    let draft = |kind, payload| FrameDraft {
        msg_id: Some(id.clone()),
        seq: Some(to.seq),
        ..FrameDraft::new(kind, to.peer, payload)
    };
    match frame {
        OutboxFrame::Execute { run, epoch } => match claimed(hub, to.tenant, run, epoch, fresh).await? {
            Some((claimed, metadata)) => {
                let mut draft = draft(FrameType::Request, claimed.payload());
                draft.metadata = Some(metadata);
                Ok(draft.text(hub))
            }
            // The claim was gone before its worker received it.
            None => Ok(draft(FrameType::Notification, cancelled(run)).text(hub)),
        },
        OutboxFrame::Cancel { run } => Ok(draft(FrameType::Notification, cancelled(run)).text(hub)),
        OutboxFrame::Input { run, input } => {
            let given = hub.store().input(run, input).await.map_err(about("input"))?;
            let given = hub.input_in_full(to.tenant, given, InputRecipient::Channel(to.channel)).await;
            let mut members = vec![("task_run_id", quoted(&run)), ("parts", given.parts.get().to_owned())];
            members.extend(given.message.map(|message| ("message", message.get().to_owned())));
            members.push(("input_id", quoted(&input)));
            let mut draft = draft(FrameType::Notification, object_of("input", &members));
            // The same id over every channel, so that a worker that registers again receives it once.
            draft.msg_id = Some(input.uuid().to_string());
            Ok(draft.text(hub))
        }
        OutboxFrame::Permission { permission: id } => {
            let found = hub.store().permission(to.tenant, id).await.map_err(about("permission request"))?;
            let mut draft = draft(FrameType::Response, permission(&found));
            draft.parent = found.request.as_deref();
            Ok(draft.text(hub))
        }
        OutboxFrame::Answer { ask } => {
            let found = hub.store().worker_request(to.tenant, ask).await.map_err(about("question"))?;
            let found = hub.ask_in_full(to.tenant, found, InputRecipient::Channel(to.channel)).await;
            let mut draft = draft(FrameType::Response, answer(&found));
            draft.parent = found.request.as_deref();
            Ok(draft.text(hub))
        }
        OutboxFrame::ToolCall { ask } => {
            let found = hub.store().worker_request(to.tenant, ask).await.map_err(about("tool call"))?;
            let follow = hub.store().follower(found.run).await.map_err(about("tool call"))?;
            let mut draft = match found.state {
                WorkerRequestState::Pending => draft(FrameType::Request, tool_call(&found)),
                // No one waits for it any more. Sent as a request, it would run the tool once too often.
                WorkerRequestState::Answered | WorkerRequestState::Expired | WorkerRequestState::Cancelled => {
                    draft(FrameType::Notification, tool_called(&found))
                }
            };
            draft.msg_id = Some(ask.uuid().to_string());
            draft.parent = follow.as_ref().map(|follow| follow.message.as_str());
            Ok(draft.text(hub))
        }
        OutboxFrame::Event { run, .. } => Ok(draft(FrameType::Notification, cancelled(run)).text(hub)),
    }
}

fn cancelled(run: RunId) -> Json {
    object("cancel", &[("task_run_id", &quoted(&run))])
}

fn quoted(id: &impl std::fmt::Display) -> String {
    format!("\"{id}\"")
}

fn object_of(action: &str, members: &[(&str, String)]) -> Json {
    let members: Vec<(&str, &str)> = members.iter().map(|(name, value)| (*name, value.as_str())).collect();
    object(action, &members)
}

/// The claim as a pull would return it, with the caller's tools. `None` if another worker has it by now. `fresh` is the
/// store's answer to a claim made just now.
pub(super) async fn claimed(
    hub: &Handle,
    tenant: TenantId,
    run: RunId,
    epoch: i64,
    fresh: Option<Box<ClaimedRunRecord>>,
) -> Result<Option<(ExecuteFrame, EnvelopeMetadata)>> {
    let store = hub.store();
    let is_it = |claimed: &ClaimedRunRecord| claimed.run.id == run && claimed.run.state.epoch == epoch;
    let claimed = match fresh.filter(|fresh| is_it(fresh)) {
        Some(fresh) => *fresh,
        None => {
            let run = store.run(tenant, run).await.map_err(about("run"))?;
            let agent = store.account(tenant, AgentRef::Id(run.agent)).await.map_err(about("agent"))?;
            let conversation = store.conversation(tenant, run.conversation).await.map_err(about("conversation"))?;
            ClaimedRunRecord {
                left: store.left(tenant, run.id).await.map_err(about("run"))?,
                instructing_owner: agent.instructing_owner(),
                agent_instructions: agent.instructions,
                conversation_metadata: conversation.metadata,
                run,
            }
        }
    };
    let run = &claimed.run;
    if run.state.epoch != epoch || !matches!(run.state.phase, RunPhase::Running(_)) {
        return Ok(None);
    }
    let metadata = EnvelopeMetadata { trace_id: run.spec.trace_id.clone(), ttl: Some(run.spec.ttl), auth_token: None };
    let follow = store.follower(run.id).await.map_err(about("run"))?;
    let empty = || Json::from_text("[]").expect("[] is JSON");
    let (allowed, tools) = match follow {
        Some(follow) => {
            let engine = store.channel(tenant, follow.channel).await.map_err(about("channel"))?;
            ChannelTools::offered(&engine.tools, run.spec.allowed_tools.as_ref())
        }
        None => (run.spec.allowed_tools.clone().unwrap_or_else(empty), empty()),
    };
    Ok(hub.show_claim(claimed).await?.map(|claimed| (ExecuteFrame::new(claimed, allowed, tools), metadata)))
}

/// The response to `require_approval`.
pub(super) fn permission(found: &PermissionRecord) -> Json {
    let decision = found.settled.as_ref().and_then(|settled| settled.decision.as_ref());
    let comment = match (found.state, decision) {
        (permission::PermissionState::Expired, _) => Some("The request expired unanswered.".to_owned()),
        (_, decision) => decision.and_then(|decision| decision.comment.clone()),
    };
    let approved = ApprovalResponse {
        approved: found.state == permission::PermissionState::Approved,
        permission_request_id: found.id,
        scope: decision.map(|decision| decision.scope),
        comment,
    };
    yes("require_approval", &Json::of(&approved))
}

/// The response to `require_input` or `call_tool`.
pub(super) fn answer(found: &WorkerRequestRecord) -> Json {
    let action = match found.what {
        WorkerRequestKind::Input { .. } | WorkerRequestKind::Authorization { .. } => "require_input",
        WorkerRequestKind::Tool { .. } => "call_tool",
    };
    let given = match (found.state, &found.answer) {
        (WorkerRequestState::Answered, Some(given)) => given,
        (WorkerRequestState::Cancelled, _) => {
            return no(
                Some(action),
                &Error::new(attache_protocol::Code::RunEnded, "The answer is no longer needed.").into(),
            );
        }
        _ => {
            let mut refusal = FrameRefusal::new(attache_protocol::Code::NotWaiting, "The question expired unanswered.");
            refusal.code = "timed_out";
            return no(Some(action), &refusal);
        }
    };
    match found.what {
        WorkerRequestKind::Input { .. } | WorkerRequestKind::Authorization { .. } => {
            let message = found.message.as_ref().map(|message| format!(r#","message":{}"#, message.get()));
            let members = Json::from_text(format!(r#"{{"parts":{}{}}}"#, given.get(), message.unwrap_or_default()));
            yes(action, &members.unwrap_or_else(|_| Json::empty_object()))
        }
        WorkerRequestKind::Tool { .. } => tool_result(given),
    }
}

/// The engine's result, unchanged.
fn tool_result(reply: &Json) -> Json {
    #[derive(serde::Deserialize)]
    struct ToolReply {
        #[serde(default)]
        ok: Option<bool>,
        #[serde(default)]
        result: Option<Json>,
        #[serde(default)]
        error: Option<Json>,
    }
    let said = reply.parse::<ToolReply>().unwrap_or(ToolReply { ok: None, result: None, error: None });
    let null = "null".to_owned();
    match (said.ok, said.result, said.error) {
        (Some(false), _, error) | (None, None, error @ Some(_)) => {
            let error = error.map_or(null, |error| error.get().to_owned());
            object("call_tool", &[("ok", "false"), ("error", &error)])
        }
        (_, result, _) => {
            let result = result.map_or(null, |result| result.get().to_owned());
            object("call_tool", &[("ok", "true"), ("result", &result)])
        }
    }
}

fn tool_call(found: &WorkerRequestRecord) -> Json {
    let WorkerRequestKind::Tool { tool, arguments } = &found.what else { return object("call_tool", &[]) };
    let members = [
        ("task_run_id", quoted(&found.run)),
        ("tool_name", Json::of(tool).get().to_owned()),
        ("arguments", arguments.get().to_owned()),
    ];
    object_of("call_tool", &members)
}

/// A finished tool call in the shape of an event. It is not part of the run's stream, so it has no seq.
fn tool_called(found: &WorkerRequestRecord) -> Json {
    let WorkerRequestKind::Tool { tool, .. } = &found.what else { return object("event", &[]) };
    let members = [
        ("task_run_id", quoted(&found.run)),
        ("type", quoted(&"tool.called")),
        ("at", Json::of(&found.asked_at).get().to_owned()),
        ("data", format!(r#"{{"tool_name":{},"state":"{}"}}"#, Json::of(tool).get(), found.state.as_str())),
    ];
    object_of("event", &members)
}

/// Whether the event asks a question that is already settled.
pub(super) async fn is_settled(hub: &Handle, tenant: TenantId, event: &Event) -> Result<bool> {
    let settled = match event.event_kind() {
        Some(EventKind::PermissionRequested) => {
            match serde_json::from_str(&member(&event.data, "permission_request_id")) {
                Ok(id) => hub.store().permission(tenant, id).await.map(|found| found.settled.is_some()),
                Err(_) => return Ok(false),
            }
        }
        Some(EventKind::TaskInputRequired) => match serde_json::from_str(&member(&event.data, "input_request_id")) {
            Ok(id) => {
                hub.store().worker_request(tenant, id).await.map(|found| found.state != WorkerRequestState::Pending)
            }
            Err(_) => return Ok(false),
        },
        _ => return Ok(false),
    };
    match settled {
        // What no longer exists can't be answered.
        Err(attache_store::Error::NotFound) => Ok(true),
        settled => settled.map_err(about("question")),
    }
}

/// A plain event as in the run's stream, for a settled question, so that it isn't answered again.
pub(super) fn plain_event(run: RunId, event: &Event) -> (FrameType, Json, Option<String>) {
    let members = [
        ("task_run_id", quoted(&run)),
        ("seq", event.seq.to_string()),
        ("type", Json::of(&event.kind).get().to_owned()),
        ("at", Json::of(&event.at).get().to_owned()),
        ("data", event.data.get().to_owned()),
    ];
    (FrameType::Notification, object_of("event", &members), name(event))
}

/// The id of a question: its answer refers to it, and it stays the same once settled.
fn name(event: &Event) -> Option<String> {
    match event.event_kind() {
        Some(EventKind::PermissionRequested) => answered_by(&event.data, "permission_request_id", PermissionId::uuid),
        Some(EventKind::TaskInputRequired) => answered_by(&event.data, "input_request_id", WorkerRequestId::uuid),
        _ => None,
    }
}

/// A run's event as its engine receives it: type, action and payload, and an id if the engine can answer it.
pub(super) fn event(id: RunId, event: &Event) -> (FrameType, Json, Option<String>) {
    let run = ("task_run_id", quoted(&id));
    let said = |action: &str, names: &[(&str, &str)]| {
        let mut members = vec![run.clone()];
        for (from, to) in names {
            members.push((to, member(&event.data, from)));
        }
        object_of(action, &members)
    };
    match event.event_kind() {
        Some(EventKind::TaskChunk) => (FrameType::Chunk, said("chunk", &[("text", "text")]), None),
        Some(EventKind::TaskThought) => (FrameType::Notification, said("think", &[("text", "thought_text")]), None),
        Some(EventKind::TaskLog) => {
            (FrameType::Notification, said("log", &[("level", "level"), ("message", "message")]), None)
        }
        Some(EventKind::TaskProgress) => {
            (FrameType::Notification, said("progress", &[("message", "message"), ("percent", "percent")]), None)
        }
        Some(EventKind::PermissionRequested) => {
            let mut names = vec!["permission_request_id", "tool", "input", "cwd", "paths", "reason", "risk"];
            names.extend(
                ["diff", "undisclosed", "private"].into_iter().filter(|name| member(&event.data, name) != "null"),
            );
            let names: Vec<(&str, &str)> = names.into_iter().map(|name| (name, name)).collect();
            (FrameType::Request, said("require_approval", &names), name(event))
        }
        Some(EventKind::TaskInputRequired) => {
            let names = ["input_request_id", "prompt", "parts"];
            (FrameType::Request, said("require_input", &names.map(|name| (name, name))), name(event))
        }
        Some(EventKind::TaskCompleted) => (FrameType::Notification, ended("done", run, &event.data), None),
        Some(EventKind::TaskFailed | EventKind::TaskCancelled) => {
            (FrameType::Notification, ended("fail", run, &event.data), None)
        }
        _ => plain_event(id, event),
    }
}

/// A reference to an event that is too large for a frame: its kind, and where to read it.
pub(super) fn reference(
    run: RunId,
    event: &Event,
    (kind, payload, name): (FrameType, Json, Option<String>),
) -> (FrameType, Json, Option<String>) {
    let action = payload.text_member("action").unwrap_or_default();
    let after = event.seq - 1;
    let read = format!("/api/v1/task-runs/{run}/events?after={after}&limit=1");
    let members =
        [("task_run_id", quoted(&run)), ("omitted", "true".to_owned()), ("read", Json::of(&read).get().to_owned())];
    (kind, object_of(&action, &members), name)
}

fn answered_by<T: serde::de::DeserializeOwned>(data: &Json, name: &str, uuid: fn(T) -> Uuid) -> Option<String> {
    let id = serde_json::from_str::<T>(&member(data, name)).ok()?;
    Some(uuid(id).to_string())
}

/// A member of an event's data, byte for byte.
fn member(data: &Json, name: &str) -> String {
    let members = data.parse::<Members>();
    let found = members.ok().and_then(|members| members.find(name).map(|value| value.get().to_owned()));
    found.unwrap_or_else(|| "null".to_owned())
}

/// `done` and `fail`: the run's result in the terms of 001, and unchanged.
fn ended(action: &str, run: (&'static str, String), data: &Json) -> Json {
    let output = member(data, "output");
    let output = Json::from_text(output).unwrap_or_else(|_| Json::empty_object());
    let mut members = vec![run];
    if action == "done" {
        members.push(("result_summary", member(&output, "text")));
        members.push(("artifact_refs", list(member(&output, "artifact_refs"))));
    } else {
        members.push(("error", member(&output, "error")));
        members.push(("code", member(&output, "code")));
    }
    members.push(("usage_stats", member(data, "usage")));
    members.push(("output", output.get().to_owned()));
    object_of(action, &members)
}

fn list(text: String) -> String {
    if text.starts_with('[') { text } else { "[]".to_owned() }
}

#[cfg(test)]
mod tests {
    use attache_protocol::{Timestamp, env::Env};

    use super::*;

    #[test]
    fn events_keep_their_bytes() {
        let run = Env::seeded(1).run_id();
        let told = |kind: &str, data: &str| {
            let data = Json::from_text(data).unwrap();
            let event = Event { seq: 3, kind: kind.to_owned(), at: Timestamp::from_millis(0), data };
            let (_, payload, _) = super::event(run, &event);
            payload.get().replace(&run.to_string(), "R")
        };
        assert_eq!(
            told("task.chunk", r#"{"text":"\u00e9"}"#),
            r#"{"action":"chunk","task_run_id":"R","text":"\u00e9"}"#
        );
        assert_eq!(
            told("task.thought", r#"{"text":"hm"}"#),
            r#"{"action":"think","task_run_id":"R","thought_text":"hm"}"#
        );
        assert_eq!(
            told("task.completed", r#"{"output":{"text":"ok", "n":1.0},"usage":{"tokens":1}}"#),
            r#"{"action":"done","task_run_id":"R","result_summary":"ok","artifact_refs":[],"usage_stats":{"tokens":1},"output":{"text":"ok", "n":1.0}}"#
        );
        assert_eq!(
            told("task.cancelled", r#"{"output":{"error":"enough","code":"cancelled"}}"#),
            r#"{"action":"fail","task_run_id":"R","error":"enough","code":"cancelled","usage_stats":null,"output":{"error":"enough","code":"cancelled"}}"#
        );
        assert_eq!(
            told("task.claimed", r#"{"epoch":1}"#),
            r#"{"action":"event","task_run_id":"R","seq":3,"type":"task.claimed","at":"1970-01-01T00:00:00.000Z","data":{"epoch":1}}"#
        );
    }

    #[test]
    fn an_engines_result_reaches_the_worker_unchanged() {
        let result = |reply: &str| tool_result(&Json::from_text(reply).unwrap()).get().to_owned();
        assert_eq!(
            result(r#"{"ok":true,"result":{"x":1.0}}"#),
            r#"{"action":"call_tool","ok":true,"result":{"x":1.0}}"#
        );
        assert_eq!(result(r#"{"result":"r"}"#), r#"{"action":"call_tool","ok":true,"result":"r"}"#);
        assert_eq!(
            result(r#"{"ok":false,"error":{"code":"x"}}"#),
            r#"{"action":"call_tool","ok":false,"error":{"code":"x"}}"#
        );
    }
}
