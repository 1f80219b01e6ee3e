//! Permission requests: asked, waited for, decided once, by people only, and remembered.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::{
    work::{ClaimedRunFixture, decide, id},
    world::{Engine, on_all},
};

const HOUR: Duration = Duration::from_secs(60 * 60);

on_all! {
    a_step_is_asked_for_decided_and_answered
    one_of_fifty_deciders_wins_and_the_others_learn_who
    a_decision_can_be_repeated_but_not_changed
    asking_again_returns_the_same_request
    a_known_request_id_with_another_subject_is_refused
    the_decision_is_bound_to_what_was_shown
    an_approval_can_wait_for_hours
    an_approval_waits_for_an_offline_device
    an_answer_after_the_end_is_recorded_and_changes_nothing
    unanswered_requests_follow_the_policy
    only_people_decide
    a_request_ends_with_its_run
}

/// An agent gets a harmless step approved, then asks for another one with the same id.
async fn a_known_request_id_with_another_subject_is_refused(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let ask = async |body: Value| work.device.client.post(&work.path("/permission-requests"), body).await;
    let harmless = json!({"epoch": 1, "tool": "shell", "input": {"command": "ls"}, "request_id": "q1"});
    let prm = id(&ask(harmless.clone()).await.expect(201));
    let evil = json!({"epoch": 1, "tool": "shell", "input": {"command": "rm -rf /"}, "request_id": "q1"});
    let refused = (409, "idempotency_key_reused".to_owned());
    assert_eq!(ask(evil.clone()).await.refusal(), refused, "while it waits");
    work.decide(&prm, json!({"approved": true})).await.expect(200);
    assert_eq!(ask(harmless).await.expect(201)["approved"], true, "the same question is the same answer");
    for (member, value) in [
        ("input", json!({"command": "rm -rf /"})),
        ("tool", json!("sudo")),
        ("cwd", json!("/etc")),
        ("paths", json!(["/etc/passwd"])),
        ("diff", json!("+evil")),
        ("undisclosed", json!(["input"])),
    ] {
        let mut other = json!({"epoch": 1, "tool": "shell", "input": {"command": "ls"}, "request_id": "q1"});
        other[member] = value;
        let reply = ask(other).await;
        assert_eq!(reply.refusal(), refused, "{member}");
        assert!(!String::from_utf8_lossy(&reply.body).contains("approved"), "{member}");
    }
    let list = work.world.owner.get("/api/v1/permission-requests").await.expect(200);
    assert_eq!(list["permission_requests"].as_array().unwrap().len(), 1, "nothing was asked for under another's name");

    // The same for a worker's questions and a caller's input.
    let question = async |prompt: &str| {
        let body = json!({"epoch": 1, "prompt": prompt, "request_id": "i1"});
        work.device.client.post(&work.path("/input-requests"), body).await
    };
    question("Which colour?").await.expect(201);
    assert_eq!(question("Delete production?").await.refusal(), refused);
    let give = async |text: &str| {
        work.world.owner.post(&work.path("/input"), json!({"text": text, "idempotency_key": "k1"})).await
    };
    let given = give("blue").await.expect(200);
    assert_eq!(give("blue").await.expect(200), given);
    assert_eq!(give("yes, delete it").await.refusal(), refused);
}

async fn the_decision_is_bound_to_what_was_shown(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let ask = async |more: Value| {
        let mut body = json!({"epoch": 1, "tool": "write", "input": {"path": "a"}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        work.device.client.post(&work.path("/permission-requests"), body).await
    };
    let diff = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new\n";
    let shown = json!({"diff": diff, "undisclosed": ["paths"]});
    let first = id(&ask(shown.clone()).await.expect(201));
    let read = work.permission(&first).await;
    assert_eq!((&read["diff"], &read["undisclosed"]), (&json!(diff), &json!(["paths"])));
    let events = work.world.owner.get(&work.path("/events?after=0")).await.expect(200);
    let event = events["events"].as_array().unwrap().iter().find(|event| event["type"] == "permission.requested");
    let data = &event.unwrap()["data"];
    assert_eq!((&data["diff"], &data["undisclosed"]), (&json!(diff), &json!(["paths"])));

    // A grant for one change doesn't cover another.
    work.decide(&first, json!({"approved": true, "scope": "run"})).await.expect(200);
    assert_eq!(ask(shown).await.expect(201)["approved"], true);
    for other in [
        json!({}),
        json!({"diff": diff}),
        json!({"undisclosed": ["paths"]}),
        json!({"diff": diff.replace("new", "evil"), "undisclosed": ["paths"]}),
    ] {
        let asked = ask(other.clone()).await.expect(201);
        assert_eq!(asked["approved"], Value::Null, "{other}");
        work.decide(&id(&asked), json!({"approved": false})).await.expect(200);
    }
    let large = "x".repeat(256 * 1024 + 1);
    for wrong in [json!({"diff": large}), json!({"undisclosed": vec!["x"; 21]}), json!({"undisclosed": ["a\nb"]})] {
        assert_eq!(ask(wrong).await.refusal(), (400, "invalid_request".to_owned()));
    }
}

async fn a_step_is_asked_for_decided_and_answered(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let body = json!({"epoch": 1, "tool": "shell", "input": {"command": "make"}, "cwd": "/src", "paths": ["/src/a"],
        "reason": "to build", "risk": "low", "request_id": "q1", "unknown": 1});
    let asked = work.device.client.post(&work.path("/permission-requests"), body).await.expect(201);
    let prm = id(&asked);
    assert_eq!(
        asked,
        json!({"permission_request_id": prm, "state": "pending", "approved": null, "scope": null, "comment": null})
    );
    assert_eq!(work.answer(&prm, 0).await, asked);
    assert_eq!(work.state().await, ("running".to_owned(), json!("approval"), json!("remote_waiting")));
    let run = work.read().await;
    let mut shown = json!({
        "permission_request_id": prm, "task_run_id": work.run, "agent_id": work.device.agent, "agent_name": "builder",
        "conversation_id": run["conversation_id"], "runtime_id": work.device.runtime, "channel_id": null, "epoch": 1,
        "tool": "shell", "input": {"command": "make"}, "cwd": "/src", "paths": ["/src/a"], "reason": "to build",
        "risk": "low", "diff": null, "undisclosed": [], "once": null, "confirm_approvals": "none", "state": "pending", "requested_at": "2023-11-14T22:13:20.000Z",
        "expires_at": "2023-11-15T22:13:20.000Z", "on_timeout": "deny_and_halt", "approved": null, "decided_by": null,
        "decided_at": null, "source": null, "decided_via": null, "decided_from": null, "scope": null,
        "tool_pattern": null, "until": null, "this_channel_only": false, "comment": null, "grant_id": null,
    });
    let read = work.permission(&prm).await;
    shown["subject"] = read["subject"].clone();
    assert_eq!(read["subject"].as_str().unwrap().len(), 64);
    assert_eq!(read, shown);
    let list = work.world.owner.get("/api/v1/permission-requests?state=pending&agent_id=builder").await.expect(200);
    assert_eq!(list, json!({"permission_requests": [shown], "next_cursor": null}));
    let none = work.world.owner.get("/api/v1/permission-requests?state=denied").await.expect(200);
    assert_eq!(none, json!({"permission_requests": [], "next_cursor": null}));

    let (client, path) = (work.device.client.clone(), work.path(&format!("/permission-requests/{prm}?wait_ms=30000")));
    let waiting = tokio::spawn(async move { client.get(&path).await });
    let decided = work.decide(&prm, json!({"approved": true, "comment": "go on"})).await.expect(200);
    let told = waiting.await.unwrap().expect(200);
    let told_before = json!({"permission_request_id": prm, "state": "approved", "approved": true, "scope": "once",
        "comment": "go on"});
    assert_eq!(told, told_before);
    for (name, value) in [
        ("state", json!("approved")),
        ("approved", json!(true)),
        ("decided_at", json!("2023-11-14T22:13:20.000Z")),
        ("source", json!("user")),
        ("decided_via", json!("rest")),
        ("decided_from", json!("127.0.0.1")),
        ("scope", json!("once")),
        ("comment", json!("go on")),
    ] {
        shown[name] = value;
    }
    shown["decided_by"] = decided["decided_by"].clone();
    assert!(decided["decided_by"].as_str().unwrap().starts_with("key:key_"));
    assert_eq!(decided, shown);
    assert_eq!(work.state().await, ("running".to_owned(), Value::Null, json!("remote_running")));
    assert_eq!(
        work.events().await,
        [
            "task.created",
            "task.claimed",
            "permission.requested",
            "action.required",
            "task.waiting",
            "permission.decided",
            "task.waiting"
        ]
    );
    work.complete().await.expect(200);
}

async fn one_of_fifty_deciders_wins_and_the_others_learn_who(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let prm = work.pending("shell", json!({"command": "make"})).await;
    let mut deciders = Vec::new();
    for _ in 0..50 {
        deciders.push(work.world.key("operator").await);
    }
    let tries = deciders.into_iter().enumerate().map(|(index, client)| {
        let prm = prm.clone();
        tokio::spawn(async move { decide(&client, &prm, json!({"approved": index % 2 == 0})).await })
    });
    let (mut won, mut lost) = (Vec::new(), Vec::new());
    for attempt in tries.collect::<Vec<_>>() {
        let reply = attempt.await.unwrap();
        match reply.status {
            200 => won.push(reply.json()),
            _ => {
                assert_eq!(reply.refusal(), (409, "already_decided".to_owned()));
                lost.push(reply.json());
            }
        }
    }
    let [winner] = won.as_slice() else { panic!("{} won", won.len()) };
    assert_eq!(lost.len(), 49);
    for told in &lost {
        assert_eq!(told["decided_by"], winner["decided_by"]);
        assert_eq!(told["decided_at"], winner["decided_at"]);
        assert_eq!(told["permission_request"], *winner);
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.contains(winner["decided_by"].as_str().unwrap()), "{message}");
    }
    assert_eq!(work.answer(&prm, 0).await["approved"], winner["approved"]);
    assert_eq!(work.world.audit("permission.decided").await.len(), 1);
    assert_eq!(work.world.audit("permission.late").await.len(), 49);
}

async fn a_decision_can_be_repeated_but_not_changed(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let (one, other) = (work.world.key("operator").await, work.world.key("operator").await);
    let prm = work.pending("shell", json!({})).await;
    let yes = json!({"approved": true, "scope": "run"});
    let first = decide(&one, &prm, yes.clone()).await.expect(200);
    assert_eq!(decide(&one, &prm, yes.clone()).await.expect(200), first);
    let changed = decide(&one, &prm, json!({"approved": false})).await;
    assert_eq!(changed.refusal(), (409, "already_decided".to_owned()));
    let same_by_another = decide(&other, &prm, yes).await;
    assert_eq!(same_by_another.refusal(), (409, "already_decided".to_owned()));
    assert_eq!(work.permission(&prm).await, first);
    let grants = work.world.owner.get("/api/v1/permission-grants").await.expect(200);
    assert_eq!(grants["permission_grants"].as_array().unwrap().len(), 1);
}

async fn asking_again_returns_the_same_request(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let ask = |body: Value| {
        let (client, path) = (work.device.client.clone(), work.path("/permission-requests"));
        async move { client.post(&path, body).await }
    };
    let named = json!({"tool": "shell", "input": {"n": 1}, "request_id": "q1"});
    let first = ask(named.clone()).await.expect(201);
    assert_eq!(ask(named.clone()).await.expect(201), first);
    let unnamed = json!({"tool": "edit", "input": {"n": 2}});
    let second = ask(unnamed.clone()).await.expect(201);
    assert_ne!(id(&second), id(&first));
    assert_eq!(ask(unnamed.clone()).await.expect(201), second, "while it is pending");
    // Member order, whitespace or another folder make a different subject.
    for other in [
        json!({"tool": "edit", "input": {"n": 3}}),
        json!({"tool": "edit", "input": {"n": 2}, "cwd": "/elsewhere"}),
        json!({"tool": "edit", "input": {"n": 2}, "paths": ["/a"]}),
        json!({"tool": "Edit", "input": {"n": 2}}),
    ] {
        assert_ne!(id(&ask(other).await.expect(201)), id(&second));
    }
    for prm in [id(&first), id(&second)] {
        work.decide(&prm, json!({"approved": false, "comment": "no"})).await.expect(200);
    }
    let again = ask(named).await.expect(201);
    assert_eq!(again, work.answer(&id(&first), 0).await, "the name gives the answer back");
    assert_eq!((&again["approved"], &again["comment"]), (&json!(false), &json!("no")));
    assert_ne!(id(&ask(unnamed).await.expect(201)), id(&second), "without a name a decided step is asked for again");
    let stale = ask(json!({"epoch": 2, "tool": "shell", "input": {}})).await;
    assert_eq!(stale.refusal(), (409, "stale_epoch".to_owned()));
}

async fn an_approval_can_wait_for_hours(engine: Engine) {
    let mut work = ClaimedRunFixture::begin(engine).await;
    let prm = work.pending("shell", json!({"command": "make"})).await;
    for minute in 0..300 {
        work.world.advance(HOUR / 60);
        work.beat().await;
        if minute == 150 && engine == Engine::Sqlite {
            work.world = work.world.restart().await;
        }
    }
    assert_eq!(work.state().await, ("running".to_owned(), json!("approval"), json!("remote_waiting")));
    if engine == Engine::Sqlite {
        let (world, device, run) = (work.world.restart().await, work.device, work.run);
        work = ClaimedRunFixture { world, device, run };
    }
    let decided = work.decide(&prm, json!({"approved": true})).await.expect(200);
    assert_eq!(decided["decided_at"], "2023-11-15T03:13:20.000Z");
    assert_eq!(work.answer(&prm, 0).await["approved"], true);
    // Waiting doesn't count towards the timeout of an hour.
    assert_eq!(work.state().await.0, "running");
    for _ in 0..59 {
        work.world.advance(HOUR / 60);
        work.beat().await;
    }
    work.complete().await.expect(200);
}

/// The lease is paused while a person decides. After the decision, the device has one lease to come back for it.
async fn an_approval_waits_for_an_offline_device(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    work.beat().await;
    let prm = work.pending("shell", json!({"command": "make"})).await;
    work.world.advance(3 * HOUR);
    work.until_agent_is("offline").await;
    assert_eq!(work.state().await, ("running".to_owned(), json!("approval"), json!("unreachable")));
    work.decide(&prm, json!({"approved": true})).await.expect(200);
    work.world.advance(Duration::from_secs(60));
    work.beat().await;
    assert_eq!(work.answer(&prm, 0).await["approved"], true);
    assert_eq!(work.state().await.0, "running");
    work.world.advance(Duration::from_secs(121));
    work.until_agent_is("offline").await;
    let read = work.read().await;
    assert_eq!((&read["status"], &read["task_result"]["code"]), (&json!("failed"), &json!("runtime_lost")));
}

async fn an_answer_after_the_end_is_recorded_and_changes_nothing(engine: Engine) {
    let work = ClaimedRunFixture::patient(engine).await;
    let policy = json!({"approvals": {"timeout_ms": 60_000, "on_timeout": "deny_and_continue"}});
    let account = work.world.owner.patch("/api/v1/agent-accounts/builder", policy.clone()).await.expect(200);
    assert_eq!(account["approvals"], policy["approvals"]);
    let prm = work.pending("shell", json!({})).await;
    work.world.advance(Duration::from_secs(61));
    work.until(&prm, "expired").await;
    let late = work.decide(&prm, json!({"approved": true})).await;
    assert_eq!(late.refusal(), (409, "already_decided".to_owned()));
    let late = late.json();
    assert_eq!((&late["decided_by"], &late["decided_at"]), (&json!("system"), &json!("2023-11-14T22:14:21.000Z")));
    assert_eq!(late["permission_request"]["source"], "timeout");
    assert_eq!(work.answer(&prm, 0).await["approved"], false);
    let recorded = work.world.audit("permission.late").await;
    let [(actor, data)] = recorded.as_slice() else { panic!("{recorded:?}") };
    assert!(actor.starts_with("key:"));
    assert_eq!(*data, json!({"permission_request_id": prm, "approved": true, "state": "expired"}));
    assert_eq!(work.state().await.0, "running");
}

async fn unanswered_requests_follow_the_policy(engine: Engine) {
    let mut work = ClaimedRunFixture::patient(engine).await;
    // The hub's default: after a day, the request is denied and the run fails.
    let prm = work.pending("shell", json!({})).await;
    work.world.advance(24 * HOUR - Duration::from_secs(1));
    assert_eq!(work.answer(&prm, 0).await["state"], "pending");
    work.world.advance(Duration::from_secs(1));
    work.until(&prm, "expired").await;
    assert_eq!(work.answer(&prm, 0).await["approved"], false);
    let read = work.read().await;
    assert_eq!((&read["status"], &read["task_result"]["code"]), (&json!("failed"), &json!("permission_denied")));
    assert_eq!((&read["waiting"], &read["recovery"]), (&Value::Null, &Value::Null));

    let policy = |policy: Value| json!({"approvals": policy});
    let agent = "/api/v1/agent-accounts/builder";
    let forever = policy(json!({"on_timeout": "keep_waiting", "timeout_ms": 1000}));
    work.world.owner.patch(agent, forever).await.expect(200);
    work.next_run(json!({})).await;
    let prm = work.pending("shell", json!({})).await;
    assert_eq!(work.permission(&prm).await["expires_at"], Value::Null);
    work.world.advance(400 * 24 * HOUR);
    assert_eq!(work.answer(&prm, 50).await["state"], "pending");
    work.decide(&prm, json!({"approved": true})).await.expect(200);
    work.complete().await.expect(200);

    work.world.owner.patch(agent, policy(json!({}))).await.expect(200);
    work.next_run(json!({})).await;
    let asked = work.permission(&work.pending("shell", json!({})).await).await;
    assert_eq!(
        (&asked["on_timeout"], &asked["expires_at"]),
        (&json!("deny_and_halt"), &json!("2024-12-20T22:13:20.000Z"))
    );
}

async fn only_people_decide(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let prm = work.pending("shell", json!({})).await;
    let body = json!({"agent_id": "helper"});
    let registered = work.world.owner.post("/api/a2a/register", body).await.expect(200);
    let agent_key = work.world.anonymous().key(registered["api_key"].as_str().unwrap());
    let viewer = work.world.key("viewer").await;
    for (who, client) in [("runtime token", &work.device.client), ("agent key", &agent_key), ("viewer", &viewer)] {
        for approved in [true, false] {
            let reply = decide(client, &prm, json!({"approved": approved})).await;
            assert_eq!(reply.refusal(), (403, "forbidden".to_owned()), "{who}");
        }
    }
    for (who, client) in [("runtime token", &work.device.client), ("agent key", &agent_key)] {
        for path in ["permission-requests", &format!("permission-requests/{prm}"), "permission-grants"] {
            let reply = client.get(&format!("/api/v1/{path}")).await;
            assert_eq!(reply.refusal(), (403, "forbidden".to_owned()), "{who} {path}");
        }
    }
    viewer.get(&format!("/api/v1/permission-requests/{prm}")).await.expect(200);
    assert_eq!(decide(&work.world.anonymous(), &prm, json!({"approved": true})).await.refusal().0, 401);
    assert_eq!(work.answer(&prm, 0).await["state"], "pending");
    assert_eq!(work.world.audit("permission.late").await, []);
    // Another device's request is none of its business.
    work.world.agent("other").await;
    let other = work.world.device("other").await;
    let foreign = other.client.get(&work.path(&format!("/permission-requests/{prm}"))).await;
    assert_eq!(foreign.refusal(), (404, "not_found".to_owned()));
    let asked = other.client.post(&work.path("/permission-requests"), json!({"tool": "x", "input": {}})).await;
    assert_eq!(asked.refusal(), (404, "not_found".to_owned()));
    for role in ["operator", "admin"] {
        let prm = work.pending("shell", json!({"for": role})).await;
        decide(&work.world.key(role).await, &prm, json!({"approved": true})).await.expect(200);
    }
}

async fn a_request_ends_with_its_run(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let prm = work.pending("shell", json!({})).await;
    let (client, path) = (work.device.client.clone(), work.path(&format!("/permission-requests/{prm}?wait_ms=30000")));
    let waiting = tokio::spawn(async move { client.get(&path).await });
    work.world.owner.post(&work.path("/cancel"), json!({})).await.expect(200);
    let told = waiting.await.unwrap().expect(200);
    assert_eq!((&told["state"], &told["approved"]), (&json!("cancelled"), &json!(false)));
    let late = work.decide(&prm, json!({"approved": true})).await;
    assert_eq!(late.refusal(), (409, "already_decided".to_owned()));
    assert_eq!(work.events().await.last().unwrap(), "task.cancelled");
}

#[tokio::test]
async fn a_wait_for_an_answer_ends_with_the_hub() {
    let work = ClaimedRunFixture::begin(Engine::Model).await;
    let prm = work.pending("shell", json!({})).await;
    let ask = work.device.client.post(&work.path("/input-requests"), json!({"prompt": "?"})).await.expect(201);
    let ask = ask["input_request_id"].as_str().unwrap().to_owned();
    let wait = |path: String| {
        let client = work.device.client.clone();
        tokio::spawn(async move { client.get(&format!("{path}?wait_ms=60000")).await })
    };
    let permission = wait(work.path(&format!("/permission-requests/{prm}")));
    let input = wait(work.path(&format!("/input-requests/{ask}")));
    crate::life::wait_for_connections(&work.world, 2).await;
    work.world.hub.drain();
    assert_eq!(permission.await.unwrap().expect(200)["state"], "pending");
    assert_eq!(input.await.unwrap().expect(200)["state"], "pending");
}

#[tokio::test]
async fn a_replaced_device_gets_no_answer() {
    let work = ClaimedRunFixture::begin(Engine::Model).await;
    let prm = work.pending("shell", json!({})).await;
    let (client, path) = (work.device.client.clone(), work.path(&format!("/permission-requests/{prm}?wait_ms=60000")));
    let waiting = tokio::spawn(async move { client.get(&path).await });
    crate::life::wait_for_connections(&work.world, 1).await;
    work.world.device("builder").await;
    let told = waiting.await.unwrap();
    // Its claim is gone, and with it the question: it gets one of the two errors, never an approval.
    match told.status {
        200 => assert_eq!(told.json()["state"], "cancelled"),
        _ => assert_eq!(told.refusal(), (401, "runtime_superseded".to_owned())),
    }
    assert_eq!(work.permission(&prm).await["state"], "cancelled");
    assert_eq!(work.decide(&prm, json!({"approved": true})).await.refusal().0, 409);
}

/// Text from an agent is data: it is kept unchanged, and whoever shows it must make it inert.
#[tokio::test]
async fn an_agents_text_is_kept_byte_for_byte() {
    let work = ClaimedRunFixture::begin(Engine::Model).await;
    let input = r#"{"b":1.0, "a":[9007199254740993],"text":"\u001b[31mred\u202e <script>"}"#;
    let body = format!(r#"{{"tool":"shell","input":{input},"reason":"**bold** [link](javascript:x)\u202e\u001b[2J"}}"#);
    let client = work.device.client.with("content-type", "application/json");
    let asked = client.call(Method::POST, &work.path("/permission-requests"), body).await.expect(201);
    let read = work.world.owner.get(&format!("/api/v1/permission-requests/{}", id(&asked))).await;
    let text = String::from_utf8(read.body.to_vec()).unwrap();
    assert!(text.contains(&format!(r#""input":{input},"cwd""#)), "{text}");
    assert_eq!(read.json()["reason"], "**bold** [link](javascript:x)\u{202e}\u{1b}[2J");
    let events = work.world.owner.get(&work.path("/events")).await;
    assert!(String::from_utf8_lossy(&events.body).contains(&format!(r#""input":{input}"#)));
}
