//! Usage by day and by agent or person, for the chart and its tables.

use std::collections::HashMap;

use attache_protocol::{
    Timestamp,
    rules::quota::{QuotaMeasure, UtcDay},
    wire::usage::UsageRow,
};

use super::{amount, callsign};
use crate::text::Text;

/// How usage is grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageGroup {
    Agent,
    User,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UsageTotals {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) tokens: u64,
    pub(crate) micro_usd: u64,
    pub(crate) reported: u64,
    pub(crate) estimated: u64,
    pub(crate) unknown: u64,
    pub(crate) duration_ms: u64,
}

/// One agent or person, with its own colour.
#[derive(Debug, Clone)]
pub(crate) struct UsageSeries {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) total: UsageTotals,
    /// In the order of the ledger's days.
    pub(crate) days: Vec<UsageTotals>,
}

#[derive(Debug, Clone)]
pub(crate) struct UsageBreakdown {
    pub(crate) days: Vec<UtcDay>,
    pub(crate) series: Vec<UsageSeries>,
    pub(crate) total: UsageTotals,
    pub(crate) by_day: Vec<UsageTotals>,
}

/// One per colour. The smallest ones share the last series.
const MAX_SERIES: usize = callsign::COLOURS as usize;
const CLASSES: [&str; MAX_SERIES] = ["a1", "a2", "a3", "a4", "a5", "a6", "a7"];
const REST: &str = "a0";

// === impl UsageGroup ===

impl UsageGroup {
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::User => "user",
        }
    }
}

// === impl UsageTotals ===

impl UsageTotals {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.micro_usd = self.micro_usd.saturating_add(other.micro_usd);
        self.reported += other.reported;
        self.estimated += other.estimated;
        self.unknown += other.unknown;
        self.duration_ms = self.duration_ms.saturating_add(other.duration_ms);
    }

    /// No call reported a cost, which is different from zero cost.
    pub(crate) const fn is_cost_unknown(&self) -> bool {
        self.calls > 0 && self.unknown == self.calls && self.micro_usd == 0
    }

    pub(crate) const fn of(&self, measure: QuotaMeasure) -> u64 {
        match measure {
            QuotaMeasure::Calls => self.calls,
            QuotaMeasure::Tokens => self.tokens,
            QuotaMeasure::Cost => self.micro_usd,
        }
    }
}

impl From<&UsageRow> for UsageTotals {
    fn from(row: &UsageRow) -> Self {
        Self {
            calls: row.calls,
            failed: row.failed,
            tokens: row.tokens,
            micro_usd: amount::micro(&row.cost_usd),
            reported: row.reported,
            estimated: row.estimated,
            unknown: row.unknown,
            duration_ms: row.duration_ms,
        }
    }
}

// === impl UsageBreakdown ===

impl UsageBreakdown {
    /// The last days up to today. Series are sorted by usage.
    pub(crate) fn new(
        rows: &[UsageRow],
        (now, length): (Timestamp, i64),
        group: UsageGroup,
        measure: QuotaMeasure,
        t: &'static Text,
    ) -> Self {
        let today = UtcDay::of(now);
        let days: Vec<UtcDay> = (0..length).rev().map(|back| UtcDay(today.0 - back)).collect();
        let places: HashMap<String, usize> =
            days.iter().enumerate().map(|(place, day)| (written(*day), place)).collect();
        let mut ledger = Self {
            by_day: vec![UsageTotals::default(); days.len()],
            days,
            series: Vec::new(),
            total: UsageTotals::default(),
        };
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut wishes = Vec::new();
        for row in rows {
            let Some(&place) = places.get(&row.day) else { continue };
            let (key, name, wish) = match group {
                UsageGroup::Agent => {
                    (row.agent_id.to_string(), row.agent_name.clone(), Some(callsign::colour(row.agent_id)))
                }
                UsageGroup::User => {
                    let key = row.user_id.map(|id| id.to_string()).unwrap_or_default();
                    let name = row.user_name.clone().unwrap_or_else(|| match row.user_id {
                        Some(_) => t.somebody.to_owned(),
                        None => t.nobody.to_owned(),
                    });
                    (key, name, None)
                }
            };
            let index = *known.entry(key).or_insert_with(|| {
                let days = vec![UsageTotals::default(); ledger.days.len()];
                ledger.series.push(UsageSeries { name, class: REST, total: UsageTotals::default(), days });
                wishes.push(wish);
                ledger.series.len() - 1
            });
            let used = UsageTotals::from(row);
            let series = &mut ledger.series[index];
            series.days[place].add(&used);
            series.total.add(&used);
            ledger.by_day[place].add(&used);
            ledger.total.add(&used);
        }
        ledger.arrange(&wishes, measure, t);
        ledger
    }

    /// The largest first, each with its agent's usual colour if it is free.
    fn arrange(&mut self, wishes: &[Option<u8>], measure: QuotaMeasure, t: &'static Text) {
        let mut ordered: Vec<_> = std::mem::take(&mut self.series).into_iter().zip(wishes.iter().copied()).collect();
        ordered.sort_by(|(left, _), (right, _)| {
            let size = |series: &UsageSeries| (series.total.of(measure), series.total.calls);
            size(right).cmp(&size(left)).then_with(|| left.name.cmp(&right.name))
        });
        let rest = if ordered.len() > MAX_SERIES { ordered.split_off(MAX_SERIES - 1) } else { Vec::new() };
        let mut free: Vec<_> = CLASSES.into_iter().map(Some).collect();
        for (series, wish) in &mut ordered {
            let wished = wish.map(|number| usize::from(number) - 1).filter(|place| free[*place].is_some());
            let place = wished.or_else(|| free.iter().position(Option::is_some));
            series.class = place.and_then(|place| free[place].take()).unwrap_or(REST);
        }
        self.series = ordered.into_iter().map(|(series, _)| series).collect();
        if !rest.is_empty() {
            let mut others = UsageSeries {
                name: t.others.to_owned(),
                class: REST,
                total: UsageTotals::default(),
                days: vec![UsageTotals::default(); self.days.len()],
            };
            for (series, _) in &rest {
                others.total.add(&series.total);
                for (sum, day) in others.days.iter_mut().zip(&series.days) {
                    sum.add(day);
                }
            }
            self.series.push(others);
        }
    }

    /// Usage since midnight UTC.
    pub(crate) fn today(&self) -> UsageTotals {
        self.by_day.last().copied().unwrap_or_default()
    }
}

/// `2026-11-15`.
pub(crate) fn written(day: UtcDay) -> String {
    let text = day.begins_at().to_string();
    text.get(..10).unwrap_or(&text).to_owned()
}

/// `15 Nov`, in the order of the language.
pub(crate) fn short_date(day: UtcDay, t: &Text) -> String {
    let text = written(day);
    let part = |range| text.get(range).and_then(|part: &str| part.parse::<usize>().ok()).unwrap_or(1);
    let month = t.months.split(' ').nth(part(5..7) - 1).unwrap_or_default();
    t.day_month(part(8..10), month)
}
