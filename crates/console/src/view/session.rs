//! A browser session as a list row.

use attache_protocol::wire::{key::Key, session::ConsoleSession};

use super::{
    actor::short,
    html::{Markup, PlaceholderValue},
    person::{VisiblePeople, role},
    time::TimeElement,
};
use crate::text::{AdminText, fill};

#[derive(Debug, Clone)]
pub(crate) struct SessionListRow {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) current: bool,
    /// Role, how it was opened, and from where.
    pub(crate) how: String,
    pub(crate) note: Markup,
}

// === impl SessionListRow ===

impl SessionListRow {
    pub(crate) fn new(session: &ConsoleSession, people: &VisiblePeople, keys: &[Key], o: &'static AdminText) -> Self {
        let opened = match session.opened_by {
            None => o.session_by_password.to_owned(),
            Some(opener) => {
                let known = keys.iter().find(|key| key.key_id == opener).map(|key| key.name.clone());
                let key = known.unwrap_or_else(|| short(&opener.to_string()));
                fill(o.session_by_link, &[("key", &key)])
            }
        };
        let from = session.address.as_deref().map(|address| fill(o.session_from, &[("address", address)]));
        let how: Vec<&str> =
            [Some(role(session.role, o)), Some(opened.as_str()), from.as_deref()].into_iter().flatten().collect();
        let at = |at| PlaceholderValue::When(TimeElement::relative(at));
        let until = session.expires_at.unwrap_or(session.created_at);
        Self {
            id: session.session_id.to_string(),
            name: people.name(session.user_id, o),
            current: session.current,
            how: how.join(" · "),
            note: Markup::sentence(o.session_until, &[("at", at(session.created_at)), ("until", at(until))]),
        }
    }
}
