//! Deliveries: the list, the page of one delivery, and resending it.

use askama::Template;
use attache_hub::control::{DeliveryQuery, PageRequest};
use attache_protocol::{DeliveryId, RunId, wire::delivery::DeliveryState};
use axum::extract::{Path, Query};
use serde::Deserialize;

use crate::{
    form::SubmittedForm,
    layout::PageLayout,
    page::{ViewTab, address, html, redirect_after_form},
    problem::{PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        actor::short,
        delivery::{self, DeliveryListRow, STATES},
        fact::Fact,
    },
};

const PAGE_SIZE: usize = 50;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeliveriesPageQuery {
    state: String,
    run: String,
    cursor: String,
}

#[derive(Template)]
#[template(path = "deliveries.html")]
struct DeliveriesPage {
    t: &'static Text,
    shell: PageLayout,
    tabs: Vec<ViewTab>,
    run: Option<String>,
    without_run: String,
    rows: Vec<DeliveryListRow>,
    newest: Option<String>,
    older: Option<String>,
    empty_title: &'static str,
    empty_text: &'static str,
}

#[derive(Template)]
#[template(path = "delivery.html")]
struct DeliveryPage {
    t: &'static Text,
    shell: PageLayout,
    row: DeliveryListRow,
    facts: Vec<Fact>,
}

pub(crate) async fn list(session: BrowserSession, Query(asked): Query<DeliveriesPageQuery>) -> PageResult {
    let t = session.t;
    let shell = PageLayout::new(&session).await?;
    let state = STATES.into_iter().find(|state| state.as_str() == asked.state);
    let run: Option<RunId> = match asked.run.trim() {
        "" => None,
        run => Some(run.parse().map_err(|_| PageError::NoSuchPath)?),
    };
    let page = PageRequest { limit: Some(PAGE_SIZE), cursor: (!asked.cursor.is_empty()).then(|| asked.cursor.clone()) };
    let list = session.hub.deliveries(&session.principal, DeliveryQuery { state, run, page }).await?;
    let href = |state: Option<DeliveryState>, run: &str, cursor: &str| {
        let state = state.map(DeliveryState::as_str).unwrap_or_default();
        address("/deliveries", &[("state", state), ("run", run), ("cursor", cursor)])
    };
    let run_text = run.map(|run| run.to_string()).unwrap_or_default();
    let tab =
        |one: Option<DeliveryState>, label| ViewTab { href: href(one, &run_text, ""), label, current: state == one };
    let tabs = std::iter::once(tab(None, t.tab_all))
        .chain(STATES.into_iter().map(|state| tab(Some(state), delivery::state(state, t).word)));
    let filtered = state.is_some() || run.is_some() || !asked.cursor.is_empty();
    let (empty_title, empty_text) = if filtered {
        (t.deliveries_none, t.deliveries_none_text)
    } else {
        (t.deliveries_empty, t.deliveries_empty_text)
    };
    html(&DeliveriesPage {
        t,
        tabs: tabs.collect(),
        run: run.map(|run| short(&run.to_string())),
        without_run: href(state, "", ""),
        rows: list.deliveries.iter().map(|delivery| DeliveryListRow::new(delivery, t)).collect(),
        newest: (!asked.cursor.is_empty()).then(|| href(state, &run_text, "")),
        older: list.next_cursor.map(|cursor| href(state, &run_text, &cursor)),
        empty_title,
        empty_text,
        shell,
    })
}

pub(crate) async fn show(session: BrowserSession, Path(delivery): Path<String>) -> PageResult {
    let id: DeliveryId = delivery.parse().map_err(|_| PageError::NoSuchPath)?;
    let t = session.t;
    let shell = PageLayout::new(&session).await?;
    let found = session.hub.delivery(&session.principal, id).await?;
    html(&DeliveryPage { t, row: DeliveryListRow::new(&found, t), facts: delivery::facts(&found, t), shell })
}

pub(crate) async fn resend(Path(delivery): Path<String>, posted: SubmittedForm) -> PageResult {
    let id: DeliveryId = delivery.parse().map_err(|_| PageError::NoSuchPath)?;
    posted.session.hub.resend_delivery(&posted.session.principal, id).await?;
    Ok(redirect_after_form(&format!("/deliveries/{id}?said=resent")))
}
