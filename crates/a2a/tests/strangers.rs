//! Callers without a credential: what they may send, to whom, and how much of it.

use attache_a2a_wire::grpc::v1;
use attache_protocol::{Json, wire::account::AccountRequest};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    obedient::{immediate, steps},
    scene::{A2aFixture, AGENT, world},
    speak::{RefusalForm, TestBinding, TestClient, TestVersion, grpc},
};

/// Sends a text of so many bytes over JSON-RPC, without a credential.
async fn say(scene: &A2aFixture, agent: &str, id: &str, bytes: usize) -> (u16, Value) {
    let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "x".repeat(bytes)}]});
    send(scene, agent, message).await
}

async fn send(scene: &A2aFixture, agent: &str, message: Value) -> (u16, Value) {
    let immediate = json!({"message": message, "configuration": {"returnImmediately": true}});
    request(scene, agent, "SendMessage", immediate).await
}

async fn request(scene: &A2aFixture, agent: &str, method: &str, params: Value) -> (u16, Value) {
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let sent = crate::speak::http().post(format!("{}/a2a/{agent}", scene.world.url));
    let sent = sent.header("A2A-Version", "1.0").header("content-type", "application/json");
    let answer = sent.body(request.to_string()).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap())
}

#[tokio::test]
async fn a_long_message_is_read_where_strangers_are_served_and_nowhere_else() {
    let scene = A2aFixture::start(world()).await;
    for agent in [AGENT, "nobody"] {
        let (status, answer) = say(&scene, agent, "m1", 500_000).await;
        assert_eq!((status, &answer["id"]), (401, &json!(null)), "{answer}");
        let (status, answer) = say(&scene, agent, "m1", 500).await;
        assert_eq!((status, &answer["id"]), (401, &json!(7)), "{answer}");
    }
    scene.switch(json!({"anonymous": true})).await;
    let (status, answer) = say(&scene, AGENT, "m2", 500_000).await;
    assert!(status == 200 && answer["result"].is_object(), "{answer}");
    let (status, answer) = say(&scene, AGENT, "m3", 1_200_000).await;
    assert!(status == 413 && answer["error"]["message"].as_str().unwrap().contains("credential"), "{answer}");
    scene.world.stop().await;
}

#[tokio::test]
async fn strangers_fill_neither_the_disk_nor_the_queue() {
    let scene = A2aFixture::start(world().tuned(|options| options.anonymous_bytes_per_hour = 500_000)).await;
    scene.switch(json!({"anonymous": true})).await;
    let mut taken = 0;
    for number in 0..5 {
        let (status, answer) = say(&scene, AGENT, &format!("m{number}"), 100_000).await;
        match status {
            200 => taken += 1,
            _ => assert_eq!(status, 429, "{answer}"),
        }
    }
    assert_eq!(taken, 2);
    // Whoever is known is not meant.
    scene.owner().send(immediate(steps("known", json!([])))).await;
    scene.world.stop().await;

    let scene = A2aFixture::start(world().tuned(|options| options.anonymous_queue = 0)).await;
    scene.switch(json!({"anonymous": true})).await;
    let (status, answer) = say(&scene, AGENT, "m1", 10).await;
    assert!(
        status == 429
            && answer["error"]["message"].as_str().unwrap().contains("queue for callers without a credential is full"),
        "{answer}"
    );
    scene.world.stop().await;
}

#[tokio::test]
async fn a_refused_stream_leaves_no_run() {
    let scene = A2aFixture::start(world().tuned(|options| options.max_streams = 0)).await;
    scene.switch(json!({"anonymous": true})).await;
    for (id, method) in [("m1", "SendStreamingMessage"), ("m2", "SendMessage")] {
        let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "x"}]});
        let (_, answer) = request(&scene, AGENT, method, json!({"message": message})).await;
        assert!(answer["error"]["message"].as_str().unwrap().contains("open streams"), "{answer}");
    }
    let listed = scene.world.hub.runs(&scene.world.owner, attache_hub::control::RunQuery::default()).await.unwrap();
    assert!(listed.task_runs.is_empty(), "{listed:?}");
    scene.world.stop().await;
}

/// All strangers are one caller, but what they tell one agent is not in a conversation of another.
#[tokio::test]
async fn a_context_of_strangers_belongs_to_one_agent() {
    let scene = A2aFixture::start(world()).await;
    scene.switch(json!({"anonymous": true})).await;
    let (hub, owner) = (&scene.world.hub, &scene.world.owner);
    let a2a = Some(Json::from_text(r#"{"anonymous":true}"#).unwrap());
    let other = AccountRequest { name: Some("other".to_owned()), a2a, ..AccountRequest::default() };
    hub.create_account(owner, other).await.unwrap();
    let mut contexts = Vec::new();
    for (agent, id) in [(AGENT, "m1"), (AGENT, "m2"), ("other", "m3")] {
        let message = json!({"messageId": id, "role": "ROLE_USER", "contextId": "support", "parts": [{"text": "x"}]});
        let (status, answer) = send(&scene, agent, message).await;
        assert_eq!(status, 200, "{answer}");
        let task = answer["result"]["task"]["id"].as_str().unwrap().to_owned();
        let run = hub.run(owner, task.parse().unwrap()).await.unwrap();
        contexts.push(run.conversation_id);
    }
    assert_eq!(contexts[0], contexts[1]);
    assert_ne!(contexts[0], contexts[2]);
    scene.world.stop().await;
}

/// The answer to a message of so many empty parts over gRPC, each of which is two bytes and takes hundreds in memory.
async fn flood(client: &TestClient, parts: usize) -> (Code, String) {
    let message = v1::Message {
        message_id: "m".to_owned(),
        role: v1::Role::User.into(),
        parts: vec![v1::Part::default(); parts],
        ..v1::Message::default()
    };
    let request = v1::SendMessageRequest {
        tenant: AGENT.to_owned(),
        message: Some(message),
        ..v1::SendMessageRequest::default()
    };
    let refusal = grpc::send_as_it_is(client, request).await.unwrap_err();
    let RefusalForm::Grpc(code) = refusal.form else { panic!("{refusal:?}") };
    (code, refusal.message)
}

#[tokio::test]
async fn what_takes_much_memory_is_refused_before_it_is_decoded() {
    let scene = A2aFixture::start(world().tuned(|options| options.max_unauthenticated_bytes = 4 << 20)).await;
    scene.switch(json!({"anonymous": true})).await;
    let stranger = scene.stranger(TestBinding::Grpc, TestVersion::V10);
    let owner = scene.client(TestBinding::Grpc, TestVersion::V10);
    let too_large = |limit: &str| {
        let text = format!(
            "The message takes more than {limit} when it is read. Send fewer parts or values, or a file as a `url`."
        );
        (Code::ResourceExhausted, text)
    };
    assert_eq!(flood(&stranger, 40_000).await, too_large("8 MiB"));
    assert_eq!(flood(&owner, 200_000).await, too_large("64 MiB"));
    // It is in the budget that all of them share.
    let (code, text) = flood(&stranger, 7_000).await;
    assert!(code == Code::ResourceExhausted && text.contains("busy with requests from callers"), "{code:?} {text}");
    // What is not decoded is given back, and what is small enough is read as ever.
    for _ in 0..3 {
        let (code, text) = flood(&stranger, 3_000).await;
        assert!(code == Code::InvalidArgument && text.contains("must have one of text, raw, url and data"), "{text}");
    }
    let (code, text) = flood(&owner, 7_000).await;
    assert!(code == Code::InvalidArgument && text.contains("must have one of text, raw, url and data"), "{text}");
    scene.world.stop().await;
}
