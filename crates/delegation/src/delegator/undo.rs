//! Shows the changes of a lease as a diff, and reverts them.

use std::path::{Path, PathBuf};

use attache_protocol::{
    Code, DelegationId,
    wire::delegation::{FolderChanges, RevertRequest, RevertResult},
};
use attache_workspace::{
    export::{LeaseRecord, from_shown},
    report::{self, IN_REPOSITORY, NOT_SHOWN, REVIEW_FIRST},
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
        let (folder, before) = self.folder_and_originals(delegation)?;
        let has_ended = self.get(delegation)?.status.has_ended();
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
        let lock = self.hold(delegation)?;
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
        let (folder, before) = self.folder_and_originals(delegation)?;
        let records = self.0.records.clone();
        if records.is_pruned(delegation) {
            let message = format!("the originals of {delegation} were removed to save space");
            let hint = "`attache delegations diff` still shows the changes. See keep_originals_days in policy.toml.";
            return Err(DelegatorRefusal::new(Code::NotFound, message, hint));
        }
        let (reverted, changes) = blocking(move || {
            let Some(record) = record(&before)? else { return Ok((RevertResult::default(), FolderChanges::default())) };
            let reverted =
                report::revert(&folder, &record, &request).map_err(|error| unreverted(delegation, &error))?;
            if let Some(diff) = records.diff(delegation) {
                records.save_diff(delegation, &without(&diff, &reverted.restored))?;
            }
            let remaining = report::changes(&folder, &record).map_err(|error| unreported(&error))?;
            Ok::<_, DelegatorRefusal>((reverted, remaining))
        })
        .await??;
        self.note(delegation, "revert", Some(&format!("{} restored", reverted.restored.len())));
        self.0.options.audit.close(delegation);
        self.show(delegation, |shown| shown.changes = Some(changes));
        self.persist(delegation).await;
        Ok(reverted)
    }

    /// The folder, and the folder with the originals of its changed files.
    fn folder_and_originals(&self, delegation: DelegationId) -> Result<(PathBuf, PathBuf), DelegatorRefusal> {
        let shown = self.get(delegation)?;
        Ok((PathBuf::from(shown.workspace_dir), self.before(delegation)))
    }
}

/// `None` if nothing was exported, or only read-only.
fn record(before: &Path) -> Result<Option<LeaseRecord>, DelegatorRefusal> {
    if !before.exists() {
        return Ok(None);
    }
    LeaseRecord::load(before).map(Some).map_err(|error| unreported(&report::Error::Before(error)))
}

/// The diff without the restored files.
fn without(diff: &str, restored: &[String]) -> String {
    let headers: Vec<String> = restored.iter().map(|path| report::header(&from_shown(path))).collect();
    let mut kept = String::new();
    let mut is_kept = true;
    for line in diff.split_inclusive('\n') {
        // No content line starts like this: each has a sign in front.
        if line.starts_with("diff --git ") {
            is_kept = !headers.iter().any(|header| line.trim_end_matches('\n') == header);
        } else if let Some(name) = [NOT_SHOWN, IN_REPOSITORY].iter().find_map(|start| line.strip_prefix(start)) {
            is_kept = !restored.iter().any(|path| name.trim_end() == path);
        } else if let Some(name) = line.strip_prefix(REVIEW_FIRST) {
            is_kept = !restored
                .iter()
                .any(|path| name.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with(" (")));
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
fn unreverted(delegation: DelegationId, error: &report::Error) -> DelegatorRefusal {
    let (code, hint) = match error {
        report::Error::NotBelow(_) => (Code::InvalidRequest, "Give paths relative to the folder"),
        report::Error::Untouched(_) => (Code::NotFound, "Give a path that the delegation changed"),
        other => return unreported(other),
    };
    let hint = format!("{hint}, as listed by `attache delegations show {delegation}`. Nothing was reverted.");
    DelegatorRefusal::new(code, error.to_string(), hint)
}

fn unreported(error: &report::Error) -> DelegatorRefusal {
    DelegatorRefusal::new(Code::Internal, error.to_string(), "Check that the folder still exists and is readable.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diff_omits_restored_files() {
        let diff = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+diff --git a/b b/b\ndiff --git a/a b b/a b\nold \
                    mode 100644\n# not shown here: c\n# not shown here: d\n";
        let remaining = without(diff, &["a".to_owned(), "d".to_owned()]);
        assert_eq!(remaining, "diff --git a/a b b/a b\nold mode 100644\n# not shown here: c\n");
        assert_eq!(without(diff, &[]), diff);
    }
}
