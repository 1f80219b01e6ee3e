//! A running hub with the owner key, and one-line requests for tests.

use serde_json::{Value, json};

use super::{TestProcess, TestReply, http, until};

/// `attache hub` or `attache up`.
#[derive(Debug)]
pub struct TestHub {
    pub process: TestProcess,
    /// `http://127.0.0.1:PORT`
    pub url: String,
    /// The owner key.
    pub key: String,
}

// === impl TestHub ===

impl TestHub {
    /// `127.0.0.1:PORT`, to restart it at the same address.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// A call with the owner key; `path` starts with `/`.
    #[track_caller]
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> TestReply {
        let key = format!("Bearer {}", self.key);
        http::json(method, &format!("{}{path}", self.url), &[("authorization", &key)], body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.call("GET", path, None).expect(200).json()
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> TestReply {
        self.call("POST", path, Some(body))
    }

    /// A call as a runtime, with its token.
    #[track_caller]
    pub fn worker(&self, token: &str, method: &str, path: &str, body: &Value) -> TestReply {
        http::json(method, &format!("{}{path}", self.url), &[("x-runtime-token", token)], Some(body))
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Creates an agent and returns its id.
    #[track_caller]
    pub fn add_agent(&self, name: &str) -> String {
        let reply = self.post("/api/v1/agent-accounts", &json!({ "name": name })).expect(201);
        reply.json()["agent_id"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn pairing_code(&self, agent: &str) -> String {
        let reply = self.call("POST", &format!("/api/v1/agent-accounts/{agent}/pairing-codes"), None).expect(201);
        reply.json()["pairing_code"].as_str().unwrap().to_owned()
    }

    /// Redeems a code over bare HTTP: `agent_id`, `runtime_id`, `runtime_token`, …
    #[track_caller]
    pub fn attach(&self, code: &str) -> Value {
        let url = format!("{}/api/v1/agent-runtimes/runtime/attach-via-pairing", self.url);
        let body = json!({ "pairing_token": code, "device_name": "test" });
        http::json("POST", &url, &[], Some(&body)).unwrap().expect(200).json()
    }

    /// Creates a run with a text and returns its id.
    #[track_caller]
    pub fn create_run(&self, agent: &str, text: &str) -> String {
        let reply =
            self.post("/api/v1/task-runs", &json!({ "agent_id": agent, "input": { "text": text } })).expect(201);
        reply.json()["task_run_id"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn run(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/task-runs/{id}"))
    }

    /// Waits until the run has one of these statuses.
    #[track_caller]
    pub fn run_in(&self, id: &str, states: &[&str]) -> Value {
        until(&format!("{id} to be {states:?}"), || {
            let run = self.run(id);
            states.contains(&run["status"].as_str().unwrap_or_default()).then_some(run)
        })
    }

    #[track_caller]
    pub fn ended(&self, id: &str) -> Value {
        self.run_in(id, &["completed", "failed", "cancelled"])
    }

    /// Creates a run and waits until it finishes.
    #[track_caller]
    pub fn ask(&self, agent: &str, text: &str) -> Value {
        self.ended(&self.create_run(agent, text))
    }

    /// Waits until the agent is `online` or `offline`.
    #[track_caller]
    pub fn agent_is(&self, agent: &str, status: &str) {
        until(&format!("{agent} to be {status}"), || {
            (self.get(&format!("/api/v1/agent-accounts/{agent}"))["status"] == status).then_some(())
        });
    }
}
