//! The adapter's HTTP contract: `GET /health`, `POST /run-task` and the events in between.

use std::{fmt, num::NonZeroUsize};

use serde::{Deserialize, Serialize};

pub use crate::wire::event::ArtifactChange;
use crate::{
    ConversationId, InputId, Json, RunId, Timestamp, WorkspaceId,
    rules::{permission::DecisionScope, permission_mode::PermissionMode},
    wire::{
        part::{Part, PartContent},
        run::{OutputArtifact, OutputMessage, OutputReply},
    },
};

/// The folder for what comes with tasks, in their working folder.
pub const ATTACHMENT_FOLDER: &str = ".attache";

/// The folder for the worktrees of runs, in the device's home folder.
pub const WORKTREE_FOLDER: &str = "worktrees";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterHealth {
    pub ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostInfo>,
    /// Whether the agent asks before a risky step (`permission` in the stream). Default: it doesn't.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
    /// Whether the agent can be made to get its plan approved first (`permission_mode`). Default: it can't.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plans: bool,
    /// Whether the agent takes input that it didn't ask for while it works (`POST /run-task/{task_run_id}/input`).
    /// Default: it doesn't.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_input: bool,
    /// Whether it can make a git worktree for a run (`worktrees`), as its working folder is now. Default: it can't.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktrees: bool,
    #[serde(default)]
    pub running: Option<RunId>,
    /// The other running tasks, for an adapter that runs several at a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_running: Vec<RunId>,
    /// How many tasks it runs at a time. Default: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<NonZeroUsize>,
    /// The task limits it enforces: `cwd_only`, `no_network`, `no_exec`. Runs that require any other limit never reach
    /// it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enforces: Vec<String>,
    /// The limits that the machine's own walls enforce, whatever the agent does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walls: Option<WallsProof>,
}

/// What was tried out and held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallsProof {
    pub limits: Vec<String>,
    pub made_of: String,
    pub proved_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The body of `POST /run-task`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTask {
    pub task_run_id: RunId,
    pub conversation_id: ConversationId,
    pub workspace_id: WorkspaceId,
    pub task_type: String,
    pub input: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_fragments: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_root: Option<String>,
    /// What is left for this run, as in a [`Budget`](crate::wire::usage::Budget). Absent members are unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The limits the caller requires: `{"cwd_only","allow_network","allow_exec"}`. A limit that is not enforced here
    /// ends the run as `refused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Json>,
    /// The limits that the device's owner wants wherever the machine's walls enforce them, in the same form. Elsewhere
    /// they don't apply, and the task is executed anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_sandbox: Option<Json>,
    /// `plan_first`: the agent must get its plan approved (a `permission` with the tool `plan`) before it changes anything.
    /// An adapter that can't make sure of that refuses the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// The folder in which the adapter makes a git worktree for this run, named after it. The run works there instead of in
    /// the agent's folder. An adapter that can't do that refuses the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktrees: Option<String>,
    /// Whether the agent's owner created it in person, and nobody else took part in its conversation. A host with
    /// memory may continue a session of its own only then, unless the device's owner allows it for everyone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_owner: bool,
    /// The session of the host, begun in a terminal, that this conversation continues. An adapter that can't continue
    /// it refuses the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_session: Option<String>,
    /// The run that called this one, and may be waiting for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_task_run_id: Option<RunId>,
    /// Tools for calling other agents while this run lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<RunTools>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Artifacts sent with the task, downloaded by the runtime: message parts whose `url` is `artifact:art_…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<TaskFile>,
}

/// A local file for a part of the task's message. It exists until the task ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFile {
    /// The part's `url`.
    pub url: String,
    pub path: String,
}

/// An MCP server over HTTP, and this run's bearer token for it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTools {
    pub url: String,
    pub token: String,
}

/// The response of `POST /run-task`, and the data of the stream's last event, `result`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReply {
    pub success: bool,
    /// On success: `{"text","artifact_refs"?,"usage"?,…}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Json>,
    /// Which unsolicited input (`input_id`) the agent got. Whatever isn't listed is reported as undelivered. Without the
    /// member, everything that the adapter accepted counts as delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_taken: Option<Vec<InputId>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskError {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
    /// For `usage_limit`: when the agent's account can be used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<Timestamp>,
}

/// The `output` of our own drivers. Other adapters may add members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutput {
    pub text: String,
    #[serde(default)]
    pub artifact_refs: Vec<FileRef>,
    /// The final message for A2A callers. Default: the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<OutputMessage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<OutputArtifact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<OutputReply>,
    /// Present if `text` is not exactly what was printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output: Option<FullOutput>,
}

/// Where the complete output is, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullOutput {
    pub bytes: u64,
    /// Its index in `artifact_refs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_index: Option<usize>,
    /// Why it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// An entry of `artifact_refs` that names a file to upload. The other form is a plain `art_…` id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// Relative to the request's `cwd`. Absolute if the request has none.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

/// The names of the stream's events. The data of most is the JSON of the hub's progress call.
pub mod event {
    pub const PROGRESS: &str = "progress";
    pub const CHUNK: &str = "chunk";
    pub const THOUGHT: &str = "thought";
    pub const LOG: &str = "log";
    pub const TOOL_CALL: &str = "tool_call";
    /// Its data is an [`ArtifactChange`](super::ArtifactChange).
    pub const ARTIFACT: &str = "artifact";
    /// The run waits for an answer, as with the next event.
    pub const PERMISSION: &str = "permission";
    pub const INPUT_REQUIRED: &str = "input_required";
    pub const RESULT: &str = "result";
}

/// Data of `progress`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdapterProgress {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// The task's total so far, as in `usage` of the reply. The run stops if it exceeds a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Json>,
}

/// Data of `chunk` and `thought`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterText {
    pub text: String,
}

/// Data of `log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterLogLine {
    #[serde(default = "info")]
    pub level: String,
    pub message: String,
    /// A machine-readable code: [`INPUT_UNHEARD`](Self::INPUT_UNHEARD), [`NETWORK`](Self::NETWORK).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// Data of `permission`: asks whether the agent may take this step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterPermissionRequest {
    /// The adapter's id for the question, unique within the run.
    pub id: String,
    /// The tool, process or action.
    pub tool: String,
    /// The exact input.
    pub input: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// The proposed change as a unified diff, if the agent provides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// What the agent doesn't disclose: `input`, `paths`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undisclosed: Vec<String>,
    /// What the adapter vouches for: `folder_edit`, `in_folder`, `walled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assured: Vec<String>,
}

/// The body of `POST /run-task/{task_run_id}/permission/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterPermissionDecision {
    pub approved: bool,
    /// The scope of the decision, for agents that remember it. They may still ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<DecisionScope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Data of `input_required`: the agent asks its caller for input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterInputRequest {
    /// The adapter's id for the question. Needed only if several can be open at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub prompt: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Json>,
}

/// The body of `POST /run-task/{task_run_id}/input`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterInputAnswer {
    /// The question it answers. Absent if the question had no id or the input is unsolicited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The caller's input, such as `[{"text":"…"}]`.
    pub parts: Json,
    /// The A2A message it came in, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Json>,
    /// The hub's id of unsolicited input, for `inputs_taken` of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_id: Option<InputId>,
}

// === impl AdapterInputAnswer ===

impl AdapterInputAnswer {
    /// The text parts of an input, as one text.
    pub fn text(parts: &Json) -> String {
        let texts = parts.parse::<Vec<Part>>().unwrap_or_default().into_iter().filter_map(|part| match part.content {
            PartContent::Text(text) => Some(text),
            PartContent::Raw(_) | PartContent::Url(_) | PartContent::Data(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

fn info() -> String {
    "info".to_owned()
}

// === impl AdapterLogLine ===

impl AdapterLogLine {
    /// The caller's input did not reach the agent.
    pub const INPUT_UNHEARD: &str = "input_unheard";
    /// What a run without network of its own reached through the proxy, or was refused.
    pub const NETWORK: &str = "network";

    pub fn new(level: impl Into<String>, message: impl Into<String>) -> Self {
        Self { level: level.into(), message: message.into(), code: None }
    }
}

// === impl RunTools ===

impl fmt::Debug for RunTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools").field("url", &self.url).finish_non_exhaustive()
    }
}

// === impl AdapterHealth ===

impl AdapterHealth {
    /// Whether the adapter is executing the run.
    pub fn executes(&self, run: RunId) -> bool {
        self.running == Some(run) || self.also_running.contains(&run)
    }

    /// How many tasks it runs at a time.
    pub fn places(&self) -> NonZeroUsize {
        self.concurrency.unwrap_or(NonZeroUsize::MIN)
    }
}

// === impl AdapterPermissionRequest ===

impl AdapterPermissionRequest {
    /// A question with only the required members.
    pub fn new(id: impl Into<String>, tool: impl Into<String>, input: Json) -> Self {
        Self {
            id: id.into(),
            tool: tool.into(),
            input,
            cwd: None,
            paths: Vec::new(),
            reason: None,
            risk: None,
            diff: None,
            undisclosed: Vec::new(),
            assured: Vec::new(),
        }
    }
}

// === impl TaskReply ===

impl TaskReply {
    pub fn done(output: &TaskOutput) -> Self {
        Self { success: true, output: Some(Json::of(output)), error: None, usage: None, inputs_taken: None }
    }

    pub fn failed(code: impl Into<String>, message: impl Into<String>) -> Self {
        let error = TaskError { code: code.into(), message: message.into(), resets_at: None };
        Self { success: false, output: None, error: Some(error), usage: None, inputs_taken: None }
    }
}
