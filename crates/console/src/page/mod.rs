//! The pages, one file each.

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
use attache_hub::identity::{Action, Verdict};
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
    Console,
    problem::Result,
    session::Session,
    shell::{Place, Shell},
    text::Text,
    view::{caller::Names, run::Scene},
};

/// So many names are looked up at once.
const NAMES: usize = 200;

const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The navigation alone, for pages that stay while its counts change.
#[derive(Template)]
#[template(path = "nav.html")]
struct Nav {
    t: &'static Text,
    shell: Shell,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NavAsked {
    at: String,
}

/// One of several views of the same list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tab {
    pub(crate) href: String,
    pub(crate) label: &'static str,
    pub(crate) current: bool,
}

pub(crate) async fn nav(
    State(console): State<Console>,
    session: Session,
    Query(asked): Query<NavAsked>,
    uri: Uri,
) -> Result {
    let shell = Shell::new(&console, &session, Place::from_text(&asked.at), &uri).await?;
    html(&Nav { t: session.t, shell })
}

pub(crate) async fn home() -> Redirect {
    Redirect::to("/runs")
}

pub(crate) fn html(page: &impl Template) -> Result {
    Ok(Html(page.render()?).into_response())
}

/// A page that says more with its status: a form that was refused.
pub(crate) fn html_as(status: StatusCode, page: &impl Template) -> Result {
    Ok((status, Html(page.render()?)).into_response())
}

/// Sends the browser on after a form, so that a reload does not send the form again.
pub(crate) fn go(to: &str) -> Response<Body> {
    Redirect::to(to).into_response()
}

/// A value as it stands in a query.
pub(crate) fn encode(value: &str) -> String {
    utf8_percent_encode(value, QUERY).to_string()
}

/// A path with the query members that have a value.
pub(crate) fn address(path: &str, members: &[(&str, &str)]) -> String {
    let query: Vec<_> = members
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

/// Up to two hundred agents, for forms.
pub(crate) async fn agents(console: &Console, session: &Session) -> Result<Vec<Account>> {
    let page = attache_hub::control::PageRequest { limit: Some(200), cursor: None };
    Ok(console.hub.accounts(&session.principal, page).await?.agent_accounts)
}

/// The names of agents by id.
pub(crate) async fn agent_names(console: &Console, session: &Session) -> Result<HashMap<AgentId, String>> {
    let agents = agents(console, session).await?;
    Ok(agents.into_iter().map(|account| (account.agent_id, account.name)).collect())
}

/// Whether the hub would let the viewer change this agent and its devices.
pub(crate) fn manages(session: &Session, account: &Account) -> bool {
    match session.principal.verdict(Action::EditAgent) {
        Verdict::Yes => true,
        Verdict::Own => session.principal.user == account.owner_id,
        Verdict::No => false,
    }
}

/// What the viewer may know of a person: their name, or that it is somebody.
pub(crate) async fn person_name(console: &Console, session: &Session, user: UserId) -> Result<String> {
    let (by, o) = (&session.principal, &session.t.office);
    if by.user == Some(user) {
        return Ok(o.you.to_owned());
    }
    let id = user.to_string();
    let found = names(console, session, [id.clone()]).await?;
    Ok(found.get(&id).unwrap_or(o.somebody).to_owned())
}

/// What the hub calls them; nothing where the viewer may not know.
pub(crate) async fn names(
    console: &Console,
    session: &Session,
    ids: impl IntoIterator<Item = String>,
) -> Result<Names> {
    let mut ids: Vec<String> = ids.into_iter().collect();
    ids.sort_unstable();
    ids.dedup();
    let mut names = Names::default();
    if session.principal.verdict(Action::SeeRuntimes) == Verdict::No {
        return Ok(names);
    }
    for ids in ids.chunks(NAMES) {
        names.0.extend(console.hub.names(&session.principal, ids).await?.names);
    }
    Ok(names)
}

/// Who looks, and when.
#[derive(Debug)]
pub(crate) struct Viewer {
    me: String,
    t: &'static Text,
    now: Timestamp,
    names: Names,
}

// === impl Viewer ===

impl Viewer {
    pub(crate) fn new(console: &Console, session: &Session) -> Self {
        Self { me: session.principal.actor(), t: session.t, now: console.hub.now(), names: Names::default() }
    }

    /// With the names of those whom the page mentions, by id or actor.
    pub(crate) async fn naming(
        console: &Console,
        session: &Session,
        ids: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        let names = names(console, session, ids).await?;
        Ok(Self { names, ..Self::new(console, session) })
    }

    pub(crate) fn scene(&self) -> Scene<'_> {
        Scene { t: self.t, now: self.now, me: &self.me, names: &self.names }
    }
}
