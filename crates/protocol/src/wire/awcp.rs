//! AWCP 1: the five messages that lend a folder, each in a data part of A2A as `{"awcp":{…}}`. Unknown members are ignored.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use utoipa::ToSchema;

use crate::{
    Json, Secret, Timestamp,
    wire::{a2a, output::OutputLocation},
};

/// By this an agent's card says that folders may be lent to it, and a message that it is about lending one.
pub const EXTENSION: &str = "https://awcp-protocol.org/v1";
/// The `task_type` of the run that a message with the extension becomes.
pub const TASK_TYPE: &str = "awcp.delegation";
pub const VERSION: &str = "1";
/// The one transport of this version: SFTP, mounted by stock sshfs.
pub const SSHFS: &str = "sshfs";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AwcpMessage {
    Invite(AwcpInvite),
    Accept(AwcpAccept),
    Start(AwcpStart),
    Done(AwcpDone),
    Error(AwcpError),
}

/// Host → remote: would you do this, in a folder of mine? Nothing in it is of use to anybody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpInvite {
    /// Whatever the host calls it.
    pub delegation_id: String,
    pub task: AwcpTask,
    pub lease: LeaseOffer,
    pub workspace: OfferedWorkspace,
    #[serde(default)]
    pub requirements: LeaseRequirements,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpTask {
    pub description: String,
    pub prompt: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseOffer {
    pub ttl_seconds: u64,
    pub access_mode: AccessMode,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedWorkspace {
    /// A name for people, never a path.
    pub export_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequirements {
    #[serde(default = "yes")]
    pub needs_mount_client: bool,
    #[serde(default = "sshfs")]
    pub mount_transport: String,
    /// `true`: without git the remote cannot do the work; `"optional"`: there is a repository in the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_git: Option<Json>,
}

/// Remote → host: yes, here, and on these terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpAccept {
    pub delegation_id: String,
    pub remote_mount: RemoteMount,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_constraints: Option<RemoteConstraints>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteMount {
    /// A path at the remote, which alone chooses it.
    pub mount_point: String,
    #[serde(default)]
    pub requires_empty_dir: bool,
    /// The public half of the lease's key, as OpenSSH writes it. Who sends one gets no private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteConstraints {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_access_mode: Option<AccessMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ttl_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_profile: Option<SandboxProfile>,
}

/// What the remote enforces today, not what it wishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxProfile {
    pub cwd_only: bool,
    pub allow_network: bool,
    pub allow_exec: bool,
}

/// Host → remote: here is the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpStart {
    pub delegation_id: String,
    pub lease: AwcpLease,
    pub mount: AwcpMount,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpLease {
    /// By the host's clock.
    pub expires_at: Timestamp,
    /// The same as a length of time, from when START arrives: the two clocks need not agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    pub access_mode: AccessMode,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpMount {
    pub transport: String,
    pub endpoint: SshEndpoint,
    /// Names the export to its server; it is no path.
    pub export_locator: String,
    pub credential: SshCredential,
    /// The server's public key, as OpenSSH writes it. No other server is spoken to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// What the host would like of the mount, as `["name", "name=value"]`. The remote follows what it knows to be harmless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshEndpoint {
    pub host: String,
    pub port: u16,
    pub user: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelAccess>,
}

/// The way through a hub, for two ends that cannot reach each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelAccess {
    /// `ws://` or `wss://`.
    pub url: String,
    /// [`REDACTED`] where a hub keeps it.
    #[serde(serialize_with = "expose")]
    pub token: Secret<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SshCredential {
    /// The remote made the key itself, and nothing has to travel.
    ClientKey,
    /// For a remote that sent none: a private key in OpenSSH's form, good for this lease alone.
    PrivateKey {
        #[serde(serialize_with = "expose")]
        private_key: Secret<String>,
    },
}

/// Remote → host: it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpDone {
    pub delegation_id: String,
    pub final_summary: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub highlights: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// The summary is not all, or not exactly, what the agent printed: how long the whole is, and where the remote has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output: Option<OutputLocation>,
}

/// Either → the other: it will not be, or be no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpError {
    pub delegation_id: String,
    pub code: AwcpErrorCode,
    pub message: String,
    #[serde(default)]
    pub hint: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessMode {
    Ro,
    Rw,
}

/// The seed's codes and `EXPIRED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ToSchema)]
#[schema(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AwcpErrorCode {
    Declined,
    DepMissing,
    MountpointDenied,
    StartExpired,
    AuthFailed,
    MountFailed,
    TaskFailed,
    Cancelled,
    Expired,
}

/// Why a data part is not a message of AWCP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AwcpParseError {
    #[error("the message has no data part with `awcp`")]
    NoAwcp,
    #[error("the message has more than one data part with `awcp`")]
    SeveralAwcp,
    #[error("`awcp.version` is `{0}`; this side speaks version 1")]
    Version(String),
    #[error("`awcp.type` is `{0}`, which is none of INVITE, ACCEPT, START, DONE, ERROR")]
    Type(String),
    #[error("`awcp` cannot be understood: {0}")]
    Invalid(String),
}

/// Stands in a hub's store, lists and logs for what is handed over once.
pub const REDACTED: &str = "***";

#[derive(Deserialize)]
struct AwcpEnvelope {
    #[serde(default)]
    awcp: Option<Json>,
}

#[derive(Deserialize)]
struct AwcpHeader {
    #[serde(default)]
    version: Option<Json>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

#[derive(Serialize)]
struct OutgoingAwcp<'a, T> {
    awcp: TypedAwcpBody<'a, T>,
}

#[derive(Serialize)]
struct TypedAwcpBody<'a, T> {
    version: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

const fn yes() -> bool {
    true
}

fn sshfs() -> String {
    SSHFS.to_owned()
}

fn expose<S: serde::Serializer>(secret: &Secret<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

// === impl AwcpMessage ===

impl AwcpMessage {
    pub fn delegation(&self) -> &str {
        match self {
            Self::Invite(invite) => &invite.delegation_id,
            Self::Accept(accept) => &accept.delegation_id,
            Self::Start(start) => &start.delegation_id,
            Self::Done(done) => &done.delegation_id,
            Self::Error(error) => &error.delegation_id,
        }
    }

    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Invite(_) => "INVITE",
            Self::Accept(_) => "ACCEPT",
            Self::Start(_) => "START",
            Self::Done(_) => "DONE",
            Self::Error(_) => "ERROR",
        }
    }

    /// The data of the part that carries it. Of a START this is the one place where its secrets are written out.
    pub fn data(&self) -> Json {
        match self {
            Self::Invite(body) => written("INVITE", body),
            Self::Accept(body) => written("ACCEPT", body),
            Self::Start(body) => written("START", body),
            Self::Done(body) => written("DONE", body),
            Self::Error(body) => written("ERROR", body),
        }
    }

    pub fn part(&self) -> a2a::Part {
        a2a::Part::data(self.data())
    }

    /// From the data of one part.
    pub fn read(data: &Json) -> Result<Self, AwcpParseError> {
        let invalid = |error: serde_json::Error| AwcpParseError::Invalid(error.to_string());
        let envelope = data.is_object().then(|| data.parse::<AwcpEnvelope>().ok()).flatten();
        let Some(awcp) = envelope.and_then(|envelope| envelope.awcp) else { return Err(AwcpParseError::NoAwcp) };
        let AwcpHeader { version, kind } = awcp.parse().map_err(invalid)?;
        // Some write the number.
        let version = version.map_or_else(|| VERSION.to_owned(), |version| version.get().trim_matches('"').to_owned());
        if version != VERSION {
            return Err(AwcpParseError::Version(version));
        }
        fn body<T: DeserializeOwned>(awcp: &Json) -> Result<T, AwcpParseError> {
            awcp.parse().map_err(|error| AwcpParseError::Invalid(error.to_string()))
        }
        match kind.as_deref() {
            Some("INVITE") => body(&awcp).map(Self::Invite),
            Some("ACCEPT") => body(&awcp).map(Self::Accept),
            Some("START") => body(&awcp).map(Self::Start),
            Some("DONE") => body(&awcp).map(Self::Done),
            Some("ERROR") => body(&awcp).map(Self::Error),
            other => Err(AwcpParseError::Type(other.unwrap_or_default().to_owned())),
        }
    }

    /// The one message of AWCP among the parts of a message, status or artifact.
    pub fn among(parts: &[a2a::Part]) -> Result<Self, AwcpParseError> {
        let mut found = None;
        for part in parts {
            let a2a::PartContent::Data(data) = &part.content else { continue };
            match Self::read(data) {
                Err(AwcpParseError::NoAwcp) => {}
                read if found.is_none() => found = Some(read),
                _ => return Err(AwcpParseError::SeveralAwcp),
            }
        }
        found.unwrap_or(Err(AwcpParseError::NoAwcp))
    }
}

fn written<T: Serialize>(kind: &'static str, body: &T) -> Json {
    Json::of(&OutgoingAwcp { awcp: TypedAwcpBody { version: VERSION, kind, body } })
}

// === impl AwcpLease ===

impl AwcpLease {
    /// When a lease that begins now is over, by the clock of whoever asks.
    pub fn ends_at(&self, now: Timestamp) -> Timestamp {
        self.ttl_seconds.map_or(self.expires_at, |seconds| now.plus(std::time::Duration::from_secs(seconds)))
    }
}

// === impl LeaseRequirements ===

impl LeaseRequirements {
    /// Whether the work cannot be done without git.
    pub fn wants_git(&self) -> bool {
        self.needs_git.as_ref().is_some_and(|needs| matches!(needs.get(), "true" | "\"required\""))
    }
}

impl Default for LeaseRequirements {
    fn default() -> Self {
        Self { needs_mount_client: true, mount_transport: sshfs(), needs_git: None }
    }
}

// === impl SandboxProfile ===

impl SandboxProfile {
    /// What is enforced where nothing is.
    pub const NOTHING: Self = Self { cwd_only: false, allow_network: true, allow_exec: true };
}

// === impl AwcpError ===

impl AwcpError {
    /// With the hint that every error of its code has.
    pub fn new(delegation: &str, code: AwcpErrorCode, message: impl Into<String>) -> Self {
        Self { delegation_id: delegation.to_owned(), code, message: message.into(), hint: code.hint().to_owned() }
    }
}

// === impl AccessMode ===

impl AccessMode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Rw => "rw",
        }
    }
}

impl fmt::Display for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AccessMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ro" => Ok(Self::Ro),
            "rw" => Ok(Self::Rw),
            other => Err(format!("`{other}` is neither `ro` nor `rw`")),
        }
    }
}

// === impl AwcpErrorCode ===

impl AwcpErrorCode {
    pub const ALL: [Self; 9] = [
        Self::Declined,
        Self::DepMissing,
        Self::MountpointDenied,
        Self::StartExpired,
        Self::AuthFailed,
        Self::MountFailed,
        Self::TaskFailed,
        Self::Cancelled,
        Self::Expired,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Declined => "DECLINED",
            Self::DepMissing => "DEP_MISSING",
            Self::MountpointDenied => "MOUNTPOINT_DENIED",
            Self::StartExpired => "START_EXPIRED",
            Self::AuthFailed => "AUTH_FAILED",
            Self::MountFailed => "MOUNT_FAILED",
            Self::TaskFailed => "TASK_FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Expired => "EXPIRED",
        }
    }

    /// What to do next, unless the place that failed knows better.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Declined => "Ask the remote's owner what its policy.toml allows, or delegate with other terms.",
            Self::DepMissing => "Install the missing program at the remote: `attache doctor` there names its package.",
            Self::MountpointDenied => {
                "The remote's owner must allow a place to mount at: `mount_roots` in its policy.toml."
            }
            Self::StartExpired => {
                "Nothing was lent. Check that the remote is online (`attache agents`), then delegate again, with a longer --ttl."
            }
            Self::AuthFailed => "Delegate again: every lease has a key of its own, and this one was not accepted.",
            Self::MountFailed => {
                "Look at the remote's log, and whether it reaches this machine: `attache doctor` on both."
            }
            Self::TaskFailed => "Look at what the remote wrote: `attache delegations log ID`.",
            Self::Cancelled => {
                "Nothing is left to do. What was written until then is in the folder: `attache delegations diff ID`."
            }
            Self::Expired => {
                "Delegate again with a longer --ttl. What was written until then is in the folder: `attache delegations diff ID`."
            }
        }
    }
}

impl Serialize for AwcpErrorCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for AwcpErrorCode {
    /// A code that nobody knows here is a task that failed; the message says how.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self::ALL.into_iter().find(|code| code.as_str() == text).unwrap_or(Self::TaskFailed))
    }
}

impl fmt::Display for AwcpErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
