//! The open files and listings of one channel. The total per lease is limited.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::export::{ExportDirectory, ExportFile, ExportRefusal, FileAttributes};

/// How many files and listings the connections of one lease can have open together.
pub(crate) const MAX_HANDLES: usize = 1024;
/// What there are too many of, above it.
pub(crate) const OPEN_FILES: &str = "files open at the same time";

pub(super) enum OpenHandle {
    File(ExportFile),
    Listing(DirectoryListing),
}

pub(super) struct DirectoryListing {
    pub(super) directory: ExportDirectory,
    /// The folder's own attributes, for `.` and `..`, until they were sent.
    pub(super) own: Option<FileAttributes>,
}

pub(super) struct SftpHandles {
    budget: Arc<Semaphore>,
    open: Vec<Option<(OpenHandle, OwnedSemaphorePermit)>>,
}

// === impl SftpHandles ===

impl SftpHandles {
    pub(super) fn new(budget: Arc<Semaphore>) -> Self {
        Self { budget, open: vec![] }
    }

    /// Reserves room for one more, before it is opened.
    pub(super) fn reserve(&self) -> Result<OwnedSemaphorePermit, ExportRefusal> {
        Arc::clone(&self.budget).try_acquire_owned().map_err(|_| ExportRefusal::Quota(OPEN_FILES))
    }

    pub(super) fn insert(&mut self, open: OpenHandle, room: OwnedSemaphorePermit) -> [u8; 4] {
        let free = self.open.iter().position(Option::is_none).unwrap_or_else(|| {
            self.open.push(None);
            self.open.len() - 1
        });
        self.open[free] = Some((open, room));
        u32::try_from(free).unwrap_or(u32::MAX).to_be_bytes()
    }

    pub(super) fn file(&self, handle: &[u8]) -> Result<&ExportFile, ExportRefusal> {
        match index(handle).and_then(|index| self.open.get(index)) {
            Some(Some((OpenHandle::File(file), _))) => Ok(file),
            _ => Err(ExportRefusal::Invalid),
        }
    }

    pub(super) fn listing(&mut self, handle: &[u8]) -> Result<&mut DirectoryListing, ExportRefusal> {
        match index(handle).and_then(|index| self.open.get_mut(index)) {
            Some(Some((OpenHandle::Listing(listing), _))) => Ok(listing),
            _ => Err(ExportRefusal::Invalid),
        }
    }

    pub(super) fn close(&mut self, handle: &[u8]) -> Result<(), ExportRefusal> {
        let slot = index(handle).and_then(|index| self.open.get_mut(index));
        match slot.and_then(Option::take) {
            Some((OpenHandle::File(file), _)) => file.close(),
            Some((OpenHandle::Listing(_), _)) => {}
            None => return Err(ExportRefusal::Invalid),
        }
        Ok(())
    }
}

fn index(handle: &[u8]) -> Option<usize> {
    Some(u32::from_be_bytes(handle.try_into().ok()?) as usize)
}
