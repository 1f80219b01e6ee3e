//! Which changes of files a device vouches for: those of ordinary files in the run's folder.

use std::{
    collections::VecDeque,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
};

use attache_os::small_file;
use attache_protocol::autorun;

use crate::repository::{MAX_POINTER, named_repository};

/// How many files of settings are looked at, and how large they can be.
const MAX_SETTINGS: usize = 64;
const MAX_SETTINGS_SIZE: u64 = 1 << 20;

/// Whether all of them are in the folder, wherever links lead, and nothing runs or obeys them on its own.
pub(crate) fn are_ordinary(folder: &Path, paths: &[String]) -> bool {
    let Ok(root) = folder.canonicalize() else { return false };
    !paths.is_empty() && paths.iter().all(|path| is_ordinary(&root, Path::new(path)))
}

fn is_ordinary(root: &Path, path: &Path) -> bool {
    // A host may take another path for relative to another folder, or `~` for a home.
    if !path.is_absolute() || path.components().any(|part| !matches!(part, Component::RootDir | Component::Normal(_))) {
        return false;
    }
    // A link leads elsewhere, another name of the same file may be anywhere, and a program may be run by anything.
    let is_one_file = match fs::symlink_metadata(path) {
        Ok(found) => found.is_file() && found.nlink() == 1 && found.mode() & 0o111 == 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    let Some(real) = real(path).filter(|_| is_one_file) else { return false };
    let is_ordinary = |below: &Path| below.to_str().is_some_and(autorun::is_ordinary);
    real.strip_prefix(root).is_ok_and(is_ordinary) && !is_named_by_git(&real)
}

/// Whether the settings of a repository that a file is in name it, or a folder above it: as more settings, as hooks, or as a
/// program.
fn is_named_by_git(file: &Path) -> bool {
    file.ancestors().skip(1).any(|folder| {
        let git = folder.join(".git");
        let git = if git.is_dir() { Some(git) } else { named_repository(&git) };
        git.is_some_and(|git| is_named_by_settings(file, folder, &git))
    })
}

fn is_named_by_settings(file: &Path, folder: &Path, git: &Path) -> bool {
    // Of a linked working tree, the settings are somewhere else.
    let shared = small_file::read(&git.join("commondir"), MAX_POINTER).ok();
    let shared = shared.map_or_else(|| git.to_owned(), |shared| git.join(shared.trim_end()));
    let mut settings = VecDeque::from([shared.join("config"), git.join("config.worktree")]);
    for _ in 0..MAX_SETTINGS {
        let Some(at) = settings.pop_front() else { return false };
        let Ok(text) = small_file::read(&at, MAX_SETTINGS_SIZE) else { continue };
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            let key = key.trim().to_ascii_lowercase();
            for word in value.split([' ', '\t', '"', '\'']).filter(|word| !word.is_empty()) {
                let places = [at.parent().unwrap_or(git), git, folder];
                for named in places.iter().filter_map(|place| real(&place.join(word))) {
                    if file.starts_with(&named) && (key == "hookspath" || named.starts_with(folder) && named != folder)
                    {
                        return true;
                    }
                    if key == "path" && named.is_file() {
                        settings.push_back(named);
                    }
                }
            }
        }
    }
    // Nobody needs so many.
    true
}

/// The path without links. What doesn't exist yet is below what does.
fn real(path: &Path) -> Option<PathBuf> {
    match path.canonicalize() {
        Ok(real) => Some(real),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // A link that leads nowhere exists.
            fs::symlink_metadata(path).err()?;
            Some(real(path.parent()?)?.join(path.file_name()?))
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn only_ordinary_files_in_the_folder_count() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("src")).unwrap();
        fs::write(at("src/a.rs"), "").unwrap();
        fs::write(at("run.sh"), "").unwrap();
        fs::set_permissions(at("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(other.path().join("x"), "").unwrap();
        symlink(other.path(), at("out")).unwrap();
        symlink(other.path().join("x"), at("link")).unwrap();
        symlink(other.path().join("missing"), at("dangling")).unwrap();
        symlink(at("src"), at("inside")).unwrap();
        fs::hard_link(other.path().join("x"), at("twin")).unwrap();
        let is = |path: &str| are_ordinary(folder.path(), &[at(path).display().to_string()]);
        for path in ["src/a.rs", "new.txt", "new/deep/b.txt", "inside/b.rs"] {
            assert!(is(path), "{path}");
        }
        for path in [
            "../x",
            "src/../../x",
            "/etc/passwd",
            "out/x",
            "out/new",
            "link",
            "dangling",
            "twin",
            "src",
            ".git/config",
            "src/.envrc",
            "CLAUDE.md",
            "run.sh",
            "",
        ] {
            assert!(!is(path), "{path}");
        }
        for path in ["new.txt", "~/new.txt", "./new.txt"] {
            assert!(!are_ordinary(folder.path(), &[path.to_owned()]), "{path}");
        }
        // What git's settings name.
        fs::create_dir_all(at(".git")).unwrap();
        fs::create_dir_all(at("tools/hooks")).unwrap();
        fs::write(at("team.ini"), "[include]\n\tpath = \"more.ini\"\n").unwrap();
        let settings = "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../team.ini\n[filter \"x\"]\n\tclean = sh tools/x.py %f\n";
        fs::write(at(".git/config"), settings).unwrap();
        for path in ["team.ini", "more.ini", "tools/hooks/pre-commit", "tools/x.py"] {
            assert!(!is(path), "{path}");
        }
        for path in ["src/a.rs", "new.ini", "tools/other.txt"] {
            assert!(is(path), "{path}");
        }
        let two = ["new.txt", "out/x"].map(|path| at(path).display().to_string());
        assert!(!are_ordinary(folder.path(), &two));
        assert!(!are_ordinary(folder.path(), &[]));
    }
}
