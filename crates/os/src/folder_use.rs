//! Who works in a folder: programs inside walls, or programs that see more than the folder. Those of one kind work side by
//! side, and keep the other kind out of it, of what is below it, and of what is around it: a program inside could put a link
//! in the way of one outside at any moment.

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::{fs::Access, io::Errno, process::geteuid};

use crate::{look_up, system::folder_marks};

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
    /// A file system without locks.
    #[error("{}: {source}", .path.display())]
    Unmarked { path: PathBuf, source: io::Error },
    /// Whoever works there may be unseen.
    #[error("{}: {source}", .path.display())]
    Unreachable { path: PathBuf, source: io::Error },
}

/// Set on one folder.
struct Mark<'a> {
    path: &'a Path,
    folder: File,
    /// Rather than on one above it.
    is_own: bool,
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
            let is_own = distance == 0;
            match Mark::set(user, path, is_own) {
                Ok(Some(mark)) => marked.push(mark),
                // Nobody of ours works in what this user can't open, or leaves a mark where there are none.
                Ok(None) | Err(FolderUseError::Unmarked { .. }) if !is_own => {}
                Ok(None) => {
                    return Err(FolderUseError::Unreachable { path: path.to_owned(), source: Errno::ACCESS.into() });
                }
                Err(error) => return Err(error),
            }
        }
        let busy = marked.iter().map(|mark| Ok(mark.meets(user.other())?.then(|| mark.path.to_owned())));
        let busy = busy.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().next();
        self.0.extend(marked.into_iter().map(|mark| mark.folder));
        busy.map_or(Ok(()), |path| Err(FolderUseError::Busy(path)))
    }
}

impl Drop for FolderUse {
    /// Closing the file isn't enough: a child that is being started at this moment has it open, too.
    fn drop(&mut self) {
        self.0.iter().for_each(folder_marks::clear);
    }
}

// === impl Mark ===

impl<'a> Mark<'a> {
    /// `None` if the folder belongs to another user, and is closed.
    fn set(user: FolderUser, path: &'a Path, is_own: bool) -> Result<Option<Self>, FolderUseError> {
        let unreachable = |source| FolderUseError::Unreachable { path: path.to_owned(), source };
        let Some(folder) = look_up::open_folder(path).map_err(unreachable)? else { return Ok(None) };
        let mark = Self { path, folder, is_own };
        folder_marks::set(&mark.folder, user.below()).map_err(|error| mark.failed(error))?;
        if is_own {
            folder_marks::set(&mark.folder, user.here()).map_err(|error| mark.failed(error))?;
        }
        Ok(Some(mark))
    }

    /// Whether somebody of this kind works there, or around there if it's the folder itself.
    fn meets(&self, other: FolderUser) -> Result<bool, FolderUseError> {
        let mark = if self.is_own { other.below() } else { other.here() };
        let is_set = folder_marks::is_set(&self.folder, mark).map_err(|error| self.failed(error))?;
        Ok(is_set && (self.is_own || self.can_be_changed()))
    }

    /// Where this user can't write, nobody of ours does any harm, and other users could keep a mark. What the mode of its own
    /// folder says doesn't count: whoever works there can change it.
    fn can_be_changed(&self) -> bool {
        let is_ours = |found: std::fs::Metadata| found.uid() == geteuid().as_raw();
        self.folder.metadata().map_or(true, is_ours) || rustix::fs::access(self.path, Access::WRITE_OK).is_ok()
    }

    fn failed(&self, source: io::Error) -> FolderUseError {
        let path = self.path.to_owned();
        match look_up::has_no_locks(&source) {
            true => FolderUseError::Unmarked { path, source },
            false => FolderUseError::Unreachable { path, source },
        }
    }
}

#[cfg(all(test, target_os = "linux", not(attache_portable)))]
mod tests {
    use std::fs;

    use super::*;
    use crate::look_up::tests::{as_ordinary_user, set_mode};

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

    /// Whoever works in a folder chooses its mode.
    #[test]
    fn a_closed_folder_keeps_nobody_apart_less() {
        as_ordinary_user(|| {
            let root = tempfile::tempdir().unwrap();
            let root = root.path().canonicalize().unwrap();
            let (work, sub) = (root.join("work"), root.join("work/sub"));
            fs::create_dir_all(&sub).unwrap();
            for (user, other) in [(FolderUser::Walled, FolderUser::Open), (FolderUser::Open, FolderUser::Walled)] {
                for mode in [0o000, 0o300, 0o500] {
                    // Before it began, while it works, and around the folder of the other.
                    set_mode(&work, mode);
                    let held = FolderUse::begin(user, [work.as_path()]).unwrap();
                    for folder in [&work, &sub] {
                        set_mode(&work, mode);
                        assert!(!can_begin(other, folder), "{other:?} beside {user:?} in {folder:?} {mode:o}");
                    }
                    drop(held);
                    set_mode(&work, mode);
                    let held = FolderUse::begin(user, [sub.as_path()]).unwrap();
                    set_mode(&sub, mode);
                    set_mode(&work, mode);
                    assert!(!can_begin(other, &work), "{other:?} around {user:?} {mode:o}");
                    drop(held);
                }
            }
        });
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
        assert!(matches!(&error, FolderUseError::Unreachable { path, .. } if *path == missing), "{error}");
    }
}
