//! The hub's `/mcp` endpoint: tools with the permissions of the caller's key.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, http};

const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

/// The response to one request, however it is wrapped.
#[track_caller]
fn ask(hub: &TestHub, key: Option<&str>, headers: &[(&str, &str)], method: &str, params: Value) -> (u16, Value) {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let mut all = vec![ACCEPT];
    all.extend(headers);
    if let Some(bearer) = &bearer {
        all.push(("authorization", bearer));
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let reply = http::json("POST", &format!("{}/mcp", hub.url), &all, Some(&body)).unwrap();
    let (status, text) = (reply.status, reply.text());
    let data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    let message = serde_json::from_str(&text).ok().or_else(|| {
        data.filter_map(|data| serde_json::from_str::<Value>(data).ok()).find(|message| message.get("id").is_some())
    });
    (status, message.unwrap_or(Value::Null))
}

pub fn call(hub: &TestHub, key: &str, tool: &str, arguments: Value) -> Value {
    let (status, mut answer) = ask(hub, Some(key), &[], "tools/call", json!({ "name": tool, "arguments": arguments }));
    assert_eq!(status, 200, "{answer}");
    answer["result"].take()
}

#[test]
fn a_key_can_call_the_agents_it_has_access_to() {
    let home = TestHome::new();
    let hub = home.up(&[]);
    let (status, answer) = ask(&hub, None, &[], "tools/list", json!({}));
    assert_eq!((status, &answer["error"]["code"]), (401, &json!("unauthenticated")));
    let (status, _) = ask(&hub, Some("ak_wrong"), &[], "tools/list", json!({}));
    assert_eq!(status, 401);
    let (status, _) = ask(&hub, Some(&hub.key), &[("origin", "http://evil.example")], "tools/list", json!({}));
    assert_eq!(status, 403);

    let (_, tools) = ask(&hub, Some(&hub.key), &[], "tools/list", json!({}));
    let names: Vec<_> = tools["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["remote_agent", "remote_cancel", "list_agents"]);
    let listed = call(&hub, &hub.key, "list_agents", json!({}));
    assert_eq!(listed["structuredContent"]["agents"][0]["name"], "local", "{listed}");
    let url = listed["structuredContent"]["agents"][0]["agent_url"].clone();
    let answer = call(&hub, &hub.key, "remote_agent", json!({ "task": "echo $((6 * 7))", "agent_url": url }));
    assert_eq!(answer["structuredContent"]["output"].as_str().map(str::trim), Some("42"), "{answer}");
    let elsewhere = json!({ "task": "t", "agent_url": "https://agents.example.org/x" });
    let refused = call(&hub, &hub.key, "remote_agent", elsewhere);
    assert_eq!(refused["structuredContent"]["metadata"]["code"], "not_found", "{refused}");

    // A viewer can list agents but not call them.
    let key = hub.post("/api/v1/api-keys", &json!({ "name": "looks", "role": "viewer" })).expect(201).json();
    let key = key["api_key"].as_str().unwrap_or_else(|| panic!("{key}")).to_owned();
    let refused = call(&hub, &key, "remote_agent", json!({ "task": "echo no", "agent_url": "local" }));
    assert_eq!(refused["structuredContent"]["metadata"]["code"], "forbidden", "{refused}");
}

#[test]
fn the_2026_protocol_version_works_at_the_hub_too() {
    let home = TestHome::new();
    let hub = home.up(&[]);
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "list_agents")];
    let params = json!({ "name": "list_agents", "arguments": {}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    let (status, answer) = ask(&hub, Some(&hub.key), &headers, "tools/call", params);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["result"]["structuredContent"]["agents"][0]["name"], "local", "{answer}");
}

/// Runs something that waits for a person, who answers as soon as they are asked.
fn decided<T>(hub: &TestHub, approved: bool, waits: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let asked = loop {
                let listed = hub.get("/api/v1/permission-requests?state=pending");
                match listed["permission_requests"].as_array().and_then(|all| all.first().cloned()) {
                    Some(asked) => break asked,
                    None => std::thread::sleep(std::time::Duration::from_millis(50)),
                }
            };
            assert_eq!(asked["tool"], "remote_agent/local", "{asked}");
            let id = asked["permission_request_id"].as_str().unwrap();
            hub.post(&format!("/api/v1/permission-requests/{id}/decision"), &json!({ "approved": approved }))
                .expect(200);
        });
        waits()
    })
}

/// A device claims a run, and its agent calls another agent with the run's token.
#[test]
fn a_run_calls_other_agents_with_its_own_token() {
    let home = TestHome::new();
    let hub = home.up(&[]);
    hub.post("/api/v1/agent-accounts", &json!({ "name": "planner" })).expect(201);
    let code = hub.post("/api/v1/agent-accounts/planner/pairing-codes", &json!({})).expect(201).json();
    let attach = json!({ "pairing_token": code["pairing_code"] });
    let attached = hub.post("/api/v1/agent-runtimes/runtime/attach-via-pairing", &attach).expect(200).json();
    let runtime = attached["runtime_token"].as_str().unwrap();
    let device = |path: &str, body: &Value| {
        http::json("POST", &format!("{}{path}", hub.url), &[("x-runtime-token", runtime)], Some(body)).unwrap()
    };
    hub.post("/api/v1/task-runs", &json!({ "agent_id": "planner", "input": { "text": "plan" } })).expect(201);
    let claim = device("/api/v1/agent-accounts/planner/task-runs/pull?wait_ms=0", &json!({})).json()["task_run"].take();
    assert_eq!(claim["mcp"]["url"], format!("{}/mcp", hub.url), "{claim}");
    let token = claim["mcp"]["token"].as_str().unwrap();

    let listed = call(&hub, token, "list_agents", json!({}));
    let names: Vec<_> = listed["structuredContent"]["agents"].as_array().unwrap().iter().map(|a| &a["name"]).collect();
    assert!(names.contains(&&json!("local")), "{listed}");
    let local = listed["structuredContent"]["agents"].as_array().unwrap().iter().find(|one| one["name"] == "local");
    assert_eq!(local.map(|local| &local["asks_before_risky_steps"]), Some(&json!(false)), "{listed}");

    // The shell never asks for approval, so a person must approve the call first; nothing runs without it.
    let answer = decided(&hub, false, || {
        call(&hub, token, "remote_agent", json!({ "task": "head $A2A_HOME/hub/admin.key", "agent_url": "local" }))
    });
    assert_eq!(answer["structuredContent"]["metadata"]["code"], "approval_denied", "{answer}");
    let path = format!("/api/v1/task-runs?parent_task_run_id={}", claim["task_run_id"].as_str().unwrap());
    assert_eq!(hub.get(&path)["task_runs"], json!([]), "nothing was passed on");
    let answer = decided(&hub, true, || {
        call(&hub, token, "remote_agent", json!({ "task": "echo $((6 * 7))", "agent_url": "local" }))
    });
    assert_eq!(answer["structuredContent"]["output"].as_str().map(str::trim), Some("42"), "{answer}");
    let path = format!("/api/v1/task-runs?parent_task_run_id={}", claim["task_run_id"].as_str().unwrap());
    let below = hub.get(&path);
    assert_eq!(below["task_runs"][0]["agent_name"], "local", "{below}");
    assert_eq!(below["task_runs"][0]["caller"], format!("run:{}", claim["task_run_id"].as_str().unwrap()));

    let circle = call(&hub, token, "remote_agent", json!({ "task": "plan", "agent_url": "planner" }));
    assert_eq!(circle["structuredContent"]["metadata"]["code"], "loop_refused", "{circle}");
    let path = format!("/api/v1/task-runs/{}/complete", claim["task_run_id"].as_str().unwrap());
    device(&path, &json!({ "epoch": 1, "output": { "text": "done" } })).expect(200);
    let (status, answer) = ask(&hub, Some(token), &[], "tools/list", json!({}));
    assert_eq!((status, &answer["error"]["code"]), (401, &json!("unauthenticated")));
}

/// A frame of HTTP/2.
fn h2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Results are server-sent events, but count like every other response until they are read.
#[test]
fn unread_results_are_limited_per_caller() {
    const REQUESTS: usize = 70;
    const INDEXED_200: u8 = 0x88;
    let home = TestHome::new();
    let hub = home.up(&[]);
    hub.post("/api/v1/users", &json!({ "name": "vic", "role": "viewer" })).expect(201);
    let key = json!({ "name": "looks", "user": "vic", "role": "viewer" });
    let key = hub.post("/api/v1/api-keys", &key).expect(201).json();
    let bearer = format!("Bearer {}", key["api_key"].as_str().unwrap());
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "list_agents" } });
    let body = body.to_string();
    let length = body.len().to_string();
    let mut head = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", hub.address()),
        (":path", "/mcp"),
        ("authorization", &bearer),
        ("content-type", "application/json"),
        ACCEPT,
        ("content-length", &length),
    ] {
        // A literal that is not indexed. Every length here fits into seven bits.
        head.push(0);
        for text in [name, value] {
            head.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap());
            head.extend_from_slice(text.as_bytes());
        }
    }
    let mut stream = TcpStream::connect(hub.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(25))).unwrap();
    // No stream has a window: the client accepts nothing.
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(h2_frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    for number in 0..u32::try_from(REQUESTS).unwrap() {
        bytes.extend(h2_frame(1, 4, 2 * number + 1, &head));
        bytes.extend(h2_frame(0, 1, 2 * number + 1, body.as_bytes()));
    }
    stream.write_all(&bytes).unwrap();
    let mut statuses = Vec::new();
    while statuses.len() < REQUESTS {
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).unwrap();
        let mut payload = vec![0; usize::from(frame[1]) << 8 | usize::from(frame[2])];
        stream.read_exact(&mut payload).unwrap();
        // A dynamic table update may come first.
        if frame[3] == 1 {
            statuses.push(payload.iter().find(|byte| **byte & 0xe0 != 0x20) == Some(&INDEXED_200));
        }
    }
    assert_eq!(statuses.iter().filter(|ok| **ok).count(), 64);
    hub.get("/api/v1/agent-accounts");
}
