//! What a lease changed, shown as a diff and taken back.

use std::path::{Path, PathBuf};

use attache_protocol::{
    Code, DelegationId,
    wire::delegation::{Changes, Revert, Reverted},
};
use attache_workspace::{export::Record, report};

use super::{
    Refused,
    desk::{Delegator, blocking},
};

/// A longer diff is cut; the files beyond are named.
const LONGEST_DIFF: usize = 4 << 20;

impl Delegator {
    /// A unified diff of what the lease changed, so far or in all.
    pub async fn diff(&self, delegation: DelegationId) -> Result<String, Refused> {
        let (folder, before) = self.places(delegation)?;
        blocking(move || match record(&before)? {
            Some(record) => report::diff(&folder, &record, LONGEST_DIFF).map_err(|error| unreported(&error)),
            None => Ok(String::new()),
        })
        .await?
    }

    /// Restores what was there before the lease, except for what somebody changed here since.
    pub async fn revert(&self, delegation: DelegationId, request: Revert) -> Result<Reverted, Refused> {
        let (folder, before) = self.places(delegation)?;
        if let Some(holder) = self.holder_of(&folder) {
            let message = format!("the folder is lent: {holder} has not ended");
            return Err(Refused::new(Code::StillLent, message, Code::StillLent.hint()));
        }
        let (reverted, changes) = blocking(move || {
            let Some(record) = record(&before)? else { return Ok((Reverted::default(), Changes::default())) };
            let reverted = report::revert(&folder, &record, &request).map_err(|error| unreported(&error))?;
            let left = report::changes(&folder, &record).map_err(|error| unreported(&error))?;
            Ok::<_, Refused>((reverted, left))
        })
        .await??;
        self.note(delegation, "revert", Some(&format!("{} restored", reverted.restored.len())));
        self.0.options.audit.close(delegation);
        self.show(delegation, |shown| shown.changes = Some(changes));
        self.keep(delegation).await;
        Ok(reverted)
    }

    /// The folder, and where the originals of what changed in it are.
    fn places(&self, delegation: DelegationId) -> Result<(PathBuf, PathBuf), Refused> {
        let shown = self.get(delegation)?;
        Ok((PathBuf::from(shown.workspace_dir), self.before(delegation)))
    }
}

/// `None` where nothing was lent, or only for reading.
fn record(before: &Path) -> Result<Option<Record>, Refused> {
    if !before.exists() {
        return Ok(None);
    }
    Record::load(before).map(Some).map_err(|error| unreported(&report::Error::Before(error)))
}

fn unreported(error: &report::Error) -> Refused {
    Refused::new(Code::Internal, error.to_string(), "Check that the folder is still there and can be read.")
}
