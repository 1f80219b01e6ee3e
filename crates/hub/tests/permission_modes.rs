//! Steps that an agent's settings approve in advance: its permission mode and its trusted commands.

use serde_json::{Value, json};

use crate::{
    work::{ClaimedRunFixture, id},
    world::{Engine, on_all},
};

on_all! {
    settings_approve_only_what_they_name
    a_standing_denial_overrides_the_settings
    a_private_agent_keeps_none_of_them
    approving_in_advance_takes_the_right_to_decide
    a_run_that_plans_first_waits_for_its_plan
    the_mode_of_a_run_is_its_callers_choice
    nobody_widens_a_mode
    only_an_agent_that_can_plan_is_told_to
    a_run_that_plans_calls_nobody
}

const AGENT: &str = "/api/v1/agent-accounts/builder";

async fn set(work: &ClaimedRunFixture, approvals: Value) {
    work.world.owner.patch(AGENT, json!({"approvals": approvals})).await.expect(200);
}

/// Whether a step is approved at once. If not, it is denied.
async fn is_approved(work: &ClaimedRunFixture, body: Value) -> bool {
    let mut body = body;
    body["epoch"] = json!(1);
    body["cwd"] = json!("/src");
    let asked = work.device.client.post(&work.path("/permission-requests"), body).await.expect(201);
    if asked["approved"].is_null() {
        work.decide(&id(&asked), json!({"approved": false})).await.expect(200);
    }
    asked["approved"] == json!(true)
}

fn run(command: &str) -> Value {
    json!({"tool": "Bash", "input": {"command": command}, "assured": ["in_folder"]})
}

fn edit(assured: &[&str]) -> Value {
    json!({"tool": "Edit", "input": {"file_path": "/src/a"}, "paths": ["/src/a"], "assured": assured})
}

async fn settings_approve_only_what_they_name(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    assert!(!is_approved(&work, run("git diff")).await && !is_approved(&work, edit(&["folder_edit"])).await);

    set(&work, json!({"trusted_commands": ["git diff *"]})).await;
    assert!(is_approved(&work, run("git diff --stat")).await);
    assert!(!is_approved(&work, run("git diff; rm -rf /")).await);
    let answered =
        &work.world.owner.get("/api/v1/permission-requests?limit=2").await.expect(200)["permission_requests"][1];
    assert_eq!(
        (&answered["state"], &answered["source"], &answered["decided_by"], &answered["comment"]),
        (&json!("approved"), &json!("mode"), &json!("system"), &json!("`git diff *` is a trusted command"))
    );
    assert!(!is_approved(&work, json!({"tool": "Bash", "input": {"command": "git diff"}})).await, "where does it run?");
    let hidden = json!({"assured": ["in_folder"], "tool": "Bash", "input": {"command": "git diff"}, "undisclosed": ["the rest of the input"]});
    assert!(!is_approved(&work, hidden).await);

    set(&work, json!({"mode": "accept_edits"})).await;
    assert!(!is_approved(&work, run("git diff")).await, "the settings are replaced");
    assert!(is_approved(&work, edit(&["folder_edit", "something new"])).await);
    assert!(!is_approved(&work, edit(&[])).await && !is_approved(&work, edit(&["walled"])).await);
    set(&work, json!({"mode": "accept_walled"})).await;
    assert!(is_approved(&work, edit(&["walled"])).await && !is_approved(&work, edit(&["folder_edit"])).await);
    assert_eq!(work.state().await.1, Value::Null, "the run never waits");

    for (wrong, field) in [
        (json!({"trusted_commands": ["bash *"]}), "approvals.trusted_commands[0]"),
        (json!({"trusted_commands": ["git diff", "a; b"]}), "approvals.trusted_commands[1]"),
    ] {
        let refused = work.world.owner.patch(AGENT, json!({"approvals": wrong})).await.expect(400);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("`{field}` ")), "{message}");
    }
    work.world.owner.patch(AGENT, json!({"approvals": {"mode": "trust me"}})).await.expect(400);
}

const BEAT: &str = "/api/v1/agent-runtimes/runtime/heartbeat";
const RUNS: &str = "/api/v1/task-runs";

/// The device says that its agent can be made to plan first.
async fn declare_plans(work: &ClaimedRunFixture) {
    let plans = json!({"extensions": [{"uri": "https://attache.dev/ext/plans/v1"}]});
    work.device.client.post(BEAT, plans).await.expect(200);
}

async fn a_run_that_plans_first_waits_for_its_plan(engine: Engine) {
    let mut work = ClaimedRunFixture::begin(engine).await;
    declare_plans(&work).await;
    // Neither what was approved for all its runs counts, nor what its settings trust.
    let asked = work.pending("Bash", json!({"command": "make"})).await;
    work.decide(&asked, json!({"approved": true, "scope": "agent", "tool_pattern": "*"})).await.expect(200);
    set(&work, json!({"mode": "plan_first", "trusted_commands": ["git diff *"]})).await;
    assert!(is_approved(&work, run("make")).await, "it was started before");
    work.complete().await.expect(200);

    work.next_run(json!({})).await;
    assert_eq!(work.read().await["permission_mode"], "plan_first");
    assert!(!is_approved(&work, run("git diff")).await && !is_approved(&work, edit(&["folder_edit", "walled"])).await);
    let first = work.pending("plan", json!({"plan": "1. Change it"})).await;
    let shown = work.permission(&first).await;
    assert_eq!((&shown["once"], &shown["state"]), (&json!("plan"), &json!("pending")), "no grant answers it");
    assert_eq!(work.read().await["waits_for"]["what"], "plan: 1. Change it");
    let standing = work.decide(&first, json!({"approved": true, "scope": "run"})).await;
    assert_eq!(standing.refusal(), (400, "invalid_request".to_owned()));
    work.decide(&first, json!({"approved": false, "comment": "smaller steps"})).await.expect(200);
    assert_eq!(work.answer(&first, 0).await["comment"], "smaller steps");
    assert!(!is_approved(&work, run("git diff")).await, "a denied plan allows nothing");

    let second = work.pending("plan", json!({"plan": "1. Change half of it"})).await;
    work.decide(&second, json!({"approved": true})).await.expect(200);
    assert!(is_approved(&work, run("git diff")).await && is_approved(&work, run("make")).await);
    set(&work, json!({"mode": "accept_edits"})).await;
    work.complete().await.expect(200);
    work.next_run(json!({})).await;
    assert_eq!(work.read().await["permission_mode"], Value::Null);
}

async fn the_mode_of_a_run_is_its_callers_choice(engine: Engine) {
    let mut work = ClaimedRunFixture::begin(engine).await;
    declare_plans(&work).await;
    work.complete().await.expect(200);
    set(&work, json!({"mode": "accept_edits"})).await;
    work.next_run(json!({"permission_mode": "ask"})).await;
    assert!(!is_approved(&work, edit(&["folder_edit"])).await);
    work.complete().await.expect(200);

    // The device learns what it must know, and nothing else.
    for (mode, told) in [("ask", Value::Null), ("plan_first", json!("plan_first"))] {
        let made =
            work.world.owner.post(RUNS, json!({"agent_id": "builder", "permission_mode": mode})).await.expect(201);
        assert_eq!(made["permission_mode"], mode);
        let claimed = work.device.claim().await;
        assert_eq!((&claimed["task_run_id"], &claimed["permission_mode"]), (&made["task_run_id"], &told));
        work.run = made["task_run_id"].as_str().unwrap().to_owned();
        work.complete().await.expect(200);
    }

    // A conversation has one for its runs, unless they have their own.
    let owner = &work.world.owner;
    let talk = |mode: &str| json!({"metadata": {"permission_mode": mode}});
    let planned = owner.post("/api/v1/conversations", talk("plan_first")).await.expect(201);
    let wide = owner.post("/api/v1/conversations", talk("accept_walled")).await.expect(201);
    owner.post("/api/v1/conversations", talk("plan_frist")).await.expect(400);
    for (talk, mode, expected) in [
        (&planned, Value::Null, json!("plan_first")),
        (&planned, json!("ask"), json!("ask")),
        (&wide, Value::Null, Value::Null),
    ] {
        let body = json!({"agent_id": "builder", "conversation_id": talk["conversation_id"], "permission_mode": mode});
        assert_eq!(owner.post(RUNS, body).await.expect(201)["permission_mode"], expected);
    }
    let call = json!({"agent": "builder", "task": "x", "permission_mode": "plan_first"});
    owner.post("/api/a2a/call", call).await.expect(200);
    let newest = owner.get(&format!("{RUNS}?limit=1")).await.expect(200);
    assert_eq!(newest["task_runs"][0]["permission_mode"], "plan_first");
}

async fn nobody_widens_a_mode(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    declare_plans(&work).await;
    set(&work, json!({"mode": "plan_first"})).await;
    work.complete().await.expect(200);
    let owner = work.world.owner.clone();
    owner.post("/api/v1/users", json!({"name": "oli", "role": "operator"})).await.expect(201);
    let key = async |body: Value| {
        let key = owner.post("/api/v1/api-keys", body).await.expect(201);
        work.world.anonymous().key(key["api_key"].as_str().unwrap())
    };
    let manages = key(json!({"name": "m", "scopes": ["read", "call", "manage"]})).await;
    let callers = [
        key(json!({"name": "o", "user": "oli"})).await,
        key(json!({"name": "c", "scopes": ["read", "call"]})).await,
        key(json!({"name": "d", "scopes": ["read", "call", "decide"]})).await,
        manages.clone(),
    ];
    for caller in &callers {
        for mode in ["ask", "accept_edits", "accept_walled"] {
            let refused = caller.post(RUNS, json!({"agent_id": "builder", "permission_mode": mode})).await;
            assert_eq!(refused.refusal(), (403, "forbidden".to_owned()), "{mode}");
            let call = json!({"agent": "builder", "task": "x", "permission_mode": mode});
            assert_eq!(caller.post("/api/a2a/call", call).await.refusal(), (403, "forbidden".to_owned()), "{mode}");
        }
        // Neither does a conversation, or leaving it open.
        let talk =
            caller.post("/api/v1/conversations", json!({"metadata": {"permission_mode": "accept_walled"}})).await;
        let talk = talk.expect(201)["conversation_id"].clone();
        for body in [json!({"conversation_id": talk}), json!({}), json!({"permission_mode": "plan_first"})] {
            let body = json!({"agent_id": "builder", "conversation_id": body["conversation_id"],
                "permission_mode": body["permission_mode"]});
            assert_eq!(caller.post(RUNS, body).await.expect(201)["permission_mode"], "plan_first");
        }
    }
    // No longer planning first is as much as approving.
    for approvals in [json!({"mode": "ask"}), json!({}), json!({"timeout_ms": 60000})] {
        let refused = manages.patch(AGENT, json!({"approvals": approvals})).await;
        assert_eq!(refused.refusal(), (403, "forbidden".to_owned()));
    }
    // Who may, may.
    let made = owner.post(RUNS, json!({"agent_id": "builder", "permission_mode": "accept_edits"})).await.expect(201);
    assert_eq!(made["permission_mode"], "accept_edits");
    // A private agent, or one that is given away, keeps planning first.
    owner.patch(AGENT, json!({"owner": "oli"})).await.expect(200);
    assert_eq!(owner.get(AGENT).await.expect(200)["approvals"], json!({"mode": "plan_first"}));
    owner.patch(AGENT, json!({"owner": "", "callers": "owner"})).await.expect(200);
    assert_eq!(owner.get(AGENT).await.expect(200)["approvals"], json!({"mode": "plan_first"}));
}

async fn only_an_agent_that_can_plan_is_told_to(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let planned = json!({"agent_id": "builder", "permission_mode": "plan_first"});
    let refused = work.world.owner.post(RUNS, planned.clone()).await.expect(400);
    assert_eq!(refused["error"]["message"], "The agent `builder` can't be made to plan first.");
    set(&work, json!({"mode": "plan_first"})).await;
    work.world.owner.post(RUNS, json!({"agent_id": "builder"})).await.expect(400);
    declare_plans(&work).await;
    work.world.owner.post(RUNS, planned).await.expect(201);
}

/// Another agent could change what this one may not yet.
async fn a_run_that_plans_calls_nobody(engine: Engine) {
    let mut work = ClaimedRunFixture::tuned(engine, |options| options.tools = Some("/mcp".to_owned())).await;
    work.complete().await.expect(200);
    declare_plans(&work).await;
    work.world.agent("helper").await;
    let helper = work.world.device("helper").await;
    let asks = json!({"extensions": [{"uri": "https://attache.dev/ext/asks/v1"}]});
    helper.client.post(BEAT, asks).await.expect(200);
    let made =
        work.world.owner.post(RUNS, json!({"agent_id": "builder", "permission_mode": "plan_first"})).await.expect(201);
    work.run = made["task_run_id"].as_str().unwrap().to_owned();
    let claimed = work.device.claim().await;
    let token = work.world.anonymous().key(claimed["mcp"]["token"].as_str().unwrap());
    let task = json!({"agent_id": "helper", "input": {"text": "change it"}});
    for caller in [&token, &work.device.client] {
        let refused = caller.post(RUNS, task.clone()).await;
        assert_eq!(refused.refusal(), (403, "forbidden".to_owned()));
    }
    let plan = work.pending("plan", json!({"plan": "Ask helper"})).await;
    work.decide(&plan, json!({"approved": true})).await.expect(200);
    token.post(RUNS, task).await.expect(201);
}

async fn a_standing_denial_overrides_the_settings(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let asked = work.pending("Bash", json!({"command": "git diff"})).await;
    work.decide(&asked, json!({"approved": false, "scope": "agent", "tool_pattern": "Bash"})).await.expect(200);
    set(&work, json!({"trusted_commands": ["git diff *"], "mode": "accept_walled"})).await;
    let walled = json!({"tool": "Bash", "input": {"command": "git diff"}, "assured": ["walled"]});
    let asked = work.device.client.post(&work.path("/permission-requests"), walled).await.expect(201);
    assert_eq!(asked["approved"], json!(false));
}

async fn a_private_agent_keeps_none_of_them(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    set(&work, json!({"trusted_commands": ["git diff *"], "mode": "accept_edits", "timeout_ms": 60000})).await;
    work.world.owner.patch(AGENT, json!({"callers": "owner"})).await.expect(200);
    let agent = work.world.owner.get(AGENT).await.expect(200);
    assert_eq!(agent["approvals"], json!({"timeout_ms": 60000}));
}

async fn approving_in_advance_takes_the_right_to_decide(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let owner = &work.world.owner;
    let key =
        owner.post("/api/v1/api-keys", json!({"name": "k", "scopes": ["read", "call", "manage"]})).await.expect(201);
    let key = work.world.anonymous().key(key["api_key"].as_str().unwrap());
    for approvals in [json!({"mode": "accept_walled"}), json!({"trusted_commands": ["git diff *"]})] {
        let refused = key.patch(AGENT, json!({"approvals": approvals})).await;
        assert_eq!(refused.refusal(), (403, "forbidden".to_owned()));
    }
    // Given to someone else, it trusts nothing that they haven't chosen.
    owner.post("/api/v1/users", json!({"name": "bob", "role": "operator"})).await.expect(201);
    set(&work, json!({"mode": "accept_edits", "timeout_ms": 60000})).await;
    owner.patch(AGENT, json!({"owner": "bob"})).await.expect(200);
    assert_eq!(owner.get(AGENT).await.expect(200)["approvals"], json!({"timeout_ms": 60000}));
}
