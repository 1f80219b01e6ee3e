//! Creating a run, or repeating an earlier one.

use askama::Template;
use attache_hub::control::{CallHeaders, CreatedRun};
use attache_protocol::{
    Json, RunId,
    wire::{call::CallRequest, run::CreateRunRequest},
};
use axum::extract::{Path, Query};
use serde::{Deserialize, Serialize};

use crate::{
    form::{FormFields, PostedFiles, SubmittedForm},
    layout::PageLayout,
    page::{
        agents, html, redirect_after_form,
        run_attach::{self, Attached},
    },
    problem::{PageError, PageResult, message},
    session::BrowserSession,
    text::Text,
    view::{
        agent::AgentChoice,
        time_limit::{TimeLimitChoice, limits},
    },
};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NewRunPageQuery {
    agent: String,
}

#[derive(Template)]
#[template(path = "run_new.html")]
struct NewRunPage {
    t: &'static Text,
    shell: PageLayout,
    agents: Vec<AgentChoice>,
    limits: Vec<TimeLimitChoice>,
    text: String,
    problem: Option<String>,
}

#[derive(Serialize)]
struct NewRunInput<'a> {
    text: &'a str,
}

pub(crate) async fn show(session: BrowserSession, Query(asked): Query<NewRunPageQuery>) -> PageResult {
    form(&session, &asked.agent, String::new(), None).await
}

pub(crate) async fn create(mut posted: PostedFiles) -> PageResult {
    let text = posted.fields.get("text").replace("\r\n", "\n");
    let agent = posted.fields.non_empty("agent").ok_or(PageError::Form)?;
    if text.trim().is_empty() {
        return Err(PageError::Form);
    }
    let started = begin(&mut posted, &agent, &text).await;
    let session = posted.session;
    match started {
        Ok(run) => Ok(redirect_after_form(&format!("/runs/{run}"))),
        Err(PageError::Hub(error)) if error.code.http_status() < 500 && error.code.http_status() != 403 => {
            form(&session, &agent, text, Some(message(&error, session.t).into_owned())).await
        }
        Err(fault) => Err(fault),
    }
}

/// Files are sent the same way as with `ask --file`. Their conversation goes again if the run is refused.
async fn begin(posted: &mut PostedFiles, agent: &str, text: &str) -> PageResult<RunId> {
    let mut attached = Attached::default();
    let begun = begin_with(posted, agent, text, &mut attached).await;
    if let (Err(_), Some(conversation)) = (&begun, attached.conversation) {
        let session = &posted.session;
        if let Err(error) = session.hub.delete_conversation(&session.principal, conversation).await {
            tracing::debug!(%conversation, %error, "the files of a refused run were not removed");
        }
    }
    begun
}

async fn begin_with(posted: &mut PostedFiles, agent: &str, text: &str, attached: &mut Attached) -> PageResult<RunId> {
    let timeout_ms = timeout(&posted.fields)?;
    let idempotency_key = posted.fields.non_empty("key");
    run_attach::take(posted, agent, attached).await?;
    let parts = std::mem::take(&mut attached.parts);
    if parts.is_empty() {
        let request = CreateRunRequest {
            agent_id: agent.to_owned(),
            input: Some(Json::of(&NewRunInput { text })),
            idempotency_key,
            timeout_ms,
            ..CreateRunRequest::default()
        };
        return start(&posted.session, request).await;
    }
    let call = CallRequest {
        task: text.to_owned(),
        agent_type: Some(agent.to_owned()),
        conversation_id: attached.conversation,
        parts: Some(parts),
        timeout_ms,
        ..CallRequest::default()
    };
    let headers = CallHeaders { idempotency_key, ..CallHeaders::default() };
    Ok(posted.session.hub.call(&posted.session.principal, call, headers).await?.run())
}

/// The chosen time limit, if any.
pub(crate) fn timeout(fields: &FormFields) -> PageResult<Option<u64>> {
    let given = fields.non_empty("timeout");
    given.map(|text| text.parse().map_err(|_| PageError::Form)).transpose()
}

/// Runs the same task with the same agent again.
pub(crate) async fn rerun(Path(run): Path<String>, posted: SubmittedForm) -> PageResult {
    let run: RunId = run.parse().map_err(|_| PageError::NoSuchPath)?;
    let SubmittedForm { session, fields } = posted;
    let old = session.hub.run(&session.principal, run).await?;
    let request = CreateRunRequest {
        agent_id: old.agent_id.to_string(),
        task_type: Some(old.task_type),
        input: Some(old.input),
        // If the run had its own conversation, the new run gets its own too.
        conversation_id: Some(old.conversation_id).filter(|id| *id != run.own_conversation()),
        idempotency_key: fields.non_empty("key"),
        max_attempts: Some(old.max_attempts),
        timeout_ms: Some(old.timeout_ms),
        priority: Some(old.priority),
        ..CreateRunRequest::default()
    };
    let run = start(&session, request).await?;
    Ok(redirect_after_form(&format!("/runs/{run}")))
}

async fn start(session: &BrowserSession, request: CreateRunRequest) -> PageResult<RunId> {
    match session.hub.create_run(&session.principal, request, CallHeaders::default()).await? {
        CreatedRun::New(run) | CreatedRun::Existing(run) => Ok(run.task_run_id),
    }
}

async fn form(session: &BrowserSession, agent: &str, text: String, problem: Option<String>) -> PageResult {
    let t = session.t;
    let shell = PageLayout::new(session).await?;
    let agents = agents(session).await?.iter().map(|account| AgentChoice::worker(account, agent, t)).collect();
    html(&NewRunPage { t, shell, agents, limits: limits(None, t), text, problem })
}
