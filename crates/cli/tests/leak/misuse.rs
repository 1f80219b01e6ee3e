//! Mistakes with real secrets: in paths, queries, bodies and headers where they don't belong.

use serde_json::{Value, json};

use super::search::{PlantedSecret, SecretKind};
use crate::harness::{TestHub, TestReply, http};

/// Where the mistakes are made.
pub struct MisuseContext<'a> {
    pub hub: &'a TestHub,
    pub runtime_token: &'a str,
    pub run: &'a str,
}

// === impl MisuseContext ===

impl MisuseContext<'_> {
    /// Every response must be a refusal; otherwise it wasn't a mistake.
    pub fn at_the_hub(&self, secret: &PlantedSecret) -> Vec<(String, TestReply)> {
        let text = &secret.text;
        let mut answers = Vec::new();
        let mut keep = |place: &str, reply: TestReply| {
            assert!((300..500).contains(&reply.status), "{place}: {} {}", reply.status, reply.text());
            answers.push((place.to_owned(), reply));
        };
        let key = format!("Bearer {}", self.hub.key);
        let owner = ("authorization", key.as_str());
        let url = |path: &str| format!("{}{path}", self.hub.url);
        let send = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
            http::send(method, &url(path), headers, body.as_bytes()).unwrap()
        };

        let paths = [
            "/api/v1/task-runs/{}",
            "/api/v1/task-runs/{}/events",
            "/api/v1/agent-accounts/{}",
            "/api/v1/artifacts/{}",
            "/api/v1/conversations/{}",
            "/api/v1/agent-runtimes/{}",
            "/api/v1/workspaces/{}/artifacts",
            "/api/v1/{}",
            "/{}",
            "/runs/{}",
            "/agents/{}",
            "/artifacts/{}",
            "/assets/{}/base.css",
            "/api/v1/task-runs?limit={}",
            "/api/v1/task-runs?cursor={}",
            "/api/v1/task-runs?status={}",
            "/api/v1/task-runs?agent_id={}",
            "/api/v1/task-runs?{}=1",
            "/api/v1/audit?after={}",
            "/api/v1/agent-runtimes?limit={}",
            "/a2a/{}/tasks",
            "/a2a/{}/.well-known/agent-card.json",
            "/a2a/alpha/tasks/{}",
            "/a2a/alpha/v1/tasks/{}",
            "/a2a/alpha/tasks/{}/pushNotificationConfigs",
            "/a2a/alpha/tasks?pageToken={}",
            "/a2a/alpha/tasks?status={}",
        ];
        for path in paths {
            let version = ("a2a-version", if path.contains("/v1/tasks") { "0.3" } else { "1.0" });
            keep(&format!("GET {path}"), send("GET", &path.replace("{}", text), &[owner, version], ""));
        }
        for path in ["/api/v1/api-keys/{}", "/api/v1/agent-runtimes/{}", "/api/v1/agent-accounts/{}"] {
            keep(&format!("DELETE {path}"), send("DELETE", &path.replace("{}", text), &[owner], ""));
        }
        if secret.kind != SecretKind::PairingCode {
            keep("GET /pair", send("GET", &format!("/pair?code={text}"), &[], ""));
            keep(
                "GET /api/v1/pairing-requests/{}",
                send("GET", &format!("/api/v1/pairing-requests/{text}"), &[owner], ""),
            );
        }

        let bodies: [(&str, Value); 9] = [
            ("agent_id", json!({ "agent_id": text })),
            ("conversation_id", json!({ "agent_id": "alpha", "conversation_id": text })),
            ("parent_task_run_id", json!({ "agent_id": "alpha", "parent_task_run_id": text })),
            ("timeout_ms", json!({ "agent_id": "alpha", "timeout_ms": text })),
            ("priority", json!({ "agent_id": "alpha", "priority": [text] })),
            ("a member's name", json!({ "agent_id": "alpha", text: 1 })),
            ("task_type", json!({ "agent_id": "alpha", "task_type": { text: text } })),
            ("allowed_tools", json!({ "agent_id": "alpha", "allowed_tools": text })),
            ("an object", json!([text])),
        ];
        for (place, body) in bodies {
            keep(
                &format!("{place} of a run"),
                http::json("POST", &url("/api/v1/task-runs"), &[owner], Some(&body)).unwrap(),
            );
        }
        keep("a broken body", send("POST", "/api/v1/task-runs", &[owner], &format!("{{\"agent_id\": {text}")));
        let body = json!({ "name": "x", "role": text });
        keep("role of a key", http::json("POST", &url("/api/v1/api-keys"), &[owner], Some(&body)).unwrap());
        let body = json!({ "name": "x", "expires_at": text });
        keep("expires_at of a key", http::json("POST", &url("/api/v1/api-keys"), &[owner], Some(&body)).unwrap());
        let body = json!({ "name": format!("{text} {text}") });
        keep("name of an agent", http::json("POST", &url("/api/v1/agent-accounts"), &[owner], Some(&body)).unwrap());

        let message = |role: &str, task: &str| json!({ "messageId": "m", "role": role, "taskId": task, "parts": [{ "text": "x" }] });
        for body in [
            json!({ "message": message(text, "") }),
            json!({ "message": message("ROLE_USER", text) }),
            json!({ "message": { text: text } }),
            json!({ "message": message("ROLE_USER", ""), "configuration": { "historyLength": text } }),
            json!({ "message": message("ROLE_USER", ""),
                "configuration": { "taskPushNotificationConfig": { "url": text, "token": text } } }),
        ] {
            let headers = [owner, ("a2a-version", "1.0")];
            let url = url("/a2a/alpha/message:send");
            keep("an A2A message", http::json("POST", &url, &headers, Some(&body)).unwrap());
        }
        keep("a2a-version", send("GET", "/a2a/alpha/tasks", &[owner, ("a2a-version", text)], ""));

        let device = ("x-runtime-token", self.runtime_token);
        let beat = url("/api/v1/agent-runtimes/runtime/heartbeat");
        for body in [json!({ "agent_id": text }), json!({ "running": [text] }), json!({ "running": text })] {
            keep("a heartbeat", http::json("POST", &beat, &[device], Some(&body)).unwrap());
        }
        let complete = url(&format!("/api/v1/task-runs/{}/complete", self.run));
        for body in [json!({ "epoch": text, "output": {} }), json!({ "epoch": 99, "output": { "text": text } })] {
            keep("a report", http::json("POST", &complete, &[device], Some(&body)).unwrap());
        }
        let attach = url("/api/v1/agent-runtimes/runtime/attach-via-pairing");
        if secret.kind != SecretKind::PairingCode {
            keep("pairing_token", http::json("POST", &attach, &[], Some(&json!({ "pairing_token": text }))).unwrap());
        }
        keep("pairing_token", http::json("POST", &attach, &[], Some(&json!({ "pairing_token": [text] }))).unwrap());
        let poll = url("/api/v1/agent-runtimes/runtime/pairing-requests/poll");
        keep("poll_token", http::json("POST", &poll, &[], Some(&json!({ "poll_token": { "x": text } }))).unwrap());
        if secret.kind != SecretKind::PollToken {
            keep("poll_token", http::json("POST", &poll, &[], Some(&json!({ "poll_token": text }))).unwrap());
        }

        let bearer = format!("Bearer {text}");
        for (name, value) in
            [("authorization", text), ("authorization", &format!("Basic {text}")), ("x-runtime-token", text)]
        {
            keep(name, send("GET", "/api/v1/audit", &[(name, value)], ""));
        }
        if secret.kind != SecretKind::ApiKey {
            keep("authorization", send("GET", "/api/v1/audit", &[("authorization", &bearer)], ""));
        }
        keep("host", send("GET", "/api/v1/audit", &[owner, ("host", text)], ""));
        keep("origin", send("GET", "/healthz", &[("origin", &format!("http://{text}"))], ""));
        keep("content-type", send("POST", "/api/v1/task-runs", &[owner, ("content-type", text)], "{}"));
        keep("range", send("GET", &format!("/api/v1/artifacts/{text}"), &[owner, ("range", text)], ""));
        keep("cookie", send("GET", "/runs/new", &[("cookie", &format!("attache_session=x{text}"))], ""));
        keep("a form without a session", send("POST", "/runs", &[], &format!("csrf={text}&text={text}")));
        keep(
            "a login",
            send("POST", "/login", &[("content-type", "application/x-www-form-urlencoded")], &format!("token=x{text}")),
        );
        answers
    }
}

/// The same for an adapter, with its own secret where callers need it.
pub fn at_the_adapter(endpoint: &str, own: &str, secret: &PlantedSecret) -> Vec<(String, TestReply)> {
    let text = &secret.text;
    let mut answers = Vec::new();
    let mut keep = |place: &str, reply: TestReply| {
        assert!((400..500).contains(&reply.status), "{place}: {} {}", reply.status, reply.text());
        answers.push((place.to_owned(), reply));
    };
    let bearer = format!("Bearer {own}");
    let right = ("authorization", bearer.as_str());
    let run_task = format!("{endpoint}/run-task");
    keep("path", http::send("GET", &format!("{endpoint}/{text}"), &[right], b"").unwrap());
    keep("cancel", http::send("POST", &format!("{run_task}/{text}/cancel"), &[right], b"").unwrap());
    keep("host", http::send("GET", &format!("{endpoint}/health"), &[("host", text)], b"").unwrap());
    keep("origin", http::send("GET", &format!("{endpoint}/health"), &[("origin", text)], b"").unwrap());
    keep(
        "basic",
        http::send("GET", &format!("{endpoint}/health"), &[("authorization", &format!("Basic {text}"))], b"").unwrap(),
    );
    if text != own {
        keep(
            "bearer",
            http::json("POST", &run_task, &[("authorization", &format!("Bearer {text}"))], Some(&json!({}))).unwrap(),
        );
    }
    for body in [
        json!({ "task_run_id": text }),
        json!({ "deadline": text }),
        json!({ "task_run_id": { text: text } }),
        json!([text]),
    ] {
        keep("task", http::json("POST", &run_task, &[right], Some(&body)).unwrap());
    }
    keep(
        "broken task",
        http::send(
            "POST",
            &run_task,
            &[right, ("content-type", "application/json")],
            format!("{{\"a\": {text}").as_bytes(),
        )
        .unwrap(),
    );
    answers
}
