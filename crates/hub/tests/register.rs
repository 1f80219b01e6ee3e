//! Agents that register by name, and what their own keys may do.

use serde_json::{Value, json};

use crate::{
    work::ClaimedRunFixture,
    world::{Engine, TestCaller, World, on_all},
};

const REGISTER: &str = "/api/a2a/register";

on_all! {
    registering_again_issues_a_new_key_and_revokes_the_old_one
    an_agent_calls_others_and_sees_and_cancels_its_own_calls
    ; // These expect that a change is known at once, as it is to the node that made it.
    alone:
    a_pairing_code_registers_once
}

fn key(world: &World, registered: &Value) -> TestCaller {
    world.anonymous().key(registered["api_key"].as_str().unwrap())
}

async fn registering_again_issues_a_new_key_and_revokes_the_old_one(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let body = json!({"agent_id": "user123-laptop", "capabilities": ["shell", {"x": 1}], "unknown": true,
        "device_info": {"os": "linux"}});
    let first = world.owner.post(REGISTER, body.clone()).await.expect(200);
    assert_eq!(first["agent_id"], "user123-laptop");
    assert!(first["api_key"].as_str().unwrap().starts_with("ak_"));
    let account = world.owner.get("/api/v1/agent-accounts/user123-laptop").await.expect(200);
    assert_eq!(account["agent_id"], first["account_id"]);
    let labels = json!({"capabilities": ["shell", {"x": 1}], "device_info": {"os": "linux"}});
    assert_eq!(account["runtime"]["labels"], labels);
    key(&world, &first).get("/api/v1/agent-accounts").await.expect(200);

    let second = world.key("operator").await.post(REGISTER, body).await.expect(200);
    assert_eq!(second["account_id"], first["account_id"]);
    assert_ne!(second["api_key"], first["api_key"]);
    let old = key(&world, &first).get("/api/v1/agent-accounts").await;
    assert_eq!(old.refusal(), (401, "runtime_superseded".to_owned()));
    assert!(old.json()["error"]["hint"].as_str().unwrap().contains("/api/a2a/register"));
    key(&world, &second).get("/api/v1/agent-accounts").await.expect(200);
    // The key is not a runtime token, and is rejected like any unknown one.
    let wrong = world.anonymous().with("x-runtime-token", second["api_key"].as_str().unwrap());
    assert_eq!(wrong.get("/api/v1/task-runs").await.refusal().0, 401);
    for refused in [world.anonymous(), world.key("viewer").await, key(&world, &second)] {
        let status = refused.post(REGISTER, json!({"agent_id": "x"})).await.refusal().0;
        assert!(matches!(status, 401 | 403), "{status}");
    }
}

async fn a_pairing_code_registers_once(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let agent = world.agent("builder").await;
    let body = json!({"pairing_token": world.code("builder").await});
    let registered = world.anonymous().post(REGISTER, body.clone()).await.expect(200);
    assert_eq!((&registered["agent_id"], &registered["account_id"]), (&json!("builder"), &json!(agent)));
    assert_eq!(world.anonymous().post(REGISTER, body).await.refusal(), (404, "pairing_failed".to_owned()));
    world.agent("other").await;
    let code = world.code("builder").await;
    let wrong = json!({"agent_id": "other", "pairing_token": code});
    assert_eq!(world.anonymous().post(REGISTER, wrong).await.refusal(), (400, "invalid_request".to_owned()));
    key(&world, &registered).get("/api/v1/agent-accounts").await.expect(200);
    let right = json!({"agent_id": "builder", "pairing_token": code});
    world.anonymous().post(REGISTER, right).await.expect(200);
    assert_eq!(key(&world, &registered).get("/api/v1/agent-accounts").await.refusal().0, 401);
}

#[tokio::test]
async fn guessing_codes_is_limited_here_too() {
    let world = World::tuned(|options| options.pairing_failures_per_minute = 10).await;
    for _ in 0..10 {
        let guess = world.anonymous().post(REGISTER, json!({"pairing_token": "0000-0000"})).await;
        assert_eq!(guess.refusal(), (404, "pairing_failed".to_owned()));
    }
    let blocked = world.anonymous().post(REGISTER, json!({"pairing_token": "0000-0000"})).await;
    assert_eq!(blocked.refusal(), (429, "too_many_requests".to_owned()));
    let attach = "/api/v1/agent-runtimes/runtime/attach-via-pairing";
    let blocked = world.anonymous().post(attach, json!({"pairing_token": "0000-0000"})).await;
    assert_eq!(blocked.refusal(), (429, "too_many_requests".to_owned()));
}

async fn an_agent_calls_others_and_sees_and_cancels_its_own_calls(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let world = &work.world;
    // The agent has another owner than the work it must not see. The agent it calls has no owner.
    world.owner.post("/api/v1/users", json!({"name": "ann"})).await.expect(201);
    let ann = world.owner.post("/api/v1/api-keys", json!({"name": "ann", "user": "ann"})).await.expect(201);
    let ann = key(world, &ann);
    let registered = ann.post(REGISTER, json!({"agent_id": "caller"})).await.expect(200);
    world.owner.patch("/api/v1/agent-accounts/builder", json!({"owner": ""})).await.expect(200);
    let agent = key(world, &registered);
    let created = agent.post("/api/v1/task-runs", json!({"agent_id": "builder"})).await.expect(201);
    assert_eq!(created["caller"], format!("agent:{}", registered["account_id"].as_str().unwrap()));
    let own = format!("/api/v1/task-runs/{}", created["task_run_id"].as_str().unwrap());
    agent.get(&own).await.expect(200);
    agent.get(&format!("{own}/events")).await.expect(200);
    let listed = agent.get("/api/v1/task-runs").await.expect(200);
    assert_eq!(listed["task_runs"].as_array().unwrap().len(), 1);
    // Other callers' runs don't exist for it, whatever it tries.
    let foreign = work.path("");
    assert_eq!(agent.get(&foreign).await.refusal(), (404, "not_found".to_owned()));
    assert_eq!(agent.post(&format!("{foreign}/cancel"), json!({})).await.refusal(), (404, "not_found".to_owned()));
    let input = json!({"text": "x"});
    assert_eq!(agent.post(&format!("{foreign}/input"), input).await.refusal(), (404, "not_found".to_owned()));
    for place in [
        json!({"agent_id": "builder", "parent_task_run_id": work.run}),
        json!({"agent_id": "builder", "conversation_id": work.read().await["conversation_id"]}),
    ] {
        let reply = agent.post("/api/v1/task-runs", place).await;
        assert_eq!(reply.refusal(), (404, "not_found".to_owned()));
    }
    let child = json!({"agent_id": "builder", "parent_task_run_id": created["task_run_id"],
        "conversation_id": created["conversation_id"]});
    agent.post("/api/v1/task-runs", child).await.expect(201);

    // Its idempotency keys are its own, too.
    let keyed = json!({"agent_id": "builder", "idempotency_key": "k"});
    let of_a_person = world.owner.post("/api/v1/task-runs", keyed.clone()).await.expect(201);
    let of_the_agent = agent.post("/api/v1/task-runs", keyed.clone()).await.expect(201);
    assert_ne!(of_the_agent["task_run_id"], of_a_person["task_run_id"]);
    let again = agent.post("/api/v1/task-runs", keyed).await.expect(200);
    assert_eq!(again["task_run_id"], of_the_agent["task_run_id"]);

    // It is still the same agent after registering again.
    let agent = key(world, &ann.post(REGISTER, json!({"agent_id": "caller"})).await.expect(200));
    let cancelled = agent.post(&format!("{own}/cancel"), json!({})).await.expect(200);
    assert_eq!(cancelled["status"], "cancelled");
    // It works over its channel and can't manage anything.
    for (path, body) in [
        ("/api/v1/agent-accounts/caller/task-runs/pull", json!({})),
        ("/api/v1/agent-runtimes/runtime/heartbeat", json!({})),
        ("/api/v1/agent-accounts", json!({"name": "x"})),
        ("/api/v1/agent-accounts/builder/pairing-codes", json!({})),
        ("/api/v1/api-keys", json!({"name": "x"})),
        ("/api/v1/login-links", json!({})),
        ("/api/v1/conversations", json!({})),
    ] {
        assert_eq!(agent.post(path, body).await.refusal(), (403, "forbidden".to_owned()), "{path}");
    }
    let revoke = format!("/api/v1/agent-runtimes/{}", work.device.runtime);
    assert_eq!(agent.delete(&revoke).await.refusal(), (403, "forbidden".to_owned()));
    for path in ["/api/v1/audit", "/api/v1/agent-runtimes", "/api/v1/api-keys", "/metrics"] {
        assert!(matches!(agent.get(path).await.status, 403 | 200), "{path}");
    }
    assert_eq!(agent.get("/api/v1/audit").await.refusal(), (403, "forbidden".to_owned()));
}
