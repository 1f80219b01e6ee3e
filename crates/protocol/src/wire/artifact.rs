//! Artifacts: named, content-addressed files of a workspace.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ArtifactId, RunId, Timestamp, WorkspaceId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceArtifact {
    pub artifact_id: ArtifactId,
    pub workspace_id: WorkspaceId,
    pub name: String,
    pub media_type: String,
    pub size: u64,
    /// Hex of the content's blake3 hash.
    pub blake3: String,
    /// The run that produced it, once that run has referenced it in its result.
    pub produced_by: Option<RunId>,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactList {
    pub artifacts: Vec<WorkspaceArtifact>,
    pub next_cursor: Option<String>,
}
