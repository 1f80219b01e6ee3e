//! Which failed changes of a lease affect the work, and which were overcome: derived from the audit alone.
//!
//! A change that failed because of the host (its disk, a limit of the lease), or that a broken connection cut short,
//! affects the work until the same path is created, replaced or written from the start again. Removing it repairs only
//! a file that was cut short, because nothing incomplete is left then. A change that never happened is still missing.

use std::collections::BTreeMap;

use super::{
    audit::{ExportAuditEntry, ExportOperation},
    refusal::ExportRefusal,
};

/// The failed changes of a lease so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailedChanges {
    counts: BTreeMap<FailureCause, u64>,
    affected: BTreeMap<Vec<u8>, FailedChange>,
    /// Failed changes of paths that did not fit into the list.
    unlisted: u64,
}

/// Why changes failed that the remote was allowed to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureCause {
    DiskFull,
    Io,
    /// A limit of the lease.
    Limit(&'static str),
    /// The connection broke while the file was open for writing.
    Interrupted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FailedChange {
    op: ExportOperation,
    cause: FailureCause,
}

/// How many paths are remembered.
const MAX_PATHS: usize = 1000;

// === impl FailedChanges ===

impl FailedChanges {
    /// Takes the next audit entry into account.
    pub fn note(&mut self, entry: &ExportAuditEntry<'_>) {
        let place = match entry.op {
            ExportOperation::Rename | ExportOperation::HardLink => entry.to.unwrap_or(entry.path),
            _ => entry.path,
        };
        match entry.outcome {
            Err(refusal) => {
                if let Some(cause) = FailureCause::of(refusal) {
                    *self.counts.entry(cause).or_default() += 1;
                    self.affect(place.to_vec(), FailedChange { op: entry.op, cause });
                }
            }
            Ok(()) => self.succeeded(entry, place),
        }
    }

    fn succeeded(&mut self, entry: &ExportAuditEntry<'_>, place: &[u8]) {
        match entry.op {
            ExportOperation::Rename => {
                let below = [entry.path, b"/"].concat();
                let is_moved = |path: &[u8]| path == entry.path || path.starts_with(&below);
                let moved: Vec<Vec<u8>> = self.affected.keys().filter(|path| is_moved(path)).cloned().collect();
                self.affected.remove(place);
                for path in moved {
                    if let Some(failed) = self.affected.remove(&path) {
                        self.affect([place, &path[entry.path.len()..]].concat(), failed);
                    }
                }
            }
            ExportOperation::Create
            | ExportOperation::MakeDir
            | ExportOperation::Symlink
            | ExportOperation::HardLink => drop(self.affected.remove(place)),
            // Written from the start, or the failed change succeeded later.
            ExportOperation::Open | ExportOperation::SetAttributes => {
                let is_same = self.affected.get(place).is_some_and(|failed| failed.op == entry.op);
                if entry.bytes == Some(0) || is_same {
                    self.affected.remove(place);
                }
            }
            ExportOperation::Close | ExportOperation::RemoveFile => {
                if self.affected.get(place).is_some_and(|failed| failed.cause == FailureCause::Interrupted) {
                    self.affected.remove(place);
                }
            }
            // Of several writes to one file, others may be the failed ones.
            ExportOperation::Write | ExportOperation::RemoveDir => {}
        }
    }

    fn affect(&mut self, path: Vec<u8>, failed: FailedChange) {
        if self.affected.len() < MAX_PATHS || self.affected.contains_key(&path) {
            self.affected.entry(path).or_insert(failed);
        } else {
            self.unlisted += 1;
        }
    }

    /// How often changes failed, overcome or not.
    pub fn counts(&self) -> impl Iterator<Item = (FailureCause, u64)> {
        self.counts.iter().map(|(cause, count)| (*cause, *count))
    }

    /// The paths that differ from what the remote intended.
    pub fn affected(&self) -> impl Iterator<Item = &[u8]> {
        self.affected.keys().map(|path| &path[..])
    }

    /// Whether the result differs from what the remote expects.
    pub fn affects_work(&self) -> bool {
        !self.affected.is_empty() || self.unlisted > 0
    }
}

// === impl FailureCause ===

impl FailureCause {
    /// `None` if the remote requested something forbidden or impossible.
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
    fn a_recreated_path_is_overcome_and_the_rest_affects_the_work() {
        let failed: Step = (ExportOperation::Write, "a", None, Some(9), FULL);
        let cut: Step = (ExportOperation::Write, "a", None, None, CUT);
        let table: [(&[Step], &[&str]); 16] = [
            (&[failed], &["a"]),
            (&[cut], &["a"]),
            // A forbidden request isn't a failure of the host.
            (&[(ExportOperation::Create, "a", None, None, NO)], &[]),
            // More of the same file, or another file.
            (
                &[
                    failed,
                    (ExportOperation::Write, "a", None, Some(9), OK),
                    (ExportOperation::Create, "b", None, None, OK),
                ],
                &["a"],
            ),
            // Written again.
            (&[failed, (ExportOperation::Create, "a", None, None, OK)], &[]),
            (&[failed, (ExportOperation::Open, "a", None, Some(0), OK)], &[]),
            (&[failed, (ExportOperation::SetAttributes, "a", None, Some(0), OK)], &[]),
            (&[failed, (ExportOperation::Open, "a", None, None, OK)], &["a"]),
            (&[failed, (ExportOperation::Rename, "new", Some("a"), None, OK)], &[]),
            // An incomplete file stays incomplete under any name, also when a parent folder is renamed.
            (&[failed, (ExportOperation::Rename, "a", Some("b"), None, OK)], &["b"]),
            (
                &[
                    (ExportOperation::Write, "d/a", None, None, FULL),
                    (ExportOperation::Rename, "d", Some("e"), None, OK),
                ],
                &["e/a"],
            ),
            // The failed save is missing, whatever happened to its temporary file. One that was cut short is gone.
            (&[failed, (ExportOperation::RemoveFile, "a", None, None, OK)], &["a"]),
            (&[cut, (ExportOperation::RemoveFile, "a", None, None, OK)], &[]),
            // Another connection started, but this one did not break.
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
    fn paths_beyond_the_limit_still_count() {
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
        assert_eq!(failed.counts().collect::<Vec<_>>(), [(FailureCause::DiskFull, MAX_PATHS as u64 + 1)]);
    }
}
