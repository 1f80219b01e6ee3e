//! A run whose caller may no longer call its agent is not worked on, even if it was queued before.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    escalation::{self, REGISTER, key},
    people::person,
    world::{Engine, TestCaller, TestDevice, World, on_all},
};

on_all! {
    a_queued_run_of_somebody_who_lost_the_right_ends
    a_run_that_waits_for_a_limit_ends_too
    the_owners_runs_and_ended_credentials_stay
    without_its_key_a_run_has_the_rights_of_its_person
    a_private_agent_gets_nothing_from_keys_that_others_made_or_limited
    a_private_agent_gets_nothing_from_an_agents_own_key
}

const RUNS: &str = "/api/v1/task-runs";
const AGENT: &str = "/api/v1/agent-accounts/builder";

async fn ask(by: &TestCaller) -> String {
    let run = by.post(RUNS, json!({"agent_id": "builder", "input": {"text": "build"}})).await.expect(201);
    format!("{RUNS}/{}", run["task_run_id"].as_str().unwrap())
}

async fn a_queued_run_of_somebody_who_lost_the_right_ends(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let ended = async |run: &str, reason: &str| {
        assert_eq!(device.try_claim().await, Value::Null, "{reason}");
        let run = world.owner.get(run).await.expect(200);
        let (status, result) = (&run["status"], &run["task_result"]);
        assert_eq!(
            (status, &result["code"], &result["error"]),
            (&json!("cancelled"), &json!("cancelled"), &json!(reason))
        );
    };
    let (ann, ben) = (person(&world, "ann", "operator").await, person(&world, "ben", "operator").await);
    let run = ask(&ann).await;
    world.owner.patch(AGENT, json!({"callers": "owner"})).await.expect(200);
    ended(&run, "the agent has become private").await;
    world.owner.patch(AGENT, json!({"callers": "everyone"})).await.expect(200);
    // What belongs to the time in which it was private stays hidden.
    world.advance(Duration::from_secs(1));

    let run = ask(&ann).await;
    world.owner.patch("/api/v1/users/ann", json!({"role": "viewer"})).await.expect(200);
    ended(&run, "the person who started it may no longer start runs").await;
    let run = ask(&ben).await;
    world.owner.delete("/api/v1/users/ben").await.expect(200);
    ended(&run, "the person who started it was removed").await;

    // What waited behind it isn't held up.
    let cleo = person(&world, "cleo", "operator").await;
    let (first, second) = (ask(&cleo).await, ask(&world.owner).await);
    world.owner.delete("/api/v1/users/cleo").await.expect(200);
    assert_eq!(format!("{RUNS}/{}", device.claim().await["task_run_id"].as_str().unwrap()), second);
    assert_eq!(world.owner.get(&first).await.expect(200)["status"], "cancelled");
}

async fn a_run_that_waits_for_a_limit_ends_too(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    world.owner.patch(AGENT, json!({"on_limit": "wait"})).await.expect(200);
    let run = ask(&person(&world, "ann", "operator").await).await;
    let claim = device.claim().await;
    let limit = json!({"epoch": claim["epoch"], "output": {"error": "limit", "code": "usage_limit"}});
    device.client.post(&format!("{run}/fail"), limit).await.expect(200);
    world.owner.patch(AGENT, json!({"callers": "owner"})).await.expect(200);
    world.advance(Duration::from_secs(60 * 60));
    world.until(&run, |run| run["deferred_until"].is_null()).await;
    assert_eq!(device.try_claim().await, Value::Null);
    assert_eq!(world.owner.get(&run).await.expect(200)["task_result"]["error"], "the agent has become private");
}

async fn the_owners_runs_and_ended_credentials_stay(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let run = ask(&world.owner).await;
    world.owner.patch(AGENT, json!({"callers": "owner"})).await.expect(200);
    assert_eq!(device.claim().await["task_run_id"], json!(run.rsplit('/').next().unwrap()));
    device.client.post(&format!("{run}/complete"), json!({"epoch": 1, "output": {}})).await.expect(200);
    world.owner.patch(AGENT, json!({"callers": "everyone"})).await.expect(200);

    // Whose key has ended may still call the agent with another one.
    let made = json!({"name": "short", "role": "operator"});
    let made = world.owner.post("/api/v1/api-keys", made).await.expect(201);
    let run = ask(&world.anonymous().key(made["api_key"].as_str().unwrap())).await;
    world.owner.delete(&format!("/api/v1/api-keys/{}", made["key"]["key_id"].as_str().unwrap())).await.expect(200);
    assert_eq!(device.claim().await["task_run_id"], json!(run.rsplit('/').next().unwrap()));
}

/// The answer to a claim, and how the run ended.
async fn claimed(device: &TestDevice, by: &TestCaller, run: &str) -> (bool, Value) {
    let claim = device.try_claim().await;
    (claim != Value::Null, by.get(run).await.expect(200)["task_result"]["error"].clone())
}

/// A key of the caller's own, with its path.
async fn make_key(world: &World, by: &TestCaller, body: Value) -> (TestCaller, String) {
    let made = by.post("/api/v1/api-keys", body).await.expect(201);
    (key(world, &made), format!("/api/v1/api-keys/{}", made["key"]["key_id"].as_str().unwrap()))
}

async fn without_its_key_a_run_has_the_rights_of_its_person(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let ann = escalation::person(&world, "ann", "operator").await;
    let (own, path) = make_key(&world, &ann, json!({"name": "short", "role": "operator"})).await;
    let run = ask(&own).await;
    ann.delete(&path).await.expect(200);
    world.owner.patch("/api/v1/users/ann", json!({"role": "viewer"})).await.expect(200);
    let reason = json!("the person who started it may no longer start runs");
    assert_eq!(claimed(&device, &world.owner, &run).await, (false, reason));
}

async fn a_private_agent_gets_nothing_from_keys_that_others_made_or_limited(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ada, eve) =
        (escalation::person(&world, "ada", "operator").await, escalation::person(&world, "eve", "admin").await);
    ada.post("/api/v1/agent-accounts", json!({"name": "builder"})).await.expect(201);
    let device = world.device_of(&ada, "builder").await;
    let whole = json!({"name": "whole", "role": "operator"});
    let issued = json!({"name": "for ada", "user": "ada", "role": "operator"});
    let limited = json!({"name": "limited", "role": "operator", "scopes": ["read", "call"]});
    let private = json!("the agent has become private");
    for (maker, body, expected) in [
        (&eve, issued, (false, private.clone())),
        (&ada, limited, (false, private)),
        (&ada, whole, (true, Value::Null)),
    ] {
        let (made, path) = make_key(&world, maker, body).await;
        let run = ask(&made).await;
        maker.delete(&path).await.expect(200);
        ada.patch(AGENT, json!({"callers": "owner"})).await.expect(200);
        assert_eq!(claimed(&device, &ada, &run).await, expected, "{path}");
        ada.patch(AGENT, json!({"callers": "everyone"})).await.expect(200);
    }
}

async fn a_private_agent_gets_nothing_from_an_agents_own_key(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let spy = key(&world, &world.owner.post(REGISTER, json!({"agent_id": "spy"})).await.expect(200));
    let run = ask(&spy).await;
    world.owner.patch(AGENT, json!({"callers": "owner"})).await.expect(200);
    assert_eq!(claimed(&device, &world.owner, &run).await, (false, json!("the agent has become private")));
}
