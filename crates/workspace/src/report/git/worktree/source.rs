//! Whether a repository is the folder's own. A run inside walls can put a `.git` into its folder that leads to any other
//! repository of this user, and it would be shown everything in it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use attache_os::small_file;

use super::{Error, GitConfigScope, GitRepository, at, output};
use crate::report::git::{command, line, path};

/// The length of a file that only says where something is.
const MAX_POINTER: u64 = 8 * 1024;

/// Fails unless the repository names this working tree as its own, and has all of its objects. `common` is where it has them.
pub(super) fn check_own(found: &GitRepository, common: &Path) -> Result<(), Error> {
    let elsewhere = || Error::Elsewhere(found.top.clone());
    let (place, git_dir) = (found.top.join(".git"), canonical(&found.git_dir)?);
    let is_own = match place.symlink_metadata() {
        Ok(there) if there.is_dir() => git_dir == canonical(&place)? && common == git_dir,
        Ok(there) if there.is_file() && common == git_dir => names_working_tree(&git_dir, &found.top)?,
        Ok(there) if there.is_file() => {
            git_dir.parent() == Some(&common.join("worktrees")) && names_git_file(&git_dir, &place)?
        }
        _ => false,
    };
    if !is_own {
        return Err(elsewhere());
    }
    for name in ["objects", "refs"] {
        let folder = common.join(name);
        if !folder.symlink_metadata().is_ok_and(|there| there.is_dir()) {
            return Err(Error::Replaced(folder));
        }
    }
    let alternates = common.join("objects/info/alternates");
    let text = match fs::read(&alternates) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(at(&alternates))?,
    };
    // What stands for it while a run works there is a comment.
    match text.split(|&byte| byte == b'\n').all(|line| line.is_empty() || line.starts_with(b"#")) {
        true => Ok(()),
        false => Err(Error::Borrowed(alternates)),
    }
}

/// A linked working tree's folder in its repository says where its file `.git` is.
fn names_git_file(git_dir: &Path, place: &Path) -> Result<bool, Error> {
    let file = git_dir.join("gitdir");
    match small_file::read(&file, MAX_POINTER) {
        Ok(named) => Ok(same(&git_dir.join(named.trim_end()), place)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(at(&file)(error)),
    }
}

/// The repository of a submodule says where its files are.
fn names_working_tree(git_dir: &Path, top: &Path) -> Result<bool, Error> {
    let mut ask = command(Path::new("/"), GitConfigScope::Repository);
    ask.env("GIT_DIR", "/nonexistent").args(["config", "--no-includes", "--file"]).arg(git_dir.join("config"));
    let said = output("config", ask.args(["--get", "core.worktree"]), None)?;
    Ok(said.status.success() && same(&git_dir.join(path(line(said.stdout))), top))
}

fn same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn canonical(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(at(path))
}
