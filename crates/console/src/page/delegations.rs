//! Delegations: the list, the page of one delegation, and requesting its end.

use askama::Template;
use attache_hub::{
    control::PageRequest,
    identity::{AccessVerdict, Action},
};
use attache_protocol::DelegationId;
use axum::extract::{Path, Query};
use serde::Deserialize;

use crate::{
    form::SubmittedForm,
    layout::PageLayout,
    page::{address, html, redirect_after_form},
    problem::{PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        delegation::{self, ChangedFileRow, DelegationListRow},
        exact::{exact, exact_line},
        fact::Fact,
        html::Markup,
    },
};

const PAGE_SIZE: usize = 50;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DelegationsPageQuery {
    cursor: String,
}

#[derive(Template)]
#[template(path = "delegations.html")]
struct DelegationsPage {
    t: &'static Text,
    shell: PageLayout,
    summary: String,
    rows: Vec<DelegationListRow>,
    newest: bool,
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "delegation.html")]
struct DelegationPage {
    t: &'static Text,
    shell: PageLayout,
    row: DelegationListRow,
    may_cancel: bool,
    files: Vec<ChangedFileRow>,
    truncated: bool,
    /// Its changes can be reviewed, by a command on the delegating machine.
    may_review: bool,
    summary: Option<Markup>,
    highlights: Vec<Markup>,
    notes: Option<Markup>,
    /// Error code, message and hint.
    trouble: Option<(&'static str, Markup, Markup)>,
    facts: Vec<Fact>,
}

pub(crate) async fn list(session: BrowserSession, Query(asked): Query<DelegationsPageQuery>) -> PageResult {
    let t = session.t;
    let shell = PageLayout::new(&session).await?;
    let page = PageRequest { limit: Some(PAGE_SIZE), cursor: (!asked.cursor.is_empty()).then(|| asked.cursor.clone()) };
    let list = session.hub.delegations(&session.principal, page).await?;
    let live = list.delegations.iter().filter(|published| !published.delegation.status.has_ended()).count();
    let now = session.hub.now();
    html(&DelegationsPage {
        t,
        summary: t.delegations_summary(live),
        rows: list.delegations.iter().map(|published| DelegationListRow::new(published, now, t)).collect(),
        newest: !asked.cursor.is_empty(),
        older: list.next_cursor.map(|cursor| address("/delegations", &[("cursor", &cursor)])),
        shell,
    })
}

pub(crate) async fn show(session: BrowserSession, Path(delegation): Path<String>) -> PageResult {
    let id: DelegationId = delegation.parse().map_err(|_| PageError::NoSuchPath)?;
    let t = session.t;
    let shell = PageLayout::new(&session).await?;
    let published = session.hub.delegation(&session.principal, id).await?;
    let changes = published.delegation.changes.as_ref();
    let result = published.delegation.result.as_ref();
    let row = DelegationListRow::new(&published, session.hub.now(), t);
    html(&DelegationPage {
        t,
        may_cancel: row.can_cancel && session.principal.verdict(Action::CancelDelegation) == AccessVerdict::Yes,
        files: changes
            .map(|changes| changes.changed_paths.iter().map(|changed| ChangedFileRow::new(changed, t)).collect())
            .unwrap_or_default(),
        truncated: changes.is_some_and(|changes| changes.truncated),
        may_review: published.delegation.status.has_ended(),
        summary: result.and_then(|result| result.final_summary.as_deref()).map(exact),
        highlights: result.map(|result| result.highlights.iter().map(|line| exact(line)).collect()).unwrap_or_default(),
        notes: result.and_then(|result| result.notes.as_deref()).map(exact),
        trouble: result
            .and_then(|result| result.error.as_ref())
            .map(|error| (error.code.as_str(), exact_line(&error.message), exact_line(&error.hint))),
        facts: delegation::facts(&published, t),
        row,
        shell,
    })
}

pub(crate) async fn cancel(Path(delegation): Path<String>, posted: SubmittedForm) -> PageResult {
    let id: DelegationId = delegation.parse().map_err(|_| PageError::NoSuchPath)?;
    posted.session.hub.cancel_delegation(&posted.session.principal, id).await?;
    Ok(redirect_after_form(&format!("/delegations/{id}?said=ending")))
}
