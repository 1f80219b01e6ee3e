//! JSON-RPC 2.0 of both versions at one URL: their methods have different names.

use attache_hub::surface::accept_body;
use attache_protocol::{
    Json,
    wire::a2a::{Fault, Id, Method, Response as Answer, StreamResponse},
};
use axum::{
    body::Body,
    extract::{Path, State},
    http::{self, Response, StatusCode, request::Parts},
};
use serde::Serialize;

use super::{STRANGER_LIMIT, read, reply, rpc_v03, sse};
use crate::{
    Site,
    ask::{Asked, Version},
    error::{Error, Kind, Result},
    operation::Updates,
};

/// What a method answers.
pub(super) enum Answered {
    Once(Json),
    Stream(Box<Updates>),
}

/// A request that was read as far as its method.
struct Call {
    id: Id,
    method: Method,
    version: Version,
    params: Json,
}

/// A request whose members may be anything, so that a refusal can repeat its `id`.
#[derive(serde::Deserialize)]
struct Envelope {
    #[serde(default)]
    jsonrpc: Option<Json>,
    #[serde(default)]
    id: Id,
    #[serde(default)]
    method: Option<Json>,
    #[serde(default)]
    params: Option<Json>,
}

#[derive(serde::Deserialize)]
struct Tenant {
    #[serde(default)]
    tenant: Option<String>,
}

pub(super) async fn agent(
    State(site): State<Site>,
    Path(agent): Path<String>,
    request: http::Request<Body>,
) -> Response<Body> {
    serve(site, Some(agent), request).await
}

pub(super) async fn default_agent(State(site): State<Site>, request: http::Request<Body>) -> Response<Body> {
    serve(site, None, request).await
}

async fn serve(site: Site, agent: Option<String>, request: http::Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    // Whoever may not ask the agent is not read at length: only so far that the refusal can repeat the `id`.
    let known = match (&agent, Version::of(&parts)) {
        (Some(agent), Ok(version)) => Some(Asked::new(&site, &parts, Some(agent), version).await),
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
    let tenant = || call.params.parse::<Tenant>().ok().and_then(|given| given.tenant);
    let asked = match known {
        Some(asked) => asked,
        None => Asked::new(&site, &parts, agent.or_else(tenant).as_deref(), call.version).await,
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(error) => return refuse(&call.id, &error),
    };
    let answered = match call.version {
        Version::V10 => answer(&asked, call.method, &call.params).await,
        Version::V03 => rpc_v03::answer(&asked, call.method, &call.params).await,
    };
    let mut response = match answered {
        Ok(Answered::Once(result)) => reply::json(StatusCode::OK, "application/json", result_text(&call.id, &result)),
        Ok(Answered::Stream(updates)) => stream(call.id, call.version, *updates),
        // Clients of 0.3 read a stream and nothing else.
        Err(error) if call.version == Version::V03 && streams(call.method) => {
            sse::refuse(refusal(&call.id, &error), error.rpc_http_status())
        }
        Err(error) => refuse(&call.id, &error),
    };
    reply::mark(&asked, &mut response);
    response
}

async fn read(parts: &Parts, body: Body) -> std::result::Result<Call, (Id, Error)> {
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
    let version = Version::of(parts).map_err(refused)?;
    let (found, other) = match version {
        Version::V10 => (Method::from_name(&name), Method::from_old_name(&name)),
        Version::V03 => (Method::from_old_name(&name), Method::from_name(&name)),
    };
    let Some(method) = found else {
        return Err(refused(unknown_method(&name, version, other)));
    };
    let params = request.params.unwrap_or_else(Json::empty_object);
    Ok(Call { id, method, version, params })
}

/// A method of the other version is told from one that nobody knows.
fn unknown_method(name: &str, version: Version, other: Option<Method>) -> Error {
    match (other, version) {
        (Some(_), Version::V03) => Error::fault(
            Fault::VersionNotSupported,
            "This is a method of version 1.0, and the request says 0.3. Send `A2A-Version: 1.0`.",
        )
        .with("requested", "0.3")
        .with("supported", "1.0, 0.3"),
        (Some(method), Version::V10) => {
            Error::new(Kind::Method, format!("`{name}` is how 0.3 says it; in 1.0 it is `{}`.", method.name()))
        }
        (None, _) => Error::new(Kind::Method, format!("There is no method `{name}`.")),
    }
}

fn request(bytes: &[u8]) -> Result<Envelope> {
    match read::params::<Envelope>(bytes) {
        Ok(request) => Ok(request),
        Err(error) if error.kind == Kind::Parse => Err(error),
        Err(error) => Err(Error::new(Kind::Request, format!("This is no JSON-RPC request. {}", error.message))),
    }
}

async fn answer(asked: &Asked, method: Method, params: &Json) -> Result<Answered> {
    let text = params.get().as_bytes();
    Ok(match method {
        Method::SendMessage => once(&asked.send(read::params(text)?).await?),
        Method::SendStreamingMessage => Answered::Stream(Box::new(asked.stream(read::params(text)?).await?)),
        Method::GetTask => once(&asked.get(read::params(text)?).await?),
        Method::ListTasks => once(&asked.list(read::params(text)?).await?),
        Method::CancelTask => once(&asked.cancel(read::params(text)?).await?),
        Method::SubscribeToTask => Answered::Stream(Box::new(asked.subscribe(read::params(text)?).await?)),
        Method::CreatePushConfig => once(&asked.create_push(read::params(text)?).await?),
        Method::GetPushConfig => once(&asked.get_push(read::params(text)?).await?),
        Method::ListPushConfigs => once(&asked.list_pushes(read::params(text)?).await?),
        Method::DeletePushConfig => {
            asked.delete_push(read::params(text)?).await?;
            Answered::Once(Json::empty_object())
        }
        Method::GetExtendedCard => Answered::Once(asked.extended_card().await?),
    })
}

pub(super) fn once<T: Serialize>(value: &T) -> Answered {
    Answered::Once(Json::of(value))
}

fn stream(id: Id, version: Version, updates: Updates) -> Response<Body> {
    sse::respond(updates, move |update: StreamResponse| {
        let result = match version {
            Version::V10 => Json::of(&update),
            Version::V03 => rpc_v03::update(update),
        };
        Json::from_text(result_text(&id, &result)).unwrap_or_else(|_| Json::empty_object())
    })
}

/// Written by hand: the result may be large and is text already.
fn result_text(id: &Id, result: &Json) -> String {
    let id = id.as_ref().map_or("null", Json::get);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, result.get())
}

const fn streams(method: Method) -> bool {
    matches!(method, Method::SendStreamingMessage | Method::SubscribeToTask)
}

fn refusal(id: &Id, error: &Error) -> Json {
    let answer = Answer { jsonrpc: "2.0".to_owned(), id: id.clone(), result: None, error: Some(error.rpc()) };
    Json::of(&answer)
}

fn refuse(id: &Id, error: &Error) -> Response<Body> {
    let status = StatusCode::from_u16(error.rpc_http_status()).unwrap_or(StatusCode::OK);
    let mut response = reply::json(status, "application/json", reply::text(&refusal(id, error)));
    reply::refuse(error, &mut response);
    response
}
