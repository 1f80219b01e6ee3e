//! The complete output of a process, byte for byte: in memory while it is short, otherwise in a file of the run.

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use attache_protocol::wire::adapter::{FileRef, FullOutput};

/// How much is kept in memory.
const MAX_IN_MEMORY: usize = 1024 * 1024;

/// How much is kept at all. No answer should be longer, and disk space is finite.
const MAX_SPOOL: u64 = 4 << 30;

#[derive(Debug)]
pub(crate) struct OutputSpool {
    path: PathBuf,
    head: Vec<u8>,
    file: Option<File>,
    total: u64,
    write_error: Option<String>,
}

/// Whether the bytes are text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentKind {
    Text,
    Binary,
}

// === impl OutputSpool ===

impl OutputSpool {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, head: Vec::new(), file: None, total: 0, write_error: None }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if self.write_error.is_some() {
            return;
        }
        if self.file.is_none() && self.head.len() + bytes.len() <= MAX_IN_MEMORY {
            return self.head.extend_from_slice(bytes);
        }
        if self.total > MAX_SPOOL {
            self.write_error = Some(format!("only the first {MAX_SPOOL} bytes are kept"));
        } else if let Err(error) = self.write(bytes) {
            self.write_error = Some(format!("the device couldn't store it: {error}"));
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let mut options = File::options();
                let mut file = options.write(true).create_new(true).mode(0o600).open(&self.path)?;
                file.write_all(&self.head)?;
                self.head = Vec::new();
                self.file.insert(file)
            }
        };
        file.write_all(bytes)
    }

    /// The note for a text that is incomplete, and the file to hand over. `None` if the text is complete.
    pub(crate) fn beside(mut self, text: &str, content: ContentKind) -> Option<(FullOutput, Option<FileRef>)> {
        if self.total == text.len() as u64 && self.file.is_none() && self.head == text.as_bytes() {
            return None;
        }
        if self.write_error.is_none()
            && self.file.is_none()
            && let Err(error) = self.write(&[])
        {
            self.write_error = Some(format!("the device couldn't store it: {error}"));
        }
        let bytes = self.total;
        if let Some(lost) = self.write_error {
            return Some((FullOutput { bytes, artifact_index: None, lost: Some(lost) }, None));
        }
        let (name, media_type) = match content {
            ContentKind::Text => ("output.txt", "text/plain; charset=utf-8"),
            ContentKind::Binary => ("output.bin", "application/octet-stream"),
        };
        let (name, media_type) = (Some(name.to_owned()), Some(media_type.to_owned()));
        let file = FileRef { path: self.path.display().to_string(), name, media_type };
        Some((FullOutput { bytes, artifact_index: Some(0), lost: None }, Some(file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_beyond_the_text_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let spool = |name: &str, pieces: &[&[u8]]| {
            let mut spool = OutputSpool::new(folder.path().join(name));
            pieces.iter().for_each(|piece| spool.push(piece));
            spool
        };
        assert_eq!(spool("a", &[b"one", b" two"]).beside("one two", ContentKind::Text), None);

        let (full, file) = spool("b", &[b"\xff\x00"]).beside("\u{fffd}\0", ContentKind::Binary).unwrap();
        assert_eq!(full, FullOutput { bytes: 2, artifact_index: Some(0), lost: None });
        assert_eq!(std::fs::read(file.unwrap().path).unwrap(), b"\xff\x00");

        let long = vec![b'x'; 700 * 1024];
        let (full, file) = spool("c", &[&long, &long]).beside("x", ContentKind::Text).unwrap();
        assert_eq!(full.bytes, 1_433_600);
        assert_eq!(std::fs::read(file.unwrap().path).unwrap(), [&long[..], &long].concat());

        let (full, file) = spool("none/d", &[&long, &long]).beside("x", ContentKind::Text).unwrap();
        assert!(full.lost.unwrap().contains("couldn't store it") && file.is_none());
    }
}
