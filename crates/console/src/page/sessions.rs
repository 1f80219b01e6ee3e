//! The browsers that are signed in, and signing one out.

use askama::Template;
use attache_hub::control::PageRequest;
use attache_protocol::{KeyId, wire::session};
use axum::{
    extract::{Path, State},
    http::Uri,
};

use crate::{
    Console,
    form::Posted,
    page::{
        go, html,
        people::{keys, people},
    },
    problem::{Fault, Result},
    session::Session,
    shell::{Place, Shell},
    text::{Office, Text},
    view::{html::Markup, session::SessionLine},
};

const LIST: usize = 200;

#[derive(Template)]
#[template(path = "sessions.html")]
struct Page {
    t: &'static Text,
    o: &'static Office,
    shell: Shell,
    sessions: Vec<SessionLine>,
    more: Option<Markup>,
}

pub(crate) async fn list(State(console): State<Console>, session: Session, uri: Uri) -> Result {
    let (by, t, o, now) = (&session.principal, session.t, &session.t.office, console.hub.now());
    let shell = Shell::new(&console, &session, Place::Settings, &uri).await?;
    let people = people(&console, &session).await?;
    let (keys, _) = keys(&console, &session).await?;
    let list = console.hub.sessions(by, PageRequest { limit: Some(LIST), cursor: None }).await?;
    // Those that are over say nothing that the log does not say better.
    let alive =
        |session: &&session::Session| session.ended_at.is_none() && session.expires_at.is_none_or(|at| at > now);
    html(&Page {
        t,
        o,
        sessions: list.sessions.iter().filter(alive).map(|one| SessionLine::new(one, &people, &keys, o)).collect(),
        more: list.next_cursor.map(|_| Markup::sentence(o.sessions_more, &[])),
        shell,
    })
}

pub(crate) async fn end(State(console): State<Console>, Path(id): Path<String>, posted: Posted) -> Result {
    let id: KeyId = id.parse().map_err(|_| Fault::NoSuchPath)?;
    console.hub.end_session(&posted.session.principal, id).await?;
    Ok(go("/sessions?said=session"))
}
