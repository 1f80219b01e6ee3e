//! Runs with a git worktree of their own: who may have one, and what the device learns.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    escalation::{RUNS, key, person},
    world::{Engine, TestCaller, TestDevice, World, on_all},
};

on_all! {
    the_owner_decides_and_the_device_answers
    nobody_else_decides_about_a_worktree
    a_decision_needs_an_ended_run_and_a_device_that_takes_it
    ; alone:
    a_worktree_is_for_who_may_change_the_agent
}

const PENDING: &str = "/api/v1/agent-runtimes/runtime/worktree-decisions";

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

/// Ada's own agent on her own device, and a run with a worktree that has ended.
struct OwnWorktree {
    world: World,
    ada: TestCaller,
    device: TestDevice,
    run: String,
    path: String,
}

impl OwnWorktree {
    async fn start(engine: Engine) -> Self {
        let world = World::timed(engine, |_| {}).await;
        let ada = person(&world, "ada", "operator").await;
        ada.post("/api/v1/agent-accounts", json!({"name": "adas"})).await.expect(201);
        let device = world.device_of(&ada, "adas").await;
        beat(&device, &["worktrees", "worktree-decisions"]).await;
        let run = ada.post(RUNS, json!({"agent_id": "adas", "worktree": true})).await.expect(201);
        let run = run["task_run_id"].as_str().unwrap().to_owned();
        let claim = device.claim().await;
        complete(&device, &claim).await;
        let path = format!("{RUNS}/{run}/worktree");
        Self { world, ada, device, run, path }
    }

    async fn pending(&self) -> Value {
        self.device.client.get(PENDING).await.expect(200)["worktree_decisions"].clone()
    }

    async fn settle(&self, number: i64, outcome: Value) -> u16 {
        let path = format!("{}/outcome", self.path);
        self.device.client.post(&path, json!({"number": number, "outcome": outcome})).await.status
    }
}

/// Returns the answer to a heartbeat that declares these extensions.
async fn beat(device: &TestDevice, extensions: &[&str]) -> Value {
    let uri = |name: &&str| json!({"uri": format!("https://attache.dev/ext/{name}/v1")});
    let declared: Vec<Value> = extensions.iter().map(uri).collect();
    let beat = json!({"agent_id": device.agent, "running": [], "extensions": declared});
    device.client.post(BEAT, beat).await.expect(200)
}

async fn complete(device: &TestDevice, claim: &Value) {
    let path = format!("{RUNS}/{}/complete", claim["task_run_id"].as_str().unwrap());
    device.client.post(&path, json!({"epoch": claim["epoch"], "output": {}})).await.expect(200);
}

async fn the_owner_decides_and_the_device_answers(engine: Engine) {
    let own = OwnWorktree::start(engine).await;
    let (ada, device) = (&own.ada, &own.device);
    assert_eq!(ada.get(&own.path).await.expect(200), json!({"task_run_id": own.run, "decision": null}));
    assert_eq!(beat(device, &["worktrees", "worktree-decisions"]).await["worktree_decisions"], Value::Null);

    let decided = ada.post(&own.path, json!({"action": "commit", "message": "by\nthe agent"})).await.expect(202);
    let decision = &decided["decision"];
    assert_eq!((&decision["action"], &decision["state"]), (&json!("commit"), &json!("pending")));
    assert_eq!((&decision["settled_at"], &decision["outcome"]), (&Value::Null, &Value::Null));
    assert_eq!(beat(device, &["worktrees", "worktree-decisions"]).await["worktree_decisions"], true);
    let told = json!([{"task_run_id": own.run, "number": 1, "action": "commit", "message": "by\nthe agent"}]);
    assert_eq!(own.pending().await, told);
    assert_eq!(own.pending().await, told, "until it is answered");
    let again = ada.post(&own.path, json!({"action": "discard"})).await;
    assert_eq!(again.refusal(), (409, "in_use".to_owned()));

    // Whoever waits learns of the answer.
    let path = format!("{}?wait_ms=30000", own.path);
    let waiting = ada.get(&path);
    let outcome = json!({"result": "done", "branch": format!("attache/{}", own.run), "commit": "abc", "later": 1});
    let answering = async {
        assert_eq!(own.settle(2, outcome.clone()).await, 404, "another decision");
        assert_eq!(own.settle(1, outcome.clone()).await, 204);
    };
    let (answer, ()) = tokio::join!(waiting, answering);
    let answer = answer.expect(200);
    let decision = &answer["decision"];
    assert_eq!((&decision["state"], &decision["outcome"]["commit"]), (&json!("settled"), &json!("abc")));
    assert_eq!(decision["outcome"].as_object().unwrap().len(), 3, "{decision}");
    assert_ne!(decision["settled_at"], Value::Null);
    assert_eq!(own.settle(1, json!({"result": "failed"})).await, 204, "safe to repeat");
    assert_eq!(ada.get(&own.path).await.expect(200), answer, "the first answer counts");
    assert_eq!(own.pending().await, json!([]));

    // What the device doesn't answer in time is over, and may be decided again.
    ada.post(&own.path, json!({"action": "apply"})).await.expect(202);
    own.world.env.advance(Duration::from_secs(600));
    beat(device, &["worktrees", "worktree-decisions"]).await;
    assert_eq!(ada.get(&own.path).await.expect(200)["decision"]["state"], "unanswered");
    assert_eq!(own.pending().await, json!([]));
    ada.post(&own.path, json!({"action": "apply"})).await.expect(202);
    assert_eq!(own.settle(2, json!({"result": "done"})).await, 404);
    let conflict = json!({"result": "conflict", "folder": "/srv/a", "files": ["a", "b c"]});
    assert_eq!(own.settle(3, conflict.clone()).await, 204);
    assert_eq!(ada.get(&own.path).await.expect(200)["decision"]["outcome"], conflict);
}

async fn nobody_else_decides_about_a_worktree(engine: Engine) {
    let own = OwnWorktree::start(engine).await;
    let (world, ada) = (&own.world, &own.ada);
    let (bob, eve) = (person(world, "bob", "operator").await, person(world, "eve", "admin").await);
    let scoped = ada.post("/api/v1/api-keys", json!({"name": "ci", "scopes": ["manage", "call", "read"]})).await;
    let token = ada.post("/api/v1/tokens", json!({"ttl_seconds": 3600})).await.expect(201);
    let token = world.anonymous().key(token["token"].as_str().unwrap());
    let issued =
        eve.post("/api/v1/api-keys", json!({"name": "x", "user": "ada", "role": "operator"})).await.expect(201);
    let callers = [&bob, &eve, &key(world, &scoped.expect(201)), &token, &key(world, &issued), &world.owner];
    for (number, caller) in callers.into_iter().enumerate() {
        for answer in [caller.get(&own.path).await, caller.post(&own.path, json!({"action": "apply"})).await] {
            assert_eq!(answer.refusal(), (403, "forbidden".to_owned()), "{number}");
        }
    }
    // Another device neither learns of it nor answers.
    ada.post(&own.path, json!({"action": "apply"})).await.expect(202);
    bob.post("/api/v1/agent-accounts", json!({"name": "bobs"})).await.expect(201);
    let theirs = world.device_of(&bob, "bobs").await;
    assert_eq!(theirs.client.get(PENDING).await.expect(200), json!({"worktree_decisions": []}));
    let answer = json!({"number": 1, "outcome": {"result": "done"}});
    assert_eq!(theirs.client.post(&format!("{}/outcome", own.path), answer.clone()).await.status, 404);
    assert_eq!(ada.post(&format!("{}/outcome", own.path), answer).await.status, 403);
    assert_eq!(ada.get(PENDING).await.status, 403);
    assert_eq!(ada.get(&own.path).await.expect(200)["decision"]["state"], "pending");
}

async fn a_decision_needs_an_ended_run_and_a_device_that_takes_it(engine: Engine) {
    let own = OwnWorktree::start(engine).await;
    let (ada, device) = (&own.ada, &own.device);
    let plain = ada.post(RUNS, json!({"agent_id": "adas"})).await.expect(201);
    complete(device, &device.claim().await).await;
    let plain = format!("{RUNS}/{}/worktree", plain["task_run_id"].as_str().unwrap());
    assert_eq!(ada.get(&plain).await.refusal(), (404, "not_found".to_owned()));

    let works = ada.post(RUNS, json!({"agent_id": "adas", "worktree": true})).await.expect(201);
    let works = format!("{RUNS}/{}/worktree", works["task_run_id"].as_str().unwrap());
    let apply = json!({"action": "apply"});
    assert_eq!(ada.post(&works, apply.clone()).await.refusal(), (409, "in_use".to_owned()));

    beat(device, &["worktrees"]).await;
    let refused = ada.post(&own.path, apply.clone()).await.expect(400);
    assert_eq!(refused["error"]["message"], "The agent's device doesn't support decisions about worktrees from here.");
    for (body, field) in [
        (json!({}), "action"),
        (json!({"action": "merge"}), "merge"),
        (json!({"action": "commit", "message": ""}), "message"),
        (json!({"action": "commit", "message": "a\u{0}b"}), "message"),
        (json!({"action": "apply", "force": true}), "force"),
    ] {
        let refused = ada.post(&own.path, body).await.expect(400);
        assert!(refused["error"]["message"].as_str().unwrap().contains(field), "{refused}");
    }

    beat(device, &["worktrees", "worktree-decisions"]).await;
    device.client.post(BEAT, json!({"agent_id": device.agent, "running": []})).await.expect(200);
    own.world.env.advance(Duration::from_secs(600));
    own.world.store.sweep(Duration::from_secs(60), own.world.env.now()).await.unwrap();
    assert_eq!(ada.post(&own.path, apply).await.refusal(), (409, "device_offline".to_owned()));
    assert_eq!(ada.get(&own.path).await.expect(200)["decision"], Value::Null, "it doesn't wait for the device");
}
