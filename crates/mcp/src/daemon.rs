//! The delegation backend over the daemon's socket. Starts the daemon if it isn't running, then retries once.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use attache_client::daemon::{DaemonClient, Error};
use attache_protocol::{
    DelegationId,
    wire::delegation::{DelegateRequest, Delegation},
};

use crate::{DelegationBackend, ToolError};

/// The delegation daemon of the local user.
#[derive(Debug)]
pub struct DaemonBackend<W> {
    client: DaemonClient,
    starter: W,
    /// The daemon's `delegations/` folder.
    records: PathBuf,
}

/// Starts the daemon and waits until it responds.
#[async_trait]
pub trait StartDaemon: Send + Sync + 'static {
    async fn start_daemon(&self) -> Result<(), ToolError>;
}

/// At most this much is read from the end of each log file.
const MAX_FILE: u64 = 256 << 10;

// === impl DaemonBackend ===

impl<W: StartDaemon> DaemonBackend<W> {
    pub const fn new(client: DaemonClient, wake: W, records: PathBuf) -> Self {
        Self { client, starter: wake, records }
    }

    /// Sends a request, and sends it again after starting the daemon. Only for idempotent requests.
    async fn ask<T, F: Future<Output = Result<T, Error>>>(&self, ask: impl Fn() -> F) -> Result<T, ToolError> {
        match ask().await {
            Err(Error::NotRunning { .. } | Error::NoAnswer { .. }) => {
                self.starter.start_daemon().await?;
                Ok(ask().await?)
            }
            other => Ok(other?),
        }
    }
}

#[async_trait]
impl<W: StartDaemon> DelegationBackend for DaemonBackend<W> {
    async fn delegate(&self, request: DelegateRequest) -> Result<Delegation, ToolError> {
        let created = match self.client.delegate(&request).await {
            Err(Error::NotRunning { .. }) => {
                self.starter.start_daemon().await?;
                self.client.delegate(&request).await
            }
            // Not retried if the daemon may have received it: the folder would be delegated twice.
            other => other,
        };
        Ok(created?)
    }

    async fn get(&self, id: DelegationId, after: Option<u64>, wait: Duration) -> Result<Delegation, ToolError> {
        match after {
            Some(after) => self.ask(|| self.client.wait(id, after, wait)).await,
            None => self.ask(|| self.client.get(id)).await,
        }
    }

    async fn cancel(&self, id: DelegationId) -> Result<Delegation, ToolError> {
        self.ask(|| self.client.cancel(id)).await
    }

    async fn cancel_session(&self, session: &str) -> Result<Vec<Delegation>, ToolError> {
        self.ask(|| self.client.cancel_session(session)).await
    }

    async fn diff(&self, id: DelegationId) -> Result<String, ToolError> {
        Ok(self.ask(|| self.client.diff(id)).await?.text)
    }

    async fn log(&self, id: DelegationId) -> Result<String, ToolError> {
        let folder = self.records.join(id.to_string());
        let read = tokio::task::spawn_blocking(move || read_log(&folder)).await;
        let unread = |error: &dyn std::fmt::Display| {
            ToolError::new("not_found", format!("can't read the log of {id}: {error}"), "Check the delegation_id.")
        };
        read.map_err(|error| unread(&error))?.map_err(|error| unread(&error))
    }
}

/// The files in `logs/`, then the audit log.
fn read_log(folder: &Path) -> io::Result<String> {
    let mut files = match std::fs::read_dir(folder.join("logs")) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?,
        Err(_) => Vec::new(),
    };
    files.sort();
    let audit = folder.join("audit.jsonl");
    if audit.exists() {
        files.push(audit);
    }
    if files.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no log files"));
    }
    let mut log = String::new();
    for file in files {
        let end = read_end(&file)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        log.push_str(&format!("== {name}\n{}", String::from_utf8_lossy(&end)));
        if !log.ends_with('\n') {
            log.push('\n');
        }
    }
    Ok(log)
}

fn read_end(file: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_FILE)))?;
    let mut end = Vec::new();
    // The daemon may still be writing to the file.
    file.take(MAX_FILE).read_to_end(&mut end)?;
    Ok(end)
}
