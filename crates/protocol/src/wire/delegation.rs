//! Delegations as the daemon tells of them on its socket, and the projection of them that a hub shows: no path of this
//! machine and no credential is in the latter.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    DelegationId, Timestamp,
    rules::delegation::{DelegationStatus, LeaseTerms},
    wire::{
        awcp::{AccessMode, AwcpErrorCode},
        output::OutputLocation,
    },
};

/// `POST /v1/delegations` of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelegateRequest {
    pub description: String,
    pub prompt: String,
    pub peer_url: String,
    /// Absolute.
    pub workspace_dir: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// Whose "all done" this belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Only these are shown, in gitignore's syntax; everything when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// A file with the key for the peer, where policy.toml names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
}

/// A delegation: `GET /v1/delegations/{id}`, and what `status.json` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    pub delegation_id: DelegationId,
    pub status: DelegationStatus,
    pub description: String,
    pub peer_url: String,
    pub workspace_dir: String,
    #[serde(default)]
    pub session_id: Option<String>,
    /// As asked for until the remote has accepted, then as agreed.
    pub access_mode: AccessMode,
    pub ttl_seconds: u64,
    pub created_at: Timestamp,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// Why it does not go on yet: a queue, a remote that is offline.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Where the remote works, as it says.
    #[serde(default)]
    pub remote_mount_point: Option<String>,
    /// The remote's own name for the task.
    #[serde(default)]
    pub task_id: Option<String>,
    /// The last thing that the remote said of its work.
    #[serde(default)]
    pub progress: Option<String>,
    /// Counts what happened; `wait_ms` waits for more than `after`.
    #[serde(default)]
    pub revision: u64,
    #[serde(default)]
    pub result: Option<DelegationOutcome>,
    #[serde(default)]
    pub changes: Option<FolderChanges>,
}

impl Delegation {
    /// One that nothing has happened to yet, on the terms that were asked for.
    pub fn of(
        request: &DelegateRequest,
        terms: LeaseTerms,
        delegation_id: DelegationId,
        created_at: Timestamp,
    ) -> Self {
        Self {
            delegation_id,
            status: DelegationStatus::Created,
            description: request.description.clone(),
            peer_url: request.peer_url.clone(),
            workspace_dir: request.workspace_dir.clone(),
            session_id: request.session_id.clone(),
            access_mode: terms.access_mode,
            ttl_seconds: terms.ttl.as_secs(),
            created_at,
            started_at: None,
            expires_at: None,
            ended_at: None,
            waits_for: None,
            remote_mount_point: None,
            task_id: None,
            progress: None,
            revision: 1,
            result: None,
            changes: None,
        }
    }
}

/// How it ended: `result.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DelegationOutcome {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_summary: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub highlights: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// The summary is not all, or not exactly, what the agent printed: how long the whole is, and where the remote has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output: Option<OutputLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<DelegationFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DelegationFailure {
    pub code: AwcpErrorCode,
    pub message: String,
    pub hint: String,
}

/// What the folder's owner finds changed. Paths are relative to the folder; bytes that are no UTF-8 are shown as `\xNN`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FolderChanges {
    pub changed_paths: Vec<ChangedPath>,
    pub diff_stat: DiffStat,
    /// `changed_paths` is cut after the first thousand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedPath {
    pub path: String,
    pub change: FileChangeKind,
    /// Lines, of text files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// Somebody else changed it too while the lease lasted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub also_changed_here: bool,
    /// The program that runs it, or obeys it, without being asked: look at it before you use that program here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    Added,
    Modified,
    Removed,
    /// Only its mode or times.
    Attributes,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffStat {
    pub files_changed: u64,
    pub insertions: u64,
    pub deletions: u64,
}

/// `POST /v1/delegations/{id}/revert`. All that the lease changed, unless paths are named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevertRequest {
    #[serde(default)]
    pub paths: Vec<String>,
    /// What to do where somebody here edited a file as well. Such a file is left alone, and named, when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<ConflictChoice>,
}

/// Which version of a file that both sides edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictChoice {
    /// As it was before the lease.
    Before,
    /// As somebody here last left it.
    Mine,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevertResult {
    pub restored: Vec<String>,
    /// Left alone, with the reason: somebody edited it here after the remote had.
    pub kept: Vec<KeptPath>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPath {
    pub path: String,
    pub reason: String,
    /// Both sides edited it: `take` says which version it gets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// Versions from here that the remote overwrote, the oldest first: files in the folder of originals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
}

/// `PUT /api/v1/delegations/{id}` of a hub: what its console shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DelegationProjection {
    pub status: DelegationStatus,
    pub description: String,
    pub peer_url: String,
    /// The folder's own name, without what is above it.
    pub folder: String,
    /// Of the machine that lends it.
    pub device_name: String,
    pub access_mode: AccessMode,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<DelegationOutcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<FolderChanges>,
}

/// One of `GET /api/v1/delegations`, and what publishing one answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublishedDelegation {
    pub delegation_id: DelegationId,
    /// Who published it.
    pub owner: String,
    pub updated_at: Timestamp,
    /// A person at the hub wants it to end; the daemon that owns it does so.
    pub cancel_requested: bool,
    #[serde(flatten)]
    pub delegation: DelegationProjection,
}

/// `GET /api/v1/delegations` of a hub, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublishedDelegationList {
    pub delegations: Vec<PublishedDelegation>,
    pub next_cursor: Option<String>,
}

/// `GET /api/v1/delegations/{id}/cancellation` of a hub: what its owner waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DelegationCancellation {
    pub cancel_requested: bool,
}

/// `GET /v1/delegations` of the daemon, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationList {
    pub delegations: Vec<Delegation>,
}

/// `GET /v1/delegations/{id}/diff`: what changed, as a unified diff.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationDiff {
    pub text: String,
}

/// `GET /v1/sessions/{id}`: what was delegated on behalf of one session. `all_done` is told once to whoever waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationSession {
    pub session_id: String,
    pub pending: Vec<DelegationId>,
    /// Those that ended since the session last had nothing pending, the oldest first.
    pub ended: Vec<DelegationId>,
    /// Nothing is pending, and something was.
    pub all_done: bool,
    /// Counts how often everything was done; `wait_ms` waits for more than `after`.
    pub rounds: u64,
}

/// `GET /v1/health` of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonHealth {
    pub version: String,
    pub pid: u32,
    /// Where folders are lent over SSH.
    #[serde(default)]
    pub ssh: Option<String>,
    /// How many delegations are not over.
    pub live: u64,
}
