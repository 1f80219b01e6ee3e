//! Serves an agent's file reads and writes, only inside the run's folder, whatever the agent declared.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use attache_os::confined::ConfinedFolder;
use attache_protocol::Json;

use super::message::{AcpFileContent, AcpReadFile, AcpWriteFile};
use crate::host::rpc;

/// ACP's "resource not found". Agents treat it as a new file.
const NOT_FOUND: i64 = -32002;
const FAILED: i64 = -32603;

/// The method that changes files. People are asked first.
pub(super) const WRITE: &str = "fs/write_text_file";

/// The answer to `fs/read_text_file`. `None` for any other method.
pub(super) async fn serve(
    files: &Arc<ConfinedFolder>,
    method: &str,
    params: &Json,
) -> Option<Result<Json, rpc::Error>> {
    let answer = match method {
        "fs/read_text_file" => match params.parse() {
            Ok(asked) => read(files.clone(), asked).await,
            Err(error) => Err(rpc::Error::bad_params(error)),
        },
        _ => return None,
    };
    Some(answer)
}

async fn read(files: Arc<ConfinedFolder>, asked: AcpReadFile) -> Result<Json, rpc::Error> {
    blocking(move || {
        let text = files.read(&asked.path).map_err(|error| failure(&asked.path, &error))?;
        Ok(Json::of(&AcpFileContent { content: cut(text, asked.line, asked.limit) }))
    })
    .await
}

pub(super) async fn write(files: Arc<ConfinedFolder>, asked: AcpWriteFile) -> Result<Json, rpc::Error> {
    if !asked.path.is_absolute() {
        return Err(rpc::Error::bad_params(format!("{}: the path must be absolute", asked.path.display())));
    }
    blocking(move || {
        files.write(&asked.path, &asked.content).map_err(|error| failure(&asked.path, &error))?;
        Ok(Json::empty_object())
    })
    .await
}

/// Content of a file before it is written: empty for a new file, `None` if writing isn't allowed.
pub(super) async fn before(files: Arc<ConfinedFolder>, path: PathBuf) -> Option<String> {
    if !path.is_absolute() {
        return None;
    }
    let look = move || files.admits(&path).ok().map(|()| files.read(&path).unwrap_or_default());
    tokio::task::spawn_blocking(look).await.ok().flatten()
}

/// The folder may be a network mount, where every access can be slow.
async fn blocking(work: impl FnOnce() -> Result<Json, rpc::Error> + Send + 'static) -> Result<Json, rpc::Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(rpc::Error::new(FAILED, error.to_string())))
}

pub(super) fn not_allowed(path: &Path) -> rpc::Error {
    rpc::Error::new(FAILED, format!("{}: the change was denied", path.display()))
}

fn failure(path: &Path, error: &io::Error) -> rpc::Error {
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { FAILED };
    rpc::Error::new(code, format!("{}: {error}", path.display()))
}

/// `limit` lines, starting at `line`.
fn cut(text: String, line: Option<usize>, limit: Option<usize>) -> String {
    if line.is_none() && limit.is_none() {
        return text;
    }
    let skipped = line.unwrap_or(1).saturating_sub(1);
    text.split_inclusive('\n').skip(skipped).take(limit.unwrap_or(usize::MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: String) -> Json {
        Json::from_text(text).unwrap()
    }

    #[tokio::test]
    async fn files_are_served_only_inside_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let files = Arc::new(ConfinedFolder::open(&root).unwrap());
        let path = root.join("a.txt").display().to_string();
        let asked = |path: &str| AcpWriteFile { path: path.into(), content: "1\n2\n3\n".to_owned() };
        assert_eq!(write(files.clone(), asked(&path)).await, Ok(Json::empty_object()));
        assert_eq!(write(files.clone(), asked("a.txt")).await.unwrap_err().code, -32602);
        let part = json(format!(r#"{{"sessionId":"s","path":"{path}","line":2,"limit":1}}"#));
        let expected = json(r#"{"content":"2\n"}"#.to_owned());
        assert_eq!(serve(&files, "fs/read_text_file", &part).await, Some(Ok(expected)));

        let outside = json(r#"{"sessionId":"s","path":"/etc/hostname"}"#.to_owned());
        let error = || rpc::Error::new(FAILED, "/etc/hostname: it is outside the run's folder");
        assert_eq!(serve(&files, "fs/read_text_file", &outside).await, Some(Err(error())));
        assert_eq!(write(files.clone(), asked("/etc/hostname")).await, Err(error()));
        let missing = json(format!(r#"{{"path":"{}"}}"#, root.join("none").display()));
        assert_eq!(serve(&files, "fs/read_text_file", &missing).await.unwrap().unwrap_err().code, NOT_FOUND);
        assert_eq!(serve(&files, "fs/read_text_file", &Json::empty_object()).await.unwrap().unwrap_err().code, -32602);
        assert_eq!(serve(&files, "terminal/create", &Json::empty_object()).await, None);
    }
}
