//! `attache runtime pair` in both directions, and the resulting profile.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use serde_json::json;

use crate::harness::{FinishedProcess, TestHome, TestProcess, until};

#[test]
fn a_code_from_the_hub_pairs_a_device() {
    let (there, here) = (TestHome::new(), TestHome::new());
    let hub = there.hub(&[]);
    let agent = hub.add_agent("builder");
    let code = there.attache(&["agents", "code", "builder"]).succeeds().stdout.trim().to_owned();
    let args = ["runtime", "pair", &code, "--api-base", &hub.url, "--device-name", "laptop"];
    let ran = here.attache(&args).succeeds();
    assert!(ran.stderr.contains("attache runtime start"), "{}", ran.stderr);
    let mode = fs::metadata(here.profile_file()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let file = here.profiles();
    let key = file["active_profile"].as_str().unwrap();
    assert!(key.starts_with(&format!("{agent}/rtm_")), "{key}");
    assert_eq!(file["profiles"][key]["api_base"], format!("{}/api/v1", hub.url));
    assert_eq!(file["profiles"][key]["local_executor"]["type"], "shell");

    // A code works only once.
    let ran = here.attache(&args).exits(3);
    assert!(ran.stderr.contains("work once"), "{}", ran.stderr);

    let _runtime = here.runtime(&[]);
    hub.agent_is("builder", "online");
    assert_eq!(there.attache(&["ask", "builder", "echo there"]).succeeds().stdout, "there\n");
    let runtimes = there.attache(&["runtimes", "--json"]).succeeds().json();
    assert_eq!(runtimes["agent_runtimes"][0]["device_name"], "laptop");

    let token = file["profiles"][key]["runtime_token"].as_str().unwrap();
    let status = here.attache(&["runtime", "status", "--json"]).succeeds();
    assert!(!status.stdout.contains(token), "status shows the token");
    let status = status.json();
    assert_eq!(status["profile"], key);
    assert_eq!(
        json!([status["active"], status["running"], status["online"], status["hub_reachable"]]),
        json!([true, true, true, true])
    );
}

#[test]
fn a_code_on_the_device_is_confirmed_by_a_person() {
    let (there, here) = (TestHome::new(), TestHome::new());
    let hub = there.hub(&[]);
    hub.add_agent("builder");
    let pairing = here.spawn("pair", &["runtime", "pair", "--api-base", &hub.url, "--device-name", "kitchen"]);
    let messages = pairing.tells("Confirm: ");
    let code = messages.lines().find_map(|line| line.strip_prefix("Code:    ")).unwrap().to_owned();
    assert!(!messages.contains('█'), "no QR code off a terminal: {messages}");
    let url = messages.lines().find_map(|line| line.strip_prefix("Confirm: ")).unwrap();
    assert!(url.starts_with(&hub.url), "{url}");

    let path = format!("/api/v1/pairing-requests/{code}");
    assert_eq!(hub.get(&path)["device_name"], "kitchen");
    let reply = hub.post(&format!("{path}/decision"), &json!({ "agent_id": "builder" }));
    assert!((200..300).contains(&reply.status), "{}", reply.text());
    assert!(pairing.wait().success());
    let _runtime = here.runtime(&[]);
    hub.agent_is("builder", "online");
}

#[test]
fn a_rejected_device_exits_with_4() {
    let (there, here) = (TestHome::new(), TestHome::new());
    let hub = there.hub(&[]);
    let pairing = here.spawn("pair", &["runtime", "pair", "--api-base", &hub.url]);
    let messages = pairing.tells("Confirm: ");
    let code = messages.lines().find_map(|line| line.strip_prefix("Code:    ")).unwrap();
    hub.post(&format!("/api/v1/pairing-requests/{code}/decision"), &json!({ "agent_id": null }));
    assert_eq!(pairing.wait().code(), Some(4));
    assert!(!here.profile_file().exists());
}

#[test]
fn a_replaced_device_exits_with_4_and_a_message() {
    let (there, old, new) = (TestHome::new(), TestHome::new(), TestHome::new());
    let hub = there.hub(&[]);
    let agent = hub.add_agent("builder");
    let pair = |home: &TestHome| {
        home.attache(&["runtime", "pair", &hub.pairing_code("builder"), "--api-base", &hub.url]).succeeds()
    };
    pair(&old);
    let first = old.runtime(&[]);
    pair(&new);
    assert_eq!(first.wait().code(), Some(4));
    assert!(first.stderr().contains("This device was replaced"), "{}", first.stderr());
    let _second = new.runtime(&[]);
    hub.agent_is("builder", "online");
    assert_eq!(hub.get("/api/v1/agent-accounts/builder")["agent_id"], agent);
}

#[test]
fn a_stolen_profile_is_refused_after_a_rotation_and_reported() {
    let (there, here, thief) = (TestHome::new(), TestHome::new(), TestHome::new());
    let hub = there.hub(&["--token-rotation-ms", "100", "--token-overlap-ms", "500"]);
    hub.add_agent("builder");
    let pair = ["runtime", "pair", &hub.pairing_code("builder"), "--api-base", &hub.url, "--device-name", "laptop"];
    here.attache(&pair).succeeds();
    let token = |home: &TestHome| {
        let file = home.profiles();
        let key = file["active_profile"].as_str().unwrap().to_owned();
        file["profiles"][key]["runtime_token"].as_str().unwrap().to_owned()
    };
    let stolen = token(&here);
    fs::create_dir_all(thief.a2a()).unwrap();
    fs::set_permissions(thief.a2a(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::copy(here.profile_file(), thief.profile_file()).unwrap();

    let runtime = here.runtime(&[]);
    until("the token to be replaced", || (token(&here) != stolen).then_some(()));
    let mode = fs::metadata(here.profile_file()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    until("the old token to be refused", || {
        let beat = hub.worker(&stolen, "POST", "/api/v1/agent-runtimes/runtime/heartbeat", &json!({}));
        (beat.status == 401).then_some(())
    });
    let ran = thief.attache(&["runtime", "start"]).exits(4);
    assert!(ran.stderr.contains("newer token of this device"), "{}", ran.stderr);

    let log = there.attache(&["audit", "--json"]).succeeds().stdout;
    assert!(log.contains("runtime.token_reused") && !log.contains(&stolen), "{log}");
    let listed = there.attache(&["runtimes"]).succeeds();
    assert!(listed.stderr.contains("laptop: an old token of this device was used"), "{}", listed.stderr);
    // The device itself isn't affected.
    assert_eq!(there.attache(&["ask", "builder", "echo here"]).succeeds().stdout, "here\n");
    assert!(runtime.try_wait().is_none());
}

/// A device that is killed at any moment of a rotation restarts with the token in its profile.
#[test]
fn a_device_killed_during_token_rotation_keeps_a_valid_token() {
    let home = TestHome::new();
    let hub = home.hub(&["--token-rotation-ms", "100", "--token-overlap-ms", "5000"]);
    hub.add_agent("builder");
    home.attache(&["runtime", "pair", &hub.pairing_code("builder"), "--api-base", &hub.url]).succeeds();
    for _ in 0..6 {
        let before = fs::read(home.profile_file()).unwrap();
        let runtime = home.spawn("runtime", &["runtime", "start"]);
        until("the profile to be written", || {
            assert!(runtime.is_running(), "{}", runtime.stderr());
            (fs::read(home.profile_file()).unwrap() != before).then_some(())
        });
        runtime.kill();
    }
    let _runtime = home.runtime(&[]);
    assert_eq!(home.attache(&["ask", "builder", "echo still"]).succeeds().stdout, "still\n");
}

#[test]
fn after_five_wrong_codes_an_address_has_to_wait() {
    let (there, here) = (TestHome::new(), TestHome::new());
    let hub = there.hub(&[]);
    hub.add_agent("builder");
    let pair = |code: &str| here.attache(&["runtime", "pair", code, "--api-base", &hub.url]);
    for guess in 0..5 {
        pair(&format!("0000-000{guess}")).exits(3);
    }
    // Even the right code isn't checked now.
    let ran = pair(&hub.pairing_code("builder")).exits(1);
    assert!(ran.stderr.contains("Too many attempts. The limit is 5 per minute"), "{}", ran.stderr);
}

#[test]
fn a_profile_readable_by_others_is_refused() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    home.attache(&["runtime", "pair", &hub.pairing_code("builder"), "--api-base", &hub.url]).succeeds();
    fs::set_permissions(home.profile_file(), fs::Permissions::from_mode(0o644)).unwrap();
    let ran = home.attache(&["runtime", "start"]).exits(4);
    assert!(ran.stderr.contains("chmod 600"), "{}", ran.stderr);
    let ran = home.attache(&["doctor", "--json"]).exits(1).json();
    let finding = ran["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == "profiles").unwrap();
    assert_eq!(finding["state"], "problem");
}

#[test]
fn a_custom_adapter_is_used_with_its_secret() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("counter");
    let (_adapter, endpoint) = home.adapter(&["command", "--", "wc", "-w"]);
    let code = hub.pairing_code("counter");
    let args = ["runtime", "pair", &code, "--api-base", &hub.url, "--local-agent-endpoint", &endpoint];
    home.attache(&args).succeeds();
    let _runtime = home.runtime(&[]);
    assert_eq!(home.attache(&["ask", "counter", "one two three"]).succeeds().stdout.trim(), "3");
    let ran = home.attache(&["doctor"]).succeeds();
    assert!(ran.stdout.contains(&format!("the adapter at {endpoint} is reachable")), "{}", ran.stdout);
}

#[test]
fn a_program_is_supervised_by_the_runtime() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("counter");
    let code = hub.pairing_code("counter");
    let kind = ["--local-executor-type", "command", "--local-executor-ref", "wc -w"];
    home.attache(&[&["runtime", "pair", &code, "--api-base", &hub.url][..], &kind].concat()).succeeds();
    let _runtime = home.runtime(&[]);
    assert_eq!(home.attache(&["ask", "counter", "one two"]).succeeds().stdout.trim(), "2");
}

#[test]
fn only_the_same_agent_keeps_its_executor() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("counter");
    hub.add_agent("other");
    let pair = |agent: &str, more: &[&str]| {
        let code = hub.pairing_code(agent);
        home.attache(&[&["runtime", "pair", &code, "--api-base", &hub.url][..], more].concat())
    };
    let kind = ["--local-executor-type", "command", "--local-executor-ref", "wc -w"];
    assert!(pair("counter", &kind).succeeds().stderr.contains("Executor: command (wc -w)\n"));
    let other = pair("other", &[]).succeeds().stderr;
    assert!(other.contains("Executor: shell\n") && other.contains("The built-in shell"), "{other}");
    let again = pair("counter", &[]).succeeds().stderr;
    assert!(again.contains("Executor: command (wc -w)\n") && again.contains("`wc -w`"), "{again}");
    let set = home.profiles();
    let kinds = set["profiles"].as_object().unwrap().values().map(|profile| {
        let executor = &profile["local_executor"];
        (profile["agent_name"].as_str().unwrap(), executor["type"].as_str().unwrap())
    });
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [("counter", "command"), ("other", "shell")]);
}

#[test]
fn a_missing_program_is_refused_before_the_code_is_used_up() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("counter");
    let code = hub.pairing_code("counter");
    let pair = |program: &str| {
        let kind = ["--local-executor-type", "command", "--local-executor-ref", program];
        home.attache(&[&["runtime", "pair", &code, "--api-base", &hub.url][..], &kind].concat())
    };
    for missing in ["/nonexist x", "./nonexist", "nonexist x", "/usr/bin"] {
        let refused = pair(missing).exits(2).stderr;
        assert!(refused.contains("not found"), "{missing}: {refused}");
    }
    pair("/usr/bin/wc -w").succeeds();
}

#[test]
fn several_profiles_coexist() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    for name in ["one", "two"] {
        hub.add_agent(name);
        home.attache(&["runtime", "pair", &hub.pairing_code(name), "--api-base", &hub.url]).succeeds();
    }
    let list = home.attache(&["runtime", "profiles", "--json"]).succeeds().json();
    let profiles = list["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), 2);
    let other = profiles.iter().find(|profile| profile["active"] == false).unwrap()["profile"].as_str().unwrap();
    let chosen = home.attache(&["runtime", "profiles", "--use", other, "--json"]).succeeds().json();
    assert_eq!(chosen["active_profile"], other);
    home.attache(&["runtime", "unpair"]).succeeds();
    let left = home.attache(&["runtime", "profiles", "--json"]).succeeds().json();
    assert_eq!(left["profiles"].as_array().unwrap().len(), 1);
    assert_ne!(left["active_profile"], other);
    assert_eq!(home.attache(&["runtime", "profiles", "--use", other]).exits(3).stdout, "");
}

#[test]
fn the_second_name_runs_a_paired_device() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let second = || -> Command { home.program(env!("CARGO_BIN_EXE_a2a-runtime")) };
    let code = hub.pairing_code("builder");
    FinishedProcess::of(second().args(["pair", &code, "--api-base", &hub.url]), &home.logs()).succeeds();
    let runtime = TestProcess::spawn("a2a-runtime", second().arg("start"), &home.logs());
    runtime.tells("online");
    assert_eq!(hub.ask("builder", "echo hi")["status"], "completed");
    until("a clean end", || Some(runtime.terminate().success())).then_some(()).unwrap();
}

/// The hub has moved: the device gets the new address and keeps its pairing.
#[test]
fn a_device_follows_a_hub_that_has_moved() {
    let (platform, device) = (TestHome::new(), TestHome::new());
    let hub = platform.hub(&[]);
    let agent = hub.add_agent("builder");
    let old = hub.url.clone();
    device.attache(&["runtime", "pair", &hub.pairing_code("builder"), "--api-base", &old]).succeeds();
    hub.process.terminate();
    let hub = platform.hub(&[]);
    assert_ne!(hub.url, old, "it listens elsewhere");
    device.attache(&["runtime", "set"]).exits(2);
    device.attache(&["runtime", "set", "--api-base", "nonsense"]).exits(2);
    device.attache(&["runtime", "set", "--cwd", "nowhere"]).exits(1);
    device.attache(&["runtime", "set", "--cwd", device.a2a().to_str().unwrap()]).exits(2);
    device.attache(&["runtime", "set", "--cwd", device.path().to_str().unwrap()]).succeeds();
    let folder = std::fs::canonicalize(device.path()).unwrap();
    let status = device.attache(&["runtime", "status", "--json"]).succeeds().json();
    assert_eq!(status["local_executor"]["cwd"], folder.to_str().unwrap());
    let shown = device.attache(&["runtime", "set", "--api-base", &hub.url, "--device-name", "desk", "--json"]);
    shown.succeeds();
    let profiles = device.profiles();
    let profile = profiles["profiles"].as_object().unwrap().values().next().unwrap();
    assert!(profile["api_base"].as_str().unwrap().starts_with(&hub.url), "{}", profile["api_base"]);
    assert_eq!((&profile["device_name"], &profile["agent_id"]), (&json!("desk"), &json!(agent)));
    let _runtime = device.runtime(&[]);
    hub.agent_is("builder", "online");
    assert_eq!(hub.ask("builder", "echo moved")["task_result"]["text"], "moved\n");
}
