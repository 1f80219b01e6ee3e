//! HTTP+JSON of both versions.

use attache_protocol::{
    Json,
    wire::a2a::{
        AgentCard, ListTasks, PushConfig, PushConfigList, SendMessageResponse, StreamResponse, Task, TaskList, v03,
        v03::rest as old,
    },
};
use percent_encoding::NON_ALPHANUMERIC;
use reqwest::Method;
use serde_json::json;

use super::{Ask, Client, Refusal, Told, Version, card, http, read_as, sse};

/// How an answer is read.
type Read = fn(&Json) -> Json;

struct Call {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    body: Option<Json>,
    read: Read,
}

pub(super) async fn ask(client: &Client, ask: Ask) -> Result<Told, Refusal> {
    let streams = matches!(ask, Ask::Stream(_) | Ask::Subscribe(_));
    let Call { method, path, query, body, read } = match client.version {
        Version::V10 => new_call(ask),
        Version::V03 => old_call(ask),
    };
    let mut request = http()
        .request(method, format!("{}/a2a/{}{path}{}", client.url, client.agent, written(&query)))
        .header("a2a-version", &client.says);
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.get().to_owned());
    }
    for (name, value) in &client.headers {
        request = request.header(*name, value);
    }
    let response = request.send().await.unwrap();
    let http = response.status().as_u16();
    let challenge = response.headers().get("www-authenticate").map(|value| value.to_str().unwrap().to_owned());
    if http != 200 {
        return Err(Refusal::of_rest(http, &response.text().await.unwrap(), challenge));
    }
    if streams {
        return Ok(Told::Stream(sse::incoming(response, move |event| Ok(read(&event)))));
    }
    let text = response.text().await.unwrap();
    Ok(Told::Once(read(&Json::from_text(text).unwrap())))
}

fn written(query: &[(&'static str, String)]) -> String {
    let encode = |value: &str| percent_encoding::utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
    let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn call(method: Method, path: impl Into<String>, body: Option<Json>, read: Read) -> Call {
    Call { method, path: path.into(), query: Vec::new(), body, read }
}

fn new_call(ask: Ask) -> Call {
    let task = read_as::<Task, Task>;
    let update = read_as::<StreamResponse, StreamResponse>;
    let config = read_as::<PushConfig, PushConfig>;
    match ask {
        Ask::Send(it) => {
            let read = read_as::<SendMessageResponse, SendMessageResponse>;
            call(Method::POST, "/message:send", Some(Json::of(&it)), read)
        }
        Ask::Stream(it) => call(Method::POST, "/message:stream", Some(Json::of(&it)), update),
        Ask::Get(it) => {
            let query = it.history_length.map(|length| ("historyLength", length.to_string())).into_iter().collect();
            Call { query, ..call(Method::GET, format!("/tasks/{}", it.id), None, task) }
        }
        Ask::List(it) => Call { query: list(&it), ..call(Method::GET, "/tasks", None, read_as::<TaskList, TaskList>) },
        Ask::Cancel(it) => {
            let body = it.metadata.map(|metadata| format!(r#"{{"metadata":{}}}"#, metadata.get()));
            let body = body.map(|body| Json::from_text(body).unwrap());
            call(Method::POST, format!("/tasks/{}:cancel", it.id), body, task)
        }
        Ask::Subscribe(it) => call(Method::POST, format!("/tasks/{}:subscribe", it.id), None, update),
        Ask::CreatePush(it) => {
            let path = format!("/tasks/{}/pushNotificationConfigs", it.task_id.as_deref().unwrap_or_default());
            call(Method::POST, path, Some(Json::of(&it)), config)
        }
        Ask::GetPush(it) => {
            call(Method::GET, format!("/tasks/{}/pushNotificationConfigs/{}", it.task_id, it.id), None, config)
        }
        Ask::ListPushes(it) => {
            let read = read_as::<PushConfigList, PushConfigList>;
            call(Method::GET, format!("/tasks/{}/pushNotificationConfigs", it.task_id), None, read)
        }
        Ask::DeletePush(it) => {
            call(Method::DELETE, format!("/tasks/{}/pushNotificationConfigs/{}", it.task_id, it.id), None, Json::clone)
        }
        Ask::Card => call(Method::GET, "/extendedAgentCard", None, |json| card(&json.parse::<AgentCard>().unwrap())),
    }
}

fn list(request: &ListTasks) -> Vec<(&'static str, String)> {
    let status = request.status.map(|status| json!(status).as_str().unwrap().to_owned());
    [
        ("contextId", request.context_id.clone()),
        ("status", status),
        ("pageSize", request.page_size.map(|size| size.to_string())),
        ("pageToken", request.page_token.clone()),
        ("historyLength", request.history_length.map(|length| length.to_string())),
        ("statusTimestampAfter", request.status_timestamp_after.map(|time| time.to_string())),
        ("includeArtifacts", request.include_artifacts.map(|truth| truth.to_string())),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

fn old_call(ask: Ask) -> Call {
    let task = read_as::<old::Task, Task>;
    let update = read_as::<old::StreamResponse, StreamResponse>;
    let config = read_as::<old::TaskPushConfig, PushConfig>;
    match ask {
        Ask::Send(it) => {
            let read = read_as::<old::SendMessageResponse, SendMessageResponse>;
            call(Method::POST, "/v1/message:send", Some(Json::of(&old::SendMessage::from(it))), read)
        }
        Ask::Stream(it) => {
            call(Method::POST, "/v1/message:stream", Some(Json::of(&old::SendMessage::from(it))), update)
        }
        Ask::Get(it) => {
            let query = it.history_length.map(|length| ("historyLength", length.to_string())).into_iter().collect();
            Call { query, ..call(Method::GET, format!("/v1/tasks/{}", it.id), None, task) }
        }
        Ask::List(_) => panic!("0.3 has no list of tasks"),
        Ask::Cancel(it) => call(Method::POST, format!("/v1/tasks/{}:cancel", it.id), None, task),
        Ask::Subscribe(it) => call(Method::GET, format!("/v1/tasks/{}:subscribe", it.id), None, update),
        Ask::CreatePush(it) => {
            let path = format!("/v1/tasks/{}/pushNotificationConfigs", it.task_id.as_deref().unwrap_or_default());
            call(Method::POST, path, Some(Json::of(&old::CreatePushConfig::from(it))), config)
        }
        Ask::GetPush(it) => {
            call(Method::GET, format!("/v1/tasks/{}/pushNotificationConfigs/{}", it.task_id, it.id), None, config)
        }
        Ask::ListPushes(it) => {
            let read = read_as::<old::PushConfigList, PushConfigList>;
            call(Method::GET, format!("/v1/tasks/{}/pushNotificationConfigs", it.task_id), None, read)
        }
        Ask::DeletePush(it) => {
            let path = format!("/v1/tasks/{}/pushNotificationConfigs/{}", it.task_id, it.id);
            call(Method::DELETE, path, None, Json::clone)
        }
        Ask::Card => {
            call(Method::GET, "/v1/card", None, |json| card(&AgentCard::from(json.parse::<v03::AgentCard>().unwrap())))
        }
    }
}
