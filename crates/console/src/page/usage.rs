//! Usage: a daily chart, its data and the daily quotas.

use std::time::Duration;

use askama::Template;
use attache_hub::{
    control::UsageQuery,
    identity::{AccessVerdict, Action},
};
use attache_protocol::{rules::quota::QuotaMeasure, wire::usage::Quota};
use axum::{extract::Query, http::StatusCode};
use serde::Deserialize;

use crate::{
    layout::PageLayout,
    page::{
        ViewTab, address, agents, html_as, people,
        quota::{QuotaForm, QuotaFormInput},
    },
    problem::{FormRefusal, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        amount::{MEASURES, count, full, measure_label},
        chart,
        html::Markup,
        quota::QuotaListRow,
        time::duration,
        usage_breakdown::{UsageBreakdown, UsageGroup, UsageSeries, UsageTotals, short_date, written},
    },
};

const SPANS: [i64; 3] = [7, 30, 90];

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct UsagePageQuery {
    show: String,
    days: String,
    by: String,
    /// The user of the quota to edit.
    user: Option<String>,
    agent: Option<String>,
}

#[derive(Debug)]
struct UsageFigure {
    name: String,
    value: String,
    note: String,
}

/// A row of the totals table.
#[derive(Debug)]
struct UsageTotalRow {
    name: String,
    class: &'static str,
    calls: String,
    failed: String,
    tokens: String,
    cost: String,
    certainty: CostCertaintyLabel,
}

#[derive(Debug)]
struct CostCertaintyLabel {
    class: &'static str,
    word: String,
}

/// The values of one day, in the order of the series.
#[derive(Debug)]
struct UsageDayRow {
    day: String,
    cells: Vec<String>,
    all: String,
}

#[derive(Template)]
#[template(path = "usage.html")]
struct UsagePage {
    t: &'static Text,
    shell: PageLayout,
    problem: Option<String>,
    measures: Vec<ViewTab>,
    spans: Vec<(String, String, bool)>,
    groups: Vec<ViewTab>,
    figures: Vec<UsageFigure>,
    chart_title: String,
    chart: Markup,
    empty: bool,
    group: &'static str,
    measure: &'static str,
    totals: Vec<UsageTotalRow>,
    total: UsageTotalRow,
    rows: Vec<UsageDayRow>,
    sum: UsageDayRow,
    sees_quotas: bool,
    quotas: Vec<QuotaListRow>,
    form: Option<QuotaForm>,
    editing: bool,
}

pub(crate) async fn show(session: BrowserSession, Query(asked): Query<UsagePageQuery>) -> PageResult {
    page(&session, &asked, None).await
}

pub(crate) async fn page(
    session: &BrowserSession,
    asked: &UsagePageQuery,
    refused: Option<(FormRefusal, QuotaFormInput)>,
) -> PageResult {
    let (by, t, now) = (&session.principal, session.t, session.hub.now());
    let mut shell = PageLayout::new(session).await?;
    if refused.is_some() {
        "/usage".clone_into(&mut shell.here);
    }
    let measure = MEASURES.into_iter().find(|one| one.as_str() == asked.show).unwrap_or(QuotaMeasure::Calls);
    let days = SPANS.into_iter().find(|days| days.to_string() == asked.days).unwrap_or(30);
    let group = if asked.by == UsageGroup::User.key() { UsageGroup::User } else { UsageGroup::Agent };
    let from = now.minus(Duration::from_secs(86_400 * (days.unsigned_abs() - 1)));
    let day = |at| written(attache_protocol::rules::quota::UtcDay::of(at));
    let query = UsageQuery { from: Some(day(from)), to: Some(day(now)) };
    let report = session.hub.usage(by, query).await?;
    let ledger = UsageBreakdown::new(&report.rows, (now, days), group, measure, t);
    let sees_quotas = by.verdict(Action::SeeQuotas) == AccessVerdict::Yes;
    let quotas = if sees_quotas { session.hub.quotas(by).await?.quotas } else { Vec::new() };
    let status = refused.as_ref().map_or(StatusCode::OK, |(refusal, _)| refusal.status);
    let (problem, sent) = match refused {
        Some((refusal, sent)) => (Some(refusal.message), Some(sent)),
        None => (None, chosen(&quotas, asked)),
    };
    let editing = sent.is_some();
    let form = if by.verdict(Action::SetQuota) == AccessVerdict::Yes {
        let people = people::people(session).await?;
        let agents = agents(session).await?;
        let agents = agents.into_iter().map(|agent| (agent.agent_id.to_string(), agent.name)).collect();
        Some(QuotaForm::new(&people, agents, sent.unwrap_or_default(), t))
    } else {
        None
    };
    let href = |show: QuotaMeasure, days: i64, by: UsageGroup| {
        address("/usage", &[("show", show.as_str()), ("days", &days.to_string()), ("by", by.key())])
    };
    let (first, last) = (ledger.days.first().copied(), ledger.days.last().copied());
    let named = |day: Option<_>| day.map(|day| short_date(day, t)).unwrap_or_default();
    let (from, to) = (named(first), named(last));
    let by_whom = |group| if group == UsageGroup::Agent { t.by_agent } else { t.by_user };
    let page = UsagePage {
        t,
        problem,
        measures: MEASURES
            .into_iter()
            .map(|one| ViewTab { href: href(one, days, group), label: measure_label(one, t), current: one == measure })
            .collect(),
        spans: SPANS
            .into_iter()
            .map(|one| (href(measure, one, group), t.days(one.unsigned_abs()), one == days))
            .collect(),
        groups: [UsageGroup::Agent, UsageGroup::User]
            .into_iter()
            .map(|one| ViewTab { href: href(measure, days, one), label: by_whom(one), current: one == group })
            .collect(),
        figures: figures(&ledger, measure, days, t),
        chart_title: t.chart_title(measure_label(measure, t), by_whom(group), from, to),
        chart: chart::draw(&ledger, measure, t),
        empty: ledger.total == UsageTotals::default(),
        group: if group == UsageGroup::Agent { t.agent } else { t.quota_who },
        measure: measure_label(measure, t),
        totals: ledger.series.iter().map(|series| UsageTotalRow::of(series, t)).collect(),
        total: UsageTotalRow::new(t.total, "", &ledger.total, t),
        rows: rows(&ledger, measure, t),
        sum: UsageDayRow {
            day: t.total.to_owned(),
            cells: ledger.series.iter().map(|series| full(measure, series.total.of(measure))).collect(),
            all: full(measure, ledger.total.of(measure)),
        },
        sees_quotas,
        quotas: quotas.iter().map(|quota| QuotaListRow::new(quota, t)).collect(),
        form,
        editing,
        shell,
    };
    html_as(status, &page)
}

/// The quota that the query selects.
fn chosen(quotas: &[Quota], asked: &UsagePageQuery) -> Option<QuotaFormInput> {
    let (Some(user), Some(agent)) = (&asked.user, &asked.agent) else { return None };
    quotas.iter().map(QuotaFormInput::of).find(|quota| quota.user == *user && quota.agent == *agent)
}

/// Formats an amount. An unknown cost is not shown as zero.
fn amount(measure: QuotaMeasure, sums: &UsageTotals) -> String {
    if measure == QuotaMeasure::Cost && sums.is_cost_unknown() {
        "–".to_owned()
    } else {
        full(measure, sums.of(measure))
    }
}

fn figures(ledger: &UsageBreakdown, measure: QuotaMeasure, days: i64, t: &'static Text) -> Vec<UsageFigure> {
    let total = &ledger.total;
    let worked = duration(Duration::from_millis(total.duration_ms), t);
    let note = match measure {
        QuotaMeasure::Calls => t.figure_time(worked),
        QuotaMeasure::Tokens | QuotaMeasure::Cost => {
            let each = full(measure, total.of(measure).checked_div(total.calls).unwrap_or(0));
            t.figure_calls_each(total.calls, count(total.calls), each)
        }
    };
    let today = ledger.today();
    let share = (total.reported * 100).checked_div(total.calls).unwrap_or(0);
    vec![
        UsageFigure { name: t.figure_total(days.unsigned_abs()), value: amount(measure, total), note },
        UsageFigure {
            name: t.figure_today.to_owned(),
            value: amount(measure, &today),
            note: t.figure_calls(today.calls, count(today.calls)),
        },
        UsageFigure {
            name: t.figure_failed.to_owned(),
            value: count(total.failed),
            note: t.figure_of_calls(total.calls, count(total.calls)),
        },
        UsageFigure {
            name: t.figure_sure.to_owned(),
            value: format!("{share}\u{202f}%"),
            note: t.figure_sure_note(count(total.reported), count(total.estimated), count(total.unknown)),
        },
    ]
}

/// The days with usage, newest first.
fn rows(ledger: &UsageBreakdown, measure: QuotaMeasure, t: &'static Text) -> Vec<UsageDayRow> {
    let used = ledger.days.iter().zip(&ledger.by_day).enumerate().filter(|(_, (_, sums))| sums.of(measure) > 0);
    let mut rows: Vec<_> = used
        .map(|(place, (day, sums))| UsageDayRow {
            day: short_date(*day, t),
            cells: ledger.series.iter().map(|series| full(measure, series.days[place].of(measure))).collect(),
            all: amount(measure, sums),
        })
        .collect();
    rows.reverse();
    rows
}

// === impl UsageTotalRow ===

impl UsageTotalRow {
    fn of(series: &UsageSeries, t: &'static Text) -> Self {
        Self::new(&series.name, series.class, &series.total, t)
    }

    fn new(name: &str, class: &'static str, sums: &UsageTotals, t: &'static Text) -> Self {
        Self {
            name: name.to_owned(),
            class,
            calls: count(sums.calls),
            failed: count(sums.failed),
            tokens: count(sums.tokens),
            cost: amount(QuotaMeasure::Cost, sums),
            certainty: CostCertaintyLabel::of(sums, t),
        }
    }
}

// === impl CostCertaintyLabel ===

impl CostCertaintyLabel {
    /// The certainty of the least certain part.
    fn of(sums: &UsageTotals, t: &'static Text) -> Self {
        let (class, word) = if sums.unknown == sums.calls {
            ("", t.cost_unknown.to_owned())
        } else if sums.unknown > 0 {
            ("", t.certain_mixed(count(sums.unknown)))
        } else if sums.estimated > 0 {
            ("wait", t.cost_estimated.to_owned())
        } else {
            ("done", t.cost_reported.to_owned())
        };
        Self { class, word }
    }
}
