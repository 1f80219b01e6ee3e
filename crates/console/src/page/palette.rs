//! What the palette finds: pages, actions, agents, conversations, runs and documents, as far as the viewer may see them.

use askama::Template;
use attache_hub::control::{PageRequest, RunQuery};
use axum::extract::Query;
use serde::Deserialize;

use crate::{
    docs,
    layout::PageLayout,
    page::{self, conversations::conversation_title, html},
    problem::PageResult,
    session::BrowserSession,
    text::Text,
    view::{run::title, status},
};

/// The most entries of one group.
const MAX_ENTRIES: usize = 6;
/// Shorter texts are looked for in names alone.
const MIN_SEARCHED: usize = 2;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PaletteQuery {
    q: String,
}

#[derive(Debug)]
struct PaletteGroup {
    title: &'static str,
    entries: Vec<PaletteEntry>,
}

#[derive(Debug)]
struct PaletteEntry {
    href: String,
    icon: &'static str,
    title: String,
    note: String,
}

#[derive(Template)]
#[template(path = "palette.html")]
struct PaletteFragment {
    groups: Vec<PaletteGroup>,
}

pub(crate) async fn find(session: BrowserSession, Query(asked): Query<PaletteQuery>) -> PageResult {
    let t = session.t;
    let text: String = asked.q.trim().chars().filter(|character| !character.is_control()).take(100).collect();
    let shell = PageLayout::new(&session).await?;
    let mut groups = vec![
        PaletteGroup { title: t.palette_actions, entries: actions(&shell, t) },
        PaletteGroup { title: t.palette_pages, entries: pages(&shell, t) },
        PaletteGroup { title: t.agents, entries: agents(&session).await? },
    ];
    let wanted = text.to_lowercase();
    for group in &mut groups {
        group.entries.retain(|entry| entry.title.to_lowercase().contains(&wanted));
    }
    groups[2].entries.truncate(MAX_ENTRIES);
    let (runs, conversations) = work(&session, &text).await?;
    groups.insert(0, PaletteGroup { title: t.runs, entries: runs });
    groups.insert(1, PaletteGroup { title: t.conversations, entries: conversations });
    if !wanted.is_empty() {
        groups.push(PaletteGroup { title: t.docs, entries: documents(&wanted, t) });
        // What a person types is mostly a name: the places that have it come before the tasks that mention it.
        groups.rotate_left(2);
    }
    groups.retain(|group| !group.entries.is_empty());
    html(&PaletteFragment { groups })
}

fn actions(shell: &PageLayout, t: &'static Text) -> Vec<PaletteEntry> {
    let entry = |href: &str, icon, title: &str| PaletteEntry {
        href: href.to_owned(),
        icon,
        title: title.to_owned(),
        note: String::new(),
    };
    let may = shell.may;
    [
        may.operate.then(|| entry("/runs/new", "plus", t.new_run)),
        may.manage.then(|| entry("/pair", "link", t.pair_device)),
        may.manage.then(|| entry("/agents#new", "agents", t.new_agent)),
        may.keys.then(|| entry("/people#new-key", "key", t.palette_new_key)),
        Some(entry("/runs?status=waiting", "runs", t.tab_waiting)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn pages(shell: &PageLayout, t: &'static Text) -> Vec<PaletteEntry> {
    let links = shell.all_links().filter(|link| !link.icon.is_empty() || link.path != "/settings");
    links
        .map(|link| PaletteEntry {
            href: link.path.to_owned(),
            icon: if link.icon.is_empty() { "settings" } else { link.icon },
            title: link.label(t).to_owned(),
            note: String::new(),
        })
        .collect()
}

async fn agents(session: &BrowserSession) -> PageResult<Vec<PaletteEntry>> {
    let agents = page::agents(session).await?;
    Ok(agents
        .into_iter()
        .map(|account| PaletteEntry {
            href: format!("/agents/{}", account.agent_id),
            icon: "agents",
            title: account.name,
            note: String::new(),
        })
        .collect())
}

/// The newest runs with the text, and the conversations that they and the titles with the text belong to.
async fn work(session: &BrowserSession, text: &str) -> PageResult<(Vec<PaletteEntry>, Vec<PaletteEntry>)> {
    let (hub, by, t) = (&session.hub, &session.principal, session.t);
    if !text.is_empty() && text.chars().count() < MIN_SEARCHED && text.is_ascii() {
        return Ok((Vec::new(), Vec::new()));
    }
    let query =
        RunQuery { text: (!text.is_empty()).then(|| text.to_owned()), limit: Some(MAX_ENTRIES), ..RunQuery::default() };
    let found = hub.runs(by, query).await?.task_runs;
    let mut conversations: Vec<PaletteEntry> = Vec::new();
    let entry = |id: String, title: String| PaletteEntry {
        href: format!("/conversations/{id}"),
        icon: "chat",
        title,
        note: String::new(),
    };
    let titled = hub.conversations(by, PageRequest { limit: Some(100), cursor: None }).await?.conversations;
    let wanted = text.to_lowercase();
    for conversation in titled {
        let Some(title) = conversation.title.filter(|title| !title.trim().is_empty()) else { continue };
        if title.to_lowercase().contains(&wanted) && conversations.len() < MAX_ENTRIES {
            conversations.push(entry(conversation.conversation_id.to_string(), title));
        }
    }
    for run in found.iter().filter(|_| !text.is_empty()) {
        let id = run.conversation_id.to_string();
        let is_own = run.conversation_id == run.task_run_id.own_conversation();
        let href = format!("/conversations/{id}");
        if !is_own && conversations.len() < MAX_ENTRIES && conversations.iter().all(|other| other.href != href) {
            conversations.push(entry(id, conversation_title(session, run).await?));
        }
    }
    let runs = found.iter().map(|run| PaletteEntry {
        href: format!("/runs/{}", run.task_run_id),
        icon: status::of(run.status, t).icon,
        title: title(run, t),
        note: format!("{} · {}", run.agent_name, status::of(run.status, t).word),
    });
    Ok((runs.collect(), conversations))
}

fn documents(wanted: &str, t: &'static Text) -> Vec<PaletteEntry> {
    let found = docs::titles(t).into_iter().filter(|(_, title)| title.to_lowercase().contains(wanted));
    found
        .take(MAX_ENTRIES)
        .map(|(slug, title)| PaletteEntry { href: format!("/docs/{slug}"), icon: "file", title, note: String::new() })
        .collect()
}
