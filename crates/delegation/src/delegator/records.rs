//! The records of delegations below `$AWCP_HOME`: private files that are replaced atomically.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use attache_os::{
    path_error::{private_folder, replace},
    removal,
};
use attache_protocol::{
    DelegationId, Timestamp,
    env::Env,
    wire::delegation::{DelegateRequest, Delegation, DelegationOutcome},
};
use attache_workspace::report::AcceptedStates;
use serde::Serialize;

use super::policy::OriginalsRetention;
use crate::Error;

/// How long originals are kept that take too much space.
const TIME_TO_LOOK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The unit in which the system counts what a file takes.
const BLOCK: u64 = 512;

/// `$AWCP_HOME/delegations` and `$AWCP_HOME/exports`.
#[derive(Debug, Clone)]
pub(super) struct DelegationRecords {
    home: PathBuf,
    env: Env,
}

/// The description that is kept next to the link to the exported folder. It stays on this machine.
#[derive(Serialize)]
struct DelegationMeta<'a> {
    delegation_id: DelegationId,
    task: DelegationMetaTask<'a>,
    peer_url: &'a str,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
}

#[derive(Serialize)]
struct DelegationMetaTask<'a> {
    description: &'a str,
    prompt: &'a str,
}

/// The copy that a staged delegation works in, and the originals of what it changed there.
#[derive(Debug, Clone)]
pub struct StagedFolders {
    pub copy: PathBuf,
    pub base: PathBuf,
}

/// Where a copy is made.
#[derive(Debug)]
pub(super) struct StagingPlace {
    pub(super) folder: PathBuf,
    /// Until it is complete.
    pub(super) copying: PathBuf,
    pub(super) files: PathBuf,
}

const DIFF: &str = "changes.diff";
const ACCEPTED: &str = "accepted.json";
const FOLDERS: &str = "delegations";
const BEFORE: &str = "before";
const STAGED: &str = "staged";
/// What the copy is called while it is removed, so that half of one is never taken for a copy.
const STAGED_REMOVED: &str = "staged-removed";
/// Exists while changes are applied.
const APPLYING: &str = "applying";
/// Exists once the originals were removed.
const PRUNED: &str = "originals-removed";
/// Exists until the hub knows how the delegation ended.
const UNPUBLISHED: &str = "unpublished";

/// Where a daemon with this home keeps the originals of changed files.
pub fn originals_folder(home: &Path, delegation: DelegationId) -> PathBuf {
    home.join(FOLDERS).join(delegation.to_string()).join(BEFORE)
}

/// Where a daemon with this home keeps the copy of a staged delegation. `None` if there is none.
pub fn staged_folders(home: &Path, delegation: DelegationId) -> Option<StagedFolders> {
    let folder = home.join(FOLDERS).join(delegation.to_string()).join(STAGED);
    // Reports take no path that leads through a link.
    let copy = folder.join("files").canonicalize().ok()?;
    Some(StagedFolders { copy, base: folder.join("base") })
}

// === impl DelegationRecords ===

impl DelegationRecords {
    pub(super) fn open(home: &Path, env: Env) -> Result<Self, Error> {
        for name in [FOLDERS, "exports", "logs"] {
            private_folder(&home.join(name))?;
        }
        Ok(Self { home: home.to_owned(), env })
    }

    /// `delegations/<id>`.
    pub(super) fn folder(&self, delegation: DelegationId) -> PathBuf {
        self.home.join(FOLDERS).join(delegation.to_string())
    }

    pub(super) fn originals(&self, delegation: DelegationId) -> PathBuf {
        originals_folder(&self.home, delegation)
    }

    pub(super) fn staging_place(&self, delegation: DelegationId) -> StagingPlace {
        let folder = self.folder(delegation).join(STAGED);
        StagingPlace { copying: folder.join("copying"), files: folder.join("files"), folder }
    }

    /// The complete copy of a staged delegation.
    pub(super) fn staged(&self, delegation: DelegationId) -> Option<StagedFolders> {
        staged_folders(&self.home, delegation)
    }

    pub(super) fn remove_staged(&self, delegation: DelegationId) {
        let removed = self.folder(delegation).join(STAGED_REMOVED);
        if fs::rename(self.folder(delegation).join(STAGED), &removed).is_ok() {
            self.clear_removed(delegation);
        }
    }

    /// Removes what is left of a removed copy.
    pub(super) fn clear_removed(&self, delegation: DelegationId) {
        let removed = self.folder(delegation).join(STAGED_REMOVED);
        if removed.exists()
            && let Err(error) = removal::remove(&removed)
        {
            tracing::warn!(delegation.id = %delegation, %error, "failed to remove a copy; the next daemon tries again");
        }
    }

    pub(super) fn mark_applying(&self, delegation: DelegationId) -> Result<(), Error> {
        Ok(replace(&self.folder(delegation).join(APPLYING), b"", &self.env)?)
    }

    pub(super) fn mark_applied(&self, delegation: DelegationId) {
        let _ = fs::remove_file(self.folder(delegation).join(APPLYING));
    }

    /// Whether a daemon was killed while it applied changes.
    pub(super) fn is_applying(&self, delegation: DelegationId) -> bool {
        self.folder(delegation).join(APPLYING).exists()
    }

    fn export(&self, delegation: DelegationId) -> PathBuf {
        self.home.join("exports").join(delegation.to_string())
    }

    pub(super) fn create(&self, delegation: &Delegation, request: &DelegateRequest) -> Result<(), Error> {
        let folder = self.folder(delegation.delegation_id);
        private_folder(&folder.join("logs"))?;
        self.write(&folder.join("request.json"), request)?;
        self.save(delegation)?;
        self.describe(delegation, request)
    }

    pub(super) fn save(&self, delegation: &Delegation) -> Result<(), Error> {
        self.write(&self.folder(delegation.delegation_id).join("status.json"), delegation)
    }

    pub(super) fn save_result(&self, delegation: DelegationId, result: &DelegationOutcome) -> Result<(), Error> {
        self.write(&self.folder(delegation).join("result.json"), result)
    }

    /// The diff of the changes, taken when the lease ended.
    pub(super) fn save_diff(&self, delegation: DelegationId, diff: &str) -> Result<(), Error> {
        Ok(replace(&self.folder(delegation).join(DIFF), diff.as_bytes(), &self.env)?)
    }

    /// `None` if it could not be saved.
    pub(super) fn diff(&self, delegation: DelegationId) -> Option<String> {
        fs::read_to_string(self.folder(delegation).join(DIFF)).ok()
    }

    /// The changes that a person accepted.
    pub(super) fn save_accepted(&self, delegation: DelegationId, accepted: &AcceptedStates) -> Result<(), Error> {
        self.write(&self.folder(delegation).join(ACCEPTED), accepted)
    }

    /// Nothing if the file can't be read: it has to be looked at again.
    pub(super) fn accepted(&self, delegation: DelegationId) -> AcceptedStates {
        let text = fs::read(self.folder(delegation).join(ACCEPTED)).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Removes originals that are too old, then the oldest until the rest fit. Those of the last days stay whatever they take:
    /// a remote decides how much that is, and their owner has had no time to look. `ended` lists delegations and when they
    /// ended, oldest first.
    pub(super) fn prune(&self, ended: &[(DelegationId, Timestamp)], retention: OriginalsRetention, now: Timestamp) {
        let mut sizes: Vec<(DelegationId, Timestamp, u64)> = Vec::new();
        for (id, at) in ended {
            let before = self.originals(*id);
            let files = fs::read_dir(&before).into_iter().flatten().flatten();
            // What they take, not how long they are: a file with holes is as long as anybody likes.
            let size = files.filter_map(|file| file.metadata().ok()).map(|file| file.blocks() * BLOCK).sum();
            if before.exists() {
                sizes.push((*id, *at, size));
            }
        }
        let mut all: u64 = sizes.iter().map(|(_, _, size)| size).sum();
        for (id, at, size) in sizes {
            let age = now.since(at);
            let is_due = age > retention.age || (all > retention.bytes && age > TIME_TO_LOOK);
            if !is_due {
                continue;
            }
            all = all.saturating_sub(size);
            // The mark comes first: without it, an interrupted removal would lead to a partial revert.
            let marked = replace(&self.folder(id).join(PRUNED), b"", &self.env);
            let removed = marked
                .map_err(|error| error.to_string())
                .and_then(|()| fs::remove_dir_all(self.originals(id)).map_err(|error| error.to_string()));
            match removed {
                Ok(()) => {
                    tracing::info!(delegation.id = %id, bytes = size, "removed the originals of an old delegation");
                }
                Err(error) => tracing::warn!(delegation.id = %id, %error, "failed to remove old originals"),
            }
        }
    }

    /// Removes a delegation with everything that was recorded about it.
    pub(super) fn remove(&self, delegation: DelegationId) {
        for folder in [self.export(delegation), self.folder(delegation)] {
            if let Err(error) = removal::remove(&folder)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(delegation.id = %delegation, %error, "failed to remove the record of a delegation");
            }
        }
    }

    /// Whether the originals were removed by retention.
    pub(super) fn is_pruned(&self, delegation: DelegationId) -> bool {
        self.folder(delegation).join(PRUNED).exists()
    }

    /// `exports/<id>/meta`.
    pub(super) fn describe(&self, delegation: &Delegation, request: &DelegateRequest) -> Result<(), Error> {
        let folder = self.export(delegation.delegation_id).join("meta");
        private_folder(&folder)?;
        let meta = DelegationMeta {
            delegation_id: delegation.delegation_id,
            task: DelegationMetaTask { description: &request.description, prompt: &request.prompt },
            peer_url: &delegation.peer_url,
            created_at: delegation.created_at,
            started_at: delegation.started_at,
            ended_at: delegation.ended_at,
        };
        self.write(&folder.join("delegation.json"), &meta)
    }

    /// Links to the exported folder, for people. The export itself doesn't use this link.
    pub(super) fn link_folder(&self, delegation: DelegationId, folder: &Path) -> Result<(), Error> {
        let link = self.export(delegation).join("workspace");
        self.unlink_folder(delegation);
        symlink(folder, &link).map_err(Error::io(&link))
    }

    pub(super) fn unlink_folder(&self, delegation: DelegationId) {
        let _ = fs::remove_file(self.export(delegation).join("workspace"));
    }

    pub(super) fn request(&self, delegation: DelegationId) -> Option<DelegateRequest> {
        let text = fs::read(self.folder(delegation).join("request.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Every recorded delegation, oldest first. Unreadable records are skipped and left in place.
    pub(super) fn load(&self) -> Result<Vec<Delegation>, Error> {
        let folder = self.home.join(FOLDERS);
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::io(&folder))? {
            let path = entry.map_err(Error::io(&folder))?.path().join("status.json");
            let Ok(text) = fs::read(&path) else { continue };
            match serde_json::from_slice::<Delegation>(&text) {
                Ok(delegation) => found.push(delegation),
                Err(error) => tracing::warn!(path = %path.display(), %error, "unreadable record"),
            }
        }
        found.sort_by_key(|delegation| delegation.delegation_id);
        Ok(found)
    }

    /// The hub knows of the delegation, but not yet how it ended.
    pub(super) fn mark_unpublished(&self, delegation: DelegationId) {
        let path = self.folder(delegation).join(UNPUBLISHED);
        if let Err(error) = replace(&path, b"", &self.env) {
            tracing::debug!(delegation.id = %delegation, %error, "failed to mark the delegation; a later daemon won't publish its end");
        }
    }

    /// The hub knows how it ended, or never will.
    pub(super) fn mark_published(&self, delegation: DelegationId) {
        let _ = fs::remove_file(self.folder(delegation).join(UNPUBLISHED));
    }

    /// Delegations whose end the hub hasn't received, oldest first.
    pub(super) fn unpublished(&self) -> Result<Vec<DelegationId>, Error> {
        let ended = self.load()?.into_iter().filter(|delegation| delegation.status.has_ended());
        let ids = ended.map(|delegation| delegation.delegation_id);
        Ok(ids.filter(|id| self.folder(*id).join(UNPUBLISHED).exists()).collect())
    }

    fn write<T: Serialize>(&self, path: &Path, value: &T) -> Result<(), Error> {
        let mut text = serde_json::to_vec_pretty(value).expect("our own types serialise to JSON");
        text.push(b'\n');
        Ok(replace(path, &text, &self.env)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// The originals of delegations that ended this many days ago, as large as given, and which of them stay.
    fn kept(ended: &[(u64, &[u8])], holes: u64, retention: OriginalsRetention) -> Vec<u64> {
        let home = tempfile::tempdir().unwrap();
        let env = Env::seeded(1);
        let records = DelegationRecords::open(home.path(), env.clone()).unwrap();
        let now = Timestamp::from_millis(1_700_000_000_000).plus(100 * DAY);
        let all: Vec<(DelegationId, Timestamp)> = ended
            .iter()
            .map(|(days, content)| {
                let id = DelegationId::from_uuid(env.uuid());
                fs::create_dir_all(records.originals(id)).unwrap();
                let file = records.originals(id).join("1");
                fs::write(&file, content).unwrap();
                fs::File::options().append(true).open(file).unwrap().set_len(content.len() as u64 + holes).unwrap();
                (id, Timestamp::from_millis(1_700_000_000_000).plus(100 * DAY - DAY * u32::try_from(*days).unwrap()))
            })
            .collect();
        records.prune(&all, retention, now);
        let is_kept = |id: DelegationId| records.originals(id).exists() && !records.is_pruned(id);
        all.iter().zip(ended).filter(|((id, _), _)| is_kept(*id)).map(|(_, (days, _))| *days).collect()
    }

    #[test]
    fn a_remote_cannot_make_the_originals_of_the_last_days_go() {
        let (age, large) = (30 * DAY, &[7; 8192][..]);
        let small = OriginalsRetention { age, bytes: 10_000 };
        assert_eq!(kept(&[(31, large), (20, large), (10, large), (8, large)], 0, small), [8], "the oldest go first");
        assert_eq!(kept(&[(20, large), (7, large), (1, large), (0, large)], 0, small), [7, 1, 0]);
        // What is only as long takes no space.
        assert_eq!(kept(&[(20, b"x"), (10, b"x")], 1 << 40, small), [20, 10]);
        assert_eq!(kept(&[(2, b"x"), (0, b"x")], 0, OriginalsRetention { age: DAY, bytes: u64::MAX }), [0]);
    }
}
