//! A claim whose response was never read: the run ends or is claimed again, and never stays running past lease and
//! sweep.

use std::{
    io::Read as _,
    time::{Duration, Instant},
};

use attache_protocol::Timestamp;
use serde_json::{Value, json};

use super::{
    caller::StormCaller,
    journal::is_ended,
    world::{LEASE, SWEEP, folder, start_hub},
};
use crate::harness::{TestHome, TestHub, process, until};

/// A hub with one agent, whose device is simulated over bare HTTP.
struct LostReplyFixture {
    hub: TestHub,
    agent: String,
    token: String,
    /// Dropped last.
    _home: TestHome,
}

const FREE_PORT: &str = "127.0.0.1:0";
/// Extra time for one sweep on a busy machine.
const SLACK: Duration = Duration::from_secs(15);

// === impl LostReplyFixture ===

impl LostReplyFixture {
    fn start(lease: Duration) -> Self {
        let home = TestHome::within(&folder(), "attache-lost-reply");
        let hub = start_hub(&home, FREE_PORT, lease);
        let agent = hub.add_agent("ghost");
        let attached = hub.attach(&hub.pairing_code("ghost"));
        let token = attached["runtime_token"].as_str().unwrap().to_owned();
        Self { hub, agent, token, _home: home }
    }

    fn device(&self) -> StormCaller {
        StormCaller::runtime(&self.hub.url, &self.token)
    }

    fn create(&self, max_attempts: i64) -> String {
        let body = json!({ "agent_id": self.agent, "input": { "text": "x" }, "max_attempts": max_attempts });
        let reply = self.hub.post("/api/v1/task-runs", &body).expect(201);
        reply.json()["task_run_id"].as_str().unwrap().to_owned()
    }

    fn pull(&self, wait_ms: u64) -> String {
        format!("/api/v1/agent-accounts/{}/task-runs/pull?wait_ms={wait_ms}", self.agent)
    }

    /// The heartbeat of a freshly started runtime without runs; returns the hub's time.
    fn beat(&self) -> Timestamp {
        let body = json!({ "agent_id": self.agent, "running": [] });
        let reply = self.hub.worker(&self.token, "POST", "/api/v1/agent-runtimes/runtime/heartbeat", &body).expect(200);
        reply.json()["server_time"].as_str().unwrap().parse().unwrap()
    }

    /// Sends heartbeats as a restarted runtime until the run is no longer running, which must be in time.
    fn settle(&self, run: &str) -> Value {
        until("the claim to be settled", || {
            let now = self.beat();
            let seen = self.hub.run(run);
            if seen["status"] != "running" {
                return Some(seen);
            }
            let lease: Timestamp = seen["lease_expires_at"].as_str().unwrap().parse().unwrap();
            assert!(now.since(lease) <= SWEEP + SLACK, "at {now} still running: {seen}");
            None
        })
    }

    /// Works as a restarted runtime until the run finishes: completed by this one, or lost with an earlier claim.
    fn finish(&self, run: &str) -> Value {
        let device = self.device();
        until("the run to end", || {
            let settled = self.settle(run);
            if is_ended(&settled) {
                return Some(settled);
            }
            let claimed = device.call("POST", &self.pull(0), None).unwrap().expect(200).json();
            if let Some(epoch) = claimed["task_run"]["epoch"].as_i64() {
                assert_eq!(claimed["task_run"]["task_run_id"], run);
                let done = json!({ "epoch": epoch, "output": { "text": "done" } });
                self.hub.worker(&self.token, "POST", &format!("/api/v1/task-runs/{run}/complete"), &done).expect(200);
            }
            None
        })
    }

    /// Claims the run on a connection whose response is never read.
    fn claim_unread(&self, run: &str) -> std::net::TcpStream {
        let unread = self.device().send("POST", &self.pull(20_000)).unwrap();
        // A short lease may expire before the test can check.
        self.hub.run_in(run, &["running", "failed"]);
        // A connection that closes before the hub has written is noticed, and the claim handed back.
        unread.peek(&mut [0]).unwrap();
        unread
    }
}

/// How a run ended, in a comparable form.
fn summary(run: &Value) -> (&str, Option<i64>, Option<i64>, Option<&str>) {
    let code = run["task_result"]["code"].as_str();
    (run["status"].as_str().unwrap_or_default(), run["attempt"].as_i64(), run["epoch"].as_i64(), code)
}

#[test]
fn a_connection_closed_before_the_response_leaves_no_orphan() {
    let scene = LostReplyFixture::start(LEASE);
    for round in 0..20 {
        let max_attempts = 1 + round % 2;
        let waiting = scene.device().send("POST", &scene.pull(20_000)).unwrap();
        let run = if round % 4 < 2 {
            drop(waiting);
            scene.create(max_attempts)
        } else {
            let run = scene.create(max_attempts);
            drop(waiting);
            run
        };
        let ended = scene.finish(&run);
        // Either the hub noticed in time, or it wrote to a closed connection and the claim was lost.
        let completed = ended["status"] == "completed";
        let lost = max_attempts == 1 && ended["task_result"]["code"] == "runtime_lost";
        assert!(completed || lost, "round {round}: {ended}");
    }
}

#[test]
fn an_unread_claim_is_lost_after_its_grace_period() {
    let scene = LostReplyFixture::start(Duration::from_secs(60));
    let run = scene.create(1);
    drop(scene.claim_unread(&run));
    // The lease is long: only a heartbeat that doesn't name the run can end it so soon.
    assert_eq!(summary(&scene.settle(&run)), ("failed", Some(1), Some(1), Some("runtime_lost")));

    let run = scene.create(2);
    drop(scene.claim_unread(&run));
    assert_eq!(summary(&scene.settle(&run)), ("pending", Some(1), Some(1), None));
    assert_eq!(summary(&scene.finish(&run)), ("completed", Some(2), Some(2), None));
}

/// A late report of a worker that lost its claim changes nothing, whoever holds the run by then.
#[test]
fn a_report_of_a_lost_claim_is_refused() {
    let scene = LostReplyFixture::start(Duration::from_secs(60));
    let run = scene.create(2);
    drop(scene.claim_unread(&run));
    assert_eq!(summary(&scene.settle(&run)), ("pending", Some(1), Some(1), None));
    let late = json!({ "epoch": 1, "output": { "text": "late" } });
    let path = format!("/api/v1/task-runs/{run}/complete");
    let report = || scene.hub.worker(&scene.token, "POST", &path, &late).expect(409);
    let refused = report();
    assert_eq!(refused.error_code(), "stale_epoch");
    assert_eq!(refused.json()["task_run"], scene.hub.run(&run));

    let _unread = scene.claim_unread(&run);
    let refused = report();
    assert_eq!(refused.error_code(), "stale_epoch");
    assert_eq!(summary(&refused.json()["task_run"]), ("running", Some(2), Some(2), None));
    let done = json!({ "epoch": 2, "output": { "text": "done" } });
    scene.hub.worker(&scene.token, "POST", &path, &done).expect(200);
    report();
    let ended = scene.hub.run(&run);
    assert_eq!(summary(&ended), ("completed", Some(2), Some(2), None));
    assert_eq!(ended["task_result"], done["output"]);
}

#[test]
fn an_unread_claim_can_be_released() {
    let scene = LostReplyFixture::start(Duration::from_secs(60));
    let run = scene.create(1);
    drop(scene.claim_unread(&run));
    let path = format!("/api/v1/task-runs?status=running&agent_id={}", scene.agent);
    let list = scene.device().get(&path).expect("a runtime may see its claims");
    assert_eq!(list["task_runs"][0]["task_run_id"], run.as_str());
    let epoch = json!({ "epoch": list["task_runs"][0]["epoch"] });
    scene.hub.worker(&scene.token, "POST", &format!("/api/v1/task-runs/{run}/release"), &epoch).expect(200);
    assert_eq!(scene.hub.run(&run)["attempt"], 0);
    assert_eq!(summary(&scene.finish(&run)), ("completed", Some(1), Some(2), None));
}

#[test]
fn a_runtime_that_never_returns_loses_its_claim_with_the_lease() {
    let scene = LostReplyFixture::start(Duration::from_secs(1));
    let run = scene.create(1);
    let mut unread = scene.claim_unread(&run);
    let claimed = Instant::now();
    let ended = scene.hub.ended(&run);
    assert_eq!(ended["task_result"]["code"], "runtime_lost");
    assert!(claimed.elapsed() < Duration::from_secs(1) + SWEEP + SLACK, "{:?}", claimed.elapsed());
    // The response had been written long before.
    let mut answer = [0; 12];
    unread.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

/// The real runtime is stopped while it waits for tasks, gets a run that it never sees, is killed, and restarts with
/// the same token. The run executes exactly once, and the lost claim doesn't use up an attempt.
#[test]
fn a_restarted_runtime_releases_unread_claims() {
    let home = TestHome::within(&folder(), "attache-lost-reply");
    let hub = start_hub(&home, FREE_PORT, Duration::from_secs(60));
    hub.add_agent("device");
    let code = hub.pairing_code("device");
    home.attache(&["runtime", "pair", &code, "--api-base", &hub.url]).succeeds();
    let runtime = home.runtime(&[]);
    // It waits for tasks once it has executed one.
    assert_eq!(hub.ask("device", "true")["status"], "completed");
    let traces = home.path().join("traces");
    let script = format!("echo once >> '{}'", traces.display());
    let run = until("a claim that is not seen", || {
        process::signal(runtime.id(), "STOP");
        let run = hub.create_run("device", &script);
        let give_up = Instant::now() + Duration::from_secs(3);
        while Instant::now() < give_up {
            if hub.run(&run)["status"] == "running" {
                return Some(run);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // It was stopped between two pulls: the run is executed later, and another one is tried.
        process::signal(runtime.id(), "CONT");
        hub.ended(&run);
        std::fs::remove_file(&traces).unwrap();
        None
    });
    runtime.kill();
    let runtime = home.runtime(&[]);
    let ended = hub.ended(&run);
    assert_eq!(summary(&ended), ("completed", Some(1), Some(2), None), "{ended}");
    assert_eq!(std::fs::read_to_string(&traces).unwrap(), "once\n");
    assert!(runtime.terminate().success());
}
