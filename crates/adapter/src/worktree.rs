//! A git worktree of its own for a run, instead of the agent's folder: made before the driver starts, and looked at when it
//! has ended. What happens to the changes then is up to the device's owner.

use std::{path::PathBuf, sync::Arc, time::Duration};

use attache_protocol::wire::{
    adapter::{ArtifactChange, TaskReply},
    part::{Part, PartContent},
};
use attache_sandbox::{FileOverlay, FileView, Walls};
use attache_workspace::report::git::{
    self,
    worktree::{Error, RunWorktree, WorkingGuard, WorktreeAccess, WorktreeFolder, WorktreeState},
};
use serde::Deserialize;

use crate::{DriverRun, EventSink};

/// How long git may take to look at what a run has left.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(120);

/// How much of the changes becomes an artifact. The hub accepts 4 MiB as JSON.
const MAX_DIFF: usize = 512 * 1024;

/// The worktree in which a run works.
pub(crate) struct EnteredWorktree {
    worktree: Arc<RunWorktree>,
    working: WorkingGuard,
}

/// The files that a reply hands over.
#[derive(Deserialize)]
struct ReplyArtifacts {
    #[serde(default)]
    artifact_refs: Vec<serde::de::IgnoredAny>,
}

/// Makes the worktree of a run that wants one, and lets the run work there. `Err` if it can't be made.
pub(crate) async fn enter(job: &mut DriverRun) -> Result<Option<EnteredWorktree>, TaskReply> {
    let Some(folder) = job.task.worktrees.take() else { return Ok(None) };
    if job.task.host_session.is_some() {
        let message = "a session that was started in the agent's folder can't continue in a worktree, so the task was not \
                       started; leave the worktree out, or start a new conversation";
        return Err(TaskReply::failed("refused", message));
    }
    let (folder, run, cwd, now) =
        (WorktreeFolder::at(PathBuf::from(folder)), job.task.task_run_id, job.cwd.clone(), job.env.now());
    let made = tokio::task::spawn_blocking(move || {
        let removed = folder.prune(now);
        if !removed.is_empty() {
            tracing::info!(?removed, "removed old worktrees; their branches are kept");
        }
        let worktree = folder.create(run, &cwd, now)?;
        let (access, working) = (worktree.access()?, worktree.hold()?);
        Ok::<_, Error>((worktree, access, working))
    });
    let (worktree, access, working) = match made.await {
        Ok(made) => made.map_err(|error| not_made(&error))?,
        Err(_) => {
            return Err(TaskReply::failed(
                "host_crashed",
                "making the worktree panicked; the adapter's log has the details",
            ));
        }
    };
    job.cwd = worktree.cwd();
    // The runtime knows the folder by another name, so files are named in full.
    job.task.cwd = None;
    job.worktree = Some(access);
    job.events.log("info", format!("working in its own git worktree, on the branch {}", worktree.branch()));
    Ok(Some(EnteredWorktree { worktree: Arc::new(worktree), working }))
}

/// Shows what the run changed, or removes a worktree in which it left nothing.
pub(crate) async fn leave(entered: EnteredWorktree, reply: &TaskReply, events: &EventSink) {
    let EnteredWorktree { worktree, working } = entered;
    drop(working);
    let hands_over = reply.output.as_ref().and_then(|output| output.parse::<ReplyArtifacts>().ok());
    let is_needed = hands_over.is_some_and(|output| !output.artifact_refs.is_empty());
    let run = worktree.record().run;
    let inspected = worktree.clone();
    let inspection = tokio::task::spawn_blocking(move || inspect(&inspected, is_needed));
    match tokio::time::timeout(INSPECTION_TIMEOUT, inspection).await {
        Ok(Ok(Ok(Some((state, diff))))) => {
            events.log("info", summary(&worktree, &state));
            if !diff.is_empty() {
                events.artifact(&artifact(&diff));
            }
        }
        Ok(Ok(Ok(None))) => events.log("info", "the run changed no files, so its worktree was removed"),
        Ok(Ok(Err(error))) => events.log("warning", format!("the changes of the worktree can't be shown: {error}")),
        Ok(Err(_)) | Err(_) => {
            events.log(
                "warning",
                format!("git didn't show the changes in time; on the device: attache worktrees diff {run}"),
            );
        }
    }
}

fn inspect(worktree: &RunWorktree, is_needed: bool) -> Result<Option<(WorktreeState, Vec<u8>)>, Error> {
    let state = match is_needed {
        true => Some(worktree.state()?),
        false => worktree.discard_if_untouched()?,
    };
    state.map(|state| Ok((state, worktree.diff()?))).transpose()
}

fn summary(worktree: &RunWorktree, state: &WorktreeState) -> String {
    let run = worktree.record().run;
    let files = match state.changed.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let mut text =
        format!("{files} changed on the branch {}; on the device: attache worktrees diff {run}", worktree.branch());
    if !state.differs_on_branch.is_empty() {
        text.push_str(&format!(
            "; commits on the branch differ from the final files, in: {}",
            state.differs_on_branch.join(", ")
        ));
    }
    if !state.nested.is_empty() {
        text.push_str(&format!(
            "; not included, because they are separate repositories or submodules: {}",
            state.nested.join(", ")
        ));
    }
    text
}

fn artifact(diff: &[u8]) -> ArtifactChange {
    let whole = String::from_utf8_lossy(diff);
    let mut end = whole.len().min(MAX_DIFF);
    while !whole.is_char_boundary(end) {
        end -= 1;
    }
    let mut text = whole[..end].to_owned();
    if end < whole.len() {
        text.truncate(text.rfind('\n').map_or(0, |line| line + 1));
        text.push_str(&format!("# {} more bytes are not shown here\n", whole.len() - text.len()));
    }
    let part = Part {
        content: PartContent::Text(text),
        filename: Some("changes.diff".to_owned()),
        media_type: Some("text/x-diff".to_owned()),
        metadata: None,
    };
    ArtifactChange {
        artifact_id: "worktree-changes".to_owned(),
        name: Some("changes.diff".to_owned()),
        parts: vec![part],
        append: false,
        last_chunk: false,
    }
}

/// Lets a run inside walls use git in its worktree. If it sees only its folder, git leads to a repository of its own there,
/// and nothing of the person's can be written. If that folder is only a part of the repository, it gets its part of the
/// files and no git, which would show it the rest.
pub(crate) fn open(walls: &mut Walls, job: &DriverRun) {
    let Some(WorktreeAccess { common, admin, own, git_file, own_git_file }) = &job.worktree else { return };
    if walls.files == FileView::Declared && git_file.parent() != Some(&walls.cwd) {
        return;
    }
    walls.read.push(common.clone());
    walls.exact.push(common.clone());
    let has_namespaces = job.walls.as_ref().is_some_and(|own| own.launcher.has_namespaces());
    match (walls.files, has_namespaces) {
        // Nothing keeps it from the repository.
        (FileView::All, _) => walls.write.push(admin.clone()),
        (FileView::Declared, true) => {
            walls.write.push(own.clone());
            walls.fixed.retain(|path| path != git_file);
            walls.overlays.push(FileOverlay { file: own_git_file.clone(), shown_at: git_file.clone() });
        }
        // It can read what is there, and not commit.
        (FileView::Declared, false) => {}
    }
}

fn not_made(error: &Error) -> TaskReply {
    let remedy = match error {
        Error::NoRepository(_) => "leave the worktree out, or let the agent work in a repository",
        Error::Unborn(_) => "commit something first",
        Error::Git(git::Error::Elsewhere(_)) => {
            "leave the worktree out, or let the agent work in a folder that has its repository, or in one of \
             `git worktree add`"
        }
        Error::Borrowed(_) => {
            "leave the worktree out, or copy them into the repository (`git repack -a -d`) and remove that file"
        }
        Error::Busy(_) => "or leave the worktree out",
        Error::Inside(_) => "set A2A_HOME to a folder outside the repository",
        _ => "leave the worktree out",
    };
    TaskReply::failed("refused", format!("no worktree can be made, so the task was not started: {error}; {remedy}"))
}
