//! What a run inside walls has instead of the repository: one of its own, which borrows the objects and knows the branches.
//! Whatever it does there changes nothing outside, and nothing outside reads it. What it commits is not taken over; its
//! files are.

use std::{fs, path::Path};

use super::{Error, RunWorktree, WorktreeAccess, at, run};
use crate::report::git::private;

impl RunWorktree {
    /// What git needs of the repository to work in it, with the repository of a run inside walls, which is made if it isn't
    /// there yet. Fails if something else has taken the place of the worktree's own.
    pub fn access(&self) -> Result<WorktreeAccess, Error> {
        let common = self.record.common.clone();
        let (admin, own) = (self.admin(), self.beside("repository"));
        for path in [common.join("objects"), common.clone(), admin.clone()] {
            if path.canonicalize().ok().as_ref() != Some(&path) || !path.is_dir() {
                return Err(Error::Replaced(path));
            }
        }
        if !own.is_dir() {
            self.make_own(&own)?;
        }
        let (git_file, own_git_file) = (self.files().join(".git"), self.beside("gitfile"));
        fs::write(&own_git_file, format!("gitdir: {}\n", own.display())).map_err(at(&own_git_file))?;
        Ok(WorktreeAccess { common, admin, own, git_file, own_git_file })
    }

    /// Under another name first, so that it is complete if it is there.
    fn make_own(&self, own: &Path) -> Result<(), Error> {
        let draft = self.beside("repository-draft");
        match attache_os::removal::remove(&draft) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(at(&draft)(error)),
            _ => {}
        }
        for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags"] {
            fs::create_dir_all(draft.join(folder)).map_err(at(&draft))?;
        }
        let common = &self.record.common;
        for (file, content) in [
            ("HEAD", format!("ref: {}\n", self.reference()).into_bytes()),
            ("config", self.own_config()?.into_bytes()),
            ("packed-refs", self.branches()?),
            ("objects/info/alternates", format!("{}\n", common.join("objects").display()).into_bytes()),
        ] {
            fs::write(draft.join(file), content).map_err(at(&draft))?;
        }
        std::os::unix::fs::symlink(common.join("info"), draft.join("info")).map_err(at(&draft))?;
        if common.join("shallow").is_file() {
            fs::copy(common.join("shallow"), draft.join("shallow")).map_err(at(&draft))?;
        }
        fs::copy(self.beside("index"), draft.join("index")).map_err(at(&draft))?;
        fs::rename(&draft, own).map_err(at(own))
    }

    /// The settings are those of the repository, such as its remotes, but where it is, is its own.
    fn own_config(&self) -> Result<String, Error> {
        let settings = self.record.common.join("config");
        let formats = private::config(&settings)?;
        let [settings, files] = [settings, self.files()].map(|path| private::quoted(&path.to_string_lossy()));
        Ok(format!("{formats}[include]\n\tpath = {settings}\n[core]\n\tbare = false\n\tworktree = {files}\n"))
    }

    /// All branches and tags, as a file of packed ones.
    fn branches(&self) -> Result<Vec<u8>, Error> {
        let private = self.repository()?;
        let mut list = private.git();
        Ok(run("for-each-ref", list.args(["for-each-ref", "--format=%(objectname) %(refname)"]), None)?)
    }
}
