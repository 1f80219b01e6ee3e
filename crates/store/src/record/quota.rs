//! Quotas and their usage.

use attache_protocol::{
    AgentId, UserId,
    rules::quota::{QuotaAccount, QuotaLimits, UtcDay},
};

/// The target of a quota: the runs of a user, of an agent, of a user with an agent, or of the entire tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaTarget {
    pub user: Option<UserId>,
    pub agent: Option<AgentId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaRecord {
    pub target: QuotaTarget,
    pub limits: QuotaLimits,
    /// The day's account: used and reserved amounts, including runs from before the quota was set.
    pub account: QuotaAccount,
}

/// Usage of one user with one agent on one day. A run counts once it has ended, on the day it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DailyUsage {
    pub day: UtcDay,
    pub user: Option<UserId>,
    pub agent: AgentId,
    pub calls: u64,
    /// Those that didn't complete.
    pub failed: u64,
    pub tokens: u64,
    pub micro_usd: u64,
    /// Calls by certainty of their cost.
    pub reported: u64,
    pub estimated: u64,
    pub unknown: u64,
    /// Total duration from creation to end.
    pub duration_ms: u64,
}

// === impl QuotaTarget ===

impl QuotaTarget {
    /// The targets that apply to a run of this user with this agent, in this order: tenant, user, agent, both.
    pub fn covering(user: Option<UserId>, agent: AgentId) -> impl Iterator<Item = Self> {
        let users = move || std::iter::once(None).chain(user.map(Some));
        [None, Some(agent)].into_iter().flat_map(move |agent| users().map(move |user| Self { user, agent }))
    }

    /// Whether it applies to runs of this user with this agent.
    pub fn covers(self, user: Option<UserId>, agent: AgentId) -> bool {
        (self.user.is_none() || self.user == user) && self.agent.is_none_or(|limited| limited == agent)
    }
}
