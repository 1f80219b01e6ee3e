//! The copy of a delegated folder from which an archive is packed and to which the result is applied. It is kept the same as the
//! folder like that of any remote without a file system, so what is shown and what may be changed is decided by the export.

use std::path::Path;

use attache_protocol::{
    Secret,
    env::Env,
    wire::{
        awcp::{AccessMode, AwcpErrorCode, AwcpStart},
        delegation::DelegationFailure,
    },
};
use attache_workspace::{
    archive::{self, AppliedArchive, ArchiveError, ArchiveLimits, IsCancelled, PackedFolder, SentFiles, ZipArchive},
    mount::{GuardCommand, LostChange, MountHandle, MountRequest, MountTransport, UnmountReason, mount},
};
use tokio_util::sync::CancellationToken;

use super::{
    RESOURCE,
    exchange::{ExchangeFolders, StagingFolder},
};

/// Dropping it removes the copy.
#[derive(Debug)]
pub(super) struct WorkCopy {
    mounted: MountHandle,
    staging: StagingFolder,
    access_mode: AccessMode,
    sent: SentFiles,
    left_out: Vec<String>,
}

/// How many paths a note names.
const SHOWN: usize = 10;

// === impl WorkCopy ===

impl WorkCopy {
    pub(super) async fn open(
        guard: &GuardCommand,
        folders: &ExchangeFolders,
        start: &AwcpStart,
        private_key: Secret<String>,
        env: &Env,
    ) -> Result<Self, DelegationFailure> {
        let (folders, id, env) = (folders.clone(), start.delegation_id.clone(), env.clone());
        let reserved = tokio::task::spawn_blocking(move || folders.reserve(&id, &env)).await;
        let reserved = reserved.map_err(|error| error.to_string()).and_then(|done| done.map_err(|it| it.to_string()));
        let (place, staging) = reserved.map_err(|error| failed(format!("there is no place for a copy: {error}")))?;
        let (mount_of, lease) = (&start.mount, &start.lease);
        let request = MountRequest {
            host: mount_of.endpoint.host.clone(),
            port: mount_of.endpoint.port,
            user: mount_of.endpoint.user.clone(),
            locator: mount_of.export_locator.clone(),
            host_key: mount_of.host_key.clone().unwrap_or_default(),
            private_key,
            access_mode: lease.access_mode,
            lasts: std::time::Duration::from_secs(lease.ttl_seconds.unwrap_or_default()),
            options: Vec::new(),
            transport: MountTransport::Sync,
        };
        let mounted = mount(guard, place, request).await;
        let mounted = mounted.map_err(|error| failed(format!("the folder could not be copied: {error}")))?;
        let (sent, left_out) = (SentFiles::new(), Vec::new());
        Ok(Self { mounted, staging, access_mode: lease.access_mode, sent, left_out })
    }

    /// The archive to send.
    pub(super) async fn pack(&mut self) -> Result<Vec<u8>, DelegationFailure> {
        let folder = self.mounted.mount_point().to_owned();
        let PackedFolder { archive, files, left_out } =
            blocking(move |is_cancelled| archive::pack(&folder, RESOURCE, ArchiveLimits::default(), is_cancelled))
                .await?;
        (self.sent, self.left_out) = (files, left_out);
        Ok(archive)
    }

    /// How many files were sent.
    pub(super) fn count(&self) -> usize {
        self.sent.len()
    }

    /// Applies the archive that came back. When this returns, all changes have reached the folder. Returns remarks about those
    /// that didn't, and about what was not sent.
    pub(super) async fn finish(mut self, archive: Option<Vec<u8>>) -> Result<Vec<String>, DelegationFailure> {
        let mut notes = Vec::new();
        if !self.left_out.is_empty() {
            let named = named(&self.left_out);
            notes.push(format!("An archive can't contain these, so they were not sent: {named}."));
        }
        match archive {
            _ if self.access_mode == AccessMode::Ro => {}
            None => notes.push("The remote returned no files, so nothing was changed.".to_owned()),
            Some(archive) => {
                let (folder, staging) = (self.mounted.mount_point().to_owned(), self.staging.path().to_owned());
                let sent = std::mem::take(&mut self.sent);
                let applied =
                    blocking(move |is_cancelled| applied(&archive, &sent, (&folder, &staging), is_cancelled)).await?;
                if applied.is_absent {
                    notes
                        .push("The archive that came back doesn't have the folder, so nothing was changed.".to_owned());
                }
                if !applied.conflicts.is_empty() {
                    notes.push(format!("Not everything was applied: {}.", named(&applied.conflicts)));
                }
            }
        }
        let ended = self.mounted.unmount().await;
        if ended.why != UnmountReason::Asked {
            return Err(failed("the folder was lost before the result was complete".to_owned()));
        }
        if !ended.lost.is_empty() {
            let lost: Vec<String> =
                ended.lost.iter().map(|LostChange { path, reason }| format!("{path} ({reason})")).collect();
            notes.push(format!("These changes did not reach the folder: {}. Check the diff.", named(&lost)));
        }
        Ok(notes)
    }
}

fn applied(
    archive: &[u8],
    sent: &SentFiles,
    folders: (&Path, &Path),
    is_cancelled: IsCancelled<'_>,
) -> Result<AppliedArchive, ArchiveError> {
    let limits = ArchiveLimits::default();
    let archive = ZipArchive::read(archive, limits, is_cancelled)?;
    archive::apply(&archive, RESOURCE, sent, folders, limits, is_cancelled)
}

/// The work ends soon after the caller: the lease may be over, and the copy is removed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce(IsCancelled<'_>) -> Result<T, ArchiveError> + Send + 'static,
) -> Result<T, DelegationFailure> {
    let caller = CancellationToken::new();
    let _gone = caller.clone().drop_guard();
    let done = tokio::task::spawn_blocking(move || work(&|| caller.is_cancelled())).await;
    done.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
}

fn named(paths: &[String]) -> String {
    let more = match paths.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{}{more}", paths[..paths.len().min(SHOWN)].join(", "))
}

fn failed(message: String) -> DelegationFailure {
    let code = AwcpErrorCode::TaskFailed;
    DelegationFailure { code, message, hint: "Fix that, then delegate again.".to_owned() }
}
