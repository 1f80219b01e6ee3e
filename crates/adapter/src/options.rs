//! Options of an adapter. The caller reads files and the environment; nothing here does.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
};

use attache_protocol::{Secret, env::Env};

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
    /// Our own folders, which no task sees.
    pub hide: Vec<PathBuf>,
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
