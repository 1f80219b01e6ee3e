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
    page::{html, language, redirect_after_form},
    problem::PageResult,
    session::BrowserSession,
    text::{Language, Text},
    view::{fact::Fact, person},
};

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    t: &'static Text,
    shell: PageLayout,
    signed_in: String,
    facts: Vec<Fact>,
    /// `None`: as in the browser.
    language: Option<Language>,
}

// === impl SettingsPage ===

impl SettingsPage {
    fn is_chosen(&self, language: &Language) -> bool {
        self.language == Some(*language)
    }
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
    html(&SettingsPage { t, signed_in: t.signed_in(person::role(own, t)), facts, language: session.language, shell })
}

pub(crate) async fn choose_theme(State(console): State<ConsoleState>, posted: SubmittedForm) -> PageResult {
    let theme = Theme::from_text(posted.fields.get("theme"));
    let shortcuts = Shortcuts::from_text(posted.fields.get("shortcuts"));
    let mut response = redirect_after_form("/settings?said=saved");
    let secure = console.options.cookies.secure_attribute();
    for (name, value) in [("theme", theme.as_str()), ("shortcuts", shortcuts.as_str())] {
        let cookie = format!("{name}={value}; Path=/; Max-Age=31536000; SameSite=Strict{secure}");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
    // No language: as in the browser.
    if let Some(chosen) = posted.fields.sent("language")
        && let Some(cookie) = language::cookie(Language::from_tag(chosen), console.options.cookies)
    {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
