//! Which failed changes of a lease affect the work, and which were overcome: decided from the journal alone.
//!
//! A change that failed for a reason of the host's (its disk, a limit of the lease) or that a broken connection cut short
//! affects the work until the same path is made anew: created, replaced or written from its start. Removing it repairs only a
//! file that was cut short, for then nothing incomplete is left; a change that never came to be is still missing.

use std::collections::BTreeMap;

use super::{
    audit::{ExportAuditEntry, ExportOperation},
    refusal::ExportRefusal,
};

/// What went wrong in a lease so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailedChanges {
    counts: BTreeMap<Cause, u64>,
    affected: BTreeMap<Vec<u8>, Failed>,
    /// Failed changes of paths for which there was no room.
    unlisted: u64,
}

/// Why changes fail that the remote was allowed to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    DiskFull,
    Io,
    /// This limit of the lease.
    Limit(&'static str),
    /// The connection broke while the file was open for writing.
    Interrupted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Failed {
    op: ExportOperation,
    cause: Cause,
}

/// How many paths are remembered.
const MAX_PATHS: usize = 1000;

// === impl FailedChanges ===

impl FailedChanges {
    /// Takes the next line of the journal into account.
    pub fn note(&mut self, line: &ExportAuditEntry<'_>) {
        let place = match line.op {
            ExportOperation::Rename | ExportOperation::HardLink => line.to.unwrap_or(line.path),
            _ => line.path,
        };
        match line.outcome {
            Err(refusal) => {
                if let Some(cause) = Cause::of(refusal) {
                    *self.counts.entry(cause).or_default() += 1;
                    self.affect(place.to_vec(), Failed { op: line.op, cause });
                }
            }
            Ok(()) => self.succeeded(line, place),
        }
    }

    fn succeeded(&mut self, line: &ExportAuditEntry<'_>, place: &[u8]) {
        match line.op {
            ExportOperation::Rename => {
                let below = [line.path, b"/"].concat();
                let is_moved = |path: &[u8]| path == line.path || path.starts_with(&below);
                let moved: Vec<Vec<u8>> = self.affected.keys().filter(|path| is_moved(path)).cloned().collect();
                self.affected.remove(place);
                for path in moved {
                    if let Some(failed) = self.affected.remove(&path) {
                        self.affect([place, &path[line.path.len()..]].concat(), failed);
                    }
                }
            }
            ExportOperation::Create
            | ExportOperation::MakeDir
            | ExportOperation::Symlink
            | ExportOperation::HardLink => drop(self.affected.remove(place)),
            // Written from its start; or what failed was done after all.
            ExportOperation::Open | ExportOperation::SetAttributes => {
                let is_same = self.affected.get(place).is_some_and(|failed| failed.op == line.op);
                if line.bytes == Some(0) || is_same {
                    self.affected.remove(place);
                }
            }
            ExportOperation::Close | ExportOperation::RemoveFile => {
                if self.affected.get(place).is_some_and(|failed| failed.cause == Cause::Interrupted) {
                    self.affected.remove(place);
                }
            }
            // Of several writes into one file others may be the ones that failed.
            ExportOperation::Write | ExportOperation::RemoveDir => {}
        }
    }

    fn affect(&mut self, path: Vec<u8>, failed: Failed) {
        if self.affected.len() < MAX_PATHS || self.affected.contains_key(&path) {
            self.affected.entry(path).or_insert(failed);
        } else {
            self.unlisted += 1;
        }
    }

    /// How often changes failed, overcome or not.
    pub fn counts(&self) -> impl Iterator<Item = (Cause, u64)> {
        self.counts.iter().map(|(cause, count)| (*cause, *count))
    }

    /// The paths that are not as the remote wanted them.
    pub fn affected(&self) -> impl Iterator<Item = &[u8]> {
        self.affected.keys().map(|path| &path[..])
    }

    /// Whether the work is not what the remote takes it for.
    pub fn affects_work(&self) -> bool {
        !self.affected.is_empty() || self.unlisted > 0
    }
}

// === impl Cause ===

impl Cause {
    /// `None` where the remote asked for what it may not, or what cannot be.
    const fn of(refusal: &ExportRefusal) -> Option<Self> {
        match refusal {
            ExportRefusal::DiskFull => Some(Self::DiskFull),
            ExportRefusal::Io(_) => Some(Self::Io),
            ExportRefusal::Quota(what) => Some(Self::Limit(what)),
            ExportRefusal::Interrupted => Some(Self::Interrupted),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: Result<(), &ExportRefusal> = Ok(());
    const FULL: Result<(), &ExportRefusal> = Err(&ExportRefusal::DiskFull);
    const CUT: Result<(), &ExportRefusal> = Err(&ExportRefusal::Interrupted);
    const NO: Result<(), &ExportRefusal> = Err(&ExportRefusal::ReadOnly);

    type Step = (ExportOperation, &'static str, Option<&'static str>, Option<u64>, Result<(), &'static ExportRefusal>);

    fn affected(steps: &[Step]) -> Vec<String> {
        let mut failed = FailedChanges::default();
        for &(op, path, to, bytes, outcome) in steps {
            failed.note(&ExportAuditEntry { op, path: path.as_bytes(), to: to.map(str::as_bytes), bytes, outcome });
        }
        assert_eq!(failed.affects_work(), failed.affected().next().is_some());
        failed.affected().map(super::super::show).collect()
    }

    #[test]
    fn what_is_made_anew_is_overcome_and_the_rest_affects_the_work() {
        let failed: Step = (ExportOperation::Write, "a", None, Some(9), FULL);
        let cut: Step = (ExportOperation::Write, "a", None, None, CUT);
        let table: [(&[Step], &[&str]); 16] = [
            (&[failed], &["a"]),
            (&[cut], &["a"]),
            // What the remote may not do is no failure of ours.
            (&[(ExportOperation::Create, "a", None, None, NO)], &[]),
            // More of the same file, or another one.
            (
                &[
                    failed,
                    (ExportOperation::Write, "a", None, Some(9), OK),
                    (ExportOperation::Create, "b", None, None, OK),
                ],
                &["a"],
            ),
            // Written anew.
            (&[failed, (ExportOperation::Create, "a", None, None, OK)], &[]),
            (&[failed, (ExportOperation::Open, "a", None, Some(0), OK)], &[]),
            (&[failed, (ExportOperation::SetAttributes, "a", None, Some(0), OK)], &[]),
            (&[failed, (ExportOperation::Open, "a", None, None, OK)], &["a"]),
            (&[failed, (ExportOperation::Rename, "new", Some("a"), None, OK)], &[]),
            // What is incomplete is so under any name, and that of a folder above.
            (&[failed, (ExportOperation::Rename, "a", Some("b"), None, OK)], &["b"]),
            (
                &[
                    (ExportOperation::Write, "d/a", None, None, FULL),
                    (ExportOperation::Rename, "d", Some("e"), None, OK),
                ],
                &["e/a"],
            ),
            // The save that failed is missing, whatever became of its temporary file; one that was cut short is gone.
            (&[failed, (ExportOperation::RemoveFile, "a", None, None, OK)], &["a"]),
            (&[cut, (ExportOperation::RemoveFile, "a", None, None, OK)], &[]),
            // It was another connection that began, and not this one that broke.
            (&[cut, (ExportOperation::Close, "a", None, None, OK)], &[]),
            (&[failed, (ExportOperation::Close, "a", None, None, OK)], &["a"]),
            (
                &[(ExportOperation::MakeDir, "d", None, None, FULL), (ExportOperation::MakeDir, "d", None, None, OK)],
                &[],
            ),
        ];
        for (steps, expected) in table {
            assert_eq!(affected(steps), expected, "{steps:?}");
        }
    }

    #[test]
    fn more_paths_than_are_remembered_still_count() {
        let mut failed = FailedChanges::default();
        for at in 0..=MAX_PATHS {
            let path = at.to_string();
            failed.note(&ExportAuditEntry {
                op: ExportOperation::Create,
                path: path.as_bytes(),
                to: None,
                bytes: None,
                outcome: FULL,
            });
        }
        for at in 0..=MAX_PATHS {
            let path = at.to_string();
            failed.note(&ExportAuditEntry {
                op: ExportOperation::Create,
                path: path.as_bytes(),
                to: None,
                bytes: None,
                outcome: OK,
            });
        }
        assert_eq!((failed.affected().count(), failed.affects_work()), (0, true));
        assert_eq!(failed.counts().collect::<Vec<_>>(), [(Cause::DiskFull, MAX_PATHS as u64 + 1)]);
    }
}
