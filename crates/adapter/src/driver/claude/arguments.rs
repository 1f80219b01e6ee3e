//! Builds the command line and environment of Claude Code from the setup, the task and its limits. Pure.
//!
//! Tasks from other people get safe defaults: settings, hooks, MCP servers, instructions and git hooks in the folder
//! have no effect, the device owner's own settings stay in force, and every risky step needs approval.

use std::{collections::BTreeMap, io};

use attache_protocol::{
    Json,
    wire::adapter::{RunTools, TaskReply},
};
use serde::{Deserialize, Serialize};

use crate::host::{HostLaunch, HostSetup, InheritedSecret, SandboxLimit, TOOLS_SERVER};

/// Arguments of every run.
const ALWAYS: &[&str] = &[
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
    // Tells when a message of the caller has reached the model.
    "--replay-user-messages",
    "--permission-prompt-tool",
    "stdio",
    // Not the folder's settings: they could run programs and allow everything.
    "--setting-sources",
    "user",
    "--strict-mcp-config",
];

/// Even `git status` runs programs named in the folder's git configuration, and wouldn't be asked about otherwise.
const ASK_ABOUT: &str = "Bash(git:*)";

/// What is asked about if the owner's settings can't be read: whatever they may allow.
const ASK_ABOUT_ALL: &[&str] = &[
    "Agent",
    "Bash",
    "Edit",
    "Glob",
    "Grep",
    "Monitor",
    "NotebookEdit",
    "Read",
    "Skill",
    "Task",
    "WebFetch",
    "WebSearch",
    "Workflow",
    "Write",
];

/// Tools that make no sense without a person at the keyboard, outlive the run, or interact with other work on the
/// device.
const NEVER: &[&str] = &[
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

/// The tool by which it presents its plan, and the one that writes the plan down. It can't plan without them.
const PRESENTS_PLAN: &str = "ExitPlanMode";
const WRITES_PLAN: &str = "Write";

/// The only tools left when a limit applies. None of them runs programs.
const WITHIN_LIMITS: &[&str] =
    &["Agent", "AskUserQuestion", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "TodoWrite", "Write"];

/// Also available unless the network is off.
const NETWORK: &[&str] = &["WebFetch", "WebSearch"];

/// The hub's own tools.
const HUB_TOOLS: &[&str] = &["list_agents", "remote_agent", "remote_cancel"];

/// Tool names that callers may write in a different case.
const KNOWN: &[&str] = &["Bash", "Monitor", "Skill", "Task", "ToolSearch", "Workflow"];

const VARIABLES: &[(&str, &str)] = &[
    ("DISABLE_AUTOUPDATER", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    // Otherwise `@/etc/passwd` in a task would be read without approval.
    ("CLAUDE_CODE_DISABLE_FILE_MENTIONS", "1"),
    // Notes left by one run would carry untrusted text into other work.
    ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
    // Work ends with the turn.
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
    ("CLAUDE_CODE_STARTUP_FAILURE_RESULTS", "1"),
    // Each command runs in the run's folder, wherever the one before went, so people know what they approve.
    ("CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR", "1"),
];

/// The inputs of one run's command line.
#[derive(Debug, Clone, Default)]
pub(super) struct ClaudeCommandLine<'a> {
    pub(super) limits: &'a [SandboxLimit],
    /// Those that the walls around it enforce.
    pub(super) walled: &'a [SandboxLimit],
    /// Whether it must plan first.
    pub(super) plans: bool,
    /// The tools the task allows. `None` allows all.
    pub(super) allowed: Option<&'a [String]>,
    /// The MCP configuration for our own tools, including their token.
    pub(super) tools: Option<&'a InheritedSecret>,
    pub(super) cost_usd: Option<f64>,
    pub(super) record: ClaudeSessionMode<'a>,
    /// Steps the device owner allows without asking in their own work. Callers are someone else, so these need
    /// approval.
    pub(super) allowed_by_owner: &'a [String],
}

/// How the program persists the conversation.
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
    add(&["--permission-mode", if line.plans { "plan" } else { "default" }]);
    let is_offline = line.walled.contains(&SandboxLimit::NoNetwork);
    // The model's side would fetch for it.
    let never = NEVER.iter().filter(|tool| !(line.plans && **tool == PRESENTS_PLAN));
    let never = never.chain(NETWORK.iter().filter(|_| is_offline)).copied().collect::<Vec<_>>();
    add(&["--disallowedTools", &never.join(",")]);
    add(&["--settings", &settings(line.allowed_by_owner)]);
    if line.limits.contains(&SandboxLimit::CwdOnly) {
        // Keeps the file tools inside the folder, symlinks included.
        add(&["--restricted"]);
    }
    if let Some(mut names) = offered(line) {
        names.extend(line.plans.then(|| PRESENTS_PLAN.to_owned()));
        add(&["--tools", &names.join(",")]);
    }
    if let Some(file) = line.tools.map(InheritedSecret::path) {
        // The hub enforces what this run may do with these tools.
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
    HostLaunch { program: setup.program.clone(), args, variables, handed: line.tools.cloned(), writes: Vec::new() }
}

/// These take precedence over the owner's own: rules that ask over rules that allow, and commands in Claude Code's own
/// sandbox need approval like all others.
fn settings(allowed_by_owner: &[String]) -> String {
    #[derive(Serialize)]
    struct AskSettings<'a> {
        permissions: AskPermissions<'a>,
        sandbox: AskSandbox,
    }
    #[derive(Serialize)]
    struct AskPermissions<'a> {
        ask: Vec<&'a str>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct AskSandbox {
        auto_allow_bash_if_sandboxed: bool,
    }
    let ask = [ASK_ABOUT].into_iter().chain(allowed_by_owner.iter().map(String::as_str)).collect();
    let sandbox = AskSandbox { auto_allow_bash_if_sandboxed: false };
    Json::of(&AskSettings { permissions: AskPermissions { ask }, sandbox }).get().to_owned()
}

/// The steps a person's settings allow without asking. Everything, if they can't be read.
pub(super) fn allowed_by(settings: io::Result<&str>) -> Vec<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct OwnerSettings {
        permissions: OwnerPermissions,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct OwnerPermissions {
        allow: Vec<Json>,
    }
    let parsed = settings.map(|text| serde_json::from_str::<OwnerSettings>(text.trim_start_matches('\u{feff}')));
    match parsed {
        // Claude Code skips an entry that isn't a text.
        Ok(Ok(settings)) => settings.permissions.allow.iter().filter_map(|rule| rule.parse().ok()).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Ok(Err(_)) | Err(_) => ASK_ABOUT_ALL.iter().map(|tool| (*tool).to_owned()).collect(),
    }
}

/// The available tools. `None` means all built-in tools.
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

/// The tool names in a task's `allowed_tools`. `None` if everything is allowed.
pub(super) fn allowed(list: Option<&Json>) -> Result<Option<Vec<String>>, TaskReply> {
    let Some(list) = list.filter(|list| list.get() != "null") else { return Ok(None) };
    let wrong = |why: String| TaskReply::failed("rejected", format!("`allowed_tools` of the task {why}"));
    let names: Vec<String> =
        list.parse().map_err(|_| wrong(r#"must be a list of names, such as ["Read","Grep"]"#.to_owned()))?;
    let plain = |name: &String| name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.:/".contains(letter));
    if let Some(name) = names.iter().find(|name| !plain(name)) {
        return Err(wrong(format!(
            "contains `{name}`, but Claude Code only accepts tool names without patterns, such as `Bash`"
        )));
    }
    Ok((!names.is_empty()).then(|| names.into_iter().map(as_written).collect()))
}

/// Refuses a run that must plan first without the tool that writes the plan down.
pub(super) fn check_plan_tools(allowed: Option<&[String]>) -> Result<(), TaskReply> {
    match allowed.is_some_and(|allowed| allowed.iter().all(|tool| tool != WRITES_PLAN)) {
        true => Err(TaskReply::failed(
            "refused",
            format!(
                "Claude Code can't plan first without its tool `{WRITES_PLAN}`, which `allowed_tools` of the task leaves out, \
                 so the task was not started"
            ),
        )),
        false => Ok(()),
    }
}

/// Corrects the case of the program's own tool names.
fn as_written(name: String) -> String {
    // Callers know our tools by their plain names, or with the prefix of the server `attache`.
    let ours =
        name.strip_prefix("mcp__attache__").or_else(|| HUB_TOOLS.contains(&name.as_str()).then_some(name.as_str()));
    if let Some(tool) = ours {
        return format!("mcp__{TOOLS_SERVER}__{tool}");
    }
    let known = WITHIN_LIMITS.iter().chain(NETWORK).chain(KNOWN).chain(NEVER);
    known.into_iter().find(|known| known.eq_ignore_ascii_case(&name)).map_or(name, |known| (*known).to_owned())
}

/// The MCP configuration file for our tools. It contains the token, which keeps it off the command line.
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
        let (always, rest) = words.split_at(ALWAYS.len() + 6);
        assert_eq!(always[..ALWAYS.len()], *ALWAYS);
        let (mode, never) = (&always[ALWAYS.len() + 1], &always[ALWAYS.len() + 3]);
        assert_eq!((mode == "plan", never.contains("ExitPlanMode")), (line.plans, !line.plans));
        assert_eq!(always[ALWAYS.len() + 5], settings(line.allowed_by_owner));
        rest.join(" ")
    }

    #[test]
    fn a_default_run_keeps_no_session_and_has_all_tools() {
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
    fn a_run_that_plans_first_can_present_its_plan() {
        let plans = ClaudeCommandLine { plans: true, record: ClaudeSessionMode::New, ..ClaudeCommandLine::default() };
        assert_eq!(words(&plans), "");
        let tools = ["Read".to_owned(), "Write".to_owned()];
        assert_eq!(words(&ClaudeCommandLine { allowed: Some(&tools), ..plans }), "--tools Read,Write,ExitPlanMode");
        assert_eq!((check_plan_tools(None), check_plan_tools(Some(&tools))), (Ok(()), Ok(())));
        assert!(check_plan_tools(Some(&tools[..1])).is_err());
    }

    #[test]
    fn steps_the_owner_auto_allows_still_need_approval() {
        let expected = r#"{"permissions":{"ask":["Bash(git:*)","Bash(npm test:*)"]},"sandbox":{"autoAllowBashIfSandboxed":false}}"#;
        for text in [
            r#"{"permissions":{"allow":["Bash(npm test:*)"],"deny":["x"]},"model":"opus"}"#,
            "\u{feff}{\"permissions\":{\"allow\":[5,\"Bash(npm test:*)\",{}]}}",
        ] {
            assert_eq!(settings(&allowed_by(Ok(text))), expected);
        }
        let all = || ASK_ABOUT_ALL.iter().map(|tool| (*tool).to_owned()).collect::<Vec<String>>();
        let failed = |kind: io::ErrorKind| allowed_by(Err(kind.into()));
        assert_eq!((allowed_by(Ok("{}")), failed(io::ErrorKind::NotFound)), (Vec::new(), Vec::new()));
        assert_eq!((allowed_by(Ok("no json")), failed(io::ErrorKind::FileTooLarge)), (all(), all()));
    }

    #[test]
    fn a_limit_leaves_no_tool_that_could_break_it() {
        let limited = |limits: &[SandboxLimit]| {
            words(&ClaudeCommandLine { limits, record: ClaudeSessionMode::New, ..ClaudeCommandLine::default() })
        };
        let files = "Agent,AskUserQuestion,Edit,Glob,Grep,NotebookEdit,Read,TodoWrite,Write";
        assert_eq!(limited(&[SandboxLimit::NoExec]), format!("--tools {files},WebFetch,WebSearch"));
        assert_eq!(limited(&[SandboxLimit::NoNetwork]), format!("--tools {files}"));
        assert_eq!(limited(&[SandboxLimit::CwdOnly, SandboxLimit::NoNetwork]), format!("--restricted --tools {files}"));
    }

    #[test]
    fn only_the_allowed_tools_are_available() {
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
    fn the_token_is_in_the_configuration_file() {
        let tools = RunTools { url: "http://127.0.0.1:1/mcp".to_owned(), token: "secret".to_owned() };
        assert_eq!(
            tools_file(&tools),
            r#"{"mcpServers":{"attache_run":{"type":"http","url":"http://127.0.0.1:1/mcp","headers":{"Authorization":"Bearer secret"}}}}"#
        );
    }
}
