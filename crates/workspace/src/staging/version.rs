//! Reads the versions of a path that are compared: before the remote changed it, in the copy, and in the folder.

use std::{
    fs::File,
    io::{self, Read as _},
};

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN, digest};
use rustix::fs::OFlags;

use super::rules::{ContentDigest, PathVersion};
use crate::{
    export::{
        ExportRefusal, FileKind, LeaseRecord, PathBefore, from_shown, index_content, is_index,
        root::{ExportRoot, PathHandle},
    },
    report::open_original,
};

/// setuid, setgid and sticky bits are never applied.
const MODE: u32 = 0o777;
/// A larger index of git is compared byte by byte.
const MAX_INDEX: u64 = 256 << 20;

pub(super) fn before(record: &LeaseRecord, path: &[u8], was: &PathBefore) -> Result<PathVersion, ExportRefusal> {
    Ok(match was {
        PathBefore::Absent => PathVersion::Absent,
        PathBefore::Folder { mode, .. } => PathVersion::Folder { mode: mode & MODE },
        PathBefore::Link { target, .. } => PathVersion::Link(from_shown(target)),
        PathBefore::File(file) => PathVersion::File {
            content: content(path, open_original(record, file)?, file.size)?,
            mode: file.mode & MODE,
        },
    })
}

pub(super) fn now(path: &[u8], found: Option<&PathHandle>) -> Result<PathVersion, ExportRefusal> {
    let Some(found) = found else { return Ok(PathVersion::Absent) };
    let mode = found.attributes.mode & MODE;
    Ok(match found.attributes.kind {
        FileKind::Folder => PathVersion::Folder { mode },
        FileKind::Link => PathVersion::Link(found.target()?),
        FileKind::Special => PathVersion::Special,
        FileKind::File => {
            let file = File::from(found.reopen(OFlags::RDONLY)?);
            PathVersion::File { content: content(path, file, found.attributes.size)?, mode }
        }
    })
}

/// The bytes of a file, if there aren't more than this.
pub(super) fn text(root: &ExportRoot, path: &[u8], longest: u64) -> Result<Option<Vec<u8>>, ExportRefusal> {
    let file = File::from(root.find(path)?.reopen(OFlags::RDONLY)?);
    Ok(read(file, longest)?)
}

pub(super) fn read(file: File, longest: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(longest + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= longest).then_some(bytes))
}

/// Git rewrites its index for a mere `git status`, so only what the index says about files counts.
fn content(path: &[u8], mut file: File, size: u64) -> Result<ContentDigest, ExportRefusal> {
    if is_index(path) && size <= MAX_INDEX {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let entries = index_content(&bytes);
        return Ok(finished(digest(&SHA256, entries.as_deref().unwrap_or(&bytes)).as_ref()));
    }
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(finished(context.finish().as_ref())),
            read => context.update(&buffer[..read]),
        }
    }
}

fn finished(digest: &[u8]) -> ContentDigest {
    let mut content = [0; SHA256_OUTPUT_LEN];
    content.copy_from_slice(digest);
    content
}
