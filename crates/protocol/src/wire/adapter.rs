//! The adapter's HTTP contract: `GET /health`, `POST /run-task` and the events in between (DESIGN §5.3).

use std::{fmt, num::NonZeroUsize};

use serde::{Deserialize, Serialize};

pub use crate::wire::event::ArtifactChange;
use crate::{
    ConversationId, Json, RunId, Timestamp, WorkspaceId,
    rules::permission::DecisionScope,
    wire::run::{OutputArtifact, OutputMessage, OutputReply},
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterHealth {
    pub ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostInfo>,
    /// Whether the agent asks before it takes a risky step (`permission` of the stream). One that does not say so does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
    #[serde(default)]
    pub running: Option<RunId>,
    /// What else executes, at an adapter that takes several tasks at a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_running: Vec<RunId>,
    /// How many tasks it takes at a time; one unless it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<NonZeroUsize>,
    /// The limits of tasks that it enforces: `cwd_only`, `no_network`, `no_exec`. A run that asks for another one never
    /// reaches it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enforces: Vec<String>,
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
    /// What is left for this run, as in a [`Budget`](crate::wire::usage::Budget); members that are absent limit nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The limits that the caller asks for: `{"cwd_only","allow_network","allow_exec"}`. One that nobody here enforces ends
    /// the run as `refused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Json>,
    /// Tools that the agent may use to put other agents to work, for as long as this run lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<RunTools>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What came with the task as artifacts, fetched by the runtime: parts of the message whose `url` is `artifact:art_…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<TaskFile>,
}

/// A file on this device that stands for a part of the task's message. It is there until the task is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFile {
    /// The part's `url`.
    pub url: String,
    pub path: String,
}

/// An MCP server over HTTP, and the bearer token that it wants of this run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTools {
    pub url: String,
    pub token: String,
}

/// The answer of `POST /run-task`, and the data of the stream's last event, `result`.
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
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskError {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
    /// Of `usage_limit`: when the agent's account may be used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<Timestamp>,
}

/// What our own drivers write as `output`; other adapters may add members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutput {
    pub text: String,
    #[serde(default)]
    pub artifact_refs: Vec<FileRef>,
    /// What a caller that speaks A2A is told at the end; the text unless there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<OutputMessage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<OutputArtifact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<OutputReply>,
    /// Present when `text` is not all, or not exactly, what was printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output: Option<FullOutput>,
}

/// Where all that was printed is, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullOutput {
    pub bytes: u64,
    /// Its place in `artifact_refs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_index: Option<usize>,
    /// Why it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// An entry of `artifact_refs` that names a file to upload; the other form is a plain `art_…` id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// Relative to the request's `cwd`; absolute when the request names none.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

/// The names of the stream's events; the data of most is the JSON that the progress call of the hub takes.
pub mod event {
    pub const PROGRESS: &str = "progress";
    pub const CHUNK: &str = "chunk";
    pub const THOUGHT: &str = "thought";
    pub const LOG: &str = "log";
    pub const TOOL_CALL: &str = "tool_call";
    /// Its data is an [`ArtifactChange`](super::ArtifactChange).
    pub const ARTIFACT: &str = "artifact";
    /// The run waits until this is answered, as it does after the next one.
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
    /// The task's total so far, as in `usage` of the reply: a quota that it passes stops the run.
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
    /// What it is about, for programs: [`INPUT_UNHEARD`](Self::INPUT_UNHEARD).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// Data of `permission`: may the agent take this step?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterPermissionRequest {
    /// The adapter's own name for the question, unique within the run.
    pub id: String,
    /// The tool, process or action.
    pub tool: String,
    /// What it would be given, exactly.
    pub input: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// What would change, as a unified diff, where the agent tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// What the agent does not tell: `input`, `paths`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undisclosed: Vec<String>,
}

/// The body of `POST /run-task/{task_run_id}/permission/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterPermissionDecision {
    pub approved: bool,
    /// How far the person's answer reaches, for agents that remember it; they may ask again all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<DecisionScope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Data of `input_required`: the agent wants to hear something from its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterInputRequest {
    /// The adapter's own name for the question; needed only where several may be open at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub prompt: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Json>,
}

/// The body of `POST /run-task/{task_run_id}/input`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterInputAnswer {
    /// Of the question that it answers; missing when the question had none, or nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What the caller gave, such as `[{"text":"…"}]`.
    pub parts: Json,
    /// The A2A message that brought it, as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Json>,
}

fn info() -> String {
    "info".to_owned()
}

// === impl AdapterLogLine ===

impl AdapterLogLine {
    /// What the caller said did not reach the agent.
    pub const INPUT_UNHEARD: &str = "input_unheard";

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
    /// Whether the adapter executes the run now.
    pub fn executes(&self, run: RunId) -> bool {
        self.running == Some(run) || self.also_running.contains(&run)
    }

    /// How many tasks it takes at a time.
    pub fn places(&self) -> NonZeroUsize {
        self.concurrency.unwrap_or(NonZeroUsize::MIN)
    }
}

// === impl AdapterPermissionRequest ===

impl AdapterPermissionRequest {
    /// A question of which nothing more is known.
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
        }
    }
}

// === impl TaskReply ===

impl TaskReply {
    pub fn done(output: &TaskOutput) -> Self {
        Self { success: true, output: Some(Json::of(output)), error: None, usage: None }
    }

    pub fn failed(code: impl Into<String>, message: impl Into<String>) -> Self {
        let error = TaskError { code: code.into(), message: message.into(), resets_at: None };
        Self { success: false, output: None, error: Some(error), usage: None }
    }
}
