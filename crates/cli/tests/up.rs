//! `attache up`: from nothing to an answer, again after a restart, and without leaving anything behind.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, TestProcess, http, process, until};

#[test]
fn up_and_ask() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let output = up.process.says("attache ask local");
    assert!(output.contains(&format!("Attaché is up: {}", up.url)), "{output}");
    assert!(output.contains(&format!("{}/login?token=cs_", up.url)), "{output}");

    // Commands find this machine's hub without options.
    let ran = home.attache(&["ask", "local", "echo out; echo err >&2"]).succeeds();
    assert_eq!(ran.stdout, "out\n");
    assert!(ran.stderr.contains("err"), "{}", ran.stderr);

    let agents = home.attache(&["agents", "--json"]).succeeds().json();
    assert_eq!(agents["agent_accounts"].as_array().unwrap().len(), 1);
    assert_eq!(agents["agent_accounts"][0]["name"], "local");
    assert_eq!(agents["agent_accounts"][0]["status"], "online");
    assert_eq!(agents["agent_accounts"][0]["runtime"]["labels"], json!({ "asks": "no", "host_type": "shell" }));
    assert_eq!(agents["next_cursor"], json!(null));

    let mode = |name: &str| fs::metadata(home.a2a().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["", "hub", "adapters", "logs"].map(mode), [0o700; 4]);
    assert_eq!(["runtime.json", "hub/admin.key", "hub/hub.db"].map(mode), [0o600; 3]);
}

#[test]
fn a_task_produces_a_file() {
    let home = TestHome::new();
    let folder = home.path().join("work");
    fs::create_dir(&folder).unwrap();
    let hand_over = |up: &TestHub, name: &str| {
        let run = up.ask("local", &format!("pwd > {name} && echo {name} >> \"$ATTACHE_ARTIFACTS\""));
        assert_eq!(run["status"], "completed", "{run}");
        let list =
            home.attache(&["artifacts", "list", run["task_run_id"].as_str().unwrap(), "--json"]).succeeds().json();
        let artifacts = list["artifacts"].as_array().unwrap();
        assert_eq!(artifacts.len(), 1, "{list}");
        home.attache(&["artifacts", "get", artifacts[0]["artifact_id"].as_str().unwrap()]).succeeds().stdout
    };
    // By default, the folder where it was started.
    let up = home.up(&[]);
    let here = fs::canonicalize(home.path()).unwrap();
    assert_eq!(hand_over(&up, "here.txt"), format!("{}\n", here.display()));
    let told = home.attache(&["ask", "local", "echo here.txt > \"$ATTACHE_ARTIFACTS\"; echo done"]).succeeds();
    assert!(told.stderr.contains("1 file came with the answer: attache artifacts list run_"), "{}", told.stderr);
    assert!(up.process.terminate().success());

    let up = home.up(&["--cwd", "work"]);
    assert_eq!(hand_over(&up, "there.txt"), format!("{}\n", here.join("work").display()));
    assert!(up.process.terminate().success());
    home.attache(&["up", "--listen", "127.0.0.1:0", "--cwd", "nowhere"]).exits(2);
}

#[test]
fn a_second_hub_does_not_take_the_commands_of_the_first() {
    let home = TestHome::new();
    let first = home.hub(&[]);
    first.add_agent("first");
    let elsewhere = home.path().join("elsewhere");
    let second = home.hub(&["--data", elsewhere.to_str().unwrap()]);
    second.process.tells("Another hub is already running at");
    assert!(home.attache(&["agents"]).succeeds().stdout.contains("first"));
    assert!(second.process.terminate().success());
    assert!(home.attache(&["agents"]).succeeds().stdout.contains("first"));
    assert!(first.process.terminate().success());
    assert!(!home.a2a().join("hub/address").exists(), "the first one forgets it");
}

#[test]
fn a_restart_finds_the_same_agent_and_pairing() {
    let home = TestHome::new();
    let first = home.up(&[]);
    let before = home.profiles();
    assert!(first.process.terminate().success());
    assert!(!home.a2a().join("hub/address").exists(), "a clean end forgets the address");

    // The pairing is the same, even on another port.
    let second = home.up(&[]);
    second.agent_is("local", "online");
    assert_eq!(home.attache(&["ask", "local", "echo again"]).succeeds().stdout, "again\n");
    let profiles = |file: &serde_json::Value| file["profiles"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(profiles(&home.profiles()), profiles(&before));
    assert_eq!(second.get("/api/v1/agent-accounts")["agent_accounts"].as_array().unwrap().len(), 1);
}

#[test]
fn a_lost_profile_is_paired_again_with_the_same_agent() {
    let home = TestHome::new();
    let first = home.up(&[]);
    let agent = first.get("/api/v1/agent-accounts/local")["agent_id"].clone();
    first.process.kill();
    fs::remove_file(home.profile_file()).unwrap();
    let second = home.up(&[]);
    second.agent_is("local", "online");
    assert_eq!(second.get("/api/v1/agent-accounts/local")["agent_id"], agent);
    assert_eq!(home.profiles()["profiles"].as_object().unwrap().len(), 1);
}

#[test]
fn a_pairing_that_a_person_ended_is_not_restored_silently() {
    let home = TestHome::new();
    let first = home.up(&[]);
    let runtime = first.get("/api/v1/agent-accounts/local")["runtime"]["runtime_id"].as_str().unwrap().to_owned();
    home.attache(&["runtimes", "revoke", &runtime]).succeeds();
    first.process.tells("isn't running here");
    assert_eq!(first.process.try_wait(), None, "the hub goes on");
    first.process.terminate();
    let second = home.up(&[]);
    second.process.tells("attache runtime unpair");
    second.process.says("Sign in");
    home.attache(&["runtime", "unpair"]).succeeds();
    second.process.terminate();
    let output = second.process.stdout();
    assert!(!output.contains("attache ask"), "an agent that isn't running here isn't offered: {output}");
    home.up(&[]).agent_is("local", "online");
}

#[test]
fn a_killed_up_leaves_no_adapter_behind() {
    let home = TestHome::new();
    let up = home.up(&[]);
    up.agent_is("local", "online");
    let children = process::children(up.process.id());
    assert_eq!(children.len(), 1, "the adapter is the only child");
    up.process.kill();
    until("the adapter to end", || (!process::exists(children[0])).then_some(()));
}

#[test]
fn a_port_in_use_is_explained() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let ran = TestHome::new().attache(&["up", "--listen", up.address()]).exits(1);
    assert!(ran.stderr.contains("an Attaché hub is already running at"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--listen 127.0.0.1:0"), "{}", ran.stderr);
    let ran = home.attache(&["hub", "--listen", "127.0.0.1:0"]).exits(1);
    assert!(ran.stderr.contains("another hub is using the folder"), "{}", ran.stderr);
}

#[test]
fn the_first_signal_finishes_the_task_and_the_second_stops_immediately() {
    let home = TestHome::new();
    let up = home.up(&[]);
    // A claim that hasn't started yet would be returned to the queue instead.
    let begun = home.path().join("begun");
    let run = up.create_run("local", &format!("touch '{}'; sleep 1; echo finished", begun.display()));
    until("the task to begin", || begun.exists().then_some(()));
    process::signal(up.process.id(), "INT");
    assert!(up.process.wait().success());
    let up = home.up(&[]);
    assert_eq!(up.run(&run)["status"], "completed");

    let begun = home.path().join("begun again");
    up.create_run("local", &format!("touch '{}'; sleep 600", begun.display()));
    until("the task to begin", || begun.exists().then_some(()));
    process::signal(up.process.id(), "INT");
    up.process.tells("stopping after");
    let asked = Instant::now();
    process::signal(up.process.id(), "INT");
    assert_eq!(up.process.wait().code(), Some(1));
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
}

#[test]
fn the_console_and_the_platform_share_the_port() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let login = http::send("GET", &format!("{}/login", hub.url), &[], b"").unwrap().expect(200);
    assert!(login.header("content-type").unwrap().starts_with("text/html"));
    let health = http::send("GET", &format!("{}/healthz", hub.url), &[], b"").unwrap().expect(200).json();
    assert_eq!(health["durability"], "power_loss");
    assert_eq!(http::send("GET", &format!("{}/api/v1/nothing", hub.url), &[], b"").unwrap().status, 404);
    assert_eq!(http::send("GET", &format!("{}/nothing", hub.url), &[], b"").unwrap().status, 404);
    assert!(hub.process.terminate().success());
}

#[test]
fn requests_during_shutdown_are_refused_and_not_executed_later() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let run = up.create_run("local", "touch begun; while [ ! -e go ]; do sleep 0.1; done; echo drained");
    until("the task to begin", || home.path().join("begun").exists().then_some(()));
    process::signal(up.process.id(), "INT");
    until("the hub to be closed", || {
        (http::send("GET", &format!("{}/readyz", up.url), &[], b"").unwrap().status == 503).then_some(())
    });
    let refused = up.post("/api/v1/task-runs", &json!({ "agent_id": "local", "input": { "text": "echo late" } }));
    assert_eq!(refused.expect(503).json()["error"]["code"], "draining");
    fs::write(home.path().join("go"), "").unwrap();
    assert!(up.process.wait().success(), "{}", up.process.stderr());

    let again = home.up(&[]);
    let runs = again.get("/api/v1/task-runs");
    let runs: Vec<_> = runs["task_runs"].as_array().unwrap().iter().map(|run| &run["task_run_id"]).collect();
    assert_eq!(runs, [run.as_str()]);
    assert_eq!(again.run(&run)["status"], "completed");
}

#[test]
fn a_device_that_is_stopped_is_offline_at_once() {
    let home = TestHome::new();
    let (hub, runtime) = home.hub_with_builder();
    hub.agent_is("builder", "online");
    assert!(runtime.terminate().success(), "{}", runtime.stderr());
    hub.agent_is("builder", "offline");
    let _runtime = home.runtime(&[]);
    hub.agent_is("builder", "online");
}

/// A user of this hub with a role, and the file with their key.
fn person(home: &TestHome, name: &str, role: &str) -> String {
    home.attache(&["users", "add", name, "--role", role]).succeeds();
    let file = home.path().join(format!("{name}.key")).to_str().unwrap().to_owned();
    home.attache(&["keys", "add", name, "--user", name, "--to-file", &file]).succeeds();
    file
}

fn bearer(file: &str) -> String {
    format!("Bearer {}", fs::read_to_string(file).unwrap().trim())
}

#[test]
fn other_users_cannot_reach_the_owner_key_through_the_local_shell() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let attack = format!("cat {}/hub/admin.key", home.a2a().display());
    let operator = person(&home, "ada", "operator");
    let admin = person(&home, "eve", "admin");
    for key in [&operator, &admin] {
        let refused = home.attache(&["ask", "local", &attack, "--key-file", key]).exits(4);
        assert_eq!(refused.stdout, "");
        assert!(refused.stderr.contains("is private to its owner"), "{}", refused.stderr);
        // Through every other route.
        let bearer = bearer(key);
        let headers = [("authorization", bearer.as_str()), ("a2a-version", "1.0")];
        let post = |path: &str, body: &serde_json::Value| {
            http::json("POST", &format!("{}{path}", up.url), &headers, Some(body)).unwrap()
        };
        let run = json!({ "agent_id": "local", "input": { "text": attack } });
        assert_eq!(post("/api/v1/task-runs", &run).status, 403);
        assert_eq!(post("/api/a2a/call", &json!({ "agent_type": "local", "task": attack })).status, 403);
        assert_eq!(post("/api/a2a/call", &json!({ "task": attack })).status, 403, "the default agent");
        let message = json!({ "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": attack }] });
        let sent = post("/a2a/local/message:send", &json!({ "message": message }));
        assert!(sent.status >= 400, "{}", sent.text());
        // Nobody else can open it or take ownership.
        for change in [json!({ "callers": "everyone" }), json!({ "owner": "eve" })] {
            let changed =
                http::json("PATCH", &format!("{}/api/v1/agent-accounts/local", up.url), &headers, Some(&change));
            assert_eq!(changed.unwrap().status, 403, "{change}");
        }
    }
    assert_eq!(up.get("/api/v1/task-runs")["task_runs"], json!([]), "nothing was ever run");
    // Its owner can still use it and may share it explicitly.
    assert_eq!(home.attache(&["ask", "local", "echo mine"]).succeeds().stdout, "mine\n");
    up.process.terminate();
    let up = home.up(&["--share-local"]);
    up.process.tells("is now shared");
    assert_eq!(home.attache(&["ask", "local", "echo ours", "--key-file", &operator]).succeeds().stdout, "ours\n");
    up.process.terminate();
    let up = home.up(&[]);
    up.process.tells("is now private to you");
    home.attache(&["ask", "local", "echo ours", "--key-file", &operator]).exits(4);
}

/// Sends a request about agents with the key in a file.
fn agents_by(hub: &TestHub, key: &str, method: &str, agent: &str, body: &Value) -> Value {
    let url = format!("{}/api/v1/agent-accounts{agent}", hub.url);
    let reply = http::json(method, &url, &[("authorization", &bearer(key))], Some(body)).unwrap();
    assert!(reply.status < 300, "{}", reply.text());
    reply.json()
}

/// The agent `local` belongs to bob: this machine gets an agent of its own.
#[track_caller]
fn has_own_agent_beside(home: &TestHome, up: &TestHub, bob: &str, of_bob: &Value) -> Value {
    up.process.tells("The agent `local` belongs to bob, so this machine's agent is `local-2`.");
    let output = up.process.says("Try it in another terminal");
    assert!(output.contains("attache ask local-2 "), "{output}");
    assert_eq!(home.attache(&["ask", "local-2", "echo hi"]).succeeds().stdout, "hi\n");
    let refused = home.attache(&["ask", "local-2", "echo hi", "--key-file", bob]).exits(4);
    assert!(refused.stderr.contains("is private to its owner"), "{}", refused.stderr);
    let call = up.post("/api/a2a/call", &json!({ "task": "echo default" })).expect(200).json();
    let run = call["call_id"].as_str().unwrap().replace("a2a-", "run_");
    assert_eq!(up.ended(&run)["agent_name"], "local-2", "the default agent");
    assert_eq!(up.get("/api/v1/agent-accounts/local"), *of_bob);
    up.get("/api/v1/agent-accounts/local-2")["agent_id"].clone()
}

#[test]
fn someone_elses_agent_named_local_is_left_alone() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let bob = person(&home, "bob", "operator");
    let mut of_bob = agents_by(&hub, &bob, "POST", "", &json!({ "name": "local" }));
    assert_eq!(of_bob["callers"], "everyone");
    hub.process.terminate();

    let up = home.up(&[]);
    let agent = has_own_agent_beside(&home, &up, &bob, &of_bob);
    of_bob = agents_by(&up, &bob, "PATCH", "/local", &json!({ "callers": "owner" }));
    up.process.terminate();

    // The next start finds the same agent, also if bob's is private.
    let up = home.up(&[]);
    assert_eq!(has_own_agent_beside(&home, &up, &bob, &of_bob), agent);
    assert_eq!(up.get("/api/v1/agent-accounts")["agent_accounts"].as_array().unwrap().len(), 2);
}

#[test]
fn the_name_of_an_archived_local_is_only_given_away_by_the_owner() {
    let home = TestHome::new();
    let up = home.up(&[]);
    up.agent_is("local", "online");
    let bob = person(&home, "bob", "operator");
    home.attache(&["agents", "remove", "local", "--yes"]).succeeds();
    let agents = format!("{}/api/v1/agent-accounts", up.url);
    let taken = http::json("POST", &agents, &[("authorization", &bearer(&bob))], Some(&json!({ "name": "local" })));
    assert_eq!(taken.unwrap().error_code(), "name_taken");
    let of_bob = up.post("/api/v1/agent-accounts", &json!({ "name": "local", "owner": "bob" })).expect(201).json();
    up.process.terminate();
    let up = home.up(&[]);
    has_own_agent_beside(&home, &up, &bob, &of_bob);
}

#[test]
fn runs_of_the_local_shell_are_visible_only_to_its_owner() {
    let home = TestHome::new();
    let up = home.up(&[]);
    up.agent_is("local", "online");
    let conversation = up.post("/api/v1/conversations", &json!({ "title": "Mine" })).expect(201).json();
    let conversation = conversation["conversation_id"].as_str().unwrap().to_owned();
    let task = "echo secret-of-the-owner | tee note.txt && echo note.txt >> \"$ATTACHE_ARTIFACTS\"";
    home.attache(&["ask", "local", task, "--conversation", &conversation]).succeeds();
    let run = up.get("/api/v1/task-runs?agent_id=local")["task_runs"][0].clone();
    let id = run["task_run_id"].as_str().unwrap();
    let workspace = run["workspace_id"].as_str().unwrap();
    let artifacts = up.get(&format!("/api/v1/workspaces/{workspace}/artifacts"));
    let artifact = artifacts["artifacts"][0]["artifact_id"].as_str().unwrap().to_owned();
    let long = up.create_run("local", "sleep 600");
    up.run_in(&long, &["running"]);
    // The built-in shell never asks for approval, so the test raises a request in its place.
    let device = home.profiles()["profiles"].as_object().unwrap().values().next().unwrap().clone();
    let token = device["runtime_token"].as_str().unwrap();
    let asked = json!({ "tool": "Bash", "input": { "command": "cat secret-of-the-owner" } });
    let asked = up.worker(token, "POST", &format!("/api/v1/task-runs/{long}/permission-requests"), &asked).expect(201);
    let permission = asked.json()["permission_request_id"].as_str().unwrap().to_owned();
    let allow = json!({ "approved": true, "scope": "once" });

    for role in ["operator", "admin"] {
        home.attache(&["users", "add", role, "--role", role]).succeeds();
        let file = home.path().join(format!("{role}.key"));
        let file = file.to_str().unwrap();
        home.attache(&["keys", "add", role, "--user", role, "--role", role, "--to-file", file]).succeeds();
        let bearer = format!("Bearer {}", std::fs::read_to_string(file).unwrap().trim());
        let headers = [("authorization", bearer.as_str())];
        let send = |method: &str, path: &str, body: Option<&Value>| {
            http::json(method, &format!("{}{path}", up.url), &headers, body).unwrap()
        };
        for path in [
            "/api/v1/task-runs".to_owned(),
            "/api/v1/task-runs?agent_id=local".to_owned(),
            "/api/v1/permission-requests".to_owned(),
            "/api/v1/permission-requests?state=pending".to_owned(),
        ] {
            let listed = send("GET", &path, None).expect(200).text();
            assert!(!listed.contains(id) && !listed.contains(&long), "{role} {path}: {listed}");
        }
        for path in [
            format!("/api/v1/task-runs/{id}"),
            format!("/api/v1/task-runs/{id}/events"),
            format!("/api/v1/conversations/{conversation}/messages"),
            format!("/api/v1/workspaces/{workspace}/artifacts"),
            format!("/api/v1/artifacts/{artifact}"),
            format!("/api/v1/permission-requests/{permission}"),
        ] {
            let refused = send("GET", &path, None);
            assert_eq!(refused.status, 404, "{role} {path}: {}", refused.text());
        }
        let decide = format!("/api/v1/permission-requests/{permission}/decision");
        for (path, body) in [
            (decide, allow.clone()),
            (format!("/api/v1/task-runs/{long}/cancel"), json!({})),
            (format!("/api/v1/task-runs/{long}/input"), json!({ "text": "go on" })),
            (format!("/api/v1/conversations/{conversation}/messages"), json!({ "text": "hello" })),
        ] {
            let refused = send("POST", &path, Some(&body));
            assert_eq!(refused.status, 404, "{role} {path}: {}", refused.text());
        }
        let seen = home.attache(&["runs", "--key-file", file]).succeeds();
        assert!(!seen.stdout.contains("secret-of-the-owner"), "{}", seen.stdout);
        assert!(!home.attache(&["approvals", "--key-file", file]).succeeds().stdout.contains("secret-of"));
    }
    assert_eq!(up.run(&long)["status"], "running");
    up.post(&format!("/api/v1/permission-requests/{permission}/decision"), &allow).expect(200);
    home.attache(&["runs", "cancel", &long]).succeeds();
    // Once shared explicitly, everyone sees what it does from then on.
    let shared = json!({ "callers": "everyone" });
    up.call("PATCH", "/api/v1/agent-accounts/local", Some(&shared)).expect(200);
    home.attache(&["ask", "local", "echo for-everyone"]).succeeds();
    let file = home.path().join("operator.key");
    let seen = home.attache(&["runs", "--key-file", file.to_str().unwrap()]).succeeds().stdout;
    assert!(seen.contains("for-everyone") && !seen.contains("secret-of-the-owner"), "{seen}");
}

#[test]
fn other_users_tasks_are_not_forwarded_to_the_local_shell() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let operator = person(&home, "ada", "operator");
    // An agent of the owner that everyone can call, and that could call `local` on the owner's behalf.
    up.add_agent("helper");
    let asked = |key: Option<&str>| {
        let mut args = vec!["ask", "helper", "work", "--no-wait"];
        args.extend(key.iter().flat_map(|key| ["--key-file", key]));
        home.attache(&args).succeeds();
        let device = up.attach(&up.pairing_code("helper"));
        let token = device["runtime_token"].as_str().unwrap().to_owned();
        let id = device["agent_id"].as_str().unwrap();
        let beat = json!({ "agent_id": id, "running": [] });
        up.worker(&token, "POST", "/api/v1/agent-runtimes/runtime/heartbeat", &beat).expect(200);
        let path = format!("/api/v1/agent-accounts/{id}/task-runs/pull?wait_ms=20000");
        let run = up.worker(&token, "POST", &path, &json!({})).expect(200).json()["task_run"].clone();
        let bearer = format!("Bearer {}", run["mcp"]["token"].as_str().unwrap());
        let call = json!({ "agent_id": "local", "input": { "text": "cat .a2a/hub/admin.key" } });
        let url = format!("{}/api/v1/task-runs", up.url);
        let reply = http::json("POST", &url, &[("authorization", &bearer)], Some(&call)).unwrap();
        let report = json!({ "epoch": run["epoch"], "output": { "text": "" } });
        let id = run["task_run_id"].as_str().unwrap();
        up.worker(&token, "POST", &format!("/api/v1/task-runs/{id}/complete"), &report).expect(200);
        reply
    };
    let refused = asked(Some(&operator));
    assert_eq!((refused.status, refused.error_code().as_str()), (403, "access_denied"), "{}", refused.text());
}

#[test]
fn an_agent_process_cannot_find_our_folders() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let seen = home.attache(&["ask", "local", "env"]).succeeds().stdout;
    assert!(seen.contains("ATTACHE_ARTIFACTS="), "{seen}");
    for line in seen.lines() {
        assert!(!line.contains("/.a2a") && !line.contains("/.AWCP"), "{line}");
    }
    up.process.terminate();
    fs::create_dir_all(home.a2a().join("work")).unwrap();
    std::os::unix::fs::symlink(home.a2a().join("work"), home.path().join("link")).unwrap();
    for folder in [".a2a", ".a2a/hub", ".a2a/work", "link"] {
        let refused = home.attache(&["up", "--listen", "127.0.0.1:0", "--cwd", folder]).exits(2);
        assert!(refused.stderr.contains("agents can't work in"), "{}", refused.stderr);
        home.attache(&["adapter", "shell", "--cwd", folder]).exits(2);
    }
    let refused = home.attache(&["adapter", "shell", "--pass-env", "A2A_HOME"]).exits(2);
    assert!(refused.stderr.contains("leads to this machine's keys"), "{}", refused.stderr);
    let elsewhere = home.path().join("data");
    let args = ["up", "--listen", "127.0.0.1:0", "--data", "data", "--cwd", "data"];
    fs::create_dir(&elsewhere).unwrap();
    home.attache(&args).exits(2);
}

#[test]
fn a_task_inherits_no_open_files_of_up() {
    let home = TestHome::new();
    fs::write(home.path().join("secret"), "a word of whoever started it\n").unwrap();
    let mut command = home.program("sh");
    let line = r#"exec "$0" up --listen 127.0.0.1:0 --ready-file inherited.json 9<secret"#;
    command.args(["-c", line, env!("CARGO_BIN_EXE_attache")]);
    let up = TestProcess::spawn("up", &mut command, &home.logs());
    until("the hub to be ready", || {
        fs::read_to_string(home.path().join("inherited.json")).ok().filter(|text| text.contains("url"))
    });
    let ran =
        home.attache(&["ask", "local", "cat <&9 || echo nothing is open; ls /proc/self/fd | tr '\\n' ' '"]).succeeds();
    assert!(ran.stdout.contains("nothing is open"), "{} {}", ran.stdout, ran.stderr);
    assert!(!ran.stdout.contains("a word of whoever"), "{}", ran.stdout);
    assert!(up.terminate().success());
}
