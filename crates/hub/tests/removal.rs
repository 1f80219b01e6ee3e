//! Removal by people and by age: with everything that belongs to it, and nothing else.

use std::{path::Path, time::Duration};

use attache_protocol::digest::unhex;
use hyper::Method;
use serde_json::{Value, json};

use crate::world::{Engine, TestDevice, World, on_all};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

on_all! {
    an_ended_run_is_deleted_with_its_artifacts
    a_conversation_is_deleted_with_its_runs
    operators_can_delete_only_their_own
    retention_removes_only_what_has_ended
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

/// An ended run with one artifact of this content.
async fn ended(world: &World, device: &TestDevice, request: Value, content: &'static str) -> (String, String) {
    let run = world.owner.post("/api/v1/task-runs", request).await.expect(201);
    device.claim().await;
    let path = format!("/api/v1/workspaces/{}/artifacts/a.txt", text(&run, "workspace_id"));
    let artifact = device.client.call(Method::PUT, &path, content).await.expect(201);
    let run = text(&run, "task_run_id").to_owned();
    let done = json!({"output": {"text": "done", "artifact_refs": [artifact["artifact_id"]]}});
    device.client.post(&format!("/api/v1/task-runs/{run}/complete"), done).await.expect(200);
    (run, text(&artifact, "artifact_id").to_owned())
}

/// How many blob files there are.
fn files(world: &World) -> usize {
    fn below(folder: &Path) -> usize {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let entries = entries.filter(|path| !path.ends_with(".attache-cluster") && !path.ends_with(".attache-hub"));
        entries.map(|path| if path.is_dir() { below(&path) } else { 1 }).sum()
    }
    below(&world.blobs())
}

/// The complete log, which must be an unbroken chain.
async fn intact_log(world: &World) -> usize {
    let tenant = world.store.ensure_tenant(world.env.tenant_id(), "home", world.env.now()).await.unwrap();
    let page = world.store.log(tenant, 0, 100_000).await.unwrap();
    let mut hash = page.floor_hash;
    for row in &page.rows {
        assert!(row.follows(&hash), "row {} does not follow", row.seq);
        hash = unhex(&row.hash).unwrap();
    }
    assert_eq!(hash, page.head_hash);
    page.rows.len()
}

async fn an_ended_run_is_deleted_with_its_artifacts(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let agent = world.agent("builder").await;
    let device = world.device("builder").await;
    let request = json!({"agent_id": "builder", "input": {"text": "x"}, "idempotency_key": "one"});
    let (first, gone) = ended(&world, &device, request.clone(), "same").await;
    let (second, kept) = ended(&world, &device, json!({"agent_id": "builder"}), "same").await;
    let child = json!({"agent_id": "builder", "parent_task_run_id": first});
    let child = text(&world.owner.post("/api/v1/task-runs", child).await.expect(201), "task_run_id").to_owned();

    let path = |run: &str| format!("/api/v1/task-runs/{run}");
    let live = world.owner.delete(&path(&child)).await;
    assert_eq!(live.refusal(), (409, "in_use".to_owned()), "it waits for a device");
    let parent = world.owner.delete(&path(&first)).await;
    assert_eq!(parent.refusal(), (409, "in_use".to_owned()), "a run that it started has not ended");
    world.owner.post(&format!("{}/cancel", path(&child)), json!({})).await.expect(200);

    assert_eq!(world.owner.delete(&path(&first)).await.status, 204);
    let answer = world.owner.get(&path(&first)).await;
    assert_eq!(answer.refusal(), (404, "not_found".to_owned()));
    assert!(text(&answer.json()["error"], "hint").contains("after the retention period"), "{}", answer.json());
    assert_eq!(world.owner.get(&format!("{}/events", path(&first))).await.status, 404);
    assert_eq!(world.owner.delete(&path(&first)).await.status, 404);
    assert_eq!(world.owner.get(&format!("/api/v1/artifacts/{gone}")).await.status, 404);
    assert_eq!(world.owner.get(&path(&child)).await.expect(200)["parent_task_run_id"], Value::Null);
    // Another artifact has the same content.
    let read = world.owner.get(&format!("/api/v1/artifacts/{kept}")).await;
    assert_eq!((files(&world), read.body.as_ref()), (1, &b"same"[..]));

    let [(actor, deleted)] = world.audit("task.deleted").await.try_into().unwrap();
    assert!(actor.starts_with("key:"), "{actor}");
    assert_eq!(deleted, json!({"task_run_id": first, "agent_id": agent}));
    // The idempotency key is not free again, since the work would be done twice.
    let again = world.owner.post("/api/v1/task-runs", request).await;
    assert_eq!(again.refusal(), (409, "idempotency_key_reused".to_owned()));

    assert_eq!(world.owner.delete(&path(&second)).await.status, 204);
    assert_eq!(files(&world), 0);
    let usage = world.owner.get("/api/v1/usage").await.expect(200);
    assert!(usage.to_string().contains("\"calls\":3"), "what was used stays: {usage}");
    // The store may reuse the newest run's row number. The next run is still listed under its agent.
    world.owner.delete(&path(&child)).await;
    let next = text(&world.run("builder").await, "task_run_id").to_owned();
    let listed = world.until("/api/v1/task-runs?agent_id=builder", |list| list["task_runs"][0].is_object()).await;
    assert_eq!(listed["task_runs"][0]["task_run_id"], next);
    intact_log(&world).await;
}

async fn a_conversation_is_deleted_with_its_runs(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let conversation = world.owner.post("/api/v1/conversations", json!({"title": "x"})).await.expect(201);
    let conversation = text(&conversation, "conversation_id").to_owned();
    let within = json!({"agent_id": "builder", "conversation_id": conversation});
    let (run, artifact) = ended(&world, &device, within.clone(), "of the conversation").await;
    let messages = format!("/api/v1/conversations/{conversation}/messages");
    world.owner.post(&messages, json!({"text": "hi"})).await.expect(201);
    let (other, _) = ended(&world, &device, json!({"agent_id": "builder"}), "of another").await;
    let live = text(&world.owner.post("/api/v1/task-runs", within).await.expect(201), "task_run_id").to_owned();

    let path = format!("/api/v1/conversations/{conversation}");
    assert_eq!(world.owner.delete(&path).await.refusal(), (409, "in_use".to_owned()));
    world.owner.get(&format!("/api/v1/task-runs/{run}")).await.expect(200);
    world.owner.post(&format!("/api/v1/task-runs/{live}/cancel"), json!({})).await.expect(200);
    assert_eq!(world.owner.delete(&path).await.status, 204);
    for gone in [
        path.clone(),
        format!("{path}/messages"),
        format!("/api/v1/task-runs/{run}"),
        format!("/api/v1/task-runs/{live}"),
        format!("/api/v1/artifacts/{artifact}"),
    ] {
        assert_eq!(world.owner.get(&gone).await.status, 404, "{gone}");
    }
    world.owner.get(&format!("/api/v1/task-runs/{other}")).await.expect(200);
    assert_eq!(files(&world), 1);
    assert_eq!(world.audit("conversation.deleted").await.len(), 1);
    assert_eq!(world.audit("task.deleted").await.len(), 2);
    intact_log(&world).await;
}

async fn operators_can_delete_only_their_own(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let (run, _) = ended(&world, &device, json!({"agent_id": "builder"}), "x").await;
    let path = format!("/api/v1/task-runs/{run}");
    world.owner.post("/api/v1/users", json!({"name": "ada", "role": "operator"})).await.expect(201);
    let key = json!({"name": "ada", "role": "operator", "user": "ada"});
    let key = world.owner.post("/api/v1/api-keys", key).await.expect(201);
    let ada = world.anonymous().key(text(&key, "api_key"));
    assert_eq!(ada.delete(&path).await.status, 403);
    assert_eq!(world.key("viewer").await.delete(&path).await.status, 403);
    assert_eq!(device.client.delete(&path).await.status, 403);
    assert_eq!(world.anonymous().delete(&path).await.status, 401);
    let own = ada.post("/api/v1/task-runs", json!({"agent_id": "builder"})).await.expect(201);
    let own = format!("/api/v1/task-runs/{}", text(&own, "task_run_id"));
    ada.post(&format!("{own}/cancel"), json!({})).await.expect(200);
    assert_eq!(ada.delete(&own).await.status, 204);
    assert_eq!(world.owner.delete(&path).await.status, 204);
}

async fn retention_removes_only_what_has_ended(engine: Engine) {
    let world = World::timed(engine, |options| {
        options.retain_every = Duration::ZERO;
        options.clock_step = 1000 * DAY;
        options.queue_ttl = 30 * DAY;
    })
    .await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let conversation = world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    let conversation = text(&conversation, "conversation_id").to_owned();
    let contents = ["one", "two", "two", "three"];
    let mut runs = Vec::new();
    for content in contents {
        let within = json!({"agent_id": "builder", "conversation_id": conversation});
        runs.push(ended(&world, &device, within, content).await.0);
        runs.push(ended(&world, &device, json!({"agent_id": "builder"}), content).await.0);
    }
    let messages = format!("/api/v1/conversations/{conversation}/messages");
    world.owner.post(&messages, json!({"text": "hi"})).await.expect(201);
    let key = world.owner.post("/api/v1/api-keys", json!({"name": "old", "role": "viewer"})).await.expect(201);
    world.owner.delete(&format!("/api/v1/api-keys/{}", text(&key["key"], "key_id"))).await.expect(200);
    assert_eq!(files(&world), 3);

    let count =
        async |path: &str, member: &str| world.owner.get(path).await.expect(200)[member].as_array().unwrap().len();
    world.advance(89 * DAY);
    let late = ended(&world, &device, json!({"agent_id": "builder"}), "two").await.0;
    // Records newer than the last sweep are still there.
    let swept = world.env.now().minus(Duration::from_secs(60));
    while world.store.clock().await.unwrap().is_none_or(|clock| clock < swept) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(count("/api/v1/task-runs", "task_runs").await, 9);

    world.advance(2 * DAY);
    let left = world.until("/api/v1/task-runs", |list| list["task_runs"].as_array().unwrap().len() == 1).await;
    assert_eq!(left["task_runs"][0]["task_run_id"], late, "one that has ended later stays");
    while files(&world) > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(world.owner.get(&format!("/api/v1/task-runs/{}", runs[0])).await.status, 404);
    // The key stays 90 days after its end too. Messages and the conversation stay for a year.
    world.until("/api/v1/api-keys", |list| !list.to_string().contains("\"old\"")).await;
    assert_eq!(count(&messages, "messages").await, 1);
    world.advance(365 * DAY);
    world.until("/api/v1/conversations", |list| list["conversations"].as_array().unwrap().is_empty()).await;
    world.until("/api/v1/task-runs", |list| list["task_runs"].as_array().unwrap().is_empty()).await;
    while files(&world) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let rows = world.audit("data.removed").await;
    let runs = rows.iter().filter(|(_, data)| data["class"] == "runs");
    assert_eq!(runs.map(|(_, data)| data["count"].as_i64().unwrap()).sum::<i64>(), 9);
    intact_log(&world).await;
}

/// What is newer than what the database knows may be in a newer one, of which this is a backup.
#[tokio::test]
async fn an_old_unreferenced_file_is_removed_at_the_next_start() {
    let world = World::timed(Engine::Sqlite, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    ended(&world, &device, json!({"agent_id": "builder"}), "known").await;
    // Until its first sweep, a hub knows nothing.
    while world.store.clock().await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let write = |name: &str, age: Duration| {
        let hash = blake3::hash(name.as_bytes()).to_hex();
        let file = world.blobs().join(&hash[..2]).join(&hash[2..]);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, name).unwrap();
        let at = u64::try_from(world.env.now().minus(age).millis()).unwrap();
        let at = std::time::UNIX_EPOCH + Duration::from_millis(at);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
        file
    };
    let (known, old, new) = (write("known", 2 * DAY), write("old", 2 * DAY), write("new", DAY / 2));
    let world = world.restart().await;
    while old.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(known.exists() && new.exists());
    assert_eq!(files(&world), 2);
}

#[tokio::test]
async fn a_folder_with_artifacts_belongs_to_one_hub() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().to_owned();
    let world = World::timed(Engine::Sqlite, move |options| options.artifacts = Some(folder)).await;
    let other = tempfile::tempdir().unwrap();
    let options = attache_hub::Options { data: other.path().to_owned(), ..world.hub.options().clone() };
    let store = std::sync::Arc::new(attache_store::sql::SqlStore::open(&other.path().join("hub.db")).unwrap());
    let refused = attache_hub::Hub::start(options, store, world.env.clone()).await.unwrap_err();
    assert!(refused.to_string().starts_with("another hub keeps its artifacts in "), "{refused}");
}
