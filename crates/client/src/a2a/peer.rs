//! The operations of a remote agent. Nothing is retried here: whether a retry is safe depends on the operation and
//! `Error::is_unexecuted`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use attache_a2a_wire::{
    AgentCard, CardCapabilities, GetTask, ListTasks, Method, PushConfig, SendMessage, SendMessageResponse,
    StreamResponse, Task, TaskList, v03,
};
use attache_protocol::Json;
use bytes::Bytes;
use reqwest::{Method as Verb, Url, header::HeaderMap};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Error, PeerCredentials, PeerEvent, PeerEventStream, PeerInterface, Result,
    credentials::KeyPlacement,
    dialect::{PeerBinding, PeerVersion},
    events::{PeerDialect, refusal},
    grpc, lenient,
    request::{AnswerForm, PeerOperation, PeerRequestContext, segment},
};
use crate::egress::{self, EgressGuard, EgressLimits, EgressRequest, StreamedReply};

/// A client of one remote agent. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PeerClient {
    inner: Arc<PeerClientShared>,
    traceparent: Option<String>,
    extensions: Vec<String>,
}

#[derive(Debug)]
struct PeerClientShared {
    guard: EgressGuard,
    /// For downloading files, which may be large.
    files: EgressGuard,
    /// For sending messages: an agent that doesn't answer at once answers when the work is done.
    patient: EgressGuard,
    interface: PeerInterface,
    dialect: PeerDialect,
    capabilities: CardCapabilities,
    credentials: PeerCredentials,
    place: KeyPlacement,
    last_id: AtomicU64,
}

/// A complete task is larger than a webhook's answer.
const MAX_REPLY: usize = 16 << 20;
/// Maximum size of a downloaded file.
const MAX_FILE: u64 = 1 << 30;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const LONG_REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

// === impl PeerClient ===

impl PeerClient {
    /// Connects to the agent of this card, over its best interface.
    pub fn new(guard: &EgressGuard, card: &AgentCard, credentials: PeerCredentials) -> Result<Self> {
        let mut interface = PeerInterface::choose(card)?;
        if interface.binding == PeerBinding::Grpc {
            interface.url = grpc::url(guard, &interface.url);
        }
        guard.check(&interface.url)?;
        let limits = EgressLimits { total: REQUEST_TIMEOUT, reply: MAX_REPLY, ..EgressLimits::default() };
        let dialect = PeerDialect {
            origin: egress::origin(&interface.url),
            version: interface.version,
            binding: interface.binding,
        };
        let inner = PeerClientShared {
            guard: guard.within(limits),
            files: guard.within(EgressLimits { stream: MAX_FILE, ..limits }),
            patient: guard.within(EgressLimits { total: LONG_REQUEST_TIMEOUT, ..limits }),
            interface,
            dialect,
            capabilities: card.capabilities.clone(),
            credentials,
            place: KeyPlacement::of(card),
            last_id: AtomicU64::new(0),
        };
        Ok(Self { inner: Arc::new(inner), traceparent: None, extensions: Vec::new() })
    }

    /// Sets the W3C trace parent of subsequent calls.
    #[must_use]
    pub fn traced(mut self, traceparent: Option<String>) -> Self {
        self.traceparent = traceparent;
        self
    }

    /// Requests these extensions in subsequent calls, besides those of the messages themselves.
    #[must_use]
    pub fn extended(mut self, extensions: Vec<String>) -> Self {
        self.extensions = extensions;
        self
    }

    pub fn interface(&self) -> &PeerInterface {
        &self.inner.interface
    }

    /// The capabilities the card declares.
    pub fn capabilities(&self) -> &CardCapabilities {
        &self.inner.capabilities
    }

    /// Don't retry unless the error says that nothing was executed.
    pub async fn send(&self, request: SendMessage) -> Result<PeerEvent<SendMessageResponse>> {
        if self.is_grpc() {
            return self.grpc(&self.inner.patient, &request.message.extensions.clone()).send(request).await;
        }
        let (ask, extensions) = self.sending(Method::SendMessage, request)?;
        let said = self.call(&self.inner.patient, ask, &extensions).await?;
        let answer = match (self.inner.dialect.version, self.inner.dialect.binding) {
            (PeerVersion::V10, _) => self.read::<SendMessageResponse>(&said)?,
            (PeerVersion::V03, PeerBinding::HttpJson | PeerBinding::Grpc) => {
                self.read::<v03::rest::RestSendMessageResponseV03>(&said)?.into()
            }
            (PeerVersion::V03, PeerBinding::JsonRpc) => match self.inner.dialect.event(&said)?.what {
                StreamResponse::Task(task) => SendMessageResponse::Task(task),
                StreamResponse::Message(message) => SendMessageResponse::Message(message),
                StreamResponse::StatusUpdate(_) | StreamResponse::ArtifactUpdate(_) => {
                    return Err(self.inner.dialect.not_understood("an update instead of a task"));
                }
            },
        };
        Ok(PeerEvent::new(answer, &said))
    }

    /// Don't retry unless the error says that nothing was executed.
    pub async fn stream(&self, request: SendMessage) -> Result<PeerEventStream> {
        if self.is_grpc() {
            return self.grpc(&self.inner.patient, &request.message.extensions.clone()).stream(request).await;
        }
        let (ask, extensions) = self.sending(Method::SendStreamingMessage, request)?;
        let opened = self.open(&self.inner.patient, ask, &extensions, AnswerForm::Stream).await?;
        PeerEventStream::open(opened, self.inner.dialect.clone()).await
    }

    /// Follows a task that hasn't ended.
    pub async fn subscribe(&self, task: &str) -> Result<PeerEventStream> {
        if self.is_grpc() {
            return self.grpc(&self.inner.guard, &[]).subscribe(task).await;
        }
        let opened = self.open(&self.inner.guard, self.subscribing(task, Verb::GET)?, &[], AnswerForm::Stream).await?;
        // The standard's text and its definition disagree on the HTTP method. A server that knows the path explains
        // itself.
        let is_unknown =
            matches!(opened.status, 404 | 405 | 501) && self.inner.dialect.binding == PeerBinding::HttpJson;
        if !is_unknown {
            return PeerEventStream::open(opened, self.inner.dialect.clone()).await;
        }
        match PeerEventStream::open(opened, self.inner.dialect.clone()).await {
            Err(Error::Status { .. }) => {
                let ask = self.subscribing(task, Verb::POST)?;
                let opened = self.open(&self.inner.guard, ask, &[], AnswerForm::Stream).await?;
                PeerEventStream::open(opened, self.inner.dialect.clone()).await
            }
            other => other,
        }
    }

    pub async fn get(&self, request: GetTask) -> Result<PeerEvent<Task>> {
        if self.is_grpc() {
            return self.grpc(&self.inner.guard, &[]).get(request).await;
        }
        let path = format!("/tasks/{}", segment(&request.id)?);
        let query = request.history_length.map(|length| ("historyLength", length.to_string())).into_iter().collect();
        let params = match self.inner.dialect.version {
            PeerVersion::V10 => self.params(&GetTask { tenant: self.tenant(), ..request }),
            PeerVersion::V03 => {
                self.params(&v03::TaskQueryParamsV03 { id: request.id, history_length: request.history_length })
            }
        };
        let ask = PeerOperation { method: Method::GetTask, params, verb: Verb::GET, path, query, body: None };
        self.task(ask).await
    }

    /// Safe to retry: a task that has already ended is answered with `TaskNotCancelable`.
    pub async fn cancel(&self, task: &str) -> Result<PeerEvent<Task>> {
        if self.is_grpc() {
            return self.grpc(&self.inner.guard, &[]).cancel(task).await;
        }
        let path = format!("/tasks/{}:cancel", segment(task)?);
        let ask = PeerOperation {
            method: Method::CancelTask,
            params: self.task_id(task),
            verb: Verb::POST,
            path,
            query: Vec::new(),
            body: Some(Json::empty_object()),
        };
        self.task(ask).await
    }

    /// 1.0 only.
    pub async fn list(&self, request: ListTasks) -> Result<TaskList> {
        let PeerInterface { version, binding, .. } = &self.inner.interface;
        match (version, binding) {
            (PeerVersion::V10, PeerBinding::Grpc) => return self.grpc(&self.inner.guard, &[]).list(request).await,
            (PeerVersion::V03, PeerBinding::Grpc | PeerBinding::HttpJson) => {
                return Err(Error::Unsupported { version: version.as_str(), what: Method::ListTasks.name() });
            }
            (PeerVersion::V10 | PeerVersion::V03, _) => {}
        }
        let text = |value: &Option<String>| value.clone();
        let number = |value: Option<i32>| value.map(|value| value.to_string());
        let state = |value| Json::of(&value).get().trim_matches('"').to_owned();
        let query = [
            ("contextId", text(&request.context_id)),
            ("status", request.status.map(state)),
            ("pageSize", number(request.page_size)),
            ("pageToken", text(&request.page_token)),
            ("historyLength", number(request.history_length)),
            ("statusTimestampAfter", request.status_timestamp_after.map(|at| at.to_string())),
            ("includeArtifacts", request.include_artifacts.map(|wanted| wanted.to_string())),
        ];
        let query = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let params = self.params(&ListTasks { tenant: self.tenant(), ..request });
        let path = "/tasks".to_owned();
        let ask = PeerOperation { method: Method::ListTasks, params, verb: Verb::GET, path, query, body: None };
        let said = self.call(&self.inner.guard, ask, &[]).await?;
        self.read(&said)
    }

    /// Returns the config as stored by the remote agent, with its id.
    pub async fn create_push_config(&self, task: &str, config: PushConfig) -> Result<PushConfig> {
        if self.is_grpc() {
            return self.grpc(&self.inner.guard, &[]).create_push_config(task, config).await;
        }
        let path = format!("/tasks/{}/pushNotificationConfigs", segment(task)?);
        let config = PushConfig { tenant: self.tenant(), task_id: Some(task.to_owned()), ..config };
        let params = match self.inner.dialect.version {
            PeerVersion::V10 => self.params(&config),
            PeerVersion::V03 => self.params(&v03::TaskPushConfigV03 {
                task_id: task.to_owned(),
                push_notification_config: config.clone().into(),
            }),
        };
        let body = Some(match self.inner.dialect.version {
            PeerVersion::V10 => Json::of(&PushConfig { tenant: None, task_id: None, ..config }),
            PeerVersion::V03 => Json::of(&v03::rest::RestCreatePushConfigBodyV03::from(config)),
        });
        let ask =
            PeerOperation { method: Method::CreatePushConfig, params, verb: Verb::POST, path, query: Vec::new(), body };
        let said = self.call(&self.inner.guard, ask, &[]).await?;
        match (self.inner.dialect.version, self.inner.dialect.binding) {
            (PeerVersion::V10, _) => self.read(&said),
            (PeerVersion::V03, PeerBinding::JsonRpc) => self.read::<v03::TaskPushConfigV03>(&said).map(Into::into),
            (PeerVersion::V03, PeerBinding::HttpJson | PeerBinding::Grpc) => {
                let config = self.read::<v03::rest::RestTaskPushConfigV03>(&said)?;
                config.try_into().map_err(|error| self.inner.dialect.not_understood(error))
            }
        }
    }

    pub async fn delete_push_config(&self, task: &str, config: &str) -> Result<()> {
        if self.is_grpc() {
            return self.grpc(&self.inner.guard, &[]).delete_push_config(task, config).await;
        }
        let path = format!("/tasks/{}/pushNotificationConfigs/{}", segment(task)?, segment(config)?);
        let (id, task_id) = (config.to_owned(), task.to_owned());
        let params = match self.inner.dialect.version {
            PeerVersion::V10 => self.params(&attache_a2a_wire::DeletePushConfig { tenant: self.tenant(), task_id, id }),
            PeerVersion::V03 => self.params(&v03::DeletePushConfigV03 { id: task_id, push_notification_config_id: id }),
        };
        let (method, verb) = (Method::DeletePushConfig, Verb::DELETE);
        let ask = PeerOperation { method, params, verb, path, query: Vec::new(), body: None };
        self.call(&self.inner.guard, ask, &[]).await.map(drop)
    }

    /// Whether a link points to the agent's own origin. The key is only sent there.
    pub fn serves(&self, url: &str) -> bool {
        let origin = egress::origin(url);
        origin == egress::origin(&self.inner.interface.url) && self.inner.guard.check(url).is_ok()
    }

    /// Opens a file that the agent links to, at its own origin. The caller must limit its size.
    pub async fn download(&self, url: &str) -> Result<StreamedReply> {
        let PeerClientShared { files, credentials, place, dialect, .. } = &*self.inner;
        if !self.serves(url) {
            return Err(dialect.not_understood("a link to a file at another origin"));
        }
        let mut url = Url::parse(url).map_err(|error| dialect.not_understood(error))?;
        let mut headers = HeaderMap::new();
        credentials.apply(place, &mut url, &mut headers)?;
        let request = EgressRequest { method: Verb::GET, headers, body: Bytes::new() };
        let opened = files.open(&files.check(url.as_str())?, request).await?;
        match opened.status {
            200 => Ok(opened),
            status => Err(Error::of_status(dialect.origin.clone(), status, &[])),
        }
    }

    fn tenant(&self) -> Option<String> {
        self.inner.interface.tenant.clone()
    }

    fn params<T: Serialize>(&self, params: &T) -> Json {
        Json::of(params)
    }

    fn task_id(&self, task: &str) -> Json {
        let id = task.to_owned();
        match self.inner.dialect.version {
            PeerVersion::V10 => {
                self.params(&attache_a2a_wire::CancelTask { tenant: self.tenant(), id, metadata: None })
            }
            PeerVersion::V03 => self.params(&v03::TaskIdParamsV03 { id, metadata: None }),
        }
    }

    /// The operation, with the extensions its message uses.
    fn sending(&self, method: Method, request: SendMessage) -> Result<(PeerOperation, Vec<String>)> {
        let verb = if method == Method::SendMessage { "send" } else { "stream" };
        let path = format!("/message:{verb}");
        let extensions = request.message.extensions.clone();
        let (params, body) = match self.inner.dialect.version {
            PeerVersion::V10 => {
                let body = Json::of(&SendMessage { tenant: None, ..request.clone() });
                (self.params(&SendMessage { tenant: self.tenant(), ..request }), Some(body))
            }
            PeerVersion::V03 => {
                let body = Json::of(&v03::rest::RestSendMessageV03::from(request.clone()));
                (self.params(&v03::SendParamsV03::from(request)), Some(body))
            }
        };
        Ok((PeerOperation { method, params, verb: Verb::POST, path, query: Vec::new(), body }, extensions))
    }

    fn subscribing(&self, task: &str, verb: Verb) -> Result<PeerOperation> {
        let path = format!("/tasks/{}:subscribe", segment(task)?);
        let body = (verb == Verb::POST).then(Json::empty_object);
        Ok(PeerOperation {
            method: Method::SubscribeToTask,
            params: self.task_id(task),
            verb,
            path,
            query: Vec::new(),
            body,
        })
    }

    async fn task(&self, ask: PeerOperation) -> Result<PeerEvent<Task>> {
        let said = self.call(&self.inner.guard, ask, &[]).await?;
        let task = match (self.inner.dialect.version, self.inner.dialect.binding) {
            (PeerVersion::V10, _) => self.read::<Task>(&said)?,
            (PeerVersion::V03, PeerBinding::JsonRpc) => self.read::<v03::TaskV03>(&said)?.into(),
            (PeerVersion::V03, PeerBinding::HttpJson | PeerBinding::Grpc) => {
                self.read::<v03::rest::RestTaskV03>(&said)?.into()
            }
        };
        Ok(PeerEvent::new(task, &said))
    }

    fn read<T: DeserializeOwned>(&self, said: &Json) -> Result<T> {
        lenient::read(said).map_err(|error| self.inner.dialect.not_understood(error))
    }

    async fn call(&self, guard: &EgressGuard, ask: PeerOperation, extensions: &[String]) -> Result<Json> {
        let reply = self.open(guard, ask, extensions, AnswerForm::Whole).await?.read().await?;
        if reply.is_success() {
            self.inner.dialect.unwrap(&reply.body)
        } else {
            Err(refusal(&self.inner.dialect, reply.status, &reply.body))
        }
    }

    fn is_grpc(&self) -> bool {
        self.inner.interface.binding == PeerBinding::Grpc
    }

    fn grpc<'a>(&'a self, guard: &'a EgressGuard, extensions: &[String]) -> grpc::GrpcCaller<'a> {
        grpc::GrpcCaller {
            guard,
            interface: &self.inner.interface,
            dialect: &self.inner.dialect,
            credentials: &self.inner.credentials,
            place: &self.inner.place,
            traceparent: self.traceparent.as_deref(),
            extensions: self.all_extensions(extensions),
        }
    }

    fn all_extensions(&self, extensions: &[String]) -> Vec<String> {
        let mut all = self.extensions.clone();
        all.extend(extensions.iter().filter(|uri| !self.extensions.contains(uri)).cloned());
        all
    }

    async fn open(
        &self,
        guard: &EgressGuard,
        ask: PeerOperation,
        extensions: &[String],
        answer: AnswerForm,
    ) -> Result<StreamedReply> {
        let all = self.all_extensions(extensions);
        let around = PeerRequestContext {
            interface: &self.inner.interface,
            credentials: &self.inner.credentials,
            place: &self.inner.place,
            traceparent: self.traceparent.as_deref(),
            extensions: &all,
        };
        let id = self.inner.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (target, request) = around.build(guard, ask, id, answer)?;
        Ok(guard.open(&target, request).await?)
    }
}
