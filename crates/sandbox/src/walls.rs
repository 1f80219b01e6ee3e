//! What a process inside the walls may do.

use std::{num::NonZeroU32, os::fd::RawFd, path::PathBuf};

use attache_protocol::wire::run::SandboxLimit;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walls {
    /// The working folder, which can be written to.
    pub cwd: PathBuf,
    pub files: FileView,
    /// Other folders that can be written to.
    pub write: Vec<PathBuf>,
    /// Other files and folders that can be read.
    pub read: Vec<PathBuf>,
    /// Folders among those, in places where others work, that must be there themselves: no link, and nothing else by the time
    /// the walls stand.
    pub exact: Vec<PathBuf>,
    /// Files that can be written to, each at the path of another one. Only namespaces can do that.
    pub overlays: Vec<FileOverlay>,
    /// Folders, such as the home folder, that are empty inside except for what is declared. What is written there ends
    /// with the process.
    pub private: Vec<PathBuf>,
    /// Folders that are empty inside, wherever they are. Only namespaces can do that.
    pub hide: Vec<PathBuf>,
    /// Files and folders in writable ones that it can only read, and neither move nor replace. Only namespaces can do
    /// that.
    pub fixed: Vec<PathBuf>,
    pub network: NetworkAccess,
    /// With a proxy: ports of the loopback address inside whose listeners are handed out too, after the proxy's.
    pub ports: Vec<u16>,
    /// Whether it can start other programs.
    pub exec: bool,
    /// How many processes it can have, threads counted. Where it has a user namespace of its own, except for root: the
    /// kernel counts those of the whole user elsewhere, and root's not at all.
    pub processes: Option<NonZeroU32>,
    /// Whether it keeps the terminal it was started from. It can't type into it either way.
    pub terminal: bool,
    /// Left out, so that tests see the probe notice it.
    #[doc(hidden)]
    pub without: Vec<Mechanism>,
}

/// A file that is shown in the place of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOverlay {
    pub file: PathBuf,
    pub shown_at: PathBuf,
}

/// Which files a process can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileView {
    /// Everything its user can see.
    All,
    /// The programs and libraries of the system, the working folder, and what is declared.
    Declared,
}

/// What a process can connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    /// Nothing, not even this machine.
    None,
    /// One proxy, outside. Its listener is made inside and sent to it over this descriptor; see
    /// [`receive_listeners`](crate::receive_listeners). Needs namespaces.
    Proxy(RawFd),
    All,
}

/// What a wall is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    Namespaces,
    Landlock,
    Seccomp,
}

// === impl Walls ===

impl Walls {
    /// Only the kernel's rarely used and dangerous parts are closed.
    pub fn open(cwd: impl Into<PathBuf>) -> Self {
        Self {
            cwd: cwd.into(),
            files: FileView::All,
            write: Vec::new(),
            read: Vec::new(),
            exact: Vec::new(),
            overlays: Vec::new(),
            private: Vec::new(),
            hide: Vec::new(),
            fixed: Vec::new(),
            network: NetworkAccess::All,
            ports: Vec::new(),
            exec: true,
            processes: None,
            terminal: false,
            without: Vec::new(),
        }
    }

    #[must_use]
    pub fn limit(mut self, limits: &[SandboxLimit]) -> Self {
        for limit in limits {
            match limit {
                SandboxLimit::CwdOnly => self.files = FileView::Declared,
                SandboxLimit::NoNetwork => self.network = NetworkAccess::None,
                SandboxLimit::NoExec => self.exec = false,
            }
        }
        self
    }
}
