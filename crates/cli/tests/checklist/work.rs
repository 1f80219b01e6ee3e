//! A run on a device from start to end: cancelled, finished while the hub is away, finished before a clean stop,
//! and with artifacts.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::json;

use super::ChecklistWorld;
use crate::harness::{TestHome, http, process, until};

/// How often a timing guarantee is tried: a busy machine may be late once, a broken guarantee fails every time.
const TRIES: usize = 20;

#[test]
fn cancel_ends_the_process_on_the_device_within_a_second() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let _runtime = device.home.runtime(&[]);
    let mut times = Vec::new();
    for attempt in 0..TRIES {
        // The second process ignores SIGTERM.
        let script = format!("(trap '' TERM; sleep 1000) & echo $$ > pids-{attempt}; echo $! >> pids-{attempt}; wait");
        let run = world.hub.create_run("builder", &script);
        let pids = device.pids(&format!("pids-{attempt}"), 2);
        assert!(pids.iter().all(|pid| process::exists(*pid)));

        let asked = Instant::now();
        let path = format!("/api/v1/task-runs/{run}/cancel");
        let cancelled = world.hub.post(&path, &json!({ "reason": "changed my mind" })).expect(200).json();
        assert_eq!(cancelled["status"], "cancelled");
        until("the task's processes to be gone", || (!pids.iter().any(|pid| process::exists(*pid))).then_some(()));
        times.push(asked.elapsed());

        device.steps_until(&run, "task_stopped");
        assert_eq!(world.hub.run(&run)["status"], "cancelled");
        if times.iter().any(|time| *time < Duration::from_secs(1)) {
            break;
        }
    }
    assert!(times.iter().any(|time| *time < Duration::from_secs(1)), "{times:?}");
    // The device is free for the next task.
    assert_eq!(world.hub.ask("builder", "echo next")["task_result"]["text"], "next\n");
}

#[test]
fn a_pending_run_that_is_cancelled_never_starts() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let run = world.hub.create_run("builder", "touch started");
    world.hub.post(&format!("/api/v1/task-runs/{run}/cancel"), &json!({})).expect(200);
    let _runtime = device.home.runtime(&[]);
    assert_eq!(world.hub.ask("builder", "echo next")["task_result"]["text"], "next\n");
    assert_eq!(world.hub.run(&run)["status"], "cancelled");
    assert!(!device.home.path().join("started").exists());
}

#[test]
fn an_outcome_waits_in_the_ledger_until_the_hub_is_back() {
    let mut world = ChecklistWorld::new();
    let device = world.builder();
    let runtime = device.home.runtime(&[]);
    let gate = device.gate("go");
    let run = world.hub.create_run("builder", &gate.then_say("kept"));
    device.steps_until(&run, "task_started");

    world.hub.process.kill();
    gate.open();
    let steps = device.steps_until(&run, "task_completed");
    assert_eq!(steps, ["task_pulled", "task_started", "task_completed"]);
    runtime.tells("it is kept in the ledger");
    assert_eq!(device.steps(&run), steps);

    world.start_hub_again();
    let ended = world.hub.ended(&run);
    assert_eq!([&ended["status"], &ended["epoch"]], [&json!("completed"), &json!(1)], "{ended}");
    assert_eq!(ended["task_result"], json!({ "text": "kept\n", "artifact_refs": [] }));
    let steps = device.steps_until(&run, "task_reported");
    assert_eq!(steps, ["task_pulled", "task_started", "task_completed", "task_reported"]);
}

#[test]
fn the_next_runtime_reports_an_outcome_from_the_ledger() {
    let mut world = ChecklistWorld::new();
    let device = world.builder();
    let runtime = device.home.runtime(&[]);
    let gate = device.gate("go");
    let run = world.hub.create_run("builder", &gate.then_say("kept"));
    device.steps_until(&run, "task_started");
    world.hub.process.kill();
    gate.open();
    device.steps_until(&run, "task_completed");
    super::lose(&runtime);

    world.start_hub_again();
    assert_eq!(world.hub.run(&run)["status"], "running");
    let _runtime = device.home.runtime(&[]);
    let ended = world.hub.ended(&run);
    assert_eq!([&ended["status"], &ended["epoch"]], [&json!("completed"), &json!(1)], "{ended}");
    assert_eq!(ended["task_result"]["text"], "kept\n");
}

#[test]
fn a_clean_stop_finishes_the_current_run_and_takes_no_other() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let runtime = device.home.runtime(&[]);
    let gate = device.gate("go");
    let run = world.hub.create_run("builder", &gate.then_say("finished"));
    let next = world.hub.create_run("builder", "echo next");
    device.steps_until(&run, "task_started");

    process::signal(runtime.id(), "TERM");
    runtime.tells(&format!("stopping after {run} finishes"));
    assert_eq!(world.hub.run(&run)["status"], "running");
    gate.open();
    assert_eq!(runtime.wait().code(), Some(0), "{}", runtime.stderr());
    let ended = world.hub.run(&run);
    assert_eq!([&ended["status"], &ended["task_result"]["text"]], [&json!("completed"), &json!("finished\n")]);
    assert_eq!(device.steps(&run), ["task_pulled", "task_started", "task_completed", "task_reported"]);
    assert_eq!(world.hub.run(&next)["status"], "pending");
    assert_eq!(super::step(device.home.ledger(&device.agent_id).last().unwrap()), "runtime_stopped");

    let _runtime = device.home.runtime(&[]);
    assert_eq!(world.hub.ended(&next)["task_result"]["text"], "next\n");
}

#[test]
fn a_second_signal_stops_the_run_with_a_message() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let runtime = device.home.runtime(&[]);
    let run = world.hub.create_run("builder", "echo $$ > pids; exec sleep 1000");
    let pids = device.pids("pids", 1);
    process::signal(runtime.id(), "TERM");
    runtime.tells("stopping after");
    process::signal(runtime.id(), "TERM");
    assert_eq!(runtime.wait().code(), Some(1), "{}", runtime.stderr());
    let ended = world.hub.ended(&run);
    let result = &ended["task_result"];
    assert_eq!(
        [&ended["status"], &result["code"], &result["native_code"]],
        [&json!("failed"), &json!("task_failed"), &json!("runtime_stopped")]
    );
    assert!(!process::exists(pids[0]));
}

#[test]
fn an_artifact_of_a_task_is_downloaded_byte_for_byte() {
    let world = ChecklistWorld::new();
    world.hub.add_agent("builder");
    let home = TestHome::new();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    let device = world.pair(home, "builder", &["--cwd", work.to_str().unwrap()]);
    let _runtime = device.home.runtime(&[]);
    let script = "mkdir -p out && head -c 3000000 /dev/urandom > out/data.bin && printf 'a\\0b' > 'a name.txt' && \
                  printf 'out/data.bin\\na name.txt\\n' >> \"$ATTACHE_ARTIFACTS\" && echo made";
    let run = world.hub.ask("builder", script);
    assert_eq!(run["status"], "completed", "{run}");
    assert_eq!(run["task_result"]["text"], "made\n");
    let refs: Vec<_> = run["task_result"]["artifact_refs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(refs.len(), 2, "{run}");

    for (id, file) in refs.iter().zip(["out/data.bin", "a name.txt"]) {
        let made = fs::read(work.join(file)).unwrap();
        let got = world.hub.call("GET", &format!("/api/v1/artifacts/{id}"), None).expect(200);
        assert!(got.body == made, "{file}: {} bytes became {}", made.len(), got.body.len());
        let key = format!("Bearer {}", world.hub.key);
        let headers = [("authorization", key.as_str()), ("range", "bytes=1-2")];
        let part = http::send("GET", &format!("{}/api/v1/artifacts/{id}", world.hub.url), &headers, b"").unwrap();
        assert_eq!(part.expect(206).body, made[1..3]);
        // The CLI command returns the same bytes.
        let copy = world.home.path().join("copy");
        world.home.attache(&["artifacts", "get", id, "--output", copy.to_str().unwrap()]).succeeds();
        assert!(fs::read(&copy).unwrap() == made, "{file}");
        fs::remove_file(copy).unwrap();
    }
    let list = world.hub.get(&format!("/api/v1/workspaces/{}/artifacts", run["workspace_id"].as_str().unwrap()));
    let mut names: Vec<_> =
        list["artifacts"].as_array().unwrap().iter().map(|artifact| artifact["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a name.txt", "data.bin"]);
}

#[test]
fn a_file_outside_the_tasks_folder_is_not_accepted_as_an_artifact() {
    let world = ChecklistWorld::new();
    world.hub.add_agent("builder");
    let home = TestHome::new();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    let device = world.pair(home, "builder", &["--cwd", work.to_str().unwrap()]);
    let _runtime = device.home.runtime(&[]);
    let script = "ln -s ../.a2a/runtime.json link; echo link >> \"$ATTACHE_ARTIFACTS\"";
    let run = world.hub.create_run("builder", script);
    let (code, error) = world.failure(&run);
    assert_eq!(code, "task_failed");
    assert!(error.contains("only files below its working folder are handed over"), "{error}");
}
