//! Devices come and go, the agent stays: replaced devices, third-party adapters, and pairing that starts on the
//! device.

use serde_json::json;

use super::{ChecklistDevice, ChecklistWorld};
use crate::harness::{TestHome, TestProcess, until};

/// The code that a bare `runtime pair` shows.
#[track_caller]
fn shown_code(pairing: &TestProcess) -> String {
    let messages = pairing.tells("Confirm: ");
    let line = messages.lines().find_map(|line| line.strip_prefix("Code:")).unwrap();
    line.trim().to_owned()
}

#[test]
fn a_second_device_replaces_the_first_and_makes_no_new_agent() {
    let world = ChecklistWorld::new();
    let first = world.builder();
    let agents = world.agents();
    let old = first.home.runtime(&[]);
    assert_eq!(world.hub.ask("builder", "echo first")["runtime_id"], first.runtime_id.as_str());

    let second = world.device("builder", &["--device-name", "workstation"]);
    assert_eq!(second.agent_id, first.agent_id);
    assert_eq!(world.agents(), agents);

    // The first one stops on its own, with one clear message and a hint.
    assert_eq!(old.wait().code(), Some(4));
    let messages = old.stderr();
    let last: Vec<_> = messages.lines().filter(|line| line.contains("replaced")).collect();
    let sentence = "error: This device was replaced. Another device was paired with this agent. \
                    To take over, pair this device again: `attache runtime pair CODE`";
    assert_eq!(last, [sentence], "{messages}");
    let stopped = first.home.ledger(&first.agent_id).pop().unwrap();
    assert_eq!(stopped["event"], "runtime_stopped");
    // Restarting it changes nothing.
    let again = first.home.attache(&["runtime", "start"]).exits(4);
    assert!(again.stderr.contains("This device was replaced"), "{}", again.stderr);

    let _new = second.home.runtime(&[]);
    assert_eq!(world.hub.ask("builder", "echo second")["runtime_id"], second.runtime_id.as_str());
    let list = world.hub.get("/api/v1/agent-runtimes");
    let mut states: Vec<_> = list["agent_runtimes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|runtime| (runtime["runtime_id"].as_str().unwrap(), runtime["state"].as_str().unwrap()))
        .collect();
    states.sort_unstable();
    assert_eq!(states, [(first.runtime_id.as_str(), "superseded"), (second.runtime_id.as_str(), "active")]);
}

#[test]
fn a_replaced_device_loses_its_running_run() {
    let world = ChecklistWorld::new();
    let first = world.builder();
    let old = first.home.runtime(&[]);
    let run = world.hub.create_run("builder", "echo $$ > pids; exec sleep 1000");
    let pids = first.pids("pids", 1);

    let _second = world.device("builder", &[]);
    let (code, error) = world.failure(&run);
    assert_eq!(code, "runtime_lost", "{error}");
    assert_eq!(old.wait().code(), Some(4));
    until("the task to be gone", || (!crate::harness::process::exists(pids[0])).then_some(()));
}

#[test]
fn a_revoked_device_stops_with_a_message() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let runtime = device.home.runtime(&[]);
    world.hub.call("DELETE", &format!("/api/v1/agent-runtimes/{}", device.runtime_id), None).expect(200);
    assert_eq!(runtime.wait().code(), Some(4));
    let messages = runtime.stderr();
    assert!(messages.contains("error: This device was disconnected from its agent."), "{messages}");

    // The same home with a new code for the same agent works again, with one profile.
    let agents = world.agents();
    let ChecklistDevice { home, runtime_id, agent_id } = device;
    let device = world.pair(home, "builder", &[]);
    assert_eq!(device.agent_id, agent_id);
    assert_ne!(device.runtime_id, runtime_id);
    assert_eq!(device.home.profiles()["profiles"].as_object().unwrap().len(), 1);
    assert_eq!(device.profile()["device_name"], "laptop");
    assert_eq!(world.agents(), agents);
    let _runtime = device.home.runtime(&[]);
    assert_eq!(world.hub.ask("builder", "echo again")["task_result"]["text"], "again\n");
}

#[test]
fn one_device_serves_two_agents_with_two_profiles() {
    let world = ChecklistWorld::new();
    let first = world.builder();
    world.hub.add_agent("tester");
    let ChecklistDevice { home, agent_id: builder, .. } = first;
    let device = world.pair(home, "tester", &["--device-name", "laptop"]);
    let profiles = device.home.profiles();
    assert_eq!(profiles["active_profile"], device.key());
    let other = profiles["profiles"].as_object().unwrap().keys().find(|key| key.starts_with(&builder)).unwrap().clone();

    let _tester = device.home.runtime(&[]);
    let _builder = device.home.runtime(&["--profile", &other]);
    assert_eq!(world.hub.ask("tester", "echo tests")["task_result"]["text"], "tests\n");
    assert_eq!(world.hub.ask("builder", "echo builds")["task_result"]["text"], "builds\n");
}

#[test]
fn the_python_adapter_works_without_our_code() {
    let world = ChecklistWorld::new();
    world.hub.add_agent("counter");
    let home = TestHome::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python-adapter/adapter.py");
    let python = TestProcess::spawn("python", home.program("python3").args([example, "0"]), &home.logs());
    let output = python.says("listening on ");
    let endpoint = output.trim().trim_start_matches("listening on ").to_owned();

    let device = world.pair(home, "counter", &["--local-agent-endpoint", &endpoint]);
    let profile = device.profile();
    assert_eq!(profile["local_agent_endpoint"], endpoint);
    assert_eq!(profile["local_executor"]["type"], "custom");
    assert_eq!(profile.get("adapter_secret"), None, "{profile}");
    let runtime = device.home.runtime(&[]);
    let run = world.hub.ask("counter", "one two three");
    assert_eq!(run["task_result"], json!({ "text": "3 words", "artifact_refs": [] }), "{run}");
    let run = world.hub.ask("counter", " ");
    assert_eq!(run["task_result"], json!({ "error": "the task has no text", "code": "task_failed" }));

    python.kill();
    let run = world.hub.create_run("counter", "one two");
    assert_eq!(world.failure(&run).0, "adapter_unreachable");
    assert!(runtime.is_running());
}

#[test]
fn a_device_shows_a_code_and_a_person_confirms_it() {
    let world = ChecklistWorld::new();
    let agent = world.hub.add_agent("builder");
    let home = TestHome::new();
    let pairing = home.spawn("pair", &["runtime", "pair", "--api-base", &world.hub.url, "--device-name", "tablet"]);
    let code = shown_code(&pairing);
    let messages = pairing.tells("Confirm: ");
    assert!(messages.contains(&format!("Confirm: {}/pair?code={code}", world.hub.url)), "{messages}");

    let typed = code.to_lowercase().replace('-', "");
    let asked = world.hub.get(&format!("/api/v1/pairing-requests/{typed}"));
    assert_eq!(asked["device_name"], "tablet", "{asked}");
    assert_eq!(asked["labels"], json!({ "asks": "no", "host_type": "shell" }));
    let decision = json!({ "agent_id": "builder" });
    world.hub.post(&format!("/api/v1/pairing-requests/{code}/decision"), &decision).expect(200);
    assert!(pairing.wait().success(), "{}", pairing.stderr());

    let profiles = home.profiles();
    let key = profiles["active_profile"].as_str().unwrap();
    assert_eq!(profiles["profiles"][key]["agent_id"], agent);
    assert_eq!(profiles["profiles"][key]["device_name"], "tablet");
    assert_eq!(world.agents(), [agent]);
    let _runtime = home.runtime(&[]);
    assert_eq!(world.hub.ask("builder", "echo confirmed")["task_result"]["text"], "confirmed\n");
    // The code can't be used again.
    world.hub.post(&format!("/api/v1/pairing-requests/{code}/decision"), &decision).expect(404);
}

#[test]
fn a_rejected_device_gets_nothing() {
    let world = ChecklistWorld::new();
    world.hub.add_agent("builder");
    let home = TestHome::new();
    let pairing = home.spawn("pair", &["runtime", "pair", "--api-base", &world.hub.url]);
    let code = shown_code(&pairing);
    let path = format!("/api/v1/pairing-requests/{code}/decision");
    world.hub.post(&path, &json!({ "agent_id": null })).expect(200);
    assert_eq!(pairing.wait().code(), Some(4), "{}", pairing.stderr());
    assert!(pairing.stderr().contains("A person rejected this device"), "{}", pairing.stderr());
    assert!(!home.profile_file().exists());
}
