//! The command line and the variables of Claude Code, from the setup, the task and its limits. Pure.
//!
//! Foreign work gets safe defaults: what lies in the folder (settings, hooks, MCP servers, instructions, git's own hooks) does
//! not take effect, the person who owns the device keeps theirs, and whatever is risky is asked about.

use std::collections::BTreeMap;

use attache_protocol::{
    Json,
    wire::adapter::{RunTools, TaskReply},
};
use serde::{Deserialize, Serialize};

use crate::host::{HostLaunch, HostSetup, InheritedSecret, SandboxLimit, TOOLS_SERVER};

/// What every run gets.
const ALWAYS: &[&str] = &[
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
    "--permission-prompt-tool",
    "stdio",
    "--permission-mode",
    "default",
    // Not those of the folder: they could run programs and allow everything.
    "--setting-sources",
    "user",
    "--strict-mcp-config",
];

/// Even `git status` runs what the folder's own git configuration says, and is not asked about otherwise.
const ASK_ABOUT: &str = "Bash(git:*)";

/// Tools that make no sense without a person at the keyboard, outlive the run, or talk to other work on the device.
const NEVER: &[&str] = &[
    "AskUserQuestion",
    "CronCreate",
    "CronDelete",
    "CronList",
    "EnterPlanMode",
    "EnterWorktree",
    "ExitPlanMode",
    "ExitWorktree",
    "ListAgents",
    "ScheduleWakeup",
    "SendMessage",
];

/// All that is left when a limit is asked for: none of these runs programs.
const WITHIN_LIMITS: &[&str] = &["Agent", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "TodoWrite", "Write"];

/// Also left unless the network is off.
const NETWORK: &[&str] = &["WebFetch", "WebSearch"];

/// The hub's own tools.
const HUB_TOOLS: &[&str] = &["list_agents", "remote_agent", "remote_cancel"];

/// Names that callers may write in another case.
const KNOWN: &[&str] = &["Bash", "Monitor", "Skill", "Task", "ToolSearch", "Workflow"];

const VARIABLES: &[(&str, &str)] = &[
    ("DISABLE_AUTOUPDATER", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    // `@/etc/passwd` in a task would be read without a question.
    ("CLAUDE_CODE_DISABLE_FILE_MENTIONS", "1"),
    // Notes that one run leaves for the next would carry foreign words into other work.
    ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
    // The end of the turn is the end of the work.
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
    ("CLAUDE_CODE_STARTUP_FAILURE_RESULTS", "1"),
];

/// What of one run is on the command line.
#[derive(Debug, Clone, Default)]
pub(super) struct ClaudeCommandLine<'a> {
    pub(super) limits: &'a [SandboxLimit],
    /// The tools that the task allows; none: all.
    pub(super) allowed: Option<&'a [String]>,
    /// What tells of our own tools, with the token for them.
    pub(super) tools: Option<&'a InheritedSecret>,
    pub(super) cost_usd: Option<f64>,
    pub(super) record: ClaudeSessionMode<'a>,
    /// What the person who owns the device lets it do unasked in work of their own. Callers are somebody else: these are
    /// asked about.
    pub(super) allowed_by_owner: &'a [String],
}

/// What the program keeps of the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ClaudeSessionMode<'a> {
    #[default]
    Nothing,
    New,
    Resumed(&'a str),
}

pub(super) fn launch(setup: &HostSetup, line: &ClaudeCommandLine<'_>) -> HostLaunch {
    let mut args = setup.args.clone();
    let mut add = |parts: &[&str]| args.extend(parts.iter().map(Into::into));
    add(ALWAYS);
    add(&["--disallowedTools", &NEVER.join(",")]);
    add(&["--settings", &settings(line.allowed_by_owner)]);
    if line.limits.contains(&SandboxLimit::CwdOnly) {
        // Keeps the tools for files within the folder, through links as well.
        add(&["--restricted"]);
    }
    if let Some(names) = offered(line) {
        add(&["--tools", &names.join(",")]);
    }
    if let Some(file) = line.tools.map(InheritedSecret::path) {
        // Their rights end at the hub, which knows what this run may do.
        add(&["--mcp-config", &file.to_string_lossy(), "--allowedTools", &format!("mcp__{TOOLS_SERVER}")]);
    }
    if let Some(usd) = line.cost_usd {
        add(&["--max-budget-usd", &usd.to_string()]);
    }
    match line.record {
        ClaudeSessionMode::Nothing => add(&["--no-session-persistence"]),
        ClaudeSessionMode::New => {}
        ClaudeSessionMode::Resumed(session) => add(&["--resume", session]),
    }
    let variables = VARIABLES.iter().map(|(name, value)| (name.into(), value.into())).collect();
    HostLaunch { program: setup.program.clone(), args, variables, handed: line.tools.cloned() }
}

/// Rules that ask come before rules that allow.
fn settings(allowed_by_owner: &[String]) -> String {
    #[derive(Serialize)]
    struct AskSettings<'a> {
        permissions: AskPermissions<'a>,
    }
    #[derive(Serialize)]
    struct AskPermissions<'a> {
        ask: Vec<&'a str>,
    }
    let ask = [ASK_ABOUT].into_iter().chain(allowed_by_owner.iter().map(String::as_str)).collect();
    Json::of(&AskSettings { permissions: AskPermissions { ask } }).get().to_owned()
}

/// What the settings of a person let the program do unasked.
pub(super) fn allowed_by(settings: &str) -> Vec<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct OwnerSettings {
        permissions: OwnerPermissions,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct OwnerPermissions {
        allow: Vec<String>,
    }
    serde_json::from_str::<OwnerSettings>(settings).map(|settings| settings.permissions.allow).unwrap_or_default()
}

/// The tools that there are; none: all that the program has.
fn offered(line: &ClaudeCommandLine<'_>) -> Option<Vec<String>> {
    let within: Option<Vec<&str>> = (!line.limits.is_empty()).then(|| {
        let network: &[&str] = if line.limits.contains(&SandboxLimit::NoNetwork) { &[] } else { NETWORK };
        WITHIN_LIMITS.iter().chain(network).copied().collect()
    });
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    match (line.allowed, within) {
        (None, None) => None,
        (None, Some(within)) => Some(owned(&within)),
        (Some(allowed), None) => Some(allowed.to_vec()),
        (Some(allowed), Some(within)) => {
            Some(allowed.iter().filter(|name| within.contains(&name.as_str())).cloned().collect())
        }
    }
}

/// The names in a task's `allowed_tools`; none when they allow everything.
pub(super) fn allowed(list: Option<&Json>) -> Result<Option<Vec<String>>, TaskReply> {
    let Some(list) = list.filter(|list| list.get() != "null") else { return Ok(None) };
    let wrong = |why: String| TaskReply::failed("rejected", format!("`allowed_tools` of the task {why}"));
    let names: Vec<String> =
        list.parse().map_err(|_| wrong(r#"must be a list of names, such as ["Read","Grep"]"#.to_owned()))?;
    let plain = |name: &String| name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.:/".contains(letter));
    if let Some(name) = names.iter().find(|name| !plain(name)) {
        return Err(wrong(format!("names `{name}`, but Claude Code can only be given whole tools, such as `Bash`")));
    }
    Ok((!names.is_empty()).then(|| names.into_iter().map(as_written).collect()))
}

/// As the program writes it, where it is a tool of its own.
fn as_written(name: String) -> String {
    // Callers know our tools by their plain names, or as those of the server `attache`.
    let ours =
        name.strip_prefix("mcp__attache__").or_else(|| HUB_TOOLS.contains(&name.as_str()).then_some(name.as_str()));
    if let Some(tool) = ours {
        return format!("mcp__{TOOLS_SERVER}__{tool}");
    }
    let known = WITHIN_LIMITS.iter().chain(NETWORK).chain(KNOWN).chain(NEVER);
    known.into_iter().find(|known| known.eq_ignore_ascii_case(&name)).map_or(name, |known| (*known).to_owned())
}

/// The file that tells of our tools. It holds the token, so that no command line does.
pub(super) fn tools_file(tools: &RunTools) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct McpConfigFile<'a> {
        mcp_servers: BTreeMap<&'static str, McpConfigServer<'a>>,
    }
    #[derive(Serialize)]
    struct McpConfigServer<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        url: &'a str,
        headers: McpConfigHeaders,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct McpConfigHeaders {
        authorization: String,
    }
    let headers = McpConfigHeaders { authorization: format!("Bearer {}", tools.token) };
    let file = McpConfigFile {
        mcp_servers: BTreeMap::from([(TOOLS_SERVER, McpConfigServer { kind: "http", url: &tools.url, headers })]),
    };
    Json::of(&file).get().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &ClaudeCommandLine<'_>) -> String {
        let launch = launch(&HostSetup::new("claude_cli", "Claude Code", "claude"), line);
        assert_eq!(launch.program, "claude");
        let words: Vec<String> = launch.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let (always, rest) = words.split_at(ALWAYS.len() + 4);
        assert_eq!(always[..ALWAYS.len()], *ALWAYS);
        assert_eq!(always[ALWAYS.len() + 3], settings(line.allowed_by_owner));
        rest.join(" ")
    }

    #[test]
    fn a_run_without_wishes_keeps_nothing_and_has_all_tools() {
        assert_eq!(words(&ClaudeCommandLine::default()), "--no-session-persistence");
        let line = ClaudeCommandLine {
            cost_usd: Some(0.25),
            record: ClaudeSessionMode::Resumed("6f1f"),
            ..ClaudeCommandLine::default()
        };
        assert_eq!(words(&line), "--max-budget-usd 0.25 --resume 6f1f");
        assert_eq!(words(&ClaudeCommandLine { record: ClaudeSessionMode::New, ..ClaudeCommandLine::default() }), "");
        let handed = InheritedSecret::new("{}").unwrap();
        let line = ClaudeCommandLine { tools: Some(&handed), ..ClaudeCommandLine::default() };
        let file = handed.path().display().to_string();
        let expected = format!("--mcp-config {file} --allowedTools mcp__attache_run --no-session-persistence");
        assert_eq!(words(&line), expected);
        assert_eq!(std::fs::read_to_string(file).unwrap(), "{}");
    }

    #[test]
    fn what_the_owner_allows_themselves_is_asked_about() {
        let owner = allowed_by(r#"{"permissions":{"allow":["Bash(npm test:*)"],"deny":["x"]},"model":"opus"}"#);
        assert_eq!(settings(&owner), r#"{"permissions":{"ask":["Bash(git:*)","Bash(npm test:*)"]}}"#);
        assert_eq!((allowed_by("{}"), allowed_by("no json")), (Vec::new(), Vec::<String>::new()));
    }

    #[test]
    fn a_limit_leaves_no_tool_that_could_break_it() {
        let limited = |limits: &[SandboxLimit]| {
            words(&ClaudeCommandLine { limits, record: ClaudeSessionMode::New, ..ClaudeCommandLine::default() })
        };
        let files = "Agent,Edit,Glob,Grep,NotebookEdit,Read,TodoWrite,Write";
        assert_eq!(limited(&[SandboxLimit::NoExec]), format!("--tools {files},WebFetch,WebSearch"));
        assert_eq!(limited(&[SandboxLimit::NoNetwork]), format!("--tools {files}"));
        assert_eq!(limited(&[SandboxLimit::CwdOnly, SandboxLimit::NoNetwork]), format!("--restricted --tools {files}"));
    }

    #[test]
    fn what_a_task_allows_is_all_there_is() {
        let list = |text: &str| allowed(Some(&Json::from_text(text).unwrap()));
        assert_eq!((allowed(None), list("null"), list("[]")), (Ok(None), Ok(None), Ok(None)));
        let names = list(r#"["bash","READ","mcp__attache_run__remote_agent"]"#).unwrap().unwrap();
        assert_eq!(names, ["Bash", "Read", "mcp__attache_run__remote_agent"]);
        let line =
            ClaudeCommandLine { allowed: Some(&names), record: ClaudeSessionMode::New, ..ClaudeCommandLine::default() };
        assert_eq!(words(&line), "--tools Bash,Read,mcp__attache_run__remote_agent");
        assert_eq!(words(&ClaudeCommandLine { limits: &[SandboxLimit::NoExec], ..line }), "--tools Read");
        for bad in [r#"["Bash(git *)"]"#, r#"["Read,Bash"]"#, r#"{"a":1}"#, "[1]"] {
            assert_eq!(list(bad).unwrap_err().error.unwrap().code, "rejected", "{bad}");
        }
    }

    #[test]
    fn the_token_is_in_what_is_handed_over() {
        let tools = RunTools { url: "http://127.0.0.1:1/mcp".to_owned(), token: "secret".to_owned() };
        assert_eq!(
            tools_file(&tools),
            r#"{"mcpServers":{"attache_run":{"type":"http","url":"http://127.0.0.1:1/mcp","headers":{"Authorization":"Bearer secret"}}}}"#
        );
    }
}
