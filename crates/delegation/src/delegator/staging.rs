//! Staged delegations: the copy that the remote works in, and how its changes get into the folder, or are dropped.

use std::{fs, path::Path};

use attache_os::path_error::{private_folder, replace};
use attache_protocol::{
    Code, DelegationId, Timestamp,
    rules::staging::{FolderUse, StagedRetention, removal},
    wire::{
        awcp::AwcpErrorCode,
        delegation::{
            ApplyRequest, ApplyResult, ConflictChoice, DelegateRequest, Delegation, DelegationFailure, DiscardRequest,
            FolderChanges, RevertRequest, RevertResult, StagedCopyStatus,
        },
    },
};
use attache_workspace::{
    export::{ExportPatterns, OriginalsFolder},
    report::{self, AcceptedStates},
    staging::{self, ApplyTarget, CopyError, CopyLimits},
};
use serde::{Deserialize, Serialize};

use super::{
    DelegatorRefusal, export, notify,
    policy::DelegationAdmission,
    records::StagedFolders,
    report as end_report,
    service::{DelegatorService, blocking},
    undo::{record, refused, unreported},
};

/// What the lease showed, kept with the copy: changes are applied only where the remote could have worked.
#[derive(Serialize, Deserialize)]
struct StagedRules {
    include: Vec<String>,
    exclude: Vec<String>,
    withhold: Vec<String>,
}

const RULES: &str = "rules.json";

/// Makes the copy that the remote works in. Blocking. It stops when `go_on` returns false.
pub(super) fn make(
    service: &DelegatorService,
    id: DelegationId,
    admitted: &DelegationAdmission,
    request: &DelegateRequest,
    go_on: &dyn Fn() -> bool,
) -> Result<StagedFolders, DelegationFailure> {
    let failed = |message: String, hint: &str| DelegationFailure {
        code: AwcpErrorCode::TaskFailed,
        message,
        hint: hint.to_owned(),
    };
    let records = &service.0.records;
    let rules = export::rules(admitted, request);
    let place = records.staging_place(id);
    let prepared = private_folder(&place.folder).map_err(crate::Error::from).and_then(|()| {
        let saved = StagedRules {
            include: rules.include.clone(),
            exclude: rules.exclude.clone(),
            withhold: rules.withhold.clone(),
        };
        let text = serde_json::to_vec(&saved).expect("our own types serialise to JSON");
        Ok(replace(&place.folder.join(RULES), &text, service.env())?)
    });
    prepared.map_err(|error| failed(error.to_string(), "Check the disk and the owner of $AWCP_HOME."))?;
    let made = loop {
        let used: u64 = service.list().iter().filter_map(|one| one.staged.as_ref()).map(|staged| staged.bytes).sum();
        let limits = CopyLimits { bytes: service.0.options.policy.staging().bytes.saturating_sub(used) };
        match staging::make_copy(&admitted.folder, &place.copying, &rules, limits, go_on) {
            // A copy kept only for a revert makes room for one that is needed now.
            Err(CopyError::TooLarge { .. } | CopyError::NoRoom { .. }) if service.remove_oldest_applied_copy() => {}
            made => break made,
        }
    };
    let made = made.map_err(|error| {
        let hint = match error {
            CopyError::TooLarge { .. } => {
                "Leave out what the agent doesn't need (--exclude), apply or discard earlier staged delegations, or raise \
                 max_staged_bytes in policy.toml."
            }
            CopyError::NoRoom { .. } => {
                "Free space where $AWCP_HOME is, leave out what the agent doesn't need (--exclude), or delegate without --staged."
            }
            CopyError::Changing { .. } => "Stop the program that writes to it, or leave the file out with --exclude.",
            _ => "Fix that, then delegate again.",
        };
        failed(format!("the folder can't be copied: {error}"), hint)
    })?;
    if !made.unreadable.is_empty() {
        let detail = format!("not in the copy, because it can't be read: {}", made.unreadable.join(", "));
        service.note(id, "trouble", Some(&detail));
    }
    let ready = fs::rename(&place.copying, &place.files)
        .map_err(|error| error.to_string())
        .and_then(|()| records.staged(id).ok_or_else(|| "it was removed".to_owned()));
    let ready = ready.map_err(|error| failed(format!("the copy can't be used: {error}"), "Delegate again."))?;
    service.note(id, "copy", Some(&format!("{} files, {} bytes", made.files, made.bytes)));
    service.show(id, |shown| shown.staged.get_or_insert_default().bytes = made.bytes);
    Ok(ready)
}

/// What is left to apply of a delegation that has ended. A copy of which nothing was applied or is left is removed: what was
/// applied can be reverted, and then the copy has it. Blocking.
pub(super) fn settle(
    service: &DelegatorService,
    delegation: &Delegation,
    ended_at: Timestamp,
) -> Option<StagedCopyStatus> {
    let (id, known) = (delegation.delegation_id, delegation.staged.clone()?);
    let records = &service.0.records;
    let StagedCopyStatus { warned_at, removed_at, .. } = known;
    let gone = StagedCopyStatus { warned_at, removed_at, ..StagedCopyStatus::default() };
    let Some(staged) = records.staged(id).filter(|_| delegation.started_at.is_some()) else {
        records.remove_staged(id);
        return Some(gone);
    };
    let left = match record(&staged.base) {
        Ok(None) => Ok(0),
        Ok(Some(record)) => staging::unapplied(&staged.copy, &record, &records.accepted(id))
            .map(|left| left.len() as u64)
            .map_err(|error| error.to_string()),
        Err(refusal) => Err(refusal.message),
    };
    match left {
        Ok(0) if records.accepted(id).is_empty() || records.is_pruned(id) => {
            remove_applied(service, delegation);
            Some(gone)
        }
        Ok(unapplied) => {
            let kept_until = removal(ended_at, known.warned_at, service.0.options.policy.staging().age);
            Some(StagedCopyStatus { unapplied, kept_until: Some(kept_until), ..known })
        }
        Err(error) => {
            tracing::warn!(delegation.id = %id, error, "failed to compare the copy; it is kept");
            Some(known)
        }
    }
}

/// Removes a copy of which nothing is left to apply. From then on, what was applied is looked at in the folder. Blocking.
fn remove_applied(service: &DelegatorService, delegation: &Delegation) {
    let (id, records) = (delegation.delegation_id, &service.0.records);
    let applied = records.accepted(id);
    if !applied.is_empty()
        && let Ok(states) = staging::states(delegation.workspace_dir.as_ref(), applied.keys())
        && let Err(error) = records.save_accepted(id, &states)
    {
        tracing::warn!(delegation.id = %id, %error, "failed to record what was applied");
    }
    records.remove_staged(id);
}

impl DelegatorService {
    /// Brings changes of a staged delegation into the folder, which can't be delegated meanwhile.
    pub async fn apply(
        &self,
        delegation: DelegationId,
        request: ApplyRequest,
    ) -> Result<ApplyResult, DelegatorRefusal> {
        let staged = self.staged(delegation)?;
        if request.check {
            self.check_ended(delegation)?;
            return self.apply_now(delegation, staged, request).await;
        }
        let lock = self.hold(delegation, FolderUse::Writes)?;
        let service = self.clone();
        // Runs to completion even if the caller goes away.
        let applying = self.0.tasks.spawn(async move {
            let applied = service.apply_now(delegation, staged, request).await;
            drop(lock);
            applied
        });
        applying.await.map_err(|error| {
            let hint = "Check the daemon's log, then try again.";
            DelegatorRefusal::new(Code::Internal, format!("applying failed: {error}"), hint)
        })?
    }

    async fn apply_now(
        &self,
        delegation: DelegationId,
        staged: StagedFolders,
        request: ApplyRequest,
    ) -> Result<ApplyResult, DelegatorRefusal> {
        let shown = self.get(delegation)?;
        let (service, is_check) = (self.clone(), request.check);
        let is_everything = request.paths.is_empty() && request.files.is_empty();
        let applied = blocking(move || {
            let records = &service.0.records;
            let Some(record) = record(&staged.base)? else { return Ok(ApplyResult::default()) };
            let (before, making) = (records.originals(delegation), making(delegation));
            let (folder, rules) =
                (Path::new(&shown.workspace_dir), rules_of(records.staging_place(delegation).folder.as_ref())?);
            let target = ApplyTarget { folder, before: &before, rules: &rules, making: &making };
            if !is_check {
                records.mark_applying(delegation)?;
            }
            let save = |applied: &AcceptedStates| records.save_accepted(delegation, applied);
            let mut saved = Ok(());
            let done =
                staging::apply(&staged.copy, &record, &target, &request, records.accepted(delegation), &mut |so_far| {
                    saved = save(so_far);
                });
            let done = done.map_err(|error| refused(delegation, &error));
            if is_check {
                return done.map(|done| done.result);
            }
            let done = done.inspect_err(|_| records.mark_applied(delegation))?;
            saved?;
            save(&done.applied)?;
            records.mark_applied(delegation);
            if !done.changed.is_empty() {
                end_report::commit_applied(&service, &shown, &done.changed);
            }
            if !done.result.discarded.is_empty() {
                service.drop_from_diff(delegation, &staged, &done.result.discarded, None);
            }
            Ok::<_, DelegatorRefusal>(done.result)
        })
        .await??;
        if !is_check {
            let detail = format!(
                "{} applied, {} discarded, {} kept",
                applied.applied.len(),
                applied.discarded.len(),
                applied.kept.len()
            );
            self.note(delegation, "apply", Some(&detail));
            self.resettle(delegation).await;
            if is_everything && applied == ApplyResult::default() {
                return Err(nothing_left(delegation));
            }
        }
        Ok(applied)
    }

    /// Drops changes of a staged delegation that aren't applied. The folder isn't touched.
    pub async fn discard(
        &self,
        delegation: DelegationId,
        request: DiscardRequest,
    ) -> Result<RevertResult, DelegatorRefusal> {
        let staged = self.staged(delegation)?;
        let lock = self.hold(delegation, FolderUse::Apart)?;
        let service = self.clone();
        let is_everything = request.paths.is_empty() && request.hunks.is_none();
        let discarded = blocking(move || {
            let Some(record) = record(&staged.base)? else { return Ok(RevertResult::default()) };
            let failed = |error: report::Error| refused(delegation, &error);
            let left =
                staging::unapplied(&staged.copy, &record, &service.0.records.accepted(delegation)).map_err(failed)?;
            let paths = match &request.hunks {
                Some(_) => Vec::new(),
                None => chosen(delegation, left, &request)?,
            };
            let is_nothing = paths.is_empty() && request.hunks.is_none();
            let (alone, take) = (true, Some(ConflictChoice::Before));
            let revert = RevertRequest { paths, alone, take, hunks: request.hunks };
            if is_nothing {
                return Ok(RevertResult::default());
            }
            let reverted = report::revert(&staged.copy, &record, &revert).map_err(failed)?;
            let hunk_of = revert.hunks.as_ref().map(|selection| selection.path.as_str());
            service.drop_from_diff(delegation, &staged, &reverted.restored, hunk_of);
            drop(lock);
            Ok::<_, DelegatorRefusal>(reverted)
        })
        .await??;
        if is_everything && discarded == RevertResult::default() {
            return Err(nothing_left(delegation));
        }
        self.note(delegation, "discard", Some(&format!("{} discarded", discarded.restored.len())));
        self.resettle(delegation).await;
        Ok(discarded)
    }

    /// What was applied and then reverted can be applied again. Blocking.
    pub(super) fn unmark_applied(&self, delegation: DelegationId, restored: &[String]) -> Result<(), DelegatorRefusal> {
        let mut applied = self.0.records.accepted(delegation);
        applied.retain(|path, _| !restored.contains(path));
        Ok(self.0.records.save_accepted(delegation, &applied)?)
    }

    /// Shows what is left to apply.
    pub(super) async fn resettle(&self, delegation: DelegationId) {
        self.0.options.audit.close(delegation);
        let service = self.clone();
        let settled = blocking(move || {
            let shown = service.get(delegation)?;
            let ended_at = shown.ended_at.unwrap_or_else(|| service.env().now());
            let staged = settle(&service, &shown, ended_at);
            let changes = service.changes_now(&shown);
            Ok::<_, DelegatorRefusal>((staged, changes))
        });
        if let Ok(Ok((staged, changes))) = settled.await {
            self.show(delegation, |shown| {
                shown.staged = staged;
                shown.changes = changes.or_else(|| shown.changes.take());
            });
            self.persist(delegation).await;
        }
    }

    /// All changes that are still there: in the copy, or in the folder once the copy is gone. `None` if that is unknown.
    fn changes_now(&self, shown: &Delegation) -> Option<FolderChanges> {
        let (folder, before) = self.place_of_changes(shown);
        let Ok(found) = record(&before) else { return None };
        let Some(record) = found else { return Some(FolderChanges::default()) };
        report::changes(&folder, &record).ok()
    }

    /// Gives notice of copies that will be removed, and removes those whose time is over.
    pub(super) fn prune_copies(&self) {
        let now = self.env().now();
        let keep = self.0.options.policy.staging().age;
        let waiting = self.list().into_iter().filter(|one| one.status.has_ended());
        for delegation in waiting {
            let id = delegation.delegation_id;
            let (Some(staged), Some(ended)) = (delegation.staged.clone(), delegation.ended_at) else { continue };
            if staged.unapplied == 0 || staged.removed_at.is_some() {
                let is_due = now >= removal(ended, staged.warned_at, keep) || self.0.records.is_pruned(id);
                if is_due {
                    self.remove_applied_copy(&delegation);
                }
                continue;
            }
            match StagedRetention::of(ended, staged.warned_at, keep, now) {
                StagedRetention::Keep => continue,
                StagedRetention::Warn => {
                    let until = removal(ended, Some(now), keep);
                    tracing::warn!(delegation.id = %id, unapplied = staged.unapplied, %until, "a copy with unapplied changes will be removed");
                    self.note(
                        id,
                        "copy_expires",
                        Some(&format!("{} changes aren't applied and will be removed after {until}", staged.unapplied)),
                    );
                    notify::copy_expires(self, &delegation, until);
                    self.show(id, |shown| {
                        let staged = shown.staged.get_or_insert_default();
                        (staged.warned_at, staged.kept_until) = (Some(now), Some(until));
                    });
                }
                StagedRetention::Remove => {
                    // While its changes are applied or discarded, it stays.
                    let Ok(_lock) = self.hold(id, FolderUse::Apart) else { continue };
                    self.0.records.remove_staged(id);
                    tracing::warn!(delegation.id = %id, unapplied = staged.unapplied, "removed a copy with unapplied changes");
                    self.note(id, "copy_removed", Some(&format!("{} changes weren't applied", staged.unapplied)));
                    self.show(id, |shown| {
                        let staged = shown.staged.get_or_insert_default();
                        (staged.removed_at, staged.bytes, staged.kept_until) = (Some(now), 0, None);
                    });
                }
            }
            if let Ok(shown) = self.get(id)
                && let Err(error) = self.0.records.save(&shown)
            {
                tracing::warn!(delegation.id = %id, %error, "failed to write the record");
            }
            self.0.options.audit.close(id);
        }
    }

    /// Removes the copy that has been kept longest for a revert of what was applied. Blocking. False if there is none.
    fn remove_oldest_applied_copy(&self) -> bool {
        let is_kept =
            |one: &Delegation| one.staged.as_ref().is_some_and(|staged| staged.unapplied == 0 && staged.bytes > 0);
        let mut kept: Vec<_> = self.list().into_iter().filter(|one| one.status.has_ended() && is_kept(one)).collect();
        kept.sort_by_key(|one| one.ended_at);
        kept.iter().any(|one| self.remove_applied_copy(one))
    }

    /// Removes the copy of a delegation if everything is applied, and nobody reverts it right now. Blocking.
    fn remove_applied_copy(&self, delegation: &Delegation) -> bool {
        let id = delegation.delegation_id;
        if self.0.records.staged(id).is_none() {
            return false;
        }
        let Ok(_lock) = self.hold(id, FolderUse::Apart) else { return false };
        // A revert may have ended since.
        let Ok(delegation) = self.get(id) else { return false };
        if delegation.staged.as_ref().is_none_or(|staged| staged.unapplied > 0) {
            return false;
        }
        remove_applied(self, &delegation);
        self.note(id, "copy_removed", Some("everything was applied"));
        self.show(id, |shown| {
            let staged = shown.staged.get_or_insert_default();
            (staged.bytes, staged.kept_until) = (0, None);
        });
        if let Ok(shown) = self.get(id)
            && let Err(error) = self.0.records.save(&shown)
        {
            tracing::warn!(delegation.id = %id, %error, "failed to write the record");
        }
        self.0.options.audit.close(id);
        true
    }

    fn staged(&self, delegation: DelegationId) -> Result<StagedFolders, DelegatorRefusal> {
        let shown = self.get(delegation)?;
        let Some(status) = shown.staged else {
            let message = format!("{delegation} isn't staged: the remote worked in the folder itself");
            let hint = format!("Accept or discard its changes with `attache delegations review {delegation}`.");
            return Err(DelegatorRefusal::new(Code::InvalidRequest, message, hint));
        };
        self.0.records.staged(delegation).ok_or_else(|| match status.removed_at {
            Some(_) => {
                let message = format!("the copy of {delegation} was removed with the changes that weren't applied");
                let hint = format!("`attache delegations diff {delegation}` still shows them.");
                DelegatorRefusal::new(Code::NotFound, message, hint)
            }
            None if shown.status.has_ended() => nothing_left(delegation),
            None => still_lent(delegation),
        })
    }

    pub(super) fn check_ended(&self, delegation: DelegationId) -> Result<(), DelegatorRefusal> {
        if self.get(delegation)?.status.has_ended() { Ok(()) } else { Err(still_lent(delegation)) }
    }

    /// Takes discarded files, or hunks of one, out of the saved diff. Blocking.
    fn drop_from_diff(
        &self,
        delegation: DelegationId,
        staged: &StagedFolders,
        paths: &[String],
        hunk_of: Option<&str>,
    ) {
        let Ok(Some(record)) = record(&staged.base) else { return };
        if let Err(refusal) = self.edit_diff(delegation, &staged.copy, &record, paths, hunk_of) {
            tracing::warn!(delegation.id = %delegation, error = refusal.message, "failed to update the diff");
        }
    }
}

/// The unapplied paths that are to be discarded.
fn chosen(
    delegation: DelegationId,
    left: Vec<String>,
    request: &DiscardRequest,
) -> Result<Vec<String>, DelegatorRefusal> {
    let is_of = |path: &str, one: &String| {
        let one = one.trim_start_matches("./").trim_end_matches('/');
        path == one || (!request.alone && path.strip_prefix(one).is_some_and(|rest| rest.starts_with('/')))
    };
    if let Some(wrong) = request.paths.iter().find(|one| !left.iter().any(|path| is_of(path, one))) {
        let hint = format!("List what is left: `attache delegations review {delegation}`. Nothing was discarded.");
        return Err(DelegatorRefusal::new(Code::NotFound, format!("no change to `{wrong}` is left to discard"), hint));
    }
    let is_chosen = |path: &String| request.paths.is_empty() || request.paths.iter().any(|one| is_of(path, one));
    Ok(left.into_iter().filter(is_chosen).collect())
}

/// Does what is left to do after the daemon was killed. Blocking.
pub(super) fn recover(service: &DelegatorService, shown: &Delegation) {
    let (id, records) = (shown.delegation_id, &service.0.records);
    records.clear_removed(id);
    let Some(staged) = records.staged(id) else {
        // Killed after the copy was removed, before that was recorded.
        service.show(id, |shown| {
            if let Some(known) = shown.staged.as_mut().filter(|known| known.removed_at.is_none()) {
                (known.unapplied, known.bytes, known.kept_until) = (0, 0, None);
            }
        });
        return;
    };
    if let Err(error) = OriginalsFolder::in_folder(&staged.base).finish() {
        tracing::debug!(delegation.id = %id, %error, "no originals in the copy");
    }
    if !records.is_applying(id) {
        return;
    }
    let (before, making) = (records.originals(id), making(id));
    let folder = Path::new(&shown.workspace_dir);
    let cleared = record(&staged.base).and_then(|record| {
        let rules = rules_of(&records.staging_place(id).folder)?;
        let target = ApplyTarget { folder, before: &before, rules: &rules, making: &making };
        record.map_or(Ok(()), |record| staging::clear_interrupted(&record, &target).map_err(|error| unreported(&error)))
    });
    match cleared {
        Ok(()) => records.mark_applied(id),
        Err(refusal) => {
            tracing::warn!(delegation.id = %id, error = refusal.message, "failed to clear up after an interrupted apply");
        }
    }
}

fn rules_of(folder: &Path) -> Result<ExportPatterns, DelegatorRefusal> {
    let path = folder.join(RULES);
    let saved = fs::read(&path).and_then(|text| serde_json::from_slice(&text).map_err(std::io::Error::from));
    let StagedRules { include, exclude, withhold } = saved.map_err(crate::Error::io(&path))?;
    Ok(ExportPatterns { include, exclude, withhold })
}

/// The name of what isn't complete yet.
fn making(delegation: DelegationId) -> String {
    format!(".attache-apply-{delegation}")
}

fn nothing_left(delegation: DelegationId) -> DelegatorRefusal {
    let message = format!("nothing of {delegation} is left to apply");
    let hint = format!("`attache delegations revert {delegation}` takes back what was applied.");
    DelegatorRefusal::new(Code::NotFound, message, hint)
}

fn still_lent(delegation: DelegationId) -> DelegatorRefusal {
    let message = format!("the folder is delegated: {delegation} has not ended");
    DelegatorRefusal::new(Code::StillLent, message, Code::StillLent.hint())
}

/// A lease that can change nothing needs no copy.
pub(super) fn archived() -> DelegatorRefusal {
    let hint = "Leave out --staged: what the executor returns is merged anyway, and can be reviewed and reverted.";
    DelegatorRefusal::new(Code::InvalidRequest, "a folder that is sent as an archive can't be staged", hint)
}

pub(super) fn read_only() -> DelegatorRefusal {
    let hint = "Leave out --staged, or ask for write access: --access-mode rw.";
    DelegatorRefusal::new(Code::InvalidRequest, "a read-only delegation changes nothing that could be staged", hint)
}
