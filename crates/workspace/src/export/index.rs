//! The index of originals as a file: complete lines only, even if the disk fills up in the middle of one.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use super::{
    lease_record::{INDEX, LeaseRecord, LeaseRecordLine},
    refusal::ExportRefusal,
};

#[derive(Debug)]
pub(super) struct OriginalsIndex {
    file: File,
    /// The end of the last complete line.
    end: u64,
    /// There may be a partial line after that.
    is_torn: bool,
    synced: Instant,
    /// The lines to write next.
    text: Vec<u8>,
}

const SYNC_INTERVAL: Duration = Duration::from_secs(1);

// === impl OriginalsIndex ===

impl OriginalsIndex {
    /// Opens the index in the folder of originals, creating it if missing, and reads it.
    pub(super) fn open(before: &Path) -> io::Result<(Self, LeaseRecord)> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(before.join(INDEX))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let is_torn = end < text.len();
        let record = LeaseRecord::read(before, &text);
        text.clear();
        Ok((Self { file, end: end as u64, is_torn, synced: Instant::now(), text }, record))
    }

    /// Writes all lines, or none that counts.
    pub(super) fn write(&mut self, lines: &[LeaseRecordLine]) -> Result<(), ExportRefusal> {
        self.text.clear();
        for line in lines {
            serde_json::to_writer(&mut self.text, line).map_err(io::Error::from)?;
            self.text.push(b'\n');
        }
        if self.is_torn {
            // The next line would be read as the rest of it.
            self.file.set_len(self.end)?;
        }
        let done = self.file.write_all(&self.text);
        self.is_torn = done.is_err();
        done?;
        self.end += self.text.len() as u64;
        Ok(())
    }

    pub(super) fn sync(&mut self) {
        self.synced = Instant::now();
        if let Err(error) = self.file.sync_data() {
            tracing::warn!(%error, "failed to sync the index of originals");
        }
    }

    /// Syncs occasionally, so that a power cut costs little without a sync per change.
    pub(super) fn sync_now_and_then(&mut self) {
        if self.synced.elapsed() >= SYNC_INTERVAL {
            self.sync();
        }
    }
}
