//! The list of browser sessions, and signing one out.

use askama::Template;
use attache_hub::control::PageRequest;
use attache_protocol::{KeyId, wire::session};
use axum::extract::Path;

use crate::{
    form::SubmittedForm,
    layout::PageLayout,
    page::{
        html,
        people::{keys, people},
        redirect_after_form,
    },
    problem::{PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::{html::Markup, session::SessionListRow},
};

const LIST_SIZE: usize = 200;

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsPage {
    t: &'static Text,
    shell: PageLayout,
    sessions: Vec<SessionListRow>,
    more: Option<Markup>,
}

pub(crate) async fn list(session: BrowserSession) -> PageResult {
    let (by, t, now) = (&session.principal, session.t, session.hub.now());
    let shell = PageLayout::new(&session).await?;
    let people = people(&session).await?;
    let (keys, _) = keys(&session).await?;
    let list = session.hub.sessions(by, PageRequest { limit: Some(LIST_SIZE), cursor: None }).await?;
    // Ended sessions are left out: the audit log has them.
    let alive =
        |session: &&session::ConsoleSession| session.ended_at.is_none() && session.expires_at.is_none_or(|at| at > now);
    html(&SessionsPage {
        t,
        sessions: list.sessions.iter().filter(alive).map(|one| SessionListRow::new(one, &people, &keys, t)).collect(),
        more: list.next_cursor.map(|_| Markup::marked(t.sessions_more)),
        shell,
    })
}

pub(crate) async fn end(Path(id): Path<String>, posted: SubmittedForm) -> PageResult {
    let id: KeyId = id.parse().map_err(|_| PageError::NoSuchPath)?;
    posted.session.hub.end_session(&posted.session.principal, id).await?;
    Ok(redirect_after_form("/sessions?said=session"))
}
