//! Calls agents: describe the task, then wait for the answer, stream it, or fetch it later.

mod error;
mod reply;
mod stream;

use std::{fmt, time::Duration};

use attache_protocol::{
    ConversationId, Json, Secret,
    rules::permission_mode::PermissionMode,
    wire::{
        call::{CallId, CallRequest, CallResult, CallStarted, CallStatus},
        part::Part,
        run::Sandbox,
        usage::Budget,
    },
};
use reqwest::Method;
use serde::Serialize;

use crate::{
    Error, HubClient, HubClientOptions, HubCredential, Result,
    hub::{HubRequest, RetrySafety},
};

pub use error::{CallError, CallFailed};
pub use reply::{CallReply, CallUsage};
pub use stream::{CallStream, CallUpdate};

/// Calls agents through one hub with one key. Clones share connections.
///
/// ```no_run
/// # async fn example() -> Result<(), attache_client::CallError> {
/// use attache_client::Client;
///
/// let client = Client::connect("https://hub.example.org", "ak_…")?;
/// let reply = client.call("What are the rules for crawlers?").agent_type("knowledge_query").wait().await?;
/// println!("{}", reply.summary);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    hub: HubClient,
}

/// A call being prepared. Nothing is sent before [`CallBuilder::start`], [`CallBuilder::wait`] or
/// [`CallBuilder::stream`].
#[must_use = "nothing is sent before `start`, `wait` or `stream`"]
#[derive(Debug, Clone)]
pub struct CallBuilder {
    hub: HubClient,
    request: CallRequest,
    key: Option<String>,
    /// An error found before the call is sent.
    invalid: Option<Error>,
}

// === impl Client ===

impl Client {
    /// Takes the hub's address, and a person's or an agent's key. The first request opens the connection.
    pub fn connect(url: impl Into<String>, key: impl Into<String>) -> Result<Self> {
        Self::with(HubClientOptions::new(url, HubCredential::Key(Secret::new(key.into()))))
    }

    /// With custom timeouts, a pin, or an extra trusted certificate.
    pub fn with(options: HubClientOptions) -> Result<Self> {
        Ok(Self { hub: HubClient::new(options)? })
    }

    /// The client for everything else the hub can do.
    pub const fn hub(&self) -> &HubClient {
        &self.hub
    }

    /// A call to the hub's default agent, unless [`CallBuilder::agent_type`] names another.
    pub fn call(&self, task: impl Into<String>) -> CallBuilder {
        let request = CallRequest { task: task.into(), ..CallRequest::default() };
        CallBuilder { hub: self.hub.clone(), request, key: None, invalid: None }
    }

    /// The result of a call, or its progress.
    pub async fn get_result(&self, call: CallId) -> Result<CallResult> {
        self.hub.call_result(call).await
    }

    /// All updates of a call from its start, even if it has ended.
    pub fn watch(&self, call: CallId) -> CallStream {
        CallStream::new(self.hub.clone(), call)
    }

    /// Cancels the call and returns its current state. A call that already ended stays as it is.
    pub async fn cancel(&self, call: CallId) -> Result<CallStatus> {
        match self.hub.cancel_run(call.run(), None).await {
            Ok(run) => Ok(run.status.into()),
            Err(error) => error.conflict().map(|run| run.status.into()).ok_or(error),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.hub.address())
    }
}

impl From<HubClient> for Client {
    fn from(hub: HubClient) -> Self {
        Self { hub }
    }
}

// === impl CallBuilder ===

impl CallBuilder {
    /// The recipient: an agent's name or id, or a skill or capability that only one agent has.
    pub fn agent_type(mut self, agent_type: impl Into<String>) -> Self {
        self.request.agent_type = Some(agent_type.into());
        self
    }

    /// Context for the agent besides the task: anything that serializes to JSON.
    pub fn context<T: Serialize + ?Sized>(mut self, context: &T) -> Self {
        match serde_json::to_string(context).and_then(Json::from_text) {
            Ok(json) => self.request.context = Some(json),
            Err(error) => {
                self.invalid = Some(Error::Invalid {
                    what: format!("can't serialize the context of the call as JSON: {error}"),
                    hint: "Use maps with string keys.".to_owned(),
                });
            }
        }
        self
    }

    /// A webhook to notify when the call has ended, signed as described in [`crate::webhook`].
    pub fn callback(mut self, url: impl Into<String>) -> Self {
        self.request.callback_url = Some(url.into());
        self
    }

    /// Limits the agent's device must enforce. If it can't, it refuses the call.
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.request.sandbox = Some(sandbox);
        self
    }

    /// The agent that gets the task if this one's model account has reached a usage limit.
    pub fn fallback(mut self, agent: impl Into<String>) -> Self {
        self.request.fallback_agent_id = Some(agent.into());
        self
    }

    /// Lets it work in a git worktree of its own.
    pub fn worktree(mut self) -> Self {
        self.request.worktree = true;
        self
    }

    /// Replaces the agent's permission mode. One that isn't stricter requires the right to change the agent's own.
    pub fn permission_mode(mut self, mode: PermissionMode) -> Self {
        self.request.permission_mode = Some(mode);
        self
    }

    /// The maximum usage. When it is reached, the call ends with `quota_exceeded`.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.request.budget = Some(budget);
        self
    }

    /// The conversation it belongs to. By default it starts a new one.
    pub fn conversation(mut self, conversation: ConversationId) -> Self {
        self.request.conversation_id = Some(conversation);
        self
    }

    /// Higher goes first. 0 by default.
    pub fn priority(mut self, priority: i64) -> Self {
        self.request.priority = Some(priority);
        self
    }

    /// Attaches a file to the task.
    pub fn part(mut self, part: Part) -> Self {
        self.request.parts.get_or_insert_default().push(part);
        self
    }

    /// The maximum working time. After that the call ends with `timed_out`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Calls with the same key are the same call. Without one, each call that is sent is a new call.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sends the call without waiting for it. If the response gets lost, the request is retried and still makes one
    /// call.
    pub async fn start(self) -> Result<CallStarted> {
        if let Some(error) = self.invalid {
            return Err(error);
        }
        let key = self.key.unwrap_or_else(|| format!("call-{}", self.hub.env().uuid().simple()));
        let url = self.hub.address().url(&["api", "a2a", "call"]);
        let ask = HubRequest::new(Method::POST, url).json(&self.request).retry_safety(RetrySafety::Safe).key(key);
        self.hub.ask(&ask).await
    }

    /// Sends the call and streams the agent's updates.
    pub async fn stream(self) -> Result<CallStream> {
        let hub = self.hub.clone();
        let started = self.start().await?;
        Ok(CallStream::new(hub, started.call_id))
    }

    /// Sends the call and waits for the answer, over as many connections as it takes. Dropping the future doesn't end
    /// the call; use [`Client::cancel`].
    pub async fn wait(self) -> Result<CallReply, CallError> {
        self.stream().await?.reply().await
    }
}

// === impl HubClient ===

impl HubClient {
    pub(crate) async fn call_result(&self, call: CallId) -> Result<CallResult> {
        self.get(self.address().url(&["api", "a2a", "result", &call.to_string()])).await
    }
}
