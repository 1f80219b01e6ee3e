//! Translates Codex's approval requests into questions for people, and their answers back. Pure.

use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

use attache_protocol::{
    Json,
    wire::questionnaire::{OptionQuestion, QuestionAnswer, QuestionOption, Questionnaire},
};
use serde::{Deserialize, Serialize};

use super::{
    message::{CodexChangeKind, CodexFileChange, CodexItem, CodexRawItem},
    settings,
};
use crate::{
    SandboxLimit,
    host::{
        ApprovalAnswer, ApprovalQuestion,
        question::{ApprovalRisk, diff},
        recent::{CONTENTS, NOTES, RecentEntries},
    },
};

/// What was reported about steps before Codex asks about them.
#[derive(Debug)]
pub(super) struct CodexSteps {
    changes: RecentEntries<Vec<CodexFileChange>>,
    /// Whether a command asks to run outside the sandbox, according to the model. Codex's own question doesn't say.
    calls: RecentEntries<CommandSandboxState>,
    asked: RecentEntries<()>,
}

/// An approval request of Codex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CodexApprovalRequest {
    pub(super) question: ApprovalQuestion,
    pub(super) form: CodexReplyForm,
    /// Why the run's limits forbid the step, whatever people would decide.
    pub(super) forbidden: Option<&'static str>,
}

/// The form of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CodexReplyForm {
    Decision,
    Elicitation,
    /// Repeats the requested permissions.
    Permissions(Json),
    /// Answers to questions with these ids.
    UserInput(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum CodexApprovalReply {
    Decision { decision: &'static str },
    Elicitation { action: &'static str, content: Option<Json> },
    Permissions { permissions: Json, scope: &'static str },
    UserInput { answers: BTreeMap<String, CodexUserAnswer> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct CodexUserAnswer {
    answers: Vec<String>,
}

/// The params of a request for input of the user.
#[derive(Debug, Deserialize)]
struct CodexUserInputParams {
    questions: Vec<CodexUserQuestion>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CodexUserQuestion {
    id: String,
    header: Option<String>,
    question: String,
    #[serde(default)]
    is_secret: bool,
    options: Option<Vec<QuestionOption>>,
}

/// The questions that Codex asks its user, with their ids. Secrets aren't asked for: answers are kept in the log.
pub(super) fn user_input(method: &str, params: &Json) -> Option<(Vec<String>, Questionnaire)> {
    if method != "item/tool/requestUserInput" {
        return None;
    }
    let CodexUserInputParams { questions } = params.parse().ok()?;
    if questions.is_empty() || questions.iter().any(|question| question.is_secret) {
        return None;
    }
    let one = |CodexUserQuestion { id, header, question, options, .. }| {
        let options = options.unwrap_or_default();
        (id, OptionQuestion { question, header, options, multi_select: false })
    };
    let (ids, questions) = questions.into_iter().map(one).unzip();
    Some((ids, Questionnaire { questions }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandSandboxState {
    Sandboxed,
    Outside,
    Unknown,
}

/// Parameters of `item/commandExecution/requestApproval`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CommandApprovalParams {
    item_id: String,
    approval_id: Option<String>,
    kind: Option<String>,
    command: Option<String>,
    cwd: Option<String>,
    reason: Option<String>,
    command_actions: Option<Vec<Json>>,
    network_approval_context: Option<Json>,
}

#[derive(Debug, Deserialize)]
struct CommandActionParams {
    #[serde(rename = "type")]
    kind: String,
    path: Option<String>,
}

/// Parameters of `item/fileChange/requestApproval`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PatchApprovalParams {
    item_id: String,
    reason: Option<String>,
    grant_root: Option<String>,
}

/// Parameters of `item/permissions/requestApproval`.
#[derive(Debug, Deserialize)]
struct PermissionsApprovalParams {
    permissions: Json,
    reason: Option<String>,
}

/// Parameters of `mcpServer/elicitation/request`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ElicitationParams {
    server_name: String,
    message: String,
    #[serde(rename = "_meta")]
    meta: ElicitationMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ElicitationMeta {
    codex_approval_kind: Option<String>,
    tool_params: Option<Json>,
}

/// A command as shown to people.
#[derive(Debug, Serialize)]
struct CommandPreview<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<&'a str>,
    /// `None` if Codex doesn't say.
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<&'a [Json]>,
}

#[derive(Debug, Serialize)]
struct PatchPreview<'a> {
    changes: Vec<PatchPreviewFile<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grant_root: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct PatchPreviewFile<'a> {
    path: &'a str,
    change: &'static str,
}

// === impl CodexSteps ===

impl Default for CodexSteps {
    fn default() -> Self {
        Self {
            changes: RecentEntries::within(CONTENTS),
            calls: RecentEntries::within(NOTES),
            asked: RecentEntries::within(NOTES),
        }
    }
}

impl CodexSteps {
    pub(super) fn note(&mut self, item: &CodexItem) {
        if item.kind == "fileChange" {
            let bytes = item.changes.iter().map(CodexFileChange::bytes).sum();
            self.changes.insert(&item.id, item.changes.clone(), bytes);
        }
    }

    pub(super) fn note_raw(&mut self, item: CodexRawItem) {
        #[derive(Deserialize)]
        struct ExecCallArguments {
            sandbox_permissions: Option<String>,
        }
        let CodexRawItem::FunctionCall { call_id, arguments } = item else { return };
        let reach = match serde_json::from_str(&arguments) {
            Ok(ExecCallArguments { sandbox_permissions: None }) => CommandSandboxState::Sandboxed,
            Ok(ExecCallArguments { sandbox_permissions: Some(word) }) if word == "use_default" => {
                CommandSandboxState::Sandboxed
            }
            Ok(_) => CommandSandboxState::Outside,
            Err(_) => CommandSandboxState::Unknown,
        };
        self.calls.insert(&call_id, reach, 0);
    }

    /// `None` if this isn't something people can be asked about.
    pub(super) fn approval_request(
        &mut self,
        method: &str,
        params: &Json,
        cwd: &Path,
        limits: &[SandboxLimit],
    ) -> Option<CodexApprovalRequest> {
        match method {
            "item/commandExecution/requestApproval" => Some(self.command(&params.parse().ok()?, cwd, limits)),
            "item/fileChange/requestApproval" => Some(self.patch(&params.parse().ok()?, cwd, limits)),
            "item/permissions/requestApproval" => Some(permissions_request(params.parse().ok()?, limits)),
            "mcpServer/elicitation/request" => tool(&params.parse().ok()?, limits),
            _ => None,
        }
    }

    fn command(
        &mut self,
        command: &CommandApprovalParams,
        cwd: &Path,
        limits: &[SandboxLimit],
    ) -> CodexApprovalRequest {
        let reach = self.sandboxing(command);
        let shown = CommandPreview {
            command: command.command.as_deref(),
            cwd: command.cwd.as_deref(),
            sandbox: match reach {
                CommandSandboxState::Sandboxed => Some("on"),
                CommandSandboxState::Outside => Some("off"),
                CommandSandboxState::Unknown => None,
            },
            network: command.network_approval_context.as_ref(),
            // Those that Codex can't tell apart only repeat the command.
            actions: command.command_actions.as_deref().filter(|actions| paths_read(actions).is_some()),
        };
        let disclosed = command.command.is_some() || command.network_approval_context.is_some();
        let remark = match reach {
            CommandSandboxState::Sandboxed => None,
            CommandSandboxState::Outside => Some("it asks to run outside Codex's sandbox".to_owned()),
            // Unknown for models that call tools from code, and for Codex's sub-agents.
            CommandSandboxState::Unknown => Some("Codex doesn't say whether this runs inside its sandbox".to_owned()),
        };
        let reason: Vec<String> = remark.into_iter().chain(command.reason.clone()).collect();
        let confined = settings::is_confined(limits);
        let forbidden = if limits.contains(&SandboxLimit::NoExec) {
            Some("the run isn't allowed to start programs")
        } else if limits.contains(&SandboxLimit::NoNetwork) && command.network_approval_context.is_some() {
            Some("the run isn't allowed to use the network")
        } else if confined && reach != CommandSandboxState::Sandboxed {
            Some("it might run outside the sandbox that enforces the run's limits")
        } else {
            None
        };
        let tool = if command.kind.as_deref() == Some("writeStdin") { "write_stdin" } else { "shell" };
        let question = ApprovalQuestion {
            input: disclosed.then(|| Json::of(&shown)),
            paths: command.command_actions.as_deref().and_then(paths_read),
            reason: (!reason.is_empty()).then(|| reason.join(": ")),
            risk: ApprovalRisk::High,
            // What may leave Codex's sandbox can do more than it usually does.
            in_folder: tool == "shell"
                && reach == CommandSandboxState::Sandboxed
                && command.cwd.as_deref().is_some_and(|folder| Path::new(folder) == cwd),
            ..ApprovalQuestion::about(tool)
        };
        CodexApprovalRequest { question, form: CodexReplyForm::Decision, forbidden }
    }

    fn sandboxing(&mut self, command: &CommandApprovalParams) -> CommandSandboxState {
        // What may have been forgotten counts as asked.
        let again = self.asked.contains(&command.item_id) || self.asked.has_forgotten();
        self.asked.insert(&command.item_id, (), 0);
        if again && command.approval_id.is_none() {
            // A second question about the same command means it failed in the sandbox and should be retried without it.
            return CommandSandboxState::Outside;
        }
        self.calls.get(&command.item_id).copied().unwrap_or(CommandSandboxState::Unknown)
    }

    fn patch(&self, patch: &PatchApprovalParams, cwd: &Path, limits: &[SandboxLimit]) -> CodexApprovalRequest {
        let changes = self.changes.get(&patch.item_id).map(Vec::as_slice).filter(|changes| !changes.is_empty());
        let paths = changes
            .map(|changes| changes.iter().flat_map(CodexFileChange::paths).map(str::to_owned).collect::<Vec<_>>());
        let inside = |path: &String| is_inside(Path::new(path), cwd);
        let all_inside = patch.grant_root.is_none() && paths.as_ref().is_some_and(|paths| paths.iter().all(inside));
        let forbidden = (limits.contains(&SandboxLimit::CwdOnly) && !all_inside)
            .then_some("the run isn't allowed to access files outside its folder");
        let input = changes.map(|changes| {
            let changes = changes
                .iter()
                .map(|change| PatchPreviewFile { path: &change.path, change: change.kind.name() })
                .collect();
            Json::of(&PatchPreview { changes, grant_root: patch.grant_root.as_deref() })
        });
        let question = ApprovalQuestion {
            input,
            paths,
            reason: patch.reason.clone(),
            diff: changes.map(|changes| changes.iter().map(CodexFileChange::unified).collect()),
            edits: patch.grant_root.is_none()
                && changes.is_some_and(|changes| changes.iter().all(|change| change.kind.is_edit())),
            ..ApprovalQuestion::about("apply_patch")
        };
        CodexApprovalRequest { question, form: CodexReplyForm::Decision, forbidden }
    }
}

fn permissions_request(wider: PermissionsApprovalParams, limits: &[SandboxLimit]) -> CodexApprovalRequest {
    let question = ApprovalQuestion {
        input: Some(wider.permissions.clone()),
        reason: wider.reason,
        risk: ApprovalRisk::High,
        ..ApprovalQuestion::about("request_permissions")
    };
    let forbidden = (!limits.is_empty()).then_some("the run has limits that can't be relaxed");
    CodexApprovalRequest { question, form: CodexReplyForm::Permissions(wider.permissions), forbidden }
}

/// A tool of one of the user's MCP servers. Other elicitations of these servers aren't meant for the approvers here.
fn tool(asked: &ElicitationParams, limits: &[SandboxLimit]) -> Option<CodexApprovalRequest> {
    if asked.meta.codex_approval_kind.as_deref() != Some("mcp_tool_call") {
        return None;
    }
    // Only the message has the tool name: Allow the X MCP server to run tool "Y"?
    let name = asked.message.split('"').nth(1);
    let tool = name.map_or_else(|| asked.server_name.clone(), |name| format!("mcp__{}__{name}", asked.server_name));
    let question = ApprovalQuestion {
        input: asked.meta.tool_params.clone(),
        reason: Some(asked.message.clone()),
        ..ApprovalQuestion::about(tool)
    };
    let forbidden = (!limits.is_empty()).then_some("the user's MCP servers can't enforce the run's limits");
    Some(CodexApprovalRequest { question, form: CodexReplyForm::Elicitation, forbidden })
}

/// The files of a read-only command, as Codex parses it.
fn paths_read(actions: &[Json]) -> Option<Vec<String>> {
    let actions: Option<Vec<CommandActionParams>> = actions.iter().map(|action| action.parse().ok()).collect();
    let actions = actions.filter(|actions| !actions.is_empty())?;
    let known = |action: &CommandActionParams| matches!(action.kind.as_str(), "read" | "listFiles" | "search");
    actions.iter().all(known).then(|| actions.into_iter().filter_map(|action| action.path).collect())
}

fn is_inside(path: &Path, folder: &Path) -> bool {
    let plain = path.components().all(|part| part != Component::ParentDir);
    plain && (path.is_relative() || path.starts_with(folder))
}

// === impl CodexReplyForm ===

impl CodexReplyForm {
    /// Always for this one time only.
    pub(super) fn reply(self, answer: &ApprovalAnswer) -> CodexApprovalReply {
        let word = match answer {
            ApprovalAnswer::Allowed => "accept",
            ApprovalAnswer::Denied { .. } => "decline",
            ApprovalAnswer::Chosen(_) | ApprovalAnswer::Stopped => "cancel",
        };
        match self {
            Self::Decision => CodexApprovalReply::Decision { decision: word },
            Self::Elicitation => {
                let content = (*answer == ApprovalAnswer::Allowed).then(Json::empty_object);
                CodexApprovalReply::Elicitation { action: word, content }
            }
            Self::Permissions(asked) => {
                let permissions = if *answer == ApprovalAnswer::Allowed { asked } else { Json::empty_object() };
                CodexApprovalReply::Permissions { permissions, scope: "turn" }
            }
            Self::UserInput(ids) => {
                let given = match answer {
                    ApprovalAnswer::Chosen(given) => given.as_slice(),
                    ApprovalAnswer::Allowed | ApprovalAnswer::Denied { .. } | ApprovalAnswer::Stopped => &[],
                };
                let words = |answer: &QuestionAnswer| CodexUserAnswer {
                    answers: answer.selected.iter().chain(&answer.text).cloned().collect(),
                };
                CodexApprovalReply::UserInput { answers: ids.into_iter().zip(given.iter().map(words)).collect() }
            }
        }
    }
}

// === impl CodexFileChange ===

impl CodexFileChange {
    /// About as much memory as it takes.
    fn bytes(&self) -> usize {
        size_of_val(self) + self.paths().map(str::len).sum::<usize>() + self.diff.len()
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        let moved = match &self.kind {
            CodexChangeKind::Update { move_path } => move_path.as_deref(),
            CodexChangeKind::Add | CodexChangeKind::Delete | CodexChangeKind::Other => None,
        };
        [self.path.as_str()].into_iter().chain(moved)
    }

    /// As a unified diff.
    pub(super) fn unified(&self) -> String {
        match &self.kind {
            CodexChangeKind::Add => diff(&self.path, "", &self.diff),
            CodexChangeKind::Delete => diff(&self.path, &self.diff, ""),
            CodexChangeKind::Update { move_path } => {
                format!("--- {}\n+++ {}\n{}", self.path, move_path.as_ref().unwrap_or(&self.path), self.diff)
            }
            CodexChangeKind::Other => self.diff.clone(),
        }
    }
}

// === impl CodexChangeKind ===

impl CodexChangeKind {
    /// Whether nothing is removed by it.
    const fn is_edit(&self) -> bool {
        matches!(self, Self::Add | Self::Update { move_path: None })
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Delete => "delete",
            Self::Update { move_path: None } => "update",
            Self::Update { move_path: Some(_) } => "move",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests;
