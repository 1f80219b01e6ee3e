//! Usage of runs, and daily quotas.

use crate::text_enum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    AgentId, Json, Timestamp, UserId,
    rules::quota::{Spend, micro_usd},
    wire::{call::CallId, envelope::FrameObject},
};

text_enum! {
    /// The reliability of a usage figure.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum CostSource {
        /// Reported by the agent.
        Reported = "reported",
        /// Estimated by the agent or its adapter.
        Estimated = "estimated",
        /// Not reported.
        Unknown = "unknown",
    }
}

/// A run's reported usage: `{"tokens","cost_usd","source"?}` and any other members. `cost_source` is an alias of
/// `source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedUsage {
    pub tokens: Option<u64>,
    pub micro_usd: Option<u64>,
    pub source: CostSource,
}

/// An invalid usage report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{member} {problem}")]
pub struct UsageParseError {
    pub member: &'static str,
    pub problem: &'static str,
}

/// The most one run may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Json>,
}

/// `PUT /api/v1/quotas`: daily limits (UTC) for a user, an agent, a user with an agent, or the entire tenant. An absent
/// limit means unlimited. Without any limits, the quota is removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetQuotaRequest {
    /// A user's name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// An agent's name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Json>,
}

/// An amount of each measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageAmounts {
    pub calls: u64,
    pub tokens: u64,
    /// Dollars.
    pub cost_usd: Json,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quota {
    pub user_id: Option<UserId>,
    pub user_name: Option<String>,
    pub agent_id: Option<AgentId>,
    pub agent_name: Option<String>,
    pub calls: Option<u64>,
    pub tokens: Option<u64>,
    pub cost_usd: Option<Json>,
    /// Today so far.
    pub spent: UsageAmounts,
    /// Reserved for runs in progress.
    pub held: UsageAmounts,
    pub resets_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaList {
    pub quotas: Vec<Quota>,
    /// Always null: a hub has few of them.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// The usage of one user with one agent on one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageRow {
    /// `2026-11-15`, in UTC.
    pub day: String,
    pub user_id: Option<UserId>,
    pub user_name: Option<String>,
    pub agent_id: AgentId,
    pub agent_name: String,
    pub calls: u64,
    /// How many of them did not complete.
    pub failed: u64,
    pub tokens: u64,
    pub cost_usd: Json,
    /// How many calls reported their usage, had it estimated, or reported nothing.
    pub reported: u64,
    pub estimated: u64,
    pub unknown: u64,
    pub duration_ms: u64,
}

/// `GET /api/v1/usage?from=&to=`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageReport {
    pub from: String,
    pub to: String,
    pub rows: Vec<UsageRow>,
}

/// The usage of one call, as in `GET /api/v1/usage/records`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageRecord {
    /// Null if the call is to a private agent and hidden from you.
    #[schema(value_type = Option<String>)]
    pub call_id: Option<CallId>,
    /// The caller, as `kind:id`. For a hidden call, the person it was made for.
    pub caller: String,
    /// The agent's name.
    pub callee: String,
    pub tokens: Option<u64>,
    /// Dollars.
    pub cost: Option<Json>,
    pub cost_source: CostSource,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageRecordList {
    pub usage_records: Vec<UsageRecord>,
    pub next_cursor: Option<String>,
}

// === impl ReportedUsage ===

impl ReportedUsage {
    pub const NOTHING: Self = Self { tokens: None, micro_usd: None, source: CostSource::Unknown };

    /// The countable members of a report. Other members are ignored.
    pub fn read(usage: &Json) -> Result<Self, UsageParseError> {
        let members = FrameObject::read("usage", usage.get())
            .map_err(|_| UsageParseError { member: "usage", problem: "must be an object" })?;
        let number = |member| members.raw(member).filter(|text| *text != "null");
        let tokens = number("tokens").map(|text| whole(text).ok_or(not_an_amount("usage.tokens"))).transpose()?;
        let cost = number("cost_usd").map(|text| micro_usd(text).ok_or(not_an_amount("usage.cost_usd"))).transpose()?;
        let said = number("source").or_else(|| number("cost_source"));
        let source = match (tokens.is_some() || cost.is_some(), said) {
            (true, Some(r#""estimated""#)) => CostSource::Estimated,
            (true, Some(r#""reported""#)) => CostSource::Reported,
            (false, _) | (true, Some(r#""unknown""#)) => CostSource::Unknown,
            // A stated cost counts as reported. Token counts alone often come from an intermediary.
            (true, _) if cost.is_some() => CostSource::Reported,
            (true, _) => CostSource::Unknown,
        };
        Ok(Self { tokens, micro_usd: cost, source })
    }

    /// A run's known usage. Invalid amounts count as none.
    pub fn of(usage: Option<&Json>) -> Self {
        usage.and_then(|usage| Self::read(usage).ok()).unwrap_or(Self::NOTHING)
    }

    /// Whether this total can follow `before`: nothing decreased, and something increased or became more certain.
    pub fn grew_from(self, before: Self) -> bool {
        let grew = |now: Option<u64>, before: Option<u64>| (now >= before, now > before);
        let (tokens, cost) = (grew(self.tokens, before.tokens), grew(self.micro_usd, before.micro_usd));
        tokens.0 && cost.0 && (tokens.1 || cost.1)
    }

    /// The amounts that count against quotas. Invalid amounts count as none.
    pub fn spend(usage: Option<&Json>) -> Spend {
        let used = Self::of(usage);
        Spend { calls: 1, tokens: used.tokens.unwrap_or(0), micro_usd: used.micro_usd.unwrap_or(0) }
    }
}

// === impl CostSource ===

impl CostSource {
    /// The source of a run's usage. `None` if there is no usage.
    pub fn of(usage: Option<&Json>) -> Option<Self> {
        usage.map(|usage| ReportedUsage::read(usage).map_or(Self::Unknown, |used| used.source))
    }
}

const fn not_an_amount(member: &'static str) -> UsageParseError {
    UsageParseError { member, problem: "must be a non-negative number" }
}

/// A JSON number. Fractions are rounded up.
fn whole(text: &str) -> Option<u64> {
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => micro_usd(text).map(|millionths| millionths.div_ceil(1_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ReportedUsage, UsageParseError> {
        ReportedUsage::read(&Json::from_text(text).unwrap())
    }

    #[test]
    fn countable_members_of_a_report_are_read() {
        let used = |tokens, micro_usd, source| Ok(ReportedUsage { tokens, micro_usd, source });
        assert_eq!(read(r#"{"tokens":1500,"cost_usd":0.05}"#), used(Some(1500), Some(50_000), CostSource::Reported));
        let estimated = r#"{"cost_usd":1e-7,"cost_source":"estimated","model":"x"}"#;
        assert_eq!(read(estimated), used(None, Some(1), CostSource::Estimated));
        assert_eq!(read(r#"{"tokens":12.5,"cost_usd":null}"#), used(Some(13), None, CostSource::Unknown));
        let said = |source: &str| read(&format!(r#"{{"tokens":1,"source":"{source}"}}"#)).map(|used| used.source);
        assert_eq!(said("reported"), Ok(CostSource::Reported));
        assert_eq!(said("estimated"), Ok(CostSource::Estimated));
        assert_eq!((said("unknown"), said("a guess")), (Ok(CostSource::Unknown), Ok(CostSource::Unknown)));
        let unsure = r#"{"cost_usd":1,"source":"unknown","cost_source":"estimated"}"#;
        assert_eq!(read(unsure), used(None, Some(1_000_000), CostSource::Unknown));
        assert_eq!(read(r#"{"source":"reported"}"#), Ok(ReportedUsage::NOTHING), "nothing was said");
        assert_eq!(read("{}"), Ok(ReportedUsage::NOTHING));
        for bad in [r#"{"tokens":-1}"#, r#"{"tokens":"7"}"#, r#"{"cost_usd":-0.1}"#, r#"{"cost_usd":"1"}"#, "[]"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
