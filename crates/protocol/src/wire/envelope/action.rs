//! Actions that peers send to the hub: the typed payloads of workers and engines.

use serde::{Serialize, Serializer};

use crate::{
    ChannelId, ConversationId, InputId, Json, RunId, Secret,
    wire::{
        channel::PeerRole,
        envelope::{Envelope, FrameError, FrameObject, FrameType},
        runtime::DeclaredExtension,
    },
};

/// A member that is omitted when empty.
trait OptionalMember {
    fn is_absent(&self) -> bool {
        false
    }
}

impl<T> OptionalMember for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl OptionalMember for i64 {}
impl OptionalMember for bool {}
impl OptionalMember for String {}
impl OptionalMember for Json {}
impl OptionalMember for RunId {}
impl OptionalMember for ChannelId {}

macro_rules! member {
    (@type need $type:ty) => { $type };
    (@type may $type:ty) => { Option<$type> };
    (@read $from:ident need $field:ident $type:ty) => { $from.required::<$type>(stringify!($field))? };
    (@read $from:ident may $field:ident $type:ty) => { $from.optional::<$type>(stringify!($field))? };
}

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident $action:literal {
        $($(#[$about:meta])* $kind:ident $field:ident: $type:ty;)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Serialize)]
            pub struct $name {
                $(
                    $(#[$about])*
                    #[serde(skip_serializing_if = "OptionalMember::is_absent")]
                    pub $field: member!(@type $kind $type),
                )*
            }

            impl $name {
                pub const ACTION: &'static str = $action;

                fn read(from: &FrameObject<'_>) -> Result<Self, FrameError> {
                    let _ = from;
                    Ok(Self { $($field: member!(@read from $kind $field $type),)* })
                }

                /// The payload, with its action as the first member.
                pub fn payload(&self) -> Json {
                    super::hub_frame::with_action($action, &Json::of(self))
                }
            }
        )*

        /// The action a frame requests.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Action {
            $($name($name),)*
            /// The response to a request of the hub.
            Response(ResponsePayload),
        }

        impl Action {
            /// Parses the payload. The error names the member.
            pub fn read(envelope: &Envelope) -> Result<Self, FrameError> {
                let named = |error| FrameError { msg_id: Some(envelope.header.msg_id.clone()), ..error };
                let payload = FrameObject::read("payload", envelope.payload.get()).map_err(named)?;
                if envelope.header.kind == FrameType::Response {
                    return ResponsePayload::read(&payload).map(Self::Response).map_err(named);
                }
                let action = payload.required::<String>("action").map_err(named)?;
                match action.as_str() {
                    $($action => $name::read(&payload).map(Self::$name).map_err(named),)*
                    other => {
                        let shown: String = other.chars().take(40).collect();
                        Err(named(FrameError::wrong("payload.action", format!("is `{shown}`, an unknown action"))))
                    }
                }
            }

            pub const fn name(&self) -> Option<&'static str> {
                match self {
                    $(Self::$name(_) => Some($action),)*
                    Self::Response(_) => None,
                }
            }
        }
    };
}

actions! {
    Register "register" {
        may peer_role: PeerRole;
        may capabilities: Vec<String>;
        /// `[{"name","description","input_schema","output_schema"}]`
        may tools: Json;
        may device_info: Json;
        /// The runs the worker is executing. Its other claims go back to the queue.
        may running: Vec<RunId>;
        /// The A2A extensions the device supports, as in a heartbeat.
        may extensions: Vec<DeclaredExtension>;
    }
    Resume "resume" {
        need channel_id: ChannelId;
        need resume_token: FrameToken;
        /// The newest frame the peer has received.
        need last_seq: i64;
    }
    Ready "ready" {
        /// How many more runs the worker accepts. 0 revokes earlier credits.
        need credits: i64;
        /// The run limits the worker enforces from now on: `cwd_only`, `no_network`, `no_exec`. A run that requires any
        /// other limit ends as `refused` when it is claimed.
        may enforces: Vec<String>;
    }
    Ack "ack" { need seq: i64; }
    /// The peer is about to disconnect and gets no more runs.
    Drain "drain" {}
    /// A message about the channel itself, outside any run.
    Message "message" { need message: Json; }

    Chunk "chunk" {
        need task_run_id: RunId;
        need epoch: i64;
        /// A string, kept as sent.
        need text: Json;
        /// The worker's sequence number of its reports on this claim.
        may report: i64;
    }
    Think "think" { need task_run_id: RunId; need epoch: i64; need thought_text: Json; may report: i64; }
    Log "log" { need task_run_id: RunId; need epoch: i64; may level: String; need message: Json; may report: i64; }
    Progress "progress" {
        need task_run_id: RunId;
        need epoch: i64;
        may message: String;
        may percent: f64;
        may usage_stats: Json;
        /// An artifact the agent produced: `{"artifact_id","name"?,"parts","append"?,"last_chunk"?}`.
        may artifact: Json;
        may report: i64;
    }
    CallTool "call_tool" { need task_run_id: RunId; need epoch: i64; need tool_name: String; may arguments: Json; }
    RequireApproval "require_approval" {
        need task_run_id: RunId;
        need epoch: i64;
        need tool: String;
        need input: Json;
        may cwd: String;
        may paths: Vec<String>;
        may reason: String;
        may risk: String;
        /// The proposed change as a unified diff.
        may diff: String;
        /// What the agent doesn't disclose: `input`, `paths`.
        may undisclosed: Vec<String>;
        /// What the device vouches for: `folder_edit`, `in_folder`, `walled`. Other words are ignored.
        may assured: Vec<String>;
    }
    RequireInput "require_input" {
        need task_run_id: RunId;
        need epoch: i64;
        need prompt: String;
        may parts: Json;
    }
    Extend "extend" { need task_run_id: RunId; need epoch: i64; }
    Fail "fail" {
        need task_run_id: RunId;
        need epoch: i64;
        may error: Json;
        may code: String;
        may usage_stats: Json;
        /// The complete `{"error","code",…}` in place of `error` and `code`.
        may output: Json;
        /// What the agent got of the run's unsolicited input.
        may inputs_taken: Vec<InputId>;
    }
    Release "release" { need task_run_id: RunId; need epoch: i64; }
    Done "done" {
        need task_run_id: RunId;
        need epoch: i64;
        may result_summary: Json;
        may artifact_refs: Json;
        may usage_stats: Json;
        /// The complete `{"text","details","artifact_refs",…}` in place of `result_summary` and `artifact_refs`.
        may output: Json;
        /// What the agent got of the run's unsolicited input.
        may inputs_taken: Vec<InputId>;
    }

    /// An engine creates a run for the agent in `header.to`.
    Execute "execute" {
        may query: String;
        may context_fragments: Json;
        may allowed_tools: Json;
        may workspace_root: String;
        may conversation_id: ConversationId;
        may parent_task_run_id: RunId;
        may task_type: String;
        /// Used instead of `query` if text is not enough.
        may input: Json;
        may timeout_ms: u64;
        /// Over SSE: the channel whose registered tools the run may use.
        may channel_id: ChannelId;
    }
    Cancel "cancel" { need task_run_id: RunId; may reason: String; }
    Input "input" { need task_run_id: RunId; may text: String; may parts: Json; }
}

/// The payload of a response to `call_tool`, `require_approval` or `require_input`.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponsePayload {
    pub action: Option<String>,
    pub ok: Option<bool>,
    pub approved: Option<bool>,
    pub comment: Option<String>,
    pub result: Option<Json>,
    pub error: Option<Json>,
    pub parts: Option<Json>,
}

/// A secret in a frame: it is serialized but never printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameToken(pub Secret<String>);

// === impl ResponsePayload ===

impl ResponsePayload {
    fn read(from: &FrameObject<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            action: from.optional("action")?,
            ok: from.optional("ok")?,
            approved: from.optional("approved")?,
            comment: from.optional("comment")?,
            result: from.optional("result")?,
            error: from.optional("error")?,
            parts: from.optional("parts")?,
        })
    }
}

// === impl FrameToken ===

impl OptionalMember for FrameToken {}

impl Serialize for FrameToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose())
    }
}

impl<'de> serde::Deserialize<'de> for FrameToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Secret::deserialize(deserializer).map(Self)
    }
}
