//! Parts of a run's log, for a page that shows a window of it: the items around a place, and where words are.

use askama::Template;
use attache_protocol::{RunId, wire::event::Event};
use axum::extract::{Path, Query};
use serde::Deserialize;

use crate::{
    page::{html, run},
    problem::{PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        log::{LogItem, LogItemBody, join},
        tool_input::ToolInputBlock,
    },
};

/// How many events precede a place at once.
const EVENTS_BEFORE: i64 = 200;
/// The most matches of one search. A person who has more types more.
const MAX_MATCHES: usize = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LogWindowQuery {
    after: i64,
    /// The events that precede this one. Beyond the end, the last ones.
    before: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FindQuery {
    q: String,
}

#[derive(Template)]
#[template(path = "log_window.html")]
struct LogWindowFragment {
    t: &'static Text,
    log: Vec<LogItem>,
    first: i64,
    last: i64,
    /// The run's newest event.
    newest: i64,
}

#[derive(Template)]
#[template(path = "log_found.html")]
struct LogFoundFragment {
    seqs: String,
    more: bool,
}

pub(crate) async fn window(
    session: BrowserSession,
    Path(id): Path<String>,
    Query(asked): Query<LogWindowQuery>,
) -> PageResult {
    let t = session.t;
    let id: RunId = id.parse().map_err(|_| PageError::NoSuchPath)?;
    let run = session.hub.run(&session.principal, id).await?;
    let events = match asked.before {
        Some(before) => preceding(&session, &run, before.clamp(1, run.last_seq.saturating_add(1))).await?,
        None => run::log_page(&session, &run, asked.after.max(0)).await?,
    };
    let runtimes = run::runtimes(&session, &run).await?;
    let viewer = run::viewer(&session, &run, &events).await?;
    let mut reader = run::reader(&run, &runtimes, &viewer, t);
    let bounds = events.first().zip(events.last()).map(|(first, last)| (first.seq, last.seq));
    let (first, last) = bounds.unwrap_or((asked.after.saturating_add(1), asked.after));
    let log = join(events.iter().map(|event| reader.item(event)));
    html(&LogWindowFragment { t, log, first, last, newest: run.last_seq })
}

pub(crate) async fn find(
    session: BrowserSession,
    Path(id): Path<String>,
    Query(asked): Query<FindQuery>,
) -> PageResult {
    let id: RunId = id.parse().map_err(|_| PageError::NoSuchPath)?;
    let found = session.hub.output_matches(&session.principal, id, &asked.q, MAX_MATCHES).await?;
    let seqs: Vec<String> = found.seqs.iter().map(ToString::to_string).collect();
    html(&LogFoundFragment { seqs: seqs.join(" "), more: found.more })
}

/// The events before this one, up to it without a gap. Large ones are fewer.
async fn preceding(
    session: &BrowserSession,
    run: &attache_protocol::wire::run::Run,
    before: i64,
) -> PageResult<Vec<Event>> {
    let mut after = before.saturating_sub(1 + EVENTS_BEFORE).max(0);
    loop {
        let mut events = run::log_page(session, run, after).await?;
        let last = events.last().map(|event| event.seq);
        match last {
            // The part that fits ends too early: what follows it is nearer.
            Some(last) if last < before - 1 => after = last,
            _ => {
                events.retain(|event| event.seq < before);
                return Ok(events);
            }
        }
    }
}
