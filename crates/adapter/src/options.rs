//! What an adapter is started with. The caller reads files and the environment; nothing here does.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
};

use attache_protocol::{Secret, env::Env};

use crate::{Driver, Environment};

#[derive(Debug, Clone)]
pub struct Options {
    /// A loopback address; port 0 picks a free one.
    pub listen: SocketAddr,
    /// What callers send as `Authorization: Bearer …`.
    pub secret: Secret<String>,
    pub driver: Arc<dyn Driver>,
    /// Where a task works when its request names no `cwd`.
    pub cwd: PathBuf,
    /// Where each run gets a private folder that is removed when it ends.
    pub scratch: PathBuf,
    /// What child processes see of the environment.
    pub environment: Environment,
    /// The text of `--instruction-file`; it follows the instructions of a request.
    pub instructions: Option<String>,
    /// How many tasks execute at a time; the contract says one, and so it is unless a driver is made for more.
    pub concurrency: NonZeroUsize,
    pub env: Env,
}

// === impl Options ===

impl Options {
    /// A free port of 127.0.0.1, an empty environment and no instructions of its own.
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
        }
    }
}
