//! Calls against a server that loses answers and breaks connections on purpose.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_client::{CallError, CallFailed, CallReply, CallUpdate, CallUsage, Client, Error};
use attache_protocol::{
    Json,
    wire::call::{CallId, CallStatus},
};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};

const ID: &str = "a2a-00000000000000000000000000000007";

/// Answers the n-th request of each path with the n-th answer for it, and remembers what was asked.
#[derive(Clone, Default)]
struct ScriptedCalls(Arc<Mutex<ScriptedCallsState>>);

#[derive(Default)]
struct ScriptedCallsState {
    answers: BTreeMap<&'static str, Vec<(u16, String)>>,
    seen: Vec<String>,
}

impl ScriptedCalls {
    fn on(self, path: &'static str, answers: &[(u16, String)]) -> Self {
        self.0.lock().unwrap().answers.insert(path, answers.to_vec());
        self
    }

    async fn start(&self) -> Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Client::connect(url, "ak_secret").unwrap()
    }

    fn seen(&self) -> Vec<String> {
        self.0.lock().unwrap().seen.clone()
    }
}

async fn answer(State(script): State<ScriptedCalls>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let mut inner = script.0.lock().unwrap();
    let mut seen = format!("{} {}", parts.method, parts.uri.path());
    for name in ["authorization", "idempotency-key", "last-event-id"] {
        if let Some(value) = parts.headers.get(name) {
            seen += &format!(" {name}={}", value.to_str().unwrap());
        }
    }
    inner.seen.push(format!("{seen} {}", String::from_utf8_lossy(&body)).trim_end().to_owned());
    let answers = inner.answers.get_mut(parts.uri.path());
    let (status, text) = match answers {
        Some(answers) if !answers.is_empty() => answers.remove(0),
        _ => (500, String::new()),
    };
    let kind = if text.starts_with("id:") { "text/event-stream" } else { "application/json" };
    (StatusCode::from_u16(status).unwrap(), [(header::CONTENT_TYPE, kind)], Body::from(text)).into_response()
}

fn started() -> (u16, String) {
    (200, format!(r#"{{"call_id":"{ID}","status":"started","watch_url":"ws://h/api/a2a/watch/{ID}"}}"#))
}

fn event(seq: i64, kind: &str, data: &str) -> String {
    let event = format!(r#"{{"seq":{seq},"type":"{kind}","at":"2026-01-01T00:00:00.000Z","data":{data}}}"#);
    format!("id: {seq}\nevent: {kind}\ndata: {event}\n\n")
}

fn completed() -> (u16, String) {
    let result = r#"{"summary":"an answer","details":{ "n":1e400}}"#;
    let stats = r#"{"duration_ms":5000,"tokens":1500,"cost":0.05}"#;
    (200, format!(r#"{{"status":"completed","result":{result},"stats":{stats}}}"#))
}

const EVENTS: &str = "/api/v1/task-runs/run_00000000000000000000000000000007/events";
const RESULT: &str = "/api/a2a/result/a2a-00000000000000000000000000000007";
const CANCEL: &str = "/api/v1/task-runs/run_00000000000000000000000000000007/cancel";

#[tokio::test]
async fn a_call_whose_answer_is_lost_is_made_once_and_its_broken_watch_goes_on() {
    let one = event(1, "task.created", "{}") + &event(2, "task.progress", r#"{"message":"reading","percent":30}"#);
    let two = event(3, "task.chunk", r#"{"text":"half"}"#) + &event(4, "task.completed", "{}");
    let script = ScriptedCalls::default()
        .on("/api/a2a/call", &[(503, String::new()), (502, String::new()), started()])
        .on(EVENTS, &[(200, one), (503, String::new()), (200, two)])
        .on(RESULT, &[(503, String::new()), completed()]);
    let client = script.start().await;
    let call = client.call("analyse").agent_type("explore").context(&["a.py"]).idempotency_key("k1");
    let mut stream = call.stream().await.unwrap().timeout(Duration::from_secs(10));
    assert_eq!(stream.call_id().to_string(), ID);
    let mut updates = Vec::new();
    while let Some(update) = stream.next().await {
        updates.push(update.unwrap());
    }
    let reply = CallReply {
        call_id: ID.parse().unwrap(),
        summary: "an answer".to_owned(),
        details: Some(Json::from_text(r#"{ "n":1e400}"#).unwrap()),
        artifact_refs: None,
        full_output: None,
        usage: CallUsage { duration: Duration::from_secs(5), tokens: Some(1500.0), cost: Some(0.05) },
    };
    assert_eq!(
        updates,
        [
            CallUpdate::Progress { goal: Some("reading".to_owned()), progress: Some(0.3) },
            CallUpdate::Message { kind: "chunk".to_owned(), text: Some("half".to_owned()), details: None },
            CallUpdate::Completed(reply),
        ]
    );
    let seen = script.seen();
    let call = r#"POST /api/a2a/call authorization=Bearer ak_secret idempotency-key=k1 {"task":"analyse","agent_type":"explore","context":["a.py"]}"#;
    assert_eq!(seen[..3], [call, call, call], "the same key every time");
    let resumed: Vec<bool> =
        seen.iter().filter(|line| line.contains("/events")).map(|line| line.contains("last-event-id=2")).collect();
    assert_eq!(resumed, [false, true, true], "{seen:?}");
}

#[tokio::test]
async fn without_a_key_each_call_gets_one_of_its_own() {
    let script = ScriptedCalls::default().on("/api/a2a/call", &[(503, String::new()), started(), started()]);
    let client = script.start().await;
    client.call("x").start().await.unwrap();
    client.call("x").start().await.unwrap();
    let keys: Vec<String> = script.seen().iter().map(|line| line.split(' ').nth(4).unwrap().to_owned()).collect();
    assert!(keys.iter().all(|key| key.starts_with("idempotency-key=call-")), "{keys:?}");
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[1], keys[2]);
}

#[tokio::test]
async fn failures_have_types() {
    let failed = r#"{"status":"failed","result":null,"error":"no disk","code":"host_crashed",
        "stats":{"duration_ms":1,"tokens":null,"cost":null}}"#;
    let refusal = r#"{"error":{"code":"not_found","message":"No agent here is called `x`.","hint":"There are: `y`."}}"#;
    let script = ScriptedCalls::default()
        .on("/api/a2a/call", &[started(), (404, refusal.to_owned())])
        .on(EVENTS, &[(200, event(1, "task.failed", r#"{"code":"host_crashed"}"#))])
        .on(RESULT, &[(200, failed.to_owned())]);
    let client = script.start().await;
    let error = client.call("x").wait().await.unwrap_err();
    let expected =
        CallFailed { call_id: ID.parse().unwrap(), code: "host_crashed".to_owned(), message: "no disk".to_owned() };
    assert_eq!(error, CallError::Failed(expected));
    assert_eq!(error.to_string(), "no disk (host_crashed)");
    assert!(!error.is_cancelled());
    let CallError::Hub(Error::Refused(refusal)) = client.call("x").wait().await.unwrap_err() else { panic!() };
    assert_eq!(refusal.to_string(), "No agent here is called `x`. There are: `y`.");
    let twisted = BTreeMap::from([((1, 2), 3)]);
    let error = client.call("x").context(&twisted).start().await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let error = client.call("x").idempotency_key("a\nb").start().await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    assert_eq!(script.seen().iter().filter(|line| line.contains("/call")).count(), 2, "the last two never left");
}

#[tokio::test]
async fn a_result_is_asked_for_and_a_call_is_cancelled() {
    let running = r#"{"status":"running","result":null,"stats":{"duration_ms":1,"tokens":null,"cost":null}}"#;
    let script = ScriptedCalls::default().on(RESULT, &[(200, running.to_owned())]).on(CANCEL, &[(404, String::new())]);
    let client = script.start().await;
    let call: CallId = ID.parse().unwrap();
    assert_eq!(client.get_result(call).await.unwrap().status, CallStatus::Running);
    assert!(matches!(client.cancel(call).await, Err(error) if error.status() == Some(404)));
    assert_eq!(format!("{client:?}").matches("ak_").count(), 0);
}
