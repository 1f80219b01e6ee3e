//! A day with an agent: begun in a terminal, continued from a phone, and resumed in the terminal. The programs, the browser
//! and the encryption of the notifications are real; the model follows its prompt. Nothing is typed twice, and no id is
//! copied by hand: what a person doesn't type, the test takes from a page.

mod phone;
mod push;

use std::{fs, process::Stdio};

use serde_json::json;

use self::{phone::Phone, push::PushService};
use crate::hosts::{
    device::{HostDevice, patiently},
    programs::{self, HostProgram},
};

/// What differs between the programs.
struct Day {
    program: &'static HostProgram,
    /// How a session begins in a terminal in which nobody types.
    begins: &'static [&'static str],
    /// How the page says that the session is resumed, and the same for a terminal in which nobody types.
    resumes: (&'static str, &'static str),
}

#[test]
fn with_claude_code() {
    passes(&Day { program: &programs::CLAUDE, begins: &["-p"], resumes: ("claude --resume", "claude -p --resume") });
}

#[test]
fn with_codex() {
    passes(&Day {
        program: &programs::CODEX,
        begins: &["exec", "--skip-git-repo-check"],
        resumes: ("codex resume", "codex exec --skip-git-repo-check resume"),
    });
}

fn passes(day: &Day) {
    let Some(device) = HostDevice::on_hub(day.program, &["--egress-allow", "127.0.0.1"]) else {
        eprintln!("skipped: {} is not installed (./test installs it)", day.program.file);
        return;
    };
    let Some(phone) = Phone::open(&device.hub.url) else { return };

    day.prepares(&device);

    // In the terminal, with the bare program.
    let mut terminal = device.home.program(day.program.file);
    terminal.args(day.begins).arg("SAY:begun in the terminal").current_dir(&device.folder).stdin(Stdio::null());
    let ran = terminal.output().unwrap();
    assert!(ran.status.success(), "{ran:?}");

    // On the phone.
    let push = PushService::start();
    phone.sign_in(&device.hub);
    phone.subscribes(&push);
    let agent = format!("/api/v1/agent-accounts/{}/host-sessions", crate::hosts::device::AGENT);
    patiently("the device to report the session", || {
        let sessions = device.hub.get(&agent);
        (sessions["host_sessions"] != json!([])).then_some(())
    });
    phone.go("/conversations");
    phone.reads("#terminal-sessions", "Started in a terminal");
    phone.reads("#terminal-sessions li", "SAY:begun in the terminal");
    phone.fits();
    phone.taps("#terminal-sessions form button");
    phone.reads("#turns", "Your next message continues the session from the terminal.");

    // The agent asks, and the question is answered with an option.
    let task = format!("CALL:{}\nRUN:echo tabs > style.txt\nSAY:never said", day.question());
    phone.types("#reply-text", &task);
    phone.taps("#reply button.go");
    let run = waits_for(&device, "input");
    assert_eq!(push.next()["title"], "coder has a question");
    phone.reads("#turns .slip", "How do we indent?");
    phone.fits();
    phone.taps("#turns .slip label.choice:nth-of-type(2)");
    phone.taps("#turns .slip .decide button");

    // While its next step waits for approval, its course is corrected.
    let command = waits_for(&device, "approval");
    assert_eq!(command, run, "it is still the same run");
    phone.reads("#turns", "Answer: Spaces");
    phone.reads("#turns .slip", "echo tabs > style.txt");
    let correction = day.correction(&device);
    phone.types("#reply-text", &correction);
    phone.taps("#reply-now button");
    phone.reads("#turns", "While it works:");

    // The command is approved from the notification, which shows all of it.
    let told = push.next();
    let shown = phone.is_notified(&told);
    assert_eq!(shown["title"], "coder wants to run a command", "{told}");
    assert!(shown["body"].as_str().unwrap().contains("echo tabs > style.txt"), "{told}");
    assert_eq!(shown["actions"], json!([["approve", "Approve"], ["deny", "Deny"]]), "{told}");
    phone.presses(&shown, "approve");
    let decided = device.hub.get("/api/v1/permission-requests?state=approved");
    let decided = &decided["permission_requests"][0];
    assert_eq!((&decided["task_run_id"], &decided["decided_via"]), (&json!(run), &json!("notification")), "{decided}");

    // What it does now is what it was told meanwhile. The change is reviewed before it is made.
    let next = push.next();
    let shown = phone.is_notified(&next);
    assert_eq!(fs::read_to_string(device.folder.join("style.txt")).unwrap(), "tabs\n");
    assert_eq!(shown["data"]["path"], json!(format!("/approvals/{}", next["tag"].as_str().unwrap())));
    phone.reads("#turns .slip", "style.txt");
    day.reviews(&phone, "#turns .slip");
    phone.fits();
    phone.taps("#turns .slip button[value=allow_once]");
    let ended = device.ended(&run);
    assert_eq!((&ended["status"], device.ends(&run)), (&json!("completed"), 1), "{ended}");
    assert_eq!(fs::read_to_string(device.folder.join("style.txt")).unwrap(), "spaces\n");
    let answer = format!("#{run}-answer > .answer");
    phone.reads(&answer, "corrected");
    assert!(!phone.text(&answer).contains("never said"), "{}", phone.text(&answer));

    // Afterwards, the page of the run shows what was changed.
    phone.taps(&format!("#turns a[href='/runs/{run}']"));
    phone.sees("location.pathname.startsWith('/runs/run_')");
    day.reviews(&phone, "#log");
    phone.fits();

    // Back in the terminal, with the command that the page shows.
    phone.run("history.back()");
    phone.sees("location.pathname.startsWith('/conversations/')");
    phone.taps("#terminal > summary");
    phone.fits();
    let command = phone.text("#terminal-command");
    let (resume, without_typing) = day.resumes;
    assert!(command.contains(resume), "{command}");
    let mut terminal = device.home.program("sh");
    let again = format!("{} 'SAY:back in the terminal'", command.replace(resume, without_typing));
    let ran = terminal.args(["-c", &again]).stdin(Stdio::null()).output().unwrap();
    assert!(ran.status.success(), "{again}: {ran:?}");
    let told = format!("{:?}", device.model.requests().last().unwrap());
    for earlier in
        ["begun in the terminal", "How do we indent?", "Spaces", "echo tabs", "corrected", "back in the terminal"]
    {
        assert!(told.contains(earlier), "the program doesn't know {earlier:?}: {told}");
    }
    phone.is_content();
}

/// Waits until the newest run waits for a person, and returns its id.
#[track_caller]
fn waits_for(device: &HostDevice, what: &str) -> String {
    patiently(&format!("a run that waits for {what}"), || {
        let newest = device.hub.get("/api/v1/task-runs?limit=1");
        let id = newest["task_runs"][0]["task_run_id"].as_str()?.to_owned();
        let run = device.hub.run(&id);
        let ended = ["completed", "failed", "cancelled"].iter().any(|status| run["status"] == *status);
        assert!(!ended, "{run}");
        (run["waits_for"]["kind"] == what).then_some(id)
    })
}

// === impl Day ===

impl Day {
    /// Codex offers its tool for patches only to models that it knows.
    fn prepares(&self, device: &HostDevice) {
        let config = device.home.path().join(".codex/config.toml");
        if let Ok(text) = fs::read_to_string(&config) {
            fs::write(&config, text.replace("stub-model", "gpt-5.5")).unwrap();
        }
    }

    /// The tool that asks, with its input.
    fn question(&self) -> String {
        let options = json!([{"label": "Tabs", "description": "one per level"},
            {"label": "Spaces", "description": "four per level"}]);
        let mut question = json!({"question": "How do we indent?", "header": "Style", "options": options});
        let tool = if self.program.kind == "codex" {
            question["id"] = json!("indent");
            "request_user_input"
        } else {
            question["multiSelect"] = json!(false);
            "AskUserQuestion"
        };
        format!("{tool} {}", json!({ "questions": [question] }))
    }

    /// What the agent is told while it works.
    fn correction(&self, device: &HostDevice) -> String {
        let file = device.folder.join("style.txt").canonicalize().unwrap_or_else(|_| device.folder.join("style.txt"));
        match self.program.kind {
            "codex" => {
                let patch = "*** Begin Patch\n*** Update File: style.txt\n@@\n-tabs\n+spaces\n*** End Patch\n";
                format!("CALL:apply_patch {}\nSAY:corrected", json!({"input": patch}))
            }
            _ => {
                let read = json!({ "file_path": file });
                let edit = json!({"file_path": file, "old_string": "tabs", "new_string": "spaces"});
                format!("CALL:Read {read}\nCALL:Edit {edit}\nSAY:corrected")
            }
        }
    }

    /// The change is shown line by line.
    fn reviews(&self, phone: &Phone, within: &str) {
        let shown = |class: &str, text: &str| {
            let script = format!(
                "[...document.querySelectorAll('{within} .{class}')].some((line) => line.textContent.includes({text:?}))"
            );
            phone.sees(&script);
        };
        shown("cut", "tabs");
        shown("add", "spaces");
    }
}
