//! A quota as bars: used, reserved and total.

use attache_protocol::{rules::quota::QuotaMeasure, wire::usage::Quota};

use super::{
    amount::{self, MEASURES, full, measure_label},
    chart::gauge,
    html::{Markup, PlaceholderValue},
    time::TimeElement,
};
use crate::text::{AdminText, fill};

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
    pub(crate) fn new(quota: &Quota, o: &'static AdminText) -> Self {
        let user = quota.user_name.as_deref().map(|name| ("user", PlaceholderValue::Text(name)));
        let agent = quota.agent_name.as_deref().map(|name| ("agent", PlaceholderValue::Text(name)));
        let title = match (user, agent) {
            (None, None) => Markup::text(o.quota_everything),
            (Some(user), None) => Markup::sentence(o.quota_user, &[user]),
            (None, Some(agent)) => Markup::sentence(o.quota_agent, &[agent]),
            (Some(user), Some(agent)) => Markup::sentence(o.quota_both, &[user, agent]),
        };
        let limits = MEASURES.into_iter().filter_map(|measure| Some((measure, limit(quota, measure)?)));
        let mut is_full = false;
        let bars = limits
            .map(|(measure, limit)| {
                let (spent, held) = used(quota, measure);
                is_full |= spent.saturating_add(held) >= limit;
                QuotaBar::new(measure, (spent, held, limit), o)
            })
            .collect();
        let at = [("at", PlaceholderValue::When(TimeElement::full(quota.resets_at)))];
        Self {
            title,
            user: quota.user_id.map(|id| id.to_string()).unwrap_or_default(),
            agent: quota.agent_id.map(|id| id.to_string()).unwrap_or_default(),
            bars,
            full: is_full.then(|| Markup::sentence(o.quota_full, &at)),
        }
    }
}

// === impl QuotaBar ===

impl QuotaBar {
    fn new(measure: QuotaMeasure, (spent, held, limit): (u64, u64, u64), o: &'static AdminText) -> Self {
        let (spent_text, held_text) = (full(measure, spent), full(measure, held));
        let limit_text = full(measure, limit);
        let measure = measure_label(measure, o);
        let blanks = [("measure", measure), ("spent", &*spent_text), ("held", &*held_text), ("limit", &*limit_text)];
        Self {
            measure,
            spent: fill(o.quota_spent, &blanks),
            held: (held > 0).then(|| fill(o.quota_held, &blanks)),
            gauge: gauge(spent, held, limit, &fill(o.quota_bar, &blanks)),
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
