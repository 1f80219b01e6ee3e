//! VER: each request is answered as its version says.

use attache_client::{
    a2a::{PeerClient, PeerCredentials, discover},
    egress::{EgressGuard, EgressPolicy},
};
use serde_json::{Value, json};

use super::hello;
use crate::{
    obedient::request,
    scene::{A2aFixture, AGENT, world},
    speak::{TestBinding, TestOperation, TestVersion, http},
};

/// `SendMessage` of 1.0 and `message/send` of 0.3, with this version said so.
async fn rpc(scene: &A2aFixture, method: &str, header: Option<&str>, query: &str, message: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}});
    let mut request = http()
        .post(format!("{}/a2a/{AGENT}{query}", scene.world.url))
        .header("authorization", format!("Bearer {}", scene.world.owner_key.expose()))
        .header("content-type", "application/json")
        .body(body.to_string());
    if let Some(version) = header {
        request = request.header("a2a-version", version);
    }
    serde_json::from_str(&request.send().await.unwrap().text().await.unwrap()).unwrap()
}

fn new(id: &str) -> Value {
    json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "hello"}]})
}

fn old(id: &str) -> Value {
    json!({"kind": "message", "messageId": id, "role": "user", "parts": [{"kind": "text", "text": "hello"}]})
}

#[tokio::test]
async fn ver_server_001_requests_are_answered_as_their_version_says() {
    let scene = A2aFixture::start(world()).await;
    for (header, query) in [(Some("1.0"), ""), (None, "?A2A-Version=1.0"), (Some(" 1.0 "), "")] {
        let answer = rpc(&scene, "SendMessage", header, query, new("m1")).await;
        assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
        assert_eq!(answer["result"]["task"].get("kind"), None);
    }
    for (header, query) in [(None, ""), (Some(""), ""), (Some("0.3"), ""), (None, "?A2A-Version=0.3")] {
        let answer = rpc(&scene, "message/send", header, query, old("m2")).await;
        let found = (&answer["result"]["kind"], &answer["result"]["status"]["state"]);
        assert_eq!(found, (&json!("task"), &json!("completed")), "{header:?} {query}: {answer}");
    }
    for version in ["2.0", "1.1", "0.2", "0.4", "10.0", "1", "v1.0", "one"] {
        for (method, message) in [("SendMessage", new("m3")), ("message/send", old("m3"))] {
            let answer = rpc(&scene, method, Some(version), "", message).await;
            assert_eq!(answer["error"]["code"], -32009, "{version}: {answer}");
        }
        for binding in [TestBinding::Rest, TestBinding::Grpc] {
            for form in [TestVersion::V10, TestVersion::V03] {
                let client = scene.client(binding, form);
                let refusal = client.saying(version).refused(TestOperation::Send(request(hello("m4")))).await;
                assert_eq!(refusal.reason, "VERSION_NOT_SUPPORTED", "{binding:?} {form:?} {version}");
            }
        }
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn ver_client_001_our_client_says_its_version_with_every_request() {
    let scene = A2aFixture::start(world()).await;
    let guard = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
    let credentials = PeerCredentials::key(scene.world.owner_key.clone());
    let url = format!("{}/a2a/{AGENT}", scene.world.url);
    let found = discover(&guard, &url, &credentials, &[]).await.unwrap();
    let peer = PeerClient::new(&guard, &found.card, credentials).unwrap();
    // The hub takes silence for 0.3, so an answer in 1.0 was asked for.
    let sent = peer.send(request(hello("m1"))).await.unwrap();
    let attache_a2a_wire::SendMessageResponse::Task(task) = sent.what else { panic!("a task") };
    assert_eq!(peer.interface().version, attache_client::a2a::PeerVersion::V10);
    let read = attache_a2a_wire::GetTask { id: task.id.clone(), ..Default::default() };
    assert_eq!(peer.get(read).await.unwrap().what.id, task.id);
    scene.world.stop().await;
}

#[tokio::test]
async fn ver_client_002_patch_numbers_do_not_matter() {
    let scene = A2aFixture::start(world()).await;
    for version in ["1.0.0", "1.0.1", "1.0.99"] {
        let answer = rpc(&scene, "SendMessage", Some(version), "", new("m1")).await;
        assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{version}: {answer}");
    }
    for version in ["0.3.0", "0.3.7"] {
        let answer = rpc(&scene, "message/send", Some(version), "", old("m2")).await;
        assert_eq!(answer["result"]["kind"], "task", "{version}: {answer}");
    }
    let card = reqwest::get(format!("{}/a2a/{AGENT}/.well-known/agent-card.json?A2A-Version=1.0", scene.world.url));
    let card: Value = serde_json::from_str(&card.await.unwrap().text().await.unwrap()).unwrap();
    for interface in card["supportedInterfaces"].as_array().unwrap() {
        assert!(["1.0", "0.3"].contains(&interface["protocolVersion"].as_str().unwrap()), "{interface}");
    }
    scene.world.stop().await;
}
