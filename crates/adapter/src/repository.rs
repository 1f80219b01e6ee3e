//! Git repositories that a run inside walls works in. It can commit, but it can't leave anything behind that git would
//! execute outside, when the owner of the folder uses it next.
//!
//! A file can be kept from changing only if it is there. Those that git looks for, and that are not there, are created for as
//! long as the run works, with content that changes nothing.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{self, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use attache_os::{
    file_space::is_fuse,
    placeholder::{self, Placeholder},
    small_file,
};
use attache_protocol::env::Env;

use crate::{AdapterWalls, DriverRun, scratch::ScratchFolder};

/// Held while a run works in a folder.
#[derive(Debug, Default)]
pub struct GuardedRepository {
    /// What the run can only read: the settings, which name programs, the hooks, which are programs, and the files that
    /// say where both are.
    pub fixed: Vec<PathBuf>,
    placeholders: Vec<Placeholder>,
    /// Whether files are created, and repositories looked for below.
    is_local: bool,
    /// Lists the placeholders, for the next adapter to remove them if this process is killed.
    record: Option<ScratchFolder>,
}

/// How deep repositories are looked for, in how many folders, and how many are guarded. What is on a command line is
/// limited, so their paths are too.
const MAX_DEPTH: usize = 6;
const MAX_FOLDERS: usize = 2000;
const MAX_REPOSITORIES: usize = 512;
const MAX_PATHS: usize = 256 * 1024;

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
            let git = folder.join(".git");
            check_link(&git)?;
            for name in ["config", WORKTREE_SETTINGS, COMMON_FOLDER, "hooks"] {
                check_link(&git.join(name))?;
            }
            // First, so that nothing a run has made comes before it.
            if git.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                guarded.add(&git, (scratch, env))?;
            }
            // Bare.
            if ["HEAD", "objects", "refs"].iter().all(|name| folder.join(name).exists()) {
                guarded.add(folder, (scratch, env))?;
            }
            guarded.add_nested(folder, (scratch, env))?;
        }
        Ok(guarded)
    }

    /// Breadth first: the folder's own repository comes before those below. If there are too many folders, also the oldest
    /// first, because a run can make as many as it likes, but none that is older than what was there before it.
    fn add_nested(&mut self, root: &Path, at: (&Path, &Env)) -> io::Result<()> {
        match self.add_in_order(root, at, |_| None)? {
            SearchEnd::Complete => Ok(()),
            SearchEnd::TooManyFolders => self.add_in_order(root, at, created).map(drop),
        }
    }

    fn add_in_order(
        &mut self,
        root: &Path,
        at: (&Path, &Env),
        rank: impl Fn(&Path) -> Option<SystemTime>,
    ) -> io::Result<SearchEnd> {
        let mut folders = BTreeMap::from([((None, 0_usize), (root.to_owned(), 0))]);
        let (mut read, mut found_so_far) = (0, 0);
        while let Some((_, (folder, depth))) = folders.pop_first() {
            if read == MAX_FOLDERS {
                return Ok(SearchEnd::TooManyFolders);
            }
            read += 1;
            let git = folder.join(".git");
            match git.symlink_metadata() {
                Ok(found) if found.is_dir() => self.add(&git, at)?,
                // Of a linked working tree or a submodule: it says where the repository is.
                Ok(found) if found.is_file() => {
                    let target = named_repository(&git).filter(|target| target.starts_with(root));
                    self.fix(git);
                    if let Some(target) = target {
                        self.add(&target, at)?;
                    }
                }
                Ok(found) if found.is_symlink() => {
                    let target = git.canonicalize().ok().filter(|target| target.is_dir() && target.starts_with(root));
                    if let Some(target) = target {
                        self.add(&target, at)?;
                    }
                }
                _ => {}
            }
            if depth < MAX_DEPTH && self.is_local {
                for path in subfolders(&folder).filter(|path| !path.ends_with(".git")) {
                    found_so_far += 1;
                    folders.insert((rank(&path), found_so_far), (path, depth + 1));
                }
            }
        }
        Ok(SearchEnd::Complete)
    }

    /// Fails if there are more than can be kept from changing: those left out would be a way around the others.
    fn add(&mut self, git: &Path, at: (&Path, &Env)) -> io::Result<()> {
        if self.fixed.iter().any(|folder| git.starts_with(folder)) {
            return Ok(());
        }
        let length: usize = self.fixed.iter().map(|path| path.as_os_str().len()).sum();
        if self.fixed.len() >= MAX_REPOSITORIES * 6 || length >= MAX_PATHS {
            return Err(io::Error::other(format!(
                "{} exceeds the limit of git repositories below the task's folder; remove those that aren't needed",
                git.display()
            )));
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
        self.hold_objects(&git.join("objects"), at)?;
        self.add_modules(&git.join("modules"), MAX_DEPTH, at)
    }

    fn hold_objects(&mut self, objects: &Path, at: (&Path, &Env)) -> io::Result<()> {
        if !objects.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            return Ok(());
        }
        let info = objects.join("info");
        if self.is_local && info.symlink_metadata().is_err() {
            let _ = fs::create_dir(&info);
        }
        check_link(&info)?;
        for path in OTHER_OBJECTS.map(|name| info.join(name)) {
            check_link(&path)?;
            self.hold(path, NO_SETTINGS, at)?;
        }
        Ok(())
    }

    /// Git's own folder of a linked working tree.
    fn add_worktree(&mut self, worktree: &Path, at: (&Path, &Env)) -> io::Result<()> {
        self.fix(worktree.join(COMMON_FOLDER));
        self.fix(worktree.join("gitdir"));
        self.hold(worktree.join(WORKTREE_SETTINGS), NO_SETTINGS, at)?;
        self.add_modules(&worktree.join("modules"), MAX_DEPTH, at)
    }

    /// Submodules, whose names can contain slashes.
    fn add_modules(&mut self, modules: &Path, depth: usize, at: (&Path, &Env)) -> io::Result<()> {
        for folder in subfolders(modules) {
            if folder.join("HEAD").is_file() {
                self.add(&folder, at)?;
            } else if depth > 0 {
                self.add_modules(&folder, depth - 1, at)?;
            }
        }
        Ok(())
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
        std::os::unix::fs::symlink("/etc/passwd", &lists[0]).unwrap();
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
        std::os::unix::fs::symlink(root.join("modules"), root.join(".git/modules")).unwrap();
        fs::create_dir_all(root.join("sub/store")).unwrap();
        fs::write(root.join("sub/store/config"), "").unwrap();
        std::os::unix::fs::symlink("store", root.join("sub/.git")).unwrap();
        let guarded = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap();
        assert!(guarded.fixed.contains(&root.join("sub/store/config")));
        drop(guarded);
        make(1500);
        fs::create_dir_all(root.join("more/.git")).unwrap();
        let refused = GuardedRepository::new([root.as_path()], scratch.path(), &env).unwrap_err().to_string();
        assert!(refused.contains("exceeds the limit of git repositories"), "{refused}");
    }

    /// Nor can it make so many folders that another repository isn't found.
    #[test]
    fn older_repositories_are_found_among_many_folders() {
        let (folder, scratch, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Env::seeded(1));
        let root = folder.path().canonicalize().unwrap();
        let git = root.join("team/sub/lib/.git");
        fs::create_dir_all(&git).unwrap();
        fs::write(git.join("config"), "").unwrap();
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
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
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
