//! gRPC of both versions, with the generated clients over a plain HTTP/2 connection.

use std::{collections::BTreeMap, fmt::Debug};

use attache_a2a_wire::{
    AgentCard, GetExtendedCard, PushConfig, PushConfigList, SendMessageResponse, StreamResponse, Task, TaskList,
    grpc::{
        v1::{self, a2a_service_client::A2aServiceClient},
        v03::{self, a2a_service_client::A2aServiceClient as OldClient},
    },
};
use attache_protocol::Json;
use futures_util::StreamExt as _;
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use prost::Message as _;
use serde::Serialize;
use serde_json::json;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    metadata::{AsciiMetadataKey, AsciiMetadataValue},
};

use super::{IncomingEvents, RefusalForm, SpokenRefusal, TestAnswer, TestClient, TestOperation, TestVersion, card};

#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct BadRequest {
    #[prost(message, repeated, tag = "1")]
    violations: Vec<Violation>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Violation {
    #[prost(string, tag = "1")]
    field: String,
    #[prost(string, tag = "2")]
    description: String,
}

pub(super) async fn ask(client: &TestClient, ask: TestOperation) -> Result<TestAnswer, SpokenRefusal> {
    match client.version {
        TestVersion::V10 => ask_new(client, ask).await,
        TestVersion::V03 => ask_old(client, ask).await,
    }
}

fn channel() -> Http<HttpConnector, Body> {
    Http::builder(TokioExecutor::new()).http2_only(true).build_http()
}

fn request<T>(client: &TestClient, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let mut say = |name: &'static str, value: &str| {
        request
            .metadata_mut()
            .insert(AsciiMetadataKey::from_static(name), AsciiMetadataValue::try_from(value).unwrap());
    };
    say("a2a-version", &client.says);
    if client.version == TestVersion::V03 {
        say("x-attache-agent", &client.agent);
    }
    for (name, value) in &client.headers {
        say(name, value);
    }
    request
}

async fn ask_new(client: &TestClient, ask: TestOperation) -> Result<TestAnswer, SpokenRefusal> {
    let mut grpc = A2aServiceClient::with_origin(channel(), client.url.parse().unwrap());
    let tenant = Some(client.agent.clone());
    match ask {
        TestOperation::Send(mut it) => {
            it.tenant = it.tenant.or(tenant);
            let message = v1::SendMessageRequest::from(it);
            once::<_, SendMessageResponse>(grpc.send_message(request(client, message)).await)
        }
        TestOperation::Stream(mut it) => {
            it.tenant = it.tenant.or(tenant);
            let message = v1::SendMessageRequest::from(it);
            stream(grpc.send_streaming_message(request(client, message)).await)
        }
        TestOperation::Get(mut it) => {
            it.tenant = it.tenant.or(tenant);
            once::<_, Task>(grpc.get_task(request(client, it.into())).await)
        }
        TestOperation::List(mut it) => {
            it.tenant = it.tenant.or(tenant);
            once::<_, TaskList>(grpc.list_tasks(request(client, it.into())).await)
        }
        TestOperation::Cancel(mut it) => {
            it.tenant = it.tenant.or(tenant);
            let message = v1::CancelTaskRequest::from(it);
            once::<_, Task>(grpc.cancel_task(request(client, message)).await)
        }
        TestOperation::Subscribe(mut it) => {
            it.tenant = it.tenant.or(tenant);
            stream(grpc.subscribe_to_task(request(client, it.into())).await)
        }
        TestOperation::CreatePush(mut it) => {
            it.tenant = it.tenant.or(tenant);
            once::<_, PushConfig>(grpc.create_task_push_notification_config(request(client, it.into())).await)
        }
        TestOperation::GetPush(mut it) => {
            it.tenant = it.tenant.or(tenant);
            once::<_, PushConfig>(grpc.get_task_push_notification_config(request(client, it.into())).await)
        }
        TestOperation::ListPushes(mut it) => {
            it.tenant = it.tenant.or(tenant);
            once::<_, PushConfigList>(grpc.list_task_push_notification_configs(request(client, it.into())).await)
        }
        TestOperation::DeletePush(mut it) => {
            it.tenant = it.tenant.or(tenant);
            done(grpc.delete_task_push_notification_config(request(client, it.into())).await)
        }
        TestOperation::Card => {
            let message = GetExtendedCard { tenant }.into();
            let found = grpc.get_extended_agent_card(request(client, message)).await.map_err(refusal)?;
            Ok(TestAnswer::Once(card(&AgentCard::try_from(found.into_inner()).unwrap())))
        }
    }
}

/// Sends a message that no caller of ours would send.
pub async fn send_as_it_is(client: &TestClient, message: v1::SendMessageRequest) -> Result<(), SpokenRefusal> {
    let mut grpc = A2aServiceClient::with_origin(channel(), client.url.parse().unwrap());
    grpc.send_message(request(client, message)).await.map(drop).map_err(refusal)
}

async fn ask_old(client: &TestClient, ask: TestOperation) -> Result<TestAnswer, SpokenRefusal> {
    let mut grpc = OldClient::with_origin(channel(), client.url.parse().unwrap());
    match ask {
        TestOperation::Send(it) => {
            let message = v03::SendMessageRequest::from(it);
            once::<_, SendMessageResponse>(grpc.send_message(request(client, message)).await)
        }
        TestOperation::Stream(it) => {
            let message = v03::SendMessageRequest::from(it);
            stream(grpc.send_streaming_message(request(client, message)).await)
        }
        TestOperation::Get(it) => once::<_, Task>(grpc.get_task(request(client, it.into())).await),
        TestOperation::List(_) => panic!("0.3 has no list of tasks"),
        TestOperation::Cancel(it) => once::<_, Task>(grpc.cancel_task(request(client, it.into())).await),
        TestOperation::Subscribe(it) => stream(grpc.task_subscription(request(client, it.into())).await),
        TestOperation::CreatePush(it) => {
            once::<_, PushConfig>(grpc.create_task_push_notification_config(request(client, it.into())).await)
        }
        TestOperation::GetPush(it) => {
            once::<_, PushConfig>(grpc.get_task_push_notification_config(request(client, it.into())).await)
        }
        TestOperation::ListPushes(it) => {
            once::<_, PushConfigList>(grpc.list_task_push_notification_config(request(client, it.into())).await)
        }
        TestOperation::DeletePush(it) => {
            done(grpc.delete_task_push_notification_config(request(client, it.into())).await)
        }
        TestOperation::Card => {
            let found = grpc.get_agent_card(request(client, v03::GetAgentCardRequest {})).await.map_err(refusal)?;
            let found = found.into_inner();
            let skills: Vec<&String> = found.skills.iter().map(|skill| &skill.id).collect();
            let card = json!({"name": found.name, "description": found.description, "version": found.version,
                "skills": skills});
            Ok(TestAnswer::Once(Json::of(&card)))
        }
    }
}

fn once<M, T>(answered: Result<Response<M>, Status>) -> Result<TestAnswer, SpokenRefusal>
where
    T: TryFrom<M> + Serialize,
    T::Error: Debug,
{
    let message = answered.map_err(refusal)?.into_inner();
    Ok(TestAnswer::Once(Json::of(&T::try_from(message).unwrap())))
}

fn done(answered: Result<Response<()>, Status>) -> Result<TestAnswer, SpokenRefusal> {
    answered.map_err(refusal)?;
    Ok(TestAnswer::Once(Json::empty_object()))
}

fn stream<M>(answered: Result<Response<Streaming<M>>, Status>) -> Result<TestAnswer, SpokenRefusal>
where
    M: Send + 'static,
    StreamResponse: TryFrom<M>,
    <StreamResponse as TryFrom<M>>::Error: Debug,
{
    let updates = answered.map_err(refusal)?.into_inner();
    let read = |update: Result<M, Status>| {
        update.map(|update| Json::of(&StreamResponse::try_from(update).unwrap())).map_err(refusal)
    };
    Ok(TestAnswer::Stream(IncomingEvents(updates.map(read).boxed())))
}

pub fn refusal(status: Status) -> SpokenRefusal {
    let challenge = status.metadata().get("www-authenticate").map(|value| value.to_str().unwrap().to_owned());
    let refusal = SpokenRefusal::new(RefusalForm::Grpc(status.code()), status.message().to_owned());
    SpokenRefusal { challenge, ..details(status.details(), refusal) }
}

/// What `google.rpc.Status` adds.
fn details(bytes: &[u8], mut refusal: SpokenRefusal) -> SpokenRefusal {
    let status = RpcStatus::decode(bytes).unwrap();
    for detail in status.details {
        match detail.type_url.as_str() {
            "type.googleapis.com/google.rpc.ErrorInfo" => {
                let info = ErrorInfo::decode(detail.value.as_slice()).unwrap();
                (refusal.reason, refusal.domain, refusal.facts) = (info.reason, info.domain, info.metadata);
            }
            "type.googleapis.com/google.rpc.BadRequest" => {
                let bad = BadRequest::decode(detail.value.as_slice()).unwrap();
                refusal.violations = bad.violations.into_iter().map(|it| (it.field, it.description)).collect();
            }
            other => panic!("nobody expects {other}"),
        }
    }
    refusal
}
