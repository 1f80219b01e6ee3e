//! Which connection of a lease has which files open for writing. When a new connection starts, files that older ones
//! still have open, or left open, may be cut short: sshfs reconnects after an outage and never resumes an earlier file.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Export, ExportFile, ExportRefusal, ExportShared,
    audit::{ExportAuditEntry, ExportOperation},
    held,
};

/// One connection. Later ones have greater numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExportConnection(u64);

#[derive(Debug, Default)]
pub(super) struct ExportConnections {
    last: u64,
    next_file: u64,
    open: BTreeMap<u64, OpenForWriting>,
    /// Left open by an ended connection.
    abandoned: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct OpenForWriting {
    connection: ExportConnection,
    path: Vec<u8>,
    /// The audit says that it was cut short.
    is_suspect: bool,
}

/// A file of a connection, until it is closed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket(u64);

impl Export {
    /// Starts a connection.
    pub(crate) fn connect(&self) -> ExportConnection {
        let mut connections = held(&self.0.connections);
        connections.last += 1;
        let connection = ExportConnection(connections.last);
        let mut cut = std::mem::take(&mut connections.abandoned);
        for open in connections.open.values_mut().filter(|open| !open.is_suspect) {
            open.is_suspect = true;
            cut.push(open.path.clone());
        }
        drop(connections);
        for path in cut {
            self.0.tell_interrupted(&path);
        }
        connection
    }
}

impl ExportFile {
    /// Assigns the file to a connection.
    pub(crate) fn of(mut self, connection: ExportConnection) -> Self {
        if self.is_for_writing() {
            let mut connections = held(&self.inner().connections);
            let ticket = connections.next_file;
            connections.next_file += 1;
            let open = OpenForWriting { connection, path: self.path().to_vec(), is_suspect: false };
            connections.open.insert(ticket, open);
            drop(connections);
            self.ticket = Some(Ticket(ticket));
        }
        self
    }

    /// It belongs to another connection now, and nothing that was written to it is missing.
    pub(crate) fn resume(&self, connection: ExportConnection) {
        let Some(Ticket(ticket)) = self.ticket else { return };
        let mut connections = held(&self.inner().connections);
        let Some(open) = connections.open.get_mut(&ticket) else { return };
        open.connection = connection;
        let was_suspect = std::mem::take(&mut open.is_suspect);
        let path = open.path.clone();
        drop(connections);
        if was_suspect {
            self.inner().tell_whole(&path);
        }
    }

    /// Closed by the client. If it is dropped instead, the connection ended first.
    pub(crate) fn close(mut self) {
        let Some(Ticket(ticket)) = self.ticket.take() else { return };
        let inner = Arc::clone(self.inner());
        let open = held(&inner.connections).open.remove(&ticket);
        drop(self);
        if let Some(open) = open.filter(|open| open.is_suspect) {
            inner.tell_whole(&open.path);
        }
    }
}

// === impl ExportShared ===

impl ExportShared {
    pub(super) fn abandon(&self, Ticket(ticket): Ticket) {
        let mut connections = held(&self.connections);
        let Some(open) = connections.open.remove(&ticket).filter(|open| !open.is_suspect) else { return };
        if open.connection.0 == connections.last {
            // This was an outage only if another connection follows.
            connections.abandoned.push(open.path);
            return;
        }
        drop(connections);
        self.tell_interrupted(&open.path);
    }

    fn tell_whole(&self, path: &[u8]) {
        let (op, outcome) = (ExportOperation::Close, Ok(()));
        self.journal.record(&ExportAuditEntry { op, path, to: None, bytes: None, outcome });
    }

    fn tell_interrupted(&self, path: &[u8]) {
        let outcome = Err(&ExportRefusal::Interrupted);
        self.journal.record(&ExportAuditEntry { op: ExportOperation::Write, path, to: None, bytes: None, outcome });
    }
}
