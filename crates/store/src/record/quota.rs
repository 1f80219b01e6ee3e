//! Quotas and what was used of them.

use attache_protocol::{
    AgentId, UserId,
    rules::quota::{QuotaAccount, QuotaLimits, UtcDay},
};

/// What a quota limits: the runs of a user, of an agent, of a user with an agent, or all of the tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaTarget {
    pub user: Option<UserId>,
    pub agent: Option<AgentId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaRecord {
    pub target: QuotaTarget,
    pub limits: QuotaLimits,
    /// The day's account: what its runs spent and hold, also those from before the quota was set.
    pub account: QuotaAccount,
}

/// What one user had one agent do on one day. A run counts once it has ended, on the day on which it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DailyUsage {
    pub day: UtcDay,
    pub user: Option<UserId>,
    pub agent: AgentId,
    pub calls: u64,
    /// Of these, those that did not complete.
    pub failed: u64,
    pub tokens: u64,
    pub micro_usd: u64,
    /// Calls by how sure their cost is.
    pub reported: u64,
    pub estimated: u64,
    pub unknown: u64,
    /// From creation to end, summed up.
    pub duration_ms: u64,
}

// === impl QuotaTarget ===

impl QuotaTarget {
    /// What a run of this user with this agent falls under, in the order of its lines: tenant, user, agent, both.
    pub fn covering(user: Option<UserId>, agent: AgentId) -> impl Iterator<Item = Self> {
        let users = move || std::iter::once(None).chain(user.map(Some));
        [None, Some(agent)].into_iter().flat_map(move |agent| users().map(move |user| Self { user, agent }))
    }

    /// Whether it limits the runs of this user with this agent.
    pub fn covers(self, user: Option<UserId>, agent: AgentId) -> bool {
        (self.user.is_none() || self.user == user) && self.agent.is_none_or(|limited| limited == agent)
    }
}
