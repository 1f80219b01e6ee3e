//! A question of an agent that a person answers, as a card. All agent text is inert.

use attache_hub::control::UnansweredQuestion;
use attache_protocol::{
    Timestamp,
    json::pretty,
    wire::questionnaire::{OptionQuestion, Questionnaire},
};

use super::{
    callsign,
    html::{Markup, PageLink},
    run::{ViewContext, title},
    time::TimeElement,
    tool_input::FoldedText,
};

#[derive(Debug, Clone)]
pub(crate) struct QuestionCard {
    /// The id that the answer refers to.
    pub(crate) id: String,
    pub(crate) run: String,
    pub(crate) sign: Markup,
    pub(crate) heading: Markup,
    pub(crate) place: Markup,
    /// Questions with options. Without them the prompt is shown.
    pub(crate) choices: Vec<OptionQuestion>,
    pub(crate) prompt: FoldedText,
    pub(crate) parts: Option<FoldedText>,
    pub(crate) asked_at: Timestamp,
    pub(crate) expires: Option<TimeElement>,
}

// === impl QuestionCard ===

impl QuestionCard {
    pub(crate) fn new(question: &UnansweredQuestion, view_context: ViewContext<'_>) -> Self {
        let (run, t) = (&question.run, view_context.t);
        let link = Markup::of(PageLink(&format!("/runs/{}", run.task_run_id), &title(run, t)));
        let parts = question.parts.as_ref().filter(|parts| parts.get() != "null");
        let choices = parts.and_then(Questionnaire::from_parts).map(|asked| asked.questions).unwrap_or_default();
        let parts = parts.filter(|_| choices.is_empty());
        Self {
            id: question.id.to_string(),
            run: run.task_run_id.to_string(),
            sign: callsign::big(run.agent_id),
            heading: t.has_question(&run.agent_name),
            place: t.wants_in(link, view_context.caller(&run.caller).who),
            choices,
            prompt: FoldedText::new(&question.prompt, t),
            parts: parts.map(|parts| FoldedText::new(&pretty(parts.get()), t)),
            asked_at: question.asked_at,
            expires: question.expires_at.map(TimeElement::countdown),
        }
    }
}
