//! Putting an agent to work: a new run, or an old one again.

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
    Console,
    form::{Fields, Posted, PostedFiles},
    page::{
        agents, go, html,
        run_attach::{self, Attached},
    },
    problem::{Fault, Result},
    session::Session,
    shell::{Place, Shell},
    text::Text,
    view::{
        agent::Choice,
        limit::{Limit, limits},
    },
};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    agent: String,
}

#[derive(Template)]
#[template(path = "run_new.html")]
struct Page {
    t: &'static Text,
    shell: Shell,
    agents: Vec<Choice>,
    limits: Vec<Limit>,
    text: String,
    problem: Option<String>,
}

#[derive(Serialize)]
struct Input<'a> {
    text: &'a str,
}

pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    Query(asked): Query<Asked>,
    uri: Uri,
) -> Result {
    form(&console, &session, &uri, &asked.agent, String::new(), None).await
}

pub(crate) async fn create(State(console): State<Console>, uri: Uri, mut posted: PostedFiles) -> Result {
    let text = posted.fields.get("text").replace("\r\n", "\n");
    let agent = posted.fields.given("agent").ok_or(Fault::Form)?;
    if text.trim().is_empty() {
        return Err(Fault::Form);
    }
    let started = begin(&console, &mut posted, &agent, &text).await;
    let session = posted.session;
    match started {
        Ok(run) => Ok(go(&format!("/runs/{run}"))),
        Err(Fault::Hub(error)) if error.code.http_status() < 500 && error.code.http_status() != 403 => {
            form(&console, &session, &uri, &agent, text, Some(error.message.into_owned())).await
        }
        Err(fault) => Err(fault),
    }
}

/// What is handed over goes the way of a call, as `ask --file` does.
async fn begin(console: &Console, posted: &mut PostedFiles, agent: &str, text: &str) -> Result<RunId> {
    let timeout_ms = timeout(&posted.fields)?;
    let idempotency_key = posted.fields.given("key");
    let Attached { parts, conversation } = run_attach::take(console, posted, first_line(text)).await?;
    if parts.is_empty() {
        let request = CreateRunRequest {
            agent_id: agent.to_owned(),
            input: Some(Json::of(&Input { text })),
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

/// How long it may take, where that was chosen.
pub(crate) fn timeout(fields: &Fields) -> Result<Option<u64>> {
    let given = fields.given("timeout");
    given.map(|text| text.parse().map_err(|_| Fault::Form)).transpose()
}

/// The same task for the same agent, as a run of its own.
pub(crate) async fn again(State(console): State<Console>, Path(run): Path<String>, posted: Posted) -> Result {
    let run: RunId = run.parse().map_err(|_| Fault::NoSuchPath)?;
    let Posted { session, fields } = posted;
    let old = console.hub.run(&session.principal, run).await?;
    let request = CreateRunRequest {
        agent_id: old.agent_id.to_string(),
        task_type: Some(old.task_type),
        input: Some(old.input),
        // A run that named no conversation is one of its own; the new run gets its own too.
        conversation_id: Some(old.conversation_id).filter(|id| *id != run.own_conversation()),
        idempotency_key: fields.given("key"),
        max_attempts: Some(old.max_attempts),
        timeout_ms: Some(old.timeout_ms),
        priority: Some(old.priority),
        ..CreateRunRequest::default()
    };
    let run = start(&console, &session, request).await?;
    Ok(go(&format!("/runs/{run}")))
}

async fn start(console: &Console, session: &Session, request: CreateRunRequest) -> Result<RunId> {
    match console.hub.create_run(&session.principal, request, CallHeaders::default()).await? {
        CreatedRun::New(run) | CreatedRun::Existing(run) => Ok(run.task_run_id),
    }
}

async fn form(
    console: &Console,
    session: &Session,
    uri: &Uri,
    agent: &str,
    text: String,
    problem: Option<String>,
) -> Result {
    let t = session.t;
    let shell = Shell::new(console, session, Place::Runs, uri).await?;
    let agents = agents(console, session).await?.iter().map(|account| Choice::worker(account, agent, t)).collect();
    html(&Page { t, shell, agents, limits: limits(None, t), text, problem })
}
