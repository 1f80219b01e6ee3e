//! Output that is too large for a result or isn't text, on every path: complete, or reported as truncated.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::{
    delegated_folders::world::{DelegationWorld, FolderRoute},
    harness::TestHome,
    mcp::hub::call,
};

/// Standard output of a successful command, byte for byte, and its standard error.
fn output(home: &TestHome, args: &[&str]) -> (Vec<u8>, String) {
    let output = home.command(args).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (output.stdout, said)
}

fn numbers() -> Vec<u8> {
    (1..=400_000).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[test]
fn the_output_of_an_outside_agent_is_complete() {
    let (here, there) = (TestHome::new(), TestHome::new());
    let hub = here.hub(&["--egress-allow", "127.0.0.1"]);
    let (their_hub, _runtime) = there.hub_with_builder();
    let (url, key) = (format!("{}/a2a/builder", their_hub.url), here.keep_secret("there.key", &their_hub.key));
    here.attache(&["agents", "add", "far", "--peer", &url, "--peer-key-file", &key]).succeeds();

    let (long, said) = output(&here, &["ask", "far", "seq 1 400000"]);
    assert_eq!(long.len(), numbers().len(), "{said}");
    assert!(long == numbers(), "bytes were changed on the way");
    assert!(said.matches("artifact answer").count() <= 1, "{said}");
    let run = &hub.get("/api/v1/task-runs?limit=1")["task_runs"][0];
    assert_eq!(run["task_result"]["full_output"], json!({"bytes": 2_688_895, "artifact_index": 0}), "{run}");

    let script = "printf \"$(printf '\\\\%03o' $(seq 0 255))\"";
    let (binary, said) = output(&here, &["ask", "far", script]);
    let (direct, _) = output(&there, &["ask", "builder", script]);
    assert_eq!(direct.len(), 256, "{direct:?}");
    assert_eq!(binary, direct, "{said}");
    assert_eq!(output(&here, &["ask", "far", "echo short"]).0, b"short\n");
}

#[test]
fn a_model_and_a_program_learn_that_a_text_is_truncated() {
    let home = TestHome::new();
    let (hub, _runtime) = home.hub_with_builder();
    let answer = call(&hub, &hub.key, "remote_agent", json!({"task": "seq 1 400000", "agent_url": "builder"}));
    let full = &answer["structuredContent"]["metadata"]["full_output"];
    assert_eq!(full["bytes"], 2_688_895, "{full}");
    let artifact = full["artifact_id"].as_str().unwrap();
    let text = answer["content"][0]["text"].as_str().unwrap();
    let note = &text[text.len() - 400..];
    assert!(note.contains("of 2688895 bytes"), "{note}");
    assert!(note.contains(&format!("attache artifacts get {artifact} --output FILE")), "{note}");
    assert_eq!(output(&home, &["artifacts", "get", artifact]).0.len(), numbers().len());

    let call_id = answer["structuredContent"]["metadata"]["call_id"].as_str().unwrap();
    let result = hub.get(&format!("/api/a2a/result/{call_id}"));
    assert_eq!(result["result"]["full_output"], json!({"bytes": 2_688_895, "artifact_id": artifact}));
    let short = call(&hub, &hub.key, "remote_agent", json!({"task": "echo all of it", "agent_url": "builder"}));
    assert_eq!(short["structuredContent"]["metadata"]["full_output"], Value::Null);
}

#[test]
fn a_delegation_reports_truncated_output_and_where_to_get_it() {
    let Some(world) = DelegationWorld::new(FolderRoute::Direct, "") else { return };
    let (folder, url) = (world.folder.to_str().unwrap(), world.agent_url());
    let cut = world.host.attache(&["delegate", folder, "--to", &url, "seq 1 400000"]).exits(1);
    assert!(cut.stderr.contains("the output is truncated"), "{}", cut.stderr);
    let word = |prefix: &str| {
        let found = cut.stderr.split_whitespace().find(|word| word.starts_with(prefix)).unwrap_or_default();
        found.trim_end_matches('.').to_owned()
    };
    let (artifact, run) = (word("art_"), word("run_"));
    let named: Vec<&str> = cut.stderr.lines().filter(|line| line.starts_with("  /")).collect();
    assert!(named.is_empty(), "files of the remote's that are gone: {named:?}");
    let key = world.key_file();
    let hub = ["--hub", &world.url, "--key-file", key.to_str().unwrap()];
    let (all, _) = output(&world.host, &[&["artifacts", "get", &artifact][..], &hub].concat());
    assert!(all == numbers(), "{} bytes", all.len());
    let listed = world.host.attache(&[&["artifacts", "list", &run][..], &hub].concat()).succeeds();
    assert!(listed.stdout.contains("output.txt"), "{}", listed.stdout);
    world.host.attache(&["delegate", folder, "--to", &url, "echo short"]).succeeds();
}
