//! A status as people see it: a shape, a hue and a word.

use attache_protocol::{
    rules::run::Status,
    wire::account::{Account, Presence},
};

use crate::text::Text;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The wire's word, for hooks.
    pub(crate) key: &'static str,
    /// The hue.
    pub(crate) class: &'static str,
    /// The shape.
    pub(crate) icon: &'static str,
    pub(crate) word: &'static str,
}

pub(crate) const ALL: [Status; 5] =
    [Status::Pending, Status::Running, Status::Completed, Status::Failed, Status::Cancelled];

pub(crate) fn of(status: Status, t: &'static Text) -> Shown {
    let (class, icon, word) = match status {
        Status::Pending => ("queued", "s-queued", t.status_pending),
        Status::Running => ("live", "s-live", t.status_running),
        Status::Completed => ("done", "s-done", t.status_completed),
        Status::Failed => ("fail", "s-fail", t.status_failed),
        Status::Cancelled => ("stop", "s-stop", t.status_cancelled),
    };
    Shown { key: key(status), class, icon, word }
}

pub(crate) const fn key(status: Status) -> &'static str {
    match status {
        Status::Pending => "pending",
        Status::Running => "running",
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Cancelled => "cancelled",
    }
}

pub(crate) fn parse(text: &str) -> Option<Status> {
    ALL.into_iter().find(|status| key(*status) == text)
}

pub(crate) const fn has_ended(status: Status) -> bool {
    matches!(status, Status::Completed | Status::Failed | Status::Cancelled)
}

pub(crate) fn presence(account: &Account, t: &'static Text) -> Shown {
    match (account.status, &account.runtime) {
        (Presence::Online, _) => Shown { key: "online", class: "done", icon: "s-on", word: t.online },
        (Presence::Offline, Some(_)) => Shown { key: "offline", class: "off", icon: "s-off", word: t.offline },
        (Presence::Offline, None) => Shown { key: "unpaired", class: "off", icon: "s-queued", word: t.unpaired },
    }
}
