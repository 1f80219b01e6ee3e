//! Calling agents: say what is to be done, and wait for the answer, follow it, or come back for it later.

mod error;
mod reply;
mod stream;

use std::{fmt, time::Duration};

use attache_protocol::{
    ConversationId, Json, Secret,
    wire::{
        a2a::Part,
        call::{CallId, CallRequest, CallResult, CallStarted, CallStatus},
        run::Sandbox,
        usage::Budget,
    },
};
use reqwest::Method;
use serde::Serialize;

use crate::{
    Error, HubClient, HubCredential, HubOptions, Result,
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

/// A call that is being put together. Nothing is sent before [`CallBuilder::start`], [`CallBuilder::wait`] or [`CallBuilder::stream`].
#[must_use = "nothing is sent before `start`, `wait` or `stream`"]
#[derive(Debug, Clone)]
pub struct CallBuilder {
    hub: HubClient,
    request: CallRequest,
    key: Option<String>,
    /// What made the call impossible before it was sent.
    invalid: Option<Error>,
}

// === impl Client ===

impl Client {
    /// The hub's address, and a person's or an agent's key. The first request makes the connection.
    pub fn connect(url: impl Into<String>, key: impl Into<String>) -> Result<Self> {
        Self::with(HubOptions::new(url, HubCredential::Key(Secret::new(key.into()))))
    }

    /// With other time limits, a pin, or a certificate of one's own.
    pub fn with(options: HubOptions) -> Result<Self> {
        Ok(Self { hub: HubClient::new(options)? })
    }

    /// Everything else that the hub can do.
    pub const fn hub(&self) -> &HubClient {
        &self.hub
    }

    /// A call for the hub's default agent, unless [`CallBuilder::agent_type`] says whom it is for.
    pub fn call(&self, task: impl Into<String>) -> CallBuilder {
        let request = CallRequest { task: task.into(), ..CallRequest::default() };
        CallBuilder { hub: self.hub.clone(), request, key: None, invalid: None }
    }

    /// What became of a call, or how far it is.
    pub async fn get_result(&self, call: CallId) -> Result<CallResult> {
        self.hub.call_result(call).await
    }

    /// Everything of a call from its start, also when it has ended.
    pub fn watch(&self, call: CallId) -> CallStream {
        CallStream::new(self.hub.clone(), call)
    }

    /// Ends the call, and answers with the state that it is in now: one that ended before stays as it is.
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
    /// Whom it is for: an agent's name or id, or a skill or capability that one agent has.
    pub fn agent_type(mut self, agent_type: impl Into<String>) -> Self {
        self.request.agent_type = Some(agent_type.into());
        self
    }

    /// What the agent should know besides the task: anything that serialises to JSON.
    pub fn context<T: Serialize + ?Sized>(mut self, context: &T) -> Self {
        match serde_json::to_string(context).and_then(Json::from_text) {
            Ok(json) => self.request.context = Some(json),
            Err(error) => {
                self.invalid = Some(Error::Invalid {
                    what: format!("the context of the call cannot be written as JSON: {error}"),
                    hint: "Use maps whose keys are texts.".to_owned(),
                });
            }
        }
        self
    }

    /// Is told when the call has ended, signed as [`crate::webhook`] says.
    pub fn callback(mut self, url: impl Into<String>) -> Self {
        self.request.callback_url = Some(url.into());
        self
    }

    /// Limits that whoever does it must enforce, or refuse it.
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.request.sandbox = Some(sandbox);
        self
    }

    /// The most that it may use; then it is ended with `quota_exceeded`.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.request.budget = Some(budget);
        self
    }

    /// The conversation that it belongs to. Without one it is a conversation of its own.
    pub fn conversation(mut self, conversation: ConversationId) -> Self {
        self.request.conversation_id = Some(conversation);
        self
    }

    /// Higher goes first; 0 unless told.
    pub fn priority(mut self, priority: i64) -> Self {
        self.request.priority = Some(priority);
        self
    }

    /// Hands over a file with the task.
    pub fn part(mut self, part: Part) -> Self {
        self.request.parts.get_or_insert_default().push(part);
        self
    }

    /// How long it may take once the agent works on it; then it is ended with `timed_out`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// The same key is the same call, however often it is made. Without one, each `Call` that is sent is a call of its own.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Makes the call and does not wait for it. A request whose answer was lost is sent again and makes one call.
    pub async fn start(self) -> Result<CallStarted> {
        if let Some(error) = self.invalid {
            return Err(error);
        }
        let key = self.key.unwrap_or_else(|| format!("call-{}", self.hub.env().uuid().simple()));
        let url = self.hub.address().url(&["api", "a2a", "call"]);
        let ask = HubRequest::new(Method::POST, url).json(&self.request).retry_safety(RetrySafety::Safe).key(key);
        self.hub.ask(&ask).await
    }

    /// Makes the call and shows what the agent says while it works.
    pub async fn stream(self) -> Result<CallStream> {
        let hub = self.hub.clone();
        let started = self.start().await?;
        Ok(CallStream::new(hub, started.call_id))
    }

    /// Makes the call and waits for its answer, over as many connections as it takes. Dropping the future does not end the
    /// call; [`Client::cancel`] does.
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
