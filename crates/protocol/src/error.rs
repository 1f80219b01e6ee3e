//! The one table of domain errors: code, HTTP status and exit code of the command line.

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
    /// A part of it was done, and the output says what was not.
    pub const INCOMPLETE: u8 = 6;
    pub const TIMED_OUT: u8 = 124;
}

macro_rules! codes {
    ($($name:ident $text:literal $http:literal $exit:ident $hint:literal;)*) => {
        /// A stable name for what went wrong.
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

            /// What to do next, unless the place that failed knows better.
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
    Unauthenticated  "unauthenticated"    401 DENIED      "Send a valid key as `Authorization: Bearer ak_…`; the owner key is in <data>/admin.key.";
    RuntimeRevoked   "runtime_revoked"    401 DENIED      "Pair the same agent again: make a new code for it in the console, then run `attache runtime pair CODE`.";
    RuntimeSuperseded "runtime_superseded" 401 DENIED     "Another device was paired to this agent. Pair this device again to take over: `attache runtime pair CODE`.";
    TokenReplaced    "token_replaced"     401 DENIED      "If this device did not take the new token itself, somebody else has a copy of the old one. Pair the agent again, which shuts every copy out: `attache runtime pair CODE`.";
    Forbidden        "forbidden"          403 DENIED      "Use a key whose role allows this, or ask an owner.";
    ForeignOrigin    "foreign_origin"     403 DENIED      "Call from the hub's own origin, or without an Origin header.";
    WrongHost        "wrong_host"         421 DENIED      "Call the hub by the address it listens on, or start it with --public-url.";
    NotFound         "not_found"          404 NOT_FOUND   "Check the id, and that the credential belongs to the same tenant.";
    NoSuchPath       "no_such_path"       404 NOT_FOUND   "See /docs/calls, and /api/v1/openapi.json for every path.";
    MethodNotAllowed "method_not_allowed" 405 USAGE       "See /docs/calls, and /api/v1/openapi.json for the methods of this path.";
    NameTaken        "name_taken"         409 FAILED      "Choose another name, or use the agent that has it.";
    StaleEpoch       "stale_epoch"        409 FAILED      "Another claim owns this run now; stop working on it.";
    RunEnded         "run_ended"          409 FAILED      "The run has ended and does not change any more.";
    NotRunning       "not_running"        409 FAILED      "Only a claimed run takes this call.";
    InUse            "in_use"             409 FAILED      "Only what has ended can be deleted.";
    AlreadyBegun     "already_begun"      409 FAILED      "Only a claim of which nothing was reported can be handed back. Complete or fail the run instead.";
    KeyReused        "idempotency_key_reused" 409 FAILED  "Use a new idempotency key for a different request.";
    AlreadyDecided   "already_decided"    409 FAILED      "A permission is decided once. To change what happens next time, look at `attache approvals grants`.";
    ApprovalRequired "approval_required"  409 DENIED      "A person decides in the console or with `attache approvals`. Repeat the same request then.";
    ApprovalDenied   "approval_denied"    403 DENIED      "Do it without this step, or ask the person what they would allow.";
    NotWaiting       "not_waiting"        409 FAILED      "The run takes input only while it is claimed; look at its status.";
    LoopRefused      "loop_refused"       409 FAILED      "A chain of calls is at most eight long and comes to no agent twice. Do the work with fewer hand-overs.";
    ResumeRefused    "resume_refused"     409 FAILED      "A resume token works once and for its own channel. Send `register` to open a new one; work that is under way is kept.";
    NotRegistered    "not_registered"     409 USAGE       "Send `register` or `resume` first.";
    ToolRefused      "tool_refused"       409 DENIED      "Call one of the tools that the caller registered and allowed, with arguments that fit its schema.";
    InvalidFrame     "invalid_frame"      400 USAGE       "Compare the frame with docs/channels.md; `field` names what is wrong.";
    Busy             "busy"               409 FAILED      "One task at a time: wait for the running one to end, or cancel it.";
    AgentArchived    "agent_archived"     409 FAILED      "Archived agents take no new work; use another agent.";
    PairingFailed    "pairing_failed"     404 NOT_FOUND   "Codes live ten minutes and work once. Make a new one for the same agent in the console.";
    PairingPending   "pairing_pending"    202 FAILED      "Confirm the code in the console; then ask again.";
    PairingRejected  "pairing_rejected"   403 DENIED      "A person rejected this device in the console.";
    RequestTimeout   "request_timeout"    408 FAILED      "Send the whole request at once. A large file is sent as an artifact, which may take its time.";
    TooLarge         "too_large"          413 USAGE       "Send less at once, or upload it as an artifact.";
    LogFull          "log_full"           413 USAGE       "Upload what is larger as an artifact, and name it in the result; `complete` and `fail` are still taken.";
    HeadersTooLarge  "headers_too_large"  431 USAGE       "Send fewer or shorter headers.";
    UnsupportedType  "unsupported_media_type" 415 USAGE   "Send content-type: application/json.";
    RangeInvalid     "range_not_satisfiable" 416 USAGE    "Ask for a range inside the artifact's size.";
    AccessDenied     "access_denied"      403 DENIED      "Ask an owner for a rule that allows it: `attache rules show`.";
    EgressRefused    "egress_refused"     403 DENIED      "Use a public address, or have the hub started with --egress-allow for this one.";
    RulesInvalid     "rules_invalid"      400 USAGE       "Nothing was changed. Mend the line that the message names and send the rules again.";
    VersionChanged   "version_changed"    409 FAILED      "Somebody changed it in the meantime. Read it again, then repeat your change.";
    IsPeer           "is_peer"            409 FAILED      "Add another agent for the device: `attache agents add NAME`.";
    IsPaired         "is_paired"          409 FAILED      "Revoke its device or key first (`attache runtimes`), or add the outside agent under another name.";
    NothingToTrust   "nothing_to_trust"   409 FAILED      "Look at the agent: `attache agents show NAME`. Only a card that changed waits to be trusted.";
    PeerNotAllowed   "peer_not_allowed"   403 DENIED      "A person allows it on the machine that lends the folder: `attache delegations allow --peer URL`.";
    FolderNotAllowed "folder_not_allowed" 403 DENIED      "A person allows it on the machine that lends it: `attache delegations allow --folder DIR`.";
    PolicyInvalid    "policy_invalid"     409 USAGE       "Mend the line of policy.toml that the message names. Until then nothing is lent.";
    StillLent        "still_lent"         409 FAILED      "Wait until it has ended, or cancel it: `attache delegations cancel ID`.";
    LastOwner        "last_owner"         409 FAILED      "Give another person the role of owner first: `attache users set NAME --role owner`.";
    QuotaExceeded    "quota_exceeded"     429 DENIED      "Wait until the quota begins anew, or ask an owner for more: `attache quotas`.";
    TooManyRequests  "too_many_requests"  429 FAILED      "Wait a minute, then try again.";
    Internal         "internal"           500 FAILED      "This is a defect of the hub; its log has the details.";
    DiskFull         "disk_full"          503 FAILED      "Free some space on the hub's machine. The hub goes on by itself; nothing that it acknowledged is lost.";
    ReadOnly         "read_only"          503 FAILED      "Make the file system of the hub's data folder writable again. The hub goes on by itself.";
    StorageFailed    "storage_failed"     503 FAILED      "Look at the hub's log and at its disk; /docs/backup says how to restore a copy.";
    Unknown          "outcome_unknown"    503 FAILED      "The hub cannot tell whether this was stored. Repeat it with the same idempotency key.";
    Overloaded       "overloaded"         503 FAILED      "The hub has too much to do right now. Try again in a second.";
    Draining         "draining"           503 UNREACHABLE "The hub is shutting down. Try again when it is back.";
    Unreachable      "unreachable"        503 UNREACHABLE "Check the address and that the hub is running: `attache doctor`.";
}

/// The body of every error answer.
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
