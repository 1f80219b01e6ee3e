//! One test per line of the check-list: pair, heartbeat, pull, execute, complete, fail, health, ledger, no token
//! leak and reconnect. "No orphan" has its own file.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::json;

use super::ChecklistWorld;
use crate::harness::{TestHome, http, until};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn pair_writes_the_profile_and_shows_no_token() {
    let world = ChecklistWorld::new();
    let agent = world.hub.add_agent("builder");
    let device = TestHome::new();
    let (_adapter, endpoint) = device.adapter(&["shell"]);
    let work = device.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(device.path().join("rules.txt"), "be brief").unwrap();
    let code = world.hub.pairing_code("builder");

    let paired = device
        .attache(&[
            "runtime",
            "pair",
            &code,
            "--api-base",
            &world.hub.url,
            "--device-name",
            "laptop",
            "--local-executor-type",
            "claude_cli",
            "--local-executor-ref",
            "claude",
            "--workspace",
            "work",
            "--cwd",
            "work",
            "--instruction-file",
            "rules.txt",
            "--local-agent-endpoint",
            &endpoint,
        ])
        .succeeds();

    assert_eq!(mode(&device.profile_file()), 0o600);
    assert_eq!(mode(&device.a2a()), 0o700);
    let written = device.profiles();
    let key = written["active_profile"].as_str().unwrap();
    let profile = &written["profiles"][key];
    let (runtime, token) = (profile["runtime_id"].as_str().unwrap(), profile["runtime_token"].as_str().unwrap());
    let secret = profile["adapter_secret"].as_str().unwrap();
    assert_eq!(key, format!("{agent}/{runtime}"));
    assert!(runtime.starts_with("rtm_") && token.starts_with("rt_") && secret.starts_with("as_"));
    let real = |name: &str| fs::canonicalize(device.path().join(name)).unwrap();
    assert_eq!(
        written,
        json!({ "active_profile": key, "profiles": { key: {
            "agent_id": agent,
            "agent_name": "builder",
            "runtime_id": runtime,
            "runtime_token": token,
            "api_base": format!("{}/api/v1", world.hub.url),
            "local_agent_endpoint": endpoint,
            "adapter": "http",
            "adapter_secret": secret,
            "device_name": "laptop",
            "last_heartbeat_at": null,
            "heartbeat_timeout_ms": 120_000,
            "local_executor": {
                "type": "claude_cli",
                "ref": "claude",
                "workspace": real("work"),
                "cwd": real("work"),
                "instruction_file": real("rules.txt"),
            },
        } } })
    );
    for output in [&paired.stdout, &paired.stderr] {
        assert!(!output.contains(token) && !output.contains(secret) && !output.contains(&code), "{output}");
    }

    let again = TestHome::new().attache(&["runtime", "pair", &code, "--api-base", &world.hub.url]).exits(3);
    assert!(again.stderr.contains("Codes work once and expire after ten minutes."), "{}", again.stderr);
    fs::set_permissions(device.profile_file(), fs::Permissions::from_mode(0o640)).unwrap();
    let refused = device.attache(&["runtime", "start"]).exits(4);
    assert!(refused.stderr.contains("chmod 600"), "{}", refused.stderr);
}

#[test]
fn heartbeat_makes_the_agent_online_and_silence_makes_it_offline() {
    let world = ChecklistWorld::impatient();
    let device = world.builder();
    assert_eq!(world.hub.get("/api/v1/agent-accounts/builder")["status"], "offline");

    let runtime = device.home.runtime(&[]);
    let account = world.hub.get("/api/v1/agent-accounts/builder");
    assert_eq!(account["status"], "online");
    assert_eq!(account["runtime"]["runtime_id"], device.runtime_id.as_str());
    assert_eq!(account["runtime"]["device_name"], "laptop");
    until("the heartbeat in the profile", || device.profile()["last_heartbeat_at"].is_string().then_some(()));
    let status = device.home.attache(&["runtime", "status", "--json"]).succeeds().json();
    assert_eq!(status["running"], true, "{status}");
    assert_eq!(status["hub_reachable"], true, "{status}");

    runtime.kill();
    world.hub.agent_is("builder", "offline");
}

#[test]
fn pull_takes_a_pending_run_and_makes_it_running() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let gate = device.gate("go");
    let run = world.hub.create_run("builder", &gate.then_say("done"));
    let pending = world.hub.run(&run);
    assert_eq!(
        [&pending["status"], &pending["epoch"], &pending["runtime_id"]],
        [&json!("pending"), &json!(0), &json!(null)]
    );

    let _runtime = device.home.runtime(&[]);
    let running = world.hub.run_in(&run, &["running"]);
    assert_eq!([&running["epoch"], &running["attempt"]], [&json!(1), &json!(1)]);
    assert_eq!(running["runtime_id"], device.runtime_id.as_str());
    assert_eq!(running["task_result"], json!(null));
    gate.open();
    assert_eq!(world.hub.ended(&run)["status"], "completed");
}

#[test]
fn execute_reaches_the_adapter_as_run_task() {
    let world = ChecklistWorld::new();
    world.hub.add_agent("builder");
    let home = TestHome::new();
    let (adapter, endpoint) = home.adapter(&["shell"]);
    let device = world.pair(home, "builder", &["--local-agent-endpoint", &endpoint]);
    let _runtime = device.home.runtime(&[]);

    let run = world.hub.create_run("builder", "echo \"$ATTACHE_TASK_RUN_ID\" > seen; echo \"$ATTACHE_WORKSPACE_ID\"");
    let ended = world.hub.ended(&run);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["task_result"]["text"], format!("{}\n", ended["workspace_id"].as_str().unwrap()));
    // The script ran on the adapter's machine, and the adapter confirms that it received this run.
    assert_eq!(fs::read_to_string(device.home.path().join("seen")).unwrap(), format!("{run}\n"));
    adapter.tells(&run);
}

#[test]
fn complete_brings_the_output_of_the_host() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let _runtime = device.home.runtime(&[]);
    let run = world.hub.ask("builder", "printf 'one\\ntwo 😀'");
    assert_eq!(run["status"], "completed", "{run}");
    assert_eq!(run["task_result"], json!({ "text": "one\ntwo 😀", "artifact_refs": [] }));
    assert!(run["ended_at"].is_string() && run["lease_expires_at"].is_null(), "{run}");

    let events = world.hub.get(&format!("/api/v1/task-runs/{}/events", run["task_run_id"].as_str().unwrap()));
    let kinds: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds[..2], ["task.created", "task.claimed"], "{events}");
    assert_eq!(kinds.last().unwrap(), "task.completed", "{events}");
    let text: String = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["type"] == "task.chunk")
        .map(|event| event["data"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(text, "one\ntwo 😀");
}

#[test]
fn fail_brings_the_error_and_its_code() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let _runtime = device.home.runtime(&[]);
    let run = world.hub.ask("builder", "echo half an answer; echo no disk >&2; exit 3");
    assert_eq!(run["status"], "failed", "{run}");
    let error = "`sh` exited with status 3. End of its standard error:\nno disk";
    assert_eq!(run["task_result"], json!({ "error": error, "code": "task_failed" }));
}

#[test]
fn health_of_the_adapter_is_ok() {
    let world = ChecklistWorld::new();
    world.hub.add_agent("builder");
    let home = TestHome::new();
    let (_adapter, endpoint) = home.adapter(&["shell"]);
    let secret = format!("Bearer {}", adapter_secret(&home, &endpoint));
    let health = |headers: &[(&str, &str)]| {
        http::json("GET", &format!("{endpoint}/health"), headers, None).unwrap().expect(200).json()
    };
    assert_eq!(health(&[]), json!({ "ok": true }));

    let device = world.pair(home, "builder", &["--local-agent-endpoint", &endpoint]);
    let _runtime = device.home.runtime(&[]);
    let gate = device.gate("go");
    let run = world.hub.create_run("builder", &gate.then_say("done"));
    let running = until("the adapter to execute the run", || {
        Some(health(&[("authorization", &secret)])).filter(|health| !health["running"].is_null())
    });
    // Which limits it enforces depends on the machine.
    let mut running = running;
    running.as_object_mut().unwrap().retain(|name, _| name != "enforces" && name != "walls");
    let version = running["host"]["version"].clone();
    assert_eq!(running, json!({ "ok": true, "host": { "type": "shell", "version": version }, "running": run }));
    gate.open();
    assert_eq!(world.hub.ended(&run)["status"], "completed");
}

fn adapter_secret(home: &TestHome, endpoint: &str) -> String {
    let name = endpoint.trim_start_matches("http://").replace(':', "_");
    fs::read_to_string(home.a2a().join("adapters").join(name)).unwrap().trim().to_owned()
}

#[test]
fn ledger_tells_the_whole_chain() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let runtime = device.home.runtime(&[]);
    let good = world.hub.create_run("builder", "echo fine");
    let bad = world.hub.create_run("builder", "exit 3");
    world.hub.ended(&good);
    world.hub.ended(&bad);
    device.steps_until(&bad, "task_reported");
    assert!(runtime.terminate().success());

    let lines = device.home.ledger(&device.agent_id);
    let chain: Vec<_> = lines.iter().map(|line| (super::step(line), line["task_run_id"].as_str())).collect();
    let expected = [
        ("runtime_started", None),
        ("task_pulled", Some(good.as_str())),
        ("task_started", Some(&good)),
        ("task_completed", Some(&good)),
        ("task_reported", Some(&good)),
        ("task_pulled", Some(&bad)),
        ("task_started", Some(&bad)),
        ("task_failed", Some(&bad)),
        ("task_reported", Some(&bad)),
        ("runtime_stopped", None),
    ];
    assert_eq!(chain, expected.map(|(step, run)| (step.to_owned(), run)));
    assert_eq!(lines[3]["output"], json!({ "text": "fine\n", "artifact_refs": [] }));
    assert_eq!(lines[7]["output"]["code"], "task_failed");
    let times: Vec<_> = lines.iter().map(|line| line["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(mode(&device.home.ledger_file(&device.agent_id)), 0o600);
}

/// The short version; the `leak` suite searches everything.
#[test]
fn no_token_leaks_into_what_people_see() {
    let world = ChecklistWorld::new();
    let device = world.builder();
    let runtime = device.home.runtime(&[]);
    let token = device.token();
    let run = world.hub.ask("builder", "env; cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '");
    assert_eq!(run["status"], "completed", "{run}");
    let id = run["task_run_id"].as_str().unwrap();
    let seen = [
        run.to_string(),
        world.hub.get(&format!("/api/v1/task-runs/{id}/events")).to_string(),
        world.hub.get("/api/v1/audit").to_string(),
        world.hub.get("/api/v1/agent-runtimes").to_string(),
        world.hub.get("/api/v1/agent-accounts").to_string(),
        device.home.attache(&["runtime", "status"]).succeeds().stdout,
        device.home.attache(&["runtime", "status", "--json"]).succeeds().stdout,
        device.home.attache(&["runtime", "profiles", "--json"]).succeeds().stdout,
        fs::read_to_string(device.home.ledger_file(&device.agent_id)).unwrap(),
        runtime.stdout() + &runtime.stderr(),
        world.hub.process.stdout() + &world.hub.process.stderr(),
    ];
    assert!(seen[0].contains("ATTACHE_TASK_RUN_ID"), "the task did not show its environment: {}", seen[0]);
    for text in seen {
        assert!(!text.contains(&token), "the token is in: {text}");
    }
}

#[test]
fn reconnect_needs_no_new_code() {
    let world = ChecklistWorld::impatient();
    let device = world.builder();
    let first = device.home.runtime(&[]);
    assert_eq!(world.hub.ask("builder", "echo one")["task_result"]["text"], "one\n");
    super::lose(&first);
    world.hub.agent_is("builder", "offline");

    let _second = device.home.runtime(&[]);
    world.hub.agent_is("builder", "online");
    let run = world.hub.ask("builder", "echo two");
    assert_eq!(run["task_result"]["text"], "two\n");
    assert_eq!(run["runtime_id"], device.runtime_id.as_str());
    let runtimes = world.hub.get("/api/v1/agent-runtimes");
    assert_eq!(runtimes["agent_runtimes"].as_array().unwrap().len(), 1, "{runtimes}");
}
