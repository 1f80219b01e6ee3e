//! The list of runs, with filters in the query and cursor paging.

use std::collections::HashMap;

use askama::Template;
use attache_hub::control::{PageRequest, RunQuery};
use attache_protocol::{
    AgentId, Code, RunId,
    rules::run::RunStatus,
    wire::{
        account::Account,
        run::{Run, RunList},
    },
};
use axum::extract::Query;
use serde::Deserialize;

use crate::{
    layout::PageLayout,
    page::{PageViewer, address, html},
    problem::PageResult,
    session::BrowserSession,
    text::Text,
    view::{
        run::{RunListRow, task},
        status,
    },
};

const PAGE_SIZE: usize = 50;
/// How many pages a search reads before it shows its matches.
const MAX_SEARCH_PAGES: usize = 20;
/// Maximum number of rows per request.
const MAX_ROWS: usize = 60;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunsPageQuery {
    status: String,
    agent: String,
    q: String,
    cursor: String,
}

/// Which runs are shown.
#[derive(Debug, Clone, Default)]
struct RunsPageFilter {
    status: Option<RunStatus>,
    agent: String,
    text: String,
    cursor: String,
}

#[derive(Debug)]
struct RunTab {
    href: String,
    label: &'static str,
    current: bool,
    count: Option<u64>,
}

#[derive(Debug)]
struct FilterChip {
    href: String,
    name: &'static str,
    value: String,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    t: &'static Text,
    shell: PageLayout,
    filter: RunsPageFilter,
    summary: String,
    tabs: Vec<RunTab>,
    chips: Vec<FilterChip>,
    rows: Vec<RunListRow>,
    scanned: Option<String>,
    older: Option<String>,
    newest: String,
    here: String,
    empty_title: &'static str,
    empty_text: &'static str,
    empty_command: Option<String>,
}

#[derive(Template)]
#[template(path = "run_rows.html")]
struct RunRowsFragment {
    t: &'static Text,
    shell: PageLayout,
    summary: String,
    rows: Vec<RunListRow>,
}

/// The runs found.
#[derive(Debug)]
struct RunSearchResult {
    runs: Vec<Run>,
    next: Option<String>,
    /// How many runs the search has read.
    scanned: Option<usize>,
}

pub(crate) async fn list(session: BrowserSession, Query(asked): Query<RunsPageQuery>) -> PageResult {
    let t = session.t;
    let filter = RunsPageFilter::new(asked);
    let shell = PageLayout::new(&session).await?;
    let live = session.hub.live(&session.principal).await?;
    let found = find(&session, &filter).await?;
    let rows = views(&session, &found.runs).await?;
    let unfiltered = filter.status.is_none() && filter.agent.is_empty() && filter.text.is_empty();
    let (empty_title, empty_text, empty_command) = if unfiltered && rows.is_empty() {
        let agents = crate::page::agents(&session).await?;
        match agents.first() {
            Some(agent) => {
                (t.empty_first, t.empty_first_text, Some(format!("attache ask {} \"uname -a\"", agent.name)))
            }
            None => (t.empty_first, t.empty_no_agents_text, Some("attache agents add builder".to_owned())),
        }
    } else {
        (t.empty_filtered, t.empty_filtered_text, None)
    };
    html(&RunsPage {
        t,
        summary: summary(live.pending, live.running, t),
        tabs: tabs(&filter, live.pending, live.running, t),
        chips: chips(&filter, t),
        rows,
        scanned: found.scanned.map(|count| t.scanned(count as u64)),
        older: found.next.map(|cursor| RunsPageFilter { cursor, ..filter.clone() }.href()),
        newest: RunsPageFilter { cursor: String::new(), ..filter.clone() }.href(),
        here: filter.href(),
        empty_title,
        empty_text,
        empty_command,
        shell,
        filter,
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunRowsQuery {
    ids: String,
}

/// The current rows of the given runs.
pub(crate) async fn rows(session: BrowserSession, Query(wanted): Query<RunRowsQuery>) -> PageResult {
    let shell = PageLayout::new(&session).await?;
    let live = session.hub.live(&session.principal).await?;
    let mut runs = Vec::new();
    for id in wanted.ids.split(',').filter_map(|id| id.parse::<RunId>().ok()).take(MAX_ROWS) {
        match session.hub.run(&session.principal, id).await {
            Ok(run) => runs.push(run),
            Err(error) if error.code == Code::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    let rows = views(&session, &runs).await?;
    html(&RunRowsFragment { t: session.t, shell, summary: summary(live.pending, live.running, session.t), rows })
}

/// Converts runs to rows, with one lookup per agent.
pub(crate) async fn views(session: &BrowserSession, runs: &[Run]) -> PageResult<Vec<RunListRow>> {
    let viewer = PageViewer::naming(session, runs.iter().map(|run| run.caller.clone())).await?;
    let mut accounts: HashMap<AgentId, Account> = HashMap::new();
    for run in runs {
        if accounts.contains_key(&run.agent_id) {
            continue;
        }
        match session.hub.account(&session.principal, &run.agent_id.to_string()).await {
            Ok(account) => {
                accounts.insert(run.agent_id, account);
            }
            Err(error) if error.code == Code::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(runs.iter().map(|run| RunListRow::new(run, accounts.get(&run.agent_id), viewer.scene())).collect())
}

async fn find(session: &BrowserSession, filter: &RunsPageFilter) -> PageResult<RunSearchResult> {
    if filter.text.is_empty() {
        let list = page(session, filter, &filter.cursor).await?;
        return Ok(RunSearchResult { runs: list.task_runs, next: list.next_cursor, scanned: None });
    }
    let wanted = filter.text.to_lowercase();
    let mut found = RunSearchResult { runs: Vec::new(), next: None, scanned: Some(0) };
    let mut cursor = filter.cursor.clone();
    for _ in 0..MAX_SEARCH_PAGES {
        let list = page(session, filter, &cursor).await?;
        found.scanned = found.scanned.map(|count| count + list.task_runs.len());
        let matches = |run: &Run| run.task_run_id.to_string() == wanted || task(run).to_lowercase().contains(&wanted);
        found.runs.extend(list.task_runs.into_iter().filter(matches));
        found.next = list.next_cursor;
        match &found.next {
            Some(next) if found.runs.len() < PAGE_SIZE => cursor.clone_from(next),
            _ => break,
        }
    }
    Ok(found)
}

async fn page(session: &BrowserSession, filter: &RunsPageFilter, cursor: &str) -> PageResult<RunList> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let query = RunQuery {
        status: filter.status,
        agent: given(&filter.agent),
        page: PageRequest { limit: Some(PAGE_SIZE), cursor: given(cursor) },
        ..RunQuery::default()
    };
    match session.hub.runs(&session.principal, query).await {
        Ok(list) => Ok(list),
        // An unknown agent has no runs. The user can remove the filter on the page.
        Err(error) if !filter.agent.is_empty() && matches!(error.code, Code::NotFound | Code::InvalidRequest) => {
            Ok(RunList { task_runs: Vec::new(), next_cursor: None })
        }
        Err(error) => Err(error.into()),
    }
}

fn summary(pending: u64, running: u64, t: &Text) -> String {
    if pending + running == 0 {
        return t.summary_idle.to_owned();
    }
    t.summary_live(running, pending)
}

fn tabs(filter: &RunsPageFilter, pending: u64, running: u64, t: &'static Text) -> Vec<RunTab> {
    let tab = |status: Option<RunStatus>, label, count| RunTab {
        href: RunsPageFilter { status, cursor: String::new(), ..filter.clone() }.href(),
        label,
        current: filter.status == status,
        count,
    };
    let mut tabs = vec![tab(None, t.tab_all, None)];
    for known in status::ALL {
        let count = match known {
            RunStatus::Pending => Some(pending),
            RunStatus::Running => Some(running),
            RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled => None,
        };
        // The counts cover all agents, so they are shown only without other filters.
        let count = count.filter(|_| filter.agent.is_empty() && filter.text.is_empty());
        tabs.push(tab(Some(known), status::of(known, t).word, count));
    }
    tabs
}

fn chips(filter: &RunsPageFilter, t: &'static Text) -> Vec<FilterChip> {
    let mut chips = Vec::new();
    let first = RunsPageFilter { cursor: String::new(), ..filter.clone() };
    if !filter.agent.is_empty() {
        let href = RunsPageFilter { agent: String::new(), ..first.clone() }.href();
        chips.push(FilterChip { href, name: t.filter_agent, value: filter.agent.clone() });
    }
    if !filter.text.is_empty() {
        let href = RunsPageFilter { text: String::new(), ..first }.href();
        chips.push(FilterChip { href, name: t.filter_text, value: filter.text.clone() });
    }
    chips
}

// === impl RunsPageFilter ===

impl RunsPageFilter {
    fn new(asked: RunsPageQuery) -> Self {
        Self {
            status: status::parse(&asked.status),
            agent: asked.agent.trim().to_owned(),
            text: asked.q.trim().chars().take(200).collect(),
            cursor: asked.cursor,
        }
    }

    fn status_text(&self) -> Option<&'static str> {
        self.status.map(status::key)
    }

    fn href(&self) -> String {
        address(
            "/runs",
            &[
                ("status", self.status_text().unwrap_or_default()),
                ("agent", &self.agent),
                ("q", &self.text),
                ("cursor", &self.cursor),
            ],
        )
    }
}
