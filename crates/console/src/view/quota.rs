//! A quota as bars: used, reserved and total.

use attache_protocol::{rules::quota::QuotaMeasure, wire::usage::Quota};

use super::{
    amount::{self, MEASURES, full, measure_label},
    chart::gauge,
    html::Markup,
    time::TimeElement,
};
use crate::text::Text;

#[derive(Debug, Clone)]
pub(crate) struct QuotaListRow {
    pub(crate) title: Markup,
    pub(crate) user: String,
    pub(crate) agent: String,
    pub(crate) bars: Vec<QuotaBar>,
    pub(crate) full: Option<Markup>,
}

#[derive(Debug, Clone)]
pub(crate) struct QuotaBar {
    pub(crate) measure: &'static str,
    pub(crate) spent: String,
    pub(crate) held: Option<String>,
    pub(crate) gauge: Markup,
}

// === impl QuotaListRow ===

impl QuotaListRow {
    pub(crate) fn new(quota: &Quota, t: &'static Text) -> Self {
        let title = match (quota.user_name.as_deref(), quota.agent_name.as_deref()) {
            (None, None) => Markup::text(t.quota_everything),
            (Some(user), None) => t.quota_user(user),
            (None, Some(agent)) => t.quota_agent(agent),
            (Some(user), Some(agent)) => t.quota_both(user, agent),
        };
        let limits = MEASURES.into_iter().filter_map(|measure| Some((measure, limit(quota, measure)?)));
        let mut is_full = false;
        let bars = limits
            .map(|(measure, limit)| {
                let (spent, held) = used(quota, measure);
                is_full |= spent.saturating_add(held) >= limit;
                QuotaBar::new(measure, (spent, held, limit), t)
            })
            .collect();
        Self {
            title,
            user: quota.user_id.map(|id| id.to_string()).unwrap_or_default(),
            agent: quota.agent_id.map(|id| id.to_string()).unwrap_or_default(),
            bars,
            full: is_full.then(|| t.quota_full(TimeElement::full(quota.resets_at))),
        }
    }
}

// === impl QuotaBar ===

impl QuotaBar {
    fn new(measure: QuotaMeasure, (spent, held, limit): (u64, u64, u64), t: &'static Text) -> Self {
        let (spent_text, held_text, limit_text) = (full(measure, spent), full(measure, held), full(measure, limit));
        let measure = measure_label(measure, t);
        Self {
            measure,
            spent: t.quota_spent(&spent_text, &limit_text),
            held: (held > 0).then(|| t.quota_held(&held_text)),
            gauge: gauge(spent, held, limit, &t.quota_bar(measure, &spent_text, &held_text, &limit_text)),
        }
    }
}

fn limit(quota: &Quota, measure: QuotaMeasure) -> Option<u64> {
    match measure {
        QuotaMeasure::Calls => quota.calls,
        QuotaMeasure::Tokens => quota.tokens,
        QuotaMeasure::Cost => quota.cost_usd.as_ref().map(amount::micro),
    }
}

fn used(quota: &Quota, measure: QuotaMeasure) -> (u64, u64) {
    match measure {
        QuotaMeasure::Calls => (quota.spent.calls, quota.held.calls),
        QuotaMeasure::Tokens => (quota.spent.tokens, quota.held.tokens),
        QuotaMeasure::Cost => (amount::micro(&quota.spent.cost_usd), amount::micro(&quota.held.cost_usd)),
    }
}
