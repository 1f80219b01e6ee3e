//! An agent program that is no agent: it speaks like one and does what its prompt says, without a model.
//!
//! The first argument is the manner of speaking, the rest is what the real program would get:
//!
//! | Argument | Speaks like |
//! |---|---|
//! | `acp` | any agent of the Agent Client Protocol, version 1, on stdin and stdout |
//! | `claude` | Claude Code: `-p`, stream-json both ways with its control protocol, or one prompt |
//! | `codex` | `codex app-server` |
//! | `cursor` | `cursor-agent -p --output-format stream-json`, as documented |
//! | `text`, `jsonl` | a program that prints text, or one JSON object per line (see [`printing`]) |
//!
//! The words are those of [`crate::script`], and of these:
//!
//! | Word | What it does |
//! |---|---|
//! | `ASK:<tool>` | asks for leave to use the tool, without telling more than the name, and says what was answered |
//! | `THINK:<text>`, `PLAN` | a thought, a plan of two steps |
//! | `COST:<usd>`, `TOKENS:<n>` | what each step is said to have cost; a `LOOP` spends it over and over |
//! | `RETRY:<n>/<m>` | says that it asks the model once more |
//! | `DENIED` | a tool that its own rules forbid |
//! | `ENV:<name>`, `ARGS`, `SYSTEM` | says a variable or `unset`, the arguments, the system prompt |
//! | `CRASH`, `EXIT:<n>` | ends at once, by a signal or with the status |
//! | `GARBAGE` | prints something unparseable and exits with 0 |
//! | `HANG` | ignores interrupts, SIGINT, SIGTERM and the end of its input |
//! | `CHILD` | leaves one process in its group and one in a session of its own, and says `CHILDREN <pid> <pid>` |
//!
//! `WRITE`, `RUN` and `CALL` ask for leave wherever the real program would. In `acp`, `CALL:fs/write_text_file {…}` and other
//! names with a slash call the client, whatever it has declared. In `codex`, `WRITE` is a change of a file and `RUN` a command.

mod acp;
mod claude;
mod client;
mod codex;
mod player;
pub mod printing;
mod program;
mod signals;
mod tool_use;

use std::{
    io::{Write as _, stderr, stdout},
    process::ExitCode,
};

/// The program.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let manner = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    if let Some(line) = about(&manner, &arguments) {
        let _ = writeln!(stdout(), "{line}");
        return ExitCode::SUCCESS;
    }
    let status = match manner.as_str() {
        "acp" => acp::main(arguments),
        "claude" => claude::main(arguments),
        "codex" => codex::main(arguments),
        "cursor" => printing::main(printing::PrintFormat::Cursor, arguments),
        "text" => printing::main(printing::PrintFormat::Text, arguments),
        "jsonl" => printing::main(printing::PrintFormat::JsonLines, arguments),
        _ => {
            let _ = writeln!(stderr(), "fake-host: say first how to speak: acp, claude, codex, cursor, text or jsonl");
            2
        }
    };
    ExitCode::from(status)
}

/// What the real program prints about its version and login.
fn about(manner: &str, arguments: &[String]) -> Option<&'static str> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match (manner, arguments.as_slice()) {
        ("claude", ["--version" | "-v"]) => Some("2.1.325 (Claude Code)"),
        ("codex", ["--version" | "-V"]) => Some("codex-cli 0.166.0"),
        ("cursor", ["--version" | "-v"]) => Some("2026.10.29-1a2b3c4"),
        ("acp" | "text" | "jsonl", ["--version"]) => Some("1.2.3"),
        ("claude", ["auth", "status"]) => Some("{\n  \"loggedIn\": true,\n  \"authMethod\": \"api_key\"\n}"),
        ("codex", ["login", "status"]) => Some("Logged in using an API key"),
        ("cursor", ["status"]) => Some("Logged in as somebody@example.org"),
        _ => None,
    }
}
