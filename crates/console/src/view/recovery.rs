//! What is known of a run on its device, in words that tell its six states apart.

use attache_protocol::{
    Timestamp,
    rules::{
        recovery::Recovery,
        run::{Status, Waiting},
    },
    wire::run::Run,
};

use super::{
    html::{Blank, Markup},
    status::Shown,
    time::{Took, When},
};
use crate::text::Text;

/// The moments that a sentence about a running run may name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moments {
    pub(crate) now: Timestamp,
    pub(crate) claimed: Timestamp,
    /// When the run's stream moved last.
    pub(crate) moved: Option<Timestamp>,
    /// When the device was heard last.
    pub(crate) heard: Option<Timestamp>,
}

/// The sign of what is known of the work on the device; `None` for a run that no device holds.
pub(crate) fn sign(run: &Run, t: &'static Text) -> Option<Shown> {
    let recovery = run.recovery?;
    let (class, icon, word) = match recovery {
        Recovery::RemoteRunning => ("live", "s-live", t.remote_running),
        Recovery::RemoteIdle => ("queued", "s-queued", t.remote_idle),
        Recovery::RemoteWaiting => match run.waiting {
            Some(Waiting::Input) => ("wait", "s-wait", t.remote_waiting_input),
            Some(Waiting::Approval) | None => ("wait", "s-wait", t.remote_waiting_approval),
        },
        Recovery::DoneUnreconciled => ("done", "s-on", t.remote_done),
        Recovery::RemoteMissing => ("fail", "s-stop", t.remote_missing),
        Recovery::Unreachable => ("off", "s-off", t.remote_unreachable),
    };
    Some(Shown { key: recovery.as_str(), class, icon, word })
}

/// The status of a run as people see it: one that waits for a person looks like it.
pub(crate) fn status(run: &Run, t: &'static Text) -> Shown {
    match (run.status, run.waiting) {
        (Status::Running, Some(_)) => Shown { key: "running", class: "wait", icon: "s-wait", word: t.status_waiting },
        (status, _) => super::status::of(status, t),
    }
}

/// Why a running run stands where it stands.
pub(crate) fn sentence(run: &Run, device: &str, moments: Moments, t: &'static Text) -> Markup {
    let device = ("device", Blank::Text(device));
    let since = ("since", Blank::When(When::relative(moments.claimed)));
    let heard = moments.heard.map(When::relative);
    let silent = Took::so_far(moments.moved.unwrap_or(moments.claimed), moments.now, t);
    let silent = Markup::own(silent.to_string());
    let silent = ("silent", Blank::Markup(&silent));
    let waiting = run.waiting.map(|waiting| match waiting {
        Waiting::Approval => t.why_approval,
        Waiting::Input => t.why_input,
    });
    let state = match (run.recovery, waiting) {
        (Some(Recovery::RemoteWaiting), Some(words)) => return Markup::sentence(words, &[device]),
        (None | Some(Recovery::RemoteRunning | Recovery::RemoteWaiting), _) => match heard {
            Some(heard) => Markup::sentence(t.why_running, &[device, since, ("heard", Blank::When(heard))]),
            None => Markup::sentence(t.why_running_quiet, &[device, since]),
        },
        (Some(Recovery::RemoteIdle), _) => Markup::sentence(t.why_idle, &[device, silent]),
        (Some(Recovery::DoneUnreconciled), _) => Markup::sentence(t.why_done, &[device]),
        (Some(Recovery::RemoteMissing), _) => Markup::sentence(t.why_missing, &[device]),
        (Some(Recovery::Unreachable), _) => match heard {
            Some(heard) => Markup::sentence(t.why_unreachable, &[device, ("heard", Blank::When(heard))]),
            None => Markup::sentence(t.why_unreachable_never, &[device]),
        },
    };
    // What the device is about does not hide that a person is asked.
    match waiting {
        Some(words) => {
            let words = Markup::sentence(words, &[device]);
            Markup::sentence("{wait} {state}", &[("wait", Blank::Markup(&words)), ("state", Blank::Markup(&state))])
        }
        None => state,
    }
}
