//! A repository of ours with the objects and refs of the user's, but not its configuration. Git runs no filter, hook or
//! other program that the user's repository names, whether in its own configuration or in a file that it includes.
//!
//! A remote can write such files, and the scripts that they run, so nothing in the folder may start a program here.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use attache_os::small_file;

use super::{Error, GitConfigScope, GitRepository, command, own, path, plain, run};

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

const MAX_ATTRIBUTES: u64 = 1 << 20;
/// The length of a file that only says where something is.
const MAX_POINTER: u64 = 8 * 1024;

// === impl PrivateRepository ===

impl PrivateRepository {
    /// Replaces what an earlier process left at `dir`.
    pub(super) fn create(repository: &GitRepository, dir: &Path) -> Result<Self, Error> {
        remove(dir).map_err(|source| Error::File { path: dir.to_owned(), source })?;
        let private = Self { dir: dir.to_owned(), top: repository.top.clone() };
        let git_dir = &repository.git_dir;
        let common = common_dir(git_dir)?;
        plain::check(git_dir, &common)?;
        let config = config(&common.join("config"))?;
        if *git_dir != common && config.contains("refstorage = \"reftable\"") {
            return Err(Error::LinkedReftable);
        }
        private.fill(git_dir, &common, &config).map_err(|source| Error::File { path: dir.to_owned(), source })?;
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
        let common = common_dir(git_dir)?;
        plain::check_path(git_dir, Path::new("logs/HEAD"))?;
        plain::check_path(&common, &Path::new("logs").join(branch))?;
        plain::check_path(&common, Path::new(branch))?;
        for (from, name) in [(&*common, "logs/refs"), (git_dir, "logs/HEAD")] {
            let target = from.join(name);
            if target.exists() {
                symlink(&target, self.dir.join(name)).map_err(|source| Error::File { path: target, source })?;
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
pub(super) fn common_dir(git_dir: &Path) -> Result<PathBuf, Error> {
    let file = git_dir.join("commondir");
    let read = || {
        let mut bytes = Vec::new();
        small_file::open(&file, MAX_POINTER)?.read_to_end(&mut bytes).map(|_| bytes)
    };
    match read() {
        Ok(bytes) => {
            let joined = git_dir.join(path(own::without_line_end(&bytes).to_vec()));
            fs::canonicalize(&joined).map_err(|source| Error::File { path: joined, source })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(git_dir.to_owned()),
        Err(source) => Err(Error::File { path: file, source }),
    }
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
