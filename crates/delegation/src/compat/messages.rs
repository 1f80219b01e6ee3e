//! The messages of the reference implementation, and what they are in ours. Unknown members are ignored.

use attache_protocol::{
    DelegationId, Timestamp,
    secret::mask,
    wire::{
        awcp::{
            ARCHIVE, AccessMode, AwcpAccept, AwcpErrorCode, AwcpInvite, RemoteConstraints, RemoteMount, SYNC,
            SandboxProfile, VERSION,
        },
        delegation::DelegationFailure,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::RESOURCE;

/// The only kind of resource.
const FILES: &str = "fs";
/// How long we ask an executor to keep a result that wasn't acknowledged.
const RETENTION_MS: u64 = 3_600_000;
const MAX_TEXT: usize = 2000;

/// What every message has.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatHeader {
    pub(super) version: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) delegation_id: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OutgoingCompat<'a, T> {
    version: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    delegation_id: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatInvite {
    pub(super) task: CompatTask,
    pub(super) lease: CompatOffer,
    #[serde(default)]
    pub(super) retention_ms: u64,
    pub(super) environment: CompatEnvironment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) requirements: Option<CompatRequirements>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) auth: Option<CompatAuth>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CompatTask {
    pub(super) description: String,
    pub(super) prompt: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatOffer {
    pub(super) ttl_seconds: u64,
    pub(super) access_mode: AccessMode,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CompatEnvironment {
    pub(super) resources: Vec<CompatResource>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CompatResource {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) mode: AccessMode,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CompatRequirements {
    #[serde(default)]
    pub(super) transport: Option<String>,
}

/// A key for the other side. Never printed.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct CompatAuth {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) credential: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatAccept {
    pub(super) retention_ms: u64,
    pub(super) executor_work_dir: CompatWorkDir,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) executor_constraints: Option<CompatConstraints>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CompatWorkDir {
    pub(super) path: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatConstraints {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) accepted_access_mode: Option<AccessMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_ttl_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sandbox_profile: Option<CompatSandbox>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatSandbox {
    #[serde(default)]
    cwd_only: bool,
    #[serde(default = "yes")]
    allow_network: bool,
    #[serde(default = "yes")]
    allow_exec: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatStart {
    pub(super) lease: CompatLease,
    pub(super) transport_handle: CompatHandle,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatLease {
    pub(super) expires_at: Timestamp,
    pub(super) access_mode: AccessMode,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatHandle {
    pub(super) transport: String,
    #[serde(default)]
    pub(super) workspace_base64: String,
    /// The SHA-256 of the archive in hexadecimal.
    #[serde(default)]
    pub(super) checksum: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CompatFailure {
    pub(super) code: String,
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

/// One event of the stream of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum CompatEvent {
    Status(CompatStatus),
    Snapshot(CompatSnapshot),
    Done(CompatDone),
    Error(CompatFailure),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OutgoingEvent<'a> {
    delegation_id: &'a str,
    timestamp: Timestamp,
    #[serde(flatten)]
    event: &'a CompatEvent,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CompatStatus {
    pub(super) status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatSnapshot {
    pub(super) snapshot_id: String,
    #[serde(default)]
    pub(super) summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) highlights: Option<Vec<String>>,
    pub(super) snapshot_base64: String,
    #[serde(default)]
    pub(super) recommended: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatDone {
    #[serde(default)]
    pub(super) summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) highlights: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) snapshot_ids: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) recommended_snapshot_id: Option<String>,
}

/// `GET /tasks/{id}/result`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatResult {
    /// `running`, `completed`, `error`, `not_found` or `not_applicable`.
    pub(super) status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) completed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) highlights: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) snapshot_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<CompatFailure>,
}

/// The answer to a request that asks for nothing.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct CompatAck {
    ok: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cancelled: bool,
}

/// `GET /status`.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatService {
    pub(super) pending_invitations: usize,
    pub(super) active_delegations: usize,
    pub(super) completed_delegations: usize,
    /// Their ids are secrets.
    pub(super) delegations: [(); 0],
}

/// With any status but 200.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CompatProblem {
    pub(super) error: String,
}

const fn yes() -> bool {
    true
}

/// A message as JSON.
pub(super) fn written<T: Serialize>(kind: &'static str, delegation_id: &str, body: &T) -> Vec<u8> {
    let message = OutgoingCompat { version: VERSION, kind, delegation_id, body };
    serde_json::to_vec(&message).expect("our own types serialise to JSON")
}

/// An event as JSON.
pub(super) fn written_event(delegation_id: &str, timestamp: Timestamp, event: &CompatEvent) -> String {
    let event = OutgoingEvent { delegation_id, timestamp, event };
    serde_json::to_string(&event).expect("our own types serialise to JSON")
}

/// The body of a message whose header was read.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// Text of a stranger, for people: short, and without secrets.
pub(super) fn brief(text: &str) -> String {
    mask(&text.chars().take(MAX_TEXT).collect::<String>()).into_owned()
}

// === impl CompatInvite ===

impl CompatInvite {
    /// Ours, as the other side knows it.
    pub(super) fn of(invite: &AwcpInvite, credential: Option<String>) -> Self {
        let AwcpInvite { task, lease, .. } = invite;
        let resource = CompatResource { name: RESOURCE.to_owned(), kind: FILES.to_owned(), mode: lease.access_mode };
        Self {
            task: CompatTask { description: task.description.clone(), prompt: task.prompt.clone() },
            lease: CompatOffer { ttl_seconds: lease.ttl_seconds, access_mode: lease.access_mode },
            retention_ms: RETENTION_MS,
            environment: CompatEnvironment { resources: vec![resource] },
            requirements: Some(CompatRequirements { transport: Some(ARCHIVE.to_owned()) }),
            auth: credential.map(|credential| CompatAuth { kind: "bearer".to_owned(), credential }),
        }
    }

    /// What in it can't be done here.
    pub(super) fn check(&self) -> Result<(), CompatFailure> {
        let decline = |message: &str| Err(CompatFailure::of(AwcpErrorCode::Declined, message));
        let transport = self.requirements.as_ref().and_then(|required| required.transport.as_deref());
        if transport.is_some_and(|transport| transport != ARCHIVE) {
            return decline("only the transport `archive` is supported");
        }
        if self.task.description.trim().is_empty() || self.task.prompt.trim().is_empty() {
            return decline("the task is empty");
        }
        if self.lease.ttl_seconds == 0 {
            return decline("a lease can't last 0 seconds");
        }
        let resources = &self.environment.resources;
        let is_name = |name: &str| {
            let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_. ".contains(character);
            (1..=64).contains(&name.len()) && !name.starts_with('.') && name.chars().all(is_plain)
        };
        if resources.is_empty() || resources.len() > 16 {
            return decline("there must be 1 to 16 resources");
        }
        for (index, resource) in resources.iter().enumerate() {
            if resource.kind != FILES {
                return decline("only resources of the type `fs` are supported");
            }
            let same = |other: &CompatResource| other.name.eq_ignore_ascii_case(&resource.name);
            if !is_name(&resource.name) || resources[..index].iter().any(same) {
                return decline(
                    "the names of resources must be different, and consist of letters, digits, - _ . and spaces",
                );
            }
        }
        Ok(())
    }

    /// Read-only if nothing may be written.
    pub(super) fn access_mode(&self) -> AccessMode {
        let is_writable = self.environment.resources.iter().any(|resource| resource.mode == AccessMode::Rw);
        if is_writable { self.lease.access_mode } else { AccessMode::Ro }
    }
}

// === impl CompatAck ===

impl CompatAck {
    pub(super) const DONE: Self = Self { ok: true, cancelled: false };
    pub(super) const CANCELLED: Self = Self { ok: true, cancelled: true };
}

// === impl CompatAccept ===

impl CompatAccept {
    /// What it is in our messages. The folder gets to a copy on this machine first, whatever carries it further.
    pub(super) fn into_ours(self, delegation: DelegationId, client_key: String) -> AwcpAccept {
        let constraints = self.executor_constraints.unwrap_or_default();
        AwcpAccept {
            delegation_id: delegation.to_string(),
            remote_mount: RemoteMount {
                mount_point: brief(&self.executor_work_dir.path),
                requires_empty_dir: false,
                client_key: Some(client_key),
                transports: vec![SYNC.to_owned()],
            },
            remote_constraints: Some(RemoteConstraints {
                accepted_access_mode: constraints.accepted_access_mode,
                max_ttl_seconds: constraints.max_ttl_seconds,
                // What it declares was never seen to be enforced, so nothing is claimed on its behalf.
                sandbox_profile: None,
                sandbox_proof: None,
            }),
        }
    }
}

impl From<SandboxProfile> for CompatSandbox {
    fn from(SandboxProfile { cwd_only, allow_network, allow_exec }: SandboxProfile) -> Self {
        Self { cwd_only, allow_network, allow_exec }
    }
}

// === impl CompatFailure ===

impl CompatFailure {
    pub(super) fn of(code: AwcpErrorCode, message: impl Into<String>) -> Self {
        Self { code: their_code(code).to_owned(), message: message.into(), hint: None }
    }

    pub(super) fn into_ours(self) -> DelegationFailure {
        let code = our_code(&self.code);
        let hint = self.hint.as_deref().filter(|hint| !hint.is_empty()).map_or_else(|| code.hint().to_owned(), brief);
        DelegationFailure { code, message: brief(&self.message), hint }
    }
}

impl From<DelegationFailure> for CompatFailure {
    fn from(DelegationFailure { code, message, .. }: DelegationFailure) -> Self {
        Self::of(code, message)
    }
}

fn their_code(code: AwcpErrorCode) -> &'static str {
    match code {
        AwcpErrorCode::MountpointDenied => "WORKDIR_DENIED",
        AwcpErrorCode::MountFailed => "SETUP_FAILED",
        AwcpErrorCode::Declined
        | AwcpErrorCode::DepMissing
        | AwcpErrorCode::StartExpired
        | AwcpErrorCode::AuthFailed
        | AwcpErrorCode::TaskFailed
        | AwcpErrorCode::Cancelled
        | AwcpErrorCode::Expired => code.as_str(),
    }
}

fn our_code(code: &str) -> AwcpErrorCode {
    match code {
        "WORKDIR_DENIED" => AwcpErrorCode::MountpointDenied,
        "SETUP_FAILED" | "TRANSPORT_ERROR" | "CHECKSUM_MISMATCH" => AwcpErrorCode::MountFailed,
        "WORKSPACE_TOO_LARGE" | "WORKSPACE_NOT_FOUND" | "WORKSPACE_INVALID" | "SENSITIVE_FILES" => {
            AwcpErrorCode::Declined
        }
        code => AwcpErrorCode::ALL.into_iter().find(|ours| ours.as_str() == code).unwrap_or(AwcpErrorCode::TaskFailed),
    }
}

impl std::fmt::Debug for CompatAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompatAuth").field("kind", &self.kind).field("credential", &"***").finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_counterpart() {
        for code in AwcpErrorCode::ALL {
            assert_eq!(our_code(their_code(code)), code);
        }
        assert_eq!(our_code("SENSITIVE_FILES"), AwcpErrorCode::Declined);
        assert_eq!(our_code("SOMETHING_NEW"), AwcpErrorCode::TaskFailed);
    }

    #[test]
    fn an_invitation_is_checked() {
        let invite = |resources: &str, transport: &str| {
            let text = format!(
                r#"{{"task":{{"description":"d","prompt":"p"}},"lease":{{"ttlSeconds":60,"accessMode":"rw"}},"retentionMs":1,
                   "environment":{{"resources":[{resources}]}},"requirements":{{"transport":"{transport}"}}}}"#
            );
            let invite: CompatInvite = read(text.as_bytes()).unwrap();
            invite.check().map(|()| invite.access_mode()).map_err(|failure| failure.message)
        };
        let resource = |name: &str, mode: &str| format!(r#"{{"name":"{name}","type":"fs","mode":"{mode}"}}"#);
        assert_eq!(invite(&resource("my app", "rw"), "archive"), Ok(AccessMode::Rw));
        assert_eq!(invite(&resource("app", "ro"), "archive"), Ok(AccessMode::Ro));
        for name in ["", ".", "..", ".git", "a/b", "a\\\\b", "ä", &"x".repeat(65)] {
            assert!(invite(&resource(name, "rw"), "archive").unwrap_err().starts_with("the names"), "{name}");
        }
        let twice = format!("{},{}", resource("a", "ro"), resource("A", "rw"));
        assert!(invite(&twice, "archive").is_err());
        assert!(invite("", "archive").is_err());
        assert_eq!(invite(&resource("a", "rw"), "sshfs").unwrap_err(), "only the transport `archive` is supported");
    }

    #[test]
    fn a_credential_is_not_printed() {
        let auth = CompatAuth { kind: "bearer".to_owned(), credential: "secret".to_owned() };
        assert_eq!(format!("{auth:?}"), "CompatAuth { kind: \"bearer\", credential: \"***\" }");
    }
}
