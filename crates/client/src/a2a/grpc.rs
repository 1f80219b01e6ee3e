//! Speaks gRPC with a remote agent: one HTTP/2 request per operation, length-prefixed messages, the outcome in the
//! trailers. The messages come from the protocol crate, so little is left to do here and no second HTTP stack is
//! needed.

use attache_a2a_wire::{
    CancelTask, GetPushConfig, GetTask, InvalidField, ListTasks, PushConfig, SendMessage, SendMessageResponse,
    StreamResponse, SubscribeToTask, Task, TaskList, TaskState,
    grpc::{v1, v03},
};
use attache_protocol::Json;
use base64ct::{Base64Unpadded, Encoding as _};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;
use reqwest::{
    Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE},
};

use super::{
    Error, PeerCredentials, PeerEvent, PeerEventStream, PeerInterface, Result, credentials::KeyPlacement,
    dialect::PeerVersion, events::PeerDialect, request::PeerRequestContext,
};
use crate::egress::{EgressGuard, FramedReply};

/// What an operation needs to know about the remote agent.
pub(super) struct GrpcCaller<'a> {
    pub(super) guard: &'a EgressGuard,
    pub(super) interface: &'a PeerInterface,
    pub(super) dialect: &'a PeerDialect,
    pub(super) credentials: &'a PeerCredentials,
    pub(super) place: &'a KeyPlacement,
    pub(super) traceparent: Option<&'a str>,
    pub(super) extensions: Vec<String>,
}

/// The messages of one response, as they arrive.
#[derive(Debug)]
pub(super) struct GrpcMessages {
    framed: FramedReply,
    read: BytesMut,
    version: PeerVersion,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GrpcStatus {
    pub(super) code: u32,
    pub(super) message: String,
    /// From `google.rpc.ErrorInfo`.
    pub(super) reason: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct GrpcStatusDetails {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<AnyDetail>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyDetail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct GrpcErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
}

/// Maximum size of a message.
const MAX_MESSAGE: usize = 16 << 20;
/// Precedes each message: a compression flag and the length.
const PREFIX: usize = 5;
const UNKNOWN: u32 = 2;

/// The URL of a card's gRPC interface. Cards use the notation of gRPC libraries, mostly `host:port`.
pub(super) fn url(guard: &EgressGuard, named: &str) -> String {
    let named = named.trim();
    match named.split_once("://") {
        Some(("grpc", rest)) => format!("http://{rest}"),
        Some(("grpcs", rest)) => format!("https://{rest}"),
        Some(("dns", rest)) => url(guard, rest.rsplit('/').next().unwrap_or(rest)),
        Some(_) => named.to_owned(),
        None => {
            let named = named.strip_prefix("dns:").unwrap_or(named).trim_start_matches('/');
            let plain = format!("http://{named}");
            // Unencrypted only if the owner allows it. Port 443 implies https.
            match guard.check(&plain) {
                Ok(_) if !named.ends_with(":443") => plain,
                Ok(_) | Err(_) => format!("https://{named}"),
            }
        }
    }
}

// === impl GrpcCaller ===

impl GrpcCaller<'_> {
    pub(super) async fn send(&self, request: SendMessage) -> Result<PeerEvent<SendMessageResponse>> {
        let request = SendMessage { tenant: self.tenant(), ..request };
        let answer: SendMessageResponse = match self.interface.version {
            PeerVersion::V10 => {
                self.once::<_, v1::SendMessageResponse, _>("SendMessage", v1::SendMessageRequest::from(request)).await?
            }
            PeerVersion::V03 => {
                self.once::<_, v03::SendMessageResponse, _>("SendMessage", v03::SendMessageRequest::from(request))
                    .await?
            }
        };
        let native_status = match &answer {
            SendMessageResponse::Task(task) => Some(name(task.status.state)),
            SendMessageResponse::Message(_) => None,
        };
        Ok(PeerEvent { what: answer, native_status })
    }

    pub(super) async fn stream(&self, request: SendMessage) -> Result<PeerEventStream> {
        let request = SendMessage { tenant: self.tenant(), ..request };
        self.events(
            "SendStreamingMessage",
            match self.interface.version {
                PeerVersion::V10 => v1::SendMessageRequest::from(request).encode_to_vec(),
                PeerVersion::V03 => v03::SendMessageRequest::from(request).encode_to_vec(),
            },
        )
        .await
    }

    pub(super) async fn subscribe(&self, task: &str) -> Result<PeerEventStream> {
        let request = SubscribeToTask { tenant: self.tenant(), id: task.to_owned() };
        match self.interface.version {
            PeerVersion::V10 => {
                self.events("SubscribeToTask", v1::SubscribeToTaskRequest::from(request).encode_to_vec()).await
            }
            PeerVersion::V03 => {
                self.events("TaskSubscription", v03::TaskSubscriptionRequest::from(request).encode_to_vec()).await
            }
        }
    }

    pub(super) async fn get(&self, request: GetTask) -> Result<PeerEvent<Task>> {
        let request = GetTask { tenant: self.tenant(), ..request };
        let task: Task = match self.interface.version {
            PeerVersion::V10 => self.once::<_, v1::Task, _>("GetTask", v1::GetTaskRequest::from(request)).await?,
            PeerVersion::V03 => self.once::<_, v03::Task, _>("GetTask", v03::GetTaskRequest::from(request)).await?,
        };
        Ok(told(task))
    }

    pub(super) async fn cancel(&self, task: &str) -> Result<PeerEvent<Task>> {
        let request = CancelTask { tenant: self.tenant(), id: task.to_owned(), metadata: None };
        let task: Task = match self.interface.version {
            PeerVersion::V10 => self.once::<_, v1::Task, _>("CancelTask", v1::CancelTaskRequest::from(request)).await?,
            PeerVersion::V03 => {
                self.once::<_, v03::Task, _>("CancelTask", v03::CancelTaskRequest::from(request)).await?
            }
        };
        Ok(told(task))
    }

    /// 1.0 only.
    pub(super) async fn list(&self, request: ListTasks) -> Result<TaskList> {
        let request = ListTasks { tenant: self.tenant(), ..request };
        self.once::<_, v1::ListTasksResponse, _>("ListTasks", v1::ListTasksRequest::from(request)).await
    }

    pub(super) async fn create_push_config(&self, task: &str, config: PushConfig) -> Result<PushConfig> {
        let config = PushConfig { tenant: self.tenant(), task_id: Some(task.to_owned()), ..config };
        let method = "CreateTaskPushNotificationConfig";
        match self.interface.version {
            PeerVersion::V10 => {
                let request = v1::TaskPushNotificationConfig::from(config);
                self.once::<_, v1::TaskPushNotificationConfig, _>(method, request).await
            }
            PeerVersion::V03 => {
                let request = v03::CreateTaskPushNotificationConfigRequest::from(config);
                self.once::<_, v03::TaskPushNotificationConfig, _>(method, request).await
            }
        }
    }

    pub(super) async fn delete_push_config(&self, task: &str, config: &str) -> Result<()> {
        let request = GetPushConfig { tenant: self.tenant(), task_id: task.to_owned(), id: config.to_owned() };
        let request = match self.interface.version {
            PeerVersion::V10 => v1::DeleteTaskPushNotificationConfigRequest::from(request).encode_to_vec(),
            PeerVersion::V03 => v03::DeleteTaskPushNotificationConfigRequest::from(request).encode_to_vec(),
        };
        let mut messages = self.open("DeleteTaskPushNotificationConfig", request).await?;
        while messages.next(self.dialect).await?.is_some() {}
        Ok(())
    }

    fn tenant(&self) -> Option<String> {
        self.interface.tenant.clone()
    }

    async fn events(&self, method: &str, request: Vec<u8>) -> Result<PeerEventStream> {
        Ok(PeerEventStream::of_grpc(self.open(method, request).await?, self.dialect.clone()))
    }

    /// A unary call.
    async fn once<Q, A, T>(&self, method: &str, request: Q) -> Result<T>
    where
        Q: Message,
        A: Message + Default,
        T: TryFrom<A, Error = InvalidField>,
    {
        let mut messages = self.open(method, request.encode_to_vec()).await?;
        let answer = messages.next(self.dialect).await?;
        // The status follows the message, and may still be an error.
        while messages.next(self.dialect).await?.is_some() {}
        let answer = answer.ok_or_else(|| self.dialect.not_understood("an answer without a message"))?;
        read::<A, T>(self.dialect, answer)
    }

    async fn open(&self, method: &str, request: Vec<u8>) -> Result<GrpcMessages> {
        let service = match self.interface.version {
            PeerVersion::V10 => "lf.a2a.v1.A2AService",
            PeerVersion::V03 => "a2a.v1.A2AService",
        };
        self.guard.check(&self.interface.url)?;
        let mut url = Url::parse(&self.interface.url).map_err(|error| self.dialect.not_understood(error))?;
        url.set_path(&format!("/{service}/{method}"));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        let around = PeerRequestContext {
            interface: self.interface,
            credentials: self.credentials,
            place: self.place,
            traceparent: self.traceparent,
            extensions: &self.extensions,
        };
        around.service_parameters(&mut headers);
        self.credentials.apply(self.place, &mut url, &mut headers)?;
        let mut body = BytesMut::with_capacity(PREFIX + request.len());
        body.put_u8(0);
        body.put_u32(
            u32::try_from(request.len()).map_err(|_| self.dialect.not_understood("a message too long to send"))?,
        );
        body.put_slice(&request);
        let framed = self.guard.open_framed(&self.guard.check(url.as_str())?, headers, body.freeze()).await?;
        let messages = GrpcMessages { framed, read: BytesMut::new(), version: self.interface.version };
        if !matches!(messages.framed.status, 200..=299) {
            return Err(Error::of_status(self.dialect.origin.clone(), messages.framed.status, b""));
        }
        // A refusal may come without a body. Then the headers are the trailers.
        match GrpcStatus::of(&messages.framed.headers) {
            Some(status) if status.code != 0 => Err(Error::of_grpc(self.dialect.origin.clone(), &status)),
            Some(_) | None => Ok(messages),
        }
    }
}

fn told(task: Task) -> PeerEvent<Task> {
    let native_status = Some(name(task.status.state));
    PeerEvent { what: task, native_status }
}

fn name(state: TaskState) -> String {
    Json::of(&state).get().trim_matches('"').to_owned()
}

fn read<A: Message + Default, T: TryFrom<A, Error = InvalidField>>(dialect: &PeerDialect, message: Bytes) -> Result<T> {
    let message = A::decode(message).map_err(|error| dialect.not_understood(error))?;
    T::try_from(message).map_err(|error| dialect.not_understood(error))
}

// === impl GrpcMessages ===

impl GrpcMessages {
    /// The next message. `None` after the last one, if the call succeeded.
    async fn next(&mut self, dialect: &PeerDialect) -> Result<Option<Bytes>> {
        loop {
            if let Some(length) = self.length(dialect)?
                && self.read.len() >= PREFIX + length
            {
                self.read.advance(PREFIX);
                return Ok(Some(self.read.split_to(length).freeze()));
            }
            match self.framed.next().await? {
                Some(bytes) => self.read.extend_from_slice(&bytes),
                None => {
                    let status = self
                        .framed
                        .trailers()
                        .and_then(GrpcStatus::of)
                        .or_else(|| GrpcStatus::of(&self.framed.headers));
                    return match status {
                        Some(status) if status.code == 0 => Ok(None),
                        Some(status) => Err(Error::of_grpc(dialect.origin.clone(), &status)),
                        None => Err(dialect.not_understood("a stream that ended without a status")),
                    };
                }
            }
        }
    }

    /// The length of the next message, once it is known.
    fn length(&self, dialect: &PeerDialect) -> Result<Option<usize>> {
        let Some((prefix, _)) = self.read.split_at_checked(PREFIX) else { return Ok(None) };
        if prefix[0] != 0 {
            return Err(dialect.not_understood("a compressed message, although compression wasn't requested"));
        }
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        if length > MAX_MESSAGE {
            return Err(dialect.not_understood(format_args!("a message of {length} bytes")));
        }
        Ok(Some(length))
    }

    pub(super) async fn event(&mut self, dialect: &PeerDialect) -> Result<Option<PeerEvent<StreamResponse>>> {
        let Some(message) = self.next(dialect).await? else { return Ok(None) };
        let event: StreamResponse = match self.version {
            PeerVersion::V10 => read::<v1::StreamResponse, _>(dialect, message)?,
            PeerVersion::V03 => read::<v03::StreamResponse, _>(dialect, message)?,
        };
        let native_status = match &event {
            StreamResponse::Task(task) => Some(name(task.status.state)),
            StreamResponse::StatusUpdate(update) => Some(name(update.status.state)),
            StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => None,
        };
        Ok(Some(PeerEvent { what: event, native_status }))
    }
}

// === impl GrpcStatus ===

impl GrpcStatus {
    /// The outcome in the trailers, if there is one.
    fn of(trailers: &HeaderMap) -> Option<Self> {
        let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok());
        let code = text("grpc-status")?.trim().parse().unwrap_or(UNKNOWN);
        let details = text("grpc-status-details-bin")
            .and_then(|details| Base64Unpadded::decode_vec(details.trim_end_matches('=')).ok())
            .and_then(|details| GrpcStatusDetails::decode(details.as_slice()).ok());
        let reason = details.iter().flat_map(|status| &status.details).find_map(|detail| {
            let info = detail
                .type_url
                .ends_with("google.rpc.ErrorInfo")
                .then(|| GrpcErrorInfo::decode(detail.value.as_slice()));
            info?.ok().map(|info| info.reason)
        });
        let message = text("grpc-message").map(unescaped).filter(|message| !message.is_empty());
        let message = message.unwrap_or_else(|| format!("gRPC status {code}"));
        Some(Self { code, message, reason })
    }

    /// The equivalent HTTP status, for retry decisions.
    pub(super) const fn http(&self) -> u16 {
        match self.code {
            3 | 9 | 11 => 400,
            16 => 401,
            7 => 403,
            5 => 404,
            // The method is unknown, so nothing was done.
            12 => 405,
            6 | 10 => 409,
            8 => 429,
            14 => 503,
            4 => 504,
            _ => 500,
        }
    }
}

/// Status messages are percent-encoded.
fn unescaped(text: &str) -> String {
    let (bytes, mut plain, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).filter(|_| byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match hex {
            Some(hex) => {
                plain.push(hex);
                at += 3;
            }
            None => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}
