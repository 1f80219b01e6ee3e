//! Rules, quotas, usage and the audit log from the command line.

use std::fs;

use serde_json::json;

use crate::harness::{TestHome, until};

#[test]
fn rules_are_shown_set_and_checked() {
    let home = TestHome::new();
    let file = home.path().join("permissions.yaml");
    fs::write(&file, "default: own\n").unwrap();
    let path = file.to_str().unwrap();
    let _hub = home.hub(&["--permissions", path]);
    for agent in ["laptop", "vault", "knowledge"] {
        home.attache(&["agents", "add", agent]).succeeds();
    }
    home.attache(&["rules", "check", "lapdog", "agents/vault"]).exits(3);
    assert_eq!(home.attache(&["rules"]).succeeds().stdout, "default: own\n");

    let draft = home.path().join("draft.yaml");
    fs::write(&draft, "agents:\n  laptop:\n    cannot_access:\n      - agents/vault\n").unwrap();
    let ran = home.attache(&["rules", "set", draft.to_str().unwrap()]).succeeds();
    assert!(ran.stderr.contains("Version 2 of the rules is now in effect"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(&file).unwrap(), fs::read_to_string(&draft).unwrap());
    let output = home.attache(&["rules", "check", "laptop", "agents/vault"]).succeeds().stdout;
    assert_eq!(output, "denied: laptop → agents/vault: rule `agents/vault`\n");
    let output = home.attache(&["rules", "check", "laptop", "agents/knowledge", "--json"]).succeeds().json();
    assert_eq!((&output["allowed"], &output["because"]), (&json!(true), &json!("own")));

    fs::write(&draft, "agents:\n  laptop:\n    can_acces: []\n").unwrap();
    let ran = home.attache(&["rules", "set", draft.to_str().unwrap()]).exits(2);
    assert!(ran.stderr.contains("line 3, column 5"), "{}", ran.stderr);
    // An invalid edit of the file is reported and changes nothing.
    fs::write(&file, "default: everything\n").unwrap();
    let messages = until("the problem to show", || {
        let shown = home.attache(&["rules", "--json"]).succeeds().json();
        shown["problem"].as_str().map(str::to_owned)
    });
    assert!(messages.contains("line 1, column 10"), "{messages}");
    home.attache(&["rules", "check", "laptop", "agents/vault"]).succeeds();
}

#[test]
fn an_invalid_permissions_file_prevents_startup() {
    let home = TestHome::new();
    let file = home.path().join("permissions.yaml");
    fs::write(&file, "agents:\n  - laptop\n").unwrap();
    let ran = home.attache(&["hub", "--listen", "127.0.0.1:0", "--permissions", file.to_str().unwrap()]).exits(1);
    assert!(ran.stderr.contains("permissions.yaml: line 2, column "), "{}", ran.stderr);
}

#[test]
fn quotas_are_set_and_usage_is_summed() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    home.attache(&["quotas", "set", "--agent", "builder", "--calls", "1", "--cost", "0.5"]).succeeds();
    home.attache(&["quotas", "set", "--agent", "builder"]).exits(2);
    let listed = home.attache(&["quotas", "--json"]).succeeds().json();
    assert_eq!((&listed["quotas"][0]["calls"], &listed["quotas"][0]["cost_usd"]), (&json!(1), &json!(0.5)));
    // Limits that aren't passed stay unchanged; `none` removes one.
    let limits = |args: &[&str]| {
        home.attache(&[&["quotas", "set", "--agent", "builder"], args].concat()).succeeds();
        let listed = home.attache(&["quotas", "--json"]).succeeds().json();
        ["calls", "tokens", "cost_usd"].map(|name| listed["quotas"][0][name].clone())
    };
    assert_eq!(limits(&["--tokens", "5"]), [json!(1), json!(5), json!(0.5)]);
    assert_eq!(limits(&["--tokens", "none"]), [json!(1), json!(null), json!(0.5)]);
    home.attache(&["quotas", "set", "--agent", "builder", "--calls", "some"]).exits(2);
    let run = hub.create_run("builder", "first");
    let ran = home.attache(&["ask", "builder", "second", "--no-wait"]).exits(4);
    assert!(ran.stderr.contains("the agent `builder` is used up"), "{}", ran.stderr);
    // A call id works wherever a run id does.
    let call = run.replace("run_", "a2a-");
    assert_eq!(home.attache(&["runs", "show", &call, "--json"]).succeeds().json()["task_run_id"], json!(run));
    home.attache(&["deliveries", "list", "--run", &call]).succeeds();
    home.attache(&["approvals", "list", "--run", &call]).succeeds();
    home.attache(&["runs", "input", &call, ""]).exits(2);
    home.attache(&["runs", "cancel", &call]).succeeds();
    let ran = home.attache(&["watch", &call]).exits(1);
    assert!(ran.stderr.contains("the run was cancelled"), "{}", ran.stderr);
    let table = home.attache(&["quotas"]).succeeds().stdout;
    assert!(table.contains("agent builder") && table.contains("1 + 0 reserved of 1"), "{table}");
    let sums = home.attache(&["usage", "--by", "agent", "--json"]).succeeds().json();
    assert_eq!((&sums["builder"]["calls"], &sums["builder"]["failed"]), (&json!(1), &json!(1)));
    let table = home.attache(&["usage", "--days", "7"]).succeeds().stdout;
    assert!(table.starts_with("DAY") && table.contains("builder"), "{table}");
    home.attache(&["quotas", "set", "--agent", "builder", "--calls", "none", "--cost", "none"]).succeeds();
    home.attache(&["quotas", "set", "--agent", "builder", "--calls", "7"]).succeeds();
    home.attache(&["quotas", "remove", "--agent", "builder"]).succeeds();
    home.attache(&["quotas", "remove", "--agent", "builder"]).exits(3);
}

#[test]
fn an_edited_truncated_or_reordered_export_is_detected() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let rules = home.path().join("rules.yaml");
    fs::write(&rules, "default: deny\n").unwrap();
    home.attache(&["rules", "set", rules.to_str().unwrap()]).succeeds();
    home.attache(&["quotas", "set", "--calls", "5"]).succeeds();
    home.attache(&["quotas", "remove"]).succeeds();
    home.attache(&["audit", "verify"]).succeeds();
    let export = home.attache(&["audit", "export"]).succeeds().stdout;
    let rows: Vec<&str> = export.lines().collect();
    let place = |kind: &str| rows.iter().position(|row| row.contains(&format!("\"{kind}\""))).unwrap();
    let file = home.path().join("audit.jsonl");
    let path = file.to_str().unwrap();
    for kind in ["rules.changed", "quota.changed", "quota.removed"] {
        let at = place(kind);
        let edited: Vec<String> = rows
            .iter()
            .enumerate()
            .map(|(row, text)| if row == at { text.replacen("\"key:", "\"kez:", 1) } else { (*text).to_owned() })
            .collect();
        assert_ne!(edited[at], rows[at]);
        let mut dropped: Vec<String> = rows.iter().map(|row| (*row).to_owned()).collect();
        dropped.remove(at);
        let mut swapped: Vec<String> = rows.iter().map(|row| (*row).to_owned()).collect();
        swapped.swap(at - 1, at);
        for (what, forged) in [("edited", edited), ("dropped", dropped), ("swapped", swapped)] {
            fs::write(&file, forged.join("\n")).unwrap();
            let ran = home.attache(&["audit", "verify", "--file", path]);
            let is_last = at == rows.len() - 1;
            if what == "dropped" && is_last {
                // Only someone who kept the hash can detect a truncated end of the chain.
                ran.succeeds();
            } else {
                let said = ran.exits(1).stderr;
                assert!(said.contains(&format!("{path} was modified at row ")), "{kind} {what}: {said}");
            }
        }
    }
}

#[test]
fn an_earlier_export_detects_a_truncated_or_rewritten_log() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let file = home.path().join("earlier.jsonl");
    let path = file.to_str().unwrap();
    let export = home.attache(&["audit", "export"]).succeeds().stdout;
    fs::write(&file, &export).unwrap();
    hub.add_agent("second");
    home.attache(&["audit", "verify", "--against", path]).succeeds();

    // Another hub with its own log simulates a rebuilt log: consistent in itself, but different.
    let other = TestHome::new();
    let rebuilt = other.hub(&[]);
    for name in ["builder", "second", "third"] {
        rebuilt.add_agent(name);
    }
    other.attache(&["audit", "verify"]).succeeds();
    assert!(
        other.attache(&["audit", "verify", "--against", path]).exits(1).stderr.contains("the log was modified at row ")
    );

    // An export that is ahead of the hub simulates a log whose newest rows are gone.
    hub.add_agent("third");
    let ahead = home.attache(&["audit", "export"]).succeeds().stdout;
    assert!(ahead.lines().count() > export.lines().count());
    let behind = TestHome::new();
    let _shorter = behind.hub(&[]);
    fs::write(&file, ahead).unwrap();
    behind.attache(&["audit", "verify", "--against", path]).exits(1);
    fs::write(&file, export.replacen("\"key:", "\"kez:", 1)).unwrap();
    home.attache(&["audit", "verify", "--against", path]).exits(1);
}
