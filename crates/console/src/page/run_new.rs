//! Creating a run, or repeating an earlier one.

use askama::Template;
use attache_hub::control::{CallHeaders, CreatedRun};
use attache_protocol::{
    Json, RunId,
    wire::{call::CallRequest, run::CreateRunRequest},
};
use axum::{
    extract::{Path, Query, State},
    http::Uri,
};
use serde::{Deserialize, Serialize};

use crate::{
    ConsoleState,
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

pub(crate) async fn show(
    State(console): State<ConsoleState>,
    session: BrowserSession,
    Query(asked): Query<NewRunPageQuery>,
    uri: Uri,
) -> PageResult {
    form(&console, &session, &uri, &asked.agent, String::new(), None).await
}

pub(crate) async fn create(State(console): State<ConsoleState>, uri: Uri, mut posted: PostedFiles) -> PageResult {
    let text = posted.fields.get("text").replace("\r\n", "\n");
    let agent = posted.fields.non_empty("agent").ok_or(PageError::Form)?;
    if text.trim().is_empty() {
        return Err(PageError::Form);
    }
    let started = begin(&console, &mut posted, &agent, &text).await;
    let session = posted.session;
    match started {
        Ok(run) => Ok(redirect_after_form(&format!("/runs/{run}"))),
        Err(PageError::Hub(error)) if error.code.http_status() < 500 && error.code.http_status() != 403 => {
            form(&console, &session, &uri, &agent, text, Some(message(&error, session.t).into_owned())).await
        }
        Err(fault) => Err(fault),
    }
}

/// Files are sent the same way as with `ask --file`.
async fn begin(console: &ConsoleState, posted: &mut PostedFiles, agent: &str, text: &str) -> PageResult<RunId> {
    let timeout_ms = timeout(&posted.fields)?;
    let idempotency_key = posted.fields.non_empty("key");
    let Attached { parts, conversation } = run_attach::take(console, posted, first_line(text)).await?;
    if parts.is_empty() {
        let request = CreateRunRequest {
            agent_id: agent.to_owned(),
            input: Some(Json::of(&NewRunInput { text })),
            idempotency_key,
            timeout_ms,
            ..CreateRunRequest::default()
        };
        return start(console, &posted.session, request).await;
    }
    let call = CallRequest {
        task: text.to_owned(),
        agent_type: Some(agent.to_owned()),
        conversation_id: conversation,
        parts: Some(parts),
        timeout_ms,
        ..CallRequest::default()
    };
    let headers = CallHeaders { idempotency_key, ..CallHeaders::default() };
    Ok(console.hub.call(&posted.session.principal, call, headers).await?.run())
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

/// The chosen time limit, if any.
pub(crate) fn timeout(fields: &FormFields) -> PageResult<Option<u64>> {
    let given = fields.non_empty("timeout");
    given.map(|text| text.parse().map_err(|_| PageError::Form)).transpose()
}

/// Runs the same task with the same agent again.
pub(crate) async fn rerun(
    State(console): State<ConsoleState>,
    Path(run): Path<String>,
    posted: SubmittedForm,
) -> PageResult {
    let run: RunId = run.parse().map_err(|_| PageError::NoSuchPath)?;
    let SubmittedForm { session, fields } = posted;
    let old = console.hub.run(&session.principal, run).await?;
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
    let run = start(&console, &session, request).await?;
    Ok(redirect_after_form(&format!("/runs/{run}")))
}

async fn start(console: &ConsoleState, session: &BrowserSession, request: CreateRunRequest) -> PageResult<RunId> {
    match console.hub.create_run(&session.principal, request, CallHeaders::default()).await? {
        CreatedRun::New(run) | CreatedRun::Existing(run) => Ok(run.task_run_id),
    }
}

async fn form(
    console: &ConsoleState,
    session: &BrowserSession,
    uri: &Uri,
    agent: &str,
    text: String,
    problem: Option<String>,
) -> PageResult {
    let t = session.t;
    let shell = PageLayout::new(console, session, uri).await?;
    let agents = agents(console, session).await?.iter().map(|account| AgentChoice::worker(account, agent, t)).collect();
    html(&NewRunPage { t, shell, agents, limits: limits(None, t), text, problem })
}
