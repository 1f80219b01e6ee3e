//! Sends the tree and small files before anyone asks: folder by folder in the order of a walk, then contents in the same
//! order, each within a budget. What is left out is sent when it is asked for.

use std::collections::VecDeque;

use super::{
    host::{FsHost, join},
    outbox::FsUrgency,
};
use crate::{
    export::{ExportRefusal, FileKind, FileOpenOptions},
    fs_wire::{FsAttributes, FsEvent, Stamp},
};

/// How much is sent ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct PushBudget {
    pub(super) bytes: u64,
    /// Larger files are sent when they are read.
    pub(super) file: u64,
}

/// Beyond this many entries, folders are listed on demand.
const MAX_PUSHED_ENTRIES: usize = 1_000_000;
/// The maximum number of files whose contents are sent ahead; their paths are kept until then.
const MAX_PUSHED_FILES: usize = 50_000;
pub(super) const READ: FileOpenOptions = FileOpenOptions {
    read: true,
    write: false,
    append: false,
    truncate: false,
    create: crate::export::CreateMode::Never,
    mode: None,
};

/// Runs to the end of the tree, the budget or the channel.
pub(super) fn push_tree(host: &FsHost, budget: PushBudget) {
    let files = push_folders(host, budget);
    host.outbox.push(FsEvent::TreeComplete.write(), FsUrgency::Tree);
    let mut left = budget.bytes;
    for (path, size) in files {
        if host.has_ended() || left == 0 {
            return;
        }
        if size > left {
            continue;
        }
        let (stamp, attributes, data) = match read_whole(host, &path, budget.file) {
            Ok(Some(read)) => read,
            Ok(None) | Err(ExportRefusal::NotFound | ExportRefusal::Denied(_)) => continue,
            // A limit of the lease, or its end: what is asked for has precedence.
            Err(_) => return,
        };
        left = left.saturating_sub(data.len() as u64);
        if !host.outbox.push_content(FsEvent::Content { path, stamp, attributes, data }.write()) {
            return;
        }
    }
}

/// Lists the folders. Returns the small files in them with their sizes, in the order of a walk.
fn push_folders(host: &FsHost, budget: PushBudget) -> Vec<(Vec<u8>, u64)> {
    let mut folders = VecDeque::from([Vec::new()]);
    let mut files = Vec::new();
    let mut entries = 0_usize;
    while let Some(folder) = folders.pop_front() {
        if host.has_ended() || entries > MAX_PUSHED_ENTRIES {
            break;
        }
        let listed = host.list(0, &folder, FsUrgency::Tree, |name, attributes| {
            entries += 1;
            let is_pushed = (1..=budget.file.min(budget.bytes)).contains(&attributes.size);
            match attributes.kind {
                FileKind::Folder => folders.push_back(join(&folder, name)),
                FileKind::File if is_pushed && files.len() < MAX_PUSHED_FILES => {
                    let path = join(&folder, name);
                    if !is_object(&path) {
                        files.push((path, attributes.size));
                    }
                }
                FileKind::File | FileKind::Link | FileKind::Special => {}
            }
        });
        match listed {
            Ok(()) | Err(ExportRefusal::NotFound | ExportRefusal::NotADirectory | ExportRefusal::Denied(_)) => {}
            Err(_) => break,
        }
    }
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    files
}

/// Git reads few of its objects, and there are many.
fn is_object(path: &[u8]) -> bool {
    path.starts_with(b".git/objects/") || path.windows(14).any(|window| window == b"/.git/objects/")
}

/// The complete content of a file, and the attributes that belong to it. `None` if it is too large, or changes while it
/// is read.
pub(super) fn read_whole(
    host: &FsHost,
    path: &[u8],
    most: u64,
) -> Result<Option<(Stamp, FsAttributes, Vec<u8>)>, ExportRefusal> {
    const ATTEMPTS: usize = 3;
    let file = host.export.open_file(path, &READ)?;
    for _ in 0..ATTEMPTS {
        let stamp = host.stamp();
        let before = file.attributes()?;
        if before.size > most {
            return Ok(None);
        }
        // One more byte, to notice a file that grows.
        let mut data = vec![0; usize::try_from(before.size).unwrap_or(usize::MAX).saturating_add(1)];
        let filled = file.read_at(0, &mut data)?;
        data.truncate(filled);
        let (before, after) = (host.describe(&before), host.describe(&file.attributes()?));
        if filled as u64 == before.size && before.is_same_content(&after) {
            return Ok(Some((stamp, after, data)));
        }
    }
    Ok(None)
}
