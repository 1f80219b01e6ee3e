//! Log items for approval requests, input requests, their answers and waiting.

use attache_protocol::{
    EventKind, Json,
    rules::permission::{DecisionScope, DecisionSource, PermissionState},
    wire::{event::Event, permission::without_input, questionnaire::QuestionAnswer},
};
use serde::Deserialize;

use super::{
    actor::ActorLabel,
    exact::{exact, exact_line},
    html::Markup,
    permission::scope,
    tool_input::{ToolInputView, head},
};
use crate::text::Text;

/// The members of the event data that are shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct QuestionLogData {
    tool: Option<String>,
    input: Option<Json>,
    /// A call to a private agent, without its input.
    private: bool,
    undisclosed: Vec<String>,
    reason: Option<String>,
    paths: Vec<String>,
    state: Option<PermissionState>,
    source: Option<DecisionSource>,
    scope: Option<DecisionScope>,
    by: Option<String>,
    comment: Option<String>,
    waiting: Option<String>,
    kind: Option<String>,
    prompt: Option<String>,
    parts: Option<Json>,
    input_request_id: Option<String>,
}

/// Class, icon and text of such an event. `None` for other events.
pub(crate) fn step(
    event: &Event,
    who: impl Fn(&str) -> ActorLabel,
    t: &'static Text,
) -> Option<(&'static str, &'static str, Markup)> {
    let data = || event.data.parse::<QuestionLogData>().unwrap_or_default();
    Some(match event.event_kind() {
        Some(EventKind::PermissionRequested) => {
            let data = data();
            let tool = exact_line(data.tool.as_deref().unwrap_or_default());
            if data.private {
                return Some(("wait", "s-wait", t.log_asked_private(tool)));
            }
            let input = data.input.map_or_else(
                || Markup::text(""),
                |input| match without_input(&input, &data.undisclosed, data.reason.as_deref(), &data.paths) {
                    Some(known) => ToolInputView::undisclosed(&known).brief,
                    None => ToolInputView::new(&input, t).brief,
                },
            );
            ("wait", "s-wait", t.log_asked(tool, input))
        }
        Some(EventKind::PermissionDecided) => decided(&data(), who, t),
        Some(EventKind::ActionRequired) => match data().kind.as_deref() {
            Some("input") => ("wait", "s-dot", Markup::text(t.log_person_input)),
            _ => ("wait", "s-dot", Markup::text(t.log_person_approval)),
        },
        Some(EventKind::TaskWaiting) => match data().waiting.as_deref() {
            Some("input") => ("wait", "s-wait", Markup::text(t.log_waiting_input)),
            Some(_) => ("wait", "s-wait", Markup::text(t.log_waiting_approval)),
            None => ("live", "s-dot", Markup::text(t.log_waiting_over)),
        },
        Some(EventKind::TaskInputRequired) => {
            let prompt = exact(&data().prompt.unwrap_or_default());
            ("wait", "s-wait", t.log_input_required(&prompt))
        }
        Some(EventKind::TaskAuthorizationRequired) => {
            let prompt = exact(&data().prompt.unwrap_or_default());
            ("wait", "s-wait", t.log_authorization_required(&prompt))
        }
        Some(EventKind::TaskInputWithdrawn) => ("live", "s-dot", Markup::text(t.log_input_withdrawn)),
        Some(EventKind::TaskInputReceived) => {
            let data = data();
            let text = exact(&parts_text(data.parts.as_ref()));
            let said = match data.input_request_id {
                Some(_) => t.log_input_received(&text),
                None => t.log_input_unasked(&text),
            };
            ("live", "s-dot", said)
        }
        _ => return None,
    })
}

/// The actor that such an event mentions.
pub(crate) fn actor(event: &Event) -> Option<String> {
    if event.kind != EventKind::PermissionDecided {
        return None;
    }
    event.data.parse::<QuestionLogData>().ok().and_then(|data| data.by)
}

fn decided(
    data: &QuestionLogData,
    who: impl Fn(&str) -> ActorLabel,
    t: &'static Text,
) -> (&'static str, &'static str, Markup) {
    let who = who(data.by.as_deref().unwrap_or("system")).in_words();
    let scope = scope(data.scope.unwrap_or_default(), t);
    let (class, icon, words) = match (data.state.unwrap_or(PermissionState::Cancelled), data.source) {
        (PermissionState::Approved, Some(DecisionSource::Policy)) => {
            ("done", "s-done", Markup::text(t.verdict_granted))
        }
        (PermissionState::Denied, Some(DecisionSource::Policy)) => ("fail", "s-fail", Markup::text(t.verdict_barred)),
        (PermissionState::Approved, Some(DecisionSource::Mode)) => ("done", "s-done", Markup::text(t.verdict_trusted)),
        (PermissionState::Approved, _) => ("done", "s-done", t.verdict_allowed(scope, who)),
        (PermissionState::Denied, _) => ("fail", "s-fail", t.verdict_denied(scope, who)),
        (PermissionState::Expired, _) => ("stop", "s-stop", Markup::text(t.log_expired)),
        (PermissionState::Cancelled | PermissionState::Pending, _) => {
            ("stop", "s-stop", Markup::text(t.verdict_cancelled))
        }
    };
    match data.comment.as_deref().filter(|comment| !comment.trim().is_empty()) {
        Some(comment) => (class, icon, t.log_comment(words, exact(comment))),
        None => (class, icon, words),
    }
}

/// The text of parts such as `[{"text":"…"}]`, or else their raw JSON.
fn parts_text(parts: Option<&Json>) -> String {
    #[derive(Deserialize)]
    struct InputTextPart {
        text: String,
    }
    let Some(parts) = parts else { return String::new() };
    match parts.parse::<Vec<InputTextPart>>() {
        Ok(parts) => parts.into_iter().map(|part| part.text).collect::<Vec<_>>().join("\n"),
        Err(_) => answers_text(parts).unwrap_or_else(|| head(parts.get())),
    }
}

/// The answers to questions with options, in words.
fn answers_text(parts: &Json) -> Option<String> {
    #[derive(Deserialize)]
    struct AnswersPart {
        data: GivenAnswers,
    }
    #[derive(Deserialize)]
    struct GivenAnswers {
        answers: Vec<QuestionAnswer>,
    }
    let parts = parts.parse::<Vec<AnswersPart>>().ok()?;
    let answers = parts.iter().flat_map(|part| &part.data.answers);
    Some(answers.map(QuestionAnswer::in_words).collect::<Vec<_>>().join("\n"))
}
