//! One task of a delegator of the reference implementation: its folder here, and the progress that is reported to it.

use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use attache_os::removal;
use attache_protocol::{DelegationId, Secret, Timestamp};
use tokio::sync::{Notify, oneshot, watch};

use super::{
    exchange::StagingFolder,
    messages::{CompatDone, CompatFailure},
};

/// Shared by the requests about it and by the task that follows the work.
#[derive(Debug)]
pub(super) struct CompatAssignment {
    /// What the invitation was accepted with.
    pub(super) credential: Secret<String>,
    pub(super) delegation: DelegationId,
    pub(super) folders: AssignmentHome,
    /// The names of the resources: the folders at the top of the archive.
    pub(super) resources: Vec<String>,
    pub(super) progress: watch::Sender<CompatProgress>,
    /// The agent takes the folder.
    pub(super) is_accepted: AtomicBool,
    /// The result has arrived at the other side, which has no more questions.
    pub(super) acknowledged: Notify,
}

/// Where its files are.
#[derive(Debug)]
pub(super) struct AssignmentHome {
    /// Removed with everything in it when the assignment is dropped.
    home: StagingFolder,
}

#[derive(Debug, Clone)]
pub(super) enum CompatProgress {
    /// Accepted. The folder is filled when START comes.
    Pending(std::sync::Arc<std::sync::Mutex<Option<oneshot::Sender<()>>>>),
    /// START came. With the last message of the agent.
    Active(Option<String>),
    Completed(CompatDone, Timestamp),
    Failed(CompatFailure, Timestamp),
}

// === impl CompatAssignment ===

impl CompatAssignment {
    pub(super) fn has_ended(&self) -> bool {
        self.progress.borrow().has_ended()
    }

    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        match &*self.progress.borrow() {
            CompatProgress::Pending(_) | CompatProgress::Active(_) => None,
            CompatProgress::Completed(_, at) | CompatProgress::Failed(_, at) => Some(*at),
        }
    }
}

// === impl AssignmentHome ===

impl AssignmentHome {
    pub(super) fn create(path: PathBuf) -> Result<Self, crate::Error> {
        let folders = Self { home: StagingFolder::create(path)? };
        for folder in [folders.work(), folders.staging()] {
            attache_os::path_error::private_folder(&folder)?;
        }
        Ok(folders)
    }

    fn path(&self) -> &Path {
        self.home.path()
    }

    /// What is delegated. It contains a folder for each resource.
    pub(super) fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    pub(super) fn staging(&self) -> PathBuf {
        self.path().join("staging")
    }

    /// The key of the hub that came with the invitation.
    pub(super) fn key(&self) -> PathBuf {
        self.path().join("key")
    }

    /// Removes everything but the result. Blocking.
    pub(super) fn clear(&self) {
        for folder in [self.work(), self.staging()] {
            if let Err(error) = removal::empty(&folder) {
                tracing::warn!(folder = %folder.display(), %error, "failed to empty a folder");
            }
        }
        let _ = std::fs::remove_file(self.key());
    }

    /// The archive that goes back.
    pub(super) fn result(&self) -> PathBuf {
        self.path().join("result.zip")
    }
}

// === impl CompatProgress ===

impl CompatProgress {
    pub(super) const fn has_ended(&self) -> bool {
        matches!(self, Self::Completed(..) | Self::Failed(..))
    }
}
