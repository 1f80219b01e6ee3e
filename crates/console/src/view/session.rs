//! A browser session as a list row.

use attache_protocol::wire::{key::Key, session::ConsoleSession};

use super::{
    actor::short,
    html::Markup,
    person::{VisiblePeople, role},
};
use crate::text::Text;

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
    pub(crate) fn new(session: &ConsoleSession, people: &VisiblePeople, keys: &[Key], t: &'static Text) -> Self {
        let opened = match session.opened_by {
            None if session.passkey_id.is_some() => t.session_by_passkey.to_owned(),
            None => t.session_by_password.to_owned(),
            Some(opener) => {
                let known = keys.iter().find(|key| key.key_id == opener).map(|key| key.name.clone());
                let key = known.unwrap_or_else(|| short(&opener.to_string()));
                t.session_by_link(&key)
            }
        };
        let from = session.address.as_deref().map(|address| t.session_from(address));
        let how: Vec<&str> =
            [Some(role(session.role, t)), Some(opened.as_str()), from.as_deref()].into_iter().flatten().collect();
        let until = session.expires_at.unwrap_or(session.created_at);
        Self {
            id: session.session_id.to_string(),
            name: people.name(session.user_id, t),
            current: session.current,
            how: how.join(" · "),
            note: t.session_until(session.created_at, until),
        }
    }
}
