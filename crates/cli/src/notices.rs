//! What a runtime tells, in words for people: one line each, on standard error.

use attache_protocol::rules::run::Status;
use attache_runtime::{Answer, Notice, Question};

use crate::output::{Output, Style, clean};

/// Says one notice.
pub(crate) fn say(output: &Output, notice: &Notice) {
    let (style, text) = words(notice);
    output.say_styled(style, clean::line(&text));
}

fn words(notice: &Notice) -> (Style, String) {
    match notice {
        Notice::Started { agent, api_base, .. } => (Style::Dim, format!("runtime of {agent} at {api_base}")),
        Notice::Online => (Style::Good, "online: waiting for work".to_owned()),
        Notice::HubAway { reason } => (Style::Bad, format!("the hub is away ({reason}); trying again")),
        Notice::HubBack => (Style::Good, "the hub is back".to_owned()),
        Notice::ClockOff { ahead_minutes } => (Style::Bad, format!("{}; set one of them right", clock(*ahead_minutes))),
        Notice::ChannelOpen { .. } => (Style::Dim, "work comes over a channel".to_owned()),
        Notice::ChannelBroken { reason } => (Style::Dim, format!("no channel ({reason}); work is pulled meanwhile")),
        Notice::Asked { run, question: Question::Permission { tool } } => {
            (Style::Busy, format!("{run} waits for permission to use {tool}; see: attache approvals"))
        }
        Notice::Asked { run, question: Question::Input { prompt } } => {
            (Style::Busy, format!("{run} waits for input: {prompt}"))
        }
        Notice::Answered { run, answer } => {
            let answer = match answer {
                Answer::Approved => "was allowed to go on",
                Answer::Denied => "was told no",
                Answer::Input => "got its input",
            };
            (Style::Busy, format!("{run} {answer}"))
        }
        Notice::LedgerUnwritable { reason } => (
            Style::Bad,
            format!(
                "takes no new work: the ledger cannot be written ({reason}). Free some space; it goes on by itself"
            ),
        ),
        Notice::LedgerWritable => (Style::Good, "the ledger can be written again".to_owned()),
        Notice::LedgerDamaged => (
            Style::Bad,
            "the ledger of this device is missing or damaged; work that was under way counts as lost".to_owned(),
        ),
        Notice::AdapterAway { reason } => (Style::Bad, format!("the adapter is away: {reason}")),
        Notice::AdapterReady { endpoint } => (Style::Dim, format!("adapter at {endpoint}")),
        Notice::Pulled { run, task_type } => (Style::Busy, format!("{run} started ({task_type})")),
        Notice::Rejoined { run } => (Style::Busy, format!("{run} still runs and is followed again")),
        Notice::Released { run } => (Style::Dim, format!("{run} was handed back")),
        Notice::Ended { run, status, error } => {
            let style = if *status == Status::Completed { Style::Good } else { Style::Bad };
            let error = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            (style, format!("{run} {}{error}", status.as_str()))
        }
        Notice::TaskStopped { run, reason } => (Style::Dim, format!("{run} was stopped: {reason}")),
        Notice::Reported { run } => (Style::Dim, format!("{run} was reported")),
        Notice::ReportKept { run, reason } => {
            (Style::Bad, format!("the outcome of {run} could not be reported ({reason}); the ledger keeps it"))
        }
        Notice::ReportRefused { run, reason } => {
            (Style::Bad, format!("the hub refused the outcome of {run}: {reason}"))
        }
        Notice::Stopping { running: Some(run) } => (Style::Busy, format!("stopping when {run} has ended")),
        Notice::Stopping { running: None } => (Style::Dim, "stopping".to_owned()),
    }
}

/// How this device's clock stands to the hub's.
pub(crate) fn clock(ahead_minutes: i64) -> String {
    let where_to = if ahead_minutes > 0 { "ahead of" } else { "behind" };
    let minutes = ahead_minutes.unsigned_abs();
    let unit = if minutes == 1 { "minute" } else { "minutes" };
    format!("this device's clock is {minutes} {unit} {where_to} the hub's")
}
