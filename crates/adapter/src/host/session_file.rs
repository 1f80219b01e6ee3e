//! Reads the files in which hosts keep their sessions: JSON lines, which can be huge, cut off, or garbage. Only the
//! beginning and the end of a file is read, and no link is followed.

use std::{
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use attache_os::small_file;
use attache_protocol::{Timestamp, wire::host_session::MAX_TITLE};
use serde::de::DeserializeOwned;

/// How much of a file's beginning is read: the first task follows what the host tells its model about itself.
const MAX_HEAD: u64 = 512 << 10;
/// How much of its end, where hosts write a session's name.
const MAX_TAIL: u64 = 64 << 10;
/// How many entries of a folder are looked at.
const MAX_ENTRIES: usize = 5000;

/// A session in a host's own files, as people choose it from a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHostSession {
    pub id: String,
    /// Its name, or the beginning of its first task.
    pub title: String,
    pub updated_at: Timestamp,
}

/// One file with the lines of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionFile {
    pub(crate) path: PathBuf,
    pub(crate) modified: Timestamp,
}

/// The beginning and the end of a file, which overlap if it is short.
#[derive(Debug, Default)]
pub(crate) struct SessionLines {
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// Which of the sessions of a folder are looked for.
#[derive(Debug, Clone, Copy)]
pub enum SessionChoice<'a> {
    /// This many of those that changed last.
    Newest(usize),
    Only(&'a str),
}

/// The subfolders with their names, no links among them.
pub(crate) fn folders(folder: &Path) -> Vec<(String, PathBuf)> {
    entries(folder).filter(|(_, _, found)| found.is_dir()).map(|(name, path, _)| (name, path)).collect()
}

/// The regular files with this ending.
pub(crate) fn files(folder: &Path, ending: &str) -> Vec<SessionFile> {
    let found = entries(folder).filter(|(name, _, found)| found.is_file() && name.ends_with(ending));
    let file = |(_, path, found): (String, PathBuf, fs::Metadata)| {
        let modified = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(SessionFile { path, modified: Timestamp::from_millis(i64::try_from(modified.as_millis()).ok()?) })
    };
    found.filter_map(file).collect()
}

fn entries(folder: &Path) -> impl Iterator<Item = (String, PathBuf, fs::Metadata)> {
    let is_link = fs::symlink_metadata(folder).is_ok_and(|found| found.is_symlink());
    let listed = fs::read_dir(folder).ok().filter(|_| !is_link);
    listed.into_iter().flatten().take(MAX_ENTRIES).filter_map(|entry| {
        let entry = entry.ok()?;
        // Doesn't follow links.
        let found = entry.metadata().ok()?;
        Some((entry.file_name().into_string().ok()?, entry.path(), found))
    })
}

/// The first line with text, as a title: without control characters, and cut to length.
pub(crate) fn title(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let words = line.split(|letter: char| letter.is_whitespace() || letter.is_control());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let cut = match line.char_indices().nth(MAX_TITLE) {
        Some(_) => line.chars().take(MAX_TITLE - 1).chain(['…']).collect(),
        None => line,
    };
    (!cut.is_empty()).then_some(cut)
}

/// Whether the session worked in this folder, which is named without links.
pub(crate) fn is_in(folder: &Path, stated: &str) -> bool {
    let stated = Path::new(stated);
    stated == folder || stated.canonicalize().is_ok_and(|real| real == folder)
}

// === impl SessionChoice ===

impl SessionChoice<'_> {
    /// Whether a file whose name ends with a session's id can be of one of them.
    pub(crate) fn includes(self, file: &SessionFile) -> bool {
        match self {
            Self::Newest(_) => true,
            Self::Only(id) => file.stem().ends_with(id),
        }
    }

    pub(crate) const fn most(self) -> usize {
        match self {
            Self::Newest(most) => most,
            Self::Only(_) => 1,
        }
    }
}

// === impl SessionFile ===

impl SessionFile {
    /// The name without its ending.
    pub(crate) fn stem(&self) -> &str {
        self.path.file_stem().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Empty if it can't be read.
    pub(crate) fn lines(&self) -> SessionLines {
        let mut lines = SessionLines::default();
        let Ok(mut file) = small_file::open(&self.path, u64::MAX) else { return lines };
        if (&mut file).take(MAX_HEAD).read_to_end(&mut lines.head).is_err() {
            return SessionLines::default();
        }
        let length = file.metadata().map_or(0, |found| found.len());
        if file.seek(SeekFrom::Start(length.saturating_sub(MAX_TAIL))).is_ok() {
            let _partly = file.take(MAX_TAIL).read_to_end(&mut lines.tail);
        }
        lines
    }
}

// === impl SessionLines ===

impl SessionLines {
    /// The lines that are of this type, from the beginning.
    pub(crate) fn first<T: DeserializeOwned>(&self) -> impl Iterator<Item = T> {
        self.head.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
    }

    /// The same from the end.
    pub(crate) fn last<T: DeserializeOwned>(&self) -> impl Iterator<Item = T> {
        self.tail.rsplit(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line() {
        assert_eq!(title("\n  fix\tthe \u{1b}[31mtests\u{7} \nnow").as_deref(), Some("fix the [31mtests"));
        assert_eq!(title(" \n\u{1}\n"), None);
        let long = title(&"é".repeat(400)).unwrap();
        assert_eq!((long.chars().count(), long.ends_with('…')), (MAX_TITLE, true));
    }

    #[test]
    fn links_pipes_and_other_files_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.jsonl"), "{}").unwrap();
        fs::write(at("b.txt"), "{}").unwrap();
        fs::create_dir(at("c.jsonl")).unwrap();
        std::os::unix::fs::symlink(at("a.jsonl"), at("d.jsonl")).unwrap();
        std::os::unix::fs::symlink(folder.path(), at("e")).unwrap();
        let names: Vec<PathBuf> = files(folder.path(), ".jsonl").into_iter().map(|file| file.path).collect();
        assert_eq!(names, [at("a.jsonl")]);
        assert_eq!(folders(folder.path()), [("c.jsonl".to_owned(), at("c.jsonl"))]);
        assert_eq!(files(&at("e"), ".jsonl"), []);
        let link = SessionFile { path: at("d.jsonl"), modified: Timestamp::from_millis(0) };
        assert_eq!(link.lines().first::<serde_json::Value>().count(), 0);
    }

    #[test]
    fn of_a_huge_file_only_the_ends_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge.jsonl");
        let mut file = fs::File::create(&path).unwrap();
        std::io::Write::write_all(&mut file, b"1\ngarbage\n2\n").unwrap();
        file.set_len(1 << 40).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        std::io::Write::write_all(&mut file, b"\n3\n{\"cut").unwrap();
        let lines = SessionFile { path, modified: Timestamp::from_millis(0) }.lines();
        assert_eq!(lines.first::<u8>().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(lines.last::<u8>().collect::<Vec<_>>(), [3]);
    }
}
