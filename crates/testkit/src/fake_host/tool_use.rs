//! What an agent does with a tool: writing a file, running a command, or calling something by name.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolUse {
    /// Never the same twice in one program.
    pub(super) id: String,
    pub(super) what: FakeToolAction,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum FakeToolAction {
    Write {
        path: String,
        text: String,
    },
    Run(String),
    Call {
        tool: String,
        input: Value,
    },
    /// Only asks.
    Ask(String),
    /// Without effect and without need of leave.
    Read(String),
}

/// What the tool answered, good or bad.
pub(super) type ToolAnswer = Result<String, String>;

// === impl FakeToolAction ===

impl FakeToolAction {
    /// As Claude Code names and feeds its tools; others differ in little.
    pub(super) fn tool(&self) -> (&str, Value) {
        match self {
            Self::Write { path, text } => ("Write", json!({"file_path": path, "content": format!("{text}\n")})),
            Self::Run(command) => ("Bash", json!({"command": command, "description": "Runs what was asked for"})),
            Self::Call { tool, input } => (tool, input.clone()),
            Self::Ask(tool) => (tool, json!({})),
            Self::Read(path) => ("Read", json!({"file_path": path})),
        }
    }

    pub(super) fn path(&self) -> Option<&str> {
        match self {
            Self::Write { path, .. } | Self::Read(path) => Some(path),
            Self::Run(_) | Self::Call { .. } | Self::Ask(_) => None,
        }
    }

    /// In a few words.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Write { path, .. } => format!("Write {path}"),
            Self::Run(command) => format!("`{command}`"),
            Self::Call { tool, .. } | Self::Ask(tool) => tool.clone(),
            Self::Read(path) => format!("Read {path}"),
        }
    }

    /// Does it, in the folder this program was started in or told of.
    pub(super) fn execute(&self, folder: &Path) -> ToolAnswer {
        match self {
            Self::Write { path, text } => {
                let file = folder.join(path);
                let made = file.parent().map_or(Ok(()), std::fs::create_dir_all);
                made.and_then(|()| std::fs::write(&file, format!("{text}\n")))
                    .map(|()| format!("wrote {path}"))
                    .map_err(|error| format!("{path} cannot be written: {error}"))
            }
            Self::Run(command) => run(command, folder),
            Self::Call { tool, .. } => Ok(format!("called {tool}")),
            Self::Ask(tool) => Ok(format!("may use {tool}")),
            Self::Read(path) => {
                std::fs::read_to_string(folder.join(path)).map_err(|error| format!("{path} cannot be read: {error}"))
            }
        }
    }
}

fn run(command: &str, folder: &Path) -> ToolAnswer {
    let output = Command::new("sh").args(["-c", command]).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("there is no shell: {error}"))?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim_end().to_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{}: {text}", output.status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_where_the_agent_works() {
        let folder = std::env::temp_dir().join(format!("fake-host-{}", std::process::id()));
        let write = FakeToolAction::Write { path: "a/b.txt".to_owned(), text: "hi".to_owned() };
        assert_eq!(write.execute(&folder), Ok("wrote a/b.txt".to_owned()));
        assert_eq!(FakeToolAction::Read("a/b.txt".to_owned()).execute(&folder), Ok("hi\n".to_owned()));
        assert_eq!(
            FakeToolAction::Run("cat a/b.txt; echo no >&2; exit 3".to_owned()).execute(&folder),
            Err("exit status: 3: hi\nno".to_owned())
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
