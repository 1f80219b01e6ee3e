//! The end of a delegation: records the changes and the outcome, and notifies everyone who waits.

use attache_os::path_error::replace;
use attache_protocol::{
    DelegationId,
    rules::delegation::DelegationStatus,
    wire::{
        awcp::AccessMode,
        delegation::{DelegateRequest, Delegation, DelegationOutcome, FolderChanges},
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
    recover,
    service::{DelegatorService, blocking},
    staging,
    undo::MAX_DIFF,
};

/// Stored with the records: the repository that contained the folder before it was exported.
const REPOSITORY: &str = "git-repository";
/// There only while something is committed.
const SCRATCH: &str = "git-scratch";

/// Commits the current state of the folder to the delegation's own ref, if it is in a git repository. Blocking.
/// Failures are only logged: the changes can be shown and reverted without git.
pub(super) fn baseline(
    service: &DelegatorService,
    id: DelegationId,
    admitted: &DelegationAdmission,
    request: &DelegateRequest,
) {
    if admitted.terms.access_mode == AccessMode::Ro {
        return;
    }
    let repository = GitRepository::find(&admitted.folder).and_then(|found| match found {
        None if admitted.git.git_init => GitRepository::init(&admitted.folder).map(Some),
        found => Ok(found),
    });
    match repository {
        Ok(Some(repository)) => {
            let path = service.0.records.folder(id).join(REPOSITORY);
            if let Err(error) = replace(&path, &repository.to_bytes(), service.env()) {
                tracing::warn!(delegation.id = %id, %error, "failed to record the repository; the result won't be committed");
            }
            snapshot(service, id, admitted, request, &repository, ("before", &[]));
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(delegation.id = %id, %error, "failed to commit the state before the lease"),
    }
}

fn snapshot(
    service: &DelegatorService,
    id: DelegationId,
    admitted: &DelegationAdmission,
    request: &DelegateRequest,
    repository: &GitRepository,
    (when, changed): (&str, &[Vec<u8>]),
) {
    let committed = repository.snapshot(&GitSnapshot {
        delegation: &id,
        message: &format!("{id}: {when}\n\n{}", request.description),
        rules: &export::rules(admitted, request),
        changed,
        scratch: &service.0.records.folder(id).join(SCRATCH),
        now: service.env().now(),
    });
    if let Err(error) = committed {
        tracing::warn!(delegation.id = %id, %error, "failed to commit the folder {when} the lease");
    }
}

/// Commits the result of the lease: to the delegation's own ref, and to the branch if the owner wants that. The
/// repository isn't looked up again, because the remote could have planted another one.
fn commit(
    service: &DelegatorService,
    id: DelegationId,
    admitted: &DelegationAdmission,
    request: &DelegateRequest,
    paths: &[Vec<u8>],
) {
    let saved = std::fs::read(service.0.records.folder(id).join(REPOSITORY));
    let Some(repository) = saved.ok().and_then(|saved| GitRepository::from_bytes(&saved)) else { return };
    snapshot(service, id, admitted, request, &repository, ("after", paths));
    if admitted.git.auto_commit {
        let scratch = service.0.records.folder(id).join(SCRATCH);
        let message = format!("{}\n\nBy {} ({id})", request.description, admitted.peer.url);
        if let Err(error) = repository.commit(paths, &message, &scratch, service.env().now()) {
            tracing::warn!(delegation.id = %id, %error, "failed to commit the remote's changes");
        }
    }
}

/// Commits what was applied of a staged delegation, on the current terms of the policy. Blocking.
pub(super) fn commit_applied(service: &DelegatorService, shown: &Delegation, paths: &[Vec<u8>]) {
    let id = shown.delegation_id;
    let Some(request) = service.0.records.request(id) else { return };
    if let Some(admitted) = recover::admitted(service, &request, shown) {
        commit(service, id, &admitted, &request, paths);
    }
}

/// Records the end, publishes it, and releases the folder.
pub(super) async fn end(
    service: &DelegatorService,
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
    service.note(id, event, result.error.as_ref().map(|failure| failure.message.as_str()));
    let Ok(mut ended) = service.get(id) else { return };
    let (for_git, folder) = (admitted.cloned().zip(request.cloned()), ended.workspace_dir.clone());
    let (reporter, was_exported) = (service.clone(), ended.started_at.is_some());
    let changes = blocking(move || was_exported.then(|| changes(&reporter, id, folder.as_ref(), for_git)).flatten());
    ended.status = status;
    ended.ended_at = Some(service.env().now());
    ended.waits_for = None;
    ended.result = Some(result.clone());
    ended.changes = changes.await.ok().flatten();
    if ended.staged.is_some() {
        let (settler, shown, now) = (service.clone(), ended.clone(), service.env().now());
        ended.staged = blocking(move || staging::settle(&settler, &shown, now)).await.unwrap_or(ended.staged);
    }
    ended.revision += 1;
    // Written to disk before it is shown, so that a crash can't undo what callers have seen.
    let (records, written, request) = (service.0.records.clone(), ended.clone(), request.cloned());
    let saved = blocking(move || {
        records.unlink_folder(id);
        records.save_result(id, &result)?;
        records.save(&written)?;
        request.map_or(Ok(()), |request| records.describe(&written, &request))
    });
    if let Err(error) | Ok(Err(error)) = saved.await.map(|saved| saved.map_err(super::DelegatorRefusal::from)) {
        tracing::error!(delegation.id = %id, error = error.message, "failed to record the end");
    }
    service.0.options.audit.close(id);
    let session = ended.session_id.clone();
    service.release(id);
    service.show(id, |shown| {
        *shown = ended;
        // `show` increments it again.
        shown.revision -= 1;
    });
    tracing::info!(delegation.id = %id, status = status.as_str(), "delegation ended");
    service.prune();
    if let Some(done) = session.and_then(|session| service.0.sessions.end(&session, id)) {
        notify::all_done(service, done);
    }
}

/// Blocking. `None` if the changes can't be determined.
fn changes(
    service: &DelegatorService,
    id: DelegationId,
    folder: &std::path::Path,
    for_git: Option<(DelegationAdmission, DelegateRequest)>,
) -> Option<FolderChanges> {
    let staged = service.0.records.staged(id);
    // Nothing is in the folder yet.
    let for_git = for_git.filter(|_| staged.is_none());
    let (folder, before) = match &staged {
        Some(staged) => (&*staged.copy, staged.base.clone()),
        None => (folder, service.before(id)),
    };
    if !before.exists() {
        // Read-only: nothing can have changed.
        return Some(FolderChanges::default());
    }
    let loaded = LeaseRecord::load(&before).map_err(report::Error::Before).and_then(|record| {
        let changes = report::changes(folder, &record)?;
        // Taken now: later changes by people on this machine would be mixed in.
        let diff = report::diff(folder, &record, MAX_DIFF)?;
        if let Err(error) = service.0.records.save_diff(id, &diff) {
            tracing::warn!(delegation.id = %id, %error, "failed to save the diff");
        }
        Ok((record, changes))
    });
    match loaded {
        Ok((record, changes)) => {
            if let Some((admitted, request)) = for_git.filter(|_| !changes.changed_paths.is_empty()) {
                let paths: Vec<Vec<u8>> = record.paths().map(<[u8]>::to_vec).collect();
                commit(service, id, &admitted, &request, &paths);
            }
            Some(changes)
        }
        Err(error) => {
            tracing::warn!(delegation.id = %id, %error, "failed to list the changes");
            None
        }
    }
}
