//! Quotas and usage.

use attache_protocol::{
    RunId, TenantId, Timestamp,
    rules::quota::{QuotaBudget, QuotaLimits, UtcDay},
};

use crate::{
    Result, WriteContext,
    record::quota::{DailyUsage, QuotaRecord, QuotaTarget},
    store_part::store_part,
};

/// How many runs without room one claim ends. Reducing a quota far below a long queue must not block every other write.
pub const MAX_REFUSED: usize = 64;

store_part! {
    /// The rules of [`crate::Store`] apply here too. The arithmetic is in `rules::quota`.
    ///
    /// A run falls under up to four targets: its tenant, its user, its agent, and its user with its agent. Each target has an
    /// account of every day, whether or not there is a quota; a quota adds limits. The lines of a run are those of its targets
    /// that have a quota, in this order: tenant, user, agent, both.
    ///
    /// - `create_run`, after everything else it checks: `reserve`, or `QuotaExceeded`, which changes nothing. A run that its
    ///   idempotency key finds reserves nothing. Without any quota the run still holds one call.
    /// - `claim`: the chosen run's lines of the day on which it was reserved are `check`ed; if one has no room, the run fails
    ///   as below and the next one is chosen. If it was never claimed before (its epoch is 0), it was *refused*: it gives back
    ///   all that it held and counts neither as a call nor as used. One that worked before is settled like any other.
    ///   After [`MAX_REFUSED`] runs without room the answer is none, with a hint that the queue moved: the rest is for the
    ///   next claim.
    /// - `progress` with `usage`, unless the report was heard before: `report` with the new total; `Stop` ends the run as
    ///   below, after the report's events are appended, and the answer is `Failed`.
    /// - whatever ends a run: `settle` with `Used::spend` of the run's usage, as it is then.
    /// - going back to the queue changes nothing: the run keeps what it holds.
    ///
    /// A run that a quota ends: `rules::run::Command::Halt { code: QuotaExceeded }` (of a pending run likewise), the result is
    /// `{"error": <Exceeded as text>, "code": "quota_exceeded"}`, the log row `task.failed {"code":"quota_exceeded"}` with the
    /// actor `system`, and a worker is told to stop as by a cancellation.
    ///
    /// | method | log rows |
    /// |---|---|
    /// | `set_quota` | `quota.changed {"user_id","agent_id","calls","tokens","cost_usd"}`, absent limits null, cost in dollars as a number |
    /// | `remove_quota` | `quota.removed {"user_id","agent_id"}` |
    pub trait QuotaStore, layer QuotaStoreLayer, call QuotaCall {
        /// `NotFound` for an unknown or removed user, or an unknown or archived agent. Setting the same limits again is logged
        /// like any other change.
        async fn set_quota(&self, context: WriteContext, target: QuotaTarget, limits: QuotaLimits) -> Result<QuotaRecord>;

        /// `NotFound` if there is none.
        async fn remove_quota(&self, context: WriteContext, target: QuotaTarget) -> Result<()>;

        /// With the accounts of the day of `at`. Ordered by target: user, then agent, by id; absent ones first.
        async fn quotas(&self, tenant: TenantId, at: Timestamp) -> Result<Vec<QuotaRecord>>;

        /// What is left for a run, as [`ClaimedRunRecord::left`](crate::record::ClaimedRunRecord) says it at the claim; nothing limits one that
        /// has ended. `NotFound` for an unknown run.
        async fn left(&self, tenant: TenantId, run: RunId) -> Result<QuotaBudget>;

        /// Usage of ended runs, for the days from `first` to `last`, ordered by day, user and agent, by id; absent users
        /// first. Runs refused by a quota aren't included. Retention doesn't affect it.
        async fn usage(&self, tenant: TenantId, first: UtcDay, last: UtcDay) -> Result<Vec<DailyUsage>>;
    }
}
