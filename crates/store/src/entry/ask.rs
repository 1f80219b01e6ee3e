//! Rows of permissions, grants, inputs and tool calls: the table of [`crate::Asks`].

use attache_protocol::{
    AskId, EventKind, GrantId, InputId, Json, PermissionId, Timestamp,
    rules::permission::{Decision, Scope, Source, State},
};
use serde::Serialize;

use super::Entry;
use crate::record::ask::{Input, NewPermission, Permission};

#[derive(Serialize)]
struct Requested<'a> {
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

#[derive(Serialize)]
struct ApprovalNeeded {
    kind: &'static str,
    permission_request_id: PermissionId,
}

#[derive(Serialize)]
struct InputNeeded {
    kind: &'static str,
    input_request_id: AskId,
}

#[derive(Serialize)]
struct Decided<'a> {
    permission_request_id: PermissionId,
    state: State,
    approved: Option<bool>,
    source: Option<Source>,
    by: Option<&'a str>,
    via: Option<&'a str>,
    from: Option<&'a str>,
    scope: Option<Scope>,
    tool_pattern: Option<&'a str>,
    until: Option<Timestamp>,
    this_channel_only: Option<bool>,
    comment: Option<&'a str>,
    grant_id: Option<GrantId>,
}

#[derive(Serialize)]
struct Late {
    permission_request_id: PermissionId,
    approved: bool,
    state: State,
}

#[derive(Serialize)]
struct Grant {
    grant_id: GrantId,
}

#[derive(Serialize)]
struct Required<'a> {
    input_request_id: AskId,
    prompt: &'a str,
    parts: Option<&'a Json>,
}

#[derive(Serialize)]
struct Withdrawn {
    input_request_id: AskId,
}

#[derive(Serialize)]
struct Received<'a> {
    input_id: InputId,
    input_request_id: Option<AskId>,
    parts: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a Json>,
}

#[derive(Serialize)]
struct ToolCalled<'a> {
    tool_call_id: AskId,
    tool_name: &'a str,
    arguments: &'a Json,
}

#[derive(Serialize)]
struct ToolAnswered<'a> {
    tool_call_id: AskId,
    tool_name: &'a str,
    result: &'a Json,
}

pub(crate) fn permission_requested(new: &NewPermission) -> Entry {
    let row = Requested {
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

pub(crate) fn approval_required(permission: PermissionId) -> Entry {
    (EventKind::ActionRequired, Json::of(&ApprovalNeeded { kind: "approval", permission_request_id: permission }))
}

/// A permission that has just been settled.
pub(crate) fn permission_decided(permission: &Permission) -> Entry {
    let settled = permission.settled.as_ref();
    let decision: Option<&Decision> = settled.and_then(|settled| settled.decision.as_ref());
    let row = Decided {
        permission_request_id: permission.id,
        state: permission.state,
        approved: permission.state.approved(),
        source: settled.and_then(|settled| settled.source),
        by: settled.map(|settled| settled.by.as_str()),
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

/// An answer that came too late for the permission as it is.
pub(crate) fn permission_late(permission: &Permission, decision: &Decision) -> Entry {
    let row = Late { permission_request_id: permission.id, approved: decision.approved, state: permission.state };
    (EventKind::PermissionLate, Json::of(&row))
}

pub(crate) fn grant_revoked(grant: GrantId) -> Entry {
    (EventKind::PermissionGrantRevoked, Json::of(&Grant { grant_id: grant }))
}

pub(crate) fn input_required(ask: AskId, prompt: &str, parts: Option<&Json>) -> Entry {
    (EventKind::TaskInputRequired, Json::of(&Required { input_request_id: ask, prompt, parts }))
}

pub(crate) fn authorization_required(ask: AskId, prompt: &str, parts: Option<&Json>) -> Entry {
    (EventKind::TaskAuthorizationRequired, Json::of(&Required { input_request_id: ask, prompt, parts }))
}

pub(crate) fn input_withdrawn(ask: AskId) -> Entry {
    (EventKind::TaskInputWithdrawn, Json::of(&Withdrawn { input_request_id: ask }))
}

pub(crate) fn input_needed(ask: AskId) -> Entry {
    (EventKind::ActionRequired, Json::of(&InputNeeded { kind: "input", input_request_id: ask }))
}

pub(crate) fn input_received(input: &Input) -> Entry {
    let row = Received {
        input_id: input.id,
        input_request_id: input.ask,
        parts: &input.parts,
        message: input.message.as_ref(),
    };
    (EventKind::TaskInputReceived, Json::of(&row))
}

/// For the run's chunks.
pub(crate) fn tool_called(ask: AskId, tool: &str, arguments: &Json) -> Entry {
    (EventKind::TaskToolCall, Json::of(&ToolCalled { tool_call_id: ask, tool_name: tool, arguments }))
}

/// For the run's chunks.
pub(crate) fn tool_answered(ask: AskId, tool: &str, result: &Json) -> Entry {
    (EventKind::TaskToolCall, Json::of(&ToolAnswered { tool_call_id: ask, tool_name: tool, result }))
}
