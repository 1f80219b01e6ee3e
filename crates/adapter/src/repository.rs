//! Git repositories that a run inside walls works in. It can commit, but it can't leave anything behind that git would
//! execute outside, when the owner of the folder uses it next.
//!
//! A file can be kept from changing only if it is there. Those that git looks for, and that are not there, are created for as
//! long as the run works, with content that changes nothing.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{self, Read as _, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::SystemTime,
};

use attache_os::{
    file_space::is_fuse,
    placeholder::{self, Placeholder},
    process_tree, program, small_file,
};
use attache_protocol::env::Env;

use crate::{AdapterWalls, DriverRun, scratch::ScratchFolder};

/// Held while a run works in a folder.
#[derive(Debug, Default)]
pub struct GuardedRepository {
    /// What the run can only read: the settings, which name programs, the hooks, which are programs, and the files that
    /// say where both are.
    pub fixed: Vec<PathBuf>,
    /// How many repositories are left out: those below the folder that were made last, if there are too many.
    pub left_out: usize,
    placeholders: Vec<Placeholder>,
    /// The folders that the run can change.
    roots: Vec<PathBuf>,
    /// Whether files are created, and repositories looked for below.
    is_local: bool,
    /// Lists the placeholders, for the next adapter to remove them if this process is killed.
    record: Option<ScratchFolder>,
}

/// How deep repositories are looked for, in how many folders, and how many paths are fixed. What is on a command line is
/// limited, so their length is too.
const MAX_DEPTH: usize = 6;
const MAX_FOLDERS: usize = 2000;
const MAX_FIXED: usize = 3072;
const MAX_PATHS: usize = 256 * 1024;

/// How many files of settings are looked at in one repository, and how many bytes of each.
const MAX_INCLUDED: usize = 64;
const MAX_SETTINGS: u64 = 1 << 20;

/// Whether a search for repositories has seen every folder.
enum SearchEnd {
    Complete,
    TooManyFolders,
}

/// Programs; where remotes lead, because a push to a folder runs that folder's programs; and git's own folders of linked
/// working trees, which say where their settings are. Others make such folders while a run works.
const FOLDERS: [&str; 4] = ["hooks", "remotes", "branches", "worktrees"];

/// Where other objects are. If it leads to another file, git prints lines of that.
const OTHER_OBJECTS: [&str; 2] = ["alternates", "http-alternates"];

/// The file in the record's folder. Each path ends with a zero byte, which no name has.
const RECORD: &str = "placeholders";
const MAX_RECORD: u64 = 4 << 20;

/// The settings of one working tree. Git reads it only where an extension is on, but some commands turn that on.
const WORKTREE_SETTINGS: &str = "config.worktree";
const NO_SETTINGS: &str = "# Created by Attaché while it runs something here. It can be deleted afterwards.\n";

/// Where the rest of the repository is. The dot says: here.
const COMMON_FOLDER: &str = "commondir";
const HERE: &str = ".\n";

/// The length of a file that only says where something is.
pub(crate) const MAX_POINTER: u64 = 8 * 1024;

/// Removes the placeholders that a killed process left behind.
pub(crate) fn tidy(record: &Path) {
    // A run could write there, too: a pipe would block, and a huge file fill the memory.
    let listed = small_file::read_bytes(&record.join(RECORD), MAX_RECORD).unwrap_or_default();
    // What isn't complete was being written when the process ended, before the file was created.
    for path in listed.split_inclusive(|byte| *byte == 0).filter_map(|path| path.strip_suffix(&[0])) {
        let path = Path::new(OsStr::from_bytes(path));
        let content = if path.ends_with(COMMON_FOLDER) { HERE } else { NO_SETTINGS };
        if let Err(error) = placeholder::remove_unused(path, content) {
            tracing::warn!(path = %path.display(), %error, "couldn't remove a placeholder");
        }
    }
}

// === impl GuardedRepository ===

impl GuardedRepository {
    /// Those of a run inside these walls. Without namespaces nothing can be fixed.
    pub(crate) fn of_run(walls: &AdapterWalls, job: &DriverRun) -> io::Result<Self> {
        match walls.launcher.has_namespaces() {
            true => {
                let at = (job.scratch.as_path(), &job.env);
                let mut guarded = Self::new([job.real_folder()?.as_path()], at.0, at.1)?;
                if guarded.left_out > 0 {
                    let message = format!(
                        "{} git repositories below the folder aren't protected, because there are too many; remove those that \
                         aren't needed",
                        guarded.left_out
                    );
                    job.events.log("warning", message);
                }
                if let Some(worktree) = &job.worktree {
                    guarded.add_worktree(&worktree.admin, at)?;
                }
                Ok(guarded)
            }
            false => Ok(Self::default()),
        }
    }

    /// The repositories of these folders, which are canonical, and those below them. Fails if a link would lead to
    /// settings or hooks, because the run could replace it.
    pub fn new<'a>(folders: impl IntoIterator<Item = &'a Path>, scratch: &Path, env: &Env) -> io::Result<Self> {
        let mut guarded = Self::default();
        for folder in folders {
            // What is mounted from another machine takes time at each look. A delegator guards its repositories itself, and
            // reports what is tried.
            guarded.is_local = !is_fuse(folder);
            guarded.roots.push(folder.to_owned());
            let git = folder.join(".git");
            check_link(&git)?;
            for name in ["config", WORKTREE_SETTINGS, COMMON_FOLDER, "hooks"] {
                check_link(&git.join(name))?;
            }
            // First, so that nothing a run has made comes before it.
            let is_folder = git.symlink_metadata().is_ok_and(|found| found.is_dir());
            // Bare.
            let is_bare = ["HEAD", "objects", "refs"].iter().all(|name| folder.join(name).exists());
            let own: Vec<PathBuf> = [(is_folder, git), (is_bare, folder.to_owned())]
                .into_iter()
                .filter_map(|(is_one, git)| is_one.then_some(git))
                .collect();
            for git in &own {
                check_link(&git.join("objects/info"))?;
                OTHER_OBJECTS.iter().try_for_each(|name| check_link(&git.join("objects/info").join(name)))?;
                guarded.add(git, (scratch, env))?;
            }
            guarded.add_nested(folder, own, (scratch, env))?;
        }
        Ok(guarded)
    }

    /// Breadth first: the folder's own repository comes before those below. If there are too many folders or repositories, the
    /// oldest first, because a run can make as many as it likes, but none that is older than what was there before it. The
    /// others are left out: if the next run didn't start because of them, a run could stop all that come after it.
    fn add_nested(&mut self, root: &Path, own: Vec<PathBuf>, at: (&Path, &Env)) -> io::Result<()> {
        let mut found = own;
        if let SearchEnd::TooManyFolders = self.find_in_order(root, &mut found, |_| None) {
            self.find_in_order(root, &mut found, created);
        }
        let modules: Vec<PathBuf> = found.iter().flat_map(|git| modules(&git.join("modules"), MAX_DEPTH)).collect();
        self.add_oldest(found.into_iter().chain(modules).collect(), at)
    }

    fn add_oldest(&mut self, mut found: Vec<PathBuf>, at: (&Path, &Env)) -> io::Result<()> {
        found.sort_by_cached_key(|git| (created(git), git.clone()));
        found.dedup();
        found.iter().try_for_each(|git| self.add(git, at))
    }

    fn find_in_order(
        &mut self,
        root: &Path,
        found: &mut Vec<PathBuf>,
        rank: impl Fn(&Path) -> Option<SystemTime>,
    ) -> SearchEnd {
        let mut folders = BTreeMap::from([((None, 0_usize), (root.to_owned(), 0))]);
        let (mut read, mut seen) = (0, 0);
        while let Some((_, (folder, depth))) = folders.pop_first() {
            if read == MAX_FOLDERS {
                return SearchEnd::TooManyFolders;
            }
            read += 1;
            let git = folder.join(".git");
            match git.symlink_metadata() {
                // Git takes no other folder for a repository.
                Ok(kind) if kind.is_dir() && git.join("HEAD").symlink_metadata().is_ok() => found.push(git),
                // Of a linked working tree or a submodule: it says where the repository is.
                Ok(kind) if kind.is_file() => {
                    found.extend(named_repository(&git).filter(|target| target.starts_with(root)));
                    found.push(git);
                }
                Ok(kind) if kind.is_symlink() => {
                    found.extend(git.canonicalize().ok().filter(|target| target.is_dir() && target.starts_with(root)));
                }
                _ => {}
            }
            if depth < MAX_DEPTH && self.is_local {
                for path in subfolders(&folder).filter(|path| !path.ends_with(".git")) {
                    seen += 1;
                    folders.insert((rank(&path), seen), (path, depth + 1));
                }
            }
        }
        SearchEnd::Complete
    }

    fn is_full(&self) -> bool {
        let length: usize = self.fixed.iter().map(|path| path.as_os_str().len()).sum();
        self.fixed.len() >= MAX_FIXED || length >= MAX_PATHS
    }

    /// A repository without its submodules, or a file that says where one is.
    fn add(&mut self, git: &Path, at: (&Path, &Env)) -> io::Result<()> {
        if self.fixed.iter().any(|fixed| git.starts_with(fixed) || *fixed == git.join("hooks")) {
            return Ok(());
        }
        if self.is_full() {
            self.left_out += 1;
            return Ok(());
        }
        if git.symlink_metadata().is_ok_and(|found| found.is_file()) {
            self.fix(git.to_owned());
            return Ok(());
        }
        for name in FOLDERS {
            let folder = git.join(name);
            if self.is_local && folder.symlink_metadata().is_err() {
                let _ = fs::create_dir(&folder);
            }
            self.fix(folder);
        }
        self.hold(git.join("config"), NO_SETTINGS, at)?;
        self.hold(git.join(WORKTREE_SETTINGS), NO_SETTINGS, at)?;
        self.hold(git.join(COMMON_FOLDER), HERE, at)?;
        self.hold_included(git, at)?;
        self.hold_objects(&git.join("objects"), at)
    }

    /// The files that the settings include, whatever the condition.
    fn hold_included(&mut self, git: &Path, at: (&Path, &Env)) -> io::Result<()> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let mut settings = vec![git.join("config"), git.join(WORKTREE_SETTINGS)];
        let mut seen = 0;
        while let Some(file) = settings.pop().filter(|_| seen < MAX_INCLUDED) {
            seen += 1;
            for included in included(&file, home.as_deref()) {
                let is_inside = self.roots.iter().any(|root| included.starts_with(root));
                if is_inside && !self.fixed.contains(&included) {
                    self.hold(included.clone(), NO_SETTINGS, at)?;
                    settings.push(included);
                }
            }
        }
        Ok(())
    }

    fn hold_objects(&mut self, objects: &Path, at: (&Path, &Env)) -> io::Result<()> {
        if !objects.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            return Ok(());
        }
        let info = objects.join("info");
        if self.is_local && info.symlink_metadata().is_err() {
            let _ = fs::create_dir(&info);
        }
        // Those of the folder's own repository were looked at before. A run can make links in one that it made itself.
        let is_led_elsewhere = info.read_link().is_ok();
        let lists = OTHER_OBJECTS
            .map(|name| info.join(name))
            .into_iter()
            .filter(|list| !is_led_elsewhere && list.read_link().is_err());
        lists.into_iter().try_for_each(|list| self.hold(list, NO_SETTINGS, at))
    }

    /// Git's own folder of a linked working tree.
    fn add_worktree(&mut self, worktree: &Path, at: (&Path, &Env)) -> io::Result<()> {
        self.fix(worktree.join(COMMON_FOLDER));
        self.fix(worktree.join("gitdir"));
        self.hold(worktree.join(WORKTREE_SETTINGS), NO_SETTINGS, at)?;
        self.add_oldest(modules(&worktree.join("modules"), MAX_DEPTH), at)
    }

    /// A link could lead to anything, and would be followed.
    fn fix(&mut self, path: PathBuf) {
        let is_own = path.symlink_metadata().is_ok_and(|found| !found.is_symlink());
        if is_own && !self.fixed.contains(&path) {
            self.fixed.push(path);
        }
    }

    /// Fixes the file, and creates it if it isn't there.
    fn hold(&mut self, path: PathBuf, content: &'static str, (scratch, env): (&Path, &Env)) -> io::Result<()> {
        if self.fixed.contains(&path) {
            return Ok(());
        }
        if !self.is_local {
            self.fix(path);
            return Ok(());
        }
        if self.record.is_none() {
            self.record = Some(ScratchFolder::create(scratch, env)?);
        }
        if let Some(record) = &self.record {
            // Listed first: the process can be killed at any time.
            let mut list = fs::OpenOptions::new().create(true).append(true).open(record.file(RECORD))?;
            list.write_all(&[path.as_os_str().as_bytes(), &[0]].concat())?;
            let unique = format!("attache-{}", env.uuid().simple());
            // Where it can't be created, the run can't either.
            self.placeholders.extend(Placeholder::hold(&path, content, &unique).ok().flatten());
        }
        self.fix(path);
        Ok(())
    }
}

/// Submodules, whose names can contain slashes, and theirs.
fn modules(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in subfolders(folder) {
        let is_one = folder.join("HEAD").symlink_metadata().is_ok();
        if depth > 0 {
            let below = if is_one { folder.join("modules") } else { folder.clone() };
            found.extend(modules(&below, depth - 1));
        }
        if is_one {
            found.push(folder);
        }
    }
    found
}

/// The files that a file of settings includes, whatever the condition.
fn included(file: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let named = || -> Option<Vec<u8>> {
        let text = small_file::read_bytes(file, MAX_SETTINGS).ok()?;
        if !text.to_ascii_lowercase().windows(7).any(|word| word == b"include") {
            return None;
        }
        let mut git = Command::new(program::find("git")?);
        git.args(["config", "--no-includes", "--null", "--file", "-", "--get-regexp", r"^include(if\..*)?\.path$"]);
        git.env_clear().env("PATH", program::SYSTEM_PATH).env("GIT_DIR", "/nonexistent").current_dir("/");
        git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = process_tree::start_blocking(&mut git).ok()?;
        // Git reads all of it before it prints anything.
        let written = child.stdin.take()?.write_all(&text);
        let mut listed = Vec::new();
        let read = child.stdout.take()?.read_to_end(&mut listed);
        child.wait().ok()?;
        (written.is_ok() && read.is_ok()).then_some(listed)
    };
    let listed = named().unwrap_or_default();
    let values = listed.split(|byte| *byte == 0).filter_map(|entry| entry.splitn(2, |byte| *byte == b'\n').nth(1));
    let place = |value: &[u8]| {
        let value = Path::new(OsStr::from_bytes(value));
        let path = match (value.strip_prefix("~"), home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => file.parent()?.join(value),
        };
        // What isn't there yet could be made.
        Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
    };
    values.filter_map(place).collect()
}

fn check_link(path: &Path) -> io::Result<()> {
    let Ok(target) = path.read_link() else { return Ok(()) };
    let target = path.canonicalize().unwrap_or(target);
    let instead = match path.file_name().and_then(|name| name.to_str()) {
        Some(".git") => format!("put a file there instead: echo 'gitdir: {}' > .git", target.display()),
        Some("hooks") => format!("remove it and use `git config core.hooksPath {}`", target.display()),
        _ => "put the file itself there".to_owned(),
    };
    Err(io::Error::other(format!("{} is a link, which the task could replace; {instead}", path.display())))
}

/// The working tree around a folder, and its `.git`. Git looks further up where a folder `.git` isn't a repository; a file
/// ends its search, wherever that leads.
pub(crate) fn repository_around(folder: &Path) -> Option<(&Path, PathBuf)> {
    let is_repository = |git: &Path| {
        let has_objects = git.join("objects").is_dir() && git.join("refs").is_dir();
        git.join("HEAD").symlink_metadata().is_ok() && (has_objects || common_folder(git).is_some())
    };
    folder.ancestors().map(|top| (top, top.join(".git"))).find(|(_, git)| match git.metadata() {
        Ok(found) if found.is_dir() => is_repository(git),
        found => found.is_ok(),
    })
}

/// Where a file `.git` leads.
pub(crate) fn named_repository(file: &Path) -> Option<PathBuf> {
    let text = small_file::read_bytes(&file.canonicalize().ok()?, MAX_POINTER).ok()?;
    let target = without_line_end(text.strip_prefix(b"gitdir: ")?);
    file.parent()?.join(target).canonicalize().ok().filter(|target| target.is_dir())
}

/// Where the rest of a repository is, if it says so.
pub(crate) fn common_folder(git: &Path) -> Option<PathBuf> {
    let text = small_file::read_bytes(&git.join(COMMON_FOLDER), MAX_POINTER).ok()?;
    Some(git.join(without_line_end(&text)))
}

/// As git takes it.
fn without_line_end(text: &[u8]) -> &OsStr {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    OsStr::from_bytes(&text[..end])
}

/// When a folder was made. No program can change that.
fn created(folder: &Path) -> Option<SystemTime> {
    folder.symlink_metadata().ok()?.created().ok()
}

/// Of the folder itself, not of one that a link leads to.
fn subfolders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let is_own = folder.symlink_metadata().is_ok_and(|found| found.is_dir());
    let entries = is_own.then(|| fs::read_dir(folder)).into_iter().flatten().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn everything_that_leads_git_to_programs_is_fixed_and_nothing_stays() {
        let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
        let root = folder.path().canonicalize().unwrap();
        assert_eq!(
            GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap().fixed,
            Vec::<PathBuf>::new()
        );
        for repository in [".git", ".git/modules/lib/sub", "nested/.git", ".git/worktrees/other"] {
            fs::create_dir_all(root.join(repository)).unwrap();
            for file in ["HEAD", "config"] {
                fs::write(root.join(repository).join(file), "").unwrap();
            }
        }
        fs::write(root.join(".git/worktrees/other/commondir"), "../..").unwrap();
        fs::create_dir_all(root.join("lib/sub")).unwrap();
        fs::write(root.join("lib/sub/.git"), "gitdir: ../../.git/modules/lib/sub\n").unwrap();
        let own = || {
            let mut found: Vec<_> =
                walk(&root).into_iter().filter(|path| !FOLDERS.iter().any(|name| path.ends_with(name))).collect();
            found.sort();
            found
        };
        let before = own();
        let guarded = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        let mut fixed = guarded.fixed.clone();
        fixed.sort();
        let mut expected = vec![root.join("lib/sub/.git")];
        for repository in [".git", ".git/modules/lib/sub", "nested/.git"] {
            let names = ["hooks", "remotes", "branches", "worktrees", "config", "config.worktree", "commondir"];
            expected.extend(names.map(|name| root.join(repository).join(name)));
        }
        expected.sort();
        assert_eq!(fixed, expected);
        assert_eq!(fs::read_to_string(root.join(".git/commondir")).unwrap(), ".\n");
        // The next one shares them.
        let second = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        drop(guarded);
        assert!(root.join(".git/commondir").exists());
        drop(second);
        assert_eq!(own(), before);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    /// Git would print lines of what it leads to.
    #[test]
    fn what_leads_to_other_objects_is_fixed() {
        let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".git/objects")).unwrap();
        let lists = OTHER_OBJECTS.map(|name| root.join(".git/objects/info").join(name));
        let guarded = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        for list in &lists {
            assert!(guarded.fixed.contains(list) && list.is_file(), "{guarded:?}");
        }
        drop(guarded);
        assert!(lists.iter().all(|list| !list.exists()));
        symlink("/etc/passwd", &lists[0]).unwrap();
        let refused = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap_err().to_string();
        assert!(refused.contains("info/alternates is a link"), "{refused}");
    }

    /// A run could make so many that the folder's own was left out.
    #[test]
    fn the_folders_own_repository_is_always_fixed() {
        let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
        let root = folder.path().canonicalize().unwrap();
        for name in ["objects", "refs", "HEAD", ".git"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        fs::write(root.join(".git/config"), "").unwrap();
        let long = "x".repeat(200);
        let make = |count: usize| {
            for number in 0..count {
                let module = root.join(format!("modules/{long}{number}"));
                fs::create_dir_all(&module).unwrap();
                fs::write(module.join("HEAD"), "").unwrap();
            }
        };
        make(60);
        let guarded = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        assert!(guarded.fixed.contains(&root.join(".git/config")));
        assert!(guarded.fixed.contains(&root.join(".git/remotes")));
        drop(guarded);
        // Links lead nowhere, and too many are refused rather than left out.
        symlink(root.join("modules"), root.join(".git/modules")).unwrap();
        fs::create_dir_all(root.join("sub/store")).unwrap();
        fs::write(root.join("sub/store/config"), "").unwrap();
        symlink("store", root.join("sub/.git")).unwrap();
        let guarded = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        assert!(guarded.fixed.contains(&root.join("sub/store/config")));
        drop(guarded);
        // Otherwise no later run could start.
        make(1500);
        let guarded = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        for own in [".git/config", ".git/remotes", "config", "sub/store/config"] {
            assert!(guarded.fixed.contains(&root.join(own)), "{own}");
        }
        assert!(guarded.left_out > 1000, "{}", guarded.left_out);
    }

    /// A run changes them, and git obeys them outside.
    #[test]
    fn what_the_settings_include_is_fixed() {
        let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".git/deep")).unwrap();
        symlink("deep", root.join(".git/link")).unwrap();
        let settings = "[include]\n\tpath = more\n\tpath = ../team.ini\n\tpath = /etc/passwd\n[IncludeIf \"onbranch:x\"]\n\tpath = link/later\n";
        fs::write(root.join(".git/config"), settings).unwrap();
        fs::write(root.join(".git/more"), "[include]\n\tpath = even-more\n").unwrap();
        fs::write(root.join("team.ini"), "").unwrap();
        let guarded = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        for name in [".git/more", ".git/even-more", ".git/deep/later", "team.ini"] {
            assert!(guarded.fixed.contains(&root.join(name)) && root.join(name).is_file(), "{name} {guarded:?}");
        }
        assert!(!guarded.fixed.contains(&PathBuf::from("/etc/passwd")));
        drop(guarded);
        assert!(!root.join(".git/even-more").exists() && !root.join(".git/deep/later").exists());
    }

    /// Nor does a link in a repository that a run made keep the next one from starting.
    #[test]
    fn what_is_no_repository_does_not_count() {
        let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("empty/.git")).unwrap();
        fs::create_dir_all(root.join("led/.git/objects/info")).unwrap();
        fs::write(root.join("led/.git/HEAD"), "").unwrap();
        symlink("/etc/passwd", root.join("led/.git/objects/info/alternates")).unwrap();
        let guarded = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        assert!(guarded.fixed.contains(&root.join("led/.git/hooks")));
        assert!(guarded.fixed.iter().all(|path| !path.starts_with(root.join("empty"))), "{guarded:?}");
    }

    /// Nor can it make so many folders that another repository isn't found.
    #[test]
    fn older_repositories_are_found_among_many_folders() {
        let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
        let root = folder.path().canonicalize().unwrap();
        let git = root.join("team/sub/lib/.git");
        fs::create_dir_all(&git).unwrap();
        fs::write(git.join("config"), "").unwrap();
        fs::write(git.join("HEAD"), "").unwrap();
        let before = created(&git).expect("this file system knows when a folder was made");
        let later = || {
            let probe = root.join("probe");
            fs::create_dir(&probe).unwrap();
            let is_later = created(&probe).unwrap() > before;
            fs::remove_dir(&probe).unwrap();
            is_later
        };
        while !later() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for number in 0..=MAX_FOLDERS {
            fs::create_dir(root.join(format!("d{number}"))).unwrap();
        }
        let guarded = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        assert!(guarded.fixed.contains(&git.join("config")));
    }

    #[test]
    fn what_a_killed_process_left_is_removed_by_its_record() {
        let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        fs::write(root.join(".git/config"), "").unwrap();
        let guarded = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        let record = guarded.record.as_ref().unwrap().path().to_owned();
        tidy(&record);
        assert!(root.join(".git/commondir").exists(), "it is still held");
        let copy = scratch.path().join("copy");
        fs::create_dir(&copy).unwrap();
        fs::copy(record.join(RECORD), copy.join(RECORD)).unwrap();
        drop(guarded);
        fs::write(root.join(".git/commondir"), HERE).unwrap();
        fs::write(root.join(".git/config.worktree"), "[core]\n").unwrap();
        tidy(&copy);
        assert!(!root.join(".git/commondir").exists());
        assert!(root.join(".git/config.worktree").exists() && root.join(".git/config").exists(), "not ours");
        // What a run put there doesn't stop the next adapter.
        fs::remove_file(copy.join(RECORD)).unwrap();
        let private = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, copy.join(RECORD), rustix::fs::FileType::Fifo, private, 0).unwrap();
        tidy(&copy);
    }

    /// What isn't text leads git somewhere all the same, and is cleaned up as well.
    #[test]
    fn names_that_are_not_utf8_are_guarded_like_others() {
        let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
        let root = folder.path().canonicalize().unwrap();
        let store = root.join(OsStr::from_bytes(b"store\n\xff"));
        fs::create_dir(&store).unwrap();
        fs::write(store.join("config"), "").unwrap();
        fs::create_dir(root.join("linked")).unwrap();
        let pointer = [b"gitdir: ", store.as_os_str().as_bytes(), b"\n"].concat();
        fs::write(root.join("linked/.git"), pointer).unwrap();
        let guarded = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        let mut fixed = guarded.fixed.clone();
        fixed.sort();
        let mut expected = vec![root.join("linked/.git")];
        let names = ["branches", "commondir", "config", "config.worktree", "hooks", "remotes", "worktrees"];
        expected.extend(names.map(|name| store.join(name)));
        assert_eq!(fixed, expected);
        // As after a crash.
        let copy = scratch.path().join("copy");
        fs::create_dir(&copy).unwrap();
        fs::copy(guarded.record.as_ref().unwrap().path().join(RECORD), copy.join(RECORD)).unwrap();
        drop(guarded);
        fs::write(store.join(COMMON_FOLDER), HERE).unwrap();
        tidy(&copy);
        assert!(!store.join(COMMON_FOLDER).exists());
    }

    #[test]
    fn a_link_is_refused_because_the_run_could_replace_it() {
        let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        let link = |target: &str, name: &str| symlink(target, root.join(name)).unwrap();
        let refused = || GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap_err().to_string();
        link("real", ".git");
        let remedy = format!("put a file there instead: echo 'gitdir: {}/real' > .git", root.display());
        assert!(refused().ends_with(&remedy), "{}", refused());
        fs::remove_file(root.join(".git")).unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        link("../real", ".git/hooks");
        let remedy = format!("remove it and use `git config core.hooksPath {}/real`", root.display());
        assert!(refused().ends_with(&remedy), "{}", refused());
    }

    fn walk(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        entries
            .flat_map(|path| if path.is_dir() { [vec![path.clone()], walk(&path)].concat() } else { vec![path] })
            .collect()
    }
}
