//! A repository of ours with the objects and refs of the user's, but not its configuration. Git runs no filter, hook or
//! other program that the user's repository names, whether in its own configuration or in a file that it includes.
//!
//! A remote can write such files, and the scripts that they run, so nothing in the folder may start a program here.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Error, GitConfigScope, GitRepository, command, path, run};

/// Exists only as long as this value.
#[derive(Debug)]
pub(super) struct PrivateRepository {
    dir: PathBuf,
    top: PathBuf,
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

// === impl PrivateRepository ===

impl PrivateRepository {
    /// Replaces what an earlier process left at `dir`.
    pub(super) fn create(repository: &GitRepository, dir: &Path) -> Result<Self, Error> {
        remove(dir).map_err(|source| Error::File { path: dir.to_owned(), source })?;
        let private = Self { dir: dir.to_owned(), top: repository.top.clone() };
        let git_dir = &repository.git_dir;
        let common = common_dir(git_dir)?;
        let config = config(&common.join("config"))?;
        if *git_dir != common && config.contains("refstorage = \"reftable\"") {
            let said = "a linked worktree whose refs are stored as reftable is not supported".to_owned();
            return Err(Error::Failed { what: "worktree".to_owned(), said });
        }
        private.fill(git_dir, &common, &config).map_err(|source| Error::File { path: dir.to_owned(), source })?;
        Ok(private)
    }

    fn fill(&self, git_dir: &Path, common: &Path, config: &str) -> io::Result<()> {
        fs::create_dir_all(self.dir.join("logs"))?;
        fs::write(self.dir.join("config"), config)?;
        // Git doesn't accept a link here.
        fs::copy(git_dir.join("HEAD"), self.dir.join("HEAD"))?;
        let link = |from: &Path, name: &str| {
            let target = from.join(name);
            if target.exists() { symlink(target, self.dir.join(name)) } else { Ok(()) }
        };
        for name in ["objects", "refs", "packed-refs", "reftable", "info", "shallow", "logs/refs"] {
            link(common, name)?;
        }
        link(git_dir, "logs/HEAD")?;
        // Parts of a split index.
        for entry in fs::read_dir(git_dir)? {
            if let Some(name) = entry?.file_name().to_str().filter(|name| name.starts_with("sharedindex.")) {
                link(git_dir, name)?;
            }
        }
        Ok(())
    }

    /// A command with this repository's own index.
    pub(super) fn git(&self) -> Command {
        self.git_with(GitConfigScope::Repository)
    }

    /// For commands that run no program, whatever the user's own configuration says.
    pub(super) fn git_with(&self, config: GitConfigScope) -> Command {
        let mut command = command(&self.top, config);
        command.env("GIT_DIR", &self.dir).env("GIT_WORK_TREE", &self.top);
        command
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

/// Where a linked worktree has its objects, refs and configuration.
fn common_dir(git_dir: &Path) -> Result<PathBuf, Error> {
    let file = git_dir.join("commondir");
    match fs::read(&file) {
        Ok(bytes) => {
            let joined = git_dir.join(path(bytes.trim_ascii_end().to_vec()));
            fs::canonicalize(&joined).map_err(|source| Error::File { path: joined, source })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(git_dir.to_owned()),
        Err(source) => Err(Error::File { path: file, source }),
    }
}

/// The harmless settings of the repository's own configuration file, without those of included files.
fn config(file: &Path) -> Result<String, Error> {
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
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            text.push_str(&format!("[{section}]\n\t{name} = \"{value}\"\n"));
        }
    }
    Ok(text)
}
