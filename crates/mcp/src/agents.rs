//! The agent backend behind `remote_agent`, `remote_cancel` and `list_agents`: a hub, or this machine's configuration.

use std::time::Duration;

use async_trait::async_trait;
use attache_client::egress;
use attache_protocol::{
    Json,
    wire::{
        account::{Account, Presence},
        awcp,
        output::OutputLocation,
        part::Part,
        questionnaire::{QuestionAnswer, Questionnaire},
        runtime::{ASKS, Runtime},
    },
};
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;

use crate::ToolError;

#[async_trait]
pub trait AgentBackend: Send + Sync + 'static {
    /// The agents that the caller may use.
    async fn list(&self, by: ToolCaller<'_>) -> Result<Vec<ListedAgent>, ToolError>;

    /// Starts, continues or answers a call and waits for at most `wait`. The call continues after that, even if nobody
    /// waits. Messages of the agent in the meantime are sent to `said`.
    async fn ask(
        &self,
        by: ToolCaller<'_>,
        ask: RemoteAgentRequest,
        wait: Duration,
        said: &watch::Sender<String>,
    ) -> Result<AgentCall, ToolError>;

    /// Cancels a call and its work. A call that has ended is returned unchanged.
    async fn cancel(&self, by: ToolCaller<'_>, call: AgentCallRef) -> Result<AgentCall, ToolError>;
}

/// The caller of a tool, as identified by the layers in front of the server, which add it to the request's extensions.
#[derive(Debug, Clone, Copy)]
pub struct ToolCaller<'a>(pub(crate) Option<&'a Parts>);

/// Waiting and answering are separate requests, so that an agent can't mistake one for the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteAgentRequest {
    Task(AgentTask),
    Wait(AgentCallRef),
    Answer(AgentCallAnswer),
}

/// A new call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentTask {
    pub task: String,
    /// A URL, or the name of an agent.
    pub agent_url: String,
    pub agent_type: Option<String>,
    pub context: Option<Json>,
}

/// An earlier call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCallRef {
    pub call_id: String,
    /// Needed only if the backend no longer remembers which agent was called.
    pub agent_url: Option<String>,
}

/// The answer to one specific question. It is rejected if a different question is open by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCallAnswer {
    pub call: AgentCallRef,
    pub question_id: String,
    pub answer: AnswerContent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerContent {
    Text(String),
    /// One answer for each question of a [`Questionnaire`].
    Questionnaire(Vec<QuestionAnswer>),
}

/// A call and its current state.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentCall {
    /// `None` for agents that answer immediately without creating a task.
    pub call_id: Option<String>,
    pub state: AgentCallState,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AgentCallState {
    Completed {
        summary: String,
        duration: Option<Duration>,
        /// Where to find the complete answer if the summary is only a part of it.
        full_output: Option<FullOutput>,
    },
    /// Needs nothing from the caller.
    Running {
        /// The agent's last message.
        last: Option<String>,
    },
    /// Waits for an answer from the caller.
    InputRequired(AgentQuestion),
    /// Waits for a person's approval.
    ApprovalRequired(PendingApproval),
    Cancelled,
    Failed(ToolError),
}

/// What an agent asks its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentQuestion {
    pub id: String,
    pub text: String,
    /// The same as a form, if the agent offered options.
    pub questionnaire: Option<Questionnaire>,
    pub caller: CallerKind,
}

/// The complete output of a call whose answer was too long to return, or not text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FullOutput {
    /// Size of the complete output.
    pub bytes: u64,
    /// The hub artifact that holds the complete output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_id: Option<String>,
    /// Download URL. Requires a key of the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Why the complete output is not available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingApproval {
    /// `prm_…`, if known.
    pub id: Option<String>,
    /// The exact step: `Bash: touch x`.
    pub what: String,
    pub caller: CallerKind,
}

/// Whether the calling model has a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerKind {
    /// It has a user who can be notified.
    User,
    /// It works on a run of its own. The people who can decide see the request elsewhere.
    Run,
}

/// An agent in the result of `list_agents`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ListedAgent {
    pub name: String,
    /// Use it as agent_url of remote_agent, or as peer_url of delegate.
    pub agent_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// online, offline (tasks are queued until it reconnects) or unknown.
    pub status: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// The agent program and its device, such as "claude_cli on vm".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether it asks a person for approval before risky steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks_before_risky_steps: Option<bool>,
    /// Whether it accepts folders from delegate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes_folders: Option<bool>,
}

// === impl ToolCaller ===

impl<'a> ToolCaller<'a> {
    /// A caller on this machine.
    pub const fn local() -> Self {
        Self(None)
    }

    pub fn get<T: Send + Sync + 'static>(self) -> Option<&'a T> {
        self.0.and_then(|parts| parts.extensions.get())
    }
}

// === impl ListedAgent ===

impl ListedAgent {
    /// The list entry of an account of the hub at `origin`.
    pub fn of(account: &Account, origin: &str) -> Self {
        let status = match account.status {
            Presence::Online => "online",
            Presence::Offline => "offline",
        };
        Self {
            name: account.name.clone(),
            agent_url: format!("{origin}/a2a/{}", account.name),
            description: account.description.clone().filter(|text| !text.trim().is_empty()),
            status: status.to_owned(),
            skills: account.skills.iter().map(|skill| skill.name.clone()).collect(),
            host: account.runtime.as_ref().and_then(host),
            asks_before_risky_steps: account.runtime.as_ref().map(|runtime| declares(runtime, ASKS)),
            takes_folders: account.runtime.as_ref().map(|runtime| declares(runtime, awcp::EXTENSION)),
        }
    }
}

fn declares(runtime: &Runtime, uri: &str) -> bool {
    runtime.extensions.iter().any(|extension| extension.uri == uri)
}

fn host(runtime: &Runtime) -> Option<String> {
    let kind = runtime.labels.text_member("host_type");
    match (kind, &runtime.device_name) {
        (Some(kind), Some(device)) => Some(format!("{kind} on {device}")),
        (Some(kind), None) => Some(kind),
        (None, device) => device.as_ref().map(|device| format!("on {device}")),
    }
}

// === impl AnswerContent ===

impl AnswerContent {
    /// The parts of a message with this answer.
    pub fn into_parts(self) -> Json {
        match self {
            Self::Text(text) => Json::of(&[Part::text(text)]),
            Self::Questionnaire(answers) => QuestionAnswer::to_parts(answers),
        }
    }
}

// === impl FullOutput ===

impl FullOutput {
    /// From a location at the hub at `origin`.
    pub fn of(location: OutputLocation, origin: &str) -> Self {
        let OutputLocation { bytes, artifact_id, lost, .. } = location;
        let url = artifact_id.map(|id| format!("{origin}/api/v1/artifacts/{id}"));
        Self { bytes, artifact_id: artifact_id.map(|id| id.to_string()), url, lost }
    }

    /// A note for the model: what is missing from the result and how to get it.
    pub(crate) fn note(&self, seen: usize) -> String {
        let Self { bytes, artifact_id, url, lost } = self;
        let what = format!("The text above is truncated: it has {seen} of {bytes} bytes");
        match (artifact_id, url, lost) {
            (Some(artifact), _, _) => format!(
                "{what}. Next: get the complete output with `attache artifacts get {artifact} --output FILE`, or ask \
                 the agent for less, such as an excerpt or a count."
            ),
            (None, Some(url), _) => format!(
                "{what}. Next: download the complete output from {url} with a key of that hub, or ask the agent for \
                 less, such as an excerpt or a count."
            ),
            (None, None, lost) => format!(
                "{what}, and the rest was not kept ({}). Next: ask the agent for less, such as an excerpt or a count.",
                lost.as_deref().unwrap_or("the device gave no reason")
            ),
        }
    }
}

// === impl AgentCallState ===

impl AgentCallState {
    /// The status in tool results.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "completed",
            Self::Running { .. } => "running",
            Self::InputRequired(_) => "input_required",
            Self::ApprovalRequired(_) => "approval_required",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }
}

/// The agent that a URL addresses at a hub: `Some(Some("builder"))` for `http://hub/a2a/builder`, `Some(None)` for
/// `http://hub`, and `None` for a URL of a different origin.
pub fn agent_at(hub: &str, url: &str) -> Option<Option<String>> {
    // Loopback addresses are equivalent.
    let usual = |text: String| text.replace("://127.0.0.1:", "://localhost:").replace("://[::1]:", "://localhost:");
    if usual(egress::origin(hub)) != usual(egress::origin(url)) {
        return None;
    }
    let path = url.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, path)| path);
    let mut segments = path.split(['/', '?', '#']);
    let named = if segments.next() == Some("a2a") { segments.next() } else { None };
    Some(named.filter(|name| !name.is_empty()).map(str::to_owned))
}
