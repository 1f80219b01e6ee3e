//! The things that endpoints act on: an agent, its device, a run and everything around them, created when a path needs
//! it.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{HeaderMap, Method};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    channel::peer::TestPeer,
    world::{PATIENCE, TestCaller, TestDevice, World},
};

static COUNT: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Clone, Copy)]
pub struct GoldenRow {
    /// A method, or `sse`, or `ws`.
    pub method: &'static str,
    pub path: &'static str,
}

#[derive(Debug, PartialEq)]
pub struct GoldenAnswer {
    pub status: u16,
    pub headers: HeaderMap,
    /// Of a refusal or a list. Streams are omitted.
    pub body: Bytes,
}

pub struct GoldenFixture<'a> {
    world: &'a World,
    maker: TestCaller,
    number: usize,
    made: HashMap<&'static str, String>,
    device: Option<TestDevice>,
    /// The token of its run.
    token: Option<String>,
}

// === impl GoldenRow ===

impl GoldenRow {
    pub async fn ask(&self, world: &World, caller: &TestCaller, path: &str, body: Option<Value>) -> GoldenAnswer {
        let (method, caller) = match self.method {
            "ws" => {
                let caller = caller.with("connection", "Upgrade").with("upgrade", "websocket");
                let caller = caller.with("sec-websocket-version", "13");
                (Method::GET, caller.with("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="))
            }
            "sse" => (Method::GET, caller.with("accept", "text/event-stream")),
            method => (method.to_uppercase().parse().unwrap(), caller.clone()),
        };
        let caller = if body.is_some() { caller.with("content-type", "application/json") } else { caller };
        let body: Bytes = body.map(|body| body.to_string().into()).unwrap_or_default();
        let response = timeout(PATIENCE, caller.send(method, path, body)).await;
        let response = response.unwrap_or_else(|_| panic!("no answer: {} {path}", self.method));
        let (parts, body) = response.into_parts();
        let streams =
            parts.status == 101 || parts.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let body = match streams {
            true => Bytes::new(),
            false => timeout(PATIENCE, body.collect()).await.expect("a body in time").unwrap().to_bytes(),
        };
        let mut headers = parts.headers;
        headers.remove("date");
        let _ = world;
        GoldenAnswer { status: parts.status.as_u16(), headers, body }
    }
}

// === impl GoldenFixture ===

impl<'a> GoldenFixture<'a> {
    pub fn new(world: &'a World, maker: &TestCaller) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { world, maker: maker.clone(), number, made: HashMap::new(), device: None, token: None }
    }

    /// The path with all variables filled in.
    pub async fn fill(&mut self, path: &str) -> String {
        let mut filled = String::new();
        let mut rest = path;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap();
            filled.push_str(before);
            filled.push_str(&self.need(name).await);
            rest = after;
        }
        filled.push_str(rest);
        if path.ends_with("/pull") {
            filled.push_str("?wait_ms=0");
        }
        filled
    }

    /// The paired device of the fixture's agent.
    pub async fn device(&mut self) -> TestCaller {
        self.need("runtime").await;
        self.device.as_ref().unwrap().client.clone()
    }

    /// A caller with the token of the fixture's run.
    pub async fn of_the_run(&mut self) -> TestCaller {
        self.need("run").await;
        self.world.anonymous().key(self.token.as_ref().unwrap())
    }

    /// Closes things that are limited per owner.
    pub async fn end(self) {
        if let Some(tunnel) = self.made.get("tunnel") {
            self.maker.delete(&format!("/api/v1/tunnels/{tunnel}")).await;
        }
        if let Some(view) = self.made.get("name") {
            self.maker.delete(&format!("/api/v1/run-views/{view}")).await;
        }
        if let Some(target) = self.made.get("target") {
            self.maker.delete(&format!("/api/v1/notification-targets/{target}")).await;
        }
    }

    /// The body with which a request gets past validation to the rules.
    pub async fn body(&mut self, row: &GoldenRow) -> Option<Value> {
        if !matches!(row.method, "post" | "patch" | "put") {
            return None;
        }
        let (path, name) = (row.path, format!("n{}", self.number));
        Some(match path {
            "/api/v1/task-runs" => json!({"agent_id": self.need("agent").await}),
            "/api/v1/agent-accounts" | "/api/v1/users" | "/api/v1/api-keys" => json!({"name": name, "role": "viewer"}),
            "/api/a2a/register" => json!({"agent_id": name}),
            "/api/a2a/call" => json!({"task": "x", "agent_type": self.need("agent").await}),
            "/api/a2a/v1/tasks" => json!({"task": {"description": "x", "capabilities_required": ["none-has-this"]}}),
            "/api/v1/agent-runtimes/runtime/heartbeat" => json!({"agent_id": self.need("agent").await}),
            "/api/v1/agent-runtimes/runtime/attach-via-pairing" => json!({"pairing_token": "0000-0000"}),
            "/api/v1/agent-runtimes/runtime/pairing-requests/poll" => json!({"poll_token": "pp_0"}),
            // A version that doesn't exist, so nothing is changed.
            "/api/v1/permission-rules" => json!({"text": "default: own", "version": 999}),
            "/api/v1/permission-rules/check" => {
                json!({"agent": self.need("agent").await, "object": "resources/public/x"})
            }
            "/api/v1/notification-targets" => browser(self.number),
            "/api/v1/notification-targets/{target}" => json!({"choices": {"runs": true}}),
            "/api/v1/quotas" => json!({"agent": self.need("agent").await, "calls": 1000}),
            _ if path.ends_with("/input") || path.ends_with("/messages") => json!({"text": "x"}),
            _ if path.ends_with("/task-runs/{run}/permission-requests") => {
                json!({"epoch": 1, "tool": "t", "input": {}})
            }
            _ if path.ends_with("/input-requests") => json!({"epoch": 1, "prompt": "?"}),
            _ if path.ends_with("/complete") => json!({"epoch": 1, "output": {"text": "x"}}),
            _ if path.ends_with("/fail") => json!({"epoch": 1, "output": {"error": "x"}}),
            _ if path.ends_with("/worktree") => json!({"action": "apply"}),
            _ if path.ends_with("/worktree/outcome") => json!({"number": 1, "outcome": {"result": "done"}}),
            "/api/v1/run-views/{name}" => json!({"status": "failed"}),
            _ if path.ends_with("/progress") || path.ends_with("/release") => json!({"epoch": 1}),
            "/api/v1/permission-requests/{permission}/decision" => json!({"approved": true}),
            "/api/v1/tunnels/{tunnel}" => tunnel(self.world, &self.need("delegation").await),
            "/api/v1/delegations/{delegation}" => delegation(self.world),
            _ => json!({}),
        })
        .map(|body| if path == "/api/v1/agent-accounts" { json!({"name": body["name"]}) } else { body })
    }

    /// The id of the thing, created on first use.
    pub async fn need(&mut self, what: &str) -> String {
        if let Some(made) = self.made.get(what) {
            return made.clone();
        }
        let (name, made) = Box::pin(self.make(what)).await;
        self.made.insert(name, made.clone());
        made
    }

    async fn make(&mut self, what: &str) -> (&'static str, String) {
        let name = format!("n{}", self.number);
        let text = |value: &Value, member: &str| value[member].as_str().unwrap().to_owned();
        match what {
            "agent" => {
                let made = self.maker.post("/api/v1/agent-accounts", json!({"name": name})).await.expect(201);
                ("agent", text(&made, "agent_id"))
            }
            "runtime" => {
                let agent = self.need("agent").await;
                let path = format!("/api/v1/agent-accounts/{agent}/pairing-codes");
                let code = self.maker.post(&path, json!({})).await.expect(201);
                let body = json!({"pairing_token": code["pairing_code"]});
                let path = "/api/v1/agent-runtimes/runtime/attach-via-pairing";
                let attached = self.world.anonymous().post(path, body).await.expect(200);
                let token = text(&attached, "runtime_token");
                let client = self.world.anonymous().with("x-runtime-token", &token);
                let runtime = text(&attached, "runtime_id");
                self.device = Some(TestDevice { client, agent, runtime: runtime.clone(), token });
                ("runtime", runtime)
            }
            // Claimed by the fixture's device.
            "run" => {
                let agent = self.need("agent").await;
                self.need("runtime").await;
                let body = json!({"agent_id": agent, "input": {"text": "x"}});
                let run = self.maker.post("/api/v1/task-runs", body).await.expect(201);
                let claimed = self.device.as_ref().unwrap().claim().await;
                self.token = Some(text(&claimed["mcp"], "token"));
                ("run", text(&run, "task_run_id"))
            }
            "call" => {
                let body = json!({"task": "x", "agent_type": self.need("agent").await});
                ("call", text(&self.maker.post("/api/a2a/call", body).await.expect(200), "call_id"))
            }
            "permission" | "ask" => {
                let run = self.need("run").await;
                let (path, member, name) = match what {
                    "permission" => ("permission-requests", "permission_request_id", "permission"),
                    _ => ("input-requests", "input_request_id", "ask"),
                };
                let body = json!({"epoch": 1, "tool": "t", "input": {}, "prompt": "?"});
                let device = &self.device.as_ref().unwrap().client;
                let asked = device.post(&format!("/api/v1/task-runs/{run}/{path}"), body).await.expect(201);
                (name, text(&asked, member))
            }
            "grant" => {
                let path = format!("/api/v1/permission-requests/{}/decision", self.need("permission").await);
                let decided = self.maker.post(&path, json!({"approved": true, "scope": "run"})).await.expect(200);
                ("grant", text(&decided, "grant_id"))
            }
            "conversation" | "workspace" => {
                let made =
                    self.maker.post("/api/v1/conversations", json!({"metadata": {"space": "team"}})).await.expect(201);
                self.made.insert("conversation", text(&made, "conversation_id"));
                self.made.insert("workspace", text(&made, "workspace_id"));
                let name = if what == "workspace" { "workspace" } else { "conversation" };
                (name, self.made[name].clone())
            }
            "artifact" => {
                let path = format!("/api/v1/workspaces/{}/artifacts/x", self.need("workspace").await);
                let made = self.maker.call(Method::PUT, &path, "bytes").await.expect(201);
                ("artifact", text(&made, "artifact_id"))
            }
            "key" => {
                let made = self.maker.post("/api/v1/api-keys", json!({"name": name})).await.expect(201);
                ("key", text(&made["key"], "key_id"))
            }
            "session" => {
                let link = self.maker.post("/api/v1/login-links", json!({})).await.expect(201);
                let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1;
                let opened = self.world.hub.redeem_login(token, [127, 0, 0, 1].into()).await.unwrap();
                let attache_hub::PrincipalKind::Key { key, .. } = opened.principal.who else {
                    panic!("a session is a person's")
                };
                ("session", key.to_string())
            }
            "user" => {
                let admin =
                    if self.maker.get("/api/v1/audit").await.status == 200 { &self.maker } else { &self.world.owner };
                let made = admin.post("/api/v1/users", json!({"name": name, "role": "viewer"})).await.expect(201);
                ("user", text(&made, "user_id"))
            }
            "code" => {
                let path = "/api/v1/agent-runtimes/runtime/pairing-requests";
                ("code", text(&self.world.anonymous().post(path, json!({})).await.expect(201), "pairing_code"))
            }
            // Its peer is gone, but the channel stays.
            "channel" => {
                let body = json!({"agent_id": format!("{name}-peer")});
                let registered = self.maker.post("/api/a2a/register", body).await.expect(200);
                let mut peer = TestPeer::connect(self.world, "/api/envelope/ws", registered["api_key"].as_str()).await;
                ("channel", text(&peer.register(json!({})).await, "channel_id"))
            }
            // No one listens there, so it stays pending.
            "delivery" => {
                let body = json!({"agent_id": self.need("agent").await, "callback_url": "http://127.0.0.1:9999/"});
                let run = self.maker.post("/api/v1/task-runs", body).await.expect(201);
                let run = text(&run, "task_run_id");
                self.maker.post(&format!("/api/v1/task-runs/{run}/cancel"), json!({})).await.expect(200);
                let told = self.maker.get(&format!("/api/v1/deliveries?task_run_id={run}")).await.expect(200);
                ("delivery", text(&told["deliveries"][0], "delivery_id"))
            }
            "target" => {
                let made = self.maker.post("/api/v1/notification-targets", browser(self.number)).await.expect(201);
                ("target", text(&made, "notification_target_id"))
            }
            "delegation" => {
                let id = format!("dlg_{:032x}", self.number);
                self.maker.put(&format!("/api/v1/delegations/{id}"), delegation(self.world)).await.expect(200);
                ("delegation", id)
            }
            "tunnel" => {
                let id = format!("tun_{:032x}", self.number);
                let terms = tunnel(self.world, &Box::pin(self.need("delegation")).await);
                self.maker.put(&format!("/api/v1/tunnels/{id}"), terms).await.expect(200);
                ("tunnel", id)
            }
            // Of a file, and of a view.
            "name" => {
                self.maker.put("/api/v1/run-views/file", json!({"status": "failed"})).await.expect(200);
                ("name", "file".to_owned())
            }
            other => ("other", missing(other)),
        }
    }
}

/// A request for a tunnel that outlives the tests.
fn tunnel(world: &World, delegation: &str) -> Value {
    let expires_at = world.env.now().plus(Duration::from_secs(10 * 24 * 60 * 60));
    json!({"delegation_id": delegation, "token_sha256": "0".repeat(64), "expires_at": expires_at})
}

/// A browser that nobody sends to.
fn browser(number: usize) -> Value {
    let keys = json!({"p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "auth": "BTBZMqHH6r4Tts7J_aSIgg"});
    let address = json!({"service": "web_push", "endpoint": format!("http://127.0.0.1:9999/{number}"), "keys": keys});
    json!({"name": "phone", "address": address, "choices": {"approvals": false}})
}

fn delegation(world: &World) -> Value {
    json!({"status": "running", "description": "x", "peer_url": "https://a.example/a2a/b", "folder": "src",
        "device_name": "laptop", "access_mode": "rw", "created_at": world.env.now()})
}

/// An id of this kind that nothing has.
pub fn missing(what: &str) -> String {
    let prefix = match what {
        "agent" => "agt_",
        "runtime" => "rtm_",
        "run" => "run_",
        "permission" => "prm_",
        "ask" => "ask_",
        "grant" => "gnt_",
        "conversation" => "cnv_",
        "workspace" => "wsp_",
        "artifact" => "art_",
        "channel" => "chn_",
        "delivery" => "dlv_",
        "target" => "ntf_",
        "key" | "session" => "key_",
        "user" => "usr_",
        "tunnel" => "tun_",
        "delegation" => "dlg_",
        "call" => return "a2a-00000000-0000-7000-8000-000000000001".to_owned(),
        _ => return "nothing".to_owned(),
    };
    format!("{prefix}00000000000070008000000000000001")
}
