//! The usage of a run and its remaining budget. Pure.

use attache_protocol::Json;
use serde::{Deserialize, Serialize};

/// The run's usage so far, as reported by a host: a total. What a host reports per turn is added up first ([`HostUsage::plus`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct HostUsage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost_usd: Option<f64>,
    pub(crate) cost_source: CostCertainty,
}

/// How reliable the cost is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CostCertainty {
    Reported,
    Estimated,
    #[default]
    Unknown,
}

/// The remaining budget of a run. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(crate) struct RunBudget {
    #[serde(default)]
    pub(crate) tokens: Option<u64>,
    #[serde(default)]
    pub(crate) cost_usd: Option<f64>,
}

// === impl HostUsage ===

impl HostUsage {
    /// Input and output tokens, as counted by the host.
    pub(crate) fn of_tokens(input: u64, output: u64) -> Self {
        let tokens = Some(input.saturating_add(output));
        Self { tokens, input_tokens: Some(input), output_tokens: Some(output), ..Self::default() }
    }

    #[must_use]
    pub(crate) fn with_cost(mut self, usd: f64) -> Self {
        if usd.is_finite() && usd >= 0.0 {
            (self.cost_usd, self.cost_source) = (Some(usd), CostCertainty::Reported);
        }
        self
    }

    /// Merges a newer report. Totals only grow: a smaller number covered less, so the larger one stays.
    pub(crate) fn merge(&mut self, more: Self) {
        let larger = |old: Option<u64>, new: Option<u64>| old.max(new);
        self.tokens = larger(self.tokens, more.tokens);
        self.input_tokens = larger(self.input_tokens, more.input_tokens);
        self.output_tokens = larger(self.output_tokens, more.output_tokens);
        if more.cost_usd.unwrap_or(-1.0) >= self.cost_usd.unwrap_or(-1.0) && more.cost_usd.is_some() {
            (self.cost_usd, self.cost_source) = (more.cost_usd, more.cost_source);
        }
    }

    /// The usage of this and a further turn.
    #[must_use]
    pub(crate) fn plus(self, turn: Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
        let (cost_usd, cost_source) = match (self.cost_usd, turn.cost_usd) {
            (Some(one), Some(other)) => (Some(one + other), turn.cost_source),
            (None, Some(other)) => (Some(other), turn.cost_source),
            (one, None) => (one, self.cost_source),
        };
        Self {
            tokens: sum(self.tokens, turn.tokens),
            input_tokens: sum(self.input_tokens, turn.input_tokens),
            output_tokens: sum(self.output_tokens, turn.output_tokens),
            cost_usd,
            cost_source,
        }
    }

    pub(crate) fn is_known(&self) -> bool {
        self.tokens.is_some() || self.cost_usd.is_some()
    }
}

// === impl RunBudget ===

impl RunBudget {
    /// Reads the budget of a task. Unreadable members are no limit here; the hub still counts.
    pub(crate) fn of(json: Option<&Json>) -> Self {
        json.and_then(|json| json.parse().ok()).unwrap_or_default()
    }

    /// The exceeded limit, in words for people. `None` while budget is left.
    pub(crate) fn exceeded_by(&self, usage: &HostUsage) -> Option<String> {
        if let (Some(limit), Some(used)) = (self.tokens, usage.tokens)
            && used >= limit
        {
            return Some(format!("{used} tokens used, {limit} allowed"));
        }
        if let (Some(limit), Some(used)) = (self.cost_usd, usage.cost_usd)
            && used >= limit
        {
            return Some(format!("${used:.4} spent, ${limit:.4} allowed"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_only_grow_and_the_cost_keeps_its_source() {
        let mut usage = HostUsage::of_tokens(10, 5).with_cost(0.5);
        usage.merge(HostUsage::of_tokens(8, 6));
        assert_eq!(usage, HostUsage { output_tokens: Some(6), ..HostUsage::of_tokens(10, 5).with_cost(0.5) });
        usage.merge(HostUsage::of_tokens(20, 5).with_cost(f64::NAN));
        assert_eq!((usage.tokens, usage.cost_usd, usage.cost_source), (Some(25), Some(0.5), CostCertainty::Reported));
    }

    #[test]
    fn turns_add_up() {
        let first = HostUsage::of_tokens(10, 5).with_cost(0.25);
        assert_eq!(HostUsage::default().plus(first), first);
        assert_eq!(first.plus(HostUsage::default()), first);
        assert_eq!(first.plus(HostUsage::of_tokens(8, 6).with_cost(0.5)), HostUsage::of_tokens(18, 11).with_cost(0.75));
        assert_eq!(first.plus(HostUsage::of_tokens(u64::MAX, 1)).tokens, Some(u64::MAX));
    }

    #[test]
    fn a_budget_is_exceeded_when_nothing_is_left() {
        let budget = RunBudget::of(Some(&Json::from_text(r#"{"tokens":100,"cost_usd":0.25}"#).unwrap()));
        assert_eq!(budget, RunBudget { tokens: Some(100), cost_usd: Some(0.25) });
        assert_eq!(budget.exceeded_by(&HostUsage::of_tokens(60, 39).with_cost(0.2)), None);
        let said = |usage| budget.exceeded_by(&usage).unwrap();
        assert_eq!(said(HostUsage::of_tokens(60, 40)), "100 tokens used, 100 allowed");
        assert_eq!(said(HostUsage::default().with_cost(0.3)), "$0.3000 spent, $0.2500 allowed");
        assert_eq!(RunBudget::of(None).exceeded_by(&HostUsage::of_tokens(u64::MAX, 1)), None);
        assert_eq!(RunBudget::of(Some(&Json::from_text("[]").unwrap())), RunBudget::default());
    }
}
