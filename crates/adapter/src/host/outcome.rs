//! Judges a run from everything known: the host's own verdict, its exit, the denials, the budget. Pure.

use std::os::unix::process::ExitStatusExt as _;

use attache_protocol::{
    Json, Timestamp,
    wire::adapter::{FullOutput, TaskOutput, TaskReply},
};

use super::{
    process::HostExit,
    turn::{TurnSummary, cut},
};
use crate::{
    output::{GatedText, TextHead},
    process::MAX_STREAM,
};

/// What the host itself said about the end of its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TurnVerdict {
    /// It ended its turn. The text is its last answer, if it repeats it.
    Done {
        text: Option<String>,
    },
    /// The model refused.
    Refused {
        message: String,
    },
    /// The budget is used up, by the host's count or ours.
    OverBudget {
        message: String,
    },
    /// The host isn't allowed to work here.
    NotAllowed {
        message: String,
    },
    ModelUnreachable {
        message: String,
    },
    /// The account of its model has no quota left for now.
    UsageLimit {
        message: String,
        resets_at: Option<Timestamp>,
    },
    /// Its model rejects the credentials.
    SignIn {
        message: String,
    },
    /// It reported a failure.
    Failed {
        message: String,
    },
    /// It went silent before its turn ended.
    Vanished,
    /// It printed something unreadable.
    Unreadable {
        message: String,
    },
    /// The run was stopped.
    Stopped,
}

/// Maximum length of a failure message: a host may put anything into one, and the hub limits the size of a request.
const MAX_MESSAGE: usize = 128 * 1024;

// === impl TurnVerdict ===

impl TurnVerdict {
    /// A reason, found after the start, why the host should not have been started.
    pub(crate) fn of_failure(reply: &TaskReply) -> Self {
        Self::NotAllowed { message: reply.error.as_ref().map(|error| error.message.clone()).unwrap_or_default() }
    }

    /// Whether the host must be stopped mid-turn.
    pub(crate) const fn cuts_short(&self) -> bool {
        matches!(self, Self::Stopped | Self::OverBudget { .. })
    }
}

/// The run's reply.
pub(crate) fn reply(verdict: TurnVerdict, turn: &TurnSummary, ended: &HostExit) -> TaskReply {
    let host = &turn.label;
    let mut reply = match verdict {
        // A stopped run counts as stopped, whatever the host reports.
        TurnVerdict::Stopped => TaskReply::failed("cancelled", format!("{host} was stopped")),
        TurnVerdict::OverBudget { message } => over_budget(host, &message),
        _ if turn.exceeded.is_some() => over_budget(host, turn.exceeded.as_deref().unwrap_or_default()),
        TurnVerdict::Done { text } => done(text, turn),
        TurnVerdict::Refused { message } => {
            TaskReply::failed("refused", format!("{host} refused the task{}", after(&message)))
        }
        TurnVerdict::NotAllowed { message } => TaskReply::failed("refused", message),
        TurnVerdict::ModelUnreachable { message } => TaskReply::failed(
            "model_unreachable",
            format!("{host} can't reach its model{}. Check the device's network and the host's login", after(&message)),
        ),
        TurnVerdict::UsageLimit { message, resets_at } => usage_limit(host, &message, resets_at),
        TurnVerdict::SignIn { message } => {
            TaskReply::failed("sign_in_required", format!("{host} isn't signed in on this device{}", after(&message)))
        }
        TurnVerdict::Failed { message } => {
            TaskReply::failed("task_failed", format!("{host} failed{}", after(&message)))
        }
        TurnVerdict::Vanished => TaskReply::failed("host_crashed", vanished(host, ended)),
        TurnVerdict::Unreadable { message } => TaskReply::failed(
            "adapter_invalid_reply",
            format!("{host} sent unreadable output{}. Its version may be too new or too old", after(&message)),
        ),
    };
    if let Some(error) = &mut reply.error {
        error.message.truncate(error.message.floor_char_boundary(MAX_MESSAGE));
    }
    if turn.usage.is_known() {
        reply.usage = Some(Json::of(&turn.usage));
    }
    reply
}

fn usage_limit(host: &str, message: &str, resets_at: Option<Timestamp>) -> TaskReply {
    let until = resets_at
        .map_or_else(|| "Wait, or upgrade the account's plan".to_owned(), |at| format!("The limit resets at {at}"));
    let message = format!("{host} reached its account's usage limit{}. {until}", after(message));
    let mut reply = TaskReply::failed("usage_limit", message);
    if let Some(error) = &mut reply.error {
        error.resets_at = resets_at;
    }
    reply
}

pub(super) fn over_budget(host: &str, message: &str) -> TaskReply {
    let fix = "Give the run a larger budget, or wait until the quota resets";
    TaskReply::failed(
        "quota_exceeded",
        format!("{host} was stopped because the run's budget is used up{}. {fix}", after(message)),
    )
}

/// A turn that ended after a denial only counts as done if the host made progress afterwards.
fn done(text: Option<String>, turn: &TurnSummary) -> TaskReply {
    let repeated = text.filter(|text| !text.trim().is_empty()).map(whole_or_cut);
    let (text, full_output) = repeated.unwrap_or_else(|| (turn.text.clone(), turn.cut.clone()));
    let stuck: Vec<String> = turn
        .denied
        .iter()
        .filter(|denied| !denied.got_on)
        .map(|denied| match &denied.comment {
            Some(comment) => format!("{} ({comment})", denied.step),
            None => denied.step.clone(),
        })
        .collect();
    if stuck.is_empty() {
        return TaskReply::done(&TaskOutput { text, full_output, ..TaskOutput::default() });
    }
    let said = if text.trim().is_empty() { String::new() } else { format!(". Its answer: {}", text.trim()) };
    let message = format!("{} was denied permission: {}{said}", turn.label, stuck.join("; "));
    TaskReply::failed("permission_denied", message)
}

/// A repeated answer is cut at the same length as a streamed one.
fn whole_or_cut(text: String) -> (String, Option<FullOutput>) {
    let mut kept = TextHead::new(MAX_STREAM);
    match kept.push(&text) {
        GatedText::All(_) => (text, None),
        GatedText::Last(_) | GatedText::Nothing => {
            let full_output = cut(&kept);
            (kept.into_kept(), full_output)
        }
    }
}

fn vanished(host: &str, ended: &HostExit) -> String {
    let how = match ended.status {
        None => "stopped responding and was terminated".to_owned(),
        Some(status) => match (status.code(), status.signal()) {
            (Some(0), _) => "exited before it answered".to_owned(),
            (Some(code), _) => format!("exited with status {code} before it answered"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => format!("exited with {status}"),
        },
    };
    match ended.errors.trim() {
        "" => format!("{host} {how}"),
        errors => format!("{host} {how}. End of its standard error:\n{errors}"),
    }
}

fn after(message: &str) -> String {
    match message.trim().trim_end_matches('.') {
        "" => String::new(),
        message => format!(": {message}"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::{
        super::{HostUsage, turn::DeniedStep},
        *,
    };

    fn summary() -> TurnSummary {
        TurnSummary {
            label: "The host".to_owned(),
            text: "all that was said".to_owned(),
            cut: None,
            usage: HostUsage::default(),
            denied: Vec::new(),
            exceeded: None,
        }
    }

    fn ended(status: Option<i32>, errors: &str) -> HostExit {
        HostExit { status: status.map(ExitStatus::from_raw), errors: errors.to_owned() }
    }

    fn told(verdict: TurnVerdict, turn: &TurnSummary, ended: &HostExit) -> (String, String) {
        let reply = reply(verdict, turn, ended);
        match reply.error {
            Some(error) => (error.code, error.message),
            None => ("done".to_owned(), reply.output.unwrap().parse::<TaskOutput>().unwrap().text),
        }
    }

    fn pair(code: &str, message: &str) -> (String, String) {
        (code.to_owned(), message.to_owned())
    }

    #[test]
    fn each_verdict_has_its_own_code() {
        let (turn, fine) = (summary(), ended(Some(0), ""));
        let message = || "because".to_owned();
        let table = [
            (TurnVerdict::Done { text: Some("last".to_owned()) }, pair("done", "last")),
            (TurnVerdict::Done { text: None }, pair("done", "all that was said")),
            (TurnVerdict::Stopped, pair("cancelled", "The host was stopped")),
            (TurnVerdict::Refused { message: message() }, pair("refused", "The host refused the task: because")),
            (TurnVerdict::Failed { message: String::new() }, pair("task_failed", "The host failed")),
            (TurnVerdict::Vanished, pair("host_crashed", "The host exited before it answered")),
        ];
        for (verdict, expected) in table {
            assert_eq!(told(verdict, &turn, &fine), expected);
        }
        let codes = [
            (TurnVerdict::OverBudget { message: message() }, "quota_exceeded"),
            (TurnVerdict::ModelUnreachable { message: message() }, "model_unreachable"),
            (TurnVerdict::UsageLimit { message: message(), resets_at: None }, "usage_limit"),
            (TurnVerdict::SignIn { message: message() }, "sign_in_required"),
            (TurnVerdict::Unreadable { message: message() }, "adapter_invalid_reply"),
        ];
        for (verdict, code) in codes {
            assert_eq!(told(verdict, &turn, &fine).0, code);
        }
    }

    #[test]
    fn a_denial_fails_the_run_unless_the_host_made_progress() {
        let denied = |got_on| DeniedStep { step: "Write a".to_owned(), comment: Some("not today".to_owned()), got_on };
        let verdict = || TurnVerdict::Done { text: Some("I could not".to_owned()) };
        let fine = ended(Some(0), "");
        let stuck = TurnSummary { denied: vec![denied(false)], ..summary() };
        let said = "The host was denied permission: Write a (not today). Its answer: I could not";
        assert_eq!(told(verdict(), &stuck, &fine), pair("permission_denied", said));
        let got_on = TurnSummary { denied: vec![denied(true)], ..summary() };
        assert_eq!(told(verdict(), &got_on, &fine), pair("done", "I could not"));
    }

    #[test]
    fn our_own_count_overrides_a_host_that_reports_done() {
        let turn = TurnSummary { exceeded: Some("9 of 8 tokens".to_owned()), ..summary() };
        assert_eq!(told(TurnVerdict::Done { text: None }, &turn, &ended(Some(0), "")).0, "quota_exceeded");
        assert_eq!(told(TurnVerdict::Stopped, &turn, &ended(Some(0), "")).0, "cancelled");
    }

    #[test]
    fn a_crash_reports_the_exit_and_the_last_output() {
        let turn = summary();
        let said = |status, errors| told(TurnVerdict::Vanished, &turn, &ended(status, errors)).1;
        assert_eq!(said(Some(11), ""), "The host was killed by signal 11");
        assert_eq!(
            said(Some(256), "boom\n"),
            "The host exited with status 1 before it answered. End of its standard error:\nboom"
        );
        assert_eq!(said(None, ""), "The host stopped responding and was terminated");
    }

    #[test]
    fn usage_is_part_of_every_outcome() {
        let turn = TurnSummary { usage: HostUsage::of_tokens(3, 4).with_cost(0.5), ..summary() };
        let usage = reply(TurnVerdict::Vanished, &turn, &ended(None, "")).usage.unwrap();
        let expected = r#"{"tokens":7,"input_tokens":3,"output_tokens":4,"cost_usd":0.5,"cost_source":"reported"}"#;
        assert_eq!(usage.get(), expected);
    }
}
