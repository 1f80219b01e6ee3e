//! The export on real file systems: what it shows, what it allows, and what it never lets out.

mod escapes;
mod exporting;
mod failures;
mod limits;
mod planted_repository;
mod reverting;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use attache_protocol::wire::awcp::AccessMode;
use attache_workspace::export::{
    CreateMode, Export, ExportAudit, ExportAuditEntry, ExportTerms, FileOpenOptions, OriginalsFolder,
};

/// An exported folder, its surroundings, and its audit entries.
pub(crate) struct ExportFixture {
    pub(crate) all: tempfile::TempDir,
    pub(crate) export: Arc<Export>,
    pub(crate) journal: Arc<AuditLines>,
}

#[derive(Default)]
pub(crate) struct AuditLines(Mutex<Vec<String>>);

impl ExportFixture {
    pub(crate) fn new(prepare: impl FnOnce(&Path)) -> Self {
        Self::with(ExportTerms::new(AccessMode::Rw), prepare)
    }

    pub(crate) fn with(terms: ExportTerms, prepare: impl FnOnce(&Path)) -> Self {
        let all = tempfile::tempdir().unwrap();
        let dir = all.path().join("lent");
        fs::create_dir(&dir).unwrap();
        prepare(&dir);
        let journal = Arc::new(AuditLines::default());
        let before = OriginalsFolder::in_folder(all.path().join("before"));
        let export = Arc::new(Export::open(&dir, terms, before, Arc::clone(&journal) as _).unwrap());
        Self { all, export, journal }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.all.path().join("lent")
    }

    pub(crate) fn read(&self, path: &str) -> Option<Vec<u8>> {
        let file = self
            .export
            .open_file(path.as_bytes(), &FileOpenOptions { read: true, ..FileOpenOptions::default() })
            .ok()?;
        let mut bytes = vec![0; usize::try_from(file.attributes().ok()?.size).ok()?];
        let read = file.read_at(0, &mut bytes).ok()?;
        bytes.truncate(read);
        Some(bytes)
    }

    /// Replaces the content of a file in place, as most programs do.
    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        let how = FileOpenOptions {
            write: true,
            truncate: true,
            create: CreateMode::IfMissing,
            ..FileOpenOptions::default()
        };
        self.export.open_file(path.as_bytes(), &how).unwrap().write_at(0, bytes).unwrap();
    }

    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let mut dir = self.export.read_dir(path.as_bytes()).unwrap();
        let mut names = Vec::new();
        loop {
            let batch = dir.next_batch(3).unwrap();
            if batch.is_empty() {
                names.sort();
                return names;
            }
            names.extend(batch.into_iter().map(|entry| attache_workspace::export::show(&entry.name)));
        }
    }
}

impl AuditLines {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl ExportAudit for AuditLines {
    fn record(&self, line: &ExportAuditEntry<'_>) {
        let to = line.to().map(|to| format!(" -> {to}")).unwrap_or_default();
        let bytes = line.bytes.map(|bytes| format!(" {bytes}")).unwrap_or_default();
        let outcome = line.outcome.map_or_else(|refusal| refusal.name(), |()| "ok");
        self.0.lock().unwrap().push(format!("{} {}{to}{bytes}: {outcome}", line.op.name(), line.path()));
    }
}
