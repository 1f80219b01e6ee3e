//! What a runtime tells, in words for people: one line each, on standard error.

use attache_protocol::rules::run::RunStatus;
use attache_runtime::{AnswerNotice, Notice, QuestionNotice};

use crate::output::{TerminalOutput, TextStyle, clean};

/// Says one notice.
pub(crate) fn print(output: &TerminalOutput, notice: &Notice) {
    let (style, text) = describe(notice);
    output.say_styled(style, clean::line(&text));
}

fn describe(notice: &Notice) -> (TextStyle, String) {
    match notice {
        Notice::Started { agent, api_base, .. } => (TextStyle::Dim, format!("runtime of {agent} at {api_base}")),
        Notice::Online => (TextStyle::Good, "online: waiting for work".to_owned()),
        Notice::HubAway { reason } => (TextStyle::Bad, format!("the hub is away ({reason}); trying again")),
        Notice::HubBack => (TextStyle::Good, "the hub is back".to_owned()),
        Notice::ClockOff { ahead_minutes } => {
            (TextStyle::Bad, format!("{}; set one of them right", clock(*ahead_minutes)))
        }
        Notice::ChannelOpen { .. } => (TextStyle::Dim, "work comes over a channel".to_owned()),
        Notice::ChannelBroken { reason } => {
            (TextStyle::Dim, format!("no channel ({reason}); work is pulled meanwhile"))
        }
        Notice::Asked { run, question: QuestionNotice::Permission { tool } } => {
            (TextStyle::Busy, format!("{run} waits for permission to use {tool}; see: attache approvals"))
        }
        Notice::Asked { run, question: QuestionNotice::Input { prompt } } => {
            (TextStyle::Busy, format!("{run} waits for input: {prompt}"))
        }
        Notice::Answered { run, answer } => {
            let answer = match answer {
                AnswerNotice::Approved => "was allowed to go on",
                AnswerNotice::Denied => "was told no",
                AnswerNotice::Input => "got its input",
            };
            (TextStyle::Busy, format!("{run} {answer}"))
        }
        Notice::LedgerUnwritable { reason } => (
            TextStyle::Bad,
            format!(
                "takes no new work: the ledger cannot be written ({reason}). Free some space; it goes on by itself"
            ),
        ),
        Notice::LedgerWritable => (TextStyle::Good, "the ledger can be written again".to_owned()),
        Notice::LedgerDamaged => (
            TextStyle::Bad,
            "the ledger of this device is missing or damaged; work that was under way counts as lost".to_owned(),
        ),
        Notice::AdapterAway { reason } => (TextStyle::Bad, format!("the adapter is away: {reason}")),
        Notice::AdapterReady { endpoint } => (TextStyle::Dim, format!("adapter at {endpoint}")),
        Notice::Pulled { run, task_type } => (TextStyle::Busy, format!("{run} started ({task_type})")),
        Notice::Rejoined { run } => (TextStyle::Busy, format!("{run} still runs and is followed again")),
        Notice::Released { run } => (TextStyle::Dim, format!("{run} was handed back")),
        Notice::Ended { run, status, error } => {
            let style = if *status == RunStatus::Completed { TextStyle::Good } else { TextStyle::Bad };
            let error = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            (style, format!("{run} {}{error}", status.as_str()))
        }
        Notice::TaskStopped { run, reason } => (TextStyle::Dim, format!("{run} was stopped: {reason}")),
        Notice::Reported { run } => (TextStyle::Dim, format!("{run} was reported")),
        Notice::ReportKept { run, reason } => {
            (TextStyle::Bad, format!("the outcome of {run} could not be reported ({reason}); the ledger keeps it"))
        }
        Notice::ReportRefused { run, reason } => {
            (TextStyle::Bad, format!("the hub refused the outcome of {run}: {reason}"))
        }
        Notice::Stopping { running: Some(run) } => (TextStyle::Busy, format!("stopping when {run} has ended")),
        Notice::Stopping { running: None } => (TextStyle::Dim, "stopping".to_owned()),
    }
}

/// How this device's clock stands to the hub's.
pub(crate) fn clock(ahead_minutes: i64) -> String {
    let where_to = if ahead_minutes > 0 { "ahead of" } else { "behind" };
    let minutes = ahead_minutes.unsigned_abs();
    let unit = if minutes == 1 { "minute" } else { "minutes" };
    format!("this device's clock is {minutes} {unit} {where_to} the hub's")
}
