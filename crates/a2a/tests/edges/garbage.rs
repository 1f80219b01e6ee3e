//! What is no request at all, and what is one of nothing: every refusal is one of A2A, with its reason.

use attache_a2a_wire::{
    Part, PushConfig, SendConfiguration, SendMessage,
    grpc::{v1, v03},
};
use prost::Message as _;
use prost_types::value::Kind;
use serde_json::{Value, json};

use crate::{
    obedient::{message, request},
    scene::{A2aFixture, AGENT, world},
    speak::{RefusalForm, SpokenRefusal, TestOperation, every_way, grpc, http},
};

/// The bytes of one message as gRPC frames it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

async fn over_grpc(scene: &A2aFixture, path: &str, body: Vec<u8>) -> SpokenRefusal {
    let request = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let request = request.post(format!("{}{path}", scene.world.url)).header("content-type", "application/grpc");
    let bearer = format!("Bearer {}", scene.world.owner_key.expose());
    let response = request.header("te", "trailers").header("authorization", bearer).body(body).send().await.unwrap();
    grpc::refusal(tonic::Status::from_header_map(response.headers()).expect("a refusal is in the headers"))
}

#[tokio::test]
async fn grpc_says_what_is_wrong_with_bytes() {
    let scene = A2aFixture::start(world()).await;
    // Lists in lists: deeper than anybody reads.
    let deep = (0..200).fold(Vec::new(), |inner, _| {
        vec![prost_types::Value { kind: Some(Kind::ListValue(prost_types::ListValue { values: inner })) }]
    });
    let fields = deep.into_iter().map(|value| ("a".to_owned(), value)).collect();
    let metadata = Some(prost_types::Struct { fields });
    let new = v1::SendMessageRequest { metadata: metadata.clone(), ..Default::default() }.encode_to_vec();
    let old = v03::SendMessageRequest { metadata, ..Default::default() }.encode_to_vec();
    for (package, deep) in [("lf.a2a.v1", new), ("a2a.v1", old)] {
        let path = format!("/{package}.A2AService/SendMessage");
        for body in [framed(&[0xff; 16]), framed(&[0x0a, 0x7f, 1]), framed(&deep), Vec::new()] {
            let refusal = over_grpc(&scene, &path, body).await;
            let found = (refusal.form, refusal.reason.as_str(), refusal.domain.as_str());
            assert_eq!(found, (RefusalForm::Grpc(tonic::Code::InvalidArgument), "INVALID_REQUEST", "a2a-protocol.org"));
        }
        let large = over_grpc(&scene, &path, framed(&vec![0; (4 << 20) + 1])).await;
        let found = (large.form, large.reason.as_str());
        assert_eq!(found, (RefusalForm::Grpc(tonic::Code::ResourceExhausted), "TOO_LARGE"), "{}", large.message);
        let unknown = over_grpc(&scene, &format!("/{package}.A2AService/Frobnicate"), framed(&[])).await;
        let found = (unknown.form, unknown.reason.as_str());
        assert_eq!(found, (RefusalForm::Grpc(tonic::Code::Unimplemented), "METHOD_NOT_FOUND"));
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn where_nothing_is_the_answer_is_an_error_of_a2a() {
    let scene = A2aFixture::start(world()).await;
    for (method, path) in [
        ("GET", format!("/a2a/{AGENT}")),
        ("GET", "/a2a".to_owned()),
        ("GET", format!("/a2a/{AGENT}/frobnicate")),
        ("POST", format!("/a2a/{AGENT}/v1/frobnicate")),
        ("GET", format!("/a2a/{AGENT}/message:send")),
        ("DELETE", format!("/a2a/{AGENT}/tasks")),
        ("PUT", format!("/a2a/{AGENT}/tasks/x/pushNotificationConfigs/y")),
        ("GET", format!("/a2a/{AGENT}/{AGENT}/a/b/c/d")),
        ("GET", format!("/a2a/{AGENT}/.well-known/frobnicate.json")),
    ] {
        let url = format!("{}{path}", scene.world.url);
        let answer = http().request(method.parse().unwrap(), url).header("a2a-version", "1.0").send().await.unwrap();
        let status = answer.status().as_u16();
        let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        let wanted = json!({"error": {
            "code": 404,
            "status": "UNIMPLEMENTED",
            "message": "No such path for this method. See /docs/a2a.",
            "details": [{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "METHOD_NOT_FOUND",
                "domain": "a2a-protocol.org",
            }],
        }});
        assert_eq!((status, body), (404, wanted), "{method} {path}");
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn wrong_json_is_named_by_its_path() {
    let scene = A2aFixture::start(world()).await;
    let part = |parts: &str| format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":{parts}}}}}"#);
    for (params, field, problem) in [
        (part(r#"[{"text":"a"},{"text":"b"},{"text":7}]"#), "message.parts[2].text", "invalid type"),
        (part(r#"[{"text":"a"},7]"#), "message.parts[1]", "invalid type"),
        (r#"{"message":{"messageId":"m","parts":[]}}"#.to_owned(), "message.role", "is missing"),
        (r#"{}"#.to_owned(), "message", "is missing"),
        (r#"{"message":{"messageId":"m","role":"ROLE_KING","parts":[]}}"#.to_owned(), "message.role", "unknown"),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{params}}}"#);
        let answer = http()
            .post(format!("{}/a2a/{AGENT}", scene.world.url))
            .header("authorization", format!("Bearer {}", scene.world.owner_key.expose()))
            .header("content-type", "application/json")
            .header("a2a-version", "1.0")
            .body(body);
        let answer: Value = serde_json::from_str(&answer.send().await.unwrap().text().await.unwrap()).unwrap();
        let violation = &answer["error"]["data"][0]["fieldViolations"][0];
        assert_eq!(violation["field"], field, "{answer}");
        assert!(violation["description"].as_str().unwrap().starts_with(problem), "{answer}");
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(text.starts_with(&format!("`{field}` ")), "{text}");
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn a_push_config_is_named_by_where_it_stands() {
    let scene = A2aFixture::start(world()).await;
    let done = scene.owner().send(request(message("done", vec![Part::text("hello")]))).await.id;
    let config = |url: &str| PushConfig { url: url.to_owned(), ..PushConfig::default() };
    let secret = |token: &str| PushConfig { token: Some(token.to_owned()), ..config("https://example.org/") };
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        for (push, field) in [(config("http://127.0.0.1/"), "url"), (secret("a\nb"), "token")] {
            let refusal = client.refused(TestOperation::create_push(&done, push.clone())).await;
            assert_eq!(refusal.violations[0].0, field, "{binding:?} {version:?}");
            let configuration =
                SendConfiguration { task_push_notification_config: Some(push), ..SendConfiguration::default() };
            let sent = message("m", vec![Part::text("hello")]);
            let sent = SendMessage { configuration: Some(configuration), ..request(sent) };
            let refusal = client.refused(TestOperation::Send(sent)).await;
            let path = format!("configuration.taskPushNotificationConfig.{field}");
            assert_eq!(refusal.violations[0].0, path, "{binding:?} {version:?}");
            assert!(refusal.message.starts_with(&format!("`{path}` ")), "{}", refusal.message);
        }
    }
    scene.world.stop().await;
}
