//! Notices of a runtime as messages for people, one line each, on standard error.

use attache_protocol::rules::run::RunStatus;
use attache_runtime::{AnswerNotice, Notice, QuestionNotice};

use super::output::{TerminalOutput, TextStyle, clean};

/// Prints a notice.
pub(crate) fn print(output: &TerminalOutput, notice: &Notice) {
    let (style, text) = describe(notice);
    output.say_styled(style, clean::line(&text));
}

fn describe(notice: &Notice) -> (TextStyle, String) {
    match notice {
        Notice::Started { agent, api_base, .. } => (TextStyle::Dim, format!("runtime of {agent} at {api_base}")),
        Notice::Online => (TextStyle::Good, "online: waiting for tasks".to_owned()),
        Notice::HubAway { reason } => (TextStyle::Bad, format!("the hub is unreachable ({reason}); retrying")),
        Notice::HubBack => (TextStyle::Good, "the hub is back".to_owned()),
        Notice::ClockOff { ahead_minutes } => {
            (TextStyle::Bad, format!("{}; correct the wrong clock", clock(*ahead_minutes)))
        }
        Notice::ChannelOpen { .. } => (TextStyle::Dim, "receiving tasks over a channel".to_owned()),
        Notice::ChannelBroken { reason } => {
            (TextStyle::Dim, format!("no channel ({reason}); polling for tasks instead"))
        }
        Notice::Asked { run, question: QuestionNotice::Permission { tool } } => {
            (TextStyle::Busy, format!("{run} is waiting for approval to use {tool}; see attache approvals"))
        }
        Notice::Asked { run, question: QuestionNotice::Input { prompt } } => {
            (TextStyle::Busy, format!("{run} is waiting for input: {prompt}"))
        }
        Notice::Answered { run, answer } => {
            let answer = match answer {
                AnswerNotice::Approved => "was approved",
                AnswerNotice::Denied => "was denied",
                AnswerNotice::Input => "received its input",
            };
            (TextStyle::Busy, format!("{run} {answer}"))
        }
        Notice::LedgerUnwritable { reason } => (
            TextStyle::Bad,
            format!(
                "not accepting tasks: can't write the ledger ({reason}). Free up disk space; the runtime resumes automatically"
            ),
        ),
        Notice::LedgerWritable => (TextStyle::Good, "the ledger is writable again".to_owned()),
        Notice::LedgerDamaged => {
            (TextStyle::Bad, "this device's ledger is missing or damaged; tasks in progress count as lost".to_owned())
        }
        Notice::AdapterAway { reason } => (TextStyle::Bad, format!("the adapter is unreachable: {reason}")),
        Notice::AdapterReady { endpoint } => (TextStyle::Dim, format!("adapter at {endpoint}")),
        Notice::Pulled { run, task_type } => (TextStyle::Busy, format!("{run} started ({task_type})")),
        Notice::Rejoined { run } => (TextStyle::Busy, format!("{run} is still running; following it again")),
        Notice::Released { run } => (TextStyle::Dim, format!("{run} was returned to the queue")),
        Notice::Ended { run, status, error } => {
            let style = if *status == RunStatus::Completed { TextStyle::Good } else { TextStyle::Bad };
            let error = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            (style, format!("{run} {}{error}", status.as_str()))
        }
        Notice::TaskStopped { run, reason } => (TextStyle::Dim, format!("{run} was stopped: {reason}")),
        Notice::Reported { run } => (TextStyle::Dim, format!("{run} was reported")),
        Notice::ReportKept { run, reason } => {
            (TextStyle::Bad, format!("can't report the outcome of {run} ({reason}); it is kept in the ledger"))
        }
        Notice::ReportRefused { run, reason } => {
            (TextStyle::Bad, format!("the hub refused the outcome of {run}: {reason}"))
        }
        Notice::Stopping { running: Some(run) } => (TextStyle::Busy, format!("stopping after {run} finishes")),
        Notice::Stopping { running: None } => (TextStyle::Dim, "stopping".to_owned()),
    }
}

/// How far this device's clock is off from the hub's.
pub(crate) fn clock(ahead_minutes: i64) -> String {
    let direction = if ahead_minutes > 0 { "ahead of" } else { "behind" };
    let minutes = ahead_minutes.unsigned_abs();
    let unit = if minutes == 1 { "minute" } else { "minutes" };
    format!("this device's clock is {minutes} {unit} {direction} the hub's")
}
