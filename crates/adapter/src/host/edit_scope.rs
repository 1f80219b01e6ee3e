//! Which changes of files a device vouches for: those of ordinary files in the run's folder.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
};

use attache_protocol::autorun;

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
    let below = real(path).and_then(|real| real.strip_prefix(root).ok().map(Path::to_owned));
    is_one_file && below.as_deref().and_then(Path::to_str).is_some_and(autorun::is_ordinary)
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
        let two = ["new.txt", "out/x"].map(|path| at(path).display().to_string());
        assert!(!are_ordinary(folder.path(), &two));
        assert!(!are_ordinary(folder.path(), &[]));
    }
}
