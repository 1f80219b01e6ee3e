//! What `remote_agent` and `list_agents` ask of whoever knows the agents: a hub, or this machine's own configuration.

use std::time::Duration;

use async_trait::async_trait;
use attache_client::egress;
use attache_protocol::{
    Json,
    wire::account::{Account, Presence},
};
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;

use crate::Trouble;

#[async_trait]
pub trait Agents: Send + Sync + 'static {
    /// Whom the caller may ask.
    async fn list(&self, by: Caller<'_>) -> Result<Vec<Agent>, Trouble>;

    /// Puts an agent to work, and waits for it no longer than `wait`; the work goes on all the same, also when nobody waits.
    /// What the agent says meanwhile goes to `said`.
    async fn ask(
        &self,
        by: Caller<'_>,
        ask: Ask,
        wait: Duration,
        said: &watch::Sender<String>,
    ) -> Result<Call, Trouble>;
}

/// Who asks, as the layers in front of the server know it: they put it into the request's extensions.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a>(pub(crate) Option<&'a Parts>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub task: String,
    /// A URL, or the name of an agent.
    pub agent_url: String,
    pub agent_type: Option<String>,
    pub context: Option<Json>,
    /// Goes on with this call: the task answers its question if it has one, and is not sent otherwise.
    pub call_id: Option<String>,
}

/// A call as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Agents that answer at once have no name for what they did.
    pub call_id: Option<String>,
    pub state: State,
}

#[derive(Debug, Clone, PartialEq)]
pub enum State {
    Completed {
        summary: String,
        duration: Option<Duration>,
    },
    /// It goes on.
    Running,
    /// It goes on when somebody answers.
    InputRequired {
        question: String,
    },
    Failed(Trouble),
}

/// Somebody to ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Agent {
    pub name: String,
    /// What `remote_agent` takes as `agent_url`, and `delegate` as `peer_url`.
    pub agent_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `online`, `offline` (work waits for it), or `unknown`.
    pub status: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
}

// === impl Caller ===

impl<'a> Caller<'a> {
    /// Somebody on this machine.
    pub const fn nobody() -> Self {
        Self(None)
    }

    pub fn get<T: Send + Sync + 'static>(self) -> Option<&'a T> {
        self.0.and_then(|parts| parts.extensions.get())
    }
}

// === impl Agent ===

impl Agent {
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
