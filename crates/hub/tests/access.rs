//! What agents with their own keys may reach: by default, by rule and in call chains, and how rules are changed.

use std::sync::Arc;

use attache_hub::{Hub, NodeOptions, Options};
use attache_protocol::env::Env;
use attache_store::memory::MemoryStore;
use hyper::Method;
use serde_json::{Value, json};

use crate::{
    call::watcher::{Socket, call},
    world::{Engine, PATIENCE, TestCaller, World, on_all},
};

const RULES: &str = "/api/v1/permission-rules";

on_all! {
    without_rules_an_agent_reaches_its_own_users_things_and_shared_agents
    invalid_and_outdated_rules_are_refused
    a_stream_ends_when_its_rule_is_removed
    loops_between_agents_are_refused
    naming_another_run_removes_no_limits
    cancelling_a_run_cancels_its_child_runs
    renaming_does_not_evade_a_limit
    every_change_is_logged
    ; // These expect that a change is known at once, as it is to the node that made it.
    alone:
    rule_changes_apply_immediately
    a_forwarded_call_has_only_shared_rights
    artifacts_are_reached_by_space
}

/// A new user with a key of this role.
async fn person(world: &World, name: &str, role: &str) -> TestCaller {
    world.owner.post("/api/v1/users", json!({"name": name, "role": role})).await.expect(201);
    let key = json!({"name": name, "user": name, "role": role});
    let key = world.owner.post("/api/v1/api-keys", key).await.expect(201);
    world.anonymous().key(key["api_key"].as_str().unwrap())
}

/// A new agent of the user, with its own key.
async fn agent_of(world: &World, user: &TestCaller, name: &str) -> TestCaller {
    let registered = user.post("/api/a2a/register", json!({"agent_id": name})).await.expect(200);
    world.anonymous().key(registered["api_key"].as_str().unwrap())
}

async fn shared(world: &World, name: &str) -> TestCaller {
    world.agent(name).await;
    world.owner.patch(&format!("/api/v1/agent-accounts/{name}"), json!({"owner": ""})).await.expect(200);
    let body = json!({"pairing_token": world.code(name).await});
    let registered = world.anonymous().post("/api/a2a/register", body).await.expect(200);
    world.anonymous().key(registered["api_key"].as_str().unwrap())
}

async fn set(world: &World, text: &str) -> Value {
    let body = json!({"text": text}).to_string();
    let set = world.owner.with("content-type", "application/json").call(Method::PUT, RULES, body).await.expect(200);
    if world.nodes.len() > 1 {
        // A hint may be lost, and the rules are believed for as long.
        tokio::time::sleep(NodeOptions::default().look_every).await;
    }
    set
}

fn names(list: &Value) -> Vec<&str> {
    list["agent_accounts"].as_array().unwrap().iter().map(|agent| agent["name"].as_str().unwrap()).collect()
}

fn not_found() -> (u16, String) {
    (404, "not_found".to_owned())
}

async fn run_of(user: &TestCaller, agent: &str) -> Value {
    user.post("/api/v1/task-runs", json!({"agent_id": agent, "input": {"text": "secret"}})).await.expect(201)
}

/// All paths that show something of a run.
fn paths(run: &Value) -> [String; 5] {
    let text = |name: &str| run[name].as_str().unwrap().to_owned();
    let id = text("task_run_id");
    [
        format!("/api/v1/task-runs/{id}"),
        format!("/api/v1/task-runs/{id}/events"),
        format!("/api/a2a/result/{id}"),
        format!("/api/v1/conversations/{}", text("conversation_id")),
        format!("/api/v1/conversations/{}/messages", text("conversation_id")),
    ]
}

async fn without_rules_an_agent_reaches_its_own_users_things_and_shared_agents(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ann, bob) = (person(&world, "ann", "operator").await, person(&world, "bob", "operator").await);
    let laptop = agent_of(&world, &ann, "ann-laptop").await;
    agent_of(&world, &ann, "ann-desk").await;
    agent_of(&world, &bob, "bob-laptop").await;
    shared(&world, "knowledge").await;

    let listed = laptop.get("/api/v1/agent-accounts").await.expect(200);
    assert_eq!(names(&listed), ["ann-desk", "ann-laptop", "knowledge"]);
    assert_eq!(laptop.get("/api/v1/agent-accounts/bob-laptop").await.refusal(), not_found());
    // A call to an unreachable agent gets the same answer as one to a missing agent, and neither reveals other agents.
    let denied = laptop.post("/api/a2a/call", json!({"task": "x", "agent_type": "bob-laptop"})).await;
    let missing = laptop.post("/api/a2a/call", json!({"task": "x", "agent_type": "bob-leptop"})).await;
    assert_eq!(denied.refusal(), not_found());
    let text = |reply: &crate::world::HttpReply| String::from_utf8(reply.body.to_vec()).unwrap();
    assert_eq!(text(&denied).replace("bob-laptop", "X"), text(&missing).replace("bob-leptop", "X"));
    assert!(!text(&missing).contains("bob-laptop"), "{}", text(&missing));
    let body = json!({"agent_id": "bob-laptop"});
    assert_eq!(laptop.post("/api/v1/task-runs", body).await.refusal(), not_found());
    call(&laptop, json!({"task": "x", "agent_type": "knowledge"})).await;

    let (own, foreign) = (run_of(&ann, "ann-desk").await, run_of(&bob, "knowledge").await);
    for path in paths(&own) {
        assert_eq!(laptop.get(&path).await.status, 200, "{path}");
    }
    for path in paths(&foreign) {
        assert_eq!(laptop.get(&path).await.refusal(), not_found(), "{path}");
    }
    let cancel = format!("/api/v1/task-runs/{}/cancel", own["task_run_id"].as_str().unwrap());
    assert_eq!(laptop.post(&cancel, json!({})).await.refusal(), not_found(), "seeing is not stopping");
    let runs = laptop.get("/api/v1/task-runs?limit=1").await.expect(200);
    assert_eq!(runs["task_runs"][0]["task_run_id"], own["task_run_id"], "what is not seen leaves no hole");
    let body = json!({"agent_id": "knowledge", "conversation_id": foreign["conversation_id"]});
    assert_eq!(laptop.post("/api/v1/task-runs", body).await.refusal(), not_found());
    let body = json!({"agent_id": "knowledge", "parent_task_run_id": own["task_run_id"]});
    assert_eq!(laptop.post("/api/v1/task-runs", body).await.refusal(), not_found(), "it is no part of that work");
}

async fn rule_changes_apply_immediately(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ann, bob) = (person(&world, "ann", "operator").await, person(&world, "bob", "operator").await);
    let laptop = agent_of(&world, &ann, "ann-laptop").await;
    agent_of(&world, &bob, "bob-laptop").await;
    shared(&world, "knowledge").await;
    let (own, foreign) = (run_of(&ann, "ann-laptop").await, run_of(&bob, "knowledge").await);

    set(&world, "agents:\n  ann-laptop:\n    can_access: [agents/bob-laptop, conversations/bob/*]\n").await;
    assert_eq!(
        names(&laptop.get("/api/v1/agent-accounts").await.expect(200)),
        ["ann-laptop", "bob-laptop", "knowledge"]
    );
    for path in paths(&foreign).into_iter().chain(paths(&own)) {
        assert_eq!(laptop.get(&path).await.status, 200, "{path}");
    }
    call(&laptop, json!({"task": "x", "agent_type": "bob-laptop"})).await;

    // A denial beats every grant.
    let text = "default: allow\nagents:\n  ann-*:\n    can_access: [\"*\"]\n    cannot_access:\n      - conversations/other_users/*\n      - agents/bob-laptop\n";
    set(&world, text).await;
    assert_eq!(names(&laptop.get("/api/v1/agent-accounts").await.expect(200)), ["ann-laptop", "knowledge"]);
    for path in paths(&foreign) {
        assert_eq!(laptop.get(&path).await.refusal(), not_found(), "{path}");
    }
    let ask = |agent: &'static str, object: &str| {
        let body = json!({"agent": agent, "object": object});
        let owner = world.owner.clone();
        async move { owner.post(&format!("{RULES}/check"), body).await.expect(200) }
    };
    assert_eq!(
        ask("ann-laptop", "agents/bob-laptop").await,
        json!({"agent": "ann-laptop", "object": "agents/bob-laptop", "allowed": false, "because": "rule",
            "rule": "agents/bob-laptop"})
    );
    assert_eq!(ask("ann-laptop", "conversations/ann/cnv_1").await["rule"], "*");
    assert_eq!(ask("ann-laptop", "conversations/bob/cnv_1").await["rule"], "conversations/other_users/*");
    assert_eq!(ask("bob-laptop", "resources/x/y").await["because"], "default");
    assert_eq!(ask("ann-laptop", "resources/x/../y").await["because"], "no_such_name");
    let reply = world.owner.post(&format!("{RULES}/check"), json!({"agent": "ann-laptop", "object": "files/x"})).await;
    assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()));

    for (agent, object) in
        [("nobody", "agents/knowledge"), ("ann-laptop", "agents/nobody"), ("nobody", "resources/x/y")]
    {
        let reply = world.owner.post(&format!("{RULES}/check"), json!({"agent": agent, "object": object})).await;
        assert_eq!(reply.refusal(), not_found(), "{agent} {object}");
    }

    // People don't have their agents' limits.
    bob.get(&paths(&own)[0]).await.expect(200);
    set(&world, "default: deny\n").await;
    assert_eq!(names(&laptop.get("/api/v1/agent-accounts").await.expect(200)), Vec::<&str>::new());
    assert_eq!(laptop.get(&paths(&own)[0]).await.refusal(), not_found());
}

async fn invalid_and_outdated_rules_are_refused(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let put = |body: Value| {
        let owner = world.owner.with("content-type", "application/json");
        async move { owner.call(Method::PUT, RULES, body.to_string()).await }
    };
    let empty = world.owner.get(RULES).await.expect(200);
    assert_eq!(
        empty,
        json!({"text": "", "version": 0, "file": null, "problem": null, "changed_at": null, "changed_by": null})
    );
    let wrong = put(json!({"text": "agents:\n  a:\n    cannot_acces:\n      - \"*\"\n"})).await;
    assert_eq!(wrong.refusal(), (400, "rules_invalid".to_owned()));
    let message = wrong.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("line 3, column 5: "), "{message}");
    let first = put(json!({"text": "default: deny\n", "version": 0})).await.expect(200);
    assert_eq!((&first["version"], &first["text"]), (&json!(1), &json!("default: deny\n")));
    for blank in ["", "\n", "# default: deny\n"] {
        let reply = put(json!({"text": blank})).await;
        assert_eq!(reply.refusal(), (400, "rules_invalid".to_owned()), "{blank:?}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with("line 1, column 1: the file has no rules. Write `default: own`"), "{message}");
    }
    let late = put(json!({"text": "default: allow\n", "version": 0})).await;
    assert_eq!(late.refusal(), (409, "version_changed".to_owned()));
    put(json!({"text": "default: allow\n", "version": 1})).await.expect(200);
    let rows = world.audit("rules.changed").await;
    assert_eq!(rows.iter().map(|(_, data)| &data["version"]).collect::<Vec<_>>(), [&json!(1), &json!(2)]);
    assert!(rows[0].0.starts_with("key:"), "{}", rows[0].0);
}

/// The next task of a connected agent.
async fn claims(socket: &mut Socket) -> String {
    let task = socket.next().await.unwrap();
    assert_eq!(task["type"], "task", "{task}");
    task["task_id"].as_str().unwrap().to_owned()
}

async fn a_forwarded_call_has_only_shared_rights(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let ann = person(&world, "ann", "operator").await;
    let (first, second) = (agent_of(&world, &ann, "first").await, agent_of(&world, &ann, "second").await);
    agent_of(&world, &ann, "third").await;
    agent_of(&world, &ann, "fourth").await;
    set(&world, "agents:\n  first:\n    cannot_access: [agents/third]\n").await;
    let mut socket = Socket::open(&world, "/api/a2a/connect", &second).await;
    call(&first, json!({"task": "look", "agent_type": "second"})).await;
    let task = claims(&mut socket).await;

    // Whether or not it names the run it works for: the first may not reach the third, so the second may not either.
    let body = json!({"task": "x", "agent_type": "third"});
    for reply in [
        second.post("/api/a2a/call", body.clone()).await,
        second.with("x-attache-parent-run", &task).post("/api/a2a/call", body.clone()).await,
    ] {
        assert_eq!(reply.refusal(), (403, "access_denied".to_owned()));
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        let wanted =
            "`first` is part of this call chain and is not allowed to reach agents/third, by the rule `agents/third`.";
        assert_eq!(message, wanted);
    }
    let passed_on = call(&second, json!({"task": "x", "agent_type": "fourth"})).await;
    let run = second.get(&format!("/api/v1/task-runs/run_{}", passed_on.trim_start_matches("a2a-"))).await.expect(200);
    let parent = run["parent_task_run_id"].as_str().unwrap().trim_start_matches("run_").to_owned();
    assert!(task.replace('-', "").ends_with(&parent), "{task} is not {parent}");

    // Once that work is done, the second has its own rights again. Work for a person has the person's rights.
    socket.send(json!({"type": "result", "task_id": task, "data": {"summary": "done"}})).await;
    world.run("second").await;
    claims(&mut socket).await;
    call(&second, body).await;
}

async fn a_stream_ends_when_its_rule_is_removed(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ann, bob) = (person(&world, "ann", "operator").await, person(&world, "bob", "operator").await);
    let laptop = agent_of(&world, &ann, "ann-laptop").await;
    shared(&world, "knowledge").await;
    let foreign = run_of(&bob, "knowledge").await;
    set(&world, "agents:\n  ann-laptop:\n    can_access: [conversations/bob/*]\n").await;
    let mut events = laptop.follow(&paths(&foreign)[1]).await;
    assert_eq!(events.next().await.unwrap().event, "task.created");
    set(&world, "default: own\n").await;
    assert_eq!(events.next().await, None);
}

async fn loops_between_agents_are_refused(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let ann = person(&world, "ann", "operator").await;
    let (first, second) = (agent_of(&world, &ann, "first").await, agent_of(&world, &ann, "second").await);
    let mut one = Socket::open(&world, "/api/a2a/connect", &first).await;
    let mut two = Socket::open(&world, "/api/a2a/connect", &second).await;
    call(&ann, json!({"task": "begin", "agent_type": "first"})).await;
    claims(&mut one).await;
    call(&first, json!({"task": "go on", "agent_type": "second"})).await;
    claims(&mut two).await;
    let refused = second.post("/api/a2a/call", json!({"task": "and you", "agent_type": "first"})).await;
    assert_eq!(refused.refusal(), (409, "loop_refused".to_owned()));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "This call would create a loop: first → second → first.");
    let other =
        json!({"task": "x", "agent_type": "second", "parent_task_run_id": "run_00000000000000000000000000000001"});
    assert_eq!(second.post("/api/a2a/call", other).await.refusal(), not_found());
}

async fn naming_another_run_removes_no_limits(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let ann = person(&world, "ann", "operator").await;
    let (first, second) = (agent_of(&world, &ann, "first").await, agent_of(&world, &ann, "second").await);
    agent_of(&world, &ann, "third").await;
    set(&world, "agents:\n  first:\n    cannot_access: [agents/third]\n").await;
    let mut socket = Socket::open(&world, "/api/a2a/connect", &second).await;
    let run_of = |call: &str| format!("run_{}", call.trim_start_matches("a2a-"));
    // An ended run that it held, an ended run that it created, and a pending run that it created.
    let held = run_of(&call(&ann, json!({"task": "x", "agent_type": "second"})).await);
    let task = claims(&mut socket).await;
    socket.send(json!({"type": "result", "task_id": task, "data": {"summary": "done"}})).await;
    crate::channel::peer::until_status(&world, &held, "completed").await;
    let asked = run_of(&call(&second, json!({"task": "x", "agent_type": "third"})).await);
    second.post(&format!("/api/v1/task-runs/{asked}/cancel"), json!({})).await.expect(200);
    let waiting = run_of(&call(&second, json!({"task": "x", "agent_type": "third"})).await);
    call(&first, json!({"task": "look", "agent_type": "second"})).await;
    claims(&mut socket).await;

    for (agent, code) in [("third", (403, "access_denied")), ("first", (409, "loop_refused"))] {
        for (parent, wanted) in [(&held, (409, "run_ended")), (&asked, (409, "run_ended")), (&waiting, code)] {
            let named = json!({"agent_id": agent, "parent_task_run_id": parent});
            for refused in [
                second.post("/api/v1/task-runs", named).await,
                second.with("x-attache-parent-run", parent).post("/api/v1/task-runs", json!({"agent_id": agent})).await,
            ] {
                assert_eq!(refused.refusal(), (wanted.0, wanted.1.to_owned()), "{agent} below {parent}");
                assert!(!String::from_utf8_lossy(&refused.body).contains("X-Attache-Parent-Run"));
            }
        }
    }
    let body = json!({"agent_id": "third", "parent_task_run_id": held});
    assert_eq!(first.post("/api/v1/task-runs", body).await.refusal(), not_found(), "it was never its own");
}

async fn cancelling_a_run_cancels_its_child_runs(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (alice, bob) = (agent_of(&world, &world.owner, "alice").await, agent_of(&world, &world.owner, "bob").await);
    agent_of(&world, &world.owner, "carol").await;
    let mut one = Socket::open(&world, "/api/a2a/connect", &alice).await;
    let mut two = Socket::open(&world, "/api/a2a/connect", &bob).await;
    let run_of = |call: String| format!("run_{}", call.trim_start_matches("a2a-"));
    let first = run_of(call(&world.owner, json!({"task": "begin", "agent_type": "alice"})).await);
    let unrelated = run_of(call(&world.owner, json!({"task": "other", "agent_type": "carol"})).await);
    claims(&mut one).await;
    let second = run_of(call(&alice, json!({"task": "go on", "agent_type": "bob"})).await);
    claims(&mut two).await;
    let third = run_of(call(&bob, json!({"task": "and on", "agent_type": "carol"})).await);
    let cancel = format!("/api/v1/task-runs/{first}/cancel");
    world.owner.post(&cancel, json!({"reason": "enough"})).await.expect(200);
    let mut ends = Vec::new();
    for run in [&first, &second, &third, &unrelated] {
        let read = world.owner.get(&format!("/api/v1/task-runs/{run}")).await.expect(200);
        ends.push((read["status"].clone(), read["task_result"]["error"].clone()));
    }
    let with_it = (json!("cancelled"), json!("its parent run was cancelled"));
    let wanted = [(json!("cancelled"), json!("enough")), with_it.clone(), with_it, (json!("pending"), Value::Null)];
    assert_eq!(ends, wanted);
    assert_eq!(two.next().await.unwrap()["type"], "cancel", "the worker is told");
    let rows = world.audit("task.cancelled").await;
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|(actor, _)| actor.starts_with("key:")), "{rows:?}");
    // Repeating it returns the same answer and changes nothing.
    world.owner.post(&cancel, json!({})).await.expect(200);
    assert_eq!(world.audit("task.cancelled").await.len(), 3);
}

async fn renaming_does_not_evade_a_limit(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let ann = person(&world, "ann", "operator").await;
    for name in ["counted", "ruled", "target", "globbed", "free"] {
        agent_of(&world, &ann, name).await;
    }
    let body = json!({"agent": "counted", "calls": 5}).to_string();
    let owner = world.owner.with("content-type", "application/json");
    owner.call(Method::PUT, "/api/v1/quotas", body).await.expect(200);
    set(
        &world,
        "agents:\n  ruled:\n    cannot_access: [agents/target, conversations/ann/*]\n  \"glob*\":\n    cannot_access: [agents/fre*]\n",
    )
    .await;
    for (name, what) in [
        ("counted", "A quota limits this agent"),
        ("ruled", "The rule `ruled` names this agent"),
        ("target", "The rule `agents/target` names this agent"),
    ] {
        let path = format!("/api/v1/agent-accounts/{name}");
        for refused in [ann.patch(&path, json!({"name": "else"})).await, ann.delete(&path).await] {
            assert_eq!(refused.refusal(), (403, "forbidden".to_owned()), "{name}");
            let wanted = format!("{what}, so only an owner or admin can archive or rename it.");
            assert_eq!(refused.json()["error"]["message"], wanted);
        }
        ann.patch(&path, json!({"description": "mine"})).await.expect(200);
        world.owner.patch(&path, json!({"name": format!("{name}-2")})).await.expect(200);
    }
    for name in ["globbed", "free"] {
        ann.patch(&format!("/api/v1/agent-accounts/{name}"), json!({"name": format!("{name}-2")})).await.expect(200);
        assert_eq!(ann.delete(&format!("/api/v1/agent-accounts/{name}-2")).await.status, 200);
    }
    let refused = world.owner.patch("/api/v1/users/ann", json!({"name": "anna"})).await;
    assert_eq!(refused.refusal(), (409, "name_taken".to_owned()));
    let message = refused.json()["error"]["message"].clone();
    assert_eq!(message, "The rule `conversations/ann/*` uses the name `ann`, so this user can't be renamed.");
    world.owner.patch("/api/v1/users/ann", json!({"name": "ann", "role": "viewer"})).await.expect(200);
    for name in ["other_users", "_"] {
        let reply = world.owner.post("/api/v1/users", json!({"name": name})).await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()), "{name}");
    }
    set(&world, "default: own\n").await;
    world.owner.patch("/api/v1/users/ann", json!({"name": "anna"})).await.expect(200);
}

async fn artifacts_are_reached_by_space(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ann, bob) = (person(&world, "ann", "operator").await, person(&world, "bob", "operator").await);
    let laptop = agent_of(&world, &ann, "ann-laptop").await;
    let mut artifacts = Vec::new();
    for (owner, space, name) in [(&bob, Some("public"), "handbook"), (&bob, None, "diary"), (&ann, None, "notes")] {
        let metadata = space.map_or(json!({}), |space| json!({"space": space}));
        let made = owner.post("/api/v1/conversations", json!({"metadata": metadata})).await.expect(201);
        let workspace = made["workspace_id"].as_str().unwrap().to_owned();
        let put = format!("/api/v1/workspaces/{workspace}/artifacts/{name}");
        let artifact = owner.call(Method::PUT, &put, name).await.expect(201);
        artifacts.push((workspace, artifact["artifact_id"].as_str().unwrap().to_owned()));
    }
    let seen = || async {
        let mut seen = String::new();
        for (workspace, artifact) in &artifacts {
            let read = laptop.get(&format!("/api/v1/artifacts/{artifact}")).await.status;
            let listed = laptop.get(&format!("/api/v1/workspaces/{workspace}/artifacts")).await;
            let is_listed = listed.status == 200 && listed.json()["artifacts"][0]["artifact_id"] == artifact.as_str();
            assert_eq!(read == 200, is_listed);
            seen.push(if read == 200 { 'y' } else { 'n' });
        }
        seen
    };
    assert_eq!(seen().await, "nny");
    set(&world, "agents:\n  ann-laptop:\n    can_access: [resources/public/*]\n").await;
    assert_eq!(seen().await, "yny");
    set(&world, "agents:\n  ann-laptop:\n    can_access: [\"*\"]\n    cannot_access: [resources/public/hand*]\n").await;
    assert_eq!(seen().await, "nyy");
}

async fn every_change_is_logged(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let ann = person(&world, "ann", "operator").await;
    agent_of(&world, &ann, "helper").await;
    call(&ann, json!({"task": "x", "agent_type": "helper"})).await;
    world.agent("builder").await;
    world.device("builder").await;
    set(&world, "default: own\n").await;
    let quota = |body: Value| {
        let owner = world.owner.with("content-type", "application/json");
        async move { owner.call(Method::PUT, "/api/v1/quotas", body.to_string()).await.status }
    };
    assert_eq!(quota(json!({"user": "ann", "calls": 5})).await, 200);
    assert_eq!(quota(json!({"user": "ann"})).await, 204);
    let keys = world.owner.get("/api/v1/api-keys").await.expect(200);
    let key = keys["api_keys"].as_array().unwrap().iter().find(|key| key["name"] == "ann").unwrap();
    world.owner.delete(&format!("/api/v1/api-keys/{}", key["key_id"].as_str().unwrap())).await.expect(200);
    world.owner.patch("/api/v1/users/ann", json!({"role": "viewer"})).await.expect(200);
    assert!(matches!(world.owner.delete("/api/v1/users/ann").await.status, 200 | 204));
    let mut missing = Vec::new();
    for kind in [
        "user.created",
        "key.created",
        "task.created",
        "runtime.attached",
        "rules.changed",
        "quota.changed",
        "quota.removed",
        "key.revoked",
        "user.updated",
        "user.removed",
    ] {
        if world.audit(kind).await.is_empty() {
            missing.push(kind);
        }
    }
    assert_eq!(missing, Vec::<&str>::new());
}

#[tokio::test]
async fn an_invalid_file_fails_the_start_with_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("permissions.yaml");
    std::fs::write(&file, "agents:\n  a:\n    can_access:\n      - conversations/ann\n").unwrap();
    let mut options = Options::new(folder.path().join("hub"), "127.0.0.1:1".parse().unwrap());
    options.permissions = Some(file.clone());
    let refused =
        Hub::start(options.clone(), Arc::new(MemoryStore::new()), Env::seeded(7)).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("{}: line 4, column 9: ", file.display())), "{refused}");
    std::fs::write(&file, "# default: deny\n").unwrap();
    let refused =
        Hub::start(options.clone(), Arc::new(MemoryStore::new()), Env::seeded(7)).await.unwrap_err().to_string();
    assert!(refused.contains("line 1, column 1: the file has no rules. Write `default: own`"), "{refused}");
    std::fs::remove_file(&file).unwrap();
    let refused = Hub::start(options, Arc::new(MemoryStore::new()), Env::seeded(7)).await.unwrap_err().to_string();
    assert!(refused.contains("can't read the file"), "{refused}");
}

#[tokio::test]
async fn a_valid_file_is_applied_and_rewritten_when_rules_change() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("permissions.yaml");
    // Replace the file atomically, so that no one reads half of it.
    let place = |text: &str| {
        let draft = folder.path().join("draft");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, &file).unwrap();
    };
    place("default: own\n");
    let given = file.clone();
    let world = World::timed(Engine::Model, move |options| options.permissions = Some(given)).await;
    let read = || async { world.owner.get(RULES).await.expect(200) };
    let until = |member: &'static str, wanted: Value| {
        let owner = world.owner.clone();
        async move {
            let reached = async {
                loop {
                    let now = owner.get(RULES).await.expect(200);
                    if now[member] == wanted || (wanted == json!("anything") && !now[member].is_null()) {
                        return now;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(PATIENCE, reached).await.expect("the file is looked at")
        }
    };
    assert_eq!(read().await["file"], file.display().to_string());
    place("# closed\ndefault: deny\n");
    let changed = until("version", json!(2)).await;
    assert_eq!((&changed["text"], &changed["changed_by"]), (&json!("# closed\ndefault: deny\n"), &json!("system")));

    for (text, problem) in [
        ("default: nobody\n", "line 1, column 10: "),
        ("", "line 1, column 1: the file has no rules. Write `default: own`"),
    ] {
        place(text);
        let wrong = until("problem", json!("anything")).await;
        assert!(wrong["problem"].as_str().unwrap().contains(problem), "{wrong}");
        assert_eq!((&wrong["text"], &wrong["version"]), (&json!("# closed\ndefault: deny\n"), &json!(2)));
        place("# closed\ndefault: deny\n");
        until("problem", Value::Null).await;
    }

    // An API change replaces and repairs the file.
    let put = |version: i64| {
        let owner = world.owner.with("content-type", "application/json");
        let body = json!({"text": "default: allow\n", "version": version});
        async move { owner.call(Method::PUT, RULES, body.to_string()).await }
    };
    assert_eq!(put(1).await.refusal(), (409, "version_changed".to_owned()));
    let set = put(2).await.expect(200);
    assert_eq!((&set["version"], &set["problem"]), (&json!(3), &Value::Null));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "default: allow\n");
    assert_eq!(world.audit("rules.changed").await.len(), 3);

    // A change doesn't overwrite an edit it has not seen.
    place("default: deny\n");
    assert_eq!(put(3).await.refusal(), (409, "version_changed".to_owned()));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "default: deny\n");
}
