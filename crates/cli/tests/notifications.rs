//! Chats that are notified, from the command line, with a local service in the place of theirs.

use std::{io::Write as _, process::Stdio};

use serde_json::{Value, json};

use crate::{deliveries::CallbackReceiver, harness::TestHome};

/// Runs a command that reads secrets from standard input.
fn typed(home: &TestHome, args: &[&str], lines: &str) -> (bool, String, String) {
    let mut command = home.command(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("attache starts");
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn chats_are_connected_tested_changed_and_removed() {
    let home = TestHome::new();
    let _hub = home.hub(&["--egress-allow", "127.0.0.1"]);
    let service = CallbackReceiver::start(&[Some(200), Some(404)]);
    let address = format!("{}/services/T0/secret-part", service.origin);
    let empty = home.attache(&["notifications"]).succeeds();
    assert!(empty.stderr.contains("Nothing is set up."), "{}", empty.stderr);

    let (ok, shown, said) = typed(&home, &["notifications", "add", "slack", "ops", "--runs"], &format!("{address}\n"));
    assert!(ok && !shown.contains("secret-part") && !said.contains("secret-part"), "{shown} {said}");
    assert!(said.contains("Connected ops: approvals, questions and finished runs."), "{said}");
    let feishu =
        ["notifications", "add", "feishu", "team", "--signed", "--approvals=false", "--language", "zh", "--json"];
    let (ok, shown, said) = typed(&home, &feishu, &format!("{}/hook\nits secret\n", service.origin));
    assert!(ok, "{said}");
    let team: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(team["choices"], json!({"approvals": false, "runs": false, "detail": "title", "language": "zh"}));
    let (ok, _, said) = typed(&home, &["notifications", "add", "telegram", "me", "--chat-id", "-42"], "");
    assert!(!ok && said.contains("missing bot token"), "{said}");

    // Nothing is replaced by mistake; the same chat under another name says so.
    let (ok, _, said) = typed(&home, &["notifications", "add", "slack", "ops"], &format!("{address}/other\n"));
    assert!(!ok && said.contains("ops already exists") && said.contains("notifications change"), "{said}");
    let (ok, _, said) =
        typed(&home, &["notifications", "add", "slack", "operators", "--runs"], &format!("{address}\n"));
    assert!(ok && said.contains("Connected operators (formerly ops): "), "{said}");
    let (ok, _, said) = typed(&home, &["notifications", "add", "slack", "ops", "--runs"], &format!("{address}\n"));
    assert!(ok && said.contains("Connected ops (formerly operators): "), "{said}");

    let tested = home.attache(&["notifications", "test", "ops"]).succeeds();
    assert!(tested.stderr.contains("Slack accepted the test for ops."), "{}", tested.stderr);
    service.told(0);
    assert!(service.head(0).starts_with("POST /services/T0/secret-part "), "{}", service.head(0));
    let refused = home.attache(&["notifications", "test", "ops"]).exits(1);
    assert!(refused.stderr.contains("Slack didn't accept the test for ops with status 404"), "{}", refused.stderr);

    home.attache(&["notifications", "change", "ops", "--show", "full", "--runs", "false"]).succeeds();
    let listed = home.attache(&["notifications", "list", "--json"]).succeeds().json();
    let ops = listed["notification_targets"].as_array().unwrap().iter().find(|target| target["name"] == "ops").unwrap();
    assert_eq!(ops["choices"], json!({"approvals": true, "runs": false, "detail": "full", "language": "en"}));
    let table = home.attache(&["notifications"]).succeeds().stdout;
    assert!(table.contains("approvals and questions, in full") && !table.contains("secret-part"), "{table}");

    home.attache(&["notifications", "remove", "ops", "--yes"]).succeeds();
    let id = team["notification_target_id"].as_str().unwrap();
    home.attache(&["notifications", "remove", &id[id.len() - 10..], "--yes"]).succeeds();
    home.attache(&["notifications", "test", "ops"]).exits(3);
    let left = home.attache(&["notifications", "--json"]).succeeds().json();
    assert_eq!(left["notification_targets"], json!([]));
}
