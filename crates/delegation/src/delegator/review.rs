//! The review of a lease's changes: what a person still has to look at, and what they accepted.

use attache_protocol::{
    DelegationId,
    rules::staging::FolderUse,
    wire::delegation::{AcceptRequest, AcceptResult, ApplyRequest, ReviewFileList},
};
use attache_workspace::{report, staging};

use super::{
    DelegatorRefusal,
    service::{DelegatorService, blocking},
    undo::{record, refused, unreported},
};

impl DelegatorService {
    /// The changes file by file, or one of them with its patch. Refused until the delegation has ended.
    pub async fn review(
        &self,
        delegation: DelegationId,
        path: Option<String>,
    ) -> Result<ReviewFileList, DelegatorRefusal> {
        self.check_ended(delegation)?;
        let shown = self.get(delegation)?;
        let staged = self.0.records.staged(delegation);
        let (folder, before) = match &staged {
            Some(staged) => (staged.copy.clone(), staged.base.clone()),
            None => self.folder_with_originals(delegation)?,
        };
        let records = self.0.records.clone();
        blocking(move || {
            let Some(record) = record(&before)? else { return Ok(ReviewFileList::default()) };
            let accepted = records.accepted(delegation);
            let files = match path {
                None => report::review(&folder, &record, &accepted),
                Some(path) => report::review_file(&folder, &record, &path, &accepted).map(|file| vec![file]),
            };
            let mut files = files.map_err(|error| refused(delegation, &error))?;
            if staged.is_some() {
                let marked =
                    staging::mark_changed_in_folder(&folder, &record, shown.workspace_dir.as_ref(), &mut files);
                marked.map_err(|error| refused(delegation, &error))?;
            }
            Ok(ReviewFileList { files })
        })
        .await?
    }

    /// Marks changes as accepted, in the state that the person saw. The originals stay. Those of a staged delegation are applied.
    pub async fn accept(
        &self,
        delegation: DelegationId,
        request: AcceptRequest,
    ) -> Result<AcceptResult, DelegatorRefusal> {
        if self.0.records.staged(delegation).is_some() {
            self.apply(delegation, ApplyRequest { files: request.files, ..ApplyRequest::default() }).await?;
            return Ok(AcceptResult { accepted: self.accepted(delegation).await? });
        }
        // The folder isn't delegated or reverted meanwhile.
        let lock = self.hold(delegation, FolderUse::Writes)?;
        let (folder, before) = self.folder_with_originals(delegation)?;
        let records = self.0.records.clone();
        let accepted = blocking(move || {
            let mut accepted = records.accepted(delegation);
            if let Some(record) = record(&before)? {
                let checked = report::check_states(&folder, &record, &request.files);
                checked.map_err(|error| refused(delegation, &error))?;
                accepted.extend(request.files.into_iter().map(|file| (file.path, file.state)));
            }
            records.save_accepted(delegation, &accepted)?;
            let accepted = report::accepted(&folder, &accepted).map_err(|error| unreported(&error))?;
            drop(lock);
            Ok::<_, DelegatorRefusal>(accepted)
        })
        .await??;
        self.note(delegation, "accept", Some(&format!("{} accepted", accepted.len())));
        self.0.options.audit.close(delegation);
        Ok(AcceptResult { accepted })
    }

    /// The paths that are as a person accepted them.
    pub async fn accepted(&self, delegation: DelegationId) -> Result<Vec<String>, DelegatorRefusal> {
        let (folder, _) = self.place_of_changes(&self.get(delegation)?);
        let records = self.0.records.clone();
        blocking(move || {
            let accepted = records.accepted(delegation);
            if accepted.is_empty() {
                return Vec::new();
            }
            // A folder that is gone has nothing that was accepted.
            report::accepted(&folder, &accepted).unwrap_or_default()
        })
        .await
    }
}
