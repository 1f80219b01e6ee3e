//! Artifacts: files in a workspace, streamed to disk and back.

use attache_protocol::{
    ArtifactId, Code, WorkspaceId,
    rules::run::RunStatus,
    wire::artifact::{ArtifactList, WorkspaceArtifact},
};
use attache_store::record::{self, NewArtifact, RunFilter};
use bytes::Bytes;
use futures_util::Stream;
use tokio::fs::File;

use crate::{
    Error, Handle, Principal, PrincipalKind, Result,
    blob::run_full,
    check,
    control::PageRequest,
    error::{about, about_list},
    identity::{Action, access::Visibility},
    render,
    visible_page::VisiblePage,
};

/// How many artifacts workers may add for one run.
const MAX_RUN_ARTIFACTS: usize = 10_000;

/// The name and media type of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactUpload {
    pub name: String,
    /// Defaults to `application/octet-stream`.
    pub media_type: Option<String>,
}

impl Handle {
    /// Stores the bytes before the row, so that every listed artifact can be read. A runtime may add to the workspace
    /// of a run it has claimed.
    pub async fn upload_artifact<E>(
        &self,
        by: &Principal,
        workspace: WorkspaceId,
        upload: ArtifactUpload,
        bytes: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    ) -> Result<WorkspaceArtifact> {
        self.check_conversation(&by.may(Action::UploadArtifact)?, workspace.conversation(), "workspace").await?;
        check_name(&upload.name)?;
        let media_type = upload.media_type.unwrap_or_else(|| "application/octet-stream".to_owned());
        if !media_type.is_ascii() {
            return Err(Error::invalid("content-type", "must be ASCII"));
        }
        check::line("content-type", &media_type, 1..=200)?;
        self.store().conversation(by.tenant, workspace.conversation()).await.map_err(about("workspace"))?;
        let id = self.env().artifact_id();
        let left = self.left_for_run(by, workspace).await?;
        let pending = self.blobs().receive(&id.to_string(), bytes, self.options(), left).await?;
        let blob = pending.blob();
        // A long upload may outlive its credential, or the right it began with.
        let by = &self.recheck(by).await?;
        self.check_conversation(&by.may(Action::UploadArtifact)?, workspace.conversation(), "workspace").await?;
        // Others may have been uploaded meanwhile.
        if blob.size > self.left_for_run(by, workspace).await? {
            drop(pending);
            // A bucket has it already.
            self.remove_blobs(vec![blob.blake3]).await?;
            return Err(run_full(self.options()));
        }
        let notice = self.announce_upload(&blob.blake3).await?;
        let added = async {
            let placing = self.blobs().place(pending).await?;
            let new =
                NewArtifact { id, workspace, name: upload.name, media_type, size: blob.size, blake3: blob.blake3 };
            let added = self.store().add_artifact(self.context(by), new).await;
            drop(placing);
            added.map(render::artifact).map_err(about("workspace"))
        };
        let added = added.await;
        self.withdraw(notice).await;
        added
    }

    /// How many bytes a worker may still add to the workspace of its run, so that no device fills the disk. Everything
    /// that was added since the run was created counts.
    async fn left_for_run(&self, by: &Principal, workspace: WorkspaceId) -> Result<u64> {
        if matches!(by.who, PrincipalKind::Key { .. }) {
            return Ok(u64::MAX);
        }
        let (conversation, status) = (Some(workspace.conversation()), Some(RunStatus::Running));
        let filter = RunFilter { conversation, status, ..RunFilter::default() };
        let mut runs = check::all_pages("run", |page| self.store().runs(by.tenant, filter.clone(), page));
        let mut since = self.now();
        while let Some(run) = runs.next().await? {
            since = since.min(run.created_at);
        }
        let (mut left, mut count) = (self.options().max_run_artifacts, 0);
        let mut artifacts = check::all_pages("workspace", |page| self.store().artifacts(by.tenant, workspace, page));
        while let Some(artifact) = artifacts.next().await?.filter(|artifact| artifact.created_at >= since) {
            (left, count) = (left.saturating_sub(artifact.size), count + 1);
            if count == MAX_RUN_ARTIFACTS {
                return Err(Error::new(Code::TooLarge, format!("This run already has {MAX_RUN_ARTIFACTS} artifacts."))
                    .hint("Pack the files into an archive and upload that."));
            }
        }
        Ok(left)
    }

    pub async fn artifact(&self, by: &Principal, artifact: ArtifactId) -> Result<WorkspaceArtifact> {
        self.visible_artifact(by, artifact).await.map(render::artifact)
    }

    /// The artifact with its bytes.
    pub async fn open_artifact(&self, by: &Principal, artifact: ArtifactId) -> Result<(WorkspaceArtifact, File)> {
        let record = self.visible_artifact(by, artifact).await?;
        let file = self.blobs().open_file(&record.blake3, self.options()).await?;
        Ok((render::artifact(record), file))
    }

    /// Newest first.
    pub async fn artifacts(&self, by: &Principal, workspace: WorkspaceId, page: PageRequest) -> Result<ArtifactList> {
        let permit = by.may(Action::SeeArtifacts)?;
        let mut visible = VisiblePage::new(page.page()?);
        let conversation = workspace.conversation();
        let conversation = self.store().conversation(by.tenant, conversation).await.map_err(about("workspace"))?;
        if !self.private_work(by).sees_conversation(&conversation).await? {
            return Err(Error::not_found("workspace"));
        }
        let is_open = permit.covers_others() || self.has_part_in(&permit, conversation.id, "artifact").await?;
        let mut reach = self.caller_access(by).await?;
        while let Some(asked) = visible.next_read(self, by).await {
            let failed = about_list("workspace", &asked);
            let listed = self.store().artifacts(by.tenant, workspace, asked).await.map_err(failed)?;
            let mut seen = Vec::with_capacity(listed.items.len());
            for artifact in &listed.items {
                seen.push(shows(reach.artifact(&conversation, &artifact.name).await?, is_open));
            }
            visible.take(listed, &seen);
        }
        let (artifacts, next_cursor) = visible.finish();
        // A workspace does not exist for a caller who can't see anything in it.
        if !is_open && artifacts.is_empty() && reach.conversation(&conversation).await? != Visibility::Yes {
            return Err(Error::not_found("workspace"));
        }
        Ok(ArtifactList { artifacts: artifacts.into_iter().map(render::artifact).collect(), next_cursor })
    }

    async fn visible_artifact(&self, by: &Principal, artifact: ArtifactId) -> Result<record::ArtifactRecord> {
        let permit = by.may(Action::SeeArtifacts)?;
        let record = self.store().artifact(by.tenant, artifact).await.map_err(about("artifact"))?;
        let conversation = record.workspace.conversation();
        let conversation = self.store().conversation(by.tenant, conversation).await.map_err(about("artifact"))?;
        if !self.private_work(by).sees_conversation(&conversation).await? {
            return Err(Error::not_found("artifact"));
        }
        if permit.covers_others() {
            return Ok(record);
        }
        let seen = self.caller_access(by).await?.artifact(&conversation, &record.name).await?;
        let is_open = seen == Visibility::No && self.has_part_in(&permit, conversation.id, "artifact").await?;
        if shows(seen, is_open) { Ok(record) } else { Err(Error::not_found("artifact")) }
    }
}

/// Workers see what belongs to their runs, unless a rule denies it.
const fn shows(seen: Visibility, has_part: bool) -> bool {
    match seen {
        Visibility::Yes => true,
        Visibility::No => has_part,
        Visibility::Never => false,
    }
}

/// A name is a single file name, so that saving it can't write outside the target folder.
fn check_name(name: &str) -> Result<()> {
    check::line("name", name, 1..=255)?;
    if name.contains(['/', '\\']) || matches!(name, "." | "..") {
        return Err(Error::invalid("name", "must be a plain file name"));
    }
    Ok(())
}
