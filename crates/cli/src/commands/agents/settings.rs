//! Settings that `attache agents add` and `attache agents set` share: description, callers, run timeout, skills and
//! approval policy.

use std::{path::PathBuf, time::Duration};

use attache_protocol::{
    Json,
    rules::{permission::OnTimeout, permission_mode::PermissionMode},
    wire::{
        account::{Account, AccountRequest, ApprovalConfirmation, Callers, OnLimit, Skill},
        permission::ApprovalPolicy,
    },
};

use crate::{
    env::{amount, permission_mode},
    ui::failure::CommandFailure,
};

#[derive(Debug, Default, clap::Args)]
pub(super) struct AgentSettingsArgs {
    /// Description of what the agent does
    #[arg(long)]
    description: Option<String>,
    /// File with instructions to send with every task
    #[arg(long, value_name = "FILE")]
    instruction_file: Option<PathBuf>,
    /// A2A options (JSON), for example {"anonymous":true}; replaces the current options
    #[arg(long, value_name = "JSON", value_parser = options)]
    a2a: Option<Json>,
    /// Who can call it: `everyone` who can call agents on this hub, or only its `owner`
    #[arg(long, value_name = "everyone|owner", value_parser = callers)]
    callers: Option<Callers>,
    /// Time limit for runs whose caller sets none (90s, 30m, 8h, 7d); `default` uses the hub's limit
    #[arg(long, value_name = "TIME", value_parser = run_timeout)]
    run_timeout: Option<RunTimeoutArg>,
    /// What its runs do when its model account reaches a usage limit: wait until it resets, continue with the caller's fallback
    /// agent, or fail
    #[arg(long, value_name = "wait|fallback|fail", value_parser = on_limit)]
    on_limit: Option<OnLimit>,
    /// What approving its requests needs: a person's `passkey`, in the console, or nothing more (`none`). Only its owner can change
    /// this
    #[arg(long, value_name = "passkey|none", value_parser = confirm_approvals)]
    confirm_approvals: Option<ApprovalConfirmation>,
    /// Skill of the agent, as ID or ID=DESCRIPTION; repeatable; replaces the current skills
    #[arg(long = "skill", value_name = "ID[=TEXT]", value_parser = skill)]
    skills: Vec<Skill>,
    /// JSON file with all skills: [{"id","name","description","tags"}]
    #[arg(long, value_name = "FILE", conflicts_with = "skills")]
    skills_file: Option<PathBuf>,
    /// How long its approval requests wait for a decision (30m, 8h, 7d)
    #[arg(long, value_name = "TIME", value_parser = amount::duration)]
    approval_timeout: Option<Duration>,
    /// What to do when an approval request times out
    #[arg(long, value_name = "deny_and_halt|deny_and_continue|keep_waiting", value_parser = on_timeout)]
    on_approval_timeout: Option<OnTimeout>,
    /// Webhook to notify of this agent's approval requests; "" removes it
    #[arg(long, value_name = "URL")]
    approval_webhook: Option<String>,
    /// Whether a plan is approved first (`plan_first`), or which steps need no approval: none (`ask`), changes to ordinary
    /// files in its folder (`accept_edits`), or everything in the sandbox of its device (`accept_walled`)
    #[arg(long, value_name = PermissionMode::CHOICES, value_parser = permission_mode::parse)]
    permission_mode: Option<PermissionMode>,
    /// Command that needs no approval, such as "git diff *"; repeatable; replaces the current ones; "" removes them
    #[arg(long = "trust-command", value_name = "PATTERN")]
    trusted_commands: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunTimeoutArg {
    OfHub,
    Own(Duration),
}

// === impl AgentSettingsArgs ===

impl AgentSettingsArgs {
    /// Whether the approval policy changes; if so, the current policy is needed to merge with.
    pub(super) fn touches_approvals(&self) -> bool {
        self.approval_timeout.is_some()
            || self.on_approval_timeout.is_some()
            || self.approval_webhook.is_some()
            || self.permission_mode.is_some()
            || !self.trusted_commands.is_empty()
    }

    /// Builds the request; `known` is the existing agent, if any.
    pub(super) fn request(self, known: Option<&Account>) -> Result<AccountRequest, CommandFailure> {
        let approvals = self.touches_approvals().then(|| self.approvals(known));
        let instructions = match &self.instruction_file {
            Some(path) => Some(
                std::fs::read_to_string(path)
                    .map_err(|error| CommandFailure::file("read the instructions in", path, &error))?,
            ),
            None => None,
        };
        let skills = match self.skills_file {
            Some(path) => {
                let text =
                    std::fs::read_to_string(&path).map_err(|error| CommandFailure::file("read", &path, &error))?;
                let skills = serde_json::from_str(&text).map_err(|error| {
                    CommandFailure::usage(format!("{} isn't a valid list of skills: {error}", path.display()))
                        .hint(r#"Write [{"id":"review","name":"Review","description":"…","tags":["code"]}]."#)
                })?;
                Some(skills)
            }
            None => (!self.skills.is_empty()).then_some(self.skills),
        };
        Ok(AccountRequest {
            description: self.description,
            instructions,
            a2a: self.a2a,
            callers: self.callers,
            run_timeout_ms: self.run_timeout.map(|timeout| match timeout {
                RunTimeoutArg::OfHub => 0,
                RunTimeoutArg::Own(length) => millis(length),
            }),
            on_limit: self.on_limit,
            confirm_approvals: self.confirm_approvals,
            skills,
            approvals,
            ..AccountRequest::default()
        })
    }

    /// Merges the changes into the current policy.
    fn approvals(&self, known: Option<&Account>) -> ApprovalPolicy {
        let before = known.and_then(|account| account.approvals.clone()).unwrap_or_default();
        ApprovalPolicy {
            timeout_ms: self.approval_timeout.map(millis).or(before.timeout_ms),
            on_timeout: self.on_approval_timeout.or(before.on_timeout),
            webhook_url: match &self.approval_webhook {
                Some(url) => Some(url.clone()).filter(|url| !url.is_empty()),
                None => before.webhook_url,
            },
            mode: self.permission_mode.or(before.mode),
            trusted_commands: match &self.trusted_commands[..] {
                [] => before.trusted_commands,
                given => given.iter().filter(|pattern| !pattern.is_empty()).cloned().collect(),
            },
        }
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Checks only that the text is a JSON object; the hub validates its members.
fn options(text: &str) -> Result<Json, String> {
    let json = Json::from_text(text).map_err(|error| format!("invalid JSON: {error}"))?;
    if json.is_object() { Ok(json) } else { Err("must be a JSON object, for example {\"anonymous\":true}".to_owned()) }
}

fn callers(text: &str) -> Result<Callers, String> {
    Callers::from_text(text).ok_or_else(|| "expected one of everyone, owner".to_owned())
}

fn on_limit(text: &str) -> Result<OnLimit, String> {
    OnLimit::from_text(text).ok_or_else(|| "expected one of wait, fallback, fail".to_owned())
}

fn confirm_approvals(text: &str) -> Result<ApprovalConfirmation, String> {
    ApprovalConfirmation::from_text(text).ok_or_else(|| "expected one of passkey, none".to_owned())
}

fn run_timeout(text: &str) -> Result<RunTimeoutArg, String> {
    match text {
        "default" => Ok(RunTimeoutArg::OfHub),
        _ => amount::duration(text).map(RunTimeoutArg::Own).map_err(|error| format!("{error}, or `default`")),
    }
}

fn on_timeout(text: &str) -> Result<OnTimeout, String> {
    match text.replace('-', "_").as_str() {
        "deny_and_halt" => Ok(OnTimeout::DenyAndHalt),
        "deny_and_continue" => Ok(OnTimeout::DenyAndContinue),
        "keep_waiting" => Ok(OnTimeout::KeepWaiting),
        _ => Err("expected one of deny_and_halt, deny_and_continue, keep_waiting".to_owned()),
    }
}

fn skill(text: &str) -> Result<Skill, String> {
    let (id, description) = text.split_once('=').unwrap_or((text, ""));
    if id.trim().is_empty() {
        return Err("write ID or ID=DESCRIPTION".to_owned());
    }
    Ok(Skill {
        id: id.trim().to_owned(),
        name: id.trim().to_owned(),
        description: description.trim().to_owned(),
        tags: Vec::new(),
    })
}
