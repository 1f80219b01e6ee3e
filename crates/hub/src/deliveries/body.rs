//! The body of a webhook: a function of the run or permission request, so that every attempt has the same bytes.

use attache_protocol::{
    Json,
    wire::{
        call::{CallId, CallResult},
        delivery::{DeliveryKind, PermissionRequestedNotice, RunEndedNotice},
        run::Run,
    },
};
use attache_store::record::worker_request::PermissionRecord;

use crate::{Handle, render};

/// The result and statistics are those of the call API.
pub(super) fn run_ended(hub: &Handle, run: &Run) -> Vec<u8> {
    let told = CallResult::of(run, hub.now());
    write(&RunEndedNotice {
        event: DeliveryKind::RunEnded,
        call_id: CallId::of(run.task_run_id).to_string(),
        task_run_id: run.task_run_id,
        status: run.status,
        result: told.result.as_ref().map(Json::of),
        error: told.error.and_then(|error| error.parse().ok()),
        code: told.code,
        stats: Json::of(&told.stats),
        ended_at: run.ended_at,
    })
}

/// What a webhook about a permission request leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HiddenDetail {
    Nothing,
    /// What is asked of a private agent: whoever gets the webhook isn't necessarily its owner.
    Input,
    /// Everything of the step but its tool: the request isn't visible to whoever started the run.
    Step,
}

impl HiddenDetail {
    pub(super) fn of(permission: &PermissionRecord) -> Self {
        if permission.private_agent { Self::Input } else { Self::Nothing }
    }
}

pub(super) fn permission_requested(hub: &Handle, permission: PermissionRecord, hidden: HiddenDetail) -> Vec<u8> {
    let (private, is_shown) = (hidden != HiddenDetail::Nothing, hidden != HiddenDetail::Step);
    let asked = render::permission(permission);
    write(&PermissionRequestedNotice {
        event: DeliveryKind::PermissionRequested,
        decide_url: format!("{}/approvals/{}", hub.origin(), asked.permission_request_id),
        permission_request_id: asked.permission_request_id,
        task_run_id: asked.task_run_id,
        agent_name: asked.agent_name,
        tool: asked.tool,
        input: (!private).then_some(asked.input),
        private,
        cwd: asked.cwd.filter(|_| is_shown),
        paths: if is_shown { asked.paths } else { Vec::new() },
        reason: asked.reason.filter(|_| is_shown),
        risk: asked.risk,
        diff: asked.diff.filter(|_| is_shown),
        undisclosed: if is_shown { asked.undisclosed } else { Vec::new() },
        expires_at: asked.expires_at,
    })
}

fn write(body: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("our own types serialise to JSON")
}
