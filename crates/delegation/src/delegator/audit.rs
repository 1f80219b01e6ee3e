//! The audit of delegations: one JSON line per event, in `audit.jsonl` of every delegation or in the owner's own sink.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use attache_protocol::{DelegationId, Timestamp};
use serde::Serialize;

/// Records everything that happens to a delegation and in its exported folder. It must not block.
pub trait DelegatorAuditSink: Send + Sync + fmt::Debug {
    fn record(&self, delegation: DelegationId, entry: &DelegatorAuditEntry<'_>);

    /// No more entries follow for this delegation.
    fn close(&self, _delegation: DelegationId) {}
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DelegatorAuditEntry<'a> {
    pub at: Timestamp,
    /// `invite`, `accept`, `start`, `work`, `done`, `error`, `cancel`, `expire`, `revoke`, `disk_full`, `refusals_unlisted` (there
    /// were too many), or an operation on a file.
    pub event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<&'a str>,
    pub ok: bool,
}

/// `delegations/<id>/audit.jsonl`.
#[derive(Debug)]
pub struct DelegatorAuditFiles {
    home: PathBuf,
    /// Open files of live delegations.
    open: Mutex<Vec<(DelegationId, File)>>,
}

// === impl DelegatorAuditEntry ===

impl<'a> DelegatorAuditEntry<'a> {
    pub const fn new(at: Timestamp, event: &'a str) -> Self {
        Self { at, event, path: None, bytes: None, detail: None, ok: true }
    }
}

// === impl DelegatorAuditFiles ===

impl DelegatorAuditFiles {
    /// Below `$AWCP_HOME`.
    pub const fn at(home: PathBuf) -> Self {
        Self { home, open: Mutex::new(Vec::new()) }
    }

    fn write(&self, delegation: DelegationId, line: &[u8]) -> std::io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, file)) = open.iter_mut().find(|(id, _)| *id == delegation) {
            return file.write_all(line);
        }
        let path = self.home.join("delegations").join(delegation.to_string()).join("audit.jsonl");
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        file.write_all(line)?;
        open.push((delegation, file));
        Ok(())
    }
}

impl DelegatorAuditSink for DelegatorAuditFiles {
    fn record(&self, delegation: DelegationId, entry: &DelegatorAuditEntry<'_>) {
        let mut line = serde_json::to_vec(entry).expect("our own types serialise to JSON");
        line.push(b'\n');
        if let Err(error) = self.write(delegation, &line) {
            tracing::error!(delegation.id = %delegation, %error, "failed to write the audit");
        }
    }

    fn close(&self, delegation: DelegationId) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _)| *id != delegation);
    }
}
