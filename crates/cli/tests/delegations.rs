//! `attache daemon`, `delegate` and `delegations`: real processes, a hub, and a remote that is offline.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, process, until};

/// A home with a hub, an agent that accepts folders, and a folder to delegate. Its daemon stops with it.
struct DelegationFixture {
    home: TestHome,
    hub: TestHub,
    agent: String,
    token: String,
    folder: String,
    url: String,
}

impl DelegationFixture {
    fn new() -> Self {
        let home = TestHome::new();
        let hub = home.hub(&[]);
        let agent = hub.add_agent("builder");
        let device = hub.attach(&hub.pairing_code("builder"));
        let token = device["runtime_token"].as_str().unwrap().to_owned();
        let folder = fs::canonicalize(home.path()).unwrap().join("project");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a.txt"), "a\n").unwrap();
        let url = format!("{}/a2a/builder", hub.url);
        let scene = Self { folder: folder.to_str().unwrap().to_owned(), home, hub, agent, token, url };
        scene.declare(&json!([{"uri": "https://awcp-protocol.org/v1"}]));
        scene
    }

    /// The agent's device declares its capabilities and does nothing else.
    fn declare(&self, extensions: &Value) {
        let body = json!({"agent_id": self.agent, "extensions": extensions});
        self.hub.worker(&self.token, "POST", "/api/v1/agent-runtimes/runtime/heartbeat", &body).expect(200);
    }

    fn allowed(self) -> Self {
        self.home.attache(&["delegations", "allow", "--peer", &self.url, "--folder", &self.folder]).succeeds();
        self
    }

    fn delegate(&self, more: &[&str]) -> String {
        let mut args = vec!["delegate", &self.folder, "--to", &self.url, "--background", "do it"];
        args.extend(more);
        self.home.attache(&args).succeeds().stdout.trim().to_owned()
    }

    fn show(&self, id: &str) -> Value {
        self.home.attache(&["--json", "delegations", "show", id]).succeeds().json()
    }

    fn until_status(&self, id: &str, status: &str) -> Value {
        until(&format!("{id} to be {status}"), || Some(self.show(id)).filter(|shown| shown["status"] == status))
    }
}

impl Drop for DelegationFixture {
    fn drop(&mut self) {
        let _ = self.home.command(&["daemon", "--stop"]).output();
    }
}

#[test]
fn a_refusal_names_the_command_that_allows_it() {
    let scene = DelegationFixture::new();
    let (url, folder) = (&scene.url, &scene.folder);
    let refused = scene.home.attache(&["delegate", folder, "--to", url, "do it"]).exits(4);
    assert_eq!(refused.stdout, "");
    let command = format!("attache delegations allow --peer {url}");
    assert!(refused.stderr.trim_end().ends_with(&command), "{}", refused.stderr);
    scene.home.attache(&["delegations", "allow", "--peer", url]).succeeds();
    let refused = scene.home.attache(&["--json", "delegate", folder, "--to", url, "do it"]).exits(4);
    let error: Value = serde_json::from_str(refused.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "folder_not_allowed");
    let hint = error["error"]["hint"].as_str().unwrap();
    assert!(hint.ends_with(&format!("attache delegations allow --folder {folder}")), "{hint}");

    let policy = scene.home.path().join(".AWCP/policy.toml");
    let mode = fs::metadata(&policy).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode, fs::read_to_string(&policy).unwrap()),
        (0o600, format!("[[delegator.peers]]\nurl = \"{url}\"\n"))
    );
    let twice = scene.home.attache(&["--json", "delegations", "allow", "--peer", url]).succeeds().json();
    assert_eq!(twice["changed"], false);
    scene.home.attache(&["delegations", "disallow", "--peer", url]).succeeds();
    scene.home.attache(&["delegations", "disallow", "--peer", url]).exits(3);
    scene.home.attache(&["delegations", "allow"]).exits(2);
    fs::write(&policy, "[delegator]\nrots = 1\n").unwrap();
    let broken = scene.home.attache(&["delegate", folder, "--to", url, "do it"]).exits(2);
    assert!(broken.stderr.contains("policy.toml, line 2: unknown field `rots`"), "{}", broken.stderr);
    let broken =
        scene.home.attache(&["delegations", "allow", "--folder", scene.home.path().to_str().unwrap()]).exits(2);
    assert!(broken.stderr.starts_with("error: "), "nothing is allowed: {}", broken.stderr);
}

#[test]
fn a_delegation_begun_while_its_hub_is_down_uses_the_owner_key_once_the_hub_is_back() {
    let mut scene = DelegationFixture::new().allowed();
    let address = scene.hub.address().to_owned();
    scene.hub.process.kill();
    let id = scene.delegate(&[]);
    until("the daemon to try", || {
        let waits_for = scene.show(&id)["waits_for"].as_str()?.to_owned();
        waits_for.starts_with("a connection to the remote: can't reach http://").then_some(())
    });
    scene.hub = scene.home.hub(&["--listen", &address]);
    let shown = until("the invitation", || {
        let shown = scene.show(&id);
        assert!(shown["ended_at"].is_null(), "{shown}");
        Some(shown).filter(|shown| shown["task_id"].is_string())
    });
    assert_eq!(shown["status"], "invited");
    scene.home.attache(&["delegations", "cancel", &id]).succeeds();
}

#[test]
fn a_refused_key_names_the_option_of_the_daemon() {
    let scene = DelegationFixture::new();
    let key = scene.home.keep_secret("other.key", "ak_this_is_not_a_key_of_that_hub");
    let (url, folder) = (&scene.url, &scene.folder);
    scene.home.attache(&["delegations", "allow", "--peer", url, "--key-file", &key, "--folder", folder]).succeeds();
    let refused = scene.home.attache(&["delegate", folder, "--to", url, "do it"]).exits(4);
    let origin = &scene.hub.url;
    assert!(refused.stderr.contains(&format!("{origin} doesn't accept the key (status 401)")), "{}", refused.stderr);
    let command = format!("attache delegations allow --peer {url} --key-file FILE");
    assert!(refused.stderr.contains(&command), "{}", refused.stderr);
    assert!(!refused.stderr.contains("--peer-key-file"), "{}", refused.stderr);
}

#[test]
fn folders_with_keys_of_attache_can_neither_be_allowed_nor_delegated() {
    let scene = DelegationFixture::new().allowed();
    let home = fs::canonicalize(scene.home.path()).unwrap();
    for name in [".AWCP", ".a2a", ".a2a/hub"] {
        let folder = home.join(name);
        let folder = folder.to_str().unwrap();
        let reason = format!("error: {folder} can't be delegated: ");
        for args in [&["delegations", "allow", "--folder", folder][..], &["delegate", folder, "--to", &scene.url, "x"]]
        {
            let refused = scene.home.attache(args).exits(2);
            assert!(refused.stderr.starts_with(&reason), "{}", refused.stderr);
            assert!(refused.stderr.contains(" contains keys and records of Attaché"), "{}", refused.stderr);
            assert!(!refused.stderr.contains("--folder"), "{}", refused.stderr);
        }
    }
    // What is around them can't be delegated either, but other folders in it can.
    let around = home.to_str().unwrap();
    let refused = scene.home.attache(&["delegate", around, "--to", &scene.url, "x"]).exits(2);
    assert!(refused.stderr.contains("it contains $AWCP_HOME"), "{}", refused.stderr);
    let allowed = scene.home.attache(&["delegations", "allow", "--folder", around]).succeeds();
    assert!(allowed.stderr.contains(&format!("not {around} itself")), "{}", allowed.stderr);
}

#[test]
fn a_delegation_waits_for_its_remote_and_is_cancelled() {
    let scene = DelegationFixture::new().allowed();
    let id = scene.delegate(&["--ttl", "600", "--access-mode", "ro"]);
    let shown = scene.until_status(&id, "invited");
    assert_eq!(
        (&shown["access_mode"], &shown["ttl_seconds"], &shown["description"]),
        (&json!("ro"), &json!(600), &json!("do it"))
    );
    let list = scene.home.attache(&["delegations"]).succeeds();
    assert!(list.stdout.contains(&id) && list.stdout.contains("invited"), "{}", list.stdout);
    let none = scene.home.attache(&["--json", "delegations", "list", "--limit", "0"]).succeeds().json();
    assert_eq!(none, json!({"delegations": []}));
    let late = scene.home.attache(&["delegations", "wait", &id, "--timeout", "1"]).exits(124);
    assert!(late.stderr.contains("timed out after 1 second;"), "{}", late.stderr);
    let task = until("the task's id", || scene.show(&id)["task_id"].as_str().map(str::to_owned));
    scene.home.attache(&["delegations", "cancel", &id]).succeeds();
    assert_eq!(scene.show(&id)["status"], "cancelled");
    assert_eq!(scene.hub.ended(&task)["status"], "cancelled");
    let output = scene.home.attache(&["delegations", "output", &id]).exits(1);
    assert!(output.stderr.starts_with("error: CANCELLED: the delegation was cancelled"), "{}", output.stderr);
    assert!(output.stderr.contains("No action needed. The folder was not shared."), "{}", output.stderr);
    let shown = scene.home.attache(&["delegations", "show", &id]).succeeds().stdout;
    assert!(!shown.contains("it may be offline"), "what it waited for is over: {shown}");
    assert_eq!(scene.home.attache(&["delegations", "diff", &id]).succeeds().stdout, "");
    let nothing = scene.home.attache(&["--json", "delegations", "wait"]).succeeds().json();
    assert_eq!(nothing, json!({"delegations": []}));
    scene.home.attache(&["delegations", "show", "dlg_00000000000000000000000000000001"]).exits(3);
    assert_eq!(
        scene.home.attache(&["delegations", "log", &id]).succeeds().stderr,
        "The remote agent wrote no output.\n"
    );
    let shown = scene.home.attache(&["delegations", "show", &id]).succeeds().stdout;
    assert!(!shown.contains("expires") && !shown.contains("attache delegations diff"), "{shown}");
    let waited = scene.home.attache(&["delegations", "wait", &id]).exits(1);
    assert!(waited.stderr.contains(&format!("{id} cancelled; the folder was never shared")), "{}", waited.stderr);
    let nobody = scene.home.attache(&["delegations", "wait", "--session", "zzz"]).exits(3);
    assert!(nobody.stderr.contains("session `zzz` has no delegations"), "{}", nobody.stderr);
}

#[test]
fn an_unaccepted_delegation_expires() {
    let scene = DelegationFixture::new().allowed();
    let ran = scene.home.attache(&["delegate", &scene.folder, "--to", &scene.url, "--ttl", "2", "do it"]).exits(124);
    assert!(ran.stderr.contains("invited") && ran.stderr.contains("error: START_EXPIRED"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("expired; the folder was never shared\n") && !ran.stderr.contains(" ID`"),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_agent_that_accepts_no_folders_is_named() {
    let scene = DelegationFixture::new().allowed();
    scene.declare(&json!([]));
    let ran = scene.home.attache(&["delegate", &scene.folder, "--to", &scene.url, "do it"]).exits(4);
    assert!(ran.stderr.contains("error: DECLINED: the agent builder doesn't accept folders"), "{}", ran.stderr);
}

#[test]
fn the_next_daemon_cleans_up_after_a_killed_one() {
    let scene = DelegationFixture::new().allowed();
    let (daemon, ready) = scene.home.ready("daemon", &["daemon"]);
    assert!(ready["ssh"].as_str().unwrap().starts_with("127.0.0.1:"), "{ready}");
    let second = scene.home.attache(&["daemon"]).exits(1);
    assert!(second.stderr.contains("is already running"), "{}", second.stderr);
    let id = scene.delegate(&[]);
    scene.until_status(&id, "invited");
    let task = until("the task's id", || scene.show(&id)["task_id"].as_str().map(str::to_owned));
    daemon.kill();
    daemon.wait();
    let shown = scene.show(&id);
    assert_eq!((&shown["status"], &shown["result"]["error"]["code"]), (&json!("error"), &json!("CANCELLED")));
    assert_eq!(scene.hub.ended(&task)["status"], "cancelled");
    // The automatically started daemon is another, detached process.
    let log = scene.home.path().join(".AWCP/logs/daemon.log");
    assert!(fs::metadata(&log).unwrap().len() > 0);
    scene.home.attache(&["daemon", "--stop"]).succeeds();
    assert!(!process::exists(u32::try_from(ready["pid"].as_u64().unwrap()).unwrap()));
    let stopped = scene.home.attache(&["daemon", "--stop"]).succeeds();
    assert_eq!(stopped.stderr, "No daemon is running.\n");
}

#[test]
fn invalid_delegations_are_refused_before_anything_is_sent() {
    let scene = DelegationFixture::new().allowed();
    let (url, folder) = (&scene.url, &scene.folder);
    let delegate = |more: &[&str]| {
        let all = [&["--json", "delegate", folder, "--to", url, "do it"], more].concat();
        let ran = scene.home.attache(&all).exits(2);
        let error: Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
        error["error"].clone()
    };
    let wrong = delegate(&["--exclude", "a[b"]);
    assert_eq!(wrong["code"], "invalid_request", "{wrong}");
    assert!(wrong["message"].as_str().unwrap().contains("`a[b` is not a valid gitignore pattern"), "{wrong}");
    let root = fs::canonicalize(scene.home.path()).unwrap();
    let allowed = scene.home.attache(&["delegations", "allow", "--folder", root.to_str().unwrap()]).succeeds();
    assert!(allowed.stderr.contains("warning: everything in"), "{}", allowed.stderr);
    let around = scene.home.attache(&["delegate", root.to_str().unwrap(), "--to", url, "do it"]).exits(2);
    assert!(around.stderr.contains("$AWCP_HOME") && around.stderr.contains("it contains"), "{}", around.stderr);
    assert_eq!(scene.home.attache(&["--json", "delegations"]).succeeds().json(), json!({"delegations": []}));
    let no_key = scene.home.attache(&["delegations", "allow", "--peer", url, "--key-file", "/nofile"]).exits(2);
    assert!(no_key.stderr.contains("/nofile"), "{}", no_key.stderr);
    let policy = scene.home.path().join(".AWCP/policy.toml");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, format!("{text}\n[delegator.export]\nexclude = [\"a[b\"]\n")).unwrap();
    let mistake = delegate(&[]);
    assert_eq!(mistake["code"], "policy_invalid", "{mistake}");
    assert!(mistake["hint"].as_str().unwrap().contains(".gitignore"), "{mistake}");
    let line = text.lines().count() + 3;
    assert!(
        mistake["message"].as_str().unwrap().contains(&format!("line {line}: `a[b` is not a valid gitignore pattern")),
        "{mistake}"
    );
}

#[test]
fn a_home_path_too_long_for_a_socket_is_reported() {
    let home = TestHome::new();
    let long = home.path().join("x".repeat(100));
    let begun = std::time::Instant::now();
    let ran = home.command(&["delegations"]).env("AWCP_HOME", &long).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains("a socket path") && said.contains("AWCP_HOME"), "{said}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// The daemons that this home has started.
fn daemons(home: &TestHome) -> usize {
    let folder = home.path().to_str().unwrap();
    let has = |file: &str, id: &str, text: &str| {
        let content = fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&content).contains(text)
    };
    let ids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    ids.filter(|id| has("cmdline", id, "daemon\0--detached") && has("environ", id, folder)).count()
}

#[test]
fn read_only_commands_leave_no_daemon_running() {
    let home = TestHome::new();
    for args in [&["delegations"][..], &["delegations", "list", "--json"]] {
        home.attache(args).succeeds();
        until("the daemon to be gone", || (daemons(&home) == 0).then_some(()));
    }
    // A daemon that was already running keeps running.
    let (daemon, _) = home.ready("daemon", &["daemon"]);
    home.attache(&["delegations"]).succeeds();
    assert!(daemon.is_running());
}
