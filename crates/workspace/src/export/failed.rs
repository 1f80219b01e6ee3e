//! Which failed changes of a lease affect the work, and which were overcome: decided from the journal alone.
//!
//! A change that failed for a reason of the host's (its disk, a limit of the lease) or that a broken connection cut short
//! affects the work until the same path is made anew: created, replaced or written from its start. Removing it repairs only a
//! file that was cut short, for then nothing incomplete is left; a change that never came to be is still missing.

use std::collections::BTreeMap;

use super::{
    journal::{Line, Op},
    refusal::Refusal,
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
    op: Op,
    cause: Cause,
}

/// How many paths are remembered.
const MAX_PATHS: usize = 1000;

// === impl FailedChanges ===

impl FailedChanges {
    /// Takes the next line of the journal into account.
    pub fn note(&mut self, line: &Line<'_>) {
        let place = match line.op {
            Op::Rename | Op::HardLink => line.to.unwrap_or(line.path),
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

    fn succeeded(&mut self, line: &Line<'_>, place: &[u8]) {
        match line.op {
            Op::Rename => {
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
            Op::Create | Op::MakeDir | Op::Symlink | Op::HardLink => drop(self.affected.remove(place)),
            // Written from its start; or what failed was done after all.
            Op::Open | Op::SetAttributes => {
                let is_same = self.affected.get(place).is_some_and(|failed| failed.op == line.op);
                if line.bytes == Some(0) || is_same {
                    self.affected.remove(place);
                }
            }
            Op::Close | Op::RemoveFile => {
                if self.affected.get(place).is_some_and(|failed| failed.cause == Cause::Interrupted) {
                    self.affected.remove(place);
                }
            }
            // Of several writes into one file others may be the ones that failed.
            Op::Write | Op::RemoveDir => {}
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
    const fn of(refusal: &Refusal) -> Option<Self> {
        match refusal {
            Refusal::DiskFull => Some(Self::DiskFull),
            Refusal::Io(_) => Some(Self::Io),
            Refusal::Quota(what) => Some(Self::Limit(what)),
            Refusal::Interrupted => Some(Self::Interrupted),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: Result<(), &Refusal> = Ok(());
    const FULL: Result<(), &Refusal> = Err(&Refusal::DiskFull);
    const CUT: Result<(), &Refusal> = Err(&Refusal::Interrupted);
    const NO: Result<(), &Refusal> = Err(&Refusal::ReadOnly);

    type Step = (Op, &'static str, Option<&'static str>, Option<u64>, Result<(), &'static Refusal>);

    fn affected(steps: &[Step]) -> Vec<String> {
        let mut failed = FailedChanges::default();
        for &(op, path, to, bytes, outcome) in steps {
            failed.note(&Line { op, path: path.as_bytes(), to: to.map(str::as_bytes), bytes, outcome });
        }
        assert_eq!(failed.affects_work(), failed.affected().next().is_some());
        failed.affected().map(super::super::show).collect()
    }

    #[test]
    fn what_is_made_anew_is_overcome_and_the_rest_affects_the_work() {
        let failed: Step = (Op::Write, "a", None, Some(9), FULL);
        let cut: Step = (Op::Write, "a", None, None, CUT);
        let table: [(&[Step], &[&str]); 16] = [
            (&[failed], &["a"]),
            (&[cut], &["a"]),
            // What the remote may not do is no failure of ours.
            (&[(Op::Create, "a", None, None, NO)], &[]),
            // More of the same file, or another one.
            (&[failed, (Op::Write, "a", None, Some(9), OK), (Op::Create, "b", None, None, OK)], &["a"]),
            // Written anew.
            (&[failed, (Op::Create, "a", None, None, OK)], &[]),
            (&[failed, (Op::Open, "a", None, Some(0), OK)], &[]),
            (&[failed, (Op::SetAttributes, "a", None, Some(0), OK)], &[]),
            (&[failed, (Op::Open, "a", None, None, OK)], &["a"]),
            (&[failed, (Op::Rename, "new", Some("a"), None, OK)], &[]),
            // What is incomplete is so under any name, and that of a folder above.
            (&[failed, (Op::Rename, "a", Some("b"), None, OK)], &["b"]),
            (&[(Op::Write, "d/a", None, None, FULL), (Op::Rename, "d", Some("e"), None, OK)], &["e/a"]),
            // The save that failed is missing, whatever became of its temporary file; one that was cut short is gone.
            (&[failed, (Op::RemoveFile, "a", None, None, OK)], &["a"]),
            (&[cut, (Op::RemoveFile, "a", None, None, OK)], &[]),
            // It was another connection that began, and not this one that broke.
            (&[cut, (Op::Close, "a", None, None, OK)], &[]),
            (&[failed, (Op::Close, "a", None, None, OK)], &["a"]),
            (&[(Op::MakeDir, "d", None, None, FULL), (Op::MakeDir, "d", None, None, OK)], &[]),
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
            failed.note(&Line { op: Op::Create, path: path.as_bytes(), to: None, bytes: None, outcome: FULL });
        }
        for at in 0..=MAX_PATHS {
            let path = at.to_string();
            failed.note(&Line { op: Op::Create, path: path.as_bytes(), to: None, bytes: None, outcome: OK });
        }
        assert_eq!((failed.affected().count(), failed.affects_work()), (0, true));
        assert_eq!(failed.counts().collect::<Vec<_>>(), [(Cause::DiskFull, MAX_PATHS as u64 + 1)]);
    }
}
