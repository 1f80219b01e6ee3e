//! Permission modes: which steps of an agent are approved without asking a person, because its owner trusts them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Json, json::Members, rules::permission::hides_input, text_enum};

text_enum! {
    /// Which steps of an agent need no approval by a person.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum PermissionMode {
        /// None.
        #[default]
        Ask = "ask",
        /// Changes to ordinary files in the run's folder.
        AcceptEdits = "accept_edits",
        /// Everything, as long as the run is inside the walls of its device.
        AcceptWalled = "accept_walled",
    }
}

text_enum! {
    /// What a device vouches for when it asks for permission.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum StepAssurance {
        /// The step only changes files in the run's folder, and no program runs or obeys them on its own.
        FolderEdit = "folder_edit",
        /// The command runs in the run's folder.
        InFolder = "in_folder",
        /// The run is inside walls that the device has proved.
        Walled = "walled",
    }
}

/// A step that a worker asks permission for, as modes see it.
#[derive(Debug, Clone, Copy)]
pub struct StepFacts<'a> {
    pub input: &'a Json,
    pub cwd: Option<&'a str>,
    pub undisclosed: &'a [String],
    pub assured: &'a [StepAssurance],
}

/// Why nobody is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustReason {
    Edit,
    Walled,
    /// The pattern that the command matches.
    Command(String),
}

/// A command as its owner trusts it: words, of which `*` stands for any one, and as the last one for any number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPattern(Vec<String>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandPatternError {
    #[error("is not a plain command: words and quotes only, no variables, pipes, redirections or lists")]
    NotPlain,
    #[error("must begin with the name of a program")]
    NoProgram,
    #[error("would allow any command: this program runs what its arguments say")]
    RunsOthers,
}

/// The members of a tool's input that hold a command.
const COMMANDS: [&str; 3] = ["command", "cmd", "script"];

/// The members that name the folder in which it runs.
const FOLDERS: [&str; 3] = ["cwd", "workdir", "directory"];

/// Members that don't change what a command does.
const HARMLESS: [&str; 6] = ["description", "timeout", "timeout_ms", "is_background", "run_in_background", "actions"];

/// Shells that hosts put around every command. Any other path may be a program of the folder.
const SHELLS: [&str; 11] = [
    "sh",
    "bash",
    "zsh",
    "/bin/sh",
    "/bin/bash",
    "/bin/zsh",
    "/usr/bin/sh",
    "/usr/bin/bash",
    "/usr/bin/zsh",
    "/usr/local/bin/bash",
    "/usr/local/bin/zsh",
];

/// Programs that start what their arguments say.
const WRAPPERS: [&str; 40] = [
    "sh", "bash", "dash", "ash", "zsh", "fish", "ksh", "pwsh", "busybox", "env", "sudo", "doas", "su", "xargs", "eval",
    "exec", "command", "builtin", "source", ".", "nohup", "timeout", "nice", "setsid", "stdbuf", "time", "watch",
    "parallel", "ssh", "docker", "podman", "nsenter", "unshare", "chroot", "find", "npx", "bunx", "pnpx", "uvx",
    "pipx",
];

/// Programs that run code from their arguments.
const INTERPRETERS: [&str; 9] = ["python", "node", "deno", "bun", "perl", "ruby", "php", "awk", "lua"];

/// Why a step needs no approval by a person under this mode and these patterns. A step whose input is hidden, even partly,
/// always does.
pub fn trusted(mode: PermissionMode, commands: &[CommandPattern], step: StepFacts<'_>) -> Option<TrustReason> {
    if hides_input(step.undisclosed) {
        return None;
    }
    let is_assured = |what| step.assured.contains(&what);
    match mode {
        PermissionMode::AcceptWalled if is_assured(StepAssurance::Walled) => return Some(TrustReason::Walled),
        PermissionMode::AcceptEdits if is_assured(StepAssurance::FolderEdit) => return Some(TrustReason::Edit),
        _ => {}
    }
    let words = plain(&command(step)?)?;
    let matching = commands.iter().find(|pattern| pattern.matches(&words))?;
    Some(TrustReason::Command(matching.to_string()))
}

/// The command of a step that is nothing but a command in the run's folder.
fn command(step: StepFacts<'_>) -> Option<String> {
    let members = step.input.parse::<Members>().ok().filter(Members::are_distinct)?;
    let (name, command) = COMMANDS.iter().find_map(|name| Some((*name, members.text(name)?)))?;
    let is_folder = |value: &Json| step.cwd.is_some() && value.parse::<String>().ok().as_deref() == step.cwd;
    if !step.assured.contains(&StepAssurance::InFolder) {
        return None;
    }
    let is_harmless = |(member, value): &(String, Json)| match member.as_str() {
        member if member == name || HARMLESS.contains(&member) => true,
        member if FOLDERS.contains(&member) => is_folder(value),
        // Outside the sandbox of its host, it can do more than it usually does.
        "sandbox" => value.get() == "\"on\"",
        _ => matches!(value.get(), "null" | "false"),
    };
    members.0.iter().all(is_harmless).then_some(command)
}

/// The words of a plain command, without the shell that a host puts around it.
fn plain(command: &str) -> Option<Vec<String>> {
    let found = words(command)?;
    match &found[..] {
        [shell, option, inner] if SHELLS.contains(&&**shell) && matches!(&**option, "-c" | "-lc") => words(inner),
        _ => Some(found),
    }
}

/// The name of a program without its folder.
fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// The words of a plain command. `None` if a shell would do anything but start one program with these words.
fn words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for character in command.trim_matches([' ', '\t']).chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some('\''), _) if character != '\n' => word.get_or_insert_default().push(character),
            (Some(_), '$' | '`' | '\\' | '!' | '\n') => return None,
            (Some(_), _) => word.get_or_insert_default().push(character),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(character);
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            // At the beginning of a word, it is somebody's home.
            (None, '~') => word.as_mut().filter(|word| !word.ends_with([':', '=']))?.push('~'),
            (None, _) if is_plain(character) => word.get_or_insert_default().push(character),
            (None, _) => return None,
        }
    }
    words.extend(word);
    let assigns = words.first().is_none_or(|program| program.is_empty() || program.contains('='));
    (quote.is_none() && !assigns).then_some(words)
}

/// Whether a character stands for itself wherever it is in a word of a shell.
fn is_plain(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '/' | ',' | ':' | '=' | '@' | '%' | '+' | '^')
}

// === impl CommandPattern ===

impl CommandPattern {
    /// Reads `git diff *`.
    pub fn parse(text: &str) -> Result<Self, CommandPatternError> {
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        let [program, rest @ ..] = &parts[..] else { return Err(CommandPatternError::NoProgram) };
        let is_word = |part: &&str| *part == "*" || words(part).is_some_and(|words| words == [*part]);
        if *program == "*" {
            return Err(CommandPatternError::NoProgram);
        }
        if !parts.iter().all(is_word) {
            return Err(CommandPatternError::NotPlain);
        }
        // `python3.12` is a Python.
        let name = name_of(program).trim_end_matches(|end: char| end.is_ascii_digit() || end == '.');
        let name = if name.is_empty() { *program } else { name };
        let any = rest.iter().position(|part| *part == "*");
        let runs_any = any.is_some_and(|any| {
            let chooses_program = rest[..any].iter().all(|part| part.starts_with('-'));
            WRAPPERS.contains(&name) || (INTERPRETERS.contains(&name) && chooses_program)
        });
        if runs_any {
            return Err(CommandPatternError::RunsOthers);
        }
        Ok(Self(parts.into_iter().map(str::to_owned).collect()))
    }

    fn matches(&self, words: &[String]) -> bool {
        let (fixed, is_open) = match self.0.split_last() {
            Some((last, fixed)) if last == "*" => (fixed, true),
            _ => (&self.0[..], false),
        };
        let has_length = if is_open { words.len() >= fixed.len() } else { words.len() == fixed.len() };
        has_length && fixed.iter().zip(words).all(|(wanted, word)| wanted == "*" || wanted == word)
    }
}

impl std::fmt::Display for CommandPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl std::fmt::Display for TrustReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Edit => f.write_str("edits in the run's folder are accepted"),
            Self::Walled => f.write_str("everything inside the walls of the device is accepted"),
            Self::Command(pattern) => write!(f, "`{pattern}` is a trusted command"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> CommandPattern {
        CommandPattern::parse(text).unwrap()
    }

    fn trusts(patterns: &[&str], input: &str) -> bool {
        let patterns: Vec<CommandPattern> = patterns.iter().map(|text| pattern(text)).collect();
        let input = Json::from_text(input).unwrap();
        let assured = [StepAssurance::InFolder];
        let step = StepFacts { input: &input, cwd: Some("/work"), undisclosed: &[], assured: &assured };
        let elsewhere = StepFacts { assured: &[StepAssurance::FolderEdit, StepAssurance::Walled], ..step };
        let is_trusted = |step| trusted(PermissionMode::Ask, &patterns, step).is_some();
        assert!(!is_trusted(elsewhere), "{input:?}");
        is_trusted(step)
    }

    fn runs(patterns: &[&str], command: &str) -> bool {
        trusts(patterns, Json::of(&std::collections::BTreeMap::from([("command", command)])).get())
    }

    #[test]
    fn trusted_commands_are_compared_by_words() {
        let patterns = ["git diff *", "cargo test", "npm run * --silent"];
        for command in [
            "git diff",
            "  git diff --stat HEAD~1 ",
            "git diff -- 'a b.txt' \"c d\"",
            "git 'diff' x",
            "cargo test",
            "npm run lint --silent",
            "/bin/bash -lc 'git diff --stat'",
            "sh -c \"cargo test\"",
        ] {
            assert!(runs(&patterns, command), "{command}");
        }
        for command in [
            "git",
            "git difftool",
            "git -c core.pager=x diff",
            "git push; git diff",
            "git diff; rm x",
            "git diff && rm x",
            "git diff | sh",
            "git diff > x",
            "git diff < x",
            "git diff & rm x",
            "git diff\nrm x",
            "git diff $(rm x)",
            "git diff `rm x`",
            "git diff \"$(rm x)\"",
            "git diff $HOME",
            "git diff ~/x",
            "git diff *",
            "git diff {a,b}",
            "git diff \\; rm x",
            "git diff 'a",
            "(git diff)",
            "! git diff",
            "GIT_EXTERNAL_DIFF=x git diff",
            "cargo test x",
            "npm run a b --silent",
            "bash -lc 'git diff; rm x'",
            "bash -lc 'git diff' x",
            "bash -ic 'git diff'",
            "tools/bash -c 'git diff'",
            "./bash -lc 'git diff'",
            "/tmp/sh -c 'git diff'",
            "../../bin/sh -c 'git diff'",
            "bash -c \"bash -c 'git diff'\"",
            "",
            "#git diff",
        ] {
            assert!(!runs(&patterns, command), "{command}");
        }
    }

    #[test]
    fn only_a_command_in_the_folder_is_trusted() {
        for (input, is_trusted) in [
            (r#"{"command":"git diff","description":"Look","timeout":5}"#, true),
            (r#"{"command":"git diff","cwd":"/work","sandbox":"on","network":null}"#, true),
            (r#"{"command":"git diff","cwd":"/etc"}"#, false),
            (r#"{"command":"git diff","sandbox":"off"}"#, false),
            (r#"{"command":"git diff","dangerouslyDisableSandbox":true}"#, false),
            (r#"{"command":"git diff","env":{"GIT_EXTERNAL_DIFF":"x"}}"#, false),
            (r#"{"command":"git diff","command":"rm x"}"#, false),
            (r#"{"command":["git","diff"]}"#, false),
            (r#""git diff""#, false),
        ] {
            assert_eq!(trusts(&["git diff *"], input), is_trusted, "{input}");
        }
    }

    #[test]
    fn modes_go_by_what_the_device_vouches_for() {
        let input = Json::empty_object();
        let hidden = ["input".to_owned()];
        let trust = |mode, assured: &[StepAssurance], undisclosed: &[String]| {
            trusted(mode, &[], StepFacts { input: &input, cwd: None, undisclosed, assured })
        };
        let (edit, walled) = ([StepAssurance::FolderEdit], [StepAssurance::Walled]);
        assert_eq!(trust(PermissionMode::AcceptEdits, &edit, &[]), Some(TrustReason::Edit));
        assert_eq!(trust(PermissionMode::AcceptWalled, &walled, &[]), Some(TrustReason::Walled));
        for (mode, assured) in [
            (PermissionMode::Ask, edit),
            (PermissionMode::Ask, walled),
            (PermissionMode::AcceptEdits, walled),
            (PermissionMode::AcceptWalled, edit),
        ] {
            assert_eq!(trust(mode, &assured, &[]), None, "{mode:?}");
        }
        assert_eq!(trust(PermissionMode::AcceptEdits, &edit, &hidden), None);
        assert_eq!(trust(PermissionMode::AcceptWalled, &walled, &hidden), None);
    }

    #[test]
    fn patterns_that_would_allow_anything_are_refused() {
        for (text, error) in [
            ("", CommandPatternError::NoProgram),
            ("*", CommandPatternError::NoProgram),
            ("* diff", CommandPatternError::NoProgram),
            ("bash *", CommandPatternError::RunsOthers),
            ("/usr/bin/env *", CommandPatternError::RunsOthers),
            ("bash -c *", CommandPatternError::RunsOthers),
            ("timeout 60 *", CommandPatternError::RunsOthers),
            (". *", CommandPatternError::RunsOthers),
            ("python3.12 -c *", CommandPatternError::RunsOthers),
            ("git diff; rm", CommandPatternError::NotPlain),
            ("git d*", CommandPatternError::NotPlain),
            ("A=b git", CommandPatternError::NotPlain),
        ] {
            assert_eq!(CommandPattern::parse(text), Err(error), "{text}");
        }
        assert_eq!(pattern("  python3   -m pytest * ").to_string(), "python3 -m pytest *");
    }

    proptest! {
        /// A real shell reads the same words, and nothing else happens.
        #[test]
        fn a_shell_reads_the_same_words(command in "[ab ab.='\"$`;|&<>(){}*?~#!\\\\\n\t,:@%+^-]{1,14}") {
            if let Some(words) = words(&command) {
                let folder = tempfile::tempdir().unwrap();
                let script = format!("printf '%s\\n' {command}");
                let ran = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
                let expected: String = words.iter().map(|word| format!("{word}\n")).collect();
                prop_assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{}", command);
                prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            }
        }
    }
}
