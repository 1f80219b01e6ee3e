//! Runs with a git worktree of their own: who may have one, and what the device learns.

use serde_json::{Value, json};

use crate::{
    escalation::{RUNS, person},
    world::{Engine, World, on_both},
};

on_both! {
    a_worktree_is_for_who_may_change_the_agent
}

const BEAT: &str = "/api/v1/agent-runtimes/runtime/heartbeat";

async fn a_worktree_is_for_who_may_change_the_agent(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ada, bob) = (person(&world, "ada", "operator").await, person(&world, "bob", "operator").await);
    ada.post("/api/v1/agent-accounts", json!({"name": "adas"})).await.expect(201);
    let device = world.device_of(&ada, "adas").await;
    let wanted = json!({"agent_id": "adas", "worktree": true});
    let refused = ada.post(RUNS, wanted.clone()).await.expect(400);
    assert_eq!(refused["error"]["message"], "The agent `adas` can't give a run a worktree.");

    let declared = json!([{"uri": "https://attache.dev/ext/worktrees/v1"}]);
    let beat = json!({"agent_id": device.agent, "running": [], "extensions": declared});
    device.client.post(BEAT, beat).await.expect(200);
    for (path, body) in
        [(RUNS, wanted.clone()), ("/api/a2a/call", json!({"agent": "adas", "task": "x", "worktree": true}))]
    {
        assert_eq!(bob.post(path, body).await.refusal(), (403, "forbidden".to_owned()), "{path}");
    }
    let lent = json!({"agent_id": "adas", "worktree": true, "task_type": "awcp.delegation"});
    let refused = ada.post(RUNS, lent).await.expect(400);
    let message = "`worktree` can't be used with delegations, which have their own folder.";
    assert_eq!(refused["error"]["message"], message);

    let made = ada.post(RUNS, wanted).await.expect(201);
    assert_eq!(made["worktree"], true);
    let claim = device.claim().await;
    assert_eq!((&claim["task_run_id"], &claim["worktree"]), (&made["task_run_id"], &json!(true)));
    // Whoever may repeat it gets a worktree, too, or nothing.
    let run = made["task_run_id"].as_str().unwrap();
    device
        .client
        .post(&format!("{RUNS}/{run}/complete"), json!({"epoch": claim["epoch"], "output": {}}))
        .await
        .expect(200);
    let plain = ada.post(RUNS, json!({"agent_id": "adas"})).await.expect(201);
    assert_eq!(plain["worktree"], Value::Null);
    assert_eq!(device.claim().await["worktree"], Value::Null);
}
