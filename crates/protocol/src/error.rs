//! The table of domain errors: code, HTTP status, exit code and default hint.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// Exit codes of the command line, documented in `docs/cli.md`.
pub mod exit {
    pub const OK: u8 = 0;
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const NOT_FOUND: u8 = 3;
    pub const DENIED: u8 = 4;
    pub const UNREACHABLE: u8 = 5;
    /// Partially done. The output says what is missing.
    pub const INCOMPLETE: u8 = 6;
    pub const TIMED_OUT: u8 = 124;
}

macro_rules! codes {
    ($($name:ident $text:literal $http:literal $exit:ident $hint:literal;)*) => {
        /// A stable error code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($name,)*
        }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $http,)* }
            }

            pub const fn exit_code(self) -> u8 {
                match self { $(Self::$name => exit::$exit,)* }
            }

            /// The default next step. The code that fails may give a more specific one.
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$name => $hint,)* }
            }
        }
    };
}

codes! {
    InvalidRequest   "invalid_request"    400 USAGE       "Compare the request with /docs/calls and /api/v1/openapi.json.";
    InvalidJson      "invalid_json"       400 USAGE       "Send one JSON object with the header content-type: application/json.";
    TooDeep          "json_too_deep"      400 USAGE       "Nest JSON at most 64 levels deep, or upload the data as an artifact.";
    Unauthenticated  "unauthenticated"    401 DENIED      "Send a valid key as `Authorization: Bearer ak_…`. The owner key is in <data>/admin.key.";
    RuntimeRevoked   "runtime_revoked"    401 DENIED      "To reconnect, create a new pairing code for the same agent in the console, then run `attache runtime pair CODE`.";
    RuntimeSuperseded "runtime_superseded" 401 DENIED     "Another device was paired with this agent. To take over, pair this device again: `attache runtime pair CODE`.";
    TokenReplaced    "token_replaced"     401 DENIED      "If this device didn't rotate the token itself, someone else may have a copy of it. Pair the agent again to invalidate all copies: `attache runtime pair CODE`.";
    Forbidden        "forbidden"          403 DENIED      "Use a key whose role allows this, or ask an owner.";
    ForeignOrigin    "foreign_origin"     403 DENIED      "Call from the hub's own origin, or omit the Origin header.";
    WrongHost        "wrong_host"         421 DENIED      "Use the address the hub listens on, or start the hub with --public-url.";
    NotFound         "not_found"          404 NOT_FOUND   "Check the id, and make sure the credential belongs to the same tenant.";
    NoSuchPath       "no_such_path"       404 NOT_FOUND   "See /docs/calls, or /api/v1/openapi.json for all paths.";
    MethodNotAllowed "method_not_allowed" 405 USAGE       "See /docs/calls, or /api/v1/openapi.json for the methods this path supports.";
    NameTaken        "name_taken"         409 FAILED      "Choose another name, or use the existing agent.";
    StaleEpoch       "stale_epoch"        409 FAILED      "Another claim owns this run now. Stop working on it.";
    RunEnded         "run_ended"          409 FAILED      "See how it ended: `attache runs show RUN`. To continue its work, send another task in the same conversation.";
    NotRunning       "not_running"        409 FAILED      "This call works only while the run is claimed.";
    InUse            "in_use"             409 FAILED      "Only runs that have ended can be deleted.";
    AlreadyBegun     "already_begun"      409 FAILED      "A claim can be released only before anything is reported. Complete or fail the run instead.";
    KeyReused        "idempotency_key_reused" 409 FAILED  "Use a new idempotency key for a different request.";
    AlreadyDecided   "already_decided"    409 FAILED      "An approval request can only be decided once. To change how later requests are handled, see `attache approvals grants`.";
    ApprovalRequired "approval_required"  409 DENIED      "Wait for a person to decide in the console or with `attache approvals`, then repeat the same request.";
    ApprovalDenied   "approval_denied"    403 DENIED      "Continue without this step, or ask the person what they would allow.";
    PasskeyRequired  "passkey_required"   403 DENIED      "Approve it in the console, with a passkey: open the approval's page there. It can be denied anywhere.";
    PasskeyRefused   "passkey_refused"    403 DENIED      "Try again. A passkey has to be used within two minutes, on the page that asked for it.";
    NotWaiting       "not_waiting"        409 FAILED      "A run accepts input only while it is claimed. Check its status.";
    LoopRefused      "loop_refused"       409 FAILED      "A call chain can have at most eight hops and can't visit the same agent twice. Use fewer hops.";
    ResumeRefused    "resume_refused"     409 FAILED      "A resume token works once, for its own channel only. Send `register` to open a new channel. Runs in progress are kept.";
    NotRegistered    "not_registered"     409 USAGE       "Send `register` or `resume` first.";
    ToolRefused      "tool_refused"       409 DENIED      "Call a tool that the caller registered and allowed, with arguments that match its schema.";
    InvalidFrame     "invalid_frame"      400 USAGE       "Compare the frame with docs/channels.md. `field` names the invalid member.";
    Busy             "busy"               409 FAILED      "The adapter runs one task at a time. Wait for the current one to end, or cancel it.";
    DeviceOffline    "device_offline"     409 UNREACHABLE "Start the runtime on the agent's device: `attache runtime start`. Then try again.";
    AgentArchived    "agent_archived"     409 FAILED      "Archived agents accept no new runs. Use another agent.";
    PairingFailed    "pairing_failed"     404 NOT_FOUND   "Codes work once and expire after ten minutes. Create a new one for the same agent in the console.";
    PairingPending   "pairing_pending"    202 FAILED      "Confirm the code in the console, then try again.";
    PairingRejected  "pairing_rejected"   403 DENIED      "To pair this device after all, request a new code and confirm it in the console.";
    RequestTimeout   "request_timeout"    408 FAILED      "Send the request without long pauses. Upload large files as artifacts, which may take longer.";
    TooLarge         "too_large"          413 USAGE       "Send less data, or upload it as an artifact.";
    LogFull          "log_full"           413 USAGE       "Upload further output as an artifact and reference it in the result. `complete` and `fail` still work.";
    HeadersTooLarge  "headers_too_large"  431 USAGE       "Send fewer or shorter headers.";
    UnsupportedType  "unsupported_media_type" 415 USAGE   "Send content-type: application/json.";
    RangeInvalid     "range_not_satisfiable" 416 USAGE    "Request a range within the artifact's size.";
    AccessDenied     "access_denied"      403 DENIED      "Ask an owner to add a rule that allows it. To see the rules: `attache rules show`.";
    EgressRefused    "egress_refused"     403 DENIED      "Use a public address, or start the hub with --egress-allow for this one.";
    RulesInvalid     "rules_invalid"      400 USAGE       "Nothing was changed. Fix the line named in the message and send the rules again.";
    VersionChanged   "version_changed"    409 FAILED      "Someone else changed it in the meantime. Read it again, then repeat your change.";
    IsPeer           "is_peer"            409 FAILED      "Add a separate agent for the device: `attache agents add NAME`.";
    IsPaired         "is_paired"          409 FAILED      "Revoke its device or key first (`attache runtimes`), or add the outside agent under another name.";
    NothingToTrust   "nothing_to_trust"   409 FAILED      "Check the agent: `attache agents show NAME`. Only a changed card needs to be trusted.";
    PeerNotAllowed   "peer_not_allowed"   403 DENIED      "Allow the peer on the machine that owns the folder: `attache delegations allow --peer URL`. Only a person can do this.";
    FolderNotAllowed "folder_not_allowed" 403 DENIED      "Allow the folder on the machine that owns it: `attache delegations allow --folder DIR`. Only a person can do this.";
    PolicyInvalid    "policy_invalid"     409 USAGE       "Fix the line of policy.toml named in the message. Until then, no folders can be delegated.";
    StillLent        "still_lent"         409 FAILED      "Wait until the delegation ends, or cancel it: `attache delegations cancel ID`.";
    LastOwner        "last_owner"         409 FAILED      "Make another person an owner first: `attache users set NAME --role owner`.";
    QuotaExceeded    "quota_exceeded"     429 DENIED      "Wait until the quota resets, or ask an owner to raise it: `attache quotas`.";
    TooManyRequests  "too_many_requests"  429 FAILED      "Wait a minute, then try again.";
    Internal         "internal"           500 FAILED      "This is a bug in the hub. See the hub's log for details.";
    DiskFull         "disk_full"          503 FAILED      "Free disk space on the hub's machine. The hub then recovers automatically. Nothing it acknowledged is lost.";
    DiskLow          "disk_low"           503 FAILED      "Delete runs that are no longer needed, or free disk space on the hub's machine. Signing in, deleting and finishing runs still work. The hub's --disk-reserve option sets how much stays free.";
    ReadOnly         "read_only"          503 FAILED      "Make the file system of the hub's data folder writable again. The hub then recovers automatically.";
    StorageFailed    "storage_failed"     503 FAILED      "Check the hub's log and its disk. To restore from a backup, see /docs/backup.";
    DatabaseUnreachable "database_unreachable" 503 FAILED   "Check the database server and the network in between. The hub then recovers automatically.";
    ServedElsewhere  "served_elsewhere"   503 FAILED      "Use the hub that serves the database now, or stop it; this one then takes over again.";
    Unknown          "outcome_unknown"    503 FAILED      "The hub can't tell whether the change was stored. Repeat the request with the same idempotency key.";
    Overloaded       "overloaded"         503 FAILED      "The hub is overloaded. Try again in a second.";
    Draining         "draining"           503 UNREACHABLE "The hub is shutting down. Try again when it is back.";
    Unreachable      "unreachable"        503 UNREACHABLE "Check the address and that the hub is running: `attache doctor`.";
}

crate::text_enum! {
    /// A next step that programs say in words of their own: the command line names commands where the API names requests.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    plain pub enum Remedy {
        UseDeviceToken = "use_device_token",
        UsePersonKey = "use_person_key",
        CreateToken = "create_token",
        CreateLoginLink = "create_login_link",
        NameAgent = "name_agent",
        NameOrCreateAgent = "name_or_create_agent",
        ChooseAgent = "choose_agent",
        CreateAgent = "create_agent",
        RegisterAgain = "register_again",
        OmitCallback = "omit_callback",
        RaiseBudget = "raise_budget",
    }
}

/// The body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ErrorBody)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ErrorDetail)]
pub struct ErrorDetail {
    pub code: String,
    pub message: String,
    pub hint: String,
    /// The hint for programs, if it is one of a fixed set: `name_agent`, `create_token`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

// === impl Remedy ===

impl Remedy {
    /// The hint for callers of the API.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::UseDeviceToken => "Send the runtime's token as `X-Runtime-Token: rt_…`.",
            Self::UsePersonKey => "Use a person's key: `Authorization: Bearer ak_…`.",
            Self::CreateToken => "Get a new one with a key: POST /api/v1/tokens.",
            Self::CreateLoginLink => {
                "Create a new one with `attache login`, or POST /api/v1/login-links with an owner's key."
            }
            Self::NameAgent => "Name an agent with `agent_type`.",
            Self::NameOrCreateAgent => "Name an agent with `agent_type`, or create an agent with this name.",
            Self::ChooseAgent => "Set `agent_type` to the name of one of them.",
            Self::CreateAgent => "Create one in the console or with POST /api/a2a/register.",
            Self::RegisterAgain => "Register the agent again: POST /api/a2a/register.",
            Self::OmitCallback => "Omit `callback_url`. Watch the run or poll for its result instead.",
            Self::RaiseBudget => "Give the first run a larger `budget`.",
        }
    }
}

// === impl Code ===

impl Code {
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self::from_text(&text).unwrap_or(Self::Internal))
    }
}
