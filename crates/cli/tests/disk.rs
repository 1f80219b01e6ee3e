//! Full and unwritable disks: nothing is lost, nothing runs twice, the reason is reported, and work resumes.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, TestReply, http, until};

fn ready(server: &TestHub) -> TestReply {
    http::json("GET", &format!("{}/readyz", server.url), &[], None).unwrap()
}

/// Waits until the hub reports that it can't store anything, and why.
fn is_unready(server: &TestHub, code: &str) {
    until(&format!("readyz to say {code}"), || {
        let reply = ready(server);
        (reply.status == 503 && reply.error_code() == code).then_some(())
    });
}

fn is_ready(server: &TestHub) {
    until("readyz to be well again", || (ready(server).status == 200).then_some(()));
}

fn storage(server: &TestHub) -> (u16, Value, Value) {
    let reply = http::json("GET", &format!("{}/healthz", server.url), &[], None).unwrap();
    (reply.status, reply.json()["status"].clone(), reply.json()["storage"].clone())
}

#[test]
fn a_full_disk_is_reported_everywhere_until_there_is_space() {
    let Some(home) = TestHome::on_small_disk("12m") else { return };
    let up = home.up(&[]);
    up.agent_is("local", "online");
    assert_eq!(home.attache(&["ask", "local", "echo before"]).succeeds().stdout, "before\n");
    assert_eq!(storage(&up), (200, json!("ok"), json!("ok")));

    home.disk().fill();
    is_unready(&up, "disk_full");
    assert_eq!(storage(&up), (200, json!("degraded"), json!("disk_full")));
    let body = json!({ "agent_id": "local", "input": { "text": "echo no" } });
    for _ in 0..20 {
        let refused = up.post("/api/v1/task-runs", &body).expect(503);
        assert_eq!((refused.error_code().as_str(), refused.header("retry-after")), ("disk_full", Some("5")));
    }
    let ran = home.attache(&["ask", "local", "echo no"]).exits(1);
    assert!(ran.stderr.contains("The hub's disk is full"), "{}", ran.stderr);
    let doctor = home.attache(&["doctor"]).exits(1);
    assert!(doctor.stdout.contains("can't write to its storage: its disk is full"), "{}", doctor.stdout);
    let output = up.process.stderr();
    let lines = output.lines().filter(|line| line.contains("disk is full")).count();
    assert!((1..=3).contains(&lines), "the log is not flooded:\n{output}");

    home.disk().free();
    is_ready(&up);
    assert_eq!(home.attache(&["ask", "local", "echo after"]).succeeds().stdout, "after\n");
    home.attache(&["audit", "verify"]).succeeds();
    assert_eq!(storage(&up), (200, json!("ok"), json!("ok")));
}

#[test]
fn an_ask_says_why_it_waits_while_the_disk_is_full() {
    let Some(home) = TestHome::on_small_disk("12m") else { return };
    let up = home.up(&[]);
    up.agent_is("local", "online");
    let ask = home.spawn("ask", &["ask", "local", "touch begun; until [ -e go ]; do sleep 0.05; done; echo done"]);
    until("the task to begin", || home.path().join("begun").exists().then_some(()));
    home.disk().fill();
    is_unready(&up, "disk_full");
    ask.tells("The hub can't write to its storage: its disk is full");
    fs::write(home.path().join("go"), "").unwrap();
    home.disk().free();
    assert!(ask.wait().success(), "{}", ask.stderr());
    assert_eq!(ask.stdout(), "done\n");
}

/// One device uploads all it can. Everybody else can still sign in, work and clean up.
#[test]
fn uploads_leave_space_for_everything_else() {
    const PASSWORD: &str = "correct+horse+battery";
    let Some(home) = TestHome::on_small_disk("48m") else { return };
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let ada = json!({ "name": "ada", "role": "operator", "password": PASSWORD.replace('+', " ") });
    hub.post("/api/v1/users", &ada).expect(201);
    let device = hub.attach(&hub.pairing_code("builder"));
    let token = device["runtime_token"].as_str().unwrap();
    let run = hub.create_run("builder", "x");
    let claim = format!("/api/v1/agent-accounts/{}/task-runs/pull", device["agent_id"].as_str().unwrap());
    hub.worker(token, "POST", &claim, &json!({})).expect(200);
    let workspace = hub.run(&run)["workspace_id"].as_str().unwrap().to_owned();
    let upload = |number: usize, size: usize| {
        let url = format!("{}/api/v1/workspaces/{workspace}/artifacts/{number}", hub.url);
        let mut bytes = vec![b'x'; size];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        http::send("PUT", &url, &[("x-runtime-token", token)], &bytes).unwrap()
    };
    let uploads = (0..100).map(|number| upload(number, 4 << 20)).find(|reply| reply.status != 201).unwrap();
    assert_eq!((uploads.status, uploads.error_code().as_str()), (503, "disk_low"));
    // What is left above the reserve is filled with ever smaller files, until not even the smallest fits.
    let mut numbers = 100..;
    for size in [100_000, 5000, 8] {
        while upload(numbers.next().unwrap(), size).status == 201 {}
    }
    assert_eq!(storage(&hub), (200, json!("degraded"), json!("disk_low")));
    assert_eq!(ready(&hub).status, 200);
    let sign_in = || {
        let headers = [("content-type", "application/x-www-form-urlencoded"), ("origin", hub.url.as_str())];
        let form = format!("name=ada&password={PASSWORD}");
        http::send("POST", &format!("{}/login", hub.url), &headers, form.as_bytes()).unwrap().status
    };
    assert_eq!(sign_in(), 303);
    hub.create_run("builder", "y");

    // With even less space, nothing new begins, but work ends and can be deleted.
    home.disk().fill_except(1 << 20);
    let work = |path: &str, body: &Value| hub.worker(token, "POST", &format!("/api/v1/task-runs/{run}/{path}"), body);
    let body = json!({ "agent_id": "builder", "input": { "text": "z" } });
    assert_eq!(hub.post("/api/v1/task-runs", &body).expect(503).error_code(), "disk_low");
    assert_eq!(work("progress", &json!({ "chunk": "x" })).expect(413).error_code(), "log_full");
    work("complete", &json!({ "output": { "text": "done" } })).expect(200);
    assert_eq!(sign_in(), 303);
    let doctor = home.attache(&["doctor"]);
    assert!(doctor.stdout.contains("is almost full: it accepts no uploads"), "{}", doctor.stdout);
    hub.call("DELETE", &format!("/api/v1/task-runs/{run}"), None).expect(204);
    home.disk().free();
    assert_eq!(storage(&hub), (200, json!("ok"), json!("ok")));
    hub.create_run("builder", "z");
}

/// A file that can't be written although it is open, as after a file system was read-only for a while.
fn seal(home: &TestHome, how: &str) -> bool {
    let files = ["hub.db", "hub.db-wal"].map(|name| home.a2a().join("hub").join(name));
    Command::new("chattr").arg(how).args(files).status().is_ok_and(|status| status.success())
}

#[test]
fn a_hub_recovers_after_its_files_were_unwritable() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    if !seal(&home, "+i") {
        return eprintln!("skipped: files cannot be made immutable here");
    }
    is_unready(&hub, "read_only");
    let refused = hub.post("/api/v1/agent-accounts", &json!({ "name": "second" }));
    let open = seal(&home, "-i");
    assert_eq!((refused.status, refused.error_code().as_str(), open), (503, "read_only", true));
    is_ready(&hub);
    hub.add_agent("second");
    hub.create_run("builder", "x");
    assert!(hub.process.terminate().success());
    let again = home.hub(&[]);
    assert_eq!(again.get("/api/v1/agent-accounts")["agent_accounts"].as_array().unwrap().len(), 2);
}

#[test]
fn a_hub_on_a_read_only_disk_says_so_when_it_starts() {
    let Some(home) = TestHome::on_small_disk("12m") else { return };
    assert!(home.hub(&[]).process.terminate().success());
    home.disk().make_read_only(true);
    let ran = home.attache(&["hub", "--listen", "127.0.0.1:0"]).exits(1);
    assert!(ran.stderr.to_lowercase().contains("read-only"), "{}", ran.stderr);
    home.disk().make_read_only(false);
    home.hub(&[]);
}

/// A run with a single attempt, and a file that counts its executions.
fn once(hub: &TestHub, count: &std::path::Path, rest: &str) -> String {
    let text = format!("echo ran >> {}; {rest}", count.display());
    let body = json!({ "agent_id": "builder", "input": { "text": text }, "max_attempts": 1 });
    hub.post("/api/v1/task-runs", &body).expect(201).json()["task_run_id"].as_str().unwrap().to_owned()
}

fn counted(count: &std::path::Path) -> usize {
    fs::read_to_string(count).unwrap_or_default().lines().count()
}

#[test]
fn a_device_starts_nothing_that_it_cannot_record() {
    let home = TestHome::new();
    let Some(device) = TestHome::on_small_disk("4m") else { return };
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    device.attache(&["runtime", "pair", &hub.pairing_code("builder"), "--api-base", &hub.url]).succeeds();
    let runtime = device.runtime(&[]);
    hub.agent_is("builder", "online");
    device.disk().fill();
    let count = home.path().join("count");
    let run = once(&hub, &count, "true");
    runtime.tells("not accepting tasks");
    // It hasn't run yet, and a crash now must not make it run twice.
    runtime.kill();
    assert_eq!(counted(&count), 0);
    device.disk().free();
    let _runtime = device.runtime(&[]);
    assert_eq!(hub.ended(&run)["status"], "completed");
    assert_eq!(counted(&count), 1);
}

#[test]
fn runs_of_a_device_that_lost_its_ledger_fail_and_are_not_repeated() {
    for torn in [false, true] {
        let home = TestHome::new();
        let hub = home.hub(&["--heartbeat-timeout-ms", "3000", "--claim-grace-ms", "100"]);
        let agent = hub.add_agent("builder");
        home.attache(&["runtime", "pair", &hub.pairing_code("builder"), "--api-base", &hub.url]).succeeds();
        let runtime = home.runtime(&[]);
        let count = home.path().join("count");
        let run = once(&hub, &count, "sleep 600");
        until("the task to begin", || (counted(&count) == 1).then_some(()));
        runtime.kill();
        let ledger = home.ledger_file(&agent);
        if torn {
            let text = fs::read(&ledger).unwrap();
            let started = text.windows(12).position(|part| part == b"task_started").unwrap();
            fs::write(&ledger, &text[..started + 5]).unwrap();
        } else {
            fs::remove_file(&ledger).unwrap();
        }
        let _runtime = home.runtime(&[]);
        let ended = hub.ended(&run);
        assert_eq!((&ended["status"], &ended["task_result"]["code"]), (&json!("failed"), &json!("runtime_lost")));
        assert_eq!(counted(&count), 1);
    }
}
