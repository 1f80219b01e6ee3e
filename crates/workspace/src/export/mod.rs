//! The export core: one folder as one lease shows it, and all that the lease lets happen in it.
//!
//! Every door to a lent folder (SFTP today) goes through an [`Export`]. Its root is opened once; a path is checked name by
//! name, found by the kernel in one step that cannot leave the root (`root`), held by its handle, and changed through the
//! handle of its folder. Links are data: their targets are told and never followed.

mod attributes;
mod before;
mod believed;
mod change;
mod connection;
mod credentials;
mod directory;
mod failed;
mod file;
mod filter;
mod git;
mod guard;
mod index;
mod inflate;
mod journal;
mod links;
mod names;
mod objects;
pub(crate) mod path;
mod pattern;
mod quota;
mod record;
mod refusal;
pub(crate) mod root;
mod secrets;

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
    attributes::{AttributeChange, Attributes, Kind, Moment},
    before::Before,
    directory::{Directory, Entry as DirectoryEntry},
    failed::{Cause, FailedChanges},
    file::{Create, OpenFile, OpenHow},
    filter::{Rules, secrets_in, withhold_folder},
    guard::is_of_repository,
    journal::{Journal, Line, NoJournal, Op},
    names::Replace,
    path::{show, unshow},
    quota::Quota,
    record::Record,
    refusal::{Refusal, Unexportable},
    secrets::SECRETS,
};
use self::{
    before::Keeper,
    connection::Connections,
    path::Place,
    quota::Usage,
    root::{Found, Root},
};
pub(crate) use self::{
    change::set_times,
    connection::Connection,
    credentials::shows_credentials,
    filter::Filter,
    pattern::Patterns,
    record::{Entry, KeptFile, Left, Stamp, Was},
};

/// What a lease may do with a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    pub access_mode: AccessMode,
    pub rules: Rules,
    pub quota: Quota,
    pub links: Links,
    /// Where the remote sees the folder. A link that it makes to a path below that is one to the same path here.
    pub seen_at: Option<PathBuf>,
}

/// Which symbolic links a lease may make. They are never followed here; programs of the host do follow them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Links {
    /// Only those that stay inside of the folder.
    #[default]
    Inside,
    Any,
}

/// A folder under a lease. Its calls block; it can be used from many threads.
pub struct Export(Arc<Inner>);

/// The space of the file system below the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub block_size: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_max: u64,
}

struct Inner {
    root: Root,
    filter: Filter,
    usage: Usage,
    links: Links,
    /// Where the folder is, here and at the remote; real paths.
    here: Vec<u8>,
    seen_at: Option<Vec<u8>>,
    journal: Arc<dyn Journal>,
    revoked: AtomicBool,
    /// Read by every changing call while it is under way; the end of the lease waits for it.
    gate: RwLock<()>,
    /// One change of names at a time, so that what was checked is still so. `None` when the folder is lent read-only.
    keeper: Option<Mutex<Keeper>>,
    /// Files that are open for writing, by inode.
    writing: Mutex<HashMap<u64, Writing>>,
    /// The same by connection.
    connections: Mutex<Connections>,
    /// Files that git on the host believes, by inode, with the name under which they were looked at.
    sealed: Mutex<HashMap<u64, Vec<u8>>>,
    /// Files that are looked at before they get such a name: nobody writes into them meanwhile.
    looked_at: Mutex<HashSet<u64>>,
}

struct Writing {
    /// The path under which the file is now.
    path: Vec<u8>,
    handles: usize,
    seen: Seen,
}

/// The size and time of a file after the lease wrote into it last; held while it writes. Whatever differs was done by somebody
/// at the host.
type Seen = Arc<Mutex<(u64, Moment)>>;

// === impl Terms ===

impl Terms {
    /// Everything but secrets, the default limits.
    pub fn new(access_mode: AccessMode) -> Self {
        Self { access_mode, rules: Rules::default(), quota: Quota::default(), links: Links::default(), seen_at: None }
    }
}

// === impl Export ===

impl Export {
    /// Opens the folder. Where it is lent read-only, `before` is not used.
    pub fn open(dir: &Path, terms: Terms, before: Before, journal: Arc<dyn Journal>) -> Result<Self, Unexportable> {
        let root = Root::open(dir)?;
        let filter = Filter::new(&terms.rules)?;
        let usage = Usage::new(terms.quota);
        let keeper = match terms.access_mode {
            AccessMode::Ro => None,
            AccessMode::Rw => Some(Mutex::new(before.open(dir, usage.kept_limit())?)),
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
            keeper,
            writing: Mutex::default(),
            connections: Mutex::default(),
            sealed: Mutex::default(),
            looked_at: Mutex::default(),
        })))
    }

    /// Never follows a link at the end of the path.
    pub fn attributes(&self, path: &[u8]) -> Result<Attributes, Refusal> {
        self.0.begin()?;
        Ok(self.0.see(&Place::parse(path)?)?.attributes)
    }

    /// The target as it is, except that of a link to a whole path in the folder: that leads there from the remote, too.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.0.begin()?;
        let place = Place::parse(path)?;
        let target = self.0.see(&place)?.target()?;
        Ok(links::below(&target, &self.0.here, place.parent()).unwrap_or(target))
    }

    pub fn space(&self) -> Result<Space, Refusal> {
        self.0.begin()?;
        let told = rustix::fs::fstatvfs(&self.0.root)?;
        Ok(Space {
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
    pub fn changes(&self) -> Record {
        self.0.keeper.as_ref().map_or_else(Record::default, |keeper| held(keeper).record())
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
    fn begin(&self) -> Result<(), Refusal> {
        self.usage.operation()?;
        self.go_on()
    }

    fn go_on(&self) -> Result<(), Refusal> {
        if self.revoked.load(Ordering::Acquire) {
            return Err(Refusal::Revoked);
        }
        Ok(())
    }

    /// Finds what a path names, if the lease shows it.
    fn see(&self, place: &Place) -> Result<Found, Refusal> {
        match self.root.look(place.whole()) {
            Ok(found) if self.filter.shows(place.whole(), found.attributes.is_folder()) => Ok(found),
            Ok(_) => Err(Refusal::NotFound),
            // What is wrong with a path below something hidden would tell that it is there.
            Err(refusal) => {
                let shown = [true, false].into_iter().any(|folder| self.filter.shows(place.whole(), folder));
                Err(if shown { refusal } else { Refusal::NotFound })
            }
        }
    }

    fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
        self.usage.end();
        let _nobody = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let Some(keeper) = &self.keeper else { return };
        let mut keeper = held(keeper);
        for (inode, writing) in std::mem::take(&mut *held(&self.writing)) {
            let seen = *held(&writing.seen);
            keeper.settle_file(&self.root, &writing.path, inode, Some(seen));
        }
        keeper.sync();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            held(keeper).finish();
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
