//! A delivery as a list row and as a page.

use attache_protocol::wire::delivery::{Delivery, DeliveryKind, DeliveryState};

use super::{actor::short, exact::exact_line, fact::Fact, html::Markup, status::StatusBadge, time::TimeElement};
use crate::text::Text;

pub(crate) const STATES: [DeliveryState; 3] = [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::Failed];

#[derive(Debug, Clone)]
pub(crate) struct DeliveryListRow {
    pub(crate) id: String,
    pub(crate) short: String,
    pub(crate) state: StatusBadge,
    pub(crate) what: &'static str,
    pub(crate) run_short: String,
    /// Chosen by the caller, so it is shown as inert text.
    pub(crate) url: Markup,
    pub(crate) attempts: i64,
    /// State and note as one sentence.
    pub(crate) sentence: Markup,
    /// What comes next, and the last error.
    pub(crate) note: Markup,
    pub(crate) troubled: bool,
    pub(crate) at: TimeElement,
    pub(crate) acknowledged: bool,
}

// === impl DeliveryListRow ===

impl DeliveryListRow {
    pub(crate) fn new(delivery: &Delivery, t: &'static Text) -> Self {
        let acknowledged = delivery.state == DeliveryState::Delivered;
        let (state, note) = (state(delivery.state, t), note(delivery, t));
        let trouble = last_error(delivery, t).filter(|_| !acknowledged);
        Self {
            id: delivery.delivery_id.to_string(),
            short: short(&delivery.delivery_id.to_string()),
            state,
            what: kind_label(delivery.kind, t),
            run_short: short(&delivery.task_run_id.to_string()),
            url: exact_line(&delivery.url),
            attempts: delivery.attempts,
            sentence: t.delivery_line(Markup::text(state.word), &note),
            note: match &trouble {
                Some(trouble) => t.delivery_trouble(note, trouble),
                None => note,
            },
            troubled: trouble.is_some(),
            at: TimeElement::relative(delivery.created_at),
            acknowledged,
        }
    }
}

pub(crate) fn state(state: DeliveryState, t: &'static Text) -> StatusBadge {
    let (class, icon, word) = match state {
        DeliveryState::Pending => ("live", "s-live", t.state_pending),
        DeliveryState::Delivered => ("done", "s-done", t.state_delivered),
        DeliveryState::Failed => ("fail", "s-fail", t.state_failed),
    };
    StatusBadge { key: state.as_str(), class, icon, word }
}

fn kind_label(kind: DeliveryKind, t: &Text) -> &'static str {
    match kind {
        DeliveryKind::RunEnded => t.kind_run_ended,
        DeliveryKind::PermissionRequested => t.kind_permission_requested,
        DeliveryKind::TaskUpdated => t.kind_task_updated,
        DeliveryKind::Notification => t.kind_notification,
    }
}

/// The current state as a sentence.
fn note(delivery: &Delivery, t: &Text) -> Markup {
    match (delivery.state, delivery.next_attempt_at) {
        (DeliveryState::Pending, Some(next)) => t.delivery_next(next),
        (DeliveryState::Pending, None) => Markup::text(t.delivery_now),
        (DeliveryState::Delivered, _) => t.delivery_done(delivery.delivered_at.unwrap_or(delivery.created_at)),
        (DeliveryState::Failed, _) => t.delivery_last(delivery.last_attempt_at.unwrap_or(delivery.created_at)),
    }
}

/// The last error, or else the last HTTP status.
fn last_error(delivery: &Delivery, t: &Text) -> Option<Markup> {
    match (&delivery.last_error, delivery.last_status) {
        (Some(error), _) => Some(hub_words(error)),
        (None, Some(status)) => Some(t.delivery_answered(status)),
        (None, None) => None,
    }
}

/// What the hub recorded, which is English on every page.
fn hub_words(error: &str) -> Markup {
    Markup::trusted(format!("<span lang=\"en\">{}</span>", exact_line(error)))
}

pub(crate) fn facts(delivery: &Delivery, t: &'static Text) -> Vec<Fact> {
    let mut facts = vec![
        Fact::code(t.fact_delivery, &delivery.delivery_id.to_string()),
        Fact::exact(t.fact_url, exact_line(&delivery.url)),
        Fact::markup(t.run, Markup::id_link("runs", &delivery.task_run_id.to_string())),
    ];
    if let Some(request) = delivery.permission_request_id {
        facts.push(Fact::markup(t.fact_request, Markup::id_link("approvals", &request.to_string())));
    }
    facts.push(Fact::text(t.fact_attempts, &delivery.attempts.to_string()));
    facts.push(Fact::when(t.created, delivery.created_at));
    let moments = [
        (t.fact_last, delivery.last_attempt_at),
        (t.fact_next, delivery.next_attempt_at),
        (t.fact_delivered, delivery.delivered_at),
    ];
    facts.extend(moments.into_iter().filter_map(|(name, at)| Some(Fact::when(name, at?))));
    if let Some(status) = delivery.last_status {
        facts.push(Fact::markup(t.fact_status, t.delivery_answered(status)));
    }
    if let Some(error) = &delivery.last_error {
        facts.push(Fact::markup(t.fact_error, hub_words(error)));
    }
    facts
}
