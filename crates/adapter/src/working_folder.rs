//! The folder that a run works in, and the repository around it: runs inside walls and runs outside take turns there. One
//! inside could put a link, or a setting that names a program, in the way of one outside at any moment.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use attache_os::{
    folder_use::{FolderUse, FolderUseError, FolderUser},
    lock::FolderLock,
    look_up,
};
use attache_protocol::wire::{
    adapter::{AdapterProgress, TaskReply},
    awcp,
};

use rustix::io::Errno;

use crate::{
    DriverRun,
    host::limits,
    repository::{common_folder, named_repository, repository_around},
};

/// Reserves the working folder while a run uses it.
#[derive(Debug)]
pub(crate) struct WorkingFolderReservation {
    _used: FolderUse,
    /// Keeps everybody from making or applying worktrees of the folder.
    _lock: Option<FolderLock>,
}

/// How long a run waits for those of the other kind.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// How long one waits that another run called: that one may be the one that works in the folder, and waits for this one. It is
/// long enough for a worktree that is being made.
const CALLED_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Holds the folder for the run itself. `None` if nobody else can be in its way: it works in a worktree that it can't leave, or
/// in a folder that somebody lends.
pub(crate) async fn hold(job: &DriverRun) -> Result<Option<WorkingFolderReservation>, TaskReply> {
    let user = if limits::sees_only_folder(job) { FolderUser::Walled } else { FolderUser::Open };
    if job.task.task_type == awcp::TASK_TYPE || user == FolderUser::Walled && job.worktree.is_some() {
        return Ok(None);
    }
    hold_as(job, user).await
}

/// Holds the folder while a worktree is made of its repository, which happens outside walls.
pub(crate) async fn hold_source(job: &DriverRun) -> Result<Option<WorkingFolderReservation>, TaskReply> {
    match job.task.worktrees {
        Some(_) => hold_as(job, FolderUser::Open).await,
        None => Ok(None),
    }
}

async fn hold_as(job: &DriverRun, user: FolderUser) -> Result<Option<WorkingFolderReservation>, TaskReply> {
    let mut left = match job.task.parent_task_run_id {
        Some(_) => CALLED_TIMEOUT,
        None => WAIT_TIMEOUT,
    };
    if let Some(deadline) = job.task.deadline {
        left = left.min(deadline.since(job.env.now()));
    }
    let mut is_told = false;
    loop {
        let cwd = job.cwd.clone();
        let held = tokio::task::spawn_blocking(move || try_hold(&cwd, user)).await;
        match held.map_err(io::Error::from) {
            Ok(Ok(held)) => return Ok(Some(held)),
            Ok(Err(FolderUseError::Busy(folder))) if left.is_zero() => return Err(refused(job, user, &folder)),
            Ok(Err(FolderUseError::Busy(folder))) if !is_told => {
                is_told = true;
                tracing::info!(run.id = %job.task.task_run_id, folder = %folder.display(), "waits for its folder");
                let message = format!("waiting until {} in {} has ended", other(user), folder.display());
                job.events.progress(&AdapterProgress { message: Some(message), ..AdapterProgress::default() });
            }
            Ok(Err(FolderUseError::Busy(_))) => {}
            Ok(Err(error @ FolderUseError::Unmarked { .. })) => {
                tracing::debug!(%error, "the folder of a run can't be held");
                return Ok(None);
            }
            Ok(Err(FolderUseError::Unreachable { path, source })) => {
                let message = format!(
                    "who works in {} can't be found out, so the task was not started: {source}",
                    path.display()
                );
                return Err(TaskReply::failed("host_crashed", message));
            }
            Err(error) => {
                let message = format!("looking at its folder failed: {error}; the adapter's log has the details");
                return Err(TaskReply::failed("host_crashed", message));
            }
        }
        let pause = RETRY_INTERVAL.min(left);
        tokio::select! {
            () = tokio::time::sleep(pause) => left -= pause,
            () = job.stop.cancelled() => return Err(TaskReply::failed("cancelled", "the run was stopped before it began")),
        }
    }
}

fn try_hold(cwd: &Path, user: FolderUser) -> Result<WorkingFolderReservation, FolderUseError> {
    let unreachable = |source| FolderUseError::Unreachable { path: cwd.to_owned(), source };
    let cwd = look_up::real_path(cwd).and_then(|cwd| cwd.ok_or(Errno::NOENT.into())).map_err(unreachable)?;
    match user {
        FolderUser::Walled => {
            let used = FolderUse::begin(user, [cwd.as_path()])?;
            match FolderLock::shared(&cwd, Duration::ZERO) {
                Ok(Some(lock)) => Ok(WorkingFolderReservation { _used: used, _lock: Some(lock) }),
                Ok(None) => Err(FolderUseError::Busy(cwd)),
                Err(source) if look_up::has_no_locks(&source) => Err(FolderUseError::Unmarked { path: cwd, source }),
                Err(source) => Err(FolderUseError::Unreachable { path: cwd, source }),
            }
        }
        FolderUser::Open => loop {
            let folders = folders(&cwd).map_err(unreachable)?;
            let used = FolderUse::begin(user, folders.iter().map(PathBuf::as_path))?;
            // From now on, nobody leads git to another one.
            if self::folders(&cwd).map_err(unreachable)? == folders {
                return Ok(WorkingFolderReservation { _used: used, _lock: None });
            }
        },
    }
}

/// The folder, and those of the repository that git finds from there: its working tree, and where the rest of it is.
fn folders(cwd: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut folders = BTreeSet::from([cwd.to_owned()]);
    if let Some((top, git)) = repository_around(cwd)? {
        let own = named_repository(&git)?.unwrap_or(git);
        for home in common_folder(&own)?.into_iter().chain([own]) {
            folders.extend(look_up::real_path(&home)?.filter(|home| home.is_dir()));
        }
        folders.insert(top.to_owned());
    }
    Ok(folders)
}

/// Who is in the way.
const fn other(user: FolderUser) -> &'static str {
    match user {
        FolderUser::Walled => "a run outside the sandbox",
        FolderUser::Open => "a sandboxed run",
    }
}

fn refused(job: &DriverRun, user: FolderUser, folder: &Path) -> TaskReply {
    let remedy = match user {
        FolderUser::Walled if job.task.worktrees.is_none() => {
            "run this one in a worktree (--worktree), or try again when that one has ended"
        }
        FolderUser::Walled => "try again when that one has ended",
        FolderUser::Open => "try again when that one has ended, or run that one in a worktree (--worktree)",
    };
    let waits = match job.task.parent_task_run_id {
        Some(_) => " (a run that another one called doesn't wait, because that one may be waiting for it)",
        None => "",
    };
    let message = format!(
        "{} works in {}, and sandboxed runs and others don't work in a folder at the same time, so the task was not \
         started{waits}; {remedy}",
        other(user),
        folder.display()
    );
    TaskReply::failed("refused", message)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_run_outside_holds_everything_that_its_git_works_in() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        let folders_of_git = ["main/.git/objects", "main/.git/refs", "main/.git/worktrees/run"];
        for folder in ["plain", "main/sub", "run/sub", "run/planted/.git/objects"].iter().chain(&folders_of_git) {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("main/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(at("run/.git"), format!("gitdir: {}\n", at("main/.git/worktrees/run").display())).unwrap();
        fs::write(at("main/.git/worktrees/run/commondir"), "../..\n").unwrap();
        for (cwd, expected) in [
            ("plain", vec!["plain"]),
            ("main/sub", vec!["main", "main/.git", "main/sub"]),
            ("run/sub", vec!["main/.git", "main/.git/worktrees/run", "run", "run/sub"]),
            // Git passes by what is no repository, and finds the one around it.
            ("run/planted", vec!["main/.git", "main/.git/worktrees/run", "run", "run/planted"]),
        ] {
            assert_eq!(
                folders(&at(cwd)).unwrap().into_iter().collect::<Vec<_>>(),
                expected.into_iter().map(at).collect::<Vec<_>>()
            );
        }
    }
}
