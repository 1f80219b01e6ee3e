//! Questions and answers in the log of a run: what the agent asked, who settled it, when the run waited.

use attache_protocol::{
    EventKind, Json,
    rules::permission::{Scope, Source, State},
    wire::{event::Event, permission::without_input},
};
use serde::Deserialize;

use super::{
    asked::{Input, head},
    caller::Caller,
    exact::{exact, exact_line},
    html::{Blank, Markup},
    permission::scope,
};
use crate::text::Text;

/// The members that we show; everything else is ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    tool: Option<String>,
    input: Option<Json>,
    undisclosed: Vec<String>,
    reason: Option<String>,
    paths: Vec<String>,
    state: Option<State>,
    source: Option<Source>,
    scope: Option<Scope>,
    by: Option<String>,
    comment: Option<String>,
    waiting: Option<String>,
    kind: Option<String>,
    prompt: Option<String>,
    parts: Option<Json>,
}

/// Class, icon and words of such an event; `None` for any other.
pub(crate) fn step(
    event: &Event,
    who: impl Fn(&str) -> Caller,
    t: &'static Text,
) -> Option<(&'static str, &'static str, Markup)> {
    let data = || event.data.parse::<Data>().unwrap_or_default();
    Some(match event.event_kind() {
        Some(EventKind::PermissionRequested) => {
            let data = data();
            let tool = exact_line(data.tool.as_deref().unwrap_or_default());
            let input = data.input.map_or_else(
                || Markup::text(""),
                |input| match without_input(&input, &data.undisclosed, data.reason.as_deref(), &data.paths) {
                    Some(known) => Input::undisclosed(&known).brief,
                    None => Input::new(&input, t).brief,
                },
            );
            let blanks = [("tool", Blank::Markup(&tool)), ("input", Blank::Markup(&input))];
            ("wait", "s-wait", Markup::sentence(t.log_asked, &blanks))
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
            ("wait", "s-wait", Markup::sentence(t.log_input_required, &[("prompt", Blank::Markup(&prompt))]))
        }
        Some(EventKind::TaskAuthorizationRequired) => {
            let prompt = exact(&data().prompt.unwrap_or_default());
            ("wait", "s-wait", Markup::sentence(t.log_authorization_required, &[("prompt", Blank::Markup(&prompt))]))
        }
        Some(EventKind::TaskInputWithdrawn) => ("live", "s-dot", Markup::text(t.log_input_withdrawn)),
        Some(EventKind::TaskInputReceived) => {
            let text = exact(&said(data().parts.as_ref()));
            ("live", "s-dot", Markup::sentence(t.log_input_received, &[("text", Blank::Markup(&text))]))
        }
        _ => return None,
    })
}

/// Whom the item of such an event mentions, as the log names them.
pub(crate) fn actor(event: &Event) -> Option<String> {
    if event.kind != EventKind::PermissionDecided {
        return None;
    }
    event.data.parse::<Data>().ok().and_then(|data| data.by)
}

fn decided(data: &Data, who: impl Fn(&str) -> Caller, t: &'static Text) -> (&'static str, &'static str, Markup) {
    let who = who(data.by.as_deref().unwrap_or("system")).in_words();
    let blanks = [("who", Blank::Text(&who)), ("scope", Blank::Text(scope(data.scope.unwrap_or_default(), t)))];
    let (class, icon, words) = match (data.state.unwrap_or(State::Cancelled), data.source) {
        (State::Approved, Some(Source::Policy)) => ("done", "s-done", Markup::text(t.verdict_granted)),
        (State::Denied, Some(Source::Policy)) => ("fail", "s-fail", Markup::text(t.verdict_barred)),
        (State::Approved, _) => ("done", "s-done", Markup::sentence(t.verdict_allowed, &blanks)),
        (State::Denied, _) => ("fail", "s-fail", Markup::sentence(t.verdict_denied, &blanks)),
        (State::Expired, _) => ("stop", "s-stop", Markup::text(t.log_expired)),
        (State::Cancelled | State::Pending, _) => ("stop", "s-stop", Markup::text(t.verdict_cancelled)),
    };
    match data.comment.as_deref().filter(|comment| !comment.trim().is_empty()) {
        Some(comment) => {
            let comment = exact(comment);
            let blanks = [("verdict", Blank::Markup(&words)), ("comment", Blank::Markup(&comment))];
            (class, icon, Markup::sentence(t.log_comment, &blanks))
        }
        None => (class, icon, words),
    }
}

/// The text of parts such as `[{"text":"…"}]`, or the parts as they are.
fn said(parts: Option<&Json>) -> String {
    #[derive(Deserialize)]
    struct Part {
        text: String,
    }
    let Some(parts) = parts else { return String::new() };
    match parts.parse::<Vec<Part>>() {
        Ok(parts) => parts.into_iter().map(|part| part.text).collect::<Vec<_>>().join("\n"),
        Err(_) => head(parts.get()),
    }
}
