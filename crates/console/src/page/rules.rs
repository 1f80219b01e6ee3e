//! The access rules: their text in an editor, what is wrong with it and where, and a question to the rules in force.

use std::fmt::Write as _;

use askama::Template;
use attache_hub::identity::{Action, Verdict};
use attache_protocol::{
    Code,
    access_file::{self, Mistake},
    wire::access::{AccessDecision, AccessRules, Because, CheckAccess, SetAccessRules},
};
use axum::{
    extract::State,
    http::{StatusCode, Uri},
};

use crate::{
    Console,
    form::{Fields, Posted},
    page::{go, html_as},
    problem::{Refusal, Result},
    session::Session,
    shell::{Place, Shell},
    text::{Office, Text, fill},
    view::{
        exact::exact_line,
        html::{Blank, Markup},
        time::When,
    },
};

/// The editor shows at least so many lines, and numbers a few more than there are, for those that are about to come.
const LEAST: usize = 14;
const AHEAD: usize = 200;

/// A mistake with the line that has it.
#[derive(Debug)]
struct Wrong {
    place: String,
    number: usize,
    line: Markup,
    /// Blanks up to the column, then a mark.
    mark: String,
    what: Markup,
    hint: Markup,
}

#[derive(Debug)]
struct Answered {
    allowed: bool,
    verdict: Markup,
    because: Markup,
}

#[derive(Template)]
#[template(path = "rules.html")]
struct Page {
    t: &'static Text,
    o: &'static Office,
    shell: Shell,
    /// The text in the editor, which is the person's own after a form.
    text: String,
    version: i64,
    state: Markup,
    place: Markup,
    /// Why the file is not in force.
    file_problem: Option<Markup>,
    problem: Option<String>,
    wrong: Vec<Wrong>,
    /// The rules in force, where somebody else has changed them meanwhile.
    theirs: Option<(String, String)>,
    rows: usize,
    numbers: Markup,
    may_set: bool,
    agent: String,
    object: String,
    answered: Option<Answered>,
}

/// What the form before this page brought.
#[derive(Default)]
struct Outcome {
    status: Option<StatusCode>,
    problem: Option<String>,
    mistakes: Vec<Mistake>,
    conflict: Option<Conflict>,
    decision: Option<AccessDecision>,
}

/// Somebody else was faster.
struct Conflict;

pub(crate) async fn show(State(console): State<Console>, session: Session, uri: Uri) -> Result {
    page(&console, &session, &uri, None, Outcome::default()).await
}

/// One form, so that neither a question nor a mistake loses what somebody has written.
pub(crate) async fn act(State(console): State<Console>, uri: Uri, posted: Posted) -> Result {
    let Posted { session, fields } = posted;
    let outcome = match fields.get("do") {
        "check" => check(&console, &session, &fields).await?,
        _ => match save(&console, &session, &fields).await? {
            Some(outcome) => outcome,
            None => return Ok(go("/rules?said=rules")),
        },
    };
    page(&console, &session, &uri, Some(&fields), outcome).await
}

/// Nothing, once the rules are in force.
async fn save(console: &Console, session: &Session, fields: &Fields) -> Result<Option<Outcome>> {
    let text = text(fields);
    let request = SetAccessRules { text: text.clone(), version: fields.get("version").parse().ok() };
    let Err(error) = console.hub.set_access_rules(&session.principal, request).await else { return Ok(None) };
    let conflict = (error.code == Code::VersionChanged).then_some(Conflict);
    let mistakes = match access_file::parse(&text) {
        Err(report) if conflict.is_none() => report.mistakes,
        _ => Vec::new(),
    };
    let Refusal { status, message } = error.try_into()?;
    let told = conflict.is_some() || !mistakes.is_empty();
    Ok(Some(Outcome { status: Some(status), problem: (!told).then_some(message), mistakes, conflict, decision: None }))
}

async fn check(console: &Console, session: &Session, fields: &Fields) -> Result<Outcome> {
    let trimmed = |name| fields.get(name).trim().to_owned();
    let request = CheckAccess { agent: trimmed("agent"), object: trimmed("object") };
    Ok(match console.hub.check_access(&session.principal, request).await {
        Ok(decision) => Outcome { decision: Some(decision), ..Outcome::default() },
        Err(error) => {
            let Refusal { status, message } = error.try_into()?;
            Outcome { status: Some(status), problem: Some(message), ..Outcome::default() }
        }
    })
}

/// Browsers send both characters of a line break.
fn text(fields: &Fields) -> String {
    fields.get("text").replace("\r\n", "\n")
}

async fn page(console: &Console, session: &Session, uri: &Uri, sent: Option<&Fields>, outcome: Outcome) -> Result {
    let (t, o) = (session.t, &session.t.office);
    let mut shell = Shell::new(console, session, Place::Settings, uri).await?;
    "/rules".clone_into(&mut shell.here);
    let rules = console.hub.access_rules(&session.principal).await?;
    let version = rules.version.to_string();
    let problem = match (&outcome.conflict, outcome.mistakes.len()) {
        (Some(Conflict), _) => Some(fill(o.rules_conflict, &[("n", &version)])),
        (None, 0) => outcome.problem,
        (None, 1) => Some(o.rules_wrong_one.to_owned()),
        (None, many) => Some(fill(o.rules_wrong_many, &[("n", &many.to_string())])),
    };
    let text = sent.map_or_else(|| rules.text.clone(), text);
    // What was seen counts: after a conflict that is the version which stands below.
    let seen = sent.filter(|_| outcome.conflict.is_none()).and_then(|fields| fields.get("version").parse().ok());
    let lines = text.lines().count();
    let given = |name| sent.map(|fields| fields.get(name).to_owned()).unwrap_or_default();
    html_as(
        outcome.status.unwrap_or(StatusCode::OK),
        &Page {
            t,
            o,
            version: seen.unwrap_or(rules.version),
            state: state(&rules, o),
            place: match &rules.file {
                Some(file) => Markup::sentence(o.rules_file, &[("file", Blank::Code(file))]),
                None => Markup::text(o.rules_store),
            },
            file_problem: rules
                .problem
                .as_ref()
                .map(|problem| Markup::sentence(o.rules_problem, &[("problem", Blank::Code(problem))])),
            problem,
            wrong: outcome.mistakes.iter().map(|mistake| Wrong::new(mistake, &text, o)).collect(),
            theirs: outcome.conflict.map(|_| (fill(o.rules_theirs, &[("n", &version)]), rules.text.clone())),
            rows: lines.max(LEAST) + 1,
            numbers: numbers(lines.max(LEAST) + AHEAD, &outcome.mistakes),
            may_set: session.principal.verdict(Action::SetRules) == Verdict::Yes,
            agent: given("agent"),
            object: given("object"),
            answered: outcome.decision.map(|decision| Answered::new(&decision, o)),
            text,
            shell,
        },
    )
}

fn state(rules: &AccessRules, o: &'static Office) -> Markup {
    let version = Markup::text(&fill(o.rules_version, &[("n", &rules.version.to_string())]));
    let changed = match (rules.changed_at, &rules.changed_by) {
        (Some(at), Some(by)) => {
            Markup::sentence(o.rules_changed, &[("at", Blank::When(When::relative(at))), ("who", Blank::Code(by))])
        }
        _ => Markup::text(o.rules_never),
    };
    Markup::sentence(
        "{version}, {changed}",
        &[("version", Blank::Markup(&version)), ("changed", Blank::Markup(&changed))],
    )
}

/// The numbers beside the editor, those of wrong lines marked.
fn numbers(count: usize, mistakes: &[Mistake]) -> Markup {
    let mut html = String::with_capacity(count * 4);
    for number in 1..=count {
        let _ = match mistakes.iter().any(|mistake| mistake.line == number) {
            true => writeln!(html, "<b>{number}</b>"),
            false => writeln!(html, "{number}"),
        };
    }
    Markup::own(html)
}

// === impl Wrong ===

impl Wrong {
    fn new(mistake: &Mistake, text: &str, o: &'static Office) -> Self {
        let line = text.lines().nth(mistake.line.saturating_sub(1)).unwrap_or_default();
        let place = [("line", &*mistake.line.to_string()), ("column", &*mistake.column.to_string())];
        Self {
            place: fill(o.rules_at, &place),
            number: mistake.line,
            line: exact_line(line),
            mark: format!("{}^", " ".repeat(mistake.column.saturating_sub(1).min(400))),
            what: Markup::marked(&mistake.what),
            hint: Markup::marked(&mistake.hint),
        }
    }
}

// === impl Answered ===

impl Answered {
    fn new(decision: &AccessDecision, o: &'static Office) -> Self {
        let blanks = [("agent", Blank::Text(&decision.agent)), ("object", Blank::Code(&decision.object))];
        let because = match (decision.because, &decision.rule) {
            (Because::Rule, Some(rule)) => Markup::sentence(o.because_rule, &[("rule", Blank::Code(rule))]),
            (Because::Rule, None) => Markup::text(o.because_rule_unknown),
            (Because::Own, _) => Markup::text(o.because_own),
            (Because::Default, _) => Markup::text(o.because_default),
            (Because::NoSuchName, _) => Markup::text(o.because_no_such),
        };
        let sentence = if decision.allowed { o.decision_yes } else { o.decision_no };
        Self { allowed: decision.allowed, verdict: Markup::sentence(sentence, &blanks), because }
    }
}
