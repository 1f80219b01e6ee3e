//! Appearance, and the facts about this hub.

use askama::Template;
use attache_protocol::wire::key::Role;
use axum::{
    extract::State,
    http::{HeaderValue, Uri, header},
};

use crate::{
    Console,
    form::Posted,
    options::Cookies,
    page::{go, html},
    problem::Result,
    session::Session,
    shell::{Place, Shell, Theme, durability},
    text::{Text, fill},
    view::fact::Fact,
};

#[derive(Template)]
#[template(path = "settings.html")]
struct Page {
    t: &'static Text,
    shell: Shell,
    signed_in: String,
    facts: Vec<Fact>,
}

pub(crate) async fn show(State(console): State<Console>, session: Session, uri: Uri) -> Result {
    let (hub, t) = (&console.hub, session.t);
    let shell = Shell::new(&console, &session, Place::Settings, &uri).await?;
    let own = session.principal.role().unwrap_or(Role::Viewer);
    let health = hub.health();
    let facts = vec![
        Fact::text(t.fact_version, &health.version),
        Fact::text(t.fact_store, &health.store),
        Fact::text(t.fact_durability, &durability(&health.durability, t)),
        Fact::code(t.fact_address, &hub.origin()),
    ];
    html(&Page { t, signed_in: fill(t.signed_in, &[("role", own.as_str())]), facts, shell })
}

pub(crate) async fn choose_theme(State(console): State<Console>, posted: Posted) -> Result {
    let theme = Theme::from_text(posted.fields.get("theme"));
    let mut response = go("/settings?said=saved");
    let secure = match console.options.cookies {
        Cookies::Secure => "; Secure",
        Cookies::Plain => "",
    };
    let cookie = format!("theme={}; Path=/; Max-Age=31536000; SameSite=Strict{secure}", theme.as_str());
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
