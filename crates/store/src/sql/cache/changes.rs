//! What transactions changed of what every writer remembers. A writer on PostgreSQL stores it with each of its transactions,
//! and the others read it instead of everything.

use std::collections::{BTreeMap, BTreeSet};

use attache_protocol::{ChannelId, RunId, TenantId};
use serde::{Deserialize, Serialize};

/// Named rather than copied, where the tables have the rest. Stored as JSON; a text with anything else in it is of another
/// version, and nothing is known then.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::sql) struct MemoryChanges {
    /// The newest log rows: key and hash.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::sql) heads: BTreeMap<TenantId, (i64, [u8; 32])>,
    /// Runs that were created or moved.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(in crate::sql) runs: BTreeSet<i64>,
    /// Runs that ended and aren't in `usage_days`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::sql) ended: Vec<i64>,
    /// Everything that had ended before is in `usage_days`, up to these positions in the logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::sql) written: Option<BTreeMap<TenantId, i64>>,
    #[serde(skip_serializing_if = "is_false")]
    pub(in crate::sql) usage_corrected: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(in crate::sql) quotas: bool,
    /// Idempotency keys of runs that were removed, with the run's row and when it was created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::sql) forgotten_keys: Vec<(TenantId, [u8; 16], i64, i64)>,
    /// Runs that got their first push config or lost their last one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::sql) subscribed: BTreeMap<RunId, bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::sql) running_floor: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::sql) clock: Option<i64>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(in crate::sql) channels: BTreeSet<ChannelId>,
    /// An agent or a runtime changed.
    #[serde(skip_serializing_if = "is_false")]
    pub(in crate::sql) accounts: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

// === impl MemoryChanges ===

impl MemoryChanges {
    pub(in crate::sql) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The sums of ended runs went to `usage_days`.
    pub(in crate::sql) fn usage_written(&mut self, upto: impl IntoIterator<Item = (TenantId, i64)>) {
        self.ended.clear();
        self.written.get_or_insert_default().extend(upto);
    }

    /// Adds the changes of a later transaction.
    pub(in crate::sql) fn followed_by(&mut self, later: Self) {
        let Self {
            heads,
            runs,
            ended,
            written,
            usage_corrected,
            quotas,
            forgotten_keys,
            subscribed,
            running_floor,
            clock,
            channels,
            accounts,
        } = later;
        self.heads.extend(heads);
        self.runs.extend(runs);
        if let Some(upto) = written {
            self.usage_written(upto);
        }
        self.ended.extend(ended);
        self.usage_corrected |= usage_corrected;
        self.quotas |= quotas;
        self.forgotten_keys.extend(forgotten_keys);
        self.subscribed.extend(subscribed);
        self.running_floor = running_floor.or(self.running_floor);
        self.clock = clock.or(self.clock);
        self.channels.extend(channels);
        self.accounts |= accounts;
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    #[test]
    fn later_changes_win_and_sums_that_were_written_are_not_added_again() {
        let env = Env::seeded(1);
        let (tenant, run) = (env.tenant_id(), env.run_id());
        let mut changes = MemoryChanges {
            heads: [(tenant, (1, [1; 32]))].into(),
            runs: [1, 2].into(),
            ended: vec![1, 2],
            subscribed: [(run, true)].into(),
            running_floor: Some(7),
            clock: Some(8),
            ..MemoryChanges::default()
        };
        changes.followed_by(MemoryChanges {
            heads: [(tenant, (3, [3; 32]))].into(),
            runs: [2, 3].into(),
            ended: vec![3],
            written: Some([(tenant, 2)].into()),
            subscribed: [(run, false)].into(),
            clock: Some(9),
            ..MemoryChanges::default()
        });
        assert_eq!(
            changes,
            MemoryChanges {
                heads: [(tenant, (3, [3; 32]))].into(),
                runs: [1, 2, 3].into(),
                ended: vec![3],
                written: Some([(tenant, 2)].into()),
                subscribed: [(run, false)].into(),
                running_floor: Some(7),
                clock: Some(9),
                ..MemoryChanges::default()
            }
        );
        let text = serde_json::to_string(&changes).unwrap();
        assert_eq!(serde_json::from_str::<MemoryChanges>(&text).unwrap(), changes);
    }

    #[test]
    fn a_list_of_another_version_is_not_understood() {
        assert!(serde_json::from_str::<MemoryChanges>(r#"{"runs":[1],"leases":[2]}"#).is_err());
        assert_eq!(serde_json::to_string(&MemoryChanges::default()).unwrap(), "{}");
    }
}
