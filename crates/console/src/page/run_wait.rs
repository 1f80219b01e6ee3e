//! What a run waits for: approval requests and input requests, decided and answered on the run's page.

use attache_hub::control::{PageRequest, PermissionQuery};
use attache_protocol::{
    Code, Json, RunId, Timestamp,
    rules::{permission::PermissionState as Asked, run::RunStatus},
    wire::{input_request::GiveInputRequest, questionnaire::QuestionAnswer, run::Run},
};
use axum::extract::Path;

use crate::{
    form::{FormFields, SubmittedForm},
    page::{inbox, redirect_after_form, run_new},
    problem::{PageError, PageResult},
    session::BrowserSession,
    view::{permission::ApprovalCard, question::QuestionCard},
};

/// More questions than an agent asks at once.
const MAX_QUESTIONS: usize = 50;

/// The open requests of a run.
#[derive(Debug, Default)]
pub(crate) struct RunWaitView {
    pub(crate) cards: Vec<ApprovalCard>,
    pub(crate) question: Option<QuestionCard>,
    /// The time of the run's last event.
    pub(crate) moved: Option<Timestamp>,
}

pub(crate) async fn load(session: &BrowserSession, run: &Run) -> PageResult<RunWaitView> {
    if run.status != RunStatus::Running {
        return Ok(RunWaitView::default());
    }
    let (hub, by) = (&session.hub, &session.principal);
    let newest = hub.run_events(by, run.task_run_id, Some((run.last_seq - 1).max(0)), Some(1)).await?.events;
    let moved = newest.last().map(|event| event.at);
    if run.waiting.is_none() {
        return Ok(RunWaitView { moved, ..RunWaitView::default() });
    }
    let query = PermissionQuery { state: Some(Asked::Pending), run: Some(run.task_run_id), agent: None };
    let pending = hub.permissions(by, query, PageRequest { limit: Some(20), cursor: None }).await?;
    let cards = inbox::cards(session, &pending.permission_requests).await?;
    // An approval takes precedence over input, so there may be an open question as well.
    let open = hub.open_question(by, run.task_run_id).await?;
    let question = inbox::questions(session, open.as_slice()).await?.pop();
    Ok(RunWaitView { cards, question, moved })
}

/// The answers to questions with options, if any was answered.
fn chosen(fields: &FormFields) -> Option<Json> {
    let count = fields.get("questions").parse::<usize>().ok()?.min(MAX_QUESTIONS);
    let answer = |number: usize| QuestionAnswer {
        selected: fields.all(&format!("choice-{number}")).map(str::to_owned).collect(),
        text: fields.non_empty(&format!("own-{number}")),
    };
    let answers: Vec<QuestionAnswer> = (0..count).map(answer).collect();
    answers.iter().any(|answer| *answer != QuestionAnswer::default()).then(|| QuestionAnswer::to_parts(answers))
}

pub(crate) async fn give_input(Path(run): Path<String>, posted: SubmittedForm) -> PageResult {
    let id: RunId = run.parse().map_err(|_| PageError::NoSuchPath)?;
    let SubmittedForm { session, fields } = posted;
    let text = Some(fields.get("text").replace("\r\n", "\n")).filter(|text| !text.trim().is_empty());
    let parts = chosen(&fields);
    if text.is_none() && parts.is_none() {
        return Err(PageError::Form);
    }
    // The answer is for the question that the page showed, even if there is a newer one.
    let input_request_id = fields.non_empty("question").and_then(|question| question.parse().ok());
    // What was said to the working agent answers nothing that it has asked since.
    let unsolicited = input_request_id.is_none() && fields.get("unsolicited") == "true";
    let idempotency_key = fields.non_empty("key");
    let request = GiveInputRequest { text, parts, input_request_id, unsolicited, idempotency_key };
    match session.hub.give_input(&session.principal, id, request).await {
        Ok(_) if fields.get("back") == "inbox" => Ok(redirect_after_form("/inbox?said=sent")),
        Ok(_) if fields.get("back") == "conversation" => {
            let run = session.hub.run(&session.principal, id).await?;
            Ok(redirect_after_form(&format!("/conversations/{}", run.conversation_id)))
        }
        Ok(_) => Ok(redirect_after_form(&format!("/runs/{id}?said=sent"))),
        // It comes too late for this run, so it is the next message.
        Err(error)
            if matches!(error.code, Code::RunEnded | Code::NotWaiting)
                && fields.get("back") == "conversation"
                && fields.get("question").is_empty() =>
        {
            let run = session.hub.run(&session.principal, id).await?;
            run_new::follow(&session, &run, &fields).await?;
            Ok(redirect_after_form(&format!("/conversations/{}#reply", run.conversation_id)))
        }
        // The run has just ended. Its page shows how.
        Err(error) if matches!(error.code, Code::RunEnded | Code::NotWaiting) => {
            Ok(redirect_after_form(&format!("/runs/{id}")))
        }
        Err(error) => Err(error.into()),
    }
}
