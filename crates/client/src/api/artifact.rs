//! Artifacts, streamed up and down without loading them into memory.

use std::{fmt, io, time::Duration};

use attache_protocol::{
    ArtifactId, WorkspaceId,
    wire::artifact::{ArtifactList, WorkspaceArtifact},
};
use bytes::Bytes;
use futures_util::stream;
use reqwest::{
    Body, Method, Response,
    header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE},
};
use tokio::{fs::File, io::AsyncReadExt as _};

use crate::{HubClient, PageQuery, Result};

/// The content of an artifact to upload.
#[derive(Debug)]
pub enum ArtifactSource {
    Bytes(Bytes),
    /// The first `size` bytes of a file, from its current position.
    File {
        file: File,
        size: u64,
    },
}

/// The content of a downloaded artifact.
pub struct ArtifactDownload {
    hub: HubClient,
    response: Response,
    pub media_type: Option<String>,
    /// How many bytes remain.
    pub size: Option<u64>,
}

const PART: usize = 64 << 10;

// === impl HubClient ===

impl HubClient {
    /// Stores content under a name in the workspace.
    pub async fn put_artifact(
        &self,
        workspace: WorkspaceId,
        name: &str,
        media_type: Option<&str>,
        upload: ArtifactSource,
    ) -> Result<WorkspaceArtifact> {
        let url = self.api(&["workspaces", &workspace.to_string(), "artifacts", name]);
        let mut request = self.request(Method::PUT, url).header(ACCEPT, "application/json");
        if let Some(media_type) = media_type {
            request = request.header(CONTENT_TYPE, media_type);
        }
        let request = match upload {
            ArtifactSource::Bytes(bytes) => request.timeout(self.transfer(bytes.len() as u64)).body(bytes),
            ArtifactSource::File { file, size } => request
                .timeout(self.transfer(size))
                .header(CONTENT_LENGTH, size)
                .body(Body::wrap_stream(stream::try_unfold(file.take(size), read_part))),
        };
        let response = self.execute(request).await?;
        let status = response.status().as_u16();
        let body = self.read(response).await?;
        if (200..300).contains(&status) { self.decode(&body) } else { Err(self.refused(status, &body)) }
    }

    pub async fn artifacts(&self, workspace: WorkspaceId, page: &PageQuery) -> Result<ArtifactList> {
        let mut url = self.api(&["workspaces", &workspace.to_string(), "artifacts"]);
        page.write(&mut url);
        self.get(url).await
    }

    pub async fn artifact(&self, artifact: ArtifactId) -> Result<ArtifactDownload> {
        let response = self.execute(self.request(Method::GET, self.api(&["artifacts", &artifact.to_string()]))).await?;
        let status = response.status().as_u16();
        if status != 200 {
            let body = self.read(response).await?;
            return Err(self.refused(status, &body));
        }
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let size = response.content_length();
        Ok(ArtifactDownload { hub: self.clone(), response, media_type, size })
    }

    /// The time limit of a transfer on a slow connection: the usual limit, plus time for 64 KiB per second.
    fn transfer(&self, size: u64) -> Duration {
        self.timeouts().request.saturating_add(Duration::from_secs(size / PART as u64))
    }
}

async fn read_part(mut file: tokio::io::Take<File>) -> io::Result<Option<(Bytes, tokio::io::Take<File>)>> {
    let mut part = Vec::with_capacity(PART);
    let read = file.read_buf(&mut part).await?;
    Ok((read > 0).then(|| (part.into(), file)))
}

// === impl ArtifactDownload ===

impl ArtifactDownload {
    /// The next chunk. `None` after the last. A broken connection is an error, never a short artifact.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        self.response.chunk().await.map_err(|error| self.hub.unreachable(&error))
    }
}

impl fmt::Debug for ArtifactDownload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("media_type", &self.media_type).field("size", &self.size).finish()
    }
}
