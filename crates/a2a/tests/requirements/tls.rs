//! AUTH-TLS and GRPC-SVC-003: the port speaks TLS and nothing else, of a modern kind, gRPC included.

use attache_a2a_wire::{
    SendMessage, SendMessageResponse,
    grpc::v1::{SendMessageRequest, SendMessageResponse as Answer},
};
use attache_hub::{Certificate, Options, Tls};
use attache_protocol::env::Env;
use prost::Message as _;
use reqwest::{Client, ClientBuilder, tls};
use serde_json::{Value, json};

use super::hello;
use crate::{
    obedient::request,
    scene::{A2aFixture, AGENT, world},
};

fn tune(options: &mut Options) {
    let certificate = Certificate::SelfSigned { names: vec!["127.0.0.1".to_owned()] };
    options.tls = Some(Tls::open(&options.data, certificate, &Env::system()).unwrap());
}

/// A client that believes everybody: whom clients believe is tested elsewhere.
fn client() -> ClientBuilder {
    Client::builder().tls_danger_accept_invalid_certs(true)
}

async fn send(scene: &A2aFixture, client: Client, scheme: &str) -> reqwest::Result<Value> {
    let url = format!("{scheme}://{}/a2a/{AGENT}/message:send", scene.world.address);
    let body = json!({"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}});
    let response = client
        .post(url)
        .header("authorization", format!("Bearer {}", scene.world.owner_key.expose()))
        .header("a2a-version", "1.0")
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await?;
    Ok(serde_json::from_str(&response.text().await?).unwrap())
}

#[tokio::test]
async fn auth_tls_001_nothing_is_answered_in_clear() {
    let scene = A2aFixture::start(world().tuned(tune)).await;
    let answer = send(&scene, client().build().unwrap(), "https").await.unwrap();
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
    let refused = send(&scene, Client::new(), "http").await.unwrap();
    let why = "This port uses TLS, but the request was plain HTTP.";
    assert_eq!((refused.get("task"), &refused["error"]["message"]), (None, &json!(why)));
    let card = format!("https://{}/a2a/{AGENT}/.well-known/agent-card.json?A2A-Version=1.0", scene.world.address);
    let card = client().build().unwrap().get(card).send().await.unwrap().text().await.unwrap();
    let card: Value = serde_json::from_str(&card).unwrap();
    for interface in card["supportedInterfaces"].as_array().unwrap() {
        let url = interface["url"].as_str().unwrap();
        assert!(url.starts_with("https://") || interface["protocolBinding"] == "GRPC", "{interface}");
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn auth_tls_002_only_modern_versions_are_spoken() {
    let scene = A2aFixture::start(world().tuned(tune)).await;
    for version in [tls::Version::TLS_1_3, tls::Version::TLS_1_2] {
        let client = client().tls_version_min(version).tls_version_max(version).build().unwrap();
        send(&scene, client, "https").await.unwrap();
    }
    for version in [tls::Version::TLS_1_0, tls::Version::TLS_1_1] {
        let sent = match client().tls_version_min(version).tls_version_max(version).build() {
            Ok(client) => send(&scene, client, "https").await.is_ok(),
            // Our own library does not even offer it.
            Err(_) => false,
        };
        assert!(!sent, "{version:?}");
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn grpc_svc_003_grpc_is_http_2_over_tls() {
    let scene = A2aFixture::start(world().tuned(tune)).await;
    let message = SendMessage { tenant: Some(AGENT.to_owned()), ..request(hello("m1")) };
    let message = SendMessageRequest::from(message).encode_to_vec();
    // One frame: not compressed, its length, the message.
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let frame = [&[0][..], &length, &message].concat();
    let response = client()
        .build()
        .unwrap()
        .post(format!("https://{}/lf.a2a.v1.A2AService/SendMessage", scene.world.address))
        .header("authorization", format!("Bearer {}", scene.world.owner_key.expose()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(frame)
        .send()
        .await
        .unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2, "agreed upon in the handshake");
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let body = response.bytes().await.unwrap();
    let answer = SendMessageResponse::try_from(Answer::decode(&body[5..]).unwrap()).unwrap();
    let SendMessageResponse::Task(task) = answer else { panic!("{answer:?}") };
    assert_eq!(task.history.unwrap()[0].message_id, "m1");
    scene.world.stop().await;
}
