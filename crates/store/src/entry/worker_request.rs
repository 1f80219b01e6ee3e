//! Rows of permissions, grants, inputs and tool calls: the table of [`crate::WorkerRequestStore`].

use attache_protocol::{
    Actor, EventKind, GrantId, InputId, Json, PermissionId, Timestamp, WorkerRequestId,
    rules::permission::{ApprovalDecision, DecisionScope, DecisionSource, PermissionState},
};
use serde::Serialize;

use super::LogEntry;
use crate::record::worker_request::{InputRecord, NewPermission, PermissionRecord};

#[derive(Serialize)]
struct PermissionRequestedData<'a> {
    permission_request_id: PermissionId,
    tool: &'a str,
    input: &'a Json,
    cwd: Option<&'a str>,
    paths: &'a [String],
    reason: Option<&'a str>,
    risk: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    undisclosed: &'a [String],
}

/// A call to a private agent. Everyone who sees the calling run can read the row, so it doesn't say what is asked.
#[derive(Serialize)]
struct PrivateCallRequestedData<'a> {
    permission_request_id: PermissionId,
    tool: &'a str,
    private: bool,
}

#[derive(Serialize)]
struct ApprovalRequiredData {
    kind: &'static str,
    permission_request_id: PermissionId,
}

#[derive(Serialize)]
struct InputNeededData {
    kind: &'static str,
    input_request_id: WorkerRequestId,
}

#[derive(Serialize)]
struct PermissionDecidedData<'a> {
    permission_request_id: PermissionId,
    state: PermissionState,
    approved: Option<bool>,
    source: Option<DecisionSource>,
    by: Option<&'a Actor>,
    via: Option<&'a str>,
    from: Option<&'a str>,
    scope: Option<DecisionScope>,
    tool_pattern: Option<&'a str>,
    until: Option<Timestamp>,
    this_channel_only: Option<bool>,
    comment: Option<&'a str>,
    grant_id: Option<GrantId>,
}

#[derive(Serialize)]
struct PermissionLateData {
    permission_request_id: PermissionId,
    approved: bool,
    state: PermissionState,
}

#[derive(Serialize)]
struct GrantRevokedData {
    grant_id: GrantId,
}

#[derive(Serialize)]
struct InputRequiredData<'a> {
    input_request_id: WorkerRequestId,
    prompt: &'a str,
    parts: Option<&'a Json>,
}

#[derive(Serialize)]
struct InputWithdrawnData {
    input_request_id: WorkerRequestId,
}

#[derive(Serialize)]
struct InputReceivedData<'a> {
    input_id: InputId,
    input_request_id: Option<WorkerRequestId>,
    parts: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a Json>,
}

#[derive(Serialize)]
struct ToolCallData<'a> {
    tool_call_id: WorkerRequestId,
    tool_name: &'a str,
    arguments: &'a Json,
}

#[derive(Serialize)]
struct ToolResultData<'a> {
    tool_call_id: WorkerRequestId,
    tool_name: &'a str,
    result: &'a Json,
}

pub(crate) fn permission_requested(new: &NewPermission) -> LogEntry {
    if new.private_agent {
        let row = PrivateCallRequestedData { permission_request_id: new.id, tool: &new.tool, private: true };
        return (EventKind::PermissionRequested, Json::of(&row));
    }
    let row = PermissionRequestedData {
        permission_request_id: new.id,
        tool: &new.tool,
        input: &new.input,
        cwd: new.cwd.as_deref(),
        paths: &new.paths,
        reason: new.reason.as_deref(),
        risk: new.risk.as_deref(),
        diff: new.diff.as_deref(),
        undisclosed: &new.undisclosed,
    };
    (EventKind::PermissionRequested, Json::of(&row))
}

pub(crate) fn approval_required(permission: PermissionId) -> LogEntry {
    (EventKind::ActionRequired, Json::of(&ApprovalRequiredData { kind: "approval", permission_request_id: permission }))
}

/// A permission that has just been settled.
pub(crate) fn permission_decided(permission: &PermissionRecord) -> LogEntry {
    let settled = permission.settled.as_ref();
    let decision: Option<&ApprovalDecision> = settled.and_then(|settled| settled.decision.as_ref());
    let row = PermissionDecidedData {
        permission_request_id: permission.id,
        state: permission.state,
        approved: permission.state.approved(),
        source: settled.and_then(|settled| settled.source),
        by: settled.map(|settled| &settled.by),
        via: settled.and_then(|settled| settled.via.as_deref()),
        from: settled.and_then(|settled| settled.from.as_deref()),
        scope: decision.map(|decision| decision.scope),
        tool_pattern: decision.and_then(|decision| decision.tool_pattern.as_deref()),
        until: decision.and_then(|decision| decision.until),
        this_channel_only: decision.map(|decision| decision.this_channel_only),
        comment: decision.and_then(|decision| decision.comment.as_deref()),
        grant_id: settled.and_then(|settled| settled.grant),
    };
    (EventKind::PermissionDecided, Json::of(&row))
}

/// An answer that came too late for the permission's current state.
pub(crate) fn permission_late(permission: &PermissionRecord, decision: &ApprovalDecision) -> LogEntry {
    let row = PermissionLateData {
        permission_request_id: permission.id,
        approved: decision.approved,
        state: permission.state,
    };
    (EventKind::PermissionLate, Json::of(&row))
}

pub(crate) fn grant_revoked(grant: GrantId) -> LogEntry {
    (EventKind::PermissionGrantRevoked, Json::of(&GrantRevokedData { grant_id: grant }))
}

pub(crate) fn input_required(ask: WorkerRequestId, prompt: &str, parts: Option<&Json>) -> LogEntry {
    (EventKind::TaskInputRequired, Json::of(&InputRequiredData { input_request_id: ask, prompt, parts }))
}

pub(crate) fn authorization_required(ask: WorkerRequestId, prompt: &str, parts: Option<&Json>) -> LogEntry {
    (EventKind::TaskAuthorizationRequired, Json::of(&InputRequiredData { input_request_id: ask, prompt, parts }))
}

pub(crate) fn input_withdrawn(ask: WorkerRequestId) -> LogEntry {
    (EventKind::TaskInputWithdrawn, Json::of(&InputWithdrawnData { input_request_id: ask }))
}

pub(crate) fn input_needed(ask: WorkerRequestId) -> LogEntry {
    (EventKind::ActionRequired, Json::of(&InputNeededData { kind: "input", input_request_id: ask }))
}

pub(crate) fn input_received(input: &InputRecord) -> LogEntry {
    let row = InputReceivedData {
        input_id: input.id,
        input_request_id: input.ask,
        parts: &input.parts,
        message: input.message.as_ref(),
    };
    (EventKind::TaskInputReceived, Json::of(&row))
}

/// For the run's chunks.
pub(crate) fn tool_called(ask: WorkerRequestId, tool: &str, arguments: &Json) -> LogEntry {
    (EventKind::TaskToolCall, Json::of(&ToolCallData { tool_call_id: ask, tool_name: tool, arguments }))
}

/// For the run's chunks.
pub(crate) fn tool_answered(ask: WorkerRequestId, tool: &str, result: &Json) -> LogEntry {
    (EventKind::TaskToolCall, Json::of(&ToolResultData { tool_call_id: ask, tool_name: tool, result }))
}
