//! What became of a delegation: what changed in the folder, how it ended, and who has to know.

use attache_protocol::{
    DelegationId,
    rules::delegation::DelegationStatus,
    wire::{
        awcp::AccessMode,
        delegation::{DelegateRequest, DelegationOutcome, FolderChanges},
    },
};
use attache_workspace::{
    export::LeaseRecord,
    report::{
        self,
        git::{GitRepository, GitSnapshot},
    },
};

use super::{
    export, notify,
    policy::DelegationAdmission,
    service::{DelegatorService, blocking},
    undo::MAX_DIFF,
};
use crate::files;

/// Beside what else is written down of a delegation: the repository in which the folder was before it was lent.
const REPOSITORY: &str = "git-repository";

/// Commits the folder as it is to the delegation's own ref, where it is in a repository. Blocks. What does not work is
/// logged: the lease can be shown and undone without git.
pub(super) fn baseline(
    desk: &DelegatorService,
    id: DelegationId,
    admitted: &DelegationAdmission,
    request: &DelegateRequest,
) {
    if admitted.terms.access_mode == AccessMode::Ro {
        return;
    }
    let begun = GitRepository::find(&admitted.folder).and_then(|found| match found {
        None if admitted.git.git_init => GitRepository::init(&admitted.folder).map(Some),
        found => Ok(found),
    });
    match begun {
        Ok(Some(repository)) => {
            let kept = desk.0.records.folder(id).join(REPOSITORY);
            if let Err(error) = files::replace(&kept, &repository.to_bytes(), desk.env()) {
                tracing::warn!(delegation.id = %id, %error, "there will be no commit of what the lease leaves behind");
            }
            snapshot(desk, id, admitted, request, &repository, "before");
        }
        Ok(None) => {}
        Err(error) => tracing::debug!(delegation.id = %id, %error, "no commit of what was there before"),
    }
}

fn snapshot(
    desk: &DelegatorService,
    id: DelegationId,
    admitted: &DelegationAdmission,
    request: &DelegateRequest,
    repository: &GitRepository,
    when: &str,
) {
    let made = repository.snapshot(&GitSnapshot {
        delegation: &id,
        message: &format!("{id}: {when}\n\n{}", request.description),
        rules: &export::rules(admitted, request),
        index: &desk.0.records.folder(id).join("git-index"),
        now: desk.env().now(),
    });
    if let Err(error) = made {
        tracing::warn!(delegation.id = %id, %error, "no commit of the folder {when} the lease");
    }
}

/// Commits what the lease left behind: to its own ref, and to the branch where the owner wants that. The folder is not asked
/// again in which repository it is: the remote could have made the answer.
fn commit(
    desk: &DelegatorService,
    id: DelegationId,
    admitted: &DelegationAdmission,
    request: &DelegateRequest,
    record: &LeaseRecord,
) {
    let kept = std::fs::read(desk.0.records.folder(id).join(REPOSITORY));
    let Some(repository) = kept.ok().and_then(|kept| GitRepository::from_bytes(&kept)) else { return };
    snapshot(desk, id, admitted, request, &repository, "after");
    if admitted.git.auto_commit {
        let paths: Vec<Vec<u8>> = record.paths().map(<[u8]>::to_vec).collect();
        let message = format!("{}\n\nBy {} ({id})", request.description, admitted.peer.url);
        if let Err(error) = repository.commit(&paths, &message, desk.env().now()) {
            tracing::warn!(delegation.id = %id, %error, "what the remote changed is not committed");
        }
    }
}

/// Writes down how it ended, shows it, and lets go of what it held.
pub(super) async fn end(
    desk: &DelegatorService,
    id: DelegationId,
    status: DelegationStatus,
    mut result: DelegationOutcome,
    admitted: Option<&DelegationAdmission>,
    request: Option<&DelegateRequest>,
) {
    if let Some(failure) = &mut result.error {
        failure.hint = failure.hint.replace(" ID`", &format!(" {id}`"));
    }
    let event = match status {
        DelegationStatus::Completed => "done",
        DelegationStatus::Cancelled => "cancel",
        DelegationStatus::Expired => "expire",
        _ => "error",
    };
    desk.note(id, event, result.error.as_ref().map(|failure| failure.message.as_str()));
    let Ok(mut ended) = desk.get(id) else { return };
    let (for_git, folder) = (admitted.cloned().zip(request.cloned()), ended.workspace_dir.clone());
    let (worker, was_lent) = (desk.clone(), ended.started_at.is_some());
    let changes = blocking(move || was_lent.then(|| changes(&worker, id, folder.as_ref(), for_git)).flatten());
    ended.status = status;
    ended.ended_at = Some(desk.env().now());
    ended.waits_for = None;
    ended.result = Some(result.clone());
    ended.changes = changes.await.ok().flatten();
    ended.revision += 1;
    // On disk before anybody hears of it, so that what was heard is still so after a crash.
    let (records, written, request) = (desk.0.records.clone(), ended.clone(), request.cloned());
    let kept = blocking(move || {
        records.unlink_folder(id);
        records.save_result(id, &result)?;
        records.save(&written)?;
        request.map_or(Ok(()), |request| records.describe(&written, &request))
    });
    if let Err(error) | Ok(Err(error)) = kept.await.map(|kept| kept.map_err(super::DelegatorRefusal::from)) {
        tracing::error!(delegation.id = %id, error = error.message, "the end cannot be written down");
    }
    desk.0.options.audit.close(id);
    let session = ended.session_id.clone();
    desk.release(id);
    desk.show(id, |shown| {
        *shown = ended;
        // It was counted when it was written down.
        shown.revision -= 1;
    });
    tracing::info!(delegation.id = %id, status = status.as_str(), "delegation ended");
    desk.prune();
    if let Some(done) = session.and_then(|session| desk.0.sessions.end(&session, id)) {
        notify::all_done(desk, done);
    }
}

/// Blocks. `None` where it cannot be told.
fn changes(
    desk: &DelegatorService,
    id: DelegationId,
    folder: &std::path::Path,
    for_git: Option<(DelegationAdmission, DelegateRequest)>,
) -> Option<FolderChanges> {
    let before = desk.before(id);
    if !before.exists() {
        // Lent read-only: nothing can have changed.
        return Some(FolderChanges::default());
    }
    let told = LeaseRecord::load(&before).map_err(report::Error::Before).and_then(|record| {
        let changes = report::changes(folder, &record)?;
        // Later it could not be told from what somebody here does next.
        let diff = report::diff(folder, &record, MAX_DIFF)?;
        if let Err(error) = desk.0.records.save_diff(id, &diff) {
            tracing::warn!(delegation.id = %id, %error, "the diff cannot be kept");
        }
        Ok((record, changes))
    });
    match told {
        Ok((record, changes)) => {
            if let Some((admitted, request)) = for_git.filter(|_| !changes.changed_paths.is_empty()) {
                commit(desk, id, &admitted, &request, &record);
            }
            Some(changes)
        }
        Err(error) => {
            tracing::warn!(delegation.id = %id, %error, "what changed cannot be told");
            None
        }
    }
}
