//! What is known of a run on its device, in words that tell its six states apart.

use attache_protocol::{
    Timestamp,
    rules::{
        recovery::Recovery,
        run::{RunStatus, WaitReason},
    },
    wire::run::Run,
};

use super::{
    html::{Markup, PlaceholderValue},
    status::StatusBadge,
    time::{DurationElement, TimeElement},
};
use crate::text::Text;

/// The moments that a sentence about a running run may name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunTimes {
    pub(crate) now: Timestamp,
    pub(crate) claimed: Timestamp,
    /// When the run's stream moved last.
    pub(crate) moved: Option<Timestamp>,
    /// When the device was heard last.
    pub(crate) heard: Option<Timestamp>,
}

/// The sign of what is known of the work on the device; `None` for a run that no device holds.
pub(crate) fn sign(run: &Run, t: &'static Text) -> Option<StatusBadge> {
    let recovery = run.recovery?;
    let (class, icon, word) = match recovery {
        Recovery::RemoteRunning => ("live", "s-live", t.remote_running),
        Recovery::RemoteIdle => ("queued", "s-queued", t.remote_idle),
        Recovery::RemoteWaiting => match run.waiting {
            Some(WaitReason::Input) => ("wait", "s-wait", t.remote_waiting_input),
            Some(WaitReason::Approval) | None => ("wait", "s-wait", t.remote_waiting_approval),
        },
        Recovery::DoneUnreconciled => ("done", "s-on", t.remote_done),
        Recovery::RemoteMissing => ("fail", "s-stop", t.remote_missing),
        Recovery::Unreachable => ("off", "s-off", t.remote_unreachable),
    };
    Some(StatusBadge { key: recovery.as_str(), class, icon, word })
}

/// The status of a run as people see it: one that waits for a person looks like it.
pub(crate) fn status(run: &Run, t: &'static Text) -> StatusBadge {
    match (run.status, run.waiting) {
        (RunStatus::Running, Some(_)) => {
            StatusBadge { key: "running", class: "wait", icon: "s-wait", word: t.status_waiting }
        }
        (status, _) => super::status::of(status, t),
    }
}

/// Why a running run stands where it stands.
pub(crate) fn sentence(run: &Run, device: &str, moments: RunTimes, t: &'static Text) -> Markup {
    let device = ("device", PlaceholderValue::Text(device));
    let since = ("since", PlaceholderValue::When(TimeElement::relative(moments.claimed)));
    let heard = moments.heard.map(TimeElement::relative);
    let silent = DurationElement::so_far(moments.moved.unwrap_or(moments.claimed), moments.now, t);
    let silent = Markup::trusted(silent.to_string());
    let silent = ("silent", PlaceholderValue::Markup(&silent));
    let waiting = run.waiting.map(|waiting| match waiting {
        WaitReason::Approval => t.why_approval,
        WaitReason::Input => t.why_input,
    });
    let state = match (run.recovery, waiting) {
        (Some(Recovery::RemoteWaiting), Some(words)) => return Markup::sentence(words, &[device]),
        (None | Some(Recovery::RemoteRunning | Recovery::RemoteWaiting), _) => match heard {
            Some(heard) => Markup::sentence(t.why_running, &[device, since, ("heard", PlaceholderValue::When(heard))]),
            None => Markup::sentence(t.why_running_quiet, &[device, since]),
        },
        (Some(Recovery::RemoteIdle), _) => Markup::sentence(t.why_idle, &[device, silent]),
        (Some(Recovery::DoneUnreconciled), _) => Markup::sentence(t.why_done, &[device]),
        (Some(Recovery::RemoteMissing), _) => Markup::sentence(t.why_missing, &[device]),
        (Some(Recovery::Unreachable), _) => match heard {
            Some(heard) => Markup::sentence(t.why_unreachable, &[device, ("heard", PlaceholderValue::When(heard))]),
            None => Markup::sentence(t.why_unreachable_never, &[device]),
        },
    };
    // What the device is about does not hide that a person is asked.
    match waiting {
        Some(words) => {
            let words = Markup::sentence(words, &[device]);
            Markup::sentence(
                "{wait} {state}",
                &[("wait", PlaceholderValue::Markup(&words)), ("state", PlaceholderValue::Markup(&state))],
            )
        }
        None => state,
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::Json;

    use super::*;
    use crate::text::ALL;

    fn run(recovery: Recovery, waiting: Option<WaitReason>) -> Run {
        let run = Json::from_text(
            r#"{"task_run_id":"run_019a854700007000800000000000aaaa","agent_id":"agt_019a854700007000800000000000aaaa",
            "agent_name":"builder","conversation_id":"cnv_019a854700007000800000000000aaaa",
            "workspace_id":"wsp_019a854700007000800000000000aaaa","parent_task_run_id":null,"status":"running",
            "waiting":null,"recovery":null,"task_type":"prompt","attempt":1,"max_attempts":1,"epoch":1,"priority":0,
            "timeout_ms":1000,"input":{},"task_result":null,"usage":null,"caller":"key:x","trace_id":null,
            "runtime_id":null,"created_at":"2026-01-01T00:00:00Z","claimed_at":null,"lease_expires_at":null,
            "expires_at":null,"ended_at":null,"last_seq":1}"#,
        );
        Run { recovery: Some(recovery), waiting, ..run.unwrap().parse().unwrap() }
    }

    fn words(recovery: Recovery, waiting: Option<WaitReason>) -> (&'static str, String) {
        let at = Timestamp::from_millis(0);
        let now = Timestamp::from_millis(125_000);
        let moments = RunTimes { now, claimed: at, moved: Some(Timestamp::from_millis(5_000)), heard: None };
        let run = run(recovery, waiting);
        (sign(&run, ALL[0]).unwrap().word, sentence(&run, "laptop", moments, ALL[0]).to_string())
    }

    #[test]
    fn the_six_states_have_words_of_their_own() {
        let approval = Some(WaitReason::Approval);
        let all = [
            words(Recovery::RemoteRunning, None),
            words(Recovery::RemoteIdle, None),
            words(Recovery::RemoteWaiting, approval),
            words(Recovery::RemoteWaiting, Some(WaitReason::Input)),
            words(Recovery::DoneUnreconciled, None),
            words(Recovery::RemoteMissing, None),
            words(Recovery::Unreachable, None),
        ];
        let signs = all.clone().map(|(sign, _)| sign);
        assert_eq!(
            signs,
            [
                "The device executes it",
                "Connected but silent",
                "Waiting for approval",
                "Waiting for input",
                "Ended on the device, not yet accepted",
                "The device does not know it any more",
                "Device not connected",
            ]
        );
        assert!(all[1].1.contains("connected but silent") && all[1].1.contains("2 m 00 s"), "{}", all[1].1);
        for (index, (_, one)) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|(_, other)| other != one), "{one} is said twice");
        }
    }

    #[test]
    fn a_device_that_is_away_does_not_hide_a_question() {
        let (sign, sentence) = words(Recovery::Unreachable, Some(WaitReason::Approval));
        assert_eq!(sign, "Device not connected");
        assert!(sentence.starts_with("Waiting for approval") && sentence.contains("is not connected"), "{sentence}");
    }
}
