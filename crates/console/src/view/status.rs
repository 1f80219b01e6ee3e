//! A status badge: icon, colour and word.

use attache_protocol::{
    rules::run::RunStatus,
    wire::account::{Account, Presence},
};

use crate::text::Text;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatusBadge {
    /// The wire value, for CSS and scripts.
    pub(crate) key: &'static str,
    /// The CSS class for the colour.
    pub(crate) class: &'static str,
    /// The icon.
    pub(crate) icon: &'static str,
    pub(crate) word: &'static str,
}

pub(crate) const ALL: [RunStatus; 5] =
    [RunStatus::Pending, RunStatus::Running, RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled];

pub(crate) fn of(status: RunStatus, t: &'static Text) -> StatusBadge {
    let (class, icon, word) = match status {
        RunStatus::Pending => ("queued", "s-queued", t.status_pending),
        RunStatus::Running => ("live", "s-live", t.status_running),
        RunStatus::Completed => ("done", "s-done", t.status_completed),
        RunStatus::Failed => ("fail", "s-fail", t.status_failed),
        RunStatus::Cancelled => ("stop", "s-stop", t.status_cancelled),
    };
    StatusBadge { key: key(status), class, icon, word }
}

pub(crate) const fn key(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Pending => "pending",
        RunStatus::Running => "running",
        RunStatus::Completed => "completed",
        RunStatus::Failed => "failed",
        RunStatus::Cancelled => "cancelled",
    }
}

pub(crate) fn parse(text: &str) -> Option<RunStatus> {
    ALL.into_iter().find(|status| key(*status) == text)
}

pub(crate) const fn has_ended(status: RunStatus) -> bool {
    matches!(status, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled)
}

pub(crate) fn presence(account: &Account, t: &'static Text) -> StatusBadge {
    match (account.status, &account.runtime) {
        (Presence::Online, _) => StatusBadge { key: "online", class: "done", icon: "s-on", word: t.online },
        (Presence::Offline, Some(_)) => StatusBadge { key: "offline", class: "off", icon: "s-off", word: t.offline },
        (Presence::Offline, None) => StatusBadge { key: "unpaired", class: "off", icon: "s-queued", word: t.unpaired },
    }
}
