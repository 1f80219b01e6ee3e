//! The inbox: everything that waits for a person, past decisions and standing decisions.

use std::cmp::Reverse;

use askama::Template;
use attache_hub::control::{PageRequest, PermissionQuery, UnansweredQuestion};
use attache_protocol::{
    GrantId, Timestamp, rules::permission::PermissionState as Pending, wire::permission::PermissionRequest,
};
use axum::{
    extract::{Path, Query},
    response::Redirect,
};
use serde::Deserialize;

use crate::{
    form::SubmittedForm,
    layout::PageLayout,
    page::{PageViewer, address, agent_names, html, redirect_after_form},
    problem::{PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        grant,
        permission::{ApprovalCard, ApprovalContext, DecidedApprovalRow},
        question::QuestionCard,
        run::device_name,
        tool_input::ToolInputBlock,
    },
};

/// Cards per page. Older requests move up as these are decided.
const MAX_CARDS: usize = 50;
/// The total size of all cards on a page, unless the first one alone is larger.
const MAX_MARKUP: usize = 2 << 20;
const MAX_DECIDED: usize = 30;
const MAX_GRANTS: usize = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct InboxPageQuery {
    /// Cursor of the decision history.
    decided: String,
    /// Cursor of the list of grants.
    grants: String,
}

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPage {
    t: &'static Text,
    shell: PageLayout,
    summary: String,
    items: Vec<InboxItem>,
    more: Option<String>,
    decided: Vec<DecidedApprovalRow>,
    newest_decided: bool,
    older_decided: Option<String>,
    grants: Vec<grant::GrantListRow>,
    more_grants: Option<String>,
    /// The path to return to after an answer.
    back: &'static str,
}

#[derive(Debug)]
enum InboxItem {
    Approval(Box<ApprovalCard>),
    Question(Box<QuestionCard>),
}

/// The address that the inbox had before.
pub(crate) async fn moved() -> Redirect {
    Redirect::permanent("/inbox")
}

pub(crate) async fn list(session: BrowserSession, Query(asked): Query<InboxPageQuery>) -> PageResult {
    let (hub, by, t) = (&session.hub, &session.principal, session.t);
    let shell = PageLayout::new(&session).await?;
    let query = PermissionQuery { state: Some(Pending::Pending), ..PermissionQuery::default() };
    let pending = hub.permissions(by, query, PageRequest { limit: Some(MAX_CARDS), cursor: None }).await?;
    let cards = cards(&session, &pending.permission_requests).await?;
    let mut questions = questions(&session, &hub.open_questions(by).await?).await?;
    let is_cut = cards.len() < pending.permission_requests.len() || questions.len() > MAX_CARDS;
    questions.truncate(MAX_CARDS);
    let approvals = cards.into_iter().map(|card| InboxItem::Approval(Box::new(card)));
    let mut items: Vec<_> =
        approvals.chain(questions.into_iter().map(|card| InboxItem::Question(Box::new(card)))).collect();
    items.sort_by_key(|item| Reverse(item.asked_at()));
    let cursor = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let page = PageRequest { limit: Some(MAX_DECIDED), cursor: cursor(&asked.decided) };
    let mut all = hub.permissions(by, PermissionQuery::default(), page).await?;
    all.permission_requests.sort_by_key(|request| Reverse(request.decided_at));
    let page = PageRequest { limit: Some(MAX_GRANTS), cursor: cursor(&asked.grants) };
    let grants = hub.grants(by, page).await?;
    let names = agent_names(&session).await?;
    let deciders = all.permission_requests.iter().filter_map(|request| request.decided_by.clone());
    let grantors = grants.permission_grants.iter().map(|grant| grant.created_by.clone());
    let viewer = PageViewer::naming(&session, deciders.chain(grantors)).await?;
    let count = usize::try_from(shell.asked).unwrap_or(usize::MAX).max(items.len());
    html(&InboxPage {
        t,
        summary: match count {
            0 => t.inbox_none.to_owned(),
            count => t.inbox_pending(count as u64),
        },
        more: (is_cut || pending.next_cursor.is_some()).then(|| t.inbox_more(items.len())),
        decided: all
            .permission_requests
            .iter()
            .filter_map(|one| DecidedApprovalRow::new(one, viewer.view_context()))
            .collect(),
        newest_decided: !asked.decided.is_empty(),
        older_decided: all.next_cursor.map(|cursor| address("/inbox", &[("decided", &cursor)])),
        grants: grants
            .permission_grants
            .iter()
            .map(|grant| grant::GrantListRow::new(grant, &names, viewer.view_context()))
            .collect(),
        more_grants: grants.next_cursor.map(|cursor| address("/inbox", &[("grants", &cursor)])),
        back: "inbox",
        items,
        shell,
    })
}

pub(crate) async fn revoke_grant(Path(grant): Path<String>, posted: SubmittedForm) -> PageResult {
    let grant: GrantId = grant.parse().map_err(|_| PageError::NoSuchPath)?;
    posted.session.hub.revoke_grant(&posted.session.principal, grant).await?;
    Ok(redirect_after_form("/inbox?said=revoked"))
}

/// The requests with their runs and devices, as many as fit on a page.
pub(crate) async fn cards(session: &BrowserSession, requests: &[PermissionRequest]) -> PageResult<Vec<ApprovalCard>> {
    let (hub, by) = (&session.hub, &session.principal);
    let mut known = Vec::with_capacity(requests.len());
    for request in requests {
        // A card works without these.
        let run = hub.run(by, request.task_run_id).await.ok();
        let device = hub.runtime(by, request.runtime_id).await.ok();
        known.push(ApprovalContext { run, device: device.map(|runtime| device_name(&runtime, session.t)) });
    }
    let callers = known.iter().filter_map(|about| about.run.as_ref()).map(|run| run.caller.clone());
    let deciders = requests.iter().filter_map(|request| request.decided_by.clone());
    let viewer = PageViewer::naming(session, callers.chain(deciders)).await?;
    let (mut cards, mut weight) = (Vec::with_capacity(requests.len()), 0);
    for (request, about) in requests.iter().zip(&known) {
        let card = ApprovalCard::new(request, about, viewer.view_context());
        weight += card.weight();
        if weight > MAX_MARKUP && !cards.is_empty() {
            break;
        }
        cards.push(card);
    }
    Ok(cards)
}

/// Questions as cards, with the names of those who called.
pub(crate) async fn questions(session: &BrowserSession, open: &[UnansweredQuestion]) -> PageResult<Vec<QuestionCard>> {
    let viewer = PageViewer::naming(session, open.iter().map(|question| question.run.caller.clone())).await?;
    Ok(open.iter().map(|question| QuestionCard::new(question, viewer.view_context())).collect())
}

// === impl InboxItem ===

impl InboxItem {
    const fn asked_at(&self) -> Timestamp {
        match self {
            Self::Approval(card) => card.asked_at,
            Self::Question(card) => card.asked_at,
        }
    }
}
