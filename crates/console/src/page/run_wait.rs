//! What a run waits for: approval requests and input requests, decided and answered on the run's page.

use attache_hub::{
    control::{PageRequest, PermissionQuery},
    stream::OutlineScope,
};
use attache_protocol::{
    Code, EventKind, Json, RunId, Timestamp,
    json::pretty,
    rules::{
        permission::PermissionState as Asked,
        run::{RunStatus, WaitReason},
    },
    wire::{event::Event, input_request::GiveInputRequest, run::Run},
};
use axum::extract::Path;
use serde::Deserialize;

use crate::{
    form::SubmittedForm,
    page::{approvals, redirect_after_form},
    problem::{PageError, PageResult},
    session::BrowserSession,
    view::{permission::ApprovalCard, tool_input::FoldedText},
};

/// The open requests of a run.
#[derive(Debug, Default)]
pub(crate) struct RunWaitView {
    pub(crate) cards: Vec<ApprovalCard>,
    pub(crate) question: Option<InputQuestion>,
    /// The time of the run's last event.
    pub(crate) moved: Option<Timestamp>,
}

/// The agent's question, shown as inert text.
#[derive(Debug)]
pub(crate) struct InputQuestion {
    /// The id that an answer refers to.
    pub(crate) id: Option<String>,
    pub(crate) prompt: Option<FoldedText>,
    pub(crate) parts: Option<FoldedText>,
}

pub(crate) async fn load(session: &BrowserSession, run: &Run) -> PageResult<RunWaitView> {
    if run.status != RunStatus::Running {
        return Ok(RunWaitView::default());
    }
    let (hub, by) = (&session.hub, &session.principal);
    let newest = hub.run_events(by, run.task_run_id, Some((run.last_seq - 1).max(0)), Some(1)).await?.events;
    let moved = newest.last().map(|event| event.at);
    let Some(waiting) = run.waiting else { return Ok(RunWaitView { moved, ..RunWaitView::default() }) };
    let query = PermissionQuery { state: Some(Asked::Pending), run: Some(run.task_run_id), agent: None };
    let pending = hub.permissions(by, query, PageRequest { limit: Some(20), cursor: None }).await?;
    let life = hub.run_outline(by, run.task_run_id, i64::MAX, OutlineScope::Artifacts).await?.events;
    let cards = approvals::cards(session, &pending.permission_requests).await?;
    // An approval takes precedence over input, so there may be an open question as well.
    let asked = question(&life, session);
    let question = match (waiting, asked) {
        (_, Some(question)) => Some(question),
        (WaitReason::Input, None) => Some(InputQuestion { id: None, prompt: None, parts: None }),
        (WaitReason::Approval, None) => None,
    };
    Ok(RunWaitView { cards, question, moved })
}

pub(crate) async fn give_input(Path(run): Path<String>, posted: SubmittedForm) -> PageResult {
    let id: RunId = run.parse().map_err(|_| PageError::NoSuchPath)?;
    let SubmittedForm { session, fields } = posted;
    let text = fields.get("text").replace("\r\n", "\n");
    if text.trim().is_empty() {
        return Err(PageError::Form);
    }
    // The answer is for the question that the page showed, even if there is a newer one.
    let input_request_id = fields.non_empty("question").and_then(|question| question.parse().ok());
    let request =
        GiveInputRequest { text: Some(text), parts: None, input_request_id, idempotency_key: fields.non_empty("key") };
    match session.hub.give_input(&session.principal, id, request).await {
        Ok(_) => Ok(redirect_after_form(&format!("/runs/{id}?said=sent"))),
        // The run has just ended. Its page shows how.
        Err(error) if matches!(error.code, Code::RunEnded | Code::NotWaiting) => {
            Ok(redirect_after_form(&format!("/runs/{id}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// The oldest unanswered question among these events. It is answered next.
fn question(events: &[Event], session: &BrowserSession) -> Option<InputQuestion> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct InputRequestData {
        input_request_id: Option<String>,
        prompt: Option<String>,
        parts: Option<Json>,
    }
    let mut open: Vec<InputRequestData> = Vec::new();
    for event in events {
        let data: InputRequestData = event.data.parse().unwrap_or_default();
        match event.event_kind() {
            Some(EventKind::TaskInputRequired | EventKind::TaskAuthorizationRequired) => open.push(data),
            Some(EventKind::TaskInputReceived | EventKind::TaskInputWithdrawn) => {
                open.retain(|asked| asked.input_request_id != data.input_request_id);
            }
            // The worker that asked is gone.
            Some(EventKind::TaskClaimed | EventKind::TaskRequeued) => open.clear(),
            _ => {}
        }
    }
    let asked = open.into_iter().next()?;
    let t = session.t;
    let parts = asked.parts.filter(|parts| parts.get() != "null");
    Some(InputQuestion {
        id: asked.input_request_id,
        prompt: asked.prompt.map(|prompt| FoldedText::new(&prompt, t)),
        parts: parts.map(|parts| FoldedText::new(&pretty(parts.get()), t)),
    })
}
