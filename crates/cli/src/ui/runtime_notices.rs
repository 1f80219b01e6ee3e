//! Notices of a runtime as messages for people, one line each, on standard error.

use attache_protocol::rules::run::RunStatus;
use attache_runtime::{AnswerKind, QuestionNotice, RuntimeNotice};

use super::output::{TerminalOutput, TextStyle, clean};
use crate::text::{setup as text, terms};

/// Prints a notice.
pub(crate) fn print(output: &TerminalOutput, notice: &RuntimeNotice) {
    let (style, text) = describe(notice);
    output.say_styled(style, clean::line(&text));
}

fn describe(notice: &RuntimeNotice) -> (TextStyle, String) {
    match notice {
        RuntimeNotice::Started { agent, api_base, .. } => (TextStyle::Dim, text::runtime_of(agent, api_base)),
        RuntimeNotice::Online => (TextStyle::Good, text::online().to_owned()),
        RuntimeNotice::HubAway { reason } => (TextStyle::Bad, text::hub_away(reason)),
        RuntimeNotice::HubBack => (TextStyle::Good, text::hub_back().to_owned()),
        RuntimeNotice::ClockOff { ahead_minutes } => (TextStyle::Bad, text::correct_clock(clock(*ahead_minutes))),
        RuntimeNotice::ChannelOpen { .. } => (TextStyle::Dim, text::channel_open().to_owned()),
        RuntimeNotice::ChannelBroken { reason } => (TextStyle::Dim, text::no_channel(reason)),
        RuntimeNotice::Asked { run, question: QuestionNotice::Permission { tool } } => {
            (TextStyle::Busy, text::run_asks_approval(run, tool))
        }
        RuntimeNotice::Asked { run, question: QuestionNotice::Input { prompt } } => {
            (TextStyle::Busy, text::run_asks_input(run, prompt))
        }
        RuntimeNotice::Answered { run, answer } => {
            let text = match answer {
                AnswerKind::Approved => text::run_approved(run),
                AnswerKind::Denied => text::run_denied(run),
                AnswerKind::Input => text::run_answered(run),
            };
            (TextStyle::Busy, text)
        }
        RuntimeNotice::LedgerUnwritable { reason } => (TextStyle::Bad, text::ledger_unwritable(reason)),
        RuntimeNotice::LedgerWritable => (TextStyle::Good, text::ledger_writable().to_owned()),
        RuntimeNotice::LedgerDamaged => (TextStyle::Bad, text::ledger_damaged().to_owned()),
        RuntimeNotice::AdapterAway { reason } => (TextStyle::Bad, text::adapter_away(reason)),
        RuntimeNotice::AdapterReady { endpoint } => (TextStyle::Dim, text::adapter_at(endpoint)),
        RuntimeNotice::Pulled { run, task_type } => (TextStyle::Busy, text::run_started(run, task_type)),
        RuntimeNotice::Rejoined { run } => (TextStyle::Busy, text::run_rejoined(run)),
        RuntimeNotice::Released { run } => (TextStyle::Dim, text::run_released(run)),
        RuntimeNotice::Ended { run, status, error } => {
            let style = if *status == RunStatus::Completed { TextStyle::Good } else { TextStyle::Bad };
            let status = terms::run_status(*status);
            let text = match error {
                Some(error) => text::run_ended_with(run, status, error),
                None => text::run_ended(run, status),
            };
            (style, text)
        }
        RuntimeNotice::TaskStopped { run, reason } => (TextStyle::Dim, text::run_stopped(run, reason)),
        RuntimeNotice::Reported { run } => (TextStyle::Dim, text::run_reported(run)),
        RuntimeNotice::ReportKept { run, reason } => (TextStyle::Bad, text::report_kept(run, reason)),
        RuntimeNotice::ReportRefused { run, reason } => (TextStyle::Bad, text::report_refused(run, reason)),
        RuntimeNotice::Stopping { running: Some(run) } => (TextStyle::Busy, text::stopping_after(run)),
        RuntimeNotice::Stopping { running: None } => (TextStyle::Dim, text::stopping().to_owned()),
    }
}

/// How far this device's clock is off from the hub's.
pub(crate) fn clock(ahead_minutes: i64) -> String {
    let minutes = ahead_minutes.unsigned_abs();
    if ahead_minutes > 0 { text::clock_ahead(minutes) } else { text::clock_behind(minutes) }
}
