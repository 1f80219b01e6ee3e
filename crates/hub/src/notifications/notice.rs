//! What a notification says: a pure function of what it reports and of how much its person wants to show.

use std::time::Duration;

use attache_protocol::{
    Json, PermissionId, RunId, Timestamp, digest,
    hidden_text::{is_hidden, is_right_to_left},
    json::Members,
    rules::{
        permission::{REMOTE_AGENT, hides_input},
        run::RunStatus,
    },
    wire::{
        account::ApprovalConfirmation,
        notification::{NotificationChoices, NotificationDetail},
    },
};
use attache_store::record::{
    RunRecord,
    worker_request::{PermissionRecord, WorkerRequestKind, WorkerRequestRecord},
};

use super::text::NotificationText;

/// The members of a tool's input that say what it does. The first one present stands first.
const TELLING: [&str; 5] = ["command", "cmd", "script", "url", "file_path"];
const COMMANDS: [&str; 3] = ["command", "cmd", "script"];
/// The tools with which agent programs run commands and open pages. Any other tool is named, whatever its input says.
const SHELL_TOOLS: [&str; 6] = ["Bash", "bash", "shell", "exec_command", "run_shell_command", "terminal"];
const PAGE_TOOLS: [&str; 3] = ["WebFetch", "webfetch", "web_fetch"];
const MAX_TITLE: usize = 120;
/// What a phone shows when the notification is unfolded.
const MAX_BODY: usize = 480;
/// What every phone shows. A longer text can't be approved unseen.
const MAX_APPROVED_LINES: usize = 4;
const MAX_APPROVED: usize = 200;
/// After this, nobody needs the notification any more.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) title: String,
    pub(super) body: Option<String>,
    /// The page to open.
    pub(super) path: String,
    /// A later notice with the same tag replaces this one.
    pub(super) tag: String,
    /// Somebody waits.
    pub(super) is_urgent: bool,
    pub(super) lifetime: Duration,
    pub(super) decision: Option<OfferedDecision>,
}

/// What can be decided without opening the page. Only ever this once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OfferedDecision {
    pub(super) permission: PermissionId,
    /// The hash of everything that the decision covers.
    pub(super) subject: String,
    /// Everything that it covers is shown, so that it can be approved. It can always be denied.
    pub(super) may_approve: bool,
}

/// Text for a small screen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ShownText {
    text: String,
    /// Nothing was cut or hidden.
    is_complete: bool,
}

// === impl Notice ===

impl Notice {
    pub(super) fn of_permission(asked: &PermissionRecord, choices: NotificationChoices, now: Timestamp) -> Self {
        let t = NotificationText::of(choices.language);
        let (agent, tool) = (name(&asked.agent_name), name(&asked.tool));
        let members = asked.input.parse::<Members>().ok();
        let has = |names: &[&str]| {
            members.as_ref().is_some_and(|members| names.iter().any(|name| members.find(name).is_some()))
        };
        let title = if asked.tool.starts_with(REMOTE_AGENT) || asked.private_agent {
            (t.wants_agent)(&agent)
        } else if is_command(asked) {
            (t.wants_command)(&agent)
        } else if asked.diff.is_some() {
            (t.wants_edit)(&agent)
        } else if PAGE_TOOLS.contains(&&*asked.tool) && has(&["url"]) {
            (t.wants_page)(&agent)
        } else {
            (t.wants_tool)(&agent, &tool)
        };
        // What someone else's agent is asked stays on the page, and what the agent hides can't be shown.
        let is_shown =
            choices.detail == NotificationDetail::Full && !asked.private_agent && !hides_input(&asked.undisclosed);
        let shown = is_shown.then(|| step(asked, members.as_ref(), t));
        let is_named = asked.tool.chars().count() <= MAX_TITLE && is_plainly_shown(&asked.tool);
        let is_enough = asked.confirm_approvals == ApprovalConfirmation::None;
        let may_approve =
            is_enough && is_named && discloses_all(asked) && shown.as_ref().is_some_and(|shown| shown.is_complete);
        let id = asked.id.to_string();
        Self {
            title,
            body: shown.map(|shown| shown.text),
            path: format!("/approvals/{id}"),
            tag: id,
            is_urgent: true,
            lifetime: asked.expires_at.map_or(LIFETIME, |at| at.since(now).min(LIFETIME)),
            decision: Some(OfferedDecision {
                permission: asked.id,
                subject: digest::hex(&asked.subject.0),
                may_approve,
            }),
        }
    }

    pub(super) fn of_question(run: &RunRecord, ask: &WorkerRequestRecord, choices: NotificationChoices) -> Self {
        let t = NotificationText::of(choices.language);
        let prompt = match &ask.what {
            WorkerRequestKind::Input { prompt, .. } | WorkerRequestKind::Authorization { prompt, .. } => prompt,
            WorkerRequestKind::Tool { tool, .. } => tool,
        };
        Self {
            title: (t.asks)(&name(&run.agent_name)),
            body: (choices.detail == NotificationDetail::Full).then(|| ShownText::new(prompt, MAX_BODY).text),
            path: page(run.id),
            tag: ask.id.to_string(),
            is_urgent: true,
            lifetime: LIFETIME,
            decision: None,
        }
    }

    pub(super) fn of_end(run: &RunRecord, choices: NotificationChoices) -> Self {
        let t = NotificationText::of(choices.language);
        let said = match run.state.status() {
            RunStatus::Failed => t.failed,
            RunStatus::Cancelled => t.cancelled,
            RunStatus::Completed | RunStatus::Pending | RunStatus::Running => t.completed,
        };
        let task = || {
            let members = run.spec.input.parse::<Members>().ok()?;
            let task = ["task", "text", "prompt"].iter().find_map(|name| members.text(name))?;
            Some(ShownText::new(task.lines().find(|line| !line.trim().is_empty())?, MAX_TITLE).text)
        };
        Self {
            title: said(&name(&run.agent_name)),
            body: if choices.detail == NotificationDetail::Full { task() } else { None },
            path: page(run.id),
            tag: run.id.to_string(),
            is_urgent: false,
            lifetime: LIFETIME,
            decision: None,
        }
    }

    pub(super) fn test(choices: NotificationChoices) -> Self {
        let t = NotificationText::of(choices.language);
        Self {
            title: t.test_title.to_owned(),
            body: Some(t.test_body.to_owned()),
            path: "/inbox".to_owned(),
            tag: "test".to_owned(),
            is_urgent: true,
            lifetime: Duration::from_secs(60),
            decision: None,
        }
    }
}

fn page(run: RunId) -> String {
    format!("/runs/{run}")
}

/// A name from outside, on one line.
fn name(name: &str) -> String {
    ShownText::new(&name.replace(['\n', '\t'], " "), MAX_TITLE).text
}

/// The whole input of a tool, one member per line, and where it works. A change of a file isn't complete: its diff needs
/// the page.
/// Whether it is a command, whose input says all that there is to know.
fn is_command(asked: &PermissionRecord) -> bool {
    let says = |members: Members| COMMANDS.iter().any(|name| members.find(name).is_some());
    SHELL_TOOLS.contains(&&*asked.tool) && asked.input.parse::<Members>().is_ok_and(says)
}

/// Whether nothing that a person judges by is held back. Which files a command touches, nobody knows before it runs; agents
/// say so of each.
pub(crate) fn discloses_all(asked: &PermissionRecord) -> bool {
    asked.undisclosed.is_empty() || (is_command(asked) && asked.undisclosed == ["paths"])
}

fn step(asked: &PermissionRecord, members: Option<&Members>, t: &NotificationText) -> ShownText {
    let mut lines = Vec::new();
    match members {
        None => lines.push(asked.input.get().to_owned()),
        Some(members) => {
            let first = TELLING.iter().find(|name| members.find(name).is_some());
            lines.extend(first.and_then(|name| members.find(name)).map(plain));
            // The folder has a line of its own.
            let is_folder = |name: &str, value: &Json| name == "cwd" && value.parse::<String>().ok() == asked.cwd;
            let others =
                members.0.iter().filter(|(name, value)| Some(&name.as_str()) != first && !is_folder(name, value));
            lines.extend(others.map(|(name, value)| format!("{}: {}", on_one_line(name), plain(value))));
        }
    }
    lines.extend(asked.cwd.as_deref().map(|folder| (t.folder)(&on_one_line(folder))));
    lines.extend(asked.paths.iter().map(|path| on_one_line(path)));
    let text = lines.join("\n");
    let shown = ShownText::new(&text, MAX_BODY);
    let is_shown = shown.is_complete && is_plainly_shown(&text);
    let are_distinct = members.is_none_or(Members::are_distinct);
    ShownText { is_complete: is_shown && are_distinct && asked.diff.is_none(), ..shown }
}

/// A text as it is, anything else as JSON.
fn plain(value: &Json) -> String {
    value.parse::<String>().map_or_else(|_| value.get().to_owned(), |text| on_one_line(&text))
}

/// A text of several lines as JSON, so that none of them looks like another member.
fn on_one_line(text: &str) -> String {
    match text.contains(['\n', '\r']) {
        true => Json::of(&text).get().to_owned(),
        false => text.to_owned(),
    }
}

/// Whether every phone shows all of a text as what it is: a few lines of letters, digits and ASCII punctuation, in the
/// order in which they are read, without gaps that move the rest out of sight.
fn is_plainly_shown(text: &str) -> bool {
    let is_shown = |letter: char| {
        let is_letter = letter.is_alphanumeric() && !is_hidden(letter) && !is_right_to_left(letter);
        is_letter || letter.is_ascii_punctuation() || matches!(letter, ' ' | '\n')
    };
    text.chars().all(is_shown)
        && text.chars().count() <= MAX_APPROVED
        && text.lines().count() <= MAX_APPROVED_LINES
        && text.split('\n').all(|line| !line.trim().is_empty() && !line.contains("  "))
}

// === impl ShownText ===

impl ShownText {
    /// Replaces what a screen doesn't show, or what reorders what it shows, and cuts what is too long.
    fn new(text: &str, longest: usize) -> Self {
        let mut shown = String::with_capacity(text.len().min(4 * longest));
        let mut is_complete = true;
        for (count, letter) in text.chars().enumerate() {
            if count == longest {
                shown.push('…');
                return Self { text: shown, is_complete: false };
            }
            match is_replaced(letter) {
                true => {
                    is_complete = false;
                    shown.push('\u{fffd}');
                }
                false => shown.push(letter),
            }
        }
        Self { text: shown, is_complete }
    }
}

/// What is replaced, so that it can be told from nothing.
const fn is_replaced(letter: char) -> bool {
    !matches!(letter, '\n' | '\t') && (is_hidden(letter) || letter == '\u{fe0f}')
}

#[cfg(test)]
mod tests;
