//! Which repository a folder is in, and whether that is the folder's own. Whoever can write to a folder can put a `.git` there
//! that leads to any other repository of this user, or one that says that its files are anywhere else.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use attache_os::small_file;

use super::{Error, GitConfigScope, canonical, command, output, path, private};

/// Where a repository was found.
#[derive(Debug)]
pub(super) struct FoundRepository {
    /// The folder with the `.git`, which decides what is in the repository.
    pub(super) top: PathBuf,
    /// `.git`, or where it leads.
    pub(super) git_dir: PathBuf,
}

/// As long as git reads a file `.git`.
const MAX_POINTER: u64 = 1 << 20;
const MAX_SETTINGS: u64 = 1 << 20;
/// What git looks at of a `HEAD`.
const MAX_HEAD: u64 = 255;
/// More than anybody has branches.
const MAX_REFERENCES: usize = 100_000;

/// What may be a link although git, or a program beside it, writes to it: people share these between repositories, and what is
/// written has names of its own.
const SHARED: [&str; 5] = ["hooks", "info", "rr-cache", "lfs", "annex"];

/// The nearest repository, in the folder or around it, where git would find it. `dir` is canonical.
pub(super) fn nearest(dir: &Path) -> Result<Option<FoundRepository>, Error> {
    for top in dir.ancestors() {
        let place = top.join(".git");
        let Ok(found) = fs::metadata(&place) else { continue };
        if !found.is_dir() && !found.is_file() {
            // Git passes over pipes and the like.
            continue;
        }
        let git_dir = match found.is_dir() {
            true => canonical(&place)?,
            false => match named_by(&place)? {
                Some(git_dir) => git_dir,
                // Git fails there, and looks no further.
                None => return Ok(None),
            },
        };
        if is_repository(&git_dir)? {
            return Ok(Some(FoundRepository { top: top.to_owned(), git_dir }));
        }
        if !found.is_dir() {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Fails unless the repository is the working tree's: it is in its `.git` and says nothing else, or it is elsewhere and names
/// the working tree as its own.
pub(super) fn check(top: &Path, git_dir: &Path) -> Result<(), Error> {
    let (place, common) = (top.join(".git"), private::common_dir(git_dir)?);
    let is_named = |worktree: &PathBuf| same(&git_dir.join(worktree), top);
    let found = place.symlink_metadata().map_err(|source| Error::File { path: place.clone(), source })?;
    let is_own = match (found.is_dir(), common == git_dir) {
        (true, true) => canonical(&place)? == git_dir && worktrees(git_dir)?.iter().all(is_named),
        (true, false) => false,
        (false, true) => {
            let named = worktrees(git_dir)?;
            leads_to(&place, git_dir)? && !named.is_empty() && named.iter().all(is_named)
        }
        (false, false) => {
            let is_linked = found.is_file() && git_dir.parent() == Some(&common.join("worktrees"));
            is_linked
                && leads_to(&place, git_dir)?
                && names_git_file(git_dir, &place)?
                // Git takes the linked tree's own settings and, with them, the common ones at their word.
                && worktrees(git_dir)?.iter().all(is_named)
                && (!has_settings_per_worktree(&common)? || worktrees_in(&common.join("config"))?.is_empty())
        }
    };
    if !is_own {
        return Err(Error::Elsewhere(top.to_owned()));
    }
    for folder in ["objects", "refs"].map(|name| common.join(name)) {
        if !folder.symlink_metadata().is_ok_and(|there| there.is_dir()) {
            return Err(Error::NotPlain(folder));
        }
    }
    Ok(())
}

/// Fails if git, working in the repository of this folder, would read or write files of another repository, or anywhere else.
pub(super) fn check_for_work(dir: &Path) -> Result<(), Error> {
    let Ok(dir) = dir.canonicalize() else { return Ok(()) };
    let Some(FoundRepository { top, git_dir }) = nearest(&dir)? else { return Ok(()) };
    check(&top, &git_dir)?;
    let common = private::common_dir(&git_dir)?;
    for folder in if git_dir == common { vec![&common] } else { vec![&git_dir, &common] } {
        check_links(folder, &SHARED)?;
        check_references(folder.join("logs"))?;
        check_references(folder.join("refs"))?;
    }
    // A link in place of a single object leads nowhere: git compares its content with its name.
    ["objects", "objects/info", "objects/info/commit-graphs", "objects/pack"]
        .iter()
        .try_for_each(|name| check_links(&common.join(name), &[]))
}

/// Nothing in a folder may be a link, but what has one of these names.
fn check_links(folder: &Path, shared: &[&str]) -> Result<(), Error> {
    for entry in entries(folder)? {
        let (path, name) = (entry.path(), entry.file_name());
        let is_shared = shared.iter().any(|shared| name == **shared);
        // That one names a branch.
        let is_branch = name == "HEAD" && path.read_link().is_ok_and(|target| target.starts_with("refs"));
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) && !is_shared && !is_branch {
            return Err(Error::NotPlain(path));
        }
    }
    Ok(())
}

/// Git appends to whatever a link among the logs leads to, and makes branches where one among the references leads.
fn check_references(folder: PathBuf) -> Result<(), Error> {
    let (mut folders, mut seen) = (vec![folder], 0);
    while let Some(folder) = folders.pop() {
        for entry in entries(&folder)? {
            seen += 1;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && seen <= MAX_REFERENCES => {}
                _ => return Err(Error::NotPlain(entry.path())),
            }
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, Error> {
    match fs::read_dir(folder).and_then(Iterator::collect) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(|source| Error::File { path: folder.to_owned(), source }),
    }
}

/// As git tells a repository from another folder.
fn is_repository(git_dir: &Path) -> Result<bool, Error> {
    if !is_head(&git_dir.join("HEAD")) {
        return Ok(false);
    }
    let common = private::common_dir(git_dir)?;
    // Git asks only whether they can be entered or executed, so a file will do.
    Ok(["objects", "refs"].iter().all(|name| common.join(name).exists()))
}

fn is_head(head: &Path) -> bool {
    if let Ok(target) = head.read_link() {
        return target.as_os_str().as_bytes().starts_with(b"refs/");
    }
    let mut start = Vec::new();
    let read = small_file::open(head, u64::MAX).and_then(|file| file.take(MAX_HEAD).read_to_end(&mut start));
    let is_id = start.len() >= 40 && start[..40].iter().all(u8::is_ascii_hexdigit);
    let is_branch = start.strip_prefix(b"ref:").is_some_and(|name| {
        let spaces = name.iter().take_while(|byte| b" \t\n\r".contains(byte)).count();
        name[spaces..].starts_with(b"refs/")
    });
    read.is_ok() && (is_id || is_branch)
}

/// Where a file `.git` leads. `None` if git doesn't follow it either.
fn named_by(place: &Path) -> Result<Option<PathBuf>, Error> {
    let Ok(real) = place.canonicalize() else { return Ok(None) };
    let Ok(text) = small_file::read_bytes(&real, MAX_POINTER) else { return Ok(None) };
    let Some(target) = text.strip_prefix(b"gitdir: ") else { return Ok(None) };
    let target = place.parent().unwrap_or(place).join(OsStr::from_bytes(without_line_end(target)));
    match target.canonicalize() {
        Ok(target) => Ok(Some(target)),
        // Git stops at a zero byte, and so goes on.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(Error::Elsewhere(place.to_owned())),
        Err(_) => Ok(None),
    }
}

fn leads_to(place: &Path, git_dir: &Path) -> Result<bool, Error> {
    let target = match fs::metadata(place) {
        Ok(found) if found.is_dir() => Some(canonical(place)?),
        _ => named_by(place)?,
    };
    Ok(target.as_deref() == Some(git_dir))
}

/// A linked working tree's folder in its repository says where its file `.git` is.
fn names_git_file(git_dir: &Path, place: &Path) -> Result<bool, Error> {
    let file = git_dir.join("gitdir");
    match small_file::read_bytes(&file, MAX_POINTER) {
        Ok(named) => Ok(same(&git_dir.join(OsStr::from_bytes(without_line_end(&named))), place)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Error::File { path: file, source }),
    }
}

/// Where a repository says that its files are. Git takes that from these two files alone, and the last one counts, but who
/// means well names the same folder everywhere.
fn worktrees(git_dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let [common, own] = ["config", "config.worktree"].map(|name| worktrees_in(&git_dir.join(name)));
    Ok([common?, own?].concat())
}

fn worktrees_in(file: &Path) -> Result<Vec<PathBuf>, Error> {
    Ok(values(file, "core.worktree")?.into_iter().map(path).collect())
}

/// Whether `config.worktree` counts.
fn has_settings_per_worktree(common: &Path) -> Result<bool, Error> {
    Ok(!values(&common.join("config"), "extensions.worktreeConfig")?.is_empty())
}

/// The values of a setting in one file, without those that it includes.
fn values(file: &Path, key: &str) -> Result<Vec<Vec<u8>>, Error> {
    let text = match small_file::read_bytes(file, MAX_SETTINGS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|_| Error::NotPlain(file.to_owned()))?,
    };
    let mut ask = command(Path::new("/"), GitConfigScope::Repository);
    ask.env("GIT_DIR", "/nonexistent").args(["config", "--no-includes", "-z", "--file", "-"]);
    let said = output("config", ask.args(["--get-all", key]), Some(&text))?;
    match said.status.code() {
        Some(0) => {}
        Some(1) => return Ok(Vec::new()),
        _ => return Err(Error::Failed("config".to_owned())),
    }
    let values = said.stdout.strip_suffix(&[0]).unwrap_or(&said.stdout);
    Ok(values.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect())
}

/// As git takes the line of a file that only says where something is.
pub(super) fn without_line_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    &text[..end]
}

fn same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
