//! JSON-RPC 2.0 of both versions at one URL, with different method names.

use attache_a2a_wire::{Fault, Method, RpcId, RpcResponse as Answer, StreamResponse};
use attache_hub::surface::accept_body;
use attache_protocol::Json;
use axum::{
    body::Body,
    extract::{Path, State},
    http::{self, Response, StatusCode, request::Parts},
};
use serde::Serialize;

use super::{STRANGER_LIMIT, read, reply, rpc_v03, sse};
use crate::{
    ServerContext,
    agent_request::{A2aVersion, AgentRequest},
    error::{Error, Kind, Result},
    operation::TaskUpdates,
};

/// The result of a method.
pub(super) enum RpcAnswer {
    Once(Json),
    Stream(Box<TaskUpdates>),
}

/// A request parsed up to its method.
struct RpcCall {
    id: RpcId,
    method: Method,
    version: A2aVersion,
    params: Json,
}

/// A request whose members may be anything, so that an error can repeat its `id`.
#[derive(serde::Deserialize)]
struct RpcEnvelope {
    #[serde(default)]
    jsonrpc: Option<Json>,
    #[serde(default)]
    id: RpcId,
    #[serde(default)]
    method: Option<Json>,
    #[serde(default)]
    params: Option<Json>,
}

#[derive(serde::Deserialize)]
struct TenantMember {
    #[serde(default)]
    tenant: Option<String>,
}

pub(super) async fn agent(
    State(site): State<ServerContext>,
    Path(agent): Path<String>,
    request: http::Request<Body>,
) -> Response<Body> {
    serve(site, Some(agent), request).await
}

pub(super) async fn default_agent(State(site): State<ServerContext>, request: http::Request<Body>) -> Response<Body> {
    serve(site, None, request).await
}

async fn serve(site: ServerContext, agent: Option<String>, request: http::Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    // A request that isn't allowed is only read far enough to repeat its `id`.
    let known = match (&agent, A2aVersion::of(&parts)) {
        (Some(agent), Ok(version)) => Some(AgentRequest::new(&site, &parts, Some(agent), version).await),
        (None, _) | (_, Err(_)) => None,
    };
    if !matches!(known, Some(Err(_))) {
        accept_body(&parts.extensions, STRANGER_LIMIT);
    }
    let call = match (read(&parts, body).await, &known) {
        (Ok(call), _) => call,
        (Err((id, _)), Some(Err(error))) => return refuse(&id, error),
        (Err((id, error)), _) => return refuse(&id, &error),
    };
    let tenant = || call.params.parse::<TenantMember>().ok().and_then(|given| given.tenant);
    let asked = match known {
        Some(asked) => asked,
        None => AgentRequest::new(&site, &parts, agent.or_else(tenant).as_deref(), call.version).await,
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(error) => return refuse(&call.id, &error),
    };
    let answered = match call.version {
        A2aVersion::V10 => answer(&asked, call.method, &call.params).await,
        A2aVersion::V03 => rpc_v03::answer(&asked, call.method, &call.params).await,
    };
    let mut response = match answered {
        Ok(RpcAnswer::Once(result)) => reply::json(StatusCode::OK, "application/json", result_text(&call.id, &result)),
        Ok(RpcAnswer::Stream(updates)) => stream(call.id, call.version, *updates),
        // 0.3 clients expect a stream and nothing else.
        Err(error) if call.version == A2aVersion::V03 && streams(call.method) => {
            sse::refuse(refusal(&call.id, &error), error.rpc_http_status())
        }
        Err(error) => refuse(&call.id, &error),
    };
    reply::mark(&asked, &mut response);
    response
}

async fn read(parts: &Parts, body: Body) -> std::result::Result<RpcCall, (RpcId, Error)> {
    let bytes = read::whole(&parts.headers, body).await.map_err(|error| (None, error))?;
    let request = request(&bytes).map_err(|error| (None, error))?;
    let id = request.id.filter(|id| id.get() != "null");
    let refused = |error| (id.clone(), error);
    if id.as_ref().is_some_and(|id| !matches!(id.get().as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9'))) {
        return Err((None, Error::new(Kind::Request, "`id` must be a string or a number.")));
    }
    if request.jsonrpc.is_none_or(|said| said.get() != r#""2.0""#) {
        return Err(refused(Error::new(Kind::Request, "`jsonrpc` must be \"2.0\".")));
    }
    let Some(name) = request.method.and_then(|name| name.parse::<String>().ok()) else {
        return Err(refused(Error::new(Kind::Request, "`method` must be the name of a method.")));
    };
    let version = A2aVersion::of(parts).map_err(refused)?;
    let (found, other) = match version {
        A2aVersion::V10 => (Method::from_name(&name), Method::from_old_name(&name)),
        A2aVersion::V03 => (Method::from_old_name(&name), Method::from_name(&name)),
    };
    let Some(method) = found else {
        return Err(refused(unknown_method(&name, version, other)));
    };
    let params = request.params.unwrap_or_else(Json::empty_object);
    Ok(RpcCall { id, method, version, params })
}

/// Distinguishes a method of the other version from an unknown one.
fn unknown_method(name: &str, version: A2aVersion, other: Option<Method>) -> Error {
    match (other, version) {
        (Some(_), A2aVersion::V03) => Error::fault(
            Fault::VersionNotSupported,
            "This is a method of version 1.0, but the request is for 0.3. Send `A2A-Version: 1.0`.",
        )
        .with("requested", "0.3")
        .with("supported", "1.0, 0.3"),
        (Some(method), A2aVersion::V10) => {
            Error::new(Kind::Method, format!("`{name}` is a method of 0.3. In 1.0 it is `{}`.", method.name()))
        }
        (None, _) => Error::new(Kind::Method, format!("Unknown method `{name}`.")),
    }
}

fn request(bytes: &[u8]) -> Result<RpcEnvelope> {
    match read::params::<RpcEnvelope>(bytes) {
        Ok(request) => Ok(request),
        Err(error) if error.kind == Kind::Parse => Err(error),
        Err(error) => Err(Error::new(Kind::Request, format!("This isn't a JSON-RPC request. {}", error.message))),
    }
}

async fn answer(asked: &AgentRequest, method: Method, params: &Json) -> Result<RpcAnswer> {
    let text = params.get().as_bytes();
    Ok(match method {
        Method::SendMessage => once(&asked.send(read::params(text)?).await?),
        Method::SendStreamingMessage => RpcAnswer::Stream(Box::new(asked.stream(read::params(text)?).await?)),
        Method::GetTask => once(&asked.get(read::params(text)?).await?),
        Method::ListTasks => once(&asked.list(read::params(text)?).await?),
        Method::CancelTask => once(&asked.cancel(read::params(text)?).await?),
        Method::SubscribeToTask => RpcAnswer::Stream(Box::new(asked.subscribe(read::params(text)?).await?)),
        Method::CreatePushConfig => once(&asked.create_push(read::params(text)?).await?),
        Method::GetPushConfig => once(&asked.get_push(read::params(text)?).await?),
        Method::ListPushConfigs => once(&asked.list_pushes(read::params(text)?).await?),
        Method::DeletePushConfig => {
            asked.delete_push(read::params(text)?).await?;
            RpcAnswer::Once(Json::empty_object())
        }
        Method::GetExtendedCard => RpcAnswer::Once(asked.extended_card().await?),
    })
}

pub(super) fn once<T: Serialize>(value: &T) -> RpcAnswer {
    RpcAnswer::Once(Json::of(value))
}

fn stream(id: RpcId, version: A2aVersion, updates: TaskUpdates) -> Response<Body> {
    sse::respond(updates, move |update: StreamResponse| {
        let result = match version {
            A2aVersion::V10 => Json::of(&update),
            A2aVersion::V03 => rpc_v03::update(update),
        };
        Json::from_text(result_text(&id, &result)).unwrap_or_else(|_| Json::empty_object())
    })
}

/// Written by hand, because the result may be large and is already text.
fn result_text(id: &RpcId, result: &Json) -> String {
    let id = id.as_ref().map_or("null", Json::get);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, result.get())
}

const fn streams(method: Method) -> bool {
    matches!(method, Method::SendStreamingMessage | Method::SubscribeToTask)
}

fn refusal(id: &RpcId, error: &Error) -> Json {
    let answer = Answer { jsonrpc: "2.0".to_owned(), id: id.clone(), result: None, error: Some(error.rpc()) };
    Json::of(&answer)
}

fn refuse(id: &RpcId, error: &Error) -> Response<Body> {
    let status = StatusCode::from_u16(error.rpc_http_status()).unwrap_or(StatusCode::OK);
    let mut response = reply::json(status, "application/json", reply::text(&refusal(id, error)));
    reply::refuse(error, &mut response);
    response
}
