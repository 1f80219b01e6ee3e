//! What a run has left in its worktree that git doesn't look at: in a submodule's folder, in a repository of its own, and among
//! ignored files. Found by walking through the files, with the index of what was there at the beginning.

use std::{
    collections::{HashMap, HashSet},
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use attache_protocol::wire::adapter::ATTACHMENT_FOLDER;

use super::{Error, PrivateRepository, RunWorktree, at, run};
use crate::export::show;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct LeftoverFiles {
    /// Folders that aren't a part of the changes: repositories, and the folders of submodules with anything in them. Each
    /// ends with a slash.
    pub(super) nested: Vec<String>,
    /// Whether there are files that weren't there at the beginning, ignored ones included.
    pub(super) has_new_files: bool,
}

/// What the index has, by path.
struct IndexedPaths {
    files: HashSet<Vec<u8>>,
    submodules: HashSet<Vec<u8>>,
}

/// The mode of a submodule in the index.
const SUBMODULE: &[u8] = b"160000";

/// A folder with these is a repository, whatever its name is.
const PARTS: [&str; 3] = ["HEAD", "objects", "refs"];

impl RunWorktree {
    /// Looks at every folder, also at ignored ones.
    pub(super) fn left_behind(&self, private: &PrivateRepository) -> Result<LeftoverFiles, Error> {
        let saved = self.beside("index");
        fs::copy(&saved, private.index()).map_err(at(&saved))?;
        let index = IndexedPaths::of(private)?;
        let top = self.files();
        let attachments = self.attachments();
        let mut left = LeftoverFiles::default();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let path = top.join(&folder);
            let found = entries(&path)?;
            let is_top = folder.as_os_str().is_empty();
            let name = folder.as_os_str().as_bytes();
            let is_submodule = index.submodules.contains(name) && !found.is_empty();
            let is_bare = PARTS.iter().all(|part| found.contains_key(OsStr::new(part)))
                && !index.files.contains(folder.join("HEAD").as_os_str().as_bytes());
            if !is_top && (is_submodule || is_bare || found.contains_key(OsStr::new(".git"))) {
                left.nested.push(show(&[name, b"/"].concat()));
                continue;
            }
            for (name, kind) in found {
                let below = folder.join(&name);
                if kind.is_dir() {
                    if below != attachments {
                        folders.push(below);
                    }
                } else if (kind.is_file() || kind.is_symlink()) && !(is_top && name == ".git") {
                    let is_ours = below == attachments.with_file_name(".gitignore");
                    left.has_new_files |= !is_ours && !index.files.contains(below.as_os_str().as_bytes());
                }
            }
        }
        // Submodules whose folders are empty again.
        let modules = [self.admin(), self.beside("repository")].map(|git_dir| git_dir.join("modules"));
        for modules in modules {
            if left.nested.is_empty() && !entries(&modules)?.is_empty() {
                left.nested.push(".git/modules/".to_owned());
            }
        }
        left.nested.sort();
        Ok(left)
    }

    /// The folder of what came with the task, relative to the top. It is removed when the task ends.
    pub(super) fn attachments(&self) -> PathBuf {
        self.record.subfolder.join(ATTACHMENT_FOLDER).join(self.record.run.to_string())
    }
}

// === impl IndexedPaths ===

impl IndexedPaths {
    fn of(private: &PrivateRepository) -> Result<Self, Error> {
        let listed = run("ls-files", private.git().args(["ls-files", "-z", "--stage"]), None)?;
        let (mut files, mut submodules) = (HashSet::new(), HashSet::new());
        for entry in listed.split(|&byte| byte == 0) {
            let Some(tab) = entry.iter().position(|&byte| byte == b'\t') else { continue };
            let paths = if entry.starts_with(SUBMODULE) { &mut submodules } else { &mut files };
            paths.insert(entry[tab + 1..].to_vec());
        }
        Ok(Self { files, submodules })
    }
}

/// Empty if it isn't there. A link isn't followed.
fn entries(folder: &Path) -> Result<HashMap<OsString, fs::FileType>, Error> {
    if folder.is_symlink() {
        return Ok(HashMap::new());
    }
    let read = || -> io::Result<HashMap<_, _>> {
        fs::read_dir(folder)?.map(|entry| entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?)))).collect()
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HashMap::new()),
        entries => entries.map_err(at(folder)),
    }
}
