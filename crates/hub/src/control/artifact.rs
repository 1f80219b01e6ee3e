//! Artifacts: bytes of a workspace, streamed to disk and back.

use attache_protocol::{
    ArtifactId, WorkspaceId,
    wire::artifact::{Artifact, ArtifactList},
};
use attache_store::record::{self, NewArtifact};
use axum::body::BodyDataStream;
use tokio::fs::File;

use crate::{
    Error, Handle, Principal, Result,
    control::{PageRequest, check},
    error::{about, about_list},
    identity::Action,
    render,
};

/// What an upload is called and claims to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    pub name: String,
    /// `application/octet-stream` unless told.
    pub media_type: Option<String>,
}

impl Handle {
    /// Stores the bytes, then the row: an artifact that is listed can be read. A runtime may add to the workspace of a
    /// run that it holds.
    pub async fn upload_artifact(
        &self,
        by: &Principal,
        workspace: WorkspaceId,
        upload: Upload,
        bytes: BodyDataStream,
    ) -> Result<Artifact> {
        self.check_conversation(by, Action::UploadArtifact, workspace.conversation(), "workspace").await?;
        check_name(&upload.name)?;
        let media_type = upload.media_type.unwrap_or_else(|| "application/octet-stream".to_owned());
        if !media_type.is_ascii() {
            return Err(Error::invalid("content-type", "must be ASCII"));
        }
        check::line("content-type", &media_type, 1..=200)?;
        self.store().conversation(by.tenant, workspace.conversation()).await.map_err(about("workspace"))?;
        let id = self.env().artifact_id();
        let blob = self.blobs().write(&id.to_string(), bytes, self.options()).await?;
        // A long upload may outlive the credential that began it.
        self.recheck(by).await?;
        let new = NewArtifact { id, workspace, name: upload.name, media_type, size: blob.size, blake3: blob.blake3 };
        let added = self.store().add_artifact(self.context(by), new).await;
        added.map(render::artifact).map_err(about("workspace"))
    }

    pub async fn artifact(&self, by: &Principal, artifact: ArtifactId) -> Result<Artifact> {
        self.visible_artifact(by, artifact).await.map(render::artifact)
    }

    /// The artifact with its bytes.
    pub async fn open_artifact(&self, by: &Principal, artifact: ArtifactId) -> Result<(Artifact, File)> {
        let record = self.visible_artifact(by, artifact).await?;
        let file = self.blobs().open_file(&record.blake3).await.map_err(|error| Error::internal(&error))?;
        Ok((render::artifact(record), file))
    }

    /// Newest first.
    pub async fn artifacts(&self, by: &Principal, workspace: WorkspaceId, page: PageRequest) -> Result<ArtifactList> {
        self.check_conversation(by, Action::SeeArtifacts, workspace.conversation(), "workspace").await?;
        let page = page.page()?;
        self.store().conversation(by.tenant, workspace.conversation()).await.map_err(about("workspace"))?;
        let failed = about_list("workspace", &page);
        let listed = self.store().artifacts(by.tenant, workspace, page).await.map_err(failed)?;
        let artifacts = listed.items.into_iter().map(render::artifact).collect();
        Ok(ArtifactList { artifacts, next_cursor: listed.next })
    }

    async fn visible_artifact(&self, by: &Principal, artifact: ArtifactId) -> Result<record::Artifact> {
        by.may(Action::SeeArtifacts)?;
        let record = self.store().artifact(by.tenant, artifact).await.map_err(about("artifact"))?;
        let conversation = record.workspace.conversation();
        self.check_conversation(by, Action::SeeArtifacts, conversation, "artifact").await?;
        Ok(record)
    }
}

/// A name is one file name: it cannot leave the folder that somebody saves it to.
fn check_name(name: &str) -> Result<()> {
    check::line("name", name, 1..=255)?;
    if name.contains(['/', '\\']) || matches!(name, "." | "..") {
        return Err(Error::invalid("name", "must be a plain file name"));
    }
    Ok(())
}
