//! Sessions of a device's terminal: who sees them, and who continues one.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::{
    escalation::{REGISTER, RUNS, key, person},
    world::{Engine, TestCaller, TestDevice, World, on_all},
};

on_all! {
    the_owner_sees_and_continues_the_sessions_of_their_device
    nobody_else_sees_or_continues_them
    a_device_can_report_anything_within_bounds
}

const SESSIONS: &str = "/api/v1/agent-accounts/adas/host-sessions";
const CONVERSATIONS: &str = "/api/v1/conversations";
const BEAT: &str = "/api/v1/agent-runtimes/runtime/heartbeat";

/// Ada's own agent on her own device.
struct OwnAgent {
    world: World,
    ada: TestCaller,
    device: TestDevice,
}

impl OwnAgent {
    async fn start(engine: Engine) -> Self {
        let world = World::timed(engine, |options| options.tools = Some("/mcp".to_owned())).await;
        let ada = person(&world, "ada", "operator").await;
        ada.post("/api/v1/agent-accounts", json!({"name": "adas", "callers": "owner"})).await.expect(201);
        let device = world.device_of(&ada, "adas").await;
        Self { world, ada, device }
    }

    async fn report(&self, sessions: Value) {
        let beat = json!({"agent_id": self.device.agent, "running": [], "host_sessions": sessions});
        self.device.client.post(BEAT, beat).await.expect(200);
    }

    async fn listed(&self) -> Value {
        let listed = self.ada.get(SESSIONS).await.expect(200);
        assert_ne!(listed["reported_at"], Value::Null, "{listed}");
        listed["host_sessions"].clone()
    }
}

fn session(id: &str, title: &str) -> Value {
    json!({"session_id": id, "title": title, "updated_at": "2026-11-18T22:53:16.330Z", "folder": "/home/ada/site",
        "command": format!("cd /home/ada/site && claude --resume {id}")})
}

fn continued(id: &str) -> Value {
    json!({"agent_type": "adas", "host_session": id})
}

async fn the_owner_sees_and_continues_the_sessions_of_their_device(engine: Engine) {
    let own = OwnAgent::start(engine).await;
    let (ada, device) = (&own.ada, &own.device);
    assert_eq!(ada.get(SESSIONS).await.expect(200), json!({"host_sessions": [], "reported_at": null}));
    own.report(json!([session("s-2", "fix the tests"), session("s-1", "an earlier one")])).await;
    assert_eq!(own.listed().await, json!([session("s-2", "fix the tests"), session("s-1", "an earlier one")]));

    let made = ada.post(CONVERSATIONS, continued("last")).await.expect(201);
    assert_eq!(
        (&made["title"], &made["metadata"]["host_session"]["session_id"]),
        (&json!("fix the tests"), &json!("s-2"))
    );
    // It is continued once, and now the next one is the newest that is only in a terminal.
    let again = ada.post(CONVERSATIONS, continued("s-2")).await.expect(201);
    assert_eq!(again["conversation_id"], made["conversation_id"]);
    assert_eq!(own.listed().await[0]["conversation_id"], made["conversation_id"]);
    let other = json!({"agent_type": "adas", "host_session": "last", "title": "Mine", "metadata": {"a": 1.0}});
    let other = ada.post(CONVERSATIONS, other).await.expect(201);
    assert_eq!((&other["title"], &other["metadata"]["host_session"]["session_id"]), (&json!("Mine"), &json!("s-1")));
    assert_eq!(ada.post(CONVERSATIONS, continued("last")).await.refusal(), (404, "not_found".to_owned()));
    assert_eq!(ada.post(CONVERSATIONS, continued("s-3")).await.refusal(), (404, "not_found".to_owned()));

    let run = json!({"agent_id": "adas", "conversation_id": made["conversation_id"]});
    ada.post(RUNS, run.clone()).await.expect(201);
    let claim = device.claim().await;
    assert_eq!((&claim["for_owner"], &claim["host_session"]), (&json!(true), &json!("s-2")));
    // Another agent knows nothing of it.
    ada.post("/api/v1/agent-accounts", json!({"name": "second"})).await.expect(201);
    let second = own.world.device_of(ada, "second").await;
    let run = json!({"agent_id": "second", "conversation_id": made["conversation_id"]});
    ada.post(RUNS, run).await.expect(201);
    assert_eq!(second.claim().await["host_session"], Value::Null);

    // The device knows which conversations its sessions belong to. One that is gone isn't shown.
    ada.delete(&format!("{CONVERSATIONS}/{}", other["conversation_id"].as_str().unwrap())).await;
    let mut known = session("s-9", "of a conversation");
    known["conversation_id"] = made["conversation_id"].clone();
    let mut gone = session("s-8", "of one that is gone");
    gone["conversation_id"] = other["conversation_id"].clone();
    own.report(json!([known, gone])).await;
    assert_eq!(own.listed().await, json!([known, session("s-8", "of one that is gone")]));
}

async fn nobody_else_sees_or_continues_them(engine: Engine) {
    let own = OwnAgent::start(engine).await;
    let (world, ada) = (&own.world, &own.ada);
    let (bob, eve) = (person(world, "bob", "operator").await, person(world, "eve", "admin").await);
    let viewer = person(world, "vi", "viewer").await;
    own.report(json!([session("s-1", "a secret plan")])).await;
    // Also for an agent that everybody may call.
    ada.patch("/api/v1/agent-accounts/adas", json!({"callers": "everyone"})).await.expect(200);
    let helper = key(world, &ada.post(REGISTER, json!({"agent_id": "helper"})).await.expect(200));
    let issued =
        eve.post("/api/v1/api-keys", json!({"name": "x", "user": "ada", "role": "operator"})).await.expect(201);
    let scoped = ada.post("/api/v1/api-keys", json!({"name": "ci", "scopes": ["call", "read"]})).await.expect(201);
    let token = ada.post("/api/v1/tokens", json!({"ttl_seconds": 3600})).await.expect(201);
    let token = world.anonymous().key(token["token"].as_str().unwrap());
    let made = ada.post(CONVERSATIONS, continued("s-1")).await.expect(201);
    assert_eq!(made["title"], Value::Null, "others see the work of a shared agent");
    let run = json!({"agent_id": "adas", "conversation_id": made["conversation_id"]});
    ada.post(RUNS, run.clone()).await.expect(201);
    let claim = own.device.claim().await;
    let of_run = world.anonymous().key(claim["mcp"]["token"].as_str().unwrap());
    let all = [
        ("another user", &bob),
        ("an admin", &eve),
        ("the owner of the hub", &world.owner),
        ("a viewer", &viewer),
        ("an agent of hers", &helper),
        ("a key that somebody else issued", &key(world, &issued)),
        ("a key with scopes", &key(world, &scoped)),
        ("a token", &token),
        ("her own run", &of_run),
        ("the device", &own.device.client),
        ("nobody", &world.anonymous()),
    ];
    for (who, by) in all {
        let refused = |reply: crate::world::HttpReply| matches!(reply.refusal().0, 401 | 403 | 404);
        let seen = by.get(SESSIONS).await;
        assert!(!String::from_utf8_lossy(&seen.body).contains("secret plan"), "{who}");
        assert!(refused(seen), "{who} sees them");
        assert!(refused(by.post(CONVERSATIONS, continued("s-1")).await), "{who} begins a conversation");
        assert!(refused(by.post(RUNS, run.clone()).await), "{who} starts a run");
    }
    // The hub alone says what a conversation continues.
    let forged = json!({"metadata": {"host_session": {"agent_id": own.device.agent, "session_id": "s-1"}}});
    assert_eq!(bob.post(CONVERSATIONS, forged.clone()).await.refusal(), (400, "invalid_request".to_owned()));
    assert_eq!(ada.post(CONVERSATIONS, forged).await.refusal(), (400, "invalid_request".to_owned()));
    // Who is given the agent doesn't get the terminal of the one who paired the device.
    eve.patch("/api/v1/agent-accounts/adas", json!({"owner": "eve"})).await.expect(200);
    assert_eq!(eve.get(SESSIONS).await.refusal(), (403, "forbidden".to_owned()));
    assert_eq!(ada.get(SESSIONS).await.refusal(), (403, "forbidden".to_owned()));
}

async fn a_device_can_report_anything_within_bounds(engine: Engine) {
    let own = OwnAgent::start(engine).await;
    let many: Vec<Value> = (0..100).map(|n| session(&format!("s-{n}"), "x")).collect();
    own.report(json!(many)).await;
    assert_eq!(own.listed().await.as_array().unwrap().len(), 30);
    let bad = [session("--help", "x"), session("s", ""), session("s", "a\u{1b}[31m"), session("s", &"x".repeat(161))];
    own.report(json!([bad[0], bad[1], bad[2], bad[3], session("good", "x")])).await;
    assert_eq!(own.listed().await, json!([session("good", "x")]));
    let body = json!({"host_sessions": "x"}).to_string();
    assert_eq!(own.device.client.call(Method::POST, BEAT, body).await.refusal().0, 400);
    // A device that goes on without them has none any more.
    own.device.client.post(BEAT, json!({"running": []})).await.expect(200);
    assert_eq!(own.listed().await, json!([]));
    for (request, field) in [
        (json!({"host_session": "x"}), "agent_type"),
        (json!({"agent_type": "adas", "host_session": "--help"}), "host_session"),
        (json!({"agent_type": "adas", "host_session": 7}), "host_session"),
    ] {
        let refused = own.ada.post(CONVERSATIONS, request).await;
        assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()));
        assert!(String::from_utf8_lossy(&refused.body).contains(field), "{field}");
    }
    own.world.advance(Duration::from_secs(1));
}
