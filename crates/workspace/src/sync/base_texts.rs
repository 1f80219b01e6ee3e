//! Small texts as both sides last agreed on them: without them, nothing could be merged.

use std::{fs, io, path::PathBuf};

use attache_protocol::digest::hex;

use crate::{chunks::ContentId, merge::is_text};

pub(super) struct BaseTexts {
    folder: PathBuf,
    bytes: u64,
}

/// Larger files aren't merged.
pub(super) const MAX_TEXT: u64 = 256 << 10;
/// Of all of them together.
const MAX_BYTES: u64 = 512 << 20;

// === impl BaseTexts ===

impl BaseTexts {
    /// In a folder of its own.
    pub(super) fn create(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir(&folder)?;
        Ok(Self { folder, bytes: 0 })
    }

    pub(super) fn keep(&mut self, id: ContentId, content: &[u8]) {
        let size = content.len() as u64;
        let path = self.path(id);
        if size > MAX_TEXT || self.bytes + size > MAX_BYTES || !is_text(content) || path.exists() {
            return;
        }
        // Without it, an edit on both sides is a conflict.
        if fs::write(path, content).is_ok() {
            self.bytes += size;
        }
    }

    pub(super) fn get(&self, id: ContentId) -> Option<Vec<u8>> {
        fs::read(self.path(id)).ok()
    }

    fn path(&self, id: ContentId) -> PathBuf {
        self.folder.join(hex(&id.0))
    }
}
