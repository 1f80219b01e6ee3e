//! `attache agents`: settings, A2A options and outside agents.

use serde_json::json;

use crate::harness::TestHome;

#[test]
fn an_agent_is_updated() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    home.attache(&["agents", "add", "builder", "--a2a", "{\"hidden\":true}"]).succeeds();
    assert_eq!(hub.get("/api/v1/agent-accounts/builder")["a2a"], serde_json::json!({"hidden": true}));
    let set =
        home.attache(&["agents", "set", "builder", "--a2a", "{\"anonymous\":true}", "--name", "maker"]).succeeds();
    assert_eq!((set.stdout.as_str(), set.stderr.as_str()), ("", "Updated maker.\n"));
    let account = hub.get("/api/v1/agent-accounts/maker");
    assert_eq!(account["a2a"], serde_json::json!({"anonymous": true}));
    let shown = home.attache(&["--json", "agents", "set", "maker", "--description", "Makes things"]).succeeds().json();
    assert_eq!(shown["description"], "Makes things");

    let nothing = home.attache(&["agents", "set", "maker"]).exits(2);
    assert_eq!(
        nothing.stderr,
        "error: nothing to change\n  → Pass at least one option; see attache agents set --help.\n"
    );
    let typo = home.attache(&["agents", "set", "maker", "--a2a", "{\"anonymus\":true}"]).exits(2);
    assert!(
        typo.stderr.starts_with("error: `a2a.anonymus` is not a known member; known members: anonymous, "),
        "{}",
        typo.stderr
    );
    for (wrong, why) in [("{", "invalid JSON: "), ("[]", "must be a JSON object"), ("true", "must be a JSON object")] {
        let refused = home.attache(&["agents", "set", "maker", "--a2a", wrong]).exits(2);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
    let nobody = home.attache(&["agents", "set", "nobody", "--name", "x"]).exits(3);
    assert!(nobody.stderr.starts_with("error: agent `nobody` not found\n"), "{}", nobody.stderr);
}

#[test]
fn an_outside_agent_is_added_and_called() {
    let (here, there) = (TestHome::new(), TestHome::new());
    let hub = here.hub(&["--egress-allow", "127.0.0.1"]);
    let up = there.up(&[]);
    up.agent_is("local", "online");
    let (url, file) = (format!("{}/a2a/local", up.url), here.keep_secret("there.key", &up.key));
    let added = here.attache(&["agents", "add", "travel", "--peer", &url, "--peer-key-file", &file]).succeeds();
    let account = hub.get("/api/v1/agent-accounts/travel");
    let pin = account["peer"]["card_pin"].as_str().unwrap();
    assert_eq!(added.stdout.trim_end(), account["agent_id"]);
    assert_eq!(added.stderr, format!("Added travel, an outside agent at {url}. Its card is now trusted:\n  {pin}\n"));
    assert_eq!(here.attache(&["ask", "travel", "echo from there"]).succeeds().stdout, "from there\n");

    let shown = here.attache(&["agents", "show", "travel"]).succeeds().stdout;
    for word in [url.as_str(), pin] {
        assert!(shown.contains(word), "{shown}");
    }
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["key", "set"])), "{shown}");
    assert!(here.attache(&["agents"]).succeeds().stdout.contains(&url));
    let nothing = here.attache(&["agents", "trust", "travel"]).exits(1);
    assert!(nothing.stderr.starts_with("error: This agent has no card waiting to be trusted\n"), "{}", nothing.stderr);
    let key_alone = here.attache(&["agents", "add", "other", "--peer-key-file", &file]).exits(2);
    assert!(key_alone.stderr.contains("--peer <URL>"), "{}", key_alone.stderr);
    let wrong = format!("sha256:{}", "0".repeat(64));
    let refused = here.attache(&["agents", "add", "other", "--peer", &url, "--card-pin", &wrong]).exits(2);
    assert!(refused.stderr.contains("whose pin is sha256:"), "{}", refused.stderr);
}

#[test]
fn a_pairing_code_comes_with_an_address_that_a_device_can_reach() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let output = home.attache(&["agents", "code", "builder"]).succeeds().stderr;
    assert!(output.contains("Only this machine can reach the hub") && output.contains("--public-url"), "{output}");
    let port = hub.address().rsplit_once(':').unwrap().1;
    assert!(output.contains(&format!("--listen 0.0.0.0:{port} --tls-self-signed")), "{output}");
    assert!(output.contains("expires in 10 min"), "{output}");
    hub.process.terminate();
    let hub = home.hub(&["--public-url", "https://hub.example.org"]);
    let output = home.attache(&["agents", "code", "builder"]).succeeds().stderr;
    assert!(
        output.contains("--api-base https://hub.example.org\n") && !output.contains("Only this machine"),
        "{output}"
    );
    hub.process.terminate();
    let hub = home.hub(&["--listen", "0.0.0.0:0", "--tls-self-signed"]);
    let output = home.attache(&["agents", "code", "builder"]).succeeds().stderr;
    let pairs = output.lines().find(|line| line.contains("attache runtime pair")).unwrap();
    assert!(pairs.contains(" --pin sha256:"), "{output}");
    // A machine without a network has no address to offer and prints a warning.
    assert_eq!(pairs.contains("--api-base https://127.0.0.1"), output.contains("Only this machine"), "{output}");
    hub.process.terminate();
    // Cards and links lead to the same address.
    let hub = home.hub(&["--listen", "0.0.0.0:0", "--insecure-lan"]);
    let output = home.attache(&["agents", "code", "builder"]).succeeds().stderr;
    let (_, api_base) = output.split_once("--api-base ").unwrap();
    let card = hub.get("/a2a/builder/.well-known/agent-card.json");
    let url = format!("{}/a2a/builder", api_base.split_whitespace().next().unwrap());
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    assert!(interfaces.iter().any(|interface| interface["url"] == url.as_str()), "{url}: {card}");
    drop(hub);
}

#[test]
fn skills_approvals_and_registration_have_commands() {
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
    // Settings that aren't passed stay unchanged.
    home.attache(&["agents", "set", "builder", "--approval-timeout", "1h"]).succeeds();
    let agent = hub.get("/api/v1/agent-accounts/builder");
    assert_eq!(agent["approvals"], json!({ "timeout_ms": 3_600_000, "on_timeout": "deny_and_continue" }));
    let file = home.path().join("crawler.key");
    let made = ["agents", "register", "crawler", "--capability", "crawl", "--to-file", file.to_str().unwrap()];
    let output = home.attache(&made).succeeds();
    assert!(!output.stdout.contains("ak_") && !output.stderr.contains("ak_"), "{}", output.stderr);
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
