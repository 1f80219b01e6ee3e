//! The agent backend of this machine: the agents of a hub, and any A2A agent by its URL. A key is configured for one
//! origin and never sent to another.

mod a2a;
mod hub;

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use attache_client::{
    Client, HubClient,
    a2a::{Error, PeerCredentials, discover},
    egress::{EgressFailure, EgressGuard, EgressPolicy, EgressRule, origin},
};
use attache_protocol::{Code, Secret, env::Env, wire::call::CallId};
use tokio::sync::watch;

use crate::{
    AgentBackend, AgentCall, AgentCallAnswer, AgentCallRef, ListedAgent, RemoteAgentRequest, ToolCaller, ToolError,
    agent_at,
};

/// The agents of a hub and other A2A agents.
pub struct PeerAgentBackend {
    hub: HubLookup,
    known: Vec<KnownOrigin>,
    /// For origins that aren't configured: only public addresses over HTTPS.
    unknown_guard: EgressGuard,
    /// Call id and agent URL of recent calls, so that a call can be continued by its id alone.
    calls: Mutex<VecDeque<(String, String)>>,
    env: Env,
}

pub struct PeerAgentOptions {
    /// The hub that is listed and that resolves plain agent names. Looked up on every use, because it may start later.
    pub hub: HubLookup,
    /// A URL of the origin, and its key if it needs one. A person configured it, so it may be a private address.
    pub known: Vec<(String, Option<Secret<String>>)>,
    /// Other allowed addresses besides the public internet.
    pub allow: Vec<EgressRule>,
    pub env: Env,
}

/// Returns the hub that is available now, if any.
pub type HubLookup = Box<dyn Fn() -> Option<HubClient> + Send + Sync>;

/// An origin that a person configured.
struct KnownOrigin {
    /// As it was configured: an agent there, or the origin itself.
    url: String,
    origin: String,
    key: Option<Secret<String>>,
    guard: EgressGuard,
}

/// How a call is sent.
enum CallRoute {
    /// Over the call API of a hub, to this agent if given.
    Hub(Client, Option<String>),
    A2a(attache_client::a2a::PeerClient),
}

const MAX_REMEMBERED: usize = 1000;

// === impl PeerAgentBackend ===

impl PeerAgentBackend {
    /// Fails if a configured URL is invalid.
    pub fn new(options: PeerAgentOptions) -> Result<Self, ToolError> {
        let PeerAgentOptions { hub, known, allow, env } = options;
        let known = known.into_iter().map(|(url, key)| KnownOrigin::new(&url, key)).collect::<Result<_, _>>()?;
        Ok(Self { hub, known, unknown_guard: EgressGuard::new(EgressPolicy { allow }), calls: Mutex::default(), env })
    }

    async fn route(&self, url: &str, agent_type: Option<&str>) -> Result<CallRoute, ToolError> {
        let url = url.trim();
        let no_hub = || {
            ToolError::new(
                "not_found",
                format!("`{url}` is not a URL, and no hub is configured to look up agent names"),
                "Use the agent's full URL, or ask the user to start a hub (`attache up`).",
            )
        };
        if !url.contains("://") {
            let hub = (self.hub)().ok_or_else(no_hub)?;
            return Ok(CallRoute::Hub(Client::from(hub), Some(url.to_owned())));
        }
        let own = (self.hub)().and_then(|hub| agent_at(&hub.address().origin(), url).map(|agent| (hub, agent)));
        if let Some((hub, agent)) = own {
            return Ok(CallRoute::Hub(Client::from(hub), agent.or_else(|| agent_type.map(str::to_owned))));
        }
        let known = self.known.iter().find(|known| known.origin == origin(url));
        let (guard, credentials) = match known {
            Some(known) => (&known.guard, known.key.clone().map_or_else(PeerCredentials::none, PeerCredentials::key)),
            None => (&self.unknown_guard, PeerCredentials::none()),
        };
        match discover(guard, url, &credentials, &[]).await {
            // The card may point to another origin, which must not receive the key.
            Ok(found) => {
                let there = attache_client::a2a::PeerInterface::choose(&found.card)?;
                let elsewhere = known.is_some_and(|known| origin(&there.url) != known.origin);
                let (guard, credentials) =
                    if elsewhere { (&self.unknown_guard, PeerCredentials::none()) } else { (guard, credentials) };
                Ok(CallRoute::A2a(attache_client::a2a::PeerClient::new(guard, &found.card, credentials)?))
            }
            // A hub without a default agent has no card, but it has the call API.
            Err(error @ Error::NoCard { .. }) => {
                let own = known.filter(|known| url.trim_end_matches('/') == known.origin);
                let Some((origin, key)) = own.and_then(|known| Some((&known.origin, known.key.as_ref()?))) else {
                    return Err(error.into());
                };
                Ok(CallRoute::Hub(
                    Client::connect(origin.clone(), key.expose().clone())?,
                    agent_type.map(str::to_owned),
                ))
            }
            Err(error) => Err(unreachable(url, error)),
        }
    }
}

// === earlier calls ===

impl PeerAgentBackend {
    /// The route of an earlier call: from its agent URL, from memory, or from an id that belongs to the hub.
    async fn route_of(&self, call: &AgentCallRef) -> Result<CallRoute, ToolError> {
        let remembered = || {
            let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.iter().rev().find(|(id, _)| *id == call.call_id.trim()).map(|(_, url)| url.clone())
        };
        match call.agent_url.clone().or_else(remembered) {
            Some(url) => self.route(&url, None).await,
            None => match ((self.hub)(), call.call_id.trim().parse::<CallId>()) {
                (Some(hub), Ok(_)) => Ok(CallRoute::Hub(Client::from(hub), None)),
                _ => Err(ToolError::invalid(
                    format!("unknown call `{}`", call.call_id),
                    "Provide the agent_url of that call as well.",
                )),
            },
        }
    }

    fn remember(&self, call: Option<&str>, url: &str) {
        let Some(call) = call else { return };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() >= MAX_REMEMBERED {
            calls.pop_front();
        }
        calls.push_back((call.to_owned(), url.to_owned()));
    }
}

/// If a person can allow the call, the hint names the command.
fn unreachable(url: &str, error: Error) -> ToolError {
    match &error {
        Error::Call(EgressFailure::Refused(refused)) if !refused.is_malformed() => ToolError::new(
            Code::EgressRefused.as_str(),
            format!("calling {url} isn't allowed: the address is private or not encrypted"),
            format!(
                "Ask the user to allow it with `attache delegations allow --peer {url}` (and --key-file FILE if it \
                 needs a key), and then to restart the MCP server."
            ),
        ),
        _ => error.into(),
    }
}

#[async_trait]
impl AgentBackend for PeerAgentBackend {
    async fn list(&self, _: ToolCaller<'_>) -> Result<Vec<ListedAgent>, ToolError> {
        let mut agents = match (self.hub)() {
            Some(hub) => hub::list(&hub).await?,
            None => Vec::new(),
        };
        // The agents of this hub are in the list.
        let own = (self.hub)().map(|hub| hub.address().origin());
        let elsewhere = self.known.iter().filter(|known| own.as_ref() != Some(&known.origin));
        agents.extend(elsewhere.map(|known| ListedAgent {
            name: known.url.clone(),
            agent_url: known.url.clone(),
            description: Some("Configured by the user of this server".to_owned()),
            status: "unknown".to_owned(),
            skills: Vec::new(),
            host: None,
            asks_before_risky_steps: None,
            takes_folders: None,
        }));
        Ok(agents)
    }

    async fn ask(
        &self,
        _: ToolCaller<'_>,
        ask: RemoteAgentRequest,
        wait: Duration,
        said: &watch::Sender<String>,
    ) -> Result<AgentCall, ToolError> {
        let (route, url) = match &ask {
            RemoteAgentRequest::Task(task) => {
                (self.route(&task.agent_url, task.agent_type.as_deref()).await?, Some(task.agent_url.clone()))
            }
            RemoteAgentRequest::Wait(call) | RemoteAgentRequest::Answer(AgentCallAnswer { call, .. }) => {
                (self.route_of(call).await?, None)
            }
        };
        let call = match route {
            CallRoute::Hub(client, agent_type) => hub::ask(&client, agent_type, ask, wait, said).await?,
            CallRoute::A2a(peer) => a2a::ask(&peer, &self.env, ask, wait, said).await?,
        };
        if let Some(url) = url {
            self.remember(call.call_id.as_deref(), &url);
        }
        Ok(call)
    }

    async fn cancel(&self, _: ToolCaller<'_>, call: AgentCallRef) -> Result<AgentCall, ToolError> {
        match self.route_of(&call).await? {
            CallRoute::Hub(client, _) => hub::cancel(&client, &call.call_id).await,
            CallRoute::A2a(peer) => a2a::cancel(&peer, &call.call_id).await,
        }
    }
}

impl fmt::Debug for PeerAgentBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("known", &self.known).finish_non_exhaustive()
    }
}

impl fmt::Debug for PeerAgentOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = self.known.iter().map(|(url, _)| url).collect();
        f.debug_struct("PeersOptions").field("known", &known).field("allow", &self.allow).finish_non_exhaustive()
    }
}

// === impl KnownOrigin ===

impl KnownOrigin {
    fn new(url: &str, key: Option<Secret<String>>) -> Result<Self, ToolError> {
        let origin = origin(url);
        let host = origin.split_once("://").map(|(_, rest)| rest).and_then(|rest| match rest.strip_prefix('[') {
            Some(address) => address.split_once(']').map(|(address, _)| address),
            None => rest.split(':').next(),
        });
        let allow = host.filter(|host| !host.is_empty()).and_then(|host| host.parse().ok()).ok_or_else(|| {
            ToolError::invalid(format!("`{url}` is not a URL"), "Use the form https://agents.example.org=FILE.")
        })?;
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { url, origin, key, guard: EgressGuard::new(EgressPolicy { allow: vec![allow] }) })
    }
}

impl fmt::Debug for KnownOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Known({})", self.origin)
    }
}
