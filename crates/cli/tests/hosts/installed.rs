//! Hosts with our entry from `attache mcp install` in their own configuration: runs through Attaché still work.

use serde_json::json;

use super::programs::{self, HostProgram};
use crate::device_or_skip;

#[test]
fn codex_works_with_our_server_in_its_own_configuration() {
    works_after_install(&programs::CODEX, "codex");
}

#[test]
fn claude_code_works_with_our_server_in_its_own_configuration() {
    works_after_install(&programs::CLAUDE, "claude");
}

#[test]
fn gemini_works_with_our_server_in_its_own_configuration() {
    works_after_install(&programs::GEMINI, "gemini");
}

fn works_after_install(program: &HostProgram, client: &str) {
    let device = device_or_skip!(program);
    device.home.attache(&["mcp", "install", "--for", client]).succeeds();
    let run = device.create("WRITE:after.txt=still works", json!({}));
    let (ended, _) = device.answer(&run, true);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(device.folder.join("after.txt").exists());
    if let Some(tool) = program.tool {
        // The tools of the run, not those of the person.
        let run = device.create(&format!("CALL:{tool} {{}}"), json!({}));
        let (ended, asked) = device.answer(&run, true);
        assert!(ended["status"] == "completed" && asked.is_empty(), "{ended} {asked:?}");
    }
    // `doctor` starts it as for a task.
    let output = device.home.attache(&["doctor", "--json"]).stdout;
    let report: serde_json::Value = serde_json::from_str(&output).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let tried =
        findings.iter().find(|finding| finding["message"].as_str().unwrap().contains("starts and accepts tasks"));
    assert_eq!(tried.map(|finding| finding["state"].clone()), Some(json!("ok")), "{output}");
}

/// The purpose of `doctor`: a configuration with which the host doesn't start.
#[test]
fn doctor_finds_a_codex_that_does_not_start_for_a_task() {
    let device = device_or_skip!(&programs::CODEX);
    let file = device.home.path().join(".codex/config.toml");
    let mut config = std::fs::read_to_string(&file).unwrap();
    config.push_str("\n[mcp_servers.attache_run]\ncommand = \"true\"\n");
    std::fs::write(&file, config).unwrap();
    let output = device.home.attache(&["doctor"]);
    assert!(
        format!("{}{}", output.stdout, output.stderr).contains("fails to start for a task"),
        "{}{}",
        output.stdout,
        output.stderr
    );
}
