//! Another tenant's things get exactly the same answer as missing ones: status, headers and body, byte for byte.

use serde_json::{Value, json};

use super::{
    fixture::{GoldenFixture, GoldenRow, missing},
    rows,
};
use crate::world::{Engine, TestCaller, World, on_all};

on_all! {
    a_foreign_id_is_answered_like_a_missing_one
    a_foreign_id_in_a_body_is_answered_like_a_missing_one
    other_tenants_actions_are_invisible
}

/// The path with ids that don't exist.
fn unfilled(path: &str) -> String {
    let mut filled = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap();
        filled.push_str(before);
        filled.push_str(&if name == "name" { "file".to_owned() } else { missing(name) });
        rest = after;
    }
    filled.push_str(rest);
    if path.ends_with("/pull") {
        filled.push_str("?wait_ms=0");
    }
    filled
}

async fn a_foreign_id_is_answered_like_a_missing_one(engine: Engine) {
    let (world, foreign) = World::two_tenants(engine).await;
    let mut own = GoldenFixture::new(&world, &world.owner);
    let device = own.device().await;
    let helper = world.owner.post("/api/a2a/register", json!({"agent_id": "helper"})).await.expect(200);
    let helper = world.anonymous().key(helper["api_key"].as_str().unwrap());
    let mut different = Vec::new();
    for row in rows() {
        // A pairing request belongs to no tenant until it is confirmed.
        if !row.path.contains('{') || row.path.contains("{code}") {
            continue;
        }
        // A PUT creates missing ones. The table has a row for foreign ones.
        if row.method == "put" && (row.path.ends_with("{tunnel}") || row.path.ends_with("{delegation}")) {
            continue;
        }
        // Everybody has views of their own under any name.
        if row.path.ends_with("/run-views/{name}") {
            continue;
        }
        let mut theirs = GoldenFixture::new(&world, &foreign);
        let path = theirs.fill(row.path).await;
        let body = theirs.body(&row).await;
        for (who, caller) in [("owner", &world.owner), ("agent key", &helper), ("device", &device)] {
            let seen = row.ask(&world, caller, &path, body.clone()).await;
            let wanted = row.ask(&world, caller, &unfilled(row.path), body.clone()).await;
            if seen != wanted || (seen.status < 400 && !row.path.contains('?')) {
                different.push(format!("{who}: {} {path}: {seen:?}, wanted {wanted:?}", row.method));
            }
        }
    }
    assert_eq!(different, Vec::<String>::new());
}

async fn a_foreign_id_in_a_body_is_answered_like_a_missing_one(engine: Engine) {
    let (world, foreign) = World::two_tenants(engine).await;
    world.agent("own").await;
    let mut theirs = GoldenFixture::new(&world, &foreign);
    let post = |path| GoldenRow { method: "post", path };
    let cases = [
        (post("/api/v1/task-runs"), "agent", json!({"agent_id": "?"})),
        (post("/api/v1/task-runs"), "conversation", json!({"agent_id": "own", "conversation_id": "?"})),
        (post("/api/v1/task-runs"), "run", json!({"agent_id": "own", "parent_task_run_id": "?"})),
        (post("/api/a2a/call"), "agent", json!({"task": "x", "agent_type": "?"})),
        (post("/api/a2a/register"), "agent", json!({"agent_id": "?"})),
        (post("/api/v1/api-keys"), "user", json!({"name": "k", "user": "?"})),
        (GoldenRow { method: "patch", path: "/api/v1/agent-accounts/own" }, "user", json!({"owner": "?"})),
    ];
    for (row, what, body) in cases {
        let with = |id: &str| serde_json::from_str(&body.to_string().replace('?', id)).unwrap();
        let id = theirs.need(what).await;
        let seen = row.ask(&world, &world.owner, row.path, Some(with(&id))).await;
        let wanted = row.ask(&world, &world.owner, row.path, Some(with(&missing(what)))).await;
        // An error may repeat the request's id.
        let plain = |bytes: &[u8], id: &str| String::from_utf8_lossy(bytes).replace(id, "?");
        assert_eq!(
            (seen.status, plain(&seen.body, &id)),
            (wanted.status, plain(&wanted.body, &missing(what))),
            "{body}"
        );
        assert!(seen.status >= 400, "{body}");
    }
}

/// The response without its signature, which differs every time.
async fn shown(client: &TestCaller, path: &str) -> Value {
    let mut read = client.get(path).await.expect(200);
    if let Some(checkpoint) = read.get_mut("checkpoint").and_then(Value::as_object_mut) {
        checkpoint.remove("signature");
    }
    read
}

async fn other_tenants_actions_are_invisible(engine: Engine) {
    let (world, foreign) = World::two_tenants(engine).await;
    let lists = [
        "/api/v1/agent-accounts",
        "/api/v1/agent-runtimes",
        "/api/v1/task-runs",
        "/api/v1/permission-requests",
        "/api/v1/permission-grants",
        "/api/v1/channels",
        "/api/v1/conversations",
        "/api/v1/deliveries",
        "/api/v1/notification-targets",
        "/api/v1/api-keys",
        "/api/v1/users",
        "/api/v1/audit",
    ];
    let mut before = Vec::new();
    for path in lists {
        before.push(shown(&world.owner, path).await);
    }
    let by =
        world.hub.authenticate_key(world.owner.header("authorization").trim_start_matches("Bearer ")).await.unwrap();
    let live = world.hub.live(&by).await.unwrap();
    let mut theirs = GoldenFixture::new(&world, &foreign);
    for what in ["grant", "ask", "artifact", "key", "user", "call", "run", "channel", "delivery", "target"] {
        theirs.need(what).await;
    }
    for (path, before) in lists.into_iter().zip(before) {
        assert_eq!(shown(&world.owner, path).await, before, "{path}");
        assert_ne!(shown(&foreign, path).await, before, "{path}: something happened there");
    }
    assert_eq!(world.hub.live(&by).await.unwrap(), live);
}
