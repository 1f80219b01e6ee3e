//! Every refusal in each binding's own form, and the edges of JSON-RPC.

use attache_a2a_wire::{Fault, Message, Part, PushConfig, SendMessage};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    obedient::{message, request},
    scene::{A2aFixture, AGENT, world},
    speak::{
        BINDINGS, RefusalForm, SpokenRefusal, TestBinding, TestClient, TestOperation, TestVersion, every_way, http,
    },
};

const NOBODYS: &str = "run_0193f6a1b2c37d4e8f90a1b2c3d4e5f6";

fn hello(id: &str) -> Message {
    message(id, vec![Part::text("hello")])
}

/// The form of the standard's table (1.0.1).
fn form_of(binding: TestBinding, fault: Fault) -> RefusalForm {
    match binding {
        TestBinding::Rpc => RefusalForm::Rpc { http: 200, code: fault.rpc_code() },
        TestBinding::Rest => {
            let (http, status) = (fault.http_status(), fault.grpc_status().to_owned());
            RefusalForm::Rest { http, code: http, status }
        }
        TestBinding::Grpc => RefusalForm::Grpc(match fault.grpc_status() {
            "NOT_FOUND" => Code::NotFound,
            "FAILED_PRECONDITION" => Code::FailedPrecondition,
            "INVALID_ARGUMENT" => Code::InvalidArgument,
            other => panic!("{other} is in no row of the table"),
        }),
    }
}

fn is_fault(refusal: &SpokenRefusal, binding: TestBinding, fault: Fault) {
    let found = (refusal.form.clone(), refusal.reason.as_str(), refusal.domain.as_str());
    assert_eq!(found, (form_of(binding, fault), fault.reason(), "a2a-protocol.org"), "{refusal:?}");
    assert!(refusal.message.ends_with('.'), "{}", refusal.message);
}

#[tokio::test]
async fn every_fault_has_its_form_on_every_binding() {
    let scene = A2aFixture::start(world()).await;
    let done = scene.owner().send(request(hello("done"))).await.id;
    let subscriber = || PushConfig { url: "https://example.org/".to_owned(), ..PushConfig::default() };
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        let to_done = SendMessage { ..request(Message { task_id: Some(done.clone()), ..hello("more") }) };
        for (fault, ask) in [
            (Fault::TaskNotFound, TestOperation::get(NOBODYS)),
            (Fault::TaskNotFound, TestOperation::get("mine")),
            (Fault::TaskNotFound, TestOperation::cancel(NOBODYS)),
            (Fault::TaskNotFound, TestOperation::get_push(&done, "none")),
            (Fault::TaskNotCancelable, TestOperation::cancel(&done)),
            (Fault::UnsupportedOperation, TestOperation::Send(to_done.clone())),
            (Fault::UnsupportedOperation, TestOperation::Stream(to_done)),
            (Fault::UnsupportedOperation, TestOperation::subscribe(&done)),
        ] {
            is_fault(&client.refused(ask).await, binding, fault);
        }
    }
    scene.switch(json!({"streaming": false, "push": false, "extended_card": false, "input_modes": ["image/*"]})).await;
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        for (fault, ask) in [
            (Fault::UnsupportedOperation, TestOperation::Stream(request(hello("m")))),
            (Fault::UnsupportedOperation, TestOperation::subscribe(&done)),
            (Fault::UnsupportedOperation, TestOperation::Card),
            (Fault::PushNotificationNotSupported, TestOperation::create_push(&done, subscriber())),
            (Fault::PushNotificationNotSupported, TestOperation::get_push(&done, "x")),
            (Fault::PushNotificationNotSupported, TestOperation::list_pushes(&done)),
            (Fault::PushNotificationNotSupported, TestOperation::delete_push(&done, "x")),
            (Fault::ContentTypeNotSupported, TestOperation::Send(request(hello("m")))),
        ] {
            is_fault(&client.refused(ask).await, binding, fault);
        }
    }
    scene.switch(json!({"extensions": [{"uri": "https://example.org/ext/v1", "required": true}]})).await;
    for (binding, version) in every_way() {
        let refusal = scene.client(binding, version).refused(TestOperation::get(&done)).await;
        is_fault(&refusal, binding, Fault::ExtensionSupportRequired);
        assert_eq!(refusal.facts["extension"], "https://example.org/ext/v1");
        let header = if version == TestVersion::V10 { "a2a-extensions" } else { "x-a2a-extensions" };
        let client = scene.client(binding, version).with(header, "https://example.org/ext/v1");
        assert_eq!(client.get(&done).await.id, done);
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn wrong_parameters_name_the_member() {
    let scene = A2aFixture::start(world()).await;
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        let nothing = Message { role: attache_a2a_wire::A2aRole::Agent, ..message("", Vec::new()) };
        let refusal = client.refused(TestOperation::Send(request(nothing))).await;
        let fields: Vec<&str> = refusal.violations.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(fields, ["message.messageId", "message.parts", "message.role"], "{binding:?} {version:?}");
        let form = match binding {
            TestBinding::Rpc => RefusalForm::Rpc { http: 200, code: -32602 },
            TestBinding::Rest => RefusalForm::Rest { http: 400, code: 400, status: "INVALID_ARGUMENT".to_owned() },
            TestBinding::Grpc => RefusalForm::Grpc(Code::InvalidArgument),
        };
        assert_eq!((refusal.form, refusal.reason.as_str()), (form, "INVALID_PARAMS"));
    }
    scene.world.stop().await;
}

/// What JSON-RPC answers to exactly this body: the HTTP status, the code, the id.
async fn raw(scene: &A2aFixture, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
    let mut request = http()
        .post(format!("{}/a2a/{AGENT}", scene.world.url))
        .header("authorization", format!("Bearer {}", scene.world.owner_key.expose()))
        .body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap())
}

/// A name, headers, a body, and the code and the id of the answer.
type ErrorRow<'a> = (&'a str, Vec<(&'a str, &'a str)>, String, i64, Value);

#[tokio::test]
async fn json_rpc_says_what_is_wrong_with_a_request() {
    let scene = A2aFixture::start(world()).await;
    let json = ("content-type", "application/json");
    let new = ("a2a-version", "1.0");
    let get = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"GetTask","params":{{"id":"{NOBODYS}"}}}}"#);
    let method = |name: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{name}","params":{{"id":"{NOBODYS}"}}}}"#);
    let plain = ("content-type", "text/plain");
    let table: Vec<ErrorRow<'_>> = vec![
        ("no JSON", vec![json, new], "{".to_owned(), -32700, Value::Null),
        ("nothing", vec![json, new], String::new(), -32700, Value::Null),
        ("not UTF-8 text", vec![json, new], "\u{0}".to_owned(), -32700, Value::Null),
        ("a batch", vec![json, new], format!("[{}]", get("1")), -32600, Value::Null),
        ("an empty batch", vec![json, new], "[]".to_owned(), -32600, Value::Null),
        ("a number", vec![json, new], "7".to_owned(), -32600, Value::Null),
        ("no method", vec![json, new], r#"{"jsonrpc":"2.0","id":1}"#.to_owned(), -32600, json!(1)),
        ("another jsonrpc", vec![json, new], get("1").replace("2.0", "1.0"), -32600, json!(1)),
        ("no jsonrpc", vec![json, new], get("1").replace(r#""jsonrpc":"2.0","#, ""), -32600, json!(1)),
        ("an object as id", vec![json, new], get("{}"), -32600, Value::Null),
        ("a list as id", vec![json, new], get("[1]"), -32600, Value::Null),
        ("truth as id", vec![json, new], get("true"), -32600, Value::Null),
        ("a text as id", vec![json, new], get(r#""x""#), -32001, json!("x")),
        ("a number as id", vec![json, new], get("7"), -32001, json!(7)),
        ("no id", vec![json, new], get("null"), -32001, Value::Null),
        ("text", vec![plain, new], get("1"), -32005, Value::Null),
        ("text that is no JSON", vec![plain, new], "{'jsonrpc': '2.0'}".to_owned(), -32005, Value::Null),
        ("no content type", vec![new], get("1"), -32005, Value::Null),
        (
            "parameters of the charset",
            vec![("content-type", "application/json; charset=utf-8"), new],
            get("1"),
            -32001,
            json!(1),
        ),
        ("JSON of A2A", vec![("content-type", "application/a2a+json"), new], get("1"), -32001, json!(1)),
        ("no such method", vec![json, new], method("Frobnicate"), -32601, json!(1)),
        ("a method of 0.3 in 1.0", vec![json, new], method("tasks/get"), -32601, json!(1)),
        ("a method of 1.0 in 0.3", vec![json], method("GetTask"), -32009, json!(1)),
        ("a method of 0.3", vec![json], method("tasks/get"), -32001, json!(1)),
        ("no such method in 0.3", vec![json], method("tasks/frobnicate"), -32601, json!(1)),
        ("a list in 0.3", vec![json], method("tasks/list"), -32601, json!(1)),
        ("another version", vec![json, ("a2a-version", "2.0")], get("1"), -32009, json!(1)),
        ("no version at all", vec![json, ("a2a-version", "new")], get("1"), -32009, json!(1)),
        (
            "no parameters",
            vec![json, new],
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask"}"#.to_owned(),
            -32602,
            json!(1),
        ),
        (
            "a list as parameters",
            vec![json, new],
            get("1").replace(&format!(r#"{{"id":"{NOBODYS}"}}"#), r#"["x"]"#),
            -32602,
            json!(1),
        ),
        (
            "null as parameters",
            vec![json, new],
            get("1").replace(&format!(r#"{{"id":"{NOBODYS}"}}"#), "null"),
            -32602,
            json!(1),
        ),
        (
            "a member of another type",
            vec![json, new],
            get("1").replace(&format!(r#""{NOBODYS}""#), "7"),
            -32602,
            json!(1),
        ),
    ];
    for (name, headers, body, code, id) in table {
        let (status, answer) = raw(&scene, &headers, &body).await;
        assert_eq!((status, &answer["error"]["code"], &answer["id"]), (200, &json!(code), &id), "{name}: {answer}");
        assert_eq!(answer["jsonrpc"], "2.0", "{name}");
        let info = answer["error"]["data"].as_array().unwrap().last().unwrap();
        assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{name}");
    }
    let wrong = get("1").replace(&format!(r#""{NOBODYS}""#), "7");
    let (_, answer) = raw(&scene, &[json, new], &wrong).await;
    assert_eq!(answer["error"]["data"][0]["fieldViolations"][0]["field"], "id", "{answer}");
    scene.world.stop().await;
}

#[tokio::test]
async fn http_says_what_is_wrong_with_a_request() {
    let scene = A2aFixture::start(world()).await;
    let owner = format!("Bearer {}", scene.world.owner_key.expose());
    let send = |path: &str, version: &'static str, content_type: &'static str, body: &'static str| {
        let url = format!("{}/a2a/{AGENT}{path}", scene.world.url);
        let request = http().post(url).header("authorization", &owner).body(body);
        async move {
            let response =
                request.header("a2a-version", version).header("content-type", content_type).send().await.unwrap();
            let status = response.status().as_u16();
            let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
            let error = &body["error"];
            assert_eq!(error["code"], status, "{body}");
            let info = error["details"].as_array().unwrap().last().unwrap().clone();
            (status, error["status"].as_str().unwrap().to_owned(), info["reason"].as_str().unwrap().to_owned())
        }
    };
    let said = |status: u16, name: &str, reason: &str| (status, name.to_owned(), reason.to_owned());
    let json = "application/json";
    for (path, version) in [("/message:send", "1.0"), ("/v1/message:send", "0.3")] {
        assert_eq!(send(path, version, json, "{").await, said(400, "INVALID_ARGUMENT", "INVALID_JSON"));
        assert_eq!(send(path, version, json, "[]").await, said(400, "INVALID_ARGUMENT", "INVALID_PARAMS"));
        assert_eq!(send(path, version, json, "{}").await, said(400, "INVALID_ARGUMENT", "INVALID_PARAMS"));
        let text = send(path, version, "text/plain", "{}").await;
        assert_eq!(text, said(415, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"));
        let other = if version == "1.0" { "0.3" } else { "1.0" };
        let wrong = said(400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED");
        assert_eq!(send(path, other, json, "{}").await, wrong);
        assert_eq!(send(path, "3.0", json, "{}").await, wrong);
    }
    let nothing = said(404, "UNIMPLEMENTED", "METHOD_NOT_FOUND");
    assert_eq!(send(&format!("/tasks/{NOBODYS}:frobnicate"), "1.0", json, "{}").await, nothing);
    scene.world.stop().await;
}

#[tokio::test]
async fn an_unknown_agent_is_not_there_on_any_binding() {
    let scene = A2aFixture::start(world()).await;
    for binding in BINDINGS {
        let client = TestClient { agent: "nobody".to_owned(), ..scene.client(binding, TestVersion::V10) };
        let refusal = client.refused(TestOperation::get(NOBODYS)).await;
        let form = match binding {
            TestBinding::Rpc => RefusalForm::Rpc { http: 200, code: -32602 },
            TestBinding::Rest => RefusalForm::Rest { http: 404, code: 404, status: "NOT_FOUND".to_owned() },
            TestBinding::Grpc => RefusalForm::Grpc(Code::NotFound),
        };
        assert_eq!((refusal.form, refusal.reason.as_str()), (form, "NOT_FOUND"));
    }
    scene.world.stop().await;
}
