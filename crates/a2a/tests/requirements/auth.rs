//! AUTH-SERVER: every request is authenticated, and servers by their certificates.

use std::time::Duration;

use attache_protocol::wire::{
    key::{CreateKeyRequest, Role},
    token::TokenRequest,
};
use serde_json::json;
use tonic::Code;

use super::{every_operation, hello};
use crate::{
    obedient::request,
    scene::{A2aFixture, world},
    speak::{RefusalForm, TestBinding, TestClient, every_way},
};

/// As which a caller without a good credential is refused.
fn unauthenticated(binding: TestBinding) -> RefusalForm {
    match binding {
        TestBinding::Rpc => RefusalForm::Rpc { http: 401, code: -32600 },
        TestBinding::Rest => RefusalForm::Rest { http: 401, code: 401, status: "UNAUTHENTICATED".to_owned() },
        TestBinding::Grpc => RefusalForm::Grpc(Code::Unauthenticated),
    }
}

async fn is_refused(client: &TestClient, task: &str, why: &str) {
    for (name, ask) in every_operation(task, client.version) {
        let refusal = client.refused(ask).await;
        let who = format!("{name} over {:?} {:?}, {why}", client.binding, client.version);
        assert_eq!(refusal.form, unauthenticated(client.binding), "{who}");
        assert_eq!(refusal.reason, "UNAUTHENTICATED", "{who}");
        let challenge = (client.binding != TestBinding::Grpc).then_some("Bearer");
        assert_eq!(refusal.challenge.as_deref(), challenge, "{who}");
    }
}

#[tokio::test]
async fn auth_server_002_every_request_is_authenticated() {
    let scene = A2aFixture::start(world().on_sqlite().tuned(|options| {
        options.credential_ttl = Duration::ZERO;
        options.failures_per_minute = u32::MAX;
        options.anonymous_per_minute = u32::MAX;
    }))
    .await;
    let hub = &scene.world.hub;
    let task = scene.owner().send(request(hello("m1"))).await.id;

    let key = |name: &str| CreateKeyRequest {
        name: name.to_owned(),
        role: Some(Role::Operator),
        ..CreateKeyRequest::default()
    };
    let revoked = hub.create_key(&scene.world.owner, key("revoked")).await.unwrap();
    hub.revoke_key(&scene.world.owner, revoked.key.key_id).await.unwrap();
    let revoked = revoked.api_key;
    let expires_at = Some(hub.now().plus(Duration::from_millis(50)));
    let expired = hub.create_key(&scene.world.owner, CreateKeyRequest { expires_at, ..key("expired") }).await.unwrap();
    let expired = expired.api_key;
    while Some(hub.now()) <= expires_at {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let token = hub.create_token(&scene.world.owner, TokenRequest::default()).await.unwrap().token;
    let forged = format!("{}x", &token[..token.len() - 1]);
    for (binding, version) in every_way() {
        let nobody = scene.stranger(binding, version);
        is_refused(&nobody, &task, "without a credential").await;
        is_refused(&nobody.clone().key("ak_wrong"), &task, "with a wrong key").await;
        is_refused(&nobody.clone().key(revoked.as_deref().unwrap()), &task, "with a revoked key").await;
        is_refused(&nobody.clone().key(expired.as_deref().unwrap()), &task, "with an expired key").await;
        is_refused(&nobody.clone().key(&forged), &task, "with a forged token").await;
        is_refused(&nobody.clone().with("authorization", "Basic b3duZXI6"), &task, "with another scheme").await;
        assert_eq!(nobody.key(&token).get(&task).await.id, task, "a token of the hub is good");
    }
    // Where everybody is served a wrong credential is still wrong.
    scene.switch(json!({"anonymous": true})).await;
    for (binding, version) in every_way() {
        is_refused(&scene.stranger(binding, version).key("ak_wrong"), &task, "at an open agent").await;
        let own = scene.stranger(binding, version).send(request(hello("open"))).await;
        assert_ne!(own.id, task);
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn auth_server_001_clients_check_the_servers_certificate() {
    use attache_hub::{Certificate, Tls};
    use attache_protocol::env::Env;
    let world = world()
        .tuned(|options| {
            let certificate = Certificate::SelfSigned { names: vec!["127.0.0.1".to_owned()] };
            options.tls = Some(Tls::open(&options.data, certificate, &Env::system()).unwrap());
        })
        .start()
        .await;
    let refused = reqwest::Client::new().get(format!("https://{}/healthz", world.address)).send().await;
    let error = refused.expect_err("nobody vouches for this certificate");
    assert!(error.is_connect(), "{error:?}");
    world.stop().await;
}
