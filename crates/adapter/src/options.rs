//! Options of an adapter. The caller reads files and the environment; nothing here does.

use std::{
    fmt, fs, io,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use attache_os::{
    control_group::{ControlGroup, ControlGroups, RunResources},
    look_up,
};
use attache_protocol::{RunId, Secret, Timestamp, env::Env};

use attache_sandbox::Launcher;

use crate::{Driver, Environment, SandboxLimit};

#[derive(Debug, Clone)]
pub struct Options {
    /// A loopback address. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// The secret callers send as `Authorization: Bearer …`.
    pub secret: Secret<String>,
    pub driver: Arc<dyn Driver>,
    /// Working folder of a task whose request names no `cwd`.
    pub cwd: PathBuf,
    /// Where each run gets a private folder, removed when it ends.
    pub scratch: PathBuf,
    /// The environment of child processes.
    pub environment: Environment,
    /// The text of `--instruction-file`, appended to the instructions of a request.
    pub instructions: Option<String>,
    /// How many tasks run at a time. The contract says one; only raise this for a driver designed for more.
    pub concurrency: NonZeroUsize,
    pub env: Env,
    /// Around the processes of drivers that have none of their own.
    pub walls: Option<AdapterWalls>,
}

/// The walls of this machine, and which limits they were proved to enforce.
#[derive(Debug, Clone)]
pub struct AdapterWalls {
    pub launcher: Arc<Launcher>,
    pub proved: Vec<SandboxLimit>,
    /// What they are made of, for people.
    pub made_of: String,
    pub proved_at: Timestamp,
    pub hide: Vec<HiddenFolder>,
    /// A run that could write to them could lead the runs of their agents elsewhere.
    pub others: OtherAgentFolders,
    /// What a run inside may use.
    pub resources: RunResources,
    /// Where this process can limit that for all processes of a run together.
    pub control_groups: Option<ControlGroups>,
}

/// Looks up the folders of the agents on this device, without links, when a run starts. Fails rather than leaving one out.
#[derive(Clone)]
pub struct OtherAgentFolders(pub Arc<dyn Fn() -> io::Result<Vec<PathBuf>> + Send + Sync>);

impl fmt::Debug for OtherAgentFolders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OtherAgentFolders")
    }
}

/// A folder of our own, which no task sees.
#[derive(Debug, Clone)]
pub struct HiddenFolder {
    path: PathBuf,
    /// Device and inode, if it was there at the start.
    identity: Option<(u64, u64)>,
}

// === impl AdapterWalls ===

impl AdapterWalls {
    /// The folders to hide from a process that is about to start in `cwd`. Fails if one was moved away, because whoever
    /// moved it could read it at its new place.
    pub(crate) fn hidden(&self, cwd: &Path) -> io::Result<Vec<PathBuf>> {
        for HiddenFolder { path, .. } in self.hide.iter().filter(|folder| folder.is_below(cwd)) {
            // Only what is there can be hidden, and a process inside must not be the one that makes it.
            if !look_up::is_there(path)? {
                fs::DirBuilder::new().mode(0o700).recursive(true).create(path)?;
            }
        }
        // What a link leads to can be hidden, but not the link, so a process inside could replace it.
        if let Some(link) = self.hide.iter().find_map(|folder| folder.link_below(cwd)) {
            let why =
                format!("{} is a link, which the task could replace; work in a folder without it", link.display());
            return Err(io::Error::other(why));
        }
        let moved = |folder: &&HiddenFolder| folder.identity.is_some() && folder.identity != identity(&folder.path);
        match self.hide.iter().find(moved) {
            Some(folder) => Err(io::Error::other(format!(
                "{} was moved or replaced since this adapter started; move it back",
                folder.path.display()
            ))),
            None => {
                let mut hidden = self.folders();
                for path in (self.others.0)()?.into_iter().filter(|path| path != cwd && path.starts_with(cwd)) {
                    if look_up::is_folder(&path)? {
                        hidden.push(path);
                    }
                }
                Ok(hidden)
            }
        }
    }

    /// For the processes of a run that is about to start.
    pub(crate) fn control_group(&self, run: RunId) -> io::Result<Option<ControlGroup>> {
        self.control_groups.as_ref().map(|groups| groups.create(run)).transpose()
    }

    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.hide.iter().map(|folder| folder.path.clone()).collect()
    }
}

// === impl HiddenFolder ===

impl HiddenFolder {
    pub fn new(path: PathBuf) -> Self {
        Self { identity: identity(&path), path }
    }

    /// A link on the way to it that is in this folder.
    fn link_below(&self, cwd: &Path) -> Option<&Path> {
        let is_here =
            |path: &Path| path.parent().and_then(|above| above.canonicalize().ok())?.starts_with(cwd).then_some(());
        self.path.ancestors().find(|path| path.is_symlink() && is_here(path).is_some())
    }

    /// Whether its place, after all links on the way there, is below this folder.
    pub fn is_below(&self, cwd: &Path) -> bool {
        let above = self.path.ancestors().skip(1).find_map(|folder| folder.canonicalize().ok());
        above.is_some_and(|above| above.starts_with(cwd))
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

// === impl Options ===

impl Options {
    /// A free port on 127.0.0.1, an empty environment and no instructions.
    pub fn new(
        driver: Arc<dyn Driver>,
        secret: Secret<String>,
        cwd: impl Into<PathBuf>,
        scratch: impl Into<PathBuf>,
    ) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            secret,
            driver,
            cwd: cwd.into(),
            scratch: scratch.into(),
            environment: Environment::default(),
            instructions: None,
            concurrency: NonZeroUsize::MIN,
            env: Env::system(),
            walls: None,
        }
    }
}
