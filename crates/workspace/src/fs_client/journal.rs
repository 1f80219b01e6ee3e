//! Requests that were acknowledged and not confirmed, on this machine's disk: if this process is killed, another one can
//! still send them.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// The file. Each record is a path, for people, and a request.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    bytes: usize,
}

/// A larger one is written anew, without what is confirmed.
const MAX_BYTES: usize = 64 << 20;

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

fn record(path: &[u8], frame: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length(path)[..], path, &length(frame), frame].concat()
}

// === impl Journal ===

impl Journal {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: create(path)?, bytes: 0 })
    }

    pub(super) fn append(&mut self, path: &[u8], frame: &[u8]) -> io::Result<()> {
        let record = record(path, frame);
        self.file.write_all(&record)?;
        self.bytes += record.len();
        Ok(())
    }

    /// Everything is confirmed.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        if self.bytes > 0 {
            self.file.set_len(0)?;
            self.bytes = 0;
        }
        Ok(())
    }

    pub(super) const fn is_large(&self) -> bool {
        self.bytes > MAX_BYTES
    }

    /// Keeps only these. The file is complete at every moment.
    pub(super) fn rewrite<'a>(&mut self, records: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> io::Result<()> {
        let (new, mut bytes) = (self.path.with_extension("new"), 0);
        let mut file = create(&new)?;
        for (path, frame) in records {
            let record = record(path, frame);
            file.write_all(&record)?;
            bytes += record.len();
        }
        fs::rename(&new, &self.path)?;
        (self.file, self.bytes) = (file, bytes);
        Ok(())
    }

    /// What a killed process left. A record that it didn't complete was not acknowledged either.
    pub(super) fn read(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let bytes = fs::read(path)?;
        let mut rest = &bytes[..];
        let mut records = Vec::new();
        while let Some((path, after)) = part(rest)
            && let Some((frame, after)) = part(after)
        {
            records.push((path.to_vec(), frame.to_vec()));
            rest = after;
        }
        Ok(records)
    }
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_records_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = Journal::create(&path).unwrap();
        journal.append(b"a", b"one").unwrap();
        journal.clear().unwrap();
        journal.append(b"b", b"two").unwrap();
        journal.append(b"", b"three").unwrap();
        let pair = |path: &[u8], frame: &[u8]| (path.to_vec(), frame.to_vec());
        assert_eq!(Journal::read(&path).unwrap(), [pair(b"b", b"two"), pair(b"", b"three")]);
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(Journal::read(&path).unwrap().len() < 2, "{length}");
        }
        fs::write(&path, &whole).unwrap();
        journal.rewrite([(&b"c"[..], &b"four"[..])].into_iter()).unwrap();
        journal.append(b"d", b"five").unwrap();
        assert_eq!(Journal::read(&path).unwrap(), [pair(b"c", b"four"), pair(b"d", b"five")]);
    }
}
