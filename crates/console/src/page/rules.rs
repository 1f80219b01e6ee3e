//! The access rules: an editor with error positions, and a test of the rules in effect.

use std::fmt::Write as _;

use askama::Template;
use attache_hub::identity::{AccessVerdict, Action};
use attache_protocol::{
    Code,
    access_file::{self, RulesFileMistake},
    wire::access::{AccessDecision, AccessReason, AccessRules, CheckAccess, SetAccessRules},
};
use axum::http::StatusCode;

use crate::{
    form::{FormFields, SubmittedForm},
    layout::PageLayout,
    page::{html_as, redirect_after_form},
    problem::{FormRefusal, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        exact::exact_line,
        html::{CodeSpan, Markup},
    },
};

/// The minimum number of lines in the editor, and how many extra line numbers it shows for new lines.
const MIN_EDITOR_LINES: usize = 14;
const EXTRA_LINE_NUMBERS: usize = 200;

/// A mistake and the line that contains it.
#[derive(Debug)]
struct RulesErrorLine {
    place: String,
    number: usize,
    line: Markup,
    /// Spaces up to the column, then a caret.
    mark: String,
    what: Markup,
    hint: Markup,
}

#[derive(Debug)]
struct AccessAnswer {
    allowed: bool,
    verdict: Markup,
    because: Markup,
}

#[derive(Template)]
#[template(path = "rules.html")]
struct RulesPage {
    t: &'static Text,
    shell: PageLayout,
    /// The text in the editor. After a failed save, it is what the user typed.
    text: String,
    version: i64,
    state: Markup,
    /// Why the rules file is not in effect.
    file_problem: Option<Markup>,
    problem: Option<String>,
    wrong: Vec<RulesErrorLine>,
    /// The rules in effect, if someone else has changed them in the meantime.
    theirs: Option<(String, String)>,
    rows: usize,
    numbers: Markup,
    may_set: bool,
    agent: String,
    object: String,
    answered: Option<AccessAnswer>,
}

/// The outcome of a submitted form.
#[derive(Default)]
struct RulesFormOutcome {
    status: Option<StatusCode>,
    problem: Option<String>,
    mistakes: Vec<RulesFileMistake>,
    conflict: Option<RulesConflict>,
    decision: Option<AccessDecision>,
}

/// Someone else saved first.
struct RulesConflict;

pub(crate) async fn show(session: BrowserSession) -> PageResult {
    page(&session, None, RulesFormOutcome::default()).await
}

/// Testing and saving share one form, so that neither loses the user's text.
pub(crate) async fn submit(posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let outcome = match fields.get("do") {
        "check" => check(&session, &fields).await?,
        _ => match save(&session, &fields).await? {
            Some(outcome) => outcome,
            None => return Ok(redirect_after_form("/rules?said=rules")),
        },
    };
    page(&session, Some(&fields), outcome).await
}

/// Saves the rules. Returns `None` on success.
async fn save(session: &BrowserSession, fields: &FormFields) -> PageResult<Option<RulesFormOutcome>> {
    let text = text(fields);
    let request = SetAccessRules { text: text.clone(), version: fields.get("version").parse().ok() };
    let Err(error) = session.hub.set_access_rules(&session.principal, request).await else { return Ok(None) };
    let conflict = (error.code == Code::VersionChanged).then_some(RulesConflict);
    let mistakes = match access_file::parse(&text) {
        Err(report) if conflict.is_none() => report.mistakes,
        _ => Vec::new(),
    };
    let FormRefusal { status, message } = FormRefusal::new(error, session.t)?;
    let told = conflict.is_some() || !mistakes.is_empty();
    Ok(Some(RulesFormOutcome {
        status: Some(status),
        problem: (!told).then_some(message),
        mistakes,
        conflict,
        decision: None,
    }))
}

async fn check(session: &BrowserSession, fields: &FormFields) -> PageResult<RulesFormOutcome> {
    let trimmed = |name| fields.get(name).trim().to_owned();
    let request = CheckAccess { agent: trimmed("agent"), object: trimmed("object") };
    Ok(match session.hub.check_access(&session.principal, request).await {
        Ok(decision) => RulesFormOutcome { decision: Some(decision), ..RulesFormOutcome::default() },
        Err(error) => {
            let FormRefusal { status, message } = FormRefusal::new(error, session.t)?;
            RulesFormOutcome { status: Some(status), problem: Some(message), ..RulesFormOutcome::default() }
        }
    })
}

/// Browsers submit line breaks as CRLF.
fn text(fields: &FormFields) -> String {
    fields.get("text").replace("\r\n", "\n")
}

async fn page(session: &BrowserSession, sent: Option<&FormFields>, outcome: RulesFormOutcome) -> PageResult {
    let t = session.t;
    let mut shell = PageLayout::new(session).await?;
    "/rules".clone_into(&mut shell.here);
    let rules = session.hub.access_rules(&session.principal).await?;
    let version = rules.version.to_string();
    let problem = match (&outcome.conflict, outcome.mistakes.len()) {
        (Some(RulesConflict), _) => Some(t.rules_conflict(&version)),
        (None, 0) => outcome.problem,
        (None, many) => Some(t.rules_wrong(many as u64)),
    };
    let text = sent.map_or_else(|| rules.text.clone(), text);
    // The version that the user has seen. After a conflict, that is the one shown below the editor.
    let seen = sent.filter(|_| outcome.conflict.is_none()).and_then(|fields| fields.get("version").parse().ok());
    let lines = text.lines().count();
    let given = |name| sent.map(|fields| fields.get(name).to_owned()).unwrap_or_default();
    html_as(
        outcome.status.unwrap_or(StatusCode::OK),
        &RulesPage {
            t,
            version: seen.unwrap_or(rules.version),
            state: match &rules.file {
                Some(file) => t.rules_file(state(&rules, t), CodeSpan(file)),
                None => t.rules_store(state(&rules, t)),
            },
            file_problem: rules.problem.as_ref().map(|problem| t.rules_problem(CodeSpan(problem))),
            problem,
            wrong: outcome.mistakes.iter().map(|mistake| RulesErrorLine::new(mistake, &text, t)).collect(),
            theirs: outcome.conflict.map(|_| (t.rules_theirs(&version), rules.text.clone())),
            rows: lines.max(MIN_EDITOR_LINES) + 1,
            numbers: numbers(lines.max(MIN_EDITOR_LINES) + EXTRA_LINE_NUMBERS, &outcome.mistakes),
            may_set: session.principal.verdict(Action::SetRules) == AccessVerdict::Yes,
            agent: given("agent"),
            object: given("object"),
            answered: outcome.decision.map(|decision| AccessAnswer::new(&decision, t)),
            text,
            shell,
        },
    )
}

/// The version, and who changed it when.
fn state(rules: &AccessRules, t: &'static Text) -> Markup {
    match (rules.changed_at, &rules.changed_by) {
        (Some(at), Some(by)) => t.rules_changed(rules.version, at, CodeSpan(by)),
        _ => t.rules_never(rules.version),
    }
}

/// The line numbers of the editor, with erroneous lines marked.
fn numbers(count: usize, mistakes: &[RulesFileMistake]) -> Markup {
    let mut html = String::with_capacity(count * 4);
    for number in 1..=count {
        let _ = match mistakes.iter().any(|mistake| mistake.line == number) {
            true => writeln!(html, "<b>{number}</b>"),
            false => writeln!(html, "{number}"),
        };
    }
    Markup::trusted(html)
}

// === impl RulesErrorLine ===

impl RulesErrorLine {
    fn new(mistake: &RulesFileMistake, text: &str, t: &'static Text) -> Self {
        let line = text.lines().nth(mistake.line.saturating_sub(1)).unwrap_or_default();
        Self {
            place: t.rules_at(mistake.line, mistake.column),
            number: mistake.line,
            line: exact_line(line),
            mark: format!("{}^", " ".repeat(mistake.column.saturating_sub(1).min(400))),
            what: Markup::marked(&mistake.what),
            hint: Markup::marked(&mistake.hint),
        }
    }
}

// === impl AccessAnswer ===

impl AccessAnswer {
    fn new(decision: &AccessDecision, t: &'static Text) -> Self {
        let (agent, object) = (&decision.agent, CodeSpan(&decision.object));
        let because = match (decision.because, &decision.rule) {
            (AccessReason::Rule, Some(rule)) => t.because_rule(CodeSpan(rule)),
            (AccessReason::Rule, None) => Markup::text(t.because_rule_unknown),
            (AccessReason::Own, _) => Markup::text(t.because_own),
            (AccessReason::Default, _) => Markup::text(t.because_default),
            (AccessReason::NoSuchName, _) => Markup::text(t.because_no_such),
        };
        let verdict = if decision.allowed { t.decision_yes(agent, object) } else { t.decision_no(agent, object) };
        Self { allowed: decision.allowed, verdict, because }
    }
}
