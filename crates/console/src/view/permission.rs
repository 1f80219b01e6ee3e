//! A permission request as an approval card and as a row of the decision history.

use attache_protocol::{
    Timestamp,
    rules::{
        permission::{DecisionScope, DecisionSource, OnTimeout, PermissionState},
        permission_mode::PLAN_TOOL,
    },
    wire::{account::ApprovalConfirmation, permission::PermissionRequest, run::Run},
};

use super::{
    answer::answer,
    callsign,
    exact::{exact, exact_line},
    fact::Fact,
    html::{CodeSpan, Markup, PageLink},
    run::{ViewContext, title},
    time::TimeElement,
    tool_action::ToolAction,
    tool_input::ToolInputView,
};
use crate::text::Text;

/// A longer plan is shown as it was written.
const MAX_PLAN: usize = 64 * 1024;

/// A request with everything needed to decide it. All agent text is inert.
#[derive(Debug, Clone)]
pub(crate) struct ApprovalCard {
    pub(crate) id: String,
    pub(crate) risk: RiskLabel,
    pub(crate) sign: Markup,
    pub(crate) heading: Markup,
    pub(crate) place: Markup,
    pub(crate) input: ToolInputView,
    /// The plan of a run that plans first.
    pub(crate) plan: Option<Markup>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) asked_at: Timestamp,
    pub(crate) expires: Option<TimeElement>,
    pub(crate) otherwise: Markup,
    /// The choice to limit the decision to the channel of the request, if it came over one.
    pub(crate) on_channel: Option<Markup>,
    /// The complete input is shown, so an approval may apply more than once.
    pub(crate) may_stand: bool,
    /// Approving it takes a passkey.
    pub(crate) needs_passkey: bool,
    /// What the decision covers.
    pub(crate) bound: Markup,
    /// The decision, if there is one.
    pub(crate) settled: Option<DecidedApprovalRow>,
    pub(crate) reasons: [QuickReason; 4],
}

/// A reason for a denial that takes one click.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuickReason {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    /// The comment that the agent gets.
    pub(crate) comment: &'static str,
}

/// The risk that the agent reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RiskLabel {
    /// `low`, `mid`, `high`, or empty for an unknown level.
    pub(crate) class: &'static str,
    pub(crate) word: Markup,
}

/// Context of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct ApprovalContext {
    pub(crate) run: Option<Run>,
    pub(crate) device: Option<String>,
}

/// A decided request.
#[derive(Debug, Clone)]
pub(crate) struct DecidedApprovalRow {
    pub(crate) id: String,
    pub(crate) class: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) what: Markup,
    /// Verdict, place and time as one sentence.
    pub(crate) sentence: Markup,
    pub(crate) about: Markup,
    pub(crate) comment: Option<Markup>,
    pub(crate) place: Option<Markup>,
    pub(crate) at: TimeElement,
}

pub(crate) const fn quick_reasons(t: &'static Text) -> [QuickReason; 4] {
    [
        QuickReason { key: "not_needed", label: t.because_not_needed, comment: t.because_not_needed_text },
        QuickReason { key: "too_broad", label: t.because_too_broad, comment: t.because_too_broad_text },
        QuickReason { key: "other_way", label: t.because_other_way, comment: t.because_other_way_text },
        QuickReason { key: "explain", label: t.because_explain, comment: t.because_explain_text },
    ]
}

// === impl ApprovalCard ===

impl ApprovalCard {
    pub(crate) fn new(request: &PermissionRequest, about: &ApprovalContext, view_context: ViewContext<'_>) -> Self {
        let (t, diff) = (view_context.t, request.diff.as_deref());
        let input = input(request, t).with_diff(diff, t);
        let plan = plan(request);
        let heading = match plan {
            Some(_) => t.wants_plan(&request.agent_name),
            None => ToolAction::of(&request.tool, &input).heading(&request.agent_name, &request.tool, t),
        };
        Self {
            id: request.permission_request_id.to_string(),
            risk: RiskLabel::new(request.risk.as_deref(), t),
            sign: callsign::big(request.agent_id),
            heading,
            plan: plan.as_deref().map(answer),
            place: place(&request.task_run_id.to_string(), about, view_context),
            input: input.or_plain(&request.input, diff, t),
            facts: facts(request, t),
            asked_at: request.requested_at,
            expires: request.expires_at.map(TimeElement::countdown),
            otherwise: unanswered_outcome(request, t),
            on_channel: request
                .channel_id
                .map(|channel| t.choice_channel(Markup::id_link("channels", &channel.to_string()))),
            may_stand: request.once.is_none(),
            needs_passkey: request.confirm_approvals == ApprovalConfirmation::Passkey,
            bound: t.bound_to(CodeSpan(&subject(&request.subject))),
            settled: DecidedApprovalRow::new(request, view_context),
            reasons: quick_reasons(t),
        }
    }
}

impl ApprovalCard {
    /// The approximate size on the page.
    pub(crate) fn weight(&self) -> usize {
        self.input.weight() + self.facts.iter().map(|fact| fact.value.len()).sum::<usize>()
    }
}

/// The text of the plan that a request is about.
fn plan(request: &PermissionRequest) -> Option<String> {
    let shown = request.input.text_member("plan").filter(|_| request.tool == PLAN_TOOL)?;
    (shown.len() <= MAX_PLAN).then_some(shown)
}

/// The tool's input, or what is known of it if the agent doesn't disclose it.
pub(crate) fn input(request: &PermissionRequest, t: &Text) -> ToolInputView {
    match request.without_input() {
        Some(known) => ToolInputView::undisclosed(&known),
        None => ToolInputView::new(&request.input, t),
    }
}

fn place(run: &str, about: &ApprovalContext, view_context: ViewContext<'_>) -> Markup {
    match &about.run {
        Some(known) => {
            let link = Markup::of(PageLink(&format!("/runs/{run}"), &title(known, view_context.t)));
            let who = view_context.caller(&known.caller).who;
            match &about.device {
                Some(device) => view_context.t.wants_in_on(link, exact_line(device), who),
                None => view_context.t.wants_in(link, who),
            }
        }
        None => Markup::id_link("runs", run),
    }
}

fn facts(request: &PermissionRequest, t: &'static Text) -> Vec<Fact> {
    let mut facts = vec![Fact::exact(t.tool, exact_line(&request.tool))];
    if let Some(reason) = request.reason.as_deref().filter(|reason| !reason.trim().is_empty()) {
        facts.push(Fact::markup(t.fact_reason, exact(reason)));
    }
    if let Some(cwd) = &request.cwd {
        facts.push(Fact::exact(t.fact_folder, exact_line(cwd)));
    }
    if !request.paths.is_empty() {
        let paths: Vec<_> = request.paths.iter().map(|path| format!("<code>{}</code>", exact_line(path))).collect();
        facts.push(Fact::markup(t.fact_paths, Markup::trusted(paths.join("<br>"))));
    }
    if !request.undisclosed.is_empty() {
        let known = |what: &String| match what.as_str() {
            "input" => Markup::text(t.undisclosed_input),
            "paths" => Markup::text(t.undisclosed_paths),
            other => exact_line(other),
        };
        let parts: Vec<String> = request.undisclosed.iter().map(|what| known(what).to_string()).collect();
        facts.push(Fact::markup(t.fact_undisclosed, Markup::trusted(parts.join("<br>"))));
    }
    facts
}

/// What happens if the request is not answered.
fn unanswered_outcome(request: &PermissionRequest, t: &Text) -> Markup {
    match (request.on_timeout, request.expires_at) {
        (OnTimeout::DenyAndHalt, Some(expires)) => t.else_halts(TimeElement::full(expires)),
        (OnTimeout::DenyAndContinue, Some(expires)) => t.else_continues(TimeElement::full(expires)),
        (OnTimeout::KeepWaiting, _) | (_, None) => Markup::text(t.else_waits),
    }
}

/// `9f2c…41aa`
fn subject(hex: &str) -> String {
    match (hex.get(..4), hex.len().checked_sub(4).and_then(|at| hex.get(at..))) {
        (Some(start), Some(end)) if hex.len() > 8 => format!("{start}…{end}"),
        _ => hex.to_owned(),
    }
}

// === impl RiskLabel ===

impl RiskLabel {
    fn new(word: Option<&str>, t: &Text) -> Self {
        let word = word.map(str::trim).filter(|word| !word.is_empty());
        let known = |class, text| Self { class, word: Markup::text(text) };
        match word.map(str::to_ascii_lowercase).as_deref() {
            None => known("", t.risk_unsaid),
            Some("low") => known("low", t.risk_low),
            Some("medium" | "moderate" | "mid") => known("mid", t.risk_medium),
            Some("high") => known("high", t.risk_high),
            Some("critical") => known("high", t.risk_critical),
            Some(_) => Self { class: "", word: exact_line(word.unwrap_or_default()) },
        }
    }

    /// Three bars, filled according to the risk.
    pub(crate) fn bars(&self) -> Markup {
        let filled = match self.class {
            "low" => 1,
            "mid" => 2,
            "high" => 3,
            _ => 0,
        };
        let bar = |at: usize| {
            let class = if at < filled { "d" } else { "u" };
            let (x, y, height) = (at * 8, 8 - at * 4, 4 + at * 4);
            format!("<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"6\" height=\"{height}\" rx=\"1\"/>")
        };
        let bars: String = (0..3).map(bar).collect();
        Markup::trusted(format!("<svg viewBox=\"0 0 22 12\" aria-hidden=\"true\">{bars}</svg>"))
    }
}

// === impl DecidedApprovalRow ===

impl DecidedApprovalRow {
    /// `None` while it is pending.
    pub(crate) fn new(request: &PermissionRequest, view_context: ViewContext<'_>) -> Option<Self> {
        let t = view_context.t;
        let (class, icon) = match request.state {
            PermissionState::Pending => return None,
            PermissionState::Approved => ("done", "s-done"),
            PermissionState::Denied => ("fail", "s-fail"),
            PermissionState::Expired | PermissionState::Cancelled => ("stop", "s-stop"),
        };
        let tool = exact_line(&request.tool);
        let input = input(request, t).brief;
        let (what, at) =
            (verdict(request, view_context), TimeElement::clock(request.decided_at.unwrap_or(request.requested_at)));
        let place = via(request, t);
        Some(Self {
            id: request.permission_request_id.to_string(),
            class,
            icon,
            about: t.decided_about(&request.agent_name, tool, input),
            comment: request.comment.as_deref().filter(|comment| !comment.trim().is_empty()).map(exact),
            sentence: match &place {
                Some(place) => t.decided_at_via(&what, place, at),
                None => t.decided_at(&what, at),
            },
            what,
            place,
            at,
        })
    }
}

/// Who decided it and how, as a sentence.
pub(crate) fn verdict(request: &PermissionRequest, view_context: ViewContext<'_>) -> Markup {
    let t = view_context.t;
    let who = view_context.caller(request.decided_by.as_deref().unwrap_or("system")).in_words();
    let scope = scope(request.scope.unwrap_or_default(), t);
    let verdict = match (request.state, request.source) {
        (PermissionState::Pending, _) => Markup::text(t.verdict_pending),
        (PermissionState::Approved, Some(DecisionSource::Policy)) => Markup::text(t.verdict_granted),
        (PermissionState::Denied, Some(DecisionSource::Policy)) => Markup::text(t.verdict_barred),
        (PermissionState::Approved, Some(DecisionSource::Mode)) => Markup::text(t.verdict_trusted),
        (PermissionState::Approved, _) => t.verdict_allowed(scope, who),
        (PermissionState::Denied, _) => t.verdict_denied(scope, who),
        (PermissionState::Expired, _) => match request.on_timeout {
            OnTimeout::DenyAndContinue => Markup::text(t.verdict_expired_on),
            OnTimeout::DenyAndHalt | OnTimeout::KeepWaiting => Markup::text(t.verdict_expired),
        },
        (PermissionState::Cancelled, _) => Markup::text(t.verdict_cancelled),
    };
    match request.until {
        Some(at) => t.verdict_until(verdict, at),
        None => verdict,
    }
}

/// The surface and address of the decision, if a person decided.
fn via(request: &PermissionRequest, t: &Text) -> Option<Markup> {
    let surface = exact_line(request.decided_via.as_deref()?);
    Some(match request.decided_from.as_deref() {
        Some(from) => t.decided_from(surface, from),
        None => t.decided_via(surface),
    })
}

pub(crate) const fn scope(scope: DecisionScope, t: &Text) -> &'static str {
    match scope {
        DecisionScope::Once => t.scope_once,
        DecisionScope::Run => t.scope_run,
        DecisionScope::Conversation => t.scope_conversation,
        DecisionScope::Agent => t.scope_agent,
    }
}
