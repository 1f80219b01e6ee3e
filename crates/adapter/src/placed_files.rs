//! A run's own folder in its working folder, for the files that came with its task. Others may write to the working
//! folder, and the host of a delegated one decides what is in it, so nothing here follows a link.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use attache_os::{confined::open_beneath, look_up, removal};
use attache_protocol::wire::{
    adapter::{ATTACHMENT_FOLDER, TaskReply},
    awcp,
};
use rustix::{
    fs::{Mode, OFlags, mkdirat, open, openat},
    io::Errno,
};

use crate::{
    DriverRun,
    attachment::{Attachment, AttachmentBody},
};

/// Attachment files placed in the run's folder. Dropping this removes them.
#[derive(Debug, Default)]
pub(crate) struct PlacedFiles {
    folder: Option<PathBuf>,
    /// Relative to the run's folder.
    pub(crate) files: Vec<PlacedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedFile {
    pub(crate) path: PathBuf,
    pub(crate) media_type: String,
}

/// The folders that this process made and hasn't removed.
static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

// === impl PlacedFiles ===

impl PlacedFiles {
    /// Writes the attachments into a folder of their own, inside the host's working folder.
    pub(crate) fn place(job: &DriverRun, attachments: &[&Attachment]) -> Result<Self, TaskReply> {
        let failed = |error: io::Error| {
            let message = format!("the task's attachments can't be put into `{}`: {error}", job.cwd.display());
            TaskReply::failed("host_crashed", message)
        };
        let cwd = job.real_folder().map_err(failed)?;
        Self::write(&cwd, &job.task.task_run_id.to_string(), attachments).map_err(failed)
    }

    fn write(cwd: &Path, run: &str, attachments: &[&Attachment]) -> io::Result<Self> {
        if attachments.iter().all(|attachment| attachment.is_link()) {
            return Ok(Self::default());
        }
        let (mut placed, folder) = Self::make_folder(cwd, run)?;
        for attachment in attachments {
            match &attachment.body {
                AttachmentBody::Bytes(bytes) => create(&folder, &attachment.name)?.write_all(bytes)?,
                AttachmentBody::File(from) => {
                    io::copy(&mut File::open(from)?, &mut create(&folder, &attachment.name)?)?;
                }
                AttachmentBody::Link(_) => continue,
            }
            let path = Path::new(ATTACHMENT_FOLDER).join(run).join(&attachment.name);
            placed.files.push(PlacedFile { path, media_type: attachment.media_type.clone() });
        }
        Ok(placed)
    }

    /// Keeps the shared folder there while a run is inside walls, which hide what comes with other runs. `None` if the
    /// run has a folder already, or if none can be created.
    pub(crate) fn reserve(job: &DriverRun) -> Option<Self> {
        // A delegated folder is used by one run only, and what is made in it is made at its owner's.
        if job.task.task_type == awcp::TASK_TYPE {
            return None;
        }
        Self::make_folder(&job.real_folder().ok()?, &job.task.task_run_id.to_string()).ok().map(|(made, _)| made)
    }

    /// The folder of a run's files, if this process made it. What somebody else put there may lead anywhere.
    pub(crate) fn of_run(job: &DriverRun) -> Option<PathBuf> {
        let folder = job.real_folder().ok()?.join(ATTACHMENT_FOLDER).join(job.task.task_run_id.to_string());
        made().contains(&folder).then_some(folder)
    }

    /// What walls hide because it comes with other runs, and the part of it that is this run's. Nothing of a delegated
    /// folder: there are no other runs in it, and where a path in it leads is up to its host.
    pub(crate) fn hidden(job: &DriverRun, cwd: &Path) -> io::Result<Option<(PathBuf, Option<PathBuf>)>> {
        let came = cwd.join(ATTACHMENT_FOLDER);
        if job.task.task_type == awcp::TASK_TYPE || !look_up::is_folder(&came)? {
            return Ok(None);
        }
        let own = Self::of_run(job).map(|_| came.join(job.task.task_run_id.to_string()));
        Ok(Some((came, own)))
    }

    fn make_folder(cwd: &Path, run: &str) -> io::Result<(Self, OwnedFd)> {
        // Another run that ends removes the shared folder, perhaps between two of these steps.
        let mut made = Self::try_make_folder(cwd, run);
        for _ in 0..3 {
            if !matches!(&made, Err(error) if error.kind() == io::ErrorKind::NotFound) {
                break;
            }
            made = Self::try_make_folder(cwd, run);
        }
        made
    }

    fn try_make_folder(cwd: &Path, run: &str) -> io::Result<(Self, OwnedFd)> {
        // Not even on the way there.
        let system = open("/", FOLDER, Mode::empty())?;
        let above = open_beneath(system, cwd.strip_prefix("/").unwrap_or(cwd))?;
        let is_new = match mkdirat(&above, ATTACHMENT_FOLDER, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let shared = openat(&above, ATTACHMENT_FOLDER, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(not_ours)?;
        if is_new {
            // Keeps the files out of version control.
            create(&shared, ".gitignore")?.write_all(b"*\n")?;
        }
        mkdirat(&shared, run, Mode::RWXU)?;
        let folder = openat(&shared, run, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        let path = cwd.join(ATTACHMENT_FOLDER).join(run);
        made().insert(path.clone());
        Ok((Self { folder: Some(path), files: Vec::new() }, folder))
    }

    /// The folder with the files, if any were placed.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref().filter(|_| !self.files.is_empty())
    }
}

fn made() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A link would lead somewhere else.
fn not_ours(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR => {
            io::Error::new(io::ErrorKind::NotADirectory, format!("`{ATTACHMENT_FOLDER}` isn't a folder"))
        }
        other => other.into(),
    }
}

fn create(folder: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

impl Drop for PlacedFiles {
    fn drop(&mut self) {
        let Some(folder) = self.folder.take() else { return };
        if let Err(error) = removal::remove(&folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %folder.display(), %error, "couldn't remove a task's attachment files");
        }
        if let Some(shared) = folder.parent() {
            // Remove the shared folder with its last run, unless it contains something else.
            let is_last = fs::read_dir(shared)
                .is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name() == ".gitignore"));
            if is_last {
                let _ = fs::remove_file(shared.join(".gitignore"));
                let _ = fs::remove_dir(shared);
            }
        }
        made().remove(&folder);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn placed_files_stay_in_the_folder_until_the_run_ends() {
        let folder = tempfile::tempdir().unwrap();
        let file = Attachment {
            name: "a.txt".to_owned(),
            media_type: "text/plain".to_owned(),
            body: AttachmentBody::Bytes(b"hi".to_vec()),
        };
        let write = |run| PlacedFiles::write(folder.path(), run, &[&file]);
        let placed = write("run_1").unwrap();
        assert_eq!(fs::read(folder.path().join(".attache/run_1/a.txt")).unwrap(), b"hi");
        let other = write("run_2").unwrap();
        drop(placed);
        assert!(folder.path().join(".attache/run_2/a.txt").exists());
        drop(other);
        assert!(!folder.path().join(".attache").exists());
        // Neither a link in place of the folder nor one in it is followed.
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), folder.path().join(".attache")).unwrap();
        assert!(write("run_3").is_err());
        fs::remove_file(folder.path().join(".attache")).unwrap();
        fs::create_dir(folder.path().join(".attache")).unwrap();
        symlink(elsewhere.path(), folder.path().join(".attache/run_4")).unwrap();
        assert!(write("run_4").is_err());
        assert!(fs::read_dir(elsewhere.path()).unwrap().next().is_none());
    }
}
