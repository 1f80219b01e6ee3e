//! The state of a run on its device, as text. Each of the six states has its own.

use attache_protocol::{
    Timestamp,
    rules::{
        recovery::Recovery,
        run::{RunStatus, WaitReason},
    },
    wire::run::Run,
};

use super::{html::Markup, status::StatusBadge, time::DurationElement};
use crate::text::Text;

/// The times that a sentence about a running run may mention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunTimes {
    pub(crate) now: Timestamp,
    pub(crate) claimed: Timestamp,
    /// The time of the run's last event.
    pub(crate) moved: Option<Timestamp>,
    /// The time of the device's last heartbeat.
    pub(crate) heard: Option<Timestamp>,
}

/// The badge for the state on the device. `None` if no device has claimed the run.
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

/// The displayed status of a run. A run that waits for a person has its own badge.
pub(crate) fn status(run: &Run, t: &'static Text) -> StatusBadge {
    match (run.status, run.waiting) {
        (RunStatus::Running, Some(_)) => {
            StatusBadge { key: "running", class: "wait", icon: "s-wait", word: t.status_waiting }
        }
        (status, _) => super::status::of(status, t),
    }
}

/// The status sentence of a running run.
pub(crate) fn sentence(run: &Run, device: &str, moments: RunTimes, t: &'static Text) -> Markup {
    let since = moments.claimed;
    let waiting = run.waiting.map(|waiting| match waiting {
        WaitReason::Approval => t.why_approval(device),
        WaitReason::Input => t.why_input(device),
    });
    let state = match (run.recovery, moments.heard) {
        (Some(Recovery::RemoteWaiting), _) if let Some(waiting) = waiting => return waiting,
        (None | Some(Recovery::RemoteRunning | Recovery::RemoteWaiting), Some(heard)) => {
            t.why_running(device, since, heard)
        }
        (None | Some(Recovery::RemoteRunning | Recovery::RemoteWaiting), None) => t.why_running_quiet(device, since),
        (Some(Recovery::RemoteIdle), _) => {
            t.why_idle(device, DurationElement::so_far(moments.moved.unwrap_or(since), moments.now, t))
        }
        (Some(Recovery::DoneUnreconciled), _) => t.why_done(device),
        (Some(Recovery::RemoteMissing), _) => t.why_missing(device),
        (Some(Recovery::Unreachable), Some(heard)) => t.why_unreachable(device, heard),
        (Some(Recovery::Unreachable), None) => t.why_unreachable_never(device),
    };
    // The device state must not hide a pending request. Both are whole sentences.
    match waiting {
        Some(waiting) => Markup::trusted(format!("{waiting} {state}")),
        None => state,
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::Json;

    use super::*;
    use crate::text::Language;

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
        (
            sign(&run, Language::En.text()).unwrap().word,
            sentence(&run, "laptop", moments, Language::En.text()).to_string(),
        )
    }

    #[test]
    fn each_of_the_six_states_has_its_own_text() {
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
                "Running on the device",
                "Connected, no updates",
                "Waiting for approval",
                "Waiting for input",
                "Finished on the device, result not yet accepted",
                "No longer known to the device",
                "Device not connected",
            ]
        );
        assert!(
            all[1].1.contains("is connected but has sent nothing") && all[1].1.contains("2 m 00 s"),
            "{}",
            all[1].1
        );
        for (index, (_, one)) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|(_, other)| other != one), "{one} appears twice");
        }
    }

    #[test]
    fn an_unreachable_device_does_not_hide_a_question() {
        let (sign, sentence) = words(Recovery::Unreachable, Some(WaitReason::Approval));
        assert_eq!(sign, "Device not connected");
        assert!(sentence.starts_with("Waiting for approval") && sentence.contains("is not connected"), "{sentence}");
    }
}
