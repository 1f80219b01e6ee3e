//! The pages of the console, one file each.

pub(crate) mod agent;
pub(crate) mod agents;
pub(crate) mod approval;
pub(crate) mod audit;
pub(crate) mod channel;
pub(crate) mod channels;
pub(crate) mod conversation;
pub(crate) mod conversations;
pub(crate) mod delegations;
pub(crate) mod deliveries;
pub(crate) mod host_sessions;
pub(crate) mod inbox;
pub(crate) mod language;
pub(crate) mod login;
pub(crate) mod more;
mod notifications;
pub(crate) mod pair;
pub(crate) mod palette;
pub(crate) mod passkeys;
pub(crate) mod people;
pub(crate) mod person;
pub(crate) mod quota;
pub(crate) mod rules;
pub(crate) mod run;
pub(crate) mod run_attach;
pub(crate) mod run_bulk;
pub(crate) mod run_facts;
pub(crate) mod run_files;
pub(crate) mod run_log;
pub(crate) mod run_new;
pub(crate) mod run_wait;
pub(crate) mod run_worktree;
pub(crate) mod runs;
pub(crate) mod saved_views;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod usage;

use std::collections::HashMap;

use askama::Template;
use attache_hub::identity::{AccessVerdict, Action};
use attache_protocol::{
    AgentId, Timestamp, UserId,
    wire::account::{Account, Callers},
};
use axum::{
    Router,
    body::Body,
    extract::Query,
    http::{Response, StatusCode},
    response::{Html, IntoResponse as _, Redirect},
    routing::{get, post},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::{
    ConsoleState,
    layout::{NavLink, PageLayout},
    live,
    problem::PageResult,
    session::BrowserSession,
    text::Text,
    view::{actor::Names, run::ViewContext},
};

/// The navigation. A new page that people reach from everywhere has its link here and its address in [`routes`].
pub(crate) const NAV: [NavLink; 19] = [
    NavLink::main("/inbox", "inbox", |t| t.inbox),
    NavLink::main("/runs", "runs", |t| t.runs),
    NavLink::main("/agents", "agents", |t| t.agents),
    NavLink::main("/conversations", "chat", |t| t.conversations),
    NavLink::main("/delegations", "folder", |t| t.delegations).wide(),
    NavLink::main("/channels", "channels", |t| t.channels).wide(),
    NavLink::main("/usage", "usage", |t| t.usage).wide().only_if(|may| may.usage),
    NavLink::main("/audit", "chain", |t| t.audit).wide().only_if(|may| may.audit),
    NavLink::main("/settings", "settings", |t| t.settings).wide(),
    NavLink::main("/more", "more", |t| t.more_pages).narrow(),
    NavLink::below("/inbox", "/approvals", |t| t.approval),
    NavLink::below("/agents", "/pair", |t| t.confirm_device),
    NavLink::below("/settings", "/settings", |t| t.general),
    NavLink::below("/settings", "/notifications", |t| t.notifications).only_if(|may| may.notifications),
    NavLink::below("/settings", "/people", |t| t.people_keys),
    NavLink::below("/settings", "/passkeys", |t| t.passkeys),
    NavLink::below("/settings", "/sessions", |t| t.sessions).only_if(|may| may.sessions),
    NavLink::below("/settings", "/rules", |t| t.rules).only_if(|may| may.rules),
    NavLink::below("/settings", "/deliveries", |t| t.deliveries),
];

/// Every page, its forms and its fragments.
pub(crate) fn routes() -> Router<ConsoleState> {
    Router::new()
        .route("/", get(home))
        .route("/nav", get(nav))
        .route("/more", get(more::show))
        .route("/palette", get(palette::find))
        .route("/inbox", get(inbox::list))
        .route("/approvals", get(inbox::moved))
        .route("/approvals/{permission}", get(approval::show).post(approval::decide))
        .route("/approvals/{permission}/passkey", post(approval::passkey_options))
        .route("/grants/{grant}/revoke", post(inbox::revoke_grant))
        .route("/channels", get(channels::list))
        .route("/channels/{channel}", get(channel::show))
        .route("/conversations", get(conversations::list))
        .route("/conversations/{conversation}", get(conversation::show))
        .route("/delegations", get(delegations::list))
        .route("/delegations/{delegation}", get(delegations::show))
        .route("/delegations/{delegation}/cancel", post(delegations::cancel))
        .route("/login", get(login::show).post(login::redeem))
        .route("/login/passkey", post(login::passkey_options))
        .route("/logout", post(login::sign_out))
        .route("/language", post(language::choose))
        .route("/runs", get(runs::list).post(run_new::create))
        .route("/runs/new", get(run_new::show))
        .route("/runs/bulk", post(run_bulk::submit))
        .route("/runs/rows", get(runs::rows))
        .route("/runs/views", post(saved_views::submit))
        .route("/runs/{run}", get(run::show))
        .route("/runs/{run}/part", get(run::part))
        .route("/runs/{run}/live", get(live::run))
        .route("/runs/{run}/log", get(run_log::window))
        .route("/runs/{run}/find", get(run_log::find))
        .route("/runs/{run}/log.jsonl", get(run_files::raw_log))
        .route("/runs/{run}/cancel", post(run::cancel))
        .route("/runs/{run}/input", post(run_wait::give_input))
        .route("/runs/{run}/again", post(run_new::rerun))
        .route("/runs/{run}/worktree", post(run_worktree::decide))
        .route("/artifacts/{artifact}", get(run_files::artifact))
        .route("/agents", get(agents::list).post(agents::create))
        .route("/agents/{agent}", get(agent::show).post(agent::update))
        .route("/agents/{agent}/archive", post(agent::archive))
        .route("/agents/{agent}/sessions", post(host_sessions::continue_here))
        .route("/agents/{agent}/pairing-codes", post(agent::make_code))
        .route("/agents/{agent}/paired", get(agent::paired))
        .route("/runtimes/{runtime}/revoke", post(agent::revoke_runtime))
        .route("/pair", get(pair::show).post(pair::look_up))
        .route("/pair/decision", post(pair::decide))
        .route("/audit", get(audit::list))
        .route("/settings", get(settings::show))
        .route("/settings/keys", post(people::create_key))
        .route("/settings/keys/{key}/revoke", post(people::revoke_key))
        .route("/settings/theme", post(settings::choose_theme))
        .route("/people", get(people::list).post(people::add))
        .route("/people/password", post(people::own_password))
        .route("/people/{user}", get(person::show).post(person::update))
        .route("/people/{user}/remove", post(person::remove))
        .route("/people/{user}/login-link", post(person::login_link))
        .route("/notifications", get(notifications::list).post(notifications::subscribe))
        .route("/notifications/decide", post(notifications::decide))
        .route("/notifications/{target}", post(notifications::update))
        .route("/notifications/{target}/remove", post(notifications::remove))
        .route("/notifications/{target}/test", post(notifications::test))
        .route("/service-worker.js", get(notifications::service_worker))
        .route("/offline", get(notifications::offline))
        .route("/passkeys", get(passkeys::list).post(passkeys::add))
        .route("/passkeys/options", post(passkeys::options))
        .route("/passkeys/{passkey}/remove", post(passkeys::remove))
        .route("/sessions", get(sessions::list))
        .route("/sessions/{session}/end", post(sessions::end))
        .route("/rules", get(rules::show).post(rules::submit))
        .route("/usage", get(usage::show))
        .route("/usage/quotas", post(quota::set))
        .route("/usage/quotas/remove", post(quota::remove))
        .route("/deliveries", get(deliveries::list))
        .route("/deliveries/{delivery}", get(deliveries::show))
        .route("/deliveries/{delivery}/resend", post(deliveries::resend))
}

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

pub(crate) async fn nav(session: BrowserSession, Query(asked): Query<NavQuery>) -> PageResult {
    let mut shell = PageLayout::new(&session).await?;
    shell.here = asked.at;
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
pub(crate) async fn agents(session: &BrowserSession) -> PageResult<Vec<Account>> {
    let page = attache_hub::control::PageRequest { limit: Some(200), cursor: None };
    Ok(session.hub.accounts(&session.principal, page).await?.agent_accounts)
}

/// The names of agents by id.
pub(crate) async fn agent_names(session: &BrowserSession) -> PageResult<HashMap<AgentId, String>> {
    let agents = agents(session).await?;
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

/// Whether the viewer may give this agent tasks, as far as it depends on the agent.
pub(crate) fn may_call(session: &BrowserSession, account: &Account) -> bool {
    account.callers == Callers::Everyone || account.owner_id.is_none() || session.principal.user == account.owner_id
}

/// The name of a person, or a placeholder if the viewer may not know it.
pub(crate) async fn person_name(session: &BrowserSession, user: UserId) -> PageResult<String> {
    let (by, t) = (&session.principal, session.t);
    if by.user == Some(user) {
        return Ok(t.you.to_owned());
    }
    let id = user.to_string();
    let found = names(session, [id.clone()]).await?;
    Ok(found.get(&id).unwrap_or(t.somebody).to_owned())
}

/// The names of ids and actors. Empty for those that the viewer may not know.
pub(crate) async fn names(session: &BrowserSession, ids: impl IntoIterator<Item = String>) -> PageResult<Names> {
    let mut ids: Vec<String> = ids.into_iter().collect();
    ids.sort_unstable();
    ids.dedup();
    let mut names = Names::default();
    if session.principal.verdict(Action::SeeRuntimes) == AccessVerdict::No {
        return Ok(names);
    }
    for ids in ids.chunks(NAMES) {
        names.0.extend(session.hub.names(&session.principal, ids).await?.names);
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
    pub(crate) fn new(session: &BrowserSession) -> Self {
        Self {
            me: session.principal.actor().to_string(),
            t: session.t,
            now: session.hub.now(),
            names: Names::default(),
        }
    }

    /// Adds the names of the ids and actors that the page mentions.
    pub(crate) async fn naming(session: &BrowserSession, ids: impl IntoIterator<Item = String>) -> PageResult<Self> {
        let names = names(session, ids).await?;
        Ok(Self { names, ..Self::new(session) })
    }

    pub(crate) fn view_context(&self) -> ViewContext<'_> {
        ViewContext { t: self.t, now: self.now, me: &self.me, names: &self.names }
    }
}
