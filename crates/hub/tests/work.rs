//! A device in the middle of a run, with the calls it and its people make.

use std::time::Duration;

use attache_hub::Options;
use serde_json::{Value, json};

use crate::world::{Engine, HttpReply, TestCaller, TestDevice, World};

/// The agent `builder` has one run, which its device has claimed.
pub struct ClaimedRunFixture {
    pub world: World,
    pub device: TestDevice,
    pub run: String,
}

// === impl ClaimedRunFixture ===

impl ClaimedRunFixture {
    pub async fn begin(engine: Engine) -> Self {
        Self::tuned(engine, |_| {}).await
    }

    /// With a very long lease, for tests that skip days.
    pub async fn patient(engine: Engine) -> Self {
        Self::tuned(engine, |options| options.heartbeat_timeout = Duration::from_secs(10_000 * 24 * 60 * 60)).await
    }

    pub async fn tuned(engine: Engine, tune: impl FnOnce(&mut Options)) -> Self {
        Self::within(World::timed(engine, tune).await).await
    }

    pub async fn within(world: World) -> Self {
        world.agent("builder").await;
        let device = world.device("builder").await;
        let run = world.run("builder").await["task_run_id"].as_str().unwrap().to_owned();
        assert_eq!(device.claim().await["task_run_id"], run.as_str());
        let work = Self { world, device, run };
        work.beat().await;
        work
    }

    /// Claims another run of the same agent.
    pub async fn next_run(&mut self, body: Value) {
        let mut body = body;
        body["agent_id"] = json!("builder");
        let created = self.world.owner.post("/api/v1/task-runs", body).await.expect(201);
        self.run = created["task_run_id"].as_str().unwrap().to_owned();
        assert_eq!(self.device.claim().await["task_run_id"], self.run.as_str());
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/task-runs/{}{rest}", self.run)
    }

    pub async fn beat(&self) {
        let body = json!({"running": [self.run]});
        self.device.client.post("/api/v1/agent-runtimes/runtime/heartbeat", body).await.expect(200);
    }

    pub async fn read(&self) -> Value {
        self.world.owner.get(&self.path("")).await.expect(200)
    }

    /// Status, what it waits for, and the device's state.
    pub async fn state(&self) -> (String, Value, Value) {
        let read = self.read().await;
        (read["status"].as_str().unwrap().to_owned(), read["waiting"].clone(), read["recovery"].clone())
    }

    pub async fn complete(&self) -> HttpReply {
        self.device.client.post(&self.path("/complete"), json!({"output": {"text": "done"}})).await
    }

    /// The types of the run's events so far.
    pub async fn events(&self) -> Vec<String> {
        let page = self.world.owner.get(&self.path("/events?limit=200")).await.expect(200);
        page["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    /// Asks for permission and returns the worker's answer.
    pub async fn ask(&self, tool: &str, input: Value) -> Value {
        let body = json!({"epoch": 1, "tool": tool, "input": input, "cwd": "/src"});
        self.device.client.post(&self.path("/permission-requests"), body).await.expect(201)
    }

    /// Asks and returns the id of the request.
    pub async fn pending(&self, tool: &str, input: Value) -> String {
        let asked = self.ask(tool, input).await;
        assert_eq!((&asked["state"], &asked["approved"]), (&json!("pending"), &Value::Null));
        id(&asked)
    }

    pub async fn answer(&self, permission: &str, wait_ms: u64) -> Value {
        let path = self.path(&format!("/permission-requests/{permission}?wait_ms={wait_ms}"));
        self.device.client.get(&path).await.expect(200)
    }

    pub async fn decide(&self, permission: &str, body: Value) -> HttpReply {
        decide(&self.world.owner, permission, body).await
    }

    pub async fn permission(&self, permission: &str) -> Value {
        self.world.owner.get(&format!("/api/v1/permission-requests/{permission}")).await.expect(200)
    }

    /// Waits until a sweep has put the run or the request into this state.
    pub async fn until(&self, permission: &str, state: &str) {
        for _ in 0..500 {
            if self.permission(permission).await["state"] == state {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{permission} never became {state}: {}", self.permission(permission).await);
    }

    /// Waits until a sweep has noticed that the device is silent or back.
    pub async fn until_agent_is(&self, status: &str) {
        for _ in 0..500 {
            if self.world.owner.get("/api/v1/agent-accounts/builder").await.expect(200)["status"] == status {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the agent never became {status}");
    }
}

pub async fn decide(by: &TestCaller, permission: &str, body: Value) -> HttpReply {
    by.post(&format!("/api/v1/permission-requests/{permission}/decision"), body).await
}

pub fn id(asked: &Value) -> String {
    asked["permission_request_id"].as_str().unwrap().to_owned()
}
