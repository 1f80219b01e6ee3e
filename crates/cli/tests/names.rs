//! Display names instead of ids for callers, deciders, devices and grants; ids by a part and `last`.

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub};

/// A device called `workbench` that claimed an agent's next run. Returns its token, the run and its epoch.
fn claim(hub: &TestHub, agent: &str) -> (String, String, Value) {
    let code = hub.pairing_code(agent);
    let url = format!("{}/api/v1/agent-runtimes/runtime/attach-via-pairing", hub.url);
    let body = json!({ "pairing_token": code, "device_name": "workbench" });
    let device = crate::harness::http::json("POST", &url, &[], Some(&body)).unwrap().expect(200).json();
    assert_eq!(device["agent_name"], agent);
    let token = device["runtime_token"].as_str().unwrap().to_owned();
    let id = device["agent_id"].as_str().unwrap();
    let beat = json!({ "agent_id": id, "running": [] });
    hub.worker(&token, "POST", "/api/v1/agent-runtimes/runtime/heartbeat", &beat).expect(200);
    let path = format!("/api/v1/agent-accounts/{id}/task-runs/pull?wait_ms=20000");
    let run = hub.worker(&token, "POST", &path, &json!({})).expect(200).json()["task_run"].clone();
    (token, run["task_run_id"].as_str().unwrap().to_owned(), run["epoch"].clone())
}

#[test]
fn people_devices_and_grants_are_shown_by_name() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    home.attache(&["users", "add", "ada"]).succeeds();
    let key = home.path().join("ada.key").to_str().unwrap().to_owned();
    home.attache(&["keys", "add", "ada", "--user", "ada", "--to-file", &key]).succeeds();
    home.attache(&["ask", "builder", "publish", "--no-wait", "--key-file", &key]).succeeds();
    let (token, run, epoch) = claim(&hub, "builder");
    let ask = json!({ "epoch": epoch, "tool": "Bash", "input": { "command": "cargo publish" } });
    hub.worker(&token, "POST", &format!("/api/v1/task-runs/{run}/permission-requests"), &ask).expect(201);
    home.attache(&["approvals", "show", "last"]).succeeds();
    home.attache(&["approvals", "approve", "last", "--scope", "run"]).succeeds();

    let row = |shown: &str, name: &str| {
        shown.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {shown}")).to_owned()
    };
    let shown = home.attache(&["runs", "show", "last"]).succeeds().stdout;
    assert!(row(&shown, "created").ends_with("by ada"), "{shown}");
    assert!(row(&shown, "device").contains("workbench"), "{shown}");
    assert!(home.attache(&["runs"]).succeeds().stdout.contains(" ada "));
    let shown = home.attache(&["approvals", "show", "last"]).succeeds().stdout;
    assert!(row(&shown, "decided").contains("by owner"), "{shown}");
    assert!(row(&shown, "device").contains("workbench"), "{shown}");
    let grants = home.attache(&["approvals", "grants"]).succeeds().stdout;
    assert!(grants.contains("exactly Bash: cargo publish") && grants.contains(" owner "), "{grants}");
    assert!(grants.contains(" builder "), "{grants}");
    let devices = home.attache(&["runtimes"]).succeeds().stdout;
    let device = devices.lines().nth(1).unwrap();
    assert!(device.starts_with("workbench") && device.contains(" builder "), "{devices}");
    let log = home.attache(&["audit"]).succeeds().stdout;
    assert!(log.lines().any(|line| line.contains("task.created") && line.contains(" ada ")), "{log}");

    // A part of an id works as long as it is unique.
    let short = &run[run.len() - 8..];
    for part in [short.to_owned(), format!("run_…{short}"), run[..run.len() - 3].to_owned()] {
        let shown = home.attache(&["runs", "show", &part, "--json"]).succeeds().json();
        assert_eq!(shown["task_run_id"], run.as_str(), "{part}");
    }
    home.attache(&["ask", "builder", "another", "--no-wait"]).succeeds();
    let several = home.attache(&["runs", "show", "run_"]).exits(2);
    assert!(several.stderr.contains("is ambiguous"), "{}", several.stderr);
    home.attache(&["runs", "show", "ffffffffff"]).exits(3);
    let revoked = home.attache(&["runtimes", "revoke", "last"]).succeeds().stderr;
    assert!(revoked.contains("Disconnected workbench (rtm_"), "{revoked}");
}

#[test]
fn keys_sessions_and_conversations_are_found_by_name_partial_id_or_last() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let key = |name: &str| home.attache(&["keys", "add", name, "--json"]).succeeds().json()["key"]["key_id"].clone();
    let (ci, other) = (key("ci"), key("other"));
    let revoked = |id: &Value| {
        let list = home.attache(&["keys", "--json"]).succeeds().json();
        let keys = list["api_keys"].as_array().unwrap().clone();
        !keys.iter().find(|key| key["key_id"] == *id).unwrap()["revoked_at"].is_null()
    };
    home.attache(&["keys", "revoke", "nobody"]).exits(3);
    home.attache(&["keys", "revoke", "ci"]).succeeds();
    assert_eq!([revoked(&ci), revoked(&other)], [true, false]);
    let id = other.as_str().unwrap();
    home.attache(&["keys", "revoke", &id[id.len() - 8..]]).succeeds();
    assert!(revoked(&other));
    // A name is free again once its key is revoked; an ambiguous name is refused.
    key("twin");
    key("twin");
    assert!(home.attache(&["keys", "revoke", "twin"]).exits(2).stderr.contains("is ambiguous"));

    let begin = |title: &str| home.attache(&["conversations", "add", "--title", title]).succeeds().stdout;
    let (first, second) = (begin("Release 2"), begin("Release 3"));
    hub.add_agent("builder");
    // The newest conversation is one that was added, or that of the newest run.
    home.attache(&["ask", "builder", "sign it", "--no-wait", "--conversation", "last"]).succeeds();
    home.attache(&["ask", "builder", "pack it", "--no-wait", "--conversation", "Release 2"]).succeeds();
    let end = &first.trim()[first.trim().len() - 8..];
    for (named, id) in [("Release 2", &first), (end, &first), ("last", &first), ("Release 3", &second)] {
        let runs = home.attache(&["runs", "--conversation", named, "--json"]).succeeds().json();
        assert_eq!(runs["task_runs"].as_array().unwrap().len(), 1, "{named}: {runs}");
        assert_eq!(runs["task_runs"][0]["conversation_id"], id.trim(), "{named}");
    }
    assert!(home.attache(&["conversations", "show", "Release 2"]).succeeds().stdout.contains("pack it"));

    let link = home.attache(&["login", "--json"]).succeeds().json()["url"].as_str().unwrap().to_owned();
    let token = link.split_once("token=").unwrap().1;
    let form = format!("token={token}");
    let headers = [("content-type", "application/x-www-form-urlencoded"), ("origin", hub.url.as_str())];
    crate::harness::http::send("POST", &format!("{}/login", hub.url), &headers, form.as_bytes()).unwrap();
    let shown = home.attache(&["sessions"]).succeeds().stdout;
    assert!(shown.lines().nth(1).unwrap().contains(" owner "), "{shown}");
    home.attache(&["sessions", "end", "last"]).succeeds();
    assert!(home.attache(&["sessions"]).succeeds().stdout.contains(" ended "));
}

#[test]
fn a_device_that_shows_a_code_is_confirmed_from_the_command_line() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let url = format!("{}/api/v1/agent-runtimes/runtime/pairing-requests", hub.url);
    let ticket = |name: &str| {
        let body = json!({ "device_name": name });
        crate::harness::http::json("POST", &url, &[], Some(&body)).unwrap().json()
    };
    let first = ticket("laptop");
    let code = first["pairing_code"].as_str().unwrap();
    let output = home.attache(&["runtimes", "confirm", code, "--agent", "builder"]).succeeds().stderr;
    assert!(output.contains("laptop is paired with builder"), "{output}");
    let poll = json!({ "poll_token": first["poll_token"] });
    let joined = crate::harness::http::json("POST", &format!("{url}/poll"), &[], Some(&poll)).unwrap().expect(200);
    assert_eq!(joined.json()["agent_name"], "builder");
    // The device that is paired now loses the agent.
    let third = ticket("desktop");
    let noted = home.attache(&["agents", "code", "builder"]).succeeds();
    assert!(noted.stderr.contains("This replaces laptop ("), "{}", noted.stderr);
    let code = third["pairing_code"].as_str().unwrap();
    let output = home.attache(&["runtimes", "confirm", code, "--agent", "builder", "--yes"]).succeeds().stderr;
    assert!(output.contains("This replaces laptop (") && output.contains("desktop is paired"), "{output}");
    let second = ticket("stranger");
    home.attache(&["runtimes", "reject", second["pairing_code"].as_str().unwrap()]).succeeds();
    let poll = json!({ "poll_token": second["poll_token"] });
    let turned = crate::harness::http::json("POST", &format!("{url}/poll"), &[], Some(&poll)).unwrap();
    assert_eq!(turned.error_code(), "pairing_rejected");
}
