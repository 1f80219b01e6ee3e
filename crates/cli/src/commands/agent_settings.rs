//! What `attache agents add` and `attache agents set` say of an agent beside its name: who may call it, how long its runs may
//! take, its skills, and how its approval requests end.

use std::{path::PathBuf, time::Duration};

use attache_protocol::{
    Json,
    rules::permission::OnTimeout,
    wire::{
        account::{Account, AccountRequest, Callers, Skill},
        permission::ApprovalPolicy,
    },
};

use crate::{CommandFailure, amount};

#[derive(Debug, Default, clap::Args)]
pub(super) struct AgentSettingsArgs {
    /// What it is good at, for people
    #[arg(long)]
    description: Option<String>,
    /// A file with instructions that go with every task
    #[arg(long, value_name = "FILE")]
    instruction_file: Option<PathBuf>,
    /// A2A options (JSON), for example {"anonymous":true}; they replace those that it has
    #[arg(long, value_name = "JSON", value_parser = options)]
    a2a: Option<Json>,
    /// Who may put it to work: `everyone` who may call agents here, or its `owner` alone
    #[arg(long, value_name = "everyone|owner", value_parser = callers)]
    callers: Option<Callers>,
    /// How long its runs may take when their caller does not say (90s, 30m, 8h, 7d); `default`: as the hub says
    #[arg(long, value_name = "TIME", value_parser = run_timeout)]
    run_timeout: Option<RunTimeoutArg>,
    /// Something that it can do, as ID or ID=DESCRIPTION; may be repeated, and replaces the skills that it has
    #[arg(long = "skill", value_name = "ID[=TEXT]", value_parser = skill)]
    skills: Vec<Skill>,
    /// A JSON file with all of its skills: [{"id","name","description","tags"}]
    #[arg(long, value_name = "FILE", conflicts_with = "skills")]
    skills_file: Option<PathBuf>,
    /// How long its approval requests wait for a person (30m, 8h, 7d)
    #[arg(long, value_name = "TIME", value_parser = amount::duration)]
    approval_timeout: Option<Duration>,
    /// What happens when nobody answers in time
    #[arg(long, value_name = "deny_and_halt|deny_and_continue|keep_waiting", value_parser = on_timeout)]
    on_approval_timeout: Option<OnTimeout>,
    /// A webhook that is told of every approval request of this agent; "" for none
    #[arg(long, value_name = "URL")]
    approval_webhook: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunTimeoutArg {
    OfHub,
    Own(Duration),
}

// === impl AgentSettingsArgs ===

impl AgentSettingsArgs {
    /// Whether the policy for approvals changes, so that the rest of it has to be known.
    pub(super) fn touches_approvals(&self) -> bool {
        self.approval_timeout.is_some() || self.on_approval_timeout.is_some() || self.approval_webhook.is_some()
    }

    /// As a request; `known` is the agent as it is, if there is one.
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
                    CommandFailure::usage(format!("{} is no list of skills: {error}", path.display()))
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
            skills,
            approvals,
            ..AccountRequest::default()
        })
    }

    /// What is not mentioned stays.
    fn approvals(&self, known: Option<&Account>) -> ApprovalPolicy {
        let before = known.and_then(|account| account.approvals.clone()).unwrap_or_default();
        ApprovalPolicy {
            timeout_ms: self.approval_timeout.map(millis).or(before.timeout_ms),
            on_timeout: self.on_approval_timeout.or(before.on_timeout),
            webhook_url: match &self.approval_webhook {
                Some(url) => Some(url.clone()).filter(|url| !url.is_empty()),
                None => before.webhook_url,
            },
        }
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// The hub says which members it knows.
fn options(text: &str) -> Result<Json, String> {
    let json = Json::from_text(text).map_err(|error| format!("this is not JSON: {error}"))?;
    if json.is_object() {
        Ok(json)
    } else {
        Err("this must be a JSON object, for example {\"anonymous\":true}".to_owned())
    }
}

fn callers(text: &str) -> Result<Callers, String> {
    Callers::from_text(text).ok_or_else(|| "one of everyone, owner".to_owned())
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
        _ => Err("one of deny_and_halt, deny_and_continue, keep_waiting".to_owned()),
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
