//! The export: one folder as one lease shows it, and everything the lease allows in it.
//!
//! All access to an exported folder (SFTP today) goes through an [`Export`]. Its root is opened once. A path is checked
//! name by name, resolved by the kernel in one step that can't leave the root (`root`), held by its handle, and changed
//! through the handle of its folder. Symbolic links are data: their targets are reported and never followed.

mod attributes;
mod audit;
mod change;
mod connection;
mod content_rules;
mod credentials;
mod directory;
mod failed;
mod file;
mod file_lock;
mod filter;
mod git;
mod git_guard;
mod git_index;
mod index;
mod inflate;
mod lease_record;
mod links;
mod objects;
mod originals;
pub(crate) mod path;
mod pattern;
mod place;
mod quota;
mod refusal;
pub(crate) mod root;
mod secrets;
mod tree;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

pub use attache_os::file_attributes::{FileAttributes, FileKind, FileTime};
use attache_protocol::wire::awcp::AccessMode;

pub use self::{
    attributes::AttributeChange,
    audit::{ExportAudit, ExportAuditEntry, ExportOperation, NoExportAudit},
    directory::{DirectoryEntry, ExportDirectory},
    failed::{FailedChanges, FailureCause},
    file::{CreateMode, ExportFile, FileOpenOptions, SizeAfter},
    filter::{ExportPatterns, secrets_in, withhold_folder},
    git_guard::{REPOSITORIES, is_of_repository},
    lease_record::LeaseRecord,
    originals::OriginalsFolder,
    path::{from_shown, show},
    quota::LeaseQuota,
    refusal::{ExportError, ExportRefusal},
    secrets::SECRETS,
    tree::ReplaceMode,
};
pub(crate) use self::{
    change::set_times,
    connection::ExportConnection,
    credentials::shows_credentials,
    file_lock::{FileLocks, LOCKED_RANGES, LockKind, LockRange},
    filter::ExportFilter,
    git_guard::{inside, is_index, is_object},
    git_index::{index_content, stays_inside},
    lease_record::{LeaseRecordEntry, OriginalFile, PathAfter, PathBefore, PathStamp},
    pattern::GlobPatterns,
    place::ReplacementContent,
};
use self::{
    connection::ExportConnections,
    originals::OriginalsStore,
    path::ExportPath,
    quota::LeaseUsage,
    root::{ExportRoot, PathHandle},
};

/// What a lease can do with a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportTerms {
    pub access_mode: AccessMode,
    pub rules: ExportPatterns,
    pub quota: LeaseQuota,
    pub links: LinkPolicy,
    /// The remote's mount point. A link that the remote creates to a path below it becomes a link to the same path
    /// here.
    pub seen_at: Option<PathBuf>,
    /// Of a copy: the folder that absolute links in it mean.
    pub copy_of: Option<PathBuf>,
}

/// Which symbolic links a lease can create. The export never follows them, but programs on the host do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LinkPolicy {
    /// Only links that stay inside the folder.
    #[default]
    Inside,
    Any,
}

/// A folder under a lease. Its calls block. It can be used from many threads.
pub struct Export(Arc<ExportShared>);

/// The free space of the folder's file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilesystemSpace {
    pub block_size: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_max: u64,
}

struct ExportShared {
    root: ExportRoot,
    filter: ExportFilter,
    usage: LeaseUsage,
    links: LinkPolicy,
    /// The canonical path of the folder, here and at the remote.
    here: Vec<u8>,
    seen_at: Option<Vec<u8>>,
    journal: Arc<dyn ExportAudit>,
    revoked: AtomicBool,
    /// Read-locked by every changing call. The end of the lease waits for it.
    gate: RwLock<()>,
    /// One change of names at a time, so that checks stay valid. `None` if the export is read-only.
    originals: Option<Mutex<OriginalsStore>>,
    /// Files that are open for writing, by inode.
    writing: Mutex<HashMap<u64, OpenWrite>>,
    /// The same files by connection.
    connections: Mutex<ExportConnections>,
    /// Files that git on the host trusts, by inode, with the name under which they were checked.
    sealed: Mutex<HashMap<u64, Vec<u8>>>,
    /// Files that are being checked before they get such a name: nothing can write to them meanwhile.
    looked_at: Mutex<HashSet<u64>>,
}

struct OpenWrite {
    /// The current path of the file.
    path: Vec<u8>,
    handles: usize,
    seen: LastWrite,
}

/// The size and time of a file after the lease last wrote to it, locked while it writes. Any difference was made by
/// somebody on the host.
type LastWrite = Arc<Mutex<(u64, FileTime)>>;

// === impl ExportTerms ===

impl ExportTerms {
    /// Everything except secrets, with the default limits.
    pub fn new(access_mode: AccessMode) -> Self {
        Self {
            access_mode,
            rules: ExportPatterns::default(),
            quota: LeaseQuota::default(),
            links: LinkPolicy::default(),
            seen_at: None,
            copy_of: None,
        }
    }
}

// === impl Export ===

impl Export {
    /// Opens the folder. If it is read-only, `before` is not used.
    pub fn open(
        dir: &Path,
        terms: ExportTerms,
        before: OriginalsFolder,
        journal: Arc<dyn ExportAudit>,
    ) -> Result<Self, ExportError> {
        let root = ExportRoot::open(dir)?;
        let filter = ExportFilter::new(&terms.rules)?;
        let usage = LeaseUsage::new(terms.quota);
        let keeper = match terms.access_mode {
            AccessMode::Ro => None,
            AccessMode::Rw => Some(Mutex::new(before.open(dir, usage.originals_limit())?)),
        };
        let dir = terms.copy_of.as_deref().unwrap_or(dir);
        let here = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        Ok(Self(Arc::new(ExportShared {
            root,
            filter,
            usage,
            links: terms.links,
            here: here.into_os_string().into_vec(),
            seen_at: terms.seen_at.map(|path| path.into_os_string().into_vec()),
            journal,
            revoked: AtomicBool::new(false),
            gate: RwLock::new(()),
            originals: keeper,
            writing: Mutex::default(),
            connections: Mutex::default(),
            sealed: Mutex::default(),
            looked_at: Mutex::default(),
        })))
    }

    /// Never follows a link at the end of the path.
    pub fn attributes(&self, path: &[u8]) -> Result<FileAttributes, ExportRefusal> {
        self.0.begin()?;
        Ok(self.0.find_shown(&ExportPath::parse(path)?)?.attributes)
    }

    /// The target as stored, except for an absolute path in the folder: it is converted so that it leads to the same
    /// place at the remote.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>, ExportRefusal> {
        self.0.begin()?;
        let place = ExportPath::parse(path)?;
        let target = self.0.find_shown(&place)?.target()?;
        Ok(links::below(&target, &self.0.here, place.parent()).unwrap_or(target))
    }

    pub fn space(&self) -> Result<FilesystemSpace, ExportRefusal> {
        self.0.begin()?;
        let statistics = rustix::fs::fstatvfs(&self.0.root)?;
        Ok(FilesystemSpace {
            block_size: statistics.f_frsize,
            blocks: statistics.f_blocks,
            blocks_free: statistics.f_bfree,
            blocks_available: statistics.f_bavail,
            files: statistics.f_files,
            files_free: statistics.f_ffree,
            name_max: statistics.f_namemax,
        })
    }

    /// Refuses every call from now on. Changes may still be in progress.
    pub(crate) fn refuse(&self) {
        self.0.refuse();
    }

    /// Refuses every call from now on, also on open files. Returns when no changing call is in progress, so that
    /// nothing changes any more.
    pub fn revoke(&self) {
        self.0.revoke();
    }

    pub fn is_revoked(&self) -> bool {
        self.0.revoked.load(Ordering::Acquire)
    }

    /// What the lease has touched so far.
    pub fn changes(&self) -> LeaseRecord {
        self.0.originals.as_ref().map_or_else(LeaseRecord::default, |keeper| held(keeper).record())
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").field("revoked", &self.is_revoked()).finish_non_exhaustive()
    }
}

// === impl ExportShared ===

impl ExportShared {
    /// The checks at the start of every call.
    fn begin(&self) -> Result<(), ExportRefusal> {
        self.usage.operation()?;
        self.check_live()
    }

    fn check_live(&self) -> Result<(), ExportRefusal> {
        if self.revoked.load(Ordering::Acquire) {
            return Err(ExportRefusal::Revoked);
        }
        Ok(())
    }

    /// Finds what a path names, if the lease shows it.
    fn find_shown(&self, place: &ExportPath) -> Result<PathHandle, ExportRefusal> {
        match self.root.find(place.whole()) {
            Ok(found) if self.filter.shows(place.whole(), found.attributes.is_folder()) => Ok(found),
            Ok(_) => Err(ExportRefusal::NotFound),
            // An error about a path below something hidden would reveal that it exists.
            Err(refusal) => {
                let shown = [true, false].into_iter().any(|folder| self.filter.shows(place.whole(), folder));
                Err(if shown { refusal } else { ExportRefusal::NotFound })
            }
        }
    }

    fn refuse(&self) {
        self.revoked.store(true, Ordering::Release);
        self.usage.end();
    }

    fn revoke(&self) {
        self.refuse();
        let _nobody = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let Some(keeper) = &self.originals else { return };
        let mut keeper = held(keeper);
        for (inode, writing) in std::mem::take(&mut *held(&self.writing)) {
            let seen = *held(&writing.seen);
            keeper.record_file_after(&self.root, &writing.path, inode, Some(seen));
        }
        keeper.distrust_indexes(&self.root);
        keeper.sync();
    }
}

impl Drop for ExportShared {
    fn drop(&mut self) {
        if let Some(keeper) = &self.originals {
            held(keeper).finish();
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
