//! Delegations: the folders that machines lend, one of them, and the wish that it ends.

use askama::Template;
use attache_hub::{
    control::PageRequest,
    identity::{Action, Verdict},
};
use attache_protocol::DelegationId;
use axum::{
    extract::{Path, Query, State},
    http::Uri,
};
use serde::Deserialize;

use crate::{
    Console,
    form::Posted,
    page::{address, go, html},
    problem::{Fault, Result},
    session::Session,
    shell::{Place, Shell},
    text::{Office, Text, fill},
    view::{
        delegation::{self, File, Row},
        exact::exact_line,
        fact::Fact,
        html::Markup,
    },
};

const PAGE: usize = 50;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    cursor: String,
}

#[derive(Template)]
#[template(path = "delegations.html")]
struct Page {
    t: &'static Text,
    o: &'static Office,
    shell: Shell,
    summary: String,
    rows: Vec<Row>,
    newest: bool,
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "delegation.html")]
struct One {
    t: &'static Text,
    o: &'static Office,
    shell: Shell,
    row: Row,
    may_cancel: bool,
    files: Vec<File>,
    truncated: bool,
    summary: Option<Markup>,
    highlights: Vec<Markup>,
    notes: Option<Markup>,
    /// Why it failed, and what to do.
    trouble: Option<(&'static str, Markup, Markup)>,
    facts: Vec<Fact>,
}

pub(crate) async fn list(
    State(console): State<Console>,
    session: Session,
    Query(asked): Query<Asked>,
    uri: Uri,
) -> Result {
    let (t, o) = (session.t, &session.t.office);
    let shell = Shell::new(&console, &session, Place::Delegations, &uri).await?;
    let page = PageRequest { limit: Some(PAGE), cursor: (!asked.cursor.is_empty()).then(|| asked.cursor.clone()) };
    let list = console.hub.delegations(&session.principal, page).await?;
    let live = list.delegations.iter().filter(|published| !published.delegation.status.has_ended()).count();
    let now = console.hub.now();
    html(&Page {
        t,
        o,
        summary: fill(o.delegations_summary, &[("n", &live.to_string())]),
        rows: list.delegations.iter().map(|published| Row::new(published, now, t)).collect(),
        newest: !asked.cursor.is_empty(),
        older: list.next_cursor.map(|cursor| address("/delegations", &[("cursor", &cursor)])),
        shell,
    })
}

pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    Path(delegation): Path<String>,
    uri: Uri,
) -> Result {
    let id: DelegationId = delegation.parse().map_err(|_| Fault::NoSuchPath)?;
    let (t, o) = (session.t, &session.t.office);
    let shell = Shell::new(&console, &session, Place::Delegations, &uri).await?;
    let published = console.hub.delegation(&session.principal, id).await?;
    let changes = published.delegation.changes.as_ref();
    let result = published.delegation.result.as_ref();
    let row = Row::new(&published, console.hub.now(), t);
    html(&One {
        t,
        o,
        may_cancel: row.can_cancel && session.principal.verdict(Action::CancelDelegation) == Verdict::Yes,
        files: changes
            .map(|changes| changes.changed_paths.iter().map(|changed| File::new(changed, o)).collect())
            .unwrap_or_default(),
        truncated: changes.is_some_and(|changes| changes.truncated),
        summary: result.and_then(|result| result.final_summary.as_deref()).map(exact_line),
        highlights: result
            .map(|result| result.highlights.iter().map(|line| exact_line(line)).collect())
            .unwrap_or_default(),
        notes: result.and_then(|result| result.notes.as_deref()).map(exact_line),
        trouble: result
            .and_then(|result| result.error.as_ref())
            .map(|error| (error.code.as_str(), exact_line(&error.message), exact_line(&error.hint))),
        facts: delegation::facts(&published, t),
        row,
        shell,
    })
}

pub(crate) async fn cancel(State(console): State<Console>, Path(delegation): Path<String>, posted: Posted) -> Result {
    let id: DelegationId = delegation.parse().map_err(|_| Fault::NoSuchPath)?;
    console.hub.cancel_delegation(&posted.session.principal, id).await?;
    Ok(go(&format!("/delegations/{id}?said=ending")))
}
