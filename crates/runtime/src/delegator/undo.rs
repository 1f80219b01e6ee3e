//! What a lease changed, shown as a diff and taken back.

use std::path::{Path, PathBuf};

use attache_protocol::{
    Code, DelegationId,
    wire::delegation::{FolderChanges, RevertRequest, RevertResult},
};
use attache_workspace::{
    export::{LeaseRecord, from_shown},
    report::{self, NOT_SHOWN, REVIEW_FIRST},
};

use super::{
    DelegatorRefusal,
    service::{DelegatorService, blocking},
};

/// A longer diff is cut; the files beyond are named.
pub(super) const MAX_DIFF: usize = 4 << 20;
const AS_IT_IS_NOW: &str =
    "# How the folder was when the lease ended is not known; this compares with how it is now.\n";

impl DelegatorService {
    /// A unified diff of what the lease changed, so far or in all.
    pub async fn diff(&self, delegation: DelegationId) -> Result<String, DelegatorRefusal> {
        let (folder, before) = self.folder_and_originals(delegation)?;
        let has_ended = self.get(delegation)?.status.has_ended();
        let records = self.0.records.clone();
        blocking(move || {
            if let Some(kept) = records.diff(delegation).filter(|_| has_ended) {
                return Ok(kept);
            }
            let Some(record) = record(&before)? else { return Ok(String::new()) };
            let diff = report::diff(&folder, &record, MAX_DIFF).map_err(|error| unreported(&error))?;
            Ok(if has_ended && !diff.is_empty() { format!("{AS_IT_IS_NOW}{diff}") } else { diff })
        })
        .await?
    }

    /// Restores what was there before the lease, except for what somebody changed here since. Nothing is lent from the
    /// folder meanwhile.
    pub async fn revert(
        &self,
        delegation: DelegationId,
        request: RevertRequest,
    ) -> Result<RevertResult, DelegatorRefusal> {
        let hold = self.hold(delegation)?;
        let desk = self.clone();
        // To its end, also when whoever asked for it has gone.
        let reverting = self.0.tasks.spawn(async move {
            let reverted = desk.put_back(delegation, request).await;
            drop(hold);
            reverted
        });
        reverting.await.map_err(|error| {
            DelegatorRefusal::new(
                Code::Internal,
                format!("the revert broke off: {error}"),
                "See the daemon's log; try again.",
            )
        })?
    }

    async fn put_back(
        &self,
        delegation: DelegationId,
        request: RevertRequest,
    ) -> Result<RevertResult, DelegatorRefusal> {
        let (folder, before) = self.folder_and_originals(delegation)?;
        let records = self.0.records.clone();
        if records.is_pruned(delegation) {
            let message = format!("the originals of {delegation} were removed, because they were old or too many");
            let hint = "What changed is still in `attache delegations diff`; see keep_originals_days in policy.toml.";
            return Err(DelegatorRefusal::new(Code::NotFound, message, hint));
        }
        let (reverted, changes) = blocking(move || {
            let Some(record) = record(&before)? else { return Ok((RevertResult::default(), FolderChanges::default())) };
            let reverted =
                report::revert(&folder, &record, &request).map_err(|error| unreverted(delegation, &error))?;
            if let Some(diff) = records.diff(delegation) {
                records.save_diff(delegation, &without(&diff, &reverted.restored))?;
            }
            let left = report::changes(&folder, &record).map_err(|error| unreported(&error))?;
            Ok::<_, DelegatorRefusal>((reverted, left))
        })
        .await??;
        self.note(delegation, "revert", Some(&format!("{} restored", reverted.restored.len())));
        self.0.options.audit.close(delegation);
        self.show(delegation, |shown| shown.changes = Some(changes));
        self.persist(delegation).await;
        Ok(reverted)
    }

    /// The folder, and where the originals of what changed in it are.
    fn folder_and_originals(&self, delegation: DelegationId) -> Result<(PathBuf, PathBuf), DelegatorRefusal> {
        let shown = self.get(delegation)?;
        Ok((PathBuf::from(shown.workspace_dir), self.before(delegation)))
    }
}

/// `None` where nothing was lent, or only for reading.
fn record(before: &Path) -> Result<Option<LeaseRecord>, DelegatorRefusal> {
    if !before.exists() {
        return Ok(None);
    }
    LeaseRecord::load(before).map(Some).map_err(|error| unreported(&report::Error::Before(error)))
}

/// The diff without the files that were put back.
fn without(diff: &str, restored: &[String]) -> String {
    let headers: Vec<String> = restored.iter().map(|path| report::header(&from_shown(path))).collect();
    let mut kept = String::new();
    let mut is_kept = true;
    for line in diff.split_inclusive('\n') {
        // No line of a file's content begins so: each has a sign before it.
        if line.starts_with("diff --git ") {
            is_kept = !headers.iter().any(|header| line.trim_end_matches('\n') == header);
        } else if let Some(name) = line.strip_prefix(NOT_SHOWN) {
            is_kept = !restored.iter().any(|path| name.trim_end() == path);
        } else if let Some(name) = line.strip_prefix(REVIEW_FIRST) {
            is_kept = !restored
                .iter()
                .any(|path| name.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with(" (")));
        } else if line.starts_with("# ") {
            // A line of no file's.
            is_kept = true;
        }
        if is_kept {
            kept.push_str(line);
        }
    }
    kept
}

/// A name that means nothing is the caller's to correct.
fn unreverted(delegation: DelegationId, error: &report::Error) -> DelegatorRefusal {
    let (code, hint) = match error {
        report::Error::NotBelow(_) => (Code::InvalidRequest, "Name paths as they are seen from the folder"),
        report::Error::Untouched(_) => (Code::NotFound, "Name something that it changed"),
        other => return unreported(other),
    };
    let hint = format!("{hint}, such as `attache delegations show {delegation}` lists them. Nothing was put back.");
    DelegatorRefusal::new(code, error.to_string(), hint)
}

fn unreported(error: &report::Error) -> DelegatorRefusal {
    DelegatorRefusal::new(Code::Internal, error.to_string(), "Check that the folder is still there and can be read.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_back_is_not_in_the_diff() {
        let diff = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+diff --git a/b b/b\ndiff --git a/a b b/a b\nold \
                    mode 100644\n# not shown here: c\n# not shown here: d\n";
        let left = without(diff, &["a".to_owned(), "d".to_owned()]);
        assert_eq!(left, "diff --git a/a b b/a b\nold mode 100644\n# not shown here: c\n");
        assert_eq!(without(diff, &[]), diff);
    }
}
