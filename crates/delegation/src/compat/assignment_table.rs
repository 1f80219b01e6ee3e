//! The assignments that are kept, and the places of those that are being prepared.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::assignment::CompatAssignment;

/// How many tasks are in progress at a time. Each can take the space of two archives and a folder.
const MAX_ASSIGNMENTS: usize = 8;
/// How many results wait to be fetched.
const MAX_RESULTS: usize = 8;

/// By the ids that the other side gave them.
#[derive(Debug, Default)]
pub(super) struct AssignmentTable {
    assignments: BTreeMap<String, Arc<CompatAssignment>>,
    reserved: BTreeSet<String>,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum AssignmentTableRefusal {
    #[error("this delegationId is in use")]
    Taken,
    #[error("too many delegations are in progress")]
    Full,
}

// === impl AssignmentTable ===

impl AssignmentTable {
    pub(super) fn get(&self, id: &str) -> Option<&Arc<CompatAssignment>> {
        self.assignments.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<CompatAssignment>> {
        self.assignments.values()
    }

    /// Takes a place before anything is prepared. Nobody has shown a valid key yet, so no result of others makes room.
    pub(super) fn reserve(&mut self, id: &str) -> Result<(), AssignmentTableRefusal> {
        if self.reserved.contains(id) || self.assignments.contains_key(id) {
            return Err(AssignmentTableRefusal::Taken);
        }
        let in_progress = self.assignments.values().filter(|assignment| !assignment.has_ended()).count();
        if in_progress + self.reserved.len() >= MAX_ASSIGNMENTS {
            return Err(AssignmentTableRefusal::Full);
        }
        self.reserved.insert(id.to_owned());
        Ok(())
    }

    /// Gives up the oldest results, once an agent has taken another task.
    pub(super) fn make_room(&mut self) {
        let ended = self.assignments.iter().filter_map(|(id, assignment)| Some((assignment.ended_at()?, id.clone())));
        let mut ended: Vec<_> = ended.collect();
        ended.sort_unstable();
        for (_, id) in ended.iter().rev().skip(MAX_RESULTS) {
            if let Some(assignment) = self.assignments.remove(id) {
                assignment.acknowledged.notify_one();
            }
        }
    }

    /// Gives a reserved place back.
    pub(super) fn release(&mut self, id: &str) {
        self.reserved.remove(id);
    }

    /// Fills a reserved place.
    pub(super) fn fill(&mut self, id: &str, assignment: Arc<CompatAssignment>) {
        self.reserved.remove(id);
        self.assignments.insert(id.to_owned(), assignment);
    }

    /// Removes this one, and no later one with the same id.
    pub(super) fn remove(&mut self, id: &str, assignment: &Arc<CompatAssignment>) {
        if self.assignments.get(id).is_some_and(|known| Arc::ptr_eq(known, assignment)) {
            self.assignments.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use attache_protocol::{DelegationId, Secret, Timestamp, env::Env};
    use tokio::sync::{Notify, watch};

    use super::{
        super::{
            assignment::{AssignmentHome, CompatProgress},
            messages::CompatDone,
        },
        *,
    };

    fn assignment(folder: &std::path::Path, ended: Option<i64>) -> Arc<CompatAssignment> {
        let progress = match ended {
            Some(at) => {
                let done = CompatDone {
                    summary: String::new(),
                    highlights: None,
                    snapshot_ids: None,
                    recommended_snapshot_id: None,
                };
                CompatProgress::Completed(done, Timestamp::from_millis(at))
            }
            None => CompatProgress::Active(None),
        };
        let env = Env::seeded(u64::try_from(ended.unwrap_or(-1)).unwrap_or(u64::MAX));
        Arc::new(CompatAssignment {
            credential: Secret::new("ak_test".to_owned()),
            delegation: DelegationId::from_uuid(env.uuid()),
            folders: AssignmentHome::create(folder.join(env.uuid().to_string())).unwrap(),
            resources: Vec::new(),
            progress: watch::Sender::new(progress),
            is_accepted: AtomicBool::new(true),
            acknowledged: Notify::new(),
        })
    }

    #[test]
    fn what_is_being_prepared_has_a_place() {
        let mut table = AssignmentTable::default();
        for number in 0..MAX_ASSIGNMENTS {
            assert_eq!(table.reserve(&format!("task {number}")), Ok(()));
        }
        assert_eq!(table.reserve("another"), Err(AssignmentTableRefusal::Full));
        assert_eq!(table.reserve("task 0"), Err(AssignmentTableRefusal::Taken));
        table.release("task 0");
        assert_eq!(table.reserve("another"), Ok(()));
    }

    #[test]
    fn only_a_task_that_was_taken_replaces_results() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = AssignmentTable::default();
        for number in 0..MAX_RESULTS {
            let ended = i64::try_from(number).unwrap() + 1;
            table.fill(&format!("result {number}"), assignment(folder.path(), Some(ended)));
        }
        // Invitations with any key.
        for number in 0..MAX_ASSIGNMENTS {
            assert_eq!(table.reserve(&format!("stranger {number}")), Ok(()));
        }
        assert_eq!(table.reserve("stranger"), Err(AssignmentTableRefusal::Full));
        assert!((0..MAX_RESULTS).all(|number| table.get(&format!("result {number}")).is_some()));

        table.make_room();
        assert!(table.get("result 0").is_some(), "there are no more results than may be kept");
        table.fill("newest", assignment(folder.path(), Some(100)));
        table.make_room();
        assert!(table.get("result 0").is_none() && table.get("result 1").is_some() && table.get("newest").is_some());
    }
}
