//! The REST API from the command line: every list and its JSON shape, keys and roles, artifacts and the audit log.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{TestHome, http};

/// The names of an object's members, in order.
fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn agents_are_added_shown_and_removed() {
    let home = TestHome::new();
    let _hub = home.hub(&[]);
    let id = home.attache(&["agents", "add", "builder", "--description", "Builds"]).succeeds().stdout;
    assert!(id.starts_with("agt_"), "{id}");
    let shown = home.attache(&["agents", "show", "builder", "--json"]).succeeds().json();
    assert_eq!(shown["agent_id"], id.trim());
    assert_eq!(
        names(&shown),
        [
            "agent_id",
            "name",
            "status",
            "description",
            "instructions",
            "skills",
            "a2a",
            "approvals",
            "owner_id",
            "settings_by_owner",
            "callers",
            "run_timeout_ms",
            "on_limit",
            "confirm_approvals",
            "runtime",
            "created_at",
            "archived_at"
        ]
    );
    let ran = home.attache(&["agents", "add", "builder"]).exits(1);
    assert!(ran.stderr.contains("already exists"), "{}", ran.stderr);
    let table = home.attache(&["agents"]).succeeds().stdout;
    assert!(table.starts_with("NAME     STATUS   DEVICE      LAST SEEN  ID"), "{table}");
    let removed = home.attache(&["agents", "remove", "builder", "--json"]).succeeds().json();
    assert_eq!(removed, json!({"archived": "builder"}));
    home.attache(&["agents", "show", "nobody"]).exits(3);
}

#[test]
fn runs_are_listed_filtered_shown_and_cancelled() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let first = hub.create_run("builder", "first task");
    let second = hub.create_run("builder", "second task");
    let cancelled = home.attache(&["runs", "cancel", &first, "--reason", "enough", "--json"]).succeeds().json();
    assert_eq!(cancelled["status"], "cancelled");
    let pending = home.attache(&["runs", "list", "--status", "pending", "--json"]).succeeds().json();
    assert_eq!(names(&pending), ["task_runs", "next_cursor"]);
    assert_eq!(pending["task_runs"].as_array().unwrap().len(), 1);
    assert_eq!(pending["task_runs"][0]["task_run_id"], second.as_str());
    let page = home.attache(&["runs", "list", "--limit", "1", "--json"]).succeeds().json();
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = home.attache(&["runs", "list", "--cursor", cursor, "--json"]).succeeds().json();
    assert_eq!(rest["task_runs"][0]["task_run_id"], first.as_str());
    let shown = home.attache(&["runs", "show", &second]).succeeds().stdout;
    assert!(shown.contains("second task"), "{shown}");
    home.attache(&["runs", "show", "run_00000000000000000000000000000000"]).exits(3);
}

#[test]
fn keys_have_roles_and_are_secret() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let file = home.path().join("viewer.key");
    home.attache(&["keys", "add", "look", "--role", "viewer", "--to-file", file.to_str().unwrap()]).succeeds();
    let key = fs::read_to_string(&file).unwrap();
    assert!(key.starts_with("ak_"), "not a key");
    let with = |args: &[&str]| {
        let mut all = args.to_vec();
        all.extend(["--key-file", file.to_str().unwrap()]);
        home.attache(&all)
    };
    with(&["agents"]).succeeds();
    let denied = with(&["ask", "builder", "true"]).exits(4);
    assert!(!denied.stderr.contains(key.trim()), "the error shows the key");
    let list = home.attache(&["keys", "--json"]).succeeds();
    assert!(!list.stdout.contains(key.trim()), "the list shows the key");
    let list = list.json();
    let id = list["api_keys"].as_array().unwrap().iter().find(|key| key["name"] == "look").unwrap()["key_id"].clone();
    home.attache(&["keys", "revoke", id.as_str().unwrap()]).succeeds();
    with(&["agents"]).exits(4);
    // The environment variable works too.
    let mut command = home.command(&["agents", "--json"]);
    command.env("ATTACHE_URL", &hub.url).env("ATTACHE_KEY", &hub.key);
    crate::harness::FinishedProcess::of(&mut command, &home.logs()).succeeds();
    let mut command = home.command(&["agents"]);
    let ran = crate::harness::FinishedProcess::of(command.env("ATTACHE_KEY", "ak_wrong"), &home.logs()).exits(4);
    assert!(!ran.stderr.contains("ak_wrong"), "{}", ran.stderr);
}

#[test]
fn artifacts_are_uploaded_and_downloaded_unchanged() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    // Those of runs aren't listed, and that is said.
    let none = home.attache(&["conversations"]).succeeds().stderr;
    assert!(none.contains("created explicitly") && none.contains("`attache runs`"), "{none}");
    let conversation = home.attache(&["conversations", "add", "--title", "Files"]).succeeds().stdout.trim().to_owned();
    let bytes: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
    let file = home.path().join("data.bin");
    fs::write(&file, &bytes).unwrap();
    let path = file.to_str().unwrap();
    let artifact = home.attache(&["artifacts", "put", &conversation, path, "--json"]).succeeds().json();
    assert_eq!(artifact["size"], bytes.len());
    assert_eq!(artifact["name"], "data.bin");
    let id = artifact["artifact_id"].as_str().unwrap();
    let down = home.path().join("down.bin");
    home.attache(&["artifacts", "get", id, "-o", down.to_str().unwrap()]).succeeds();
    assert!(fs::read(&down).unwrap() == bytes, "the file changed on the way");
    let list = home.attache(&["artifacts", "list", &conversation, "--json"]).succeeds().json();
    assert_eq!(list["artifacts"].as_array().unwrap().len(), 1);
    home.attache(&["artifacts", "get", "art_00000000000000000000000000000000"]).exits(3);
    // A part of an id is enough, as everywhere.
    let listed = |place: &str| home.attache(&["artifacts", "list", place, "--json"]).succeeds().json();
    let part = conversation.strip_prefix("cnv_").unwrap();
    for place in [&conversation[..20], &format!("wsp_{}", &part[..16]), &part[part.len() - 8..], "Files"] {
        assert_eq!(listed(place)["artifacts"][0]["artifact_id"], id, "{place}");
    }
    hub.add_agent("builder");
    let run = hub.create_run("builder", "x");
    let workspace = hub.run(&run)["workspace_id"].as_str().unwrap().to_owned();
    let added = home.attache(&["artifacts", "put", "last", path, "--json"]).succeeds().json();
    assert_eq!(added["workspace_id"], workspace.as_str());
    for place in ["last", &run[run.len() - 8..], &run[..run.len() - 1]] {
        assert_eq!(listed(place)["artifacts"][0]["artifact_id"], added["artifact_id"], "{place}");
    }
    for place in ["run_00000000000000000000000000000000", "00000000", "no such title"] {
        let missing = home.attache(&["artifacts", "list", place]).exits(3);
        assert!(missing.stderr.contains("No such run") || missing.stderr.contains("not found"), "{}", missing.stderr);
    }
    home.attache(&["artifacts", "list", "agt_00000000"]).exits(2);
    let list = home.attache(&["conversations", "--json"]).succeeds().json();
    assert_eq!(list["conversations"][0]["title"], "Files");
    drop(hub);
}

#[test]
fn a_conversation_keeps_its_messages() {
    let home = TestHome::new();
    let _up = home.up(&[]);
    let conversation = home.attache(&["conversations", "add"]).succeeds().stdout.trim().to_owned();
    home.attache(&["ask", "local", "echo hello", "--conversation", &conversation]).succeeds();
    let messages = home.attache(&["conversations", "show", &conversation, "--json"]).succeeds().json();
    let said: Vec<_> = messages["messages"].as_array().unwrap().iter().map(|message| message["text"].clone()).collect();
    assert_eq!(said.len(), 2, "{messages}");
    assert!(said.contains(&json!("echo hello")), "{messages}");
    let shown = home.attache(&["conversations", "show", &conversation]).succeeds().stdout;
    assert!(shown.contains("echo hello\n"), "{shown}");
}

#[test]
fn the_log_is_listed_exported_and_verified() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    for number in 0..250 {
        hub.create_run("builder", &format!("task {number}"));
    }
    let verdict = home.attache(&["audit", "verify", "--json"]).succeeds().json();
    assert_eq!(names(&verdict), ["ok", "rows", "withheld", "first", "head", "hash", "broken_at", "start_missing"]);
    assert_eq!(verdict["ok"], true);
    let rows = verdict["rows"].as_u64().unwrap();
    assert!(rows > 250, "{rows}");
    let newest = home.attache(&["audit", "list", "--limit", "3", "--json"]).succeeds().json();
    assert_eq!(newest["events"].as_array().unwrap().len(), 3);
    assert_eq!(newest["head"], verdict["head"]);

    let export = home.attache(&["audit", "export"]).succeeds().stdout;
    assert_eq!(export.lines().count() as u64, rows);
    let file = home.path().join("audit.jsonl");
    fs::write(&file, &export).unwrap();
    let path = file.to_str().unwrap();
    let ran = home.attache(&["audit", "verify", "--file", path, "--json"]).succeeds().json();
    assert_eq!(ran, verdict);
    let said = home.attache(&["audit", "verify", "--file", path]).succeeds();
    assert!(said.stdout.starts_with(&format!("intact: {rows} rows from 1 to {rows}, hash ")), "{}", said.stdout);
    assert_eq!(said.stderr, "");
    let late: String = export.lines().skip(10).map(|line| format!("{line}\n")).collect();
    fs::write(&file, late).unwrap();
    let said = home.attache(&["audit", "verify", "--file", path]).succeeds();
    assert!(
        said.stdout.starts_with(&format!("intact: {} rows from 12 to {rows}, hash ", rows - 11)),
        "{}",
        said.stdout
    );
    assert!(said.stderr.contains("The file starts at row 11; earlier rows are missing"), "{}", said.stderr);
    fs::write(&file, "").unwrap();
    let ran = home.attache(&["audit", "verify", "--file", path]).exits(2);
    assert!(ran.stderr.contains("is empty; there is nothing to verify"), "{}", ran.stderr);
    fs::write(&file, export.replacen("builder", "bui1der", 1)).unwrap();
    let ran = home.attache(&["audit", "verify", "--file", path, "--json"]).exits(1);
    assert_eq!(ran.json()["ok"], false);
}

#[test]
fn a_login_link_opens_the_console_once() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let link = home.attache(&["login", "--json"]).succeeds().json();
    assert_eq!(names(&link), ["url", "expires_at", "user_id", "user_name", "role"]);
    assert_eq!([&link["user_name"], &link["role"]], ["owner", "owner"]);
    let url = link["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("{}/login?token=", hub.url)), "{url}");
    let page = http::send("GET", url, &[], b"").unwrap();
    assert!(page.status < 400, "{}", page.text());
}

#[test]
fn doctor_does_not_ask_a_paired_device_for_a_hub_of_its_own() {
    let (platform, device) = (TestHome::new(), TestHome::new());
    let hub = platform.hub(&[]);
    hub.add_agent("builder");
    device.attache(&["runtime", "pair", &hub.pairing_code("builder"), "--api-base", &hub.url]).succeeds();
    let only = device.attache(&["doctor", "sandbox", "--json"]).succeeds().json();
    assert_eq!((only["findings"].as_array().unwrap().len(), &only["findings"][0]["check"]), (1, &json!("sandbox")));
    let report = device.attache(&["doctor", "--json"]).succeeds().json();
    let findings = report["findings"].as_array().unwrap();
    let state = |check: &str| findings.iter().find(|finding| finding["check"] == check).unwrap()["state"].clone();
    assert_eq!([state("hub"), state("profile_hub")], ["ok", "ok"], "{report}");
    // A device whose hub is unreachable has a problem.
    hub.process.kill();
    device.attache(&["doctor"]).exits(1);
}

#[test]
fn doctor_tells_a_healthy_machine_from_a_broken_one() {
    let home = TestHome::new();
    let sick = home.attache(&["doctor", "--json", "--hub", "http://127.0.0.1:9"]).exits(1).json();
    let state = |report: &Value, check: &str| {
        let findings = report["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["check"] == check).map(|finding| finding["state"].clone())
    };
    assert_eq!(state(&sick, "hub"), Some(json!("problem")));
    let up = home.up(&[]);
    up.agent_is("local", "online");
    let ran = home.attache(&["doctor", "--json"]).succeeds();
    let token = home.profiles()["profiles"].as_object().unwrap().values().next().unwrap()["runtime_token"].clone();
    for secret in [up.key.as_str(), token.as_str().unwrap()] {
        assert!(!ran.stdout.contains(secret) && !ran.stderr.contains(secret), "doctor shows a secret");
    }
    let healthy = ran.json();
    for check in ["home", "hub", "durability", "key", "profile"] {
        assert_eq!(state(&healthy, check), Some(json!("ok")), "{check}: {healthy}");
    }
}

#[test]
fn a_list_accepts_its_options_without_the_subcommand() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let (first, second) = (hub.create_run("builder", "first"), hub.create_run("builder", "second"));
    for (named, short) in [
        (
            &["runs", "list", "--agent", "builder", "--limit", "1"][..],
            &["runs", "--agent", "builder", "--limit", "1"][..],
        ),
        (&["approvals", "list", "--agent", "builder"], &["approvals", "--agent", "builder"]),
        (&["approvals", "grants", "list", "--limit", "2"], &["approvals", "grants", "--limit", "2"]),
        (&["agents", "list", "--limit", "1"], &["agents", "--limit", "1"]),
        (&["audit", "list", "--limit", "2"], &["audit", "--limit", "2"]),
        (&["keys", "list", "--limit", "1"], &["keys", "--limit", "1"]),
        (&["deliveries", "list", "--run", &first], &["deliveries", "--run", &first]),
    ] {
        let listed = |args: &[&str]| {
            let mut listed = home.attache(&[args, &["--json"]].concat()).succeeds().json();
            // The head of the log is signed for every response, so it differs.
            if let Some(checkpoint) = listed.get_mut("checkpoint").and_then(Value::as_object_mut) {
                assert!(checkpoint.remove("at").is_some() && checkpoint.remove("signature").is_some());
            }
            listed
        };
        assert_eq!(listed(short), listed(named), "{short:?}");
    }
    let newest = home.attache(&["runs", "--limit", "1", "--json"]).succeeds().json();
    assert_eq!(newest["task_runs"].as_array().unwrap().len(), 1);
    assert_eq!(newest["task_runs"][0]["task_run_id"], second.as_str());
    // It is ambiguous which of the two is meant.
    home.attache(&["runs", "--limit", "1", "show", &first]).exits(2);
}

/// A page is limited by its number of rows, not by the size of one row.
#[test]
fn long_tasks_and_results_do_not_shorten_a_page() {
    let home = TestHome::new();
    let (hub, _runtime) = home.hub_with_builder();
    for _ in 0..3 {
        hub.ask("builder", "seq 1 200000");
    }
    hub.add_agent("idle");
    for _ in 0..3 {
        hub.create_run("idle", &format!("begins here {}", "x".repeat(700_000)));
    }
    hub.ask("builder", "echo short");

    let list = home.attache(&["runs", "--limit", "50", "--json"]).succeeds().json();
    let runs = list["task_runs"].as_array().unwrap();
    assert_eq!((runs.len(), &list["next_cursor"]), (7, &Value::Null));
    assert_eq!(runs[0]["task_result"]["text"], "short\n");
    assert_eq!(runs[1]["input"]["truncated"], true);
    assert!(runs[1]["input"]["text"].as_str().unwrap().starts_with("begins here xxx"));
    let result = &runs[6]["task_result"];
    assert_eq!(result["truncated"], true);
    assert_eq!(result["full_output"]["bytes"], 1_288_895);
    assert!(result["text"].as_str().unwrap().starts_with("1\n2\n3\n"));
    let table = home.attache(&["runs", "--limit", "50"]).succeeds();
    assert_eq!(table.stdout.lines().count(), 8, "{}", table.stdout);

    // A single run has the complete text, and a search finds text that the list doesn't show, in the first 16 KiB of a task.
    let whole = hub.run(runs[6]["task_run_id"].as_str().unwrap());
    assert_eq!(whole["task_result"]["truncated"], Value::Null);
    assert!(whole["task_result"]["text"].as_str().unwrap().len() > 1_000_000);
    hub.create_run("idle", &format!("{} far behind {} its very end", "x".repeat(15_000), "x".repeat(700_000)));
    let found = |text: &str| {
        let found = home.attache(&["runs", "--text", text, "--json"]).succeeds().json();
        found["task_runs"].as_array().unwrap().len()
    };
    assert_eq!((found("far behind"), found("very end")), (1, 0));
}

#[test]
fn a_run_shows_its_failure_code_and_its_question() {
    let home = TestHome::new();
    let (hub, _runtime) = home.hub_with_builder();
    let failed = hub.ask("builder", "exit 7");
    let shown = home.attache(&["runs", "show", failed["task_run_id"].as_str().unwrap()]).succeeds().stdout;
    let code = failed["task_result"]["code"].as_str().unwrap();
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["code", code])), "{shown}");

    let agent = hub.add_agent("asker");
    let token = hub.attach(&hub.pairing_code("asker"))["runtime_token"].as_str().unwrap().to_owned();
    let run = hub.create_run("asker", "paint it");
    hub.worker(&token, "POST", &format!("/api/v1/agent-accounts/{agent}/task-runs/pull"), &json!({})).expect(200);
    let question = json!({"epoch": 1, "prompt": "Which colour?", "request_id": "q1"});
    hub.worker(&token, "POST", &format!("/api/v1/task-runs/{run}/input-requests"), &question).expect(201);
    let shown = home.attache(&["runs", "show", &run]).succeeds();
    assert!(shown.stdout.contains("Which colour?"), "{}", shown.stdout);
}

#[test]
fn filters_and_answers_say_what_is_wrong_in_the_words_of_the_command() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    assert!(home.attache(&["runs"]).succeeds().stderr.starts_with("No runs found. Start one"));
    let run = hub.create_run("builder", "x");
    assert_eq!(home.attache(&["runs", "--text", "nowhere"]).succeeds().stderr, "No matching runs.\n");
    let wrong = home.attache(&["runs", "--min-cost", "abc"]).exits(2).stderr;
    assert!(wrong.contains("--min-cost <USD>") && !wrong.contains("min_cost_usd"), "{wrong}");
    let early = home.attache(&["runs", "answer", &run, "1"]).exits(1).stderr;
    assert!(early.contains("isn't working yet") && !early.contains("runs input"), "{early}");
}

#[test]
fn a_queued_run_shows_its_place_in_the_queue() {
    let home = TestHome::new();
    let (hub, _runtime) = home.hub_with_builder();
    let go = home.path().join("go");
    let first = hub.create_run("builder", &format!("until [ -e {} ]; do sleep 0.1; done", go.display()));
    hub.run_in(&first, &["running"]);
    let second = home.spawn("second", &["ask", "builder", "echo done"]);
    let said = second.tells("builder is busy with");
    assert!(said.contains(&format!("builder is busy with {first}; this run is next in the queue")), "{said}");
    let third = hub.create_run("builder", "echo third");
    let shown = home.attache(&["runs", "show", &third]).succeeds();
    assert!(shown.stderr.contains(&format!("busy with {first}; this run is behind 1 other run")), "{}", shown.stderr);
    std::fs::write(&go, "").unwrap();
    assert!(second.wait().success());
    assert_eq!(second.stdout(), "done\n");
}

#[test]
fn errors_come_with_hints() {
    let home = TestHome::new();
    let _hub = home.hub(&[]);
    for args in [&["login", "--user", "nosuch"][..], &["quotas", "set", "--user", "nosuch", "--calls", "3"]] {
        let ran = home.attache(args).exits(3);
        assert!(ran.stderr.contains("`attache users`"), "{}", ran.stderr);
    }
    let file = home.path().join("b1.tar");
    home.attache(&["backup", file.to_str().unwrap()]).succeeds();
    let again = home.attache(&["backup", file.to_str().unwrap()]).exits(1);
    assert!(again.stderr.contains("b1.tar already exists") && !again.stderr.contains("os error"), "{}", again.stderr);
}
