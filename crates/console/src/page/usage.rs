//! What was used: a chart by day, its numbers, and the quotas of today.

use std::time::Duration;

use askama::Template;
use attache_hub::{
    control::UsageQuery,
    identity::{Action, Verdict},
};
use attache_protocol::{rules::quota::Measure, wire::usage::Quota};
use axum::{
    extract::{Query, State},
    http::{StatusCode, Uri},
};
use serde::Deserialize;

use crate::{
    Console,
    page::{
        Tab, address, agents, html_as, people,
        quota::{Form, Sent},
    },
    problem::{Refusal, Result},
    session::Session,
    shell::{Place, Shell},
    text::{Office, Text, fill},
    view::{
        amount::{MEASURES, count, full, word},
        chart,
        html::Markup,
        ledger::{Group, Ledger, Series, Sums, spoken, written},
        quota::Line,
        time::duration,
    },
};

const SPANS: [i64; 3] = [7, 30, 90];

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    show: String,
    days: String,
    by: String,
    /// The quota to change: whose it is.
    user: Option<String>,
    agent: Option<String>,
}

#[derive(Debug)]
struct Figure {
    name: String,
    value: String,
    note: String,
}

/// A row of the totals.
#[derive(Debug)]
struct Total {
    name: String,
    class: &'static str,
    calls: String,
    failed: String,
    tokens: String,
    cost: String,
    certainty: Certainty,
}

#[derive(Debug)]
struct Certainty {
    class: &'static str,
    word: String,
}

/// A day of the chart in numbers, in the order of the series.
#[derive(Debug)]
struct Row {
    day: String,
    cells: Vec<String>,
    all: String,
}

#[derive(Template)]
#[template(path = "usage.html")]
struct Page {
    t: &'static Text,
    o: &'static Office,
    shell: Shell,
    problem: Option<String>,
    measures: Vec<Tab>,
    spans: Vec<(String, String, bool)>,
    groups: Vec<Tab>,
    figures: Vec<Figure>,
    chart_title: String,
    chart: Markup,
    empty: bool,
    group: &'static str,
    measure: &'static str,
    totals: Vec<Total>,
    total: Total,
    rows: Vec<Row>,
    sum: Row,
    sees_quotas: bool,
    quotas: Vec<Line>,
    form: Option<Form>,
    editing: bool,
}

pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    Query(asked): Query<Asked>,
    uri: Uri,
) -> Result {
    page(&console, &session, &uri, &asked, None).await
}

pub(crate) async fn page(
    console: &Console,
    session: &Session,
    uri: &Uri,
    asked: &Asked,
    refused: Option<(Refusal, Sent)>,
) -> Result {
    let (by, t, o, now) = (&session.principal, session.t, &session.t.office, console.hub.now());
    let mut shell = Shell::new(console, session, Place::Usage, uri).await?;
    if refused.is_some() {
        "/usage".clone_into(&mut shell.here);
    }
    let measure = MEASURES.into_iter().find(|one| one.as_str() == asked.show).unwrap_or(Measure::Calls);
    let days = SPANS.into_iter().find(|days| days.to_string() == asked.days).unwrap_or(30);
    let group = if asked.by == Group::User.key() { Group::User } else { Group::Agent };
    let from = now.minus(Duration::from_secs(86_400 * (days.unsigned_abs() - 1)));
    let day = |at| written(attache_protocol::rules::quota::Day::of(at));
    let query = UsageQuery { from: Some(day(from)), to: Some(day(now)) };
    let report = console.hub.usage(by, query).await?;
    let ledger = Ledger::new(&report.rows, (now, days), group, measure, o);
    let sees_quotas = by.verdict(Action::SeeQuotas) == Verdict::Yes;
    let quotas = if sees_quotas { console.hub.quotas(by).await?.quotas } else { Vec::new() };
    let status = refused.as_ref().map_or(StatusCode::OK, |(refusal, _)| refusal.status);
    let (problem, sent) = match refused {
        Some((refusal, sent)) => (Some(refusal.message), Some(sent)),
        None => (None, chosen(&quotas, asked)),
    };
    let editing = sent.is_some();
    let form = if by.verdict(Action::SetQuota) == Verdict::Yes {
        let people = people::people(console, session).await?;
        let agents = agents(console, session).await?;
        let agents = agents.into_iter().map(|agent| (agent.agent_id.to_string(), agent.name)).collect();
        Some(Form::new(&people, agents, sent.unwrap_or_default(), o))
    } else {
        None
    };
    let href = |show: Measure, days: i64, by: Group| {
        address("/usage", &[("show", show.as_str()), ("days", &days.to_string()), ("by", by.key())])
    };
    let (first, last) = (ledger.days.first().copied(), ledger.days.last().copied());
    let named = |day: Option<_>| day.map(|day| spoken(day, o)).unwrap_or_default();
    let (from, to) = (named(first), named(last));
    let by_whom = |group| if group == Group::Agent { o.by_agent } else { o.by_user };
    let title = [("measure", word(measure, o)), ("group", by_whom(group)), ("from", &*from), ("to", &*to)];
    let page = Page {
        t,
        o,
        problem,
        measures: MEASURES
            .into_iter()
            .map(|one| Tab { href: href(one, days, group), label: word(one, o), current: one == measure })
            .collect(),
        spans: SPANS
            .into_iter()
            .map(|one| (href(measure, one, group), fill(o.days, &[("n", &one.to_string())]), one == days))
            .collect(),
        groups: [Group::Agent, Group::User]
            .into_iter()
            .map(|one| Tab { href: href(measure, days, one), label: by_whom(one), current: one == group })
            .collect(),
        figures: figures(&ledger, measure, days, t),
        chart_title: fill(o.chart_title, &title),
        chart: chart::draw(&ledger, measure, o),
        empty: ledger.total == Sums::default(),
        group: if group == Group::Agent { t.agent } else { o.quota_who },
        measure: word(measure, o),
        totals: ledger.series.iter().map(|series| Total::of(series, o)).collect(),
        total: Total::new(o.total, "", &ledger.total, o),
        rows: rows(&ledger, measure, o),
        sum: Row {
            day: o.total.to_owned(),
            cells: ledger.series.iter().map(|series| full(measure, series.total.of(measure))).collect(),
            all: full(measure, ledger.total.of(measure)),
        },
        sees_quotas,
        quotas: quotas.iter().map(|quota| Line::new(quota, o)).collect(),
        form,
        editing,
        shell,
    };
    html_as(status, &page)
}

/// The quota that the address names.
fn chosen(quotas: &[Quota], asked: &Asked) -> Option<Sent> {
    let (Some(user), Some(agent)) = (&asked.user, &asked.agent) else { return None };
    quotas.iter().map(Sent::of).find(|quota| quota.user == *user && quota.agent == *agent)
}

/// What was used; a cost that nobody told is not nothing.
fn amount(measure: Measure, sums: &Sums) -> String {
    if measure == Measure::Cost && sums.is_cost_unknown() { "–".to_owned() } else { full(measure, sums.of(measure)) }
}

fn figures(ledger: &Ledger, measure: Measure, days: i64, t: &'static Text) -> Vec<Figure> {
    let (o, total) = (&t.office, &ledger.total);
    let calls = fill(o.figure_calls_note, &[("calls", &count(total.calls))]);
    let worked = duration(Duration::from_millis(total.duration_ms), t);
    let each = |amount: u64| full(measure, amount.checked_div(total.calls).unwrap_or(0));
    let note = match measure {
        Measure::Calls => fill(o.figure_time, &[("time", &worked)]),
        Measure::Tokens | Measure::Cost => {
            let each = fill(o.figure_each, &[("each", &each(total.of(measure)))]);
            format!("{calls}, {each}")
        }
    };
    let today = ledger.today();
    let share = (total.reported * 100).checked_div(total.calls).unwrap_or(0);
    let sure = [
        ("reported", &*count(total.reported)),
        ("estimated", &*count(total.estimated)),
        ("unknown", &*count(total.unknown)),
    ];
    vec![
        Figure { name: fill(o.figure_total, &[("n", &days.to_string())]), value: amount(measure, total), note },
        Figure {
            name: o.figure_today.to_owned(),
            value: amount(measure, &today),
            note: fill(o.figure_calls_note, &[("calls", &count(today.calls))]),
        },
        Figure {
            name: o.figure_failed.to_owned(),
            value: count(total.failed),
            note: fill(o.figure_of_calls, &[("calls", &count(total.calls))]),
        },
        Figure {
            name: o.figure_sure.to_owned(),
            value: format!("{share}\u{202f}%"),
            note: fill(o.figure_sure_note, &sure),
        },
    ]
}

/// The days on which anything was used, newest first.
fn rows(ledger: &Ledger, measure: Measure, o: &'static Office) -> Vec<Row> {
    let used = ledger.days.iter().zip(&ledger.by_day).enumerate().filter(|(_, (_, sums))| sums.of(measure) > 0);
    let mut rows: Vec<_> = used
        .map(|(place, (day, sums))| Row {
            day: spoken(*day, o),
            cells: ledger.series.iter().map(|series| full(measure, series.days[place].of(measure))).collect(),
            all: amount(measure, sums),
        })
        .collect();
    rows.reverse();
    rows
}

// === impl Total ===

impl Total {
    fn of(series: &Series, o: &'static Office) -> Self {
        Self::new(&series.name, series.class, &series.total, o)
    }

    fn new(name: &str, class: &'static str, sums: &Sums, o: &'static Office) -> Self {
        Self {
            name: name.to_owned(),
            class,
            calls: count(sums.calls),
            failed: count(sums.failed),
            tokens: count(sums.tokens),
            cost: amount(Measure::Cost, sums),
            certainty: Certainty::of(sums, o),
        }
    }
}

// === impl Certainty ===

impl Certainty {
    /// As sure as the least sure part.
    fn of(sums: &Sums, o: &'static Office) -> Self {
        let (class, word) = if sums.unknown == sums.calls {
            ("", o.certain_unknown.to_owned())
        } else if sums.unknown > 0 {
            ("", fill(o.certain_mixed, &[("n", &count(sums.unknown))]))
        } else if sums.estimated > 0 {
            ("wait", o.certain_estimated.to_owned())
        } else {
            ("done", o.certain_reported.to_owned())
        };
        Self { class, word }
    }
}
