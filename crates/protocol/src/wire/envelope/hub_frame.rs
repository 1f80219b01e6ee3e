//! Frames that the hub sends to peers: the typed payloads of its requests, notifications and responses.

use serde::{Deserialize, Serialize};

use crate::{
    AgentId, ChannelId, ConversationId, InputId, Json, PermissionId, RunId, Timestamp, WorkspaceId,
    rules::{permission::DecisionScope, permission_mode::PermissionMode},
    wire::{
        adapter::RunTools,
        envelope::{Envelope, FrameError, FrameObject, FrameType, action::FrameToken},
        run::{ClaimedRun, Sandbox},
        usage::Budget,
    },
};

/// `execute`, as a worker receives it: everything in an HTTP claim, plus the members of 001.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecuteFrame {
    pub task_run_id: RunId,
    pub epoch: i64,
    pub conversation_id: ConversationId,
    /// `input.text`, or the complete input as text.
    pub query: String,
    pub context_fragments: Json,
    /// The tools of the caller's engine that the worker may call.
    pub allowed_tools: Json,
    pub workspace_root: Option<String>,
    /// The engine's descriptions of those tools.
    pub tools: Json,
    pub agent_id: AgentId,
    pub workspace_id: WorkspaceId,
    pub task_type: String,
    pub input: Json,
    pub instructions: Option<String>,
    pub parent_task_run_id: Option<RunId>,
    /// The caller, as in an HTTP claim.
    #[serde(default)]
    pub caller: String,
    pub trace_id: Option<String>,
    pub attempt: i64,
    pub lease_expires_at: Timestamp,
    pub deadline: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktree: bool,
    #[serde(default)]
    pub for_owner: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<RunTools>,
}

/// The response to `register`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegisterResponse {
    pub agent_id: Option<AgentId>,
    pub channel_id: ChannelId,
    pub resume_token: FrameToken,
    /// How often the peer must send something.
    pub heartbeat_ms: u64,
}

/// The response to `resume`: frames after `resumed_from` follow, or some are gone and a snapshot describes the
/// resulting state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResumeResponse {
    pub resume_token: FrameToken,
    pub resumed_from: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired: Option<ResumeRepair>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Json>,
    pub heartbeat_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeRepair {
    pub from: i64,
    pub to: i64,
}

/// The response to `require_approval`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalResponse {
    pub approved: bool,
    pub permission_request_id: PermissionId,
    pub scope: Option<DecisionScope>,
    pub comment: Option<String>,
}

/// The worker no longer holds this run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelFrame {
    pub task_run_id: RunId,
}

/// Unsolicited input from the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsolicitedInputFrame {
    pub task_run_id: RunId,
    pub parts: Json,
    /// For `inputs_taken` of `done` and `fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_id: Option<InputId>,
}

/// Why a frame was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameRefusalBody {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    pub field: Option<String>,
    /// The run's current state, if the call came too late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_run: Option<Json>,
}

/// A frame from the hub, as its peer parses it.
#[derive(Debug, Clone, PartialEq)]
pub enum HubFrame {
    Execute(Box<ExecuteFrame>),
    Cancel(CancelFrame),
    Input(UnsolicitedInputFrame),
    /// Decisions about worktrees wait for the device.
    WorktreeDecisions,
    Drain,
    Ack(i64),
    /// A successful response: the complete payload, to be parsed as the type of the request.
    Answer {
        action: Option<String>,
        payload: Json,
    },
    Refused {
        action: Option<String>,
        error: FrameRefusalBody,
    },
    /// An action this version doesn't know.
    Other {
        action: String,
        payload: Json,
    },
}

/// Puts `action` before the members of an object.
pub(super) fn with_action(action: &str, members: &Json) -> Json {
    let members = members.get().strip_prefix('{').unwrap_or("}");
    let comma = if members.trim_start() == "}" { "" } else { "," };
    Json::from_text(format!(r#"{{"action":"{action}"{comma}{members}"#)).expect("an object stays one")
}

// === impl ExecuteFrame ===

impl ExecuteFrame {
    pub fn new(run: ClaimedRun, allowed_tools: Json, tools: Json) -> Self {
        let empty = || Json::from_text("[]").expect("[] is JSON");
        Self {
            query: run.input.text_member("text").unwrap_or_else(|| run.input.get().to_owned()),
            context_fragments: run.context_fragments.unwrap_or_else(empty),
            allowed_tools,
            tools,
            task_run_id: run.task_run_id,
            epoch: run.epoch,
            conversation_id: run.conversation_id,
            workspace_root: run.workspace_root,
            agent_id: run.agent_id,
            workspace_id: run.workspace_id,
            task_type: run.task_type,
            input: run.input,
            instructions: run.instructions,
            parent_task_run_id: run.parent_task_run_id,
            caller: run.caller,
            trace_id: run.trace_id,
            attempt: run.attempt,
            lease_expires_at: run.lease_expires_at,
            deadline: run.deadline,
            budget: run.budget,
            sandbox: run.sandbox,
            permission_mode: run.permission_mode,
            worktree: run.worktree,
            for_owner: run.for_owner,
            host_session: run.host_session,
            mcp: run.mcp,
        }
    }

    pub fn payload(&self) -> Json {
        with_action("execute", &Json::of(self))
    }

    /// The claim, as an HTTP pull would return it.
    pub fn claimed(self) -> ClaimedRun {
        ClaimedRun {
            task_run_id: self.task_run_id,
            agent_id: self.agent_id,
            conversation_id: self.conversation_id,
            workspace_id: self.workspace_id,
            task_type: self.task_type,
            input: self.input,
            instructions: self.instructions,
            context_fragments: Some(self.context_fragments),
            allowed_tools: Some(self.allowed_tools),
            workspace_root: self.workspace_root,
            parent_task_run_id: self.parent_task_run_id,
            caller: self.caller,
            trace_id: self.trace_id,
            epoch: self.epoch,
            attempt: self.attempt,
            lease_expires_at: self.lease_expires_at,
            deadline: self.deadline,
            budget: self.budget,
            sandbox: self.sandbox,
            permission_mode: self.permission_mode,
            worktree: self.worktree,
            for_owner: self.for_owner,
            host_session: self.host_session,
            mcp: self.mcp,
        }
    }
}

// === impl HubFrame ===

impl HubFrame {
    pub fn read(envelope: &Envelope) -> Result<Self, FrameError> {
        let payload = FrameObject::read("payload", envelope.payload.get())?;
        let action = payload.optional::<String>("action")?;
        if envelope.header.kind == FrameType::Response {
            return match payload.optional::<bool>("ok")? {
                Some(false) => {
                    let error = payload.required::<FrameRefusalBody>("error")?;
                    Ok(Self::Refused { action, error })
                }
                Some(true) | None => Ok(Self::Answer { action, payload: envelope.payload.clone() }),
            };
        }
        let whole = |error: serde_json::Error| FrameError::wrong("payload", error);
        let action = action.ok_or_else(|| FrameError::missing("payload.action"))?;
        Ok(match action.as_str() {
            "execute" => Self::Execute(Box::new(envelope.payload.parse().map_err(whole)?)),
            "cancel" => Self::Cancel(envelope.payload.parse().map_err(whole)?),
            "input" => Self::Input(envelope.payload.parse().map_err(whole)?),
            "worktree_decisions" => Self::WorktreeDecisions,
            "drain" => Self::Drain,
            "ack" => Self::Ack(payload.required("seq")?),
            _ => Self::Other { action, payload: envelope.payload.clone() },
        })
    }
}
