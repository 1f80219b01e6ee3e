//! BIND-EQUIV: every binding does the same. What all of them answer and leave in the log is compared in `equivalence`;
//! here is that nothing is missing, that errors are of one kind, and that credentials count everywhere.

use attache_a2a_wire::TaskState;
use attache_protocol::wire::{
    key::{CreateKeyRequest, KeyScope, Role},
    token::TokenRequest,
};
use serde_json::json;

use super::{every_operation, hello};
use crate::{
    obedient::{immediate, request, steps},
    scene::{A2aFixture, world},
    speak::{TestAnswer, TestOperation, every_way},
};

#[tokio::test]
async fn bind_equiv_001_every_binding_has_every_operation() {
    let scene = A2aFixture::start(world()).await;
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        let id = format!("{binding:?}{version:?}");
        let task = client.send(immediate(steps(&id, json!([{"ask": "1"}, {"ask": "2"}, {"ask": "3"}])))).await.id;
        client.until(&task, TaskState::TaskStateInputRequired).await;
        for (name, ask) in every_operation(&task, version) {
            // Nothing has this config, and after the cancellation nothing goes on: these are answers, too.
            let known = ["INVALID_PARAMS", "TASK_NOT_FOUND", "UNSUPPORTED_OPERATION"];
            match client.ask(ask).await {
                Ok(TestAnswer::Once(_)) => {}
                Ok(TestAnswer::Stream(mut incoming)) => {
                    drop(incoming.next().await.expect("a stream begins with a task"));
                }
                Err(refusal) => assert!(
                    known.contains(&refusal.reason.as_str()),
                    "{name} over {binding:?} {version:?}: {refusal:?}"
                ),
            }
        }
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn bind_equiv_002_one_task_is_the_same_on_every_binding() {
    let scene = A2aFixture::start(world().on_sqlite()).await;
    let told = json!([{"chunk": "one "}, {"artifact": {"artifact_id": "a", "parts": [{"data": {"n": 9.50}}]}},
        {"output": {"text": "one two", "details": {"k": "v"}}}]);
    let task = scene.owner().send(request(steps("m1", told))).await;
    for (binding, version) in every_way() {
        let mut seen = scene.client(binding, version).get(&task.id).await;
        // 0.3 has no media type on data.
        for part in seen.artifacts.iter_mut().flatten().flat_map(|artifact| &mut artifact.parts) {
            if matches!(part.content, attache_a2a_wire::PartContent::Data(_)) {
                part.media_type = None;
            }
        }
        let mut wanted = task.clone();
        for part in wanted.artifacts.iter_mut().flatten().flat_map(|artifact| &mut artifact.parts) {
            if matches!(part.content, attache_a2a_wire::PartContent::Data(_)) {
                part.media_type = None;
            }
        }
        assert_eq!(seen, wanted, "{binding:?} {version:?}");
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn bind_equiv_003_errors_say_the_same_on_every_binding() {
    let scene = A2aFixture::start(world()).await;
    let done = scene.owner().send(request(hello("m1"))).await.id;
    let asks = || {
        [
            TestOperation::get("none"),
            TestOperation::cancel(&done),
            TestOperation::subscribe(&done),
            TestOperation::get_push(&done, "none"),
            TestOperation::Send(request(hello(""))),
        ]
    };
    let mut first = None;
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        let mut said = Vec::new();
        for ask in asks() {
            said.push(client.refused(ask).await.says());
        }
        assert_eq!(*first.get_or_insert_with(|| said.clone()), said, "{binding:?} {version:?}");
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn bind_equiv_004_every_credential_counts_on_every_binding() {
    let scene = A2aFixture::start(world()).await;
    let hub = &scene.world.hub;
    let key = CreateKeyRequest {
        name: "caller".to_owned(),
        role: Some(Role::Operator),
        scopes: Some(vec![KeyScope::Read, KeyScope::Call]),
        ..CreateKeyRequest::default()
    };
    let key = hub.create_key(&scene.world.owner, key).await.unwrap().api_key;
    let token = hub.create_token(&scene.world.owner, TokenRequest::default()).await.unwrap().token;
    for (binding, version) in every_way() {
        for credential in [scene.world.owner_key.expose(), key.as_ref().unwrap(), &token] {
            let client = scene.stranger(binding, version).key(credential);
            let task = client.send(request(hello(&format!("{binding:?}{version:?}")))).await;
            assert_eq!(task.status.state, TaskState::TaskStateCompleted);
        }
        let apart = scene.stranger(binding, version).with("x-api-key", scene.world.owner_key.expose().clone());
        assert_eq!(
            apart.refused(TestOperation::Card).await.reason,
            "UNAUTHENTICATED",
            "no card says that this header counts"
        );
    }
    scene.world.stop().await;
}
