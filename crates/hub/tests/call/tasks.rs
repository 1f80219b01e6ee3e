//! The header/task form: it is echoed back, and routes by required capabilities.

use hyper::Method;
use serde_json::{Value, json};

use super::watcher::{call, result, timeless};
use crate::world::World;

async fn create(world: &World, body: Value) -> Value {
    world.owner.post("/api/a2a/v1/tasks", body).await.expect(201)
}

#[tokio::test]
async fn a_task_is_returned_unchanged_with_its_result() {
    let world = World::start().await;
    let body = json!({"agent_id": "laptop", "capabilities": ["file_read", "code_analysis"]});
    world.owner.post("/api/a2a/register", body).await.expect(200);
    world.agent("other").await;
    let header = json!({"message_id": "msg_001", "timestamp": "2026-03-03T10:30:00Z", "more": {"x": 1}});
    let sent = json!({
        "header": header,
        "task": {"description": "analyse", "capabilities_required": ["file_read", "code_analysis"], "future": 1},
        "context": {"files": ["a"]},
        "capabilities": ["streaming"],
        "future": 1,
    });
    let made = create(&world, sent).await;
    let id = made["task"]["id"].as_str().unwrap().to_owned();
    let shown = |status: &str| {
        json!({"header": header, "context": {"files": ["a"]}, "capabilities": ["streaming"],
            "task": {"id": id, "status": status, "description": "analyse",
                "capabilities_required": ["file_read", "code_analysis"]}})
    };
    assert_eq!(made, shown("started"));
    let path = format!("/api/a2a/v1/tasks/{id}");
    assert_eq!(world.owner.get(&path).await.expect(200), shown("started"));
    assert_eq!(result(&world.owner, &id).await["status"], "started", "it is a call like any other");

    let device = world.device("laptop").await;
    let claimed = device.claim().await;
    assert_eq!(
        (&claimed["input"]["text"], &claimed["input"]["context"]),
        (&json!("analyse"), &json!({"files": ["a"]}))
    );
    let run = claimed["task_run_id"].as_str().unwrap();
    let output = json!({"output": {"text": "done"}});
    device.client.post(&format!("/api/v1/task-runs/{run}/complete"), output).await.expect(200);
    let mut ended = shown("completed");
    ended["result"] = json!({"summary": "done", "details": null});
    ended["stats"] = json!({"duration_ms": 0, "tokens": null, "cost": null});
    assert_eq!(timeless(world.owner.get(&path).await.expect(200)), ended);
}

#[tokio::test]
async fn the_other_forms_are_shown_as_tasks_too() {
    let world = World::start().await;
    world.agent("laptop").await;
    let raw = r#"{"task":{"description":"x"},"context":{ "n":1e400,"a":1,"a":2.0},"capabilities":null}"#;
    let client = world.owner.with("content-type", "application/json").with("idempotency-key", "t1");
    let made = client.call(Method::POST, "/api/a2a/v1/tasks", raw).await;
    assert_eq!(made.status, 201);
    let text = String::from_utf8(made.body.to_vec()).unwrap();
    assert!(text.contains(r#""context":{ "n":1e400,"a":1,"a":2.0},"capabilities":null"#), "{text}");
    let again = client.call(Method::POST, "/api/a2a/v1/tasks", raw).await;
    assert_eq!((again.status, &again.body), (200, &made.body), "the same key is the same task");

    let id = call(&world.owner, json!({"task": "y", "context": [1]})).await;
    let shown = world.owner.get(&format!("/api/a2a/v1/tasks/{id}")).await.expect(200);
    let created = world.owner.get(&format!("/api/v1/task-runs/{}", id.replace("a2a-", "run_"))).await.expect(200);
    assert_eq!(
        shown,
        json!({"header": {"message_id": id, "timestamp": created["created_at"]}, "context": [1],
            "task": {"id": id, "status": "started", "description": "y"}})
    );
    let run = world.run("laptop").await;
    let id = run["task_run_id"].as_str().unwrap();
    let shown = world.owner.get(&format!("/api/a2a/v1/tasks/{id}")).await.expect(200);
    assert_eq!(shown["task"]["description"], "hello");
}

#[tokio::test]
async fn a_task_goes_to_the_agent_that_can_do_all_of_it() {
    let world = World::tuned(|options| options.default_agent = Some("both".to_owned())).await;
    for (name, capabilities) in [("files", json!(["read"])), ("both", json!(["read", "run"])), ("more", json!(["run"]))]
    {
        world
            .owner
            .post("/api/a2a/register", json!({"agent_id": name, "capabilities": capabilities}))
            .await
            .expect(200);
    }
    let agent = async |required: Value| {
        let made = create(&world, json!({"task": {"description": "x", "capabilities_required": required}})).await;
        let id = made["task"]["id"].as_str().unwrap().replace("a2a-", "run_");
        world.owner.get(&format!("/api/v1/task-runs/{id}")).await.expect(200)["agent_name"].clone()
    };
    assert_eq!(agent(json!(["read", "run"])).await, "both");
    assert_eq!(agent(json!(["files", "read"])).await, "files", "a name is as good as a capability");
    assert_eq!(agent(json!(["read"])).await, "both", "of several the default one");
    assert_eq!(agent(json!([])).await, "both");
    assert_eq!(agent(json!(null)).await, "both");
    let body = json!({"task": {"description": "x", "capabilities_required": ["read", "fly"]}});
    let reply = world.owner.post("/api/a2a/v1/tasks", body).await;
    assert_eq!(reply.refusal(), (404, "not_found".to_owned()));
    assert!(reply.json()["error"]["hint"].as_str().unwrap().contains("`both` (read, run)"));
}
