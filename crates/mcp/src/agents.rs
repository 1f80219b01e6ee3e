//! What `remote_agent` and `list_agents` ask of whoever knows the agents: a hub, or this machine's own configuration.

use std::time::Duration;

use async_trait::async_trait;
use attache_client::egress;
use attache_protocol::{
    Json,
    wire::{
        account::{Account, Presence},
        awcp,
        output::OutputLocation,
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
    /// Whom the caller may ask.
    async fn list(&self, by: ToolCaller<'_>) -> Result<Vec<ListedAgent>, ToolError>;

    /// Puts an agent to work, or goes on with a call, and waits for it no longer than `wait`; the work goes on all the same,
    /// also when nobody waits. What the agent says meanwhile goes to `said`.
    async fn ask(
        &self,
        by: ToolCaller<'_>,
        ask: RemoteAgentRequest,
        wait: Duration,
        said: &watch::Sender<String>,
    ) -> Result<AgentCall, ToolError>;

    /// Ends a call, and the work with it. One that is over stays as it is.
    async fn cancel(&self, by: ToolCaller<'_>, call: AgentCallRef) -> Result<AgentCall, ToolError>;
}

/// Who asks, as the layers in front of the server know it: they put it into the request's extensions.
#[derive(Debug, Clone, Copy)]
pub struct ToolCaller<'a>(pub(crate) Option<&'a Parts>);

/// To wait is not to answer: whoever only waits says nothing that an agent could take for an answer.
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
    /// Needed only where nobody remembers whom the call was to.
    pub agent_url: Option<String>,
}

/// The answer to one question, and to no other that may have been asked since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCallAnswer {
    pub call: AgentCallRef,
    pub question_id: String,
    pub answer: String,
}

/// A call as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentCall {
    /// Agents that answer at once have no name for what they did.
    pub call_id: Option<String>,
    pub state: AgentCallState,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AgentCallState {
    Completed {
        summary: String,
        duration: Option<Duration>,
        /// Where the rest is, when the summary is not all of the answer.
        full_output: Option<FullOutput>,
    },
    /// It goes on by itself.
    Running {
        /// What it said last.
        last: Option<String>,
    },
    /// It goes on when the caller answers.
    InputRequired {
        question_id: String,
        question: String,
    },
    /// It goes on when a person allows it.
    ApprovalRequired(PendingApproval),
    Cancelled,
    Failed(ToolError),
}

/// An answer that is longer than what a call brings back, or not text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FullOutput {
    /// How long the whole is.
    pub bytes: u64,
    /// The artifact of the hub that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_id: Option<String>,
    /// Where it can be downloaded, with a key of the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Why it is nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingApproval {
    /// `prm_…`, where it is known.
    pub id: Option<String>,
    /// The very step: `Bash: touch x`.
    pub what: String,
    pub caller: CallerKind,
}

/// Whether somebody sits with the model that called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerKind {
    /// It has a user who can be told.
    User,
    /// It works on a run of its own; the people who decide see the request.
    Run,
}

/// Somebody to ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ListedAgent {
    pub name: String,
    /// What `remote_agent` takes as `agent_url`, and `delegate` as `peer_url`.
    pub agent_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `online`, `offline` (work waits for it), or `unknown`.
    pub status: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// What it is and where, such as `claude_cli on vm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether it asks a person before it takes a risky step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks_before_risky_steps: Option<bool>,
    /// Whether `delegate` can lend it a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes_folders: Option<bool>,
}

// === impl ToolCaller ===

impl<'a> ToolCaller<'a> {
    /// Somebody on this machine.
    pub const fn local() -> Self {
        Self(None)
    }

    pub fn get<T: Send + Sync + 'static>(self) -> Option<&'a T> {
        self.0.and_then(|parts| parts.extensions.get())
    }
}

// === impl ListedAgent ===

impl ListedAgent {
    /// An account of the hub at an origin.
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

// === impl FullOutput ===

impl FullOutput {
    /// As the hub at an origin tells it.
    pub fn of(location: OutputLocation, origin: &str) -> Self {
        let OutputLocation { bytes, artifact_id, lost, .. } = location;
        let url = artifact_id.map(|id| format!("{origin}/api/v1/artifacts/{id}"));
        Self { bytes, artifact_id: artifact_id.map(|id| id.to_string()), url, lost }
    }

    /// For a model: what it has not seen, and how to get it.
    pub(crate) fn note(&self, seen: usize) -> String {
        let Self { bytes, artifact_id, url, lost } = self;
        let what = format!("The text above is not all: it has {seen} bytes, and the whole output has {bytes}");
        match (artifact_id, url, lost) {
            (Some(artifact), _, _) => format!(
                "{what}. Next: get all of it with `attache artifacts get {artifact} --output FILE`, or ask the agent for \
                 less, such as a part or a count."
            ),
            (None, Some(url), _) => format!(
                "{what}. Next: all of it is at {url}, for whoever has a key of that hub; or ask the agent for less, such \
                 as a part or a count."
            ),
            (None, None, lost) => format!(
                "{what}, and the rest was not kept ({}). Next: ask the agent for less, such as a part or a count.",
                lost.as_deref().unwrap_or("the device does not say why")
            ),
        }
    }
}

// === impl AgentCallState ===

impl AgentCallState {
    /// How tools call it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "completed",
            Self::Running { .. } => "running",
            Self::InputRequired { .. } => "input_required",
            Self::ApprovalRequired(_) => "approval_required",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }
}

/// Whom a URL means at a hub: `builder` of `http://hub/a2a/builder`, nobody in particular of `http://hub`; `None` for a URL
/// that is not the hub's.
pub fn agent_at(hub: &str, url: &str) -> Option<Option<String>> {
    // A machine has several names for itself.
    let usual = |text: String| text.replace("://127.0.0.1:", "://localhost:").replace("://[::1]:", "://localhost:");
    if usual(egress::origin(hub)) != usual(egress::origin(url)) {
        return None;
    }
    let path = url.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, path)| path);
    let mut segments = path.split(['/', '?', '#']);
    let named = if segments.next() == Some("a2a") { segments.next() } else { None };
    Some(named.filter(|name| !name.is_empty()).map(str::to_owned))
}
