//! A run as a list row and as a page.

use std::{collections::HashMap, time::Duration};

use attache_protocol::{
    Json, RunId, RuntimeId, Timestamp,
    rules::{
        recovery::Recovery,
        run::{RunStatus, WaitReason},
    },
    wire::{
        account::{Account, Presence},
        run::Run,
        runtime::Runtime,
    },
};
use serde::Deserialize;

use super::{
    actor::{ActorLabel, Names, short},
    callsign,
    escape_stripper::{excerpt, plain},
    exact::exact_line,
    failure, host,
    html::{Markup, PageLink},
    recovery::{self, RunTimes},
    status::{self, StatusBadge},
    time::{DurationElement, TimeElement, duration},
    tool_input::head,
};
use crate::text::Text;

/// What every view needs besides its data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ViewContext<'a> {
    pub(crate) t: &'static Text,
    pub(crate) now: Timestamp,
    /// The viewer's actor.
    pub(crate) me: &'a str,
    /// Names that the page mentions.
    pub(crate) names: &'a Names,
}

#[derive(Debug, Clone)]
pub(crate) struct RunListRow {
    pub(crate) id: String,
    pub(crate) status: StatusBadge,
    pub(crate) title: String,
    pub(crate) why: Option<Markup>,
    pub(crate) why_class: &'static str,
    /// The icon of the state on the device, if it is unusual.
    pub(crate) why_icon: Option<&'static str>,
    pub(crate) agent: String,
    pub(crate) sign: Markup,
    pub(crate) device: Option<String>,
    pub(crate) caller: ActorLabel,
    pub(crate) ribbon: Markup,
    pub(crate) duration: DurationElement,
    pub(crate) started: TimeElement,
    /// Can be selected, together with others.
    pub(crate) selectable: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct RunPageDetail {
    pub(crate) id: String,
    pub(crate) short: String,
    pub(crate) conversation: String,
    pub(crate) status: StatusBadge,
    pub(crate) ended: bool,
    /// The task is a text, so a person can change it and run it again.
    pub(crate) editable: bool,
    pub(crate) title: String,
    pub(crate) task: String,
    pub(crate) task_type: String,
    pub(crate) why_line: Markup,
    pub(crate) agent: String,
    pub(crate) agent_id: String,
    pub(crate) sign: Markup,
    pub(crate) host_on: Option<String>,
    pub(crate) caller: ActorLabel,
    pub(crate) ribbon: Markup,
    pub(crate) ribbon_caption: Markup,
    pub(crate) failure: Option<RunFailureView>,
    pub(crate) result: Option<RunAnswerView>,
}

#[derive(Debug, Clone)]
pub(crate) struct RunFailureView {
    pub(crate) cancelled: bool,
    pub(crate) title: &'static str,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) advice: Markup,
}

#[derive(Debug, Clone)]
pub(crate) struct RunAnswerView {
    pub(crate) text: String,
    /// The text in Markdown, unless a program wrote it.
    pub(crate) prose: Option<Markup>,
    pub(crate) details: Option<String>,
}

/// A time in which a run waited for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitSpan {
    pub(crate) since: Timestamp,
    /// `None` while it still waits.
    pub(crate) until: Option<Timestamp>,
}

/// What is known about the agent of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunAgentFacts<'a> {
    pub(crate) account: Option<&'a Account>,
    /// The device that has or last had the run.
    pub(crate) device: Option<&'a Runtime>,
    /// The run that the agent is working on.
    pub(crate) busy_with: Option<&'a Run>,
    /// The time of the run's last event.
    pub(crate) moved: Option<Timestamp>,
    /// When it waited for people, in order.
    pub(crate) waits: &'a [WaitSpan],
}

// === impl ViewContext ===

impl ViewContext<'_> {
    pub(crate) fn caller(&self, actor: &str) -> ActorLabel {
        ActorLabel::of(actor, self.me, self.names, self.t)
    }
}

// === impl RunListRow ===

impl RunListRow {
    pub(crate) fn new(run: &Run, account: Option<&Account>, view_context: ViewContext<'_>) -> Self {
        let ViewContext { t, now, .. } = view_context;
        let runtime = account.and_then(|account| account.runtime.as_ref());
        let device = runtime
            .filter(|runtime| run.runtime_id.is_none_or(|id| id == runtime.runtime_id))
            .and_then(|runtime| runtime.device_name.clone());
        let (mut why, mut why_class) = row_why(run, account, t);
        let remote = recovery::sign(run, t).filter(|_| run.recovery != Some(Recovery::RemoteRunning));
        if let Some(remote) = remote {
            (why, why_class) = (Some(Markup::text(remote.word)), remote.class);
        }
        if let Some(question) = &run.waits_for {
            let what = exact_line(&head(&question.what));
            why = Some(match question.kind {
                WaitReason::Approval => t.row_approval(what),
                WaitReason::Input => t.row_question(what),
            });
            why_class = "wait";
        }
        Self {
            id: run.task_run_id.to_string(),
            status: recovery::status(run, t),
            title: title(run, t),
            why,
            why_class,
            // The status badge of a waiting run already has the icon.
            why_icon: remote.filter(|_| run.waiting.is_none()).map(|remote| remote.icon),
            agent: run.agent_name.clone(),
            sign: callsign::small(run.agent_id),
            device,
            caller: view_context.caller(&run.caller),
            ribbon: ribbon(run, &[], now, t, RibbonScale::Absolute),
            duration: run_duration(run, now, t),
            started: TimeElement::clock(run.created_at),
            selectable: false,
        }
    }
}

fn row_why(run: &Run, account: Option<&Account>, t: &'static Text) -> (Option<Markup>, &'static str) {
    match run.status {
        RunStatus::Pending if let Some(until) = run.deferred_until => {
            (Some(t.row_deferred(&run.agent_name, TimeElement::clock(until))), "wait")
        }
        RunStatus::Pending => match account {
            Some(Account { runtime: None, name, .. }) => (Some(t.row_unpaired(name)), "wait"),
            Some(Account { status: Presence::Offline, runtime: Some(runtime), name, .. }) => {
                let since = runtime.last_heartbeat_at.unwrap_or(runtime.attached_at);
                (Some(t.row_offline(name, since)), "wait")
            }
            _ => (None, ""),
        },
        RunStatus::Failed => {
            let message = member(run.task_result.as_ref(), "error");
            let code = member(run.task_result.as_ref(), "code");
            let (title, _) = failure::explain(&code, t);
            (Some(Markup::text(if message.is_empty() { title } else { first_line(&message) })), "fail")
        }
        RunStatus::Cancelled => {
            let reason = member(run.task_result.as_ref(), "error");
            let said = !reason.is_empty() && reason != "cancelled";
            (said.then(|| Markup::text(first_line(&reason))), "")
        }
        RunStatus::Running | RunStatus::Completed => (None, ""),
    }
}

// === impl RunPageDetail ===

impl RunPageDetail {
    pub(crate) fn new(run: &Run, around: RunAgentFacts<'_>, view_context: ViewContext<'_>) -> Self {
        let ViewContext { t, now, .. } = view_context;
        let task = excerpt(task(run), t);
        let title = title(run, t);
        let device = around.device.map(|runtime| device_name(runtime, t));
        let host = around.device.and_then(|runtime| host::name(&runtime.labels, t));
        let host_on = match (&host, &device) {
            (Some(host), Some(device)) => Some(t.host_on(host, device)),
            (_, device) => device.clone(),
        };
        Self {
            id: run.task_run_id.to_string(),
            short: short(&run.task_run_id.to_string()),
            conversation: run.conversation_id.to_string(),
            status: recovery::status(run, t),
            ended: status::has_ended(run.status),
            editable: task_text(run).is_some(),
            title,
            task,
            task_type: run.task_type.clone(),
            why_line: why_line(run, around, now, t),
            agent: run.agent_name.clone(),
            agent_id: run.agent_id.to_string(),
            sign: callsign::small(run.agent_id),
            host_on,
            caller: view_context.caller(&run.caller),
            ribbon: ribbon(run, around.waits, now, t, RibbonScale::Whole),
            ribbon_caption: caption(run, around.waits, now, t),
            failure: failure_of(run, t),
            result: answer(run, around, t),
        }
    }
}

fn why_line(run: &Run, around: RunAgentFacts<'_>, now: Timestamp, t: &'static Text) -> Markup {
    let agent = &run.agent_name;
    let device = around.device.map_or_else(|| t.unknown_device.to_owned(), |runtime| device_name(runtime, t));
    let took = run_duration(run, now, t);
    match run.status {
        RunStatus::Pending if let Some(until) = run.deferred_until => t.why_deferred(agent, TimeElement::clock(until)),
        RunStatus::Pending => match around.account {
            Some(Account { runtime: None, .. }) => t.why_unpaired(agent),
            Some(Account { status: Presence::Offline, runtime: Some(runtime), .. }) => {
                t.why_offline(agent, runtime.last_heartbeat_at.unwrap_or(runtime.attached_at))
            }
            _ => match around.busy_with {
                Some(other) => t.why_busy(agent, PageLink(&format!("/runs/{}", other.task_run_id), t.why_other_run)),
                None => t.why_next(agent),
            },
        },
        RunStatus::Running => {
            let moments = RunTimes {
                now,
                claimed: run.claimed_at.unwrap_or(run.created_at),
                moved: around.moved,
                heard: around.device.and_then(|runtime| runtime.last_heartbeat_at),
            };
            recovery::sentence(run, &device, moments, t)
        }
        RunStatus::Completed => t.why_completed(took, device),
        RunStatus::Failed => {
            let (title, _) = failure::explain(&member(run.task_result.as_ref(), "code"), t);
            if run.claimed_at.is_some() { t.why_failed(took, title) } else { t.why_failed_queued(took, title) }
        }
        RunStatus::Cancelled => t.why_cancelled(run.ended_at.unwrap_or(now)),
    }
}

fn failure_of(run: &Run, t: &'static Text) -> Option<RunFailureView> {
    let result = run.task_result.as_ref();
    let message = excerpt(plain(&member(result, "error")), t);
    match run.status {
        RunStatus::Failed => {
            let code = member(result, "code");
            let (title, advice) = failure::explain(&code, t);
            let native = member(result, "native_code");
            let code = if native.is_empty() { code } else { format!("{code} · {native}") };
            let next = member(result, "continued_by");
            let advice = match next.parse::<RunId>() {
                Ok(next) => t.fail_continued(Markup::id_link("runs", &next.to_string())),
                Err(_) => Markup::marked(advice),
            };
            Some(RunFailureView { cancelled: false, title, code, message, advice })
        }
        RunStatus::Cancelled => {
            let message = if message == "cancelled" { String::new() } else { message };
            let advice = Markup::text("");
            Some(RunFailureView {
                cancelled: true,
                title: t.fail_cancelled,
                code: "cancelled".to_owned(),
                message,
                advice,
            })
        }
        RunStatus::Pending | RunStatus::Running | RunStatus::Completed => None,
    }
}

fn answer(run: &Run, around: RunAgentFacts<'_>, t: &Text) -> Option<RunAnswerView> {
    if run.status != RunStatus::Completed {
        return None;
    }
    let result = run.task_result.as_ref();
    let details = result
        .and_then(|json| json.parse::<serde_json::Value>().ok())
        .and_then(|value| value.get("details").filter(|details| !details.is_null()).cloned())
        .and_then(|details| serde_json::to_string_pretty(&details).ok())
        .map(|details| excerpt(plain(&details), t));
    let text = excerpt(plain(&member(result, "text")), t);
    let by_program = around.device.is_some_and(|device| host::runs_scripts(&device.labels));
    let prose = (!by_program).then(|| super::answer::answer(&text));
    Some(RunAnswerView { text, prose, details })
}

// --- helpers

/// The device's name, or a placeholder if it has none.
pub(crate) fn device_name(runtime: &Runtime, t: &Text) -> String {
    runtime.device_name.as_deref().filter(|name| !name.trim().is_empty()).unwrap_or(t.unknown_device).to_owned()
}

/// The names of devices by runtime, for the log.
pub(crate) fn device_names(runtimes: &[Runtime], t: &Text) -> HashMap<RuntimeId, String> {
    runtimes.iter().map(|runtime| (runtime.runtime_id, device_name(runtime, t))).collect()
}

/// The text of the task as it was written, if it is one.
pub(crate) fn task_text(run: &Run) -> Option<String> {
    run.input.text_member("text").filter(|text| !text.trim().is_empty())
}

/// The names of the files that came with the task.
pub(crate) fn task_files(run: &Run) -> Vec<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct TaskWithFiles {
        message: TaskMessage,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct TaskMessage {
        parts: Vec<TaskFile>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct TaskFile {
        filename: Option<String>,
    }
    let parts = run.input.parse::<TaskWithFiles>().unwrap_or_default().message.parts;
    parts.into_iter().filter_map(|part| part.filename).map(|name| plain(&name)).collect()
}

/// The task text, or the complete input if it has no text.
pub(crate) fn task(run: &Run) -> String {
    let text = member(Some(&run.input), "text");
    if !text.trim().is_empty() {
        return plain(&text);
    }
    match run.input.parse::<serde_json::Value>() {
        Ok(serde_json::Value::Object(members)) if members.is_empty() => String::new(),
        Ok(value) => plain(&serde_json::to_string_pretty(&value).unwrap_or_default()),
        Err(_) => String::new(),
    }
}

/// The first line of the task, shortened for a heading.
pub(crate) fn title(run: &Run, t: &Text) -> String {
    let task = task(run);
    let line = first_line(&task).trim();
    if line.is_empty() {
        return t.untitled.to_owned();
    }
    let mut title: String = line.chars().take(160).collect();
    if title.len() < line.len() {
        title.push('…');
    }
    title
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default()
}

fn member(json: Option<&Json>, name: &str) -> String {
    json.and_then(|json| json.text_member(name)).unwrap_or_default()
}

/// The time in the queue, and the working time if the run was claimed.
fn spans(run: &Run, now: Timestamp) -> (Duration, Option<Duration>) {
    let end = run.ended_at.unwrap_or(now);
    match run.claimed_at.filter(|_| run.status != RunStatus::Pending) {
        Some(claimed) => (claimed.since(run.created_at), Some(end.since(claimed))),
        None => (end.since(run.created_at), None),
    }
}

/// The time that the run waited for people since it was claimed.
fn waited(run: &Run, waits: &[WaitSpan], now: Timestamp) -> Duration {
    let end = run.ended_at.unwrap_or(now);
    let claimed = run.claimed_at.unwrap_or(run.created_at);
    let spans = waits.iter().map(|wait| wait.until.unwrap_or(end).since(wait.since.max(claimed)));
    spans.sum()
}

/// How long the run was queued, worked and waited. What isn't over ticks in the browser.
fn caption(run: &Run, waits: &[WaitSpan], now: Timestamp, t: &'static Text) -> Markup {
    let (queued, claimed) = spans(run, now);
    let ticking = |so_far: Duration| Markup::of(DurationElement::so_far(now.minus(so_far), now, t));
    let still = |total: Duration| Markup::text(&duration(total, t));
    let Some(claimed) = claimed else {
        let queued = if run.ended_at.is_some() { still(queued) } else { ticking(queued) };
        return t.ribbon_caption(queued, still(Duration::ZERO));
    };
    let waited = waited(run, waits, now);
    let worked = claimed.saturating_sub(waited);
    let is_waiting = run.ended_at.is_none() && waits.last().is_some_and(|wait| wait.until.is_none());
    let is_working = run.ended_at.is_none() && !is_waiting;
    let worked = if is_working { ticking(worked) } else { still(worked) };
    if waited.is_zero() && !is_waiting {
        return t.ribbon_caption(still(queued), worked);
    }
    t.ribbon_caption_waited(still(queued), worked, if is_waiting { ticking(waited) } else { still(waited) })
}

pub(crate) fn run_duration(run: &Run, now: Timestamp, t: &Text) -> DurationElement {
    let since = run.claimed_at.filter(|_| run.status != RunStatus::Pending).unwrap_or(run.created_at);
    match run.ended_at {
        Some(ended) => DurationElement::between(since, ended, t),
        None => DurationElement::so_far(since, now, t),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RibbonScale {
    /// Comparable between runs: the length is logarithmic in time, up to an hour.
    Absolute,
    /// The full width is the total time.
    Whole,
}

/// The time ribbon: a thin line for queued time, a solid bar for working time, a hollow one for waiting.
pub(crate) fn ribbon(run: &Run, waits: &[WaitSpan], now: Timestamp, t: &Text, scale: RibbonScale) -> Markup {
    let (queued, worked) = spans(run, now);
    let total = queued.as_secs_f64() + worked.unwrap_or_default().as_secs_f64();
    let width = match scale {
        RibbonScale::Absolute => ((1.0 + total).ln() / 3_601_f64.ln() * 100.0).clamp(4.0, 100.0),
        RibbonScale::Whole => 100.0,
    };
    let (line, bar) = match worked {
        Some(worked) => {
            let share = if total > 0.0 { worked.as_secs_f64() / total } else { 1.0 };
            // Keep at least a sliver of the bar visible.
            let bar = (width * share).clamp(2.0, width);
            (width - bar, bar)
        }
        None => (width, 0.0),
    };
    let class = match run.status {
        RunStatus::Running if run.waiting.is_some() && waits.is_empty() => "waits",
        RunStatus::Running => "on",
        RunStatus::Completed => "ok",
        RunStatus::Failed => "bad",
        RunStatus::Pending | RunStatus::Cancelled => "",
    };
    let waited = waited(run, waits, now);
    let working = duration(worked.unwrap_or_default().saturating_sub(waited), t);
    let label = match waited.is_zero() {
        true => t.ribbon_label(duration(queued, t), working),
        false => t.ribbon_label_waited(duration(queued, t), working, duration(waited, t)),
    };
    let (top, height) = if scale == RibbonScale::Whole { (0, 12) } else { (2, 8) };
    let mut svg = format!("<svg class=\"ribbon {class}\" role=\"img\" aria-label=\"{label}\">");
    if line > 0.0 {
        svg.push_str(&format!("<rect class=\"q\" x=\"0%\" y=\"5\" width=\"{line:.1}%\" height=\"2\"/>"));
    }
    if bar > 0.0 {
        svg.push_str(&format!(
            "<rect class=\"w\" x=\"{line:.1}%\" y=\"{top}\" width=\"{bar:.1}%\" height=\"{height}\" rx=\"1.5\"/>"
        ));
    }
    if let (Some(worked), Some(claimed)) = (worked.filter(|worked| !worked.is_zero()), run.claimed_at) {
        let end = run.ended_at.unwrap_or(now);
        for wait in waits {
            let since = wait.since.max(claimed);
            let place = |span: Duration| span.as_secs_f64() / worked.as_secs_f64() * bar;
            let (x, wide) = (line + place(since.since(claimed)), place(wait.until.unwrap_or(end).since(since)));
            svg.push_str(&format!(
                "<rect class=\"p\" x=\"{x:.1}%\" y=\"{top}\" width=\"{wide:.1}%\" height=\"{height}\" rx=\"1.5\"/>"
            ));
        }
    }
    svg.push_str("</svg>");
    Markup::trusted(svg)
}
