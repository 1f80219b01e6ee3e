//! The list of runs, with filters in the query and cursor paging.

use std::{collections::HashMap, time::Duration};

use askama::Template;
use attache_hub::control::RunQuery;
use attache_protocol::{
    AgentId, Code, RunId,
    rules::{quota::micro_usd, run::RunStatus},
    wire::{
        account::Account,
        run::{Run, RunList},
    },
};
use axum::extract::Query;
use serde::Deserialize;

use crate::{
    layout::PageLayout,
    page::{
        PageViewer, address, html,
        saved_views::{self, SavedViewTab},
    },
    problem::PageResult,
    session::BrowserSession,
    text::Text,
    view::{run::RunListRow, status},
};

const PAGE_SIZE: usize = 50;
/// Maximum number of rows per request.
const MAX_ROWS: usize = 60;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunsPageQuery {
    status: String,
    agent: String,
    caller: String,
    since: String,
    cost: String,
    q: String,
    cursor: String,
}

/// Which runs are shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunsPageFilter {
    tab: RunsTab,
    agent: String,
    caller: String,
    since: Option<SincePeriod>,
    /// The least cost, in dollars.
    cost: String,
    text: String,
    cursor: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum RunsTab {
    #[default]
    All,
    /// Runs that wait for a person.
    Waiting,
    Status(RunStatus),
}

/// How old a run may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SincePeriod {
    Day,
    Week,
    Month,
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
    views: Vec<SavedViewTab>,
    /// The filter can be saved: it is one, and not a view already.
    can_save: bool,
    chips: Vec<FilterChip>,
    agents: Vec<String>,
    /// The runs that wait for a person, before all others.
    waiting: Vec<RunListRow>,
    rows: Vec<RunListRow>,
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

pub(crate) async fn list(session: BrowserSession, Query(asked): Query<RunsPageQuery>) -> PageResult {
    let t = session.t;
    let filter = RunsPageFilter::new(asked);
    let shell = PageLayout::new(&session).await?;
    let live = session.hub.live(&session.principal).await?;
    let found = page(&session, &filter).await?;
    let mut waiting = Vec::new();
    if live.running > 0 {
        let filter = RunsPageFilter { tab: RunsTab::Waiting, cursor: String::new(), ..filter.clone() };
        waiting = page(&session, &filter).await?.task_runs;
    }
    let waiting_count = u64::try_from(waiting.len()).unwrap_or(u64::MAX);
    // What needs a person comes first, however old it is.
    if filter.tab != RunsTab::All || !filter.cursor.is_empty() {
        waiting.clear();
    }
    let is_first = |run: &Run| waiting.iter().any(|other| other.task_run_id == run.task_run_id);
    let others: Vec<Run> = found.task_runs.into_iter().filter(|run| !is_first(run)).collect();
    let waiting = views(&session, &asking(&session, waiting).await?).await?;
    let rows = views(&session, &asking(&session, others).await?).await?;
    let is_empty = rows.is_empty() && waiting.is_empty();
    let agents = crate::page::agents(&session).await?;
    let (empty_title, empty_text, empty_command) = if filter.is_plain() && is_empty {
        match agents.first() {
            Some(agent) => {
                (t.empty_first, t.empty_first_text, Some(format!("attache ask {} \"uname -a\"", agent.name)))
            }
            None => (t.empty_first, t.empty_no_agents_text, Some("attache agents add builder".to_owned())),
        }
    } else {
        (t.empty_filtered, t.empty_filtered_text, None)
    };
    let selectable = shell.may.operate;
    let select = |rows: Vec<RunListRow>| rows.into_iter().map(|row| RunListRow { selectable, ..row }).collect();
    let views = saved_views::tabs(&session, &filter).await?;
    html(&RunsPage {
        t,
        can_save: !filter.is_plain() && session.principal.user.is_some() && views.iter().all(|view| !view.current),
        views,
        summary: summary(live.pending, live.running, t),
        tabs: tabs(&filter, [waiting_count, live.running, live.pending], t),
        chips: chips(&filter, t),
        agents: agents.into_iter().map(|account| account.name).collect(),
        waiting: select(waiting),
        rows: select(rows),
        older: found.next_cursor.map(|cursor| RunsPageFilter { cursor, ..filter.clone() }.href()),
        newest: RunsPageFilter { cursor: String::new(), ..filter.clone() }.href(),
        here: filter.href(),
        empty_title,
        empty_text,
        empty_command,
        shell,
        filter,
    })
}

/// The runs, with what those wait for that wait.
async fn asking(session: &BrowserSession, mut runs: Vec<Run>) -> PageResult<Vec<Run>> {
    for run in runs.iter_mut().filter(|run| run.waiting.is_some()) {
        match session.hub.run(&session.principal, run.task_run_id).await {
            Ok(whole) => run.waits_for = whole.waits_for,
            Err(error) if error.code == Code::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(runs)
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
    let selectable = shell.may.operate;
    let rows = views(&session, &runs).await?.into_iter().map(|row| RunListRow { selectable, ..row }).collect();
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
    Ok(runs.iter().map(|run| RunListRow::new(run, accounts.get(&run.agent_id), viewer.view_context())).collect())
}

async fn page(session: &BrowserSession, filter: &RunsPageFilter) -> PageResult<RunList> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let query = RunQuery {
        status: match filter.tab {
            RunsTab::Status(status) => Some(status),
            RunsTab::All | RunsTab::Waiting => None,
        },
        waiting: filter.tab == RunsTab::Waiting,
        agent_id: given(&filter.agent),
        caller: given(&filter.caller),
        since: filter.since.map(|since| session.hub.now().minus(since.length())),
        text: given(&filter.text),
        min_cost_usd: given(&filter.cost),
        limit: Some(PAGE_SIZE),
        cursor: given(&filter.cursor),
        ..RunQuery::default()
    };
    match session.hub.runs(&session.principal, query).await {
        Ok(list) => Ok(list),
        // An unknown agent or an impossible name has no runs. The user can remove the filter on the page.
        Err(error)
            if !(filter.agent.is_empty()
                && filter.caller.is_empty()
                && filter.text.is_empty()
                && filter.cost.is_empty())
                && matches!(error.code, Code::NotFound | Code::InvalidRequest) =>
        {
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

/// `live` is how many runs wait for a person, run and are queued.
fn tabs(filter: &RunsPageFilter, live: [u64; 3], t: &'static Text) -> Vec<RunTab> {
    // The counts cover all runs, so they are shown only without other filters.
    let is_narrow = !RunsPageFilter { tab: RunsTab::All, ..filter.clone() }.is_plain();
    let tab = |tab: RunsTab, label, count: Option<u64>| RunTab {
        href: RunsPageFilter { tab, cursor: String::new(), ..filter.clone() }.href(),
        label,
        current: filter.tab == tab,
        count: count.filter(|_| !is_narrow),
    };
    let [waiting, running, pending] = live;
    let mut tabs = vec![tab(RunsTab::All, t.tab_all, None), tab(RunsTab::Waiting, t.tab_waiting, Some(waiting))];
    for known in status::ALL {
        let count = match known {
            RunStatus::Pending => Some(pending),
            RunStatus::Running => Some(running),
            RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled => None,
        };
        tabs.push(tab(RunsTab::Status(known), status::of(known, t).word, count));
    }
    tabs
}

fn chips(filter: &RunsPageFilter, t: &'static Text) -> Vec<FilterChip> {
    let first = RunsPageFilter { cursor: String::new(), ..filter.clone() };
    let since = filter.since.map(|since| since.label(t).to_owned()).unwrap_or_default();
    let cost = if filter.cost.is_empty() { String::new() } else { format!("${}", filter.cost) };
    let all = [
        (t.filter_agent, filter.agent.clone(), RunsPageFilter { agent: String::new(), ..first.clone() }),
        (t.filter_caller, filter.caller.clone(), RunsPageFilter { caller: String::new(), ..first.clone() }),
        (t.filter_since, since, RunsPageFilter { since: None, ..first.clone() }),
        (t.filter_cost, cost, RunsPageFilter { cost: String::new(), ..first.clone() }),
        (t.filter_text, filter.text.clone(), RunsPageFilter { text: String::new(), ..first }),
    ];
    let set = all.into_iter().filter(|(_, value, _)| !value.is_empty());
    set.map(|(name, value, without)| FilterChip { href: without.href(), name, value }).collect()
}

// === impl RunsPageFilter ===

impl RunsPageFilter {
    /// Words such as `agent:builder` in the search are filters, too.
    fn new(asked: RunsPageQuery) -> Self {
        let trimmed = |text: &str| text.trim().chars().take(200).collect::<String>();
        let mut filter = Self {
            tab: RunsTab::from_text(&asked.status),
            agent: trimmed(&asked.agent),
            caller: trimmed(&asked.caller),
            since: SincePeriod::from_text(&asked.since),
            cost: trimmed(&asked.cost),
            text: String::new(),
            cursor: asked.cursor,
        };
        let mut words = Vec::new();
        for word in asked.q.split_whitespace() {
            match word.split_once(':') {
                Some(("agent", name)) if !name.is_empty() => filter.agent = trimmed(name),
                Some(("caller", name)) if !name.is_empty() => filter.caller = trimmed(name),
                Some(("status", name)) if RunsTab::from_text(name) != RunsTab::All => {
                    filter.tab = RunsTab::from_text(name);
                }
                Some(("since", name)) if SincePeriod::from_text(name).is_some() => {
                    filter.since = SincePeriod::from_text(name);
                }
                Some(("cost", least)) if micro_usd(least).is_some() => filter.cost = trimmed(least),
                _ => words.push(word),
            }
        }
        // Several blanks are part of what is looked for.
        filter.text =
            if words.len() == asked.q.split_whitespace().count() { trimmed(&asked.q) } else { words.join(" ") };
        filter
    }

    /// The filter of a query such as `status=failed&agent=builder`. What it doesn't know is left out.
    pub(crate) fn of_query(query: &str) -> Self {
        let uri = format!("/runs?{query}").parse().ok();
        let asked = uri.and_then(|uri| Query::<RunsPageQuery>::try_from_uri(&uri).ok());
        asked.map_or_else(Self::default, |Query(asked)| Self::new(asked))
    }

    pub(crate) fn first_page(&self) -> Self {
        Self { cursor: String::new(), ..self.clone() }
    }

    /// Where a form about the filter leads back to.
    pub(crate) fn href_said(&self, said: &str) -> String {
        let href = self.href();
        format!("{href}{}said={said}", if href.contains('?') { '&' } else { '?' })
    }

    /// Whether all runs are shown, from the newest one.
    pub(crate) fn is_plain(&self) -> bool {
        self.tab == RunsTab::All
            && self.since.is_none()
            && self.cost.is_empty()
            && self.agent.is_empty()
            && self.caller.is_empty()
            && self.text.is_empty()
    }

    fn since_text(&self) -> &'static str {
        self.since.map_or("", SincePeriod::as_str)
    }

    pub(crate) fn href(&self) -> String {
        address(
            "/runs",
            &[
                ("status", self.tab.as_str()),
                ("agent", &self.agent),
                ("caller", &self.caller),
                ("since", self.since_text()),
                ("cost", &self.cost),
                ("q", &self.text),
                ("cursor", &self.cursor),
            ],
        )
    }
}

// === impl RunsTab ===

impl RunsTab {
    fn from_text(text: &str) -> Self {
        match text {
            "waiting" => Self::Waiting,
            other => status::parse(other).map_or(Self::All, Self::Status),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Waiting => "waiting",
            Self::Status(status) => status::key(status),
        }
    }
}

// === impl SincePeriod ===

impl SincePeriod {
    const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.as_str() == text)
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "1d",
            Self::Week => "7d",
            Self::Month => "30d",
        }
    }

    const fn length(self) -> Duration {
        const DAY: u64 = 24 * 60 * 60;
        Duration::from_secs(match self {
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
        })
    }

    const fn label(self, t: &'static Text) -> &'static str {
        match self {
            Self::Day => t.since_day,
            Self::Week => t.since_week,
            Self::Month => t.since_month,
        }
    }
}
