//! `attache agents`: the switches of an A2A face, and agents that are elsewhere.

use crate::harness::Home;

#[test]
fn an_agent_is_changed() {
    let home = Home::new();
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
    let (here, there) = (Home::new(), Home::new());
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
