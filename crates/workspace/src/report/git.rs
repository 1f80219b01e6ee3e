//! Snapshots of a delegation in the folder's own git repository, apart from everything of the user: commits under
//! `refs/attache/<delegation_id>` through a private index, without hooks, signatures or the user's configuration.
//!
//! The user's index, branches and files are not touched, except by [`GitRepository::init`] and
//! [`GitRepository::commit`], which the owner opts in to.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    io::Write as _,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use attache_protocol::{DelegationId, Timestamp};

use crate::export::{ExportError, ExportFilter, ExportPatterns, show, shows_credentials};

/// The repository that contains a delegated folder. Git is told where it is and looks for no other, whatever a lease
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
    /// The private index: a file in a folder of this delegation.
    pub index: &'a Path,
    pub now: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("can't start git ({0}); install it (apt install git), or turn off [delegator.git]")]
    Missing(io::Error),
    #[error("git {what} failed: {said}")]
    Failed { what: String, said: String },
    #[error("no branch is checked out in {0}; check one out (git switch <branch>), then commit by hand")]
    NoBranch(PathBuf),
    #[error(transparent)]
    Rules(#[from] ExportError),
    #[error("{path}: {source}")]
    Index { path: PathBuf, source: io::Error },
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

/// Nothing in the repository's configuration can start a program.
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
    // A folder that is a repository only by its content, not by its name, doesn't count.
    "safe.bareRepository=explicit",
];

// === impl GitRepository ===

impl GitRepository {
    /// `None` if the folder isn't in a repository, or in a bare one.
    pub fn find(dir: &Path) -> Result<Option<Self>, Error> {
        // One at a time, because a path can contain newlines.
        let ask = |what: &str| -> Result<Option<Vec<u8>>, Error> {
            let mut git = command(dir, GitConfigScope::Repository, None);
            let output = git.args(["rev-parse", what]).output().map_err(Error::Missing)?;
            Ok(output.status.success().then(|| line(output.stdout)))
        };
        let Some(top) = ask("--show-toplevel")? else { return Ok(None) };
        let (Some(git_dir), Some(prefix)) = (ask("--absolute-git-dir")?, ask("--show-prefix")?) else {
            return Ok(None);
        };
        Ok(Some(Self { git_dir: path(git_dir), top: path(top), prefix }))
    }

    /// Turns the folder into a repository. Opt-in by its owner.
    pub fn init(dir: &Path) -> Result<Self, Error> {
        let mut init = command(dir, GitConfigScope::Repository, None);
        run("init", init.args(["init", "--quiet", "--template=", "--initial-branch=main"]), None)?;
        Ok(Self { git_dir: dir.join(".git"), top: dir.to_owned(), prefix: Vec::new() })
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
    /// first commit is what is checked out, of later ones the commit before.
    pub fn snapshot(&self, snapshot: &GitSnapshot<'_>) -> Result<String, Error> {
        let reference = format!("refs/attache/{}", snapshot.delegation);
        let tree = self.tree(snapshot)?;
        let git = || self.git(GitConfigScope::Repository, Some(snapshot.index));
        let parent = match self.resolve(&reference)? {
            Some(parent) => Some(parent),
            None => self.resolve("HEAD")?,
        };
        let mut commit = git();
        commit.args(["commit-tree", &tree, "-m", snapshot.message]);
        if let Some(parent) = &parent {
            commit.args(["-p", parent]);
        }
        signed(&mut commit, snapshot.now);
        let commit = text(&run("commit-tree", &mut commit, None)?);
        run("update-ref", git().args(["update-ref", "--no-deref", &reference, &commit]), None)?;
        Ok(commit)
    }

    /// Commits these paths, relative to the folder, to the checked-out branch. Opt-in by the owner. Nothing else that
    /// is staged or edited is included. `None` if there is nothing to commit.
    pub fn commit(&self, paths: &[Vec<u8>], message: &str, now: Timestamp) -> Result<Option<String>, Error> {
        let git = || self.git(GitConfigScope::User, None);
        let branch = git().args(["symbolic-ref", "--quiet", "HEAD"]).output().map_err(Error::Missing)?;
        if !branch.status.success() {
            return Err(Error::NoBranch(self.top.clone()));
        }
        let all: Vec<Vec<u8>> = paths.iter().map(|path| [&self.prefix[..], path].concat()).collect();
        // Ignored files are left out. Git says which.
        let input = nul(all.iter().map(Vec::as_slice));
        let ignored = git().args(["check-ignore", "-z", "--stdin"]).run_with_input(&input)?;
        let ignored: Vec<&[u8]> = ignored.stdout.split(|&byte| byte == 0).collect();
        let known = self.listed(&all)?;
        let tracked = all.iter().filter(|path| {
            let there = self.top.join(OsStr::from_bytes(path)).symlink_metadata().is_ok_and(|stat| !stat.is_dir());
            known.contains(*path) || (there && !ignored.contains(&&path[..]))
        });
        let list = nul(tracked.map(Vec::as_slice));
        if list.is_empty() {
            return Ok(None);
        }
        let from_stdin = ["--pathspec-from-file=-", "--pathspec-file-nul"];
        let mut add = git();
        run("add", add.args(["--literal-pathspecs", "add", "--all", "--force"]).args(from_stdin), Some(&list))?;
        let mut commit = git();
        commit
            .args(["--literal-pathspecs", "commit", "--quiet", "--no-verify", "--only", "-m", message])
            .args(from_stdin);
        signed(&mut commit, now);
        let output = commit.run_with_input(&list)?;
        if !output.status.success() {
            let nothing = git().args(["diff", "--cached", "--quiet"]).status().map_err(Error::Missing)?.success();
            return if nothing { Ok(None) } else { Err(failed("commit", &output)) };
        }
        self.resolve("HEAD")
    }

    /// The folder as a tree, combined with the rest of the repository's checked-out state.
    fn tree(&self, snapshot: &GitSnapshot<'_>) -> Result<String, Error> {
        let filter = ExportFilter::new(snapshot.rules)?;
        let git = || self.git(GitConfigScope::Repository, Some(snapshot.index));
        self.copy_index(snapshot.index)?;
        self.look_at_all(snapshot.index)?;
        let mut list = git();
        list.args(["ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard", "--"]);
        list.arg(if self.prefix.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(&self.prefix) });
        let listed = run("ls-files", &mut list, None)?;
        // A path that ends with a slash is a nested repository with its own history.
        let paths = listed.split(|&byte| byte == 0).filter(|path| {
            let inside = path.strip_prefix(&self.prefix[..]).unwrap_or(path);
            let file = || self.top.join(OsStr::from_bytes(path));
            !path.is_empty() && !path.ends_with(b"/") && filter.shows(inside, false) && !shows_credentials(inside, file)
        });
        // A file may have become a folder, or a folder a file. A folder with a repository in it is a submodule.
        let is_folder = |path: &&[u8]| {
            let found = self.top.join(OsStr::from_bytes(path));
            found.symlink_metadata().is_ok_and(|found| found.is_dir()) && !found.join(".git").exists()
        };
        let (gone, changed): (Vec<&[u8]>, Vec<&[u8]>) = paths.partition(is_folder);
        if !gone.is_empty() {
            let remove = ["update-index", "-z", "--force-remove", "--stdin"];
            run("update-index", git().args(remove), Some(&nul(gone.into_iter())))?;
        }
        let update = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"];
        run("update-index", git().args(update), Some(&nul(changed.into_iter())))?;
        Ok(text(&run("write-tree", git().arg("write-tree"), None)?))
    }

    /// Files that the user told git to ignore (`--assume-unchanged`, `--skip-worktree`) are still checked in our index,
    /// if they exist.
    fn look_at_all(&self, index: &Path) -> Result<(), Error> {
        let git = || self.git(GitConfigScope::Repository, Some(index));
        let listed = run("ls-files", git().args(["ls-files", "-z", "-v"]), None)?;
        let (mut assumed, mut skipped) = (Vec::new(), Vec::new());
        for line in listed.split(|&byte| byte == 0) {
            let [tag, b' ', path @ ..] = line else { continue };
            if tag.is_ascii_lowercase() {
                assumed.push(path);
            }
            let is_there = || self.top.join(OsStr::from_bytes(path)).symlink_metadata().is_ok();
            if tag.eq_ignore_ascii_case(&b's') && is_there() {
                skipped.push(path);
            }
        }
        for (flag, paths) in [("--no-assume-unchanged", assumed), ("--no-skip-worktree", skipped)] {
            if !paths.is_empty() {
                let input = nul(paths.into_iter());
                run("update-index", git().args(["update-index", "-z", flag, "--stdin"]), Some(&input))?;
            }
        }
        Ok(())
    }

    /// Copies the user's index with its cached file times, so that not every file must be read.
    fn copy_index(&self, index: &Path) -> Result<(), Error> {
        let user_index = self.git_dir.join("index");
        let failed = |source| Error::Index { path: index.to_owned(), source };
        match fs::copy(&user_index, index) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !user_index.exists() => {
                match fs::remove_file(index) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
                    _ => Ok(()),
                }
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn listed(&self, paths: &[Vec<u8>]) -> Result<std::collections::HashSet<Vec<u8>>, Error> {
        if paths.is_empty() {
            return Ok(std::collections::HashSet::new());
        }
        let listed = run("ls-files", self.git(GitConfigScope::User, None).args(["ls-files", "-z"]), None)?;
        Ok(listed.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect())
    }

    fn resolve(&self, name: &str) -> Result<Option<String>, Error> {
        let commit = format!("{name}^{{commit}}");
        let mut command = self.git(GitConfigScope::Repository, None);
        let output = command.args(["rev-parse", "--verify", "--quiet", &commit]).output().map_err(Error::Missing)?;
        Ok(output.status.success().then(|| text(&output.stdout)))
    }

    fn git(&self, config: GitConfigScope, index: Option<&Path>) -> Command {
        let mut command = command(&self.top, config, index);
        command.env("GIT_DIR", &self.git_dir).env("GIT_WORK_TREE", &self.top);
        command
    }
}

/// A git command that runs nothing else, prompts for nothing and locks nothing of the user.
fn command(dir: &Path, config: GitConfigScope, index: Option<&Path>) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir);
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
    if let Some(index) = index {
        command.env("GIT_INDEX_FILE", index);
    }
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

fn run(what: &str, command: &mut Command, input: Option<&[u8]>) -> Result<Vec<u8>, Error> {
    let output = match input {
        Some(input) => command.run_with_input(input)?,
        None => command.output().map_err(Error::Missing)?,
    };
    if output.status.success() { Ok(output.stdout) } else { Err(failed(what, &output)) }
}

fn failed(what: &str, output: &Output) -> Error {
    Error::Failed { what: what.to_owned(), said: show(output.stderr.trim_ascii()) }
}

/// Git's output without the trailing newline.
fn line(mut output: Vec<u8>) -> Vec<u8> {
    if output.last() == Some(&b'\n') {
        output.pop();
    }
    output
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

trait RunWithInput {
    /// Runs to completion with this input, which is written while the output is read.
    fn run_with_input(&mut self, input: &[u8]) -> Result<Output, Error>;
}

impl RunWithInput for Command {
    fn run_with_input(&mut self, input: &[u8]) -> Result<Output, Error> {
        let mut child =
            self.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(Error::Missing)?;
        let mut stdin = child.stdin.take();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A git that exits early reports the reason itself.
                let _ = stdin.as_mut().map(|stdin| stdin.write_all(input));
            });
            child.wait_with_output().map_err(Error::Missing)
        })
    }
}
