//! A git worktree of its own for a run: made from what is checked out in the agent's folder, on the branch `attache/RUN`, and
//! kept apart from it until its owner commits, applies or discards the changes.
//!
//! Everything is read and written through a [`PrivateRepository`]: git runs no hook, filter or other program that the
//! repository or the run names. What the run could have changed of the worktree's administrative files is never read.

mod alone;
mod apply;
mod left;
mod place;
mod prune;
mod source;
mod walled;

use std::{
    collections::HashSet,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use attache_os::{
    lock::{self, FolderLock},
    removal, small_file,
};
use attache_protocol::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

use self::place::RepositoryFolder;
pub use self::{apply::AppliedFiles, prune::KEPT_FOR};
use super::{GitConfigScope, GitRepository, PrivateRepository, output, plain, resolve, run, signed, text, write_tree};
use crate::export::show;

/// The folder of a device with the worktrees of its runs.
#[derive(Debug, Clone)]
pub struct WorktreeFolder(PathBuf);

/// One worktree.
#[derive(Debug)]
pub struct RunWorktree {
    folder: PathBuf,
    record: WorktreeRecord,
}

/// What is remembered of a worktree, out of the run's reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorktreeRecord {
    pub run: RunId,
    /// The top of the working tree that it was made from.
    pub source: PathBuf,
    /// That one's own `.git`.
    git_dir: PathBuf,
    /// Where the objects and refs are.
    common: PathBuf,
    /// The agent's folder, relative to the top.
    subfolder: PathBuf,
    /// The commit that it was made from.
    pub base: String,
    pub created_at: Timestamp,
}

/// How a worktree differs from what it was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreeState {
    /// The changed files, relative to the top.
    pub changed: Vec<String>,
    /// How many commits the branch has that the base doesn't have.
    pub commits: u64,
    /// Whether files differ from the branch.
    pub is_uncommitted: bool,
    /// Repositories in it that somebody created, and folders of submodules with anything in them. They aren't a part of the
    /// changes.
    pub nested: Vec<String>,
    /// Files whose content in commits of the branch differs from what is shown. Merging it brings that.
    pub differs_on_branch: Vec<String>,
    has_new_files: bool,
    tree: String,
    tip: String,
}

/// What git needs of the repository to work in a worktree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorktreeAccess {
    /// Where the repository has its objects and settings.
    pub common: PathBuf,
    /// The worktree's administrative folder there.
    pub admin: PathBuf,
    /// For a run inside walls: a repository of its own that borrows the objects. Nothing outside ever reads it.
    pub own: PathBuf,
    /// The worktree's file `.git`, and the one that leads to that repository instead.
    pub git_file: PathBuf,
    pub own_git_file: PathBuf,
}

/// One process has the worktree for itself, and no run inside walls works in the repository.
struct WorktreeLock {
    _file: fs::File,
    _source: FolderLock,
}

/// Held while a run works in a worktree, and not longer than its process. Nothing reads or writes there meanwhile: the run
/// could put a link in the way.
#[derive(Debug)]
pub struct WorkingGuard(fs::File);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} isn't in a git repository with a working tree", .0.display())]
    NoRepository(PathBuf),
    #[error("{} has no commit yet", .0.display())]
    Unborn(PathBuf),
    #[error("{}: a worktree can't be kept inside the repository", .0.display())]
    Inside(PathBuf),
    #[error("repositories whose refs are stored as reftable are not supported")]
    Reftable,
    #[error("its git repository has objects of another one ({})", .0.display())]
    Borrowed(PathBuf),
    #[error("the git repository of {} is gone; put it back where it was", .0.display())]
    Gone(PathBuf),
    #[error("{} isn't a plain file or folder of its own", .0.display())]
    Replaced(PathBuf),
    #[error("{0} is still working in its worktree; wait until it ends, or cancel it")]
    Working(RunId),
    /// It could put a link in the way of git.
    #[error("another sandboxed run is working in {}; try again when it has ended, or give this run a worktree", .0.display())]
    Busy(PathBuf),
    #[error("there is no worktree of {0}")]
    Absent(RunId),
    #[error("nothing was changed in the worktree")]
    Unchanged,
    #[error("changed on both sides: {}", .0.join(", "))]
    Conflicts(Vec<String>),
    #[error(transparent)]
    Git(#[from] super::Error),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
}

const MAX_RECORD: u64 = 64 * 1024;
const HOLD_TIMEOUT: Duration = Duration::from_secs(1);
const BRANCHES: &str = "refs/heads/attache";
/// More than the file of a branch holds.
const MAX_REFERENCE: u64 = 128;

// === impl WorkingGuard ===

impl Drop for WorkingGuard {
    /// Closing the file isn't enough: a child that is being started at this moment has it open, too.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

// === impl WorktreeFolder ===

impl WorktreeFolder {
    pub const fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Makes the worktree of a run whose agent works in `cwd`, or opens it if an earlier attempt made it.
    pub fn create(&self, run: RunId, cwd: &Path, now: Timestamp) -> Result<RunWorktree, Error> {
        attache_os::private_file::folder(&self.0).map_err(at(&self.0))?;
        match self.open(run) {
            Err(Error::Absent(_)) => {}
            Ok(found) if !found.is_filled() => found.remove()?,
            opened => return opened,
        }
        let cwd = cwd.canonicalize().map_err(at(cwd))?;
        let folder = self.0.canonicalize().map_err(at(&self.0))?;
        let found = GitRepository::find(&cwd)?.ok_or_else(|| Error::NoRepository(cwd.clone()))?;
        let subfolder = cwd.strip_prefix(&found.top).map_err(|_| Error::NoRepository(cwd.clone()))?.to_owned();
        if folder.starts_with(&found.top) {
            return Err(Error::Inside(folder));
        }
        let common = found.check()?;
        if common.join("reftable").exists() {
            return Err(Error::Reftable);
        }
        let _alone = alone::in_repository(&found.top, &common, alone::CREATE_TIMEOUT)?;
        let source = PrivateRepository::create(&found, &self.scratch(run))?;
        // Nobody changes it any more.
        if found.check()? != common {
            return Err(Error::Replaced(common));
        }
        source::check_objects(&common)?;
        let base = resolve(&source, "HEAD", "commit")?.ok_or_else(|| Error::Unborn(found.top.clone()))?;
        drop(source);
        let GitRepository { git_dir, top, .. } = found;
        let record = WorktreeRecord { run, source: top, git_dir, common, subfolder, base, created_at: now };
        let worktree = RunWorktree { folder, record };
        let filled = worktree.fill();
        if filled.is_err() {
            // The reason is more useful than what is left.
            let _ = worktree.remove();
        }
        filled.map(|()| worktree)
    }

    pub fn open(&self, run: RunId) -> Result<RunWorktree, Error> {
        let file = self.0.join(format!("{run}.json"));
        let text = match small_file::read(&file, MAX_RECORD) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::Absent(run)),
            read => read.map_err(at(&file))?,
        };
        let record: WorktreeRecord =
            serde_json::from_str(&text).map_err(|error| at(&file)(io::Error::other(error.to_string())))?;
        let folder = self.0.canonicalize().map_err(at(&self.0))?;
        Ok(RunWorktree { folder, record })
    }

    /// All of them, oldest first. One that can't be read is left out.
    pub fn list(&self) -> Vec<RunWorktree> {
        let names = fs::read_dir(&self.0).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let runs = names.filter_map(|name| name.to_str()?.strip_suffix(".json")?.parse::<RunId>().ok());
        let mut found: Vec<RunWorktree> = runs.filter_map(|run| self.open(run).ok()).collect();
        found.sort_by_key(|worktree| (worktree.record.created_at, worktree.record.run));
        found
    }

    fn scratch(&self, run: RunId) -> PathBuf {
        self.0.join(format!("{run}.git-{}", std::process::id()))
    }
}

// === impl RunWorktree ===

impl RunWorktree {
    pub const fn record(&self) -> &WorktreeRecord {
        &self.record
    }

    /// Its top.
    pub fn files(&self) -> PathBuf {
        self.folder.join(self.record.run.to_string())
    }

    /// The folder in it that corresponds to the agent's.
    pub fn cwd(&self) -> PathBuf {
        self.files().join(&self.record.subfolder)
    }

    /// Without `refs/heads/`.
    pub fn branch(&self) -> String {
        format!("attache/{}", self.record.run)
    }

    fn reference(&self) -> String {
        format!("refs/heads/{}", self.branch())
    }

    /// Git's own folder for it.
    fn admin(&self) -> PathBuf {
        self.record.common.join("worktrees").join(self.record.run.to_string())
    }

    fn beside(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.record.run))
    }

    /// By hand, because `git worktree add` runs hooks that the repository's configuration names. Everything is new: a run in
    /// the agent's folder can know the name, and put a link there first.
    fn fill(&self) -> Result<(), Error> {
        let WorktreeRecord { run: id, common, base, .. } = &self.record;
        let (files, admin) = (self.files(), self.admin());
        let record = serde_json::to_vec_pretty(&self.record).map_err(|error| at(&files)(error.into()))?;
        attache_os::private_file::write(&self.beside("json"), &record).map_err(at(&files))?;
        attache_os::private_file::folder(&files).map_err(at(&files))?;
        let private = self.repository()?;
        let name = id.to_string();
        RepositoryFolder::make(common, Path::new(BRANCHES)).and_then(|folder| folder.check_absent(&name))?;
        plain::check_path(common, &Path::new("logs").join(BRANCHES).join(&name))?;
        let nothing = "0".repeat(base.len());
        run("update-ref", private.git().args(["update-ref", "--no-deref", &self.reference(), base, &nothing]), None)?;
        let own = RepositoryFolder::make(common, Path::new("worktrees"))?.create(&name)?;
        for (file, content) in [
            ("commondir", "../..\n".to_owned()),
            ("HEAD", format!("ref: {}\n", self.reference())),
            ("gitdir", format!("{}\n", files.join(".git").display())),
        ] {
            own.write(file, &mut content.as_bytes())?;
        }
        RepositoryFolder::make(&files, Path::new(""))?
            .write(".git", &mut format!("gitdir: {}\n", admin.display()).as_bytes())?;
        tracing::debug!(run.id = %id, base, "worktree");
        run("read-tree", private.git().args(["read-tree", base]), None)?;
        run("checkout-index", private.git().args(["checkout-index", "--all", "--quiet", "--index"]), None)?;
        self.give_index(&private)?;
        self.make_cwd()?;
        fs::copy(private.index(), self.beside("index")).map_err(at(&admin)).map(drop)
    }

    /// A process that was killed may have left a part of it. The index is what comes last.
    fn is_filled(&self) -> bool {
        self.files().is_dir() && self.beside("index").is_file()
    }

    /// The agent's folder may not be committed, or be a link there.
    fn make_cwd(&self) -> Result<(), Error> {
        let (files, cwd) = (self.files(), self.cwd());
        let below = cwd.ancestors().take_while(|path| **path != files);
        if let Some(link) = below.filter(|path| path.is_symlink()).last() {
            return Err(Error::Replaced(link.to_owned()));
        }
        fs::create_dir_all(&cwd).map_err(at(&cwd))
    }

    /// Gives the worktree's own git the index, whatever the run has put in its place.
    fn give_index(&self, private: &PrivateRepository) -> Result<(), Error> {
        let admin =
            RepositoryFolder::open(&self.record.common, &Path::new("worktrees").join(self.record.run.to_string()))?;
        let mut index = fs::File::open(private.index()).map_err(at(&private.index()))?;
        admin.replace("index", &mut index)
    }

    /// The repository with the worktree's files. Nothing of the worktree's own administrative folder is used.
    fn repository(&self) -> Result<PrivateRepository, Error> {
        if !self.record.common.is_dir() {
            return Err(Error::Gone(self.record.source.clone()));
        }
        let of_source = GitRepository { git_dir: self.record.common.clone(), top: self.files(), prefix: Vec::new() };
        self.check_reference()?;
        Ok(PrivateRepository::create(&of_source, &self.scratch())?)
    }

    /// The branch has an id, if it has a file. A reference to another branch would be followed, and that one changed.
    fn check_reference(&self) -> Result<(), Error> {
        let (common, reference) = (&self.record.common, self.reference());
        let file = common.join(&reference);
        plain::check_path(common, Path::new(&reference)).map_err(|_| Error::Replaced(file.clone()))?;
        match small_file::read(&file, MAX_REFERENCE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(text) if is_id(text.trim_end_matches('\n')) => Ok(()),
            _ => Err(Error::Replaced(file)),
        }
    }

    fn scratch(&self) -> PathBuf {
        self.beside(&format!("git-{}", std::process::id()))
    }

    /// Keeps everybody else out while the run works.
    pub fn hold(&self) -> Result<WorkingGuard, Error> {
        let (_lock, working) = (self.lock()?, self.beside("working"));
        // Whoever looks whether a run works has it for a moment.
        let held = lock::acquire_blocking(&working, HOLD_TIMEOUT).map_err(at(&working))?;
        held.map(WorkingGuard).ok_or(Error::Working(self.record.run))
    }

    fn check_idle(&self) -> Result<(), Error> {
        match fs::File::open(self.beside("working")).map(|file| file.try_lock_shared()) {
            Ok(Err(_)) => Err(Error::Working(self.record.run)),
            _ => Ok(()),
        }
    }

    /// One process at a time, until this is dropped, and none while the run works, or another one in the repository.
    fn lock(&self) -> Result<WorktreeLock, Error> {
        let path = self.beside("lock");
        let file = fs::File::create(&path).map_err(at(&path))?;
        file.lock().map_err(at(&path))?;
        self.check_idle()?;
        let WorktreeRecord { source, common, .. } = &self.record;
        Ok(WorktreeLock { _file: file, _source: alone::in_repository(source, common, alone::TIMEOUT)? })
    }

    /// Looks at every file that changed.
    pub fn state(&self) -> Result<WorktreeState, Error> {
        let _lock = self.lock()?;
        self.state_in(&self.repository()?)
    }

    fn state_in(&self, private: &PrivateRepository) -> Result<WorktreeState, Error> {
        if !self.files().is_dir() {
            return Err(Error::Absent(self.record.run));
        }
        let base = &self.record.base;
        let left = self.left_behind(private)?;
        let tree = self.tree(private)?;
        let tip = resolve(private, &self.reference(), "commit")?.unwrap_or_else(|| base.clone());
        let range = format!("{base}..{tip}");
        let commits = run("rev-list", private.git().args(["rev-list", "--count", &range]), None)?;
        let names = names(private, base, &tree)?;
        let is_uncommitted = resolve(private, &tip, "tree")?.as_ref() != Some(&tree);
        let differing: HashSet<Vec<u8>> = self::names(private, &tip, &tree)?.into_iter().collect();
        let committed = self::names(private, base, &tip)?;
        let on_branch = committed.iter().filter(|name| differing.contains(*name));
        Ok(WorktreeState {
            changed: names.iter().map(|name| show(name)).collect(),
            commits: text(&commits).parse().unwrap_or(0),
            is_uncommitted,
            nested: left.nested,
            has_new_files: left.has_new_files,
            differs_on_branch: on_branch.map(|name| show(name)).collect(),
            tree,
            tip,
        })
    }

    /// Its files as a tree.
    fn tree(&self, private: &PrivateRepository) -> Result<String, Error> {
        let saved = self.beside("index");
        fs::copy(&saved, private.index()).map_err(at(&saved))?;
        let mut list = private.git();
        list.args(["ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard", "--", "."]);
        // What came with the task isn't one of its changes.
        let mut attachments = OsString::from(":(top,exclude,literal)");
        attachments.push(self.attachments());
        let listed = run("ls-files", list.arg(attachments), None)?;
        let paths = listed.split(|&byte| byte == 0).filter(|path| !path.is_empty());
        let top = GitRepository { git_dir: PathBuf::new(), top: self.files(), prefix: Vec::new() };
        // One that ends with a slash is a repository.
        top.stage(private, paths.filter(|path| !path.ends_with(b"/")))?;
        Ok(write_tree(private)?)
    }

    /// What changed since it was made, committed or not, as a patch for `git apply`. Renames are shown as such.
    pub fn diff(&self) -> Result<Vec<u8>, Error> {
        let _lock = self.lock()?;
        let private = self.repository()?;
        let state = self.state_in(&private)?;
        let mut diff = private.git();
        diff.args([
            "diff-tree",
            "-r",
            "-p",
            "--binary",
            "--find-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
        ]);
        Ok(run("diff-tree", diff.args([&self.record.base, &state.tree]), None)?)
    }

    /// Commits the files to the branch, in the name of this machine's user, and returns the commit.
    pub fn commit(&self, message: &str, now: Timestamp) -> Result<String, Error> {
        let _lock = self.lock()?;
        let private = self.repository()?;
        let state = self.state_in(&private)?;
        self.commit_state(&private, &state, message, now)
    }

    fn commit_state(
        &self,
        private: &PrivateRepository,
        state: &WorktreeState,
        message: &str,
        now: Timestamp,
    ) -> Result<String, Error> {
        if !state.is_uncommitted {
            return Err(Error::Unchanged);
        }
        let source = self.source();
        let changed = names(private, &state.tip, &state.tree)?;
        source.check_filters_in(&self.files(), private, &changed)?;
        let mut commit = private.git();
        signed(commit.args(["commit-tree", &state.tree, "-p", &state.tip, "-m", message]), now);
        for (key, roles) in
            [("user.name", ["AUTHOR_NAME", "COMMITTER_NAME"]), ("user.email", ["AUTHOR_EMAIL", "COMMITTER_EMAIL"])]
        {
            let mut ask = super::command(&self.record.source, GitConfigScope::User);
            let said = output("config", ask.args(["config", "--get", key]), None)?;
            let own = text(&said.stdout);
            if said.status.success() && !own.is_empty() {
                for role in roles {
                    commit.env(format!("GIT_{role}"), &own);
                }
            }
        }
        let commit = text(&run("commit-tree", &mut commit, None)?);
        self.check_reference()?;
        let mut update = private.git();
        run("update-ref", update.args(["update-ref", "--no-deref", &self.reference(), &commit, &state.tip]), None)?;
        self.give_index(private)?;
        Ok(commit)
    }

    fn source(&self) -> GitRepository {
        let WorktreeRecord { git_dir, source, .. } = &self.record;
        GitRepository { git_dir: git_dir.clone(), top: source.clone(), prefix: Vec::new() }
    }

    /// Nothing has led it to another repository since.
    fn check_source(&self) -> Result<(), Error> {
        let WorktreeRecord { git_dir, common, .. } = &self.record;
        match self.source().check()? == *common {
            true => Ok(()),
            false => Err(Error::Replaced(git_dir.join("commondir"))),
        }
    }

    /// Removes the worktree and its branch. `false` if the repository, and so perhaps the branch, is somewhere else now.
    pub fn discard(&self) -> Result<bool, Error> {
        let lock = self.lock()?;
        let has_repository = self.record.common.is_dir();
        self.remove()?;
        drop(lock);
        self.forget_lock();
        Ok(has_repository)
    }

    /// Nobody waits for the lock of a worktree that is gone.
    fn forget_lock(&self) {
        let _it_holds_nothing = fs::remove_file(self.beside("lock"));
    }

    fn remove(&self) -> Result<(), Error> {
        // A repository that is gone has nothing to remove.
        if self.record.common.is_dir() {
            // Git works in the worktree, also in one that somebody removed by hand.
            fs::create_dir_all(self.files()).map_err(at(&self.files()))?;
            let private = self.repository_for_removal()?;
            if resolve(&private, &self.reference(), "commit")?.is_some() {
                run("update-ref", private.git().args(["update-ref", "--no-deref", "-d", &self.reference()]), None)?;
            }
        }
        self.remove_files()
    }

    fn repository_for_removal(&self) -> Result<PrivateRepository, Error> {
        if self.check_reference().is_err() {
            RepositoryFolder::open(&self.record.common, Path::new(BRANCHES))?.remove(&self.record.run.to_string())?;
        }
        self.repository()
    }

    /// Leaves the branch.
    fn remove_files(&self) -> Result<(), Error> {
        if self.record.common.join("worktrees").is_symlink() {
            return Err(Error::Replaced(self.record.common.join("worktrees")));
        }
        for path in [self.files(), self.admin(), self.beside("repository")] {
            match removal::remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
                _ => {}
            }
        }
        for path in ["index", "working", "gitfile", "json"].map(|ending| self.beside(ending)) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes it if the run has left nothing in it, not even an ignored file.
    pub fn discard_if_untouched(&self) -> Result<Option<WorktreeState>, Error> {
        let lock = self.lock()?;
        let private = self.repository()?;
        let state = self.state_in(&private)?;
        if state.is_unchanged() && !state.has_new_files && self.is_on_branch() {
            drop(private);
            self.remove()?;
            drop(lock);
            self.forget_lock();
            return Ok(None);
        }
        Ok(Some(state))
    }

    /// Whether its own git still has the branch checked out.
    fn is_on_branch(&self) -> bool {
        let head = small_file::read(&self.admin().join("HEAD"), MAX_RECORD).unwrap_or_default();
        head.trim_end() == format!("ref: {}", self.reference())
    }
}

// === impl WorktreeState ===

impl WorktreeState {
    pub const fn is_unchanged(&self) -> bool {
        self.changed.is_empty() && self.commits == 0 && self.nested.is_empty()
    }
}

/// The paths in which two trees differ.
fn names(private: &PrivateRepository, from: &str, to: &str) -> Result<Vec<Vec<u8>>, Error> {
    let list = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", from, to];
    let listed = run("diff-tree", private.git().args(list), None)?;
    Ok(listed.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// In full, as a file of a branch has it.
fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    |source| Error::File { path, source }
}
