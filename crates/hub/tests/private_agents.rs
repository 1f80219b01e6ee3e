//! What others try to get from a private agent, or through its name.

use attache_hub::control::{PageRequest, TaskQuery};
use serde_json::json;

use crate::{
    escalation::{ACCOUNTS, REGISTER, RUNS, call_local, code, forbidden, key, not_found, person, redeem, with_local},
    work::{ClaimedRunFixture, decide},
    world::{Engine, World, on_both},
};

on_both! {
    a_worker_cannot_ask_in_the_name_of_the_hub
    a_key_issued_by_others_lists_no_tasks_of_its_user
    no_agent_key_and_no_rule_reads_private_work
    the_name_of_a_private_agent_cannot_be_taken
}

/// With a standing grant for everything, a request of its own making would approve the call to a private agent.
async fn a_worker_cannot_ask_in_the_name_of_the_hub(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let asked = work.pending("shell", json!({"command": "ls"})).await;
    let all = json!({"approved": true, "scope": "agent", "tool_pattern": "*"});
    decide(&work.world.owner, &asked, all).await.expect(200);
    let path = work.path("/permission-requests");
    let forged = json!({"tool": "remote_agent/local", "input": {"agent": "local", "task": "cat admin.key"}});
    let refused = work.device.client.post(&path, forged).await;
    assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()));
    assert_eq!(work.ask("remote_agents", json!({})).await["state"], "approved");
}

async fn a_key_issued_by_others_lists_no_tasks_of_its_user(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ada, eve) = (person(&world, "ada", "operator").await, person(&world, "eve", "admin").await);
    let shell = ada.post(ACCOUNTS, json!({"name": "shell", "callers": "owner"})).await.expect(201);
    ada.post(RUNS, json!({"agent_id": "shell", "input": {"text": "my diary"}})).await.expect(201);
    let made = json!({"name": "for ada", "user": "ada", "role": "operator"});
    let minted = key(&world, &eve.post("/api/v1/api-keys", made).await.expect(201));
    for (by, count) in [(&ada, 1), (&minted, 0)] {
        let by = world.hub.authenticate_key(by.header("authorization").trim_start_matches("Bearer ")).await.unwrap();
        let agent = shell["agent_id"].as_str().unwrap().parse().unwrap();
        let page = PageRequest { limit: Some(10), cursor: None };
        let query = TaskQuery { agent, conversation: None, state: None, after: None, page };
        let listed = world.hub.own_tasks(&by, query).await.unwrap();
        assert_eq!((listed.tasks.len(), listed.total), (count, count as u64));
    }
}

async fn no_agent_key_and_no_rule_reads_private_work(engine: Engine) {
    let world = with_local(engine).await;
    let (eve, bob) = (person(&world, "eve", "admin").await, person(&world, "bob", "operator").await);
    let run = call_local(&world.owner).await.expect(201);
    let run = format!("{RUNS}/{}", run["task_run_id"].as_str().unwrap());
    // An agent of the same owner, registered by somebody else or by the owner.
    let made = code(&world.owner, "builder").await.expect(201);
    let same = key(&world, &redeem(&world, &made).await.expect(200));
    let other = key(&world, &bob.post(REGISTER, json!({"agent_id": "bobs"})).await.expect(200));
    let rules = "agents:\n  bobs:\n    can_access: [\"conversations/*/*\"]\n  builder:\n    can_access: [\"*\"]\n";
    eve.put("/api/v1/permission-rules", json!({"text": rules})).await.expect(200);
    for by in [&same, &other] {
        assert_eq!(by.get(&run).await.refusal(), not_found());
        assert_eq!(by.get(&format!("{run}/events?after=0")).await.refusal(), not_found());
        assert_eq!(by.get(RUNS).await.expect(200)["task_runs"], json!([]));
    }
    world.owner.get(&run).await.expect(200);
}

async fn the_name_of_a_private_agent_cannot_be_taken(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ada, eve) = (person(&world, "ada", "operator").await, person(&world, "eve", "admin").await);
    let shell = format!("{ACCOUNTS}/shell");
    ada.post(ACCOUNTS, json!({"name": "shell", "callers": "owner"})).await.expect(201);
    for by in [&eve, &world.owner] {
        assert_eq!(by.delete(&shell).await.refusal(), forbidden());
    }
    ada.get(&shell).await.expect(200);
    // Once she has left, somebody has to.
    world.owner.delete("/api/v1/users/ada").await;
    eve.delete(&shell).await.expect(200);
}
