//! `attache agents`: the switches of an A2A face, and agents that are elsewhere.

use serde_json::json;

use crate::harness::TestHome;

#[test]
fn an_agent_is_changed() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    home.attache(&["agents", "add", "builder", "--a2a", "{\"hidden\":true}"]).succeeds();
    assert_eq!(hub.get("/api/v1/agent-accounts/builder")["a2a"], serde_json::json!({"hidden": true}));
    let set =
        home.attache(&["agents", "set", "builder", "--a2a", "{\"anonymous\":true}", "--name", "maker"]).succeeds();
    assert_eq!((set.stdout.as_str(), set.stderr.as_str()), ("", "Changed maker.\n"));
    let account = hub.get("/api/v1/agent-accounts/maker");
    assert_eq!(account["a2a"], serde_json::json!({"anonymous": true}));
    let shown = home.attache(&["--json", "agents", "set", "maker", "--description", "Makes things"]).succeeds().json();
    assert_eq!(shown["description"], "Makes things");

    let nothing = home.attache(&["agents", "set", "maker"]).exits(2);
    assert_eq!(nothing.stderr, "error: say what to change\n  → See: attache agents set --help\n");
    let typo = home.attache(&["agents", "set", "maker", "--a2a", "{\"anonymus\":true}"]).exits(2);
    assert!(
        typo.stderr.starts_with("error: `a2a.anonymus` is not known here; there are anonymous, "),
        "{}",
        typo.stderr
    );
    for wrong in ["{", "[]", "true"] {
        let refused = home.attache(&["agents", "set", "maker", "--a2a", wrong]).exits(2);
        assert!(refused.stderr.contains("this "), "{}", refused.stderr);
    }
    let nobody = home.attache(&["agents", "set", "nobody", "--name", "x"]).exits(3);
    assert!(nobody.stderr.starts_with("error: there is no agent `nobody`\n"), "{}", nobody.stderr);
}

#[test]
fn an_agent_elsewhere_is_added_and_asked() {
    let (here, there) = (TestHome::new(), TestHome::new());
    let hub = here.hub(&["--egress-allow", "127.0.0.1"]);
    let up = there.up(&[]);
    up.agent_is("local", "online");
    let (url, file) = (format!("{}/a2a/local", up.url), here.keep_secret("there.key", &up.key));
    let added = here.attache(&["agents", "add", "travel", "--peer", &url, "--peer-key-file", &file]).succeeds();
    let account = hub.get("/api/v1/agent-accounts/travel");
    let pin = account["peer"]["card_pin"].as_str().unwrap();
    assert_eq!(added.stdout.trim_end(), account["agent_id"]);
    assert_eq!(added.stderr, format!("Added travel, which is at {url}. Its card is trusted from now on:\n  {pin}\n"));
    assert_eq!(here.attache(&["ask", "travel", "echo from there"]).succeeds().stdout, "from there\n");

    let shown = here.attache(&["agents", "show", "travel"]).succeeds().stdout;
    for word in [url.as_str(), pin, "given"] {
        assert!(shown.contains(word), "{shown}");
    }
    assert!(here.attache(&["agents"]).succeeds().stdout.contains(&url));
    let nothing = here.attache(&["agents", "trust", "travel"]).exits(1);
    assert!(nothing.stderr.starts_with("error: No card of this agent waits to be trusted\n"), "{}", nothing.stderr);
    let key_alone = here.attache(&["agents", "add", "other", "--peer-key-file", &file]).exits(2);
    assert!(key_alone.stderr.contains("--peer <URL>"), "{}", key_alone.stderr);
    let wrong = format!("sha256:{}", "0".repeat(64));
    let refused = here.attache(&["agents", "add", "other", "--peer", &url, "--card-pin", &wrong]).exits(2);
    assert!(refused.stderr.contains("which is sha256:"), "{}", refused.stderr);
}

#[test]
fn a_pairing_code_comes_with_an_address_that_a_device_can_reach() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let said = home.attache(&["agents", "code", "builder"]).succeeds().stderr;
    assert!(said.contains("Only this machine reaches the hub") && said.contains("--public-url"), "{said}");
    hub.process.terminate();
    let hub = home.hub(&["--public-url", "https://hub.example.org"]);
    let said = home.attache(&["agents", "code", "builder"]).succeeds().stderr;
    assert!(said.contains("--api-base https://hub.example.org\n") && !said.contains("Only this machine"), "{said}");
    hub.process.terminate();
    let hub = home.hub(&["--listen", "0.0.0.0:0", "--tls-self-signed"]);
    let said = home.attache(&["agents", "code", "builder"]).succeeds().stderr;
    let pairs = said.lines().find(|line| line.contains("attache runtime pair")).unwrap();
    assert!(pairs.contains(" --pin sha256:"), "{said}");
    // A machine without a network has no address to offer, and says so.
    assert_eq!(pairs.contains("--api-base https://127.0.0.1"), said.contains("Only this machine"), "{said}");
    drop(hub);
}

#[test]
fn what_needed_curl_has_a_command() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let args = ["agents", "add", "builder", "--skill", "review=Reviews changes", "--skill", "deploy"];
    home.attache(&args).succeeds();
    let policy = ["--approval-timeout", "30m", "--on-approval-timeout", "deny_and_continue"];
    home.attache(&[&["agents", "set", "builder"], &policy[..]].concat()).succeeds();
    let agent = hub.get("/api/v1/agent-accounts/builder");
    assert_eq!(
        agent["skills"],
        json!([
            { "id": "review", "name": "review", "description": "Reviews changes", "tags": [] },
            { "id": "deploy", "name": "deploy", "description": "", "tags": [] },
        ])
    );
    assert_eq!(agent["approvals"], json!({ "timeout_ms": 1_800_000, "on_timeout": "deny_and_continue" }));
    // What is not mentioned stays.
    home.attache(&["agents", "set", "builder", "--approval-timeout", "1h"]).succeeds();
    let agent = hub.get("/api/v1/agent-accounts/builder");
    assert_eq!(agent["approvals"], json!({ "timeout_ms": 3_600_000, "on_timeout": "deny_and_continue" }));
    let file = home.path().join("crawler.key");
    let made = ["agents", "register", "crawler", "--capability", "crawl", "--to-file", file.to_str().unwrap()];
    let said = home.attache(&made).succeeds();
    assert!(!said.stdout.contains("ak_") && !said.stderr.contains("ak_"), "{}", said.stderr);
    let key = std::fs::read_to_string(&file).unwrap();
    assert!(key.starts_with("ak_"));
    home.attache(&["agents", "--key-file", file.to_str().unwrap()]).succeeds();
}

#[test]
fn hints_are_for_the_command_line() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    home.attache(&["users", "add", "vic", "--role", "viewer"]).succeeds();
    let key = home.path().join("vic.key").to_str().unwrap().to_owned();
    home.attache(&["keys", "add", "vic", "--user", "vic", "--to-file", &key]).succeeds();
    let refused = home.attache(&["ask", "builder", "true", "--key-file", &key]).exits(4);
    assert!(refused.stderr.contains("--key-file"), "{}", refused.stderr);
    for args in [&["ask", "nobody", "true"][..], &["runs", "show", "run_00000000000000000000000000000001"]] {
        let shown = home.attache(args).exits(3).stderr;
        for foreign in ["POST ", "Authorization", "tenant", "openapi"] {
            assert!(!shown.contains(foreign), "{shown}");
        }
    }
}

#[test]
fn every_request_is_a_line_of_the_log() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    home.attache(&["agents", "show", "builder"]).succeeds();
    home.attache(&["agents", "show", "nobody"]).exits(3);
    let log = hub.process.tells("status=404");
    let line = log.lines().find(|line| line.contains("status=200") && line.contains("{agent}")).unwrap_or_default();
    assert!(line.contains("INFO") && line.contains("method=GET"), "{log}");
    assert!(
        line.contains("route=\"/api/v1/agent-accounts/{agent}\"") && line.contains("principal=\"key:key_"),
        "{line}"
    );
    assert!(line.contains("ms="), "{line}");
}
