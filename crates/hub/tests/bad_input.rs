//! Malformed input gets a clear 4xx at every endpoint, never a 500 or a panic.

use hyper::Method;
use serde_json::json;

use crate::{
    document::ROUTES,
    world::{TestCaller, World},
};

/// Paths whose variables name existing things, so that the body is what is rejected.
struct ExistingPaths {
    world: World,
    device: crate::world::TestDevice,
    run: String,
    conversation: String,
    workspace: String,
    artifact: String,
    permission: String,
    ask: String,
    grant: String,
}

impl ExistingPaths {
    async fn set() -> Self {
        let world = World::start().await;
        world.agent("builder").await;
        let device = world.device("builder").await;
        let created = world.run("builder").await;
        device.claim().await;
        let text = |name: &str| created[name].as_str().unwrap().to_owned();
        let (run, conversation, workspace) = (text("task_run_id"), text("conversation_id"), text("workspace_id"));
        let path = format!("/api/v1/workspaces/{workspace}/artifacts/a");
        let artifact = world.owner.call(Method::PUT, &path, "x").await.expect(201);
        let artifact = artifact["artifact_id"].as_str().unwrap().to_owned();
        let work = |name: &str| format!("/api/v1/task-runs/{run}/{name}");
        let asked = json!({"tool": "shell", "input": {}});
        let asked = device.client.post(&work("permission-requests"), asked).await.expect(201);
        let permission = asked["permission_request_id"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/permission-requests/{permission}/decision");
        let decided = world.owner.post(&path, json!({"approved": true, "scope": "run"})).await.expect(200);
        let grant = decided["grant_id"].as_str().unwrap().to_owned();
        let asked = device.client.post(&work("input-requests"), json!({"prompt": "?"})).await.expect(201);
        let ask = asked["input_request_id"].as_str().unwrap().to_owned();
        Self { world, device, run, conversation, workspace, artifact, permission, ask, grant }
    }

    fn path(&self, route: &str) -> String {
        route
            .replace("{agent}", "builder")
            .replace("{call}", &self.run)
            .replace("{runtime}", &self.device.runtime)
            .replace("{run}", &self.run)
            .replace("{conversation}", &self.conversation)
            .replace("{workspace}", &self.workspace)
            .replace("{artifact}", &self.artifact)
            .replace("{permission}", &self.permission)
            .replace("{ask}", &self.ask)
            .replace("{grant}", &self.grant)
            .replace("{channel}", "chn_00000000000000000000000000000001")
            .replace("{tunnel}", "tun_00000000000000000000000000000001")
            .replace("{delegation}", "dlg_00000000000000000000000000000001")
            .replace("{name}", "b")
            .replace("{code}", "0000-0000")
            .replace("{key}", "key_00000000000000000000000000000001")
            .replace("{target}", "ntf_00000000000000000000000000000001")
            .replace("{session}", "key_00000000000000000000000000000001")
    }

    /// The kind of caller the endpoint is for.
    fn caller(&self, route: &str) -> TestCaller {
        let client = if is_work(route) { &self.device.client } else { &self.world.owner };
        client.with("content-type", "application/json")
    }
}

fn is_work(route: &str) -> bool {
    let asks = route.contains("/{run}/permission-requests") || route.contains("/{run}/input-requests");
    let ends = [
        "/pull",
        "/heartbeat",
        "/progress",
        "/complete",
        "/fail",
        "/release",
        "/worktree/outcome",
        "/worktree-decisions",
    ];
    asks || ends.iter().any(|end| route.ends_with(end))
}

fn is_open(route: &str) -> bool {
    let device = ["/attach-via-pairing", "/pairing-requests", "/pairing-requests/poll"];
    let device = route.contains("/runtime/") && device.iter().any(|end| route.ends_with(end));
    // The credential may come with the first frame.
    let channel = ["/api/envelope", "/api/envelope/ws", "/api/a2a/connect"].contains(&route);
    device
        || channel
        || ["/healthz", "/readyz", "/metrics", "/api/v1/openapi.json", "/.well-known/jwks.json"].contains(&route)
}

/// Endpoints that read a JSON body.
fn reads_json(method: &str, route: &str) -> bool {
    let bare = ["/pairing-codes", "/pull", "/resend", "/{target}/test", "/{delegation}/cancel", "/api/envelope"]
        .iter()
        .any(|end| route.ends_with(end));
    matches!(method, "post" | "patch") && !bare
}

fn methods(method: &str) -> Method {
    method.to_uppercase().parse().unwrap()
}

#[tokio::test]
async fn every_endpoint_requires_a_valid_credential() {
    let scene = ExistingPaths::set().await;
    let mut wrong = Vec::new();
    for (method, route) in ROUTES.iter().filter(|(_, route)| !is_open(route)) {
        let anonymous = scene.world.anonymous();
        let callers = [
            anonymous.clone(),
            anonymous.key("ak_0000"),
            anonymous.key("rt_0000"),
            anonymous.with("authorization", "Basic eDp5"),
            anonymous.with("authorization", "Bearer"),
            anonymous.with("x-runtime-token", "rt_0000"),
            anonymous.with("x-runtime-token", "ak_0000"),
        ];
        for (index, caller) in callers.iter().enumerate() {
            let reply = caller.call(methods(method), &scene.path(route), "").await;
            if reply.refusal() != (401, "unauthenticated".to_owned()) {
                wrong.push(format!("{method} {route} with {index}: {}", reply.status));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test]
async fn every_endpoint_refuses_a_foreign_host_and_a_foreign_origin() {
    let scene = ExistingPaths::set().await;
    for (method, route) in ROUTES.iter() {
        let foreign = scene.caller(route).with("host", "evil.example");
        let reply = foreign.call(methods(method), &scene.path(route), "").await;
        // Balancers ask these two by an address, or by no name at all.
        if ["/healthz", "/readyz"].contains(route) {
            assert_eq!(reply.status, 200, "{method} {route}");
        } else {
            assert_eq!(reply.refusal(), (421, "wrong_host".to_owned()), "{method} {route}");
        }
        let foreign = scene.caller(route).with("origin", "http://evil.example");
        let reply = foreign.call(methods(method), &scene.path(route), "").await;
        assert_eq!(reply.refusal(), (403, "foreign_origin".to_owned()), "{method} {route}");
    }
}

#[tokio::test]
async fn every_invalid_json_body_is_refused() {
    let scene = ExistingPaths::set().await;
    let deep = format!("{}{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let wide = format!("{{\"input\":{{\"text\":\"{}\"}}}}", "x".repeat(5 << 20));
    let bodies: [(&str, &[u8], u16, &str); 10] = [
        ("cut", b"{\"agent_id\":", 400, "invalid_json"),
        ("no json", b"hello", 400, "invalid_json"),
        ("not utf-8", b"{\"a\":\"\xff\"}", 400, "invalid_json"),
        ("two values", b"{} {}", 400, "invalid_json"),
        ("an array", b"[]", 400, "invalid_request"),
        ("a number", b"7", 400, "invalid_request"),
        ("a string", b"\"x\"", 400, "invalid_request"),
        ("null", b"null", 400, "invalid_request"),
        ("too deep", deep.as_bytes(), 400, "json_too_deep"),
        ("too large", wide.as_bytes(), 413, "too_large"),
    ];
    let mut wrong = Vec::new();
    for (method, route) in ROUTES.iter().filter(|(method, route)| reads_json(method, route)) {
        let caller = scene.caller(route);
        for (what, body, status, code) in &bodies {
            let reply = caller.call(methods(method), &scene.path(route), body.to_vec()).await;
            let got = reply.refusal();
            if got != (*status, (*code).to_owned()) {
                wrong.push(format!("{method} {route}: {what}: {got:?} {}", reply.json()["error"]["message"]));
            }
        }
        let form = caller.with("content-type", "application/x-www-form-urlencoded");
        let reply = form.call(methods(method), &scene.path(route), "a=b").await;
        if reply.refusal() != (415, "unsupported_media_type".to_owned()) {
            wrong.push(format!("{method} {route}: form: {}", reply.status));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(scene.world.owner.get("/readyz").await.status, 200);
    let metrics = scene.world.owner.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("attache_panics_total 0\n") && metrics.contains("{class=\"5xx\"} 0\n"), "{metrics}");
}

#[tokio::test]
async fn unknown_ids_are_not_found_at_every_endpoint() {
    let scene = ExistingPaths::set().await;
    let absent = |route: &str, shape: &str| {
        let id = |prefix: &str| match shape {
            "unknown" => format!("{prefix}ffffffffffffffffffffffffffffffff"),
            "other kind" => "tnt_ffffffffffffffffffffffffffffffff".to_owned(),
            "short" => format!("{prefix}1"),
            _ => "%F0%9F%A6%80".to_owned(),
        };
        route
            .replace("{agent}", &id("agt_"))
            .replace("{call}", &id("a2a-"))
            .replace("{runtime}", &id("rtm_"))
            .replace("{run}", &id("run_"))
            .replace("{conversation}", &id("cnv_"))
            .replace("{workspace}", &id("wsp_"))
            .replace("{artifact}", &id("art_"))
            .replace("{key}", &id("key_"))
            .replace("{session}", &id("key_"))
            .replace("{permission}", &id("prm_"))
            .replace("{ask}", &id("ask_"))
            .replace("{grant}", &id("gnt_"))
            .replace("{channel}", &id("chn_"))
            .replace("{tunnel}", &id("tun_"))
            .replace("{delegation}", &id("dlg_"))
            .replace("{name}", "b")
    };
    let variable = |route: &str| route.contains('{') && !route.contains("{code}");
    let mut wrong = Vec::new();
    // A PUT may create something new.
    let is_new = |method: &str, route: &str| {
        method == "put" && ["/{tunnel}", "/{delegation}", "/run-views/{name}"].iter().any(|end| route.ends_with(end))
    };
    for (method, route) in ROUTES.iter().filter(|(method, route)| variable(route) && !is_new(method, route)) {
        for shape in ["unknown", "other kind", "short", "not ascii"] {
            let path = absent(route, shape);
            let body = if reads_json(method, route) {
                json!({"text": "x", "output": {}, "epoch": 1, "tool": "shell", "input": {}, "prompt": "?"}).to_string()
            } else {
                String::new()
            };
            // Unknown members would be rejected first.
            let body = match *route {
                "/api/v1/agent-accounts/{agent}"
                | "/api/v1/agent-accounts/{agent}/trust"
                | "/api/v1/task-runs/{run}/cancel"
                | "/api/v1/users/{user}" => "{}".to_owned(),
                "/api/v1/conversations/{conversation}/messages" | "/api/v1/task-runs/{run}/input" => {
                    json!({"text": "x"}).to_string()
                }
                "/api/v1/permission-requests/{permission}/decision" => json!({"approved": true}).to_string(),
                "/api/v1/task-runs/{run}/worktree" => json!({"action": "apply"}).to_string(),
                "/api/v1/task-runs/{run}/worktree/outcome" => {
                    json!({"number": 1, "outcome": {"result": "done"}}).to_string()
                }
                "/api/v1/notification-targets/{target}" => json!({"choices": {}}).to_string(),
                _ => body,
            };
            let reply = scene.caller(route).call(methods(method), &path, body).await;
            if reply.refusal() != (404, "not_found".to_owned()) {
                wrong.push(format!("{method} {path}: {} {}", reply.status, reply.json()["error"]["message"]));
            }
        }
        let bad = absent(route, "unknown").replace("ffffffffffffffffffffffffffffffff", "%FF");
        let reply = scene.caller(route).call(methods(method), &bad, "{}").await;
        assert!(matches!(reply.refusal().0, 400 | 404), "{method} {bad}: {}", reply.status);
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test]
async fn errors_name_the_wrong_value() {
    let scene = ExistingPaths::set().await;
    let run = scene.run.clone();
    let long = "x".repeat(300);
    let decision = format!("permission-requests/{}/decision", scene.permission);
    let input = format!("task-runs/{run}/input");
    let table = [
        ("agent-accounts", json!({"name": 7}), "name"),
        ("agent-accounts", json!({}), "name"),
        ("agent-accounts", json!({"name": "UPPER"}), "name"),
        ("agent-accounts", json!({"name": "agt_x"}), "name"),
        ("agent-accounts", json!({"name": "ok", "nmae": 1}), "nmae"),
        ("agent-accounts", json!({"name": "ok", "skills": [{"id": 1, "name": "x"}]}), "skills[0].id"),
        ("agent-accounts", json!({"name": "ok", "a2a": []}), "a2a"),
        ("agent-accounts", json!({"name": "ok", "peer": {"url": "https://a.example/?key=x"}}), "peer.url"),
        ("agent-accounts", json!({"name": "ok", "peer": {"url": "ftp://a.example"}}), "peer.url"),
        (
            "agent-accounts",
            json!({"name": "ok", "peer": {"url": "https://a.example", "card_pin": "x"}}),
            "peer.card_pin",
        ),
        ("agent-accounts", json!({"name": "ok", "approvals": {"timeout_ms": 999}}), "approvals.timeout_ms"),
        ("agent-accounts", json!({"name": "ok", "approvals": {"timeout_ms": -1}}), "approvals.timeout_ms"),
        ("agent-accounts", json!({"name": "ok", "approvals": {"on_timeout": "approve"}}), "approvals.on_timeout"),
        ("agent-accounts", json!({"name": "ok", "approvals": {"timeout": 1}}), "timeout"),
        (&decision, json!({}), "approved"),
        (&decision, json!({"approved": "yes"}), "approved"),
        (&decision, json!({"approved": true, "scope": "world"}), "scope"),
        (&decision, json!({"approved": true, "tool_pattern": "*"}), "tool_pattern"),
        (&decision, json!({"approved": true, "until": "2099-01-01T00:00:00Z"}), "until"),
        (&decision, json!({"approved": true, "scope": "run", "until": "2001-01-01T00:00:00Z"}), "until"),
        (&decision, json!({"approved": true, "scope": "run", "until": "soon"}), "until"),
        (&decision, json!({"approved": true, "scope": "run", "tool_pattern": ""}), "tool_pattern"),
        (&decision, json!({"approved": true, "scope": "run", "tool_pattern": "a\u{7}"}), "tool_pattern"),
        (&decision, json!({"approved": true, "comment": "x".repeat(5000)}), "comment"),
        (&decision, json!({"approved": true, "this_channel_only": true}), "this_channel_only"),
        (&decision, json!({"approved": true, "scop": "run"}), "scop"),
        (&input, json!({}), "text"),
        (&input, json!({"text": ""}), "text"),
        (&input, json!({"text": "x", "parts": []}), "parts"),
        (&input, json!({"parts": {}}), "parts"),
        (&input, json!({"parts": "x"}), "parts"),
        (&input, json!({"text": "x", "idempotency_key": ""}), "idempotency_key"),
        (&input, json!({"text": "x", "key": "k"}), "key"),
        ("task-runs", json!({"input": {}}), "agent_id"),
        ("task-runs", json!({"agent_id": ""}), "agent_id"),
        ("task-runs", json!({"agent_id": "builder", "input": "text"}), "input"),
        ("task-runs", json!({"agent_id": "builder", "input": []}), "input"),
        ("task-runs", json!({"agent_id": "builder", "task_type": "a b"}), "task_type"),
        ("task-runs", json!({"agent_id": "builder", "priority": 101}), "priority"),
        ("task-runs", json!({"agent_id": "builder", "priority": 1.5}), "priority"),
        ("task-runs", json!({"agent_id": "builder", "max_attempts": 0}), "max_attempts"),
        ("task-runs", json!({"agent_id": "builder", "timeout_ms": 999}), "timeout_ms"),
        ("task-runs", json!({"agent_id": "builder", "timeout_ms": -1}), "timeout_ms"),
        ("task-runs", json!({"agent_id": "builder", "queue_ttl_ms": u64::MAX}), "queue_ttl_ms"),
        ("task-runs", json!({"agent_id": "builder", "idempotency_key": long}), "idempotency_key"),
        ("task-runs", json!({"agent_id": "builder", "idempotency_key": "é"}), "idempotency_key"),
        ("task-runs", json!({"agent_id": "builder", "conversation_id": "run_1"}), "conversation_id"),
        ("task-runs", json!({"agent_id": "builder", "allowed_tools": {}}), "allowed_tools"),
        ("task-runs", json!({"agent_id": "builder", "epoch": 1}), "epoch"),
        ("conversations", json!({"metadata": "x"}), "metadata"),
        ("conversations", json!({"title": "a\u{7}"}), "title"),
        ("notification-targets", json!({"name": "", "address": slack("https://hooks.slack.com/x")}), "name"),
        (
            "notification-targets",
            json!({"name": "a\u{202e}\u{7}", "address": slack("https://hooks.slack.com/x")}),
            "name",
        ),
        ("notification-targets", json!({"name": "x", "address": slack("hooks")}), "address.webhook_url"),
        ("notification-targets", json!({"name": "x", "address": slack("https://é.example/")}), "address.webhook_url"),
        ("notification-targets", json!({"name": "x", "address": push("", "")}), "address.keys"),
        (
            "notification-targets",
            json!({"name": "x", "address": push(&"A".repeat(87), "BTBZMqHH6r4Tts7J_aSIgg")}),
            "address.keys",
        ),
        ("notification-targets", json!({"name": "x", "address": telegram("1:a/../x")}), "address.bot_token"),
        ("notification-targets", json!({"name": "x", "address": telegram("")}), "address.bot_token"),
        ("api-keys", json!({"name": "x", "role": "god"}), "role"),
        ("api-keys", json!({"name": "x", "expires_at": "soon"}), "expires_at"),
        ("agent-runtimes/runtime/attach-via-pairing", json!({"pairing_token": 7}), "pairing_token"),
        ("agent-runtimes/runtime/attach-via-pairing", json!({"pairing_token": "short"}), "pairing_token"),
        ("agent-runtimes/runtime/pairing-requests", json!({"labels": []}), "labels"),
        ("agent-runtimes/runtime/pairing-requests", json!({"device_name": long}), "device_name"),
    ];
    for (path, body, field) in table {
        let reply = scene.world.owner.post(&format!("/api/v1/{path}"), body.clone()).await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()), "{path} {body}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&format!("`{field}`")), "{path} {body}: {message}");
    }
    let large = "x".repeat(1 << 20);
    let work = [
        ("progress", json!({"epoch": "1"}), 400, "epoch"),
        ("progress", json!({"percent": 101}), 400, "percent"),
        ("progress", json!({"chunk": 7}), 400, "chunk"),
        ("progress", json!({"tool_call": "x"}), 400, "tool_call"),
        ("progress", json!({"artifact": []}), 400, "artifact"),
        ("progress", json!({"artifact": {"parts": [{"text": "x"}]}}), 400, "artifact.artifact_id"),
        (
            "progress",
            json!({"artifact": {"artifact_id": "a\n", "parts": [{"text": "x"}]}}),
            400,
            "artifact.artifact_id",
        ),
        ("progress", json!({"artifact": {"artifact_id": "a", "parts": []}}), 400, "artifact.parts"),
        ("progress", json!({"artifact": {"artifact_id": "a", "parts": [{"kind": "text"}]}}), 400, "artifact.parts"),
        ("progress", json!({"artifact": {"artifact_id": "a", "parts": [{"text": large}]}}), 413, "artifact"),
        ("progress", json!({"usage": 7}), 400, "usage"),
        ("progress", json!({"chunk": "x".repeat(64 * 1024)}), 413, "chunk"),
        ("complete", json!({}), 400, "output"),
        ("complete", json!({"output": "text"}), 400, "output"),
        ("complete", json!({"output": {"artifact_refs": 7}}), 400, "output.artifact_refs"),
        ("complete", json!({"output": {"artifact_refs": ["art_x"]}}), 400, "output.artifact_refs"),
        ("fail", json!({"output": []}), 400, "output"),
        ("release", json!({}), 400, "epoch"),
        ("permission-requests", json!({"input": {}}), 400, "tool"),
        ("permission-requests", json!({"tool": "shell"}), 400, "input"),
        ("permission-requests", json!({"tool": "", "input": {}}), 400, "tool"),
        ("permission-requests", json!({"tool": long, "input": {}}), 400, "tool"),
        ("permission-requests", json!({"tool": "a\u{1b}[1m", "input": {}}), 400, "tool"),
        ("permission-requests", json!({"tool": "a", "input": {}, "epoch": "1"}), 400, "epoch"),
        ("permission-requests", json!({"tool": "a", "input": {}, "paths": "x"}), 400, "paths"),
        ("permission-requests", json!({"tool": "a", "input": {}, "paths": [""]}), 400, "paths"),
        ("permission-requests", json!({"tool": "a", "input": {}, "paths": vec!["x"; 1001]}), 400, "paths"),
        ("permission-requests", json!({"tool": "a", "input": {}, "cwd": ""}), 400, "cwd"),
        ("permission-requests", json!({"tool": "a", "input": {}, "risk": long}), 400, "risk"),
        ("permission-requests", json!({"tool": "a", "input": {}, "request_id": "a b"}), 400, "request_id"),
        ("permission-requests", json!({"tool": "a", "input": "x".repeat(256 * 1024)}), 413, "input"),
        ("input-requests", json!({}), 400, "prompt"),
        ("input-requests", json!({"prompt": ""}), 400, "prompt"),
        ("input-requests", json!({"prompt": 7}), 400, "prompt"),
        ("input-requests", json!({"prompt": "?", "parts": {}}), 400, "parts"),
        ("input-requests", json!({"prompt": "?", "request_id": ""}), 400, "request_id"),
    ];
    for (call, body, status, field) in work {
        let reply = scene.device.client.post(&format!("/api/v1/task-runs/{run}/{call}"), body).await;
        assert_eq!(reply.refusal().0, status, "{call} {field}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&format!("`{field}`")), "{call}: {message}");
    }
}

fn slack(url: &str) -> serde_json::Value {
    json!({"service": "slack", "webhook_url": url})
}

fn push(p256dh: &str, auth: &str) -> serde_json::Value {
    json!({"service": "web_push", "endpoint": "https://push.example.org/x", "keys": {"p256dh": p256dh, "auth": auth}})
}

fn telegram(token: &str) -> serde_json::Value {
    json!({"service": "telegram", "bot_token": token, "chat_id": 1})
}

#[tokio::test]
async fn errors_name_the_wrong_registration_member() {
    let scene = ExistingPaths::set().await;
    for (body, field) in [
        (json!({}), "agent_id"),
        (json!({"agent_id": 7}), "agent_id"),
        (json!({"agent_id": "UPPER case"}), "agent_id"),
        (json!({"agent_id": "ok", "capabilities": {}}), "capabilities"),
        (json!({"agent_id": "ok", "device_info": []}), "device_info"),
        (json!({"agent_id": "ok", "url": "ftp://x"}), "url"),
        (json!({"agent_id": "ok", "url": "https://"}), "url"),
        (json!({"pairing_token": "short"}), "pairing_token"),
        (json!({"pairing_token": 7}), "pairing_token"),
    ] {
        let reply = scene.world.owner.post("/api/a2a/register", body.clone()).await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()), "{body}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&format!("`{field}`")), "{body}: {message}");
    }
}

#[tokio::test]
async fn wrong_queries_paths_and_methods_are_refused() {
    let scene = ExistingPaths::set().await;
    let owner = &scene.world.owner;
    for query in [
        "task-runs?limit=0",
        "task-runs?limit=201",
        "task-runs?limit=x",
        "task-runs?limt=1",
        "task-runs?status=lost",
        "task-runs?conversation_id=x",
        "task-runs?cursor=nonsense",
        "task-runs?min_cost_usd=much",
        "task-runs?min_cost_usd=-1",
        "task-runs?before=yesterday",
        "task-runs?waiting=perhaps",
        "task-runs?text=",
        "agent-accounts?cursor=nonsense",
        "agent-runtimes?cursor=nonsense",
        "conversations?cursor=nonsense",
        "api-keys?cursor=nonsense",
        "permission-requests?state=open",
        "permission-requests?task_run_id=x",
        "permission-requests?agent_id=A%20B",
        "permission-requests?limit=0",
        "permission-requests?cursor=nonsense",
        "permission-grants?cursor=nonsense",
        "permission-grants?state=x",
        "channels?status=idle",
        "channels?cursor=nonsense",
        "channels?limit=201",
        "deliveries?state=lost",
        "deliveries?task_run_id=x",
        "deliveries?cursor=nonsense",
        "deliveries/secret?who=me",
        "audit?after=-1",
        "audit?after=x",
    ] {
        let reply = owner.get(&format!("/api/v1/{query}")).await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()), "{query}");
    }
    for path in [
        format!("task-runs/{}/events?after=-1", scene.run),
        format!("conversations/{}/messages?cursor=x", scene.conversation),
    ] {
        let reply = owner.get(&format!("/api/v1/{path}")).await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()), "{path}");
    }
    for path in ["/api/v1/nothing", "/api/v2/task-runs", "/api/v1/task-runs/x/y/z"] {
        assert_eq!(owner.get(path).await.refusal(), (404, "no_such_path".to_owned()), "{path}");
    }
    for (method, path) in
        [(Method::PUT, "/api/v1/task-runs"), (Method::DELETE, "/healthz"), (Method::POST, "/api/v1/audit")]
    {
        let reply = owner.call(method, path, "").await;
        assert_eq!(reply.refusal(), (405, "method_not_allowed".to_owned()), "{path}");
    }
    let many: String = "x".repeat(200 * 1024);
    let reply = owner.with("x-large", &many).get("/healthz").await;
    assert_eq!(reply.status, 431);
}

#[tokio::test]
async fn a_taken_name_and_an_archived_agent_are_conflicts() {
    let scene = ExistingPaths::set().await;
    let owner = &scene.world.owner;
    let taken = owner.post("/api/v1/agent-accounts", json!({"name": "builder"})).await;
    assert_eq!(taken.refusal(), (409, "name_taken".to_owned()));
    let id = scene.device.agent.clone();
    owner.delete("/api/v1/agent-accounts/builder").await.expect(200);
    let path = format!("/api/v1/agent-accounts/{id}/pairing-codes");
    assert_eq!(owner.post(&path, json!({})).await.refusal(), (409, "agent_archived".to_owned()));
    let run = owner.post("/api/v1/task-runs", json!({"agent_id": id})).await;
    assert_eq!(run.refusal(), (409, "agent_archived".to_owned()));
    assert_eq!(owner.get("/api/v1/agent-accounts/builder").await.refusal(), (404, "not_found".to_owned()));
    scene.world.agent("builder").await;
}

/// JSON allows half of a surrogate pair, but no Unicode text can hold one: strict readers would reject every answer that
/// contains it.
#[tokio::test]
async fn lone_surrogates_are_replaced() {
    let world = World::start().await;
    world.agent("builder").await;
    let body = r#"{"agent_id":"builder","input":{"text":"a\ud800b","pair":"\ud83d\ude00"}}"#;
    let created = world.owner.call(Method::POST, "/api/v1/task-runs", body).await.expect(201);
    assert_eq!(created["input"], json!({"text": "a\u{fffd}b", "pair": "\u{1f600}"}));
    // What A2A reads bodies with.
    let read: serde_json::Value = attache_hub::surface::read_json(br#"{"parts":[{"text":"\ud800"}]}"#).unwrap();
    assert_eq!(read, json!({"parts": [{"text": "\u{fffd}"}]}));
}
