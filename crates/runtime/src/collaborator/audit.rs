//! What was taken from whom and how it ended, line by line: `collaborator.jsonl`, or wherever else the owner wants it.

use std::{
    fmt,
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use attache_protocol::{Timestamp, wire::awcp::AwcpErrorCode};
use serde::Serialize;

use crate::files;

/// Takes note of everything that happens to a delegation at this end. It must not wait for anybody.
pub trait CollaboratorAuditSink: Send + Sync + fmt::Debug {
    fn record(&self, entry: &CollaboratorAuditEntry<'_>);
}

/// One line. No key, token or address of a host is ever in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CollaboratorAuditEntry<'a> {
    pub at: Timestamp,
    pub delegation_id: &'a str,
    /// As the hub names whoever lends.
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
    /// Lines of one process do not mix.
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
        let _turn = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = self.path.parent() {
            files::private_folder(folder)?;
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
            tracing::error!(%error, "the audit cannot be written");
        }
    }
}
