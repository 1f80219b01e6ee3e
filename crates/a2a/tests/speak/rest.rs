//! HTTP+JSON of both versions.

use attache_a2a_wire::{
    AgentCard, ListTasks, PushConfig, PushConfigList, SendMessageResponse, StreamResponse, Task, TaskList,
    v03::{self, rest as old},
};
use attache_protocol::Json;
use percent_encoding::NON_ALPHANUMERIC;
use reqwest::Method;
use serde_json::json;

use super::{SpokenRefusal, TestAnswer, TestClient, TestOperation, TestVersion, card, http, read_as, sse};

/// How an answer is read.
type AnswerReader = fn(&Json) -> Json;

struct RestCall {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    body: Option<Json>,
    read: AnswerReader,
}

pub(super) async fn ask(client: &TestClient, ask: TestOperation) -> Result<TestAnswer, SpokenRefusal> {
    let streams = matches!(ask, TestOperation::Stream(_) | TestOperation::Subscribe(_));
    let RestCall { method, path, query, body, read } = match client.version {
        TestVersion::V10 => new_call(ask),
        TestVersion::V03 => old_call(ask),
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
        return Err(SpokenRefusal::of_rest(http, &response.text().await.unwrap(), challenge));
    }
    if streams {
        return Ok(TestAnswer::Stream(sse::incoming(response, move |event| Ok(read(&event)))));
    }
    let text = response.text().await.unwrap();
    Ok(TestAnswer::Once(read(&Json::from_text(text).unwrap())))
}

fn written(query: &[(&'static str, String)]) -> String {
    let encode = |value: &str| percent_encoding::utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
    let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn call(method: Method, path: impl Into<String>, body: Option<Json>, read: AnswerReader) -> RestCall {
    RestCall { method, path: path.into(), query: Vec::new(), body, read }
}

fn new_call(ask: TestOperation) -> RestCall {
    let task = read_as::<Task, Task>;
    let update = read_as::<StreamResponse, StreamResponse>;
    let config = read_as::<PushConfig, PushConfig>;
    match ask {
        TestOperation::Send(it) => {
            let read = read_as::<SendMessageResponse, SendMessageResponse>;
            call(Method::POST, "/message:send", Some(Json::of(&it)), read)
        }
        TestOperation::Stream(it) => call(Method::POST, "/message:stream", Some(Json::of(&it)), update),
        TestOperation::Get(it) => {
            let query = it.history_length.map(|length| ("historyLength", length.to_string())).into_iter().collect();
            RestCall { query, ..call(Method::GET, format!("/tasks/{}", it.id), None, task) }
        }
        TestOperation::List(it) => {
            RestCall { query: list(&it), ..call(Method::GET, "/tasks", None, read_as::<TaskList, TaskList>) }
        }
        TestOperation::Cancel(it) => {
            let body = it.metadata.map(|metadata| format!(r#"{{"metadata":{}}}"#, metadata.get()));
            let body = body.map(|body| Json::from_text(body).unwrap());
            call(Method::POST, format!("/tasks/{}:cancel", it.id), body, task)
        }
        TestOperation::Subscribe(it) => call(Method::POST, format!("/tasks/{}:subscribe", it.id), None, update),
        TestOperation::CreatePush(it) => {
            let path = format!("/tasks/{}/pushNotificationConfigs", it.task_id.as_deref().unwrap_or_default());
            call(Method::POST, path, Some(Json::of(&it)), config)
        }
        TestOperation::GetPush(it) => {
            call(Method::GET, format!("/tasks/{}/pushNotificationConfigs/{}", it.task_id, it.id), None, config)
        }
        TestOperation::ListPushes(it) => {
            let read = read_as::<PushConfigList, PushConfigList>;
            call(Method::GET, format!("/tasks/{}/pushNotificationConfigs", it.task_id), None, read)
        }
        TestOperation::DeletePush(it) => {
            call(Method::DELETE, format!("/tasks/{}/pushNotificationConfigs/{}", it.task_id, it.id), None, Json::clone)
        }
        TestOperation::Card => {
            call(Method::GET, "/extendedAgentCard", None, |json| card(&json.parse::<AgentCard>().unwrap()))
        }
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

fn old_call(ask: TestOperation) -> RestCall {
    let task = read_as::<old::RestTaskV03, Task>;
    let update = read_as::<old::RestStreamResponseV03, StreamResponse>;
    let config = read_as::<old::RestTaskPushConfigV03, PushConfig>;
    match ask {
        TestOperation::Send(it) => {
            let read = read_as::<old::RestSendMessageResponseV03, SendMessageResponse>;
            call(Method::POST, "/v1/message:send", Some(Json::of(&old::RestSendMessageV03::from(it))), read)
        }
        TestOperation::Stream(it) => {
            call(Method::POST, "/v1/message:stream", Some(Json::of(&old::RestSendMessageV03::from(it))), update)
        }
        TestOperation::Get(it) => {
            let query = it.history_length.map(|length| ("historyLength", length.to_string())).into_iter().collect();
            RestCall { query, ..call(Method::GET, format!("/v1/tasks/{}", it.id), None, task) }
        }
        TestOperation::List(_) => panic!("0.3 has no list of tasks"),
        TestOperation::Cancel(it) => call(Method::POST, format!("/v1/tasks/{}:cancel", it.id), None, task),
        TestOperation::Subscribe(it) => call(Method::GET, format!("/v1/tasks/{}:subscribe", it.id), None, update),
        TestOperation::CreatePush(it) => {
            let path = format!("/v1/tasks/{}/pushNotificationConfigs", it.task_id.as_deref().unwrap_or_default());
            call(Method::POST, path, Some(Json::of(&old::RestCreatePushConfigBodyV03::from(it))), config)
        }
        TestOperation::GetPush(it) => {
            call(Method::GET, format!("/v1/tasks/{}/pushNotificationConfigs/{}", it.task_id, it.id), None, config)
        }
        TestOperation::ListPushes(it) => {
            let read = read_as::<old::RestPushConfigListV03, PushConfigList>;
            call(Method::GET, format!("/v1/tasks/{}/pushNotificationConfigs", it.task_id), None, read)
        }
        TestOperation::DeletePush(it) => {
            let path = format!("/v1/tasks/{}/pushNotificationConfigs/{}", it.task_id, it.id);
            call(Method::DELETE, path, None, Json::clone)
        }
        TestOperation::Card => call(Method::GET, "/v1/card", None, |json| {
            card(&AgentCard::from(json.parse::<v03::AgentCardV03>().unwrap()))
        }),
    }
}
