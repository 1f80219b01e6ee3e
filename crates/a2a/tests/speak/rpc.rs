//! JSON-RPC of both versions.

use attache_a2a_wire::{
    AgentCard, Method, PushConfig, PushConfigList, RpcResponse as Answer, SendMessage, SendMessageResponse,
    StreamResponse, Task, TaskList, v03,
};
use attache_protocol::Json;
use serde::Serialize;

use super::{SpokenRefusal, TestAnswer, TestClient, TestOperation, TestVersion, card, http, read_as, sse};

/// The request's id, which every answer repeats.
const ID: &str = r#""question 1""#;

pub(super) async fn ask(client: &TestClient, ask: TestOperation) -> Result<TestAnswer, SpokenRefusal> {
    let (method, params) = match client.version {
        TestVersion::V10 => new_params(&ask),
        TestVersion::V03 => old_params(&ask),
    };
    let name = match client.version {
        TestVersion::V10 => method.name(),
        TestVersion::V03 => method.old_name().expect("0.3 has this method"),
    };
    let body = format!(r#"{{"jsonrpc":"2.0","id":{ID},"method":"{name}","params":{}}}"#, params.get());
    let mut request = http()
        .post(format!("{}/a2a/{}", client.url, client.agent))
        .header("content-type", "application/json")
        .header("a2a-version", &client.says)
        .body(body);
    for (name, value) in &client.headers {
        request = request.header(*name, value);
    }
    let response = request.send().await.unwrap();
    let version = client.version;
    let http = response.status().as_u16();
    let challenge = response.headers().get("www-authenticate").map(|value| value.to_str().unwrap().to_owned());
    let is_stream = response.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream");
    if is_stream {
        let incoming = sse::incoming(response, move |event| {
            let update = result(http, &event, None)?;
            Ok(match version {
                TestVersion::V10 => read_as::<StreamResponse, StreamResponse>(&update),
                TestVersion::V03 => old_update(&update),
            })
        });
        // 0.3 also refuses within the stream.
        return incoming.unless_refused().await.map(TestAnswer::Stream);
    }
    let text = response.text().await.unwrap();
    let text = Json::from_text(text.clone()).unwrap_or_else(|error| panic!("{error}: {text}"));
    let result = result(http, &text, challenge)?;
    assert_eq!(http, 200);
    Ok(TestAnswer::Once(match version {
        TestVersion::V10 => new_answer(method, &result),
        TestVersion::V03 => old_answer(method, &result),
    }))
}

fn result(http: u16, text: &Json, challenge: Option<String>) -> Result<Json, SpokenRefusal> {
    let answer: Answer = text.parse().unwrap_or_else(|error| panic!("{error}: {}", text.get()));
    assert_eq!(answer.jsonrpc, "2.0");
    if let Some(error) = answer.error {
        return Err(SpokenRefusal::of_rpc(http, error, challenge));
    }
    assert_eq!(answer.id.as_ref().map(Json::get), Some(ID));
    // `null` is a result too: 0.3 answers so where nothing is to be said.
    Ok(answer.result.unwrap_or_else(|| Json::of(&())))
}

fn new_params(ask: &TestOperation) -> (Method, Json) {
    match ask {
        TestOperation::Send(it) => (Method::SendMessage, Json::of(it)),
        TestOperation::Stream(it) => (Method::SendStreamingMessage, Json::of(it)),
        TestOperation::Get(it) => (Method::GetTask, Json::of(it)),
        TestOperation::List(it) => (Method::ListTasks, Json::of(it)),
        TestOperation::Cancel(it) => (Method::CancelTask, Json::of(it)),
        TestOperation::Subscribe(it) => (Method::SubscribeToTask, Json::of(it)),
        TestOperation::CreatePush(it) => (Method::CreatePushConfig, Json::of(it)),
        TestOperation::GetPush(it) => (Method::GetPushConfig, Json::of(it)),
        TestOperation::ListPushes(it) => (Method::ListPushConfigs, Json::of(it)),
        TestOperation::DeletePush(it) => (Method::DeletePushConfig, Json::of(it)),
        TestOperation::Card => (Method::GetExtendedCard, Json::empty_object()),
    }
}

fn old_params(ask: &TestOperation) -> (Method, Json) {
    let old = |it: &SendMessage| Json::of(&v03::SendParamsV03::from(it.clone()));
    let task = |id: &str, metadata: &Option<Json>| {
        Json::of(&v03::TaskIdParamsV03 { id: id.to_owned(), metadata: metadata.clone() })
    };
    match ask {
        TestOperation::Send(it) => (Method::SendMessage, old(it)),
        TestOperation::Stream(it) => (Method::SendStreamingMessage, old(it)),
        TestOperation::Get(it) => {
            let params = v03::TaskQueryParamsV03 { id: it.id.clone(), history_length: it.history_length };
            (Method::GetTask, Json::of(&params))
        }
        TestOperation::List(_) => panic!("0.3 has no list of tasks"),
        TestOperation::Cancel(it) => (Method::CancelTask, task(&it.id, &it.metadata)),
        TestOperation::Subscribe(it) => (Method::SubscribeToTask, task(&it.id, &None)),
        TestOperation::CreatePush(it) => {
            let task_id = it.task_id.clone().unwrap_or_default();
            let params = v03::TaskPushConfigV03 { task_id, push_notification_config: it.clone().into() };
            (Method::CreatePushConfig, Json::of(&params))
        }
        TestOperation::GetPush(it) => {
            let (id, config) = (it.task_id.clone(), Some(it.id.clone()));
            (Method::GetPushConfig, Json::of(&v03::GetPushConfigV03 { id, push_notification_config_id: config }))
        }
        TestOperation::ListPushes(it) => (Method::ListPushConfigs, task(&it.task_id, &None)),
        TestOperation::DeletePush(it) => {
            let (id, config) = (it.task_id.clone(), it.id.clone());
            (Method::DeletePushConfig, Json::of(&v03::DeletePushConfigV03 { id, push_notification_config_id: config }))
        }
        TestOperation::Card => (Method::GetExtendedCard, Json::empty_object()),
    }
}

fn new_answer(method: Method, result: &Json) -> Json {
    match method {
        Method::SendMessage => read_as::<SendMessageResponse, SendMessageResponse>(result),
        Method::GetTask | Method::CancelTask => read_as::<Task, Task>(result),
        Method::ListTasks => read_as::<TaskList, TaskList>(result),
        Method::CreatePushConfig | Method::GetPushConfig => read_as::<PushConfig, PushConfig>(result),
        Method::ListPushConfigs => read_as::<PushConfigList, PushConfigList>(result),
        Method::DeletePushConfig => {
            assert_eq!(result.get(), "{}");
            Json::empty_object()
        }
        Method::GetExtendedCard => card(&result.parse::<AgentCard>().unwrap()),
        Method::SendStreamingMessage | Method::SubscribeToTask => panic!("streams are not answered once"),
    }
}

fn old_answer(method: Method, result: &Json) -> Json {
    match method {
        Method::SendMessage => old_update(result),
        Method::GetTask | Method::CancelTask => read_as::<v03::TaskV03, Task>(result),
        Method::CreatePushConfig | Method::GetPushConfig => read_as::<v03::TaskPushConfigV03, PushConfig>(result),
        Method::ListPushConfigs => {
            let configs: Vec<v03::TaskPushConfigV03> = result.parse().unwrap();
            #[derive(Serialize)]
            struct Found {
                configs: Vec<PushConfig>,
            }
            Json::of(&Found { configs: configs.into_iter().map(Into::into).collect() })
        }
        Method::DeletePushConfig => {
            assert_eq!(result.get(), "null");
            Json::empty_object()
        }
        Method::GetExtendedCard => card(&AgentCard::from(result.parse::<v03::AgentCardV03>().unwrap())),
        Method::ListTasks | Method::SendStreamingMessage | Method::SubscribeToTask => panic!("not answered once"),
    }
}

fn old_update(update: &Json) -> Json {
    let read = v03::StreamResponseV03::read(update).unwrap_or_else(|error| panic!("{error}: {}", update.get()));
    Json::of(&StreamResponse::from(read))
}
