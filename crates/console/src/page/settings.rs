//! General settings: hub details and appearance.

use askama::Template;
use attache_protocol::wire::key::Role;
use axum::{
    extract::State,
    http::{HeaderValue, header},
};

use crate::{
    ConsoleState,
    form::SubmittedForm,
    layout::{PageLayout, Shortcuts, Theme, durability},
    options::CookiePolicy,
    page::{html, redirect_after_form},
    problem::PageResult,
    session::BrowserSession,
    text::Text,
    view::fact::Fact,
};

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    t: &'static Text,
    shell: PageLayout,
    signed_in: String,
    facts: Vec<Fact>,
}

pub(crate) async fn show(session: BrowserSession) -> PageResult {
    let (hub, t) = (&session.hub, session.t);
    let shell = PageLayout::new(&session).await?;
    let own = session.principal.role().unwrap_or(Role::Viewer);
    let health = hub.health();
    let facts = vec![
        Fact::text(t.fact_version, &health.version),
        Fact::text(t.fact_store, &health.store),
        Fact::text(t.fact_durability, &durability(&health.durability, t)),
        Fact::code(t.address, &hub.origin()),
    ];
    html(&SettingsPage { t, signed_in: t.signed_in(own.as_str()), facts, shell })
}

pub(crate) async fn choose_theme(State(console): State<ConsoleState>, posted: SubmittedForm) -> PageResult {
    let theme = Theme::from_text(posted.fields.get("theme"));
    let shortcuts = Shortcuts::from_text(posted.fields.get("shortcuts"));
    let mut response = redirect_after_form("/settings?said=saved");
    let secure = match console.options.cookies {
        CookiePolicy::Secure => "; Secure",
        CookiePolicy::Plain => "",
    };
    for (name, value) in [("theme", theme.as_str()), ("shortcuts", shortcuts.as_str())] {
        let cookie = format!("{name}={value}; Path=/; Max-Age=31536000; SameSite=Strict{secure}");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
    Ok(response)
}
