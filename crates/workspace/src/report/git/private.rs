//! A repository of ours with the objects and refs of the user's, but not its configuration. Git runs no filter, hook or
//! other program that the user's repository names, whether in its own configuration or in a file that it includes.
//!
//! A remote can write such files, and the scripts that they run, so nothing in the folder may start a program here.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use attache_os::small_file;

use super::{Error, GitConfigScope, GitRepository, canonical, command, command_in, discovery, own, plain, run};

/// Exists only as long as this value.
#[derive(Debug)]
pub(super) struct PrivateRepository {
    dir: PathBuf,
    top: PathBuf,
    /// Where the user's repository has its objects and refs.
    common: PathBuf,
    /// Where git works on its own: it sees the working tree, the two repositories, and no other file of this user.
    view: Vec<OsString>,
}

/// The settings that are taken over: formats, and how files are compared. None of them names a program.
const HARMLESS: &[&str] = &[
    "core.attributesfile",
    "core.autocrlf",
    "core.checkstat",
    "core.eol",
    "core.excludesfile",
    "core.filemode",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.symlinks",
    "core.trustctime",
    REF_STORAGE,
    "extensions.objectformat",
];
const REF_STORAGE: &str = "extensions.refstorage";

const MAX_ATTRIBUTES: u64 = 1 << 20;
/// The length of a file that only says where something is.
const MAX_POINTER: u64 = 8 * 1024;

// === impl PrivateRepository ===

impl PrivateRepository {
    /// Replaces what an earlier process left at `dir`.
    pub(super) fn create(repository: &GitRepository, dir: &Path) -> Result<Self, Error> {
        remove(dir).map_err(|source| Error::File { path: dir.to_owned(), source })?;
        let git_dir = &repository.git_dir;
        let common = common_dir(git_dir)?;
        let borrowed = plain::check(git_dir, &common)?;
        let config = config(&common.join("config"))?;
        if *git_dir != common && config.contains("refstorage = \"reftable\"") {
            return Err(Error::LinkedReftable);
        }
        let top = repository.top.clone();
        fs::create_dir_all(dir).map_err(|source| Error::File { path: dir.to_owned(), source })?;
        let dir = canonical(dir)?;
        // What is in the working tree comes with it: a run could put a link there until it is shown by itself.
        let apart = [&*common, git_dir].into_iter().filter(|folder| !folder.starts_with(&top));
        let shown: Vec<&Path> = apart.chain([&*top, &dir]).collect();
        let borrowed: Vec<&Path> = borrowed.iter().map(PathBuf::as_path).collect();
        let view = attache_sandbox::file_view(&borrowed, &shown);
        let private = Self { dir: dir.clone(), top, common: common.clone(), view };
        private.fill(git_dir, &common, &config).map_err(|source| Error::File { path: dir, source })?;
        Ok(private)
    }

    fn fill(&self, git_dir: &Path, common: &Path, config: &str) -> io::Result<()> {
        fs::create_dir_all(self.dir.join("logs"))?;
        fs::write(self.dir.join("config"), config)?;
        // Git doesn't accept a link here.
        fs::write(self.dir.join("HEAD"), small_file::read(&git_dir.join("HEAD").canonicalize()?, MAX_POINTER)?)?;
        let link = |from: &Path, name: &str| {
            let target = from.join(name);
            if target.exists() { symlink(target, self.dir.join(name)) } else { Ok(()) }
        };
        fs::create_dir(self.dir.join("info"))?;
        for name in [
            "objects",
            "refs",
            "packed-refs",
            "reftable",
            "shallow",
            "info/exclude",
            "info/sparse-checkout",
            "info/grafts",
        ] {
            link(common, name)?;
        }
        // These outrank the `.gitattributes` in the folder, by which a file can be kept out of every diff.
        let attributes = match small_file::read(&common.join("info/attributes"), MAX_ATTRIBUTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        fs::write(self.dir.join("info/attributes"), format!("{attributes}\n* !diff\n"))?;
        // Parts of a split index.
        for entry in fs::read_dir(git_dir)? {
            if let Some(name) = entry?.file_name().to_str().filter(|name| name.starts_with("sharedindex.")) {
                link(git_dir, name)?;
            }
        }
        Ok(())
    }

    /// Lets git write the logs of `HEAD` and of this branch. Otherwise it writes none: it follows a link in their place.
    pub(super) fn write_logs(&self, git_dir: &Path, branch: &str) -> Result<(), Error> {
        plain::check_path(git_dir, Path::new("logs/HEAD"))?;
        plain::check_path(&self.common, &Path::new("logs").join(branch))?;
        plain::check_path(&self.common, Path::new(branch))?;
        for (from, name) in [(&*self.common, "logs/refs"), (git_dir, "logs/HEAD")] {
            let target = from.join(name);
            if target.exists() {
                symlink(&target, self.dir.join(name)).map_err(|source| Error::File { path: target, source })?;
            }
        }
        Ok(())
    }

    /// A command with this repository's own index.
    pub(super) fn git(&self) -> Command {
        self.located(command_in(&self.view, &self.top, GitConfigScope::Repository))
    }

    /// For commands that only answer and run no program, whatever the user's own configuration says. It can name files
    /// anywhere.
    pub(super) fn git_of_user(&self) -> Command {
        self.located(command(&self.top, GitConfigScope::User))
    }

    fn located(&self, mut git: Command) -> Command {
        git.env("GIT_DIR", &self.dir).env("GIT_WORK_TREE", &self.top);
        git
    }

    pub(super) fn index(&self) -> PathBuf {
        self.dir.join("index")
    }
}

impl Drop for PrivateRepository {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.dir) {
            tracing::debug!(path = %self.dir.display(), %error, "failed to remove the private repository");
        }
    }
}

/// Links are removed, not followed.
fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where a linked worktree has its objects, refs and configuration, as git says.
pub(super) fn common_dir(git_dir: &Path) -> Result<PathBuf, Error> {
    let ask = || {
        let mut git = discovery(git_dir);
        git.arg("--git-dir").arg(git_dir);
        git
    };
    own::ask(&ask)?.map(|found| found.common).ok_or_else(|| Error::Unusable(git_dir.to_owned()))
}

/// The harmless settings of the repository's own configuration file, without those of included files.
pub(super) fn config(file: &Path) -> Result<String, Error> {
    let mut text = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n".to_owned();
    if !file.exists() {
        return Ok(text);
    }
    let mut list = command(Path::new("/"), GitConfigScope::Repository);
    list.env("GIT_DIR", "/nonexistent").args(["config", "--no-includes", "-z", "--list", "--file"]).arg(file);
    let listed = run("config", &mut list, None)?;
    for setting in listed.split(|&byte| byte == 0) {
        let setting = String::from_utf8_lossy(setting);
        // Without a value, it is set.
        let (key, value) = setting.split_once('\n').unwrap_or((&setting, "true"));
        if let Some((section, name)) = key.split_once('.').filter(|_| HARMLESS.contains(&key)) {
            text.push_str(&format!("[{section}]\n\t{name} = {}\n", quoted(value)));
        }
    }
    Ok(text)
}

/// A value as a configuration file has it.
pub(super) fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
