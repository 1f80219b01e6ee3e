//! Permission modes: which steps of an agent are approved without asking a person, because its owner trusts them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Json, json::Members, rules::permission::hides_input, text_enum};

text_enum! {
    /// Which steps of an agent need no approval by a person.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum PermissionMode {
        /// None, and nothing is changed before a person has approved the agent's plan. Then as with `ask`.
        PlanFirst = "plan_first",
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

/// Whether a run still has to get its plan approved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PlanState {
    /// It doesn't have to plan first, or a person has approved its plan.
    #[default]
    Settled,
    /// It plans first, and nobody has approved its plan yet.
    Open,
}

/// The tool name under which a run asks for the approval of its plan. Only a person answers that.
pub const PLAN_TOOL: &str = "plan";

/// A step that a worker asks permission for, as modes see it.
#[derive(Debug, Clone, Copy)]
pub struct StepFacts<'a> {
    pub input: &'a Json,
    pub cwd: Option<&'a str>,
    pub undisclosed: &'a [String],
    pub assured: &'a [StepAssurance],
    /// The agent's owner started the run in person, in a folder of their own device. What others send along, or have in a
    /// folder that they lend, may decide what a trusted command does.
    pub is_own: bool,
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
const WRAPPERS: &[&str] = &[
    "sh",
    "bash",
    "dash",
    "ash",
    "zsh",
    "fish",
    "ksh",
    "pwsh",
    "busybox",
    "env",
    "sudo",
    "doas",
    "su",
    "runuser",
    "pkexec",
    "fakeroot",
    "xargs",
    "eval",
    "exec",
    "command",
    "builtin",
    "source",
    ".",
    "nohup",
    "timeout",
    "nice",
    "ionice",
    "chrt",
    "taskset",
    "setsid",
    "setpriv",
    "systemd-run",
    "flock",
    "stdbuf",
    "time",
    "watch",
    "script",
    "strace",
    "ltrace",
    "gdb",
    "lldb",
    "parallel",
    "ssh",
    "scp",
    "rsync",
    "docker",
    "podman",
    "nsenter",
    "unshare",
    "chroot",
    "find",
    "npx",
    "bunx",
    "pnpx",
    "uvx",
    "pipx",
    "sed",
    "tar",
    "zip",
    "vi",
    "vim",
    "nvim",
    "view",
    "emacs",
    "ed",
    "ex",
    "less",
    "man",
    "sqlite",
    "psql",
    "mysql",
    "expect",
    "attache",
];

/// Programs that run code from their arguments.
const INTERPRETERS: &[&str] = &[
    "python", "pypy", "node", "nodejs", "deno", "bun", "perl", "ruby", "php", "awk", "gawk", "mawk", "nawk", "lua",
    "luajit", "tclsh",
];

/// Programs that can be told to do anything unless it is said what they do, and what even then starts others.
const WITH_COMMANDS: &[(&str, &[&str])] = &[
    ("git", &["bisect", "config", "difftool", "filter-branch", "mergetool", "rebase", "submodule"]),
    ("cargo", &[]),
    ("go", &[]),
    ("make", &[]),
    ("gmake", &[]),
    ("just", &[]),
    ("npm", &["exec", "x"]),
    ("pnpm", &["exec", "dlx"]),
    ("yarn", &["exec", "dlx"]),
    ("uv", &["run", "tool"]),
    ("poetry", &["run"]),
    ("pipenv", &["run"]),
];

/// Arguments by which a program is told to run something else, or to take another folder's word for it. A pattern covers them
/// only if it names them.
const CHOOSING: &[(&str, &[&str])] = &[
    (
        "git",
        &[
            "-c",
            "-C",
            "-O",
            "-o",
            "-x",
            "--exec",
            "--ext-diff",
            "--no-index",
            "--open-files-in-pager",
            "--output",
            "--output-directory",
            "--receive-pack",
            "--textconv",
            "--upload-pack",
        ],
    ),
    ("cargo", &["-C", "-Z", "--config", "--manifest-path"]),
    ("go", &["-C", "-exec", "--exec", "-modfile", "--modfile", "-overlay", "--overlay", "-toolexec", "--toolexec"]),
    ("make", MAKE),
    ("gmake", MAKE),
    ("just", &["-f", "-d", "--justfile", "--shell", "--set", "--working-directory"]),
    ("npm", NODE_PACKAGES),
    ("pnpm", NODE_PACKAGES),
    ("yarn", NODE_PACKAGES),
    ("pytest", &["-c", "-o", "-p", "--confcutdir", "--override-ini", "--pdbcls", "--rootdir"]),
];
const MAKE: &[&str] = &["-C", "-E", "-I", "-f", "--directory", "--eval", "--file", "--include-dir", "--makefile"];
const NODE_PACKAGES: &[&str] = &[
    "-C",
    "--cwd",
    "--dir",
    "--globalconfig",
    "--node-options",
    "--prefix",
    "--script-shell",
    "--shell",
    "--userconfig",
];

/// Why a step needs no approval by a person under this mode and these patterns. A step whose input is hidden, even partly,
/// always does, and so does every step of a run whose plan isn't approved, and of somebody else's task
/// outside walls.
pub fn trusted(
    mode: PermissionMode,
    plan: PlanState,
    commands: &[CommandPattern],
    step: StepFacts<'_>,
) -> Option<TrustReason> {
    if plan == PlanState::Open || hides_input(step.undisclosed) {
        return None;
    }
    let is_assured = |what| step.assured.contains(&what);
    if !step.is_own && !is_assured(StepAssurance::Walled) {
        return None;
    }
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

/// The mode of a run: the one chosen for it, or its agent's. An agent's change to `plan_first` is for later runs, because
/// this one was started without it.
pub const fn of_run(chosen: Option<PermissionMode>, agents: PermissionMode) -> PermissionMode {
    match (chosen, agents) {
        (Some(chosen), _) => chosen,
        (None, PermissionMode::PlanFirst) => PermissionMode::Ask,
        (None, agents) => agents,
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

// === impl PermissionMode ===

impl PermissionMode {
    /// Whether a person has to approve everything under this mode that they have to approve under the other.
    pub const fn is_within(self, other: Self) -> bool {
        match (self, other) {
            (Self::PlanFirst, _) => true,
            (Self::Ask, other) => !matches!(other, Self::PlanFirst),
            (Self::AcceptEdits, other) => matches!(other, Self::AcceptEdits),
            // Inside walls it accepts all edits and more, outside none.
            (Self::AcceptWalled, other) => matches!(other, Self::AcceptWalled),
        }
    }

    /// Whether it approves any step in advance.
    pub const fn trusts(self) -> bool {
        match self {
            Self::PlanFirst | Self::Ask => false,
            Self::AcceptEdits | Self::AcceptWalled => true,
        }
    }
}

// === impl PlanState ===

impl PlanState {
    /// `is_approved` says whether a person has approved the run's plan.
    pub fn of(mode: PermissionMode, is_approved: bool) -> Self {
        if mode == PermissionMode::PlanFirst && !is_approved { Self::Open } else { Self::Settled }
    }
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
            let commands = WITH_COMMANDS.iter().find(|(program, _)| *program == name);
            let runs_others =
                |(_, others): &(&str, &[&str])| rest[0].starts_with(['-', '+']) || others.contains(&rest[0]);
            WRAPPERS.contains(&name)
                || ((INTERPRETERS.contains(&name) || commands.is_some()) && chooses_program)
                || commands.is_some_and(runs_others)
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
        let is_free = |at: usize| self.0.get(at).is_none_or(|wanted| wanted == "*");
        let mut free = words.iter().enumerate().filter(|(at, _)| is_free(*at)).map(|(_, word)| word);
        has_length
            && fixed.iter().zip(words).all(|(wanted, word)| wanted == "*" || wanted == word)
            && !free.any(|word| self.lets_choose(word))
    }

    /// Whether an argument that only `*` stands for would make the program run something else.
    fn lets_choose(&self, argument: &str) -> bool {
        // `python3 -m pytest` is a pytest, too.
        let programs = self.0.iter().map(|word| name_of(word));
        let mut choosing = CHOOSING.iter().filter(|(program, _)| programs.clone().any(|name| name == *program));
        choosing.any(|(program, options)| {
            let assigns = matches!(*program, "make" | "gmake" | "just") && argument.contains('=');
            // Short options take their value in the same word, and long ones may be cut short.
            let is_option = |option: &&str| match option.strip_prefix("--") {
                Some(long) => argument.strip_prefix("--").is_some_and(|given| {
                    let given = given.split('=').next().unwrap_or_default();
                    given.len() > 1 && long.starts_with(given)
                }),
                None if option.len() == 2 => argument.starts_with(*option),
                None => argument.split('=').next() == Some(*option),
            };
            assigns || options.iter().any(is_option)
        })
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
        let step = StepFacts { input: &input, cwd: Some("/work"), undisclosed: &[], assured: &assured, is_own: true };
        let elsewhere = StepFacts { assured: &[StepAssurance::FolderEdit, StepAssurance::Walled], ..step };
        let is_trusted = |step| trusted(PermissionMode::Ask, PlanState::Settled, &patterns, step).is_some();
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
    fn no_argument_makes_a_trusted_program_run_something_else() {
        let patterns = ["git diff *", "cargo test *", "make test *", "npm test *", "go test *", "python3 -m pytest *"];
        for command in
            ["make test V", "npm test -- --watch", "go test ./... -run X", "cargo test -p a -- -q", "git diff -p"]
        {
            assert!(runs(&patterns, command), "{command}");
        }
        for command in [
            "git diff --ext-diff",
            "git diff --output=x",
            "git diff --outp=x",
            "git diff --no-index /etc/passwd x",
            "cargo test --config build.rustc-wrapper=x",
            "cargo test --manifest-path=x/Cargo.toml",
            "cargo test --manifest x/Cargo.toml",
            "make test -f x",
            "make test -fx",
            "make test SHELL=x",
            "make test --eval x",
            "npm test --script-shell=x",
            "go test -exec=x ./...",
            "go test -toolexec x",
            "python3 -m pytest -p x",
        ] {
            assert!(!runs(&patterns, command), "{command}");
        }
        assert!(runs(&["cargo test --manifest-path a/Cargo.toml *"], "cargo test --manifest-path a/Cargo.toml -q"));
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
            trusted(
                mode,
                PlanState::Settled,
                &[],
                StepFacts { input: &input, cwd: None, undisclosed, assured, is_own: true },
            )
        };
        let (edit, walled) = ([StepAssurance::FolderEdit], [StepAssurance::Walled]);
        assert_eq!(trust(PermissionMode::AcceptEdits, &edit, &[]), Some(TrustReason::Edit));
        assert_eq!(trust(PermissionMode::AcceptWalled, &walled, &[]), Some(TrustReason::Walled));
        for (mode, assured) in [
            (PermissionMode::Ask, edit),
            (PermissionMode::Ask, walled),
            (PermissionMode::PlanFirst, edit),
            (PermissionMode::PlanFirst, walled),
            (PermissionMode::AcceptEdits, walled),
            (PermissionMode::AcceptWalled, edit),
        ] {
            assert_eq!(trust(mode, &assured, &[]), None, "{mode:?}");
        }
        let others = |mode, assured: &[StepAssurance]| {
            let step = StepFacts { input: &input, cwd: None, undisclosed: &[], assured, is_own: false };
            trusted(mode, PlanState::Settled, &[], step)
        };
        assert_eq!(others(PermissionMode::AcceptEdits, &edit), None, "somebody else's task, outside walls");
        assert_eq!(others(PermissionMode::AcceptWalled, &walled), Some(TrustReason::Walled));
        assert_eq!(trust(PermissionMode::AcceptEdits, &edit, &hidden), None);
        assert_eq!(trust(PermissionMode::AcceptWalled, &walled, &hidden), None);
    }

    #[test]
    fn a_run_has_the_mode_chosen_for_it() {
        for agents in PermissionMode::ALL {
            for chosen in PermissionMode::ALL {
                assert_eq!(of_run(Some(chosen), agents), chosen);
            }
        }
        assert_eq!(of_run(None, PermissionMode::AcceptEdits), PermissionMode::AcceptEdits);
        assert_eq!(of_run(None, PermissionMode::PlanFirst), PermissionMode::Ask);
        let open = |mode, is_approved| PlanState::of(mode, is_approved) == PlanState::Open;
        assert!(open(PermissionMode::PlanFirst, false) && !open(PermissionMode::PlanFirst, true));
        assert!(!open(PermissionMode::Ask, false));
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
            ("git *", CommandPatternError::RunsOthers),
            ("git -c *", CommandPatternError::RunsOthers),
            ("git -C x diff *", CommandPatternError::RunsOthers),
            ("git rebase *", CommandPatternError::RunsOthers),
            ("cargo +nightly *", CommandPatternError::RunsOthers),
            ("make *", CommandPatternError::RunsOthers),
            ("npm exec *", CommandPatternError::RunsOthers),
            ("uv run *", CommandPatternError::RunsOthers),
            ("sed -n *", CommandPatternError::RunsOthers),
            ("nodejs *", CommandPatternError::RunsOthers),
            ("flock x *", CommandPatternError::RunsOthers),
            ("git diff; rm", CommandPatternError::NotPlain),
            ("git d*", CommandPatternError::NotPlain),
            ("A=b git", CommandPatternError::NotPlain),
        ] {
            assert_eq!(CommandPattern::parse(text), Err(error), "{text}");
        }
        assert_eq!(pattern("  python3   -m pytest * ").to_string(), "python3 -m pytest *");
    }

    fn mode() -> impl Strategy<Value = PermissionMode> {
        prop::sample::select(PermissionMode::ALL.to_vec())
    }

    fn assured() -> impl Strategy<Value = Vec<StepAssurance>> {
        prop::sample::subsequence(StepAssurance::ALL.to_vec(), 0..=StepAssurance::ALL.len())
    }

    proptest! {
        /// Nothing is approved in advance before the plan is.
        #[test]
        fn an_open_plan_leaves_no_trust(mode in mode(), assured in assured(), plan in "[a-z]{1,5}") {
            let input = Json::of(&std::collections::BTreeMap::from([("command", "git diff"), ("plan", plan.as_str())]));
            let step = StepFacts { input: &input, cwd: Some("/work"), undisclosed: &[], assured: &assured, is_own: true };
            prop_assert_eq!(trusted(mode, PlanState::Open, &[pattern("git diff *")], step), None);
        }

        /// A mode within another one trusts nothing that the other doesn't.
        #[test]
        fn a_stricter_mode_trusts_less(one in mode(), other in mode(), assured in assured()) {
            let input = Json::of(&std::collections::BTreeMap::from([("file_path", "/work/a")]));
            let step = StepFacts { input: &input, cwd: Some("/work"), undisclosed: &[], assured: &assured, is_own: true };
            let trusts = |mode| trusted(mode, PlanState::of(mode, false), &[], step).is_some();
            prop_assert!(!one.is_within(other) || !trusts(one) || trusts(other));
            prop_assert!(one.is_within(one));
            prop_assert!(!(one.is_within(other) && other.is_within(one)) || one == other);
            prop_assert!(!one.is_within(PermissionMode::Ask) || !one.trusts());
        }

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
