//! HTTP+JSON of version 1.0.

use attache_a2a_wire::{
    CancelTask, DeletePushConfig, GetPushConfig, GetTask, ListPushConfigs, ListTasks, PushConfig, SendMessage,
    StreamResponse, SubscribeToTask,
};
use attache_hub::surface::accept_body;
use attache_protocol::Json;
use axum::{
    body::Body,
    extract::Path,
    http::{Method, Request, Response, StatusCode, request::Parts},
};
use serde::Serialize;

use super::{STRANGER_LIMIT, read, reply, sse};
use crate::{
    ServerContext,
    agent_request::{A2aVersion, AgentRequest},
    error::{Error, Kind, Result},
    operation::TaskUpdates,
};

/// The variable segments of a path.
#[derive(Debug, Clone, Default, serde::Deserialize)]
pub(super) struct RestSegments {
    agent: Option<String>,
    tenant: Option<String>,
    pub(super) id: Option<String>,
    pub(super) config: Option<String>,
}

/// A request that was read except for its body.
pub(super) struct RestRequest {
    pub(super) asked: AgentRequest,
    pub(super) segments: RestSegments,
    pub(super) parts: Parts,
    body: Body,
}

pub(super) enum RestAnswer {
    Json(Json),
    /// No content.
    Done,
    Stream(Box<TaskUpdates>, fn(StreamResponse) -> Json),
}

pub(super) async fn send(asking: &mut RestRequest) -> Result<RestAnswer> {
    let request: SendMessage = asking.body().await?;
    json(&asking.asked.send(request).await?)
}

pub(super) async fn stream(asking: &mut RestRequest) -> Result<RestAnswer> {
    let request: SendMessage = asking.body().await?;
    Ok(RestAnswer::Stream(Box::new(asking.asked.stream(request).await?), |update| Json::of(&update)))
}

/// `GET tasks/{id}`, `POST tasks/{id}:cancel`, and `tasks/{id}:subscribe` with either method.
pub(super) async fn task(asking: &mut RestRequest) -> Result<RestAnswer> {
    let (id, verb) = asking.verb();
    let method = asking.parts.method.clone();
    match (verb.as_deref(), method) {
        (None, Method::GET) => {
            let history_length = asking.number("historyLength")?;
            json(&asking.asked.get(GetTask { tenant: None, id, history_length }).await?)
        }
        (Some("cancel"), Method::POST) => {
            let given: CancelBody = asking.body().await?;
            json(&asking.asked.cancel(CancelTask { tenant: given.tenant, id, metadata: given.metadata }).await?)
        }
        (Some("subscribe"), Method::GET | Method::POST) => {
            let updates = asking.asked.subscribe(SubscribeToTask { tenant: None, id }).await?;
            Ok(RestAnswer::Stream(Box::new(updates), |update| Json::of(&update)))
        }
        _ => Err(no_such_path()),
    }
}

pub(super) async fn list(asking: &mut RestRequest) -> Result<RestAnswer> {
    let request = ListTasks {
        tenant: None,
        context_id: asking.text("contextId"),
        status: match asking.text("status") {
            Some(name) => Some(asking.word("status", &name)?),
            None => None,
        },
        page_size: asking.number("pageSize")?,
        page_token: asking.text("pageToken"),
        history_length: asking.number("historyLength")?,
        status_timestamp_after: match asking.text("statusTimestampAfter") {
            Some(time) => Some(asking.word("statusTimestampAfter", &time)?),
            None => None,
        },
        include_artifacts: match asking.text("includeArtifacts").as_deref() {
            None => None,
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(_) => return Err(Error::invalid("includeArtifacts", "must be true or false")),
        },
    };
    json(&asking.asked.list(request).await?)
}

pub(super) async fn push_create(asking: &mut RestRequest) -> Result<RestAnswer> {
    let mut config: PushConfig = asking.body().await?;
    config.task_id.clone_from(&asking.segments.id);
    json(&asking.asked.create_push(config).await?)
}

pub(super) async fn push_list(asking: &mut RestRequest) -> Result<RestAnswer> {
    let request = ListPushConfigs {
        tenant: None,
        task_id: asking.segments.id.clone().unwrap_or_default(),
        page_size: asking.number("pageSize")?,
        page_token: asking.text("pageToken"),
    };
    json(&asking.asked.list_pushes(request).await?)
}

pub(super) async fn push_get(asking: &mut RestRequest) -> Result<RestAnswer> {
    let (task_id, id) = asking.config();
    json(&asking.asked.get_push(GetPushConfig { tenant: None, task_id, id }).await?)
}

pub(super) async fn push_delete(asking: &mut RestRequest) -> Result<RestAnswer> {
    let (task_id, id) = asking.config();
    asking.asked.delete_push(DeletePushConfig { tenant: None, task_id, id }).await?;
    Ok(RestAnswer::Done)
}

pub(super) async fn extended_card(asking: &mut RestRequest) -> Result<RestAnswer> {
    Ok(RestAnswer::Json(asking.asked.extended_card().await?))
}

#[derive(Default, serde::Deserialize)]
struct CancelBody {
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    metadata: Option<Json>,
}

pub(super) fn json<T: Serialize>(value: &T) -> Result<RestAnswer> {
    Ok(RestAnswer::Json(Json::of(value)))
}

pub(super) fn no_such_path() -> Error {
    Error::new(Kind::Method, "No such path for this method. See /docs/a2a.")
}

/// Unknown paths get A2A errors, too.
pub(super) async fn nothing(request: Request<Body>) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let version = A2aVersion::of(&parts).unwrap_or(A2aVersion::V10);
    reply::rest_error(&no_such_path(), version, reply::media_type(&parts.headers))
}

/// Handles a request of one version.
pub(super) async fn serve(
    site: ServerContext,
    Path(segments): Path<RestSegments>,
    request: Request<Body>,
    version: A2aVersion,
    operation: impl AsyncFnOnce(&mut RestRequest) -> Result<RestAnswer>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let media_type = reply::media_type(&parts.headers);
    let mut asking = match RestRequest::new(&site, segments, parts, body, version).await {
        Ok(asking) => asking,
        Err(error) => return reply::rest_error(&error, version, media_type),
    };
    let mut response = match operation(&mut asking).await {
        Ok(RestAnswer::Json(json)) => reply::json(StatusCode::OK, media_type, reply::text(&json)),
        Ok(RestAnswer::Done) => reply::json(StatusCode::OK, media_type, "{}".to_owned()),
        Ok(RestAnswer::Stream(updates, write)) => sse::respond(*updates, write),
        Err(error) => reply::rest_error(&error, version, media_type),
    };
    reply::mark(&asking.asked, &mut response);
    response
}

// === impl RestRequest ===

impl RestRequest {
    async fn new(
        site: &ServerContext,
        segments: RestSegments,
        parts: Parts,
        body: Body,
        version: A2aVersion,
    ) -> Result<Self> {
        A2aVersion::of(&parts)?.must_be(version)?;
        let agent = segments.agent.as_deref().or(segments.tenant.as_deref());
        let asked = AgentRequest::new(site, &parts, agent, version).await?;
        asked.tenant(segments.tenant.as_deref())?;
        accept_body(&parts.extensions, STRANGER_LIMIT);
        Ok(Self { asked, segments, parts, body })
    }

    /// The complete body. An absent one counts as empty parameters.
    pub(super) async fn body<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        let body = std::mem::take(&mut self.body);
        let bytes = read::whole(&self.parts.headers, body).await?;
        read::params(if bytes.is_empty() { b"{}" } else { &bytes })
    }

    /// A task's id, and the verb after the colon.
    pub(super) fn verb(&self) -> (String, Option<String>) {
        let segment = self.segments.id.clone().unwrap_or_default();
        match segment.rsplit_once(':') {
            Some((id, verb)) => (id.to_owned(), Some(verb.to_owned())),
            None => (segment, None),
        }
    }

    /// The task and id of a push notification config.
    pub(super) fn config(&self) -> (String, String) {
        let RestSegments { id, config, .. } = self.segments.clone();
        (id.unwrap_or_default(), config.unwrap_or_default())
    }

    /// A query parameter, in its JSON or `.proto` spelling.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let query = self.parts.uri.query().unwrap_or_default();
        let snake = snake(name);
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name || *key == snake)
            .map(|(_, value)| decoded(value))
            .filter(|value| !value.is_empty())
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<i32>> {
        match self.text(name) {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| Error::invalid(name, "must be an integer")),
        }
    }

    /// Parses a query text that would be quoted in JSON.
    fn word<T: serde::de::DeserializeOwned>(&self, name: &str, text: &str) -> Result<T> {
        Json::of(text).parse().map_err(|_| Error::invalid(name, "has an unknown value"))
    }
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

fn decoded(value: &str) -> String {
    let spaced = value.replace('+', " ");
    percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}
