//! Downloads files attached to a task into a private folder of this device, before the adapter gets the task.

use std::{
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use attache_client::HubClient;
use attache_os::removal;
use attache_protocol::{
    ArtifactId, Json,
    env::Env,
    wire::{
        adapter::TaskFile,
        part::{Part, PartContent},
    },
};
use serde::Deserialize;
use tokio::{fs, io::AsyncWriteExt as _};

/// The files of one run, removed when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    folder: Option<PathBuf>,
    pub(crate) files: Vec<TaskFile>,
}

#[derive(Default, Deserialize)]
struct AttachedRunInput {
    message: Option<AttachedMessage>,
}

#[derive(Deserialize)]
struct AttachedMessage {
    #[serde(default)]
    parts: Vec<Json>,
}

// === impl Attachments ===

impl Attachments {
    /// Downloads the files that the input names. An error is a sentence for the person who started the run.
    pub(crate) async fn fetch(hub: &HubClient, input: &Json, below: &Path, env: &Env) -> Result<Self, String> {
        let mut fetched = Self::default();
        for (url, artifact) in named(input) {
            if fetched.files.iter().any(|file| file.url == url) {
                continue;
            }
            let failed = |why: String| format!("Can't download a file attached to the task ({artifact}): {why}");
            let folder = match &fetched.folder {
                Some(folder) => folder.clone(),
                None => fetched.folder.insert(private_folder(below, env).map_err(|e| failed(e.to_string()))?).clone(),
            };
            let path = folder.join(fetched.files.len().to_string());
            write(hub, artifact, &path).await.map_err(failed)?;
            fetched.files.push(TaskFile { url, path: path.display().to_string() });
        }
        Ok(fetched)
    }
}

impl Drop for Attachments {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take()
            && let Err(error) = removal::remove(&folder)
        {
            tracing::warn!(path = %folder.display(), %error, "failed to remove the files of a task");
        }
    }
}

fn named(input: &Json) -> Vec<(String, ArtifactId)> {
    let parts =
        input.parse::<AttachedRunInput>().unwrap_or_default().message.map(|message| message.parts).unwrap_or_default();
    let part = |json: Json| -> Option<(String, ArtifactId)> {
        let part: Part = json.parse().ok()?;
        let artifact = part.as_artifact()?;
        match part.content {
            PartContent::Url(url) => Some((url, artifact)),
            PartContent::Text(_) | PartContent::Raw(_) | PartContent::Data(_) => None,
        }
    };
    parts.into_iter().filter_map(part).collect()
}

/// Named as adapters name theirs, so that the same sweep removes what a killed runtime left behind.
fn private_folder(below: &Path, env: &Env) -> io::Result<PathBuf> {
    let path = below.join(format!("attache-{}-{}", std::process::id(), env.uuid().simple()));
    std::fs::DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

async fn write(hub: &HubClient, artifact: ArtifactId, path: &Path) -> Result<(), String> {
    let mut download = hub.artifact(artifact).await.map_err(|error| error.to_string())?;
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path).await;
    let mut file = file.map_err(|error| error.to_string())?;
    while let Some(part) = download.chunk().await.map_err(|error| error.to_string())? {
        file.write_all(&part).await.map_err(|error| error.to_string())?;
    }
    file.flush().await.map_err(|error| error.to_string())
}
