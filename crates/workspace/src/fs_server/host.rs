//! What the threads of a channel share: the export, the order of reports, and how an entry is described.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{
    outbox::{FsOutbox, FsUrgency},
    watcher::FsWatcher,
};
use crate::{
    export::{DirectoryEntry, Export, ExportRefusal, FileAttributes, FileKind},
    fs_wire::{FsAttributes, FsEntry, FsEvent, FsListing, Stamp},
    ssh::RequestQueue,
};

pub(super) struct FsHost {
    pub(super) export: Arc<Export>,
    pub(super) outbox: FsOutbox,
    pub(super) watcher: FsWatcher,
    clock: AtomicU64,
    /// Device numbers aren't sent, so files of other devices get numbers of their own.
    device: u64,
    ended: AtomicBool,
    /// What the client asks for.
    requests: OnceLock<Arc<RequestQueue>>,
}

/// How many entries one frame lists: far below the longest frame, even with names and targets of full length.
const ENTRIES_PER_FRAME: usize = 200;

// === impl FsHost ===

impl FsHost {
    pub(super) fn new(export: Arc<Export>, outbox: FsOutbox) -> Self {
        let device = export.attributes(b"").map_or(0, |root| root.device);
        let (clock, ended) = (AtomicU64::new(1), AtomicBool::new(false));
        Self { export, outbox, watcher: FsWatcher::new(), clock, device, ended, requests: OnceLock::new() }
    }

    /// Ends all threads of the channel.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.outbox.end();
        self.watcher.wake();
    }

    pub(super) fn takes(&self, requests: &Arc<RequestQueue>) {
        let _ = self.requests.set(Arc::clone(requests));
    }

    /// Another connection serves the mount now. Nothing that arrived here and isn't carried out is carried out any more.
    pub(super) fn supersede(&self) {
        if let Some(requests) = self.requests.get() {
            requests.abandon();
        }
        self.end();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Taken before looking, and after a change that is to be reported.
    pub(super) fn stamp(&self) -> Stamp {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn describe(&self, attributes: &FileAttributes) -> FsAttributes {
        let elsewhere = if attributes.device == self.device { 0 } else { attributes.device.rotate_right(20) | 1 << 63 };
        FsAttributes {
            kind: attributes.kind,
            mode: attributes.mode,
            links: attributes.links,
            inode: attributes.inode ^ elsewhere,
            size: attributes.size,
            accessed: attributes.accessed,
            modified: attributes.modified,
            changed: attributes.changed,
        }
    }

    pub(super) fn attributes(&self, path: &[u8]) -> Result<FsAttributes, ExportRefusal> {
        Ok(self.describe(&self.export.attributes(path)?))
    }

    pub(super) fn entry(&self, path: &[u8]) -> Result<FsEntry, ExportRefusal> {
        let attributes = self.attributes(path)?;
        Ok(FsEntry { attributes, target: self.target(path, attributes.kind) })
    }

    /// A link that was replaced meanwhile has no target: the change is reported next.
    fn target(&self, path: &[u8], kind: FileKind) -> Option<Vec<u8>> {
        if kind == FileKind::Link { self.export.read_link(path).ok() } else { None }
    }

    /// Watches a folder, reads it, and sends it. Watched first, so that no change in between is missed. Each entry is also
    /// passed on: a folder may have more than should be kept here.
    pub(super) fn list(
        &self,
        id: u32,
        path: &[u8],
        urgency: FsUrgency,
        mut each: impl FnMut(&[u8], &FsAttributes),
    ) -> Result<(), ExportRefusal> {
        let is_watched = self.watcher.watch(&self.export, path)?;
        let stamp = self.stamp();
        let own = self.attributes(path)?;
        let mut directory = self.export.read_dir(path)?;
        let mut batch = directory.next_batch(ENTRIES_PER_FRAME)?;
        // Each frame is sent before the next is read: a client that doesn't read makes the host keep only one.
        loop {
            let next = if batch.is_empty() { Vec::new() } else { directory.next_batch(ENTRIES_PER_FRAME)? };
            let entries = batch.into_iter().map(|DirectoryEntry { name, attributes }| {
                let target = self.target(&join(path, &name), attributes.kind);
                (name, FsEntry { attributes: self.describe(&attributes), target })
            });
            let entries: Vec<(Vec<u8>, FsEntry)> = entries.collect();
            for (name, entry) in &entries {
                each(name, &entry.attributes);
            }
            let (is_last, path) = (next.is_empty(), path.to_vec());
            let listing = FsListing { id, path, stamp, is_watched, is_last, own, entries };
            self.outbox.push(FsEvent::Listing(listing).write(), urgency);
            if is_last || self.has_ended() {
                return Ok(());
            }
            batch = next;
        }
    }
}

/// `folder/name`, or `name` at the root.
pub(super) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    crate::export::path::join(folder, name)
}

/// The folder of a path.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(b"", |slash| &path[..slash])
}
