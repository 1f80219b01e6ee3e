//! "No orphan": whatever dies in the middle of a run, the run ends with a code that says why.

use serde_json::json;

use super::ChecklistWorld;
use crate::harness::{TestHome, process, until};

/// A task that never finishes and records its own process id and a child's.
const FOREVER: &str = "sleep 1000 & echo $$ > pids; echo $! >> pids; wait";

#[track_caller]
fn gone(pids: &[u32]) {
    for pid in pids {
        until(&format!("process {pid} to be gone"), || (!process::exists(*pid)).then_some(()));
    }
}

#[test]
fn a_killed_adapter_fails_the_run_as_unreachable() {
    let world = ChecklistWorld::new();
    world.hub.add_agent("builder");
    let home = TestHome::new();
    let (adapter, endpoint) = home.adapter(&["shell"]);
    let device = world.pair(home, "builder", &["--local-agent-endpoint", &endpoint]);
    let runtime = device.home.runtime(&[]);
    let run = world.hub.create_run("builder", FOREVER);
    let pids = device.pids("pids", 2);

    adapter.kill();
    let (code, error) = world.failure(&run);
    assert_eq!(code, "adapter_unreachable", "{error}");
    gone(&pids);
    // The device itself is still online and reports what is missing.
    assert!(runtime.is_running());
    runtime.tells("the adapter is unreachable");
    let next = world.hub.create_run("builder", "echo hi");
    assert_eq!(world.failure(&next).0, "adapter_unreachable");
}

#[test]
fn a_killed_supervised_adapter_is_restarted() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let runtime = device.home.runtime(&[]);
    let run = world.hub.create_run("builder", FOREVER);
    let pids = device.pids("pids", 2);

    let [adapter] = process::children(runtime.id())[..] else { panic!("the runtime has one child, its adapter") };
    process::signal(adapter, "KILL");
    let (code, error) = world.failure(&run);
    assert_eq!(code, "adapter_unreachable", "{error}");
    gone(&pids);
    assert_eq!(world.hub.ask("builder", "echo back")["task_result"]["text"], "back\n");
}

#[test]
fn a_killed_runtime_loses_its_run_and_leaves_nothing_behind() {
    let world = ChecklistWorld::impatient();
    let device = world.builder();
    let runtime = device.home.runtime(&[]);
    let run = world.hub.create_run("builder", FOREVER);
    let pids = device.pids("pids", 2);

    runtime.kill();
    let (code, error) = world.failure(&run);
    assert_eq!(code, "runtime_lost", "{error}");
    gone(&pids);
    world.hub.agent_is("builder", "offline");
}

#[test]
fn a_lost_run_is_retried_if_its_caller_allows_it() {
    let world = ChecklistWorld::impatient();
    let device = world.builder();
    let runtime = device.home.runtime(&[]);
    let script = "if [ -e tried ]; then echo second; else touch tried; sleep 1000; fi";
    let request = json!({ "agent_id": "builder", "input": { "text": script }, "max_attempts": 2 });
    let created = world.hub.post("/api/v1/task-runs", &request).expect(201).json();
    let run = created["task_run_id"].as_str().unwrap();
    until("the first attempt to begin", || device.home.path().join("tried").exists().then_some(()));

    super::lose(&runtime);
    let again = world.hub.run_in(run, &["pending"]);
    assert_eq!([&again["attempt"], &again["task_result"]], [&json!(1), &json!(null)]);
    let _runtime = device.home.runtime(&[]);
    let ended = world.hub.ended(run);
    assert_eq!([&ended["status"], &ended["attempt"], &ended["epoch"]], [&json!("completed"), &json!(2), &json!(2)]);
    assert_eq!(ended["task_result"]["text"], "second\n");
}

#[test]
fn a_killed_hub_keeps_the_run_and_the_device() {
    let mut world = ChecklistWorld::new();
    let device = world.builder();
    let _runtime = device.home.runtime(&[]);
    let gate = device.gate("go");
    let run = world.hub.create_run("builder", &gate.then_say("survived"));
    world.hub.run_in(&run, &["running"]);

    world.start_hub_again();
    assert_eq!(world.hub.run(&run)["status"], "running");
    gate.open();
    let ended = world.hub.ended(&run);
    assert_eq!([&ended["status"], &ended["epoch"]], [&json!("completed"), &json!(1)], "{ended}");
    assert_eq!(ended["task_result"]["text"], "survived\n");
}

#[test]
fn a_task_that_kills_itself_fails() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let _runtime = device.home.runtime(&[]);
    let run = world.hub.create_run("builder", "kill -9 $$");
    let (code, error) = world.failure(&run);
    assert_eq!((code.as_str(), error.as_str()), ("task_failed", "`sh` was killed by signal 9 without any output"));
}

#[test]
fn a_timed_out_run_is_stopped_on_the_device_too() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let _runtime = device.home.runtime(&[]);
    let request = json!({ "agent_id": "builder", "input": { "text": FOREVER }, "timeout_ms": 15000 });
    let created = world.hub.post("/api/v1/task-runs", &request).expect(201).json();
    let pids = device.pids("pids", 2);
    let (code, error) = world.failure(created["task_run_id"].as_str().unwrap());
    assert_eq!(code, "timed_out", "{error}");
    gone(&pids);
    assert_eq!(world.hub.ask("builder", "echo next")["task_result"]["text"], "next\n");
}

#[test]
fn an_unclaimed_run_expires() {
    let world = ChecklistWorld::new();
    world.hub.add_agent("builder");
    let request = json!({ "agent_id": "builder", "input": { "text": "echo hi" }, "queue_ttl_ms": 1000 });
    let created = world.hub.post("/api/v1/task-runs", &request).expect(201).json();
    let (code, error) = world.failure(created["task_run_id"].as_str().unwrap());
    assert_eq!(code, "expired", "{error}");
}
