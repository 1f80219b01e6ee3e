//! The command line of Claude Code 2.1.325, as far as programs use it.

use serde_json::Value;

/// Options that stand alone.
const ALONE: &[&str] = &[
    "--bare",
    "--brief",
    "--continue",
    "--dangerously-skip-permissions",
    "--allow-dangerously-skip-permissions",
    "--disable-slash-commands",
    "--exclude-dynamic-system-prompt-sections",
    "--fork-session",
    "--forward-subagent-text",
    "--include-hook-events",
    "--include-partial-messages",
    "--no-chrome",
    "--no-session-persistence",
    "--print",
    "--replay-user-messages",
    "--restricted",
    "--safe-mode",
    "--strict-mcp-config",
    "--verbose",
    "-c",
    "-p",
];

/// Options with a value.
const VALUED: &[&str] = &[
    "--add-dir",
    "--agent",
    "--agents",
    "--allowed-tools",
    "--allowedTools",
    "--append-system-prompt",
    "--append-system-prompt-file",
    "--autocompact",
    "--betas",
    "--debug-file",
    "--disallowed-tools",
    "--disallowedTools",
    "--effort",
    "--fallback-model",
    "--input-format",
    "--json-schema",
    "--max-budget-usd",
    "--max-turns",
    "--mcp-config",
    "--model",
    "--name",
    "--output-format",
    "--permission-mode",
    "--permission-prompt-tool",
    "--permission-prompts",
    "--plugin-dir",
    "--resume",
    "--session-id",
    "--setting-sources",
    "--settings",
    "--system-prompt",
    "--system-prompt-file",
    "--tools",
    "-n",
    "-r",
];

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FakeClaudeFlags {
    given: Vec<(String, Option<String>)>,
    pub(super) prompt: Option<String>,
    /// What `initialize` says in place of the command line.
    instructions: Vec<String>,
}

// === impl FakeClaudeFlags ===

impl FakeClaudeFlags {
    /// Fails with the option that Claude Code does not know.
    pub(super) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (name, joined) = match argument.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (argument.as_str(), None),
            };
            if ALONE.contains(&name) {
                flags.given.push((name.to_owned(), None));
            } else if VALUED.contains(&name) {
                let value = joined.or_else(|| rest.next().cloned());
                flags.given.push((name.to_owned(), value));
            } else if argument.starts_with('-') {
                return Err(argument.clone());
            } else {
                flags.prompt = Some(argument.clone());
            }
        }
        Ok(flags)
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| given == name)
    }

    /// The last one counts.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let given = self.given.iter().rev().find(|(given, _)| given == name);
        given.and_then(|(_, value)| value.as_deref())
    }

    /// The system prompt may come with `initialize`, too.
    pub(super) fn instruct(&mut self, request: &Value) {
        for member in ["systemPrompt", "appendSystemPrompt"] {
            self.instructions.extend(request[member].as_str().map(str::to_owned));
        }
    }

    /// What there is in place of the system prompt and after it, joined by line breaks.
    pub(super) fn system(&self) -> Option<String> {
        let texts = ["--system-prompt", "--append-system-prompt"].into_iter().filter_map(|name| self.value(name));
        let files = ["--system-prompt-file", "--append-system-prompt-file"].into_iter();
        let files = files.filter_map(|name| self.value(name)).map(|file| {
            std::fs::read_to_string(file).unwrap_or_else(|error| format!("{file} cannot be read: {error}"))
        });
        let all: Vec<String> = texts.map(str::to_owned).chain(files).chain(self.instructions.iter().cloned()).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<FakeClaudeFlags, String> {
        FakeClaudeFlags::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_and_the_prompt_are_told_apart() {
        let flags = parse("-p --model x --verbose hello --output-format=json --append-system-prompt be").unwrap();
        assert_eq!(flags.prompt.as_deref(), Some("hello"));
        assert_eq!((flags.value("--model"), flags.value("--output-format")), (Some("x"), Some("json")));
        assert!(flags.is_set("--verbose") && !flags.is_set("--bare"));
        assert_eq!(flags.system().as_deref(), Some("be"));
        assert_eq!(parse("-p --nonsense x"), Err("--nonsense".to_owned()));
    }
}
