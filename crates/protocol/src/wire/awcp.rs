//! AWCP 1: the five messages for delegating a folder, each in an A2A data part as `{"awcp":{…}}`. Unknown members are
//! ignored.

use crate::text_enum;
use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use utoipa::ToSchema;

use crate::{
    Json, Secret, Timestamp,
    wire::{
        output::OutputLocation,
        part::{Part, PartContent},
        run::{Sandbox, SandboxLimit},
    },
};

/// Marks agent cards that accept delegated folders, and messages that belong to a delegation.
pub const EXTENSION: &str = "https://awcp-protocol.org/v1";
/// The `task_type` of a run created from a message with the extension.
pub const TASK_TYPE: &str = "awcp.delegation";
pub const VERSION: &str = "1";
/// The transport that every implementation knows: SFTP, mounted with stock sshfs.
pub const SSHFS: &str = "sshfs";
/// Our own file system over the same SSH server, where both sides know it.
pub const ATTACHE_FS: &str = "attache-fs/1";
/// A copy that is kept the same, over the protocol of attache-fs, where nothing can be mounted.
pub const SYNC: &str = "sync/1";
/// A copy of everything in one message, for the reference implementation. Never offered over A2A.
pub const ARCHIVE: &str = "archive";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AwcpMessage {
    Invite(AwcpInvite),
    Accept(AwcpAccept),
    Start(AwcpStart),
    Done(AwcpDone),
    Error(AwcpError),
}

/// Host → remote: asks the remote to do a task in one of the host's folders. Contains nothing confidential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpInvite {
    /// The host's id for it.
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
    /// A display name, never a path.
    pub export_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequirements {
    #[serde(default = "yes")]
    pub needs_mount_client: bool,
    #[serde(default = "sshfs")]
    pub mount_transport: String,
    /// Every transport that the host offers, best first. Absent means only `mount_transport`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mount_transports: Vec<String>,
    /// `true`: the remote needs git for this work. `"optional"`: the folder contains a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_git: Option<Json>,
}

/// Remote → host: accepts, with its terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpAccept {
    pub delegation_id: String,
    pub remote_mount: RemoteMount,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_constraints: Option<RemoteConstraints>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteMount {
    /// A path on the remote, chosen by the remote.
    pub mount_point: String,
    #[serde(default)]
    pub requires_empty_dir: bool,
    /// The public half of the lease's key, in OpenSSH format. A remote that sends one gets no private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<String>,
    /// The offered transports that the remote can use. Absent means sshfs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transports: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteConstraints {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_access_mode: Option<AccessMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ttl_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_profile: Option<SandboxProfile>,
    /// How the remote knows that it enforces that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_proof: Option<SandboxProof>,
}

/// What the remote actually enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SandboxProfile {
    pub cwd_only: bool,
    pub allow_network: bool,
    pub allow_exec: bool,
}

/// The remote tried to break out of its own walls, and failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SandboxProof {
    pub made_of: String,
    /// By the remote's clock.
    pub proved_at: Timestamp,
}

/// Host → remote: gives access to the folder.
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
    /// The same as a duration from the arrival of START, so that the two clocks don't have to agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    pub access_mode: AccessMode,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpMount {
    pub transport: String,
    pub endpoint: SshEndpoint,
    /// Identifies the export to its server. Not a path.
    pub export_locator: String,
    pub credential: SshCredential,
    /// The server's public key, in OpenSSH format. The remote connects to no other server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// Mount options the host suggests, as `["name", "name=value"]`. The remote applies those it knows to be harmless.
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

/// The route through a hub, for two ends that can't reach each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelAccess {
    /// `ws://` or `wss://`.
    pub url: String,
    /// [`REDACTED`] in the hub's store.
    #[serde(serialize_with = "expose")]
    pub token: Secret<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SshCredential {
    /// The remote created the key itself. Nothing has to be sent.
    ClientKey,
    /// For a remote that sent no key: a private key in OpenSSH format, valid for this lease only.
    PrivateKey {
        #[serde(serialize_with = "expose")]
        private_key: Secret<String>,
    },
}

/// Remote → host: the work is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpDone {
    pub delegation_id: String,
    pub final_summary: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub highlights: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Present if the summary is not exactly what the agent printed: the length of the complete output, and where the
    /// remote keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output: Option<OutputLocation>,
}

/// Either → the other: the delegation failed or is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwcpError {
    pub delegation_id: String,
    pub code: AwcpErrorCode,
    pub message: String,
    #[serde(default)]
    pub hint: String,
}

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum AccessMode {
        Ro = "ro",
        Rw = "rw",
    }
}

text_enum! {
    /// What a person can ask for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum TransportChoice {
        Sshfs = "sshfs",
        AttacheFs = "attache-fs",
        Sync = "sync",
    }
}

text_enum! {
    /// The codes of the AWCP specification, plus `EXPIRED`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ToSchema)]
    #[schema(rename_all = "SCREAMING_SNAKE_CASE")]
    plain pub enum AwcpErrorCode {
        Declined = "DECLINED",
        DepMissing = "DEP_MISSING",
        MountpointDenied = "MOUNTPOINT_DENIED",
        StartExpired = "START_EXPIRED",
        AuthFailed = "AUTH_FAILED",
        MountFailed = "MOUNT_FAILED",
        TaskFailed = "TASK_FAILED",
        Cancelled = "CANCELLED",
        Expired = "EXPIRED",
    }
}

/// Why a data part is not an AWCP message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AwcpParseError {
    #[error("the message has no data part with `awcp`")]
    NoAwcp,
    #[error("the message has more than one data part with `awcp`")]
    SeveralAwcp,
    #[error("`awcp.version` is `{0}`; only version 1 is supported")]
    Version(String),
    #[error("`awcp.type` is `{0}`; it must be INVITE, ACCEPT, START, DONE or ERROR")]
    Type(String),
    #[error("`awcp` is invalid: {0}")]
    Invalid(String),
}

/// Replaces one-time secrets in a hub's store, lists and logs.
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

    /// The data of the part that carries it. For START, this is the only place that writes out its secrets.
    pub fn data(&self) -> Json {
        match self {
            Self::Invite(body) => written("INVITE", body),
            Self::Accept(body) => written("ACCEPT", body),
            Self::Start(body) => written("START", body),
            Self::Done(body) => written("DONE", body),
            Self::Error(body) => written("ERROR", body),
        }
    }

    pub fn part(&self) -> Part {
        Part::data(self.data())
    }

    /// Parses the data of one part.
    pub fn read(data: &Json) -> Result<Self, AwcpParseError> {
        let invalid = |error: serde_json::Error| AwcpParseError::Invalid(error.to_string());
        let envelope = data.is_object().then(|| data.parse::<AwcpEnvelope>().ok()).flatten();
        let Some(awcp) = envelope.and_then(|envelope| envelope.awcp) else { return Err(AwcpParseError::NoAwcp) };
        let AwcpHeader { version, kind } = awcp.parse().map_err(invalid)?;
        // Some senders write a number.
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

    /// The AWCP message among the parts of a message, status or artifact.
    pub fn among(parts: &[Part]) -> Result<Self, AwcpParseError> {
        let mut found = None;
        for part in parts {
            let PartContent::Data(data) = &part.content else { continue };
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
    /// When a lease that starts now ends, by the local clock.
    pub fn ends_at(&self, now: Timestamp) -> Timestamp {
        self.ttl_seconds.map_or(self.expires_at, |seconds| now.plus(std::time::Duration::from_secs(seconds)))
    }
}

// === impl TransportChoice ===

impl TransportChoice {
    /// Best first.
    const PREFERRED: [Self; 3] = [Self::AttacheFs, Self::Sshfs, Self::Sync];

    /// The name in messages.
    pub const fn wire_name(self) -> &'static str {
        match self {
            Self::Sshfs => SSHFS,
            Self::AttacheFs => ATTACHE_FS,
            Self::Sync => SYNC,
        }
    }

    /// What a host offers, best first: everything, unless a person asked for one of them.
    pub fn offered(wanted: Option<Self>) -> Vec<String> {
        let all = Self::PREFERRED.into_iter();
        all.filter(|each| wanted.is_none_or(|wanted| wanted == *each)).map(|each| each.wire_name().to_owned()).collect()
    }

    /// The transport of a lease: the best offered one that the remote can use. A remote that names none knows sshfs.
    pub fn agree(wanted: Option<Self>, usable: &[String]) -> Option<&'static str> {
        let can_use = |name: &str| if usable.is_empty() { name == SSHFS } else { usable.iter().any(|it| it == name) };
        let all = Self::PREFERRED.into_iter();
        all.filter(|each| wanted.is_none_or(|wanted| wanted == *each)).map(Self::wire_name).find(|name| can_use(name))
    }
}

// === impl LeaseRequirements ===

impl LeaseRequirements {
    /// The transports that the host offers.
    pub fn offers(&self, transport: &str) -> bool {
        if self.mount_transports.is_empty() {
            return self.mount_transport == transport;
        }
        self.mount_transports.iter().any(|offered| offered == transport)
    }

    /// Whether the work requires git.
    pub fn wants_git(&self) -> bool {
        self.needs_git.as_ref().is_some_and(|needs| matches!(needs.get(), "true" | "\"required\""))
    }
}

impl Default for LeaseRequirements {
    fn default() -> Self {
        Self { needs_mount_client: true, mount_transport: sshfs(), mount_transports: Vec::new(), needs_git: None }
    }
}

// === impl SandboxProfile ===

impl SandboxProfile {
    /// No limits enforced.
    pub const NOTHING: Self = Self { cwd_only: false, allow_network: true, allow_exec: true };

    /// These limits, and no others.
    pub fn of(limits: &[SandboxLimit]) -> Self {
        let has = |limit| limits.contains(&limit);
        Self {
            cwd_only: has(SandboxLimit::CwdOnly),
            allow_network: !has(SandboxLimit::NoNetwork),
            allow_exec: !has(SandboxLimit::NoExec),
        }
    }
}

impl From<SandboxProfile> for Sandbox {
    fn from(SandboxProfile { cwd_only, allow_network, allow_exec }: SandboxProfile) -> Self {
        Self { cwd_only: Some(cwd_only), allow_network: Some(allow_network), allow_exec: Some(allow_exec) }
    }
}

// === impl AwcpError ===

impl AwcpError {
    /// With the default hint for its code.
    pub fn new(delegation: &str, code: AwcpErrorCode, message: impl Into<String>) -> Self {
        Self { delegation_id: delegation.to_owned(), code, message: message.into(), hint: code.hint().to_owned() }
    }
}

// === impl AccessMode ===

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
            other => Err(format!("`{other}` must be `ro` or `rw`")),
        }
    }
}

// === impl AwcpErrorCode ===

impl AwcpErrorCode {
    /// The default next step. The code that fails may give a more specific one.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Declined => "Ask the remote's owner what its policy.toml allows, or delegate with other terms.",
            Self::DepMissing => {
                "Install the missing program on the remote. Run `attache doctor` there to find its package."
            }
            Self::MountpointDenied => {
                "Ask the remote's owner to allow a mount location: `mount_roots` in its policy.toml."
            }
            Self::StartExpired => {
                "Nothing was shared. Check that the remote is online (`attache agents`), then retry with a longer --ttl."
            }
            Self::AuthFailed => "Delegate again. Every lease has its own key, and this one was not accepted.",
            Self::MountFailed => {
                "Check the remote's log, and whether it can reach this machine: run `attache doctor` on both."
            }
            Self::TaskFailed => "Check the remote's output: `attache delegations log ID`.",
            Self::Cancelled => "No action needed. Changes so far are in the folder: `attache delegations diff ID`.",
            Self::Expired => {
                "Delegate again with a longer --ttl. Changes so far are in the folder: `attache delegations diff ID`."
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
    /// An unknown code counts as a failed task. The message has the details.
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
