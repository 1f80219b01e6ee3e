//! Standing grants: their scope, when they end, and that a denial beats them.

use std::time::Duration;

use attache_hub::control::DecisionOrigin;
use attache_protocol::{
    Json, RunId,
    wire::{
        channel::{PeerRole, Transport},
        permission::CreatePermissionRequest,
    },
};
use attache_store::{WriteContext, record::channel::NewChannel};
use serde_json::{Value, json};

use crate::{
    work::{ClaimedRunFixture, decide, id},
    world::{Engine, TestCaller, on_all},
};

on_all! {
    a_grant_reaches_as_far_as_its_scope
    a_grant_without_a_pattern_covers_only_the_same_subject
    a_pattern_covers_tools_by_name
    a_grant_ends_when_it_expires_or_is_revoked
    a_denial_beats_every_grant
    a_grant_can_be_limited_to_one_channel
    an_approval_of_hidden_input_counts_once
    a_standing_denial_keeps_its_comment
    a_grant_ends_with_the_person_and_the_key_that_made_it
    a_grant_of_others_ends_when_the_agent_becomes_private
}

fn make() -> Value {
    json!({"command": "make"})
}

/// Decides the step once and creates a grant.
async fn granted(work: &ClaimedRunFixture, tool: &str, input: Value, decision: Value) -> Value {
    let prm = work.pending(tool, input).await;
    work.decide(&prm, decision).await.expect(200)
}

/// The immediate answer to a new request. Null if a person has to decide.
async fn at_once(work: &ClaimedRunFixture, tool: &str, input: Value) -> Value {
    let asked = work.ask(tool, input).await;
    if asked["approved"].is_null() {
        work.decide(&id(&asked), json!({"approved": false})).await.expect(200);
    }
    asked["approved"].clone()
}

async fn a_grant_reaches_as_far_as_its_scope(engine: Engine) {
    for (scope, same_run, same_conversation, same_agent) in [
        ("once", Value::Null, Value::Null, Value::Null),
        ("run", json!(true), Value::Null, Value::Null),
        ("conversation", json!(true), json!(true), Value::Null),
        ("agent", json!(true), json!(true), json!(true)),
    ] {
        let mut work = ClaimedRunFixture::begin(engine).await;
        let conversation = work.read().await["conversation_id"].clone();
        let decided = granted(&work, "shell", make(), json!({"approved": true, "scope": scope})).await;
        assert_eq!(at_once(&work, "shell", make()).await, same_run, "{scope}");
        if scope != "once" {
            let list = work.world.owner.get("/api/v1/permission-requests?limit=1").await.expect(200);
            let answered = &list["permission_requests"][0];
            assert_eq!((&answered["source"], &answered["grant_id"]), (&json!("policy"), &decided["grant_id"]));
            let by = format!("grant:{}", decided["grant_id"].as_str().unwrap());
            assert_eq!((&answered["decided_by"], &answered["state"]), (&json!(by), &json!("approved")));
            assert_eq!(work.state().await.1, Value::Null, "the run never waited");
        }
        work.complete().await.expect(200);
        work.next_run(json!({"conversation_id": conversation})).await;
        assert_eq!(at_once(&work, "shell", make()).await, same_conversation, "{scope}");
        work.complete().await.expect(200);
        work.next_run(json!({})).await;
        assert_eq!(at_once(&work, "shell", make()).await, same_agent, "{scope}");
    }
}

async fn a_grant_without_a_pattern_covers_only_the_same_subject(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    granted(&work, "shell", make(), json!({"approved": true, "scope": "agent"})).await;
    assert_eq!(at_once(&work, "shell", make()).await, true);
    for (tool, input) in [("shell", json!({"command": "make install"})), ("shell", json!({})), ("shells", make())] {
        assert_eq!(at_once(&work, tool, input.clone()).await, Value::Null, "{tool} {input}");
    }
    let body = json!({"tool": "shell", "input": make(), "cwd": "/elsewhere"});
    let elsewhere = work.device.client.post(&work.path("/permission-requests"), body).await.expect(201);
    assert_eq!(elsewhere["state"], "pending");
}

async fn a_pattern_covers_tools_by_name(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let decision = json!({"approved": true, "scope": "run", "tool_pattern": "git_*"});
    let decided = granted(&work, "git_status", json!({}), decision).await;
    assert_eq!(at_once(&work, "git_push", json!({"force": true})).await, true);
    assert_eq!(at_once(&work, "shell", json!({})).await, Value::Null);
    let grants = work.world.owner.get("/api/v1/permission-grants").await.expect(200);
    let grant = json!({
        "grant_id": decided["grant_id"], "approved": true, "scope": "run", "agent_id": work.device.agent,
        "task_run_id": work.run, "conversation_id": null, "channel_id": null, "tool_pattern": "git_*", "subject": null,
        "until": null, "permission_request_id": decided["permission_request_id"], "created_by": decided["decided_by"],
        "created_at": "2023-11-14T22:13:20.000Z", "ended_at": null, "revoked_at": null,
    });
    assert_eq!(grants, json!({"permission_grants": [grant], "next_cursor": null}));
    work.world.advance(Duration::from_secs(1));
    work.complete().await.expect(200);
    let grants = work.world.owner.get("/api/v1/permission-grants").await.expect(200);
    assert_eq!(grants["permission_grants"][0]["ended_at"], "2023-11-14T22:13:21.000Z", "it was for the run");
}

async fn a_grant_ends_when_it_expires_or_is_revoked(engine: Engine) {
    let work = ClaimedRunFixture::patient(engine).await;
    let until = json!({"approved": true, "scope": "agent", "until": "2023-11-14T22:14:20Z"});
    granted(&work, "shell", make(), until).await;
    assert_eq!(at_once(&work, "shell", make()).await, true);
    work.world.advance(Duration::from_secs(60));
    assert_eq!(at_once(&work, "shell", make()).await, Value::Null, "the time is over");

    let decided = granted(&work, "edit", json!({}), json!({"approved": true, "scope": "agent"})).await;
    assert_eq!(at_once(&work, "edit", json!({})).await, true);
    let path = format!("/api/v1/permission-grants/{}", decided["grant_id"].as_str().unwrap());
    assert_eq!(work.world.key("viewer").await.delete(&path).await.refusal().0, 403);
    assert_eq!(work.device.client.delete(&path).await.refusal().0, 403);
    let revoked = work.world.owner.delete(&path).await.expect(200);
    assert_eq!(revoked["revoked_at"], "2023-11-14T22:14:20.000Z");
    assert_eq!(work.world.owner.delete(&path).await.expect(200), revoked, "revoking again changes nothing");
    assert_eq!(work.world.audit("permission.grant_revoked").await.len(), 1);
    assert_eq!(at_once(&work, "edit", json!({})).await, Value::Null);
}

async fn a_denial_beats_every_grant(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    granted(&work, "shell", make(), json!({"approved": true, "scope": "agent", "tool_pattern": "*"})).await;
    assert_eq!(at_once(&work, "edit", json!({})).await, true);
    // Asked before the denial exists, because the grant answers everything else immediately.
    let path = "/api/v1/permission-grants";
    let grant = work.world.owner.get(path).await.expect(200)["permission_grants"][0]["grant_id"].clone();
    work.world.owner.delete(&format!("{path}/{}", grant.as_str().unwrap())).await.expect(200);
    granted(&work, "shell", make(), json!({"approved": false, "scope": "run"})).await;
    granted(&work, "edit", json!({}), json!({"approved": true, "scope": "agent", "tool_pattern": "*"})).await;
    assert_eq!(at_once(&work, "edit", json!({"x": 1})).await, true);
    assert_eq!(at_once(&work, "shell", make()).await, false, "a denial for the run beats a grant for the agent");
    let denied = work.world.owner.get("/api/v1/permission-requests?state=denied&limit=1").await.expect(200);
    assert_eq!(denied["permission_requests"][0]["source"], "policy");
}

async fn a_grant_can_be_limited_to_one_channel(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let prm = work.pending("shell", make()).await;
    let refused = work.decide(&prm, json!({"approved": true, "scope": "agent", "this_channel_only": true})).await;
    assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()), "it was asked over HTTP");
    work.decide(&prm, json!({"approved": true})).await.expect(200);

    let run: RunId = work.run.parse().unwrap();
    let (one, two) = (open(&work).await, open(&work).await);
    let by = work.world.hub.authenticate_runtime(work.device.client.header("x-runtime-token")).await.unwrap();
    let request = CreatePermissionRequest {
        epoch: Some(1),
        tool: "shell".to_owned(),
        input: Json::from_text(r#"{"command":"make"}"#).unwrap(),
        cwd: None,
        paths: Vec::new(),
        reason: None,
        risk: None,
        diff: None,
        undisclosed: Vec::new(),
        assured: Vec::new(),
        request_id: None,
    };
    let ask = async |via| work.world.hub.request_permission(&by, run, request.clone(), via).await.unwrap();
    let asked = ask(Some(one)).await;
    assert_eq!((asked.channel_id, asked.approved), (Some(one), None));
    let decision = json!({"approved": true, "scope": "agent", "this_channel_only": true});
    work.decide(&asked.permission_request_id.to_string(), decision).await.expect(200);
    assert_eq!(ask(Some(one)).await.approved, Some(true));
    assert_eq!(ask(Some(two)).await.approved, None);
}

async fn open(work: &ClaimedRunFixture) -> attache_protocol::ChannelId {
    let (world, runtime) = (&work.world, work.device.runtime.parse().unwrap());
    let tenant = world.hub.authenticate_key(world.owner.header("authorization").trim_start_matches("Bearer "));
    let tenant = tenant.await.unwrap().tenant;
    let channel = NewChannel {
        id: world.env.channel_id(),
        node: None,
        transport: Transport::Websocket,
        peer_role: PeerRole::Worker,
        account_ref: format!("agent:{}", work.device.agent),
        runtime: Some(runtime),
        capabilities: Json::from_text("[]").unwrap(),
        native_protocol: None,
        tools: Json::from_text("[]").unwrap(),
        device_info: None,
        address: None,
        resume: attache_protocol::secret::SecretHash::of(&world.env.uuid().to_string()),
        running: Some(vec![work.run.parse().unwrap()]),
    };
    let context = WriteContext::new(tenant, format!("runtime:{runtime}"), world.env.now());
    world.store.open_channel(context, channel).await.unwrap().id
}

/// Two commands with undisclosed input look the same. A decision about one doesn't answer the other, and neither does a
/// grant for the tool.
async fn an_approval_of_hidden_input_counts_once(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let unseen = |reason: &str| json!({"epoch": 1, "tool": "execute", "input": {}, "cwd": "/src", "undisclosed": ["input"], "reason": reason});
    let ask = async |reason: &str| {
        work.device.client.post(&work.path("/permission-requests"), unseen(reason)).await.expect(201)
    };
    let prm = id(&ask("touch g1.txt").await);
    for scope in ["run", "conversation", "agent"] {
        for more in [json!({}), json!({"tool_pattern": "*"})] {
            let mut decision = json!({"approved": true, "scope": scope});
            decision.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let refused = work.decide(&prm, decision).await.expect(400);
            assert_eq!(refused["error"]["code"], "invalid_request", "{refused}");
            assert!(refused["error"]["message"].as_str().unwrap().contains("does not disclose"), "{refused}");
        }
    }
    assert_eq!(work.permission(&prm).await["state"], "pending", "a refusal decides nothing");
    work.decide(&prm, json!({"approved": true})).await.expect(200);
    let next = ask("mkdir g2").await;
    assert_eq!((&next["state"], &next["approved"]), (&json!("pending"), &Value::Null), "{next}");
    work.decide(&id(&next), json!({"approved": false})).await.expect(200);

    // An approval for the tool, given with full disclosure, doesn't cover hidden input. A denial does.
    granted(&work, "execute", make(), json!({"approved": true, "scope": "agent", "tool_pattern": "execute"})).await;
    assert_eq!(at_once(&work, "execute", json!({"command": "ls"})).await, true);
    let hidden = ask("rm -rf .").await;
    assert_eq!(hidden["approved"], Value::Null, "{hidden}");
    work.decide(&id(&hidden), json!({"approved": false, "scope": "run"})).await.expect(200);
    assert_eq!(ask("rm -rf .").await["approved"], false);
}

async fn a_standing_denial_keeps_its_comment(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let decision = json!({"approved": false, "scope": "run", "comment": "move it instead"});
    granted(&work, "shell", make(), decision).await;
    let asked = work.ask("shell", make()).await;
    assert_eq!((&asked["approved"], &asked["comment"]), (&json!(false), &json!("move it instead")), "{asked}");
}

/// A key for a new person, and its id.
async fn person(work: &ClaimedRunFixture, name: &str, more: Value) -> (TestCaller, String) {
    let owner = &work.world.owner;
    owner.post("/api/v1/users", json!({"name": name, "role": "operator"})).await;
    let mut body = json!({"name": name, "user": name, "role": "operator"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = owner.post("/api/v1/api-keys", body).await.expect(201);
    let key = work.world.anonymous().key(made["api_key"].as_str().unwrap());
    (key, made["key"]["key_id"].as_str().unwrap().to_owned())
}

async fn a_grant_ends_with_the_person_and_the_key_that_made_it(engine: Engine) {
    let mut work = ClaimedRunFixture::patient(engine).await;
    // In a run of its owner in person, only their own would count.
    work.complete().await.expect(200);
    let (bob, _) = person(&work, "bob", json!({})).await;
    let run = bob.post("/api/v1/task-runs", json!({"agent_id": "builder"})).await.expect(201);
    work.run = run["task_run_id"].as_str().unwrap().to_owned();
    assert_eq!(work.device.claim().await["task_run_id"], work.run.as_str());
    let owner = &work.world.owner;
    let always = |approved: bool| json!({"approved": approved, "scope": "agent"});
    let grant = async |by: &TestCaller, approved: bool| {
        let prm = work.pending("shell", make()).await;
        decide(by, &prm, always(approved)).await.expect(200);
        assert_eq!(at_once(&work, "shell", make()).await, approved);
    };
    for end in ["revoke", "remove", "demote", "session"] {
        let (ada, id) = person(&work, end, json!({})).await;
        if end == "session" {
            let link = ada.post("/api/v1/login-links", json!({})).await.expect(201);
            let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1.to_owned();
            let session = work.world.hub.redeem_login(&token, [192, 0, 2, 7].into()).await.unwrap();
            let prm = work.pending("shell", make()).await.parse().unwrap();
            let request = serde_json::from_value(always(true)).unwrap();
            let place = DecisionOrigin { via: "console", from: None };
            work.world.hub.decide(&session.principal, prm, request, place).await.unwrap();
            work.world.hub.logout(&session.principal).await.unwrap();
            assert_eq!(at_once(&work, "shell", make()).await, true, "signing out takes nothing back");
        } else {
            grant(&ada, true).await;
        }
        match end {
            "remove" => owner.delete("/api/v1/users/remove").await.expect(200),
            "demote" => owner.patch("/api/v1/users/demote", json!({"role": "viewer"})).await.expect(200),
            _ => owner.delete(&format!("/api/v1/api-keys/{id}")).await.expect(200),
        };
        assert_eq!(at_once(&work, "shell", make()).await, Value::Null, "{end}");
    }
    assert_eq!(work.world.audit("permission.grant_revoked").await.len(), 4);
    let end = work.world.env.now().plus(Duration::from_secs(60)).to_string();
    let (short, _) = person(&work, "short", json!({"expires_at": end})).await;
    grant(&short, true).await;
    let grants = owner.get("/api/v1/permission-grants?limit=1").await.expect(200);
    assert_eq!(grants["permission_grants"][0]["until"], end);
    work.world.advance(Duration::from_secs(61));
    assert_eq!(at_once(&work, "shell", make()).await, Value::Null);
    let (ada, _) = person(&work, "ada", json!({})).await;
    let body = json!({"scopes": ["read", "decide"], "ttl_seconds": 60});
    let token = ada.post("/api/v1/tokens", body).await.expect(201);
    grant(&work.world.anonymous().key(token["token"].as_str().unwrap()), true).await;
    work.world.advance(Duration::from_secs(61));
    assert_eq!(at_once(&work, "shell", make()).await, Value::Null, "the grant outlives its token");
    // A denial stands until someone revokes it.
    let (bob, _) = person(&work, "bob", json!({})).await;
    grant(&bob, false).await;
    owner.delete("/api/v1/users/bob").await.expect(200);
    assert_eq!(at_once(&work, "shell", make()).await, false);
}

async fn a_grant_of_others_ends_when_the_agent_becomes_private(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let owner = &work.world.owner;
    let me = owner.get("/api/v1/users/me").await.expect(200)["name"].clone();
    owner.patch("/api/v1/agent-accounts/builder", json!({"owner": me})).await.expect(200);
    let (bob, _) = person(&work, "bob", json!({})).await;
    for (by, tool) in [(&bob, "bobs"), (owner, "own")] {
        let prm = work.pending(tool, make()).await;
        decide(by, &prm, json!({"approved": true, "scope": "agent"})).await.expect(200);
    }
    owner.patch("/api/v1/agent-accounts/builder", json!({"callers": "owner"})).await.expect(200);
    assert_eq!(at_once(&work, "bobs", make()).await, Value::Null);
    assert_eq!(at_once(&work, "own", make()).await, true);
}
