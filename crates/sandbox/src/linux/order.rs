//! The instructions for the second stage, as arguments of its command line. The names of files need not be UTF-8, and an argument has a maximum
//! length that those of many paths exceed. So a head in JSON says how long each path is, and their bytes follow, in as many
//! arguments as it takes.

use std::{
    ffi::OsString,
    io,
    num::NonZeroU32,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{FileOverlay, FileView, Mechanism, NetworkAccess, Walls};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StageInstructions {
    pub(super) walls: Walls,
    /// It has its own view of files, processes and network already.
    pub(super) is_in_namespaces: bool,
    /// Which files and folders are inside, before the walls were built.
    pub(super) identity: u64,
}

/// The first argument. Paths are given by their lengths.
#[derive(Debug, Serialize, Deserialize)]
struct StageInstructionsHeader {
    is_in_namespaces: bool,
    identity: u64,
    cwd: usize,
    write: Vec<usize>,
    read: Vec<usize>,
    exact: Vec<usize>,
    overlays: Vec<[usize; 2]>,
    private: Vec<usize>,
    hide: Vec<usize>,
    fixed: Vec<usize>,
    files: FileView,
    network: NetworkAccess,
    ports: Vec<u16>,
    exec: bool,
    processes: Option<NonZeroU32>,
    terminal: bool,
    without: Vec<Mechanism>,
}

/// Half of what Linux accepts. bubblewrap limits how many words there are.
const MAX_WORD: usize = 64 * 1024;

/// Paths, one after the other.
#[derive(Default)]
struct PathWriter(Vec<u8>);

struct PathReader(std::vec::IntoIter<u8>);

// === impl StageInstructions ===

impl StageInstructions {
    pub(super) fn into_words(self) -> io::Result<Vec<OsString>> {
        let Self { walls, is_in_namespaces, identity } = self;
        let Walls { cwd, files, write, read, exact, overlays, private, hide, fixed, network, .. } = walls;
        let Walls { ports, exec, processes, terminal, without, .. } = walls;
        let mut paths = PathWriter::default();
        let head = StageInstructionsHeader {
            is_in_namespaces,
            identity,
            cwd: paths.add(&cwd),
            write: paths.add_all(&write),
            read: paths.add_all(&read),
            exact: paths.add_all(&exact),
            overlays: overlays.iter().map(|one| [paths.add(&one.file), paths.add(&one.shown_at)]).collect(),
            private: paths.add_all(&private),
            hide: paths.add_all(&hide),
            fixed: paths.add_all(&fixed),
            files,
            network,
            ports,
            exec,
            processes,
            terminal,
            without,
        };
        let mut words = vec![serde_json::to_string(&head)?.into()];
        words.extend(paths.0.chunks(MAX_WORD).map(|bytes| OsString::from_vec(bytes.to_vec())));
        Ok(words)
    }

    /// Takes as many words as the order has.
    pub(super) fn from_words(words: &mut impl Iterator<Item = OsString>) -> io::Result<Self> {
        let head = words.next().ok_or_else(incomplete)?;
        let head: StageInstructionsHeader = serde_json::from_slice(head.as_bytes())?;
        let lists = [&head.write, &head.read, &head.exact, &head.private, &head.hide, &head.fixed];
        let lengths = lists.into_iter().flatten().chain(head.overlays.iter().flatten()).chain([&head.cwd]);
        let length = lengths.copied().fold(0, usize::saturating_add);
        let bytes: Vec<u8> = words.take(length.div_ceil(MAX_WORD)).flat_map(OsString::into_vec).collect();
        if bytes.len() != length {
            return Err(incomplete());
        }
        let mut paths = PathReader(bytes.into_iter());
        let walls = Walls {
            cwd: paths.take(head.cwd),
            write: paths.take_all(&head.write),
            read: paths.take_all(&head.read),
            exact: paths.take_all(&head.exact),
            overlays: head
                .overlays
                .iter()
                .map(|[file, shown_at]| FileOverlay { file: paths.take(*file), shown_at: paths.take(*shown_at) })
                .collect(),
            private: paths.take_all(&head.private),
            hide: paths.take_all(&head.hide),
            fixed: paths.take_all(&head.fixed),
            files: head.files,
            network: head.network,
            ports: head.ports,
            exec: head.exec,
            processes: head.processes,
            terminal: head.terminal,
            without: head.without,
        };
        Ok(Self { walls, is_in_namespaces: head.is_in_namespaces, identity: head.identity })
    }
}

fn incomplete() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the sandbox configuration is incomplete")
}

// === impl PathWriter ===

impl PathWriter {
    fn add(&mut self, path: &Path) -> usize {
        let bytes = path.as_os_str().as_bytes();
        self.0.extend_from_slice(bytes);
        bytes.len()
    }

    fn add_all(&mut self, paths: &[PathBuf]) -> Vec<usize> {
        paths.iter().map(|path| self.add(path)).collect()
    }
}

// === impl PathReader ===

impl PathReader {
    fn take(&mut self, length: usize) -> PathBuf {
        OsString::from_vec(self.0.by_ref().take(length).collect()).into()
    }

    fn take_all(&mut self, lengths: &[usize]) -> Vec<PathBuf> {
        lengths.iter().map(|length| self.take(*length)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn path(bytes: &[u8]) -> PathBuf {
        OsStr::from_bytes(bytes).into()
    }

    #[test]
    fn every_path_arrives_byte_by_byte() {
        let long = path(&[b"/work/", &[0xff_u8; 200][..]].concat());
        let walls = Walls {
            cwd: path(b"/work/\xff"),
            files: FileView::Declared,
            write: vec![path(b"/tmp/a\nb"), path(b"")],
            read: vec![path(b"/opt/\xc3\xa9")],
            exact: vec![path(b"/opt/\xc3\xa9/own")],
            overlays: vec![FileOverlay { file: path(b"/srv/\xfe"), shown_at: path(b"/home/ann/\xfd") }],
            private: vec![path(b"/home/ann")],
            hide: vec![path(b"--")],
            // More than fits into one argument.
            fixed: vec![long; 2000],
            network: NetworkAccess::Proxy(7),
            ports: vec![80, 443],
            exec: false,
            processes: NonZeroU32::new(9),
            terminal: true,
            without: vec![Mechanism::Seccomp],
        };
        let order = StageInstructions { walls, is_in_namespaces: true, identity: u64::MAX };
        let words = order.clone().into_words().unwrap();
        assert!(words.iter().all(|word| word.len() <= MAX_WORD), "{:?}", words.iter().map(|word| word.len()));
        let mut rest = words.iter().cloned().chain(["--".into(), "sh".into()]);
        assert_eq!(StageInstructions::from_words(&mut rest).unwrap(), order);
        assert_eq!(rest.collect::<Vec<_>>(), ["--", "sh"]);
        let cut = StageInstructions::from_words(&mut words.into_iter().take(3)).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::InvalidInput);
    }
}
