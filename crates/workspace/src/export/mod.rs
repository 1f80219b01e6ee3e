//! The export core: one folder as one lease shows it, and all that the lease lets happen in it.
//!
//! Every door to a lent folder (SFTP today) goes through an [`Export`]. Its root is opened once; a path is checked name by
//! name, found by the kernel in one step that cannot leave the root (`root`), held by its handle, and changed through the
//! handle of its folder. Links are data: their targets are told and never followed.

mod attributes;
mod audit;
mod change;
mod connection;
mod content_rules;
mod credentials;
mod directory;
mod failed;
mod file;
mod filter;
mod git;
mod git_guard;
mod index;
mod inflate;
mod lease_record;
mod links;
mod objects;
mod originals;
pub(crate) mod path;
mod pattern;
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

use attache_protocol::wire::awcp::AccessMode;

pub use self::{
    attributes::{AttributeChange, FileAttributes, FileKind, FileTime},
    audit::{ExportAudit, ExportAuditEntry, ExportOperation, NoExportAudit},
    directory::{DirectoryEntry, ExportDirectory},
    failed::{Cause, FailedChanges},
    file::{CreateMode, ExportFile, FileOpenOptions},
    filter::{ExportPatterns, secrets_in, withhold_folder},
    git_guard::is_of_repository,
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
    connection::Connection,
    credentials::shows_credentials,
    filter::ExportFilter,
    lease_record::{LeaseRecordEntry, OriginalFile, PathAfter, PathBefore, PathStamp},
    pattern::GlobPatterns,
};
use self::{
    connection::Connections,
    originals::OriginalsStore,
    path::ExportPath,
    quota::LeaseUsage,
    root::{ExportRoot, PathHandle},
};

/// What a lease may do with a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportTerms {
    pub access_mode: AccessMode,
    pub rules: ExportPatterns,
    pub quota: LeaseQuota,
    pub links: LinkPolicy,
    /// Where the remote sees the folder. A link that it makes to a path below that is one to the same path here.
    pub seen_at: Option<PathBuf>,
}

/// Which symbolic links a lease may make. They are never followed here; programs of the host do follow them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LinkPolicy {
    /// Only those that stay inside of the folder.
    #[default]
    Inside,
    Any,
}

/// A folder under a lease. Its calls block; it can be used from many threads.
pub struct Export(Arc<Inner>);

/// The space of the file system below the folder.
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

struct Inner {
    root: ExportRoot,
    filter: ExportFilter,
    usage: LeaseUsage,
    links: LinkPolicy,
    /// Where the folder is, here and at the remote; real paths.
    here: Vec<u8>,
    seen_at: Option<Vec<u8>>,
    journal: Arc<dyn ExportAudit>,
    revoked: AtomicBool,
    /// Read by every changing call while it is under way; the end of the lease waits for it.
    gate: RwLock<()>,
    /// One change of names at a time, so that what was checked is still so. `None` when the folder is lent read-only.
    originals: Option<Mutex<OriginalsStore>>,
    /// Files that are open for writing, by inode.
    writing: Mutex<HashMap<u64, OpenWrite>>,
    /// The same by connection.
    connections: Mutex<Connections>,
    /// Files that git on the host believes, by inode, with the name under which they were looked at.
    sealed: Mutex<HashMap<u64, Vec<u8>>>,
    /// Files that are looked at before they get such a name: nobody writes into them meanwhile.
    looked_at: Mutex<HashSet<u64>>,
}

struct OpenWrite {
    /// The path under which the file is now.
    path: Vec<u8>,
    handles: usize,
    seen: LastWrite,
}

/// The size and time of a file after the lease wrote into it last; held while it writes. Whatever differs was done by somebody
/// at the host.
type LastWrite = Arc<Mutex<(u64, FileTime)>>;

// === impl ExportTerms ===

impl ExportTerms {
    /// Everything but secrets, the default limits.
    pub fn new(access_mode: AccessMode) -> Self {
        Self {
            access_mode,
            rules: ExportPatterns::default(),
            quota: LeaseQuota::default(),
            links: LinkPolicy::default(),
            seen_at: None,
        }
    }
}

// === impl Export ===

impl Export {
    /// Opens the folder. Where it is lent read-only, `before` is not used.
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
        Ok(Self(Arc::new(Inner {
            root,
            filter,
            usage,
            links: terms.links,
            here: dir.canonicalize().unwrap_or_else(|_| dir.to_owned()).into_os_string().into_vec(),
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

    /// The target as it is, except that of a link to a whole path in the folder: that leads there from the remote, too.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>, ExportRefusal> {
        self.0.begin()?;
        let place = ExportPath::parse(path)?;
        let target = self.0.find_shown(&place)?.target()?;
        Ok(links::below(&target, &self.0.here, place.parent()).unwrap_or(target))
    }

    pub fn space(&self) -> Result<FilesystemSpace, ExportRefusal> {
        self.0.begin()?;
        let told = rustix::fs::fstatvfs(&self.0.root)?;
        Ok(FilesystemSpace {
            block_size: told.f_frsize,
            blocks: told.f_blocks,
            blocks_free: told.f_bfree,
            blocks_available: told.f_bavail,
            files: told.f_files,
            files_free: told.f_ffree,
            name_max: told.f_namemax,
        })
    }

    /// From now on every call is refused, also on files that are open. Returns when no changing call is under way, so that
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

// === impl Inner ===

impl Inner {
    /// What every call begins with.
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
            // What is wrong with a path below something hidden would tell that it is there.
            Err(refusal) => {
                let shown = [true, false].into_iter().any(|folder| self.filter.shows(place.whole(), folder));
                Err(if shown { refusal } else { ExportRefusal::NotFound })
            }
        }
    }

    fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
        self.usage.end();
        let _nobody = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let Some(keeper) = &self.originals else { return };
        let mut keeper = held(keeper);
        for (inode, writing) in std::mem::take(&mut *held(&self.writing)) {
            let seen = *held(&writing.seen);
            keeper.record_file_after(&self.root, &writing.path, inode, Some(seen));
        }
        keeper.sync();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(keeper) = &self.originals {
            held(keeper).finish();
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
