//! The list of agents with their devices, and adding an agent.

use std::collections::HashMap;

use askama::Template;
use attache_hub::control::{PageRequest, RunQuery};
use attache_protocol::{
    AgentId,
    rules::run::RunStatus,
    wire::{
        account::{AccountRequest, Presence},
        run::Run,
    },
};
use axum::extract::Query;
use serde::Deserialize;

use crate::{
    form::SubmittedForm,
    layout::PageLayout,
    page::{PageViewer, address, html, manages, may_call, redirect_after_form},
    problem::{PageResult, message},
    session::BrowserSession,
    text::Text,
    view::agent::AgentTile,
};

const PAGE_SIZE: usize = 60;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AgentsPageQuery {
    cursor: String,
}

#[derive(Template)]
#[template(path = "agents.html")]
struct AgentsPage {
    t: &'static Text,
    shell: PageLayout,
    summary: String,
    cards: Vec<AgentTile>,
    more: Option<String>,
    problem: Option<String>,
    new_name: String,
}

pub(crate) async fn list(session: BrowserSession, Query(asked): Query<AgentsPageQuery>) -> PageResult {
    page(&session, asked.cursor, None, String::new()).await
}

pub(crate) async fn create(posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let name = fields.get("name").trim().to_owned();
    let request = AccountRequest {
        name: Some(name.clone()),
        description: fields.non_empty("description"),
        ..AccountRequest::default()
    };
    match session.hub.create_account(&session.principal, request).await {
        Ok(account) => Ok(redirect_after_form(&format!("/agents/{}", account.agent_id))),
        Err(error) if matches!(error.code.http_status(), 400 | 409) => {
            page(&session, String::new(), Some(message(&error, session.t).into_owned()), name).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn page(session: &BrowserSession, cursor: String, problem: Option<String>, new_name: String) -> PageResult {
    let t = session.t;
    let shell = PageLayout::new(session).await?;
    let request = PageRequest { limit: Some(PAGE_SIZE), cursor: Some(cursor).filter(|cursor| !cursor.is_empty()) };
    let list = session.hub.accounts(&session.principal, request).await?;
    let running = running(session).await?;
    let viewer = PageViewer::new(session);
    let online = list.agent_accounts.iter().filter(|account| account.status == Presence::Online).count();
    let total = list.agent_accounts.len();
    let cards = list
        .agent_accounts
        .iter()
        .map(|account| {
            let card = AgentTile::new(account, running.get(&account.agent_id), viewer.view_context());
            AgentTile { managed: manages(session, account), callable: may_call(session, account), ..card }
        })
        .collect();
    html(&AgentsPage {
        t,
        shell,
        summary: match list.next_cursor {
            Some(_) => t.summary_agents_more(online, total),
            None => t.summary_agents(online, total),
        },
        cards,
        more: list.next_cursor.map(|cursor| address("/agents", &[("cursor", &cursor)])),
        problem,
        new_name,
    })
}

/// The current run of each agent.
async fn running(session: &BrowserSession) -> PageResult<HashMap<AgentId, Run>> {
    let query = RunQuery { status: Some(RunStatus::Running), limit: Some(200), ..RunQuery::default() };
    let runs = session.hub.runs(&session.principal, query).await?.task_runs;
    // The list is newest first. The run that started last is the current one.
    Ok(runs.into_iter().rev().map(|run| (run.agent_id, run)).collect())
}
