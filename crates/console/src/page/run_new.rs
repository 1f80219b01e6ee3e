//! Creating a run, or repeating an earlier one.

use askama::Template;
use attache_hub::{
    control::{CallHeaders, CreatedRun},
    identity::{AccessVerdict, Action},
};
use attache_protocol::{
    ConversationId, Json, RunId,
    rules::permission_mode::PermissionMode,
    wire::{
        account::Presence,
        call::CallRequest,
        run::{CreateRunRequest, Run},
    },
};
use axum::extract::{Path, Query};
use serde::{Deserialize, Serialize};

use crate::{
    form::{FormFields, PostedFiles, SubmittedForm},
    layout::PageLayout,
    page::{
        agents, html, may_call, redirect_after_form,
        run_attach::{self, TaskAttachments},
    },
    problem::{PageError, PageResult, message},
    session::BrowserSession,
    text::Text,
    view::{
        agent::AgentChoice,
        html::{Markup, PageLink},
        permission_mode::{PermissionModeChoice, modes, remembered},
        run::{task_text, title},
        time_limit::{TimeLimitChoice, limits},
    },
};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NewRunPageQuery {
    agent: String,
    /// The run that the new one is based on.
    from: String,
    /// Whether it goes on in that run's conversation.
    reply: bool,
}

/// What the form shows at first.
#[derive(Debug, Default)]
struct NewRunDraft {
    agent: String,
    text: String,
    timeout_ms: Option<u64>,
    mode: Option<PermissionMode>,
    conversation: Option<ConversationId>,
    /// The run that it is based on.
    from: Option<RunId>,
    lead: Option<Markup>,
    problem: Option<String>,
}

#[derive(Template)]
#[template(path = "run_new.html")]
struct NewRunPage {
    t: &'static Text,
    shell: PageLayout,
    agents: Vec<AgentChoice>,
    limits: Vec<TimeLimitChoice>,
    modes: Vec<PermissionModeChoice>,
    draft: NewRunDraft,
}

#[derive(Serialize)]
struct NewRunInput<'a> {
    text: &'a str,
}

pub(crate) async fn show(session: BrowserSession, Query(asked): Query<NewRunPageQuery>) -> PageResult {
    if asked.from.is_empty() {
        return form(&session, NewRunDraft { agent: asked.agent, ..NewRunDraft::default() }).await;
    }
    let from: RunId = asked.from.parse().map_err(|_| PageError::NoSuchPath)?;
    let old = session.hub.run(&session.principal, from).await?;
    let link = Markup::of(PageLink(&format!("/runs/{from}"), &title(&old, session.t)));
    let draft = NewRunDraft {
        agent: old.agent_id.to_string(),
        text: task_text(&old).unwrap_or_default(),
        timeout_ms: Some(old.timeout_ms),
        mode: remembered(Some(&old), &agents(&session).await?),
        conversation: shared_conversation(&old).or(asked.reply.then_some(old.conversation_id)),
        from: Some(from),
        lead: Some(session.t.edit_lead(link)),
        problem: None,
    };
    form(&session, draft).await
}

pub(crate) async fn create(mut posted: PostedFiles) -> PageResult {
    let text = posted.fields.get("text").replace("\r\n", "\n");
    let agent = posted.fields.non_empty("agent").ok_or(PageError::Form)?;
    if text.trim().is_empty() {
        return Err(PageError::Form);
    }
    let conversation = posted.fields.non_empty("conversation").map(|id| id.parse().map_err(|_| PageError::Form));
    let conversation: Option<ConversationId> = conversation.transpose()?;
    let from = based_on(&posted.fields)?;
    let started = begin(&mut posted, &agent, &text, conversation).await;
    let PostedFiles { session, fields, .. } = posted;
    match started {
        Ok(_) if let ("conversation", Some(id)) = (fields.get("back"), conversation) => {
            Ok(redirect_after_form(&format!("/conversations/{id}#reply")))
        }
        Ok(run) => Ok(redirect_after_form(&format!("/runs/{run}"))),
        // What was typed is kept, unless the person may start no runs at all.
        Err(PageError::Hub(error)) if error.code.http_status() < 500 && may_create(&session) => {
            let problem = Some(message(&error, session.t).into_owned());
            let (timeout_ms, mode) = (timeout(&fields)?, mode(&fields)?);
            form(&session, NewRunDraft { agent, text, timeout_ms, mode, conversation, from, lead: None, problem }).await
        }
        Err(fault) => Err(fault),
    }
}

fn may_create(session: &BrowserSession) -> bool {
    session.principal.verdict(Action::CreateRun) != AccessVerdict::No
}

/// The conversation of a run, unless it has one of its own.
fn shared_conversation(run: &Run) -> Option<ConversationId> {
    Some(run.conversation_id).filter(|id| *id != run.task_run_id.own_conversation())
}

/// Files are sent the same way as with `ask --file`. A conversation that was made for them goes again if the run is
/// refused.
async fn begin(
    posted: &mut PostedFiles,
    agent: &str,
    text: &str,
    conversation: Option<ConversationId>,
) -> PageResult<RunId> {
    let mut attached = TaskAttachments { conversation, ..TaskAttachments::default() };
    let begun = begin_with(posted, agent, text, &mut attached).await;
    if let (Err(_), Some(made), None) = (&begun, attached.conversation, conversation) {
        let conversation = made;
        let session = &posted.session;
        if let Err(error) = session.hub.delete_conversation(&session.principal, conversation).await {
            tracing::debug!(%conversation, %error, "the files of a refused run were not removed");
        }
    }
    begun
}

async fn begin_with(
    posted: &mut PostedFiles,
    agent: &str,
    text: &str,
    attached: &mut TaskAttachments,
) -> PageResult<RunId> {
    let (timeout_ms, permission_mode) = (timeout(&posted.fields)?, mode(&posted.fields)?);
    let idempotency_key = posted.fields.non_empty("key");
    let headers = CallHeaders { idempotency_key, repeats: based_on(&posted.fields)?, ..CallHeaders::default() };
    run_attach::take(posted, agent, attached).await?;
    let parts = std::mem::take(&mut attached.parts);
    if parts.is_empty() {
        let request = CreateRunRequest {
            agent_id: agent.to_owned(),
            input: Some(Json::of(&NewRunInput { text })),
            conversation_id: attached.conversation,
            timeout_ms,
            permission_mode,
            ..CreateRunRequest::default()
        };
        return start(&posted.session, request, headers).await;
    }
    let call = CallRequest {
        task: text.to_owned(),
        agent_type: Some(agent.to_owned()),
        conversation_id: attached.conversation,
        parts: Some(parts),
        timeout_ms,
        permission_mode,
        ..CallRequest::default()
    };
    Ok(posted.session.hub.call(&posted.session.principal, call, headers).await?.run())
}

/// The earlier run that the form was filled with, if any.
fn based_on(fields: &FormFields) -> PageResult<Option<RunId>> {
    fields.non_empty("from").map(|id| id.parse().map_err(|_| PageError::Form)).transpose()
}

/// The chosen time limit, if any.
pub(crate) fn timeout(fields: &FormFields) -> PageResult<Option<u64>> {
    let given = fields.non_empty("timeout");
    given.map(|text| text.parse().map_err(|_| PageError::Form)).transpose()
}

/// The chosen permission mode, if any.
fn mode(fields: &FormFields) -> PageResult<Option<PermissionMode>> {
    let given = fields.non_empty("mode");
    given.map(|text| PermissionMode::from_text(&text).ok_or(PageError::Form)).transpose()
}

/// Starts the next run of this one's conversation with the message of the form.
pub(crate) async fn follow(session: &BrowserSession, run: &Run, fields: &FormFields) -> PageResult<RunId> {
    let text = fields.get("text").replace("\r\n", "\n");
    let request = CreateRunRequest {
        agent_id: run.agent_id.to_string(),
        conversation_id: Some(run.conversation_id),
        input: Some(Json::of(&NewRunInput { text: &text })),
        permission_mode: mode(fields)?,
        ..CreateRunRequest::default()
    };
    let headers = CallHeaders { idempotency_key: fields.non_empty("key"), ..CallHeaders::default() };
    start(session, request, headers).await
}

/// Runs the same task with the same agent again.
pub(crate) async fn rerun(Path(run): Path<String>, posted: SubmittedForm) -> PageResult {
    let run: RunId = run.parse().map_err(|_| PageError::NoSuchPath)?;
    let SubmittedForm { session, fields } = posted;
    let old = session.hub.run(&session.principal, run).await?;
    // In a conversation, the new run is its next turn.
    let conversation = (fields.get("back") == "conversation").then_some(old.conversation_id);
    let run = repeat(&session, old, conversation, fields.non_empty("key")).await?;
    Ok(match conversation {
        Some(conversation) => redirect_after_form(&format!("/conversations/{conversation}#reply")),
        None => redirect_after_form(&format!("/runs/{run}")),
    })
}

/// Starts a run like this one. Without a conversation, a run that had its own gets its own again.
pub(crate) async fn repeat(
    session: &BrowserSession,
    old: Run,
    conversation: Option<ConversationId>,
    idempotency_key: Option<String>,
) -> PageResult<RunId> {
    let request = CreateRunRequest {
        agent_id: old.agent_id.to_string(),
        conversation_id: conversation.or_else(|| shared_conversation(&old)),
        input: Some(old.input),
        timeout_ms: Some(old.timeout_ms),
        ..CreateRunRequest::default()
    };
    let headers = CallHeaders { idempotency_key, repeats: Some(old.task_run_id), ..CallHeaders::default() };
    start(session, request, headers).await
}

async fn start(session: &BrowserSession, request: CreateRunRequest, headers: CallHeaders) -> PageResult<RunId> {
    match session.hub.create_run(&session.principal, request, headers).await? {
        CreatedRun::New(run) | CreatedRun::Existing(run) => Ok(run.task_run_id),
    }
}

async fn form(session: &BrowserSession, mut draft: NewRunDraft) -> PageResult {
    let t = session.t;
    let shell = PageLayout::new(session).await?;
    let mut known = agents(session).await?;
    known.retain(|account| may_call(session, account));
    if draft.agent.is_empty() {
        // An agent that can start right away.
        let ready = known.iter().find(|account| account.status == Presence::Online);
        draft.agent = ready.map(|account| account.agent_id.to_string()).unwrap_or_default();
    }
    let agents = known.iter().map(|account| AgentChoice::worker(account, &draft.agent, t)).collect();
    html(&NewRunPage { t, shell, agents, limits: limits(draft.timeout_ms, t), modes: modes(draft.mode, t), draft })
}
