//! The list of conversations, those with the newest runs first.

use askama::Template;
use attache_hub::control::RunQuery;
use attache_protocol::{Code, ConversationId, RunId, wire::run::Run};
use axum::extract::Query;
use serde::Deserialize;

use crate::{
    layout::PageLayout,
    page::{PageViewer, address, agents, host_sessions, html},
    problem::PageResult,
    session::BrowserSession,
    text::Text,
    view::{conversation::ConversationListRow, escape_stripper::plain, host_session::HostSessionRow, run::title},
};

/// How many runs one page of conversations covers.
const PAGE_RUNS: usize = 60;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConversationsPageQuery {
    q: String,
    cursor: String,
}

#[derive(Template)]
#[template(path = "conversations.html")]
struct ConversationsPage {
    t: &'static Text,
    shell: PageLayout,
    text: String,
    rows: Vec<ConversationListRow>,
    /// Sessions of one's own agents' devices that no conversation continues.
    terminal: Vec<HostSessionRow>,
    is_first: bool,
    older: Option<String>,
}

pub(crate) async fn list(session: BrowserSession, Query(asked): Query<ConversationsPageQuery>) -> PageResult {
    let (hub, by) = (&session.hub, &session.principal);
    let shell = PageLayout::new(&session).await?;
    let text: String = asked.q.trim().chars().take(200).collect();
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let query =
        RunQuery { text: given(&text), limit: Some(PAGE_RUNS), cursor: given(&asked.cursor), ..RunQuery::default() };
    let found = hub.runs(by, query).await?;
    let mut newest: Vec<Run> = Vec::new();
    for run in found.task_runs {
        if newest.iter().any(|other| other.conversation_id == run.conversation_id) {
            continue;
        }
        // It was on an earlier page, if it has a newer run. A search shows the run that it found.
        let is_listed = !asked.cursor.is_empty()
            && text.is_empty()
            && newest_run(&session, run.conversation_id).await?.is_some_and(|first| first != run.task_run_id);
        if !is_listed {
            newest.push(run);
        }
    }
    let viewer = PageViewer::new(&session);
    let mut rows = Vec::with_capacity(newest.len());
    for run in newest {
        let title = conversation_title(&session, &run).await?;
        rows.push(ConversationListRow::new(&run, title, viewer.view_context()));
    }
    let cursor = found.next_cursor;
    let terminal = match asked.cursor.is_empty() && text.is_empty() && shell.may.operate {
        true => host_sessions::begun_in_terminal(&session, &agents(&session).await?).await?,
        false => Vec::new(),
    };
    html(&ConversationsPage {
        t: session.t,
        shell,
        older: cursor.map(|cursor| address("/conversations", &[("q", &text), ("cursor", &cursor)])),
        is_first: asked.cursor.is_empty(),
        text,
        rows,
        terminal,
    })
}

async fn newest_run(session: &BrowserSession, conversation: ConversationId) -> PageResult<Option<RunId>> {
    let query = RunQuery { conversation_id: Some(conversation), limit: Some(1), ..RunQuery::default() };
    Ok(session.hub.runs(&session.principal, query).await?.task_runs.first().map(|run| run.task_run_id))
}

/// The title that the conversation was given, or else its first task, or else the task of this run. A part that the viewer
/// may not see doesn't count.
pub(crate) async fn conversation_title(session: &BrowserSession, run: &Run) -> PageResult<String> {
    let (hub, by, id) = (&session.hub, &session.principal, run.conversation_id);
    let own = title(run, session.t);
    if id == run.task_run_id.own_conversation() {
        return Ok(own);
    }
    if let Some(conversation) = visible(hub.conversation(by, id).await)?
        && let Some(named) = conversation.title.map(|title| plain(&title)).filter(|title| !title.trim().is_empty())
    {
        return Ok(named);
    }
    if let Some(first) = visible(hub.run(by, id.first_run()).await)? {
        return Ok(title(&first, session.t));
    }
    let message = visible(hub.first_added_message(by, id).await)?.flatten();
    Ok(message.and_then(|message| first_line(&message.text)).unwrap_or(own))
}

/// `None` if the viewer may not see it.
fn visible<T>(found: attache_hub::Result<T>) -> PageResult<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code == Code::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn first_line(text: &str) -> Option<String> {
    let text = plain(text);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    Some(line.trim().chars().take(160).collect())
}
