//! The page of one conversation: what people and agents said, what the agents did, and a box for the next message.

use askama::Template;
use attache_hub::control::{PageRequest, RunQuery};
use attache_protocol::{
    ConversationId, Timestamp,
    wire::{conversation::ConversationMessage, host_session::ContinuedSession, run::Run},
};
use axum::extract::{Path, Query};
use serde::Deserialize;

use crate::{
    layout::PageLayout,
    page::{PageViewer, address, agents, conversations::conversation_title, host_sessions, html, run},
    problem::{PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        agent::AgentChoice,
        conversation::{ConversationMessageView, ConversationTurn, RunTurn, UndeliveredMessage},
        log::{LogItem, LogItemBody, LogItemKind, join},
        permission_mode::{PermissionModeChoice, modes, remembered},
        run::RunPageDetail,
        status,
        time::TimeElement,
        tool_input::ToolInputBlock,
    },
};

/// How many runs one page shows.
const MAX_RUNS: usize = 20;
/// How many pages of messages are read.
const MAX_MESSAGE_PAGES: usize = 10;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConversationPageQuery {
    cursor: String,
}

#[derive(Template)]
#[template(path = "conversation.html")]
struct ConversationPage {
    t: &'static Text,
    shell: PageLayout,
    id: String,
    title: String,
    turns: Vec<ConversationTurn>,
    earlier: Option<String>,
    /// Shows the end of the conversation, where the next message goes.
    is_newest: bool,
    agents: Vec<AgentChoice>,
    modes: Vec<PermissionModeChoice>,
    /// An agent that still works, so that the next message waits.
    busy: Option<String>,
    /// The run that takes a message while it works.
    takes_input: Option<String>,
    /// The command that goes on with it in a terminal of the agent's device.
    command: Option<String>,
    /// Nothing was said yet: the next message continues a session of a terminal.
    continues: bool,
    /// Where an answer on this page leads back to.
    back: &'static str,
}

pub(crate) async fn show(
    session: BrowserSession,
    Path(conversation): Path<String>,
    Query(asked): Query<ConversationPageQuery>,
) -> PageResult {
    let id: ConversationId = conversation.parse().map_err(|_| PageError::NoSuchPath)?;
    let (hub, by, t) = (&session.hub, &session.principal, session.t);
    let shell = PageLayout::new(&session).await?;
    let known = hub.conversation(by, id).await?;
    let cursor = (!asked.cursor.is_empty()).then(|| asked.cursor.clone());
    let query = RunQuery { conversation_id: Some(id), limit: Some(MAX_RUNS), cursor, ..RunQuery::default() };
    let mut found = hub.runs(by, query).await?;
    found.task_runs.reverse();
    let is_newest = asked.cursor.is_empty();
    let messages = if is_newest { own_messages(&session, id).await? } else { Vec::new() };
    let since = match (&found.next_cursor, found.task_runs.first()) {
        (Some(_), Some(first)) => first.created_at,
        _ => Timestamp::from_millis(0),
    };
    let mut turns: Vec<(Timestamp, ConversationTurn)> = Vec::new();
    let viewer = PageViewer::naming(&session, messages.iter().map(|message| message.author.clone())).await?;
    for message in messages.iter().filter(|message| message.created_at >= since) {
        turns.push((
            message.created_at,
            ConversationTurn::Message(ConversationMessageView::new(message, viewer.view_context())),
        ));
    }
    let mut takes_input = None;
    for run in &found.task_runs {
        let (turn, hears) = turn(&session, run).await?;
        takes_input = hears.then(|| run.task_run_id.to_string());
        turns.push((run.created_at, ConversationTurn::Run(Box::new(turn))));
    }
    turns.sort_by_key(|(at, _)| *at);
    let newest = found.task_runs.last();
    let title = match (known.title.filter(|title| !title.trim().is_empty()), newest) {
        (Some(title), _) => title,
        (None, Some(run)) => conversation_title(&session, run).await?,
        (None, None) => t.conversation.to_owned(),
    };
    let accounts = agents(&session).await?;
    let continued = ContinuedSession::of(known.metadata.as_ref()).map(|session| session.agent_id);
    let answering = newest.map(|run| run.agent_id).or(continued);
    let command = match answering {
        Some(agent) => host_sessions::command(&session, agent, id).await?,
        None => None,
    };
    let answering = answering.map(|agent| agent.to_string()).unwrap_or_default();
    html(&ConversationPage {
        t,
        id: id.to_string(),
        title,
        turns: turns.into_iter().map(|(_, turn)| turn).collect(),
        earlier: found.next_cursor.map(|cursor| address(&format!("/conversations/{id}"), &[("cursor", &cursor)])),
        is_newest,
        agents: accounts.iter().map(|account| AgentChoice::worker(account, &answering, t)).collect(),
        modes: modes(remembered(newest, &accounts), t),
        busy: newest.filter(|run| !status::has_ended(run.status)).map(|run| run.agent_name.clone()),
        takes_input,
        command,
        continues: newest.is_none() && continued.is_some(),
        back: "conversation",
        shell,
    })
}

/// What people wrote into the conversation without starting a run.
async fn own_messages(session: &BrowserSession, id: ConversationId) -> PageResult<Vec<ConversationMessage>> {
    let (mut messages, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_MESSAGE_PAGES {
        let page = PageRequest { limit: Some(200), cursor };
        let listed = session.hub.messages(&session.principal, id, page).await?;
        messages.extend(listed.messages.into_iter().filter(|message| message.task_run_id.is_none()));
        cursor = listed.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(messages)
}

/// The run as a turn, and whether it takes a message while it works. A question is answered on its card instead.
async fn turn(session: &BrowserSession, run: &Run) -> PageResult<(RunTurn, bool)> {
    let loaded = run::load(session, run.task_run_id).await?;
    let events = run::log_page(session, &loaded.run, 0).await?;
    let viewer = run::viewer(session, &loaded.run, &events).await?;
    let mut reader = run::reader(&loaded.run, &loaded.runtimes, &viewer, session.t);
    let after = events.last().map_or(0, |event| event.seq);
    let detail = RunPageDetail::new(&loaded.run, loaded.around(), viewer.view_context());
    let is_shown = |item: &LogItem| match item.kind {
        LogItemKind::Call | LogItemKind::Input => true,
        // The answer repeats what was said on the way to it.
        LogItemKind::Chunk | LogItemKind::Thought | LogItemKind::Progress => !detail.ended,
        LogItemKind::Said | LogItemKind::Host | LogItemKind::Step | LogItemKind::Gap => false,
    };
    let takes_input = loaded.takes_input() && loaded.wait.question.is_none();
    let undelivered = session.hub.undelivered_inputs(&session.principal, &loaded.run).await?;
    let turn = RunTurn {
        asked: ConversationMessageView::task(&loaded.run, &detail),
        items: join(events.iter().map(|event| reader.item(event))).into_iter().filter(is_shown).collect(),
        after,
        is_cut: after < loaded.run.last_seq,
        at: TimeElement::clock(loaded.run.ended_at.or(loaded.run.claimed_at).unwrap_or(loaded.run.created_at)),
        cards: loaded.wait.cards,
        question: loaded.wait.question,
        undelivered: undelivered
            .into_iter()
            .map(|input| UndeliveredMessage { text: input.text, key: format!("again-{}", input.input_id) })
            .collect(),
        run: detail,
    };
    Ok((turn, takes_input))
}
