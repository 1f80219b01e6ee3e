//! Staged delegations: who has to wait for whose use of a folder, and when a copy with changes that nobody applied is removed.

use std::time::Duration;

use crate::{time::Timestamp, wire::awcp::AccessMode};

/// What a delegation, or a revert, does with the owner's folder at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderUse {
    Reads,
    Writes,
    /// A staged delegation that hasn't made its copy yet. The copy has to be one state of the folder.
    Copies,
    /// A staged delegation with a copy of its own: nothing that happens in the folder concerns it.
    Apart,
}

/// What to do with a copy that still has changes to apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StagedRetention {
    Keep,
    /// Tell its owner that it will be removed.
    Warn,
    Remove,
}

/// How long before its removal the owner is told.
pub const NOTICE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

// === impl FolderUse ===

impl FolderUse {
    pub const fn direct(access_mode: AccessMode) -> Self {
        match access_mode {
            AccessMode::Ro => Self::Reads,
            AccessMode::Rw => Self::Writes,
        }
    }

    /// Whether both can't happen at the same time in one folder.
    pub const fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Apart, _) | (_, Self::Apart) => false,
            (Self::Writes, _) | (_, Self::Writes) => true,
            (Self::Reads | Self::Copies, Self::Reads | Self::Copies) => false,
        }
    }
}

// === impl StagedRetention ===

impl StagedRetention {
    /// A copy is kept for `keep` after the end of its delegation, and never removed without a notice before, even if nobody ran
    /// the daemon in the meantime.
    pub fn of(ended: Timestamp, warned: Option<Timestamp>, keep: Duration, now: Timestamp) -> Self {
        match warned {
            Some(_) if now >= removal(ended, warned, keep) => Self::Remove,
            None if now.plus(NOTICE) >= ended.plus(keep) => Self::Warn,
            Some(_) | None => Self::Keep,
        }
    }
}

/// When the copy is removed at the earliest.
pub fn removal(ended: Timestamp, warned: Option<Timestamp>, keep: Duration) -> Timestamp {
    let due = ended.plus(keep);
    warned.map_or(due, |warned| due.max(warned.plus(NOTICE)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uses() -> impl Strategy<Value = FolderUse> {
        proptest::sample::select(vec![FolderUse::Reads, FolderUse::Writes, FolderUse::Copies, FolderUse::Apart])
    }

    proptest! {
        #[test]
        fn nobody_writes_what_another_one_uses(one in uses(), other in uses()) {
            prop_assert_eq!(one.excludes(other), other.excludes(one));
            let is_apart = [one, other].contains(&FolderUse::Apart);
            prop_assert_eq!(one.excludes(other), !is_apart && [one, other].contains(&FolderUse::Writes));
        }

        /// However rarely somebody looks, a removal comes at least a notice after a warning, and after the time to keep it.
        #[test]
        fn nothing_is_removed_without_a_warning(
            keep in 0_u64..90 * 24,
            looks in proptest::collection::vec(1_u64..30 * 24, 1..30),
        ) {
            let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
            let ended: Timestamp = "2026-01-01T00:00:00.000Z".parse().unwrap();
            let (mut now, mut warned) = (ended, None);
            for later in looks {
                now = now.plus(hours(later));
                match StagedRetention::of(ended, warned, hours(keep), now) {
                    StagedRetention::Keep => prop_assert!(
                        warned.map_or(now.plus(NOTICE) < ended.plus(hours(keep)), |_| now < removal(ended, warned, hours(keep)))
                    ),
                    StagedRetention::Warn => {
                        prop_assert_eq!(warned, None);
                        warned = Some(now);
                    }
                    StagedRetention::Remove => {
                        let warned = warned.expect("a warning comes first");
                        prop_assert!(now >= warned.plus(NOTICE) && now >= ended.plus(hours(keep)));
                        return Ok(());
                    }
                }
            }
        }
    }
}
