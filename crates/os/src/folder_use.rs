//! Who works in a folder: programs inside walls, or programs that see more than the folder. Those of one kind work side by
//! side, and keep the other kind out of it, of what is below it, and of what is around it: a program inside could put a link
//! in the way of one outside at any moment.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, Mode, OFlags};

use crate::system::folder_marks;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderUser {
    /// Can change the folder, and nothing outside of it.
    Walled,
    /// Follows whatever it finds in the folder, and has the rights of this process.
    Open,
}

/// Held while somebody works in folders.
#[derive(Debug)]
pub struct FolderUse(Vec<File>);

/// What keeps somebody out of a folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderUseError {
    /// The other kind works there.
    #[error("{} is in use", .0.display())]
    Busy(PathBuf),
    /// A file system without locks, for example.
    #[error("{}: {source}", .path.display())]
    Unmarked { path: PathBuf, source: io::Error },
}

// === impl FolderUser ===

impl FolderUser {
    const fn other(self) -> Self {
        match self {
            Self::Walled => Self::Open,
            Self::Open => Self::Walled,
        }
    }

    /// Somebody of this kind works in the marked folder.
    const fn here(self) -> u8 {
        match self {
            Self::Walled => 0,
            Self::Open => 2,
        }
    }

    /// Somebody of this kind works in the marked folder or below it.
    const fn below(self) -> u8 {
        self.here() + 1
    }
}

// === impl FolderUse ===

impl FolderUse {
    /// Doesn't wait. The folders are canonical.
    pub fn begin<'a>(user: FolderUser, folders: impl IntoIterator<Item = &'a Path>) -> Result<Self, FolderUseError> {
        let mut held = Self(Vec::new());
        for folder in folders {
            held.add(user, folder)?;
        }
        Ok(held)
    }

    /// The marks come first, so that of two that begin at the same moment at least one sees the other.
    fn add(&mut self, user: FolderUser, folder: &Path) -> Result<(), FolderUseError> {
        let mut marked = Vec::new();
        for (distance, path) in folder.ancestors().enumerate() {
            let opened = open(path).and_then(|file| {
                folder_marks::set(&file, user.below())?;
                if distance == 0 {
                    folder_marks::set(&file, user.here())?;
                }
                Ok(file)
            });
            match opened {
                Ok(file) => marked.push((path, file, distance == 0)),
                Err(source) if distance == 0 => {
                    return Err(FolderUseError::Unmarked { path: path.to_owned(), source });
                }
                // Nobody of ours works in what this user can't open.
                Err(_) => {}
            }
        }
        let busy = marked.iter().find_map(|(path, file, is_own)| {
            let mark = if *is_own { user.other().below() } else { user.other().here() };
            let counts = *is_own || can_be_changed(path);
            (counts && folder_marks::is_set(file, mark).unwrap_or(false)).then(|| path.to_path_buf())
        });
        self.0.extend(marked.into_iter().map(|(_, file, _)| file));
        busy.map_or(Ok(()), |path| Err(FolderUseError::Busy(path)))
    }
}

impl Drop for FolderUse {
    /// Closing the file isn't enough: a child that is being started at this moment has it open, too.
    fn drop(&mut self) {
        self.0.iter().for_each(folder_marks::clear);
    }
}

/// Where this user can't write, nobody of ours does any harm, and other users could keep a mark.
fn can_be_changed(folder: &Path) -> bool {
    rustix::fs::access(folder, Access::WRITE_OK).is_ok()
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

#[cfg(all(test, target_os = "linux", not(attache_portable)))]
mod tests {
    use std::fs;

    use super::*;

    /// Whether this kind can begin in the folder.
    fn can_begin(user: FolderUser, folder: &Path) -> bool {
        match FolderUse::begin(user, [folder]) {
            Ok(_) => true,
            Err(FolderUseError::Busy(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn those_inside_walls_and_those_outside_keep_each_other_out_of_their_folders() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        fs::create_dir_all(at("work/sub/deep")).unwrap();
        fs::create_dir_all(at("beside")).unwrap();
        for (user, other) in [(FolderUser::Walled, FolderUser::Open), (FolderUser::Open, FolderUser::Walled)] {
            let held = FolderUse::begin(user, [at("work/sub").as_path()]).unwrap();
            for folder in ["", "work", "work/sub", "work/sub/deep"] {
                assert!(can_begin(user, &at(folder)), "{user:?} beside {user:?} in {folder}");
                assert!(!can_begin(other, &at(folder)), "{other:?} beside {user:?} in {folder}");
            }
            assert!(can_begin(other, &at("beside")));
            let second = FolderUse::begin(user, [at("beside").as_path(), at("work/sub").as_path()]).unwrap();
            drop(held);
            assert!(!can_begin(other, &at("work")) && !can_begin(other, &at("beside")));
            drop(second);
            assert!(can_begin(other, &at("work")));
        }
    }

    #[test]
    fn who_is_refused_leaves_no_mark() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let held = FolderUse::begin(FolderUser::Open, [root.as_path()]).unwrap();
        assert!(!can_begin(FolderUser::Walled, &root));
        assert!(can_begin(FolderUser::Open, &root));
        drop(held);
        assert!(can_begin(FolderUser::Walled, &root));
        let missing = root.join("missing");
        let error = FolderUse::begin(FolderUser::Walled, [missing.as_path()]).unwrap_err();
        assert!(matches!(&error, FolderUseError::Unmarked { path, .. } if *path == missing), "{error}");
    }
}
