//! Rules about content: files that git on the host trusts are checked when they get their name and sealed, its object
//! store is append-only, and files with credentials are read masked and can't be moved.

use std::{os::fd::OwnedFd, sync::Arc};

use rustix::fs::OFlags;

use super::{
    ExportRefusal, ExportShared, FileKind,
    credentials::{MAX_SETTINGS, MAX_URL, MaskKind, mask_settings, mask_urls, masked},
    file::fill,
    filter::leads_to_secrets,
    git,
    git_guard::{TrustedGitFile, inside, is_stored, trusted_git_file},
    git_index, held,
    objects::{self, GitStoreFile},
    originals::OriginalsStore,
    path::{ExportPath, join},
    root::{PathHandle, attributes_of},
};

pub(super) const IN_PLACE: ExportRefusal = ExportRefusal::Denied(
    "git on the host trusts this file; write a .lock file and rename it over this one, as git does",
);
const STORED: ExportRefusal = ExportRefusal::Denied("the repository's object store is append-only");
const CREDENTIALS: ExportRefusal = ExportRefusal::Denied(
    "it contains credentials that are not shared; it can be read with them masked, but neither changed nor removed",
);
const CREDENTIAL_LINK: ExportRefusal = ExportRefusal::Denied(
    "programs on the host keep credentials under this name, so it can't be a link or have another name",
);
const PARTIAL: ExportRefusal = ExportRefusal::Denied(
    "the index would change what git knows of files that are hidden, or shown with their credentials masked; add the other \
     files by name",
);
const TOO_LARGE: ExportRefusal = ExportRefusal::Denied("it is too large to mask its credentials");

// === impl ExportShared ===

impl ExportShared {
    /// Whether a file with this name is read with its credentials masked.
    pub(super) fn masked(&self, path: &[u8]) -> Option<MaskKind> {
        masked(path, |folder| self.is_taken_for_one(folder))
    }

    /// Whether an existing file can be changed in place.
    pub(super) fn admit_in_place(
        &self,
        keeper: &OriginalsStore,
        place: &ExportPath,
        found: &PathHandle,
    ) -> Result<(), ExportRefusal> {
        if trusted_git_file(place.whole()).is_some() {
            return Err(IN_PLACE);
        }
        self.admit_stored(keeper, place.whole())?;
        if self.masked(place.whole()) == Some(MaskKind::Settings) && holds_credentials(found)? {
            return Err(CREDENTIALS);
        }
        self.admit_write(found.attributes.inode)
    }

    /// Whether bytes can be written to a file: not once git on the host trusts it.
    pub(super) fn admit_write(&self, inode: u64) -> Result<(), ExportRefusal> {
        if held(&self.looked_at).contains(&inode) {
            return Err(IN_PLACE);
        }
        let mut sealed = held(&self.sealed);
        let Some(path) = sealed.get(&inode) else { return Ok(()) };
        let is_still = self.root.find_optional(path)?.is_some_and(|found| found.attributes.inode == inode);
        if is_still {
            return Err(IN_PLACE);
        }
        sealed.remove(&inode);
        Ok(())
    }

    /// Whether a file can get another name.
    pub(super) fn admit_name(
        &self,
        keeper: &OriginalsStore,
        from: &ExportPath,
        to: &ExportPath,
        found: &PathHandle,
    ) -> Result<(), ExportRefusal> {
        if found.attributes.kind == FileKind::Link {
            self.admit_link_name(to.whole())?;
        }
        if found.attributes.kind != FileKind::File {
            return if trusted_git_file(to.whole()).is_some() { Err(IN_PLACE) } else { Ok(()) };
        }
        self.admit_unmasked(from.whole(), to.whole(), found)?;
        if self.masked(to.whole()) == Some(MaskKind::Settings)
            && let Some(there) = self.root.find_optional(to.whole())?
            && there.attributes.kind == FileKind::File
            && holds_credentials(&there)?
        {
            return Err(CREDENTIALS);
        }
        let Some(kind) = trusted_git_file(to.whole()) else { return Ok(()) };
        self.hold_still(found.attributes.inode);
        if let TrustedGitFile::Stored(stored) = kind {
            self.check_stored(keeper, stored, to, found)?;
            held(&self.sealed).insert(found.attributes.inode, to.whole().to_vec());
            return Ok(());
        }
        let old = self.root.find_optional(to.whole())?.filter(|old| old.attributes.kind == FileKind::File);
        let was_there = old.is_some();
        let new = content(found, git::longest(kind))?.ok_or(IN_PLACE)?;
        let old = old.map(|old| content(&old, git::longest(kind))).transpose()?.flatten();
        git::check(kind, &new, old.as_deref(), self.id_length(to.whole()))?;
        if kind == TrustedGitFile::Index {
            if was_there && old.is_none() {
                return Err(PARTIAL);
            }
            self.admit_index(to.whole(), &new, old.as_deref())?;
        }
        held(&self.sealed).insert(found.attributes.inode, to.whole().to_vec());
        Ok(())
    }

    /// Whether a path can be a link, or have a second name: not where a program of the host would write credentials, because
    /// they could be read under the other name.
    pub(super) fn admit_link_name(&self, path: &[u8]) -> Result<(), ExportRefusal> {
        match self.masked(path) == Some(MaskKind::Settings) || leads_to_secrets(path) {
            true => Err(CREDENTIAL_LINK),
            false => Ok(()),
        }
    }

    /// Whether a file can be removed: what the remote would put in its place has asterisks where this has credentials.
    pub(super) fn admit_loss(&self, path: &[u8]) -> Result<(), ExportRefusal> {
        if self.masked(path) != Some(MaskKind::Settings) {
            return Ok(());
        }
        match self.root.find_optional(path)?.filter(|there| there.attributes.kind == FileKind::File) {
            Some(there) if holds_credentials(&there)? => Err(CREDENTIALS),
            _ => Ok(()),
        }
    }

    /// Whether a remote can replace an index: what it says of files that the remote can't see as they are has to stay. Git
    /// on the host would take a file with credentials for committed, and replace it with its masked form; and one that
    /// isn't shown would be removed with the next commit.
    fn admit_index(&self, path: &[u8], new: &[u8], old: Option<&[u8]>) -> Result<(), ExportRefusal> {
        let top = working_tree_of(path);
        let id = self.id_length(path);
        let is_partial = |below: &[u8]| {
            let whole = top.as_ref().map_or_else(|| below.to_owned(), |top| join(top, below));
            self.masked(&whole) == Some(MaskKind::Settings) || !self.filter.shows(&whole, false)
        };
        let new = git_index::index_entries(new, id, is_partial)?;
        let old = old.and_then(|old| git_index::index_entries(old, id, is_partial).ok()).unwrap_or_default();
        for (below, _) in new.symmetric_difference(&old) {
            // Where the files of another working tree or of a submodule are isn't certain, so their names decide.
            let Some(top) = &top else { return Err(PARTIAL) };
            let whole = join(top, below);
            let there = self.root.find_optional(&whole).ok().flatten();
            let has_credentials = || match there.filter(|there| there.attributes.kind == FileKind::File) {
                Some(there) => holds_credentials(&there),
                None => Ok(false),
            };
            if !self.filter.shows(&whole, false) || has_credentials()? {
                return Err(PARTIAL);
            }
        }
        Ok(())
    }

    /// Whether a file can be read under another path: not if its credentials wouldn't be masked there.
    pub(super) fn admit_unmasked(&self, from: &[u8], to: &[u8], found: &PathHandle) -> Result<(), ExportRefusal> {
        match self.masked(from) {
            Some(kind) if self.masked(to) != Some(kind) && holds_credentials(found)? => Err(CREDENTIALS),
            _ => Ok(()),
        }
    }

    /// From now until the change is done, nothing can write to this file. A write in progress finishes first.
    fn hold_still(&self, inode: u64) {
        held(&self.looked_at).insert(inode);
        let seen = held(&self.writing).get(&inode).map(|writing| Arc::clone(&writing.seen));
        if let Some(seen) = seen {
            drop(held(&seen));
        }
    }

    /// Whether a file's content matches its name in an object store.
    fn check_stored(
        &self,
        keeper: &OriginalsStore,
        stored: GitStoreFile,
        to: &ExportPath,
        found: &PathHandle,
    ) -> Result<(), ExportRefusal> {
        let go_on = || self.check_live();
        let beside = |extension: &[u8]| {
            let stem = to.whole().iter().rposition(|&byte| byte == b'.').unwrap_or(to.whole().len());
            self.root.find_optional(&[&to.whole()[..stem], extension].concat())
        };
        match stored {
            GitStoreFile::Object => {
                let (_, names) = inside(to.whole()).unwrap_or_default();
                objects::check_object(found, &names, &go_on)
            }
            GitStoreFile::LargeFile => objects::check_large_file(found, to.name(), &go_on),
            GitStoreFile::Pack => objects::check_pack(beside(b".idx")?.is_some()),
            GitStoreFile::PackIndex => {
                let (pack, id) = (beside(b".pack")?, self.id_length(to.whole()));
                objects::check_index(found, to.name(), pack.as_ref(), id, keeper.scratch(), &go_on)
            }
        }
    }

    /// What the host has in the repository's store can't be changed. What the lease added can.
    pub(super) fn admit_stored(&self, keeper: &OriginalsStore, path: &[u8]) -> Result<(), ExportRefusal> {
        if !is_stored(path)
            || keeper.is_new(path)
            || self.root.find_optional(path)?.is_none_or(|found| found.attributes.is_folder())
        {
            return Ok(());
        }
        Err(STORED)
    }

    /// The length in bytes of an object id in this repository.
    fn id_length(&self, path: &[u8]) -> usize {
        let config = inside(path).and_then(|(git, _)| self.root.find_optional(&join(git, b"config")).ok().flatten());
        let text = config.and_then(|config| content(&config, MAX_SETTINGS).ok().flatten()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).to_ascii_lowercase();
        let is_long = text.lines().any(|line| line.contains("objectformat") && line.contains("sha256"));
        if is_long { 32 } else { 20 }
    }
}

/// The folder whose files an index lists, if that is where the `.git` is.
fn working_tree_of(index: &[u8]) -> Option<Vec<u8>> {
    let (git, names) = inside(index)?;
    let top = git.strip_suffix(b".git")?;
    (names.len() == 1).then(|| top.strip_suffix(b"/").unwrap_or(top).to_vec())
}

/// The complete content of a file. `None` if it is longer than `longest`.
fn content(found: &PathHandle, longest: u64) -> Result<Option<Vec<u8>>, ExportRefusal> {
    let fd = found.reopen(OFlags::RDONLY)?;
    let size = attributes_of(&fd)?.size;
    if size > longest {
        return Ok(None);
    }
    // One more byte, to notice a file that grows meanwhile.
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX).saturating_add(1)];
    let filled = fill(&fd, 0, &mut bytes)?;
    bytes.truncate(filled);
    Ok((filled as u64 <= size).then_some(bytes))
}

/// Whether a log can be changed elsewhere than at its end, where git appends to it. Without the beginning or the end of a URL,
/// the credentials in it would no longer be recognised.
pub(super) fn admit_inside_log(kind: Option<MaskKind>, found: &PathHandle) -> Result<(), ExportRefusal> {
    if kind == Some(MaskKind::Log) && holds_credentials(found)? { Err(CREDENTIALS) } else { Ok(()) }
}

/// Whether an open file can be written to after the host changed it.
pub(super) fn admit_changed(kind: Option<MaskKind>, found: &PathHandle) -> Result<(), ExportRefusal> {
    if kind == Some(MaskKind::Settings) && holds_credentials(found)? { Err(CREDENTIALS) } else { Ok(()) }
}

fn holds_credentials(found: &PathHandle) -> Result<bool, ExportRefusal> {
    // A file too large to check may contain some.
    Ok(content(found, MAX_SETTINGS)?.is_none_or(|mut text| mask_settings(&mut text)))
}

/// Reads part of a file with its credentials masked.
pub(super) fn read_masked(
    fd: &OwnedFd,
    kind: MaskKind,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize, ExportRefusal> {
    let size = attributes_of(fd)?.size;
    if offset >= size {
        return Ok(0);
    }
    let (start, end) = match kind {
        MaskKind::Settings if size > MAX_SETTINGS => return Err(TOO_LARGE),
        MaskKind::Settings => (0, size),
        MaskKind::Log => {
            let wanted = offset.saturating_add((buffer.len() + MAX_URL) as u64);
            (offset.saturating_sub(MAX_URL as u64), size.min(wanted))
        }
    };
    let length = |bytes: u64| usize::try_from(bytes).map_err(|_| ExportRefusal::Invalid);
    let mut text = vec![0; length(end - start)?];
    let filled = fill(fd, start, &mut text)?;
    text.truncate(filled);
    match kind {
        MaskKind::Settings => mask_settings(&mut text),
        MaskKind::Log => mask_urls(&mut text),
    };
    let shown = text.get(length(offset - start)?..).unwrap_or_default();
    let read = shown.len().min(buffer.len());
    buffer[..read].copy_from_slice(&shown[..read]);
    Ok(read)
}
