//! Git repositories that a run inside walls works in. It can commit, but it can't leave anything behind that git would
//! execute outside, when the owner of the folder uses it next.
//!
//! A file can be kept from changing only if it is there. Those that git looks for, and that are not there, are created for as
//! long as the run works, with content that changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
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
    look_up,
    placeholder::{self, Placeholder},
    process_tree, program, small_file,
};
use attache_protocol::env::Env;
use attache_workspace::export::REPOSITORIES;
use rustix::io::Errno;

use crate::{AdapterWalls, DriverRun, scratch::ScratchFolder};

/// Held while a run works in a folder.
#[derive(Debug, Default)]
pub struct GuardedRepository {
    /// What the run can only read: the settings, which name programs, the hooks, which are programs, and the files that
    /// say where both are.
    pub fixed: Vec<PathBuf>,
    /// How many repositories are left out: those below the folder that were made last, if there are too many.
    pub left_out: usize,
    /// Links through which settings of repositories below include files. A run may have made such a repository itself.
    pub exposed: Vec<PathBuf>,
    placeholders: Vec<Placeholder>,
    /// Folders that were made for placeholders, from the outside in.
    made: Vec<PathBuf>,
    /// What the run doesn't see.
    hidden: Vec<PathBuf>,
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

/// What happens if settings include a file through a link in the folder, which the run could replace.
#[derive(Clone, Copy)]
enum LinkedInclude {
    /// Nothing starts.
    Refuse,
    /// People are told: a run could make such a repository, and keep all later runs from starting.
    Expose,
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
                let cwd = job.real_folder()?;
                let hidden = job.hidden_from_git(&cwd);
                let mut guarded = Self::new([cwd.as_path()], &hidden, at.0, at.1)?;
                if guarded.left_out > 0 {
                    let message = format!(
                        "{} git repositories below the folder aren't protected, because there are too many; remove those that \
                         aren't needed",
                        guarded.left_out
                    );
                    job.events.log("warning", message);
                }
                for link in &guarded.exposed {
                    let message = format!(
                        "{} isn't protected: settings of a git repository below the folder include a file through this link",
                        link.display()
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

    /// The repositories of these folders, which are canonical, and those below them that aren't in a hidden one. Fails if a
    /// link would lead to settings or hooks, because the run could replace it.
    pub fn new<'a>(
        folders: impl IntoIterator<Item = &'a Path>,
        hidden: &[PathBuf],
        scratch: &Path,
        env: &Env,
    ) -> io::Result<Self> {
        let mut guarded = Self::default();
        for path in hidden {
            guarded.hidden.extend(look_up::real_path(path)?);
        }
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
            let mut own = Vec::new();
            if look_up::is_folder(&git)? {
                own.push(git);
            }
            if is_bare(folder)? {
                own.push(folder.to_owned());
            }
            for git in &own {
                check_link(&git.join("objects/info"))?;
                OTHER_OBJECTS.iter().try_for_each(|name| check_link(&git.join("objects/info").join(name)))?;
                guarded.add(git, LinkedInclude::Refuse, (scratch, env))?;
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
        if let SearchEnd::TooManyFolders = self.find_in_order(root, &mut found, |_| None)? {
            self.find_in_order(root, &mut found, created)?;
        }
        let mut modules = Vec::new();
        for git in &found {
            modules.extend(self::modules(&git.join("modules"), MAX_DEPTH)?);
        }
        self.add_oldest(found.into_iter().chain(modules).collect(), at)
    }

    fn add_oldest(&mut self, mut found: Vec<PathBuf>, at: (&Path, &Env)) -> io::Result<()> {
        found.sort_by_cached_key(|git| (created(git), git.clone()));
        found.dedup();
        found.iter().try_for_each(|git| self.add(git, LinkedInclude::Expose, at))
    }

    fn find_in_order(
        &mut self,
        root: &Path,
        found: &mut Vec<PathBuf>,
        rank: impl Fn(&Path) -> Option<SystemTime>,
    ) -> io::Result<SearchEnd> {
        let mut folders = BTreeMap::from([((None, 0_usize), (root.to_owned(), 0))]);
        let (mut read, mut seen) = (0, 0);
        while let Some((_, (folder, depth))) = folders.pop_first() {
            if read == MAX_FOLDERS {
                return Ok(SearchEnd::TooManyFolders);
            }
            read += 1;
            let git = folder.join(".git");
            match look_up::metadata(&git)?.map(|found| found.file_type()) {
                // Git takes no other folder for a repository.
                Some(kind) if kind.is_dir() && look_up::is_there(&git.join("HEAD"))? => found.push(git),
                // Of a linked working tree or a submodule: it says where the repository is.
                Some(kind) if kind.is_file() => {
                    found.extend(named_repository(&git)?.filter(|target| target.starts_with(root)));
                    found.push(git);
                }
                Some(kind) if kind.is_symlink() => {
                    let target = look_up::real_path(&git)?;
                    found.extend(target.filter(|target| target.is_dir() && target.starts_with(root)));
                }
                _ => {}
            }
            if depth > 0 && is_bare(&folder)? {
                found.push(folder.clone());
            }
            if depth < MAX_DEPTH && self.is_local {
                // A run can make any folder look like a bare repository, so only what nobody has there is passed by.
                let is_objects =
                    folder.ends_with("objects") && folder.parent().is_some_and(|git| found.iter().any(|it| it == git));
                for path in subfolders(&folder)? {
                    let is_git =
                        path.ends_with(".git") || is_objects && path.file_name().is_some_and(|name| name.len() == 2);
                    if !is_git && !self.is_hidden(&path) {
                        seen += 1;
                        folders.insert((rank(&path), seen), (path, depth + 1));
                    }
                }
            }
        }
        Ok(SearchEnd::Complete)
    }

    /// In a hidden folder of which the working folder isn't a part.
    fn is_hidden(&self, path: &Path) -> bool {
        self.hidden.iter().any(|hidden| {
            path.starts_with(hidden) && !self.roots.iter().any(|root| root != hidden && root.starts_with(hidden))
        })
    }

    fn is_full(&self) -> bool {
        let length: usize = self.fixed.iter().map(|path| path.as_os_str().len()).sum();
        self.fixed.len() >= MAX_FIXED || length >= MAX_PATHS
    }

    /// A repository without its submodules, or a file that says where one is.
    fn add(&mut self, git: &Path, links: LinkedInclude, at: (&Path, &Env)) -> io::Result<()> {
        if self.is_hidden(git) || self.fixed.iter().any(|fixed| git.starts_with(fixed) || *fixed == git.join("hooks")) {
            return Ok(());
        }
        if self.is_full() {
            self.left_out += 1;
            return Ok(());
        }
        if look_up::metadata(git)?.is_some_and(|found| found.is_file()) {
            return self.fix(git.to_owned());
        }
        for name in FOLDERS {
            self.create_folder(&git.join(name))?;
            self.fix(git.join(name))?;
        }
        self.hold(git.join("config"), NO_SETTINGS, at)?;
        self.hold(git.join(WORKTREE_SETTINGS), NO_SETTINGS, at)?;
        self.hold(git.join(COMMON_FOLDER), HERE, at)?;
        self.hold_included(git, links, at)?;
        self.hold_objects(&git.join("objects"), at)
    }

    /// The files that the settings include, whatever the condition, and the folders that they would be in.
    fn hold_included(&mut self, git: &Path, links: LinkedInclude, at: (&Path, &Env)) -> io::Result<()> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        // As git names them, because what they include is named from there, and where they are.
        let named = |name: &str| (git.join(name), git.join(name));
        let mut settings = vec![named("config"), named(WORKTREE_SETTINGS)];
        let mut seen = BTreeSet::new();
        while let Some((name, file)) = settings.pop().filter(|_| seen.len() < MAX_INCLUDED) {
            for included in included(&name, &file, home.as_deref())? {
                // Git doesn't follow that many links, either.
                let Some(way) = program::way(&included) else { continue };
                let Some(target) = way.last().filter(|target| seen.insert(target.to_path_buf())).cloned() else {
                    continue;
                };
                for step in way {
                    if self.is_inside(&step) && look_up::metadata(&step)?.is_some_and(|found| found.is_symlink()) {
                        match links {
                            LinkedInclude::Refuse => return Err(linked_include(&name, &step)),
                            LinkedInclude::Expose => self.exposed.push(step),
                        }
                    }
                }
                if self.is_inside(&target) {
                    self.create_way(&target)?;
                    self.hold(target.clone(), NO_SETTINGS, at)?;
                }
                settings.push((included, target));
            }
        }
        Ok(())
    }

    fn is_inside(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path != root && path.starts_with(root)) && !self.is_hidden(path)
    }

    fn hold_objects(&mut self, objects: &Path, at: (&Path, &Env)) -> io::Result<()> {
        if !look_up::is_folder(objects)? {
            return Ok(());
        }
        let info = objects.join("info");
        self.create_folder(&info)?;
        // Those of the folder's own repository were looked at before. A run can make links in one that it made itself.
        if look_up::is_folder(&info)? {
            for list in OTHER_OBJECTS.map(|name| info.join(name)) {
                if !look_up::metadata(&list)?.is_some_and(|found| found.is_symlink()) {
                    self.hold(list, NO_SETTINGS, at)?;
                }
            }
        }
        Ok(())
    }

    /// Git's own folder of a linked working tree.
    fn add_worktree(&mut self, worktree: &Path, at: (&Path, &Env)) -> io::Result<()> {
        self.fix(worktree.join(COMMON_FOLDER))?;
        self.fix(worktree.join("gitdir"))?;
        self.hold(worktree.join(WORKTREE_SETTINGS), NO_SETTINGS, at)?;
        self.add_oldest(modules(&worktree.join("modules"), MAX_DEPTH)?, at)
    }

    /// A link could lead to anything, and would be followed.
    fn fix(&mut self, path: PathBuf) -> io::Result<()> {
        let is_own = look_up::metadata(&path)?.is_some_and(|found| !found.is_symlink());
        if is_own && !self.is_hidden(&path) && !self.fixed.contains(&path) {
            self.fixed.push(path);
        }
        Ok(())
    }

    /// Fixes the file, and creates it if it isn't there.
    fn hold(&mut self, path: PathBuf, content: &'static str, (scratch, env): (&Path, &Env)) -> io::Result<()> {
        if self.is_hidden(&path) || self.fixed.contains(&path) {
            return Ok(());
        }
        if !self.is_local {
            return self.fix(path);
        }
        if self.record.is_none() {
            self.record = Some(ScratchFolder::create(scratch, env)?);
        }
        if let Some(record) = &self.record {
            // Listed first: the process can be killed at any time.
            let mut list = fs::OpenOptions::new().create(true).append(true).open(record.file(RECORD))?;
            list.write_all(&[path.as_os_str().as_bytes(), &[0]].concat())?;
            let unique = format!("attache-{}", env.uuid().simple());
            let held = opened_for(&path, || Placeholder::hold(&path, content, &unique))?;
            self.placeholders.extend(held.flatten());
        }
        self.fix(path)
    }

    /// Creates a folder that git looks into, which stays.
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        match self.is_local && !look_up::is_there(folder)? {
            true => opened_for(folder, || fs::create_dir(folder)).map(drop),
            false => Ok(()),
        }
    }

    /// Creates the folders on the way to a file for as long as the run works: it would make them itself otherwise.
    fn create_way(&mut self, file: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        for folder in file.ancestors().skip(1).take_while(|folder| self.is_inside(folder)) {
            if look_up::is_there(folder)? {
                break;
            }
            missing.push(folder.to_owned());
        }
        for folder in missing.into_iter().rev().filter(|_| self.is_local) {
            if opened_for(&folder, || fs::create_dir(&folder))?.is_some() {
                self.made.push(folder);
            }
        }
        Ok(())
    }
}

impl Drop for GuardedRepository {
    /// The run may have closed folders, which would keep their owner out, and everything in them from being tidied up.
    fn drop(&mut self) {
        if self.is_local {
            let hidden = self.hidden.iter().filter(|path| self.is_hidden(path));
            let above = self.fixed.iter().chain(hidden).filter_map(|path| path.parent());
            let folders: BTreeSet<&Path> = above.chain(self.roots.iter().map(PathBuf::as_path)).collect();
            for folder in folders {
                if let Err(error) = look_up::open_again(folder) {
                    tracing::warn!(path = %folder.display(), %error, "couldn't open a folder that a run may have closed");
                }
            }
        }
        self.placeholders.clear();
        for folder in self.made.iter().rev() {
            // Not if the run put something there.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Makes something in a folder that a run may have closed. `None` if there is something already, or nothing can be made: the
/// run can't, either.
fn opened_for<T>(path: &Path, make: impl Fn() -> io::Result<T>) -> io::Result<Option<T>> {
    let made = match make() {
        Err(error) if look_up::is_closed(&error) => {
            let Some(folder) = path.parent() else { return Ok(None) };
            if !look_up::open_again(folder)? {
                return Ok(None);
            }
            if look_up::is_there(path)? {
                look_up::make_readable(path)?;
            }
            make()
        }
        made => made,
    };
    match made {
        Ok(made) => Ok(Some(made)),
        Err(error) if cannot_be_made(&error) || look_up::is_there(path)? => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{} can't be protected: {error}", path.display()))),
    }
}

/// Whatever anybody does in the folder.
fn cannot_be_made(error: &io::Error) -> bool {
    let reasons = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::ROFS, Errno::PERM, Errno::NAMETOOLONG];
    Errno::from_io_error(error).is_some_and(|errno| reasons.contains(&errno))
}

fn linked_include(settings: &Path, link: &Path) -> io::Error {
    io::Error::other(format!(
        "{} is a link, which the task could replace, and {} includes a file through it (include.path); name the file itself \
         there",
        link.display(),
        settings.display()
    ))
}

/// Submodules, whose names can contain slashes, and theirs.
fn modules(folder: &Path, depth: usize) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in subfolders(folder)? {
        let is_one = look_up::is_there(&folder.join("HEAD"))?;
        if depth > 0 {
            let below = if is_one { folder.join("modules") } else { folder.clone() };
            found.extend(modules(&below, depth - 1)?);
        }
        if is_one {
            found.push(folder);
        }
    }
    Ok(found)
}

/// Git takes a folder of any name for a repository if this is in it.
fn is_bare(folder: &Path) -> io::Result<bool> {
    for parts in REPOSITORIES {
        let mut is_whole = true;
        for name in parts {
            is_whole = is_whole && look_up::is_there(&folder.join(OsStr::from_bytes(name)))?;
        }
        if is_whole {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is in a file of git's, which anybody may have replaced by something else, or made unreadable.
fn content(file: &Path, max: u64) -> io::Result<Option<Vec<u8>>> {
    let read = match small_file::read_bytes(file, max) {
        Err(error) if look_up::is_closed(&error) && look_up::is_there(file)? => {
            look_up::make_readable(file)?;
            small_file::read_bytes(file, max)
        }
        read => read,
    };
    match read {
        Ok(content) => Ok(Some(content)),
        // Another user's, which git can't read, either.
        Err(error) if look_up::is_closed(&error) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) if cannot_be_made(&error) || Errno::from_io_error(&error) == Some(Errno::NXIO) => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{} can't be read: {error}", file.display()))),
    }
}

/// The files that a file of settings includes, whatever the condition. `name` is how git calls the file.
fn included(name: &Path, file: &Path, home: Option<&Path>) -> io::Result<Vec<PathBuf>> {
    let text = content(file, MAX_SETTINGS)?.unwrap_or_default();
    if !text.to_ascii_lowercase().windows(7).any(|word| word == b"include") {
        return Ok(Vec::new());
    }
    let Some(git) = program::find("git") else { return Ok(Vec::new()) };
    let mut git = Command::new(git);
    git.args(["config", "--no-includes", "--null", "--file", "-", "--get-regexp", r"^include(if\..*)?\.path$"]);
    git.env_clear().env("PATH", program::SYSTEM_PATH).env("GIT_DIR", "/nonexistent").current_dir("/");
    git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = process_tree::start_blocking(&mut git)?;
    // Git reads all of it before it prints anything.
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&text)?;
    }
    let mut listed = Vec::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_end(&mut listed)?;
    }
    child.wait()?;
    let values = listed.split(|byte| *byte == 0).filter_map(|entry| entry.splitn(2, |byte| *byte == b'\n').nth(1));
    let place = |value: &[u8]| match value.strip_prefix(b"~") {
        Some(rest) => {
            let end = rest.iter().position(|byte| *byte == b'/')?;
            let (user, below) = (&rest[..end], OsStr::from_bytes(&rest[end + 1..]));
            let home = if user.is_empty() { home.map(Path::to_owned) } else { home_of(user) };
            Some(home?.join(below))
        }
        None => Some(name.parent()?.join(OsStr::from_bytes(value))),
    };
    Ok(values.filter_map(place).collect())
}

/// The home folder of a user of this machine.
fn home_of(user: &[u8]) -> Option<PathBuf> {
    let users = small_file::read_bytes(Path::new("/etc/passwd"), MAX_SETTINGS).ok()?;
    let fields = |line: &[u8]| line.split(|byte| *byte == b':').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let own =
        users.split(|byte| *byte == b'\n').map(fields).find(|fields| fields.first().is_some_and(|it| it == user))?;
    own.get(5).map(|home| PathBuf::from(OsStr::from_bytes(home)))
}

fn check_link(path: &Path) -> io::Result<()> {
    if !look_up::metadata(path)?.is_some_and(|found| found.is_symlink()) {
        return Ok(());
    }
    let target = path.read_link()?;
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
pub(crate) fn repository_around(folder: &Path) -> io::Result<Option<(&Path, PathBuf)>> {
    for top in folder.ancestors() {
        let git = top.join(".git");
        let Some(found) = look_up::real_path(&git)? else { continue };
        if !found.is_dir() || is_repository(&git)? {
            return Ok(Some((top, git)));
        }
    }
    Ok(None)
}

fn is_repository(git: &Path) -> io::Result<bool> {
    let has = |name: &str| Ok::<_, io::Error>(look_up::real_path(&git.join(name))?.is_some_and(|real| real.is_dir()));
    Ok(look_up::is_there(&git.join("HEAD"))? && (has("objects")? && has("refs")? || common_folder(git)?.is_some()))
}

/// Where a file `.git` leads.
pub(crate) fn named_repository(file: &Path) -> io::Result<Option<PathBuf>> {
    let Some(real) = look_up::real_path(file)? else { return Ok(None) };
    let text = content(&real, MAX_POINTER)?.unwrap_or_default();
    let (Some(target), Some(folder)) = (text.strip_prefix(b"gitdir: "), file.parent()) else { return Ok(None) };
    let target = look_up::real_path(&folder.join(without_line_end(target)))?;
    Ok(target.filter(|target| target.is_dir()))
}

/// Where the rest of a repository is, if it says so.
pub(crate) fn common_folder(git: &Path) -> io::Result<Option<PathBuf>> {
    let text = content(&git.join(COMMON_FOLDER), MAX_POINTER)?;
    Ok(text.map(|text| git.join(without_line_end(&text))))
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
fn subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = if look_up::is_folder(folder)? { look_up::entries(folder)? } else { Vec::new() };
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    Ok(entries.iter().filter(|entry| is_folder(entry)).map(fs::DirEntry::path).collect())
}
#[cfg(test)]
mod tests;
