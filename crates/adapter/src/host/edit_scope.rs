//! Which changes of files a device vouches for: those of ordinary files in the run's folder.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Component, Path, PathBuf},
};

use attache_os::small_file;
use attache_protocol::autorun;

use crate::repository::{common_folder, named_repository};

/// How many files of settings are looked at, and how large they can be.
const MAX_SETTINGS: usize = 64;
const MAX_SETTINGS_SIZE: u64 = 1 << 20;

/// Whether all of them are in the folder, wherever links lead, and nothing runs or obeys them on its own.
pub(crate) fn are_ordinary(folder: &Path, paths: &[String]) -> bool {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    are_ordinary_for(home.as_deref(), folder, paths)
}

fn are_ordinary_for(home: Option<&Path>, folder: &Path, paths: &[String]) -> bool {
    let Ok(root) = folder.canonicalize() else { return false };
    !paths.is_empty() && paths.iter().all(|path| is_ordinary(home, &root, Path::new(path)))
}

fn is_ordinary(home: Option<&Path>, root: &Path, path: &Path) -> bool {
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
    real.strip_prefix(root).is_ok_and(is_ordinary)
        && !is_in_bare_repository(root, &real)
        && !is_named_by_git(home, &real)
}

/// Whether a folder that it is in is a repository by what is in it, or lacks only this file to be one: git obeys its settings
/// and hooks like those of a `.git`.
fn is_in_bare_repository(root: &Path, file: &Path) -> bool {
    let folders = file.ancestors().skip(1).take_while(|folder| folder.starts_with(root));
    folders.into_iter().any(|folder| fs::symlink_metadata(folder.join("HEAD")).is_ok())
}

/// Whether the settings of a repository that a file is in, or the person's own, name it, or a folder above it: as more
/// settings, as hooks, or as a program.
fn is_named_by_git(home: Option<&Path>, file: &Path) -> bool {
    let of_repository = |folder: &Path| -> io::Result<bool> {
        let git = folder.join(".git");
        let git = if git.is_dir() { Some(git) } else { named_repository(&git)? };
        let Some(git) = git else { return Ok(false) };
        // Of a linked working tree, the settings are somewhere else.
        let shared = common_folder(&git)?.unwrap_or_else(|| git.clone());
        let settings = [shared.join("config"), git.join("config.worktree")];
        Ok(is_named_by_settings(home, file, [folder, &git], VecDeque::from(settings)))
    };
    let own = home.map(|home| [home.join(".gitconfig"), home.join(".config/git/config")]).into_iter().flatten();
    let other = std::env::var_os("XDG_CONFIG_HOME").map(|folder| Path::new(&folder).join("git/config"));
    let everywhere = own.chain(other).chain([PathBuf::from("/etc/gitconfig")]).collect();
    let Some(folder) = file.parent() else { return true };
    is_named_by_settings(home, file, [folder, folder], everywhere)
        || file.ancestors().skip(1).any(|folder| of_repository(folder).unwrap_or(true))
}

fn is_named_by_settings(
    home: Option<&Path>,
    file: &Path,
    [folder, git]: [&Path; 2],
    mut settings: VecDeque<PathBuf>,
) -> bool {
    for _ in 0..MAX_SETTINGS {
        let Some(at) = settings.pop_front() else { return false };
        // Git follows links, and names need not be UTF-8.
        let Some(real_at) = at.canonicalize().ok().filter(|at| at.is_file()) else { continue };
        // What can't be looked at may name anything.
        let Ok(text) = small_file::read_bytes(&real_at, MAX_SETTINGS_SIZE) else { return true };
        // A setting can go on in the next line, but not a comment.
        let joined = with_joined_lines(&text);
        for line in text.split(|byte| *byte == b'\n').chain(joined.split(|byte| *byte == b'\n')) {
            let Some(end) = line.iter().position(|byte| *byte == b'=') else { continue };
            let key = String::from_utf8_lossy(&line[..end]);
            // The header of a section can be on the same line.
            let key = key.rsplit(']').next().unwrap_or(&key).trim().to_ascii_lowercase();
            let words = line[end + 1..].split(|byte| b" \t\r\"'!;".contains(byte)).filter(|word| !word.is_empty());
            // A name can contain spaces.
            let whole = value_of(&line[end + 1..]);
            for word in words.chain([&*whole]).filter(|word| !word.is_empty()) {
                let is_elsewhere = word.starts_with(b"~") || word.starts_with(b"%(");
                let word = Path::new(OsStr::from_bytes(word));
                let in_home = word.strip_prefix("~").ok().zip(home).map(|(rest, home)| home.join(rest));
                if in_home.is_none() && is_elsewhere && matches!(&*key, "path" | "hookspath") {
                    // Where that leads only git knows.
                    return true;
                }
                let places = [at.parent().unwrap_or(git), git, folder].map(|place| place.join(word));
                for named in places.iter().chain(&in_home).filter_map(|place| real(place)) {
                    let is_all = named == folder || folder.starts_with(&named);
                    if file.starts_with(&named) && (key == "hookspath" || !is_all) {
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

fn with_joined_lines(text: &[u8]) -> Vec<u8> {
    let mut joined: Vec<u8> = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let content = line.strip_suffix(b"\n").unwrap_or(line);
        let content = content.strip_suffix(b"\r").unwrap_or(content);
        let escapes = content.iter().rev().take_while(|byte| **byte == b'\\').count();
        match escapes % 2 {
            1 => joined.extend(&content[..content.len() - 1]),
            _ => joined.extend(line),
        }
    }
    joined
}

/// A value as git takes it from a line: without comments, quotes and escapes.
fn value_of(text: &[u8]) -> Vec<u8> {
    let (mut value, mut kept, mut is_quoted) = (Vec::new(), 0, false);
    let mut bytes = text.trim_ascii_start().iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'#' | b';' if !is_quoted => break,
            b'\\' => {
                value.extend(bytes.next().map(|escaped| match escaped {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'b' => 8,
                    other => *other,
                }));
                kept = value.len();
            }
            byte => {
                value.push(*byte);
                if is_quoted || !byte.is_ascii_whitespace() {
                    kept = value.len();
                }
            }
        }
    }
    value.truncate(kept);
    value
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
        // Nor what makes a folder a repository, or is in one.
        fs::create_dir_all(at("fixtures/repo.git")).unwrap();
        fs::write(at("fixtures/repo.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        for path in
            ["docs/HEAD", "fixtures/repo.git/config", "fixtures/repo.git/hooks/update", "fixtures/repo.git/refs/x"]
        {
            assert!(!is(path), "{path}");
        }
        assert!(is("fixtures/a.txt") && is("docs/objects/a.txt"));
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
        // A name with spaces, in each way to write it.
        for settings in [
            "[core]\n\thooksPath = my hooks ; ours\n",
            "[core]\n\thooksPath = \"my hooks\"\n",
            "[core] hooksPath = my\" \"hooks\r\n",
            "# not joined \\\n[core]\n\thooksPath = my \\\nhooks\n",
            "[include]\n\tpath = ../my hooks/pre-commit\n",
        ] {
            fs::write(at(".git/config"), settings).unwrap();
            assert!(!is("my hooks/pre-commit"), "{settings}");
            assert!(is("new.ini"), "{settings}");
        }
        fs::write(at(".git/config"), "[core]\n\thooksPath = %(prefix)/hooks\n").unwrap();
        assert!(!is("new.ini"), "only git knows where that leads");
        // With a home, on one line, and in the person's own settings.
        let home = tempfile::tempdir().unwrap();
        let is_at_home =
            |path: &str| are_ordinary_for(Some(home.path()), folder.path(), &[at(path).display().to_string()]);
        symlink(folder.path(), home.path().join("ws")).unwrap();
        fs::write(at(".git/config"), "[include] path = ~/ws/team.ini\n").unwrap();
        fs::write(home.path().join(".gitconfig"), format!("[core]\n\tpager = !{}\n", at("src/page.py").display()))
            .unwrap();
        for path in ["team.ini", "more.ini", "src/page.py"] {
            assert!(!is_at_home(path), "{path}");
        }
        assert!(is_at_home("src/a.rs") && is_at_home("new.ini"));
        fs::write(at(".git/config"), "[include]\n\tpath = ~ann/team.ini\n").unwrap();
        assert!(!is_at_home("new.ini"), "only git knows where that leads");
        // Settings that aren't text, name a file through a name that isn't, or can't be read, are obeyed by git all the same.
        let odd = folder.path().join(OsStr::from_bytes(b"odd\xff"));
        symlink(at("src"), &odd).unwrap();
        let settings =
            [&b"# \xff\n[core]\n\thooksPath = tools/hooks\n\tpager = "[..], odd.as_os_str().as_bytes(), b"/a.rs\n"];
        fs::write(at(".git/config"), settings.concat()).unwrap();
        assert!(!is("tools/hooks/pre-commit") && !is("src/a.rs") && is("new.ini"));
        fs::rename(at(".git/config"), at(".git/real")).unwrap();
        symlink("real", at(".git/config")).unwrap();
        assert!(!is("tools/hooks/pre-commit") && is("new.ini"));
        fs::remove_file(at(".git/config")).unwrap();
        fs::File::create(at(".git/config")).unwrap().set_len(MAX_SETTINGS_SIZE + 1).unwrap();
        assert!(!is("new.ini"));
        fs::remove_file(at(".git/config")).unwrap();
        let two = ["new.txt", "out/x"].map(|path| at(path).display().to_string());
        assert!(!are_ordinary(folder.path(), &two));
        assert!(!are_ordinary(folder.path(), &[]));
    }
}
