//! Whether a worktree can be made of a repository: it is the folder's own, and has all of its objects.

use std::{fs, io, path::Path};

use super::{Error, at};

/// Fails if the repository borrows objects: nobody can tell who wrote down where they are. `common` is where it has its own.
pub(super) fn check_objects(common: &Path) -> Result<(), Error> {
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
