//! AUTH-SCOPE: every operation is about the caller's own tasks, and what is not theirs is not there.

use attache_a2a_wire::{ListTasks, TaskList, TaskState};
use attache_protocol::wire::key::Role;
use serde_json::json;

use super::{every_operation, hello};
use crate::{
    obedient::{immediate, request, steps},
    scene::{A2aFixture, AGENT, world},
    speak::{TestBinding, TestClient, TestOperation, TestVersion, every_way},
};

const NOBODYS: &str = "run_0193f6a1b2c37d4e8f90a1b2c3d4e5f6";

/// The operations that name a task.
fn about_the_task(task: &str, version: TestVersion) -> Vec<(&'static str, TestOperation)> {
    every_operation(task, version)
        .into_iter()
        .filter(|(name, _)| !matches!(*name, "send" | "stream" | "card" | "list"))
        .collect()
}

/// Somebody else's task and nobody's are refused with the same bytes, but for the id itself.
async fn sees_nothing(client: &TestClient, task: &str, who: &str) {
    let theirs = about_the_task(task, client.version);
    let nobodys = about_the_task(NOBODYS, client.version);
    for ((name, theirs), (_, nobodys)) in theirs.into_iter().zip(nobodys) {
        let (theirs, nobodys) = (client.refused(theirs).await, client.refused(nobodys).await);
        let who = format!("{name} of {who} over {:?} {:?}", client.binding, client.version);
        // Without a credential nobody learns of webhooks at all.
        let is_stranger = client.headers.is_empty() && name.contains("push");
        let reason = if is_stranger { "UNAUTHENTICATED" } else { "TASK_NOT_FOUND" };
        assert_eq!(nobodys.reason, reason, "{who}");
        let plain = |text: String, id: &str| text.replace(id, "ID");
        let (theirs, nobodys) = (plain(format!("{theirs:?}"), task), plain(format!("{nobodys:?}"), NOBODYS));
        assert_eq!(theirs, nobodys, "{who}");
    }
}

struct OtherCallers {
    person: String,
    admin: String,
    agent: String,
}

/// A scene with a task of the owner's that goes on, and other callers.
async fn scene() -> (A2aFixture, String, OtherCallers) {
    let scene = A2aFixture::start(world().on_sqlite().agent("caller")).await;
    let task = scene.owner().send(immediate(steps("m1", json!([{"ask": "?"}])))).await.id;
    scene.owner().until(&task, TaskState::TaskStateInputRequired).await;
    let person = scene.person("other", Role::Operator).await;
    let admin = scene.person("boss", Role::Admin).await;
    let body = json!({"agent_id": "helper"}).to_string();
    let registered = reqwest::Client::new()
        .post(format!("{}/api/a2a/register", scene.world.url))
        .header("authorization", format!("Bearer {}", scene.world.owner_key.expose()))
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await
        .unwrap();
    let registered: serde_json::Value = serde_json::from_str(&registered.text().await.unwrap()).unwrap();
    let agent = registered["api_key"].as_str().unwrap_or_else(|| panic!("{registered}")).to_owned();
    (scene, task, OtherCallers { person, admin, agent })
}

#[tokio::test]
async fn auth_scope_001_every_operation_is_authorised() {
    let (scene, task, others) = scene().await;
    let viewer = scene.person("reader", Role::Viewer).await;
    for (binding, version) in every_way() {
        // Somebody who may only look starts nothing and ends nothing.
        let client = scene.stranger(binding, version).key(&viewer);
        for (name, ask) in every_operation(&task, version) {
            if matches!(name, "send" | "stream") {
                assert_eq!(client.refused(ask).await.reason, "FORBIDDEN", "{name} {binding:?} {version:?}");
            }
        }
        sees_nothing(&client, &task, "the owner, by a viewer").await;
        sees_nothing(&scene.stranger(binding, version).key(&others.person), &task, "the owner, by a person").await;
    }
    let found = scene.world.hub.run(&scene.world.owner, task.parse().unwrap()).await.unwrap();
    assert!(!found.status.is_terminal(), "nobody else ended it");
    scene.world.stop().await;
}

#[tokio::test]
async fn auth_scope_002_results_are_the_callers_own() {
    let (scene, task, others) = scene().await;
    for binding in [TestBinding::Rpc, TestBinding::Rest, TestBinding::Grpc] {
        for (name, key) in [("person", &others.person), ("admin", &others.admin), ("agent", &others.agent)] {
            let client = scene.stranger(binding, TestVersion::V10).key(key);
            let own = client.send(request(hello(&format!("{binding:?}")))).await;
            let found: TaskList =
                client.once(TestOperation::List(ListTasks::default())).await.unwrap().parse().unwrap();
            let ids: Vec<&String> = found.tasks.iter().map(|task| &task.id).collect();
            assert!(ids.contains(&&own.id) && !ids.contains(&&task), "{name} sees {ids:?}");
            assert_eq!(usize::try_from(found.total_size).unwrap(), ids.len(), "{name}");
            let of_owner = scene.client(binding, TestVersion::V10);
            let found: TaskList =
                of_owner.once(TestOperation::List(ListTasks::default())).await.unwrap().parse().unwrap();
            // What an agent asks for, it asks for its owner.
            assert_eq!(found.tasks.iter().any(|found| found.id == own.id), name == "agent", "{name}");
            // The same name of a context is another context to another caller.
            let named = |id: &str| attache_a2a_wire::Message { context_id: Some("shared".to_owned()), ..hello(id) };
            let one = client.send(request(named("c1"))).await;
            let other = of_owner.send(request(named("c1"))).await;
            assert_ne!(one.id, other.id, "a message's id is its sender's own");
            let run = |id: &str| scene.world.hub.run(&scene.world.owner, id.parse().unwrap());
            let (one, other) = (run(&one.id).await.unwrap(), run(&other.id).await.unwrap());
            assert_ne!(one.conversation_id, other.conversation_id, "{name}");
        }
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn auth_scope_003_what_is_not_theirs_is_not_there() {
    let (scene, task, others) = scene().await;
    scene.switch(json!({"anonymous": true})).await;
    for (binding, version) in every_way() {
        let stranger = scene.stranger(binding, version);
        sees_nothing(&stranger.clone().key(&others.person), &task, "another person").await;
        sees_nothing(&stranger.clone().key(&others.admin), &task, "an admin").await;
        sees_nothing(&stranger.clone().key(&others.agent), &task, "an agent").await;
        sees_nothing(&stranger, &task, "nobody in particular").await;
        // The owner itself does not see it as another agent's task.
        let elsewhere = TestClient { agent: "caller".to_owned(), ..scene.client(binding, version) };
        sees_nothing(&elsewhere, &task, "another agent").await;
        assert_eq!(scene.client(binding, version).get(&task).await.id, task);
        // Whoever may not know an agent is told the same as of one that is not there.
        if version == TestVersion::V10 || binding != TestBinding::Rest {
            let missing = TestClient { agent: "missing".to_owned(), ..stranger.clone() };
            let closed = TestClient { agent: "caller".to_owned(), ..stranger };
            let (missing, closed) =
                (missing.refused(TestOperation::get(&task)).await, closed.refused(TestOperation::get(&task)).await);
            assert_eq!(missing, closed, "{binding:?} {version:?}: {AGENT} is open, others are not shown");
        }
    }
    scene.world.stop().await;
}
