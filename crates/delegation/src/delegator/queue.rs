//! The queue: limits per peer and in total, and no two leases that work in one folder unless both are read-only.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use attache_protocol::{DelegationId, rules::staging::FolderUse};

/// Decides which delegation starts next.
pub trait DelegatorScheduler: Send + Sync + fmt::Debug {
    /// Returns one decision per waiting delegation, in the same order. `waiting` is in order of arrival.
    fn decide(&self, running: &[FolderClaim], waiting: &[FolderClaim], limits: ConcurrencyLimits)
    -> Vec<QueueDecision>;
}

/// The folder that a delegation holds or waits for, and what it does there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderClaim {
    pub delegation: DelegationId,
    /// Normalised.
    pub peer: String,
    /// Canonical: symbolic links are resolved.
    pub folder: PathBuf,
    pub folder_use: FolderUse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyLimits {
    pub running: usize,
    pub per_peer: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueDecision {
    Go,
    /// With the reason, for people.
    Wait(String),
}

/// First come, first served. A delegation that waits delays only those that need the same folder or peer.
#[derive(Debug, Clone, Copy, Default)]
pub struct FairScheduler;

// === impl FolderClaim ===

impl FolderClaim {
    /// Nested folders conflict like equal ones.
    fn excludes(&self, other: &Self) -> bool {
        self.folder_use.excludes(other.folder_use) && self.overlaps(&other.folder)
    }

    pub(super) fn overlaps(&self, folder: &Path) -> bool {
        self.folder.starts_with(folder) || folder.starts_with(&self.folder)
    }
}

// === impl FairScheduler ===

impl DelegatorScheduler for FairScheduler {
    fn decide(
        &self,
        running: &[FolderClaim],
        waiting: &[FolderClaim],
        limits: ConcurrencyLimits,
    ) -> Vec<QueueDecision> {
        let mut holding: Vec<&FolderClaim> = running.iter().collect();
        let mut per_peer: BTreeMap<&str, usize> = BTreeMap::new();
        for claim in running {
            *per_peer.entry(&claim.peer).or_default() += 1;
        }
        // An earlier claim on a folder blocks later ones, so that readers can't starve a writer.
        let mut ahead: Vec<&FolderClaim> = Vec::new();
        let mut verdicts = Vec::new();
        for claim in waiting {
            let of_peer = per_peer.get(claim.peer.as_str()).copied().unwrap_or_default();
            let blocker = holding.iter().chain(&ahead).find(|other| other.excludes(claim));
            let verdict = if let Some(other) = blocker {
                QueueDecision::Wait(format!("the folder, in use by {}", other.delegation))
            } else if of_peer >= limits.per_peer {
                QueueDecision::Wait(format!("one of {of_peer} delegations to the same peer to end"))
            } else if holding.len() >= limits.running {
                QueueDecision::Wait(format!("one of {} running delegations to end", holding.len()))
            } else {
                QueueDecision::Go
            };
            if verdict == QueueDecision::Go {
                holding.push(claim);
                *per_peer.entry(&claim.peer).or_default() += 1;
            } else {
                ahead.push(claim);
            }
            verdicts.push(verdict);
        }
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(number: u128, peer: &str, folder: &str, folder_use: FolderUse) -> FolderClaim {
        let delegation = format!("dlg_{number:032x}").parse().unwrap();
        FolderClaim { delegation, peer: peer.to_owned(), folder: folder.into(), folder_use }
    }

    fn go(running: &[FolderClaim], waiting: &[FolderClaim]) -> Vec<bool> {
        let verdicts = FairScheduler.decide(running, waiting, ConcurrencyLimits { running: 4, per_peer: 2 });
        verdicts.iter().map(|verdict| *verdict == QueueDecision::Go).collect()
    }

    use FolderUse::{Apart, Copies, Reads as Ro, Writes as Rw};

    #[test]
    fn readers_share_a_folder_and_writers_do_not() {
        for (held, wanted, goes) in [(Ro, Ro, true), (Ro, Rw, false), (Rw, Ro, false), (Rw, Rw, false)] {
            for folder in ["/a", "/a/b", "/"] {
                let running = [claim(1, "p", "/a", held)];
                assert_eq!(go(&running, &[claim(2, "q", folder, wanted)]), [goes], "{held:?} {wanted:?} {folder}");
            }
            assert_eq!(go(&[claim(1, "p", "/a", held)], &[claim(2, "q", "/ab", wanted)]), [true]);
        }
    }

    #[test]
    fn a_writer_that_waits_is_not_overtaken_by_readers() {
        let running = [claim(1, "p", "/a", Ro)];
        let waiting = [claim(2, "q", "/a", Rw), claim(3, "r", "/a", Ro), claim(4, "s", "/b", Rw)];
        assert_eq!(go(&running, &waiting), [false, false, true]);
    }

    #[test]
    fn copies_are_made_together_and_worked_in_beside_anything() {
        for (held, wanted, goes) in [
            (Copies, Copies, true),
            (Copies, Ro, true),
            (Copies, Rw, false),
            (Rw, Copies, false),
            (Apart, Rw, true),
            (Apart, Copies, true),
        ] {
            let running = [claim(1, "p", "/a", held)];
            assert_eq!(go(&running, &[claim(2, "q", "/a/b", wanted)]), [goes], "{held:?} {wanted:?}");
        }
    }

    #[test]
    fn limits_hold_per_peer_and_in_all() {
        let waiting: Vec<_> = (0..4).map(|n| claim(n, "p", &format!("/{n}"), Rw)).collect();
        assert_eq!(go(&[], &waiting), [true, true, false, false]);
        let waiting: Vec<_> = (0..6).map(|n| claim(n, &format!("p{n}"), &format!("/{n}"), Rw)).collect();
        assert_eq!(go(&[], &waiting), [true, true, true, true, false, false]);
    }

    #[test]
    fn a_waiting_delegation_says_what_it_waits_for() {
        let limits = ConcurrencyLimits { running: 1, per_peer: 1 };
        let running = [claim(1, "p", "/a", Rw)];
        let waiting = [claim(2, "q", "/a", Ro), claim(3, "p", "/b", Ro), claim(4, "q", "/c", Ro)];
        let wait = |text: &str| QueueDecision::Wait(text.to_owned());
        assert_eq!(
            FairScheduler.decide(&running, &waiting, limits),
            [
                wait("the folder, in use by dlg_00000000000000000000000000000001"),
                wait("one of 1 delegations to the same peer to end"),
                wait("one of 1 running delegations to end"),
            ]
        );
    }
}
