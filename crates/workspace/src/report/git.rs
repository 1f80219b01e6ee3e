//! Snapshots of a delegation in the folder's own git repository, apart from everything of the user: commits under
//! `refs/attache/<delegation_id>` through a private index, without filters, hooks, signatures or the user's configuration.
//!
//! The user's index, branches and files are not touched, except by [`GitRepository::init`] and
//! [`GitRepository::commit`], which the owner opts in to.

mod child;
mod own;
mod plain;
mod private;
pub mod worktree;

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use attache_os::{program, small_file};
use attache_protocol::{DelegationId, Timestamp};

use self::{
    child::{output, run},
    private::PrivateRepository,
};
use crate::export::{ExportError, ExportFilter, ExportPatterns, show, shows_credentials};

/// The repository that contains a delegated folder. Git gets its path and looks for no other, whatever a lease
/// has created since it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRepository {
    /// `.git`, or where it leads.
    git_dir: PathBuf,
    top: PathBuf,
    /// The path from there to the folder: empty, or ending with a slash.
    prefix: Vec<u8>,
}

/// The content of a snapshot commit.
#[derive(Debug, Clone, Copy)]
pub struct GitSnapshot<'a> {
    pub delegation: &'a DelegationId,
    pub message: &'a str,
    /// What the lease withholds isn't committed either, because a remote can read the repository's objects.
    pub rules: &'a ExportPatterns,
    /// What the lease changed, relative to the folder. It is read whatever the index says of it, which the remote may have
    /// written.
    pub changed: &'a [Vec<u8>],
    /// Where the private repository is, only meanwhile: a path in a folder of this delegation.
    pub scratch: &'a Path,
    pub now: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("can't start git ({0}); install it (apt install git), or turn off [delegator.git]")]
    Missing(io::Error),
    /// Without what git printed: a run can lead it to any file of this user, whose lines it would then print.
    #[error("git {0} failed; `git fsck` in the repository may show why")]
    Failed(String),
    #[error("git {what} didn't end within {} s, so it was stopped", .limit.as_secs())]
    TimedOut { what: String, limit: Duration },
    #[error("{} is a link or a special file, so git isn't started; remove it or put a plain file there", .0.display())]
    NotPlain(PathBuf),
    #[error("{}: its git repository leads elsewhere, or doesn't name it as a working tree", .0.display())]
    Elsewhere(PathBuf),
    #[error("git can't use {}; `git status` beside it shows why", .0.display())]
    Unusable(PathBuf),
    #[error("{} has too many files to check", .0.display())]
    TooLarge(PathBuf),
    #[error("{} names files outside of its working tree, or git didn't write it; remove it, then run `git reset`", .0.display())]
    Index(PathBuf),
    #[error("{} has another name (hard link), and git would write to both; put a copy in its place", .0.display())]
    SecondName(PathBuf),
    #[error("a linked worktree whose refs are stored as reftable is not supported")]
    LinkedReftable,
    #[error("no branch is checked out in {0}; check one out (git switch <branch>), then commit by hand")]
    NoBranch(PathBuf),
    #[error("a merge or cherry-pick is in progress in {0}; finish it, then commit by hand")]
    Unfinished(PathBuf),
    #[error(
        "`{path}` needs the git filter `{filter}`, which isn't run on a remote's changes; review them, then commit by hand"
    )]
    Filtered { path: String, filter: String },
    #[error(transparent)]
    Rules(#[from] ExportError),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
}

/// Whose configuration a command sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GitConfigScope {
    Repository,
    User,
}

/// Variables that a parent process may have set for another repository.
const FOREIGN: &[&str] = &[
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_ATTR_SOURCE",
    "GIT_CEILING_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_EXTERNAL_DIFF",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// For the commands that find or create a repository. They run no filter; all others see a [`PrivateRepository`].
const QUIET: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.graftFileDeprecated=false",
    // A log can be a link to any file, and git would write to that.
    "core.logAllRefUpdates=false",
    // A folder that is a repository only by its content, not by its name, doesn't count.
    "safe.bareRepository=explicit",
];

// === impl GitRepository ===

impl GitRepository {
    /// `None` if the folder isn't in a repository that git can use, or in a bare one. Fails if the repository isn't the
    /// folder's own.
    pub fn find(dir: &Path) -> Result<Option<Self>, Error> {
        let dir = &canonical(dir)?;
        let Some(found) = own::ask(&|| discovery(dir))? else { return Ok(None) };
        own::check(dir, &found, &discovery)?;
        let own::FoundRepository { top: Some(top), git_dir, .. } = found else { return Ok(None) };
        let below = match dir.strip_prefix(&top) {
            Ok(below) if !dir.starts_with(&git_dir) => below,
            _ => return Ok(None),
        };
        let mut prefix = below.as_os_str().as_bytes().to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        Ok(Some(Self { git_dir, top, prefix }))
    }

    /// Turns the folder into a repository. Opt-in by its owner.
    pub fn init(dir: &Path) -> Result<Self, Error> {
        let top = canonical(dir)?;
        let git_dir = top.join(".git");
        // Git would go on with what is there, wherever that leads.
        if git_dir.symlink_metadata().is_ok() {
            return Err(Error::NotPlain(git_dir));
        }
        let mut init = command(&top, GitConfigScope::Repository);
        run("init", init.args(["init", "--quiet", "--template=", "--initial-branch=main"]), None)?;
        Ok(Self { git_dir, top, prefix: Vec::new() })
    }

    /// Fails if the repository that git would use in a folder isn't the folder's own, or has links in place of its files: git
    /// would read or write elsewhere. Some of that no setting outside of the repository overrides. Git is asked in the
    /// environment in which it will work.
    pub fn check_own(dir: &Path, environment: &[(OsString, OsString)]) -> Result<(), Error> {
        own::check_for_work(dir, &|dir| {
            let mut git = Command::new(program::path("git"));
            git.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
            git.env("PATH", program::SYSTEM_PATH).arg("-C").arg(dir).args(["-c", "safe.bareRepository=explicit"]);
            git
        })
    }

    /// It is still the working tree's own. A run can have replaced the `.git` since it was found. Says where it has its
    /// objects and refs.
    fn check(&self) -> Result<PathBuf, Error> {
        match own::ask(&|| discovery(&self.top))? {
            Some(found) if found.top.as_ref() == Some(&self.top) && found.git_dir == self.git_dir => {
                own::check(&self.top, &found, &discovery).map(|()| found.common)
            }
            _ => Err(Error::Elsewhere(self.top.clone())),
        }
    }

    /// For [`Self::from_bytes`], so that a repository found before a lease is known after it.
    pub fn to_bytes(&self) -> Vec<u8> {
        nul([self.git_dir.as_os_str().as_bytes(), self.top.as_os_str().as_bytes(), &self.prefix].into_iter())
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let parts: Vec<&[u8]> = bytes.strip_suffix(&[0])?.split(|&byte| byte == 0).collect();
        let [git_dir, top, prefix] = parts[..] else { return None };
        Some(Self { git_dir: path(git_dir.to_vec()), top: path(top.to_vec()), prefix: prefix.to_vec() })
    }

    /// Commits the current state of the folder to the delegation's ref and returns the commit's id. The parent of the
    /// first commit is what is checked out, of later ones the commit before. Files are saved as they are, without the
    /// repository's filters.
    pub fn snapshot(&self, snapshot: &GitSnapshot<'_>) -> Result<String, Error> {
        let reference = format!("refs/attache/{}", snapshot.delegation);
        plain::check_path(&self.check()?, Path::new(&reference))?;
        let private = PrivateRepository::create(self, snapshot.scratch)?;
        let tree = self.tree(&private, snapshot)?;
        let parent = match resolve(&private, &reference, "commit")? {
            Some(parent) => Some(parent),
            None => resolve(&private, "HEAD", "commit")?,
        };
        let commit = commit_tree(&private, &tree, parent.as_deref(), snapshot.message, snapshot.now)?;
        run("update-ref", private.git().args(["update-ref", "--no-deref", &reference, &commit]), None)?;
        Ok(commit)
    }

    /// Commits these paths, relative to the folder, to the checked-out branch. Opt-in by the owner. Nothing else that
    /// is staged or edited is included. `None` if there is nothing to commit. `scratch` is as in [`GitSnapshot`].
    pub fn commit(
        &self,
        paths: &[Vec<u8>],
        message: &str,
        scratch: &Path,
        now: Timestamp,
    ) -> Result<Option<String>, Error> {
        self.check()?;
        let private = PrivateRepository::create(self, scratch)?;
        let branch = output("symbolic-ref", private.git().args(["symbolic-ref", "--quiet", "HEAD"]), None)?;
        if !branch.status.success() {
            return Err(Error::NoBranch(self.top.clone()));
        }
        if ["MERGE_HEAD", "CHERRY_PICK_HEAD"].iter().any(|name| self.git_dir.join(name).exists()) {
            return Err(Error::Unfinished(self.top.clone()));
        }
        let paths = self.committable(&private, paths)?;
        if paths.is_empty() {
            return Ok(None);
        }
        self.check_filters(&private, &paths)?;
        let head = resolve(&private, "HEAD", "commit")?;
        if let Some(head) = &head {
            run("read-tree", private.git().args(["read-tree", head]), None)?;
        }
        self.stage(&private, paths.iter().map(Vec::as_slice))?;
        let tree = write_tree(&private)?;
        if head.is_some() && resolve(&private, "HEAD", "tree")?.as_ref() == Some(&tree) {
            return Ok(None);
        }
        let commit = commit_tree(&private, &tree, head.as_deref(), message, now)?;
        let expected = head.unwrap_or_else(|| "0".repeat(commit.len()));
        let reason = format!("commit: {}", message.lines().next().unwrap_or_default());
        private.write_logs(&self.git_dir, &text(&branch.stdout))?;
        let mut update = private.git();
        update.args(["-c", "core.logAllRefUpdates=true"]);
        signed(update.args(["update-ref", "-m", &reason, "HEAD", &commit, &expected]), now);
        run("update-ref", &mut update, None)?;
        self.stage_for_user(&private, &paths, commit.len())?;
        Ok(Some(commit))
    }

    /// Those of the paths that `git add` would take: not ignored, and not in a nested repository. Relative to the top.
    fn committable(&self, private: &PrivateRepository, paths: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Error> {
        let all: Vec<Vec<u8>> = paths.iter().map(|path| [&self.prefix[..], path].concat()).collect();
        let user_index = self.git_dir.join("index");
        let git = || {
            let mut git = private.git_of_user();
            git.env("GIT_INDEX_FILE", &user_index);
            git
        };
        let input = nul(all.iter().map(Vec::as_slice));
        let ignored = output("check-ignore", git().args(["check-ignore", "-z", "--stdin"]), Some(&input))?;
        let ignored: HashSet<&[u8]> = ignored.stdout.split(|&byte| byte == 0).collect();
        let listed = run("ls-files", git().args(["ls-files", "-z"]), None)?;
        let known: HashSet<&[u8]> = listed.split(|&byte| byte == 0).collect();
        let is_wanted = |path: &Vec<u8>| {
            let there = self.file(path).symlink_metadata().is_ok_and(|stat| !stat.is_dir());
            (known.contains(&path[..]) || (there && !ignored.contains(&path[..]))) && !self.is_nested(path)
        };
        Ok(all.iter().filter(|path| is_wanted(path)).cloned().collect())
    }

    fn is_nested(&self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        slashes.into_iter().any(|end| self.file(&path[..end]).join(".git").symlink_metadata().is_ok())
    }

    /// Refuses files that the user's git would pass through a program. Without it, a commit on the branch would have
    /// something else than the user's git puts there, such as a large file instead of its Git LFS pointer.
    fn check_filters(&self, private: &PrivateRepository, paths: &[Vec<u8>]) -> Result<(), Error> {
        self.check_filters_in(&self.top, private, paths)
    }

    /// The same for files in another working tree of the repository.
    fn check_filters_in(&self, top: &Path, private: &PrivateRepository, paths: &[Vec<u8>]) -> Result<(), Error> {
        // Listing a configuration runs nothing.
        let mut list = command(&self.top, GitConfigScope::User);
        list.env("GIT_DIR", &self.git_dir).args(["config", "--includes", "-z", "--list"]);
        let listed = run("config", &mut list, None)?;
        let filters: HashSet<&[u8]> = listed.split(|&byte| byte == 0).filter_map(filter_of).collect();
        let file = |path: &[u8]| top.join(OsStr::from_bytes(path));
        let files = paths.iter().filter(|path| file(path).symlink_metadata().is_ok_and(|stat| stat.is_file()));
        let input = nul(files.map(Vec::as_slice));
        let mut ask = private.git_of_user();
        let answers = run("check-attr", ask.args(["check-attr", "-z", "--stdin", "filter"]), Some(&input))?;
        let answers: Vec<&[u8]> = answers.split(|&byte| byte == 0).collect();
        for answer in answers.chunks_exact(3) {
            if filters.contains(answer[2]) {
                return Err(Error::Filtered { path: show(answer[0]), filter: show(answer[2]) });
            }
        }
        Ok(())
    }

    /// Gives the user's index what was committed, so that it isn't shown as a change.
    fn stage_for_user(&self, private: &PrivateRepository, paths: &[Vec<u8>], id: usize) -> Result<(), Error> {
        let listed = run("ls-files", private.git().args(["ls-files", "-z", "--stage"]), None)?;
        let path_of = |entry: &&[u8]| entry.iter().position(|&byte| byte == b'\t').map(|tab| entry[tab + 1..].to_vec());
        let wanted: HashSet<&[u8]> = paths.iter().map(Vec::as_slice).collect();
        let entries = listed
            .split(|&byte| byte == 0)
            .filter(|entry| path_of(entry).is_some_and(|path| wanted.contains(&path[..])));
        // Everything is removed first: a file may have become a folder, or a folder a file.
        let removed = paths.iter().map(|path| [format!("0 {}\t", "0".repeat(id)).as_bytes(), path].concat());
        let lines: Vec<Vec<u8>> = removed.chain(entries.map(<[u8]>::to_vec)).collect();
        let git = || {
            let mut git = private.git();
            git.env("GIT_INDEX_FILE", self.git_dir.join("index"));
            git
        };
        let input = nul(lines.iter().map(Vec::as_slice));
        run("update-index", git().args(["update-index", "-z", "--index-info"]), Some(&input))?;
        // It fails if anything else was edited.
        output("update-index", git().args(["update-index", "-q", "--refresh"]), None)?;
        Ok(())
    }

    /// The folder as a tree, combined with the rest of the repository's checked-out state.
    fn tree(&self, private: &PrivateRepository, snapshot: &GitSnapshot<'_>) -> Result<String, Error> {
        let filter = ExportFilter::new(snapshot.rules)?;
        self.copy_index(&private.index())?;
        self.look_at_all(private)?;
        let known = run("ls-files", private.git().args(["ls-files", "-z"]), None)?;
        let known: HashSet<&[u8]> = known.split(|&byte| byte == 0).collect();
        let changed = snapshot.changed.iter().map(|path| [&self.prefix[..], path].concat());
        let is_shown = |path: &[u8]| {
            let inside = path.strip_prefix(&self.prefix[..]).unwrap_or(path);
            filter.shows(inside, false) && !shows_credentials(&self.file(&self.prefix), inside)
        };
        let changed: Vec<Vec<u8>> = changed.filter(|path| known.contains(&path[..]) && is_shown(path)).collect();
        if !changed.is_empty() {
            let forget = ["update-index", "-z", "--force-remove", "--stdin"];
            run("update-index", private.git().args(forget), Some(&nul(changed.iter().map(Vec::as_slice))))?;
        }
        let mut list = private.git();
        list.args(["ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard", "--"]);
        list.arg(if self.prefix.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(&self.prefix) });
        let listed = run("ls-files", &mut list, None)?;
        // A path that ends with a slash is a nested repository with its own history.
        let read: HashSet<&[u8]> = changed.iter().map(Vec::as_slice).collect();
        let listed = listed
            .split(|&byte| byte == 0)
            .filter(|path| !path.is_empty() && !path.ends_with(b"/") && is_shown(path) && !read.contains(path));
        let paths = listed.chain(changed.iter().map(Vec::as_slice));
        self.stage(private, paths)?;
        write_tree(private)
    }

    /// Puts the current state of these paths into the private index.
    fn stage<'a>(&self, private: &PrivateRepository, paths: impl Iterator<Item = &'a [u8]>) -> Result<(), Error> {
        // A file may have become a folder, or a folder a file. A folder with a repository in it is a submodule.
        let is_folder = |path: &&[u8]| {
            let found = self.file(path);
            found.symlink_metadata().is_ok_and(|found| found.is_dir()) && !found.join(".git").exists()
        };
        let (gone, changed): (Vec<&[u8]>, Vec<&[u8]>) = paths.partition(is_folder);
        if !gone.is_empty() {
            let remove = ["update-index", "-z", "--force-remove", "--stdin"];
            run("update-index", private.git().args(remove), Some(&nul(gone.into_iter())))?;
        }
        let update = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"];
        run("update-index", private.git().args(update), Some(&nul(changed.into_iter())))?;
        Ok(())
    }

    /// Files that the user told git to ignore (`--assume-unchanged`, `--skip-worktree`) are still checked in our index,
    /// if they exist.
    fn look_at_all(&self, private: &PrivateRepository) -> Result<(), Error> {
        let listed = run("ls-files", private.git().args(["ls-files", "-z", "-v"]), None)?;
        let (mut assumed, mut skipped) = (Vec::new(), Vec::new());
        for line in listed.split(|&byte| byte == 0) {
            let [tag, b' ', path @ ..] = line else { continue };
            if tag.is_ascii_lowercase() {
                assumed.push(path);
            }
            if tag.eq_ignore_ascii_case(&b's') && self.file(path).symlink_metadata().is_ok() {
                skipped.push(path);
            }
        }
        for (flag, paths) in [("--no-assume-unchanged", assumed), ("--no-skip-worktree", skipped)] {
            if !paths.is_empty() {
                let input = nul(paths.into_iter());
                run("update-index", private.git().args(["update-index", "-z", flag, "--stdin"]), Some(&input))?;
            }
        }
        Ok(())
    }

    /// Copies the user's index with its cached file times, so that not every file must be read.
    fn copy_index(&self, index: &Path) -> Result<(), Error> {
        let copied = small_file::open(&self.git_dir.join("index"), u64::MAX)
            .and_then(|mut from| io::copy(&mut from, &mut fs::File::create(index)?));
        match copied {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::File { path: index.to_owned(), source: error })
            }
            _ => Ok(()),
        }
    }

    /// Where a path of the repository is.
    fn file(&self, path: &[u8]) -> PathBuf {
        self.top.join(OsStr::from_bytes(path))
    }
}

/// The name of the filter for which this setting (`key LF value`) names a program.
fn filter_of(setting: &[u8]) -> Option<&[u8]> {
    let key = setting.split(|&byte| byte == b'\n').next()?.strip_prefix(b"filter.")?;
    key.strip_suffix(b".clean").or_else(|| key.strip_suffix(b".process"))
}

fn write_tree(private: &PrivateRepository) -> Result<String, Error> {
    // A partial clone doesn't have every object, and fetching one would run programs.
    Ok(text(&run("write-tree", private.git().args(["write-tree", "--missing-ok"]), None)?))
}

fn commit_tree(
    private: &PrivateRepository,
    tree: &str,
    parent: Option<&str>,
    message: &str,
    now: Timestamp,
) -> Result<String, Error> {
    let mut commit = private.git();
    commit.args(["commit-tree", tree, "-m", message]);
    if let Some(parent) = parent {
        commit.args(["-p", parent]);
    }
    signed(&mut commit, now);
    Ok(text(&run("commit-tree", &mut commit, None)?))
}

/// The id of the commit or tree that a name leads to.
fn resolve(private: &PrivateRepository, name: &str, kind: &str) -> Result<Option<String>, Error> {
    let wanted = format!("{name}^{{{kind}}}");
    let mut command = private.git();
    let output = output("rev-parse", command.args(["rev-parse", "--verify", "--quiet", &wanted]), None)?;
    Ok(output.status.success().then(|| text(&output.stdout)))
}

/// For asking git what it finds in a folder.
fn discovery(dir: &Path) -> Command {
    command(dir, GitConfigScope::Repository)
}

/// A git command of the system that runs nothing else, prompts for nothing and locks nothing of the user.
fn command(dir: &Path, config: GitConfigScope) -> Command {
    command_in(&[], dir, config)
}

/// The same inside walls, which are the words before it.
fn command_in(walls: &[OsString], dir: &Path, config: GitConfigScope) -> Command {
    let git = program::path("git");
    let mut command = match walls {
        [] => Command::new(git),
        [program, words @ ..] => {
            let mut command = Command::new(program);
            command.args(words).arg(git);
            command
        }
    };
    command.arg("-C").arg(dir).env("PATH", program::SYSTEM_PATH);
    for setting in QUIET {
        command.args(["-c", setting]);
    }
    for name in FOREIGN {
        command.env_remove(name);
    }
    command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C").stdin(Stdio::null());
    if config == GitConfigScope::Repository {
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_ATTR_NOSYSTEM", "1");
    }
    // A missing object isn't fetched, whatever remote the configuration names.
    command.env("GIT_NO_LAZY_FETCH", "1").env("GIT_ALLOW_PROTOCOL", "none");
    // Whoever may write refs would choose the content of any object.
    command.env("GIT_NO_REPLACE_OBJECTS", "1");
    command
}

/// Sets our name and the given time on a commit.
fn signed(command: &mut Command, now: Timestamp) {
    let date = format!("@{} +0000", now.millis() / 1000);
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Attaché").env(format!("GIT_{role}_EMAIL"), "attache@localhost");
        command.env(format!("GIT_{role}_DATE"), &date);
    }
}

/// Git's output without the trailing newline.
fn line(mut output: Vec<u8>) -> Vec<u8> {
    if output.last() == Some(&b'\n') {
        output.pop();
    }
    output
}

fn canonical(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|source| Error::File { path: path.to_owned(), source })
}

fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output.trim_ascii()).into_owned()
}

fn nul<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut list = Vec::new();
    for path in paths {
        list.extend_from_slice(path);
        list.push(0);
    }
    list
}
