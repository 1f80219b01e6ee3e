//! Delegations as the daemon's socket API shows them, and the projection a hub shows, which contains no local paths or
//! credentials.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    DelegationId, Timestamp,
    rules::delegation::{DelegationStatus, LeaseTerms},
    wire::{
        awcp::{AccessMode, AwcpErrorCode, SandboxProfile, SandboxProof, TransportChoice},
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
    /// The session whose "all done" it counts towards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Only these paths are shown, in gitignore syntax. Empty means everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// How the folder is carried. Absent means sshfs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<TransportChoice>,
    /// A file with the key for the peer, if policy.toml names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
    /// The peer is an executor of the reference implementation: its own messages over HTTP, and the folder as an archive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awcp_compat: bool,
    /// The remote works in a copy of the folder, and its changes wait until they are applied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub staged: bool,
}

/// A delegation: `GET /v1/delegations/{id}`, and the content of `status.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    pub delegation_id: DelegationId,
    pub status: DelegationStatus,
    pub description: String,
    pub peer_url: String,
    pub workspace_dir: String,
    #[serde(default)]
    pub session_id: Option<String>,
    /// As requested until the remote accepts, then as agreed.
    pub access_mode: AccessMode,
    pub ttl_seconds: u64,
    pub created_at: Timestamp,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// Why it doesn't proceed yet: a queue, or an offline remote.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Where the remote mounted the folder, as it reports.
    #[serde(default)]
    pub remote_mount_point: Option<String>,
    /// How the folder is carried, once agreed: `sshfs`, `attache-fs/1`, `sync/1` or `archive`.
    #[serde(default)]
    pub transport: Option<String>,
    /// The limits that the remote enforces on its agent, as it reports.
    #[serde(default)]
    pub sandbox: Option<SandboxProfile>,
    #[serde(default)]
    pub sandbox_proof: Option<SandboxProof>,
    /// The remote's id for the task.
    #[serde(default)]
    pub task_id: Option<String>,
    /// The remote's latest progress message.
    #[serde(default)]
    pub progress: Option<String>,
    /// Counts changes. `wait_ms` waits until it exceeds `after`.
    #[serde(default)]
    pub revision: u64,
    #[serde(default)]
    pub result: Option<DelegationOutcome>,
    #[serde(default)]
    pub changes: Option<FolderChanges>,
    /// Paths whose change a person accepted, as they are now. The daemon adds them when it is asked. Of a staged delegation,
    /// those that were applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<String>,
    /// Present if the remote works in a copy of the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<StagedCopyStatus>,
}

/// The copy of a staged delegation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedCopyStatus {
    /// Changed paths that are neither applied nor discarded, once the delegation has ended.
    pub unapplied: u64,
    /// The size of the copy when it was made. 0 once it is gone.
    pub bytes: u64,
    /// When the copy is removed, with the changes that weren't applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Timestamp>,
    /// When the daemon gave notice of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warned_at: Option<Timestamp>,
    /// The copy was removed before everything was applied or discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Timestamp>,
}

impl Delegation {
    /// A new delegation on the requested terms.
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
            transport: None,
            sandbox: None,
            sandbox_proof: None,
            task_id: None,
            progress: None,
            revision: 1,
            result: None,
            changes: None,
            accepted: Vec::new(),
            staged: request.staged.then(StagedCopyStatus::default),
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
    /// Present if the summary is not exactly what the agent printed: the length of the complete output, and where the
    /// remote keeps it.
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

/// The changes in the folder. Paths are relative to the folder. Bytes that are not UTF-8 are shown as `\xNN`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FolderChanges {
    pub changed_paths: Vec<ChangedPath>,
    pub diff_stat: DiffStat,
    /// `changed_paths` has only the first thousand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedPath {
    pub path: String,
    pub change: FileChangeKind,
    /// Lines, for text files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// Someone else also changed it during the lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub also_changed_here: bool,
    /// The program that runs or obeys this file automatically. Check the file before you use that program here.
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

/// `POST /v1/delegations/{id}/revert`. Reverts everything the lease changed, unless paths are given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevertRequest {
    #[serde(default)]
    pub paths: Vec<String>,
    /// Only the given paths, and nothing below them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// What to do with files that were also edited here. By default they are left alone and reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<ConflictChoice>,
    /// Instead of whole paths: some hunks of one text file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunks: Option<HunkSelection>,
}

/// Hunks of the change of one text file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HunkSelection {
    pub path: String,
    /// In the order of the patch. The first one is 1.
    pub numbers: Vec<usize>,
    /// That of the [`FilePatch`] that the person saw. If the patch has changed since, nothing is discarded.
    pub fingerprint: String,
}

/// Which version of a file that both sides edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictChoice {
    /// As it was before the lease.
    Before,
    /// As last edited here.
    Mine,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevertResult {
    pub restored: Vec<String>,
    /// Left alone, with the reason: it was edited here after the remote's change.
    pub kept: Vec<KeptPath>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPath {
    pub path: String,
    pub reason: String,
    /// Both sides edited it: `take` selects the version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// Local versions that the remote overwrote, oldest first: files in the folder of originals.
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
    /// The folder's name without its parent path.
    pub folder: String,
    /// The machine that delegates it.
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

/// An item of `GET /api/v1/delegations`, and the response to publishing one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublishedDelegation {
    pub delegation_id: DelegationId,
    /// Who published it.
    pub owner: String,
    pub updated_at: Timestamp,
    /// A person at the hub asked to end it. Its daemon will do so.
    pub cancel_requested: bool,
    #[serde(flatten)]
    pub delegation: DelegationProjection,
}

/// `GET /api/v1/delegations` of a hub, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublishedDelegationList {
    pub delegations: Vec<PublishedDelegation>,
    pub next_cursor: Option<String>,
}

/// `GET /api/v1/delegations/{id}/cancellation` of a hub: the request that its daemon waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DelegationCancellation {
    pub cancel_requested: bool,
}

/// `GET /v1/delegations` of the daemon, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationList {
    pub delegations: Vec<Delegation>,
}

/// `GET /v1/delegations/{id}/diff`: what changed, as a unified diff.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationDiff {
    pub text: String,
    /// Paths whose change a person accepted, as they are now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<String>,
}

/// `GET /v1/delegations/{id}/review`: the changes file by file, as the files are now, in the order of the diff. With
/// `?path=`, only this file, with its patch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewFileList {
    pub files: Vec<ReviewFile>,
}

/// A changed file, and what a person decided about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewFile {
    #[serde(flatten)]
    pub changed: ChangedPath,
    /// A person accepted it as it is now.
    pub accepted: bool,
    /// Parts of the change that can be discarded one by one: those of a text file that was there before.
    pub hunks: Vec<ReviewHunk>,
    /// Stands for what is there now. Accepting it applies to nothing else. Absent if it can't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<FilePatch>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewHunk {
    pub number: usize,
    /// Its first line: `@@ -1,4 +1,5 @@`.
    pub header: String,
}

/// The part of the diff about one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePatch {
    pub text: String,
    /// Stands for this text.
    pub fingerprint: String,
}

/// `POST /v1/delegations/{id}/accept`: a person looked at these changes and keeps them. They can still be reverted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptRequest {
    pub files: Vec<AcceptedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedFile {
    pub path: String,
    /// That of the [`ReviewFile`] that the person saw. If it has changed since, nothing is accepted.
    pub state: String,
}

/// Everything that is accepted now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptResult {
    pub accepted: Vec<String>,
}

/// `POST /v1/delegations/{id}/apply`: brings changes of a staged delegation into the folder. Everything that isn't applied yet,
/// unless paths or files are given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyRequest {
    /// These, and everything below them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Exactly these, in the state that a person saw.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<AcceptedFile>,
    /// What to do with conflicts. By default they are left and reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<ApplyChoice>,
    /// Only says what would happen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check: bool,
}

/// Which version of a path that both sides changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyChoice {
    /// As it is in the folder. The remote's change is discarded.
    Mine,
    /// The remote's. The version in the folder is kept with the originals.
    Theirs,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyResult {
    pub applied: Vec<String>,
    /// Those among `applied` that were merged with a change made in the folder in the meantime.
    pub merged: Vec<String>,
    /// Conflicts that were decided for the version in the folder.
    pub discarded: Vec<String>,
    /// Not applied.
    pub kept: Vec<UnappliedPath>,
    /// Changed paths that are neither applied nor discarded now.
    pub unapplied: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnappliedPath {
    pub path: String,
    pub reason: String,
    /// Both sides changed it: `take` selects the version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// Of a text, the places where both sides changed the same lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hunks: Vec<ConflictHunk>,
}

/// A place in a text that both sides changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictHunk {
    /// The first line in the folder's version. The first line of a text is 1.
    pub line: usize,
    pub base: String,
    pub mine: String,
    pub theirs: String,
}

/// `POST /v1/delegations/{id}/discard`: drops changes of a staged delegation that aren't applied. All of them, unless paths or
/// hunks are given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscardRequest {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Only the given paths, and nothing below them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// Instead of whole paths: some hunks of one text file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunks: Option<HunkSelection>,
}

/// `GET /v1/sessions/{id}`: the delegations of one session. `all_done` is reported once to each waiter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationSession {
    pub session_id: String,
    pub pending: Vec<DelegationId>,
    /// Those that ended since the session last had nothing pending, oldest first.
    pub ended: Vec<DelegationId>,
    /// Nothing is pending any more.
    pub all_done: bool,
    /// Counts how often everything was done. `wait_ms` waits until it exceeds `after`.
    pub rounds: u64,
}

/// `GET /v1/health` of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonHealth {
    pub version: String,
    pub pid: u32,
    /// The SSH address for delegated folders.
    #[serde(default)]
    pub ssh: Option<String>,
    /// How many delegations are live.
    pub live: u64,
}
