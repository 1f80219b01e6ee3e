//! A delegation as a list row and as a page. All of its data comes from the delegating daemon.

use attache_protocol::{
    Timestamp,
    rules::delegation::DelegationStatus,
    wire::{
        awcp::AccessMode,
        delegation::{ChangedPath, FileChangeKind, PublishedDelegation},
    },
};

use super::{actor::short, exact::exact_line, fact::Fact, html::Markup, status::StatusBadge, time::TimeElement};
use crate::text::Text;

#[derive(Debug, Clone)]
pub(crate) struct DelegationListRow {
    pub(crate) id: String,
    pub(crate) short: String,
    pub(crate) status: StatusBadge,
    pub(crate) folder: Markup,
    pub(crate) description: Markup,
    pub(crate) device: Markup,
    pub(crate) peer: Markup,
    pub(crate) route: Markup,
    pub(crate) mode: &'static str,
    /// The lease, while the delegation is active.
    pub(crate) lease: Option<LeaseGauge>,
    pub(crate) changed: Option<String>,
    pub(crate) at: TimeElement,
    /// It is active, and its end has not been requested.
    pub(crate) can_cancel: bool,
    pub(crate) cancel_requested: bool,
}

/// The remaining time of a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseGauge {
    pub(crate) left: TimeElement,
    pub(crate) ends: TimeElement,
    /// Percentage of time used.
    pub(crate) used: u64,
    pub(crate) rest: u64,
}

/// One changed file.
#[derive(Debug, Clone)]
pub(crate) struct ChangedFileRow {
    pub(crate) path: Markup,
    pub(crate) class: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) word: &'static str,
    pub(crate) added: Option<u64>,
    pub(crate) removed: Option<u64>,
    pub(crate) also_here: bool,
}

// === impl DelegationListRow ===

impl DelegationListRow {
    pub(crate) fn new(published: &PublishedDelegation, now: Timestamp, t: &'static Text) -> Self {
        let delegation = &published.delegation;
        let ended = delegation.status.has_ended();
        let stat = delegation.changes.as_ref().map(|changes| changes.diff_stat);
        let (device, peer) = (exact_line(&delegation.device_name), exact_line(&delegation.peer_url));
        Self {
            id: published.delegation_id.to_string(),
            short: short(&published.delegation_id.to_string()),
            status: status(delegation.status, published.cancel_requested, t),
            folder: exact_line(&delegation.folder),
            description: exact_line(&delegation.description),
            route: t.route(
                Markup::trusted(format!("<span>{device}</span>")),
                Markup::trusted(format!("<span class=\"wrap\">{peer}</span>")),
            ),
            device,
            peer,
            mode: match delegation.access_mode {
                AccessMode::Ro => t.mode_ro,
                AccessMode::Rw => t.mode_rw,
            },
            lease: delegation
                .expires_at
                .filter(|_| !ended)
                .map(|ends| LeaseGauge::new(delegation.created_at, ends, now)),
            changed: stat.map(|stat| t.changed_files(stat.files_changed, stat.insertions, stat.deletions)),
            at: TimeElement::relative(delegation.ended_at.unwrap_or(delegation.created_at)),
            can_cancel: !ended && !published.cancel_requested,
            cancel_requested: !ended && published.cancel_requested,
        }
    }
}

pub(crate) fn status(status: DelegationStatus, cancel_requested: bool, t: &'static Text) -> StatusBadge {
    let (class, icon, word) = match status {
        _ if cancel_requested && !status.has_ended() => ("wait", "s-wait", t.lent_ending),
        DelegationStatus::Created => ("queued", "s-queued", t.lent_created),
        DelegationStatus::Invited => ("queued", "s-queued", t.lent_invited),
        DelegationStatus::Accepted => ("live", "s-live", t.lent_accepted),
        DelegationStatus::Started => ("live", "s-live", t.lent_started),
        DelegationStatus::Running => ("live", "s-live", t.lent_running),
        DelegationStatus::Completed => ("done", "s-done", t.lent_completed),
        DelegationStatus::Error => ("fail", "s-fail", t.lent_error),
        DelegationStatus::Cancelled => ("stop", "s-stop", t.lent_cancelled),
        DelegationStatus::Expired => ("stop", "s-stop", t.lent_expired),
    };
    StatusBadge { key: status.as_str(), class, icon, word }
}

// === impl LeaseGauge ===

impl LeaseGauge {
    fn new(began: Timestamp, ends: Timestamp, now: Timestamp) -> Self {
        let whole = ends.since(began).as_millis().max(1);
        let gone = now.since(began).as_millis().min(whole);
        let used = u64::try_from(gone * 100 / whole).unwrap_or(100);
        Self { left: TimeElement::countdown(ends), ends: TimeElement::clock(ends), used, rest: 100 - used }
    }
}

// === impl ChangedFileRow ===

impl ChangedFileRow {
    pub(crate) fn new(changed: &ChangedPath, t: &'static Text) -> Self {
        let (class, icon, word) = match changed.change {
            FileChangeKind::Added => ("done", "plus", t.file_added),
            FileChangeKind::Modified => ("live", "pen", t.file_modified),
            FileChangeKind::Removed => ("fail", "x", t.file_removed),
            FileChangeKind::Attributes => ("off", "file", t.file_attributes),
        };
        Self {
            path: exact_line(&changed.path),
            class,
            icon,
            word,
            added: changed.added,
            removed: changed.removed,
            also_here: changed.also_changed_here,
        }
    }
}

/// The details of a delegation.
pub(crate) fn facts(published: &PublishedDelegation, t: &'static Text) -> Vec<Fact> {
    let delegation = &published.delegation;
    let mut facts = vec![
        Fact::code(t.fact_delegation, &published.delegation_id.to_string()),
        Fact::exact(t.fact_lender, exact_line(&published.owner)),
        Fact::exact(t.fact_lent_from, exact_line(&delegation.device_name)),
        Fact::exact(t.fact_lent_to, exact_line(&delegation.peer_url)),
        Fact::code(t.fact_mode, delegation.access_mode.as_str()),
        Fact::when(t.created, delegation.created_at),
    ];
    let moments = [(t.fact_lease, delegation.expires_at), (t.fact_ended, delegation.ended_at)];
    facts.extend(moments.into_iter().filter_map(|(name, at)| Some(Fact::when(name, at?))));
    let words = [(t.fact_waits_for, &delegation.waits_for), (t.fact_progress, &delegation.progress)];
    facts.extend(words.into_iter().filter_map(|(name, text)| Some(Fact::markup(name, exact_line(text.as_ref()?)))));
    facts.push(Fact::when(t.fact_heard, published.updated_at));
    facts
}
