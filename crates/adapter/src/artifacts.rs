//! Collects the files a task hands over: the paths it wrote to the file named by `ATTACHE_ARTIFACTS`.

use std::{
    io,
    path::{Path, PathBuf},
};

use attache_os::{look_up, program};
use attache_protocol::wire::adapter::FileRef;

use crate::{DriverRun, scratch::plain_text};

/// A longer file is a mistake, not a list of artifacts.
const MAX_LIST: u64 = 256 * 1024;

/// Reads the list. A listed file that can't be handed over fails the task, so a promised artifact is never silently
/// missing.
///
/// Paths are relative to `cwd` if the request named one, because the runtime then knows it. Otherwise they are
/// absolute.
pub(crate) async fn collect(list: PathBuf, job: &DriverRun) -> Result<Vec<FileRef>, String> {
    let (folder, hidden, cwd_is_known) = (job.real_folder(), job.hidden.clone(), job.task.cwd.is_some());
    tokio::task::spawn_blocking(move || read(&list, folder, &hidden, cwd_is_known))
        .await
        .unwrap_or_else(|error| Err(format!("the list of artifacts could not be read: {error}")))
}

fn read(
    list: &Path,
    folder: io::Result<PathBuf>,
    hidden: &[PathBuf],
    cwd_is_known: bool,
) -> Result<Vec<FileRef>, String> {
    let Some(text) = list_text(list)? else { return Ok(Vec::new()) };
    let root = folder.map_err(|error| format!("the task's folder is gone: {error}"))?;
    let hidden = hidden_below(&root, hidden).map_err(|error| format!("the artifacts can't be handed over: {error}"))?;
    let lines = text.lines().map(|line| line.trim_end_matches('\r')).filter(|line| !line.is_empty());
    lines.map(|line| entry(line, &root, &hidden, cwd_is_known)).collect()
}

fn list_text(list: &Path) -> Result<Option<String>, String> {
    plain_text(list, MAX_LIST).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            format!("$ATTACHE_ARTIFACTS must be a plain file of at most {MAX_LIST} bytes, one path per line")
        }
        _ => format!("the file $ATTACHE_ARTIFACTS cannot be read: {error}"),
    })
}

/// The hidden folders in this one, without links.
fn hidden_below(root: &Path, hidden: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let real = hidden.iter().map(|path| look_up::real_path(path)).collect::<io::Result<Vec<_>>>()?;
    Ok(real.into_iter().flatten().filter(|path| path.starts_with(root)).collect())
}

fn entry(line: &str, root: &Path, hidden: &[PathBuf], cwd_is_known: bool) -> Result<FileRef, String> {
    let path = root.join(line);
    // What the run doesn't see isn't on the way to anything that it sees.
    if program::leads_into(&path, hidden) {
        return Err(format!(
            "the task names `{line}` in $ATTACHE_ARTIFACTS; files of other agents, and those that hold keys, aren't handed over"
        ));
    }
    let path = path.canonicalize();
    let path = path.map_err(|error| format!("the task names `{line}` in $ATTACHE_ARTIFACTS, but: {error}"))?;
    let below = path.strip_prefix(root).map_err(|_| {
        format!("the task names `{line}` in $ATTACHE_ARTIFACTS; only files below its working folder are handed over")
    })?;
    if !path.is_file() {
        return Err(format!("the task names `{line}` in $ATTACHE_ARTIFACTS, but that is not a plain file"));
    }
    let shown = if cwd_is_known { below } else { &path };
    let path =
        shown.to_str().ok_or_else(|| format!("the name of `{line}` is not UTF-8; give the file another name"))?;
    Ok(FileRef { path: path.to_owned(), name: None, media_type: None })
}
