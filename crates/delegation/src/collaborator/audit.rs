//! The collaborator's audit: one JSON line per event, in `collaborator.jsonl` or in the owner's own sink.

use std::{
    fmt,
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use attache_os::path_error::private_folder;
use attache_protocol::{Timestamp, wire::awcp::AwcpErrorCode};
use serde::Serialize;

/// Records everything that happens to a delegation on this side. It must not block.
pub trait CollaboratorAuditSink: Send + Sync + fmt::Debug {
    fn record(&self, entry: &CollaboratorAuditEntry<'_>);
}

/// One entry. It never contains a key, a token or the address of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CollaboratorAuditEntry<'a> {
    pub at: Timestamp,
    pub delegation_id: &'a str,
    /// The delegating caller, as the hub names it.
    pub caller: &'a str,
    /// `accept`, `mount`, `done`, `error`.
    pub event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// `collaborator.jsonl` below `$AWCP_HOME`.
#[derive(Debug)]
pub struct CollaboratorAuditFile {
    path: PathBuf,
    /// Keeps the lines of concurrent writers apart.
    write_lock: Mutex<()>,
}

// === impl CollaboratorAuditEntry ===

impl<'a> CollaboratorAuditEntry<'a> {
    pub(super) const fn new(at: Timestamp, (caller, delegation_id): (&'a str, &'a str), event: &'static str) -> Self {
        Self { at, delegation_id, caller, event, code: None, detail: None }
    }

    pub(super) fn code(self, code: AwcpErrorCode, detail: &str) -> Self {
        Self { code: Some(code.as_str()), detail: Some(detail.to_owned()), ..self }
    }
}

// === impl CollaboratorAuditFile ===

impl CollaboratorAuditFile {
    pub fn at(home: &std::path::Path) -> Self {
        Self { path: home.join("collaborator.jsonl"), write_lock: Mutex::new(()) }
    }

    fn write(&self, line: &[u8]) -> Result<(), crate::Error> {
        let _guard = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = self.path.parent() {
            private_folder(folder)?;
        }
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)
            .map_err(crate::Error::io(&self.path))?;
        file.write_all(line).map_err(crate::Error::io(&self.path))
    }
}

impl CollaboratorAuditSink for CollaboratorAuditFile {
    fn record(&self, entry: &CollaboratorAuditEntry<'_>) {
        let mut line = serde_json::to_vec(entry).expect("our own types serialise to JSON");
        line.push(b'\n');
        if let Err(error) = self.write(&line) {
            tracing::error!(%error, "failed to write the audit");
        }
    }
}
