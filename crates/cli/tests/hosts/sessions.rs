//! A session that a person begins in a terminal, continues through the hub, and resumes in the terminal, without a setting.

use serde_json::Value;

use super::{
    device::{AGENT, HostDevice, patiently},
    programs::{self, HostProgram},
};
use crate::device_or_skip;

#[test]
fn a_session_of_claude_code_goes_from_the_terminal_to_the_hub_and_back() {
    goes_there_and_back(&programs::CLAUDE, &["-p"], "claude --resume", "claude -p --resume");
}

#[test]
fn a_session_of_codex_goes_from_the_terminal_to_the_hub_and_back() {
    let begin = ["exec", "--skip-git-repo-check"];
    goes_there_and_back(&programs::CODEX, &begin, "codex resume", "codex exec --skip-git-repo-check resume");
}

/// `resume` is how the page says it is resumed, `without_typing` the same for a program that nobody types into.
fn goes_there_and_back(program: &HostProgram, begin: &[&str], resume: &str, without_typing: &str) {
    let device = device_or_skip!(program);
    let said = |text: &str| format!("{:?}", device.model.requests().last().unwrap()).contains(text);
    let mut terminal = device.home.program(program.file);
    terminal.args(begin).arg("SAY:said in the terminal").current_dir(&device.folder);
    let ran = terminal.stdin(std::process::Stdio::null()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");

    let session = patiently("the device to report the session", || sessions(&device).into_iter().next());
    let id = session["session_id"].as_str().unwrap();
    assert_eq!(session["title"], "SAY:said in the terminal");
    let folder = device.folder.canonicalize().unwrap();
    let command = format!("cd {} && {resume} {id}", folder.display());
    assert_eq!((&session["command"], &session["conversation_id"]), (&Value::from(command.as_str()), &Value::Null));

    let asked = device.home.attache(&["ask", AGENT, "--session", "last", "SAY:said through the hub"]).succeeds();
    assert_eq!(asked.stdout.trim(), "said through the hub");
    assert!(said("said in the terminal"), "the model sees what was said before");
    let session = sessions(&device).remove(0);
    let conversation = session["conversation_id"].as_str().unwrap();
    assert!(asked.stderr.contains(&format!("Continuing in {conversation}.")), "{}", asked.stderr);
    device.home.attache(&["ask", AGENT, "--conversation", conversation, "SAY:said later"]).succeeds();
    assert!(said("said in the terminal") && said("said through the hub"));
    let none_left = device.home.attache(&["ask", AGENT, "--session", "last", "SAY:no"]);
    assert!(none_left.stderr.contains("No such session"), "{}", none_left.stderr);

    let again = command.replace(resume, without_typing);
    let mut terminal = device.home.program("sh");
    terminal.args(["-c", &format!("{again} 'SAY:back in the terminal'")]).stdin(std::process::Stdio::null());
    let ran = terminal.output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert!(said("said through the hub") && said("said later") && said("back in the terminal"));
    assert_eq!(sessions(&device).len(), 1, "it is still the same session");

    // A conversation of one's own remembers, too.
    device.home.attache(&["ask", AGENT, "SAY:a conversation of its own"]).succeeds();
    assert!(!said("said in the terminal"));
    let own = device.home.attache(&["runs", "list", "--json"]).succeeds();
    let own: Value = serde_json::from_str(&own.stdout).unwrap();
    let own = own["task_runs"][0]["conversation_id"].as_str().unwrap();
    device.home.attache(&["ask", AGENT, "--conversation", own, "SAY:once more"]).succeeds();
    assert!(said("a conversation of its own"));
}

fn sessions(device: &HostDevice) -> Vec<Value> {
    let listed = device.home.attache(&["conversations", "sessions", AGENT, "--json"]).succeeds();
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    listed["host_sessions"].as_array().unwrap().clone()
}
