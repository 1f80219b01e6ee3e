//! Shows the changes of a lease as a diff, and reverts them, whole files or hunks.

use std::path::{Path, PathBuf};

use attache_protocol::{
    Code, DelegationId,
    rules::staging::FolderUse,
    wire::delegation::{Delegation, RevertRequest, RevertResult},
};
use attache_workspace::{
    export::{LeaseRecord, from_shown},
    report::{self, AcceptedStates, IN_REPOSITORY, NOT_SHOWN, REVIEW_FIRST},
    staging,
};

use super::{
    DelegatorRefusal,
    service::{DelegatorService, blocking},
};

/// A longer diff is truncated, and the remaining files are only named.
pub(super) const MAX_DIFF: usize = 4 << 20;
const AS_IT_IS_NOW: &str = "# The state at the end of the lease is unknown; this compares with the current state.\n";

impl DelegatorService {
    /// A unified diff of the changes so far, or of all changes once the lease has ended.
    pub async fn diff(&self, delegation: DelegationId) -> Result<String, DelegatorRefusal> {
        let shown = self.get(delegation)?;
        let (folder, before) = self.place_of_changes(&shown);
        let has_ended = shown.status.has_ended();
        let records = self.0.records.clone();
        blocking(move || {
            if let Some(saved) = records.diff(delegation).filter(|_| has_ended) {
                return Ok(saved);
            }
            let Some(record) = record(&before)? else { return Ok(String::new()) };
            let diff = report::diff(&folder, &record, MAX_DIFF).map_err(|error| unreported(&error))?;
            Ok(if has_ended && !diff.is_empty() { format!("{AS_IT_IS_NOW}{diff}") } else { diff })
        })
        .await?
    }

    /// Restores the state before the lease, except for files that were changed on this machine since. The folder can't
    /// be delegated meanwhile.
    pub async fn revert(
        &self,
        delegation: DelegationId,
        request: RevertRequest,
    ) -> Result<RevertResult, DelegatorRefusal> {
        let lock = self.hold(delegation, FolderUse::Writes)?;
        let service = self.clone();
        // Runs to completion even if the caller goes away.
        let reverting = self.0.tasks.spawn(async move {
            let reverted = service.restore(delegation, request).await;
            drop(lock);
            reverted
        });
        reverting.await.map_err(|error| {
            DelegatorRefusal::new(
                Code::Internal,
                format!("the revert failed: {error}"),
                "Check the daemon's log, then try again.",
            )
        })?
    }

    async fn restore(
        &self,
        delegation: DelegationId,
        request: RevertRequest,
    ) -> Result<RevertResult, DelegatorRefusal> {
        let (folder, before) = self.folder_with_originals(delegation)?;
        let (service, is_staged) = (self.clone(), self.0.records.staged(delegation).is_some());
        let (reverted, changes) = blocking(move || {
            let Some(old) = record(&before)? else { return Ok((RevertResult::default(), None)) };
            let reverted = report::revert(&folder, &old, &request).map_err(|error| refused(delegation, &error))?;
            if is_staged {
                // What was applied is still in the copy.
                let noted = staging::note_reverted(&folder, &before, &reverted.restored);
                noted.map_err(|error| unreported(&error))?;
                service.unmark_applied(delegation, &reverted.restored)?;
                return Ok((reverted, None));
            }
            // A discarded hunk changes what the lease left.
            let record = record(&before)?.unwrap_or(old);
            let remaining = report::changes(&folder, &record).map_err(|error| unreported(&error))?;
            let hunk_of = request.hunks.as_ref().map(|selection| selection.path.as_str());
            service.edit_diff(delegation, &folder, &record, &reverted.restored, hunk_of)?;
            Ok::<_, DelegatorRefusal>((reverted, Some(remaining)))
        })
        .await??;
        if is_staged {
            self.note(delegation, "revert", Some(&format!("{} restored", reverted.restored.len())));
            self.resettle(delegation).await;
            return Ok(reverted);
        }
        self.note(delegation, "revert", Some(&format!("{} restored", reverted.restored.len())));
        self.0.options.audit.close(delegation);
        self.show(delegation, |shown| shown.changes = Some(changes.unwrap_or_default()));
        self.persist(delegation).await;
        Ok(reverted)
    }

    /// Takes what was restored out of the saved diff. Blocking. If hunks of a file were restored, the rest of its change takes the
    /// place of the change.
    pub(super) fn edit_diff(
        &self,
        delegation: DelegationId,
        folder: &Path,
        record: &LeaseRecord,
        restored: &[String],
        hunk_of: Option<&str>,
    ) -> Result<(), DelegatorRefusal> {
        let Some(diff) = self.0.records.diff(delegation) else { return Ok(()) };
        // Nothing if nothing is left of its change.
        let file_of = |path: &str| report::review_file(folder, record, path, &AcceptedStates::default()).ok();
        let part = hunk_of.and_then(file_of).and_then(|file| file.patch).map(|patch| patch.text);
        let diff = report::split_renames(&diff, record, restored);
        Ok(self.0.records.save_diff(delegation, &replace_parts(&diff, restored, part.as_deref()))?)
    }

    /// Where the remote's changes are, and the originals of what it changed: the folder, or the copy of a staged delegation.
    pub(super) fn place_of_changes(&self, shown: &Delegation) -> (PathBuf, PathBuf) {
        match self.0.records.staged(shown.delegation_id).filter(|_| shown.staged.is_some()) {
            Some(staged) => (staged.copy, staged.base),
            None => (PathBuf::from(&shown.workspace_dir), self.before(shown.delegation_id)),
        }
    }

    /// Refused if the originals were removed.
    pub(super) fn folder_with_originals(
        &self,
        delegation: DelegationId,
    ) -> Result<(PathBuf, PathBuf), DelegatorRefusal> {
        let both = self.folder_and_originals(delegation)?;
        if self.0.records.is_pruned(delegation) {
            let message = format!("the originals of {delegation} were removed to save space");
            let hint = "`attache delegations diff` still shows the changes. See keep_originals_days in policy.toml.";
            return Err(DelegatorRefusal::new(Code::NotFound, message, hint));
        }
        Ok(both)
    }

    /// The folder, and the folder with the originals of its changed files.
    fn folder_and_originals(&self, delegation: DelegationId) -> Result<(PathBuf, PathBuf), DelegatorRefusal> {
        let shown = self.get(delegation)?;
        Ok((PathBuf::from(shown.workspace_dir), self.before(delegation)))
    }
}

/// `None` if nothing was exported, or only read-only.
pub(super) fn record(before: &Path) -> Result<Option<LeaseRecord>, DelegatorRefusal> {
    if !before.exists() {
        return Ok(None);
    }
    LeaseRecord::load(before).map(Some).map_err(|error| unreported(&report::Error::Before(error)))
}

/// Removes the restored files from the diff, or puts `part` in their place.
fn replace_parts(diff: &str, restored: &[String], part: Option<&str>) -> String {
    let headers: Vec<String> = restored.iter().map(|path| report::header(&from_shown(path))).collect();
    let mut part_left = part;
    let mut kept = String::new();
    let mut is_kept = true;
    for line in diff.split_inclusive('\n') {
        // No content line starts like this: each has a sign in front.
        if line.starts_with("diff --git ") {
            is_kept = !headers.iter().any(|header| line.trim_end_matches('\n') == header);
            if !is_kept {
                kept.push_str(part_left.take().unwrap_or_default());
            }
        } else if let Some(name) = [NOT_SHOWN, IN_REPOSITORY].iter().find_map(|start| line.strip_prefix(start)) {
            is_kept = part.is_some() || !restored.iter().any(|path| name.trim_end() == path);
        } else if let Some(name) = line.strip_prefix(REVIEW_FIRST) {
            let is_of = |path: &String| name.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with(" ("));
            is_kept = part.is_some() || !restored.iter().any(is_of);
        } else if line.starts_with("# ") {
            // A line about no particular file.
            is_kept = true;
        }
        if is_kept {
            kept.push_str(line);
        }
    }
    kept
}

/// Unknown paths are the caller's mistake.
pub(super) fn refused(delegation: DelegationId, error: &report::Error) -> DelegatorRefusal {
    let (code, hint) = match error {
        report::Error::NotBelow(_) => (Code::InvalidRequest, "Give paths relative to the folder"),
        report::Error::Untouched(_) => (Code::NotFound, "Give a path that the delegation changed"),
        report::Error::Changed(_) => return review_again(delegation, Code::VersionChanged, error),
        report::Error::NoHunk { .. } | report::Error::HunksAlone => {
            return review_again(delegation, Code::InvalidRequest, error);
        }
        report::Error::Folder(_) | report::Error::Before(_) | report::Error::Replaced(_) => return unreported(error),
    };
    let hint = format!("{hint}, as listed by `attache delegations show {delegation}`. Nothing was reverted.");
    DelegatorRefusal::new(code, error.to_string(), hint)
}

/// It isn't what the person saw.
fn review_again(delegation: DelegationId, code: Code, error: &report::Error) -> DelegatorRefusal {
    let hint = format!("Review it again: `attache delegations review {delegation}`. Nothing was done.");
    DelegatorRefusal::new(code, error.to_string(), hint)
}

pub(super) fn unreported(error: &report::Error) -> DelegatorRefusal {
    DelegatorRefusal::new(Code::Internal, error.to_string(), "Check that the folder still exists and is readable.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diff_omits_restored_files() {
        let diff = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+diff --git a/b b/b\ndiff --git a/a b b/a b\nold \
                    mode 100644\n# not shown here: c\n# not shown here: d\n";
        let remaining = replace_parts(diff, &["a".to_owned(), "d".to_owned()], None);
        assert_eq!(remaining, "diff --git a/a b b/a b\nold mode 100644\n# not shown here: c\n");
        assert_eq!(replace_parts(diff, &[], None), diff);
    }

    #[test]
    fn a_part_takes_the_place_of_another() {
        let first = "# look at this first: a (run or obeyed by make)\ndiff --git a/0 b/0\nold mode 100644\n";
        let last = "diff --git a/b b/b\nold mode 100644\n# not shown here: c\n";
        let (whole, part) = (
            "diff --git a/a b/a\n@@ -1 +1 @@\n-x\n+y\n@@ -9 +9 @@\n-x\n+y\n",
            "diff --git a/a b/a\n@@ -1 +1 @@\n-x\n+y\n",
        );
        let diff = format!("{first}{whole}{last}");
        assert_eq!(replace_parts(&diff, &["a".to_owned()], Some(part)), format!("{first}{part}{last}"));
    }
}
