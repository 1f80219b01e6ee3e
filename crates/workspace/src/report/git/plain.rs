//! What git reads of a repository is made of plain files and folders: a link there leads git to any file of this user, and
//! a pipe makes it wait for ever. A run that works at the same time can still change that, so it is only the first line.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use attache_os::small_file;

use super::Error;

/// Files that may be links to plain files, because people share them between repositories.
const FILES: [&str; 6] = ["HEAD", "packed-refs", "shallow", "info/attributes", "info/exclude", "info/sparse-checkout"];

/// As deep as git follows them.
const MAX_ALTERNATES: usize = 5;
/// The deepest folders of objects are those of commit graphs.
const MAX_DEPTH: usize = 3;
const MAX_LIST: u64 = 64 * 1024;

/// The parts that [`super::PrivateRepository`] shares with a repository. Returns the folders of others whose objects it borrows.
pub(super) fn check(git_dir: &Path, common: &Path) -> Result<Vec<PathBuf>, Error> {
    for file in [git_dir, common].iter().flat_map(|folder| FILES.map(|name| folder.join(name))) {
        if fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
            return Err(Error::NotPlain(file));
        }
    }
    check_objects(common)
}

/// The objects of a repository, and of others from which it borrows some. Returns where those are.
pub(super) fn check_objects(common: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut borrowed = Vec::new();
    check_store(&common.join("objects"), MAX_ALTERNATES, &mut borrowed)?;
    Ok(borrowed)
}

/// Whether no part of a path below a folder is a link, and its end a plain file, if it is there.
pub(super) fn check_path(folder: &Path, below: &Path) -> Result<(), Error> {
    let mut path = folder.to_owned();
    let names: Vec<Component<'_>> = below.components().collect();
    for (at, name) in names.iter().enumerate() {
        path.push(name);
        let is_plain = |found: &fs::Metadata| if at + 1 < names.len() { found.is_dir() } else { found.is_file() };
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(found) if is_plain(&found) => {}
            _ => return Err(Error::NotPlain(path)),
        }
    }
    Ok(())
}

fn check_store(objects: &Path, depth: usize, borrowed: &mut Vec<PathBuf>) -> Result<(), Error> {
    check_folder(objects, MAX_DEPTH)?;
    let list = objects.join("info/alternates");
    let text = match small_file::read(&list, MAX_LIST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(|_| Error::NotPlain(list))?,
    };
    let others = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for other in others.filter(|_| depth > 0).map(|other| objects.join(other)) {
        check_store(&other, depth - 1, borrowed)?;
        borrowed.push(other);
    }
    Ok(())
}

/// The folder itself may be a link, but nothing in it.
fn check_folder(folder: &Path, depth: usize) -> Result<(), Error> {
    let failed = |source| Error::File { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        match entry.file_type().map_err(failed)? {
            kind if kind.is_file() => {}
            kind if kind.is_dir() && depth == 0 => {}
            kind if kind.is_dir() => check_folder(&entry.path(), depth - 1)?,
            _ => return Err(Error::NotPlain(entry.path())),
        }
    }
    Ok(())
}
