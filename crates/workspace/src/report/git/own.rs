//! Which repository git uses in a folder, and whether that is the folder's own. Whoever can write to a folder can put a `.git`
//! there that leads to any other repository of this user, or one that says that its files are anywhere else.
//!
//! Git itself is asked, so that it can't find another repository than the one that was checked.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::{Component, Path, PathBuf},
    process::Command,
    time::Duration,
};

use attache_os::small_file;

use super::{Error, canonical, child::output_within, line, path, plain};
use crate::export::stays_inside;

/// What git says about a folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundRepository {
    /// The folder with the files. A bare repository has none.
    pub(super) top: Option<PathBuf>,
    /// `.git`, or where it leads.
    pub(super) git_dir: PathBuf,
    /// Where a linked working tree has its objects, refs and configuration.
    pub(super) common: PathBuf,
}

/// Git only reads a few small files to answer, unless one of them is a pipe.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// As long as git reads a file that only says where something is.
const MAX_POINTER: u64 = 1 << 20;
/// More than anybody's repository has besides its objects.
const MAX_ENTRIES: usize = 1_000_000;
/// Of millions of files.
const MAX_INDEX: u64 = 256 << 20;

/// What may be a link although git, or a program beside it, writes to it: people share these between repositories, and what is
/// written has names of its own.
const SHARED: [&str; 5] = ["hooks", "info", "rr-cache", "lfs", "annex"];
/// Files that git only reads, so people keep them elsewhere.
const READ_ONLY: [&str; 2] = ["attributes", "exclude"];
/// The folders in which no name is special.
const STORES: [&str; 3] = ["refs", "logs", "reftable"];
/// The socket of git's own daemon.
const DAEMON: &str = "fsmonitor--daemon.ipc";

/// The repository that git uses in its working directory. `None` if it uses none there.
pub(super) fn ask(git: &dyn Fn() -> Command) -> Result<Option<FoundRepository>, Error> {
    let folder = |what| answer(git, what)?.map(|said| canonical(&path(said))).transpose();
    let (git_dir, common) = (folder("--absolute-git-dir")?, folder("--git-common-dir")?);
    let top = folder("--show-toplevel")?;
    Ok(git_dir.zip(common).map(|(git_dir, common)| FoundRepository { top, git_dir, common }))
}

/// One at a time: a path may have any number of lines.
fn answer(git: &dyn Fn() -> Command, what: &str) -> Result<Option<Vec<u8>>, Error> {
    let mut git = git();
    git.args(["rev-parse", "--path-format=absolute", what]);
    let said = output_within(ANSWER_TIMEOUT, "rev-parse", &mut git, None)?;
    Ok(said.status.success().then(|| line(said.stdout)))
}

/// Fails unless the repository is the folder's own: it is in the `.git` of its working tree, or it is elsewhere and names the
/// working tree as its own. `git` makes a command that works in the given folder.
pub(super) fn check(dir: &Path, found: &FoundRepository, git: &dyn Fn(&Path) -> Command) -> Result<(), Error> {
    let FoundRepository { top, git_dir, common } = found;
    let is_own = match top {
        Some(top) => dir.starts_with(top) && is_of(top, found, git)?,
        None => git_dir == common && dir.ancestors().any(|folder| is_folder(&folder.join(".git"), git_dir)),
    };
    if !is_own {
        return Err(Error::Elsewhere(top.clone().unwrap_or_else(|| dir.to_owned())));
    }
    for folder in ["objects", "refs"].map(|name| common.join(name)) {
        if !folder.symlink_metadata().is_ok_and(|there| there.is_dir()) {
            return Err(Error::NotPlain(folder));
        }
    }
    Ok(())
}

fn is_of(top: &Path, found: &FoundRepository, git: &dyn Fn(&Path) -> Command) -> Result<bool, Error> {
    let FoundRepository { git_dir, common, .. } = found;
    let place = top.join(".git");
    if place.symlink_metadata().is_ok_and(|there| there.is_dir()) {
        return Ok(git_dir == common && is_folder(&place, git_dir));
    }
    // The settings can name any folder, also one from which git goes on to another repository.
    if !place.exists() || ask(&|| git(top))?.as_ref() != Some(found) {
        return Ok(false);
    }
    if git_dir != common {
        let is_linked = git_dir.parent() == Some(&common.join("worktrees"));
        return Ok(is_linked && place.is_file() && names_git_file(git_dir, &place)?);
    }
    // Asked about the repository alone, git says what its settings name, or that it has no other files than these.
    let alone = || {
        let mut git = git(git_dir);
        git.arg("--git-dir").arg(git_dir);
        git
    };
    Ok(ask(&alone)?.is_some_and(|alone| alone.top.as_deref() == Some(top)))
}

/// Not through a link.
fn is_folder(place: &Path, folder: &Path) -> bool {
    let is_folder = place.symlink_metadata().is_ok_and(|there| there.is_dir());
    is_folder && place.canonicalize().is_ok_and(|place| place == folder)
}

/// A linked working tree's folder in its repository says where its file `.git` is.
fn names_git_file(git_dir: &Path, place: &Path) -> Result<bool, Error> {
    let file = git_dir.join("gitdir");
    let named = match small_file::read_bytes(&file, MAX_POINTER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        named => named.map_err(|source| Error::File { path: file, source })?,
    };
    let end = named.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let named = git_dir.join(OsStr::from_bytes(&named[..end]));
    Ok(matches!((named.canonicalize(), place.canonicalize()), (Ok(named), Ok(place)) if named == place))
}

/// Fails if git, working in the repository of this folder, would read or write files of another repository, or anywhere else.
pub(super) fn check_for_work(dir: &Path, git: &dyn Fn(&Path) -> Command) -> Result<(), Error> {
    let Ok(dir) = dir.canonicalize() else { return Ok(()) };
    let Some(found) = ask(&|| git(&dir))? else {
        // It may be able to later, if what is missing is made elsewhere.
        let broken = dir.ancestors().map(|folder| folder.join(".git")).find(|place| is_promising(place));
        return broken.map_or(Ok(()), |place| Err(Error::Unusable(place)));
    };
    check(&dir, &found, git)?;
    plain::check_objects(&found.common)?;
    let id = match answer(&|| git(&dir), "--show-object-format")?.as_deref() {
        Some(b"sha256") => 32,
        _ => 20,
    };
    check_files(&found.common, id)?;
    if found.git_dir.starts_with(&found.common) { Ok(()) } else { check_files(&found.git_dir, id) }
}

/// Whether a `.git` is more than something that git passes over.
fn is_promising(place: &Path) -> bool {
    place.symlink_metadata().is_ok_and(|found| match found.is_dir() {
        true => fs::read_dir(place).is_ok_and(|mut entries| entries.next().is_some()),
        false => found.is_file() || found.is_symlink(),
    })
}

/// Git writes to what a link leads to and makes branches there, a pipe makes it wait for ever, and an index can name any file.
/// So there are only files and folders, but for what people share. Nothing is looked at that isn't git's, nor the objects
/// themselves: git compares their content with their names.
fn check_files(git_dir: &Path, id: usize) -> Result<(), Error> {
    let (mut folders, mut seen) = (vec![(git_dir.to_owned(), GitFolderKind::Repository)], 0);
    while let Some((folder, place)) = folders.pop() {
        for entry in entries(&folder)? {
            seen += 1;
            if seen > MAX_ENTRIES {
                return Err(Error::TooLarge(git_dir.to_owned()));
            }
            let (path, name) = (entry.path(), entry.file_name());
            match entry.file_type().map_err(|source| Error::File { path: path.clone(), source })? {
                kind if kind.is_file() => place.check_file(&path, &name, id)?,
                kind if kind.is_dir() => folders.extend(place.of_folder(&name).map(|below| (path, below))),
                kind if kind.is_symlink() && place.may_be_link(&path, &name) => {}
                kind if kind.is_socket() && name == DAEMON => {}
                _ => return Err(Error::NotPlain(path)),
            }
        }
    }
    Ok(())
}

/// What a folder below `.git` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GitFolderKind {
    /// A repository, or a folder around or beside those of its parts.
    Repository,
    Info,
    Objects,
    /// The refs or logs.
    Store,
}

impl GitFolderKind {
    /// `None` if nobody looks there.
    fn of_folder(self, name: &OsStr) -> Option<Self> {
        let is_fan = name.len() == 2 && name.as_bytes().iter().all(u8::is_ascii_hexdigit);
        match self {
            Self::Repository if name == "info" => Some(Self::Info),
            Self::Repository if name == "objects" => Some(Self::Objects),
            Self::Repository if STORES.iter().any(|store| name == *store) => Some(Self::Store),
            Self::Repository if SHARED.iter().any(|shared| name == *shared) => None,
            Self::Repository => Some(Self::Repository),
            Self::Objects if is_fan => None,
            Self::Objects => Some(Self::Objects),
            Self::Info | Self::Store => Some(Self::Store),
        }
    }

    fn check_file(self, path: &Path, name: &OsStr, id: usize) -> Result<(), Error> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let is_index = name == "index" || name.as_bytes().starts_with(b"sharedindex.");
        if self == Self::Repository && is_index && path.with_file_name("HEAD").symlink_metadata().is_ok() {
            let index = small_file::read_bytes(path, MAX_INDEX).map_err(failed)?;
            if !stays_inside(&index, id) {
                return Err(Error::Index(path.to_owned()));
            }
        }
        // Clones on the same disk share their objects.
        let is_written = self != Self::Objects && !(self == Self::Info && READ_ONLY.iter().any(|file| name == *file));
        // One that git has just replaced is fine.
        if is_written && path.symlink_metadata().is_ok_and(|found| found.nlink() > 1) {
            return Err(Error::SecondName(path.to_owned()));
        }
        Ok(())
    }

    fn may_be_link(self, path: &Path, name: &OsStr) -> bool {
        match self {
            // That one names a branch.
            Self::Repository if name == "HEAD" => path.read_link().is_ok_and(|target| {
                target.starts_with("refs") && target.components().all(|part| matches!(part, Component::Normal(_)))
            }),
            Self::Repository => SHARED.iter().any(|shared| name == *shared),
            Self::Info => READ_ONLY.iter().any(|file| name == *file),
            Self::Objects | Self::Store => false,
        }
    }
}

fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, Error> {
    match fs::read_dir(folder).and_then(Iterator::collect) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(|source| Error::File { path: folder.to_owned(), source }),
    }
}
