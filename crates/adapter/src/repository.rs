//! A git repository that a run inside walls works in. It can commit, but it can't leave anything behind that git would
//! execute outside, when the owner of the folder uses it next.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Held while a run works in a folder.
#[derive(Debug, Default)]
pub struct GuardedRepository {
    /// What the run can only read: the settings, which name programs, and the hooks, which are programs.
    pub fixed: Vec<PathBuf>,
    /// Files that would lead git to other settings. They weren't there before, so they don't stay.
    redirects: Vec<PathBuf>,
}

/// How deep submodules are looked for, and how many.
const MAX_DEPTH: usize = 6;
const MAX_REPOSITORIES: usize = 256;

// === impl GuardedRepository ===

impl GuardedRepository {
    /// The repository of this folder, which is canonical, if it has one.
    pub fn new(folder: &Path) -> Self {
        let mut guarded = Self::default();
        let git = folder.join(".git");
        match git.symlink_metadata() {
            // Of a linked working tree or a submodule: it says where the repository is.
            Ok(found) if found.is_file() => guarded.fixed.push(git),
            Ok(found) if found.is_dir() => {
                guarded.add(&git);
                guarded.add_below(&git.join("modules"), MAX_DEPTH);
            }
            _ => {}
        }
        guarded
    }

    fn add(&mut self, git: &Path) {
        // What isn't there can't be fixed, and a run must not be the one that makes it.
        let hooks = git.join("hooks");
        if hooks.symlink_metadata().is_err() {
            let _ = fs::create_dir(&hooks);
        }
        // A link could lead to anything, and would be followed.
        let is_no_link = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| !found.is_symlink());
        self.fixed.extend([git.join("config"), git.join("config.worktree"), hooks].into_iter().filter(is_no_link));
        let redirect = git.join("commondir");
        self.redirects.extend(redirect.symlink_metadata().is_err().then_some(redirect));
    }

    /// Submodules, whose names can contain slashes.
    fn add_below(&mut self, modules: &Path, depth: usize) {
        let entries = fs::read_dir(modules).into_iter().flatten().flatten();
        for folder in
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
        {
            if self.redirects.len() >= MAX_REPOSITORIES {
                return;
            }
            if folder.join("HEAD").is_file() {
                self.add(&folder);
                self.add_below(&folder.join("modules"), depth.saturating_sub(1));
            } else if depth > 0 {
                self.add_below(&folder, depth - 1);
            }
        }
    }
}

impl Drop for GuardedRepository {
    fn drop(&mut self) {
        for redirect in self.redirects.iter().filter(|redirect| redirect.symlink_metadata().is_ok()) {
            tracing::warn!(file = %redirect.display(), "a run tried to lead git to other settings");
            if fs::remove_file(redirect).is_err() {
                let _ = fs::remove_dir_all(redirect);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_hooks_are_fixed_and_redirects_do_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        assert_eq!(GuardedRepository::new(&root).fixed, Vec::<PathBuf>::new());
        for repository in [".git", ".git/modules/lib/sub"] {
            fs::create_dir_all(root.join(repository)).unwrap();
            for file in ["HEAD", "config"] {
                fs::write(root.join(repository).join(file), "").unwrap();
            }
        }
        std::os::unix::fs::symlink("/etc/passwd", root.join(".git/config.worktree")).unwrap();
        let guarded = GuardedRepository::new(&root);
        let fixed = [".git/config", ".git/hooks", ".git/modules/lib/sub/config", ".git/modules/lib/sub/hooks"];
        assert_eq!(guarded.fixed, fixed.map(|name| root.join(name)));
        fs::write(root.join(".git/commondir"), "../evil").unwrap();
        drop(guarded);
        assert!(!root.join(".git/commondir").exists());
        // Of a linked working tree.
        fs::remove_dir_all(root.join(".git")).unwrap();
        fs::write(root.join(".git"), "gitdir: /elsewhere").unwrap();
        assert_eq!(GuardedRepository::new(&root).fixed, [root.join(".git")]);
    }
}
