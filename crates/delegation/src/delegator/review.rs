//! The review of a lease's changes: what a person still has to look at, and what they accepted.

use attache_protocol::{
    Code, DelegationId,
    wire::delegation::{AcceptRequest, AcceptResult, DelegationReview},
};
use attache_workspace::report;

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
    ) -> Result<DelegationReview, DelegatorRefusal> {
        if !self.get(delegation)?.status.has_ended() {
            let message = format!("the folder is delegated: {delegation} has not ended");
            return Err(DelegatorRefusal::new(Code::StillLent, message, Code::StillLent.hint()));
        }
        let (folder, before) = self.folder_with_originals(delegation)?;
        let records = self.0.records.clone();
        blocking(move || {
            let Some(record) = record(&before)? else { return Ok(DelegationReview::default()) };
            let accepted = records.accepted(delegation);
            let files = match path {
                None => report::review(&folder, &record, &accepted),
                Some(path) => report::review_file(&folder, &record, &path, &accepted).map(|file| vec![file]),
            };
            Ok(DelegationReview { files: files.map_err(|error| refused(delegation, &error))? })
        })
        .await?
    }

    /// Marks changes as accepted, in the state that the person saw. The originals stay.
    pub async fn accept(
        &self,
        delegation: DelegationId,
        request: AcceptRequest,
    ) -> Result<AcceptResult, DelegatorRefusal> {
        // The folder isn't delegated or reverted meanwhile.
        let lock = self.hold(delegation)?;
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
        let folder = self.get(delegation)?.workspace_dir;
        let records = self.0.records.clone();
        blocking(move || {
            let accepted = records.accepted(delegation);
            if accepted.is_empty() {
                return Vec::new();
            }
            // A folder that is gone has nothing that was accepted.
            report::accepted(folder.as_ref(), &accepted).unwrap_or_default()
        })
        .await
    }
}
