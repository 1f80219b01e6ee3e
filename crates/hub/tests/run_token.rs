//! A run's token: it passes on that run's work, sees what it created, and ends with the claim.

use std::time::Duration;

use attache_hub::control::CallHeaders;
use attache_protocol::wire::{run::CreateRunRequest, runtime::ASKS};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::{
    escalation::{REGISTER, key, person},
    world::{Engine, TestCaller, TestDevice, World, on_all},
};

const RUNS: &str = "/api/v1/task-runs";
const BEAT: &str = "/api/v1/agent-runtimes/runtime/heartbeat";

on_all! {
    a_run_passes_its_work_on_and_sees_nothing_else
    only_what_the_owner_creates_in_person_counts_as_theirs
    only_the_owner_says_something_to_their_own_run
    loops_are_refused
    a_token_ends_with_its_claim
    a_token_cannot_create_anything_lasting
    only_some_runs_get_a_token
    child_runs_share_the_budget_and_the_limits
    children_created_at_once_share_the_budget
    a_run_and_its_children_stop_at_the_runs_budget
    a_child_stops_when_the_parents_budget_is_used_up
    what_is_passed_on_counts_towards_the_quota_of_the_first_caller
    rules_apply_to_everyone_in_the_chain
    an_agent_without_approvals_gets_only_approved_tasks
    an_approval_creates_one_run
    input_to_an_agent_without_approvals_needs_approval_too
    an_agent_whose_steps_are_approved_in_advance_gets_only_approved_tasks
}

/// A hub with the agents `a`, `b` and `c`, each with a device.
struct ThreeAgents {
    world: World,
    a: TestDevice,
    b: TestDevice,
}

// === impl ThreeAgents ===

impl ThreeAgents {
    async fn start(engine: Engine) -> Self {
        let world = World::timed(engine, |options| options.tools = Some("/mcp".to_owned())).await;
        for name in ["a", "b", "c"] {
            world.agent(name).await;
        }
        let (a, b) = (world.device("a").await, world.device("b").await);
        let c = world.device("c").await;
        for device in [&a, &b, &c] {
            device.client.post(BEAT, json!({"extensions": [{"uri": ASKS}]})).await.expect(200);
        }
        Self { world, a, b }
    }

    /// The same with `local`, whose device declares nothing, and a run that `a` works on.
    async fn with_local(engine: Engine) -> (Self, TestDevice, Value) {
        let three = Self::start(engine).await;
        three.world.agent("local").await;
        let local = three.world.device("local").await;
        let claim = three.begin(json!({})).await;
        (three, local, claim)
    }

    /// The only pending permission request.
    async fn pending(&self) -> Value {
        let listed = self.world.owner.get("/api/v1/permission-requests?state=pending").await.expect(200);
        let all = listed["permission_requests"].as_array().unwrap();
        assert_eq!(all.len(), 1, "{listed}");
        all[0].clone()
    }

    async fn decide(&self, asked: &Value, decision: Value) {
        let path = format!("/api/v1/permission-requests/{}/decision", asked["permission_request_id"].as_str().unwrap());
        self.world.owner.post(&path, decision).await.expect(200);
    }

    /// Creates a run of the owner for `a`, and returns its claim.
    async fn begin(&self, body: Value) -> Value {
        let mut body = body;
        body["agent_id"] = json!("a");
        self.world.owner.post(RUNS, body).await.expect(201);
        self.a.claim().await
    }

    /// A caller with the claim's token.
    fn holder(&self, claim: &Value) -> TestCaller {
        self.world.anonymous().key(token(claim))
    }
}

fn token(claim: &Value) -> &str {
    claim["mcp"]["token"].as_str().unwrap()
}

fn id(run: &Value) -> String {
    run["task_run_id"].as_str().unwrap().to_owned()
}

/// A device puts everything else inside its walls.
async fn only_what_the_owner_creates_in_person_counts_as_theirs(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let (world, task) = (&three.world, json!({"agent_id": "b"}));
    let claim = three.begin(json!({})).await;
    assert_eq!(claim["for_owner"], true);
    let passed_on = async |by: &TestCaller| {
        by.post(RUNS, task.clone()).await.expect(201);
        three.b.claim().await["for_owner"].clone()
    };
    assert_eq!(passed_on(&three.holder(&claim)).await, false, "a run passes work on");
    let bob = person(world, "bob", "operator").await;
    assert_eq!(passed_on(&bob).await, false, "someone else");
    let own_agent = world.owner.post(REGISTER, json!({"agent_id": "mine"})).await.expect(200);
    assert_eq!(passed_on(&key(world, &own_agent)).await, false, "an agent of the owner");
    let below = json!({"agent_id": "b", "parent_task_run_id": claim["task_run_id"]});
    world.owner.post(RUNS, below).await.expect(201);
    assert_eq!(three.b.claim().await["for_owner"], false, "a part of another run");

    let asked = bob.post(RUNS, task.clone()).await.expect(201);
    assert_eq!(three.b.claim().await["for_owner"], false);
    let reply = json!({"agent_id": "b", "conversation_id": asked["conversation_id"]});
    world.owner.post(RUNS, reply).await.expect(201);
    assert_eq!(three.b.claim().await["for_owner"], false, "an agent may remember what others said there");

    // Instructions of a conversation reach the agent, too.
    let space = json!({"metadata": {"instructions": "Obey Bob.", "space": "team"}});
    let space = bob.post("/api/v1/conversations", space).await.expect(201);
    let reply = json!({"agent_id": "b", "conversation_id": space["conversation_id"]});
    world.owner.post(RUNS, reply).await.expect(201);
    assert_eq!(three.b.claim().await["for_owner"], false, "somebody else's instructions");
    let space = world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    let reply = json!({"agent_id": "b", "conversation_id": space["conversation_id"]});
    world.owner.post(RUNS, reply).await.expect(201);
    assert_eq!(three.b.claim().await["for_owner"], true, "their own conversation");

    let (ada, eve) = (person(world, "ada", "operator").await, person(world, "eve", "admin").await);
    ada.post("/api/v1/agent-accounts", json!({"name": "adas"})).await.expect(201);
    let device = world.device_of(&ada, "adas").await;
    let issued =
        eve.post("/api/v1/api-keys", json!({"name": "x", "user": "ada", "role": "operator"})).await.expect(201);
    let scoped = ada.post("/api/v1/api-keys", json!({"name": "ci", "scopes": ["call", "read"]})).await.expect(201);
    let token = ada.post("/api/v1/tokens", json!({"ttl_seconds": 3600, "scopes": ["call"]})).await.expect(201);
    let token = world.anonymous().key(token["token"].as_str().unwrap());
    let (issued, scoped) = (key(world, &issued), key(world, &scoped));
    for (by, own) in [(&ada, true), (&issued, false), (&scoped, false), (&token, false), (&world.owner, false)] {
        by.post(RUNS, json!({"agent_id": "adas"})).await.expect(201);
        assert_eq!(device.claim().await["for_owner"], own);
    }
    // Whoever is given the agent doesn't get the device that Ada paired.
    eve.patch("/api/v1/agent-accounts/adas", json!({"owner": "eve"})).await.expect(200);
    eve.post(RUNS, json!({"agent_id": "adas"})).await.expect(201);
    assert_eq!(device.claim().await["for_owner"], false);
}

/// It may be outside the device's walls. Others decide, but nothing they write reaches the agent.
async fn only_the_owner_says_something_to_their_own_run(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let (owner, bob) = (&three.world.owner, person(&three.world, "bob", "operator").await);
    let ask = async |claim: &Value, what: &str, body: Value| {
        let path = format!("{RUNS}/{}/{what}", id(claim));
        three.a.client.post(&path, body).await.expect(201)
    };
    let wonder = async |claim: &Value| ask(claim, "input-requests", json!({"epoch": 1, "prompt": "Which?"})).await;
    let step = async |claim: &Value| {
        let asked = ask(claim, "permission-requests", json!({"tool": "shell", "input": {"n": 1}})).await;
        format!("/api/v1/permission-requests/{}/decision", asked["permission_request_id"].as_str().unwrap())
    };
    let (denied, allowed) = (json!({"approved": false, "comment": "Do this instead"}), json!({"approved": true}));

    let claim = three.begin(json!({})).await;
    wonder(&claim).await;
    let input = format!("{RUNS}/{}/input", id(&claim));
    assert_eq!(bob.post(&input, json!({"text": "x"})).await.refusal(), (403, "forbidden".to_owned()));
    let token = owner.post("/api/v1/tokens", json!({"ttl_seconds": 3600})).await.expect(201);
    let token = three.world.anonymous().key(token["token"].as_str().unwrap());
    assert_eq!(token.post(&input, json!({"text": "x"})).await.refusal(), (403, "forbidden".to_owned()));
    owner.post(&input, json!({"text": "the first"})).await.expect(200);
    let decision = step(&claim).await;
    assert_eq!(bob.post(&decision, denied.clone()).await.refusal(), (403, "forbidden".to_owned()));
    bob.post(&decision, allowed).await.expect(200);
    three
        .a
        .client
        .post(&format!("{RUNS}/{}/complete", id(&claim)), json!({"output": {"text": "done"}}))
        .await
        .expect(200);

    // Bob's own run is inside walls, and everyone who may can help.
    bob.post(RUNS, json!({"agent_id": "a"})).await.expect(201);
    let claim = three.a.claim().await;
    wonder(&claim).await;
    owner.post(&format!("{RUNS}/{}/input", id(&claim)), json!({"text": "the second"})).await.expect(200);
    let decision = step(&claim).await;
    // A standing denial says its comment to later runs, but only to those that its maker may speak to.
    let standing = json!({"approved": false, "scope": "agent", "comment": "Do this instead"});
    assert_eq!(token.post(&decision, standing.clone()).await.refusal(), (403, "forbidden".to_owned()));
    bob.post(&decision, standing).await.expect(200);
    let again = async |claim: &Value, n: u64| {
        let body = json!({"tool": "shell", "input": {"n": 1}, "request_id": n.to_string()});
        let asked = ask(claim, "permission-requests", body).await;
        (asked["state"].clone(), asked["comment"].clone())
    };
    assert_eq!(again(&claim, 1).await, (json!("denied"), json!("Do this instead")));
    let done = format!("{RUNS}/{}/complete", id(&claim));
    three.a.client.post(&done, json!({"output": {"text": "done"}})).await.expect(200);
    let claim = three.begin(json!({})).await;
    assert_eq!(again(&claim, 2).await, (json!("denied"), Value::Null));
}

async fn a_run_passes_its_work_on_and_sees_nothing_else(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let claim = three.begin(json!({})).await;
    assert_eq!(claim["mcp"]["url"], format!("{}/mcp", three.world.hub.origin()));
    let holder = three.holder(&claim);
    let names = holder.get("/api/v1/agent-accounts").await.expect(200);
    assert_eq!(names["agent_accounts"].as_array().unwrap().len(), 3);

    // The parent is the run, whatever the caller says.
    let child = holder.post(RUNS, json!({"agent_id": "b"})).await.expect(201);
    assert_eq!(child["parent_task_run_id"], claim["task_run_id"]);
    assert_eq!(child["caller"], format!("run:{}", id(&claim)));
    let called = holder.post("/api/a2a/call", json!({"task": "x", "agent_type": "b"})).await.expect(200);
    let result = format!("/api/a2a/result/{}", called["call_id"].as_str().unwrap());
    assert_eq!(holder.get(&result).await.expect(200)["status"], "started");
    let other = three.world.owner.post(RUNS, json!({"agent_id": "c"})).await.expect(201);
    let named = json!({"agent_id": "b", "parent_task_run_id": other["task_run_id"]});
    assert_eq!(holder.post(RUNS, named).await.refusal(), (404, "not_found".to_owned()));
    let named = json!({"agent_id": "b", "parent_task_run_id": claim["task_run_id"]});
    holder.post(RUNS, named).await.expect(201);

    // It sees what it created: not its own run, not another's, not a child that a person created.
    let below = json!({"agent_id": "c", "parent_task_run_id": claim["task_run_id"]});
    let below = three.world.owner.post(RUNS, below).await.expect(201);
    for hidden in [&claim, &other, &below] {
        for rest in ["", "/events?after=0"] {
            let path = format!("{RUNS}/{}{rest}", id(hidden));
            assert_eq!(holder.get(&path).await.refusal(), (404, "not_found".to_owned()), "{path}");
        }
        let path = format!("{RUNS}/{}/cancel", id(hidden));
        assert_eq!(holder.post(&path, json!({})).await.refusal(), (404, "not_found".to_owned()));
    }
    let listed = holder.get(RUNS).await.expect(200);
    assert_eq!(listed["task_runs"].as_array().unwrap().len(), 3);
    holder.get(&format!("{RUNS}/{}/events?after=0", id(&child))).await.expect(200);
    holder.post(&format!("{RUNS}/{}/cancel", id(&child)), json!({})).await.expect(200);

    // What its agent creates in another run is not its own.
    let second = three.begin(json!({})).await;
    assert_eq!(three.holder(&second).get(&format!("{RUNS}/{}", id(&child))).await.status, 404);
    assert_eq!(three.holder(&second).get(RUNS).await.expect(200)["task_runs"], json!([]));
}

async fn loops_are_refused(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let first = three.begin(json!({})).await;
    let holder = three.holder(&first);
    let itself = holder.post(RUNS, json!({"agent_id": "a"})).await;
    assert_eq!(itself.refusal(), (409, "loop_refused".to_owned()));
    holder.post(RUNS, json!({"agent_id": "b"})).await.expect(201);
    let second = three.b.claim().await;
    assert_eq!(second["parent_task_run_id"], first["task_run_id"]);
    let holder = three.holder(&second);
    for agent in ["a", "b"] {
        let refused = holder.post(RUNS, json!({"agent_id": agent})).await;
        assert_eq!(refused.refusal(), (409, "loop_refused".to_owned()), "{agent}");
    }
    holder.post(RUNS, json!({"agent_id": "c"})).await.expect(201);
}

async fn a_token_ends_with_its_claim(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let is_good = async |claim: &Value| three.holder(claim).get(RUNS).await.status == 200;

    let done = three.begin(json!({})).await;
    assert!(is_good(&done).await);
    let path = format!("{RUNS}/{}/complete", id(&done));
    three.a.client.post(&path, json!({"epoch": 1, "output": {"text": "x"}})).await.expect(200);
    assert_eq!(three.holder(&done).get(RUNS).await.refusal(), (401, "unauthenticated".to_owned()));
    assert_eq!(three.holder(&done).post(RUNS, json!({"agent_id": "b"})).await.status, 401);

    let cancelled = three.begin(json!({})).await;
    three.world.owner.post(&format!("{RUNS}/{}/cancel", id(&cancelled)), json!({})).await.expect(200);
    assert!(!is_good(&cancelled).await);

    // Another claim of the same run has another token.
    let handed_back = three.begin(json!({})).await;
    three.a.client.post(&format!("{RUNS}/{}/release", id(&handed_back)), json!({"epoch": 1})).await.expect(200);
    assert!(!is_good(&handed_back).await, "nobody works on it");
    let again = three.a.claim().await;
    assert_eq!((&again["task_run_id"], &again["epoch"]), (&handed_back["task_run_id"], &json!(2)));
    assert_ne!(token(&again), token(&handed_back));
    assert_eq!((is_good(&handed_back).await, is_good(&again).await), (false, true));

    // Waiting doesn't count against its time.
    let ask = json!({"epoch": 2, "tool": "t", "input": {}});
    three.a.client.post(&format!("{RUNS}/{}/permission-requests", id(&again)), ask).await.expect(201);
    assert!(is_good(&again).await);

    let forged = format!("{}x", token(&again));
    assert_eq!(three.world.anonymous().key(&forged).get(RUNS).await.status, 401);
}

async fn a_token_cannot_create_anything_lasting(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let claim = three.begin(json!({})).await;
    let holder = three.holder(&claim);
    let run = id(&claim);
    let ask = json!({"epoch": 1, "tool": "t", "input": {}});
    let asked = three.a.client.post(&format!("{RUNS}/{run}/permission-requests"), ask.clone()).await.expect(201);
    let asked = asked["permission_request_id"].as_str().unwrap();
    for (path, body) in [
        (format!("/api/v1/permission-requests/{asked}/decision"), json!({"approved": true})),
        (format!("{RUNS}/{run}/progress"), json!({"epoch": 1, "message": "x"})),
        (format!("{RUNS}/{run}/complete"), json!({"epoch": 1, "output": {"text": "x"}})),
        (format!("{RUNS}/{run}/permission-requests"), ask),
        ("/api/v1/agent-accounts/a/task-runs/pull?wait_ms=0".to_owned(), json!({})),
        ("/api/v1/agent-accounts/a/pairing-codes".to_owned(), json!({})),
        ("/api/v1/agent-accounts".to_owned(), json!({"name": "d"})),
        ("/api/v1/api-keys".to_owned(), json!({"name": "k"})),
        ("/api/v1/tokens".to_owned(), json!({})),
        ("/api/a2a/register".to_owned(), json!({"agent_id": "d"})),
        ("/api/v1/conversations".to_owned(), json!({})),
        (RUNS.to_owned(), json!({"agent_id": "b", "callback_url": "http://127.0.0.1:1/"})),
        (RUNS.to_owned(), json!({"agent_id": "b", "task_type": "awcp.delegation"})),
        (RUNS.to_owned(), json!({"agent_id": "b", "conversation_id": claim["conversation_id"]})),
    ] {
        assert_eq!(holder.post(&path, body.clone()).await.refusal(), (403, "forbidden".to_owned()), "{path} {body}");
    }
    for path in ["/api/v1/permission-requests", "/api/v1/audit", "/api/v1/users", "/api/v1/channels", "/api/v1/quotas"]
    {
        assert_eq!(holder.get(path).await.refusal(), (403, "forbidden".to_owned()), "{path}");
    }
    // A channel would outlive the run.
    let by = three.world.hub.authenticate_key(token(&claim)).await.unwrap();
    assert_eq!(format!("run:{run}"), by.actor().to_string());
    let frame = json!({
        "header": {"msg_id": "m1", "parent_id": null, "type": "request", "from": "x", "to": "b", "timestamp": 1},
        "payload": {"action": "execute", "query": "x"}
    });
    let refused = holder.post("/api/envelope", frame).await;
    assert!(refused.status == 403 || String::from_utf8_lossy(&refused.body).contains("forbidden"), "{refused:?}");
}

async fn only_some_runs_get_a_token(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let given = async |body: Value| three.begin(body).await["mcp"].is_object();
    assert!(given(json!({})).await);
    assert!(given(json!({"allowed_tools": []})).await);
    assert!(given(json!({"allowed_tools": ["Read", "remote_agent"]})).await);
    assert!(given(json!({"allowed_tools": ["mcp__attache__list_agents"]})).await);
    assert!(!given(json!({"allowed_tools": ["Read"]})).await, "the caller listed what it may use");
    // Anonymous callers of `a` may reach only `a`.
    let open = json!({"a2a": {"anonymous": true}});
    three.world.owner.patch("/api/v1/agent-accounts/a", open).await.expect(200);
    let agent = three.a.agent.parse().unwrap();
    let stranger = three.world.hub.anonymous(agent).await.unwrap();
    let request = CreateRunRequest { agent_id: "a".to_owned(), ..CreateRunRequest::default() };
    three.world.hub.create_run(&stranger, request, CallHeaders::default()).await.unwrap();
    assert_eq!(three.a.claim().await["mcp"], Value::Null);

    // Without hops left, no token is issued.
    let world = World::timed(engine, |options| {
        options.tools = Some("/mcp".to_owned());
        options.hops = 0;
    });
    let world = world.await;
    world.agent("a").await;
    let device = world.device("a").await;
    world.run("a").await;
    assert_eq!(device.claim().await["mcp"], Value::Null);
}

async fn child_runs_share_the_budget_and_the_limits(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let body = json!({"budget": {"tokens": 100}, "sandbox": {"allow_network": false}});
    let claim = three.begin(body).await;
    assert_eq!(claim["budget"], json!({"tokens": 100}));
    assert_eq!(claim["sandbox"], json!({"allow_network": false}));
    let holder = three.holder(&claim);
    let used = json!({"epoch": 1, "usage": {"tokens": 30}});
    three.a.client.post(&format!("{RUNS}/{}/progress", id(&claim)), used).await.expect(200);

    let wanted =
        json!({"agent_id": "b", "budget": {"tokens": 50}, "sandbox": {"cwd_only": true, "allow_network": true}});
    holder.post(RUNS, wanted).await.expect(201);
    let first = three.b.claim().await;
    assert_eq!(first["budget"], json!({"tokens": 50}));
    assert_eq!(first["sandbox"], json!({"cwd_only": true, "allow_network": false}), "the limits of both");
    // The first child's budget is not available a second time.
    holder.post(RUNS, json!({"agent_id": "b"})).await.expect(201);
    let second = three.b.claim().await;
    assert_eq!(second["budget"], json!({"tokens": 20}));
    assert_eq!(holder.post(RUNS, json!({"agent_id": "b"})).await.refusal(), (429, "quota_exceeded".to_owned()));
    // Unused budget comes back when it ends.
    let end = json!({"epoch": 1, "output": {"text": "x"}, "usage": {"tokens": 5}});
    three.b.client.post(&format!("{RUNS}/{}/complete", id(&first)), end).await.expect(200);
    holder.post(RUNS, json!({"agent_id": "b"})).await.expect(201);
    assert_eq!(three.b.claim().await["budget"], json!({"tokens": 45}));
}

/// Children that are created at the same moment share what is left, also once their parent has ended.
async fn children_created_at_once_share_the_budget(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let claim = three.begin(json!({"budget": {"tokens": 100}})).await;
    let holder = three.holder(&claim);
    let created = join_all((0..8).map(|_| holder.post(RUNS, json!({"agent_id": "b"})))).await;
    let created: Vec<u16> = created.iter().map(|answer| answer.status).collect();
    assert_eq!(created.iter().filter(|status| **status == 201).count(), 1, "{created:?}");
    let child = three.b.claim().await;
    assert_eq!(child["budget"], json!({"tokens": 100}));
    let usage = |tokens: u64| json!({"epoch": 1, "output": {"text": "x"}, "usage": {"tokens": tokens}});
    three.a.client.post(&format!("{RUNS}/{}/complete", id(&claim)), usage(30)).await.expect(200);
    let report = async |tokens: u64| {
        let body = json!({"epoch": 1, "usage": {"tokens": tokens}});
        three.b.client.post(&format!("{RUNS}/{}/progress", id(&child)), body).await.expect(200)["status"].clone()
    };
    assert_eq!((report(70).await, report(71).await), (json!("running"), json!("failed")));
}

/// A run's children count against its budget, together with its own usage.
async fn a_run_and_its_children_stop_at_the_runs_budget(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let claim = three.begin(json!({"budget": {"tokens": 100}})).await;
    three.holder(&claim).post(RUNS, json!({"agent_id": "b"})).await.expect(201);
    let part = three.b.claim().await;
    let end = json!({"epoch": 1, "output": {"text": "x"}, "usage": {"tokens": 60}});
    three.b.client.post(&format!("{RUNS}/{}/complete", id(&part)), end).await.expect(200);
    let used = async |tokens: u64| {
        let body = json!({"epoch": 1, "usage": {"tokens": tokens}});
        three.a.client.post(&format!("{RUNS}/{}/progress", id(&claim)), body).await
    };
    assert_eq!(used(40).await.expect(200)["status"], "running");
    assert_eq!(used(41).await.expect(200)["status"], "failed");
    let ended = three.world.owner.get(&format!("{RUNS}/{}", id(&claim))).await.expect(200);
    assert_eq!(ended["task_result"]["code"], "quota_exceeded", "{ended}");
    assert!(ended["task_result"]["error"].as_str().unwrap().contains("101 tokens of 100"), "{ended}");
}

/// A child's remaining budget doesn't count yet, but its usage counts immediately, whoever reports.
async fn a_child_stops_when_the_parents_budget_is_used_up(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let claim = three.begin(json!({"budget": {"tokens": 100}})).await;
    three.holder(&claim).post(RUNS, json!({"agent_id": "b", "budget": {"tokens": 50}})).await.expect(201);
    let part = three.b.claim().await;
    let report = async |device: &crate::world::TestDevice, claim: &Value, tokens: u64| {
        let body = json!({"epoch": 1, "usage": {"tokens": tokens}});
        device.client.post(&format!("{RUNS}/{}/progress", id(claim)), body).await.expect(200)["status"].clone()
    };
    assert_eq!(report(&three.b, &part, 40).await, "running");
    assert_eq!(report(&three.a, &claim, 55).await, "running");
    assert_eq!(report(&three.b, &part, 45).await, "running");
    assert_eq!(report(&three.b, &part, 46).await, "failed");
    let ended = three.world.owner.get(&format!("{RUNS}/{}", id(&part))).await.expect(200);
    assert_eq!(ended["task_result"]["code"], "quota_exceeded", "{ended}");
    // A stopped child's usage is what its worker finally reports.
    let late = json!({"epoch": 1, "usage": {"tokens": 60}});
    let late = three.b.client.post(&format!("{RUNS}/{}/progress", id(&part)), late).await;
    assert_eq!(late.refusal(), (409, "run_ended".to_owned()));
    assert_eq!(report(&three.a, &claim, 56).await, "failed");
    let ended = three.world.owner.get(&format!("{RUNS}/{}", id(&claim))).await.expect(200);
    assert!(ended["task_result"]["error"].as_str().unwrap().contains("116 tokens of 100"), "{ended}");
}

async fn what_is_passed_on_counts_towards_the_quota_of_the_first_caller(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let bob = person(&three.world, "bob", "operator").await;
    let put = three.world.owner.with("content-type", "application/json");
    let quota = json!({"user": "bob", "calls": 3});
    put.call(hyper::Method::PUT, "/api/v1/quotas", quota.to_string()).await.expect(200);
    bob.post(RUNS, json!({"agent_id": "a"})).await.expect(201);
    let first = three.a.claim().await;
    three.holder(&first).post(RUNS, json!({"agent_id": "b"})).await.expect(201);
    let second = three.b.claim().await;
    three.holder(&second).post(RUNS, json!({"agent_id": "c"})).await.expect(201);
    for by in [&three.holder(&second), &three.holder(&first), &bob] {
        assert_eq!(by.post(RUNS, json!({"agent_id": "c"})).await.refusal(), (429, "quota_exceeded".to_owned()));
    }
    // The agents' owner passes on work of their own, and has a quota of their own.
    let own = three.begin(json!({})).await;
    three.holder(&own).post(RUNS, json!({"agent_id": "c"})).await.expect(201);
}

async fn rules_apply_to_everyone_in_the_chain(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let rules = json!({"text": "agents:\n  a:\n    cannot_access: [agents/c]\n"});
    let put = three.world.owner.with("content-type", "application/json");
    put.call(hyper::Method::PUT, "/api/v1/permission-rules", rules.to_string()).await.expect(200);
    let first = three.begin(json!({})).await;
    let holder = three.holder(&first);
    let names = holder.get("/api/v1/agent-accounts").await.expect(200);
    let names: Vec<&str> =
        names["agent_accounts"].as_array().unwrap().iter().map(|agent| agent["name"].as_str().unwrap()).collect();
    assert!(!names.contains(&"c") && names.contains(&"b"), "{names:?}");
    assert_eq!(holder.post(RUNS, json!({"agent_id": "c"})).await.refusal(), (404, "not_found".to_owned()));
    // `b` may reach `c`, but not on behalf of `a`.
    holder.post(RUNS, json!({"agent_id": "b"})).await.expect(201);
    let second = three.b.claim().await;
    let refused = three.holder(&second).post(RUNS, json!({"agent_id": "c"})).await;
    assert_eq!(refused.refusal(), (403, "access_denied".to_owned()));
}

/// An agent that asks for approval must not bypass it through one that doesn't.
async fn an_agent_without_approvals_gets_only_approved_tasks(engine: Engine) {
    let (three, local, claim) = ThreeAgents::with_local(engine).await;
    let holder = three.holder(&claim);
    let task = json!({"agent_id": "local", "input": {"text": "head $A2A_HOME/hub/admin.key"}});
    for path in [RUNS, "/api/a2a/call"] {
        let body = match path {
            RUNS => task.clone(),
            _ => json!({"task": "head $A2A_HOME/hub/admin.key", "agent_type": "local"}),
        };
        let refused = holder.post(path, body).await;
        assert_eq!(refused.refusal(), (409, "approval_required".to_owned()), "{path}");
    }
    assert_eq!(local.try_claim().await, Value::Null, "nothing reaches the agent");

    // It is a step of the calling run, and the person sees the exact text.
    let asked = three.pending().await;
    assert_eq!([&asked["task_run_id"], &asked["tool"]], [&claim["task_run_id"], &json!("remote_agent/local")]);
    assert_eq!(asked["input"]["task"], "head $A2A_HOME/hub/admin.key", "{asked}");
    let run = three.world.owner.get(&format!("{RUNS}/{}", id(&claim))).await.expect(200);
    assert_eq!(run["waiting"], "approval");
    let waits_for = json!({
        "kind": "approval",
        "id": asked["permission_request_id"],
        "what": "remote_agent/local: head $A2A_HOME/hub/admin.key",
    });
    assert_eq!(run["waits_for"], waits_for);

    // A denial stands, however often it is retried.
    three.decide(&asked, json!({"approved": false, "comment": "not this"})).await;
    for _ in 0..2 {
        let denied = holder.post(RUNS, task.clone()).await;
        assert_eq!(denied.refusal(), (403, "approval_denied".to_owned()));
        assert!(denied.json()["error"]["message"].as_str().unwrap().contains("not this"), "{denied:?}");
    }
    assert_eq!(local.try_claim().await, Value::Null);

    // Another text is another request.
    let other = json!({"agent_id": "local", "input": {"text": "uname -a"}});
    assert_eq!(holder.post(RUNS, other.clone()).await.refusal().1, "approval_required");
    let asked = three.pending().await;
    assert_eq!(asked["input"]["task"], "uname -a");
    three.decide(&asked, json!({"approved": true})).await;
    let made = holder.post(RUNS, other).await.expect(201);
    assert_eq!(local.claim().await["task_run_id"], made["task_run_id"]);

    // People and agents with their own keys need no approval.
    three.world.owner.post(RUNS, task).await.expect(201);
}

async fn an_approval_creates_one_run(engine: Engine) {
    let (three, _local, claim) = ThreeAgents::with_local(engine).await;
    let holder = three.holder(&claim);
    let task = json!({"agent_id": "local", "input": {"text": "make test"}});
    holder.post(RUNS, task.clone()).await.refusal();
    // Repeating a pending request returns the same request.
    holder.post(RUNS, task.clone()).await.refusal();
    three.decide(&three.pending().await, json!({"approved": true})).await;
    let first = holder.post(RUNS, task.clone()).await.expect(201);
    // Once means once: the same task needs another approval.
    assert_eq!(holder.post(RUNS, task.clone()).await.refusal().1, "approval_required");
    three.decide(&three.pending().await, json!({"approved": true, "scope": "run"})).await;
    let second = holder.post(RUNS, task.clone()).await.expect(201);
    assert_ne!(first["task_run_id"], second["task_run_id"]);
    // A grant for the run answers from then on.
    holder.post(RUNS, task.clone()).await.expect(201);
    // With the caller's idempotency key, the request creates one run.
    let keyed = json!({"agent_id": "local", "input": {"text": "make test"}, "idempotency_key": "k"});
    let made = holder.post(RUNS, keyed.clone()).await.expect(201);
    assert_eq!(holder.post(RUNS, keyed).await.expect(200)["task_run_id"], made["task_run_id"]);
    // Another run needs its own approval.
    let other = three.begin(json!({})).await;
    assert_eq!(three.holder(&other).post(RUNS, task).await.refusal().1, "approval_required");
}

async fn input_to_an_agent_without_approvals_needs_approval_too(engine: Engine) {
    let (three, local, claim) = ThreeAgents::with_local(engine).await;
    let holder = three.holder(&claim);
    let task = json!({"agent_id": "local", "input": {"text": "ask me"}});
    holder.post(RUNS, task.clone()).await.refusal();
    three.decide(&three.pending().await, json!({"approved": true})).await;
    let child = id(&holder.post(RUNS, task).await.expect(201));
    local.claim().await;
    let ask = json!({"epoch": 1, "prompt": "Next command?"});
    let asked = local.client.post(&format!("{RUNS}/{child}/input-requests"), ask).await.expect(201);
    let path = format!("{RUNS}/{child}/input");
    let answer = json!({"text": "rm -rf ~", "input_request_id": asked["input_request_id"]});
    assert_eq!(holder.post(&path, answer.clone()).await.refusal(), (409, "approval_required".to_owned()));
    let waits = three.pending().await;
    assert_eq!(waits["task_run_id"], claim["task_run_id"]);
    assert_eq!(waits["input"]["answer"], json!([{"text": "rm -rf ~"}]), "{waits}");
    three.decide(&waits, json!({"approved": true})).await;
    holder.post(&path, answer).await.expect(200);
}

/// Neither the store nor the log nor anything people can read contains the token.
#[tokio::test]
async fn the_token_is_stored_nowhere() {
    let three = ThreeAgents::start(Engine::Sqlite).await;
    let claim = three.begin(json!({})).await;
    let holder = three.holder(&claim);
    let child = holder.post(RUNS, json!({"agent_id": "b"})).await.expect(201);
    holder.get(&format!("{RUNS}/{}", id(&child))).await.expect(200);
    let signature = token(&claim).rsplit('.').next().unwrap().to_owned();
    assert!(signature.len() > 80, "{signature}");
    let owner = &three.world.owner;
    for path in [
        "/api/v1/audit?after=0&limit=200".to_owned(),
        format!("{RUNS}/{}", id(&claim)),
        format!("{RUNS}/{}/events?after=0", id(&claim)),
        format!("{RUNS}/{}/events?after=0", id(&child)),
    ] {
        let body = owner.get(&path).await;
        assert_eq!(body.status, 200);
        assert!(!String::from_utf8_lossy(&body.body).contains(&signature), "{path}");
    }
    assert!(!format!("{:?}", three.world.hub.authenticate_key(token(&claim)).await.unwrap()).contains(&signature));
    let mut looked_at = 0;
    let mut folders = vec![three.world.data.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            looked_at += bytes.len();
            let found = bytes.windows(signature.len()).any(|window| window == signature.as_bytes());
            assert!(!found, "{} holds the token", path.display());
        }
    }
    assert!(looked_at > 100_000, "only {looked_at} bytes were looked at");
}

/// Streams opened with a token end with the run.
#[tokio::test]
async fn a_stream_ends_with_the_run() {
    let three = ThreeAgents::start(Engine::Model).await;
    let claim = three.begin(json!({})).await;
    let holder = three.holder(&claim);
    let child = holder.post(RUNS, json!({"agent_id": "b"})).await.expect(201);
    let mut events = holder.follow(&format!("{RUNS}/{}/events?after=0", id(&child))).await;
    assert_eq!(events.next().await.unwrap().event, "task.created");
    let path = format!("{RUNS}/{}/complete", id(&claim));
    three.a.client.post(&path, json!({"epoch": 1, "output": {"text": "x"}})).await.expect(200);
    let end = tokio::time::timeout(Duration::from_secs(5), async { while events.next().await.is_some() {} }).await;
    assert_eq!(end, Ok(()));
}

/// `b` asks a person before each step, until its settings approve some of them.
async fn an_agent_whose_steps_are_approved_in_advance_gets_only_approved_tasks(engine: Engine) {
    let three = ThreeAgents::start(engine).await;
    let claim = three.begin(json!({})).await;
    let holder = three.holder(&claim);
    let task = |text: &str| json!({"agent_id": "b", "input": {"text": text}});
    let set = async |approvals: Value| {
        three.world.owner.patch("/api/v1/agent-accounts/b", json!({"approvals": approvals})).await.expect(200);
    };
    for trusting in
        [json!({"mode": "accept_walled"}), json!({"mode": "accept_edits"}), json!({"trusted_commands": ["git diff *"]})]
    {
        set(trusting.clone()).await;
        let refused = holder.post(RUNS, task(&trusting.to_string())).await;
        assert_eq!(refused.refusal(), (409, "approval_required".to_owned()), "{trusting}");
    }
    assert_eq!(three.b.try_claim().await, Value::Null, "nothing reaches the agent");
    // A run that asks about every step needs no approval, nor does an agent that does.
    set(json!({"mode": "accept_edits"})).await;
    let asking = json!({"agent_id": "b", "input": {"text": "x"}, "permission_mode": "ask"});
    holder.post(RUNS, asking).await.expect(201);
    set(json!({})).await;
    holder.post(RUNS, task("y")).await.expect(201);
}
