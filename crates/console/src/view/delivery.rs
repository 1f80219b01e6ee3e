//! A delivery as a list row and as a page.

use attache_protocol::wire::delivery::{Delivery, DeliveryKind, DeliveryState};

use super::{
    actor::short,
    exact::exact_line,
    fact::Fact,
    html::{Markup, PlaceholderValue},
    status::StatusBadge,
    time::TimeElement,
};
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
    pub(crate) note: Markup,
    /// The last error.
    pub(crate) trouble: Option<Markup>,
    pub(crate) at: TimeElement,
    pub(crate) acknowledged: bool,
}

// === impl DeliveryListRow ===

impl DeliveryListRow {
    pub(crate) fn new(delivery: &Delivery, t: &'static Text) -> Self {
        let acknowledged = delivery.state == DeliveryState::Delivered;
        Self {
            id: delivery.delivery_id.to_string(),
            short: short(&delivery.delivery_id.to_string()),
            state: state(delivery.state, t),
            what: kind_label(delivery.kind, t),
            run_short: short(&delivery.task_run_id.to_string()),
            url: exact_line(&delivery.url),
            attempts: delivery.attempts,
            note: note(delivery, t),
            trouble: last_error(delivery, t).filter(|_| !acknowledged),
            at: TimeElement::relative(delivery.created_at),
            acknowledged,
        }
    }
}

pub(crate) fn state(state: DeliveryState, t: &'static Text) -> StatusBadge {
    let (class, icon, word) = match state {
        DeliveryState::Pending => ("live", "s-live", t.admin.state_pending),
        DeliveryState::Delivered => ("done", "s-done", t.admin.state_delivered),
        DeliveryState::Failed => ("fail", "s-fail", t.admin.state_failed),
    };
    StatusBadge { key: state.as_str(), class, icon, word }
}

const fn kind_label(kind: DeliveryKind, t: &Text) -> &'static str {
    match kind {
        DeliveryKind::RunEnded => t.admin.kind_run_ended,
        DeliveryKind::PermissionRequested => t.admin.kind_permission_requested,
        DeliveryKind::TaskUpdated => t.admin.kind_task_updated,
    }
}

/// The current state as a sentence.
fn note(delivery: &Delivery, t: &Text) -> Markup {
    let at = |sentence, at| Markup::sentence(sentence, &[("at", PlaceholderValue::When(TimeElement::relative(at)))]);
    match (delivery.state, delivery.next_attempt_at) {
        (DeliveryState::Pending, Some(next)) => at(t.admin.delivery_next, next),
        (DeliveryState::Pending, None) => Markup::text(t.admin.delivery_now),
        (DeliveryState::Delivered, _) => {
            at(t.admin.delivery_done, delivery.delivered_at.unwrap_or(delivery.created_at))
        }
        (DeliveryState::Failed, _) => {
            at(t.admin.delivery_last, delivery.last_attempt_at.unwrap_or(delivery.created_at))
        }
    }
}

/// The last error, or else the last HTTP status.
fn last_error(delivery: &Delivery, t: &Text) -> Option<Markup> {
    match (&delivery.last_error, delivery.last_status) {
        (Some(error), _) => Some(exact_line(error)),
        (None, Some(status)) => Some(answered(status, t)),
        (None, None) => None,
    }
}

fn answered(status: u16, t: &Text) -> Markup {
    Markup::sentence(t.admin.delivery_answered, &[("status", PlaceholderValue::Text(&status.to_string()))])
}

pub(crate) fn facts(delivery: &Delivery, t: &'static Text) -> Vec<Fact> {
    let o = &t.admin;
    let when = |at| Markup::sentence("{at}", &[("at", PlaceholderValue::When(TimeElement::relative(at)))]);
    let link = |path: &str, id: &str| {
        let href = format!("/{path}/{id}");
        Markup::sentence("{id}", &[("id", PlaceholderValue::Link(&href, &short(id)))])
    };
    let mut facts = vec![
        Fact::code(o.fact_delivery, &delivery.delivery_id.to_string()),
        Fact::exact(o.fact_url, exact_line(&delivery.url)),
        Fact::markup(t.fact_run, link("runs", &delivery.task_run_id.to_string())),
    ];
    if let Some(request) = delivery.permission_request_id {
        facts.push(Fact::markup(o.fact_request, link("approvals", &request.to_string())));
    }
    facts.push(Fact::text(o.fact_attempts, &delivery.attempts.to_string()));
    facts.push(Fact::markup(t.created, when(delivery.created_at)));
    let moments = [
        (o.fact_last, delivery.last_attempt_at),
        (o.fact_next, delivery.next_attempt_at),
        (o.fact_delivered, delivery.delivered_at),
    ];
    facts.extend(moments.into_iter().filter_map(|(name, at)| Some(Fact::markup(name, when(at?)))));
    if let Some(status) = delivery.last_status {
        facts.push(Fact::markup(o.fact_status, answered(status, t)));
    }
    if let Some(error) = &delivery.last_error {
        facts.push(Fact::markup(o.fact_error, exact_line(error)));
    }
    facts
}
