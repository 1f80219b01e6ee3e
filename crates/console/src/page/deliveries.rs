//! What webhooks were told: the list, one delivery, and sending it again.

use askama::Template;
use attache_hub::control::{DeliveryQuery, PageRequest};
use attache_protocol::{DeliveryId, RunId, wire::delivery::DeliveryState};
use axum::{
    extract::{Path, Query, State},
    http::Uri,
};
use serde::Deserialize;

use crate::{
    Console,
    form::Posted,
    page::{Tab, address, go, html},
    problem::{Fault, Result},
    session::Session,
    shell::{Place, Shell},
    text::{Office, Text},
    view::{
        caller::short,
        delivery::{self, Row, STATES},
        fact::Fact,
    },
};

const PAGE: usize = 50;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    state: String,
    run: String,
    cursor: String,
}

#[derive(Template)]
#[template(path = "deliveries.html")]
struct Page {
    t: &'static Text,
    o: &'static Office,
    shell: Shell,
    tabs: Vec<Tab>,
    run: Option<String>,
    without_run: String,
    rows: Vec<Row>,
    newest: Option<String>,
    older: Option<String>,
    empty_title: &'static str,
    empty_text: &'static str,
}

#[derive(Template)]
#[template(path = "delivery.html")]
struct One {
    t: &'static Text,
    o: &'static Office,
    shell: Shell,
    row: Row,
    facts: Vec<Fact>,
}

pub(crate) async fn list(
    State(console): State<Console>,
    session: Session,
    Query(asked): Query<Asked>,
    uri: Uri,
) -> Result {
    let (t, o) = (session.t, &session.t.office);
    let shell = Shell::new(&console, &session, Place::Settings, &uri).await?;
    let state = STATES.into_iter().find(|state| state.as_str() == asked.state);
    let run: Option<RunId> = match asked.run.trim() {
        "" => None,
        run => Some(run.parse().map_err(|_| Fault::NoSuchPath)?),
    };
    let page = PageRequest { limit: Some(PAGE), cursor: (!asked.cursor.is_empty()).then(|| asked.cursor.clone()) };
    let list = console.hub.deliveries(&session.principal, DeliveryQuery { state, run, page }).await?;
    let href = |state: Option<DeliveryState>, run: &str, cursor: &str| {
        let state = state.map(DeliveryState::as_str).unwrap_or_default();
        address("/deliveries", &[("state", state), ("run", run), ("cursor", cursor)])
    };
    let run_text = run.map(|run| run.to_string()).unwrap_or_default();
    let tab = |one: Option<DeliveryState>, label| Tab { href: href(one, &run_text, ""), label, current: state == one };
    let tabs = std::iter::once(tab(None, t.tab_all))
        .chain(STATES.into_iter().map(|state| tab(Some(state), delivery::state(state, t).word)));
    let filtered = state.is_some() || run.is_some() || !asked.cursor.is_empty();
    let (empty_title, empty_text) = if filtered {
        (o.deliveries_none, o.deliveries_none_text)
    } else {
        (o.deliveries_empty, o.deliveries_empty_text)
    };
    html(&Page {
        t,
        o,
        tabs: tabs.collect(),
        run: run.map(|run| short(&run.to_string())),
        without_run: href(state, "", ""),
        rows: list.deliveries.iter().map(|delivery| Row::new(delivery, t)).collect(),
        newest: (!asked.cursor.is_empty()).then(|| href(state, &run_text, "")),
        older: list.next_cursor.map(|cursor| href(state, &run_text, &cursor)),
        empty_title,
        empty_text,
        shell,
    })
}

pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    Path(delivery): Path<String>,
    uri: Uri,
) -> Result {
    let id: DeliveryId = delivery.parse().map_err(|_| Fault::NoSuchPath)?;
    let (t, o) = (session.t, &session.t.office);
    let shell = Shell::new(&console, &session, Place::Settings, &uri).await?;
    let found = console.hub.delivery(&session.principal, id).await?;
    html(&One { t, o, row: Row::new(&found, t), facts: delivery::facts(&found, t), shell })
}

pub(crate) async fn resend(State(console): State<Console>, Path(delivery): Path<String>, posted: Posted) -> Result {
    let id: DeliveryId = delivery.parse().map_err(|_| Fault::NoSuchPath)?;
    console.hub.resend_delivery(&posted.session.principal, id).await?;
    Ok(go(&format!("/deliveries/{id}?said=resent")))
}
