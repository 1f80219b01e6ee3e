//! Packs a folder, and unpacks an archive into an empty one.

use std::{
    collections::BTreeSet,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use rustix::io::Errno;

use super::{
    ArchiveError, ArchiveLimits, IsCancelled, SentFiles, check_cancelled, hash,
    zip_reader::{ZipArchive, check_path},
    zip_writer::ZipWriter,
};
use crate::{
    export::{FileKind, FileTime, show},
    sync::local_tree::{LocalTree, StagedFile},
};

/// A folder as an archive.
#[derive(Debug, Default)]
pub struct PackedFolder {
    pub archive: Vec<u8>,
    /// The hashes of the files in it.
    pub files: SentFiles,
    /// What the archive has no place for: links, special files, and names that programs understand differently.
    pub left_out: Vec<String>,
}

/// The names that an archive has for the files of a folder start so, `name/`.
pub(super) fn prefix(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("{name}/") }
}

/// Packs a folder under this name, or its contents if the name is empty. Follows no link. Blocking.
pub fn pack(
    folder: &Path,
    name: &str,
    limits: ArchiveLimits,
    is_cancelled: IsCancelled<'_>,
) -> Result<PackedFolder, ArchiveError> {
    let prefix = prefix(name);
    let tree = LocalTree::open(folder, folder.to_owned(), None)?;
    let scan = tree.scan()?;
    if let Some(unreadable) = scan.unreadable.first() {
        return Err(io::Error::other(format!("{} can't be read", show(unreadable))).into());
    }
    let (mut packed, mut writer) = (PackedFolder::default(), ZipWriter::new(limits));
    if !name.is_empty() {
        writer.folder(name)?;
    }
    for (path, attributes) in &scan.entries {
        check_cancelled(is_cancelled)?;
        let is_sound = |text: &&str| check_path(&format!("{prefix}{text}")).is_ok();
        let Some(text) = std::str::from_utf8(path).ok().filter(is_sound) else {
            packed.left_out.push(show(path));
            continue;
        };
        match attributes.kind {
            FileKind::Folder => writer.folder(&format!("{prefix}{text}"))?,
            FileKind::File => {
                if attributes.size > limits.file {
                    return Err(ArchiveError::FolderTooLarge { what: "bytes in one file", most: limits.file });
                }
                let content = read_file(&tree, path, limits)?;
                packed.files.insert(text.to_owned(), hash(&content));
                writer.file(&format!("{prefix}{text}"), &content, attributes.mode)?;
            }
            FileKind::Link | FileKind::Special => packed.left_out.push(show(path)),
        }
    }
    packed.archive = writer.finish();
    Ok(packed)
}

/// A file that grows meanwhile is not read further than it may.
pub(super) fn read_file(tree: &LocalTree, path: &[u8], limits: ArchiveLimits) -> Result<Vec<u8>, ArchiveError> {
    let mut content = Vec::new();
    let file = tree.open_file(path).map_err(io::Error::from)?;
    file.take(limits.file + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limits.file {
        return Err(ArchiveError::FolderTooLarge { what: "bytes in one file", most: limits.file });
    }
    Ok(content)
}

/// Unpacks these top-level folders of an archive into an empty folder, and ignores the rest of it. `staging` is an empty folder
/// on the same file system. Blocking.
pub fn unpack(
    archive: &ZipArchive<'_>,
    folder: &Path,
    names: &BTreeSet<String>,
    staging: &Path,
    is_cancelled: IsCancelled<'_>,
) -> Result<(), ArchiveError> {
    let mut tree = LocalTree::open(folder, staging.to_owned(), None)?;
    let failed = |errno: Errno| ArchiveError::Io(errno.into());
    for name in names {
        check_path(name).map_err(|reason| ArchiveError::Entry { name: name.clone(), reason })?;
        if !name.contains('/') {
            tree.make_dir(name.as_bytes(), 0o755).map_err(failed)?;
        }
    }
    for (path, entry) in &archive.entries {
        let top = path.split('/').next().unwrap_or_default();
        if !names.contains(top) {
            continue;
        }
        check_cancelled(is_cancelled)?;
        if entry.is_folder {
            make_dirs(&tree, path).map_err(failed)?;
            continue;
        }
        if path == top {
            return Err(ArchiveError::Entry { name: path.clone(), reason: "is a file in place of a folder" });
        }
        let staged = tree.stage_data(&archive.content(path)?)?;
        if let Some((above, _)) = path.rsplit_once('/') {
            make_dirs(&tree, above).map_err(failed)?;
        }
        tree.put(path.as_bytes(), &staged, (mode(entry.is_executable), written_at(&staged)?), None)?;
    }
    Ok(())
}

pub(super) fn make_dirs(tree: &LocalTree, path: &str) -> Result<(), Errno> {
    let above = path.match_indices('/').map(|(at, _)| &path[..at]);
    above.chain([path]).try_for_each(|folder| tree.make_dir(folder.as_bytes(), 0o755))
}

/// Of a new file.
pub(super) const fn mode(is_executable: bool) -> u32 {
    if is_executable { 0o755 } else { 0o644 }
}

/// A file that is unpacked was changed when it was written.
pub(super) fn written_at(staged: &StagedFile) -> io::Result<FileTime> {
    let written = staged.file.metadata()?;
    Ok(FileTime { seconds: written.mtime(), nanos: u32::try_from(written.mtime_nsec()).unwrap_or(0) })
}
