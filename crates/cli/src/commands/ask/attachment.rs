//! Attachments of a task: small files go inline in the request, larger ones are uploaded as artifacts.

use std::{
    io,
    path::{Path, PathBuf},
};

use attache_client::{ArtifactSource, HubClient};
use attache_protocol::{ConversationId, error::exit, wire::part::Part};
use tokio::fs::File;

use crate::{
    env::context::CommandContext,
    text::{ask as texts, errors},
    ui::{failure::CommandFailure, output::time},
};

/// Existing, readable files and their sizes.
#[derive(Debug)]
pub(super) struct AttachedFiles(Vec<(PathBuf, u64)>);

// === impl AttachedFiles ===

impl AttachedFiles {
    pub(super) fn look(paths: &[PathBuf]) -> Result<Self, CommandFailure> {
        let mut files = Vec::new();
        for path in paths {
            let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
            if !metadata.is_file() {
                return Err(CommandFailure::usage(errors::not_a_file(path.display())).hint(errors::one_file_each()));
            }
            files.push((path.clone(), metadata.len()));
        }
        Ok(Self(files))
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().map(|(_, size)| size).sum()
    }

    pub(super) fn inline(&self) -> Result<Vec<Part>, CommandFailure> {
        let part = |(path, _): &(PathBuf, u64)| {
            let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
            Ok(Part::file(&bytes, name(path), media_type(path)))
        };
        self.0.iter().map(part).collect()
    }

    /// Streams the files to the conversation's workspace.
    pub(super) async fn upload(
        &self,
        context: &CommandContext,
        hub: &HubClient,
        conversation: ConversationId,
    ) -> Result<Vec<Part>, CommandFailure> {
        let mut parts = Vec::new();
        for (path, size) in &self.0 {
            let (name, kind) = (name(path), media_type(path));
            let file = File::open(path).await.map_err(|error| unreadable(path, &error))?;
            let upload = ArtifactSource::File { file, size: *size };
            let stored = hub.put_artifact(conversation.workspace(), &name, Some(kind), upload).await;
            let artifact = stored.map_err(|error| too_large(error.into(), path, *size))?;
            parts.push(Part::artifact(artifact.artifact_id, name, kind));
            if !context.output.is_json() {
                context.output.say(texts::uploaded(path.display(), time::size(*size)));
            }
        }
        Ok(parts)
    }
}

fn unreadable(path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure { exit: exit::USAGE, ..CommandFailure::file("read", path, error) }
}

fn too_large(failure: CommandFailure, path: &Path, size: u64) -> CommandFailure {
    if failure.code != "too_large" {
        return failure;
    }
    CommandFailure { message: texts::file_too_large(path.display(), time::size(size)), ..failure }
        .hint(texts::file_too_large_do())
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The media type by file extension, for the types that agent hosts handle. Everything else is a byte stream.
fn media_type(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|end| end.to_str()).unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "pdf" => "application/pdf",
        "json" => "application/json",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "md" => "text/markdown",
        "txt" | "log" | "diff" | "patch" => "text/plain",
        _ => "application/octet-stream",
    }
}
