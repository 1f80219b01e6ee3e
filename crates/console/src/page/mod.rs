//! The pages of the console, one file each.

pub(crate) mod agent;
pub(crate) mod agents;
pub(crate) mod approval;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod channel;
pub(crate) mod channels;
pub(crate) mod delegations;
pub(crate) mod deliveries;
pub(crate) mod login;
pub(crate) mod pair;
pub(crate) mod people;
pub(crate) mod person;
pub(crate) mod quota;
pub(crate) mod rules;
pub(crate) mod run;
pub(crate) mod run_attach;
pub(crate) mod run_facts;
pub(crate) mod run_files;
pub(crate) mod run_new;
pub(crate) mod run_wait;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod usage;

use std::collections::HashMap;

use askama::Template;
use attache_hub::identity::{AccessVerdict, Action};
use attache_protocol::{AgentId, Timestamp, UserId, wire::account::Account};
use axum::{
    body::Body,
    extract::{Query, State},
    http::{Response, StatusCode, Uri},
    response::{Html, IntoResponse as _, Redirect},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::{
    ConsoleState,
    layout::{NavSection, PageLayout},
    problem::PageResult,
    session::BrowserSession,
    text::Text,
    view::{actor::Names, run::ViewContext},
};

/// Maximum number of names per lookup.
const NAMES: usize = 200;

const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The navigation fragment, reloaded when its counts change.
#[derive(Template)]
#[template(path = "nav.html")]
struct NavFragment {
    t: &'static Text,
    shell: PageLayout,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NavQuery {
    at: String,
}

/// A tab that selects a view of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ViewTab {
    pub(crate) href: String,
    pub(crate) label: &'static str,
    pub(crate) current: bool,
}

pub(crate) async fn nav(
    State(console): State<ConsoleState>,
    session: BrowserSession,
    Query(asked): Query<NavQuery>,
    uri: Uri,
) -> PageResult {
    let shell = PageLayout::new(&console, &session, NavSection::from_text(&asked.at), &uri).await?;
    html(&NavFragment { t: session.t, shell })
}

pub(crate) async fn home() -> Redirect {
    Redirect::to("/runs")
}

pub(crate) fn html(page: &impl Template) -> PageResult {
    Ok(Html(page.render()?).into_response())
}

/// Renders a page with a status, such as a form that was refused.
pub(crate) fn html_as(status: StatusCode, page: &impl Template) -> PageResult {
    Ok((status, Html(page.render()?)).into_response())
}

/// Redirects after a form, so that a reload doesn't submit it again.
pub(crate) fn redirect_after_form(to: &str) -> Response<Body> {
    Redirect::to(to).into_response()
}

/// Encodes a value for a query.
pub(crate) fn encode(value: &str) -> String {
    utf8_percent_encode(value, QUERY).to_string()
}

/// Builds a path with the query parameters that have a value.
pub(crate) fn address(path: &str, members: &[(&str, &str)]) -> String {
    let query: Vec<_> = members
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

/// Up to two hundred agents, for forms.
pub(crate) async fn agents(console: &ConsoleState, session: &BrowserSession) -> PageResult<Vec<Account>> {
    let page = attache_hub::control::PageRequest { limit: Some(200), cursor: None };
    Ok(console.hub.accounts(&session.principal, page).await?.agent_accounts)
}

/// The names of agents by id.
pub(crate) async fn agent_names(
    console: &ConsoleState,
    session: &BrowserSession,
) -> PageResult<HashMap<AgentId, String>> {
    let agents = agents(console, session).await?;
    Ok(agents.into_iter().map(|account| (account.agent_id, account.name)).collect())
}

/// Whether the viewer may manage this agent and its devices.
pub(crate) fn manages(session: &BrowserSession, account: &Account) -> bool {
    match session.principal.verdict(Action::EditAgent) {
        AccessVerdict::Yes => true,
        AccessVerdict::Own => session.principal.user == account.owner_id,
        AccessVerdict::No => false,
    }
}

/// The name of a person, or a placeholder if the viewer may not know it.
pub(crate) async fn person_name(console: &ConsoleState, session: &BrowserSession, user: UserId) -> PageResult<String> {
    let (by, o) = (&session.principal, &session.t.admin);
    if by.user == Some(user) {
        return Ok(o.you.to_owned());
    }
    let id = user.to_string();
    let found = names(console, session, [id.clone()]).await?;
    Ok(found.get(&id).unwrap_or(o.somebody).to_owned())
}

/// The names of ids and actors. Empty for those that the viewer may not know.
pub(crate) async fn names(
    console: &ConsoleState,
    session: &BrowserSession,
    ids: impl IntoIterator<Item = String>,
) -> PageResult<Names> {
    let mut ids: Vec<String> = ids.into_iter().collect();
    ids.sort_unstable();
    ids.dedup();
    let mut names = Names::default();
    if session.principal.verdict(Action::SeeRuntimes) == AccessVerdict::No {
        return Ok(names);
    }
    for ids in ids.chunks(NAMES) {
        names.0.extend(console.hub.names(&session.principal, ids).await?.names);
    }
    Ok(names)
}

/// The viewer and the current time.
#[derive(Debug)]
pub(crate) struct PageViewer {
    me: String,
    t: &'static Text,
    now: Timestamp,
    names: Names,
}

// === impl PageViewer ===

impl PageViewer {
    pub(crate) fn new(console: &ConsoleState, session: &BrowserSession) -> Self {
        Self {
            me: session.principal.actor().to_string(),
            t: session.t,
            now: console.hub.now(),
            names: Names::default(),
        }
    }

    /// Adds the names of the ids and actors that the page mentions.
    pub(crate) async fn naming(
        console: &ConsoleState,
        session: &BrowserSession,
        ids: impl IntoIterator<Item = String>,
    ) -> PageResult<Self> {
        let names = names(console, session, ids).await?;
        Ok(Self { names, ..Self::new(console, session) })
    }

    pub(crate) fn scene(&self) -> ViewContext<'_> {
        ViewContext { t: self.t, now: self.now, me: &self.me, names: &self.names }
    }
}
