//! A session of an agent's device as a row of a list.

use attache_protocol::wire::{account::Account, host_session::HostSession};

use super::{callsign, escape_stripper::plain, html::Markup, time::TimeElement};

#[derive(Debug)]
pub(crate) struct HostSessionRow {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) agent_id: String,
    pub(crate) agent: String,
    pub(crate) sign: Markup,
    pub(crate) folder: String,
    pub(crate) at: TimeElement,
}

// === impl HostSessionRow ===

impl HostSessionRow {
    pub(crate) fn new(session: &HostSession, account: &Account) -> Self {
        Self {
            id: session.session_id.clone(),
            title: plain(&session.title),
            agent_id: account.agent_id.to_string(),
            agent: account.name.clone(),
            sign: callsign::big(account.agent_id),
            folder: plain(&session.folder),
            at: TimeElement::clock(session.updated_at),
        }
    }
}
