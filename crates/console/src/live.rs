//! The event streams of live pages: changes in the tenant, and the log of one run as rendered items.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use askama::Template;
use attache_hub::{
    identity::{AccessVerdict, Action},
    stream::{OpenStream, RunFollow, TenantChanges, TenantFollow},
};
use attache_protocol::{AgentId, EventKind, RunId, log::LogRow};
use axum::{
    Extension,
    extract::{Path, Query},
    http::HeaderMap,
    response::{
        IntoResponse as _,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    page::{names, run},
    problem::{PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        log::{LogItem, LogItemBody, LogItemReader},
        status,
        tool_input::ToolInputBlock,
    },
};

/// Changes within this time are sent together.
const COALESCE_INTERVAL: Duration = Duration::from_millis(200);
/// More changes than this at once are sent as "anything".
const MAX_CHANGES: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FeedQuery {
    after: Option<i64>,
}

/// An update for a page.
#[derive(Debug, Serialize)]
struct FeedMessage {
    events: Vec<FeedChange>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct FeedChange {
    #[serde(rename = "type")]
    kind: String,
    run: Option<RunId>,
    agent: Option<AgentId>,
}

enum TenantFeed {
    /// The changes, for viewers who may read the log.
    Rows(Box<TenantFollow>),
    /// Only that something changed, for everyone else.
    Hints(Box<TenantChanges>),
}

#[derive(Template)]
#[template(path = "log_item.html")]
struct LogItemFragment<'a> {
    t: &'static Text,
    item: &'a LogItem,
}

struct RunLogStream {
    session: BrowserSession,
    run: RunId,
    follow: RunFollow,
    reader: LogItemReader,
    ready: VecDeque<Event>,
    over: bool,
}

/// The tenant feed, from the position where the page was rendered.
pub(crate) async fn feed(session: BrowserSession, Query(asked): Query<FeedQuery>, headers: HeaderMap) -> PageResult {
    let by = &session.principal;
    let feed = if by.verdict(Action::SeeAudit) == AccessVerdict::Yes {
        TenantFeed::Rows(Box::new(session.hub.follow_audit(by, last_id(&headers).or(asked.after)).await?))
    } else {
        TenantFeed::Hints(Box::new(session.hub.changes(by)?))
    };
    let events = stream::unfold(feed, async |mut feed| {
        let event = feed.next().await?;
        Some((Ok::<_, Infallible>(event), feed))
    });
    Ok((Extension(OpenStream), Sse::new(events).keep_alive(KeepAlive::default())).into_response())
}

/// The log of one run: every event after a seq as a rendered item, then `end`.
pub(crate) async fn run(
    session: BrowserSession,
    Path(run): Path<String>,
    Query(asked): Query<FeedQuery>,
    headers: HeaderMap,
) -> PageResult {
    let id: RunId = run.parse().map_err(|_| PageError::NoSuchPath)?;
    let run = session.hub.run(&session.principal, id).await?;
    let after = last_id(&headers).or(asked.after);
    let follow = session.hub.follow_run(&session.principal, id, after).await?;
    let runtimes = run::runtimes(&session, &run).await?;
    let viewer = run::viewer(&session, &run, &[]).await?;
    let reader = run::reader(&run, &runtimes, &viewer, session.t);
    let log = RunLogStream { session, run: id, follow, reader, ready: VecDeque::new(), over: false };
    let events = stream::unfold(log, async |mut log| {
        let event = log.next().await?;
        Some((Ok::<_, Infallible>(event), log))
    });
    Ok((Extension(OpenStream), Sse::new(events).keep_alive(KeepAlive::default())).into_response())
}

/// The position where a reconnecting browser stopped.
fn last_id(headers: &HeaderMap) -> Option<i64> {
    headers.get("last-event-id")?.to_str().ok()?.parse().ok()
}

// === impl TenantFeed ===

impl TenantFeed {
    async fn next(&mut self) -> Option<Event> {
        match self {
            Self::Rows(follow) => {
                let first = follow.next().await?;
                let (mut last, mut told) = (first.seq, FeedMessage { events: Vec::new() });
                told.add(&first);
                let until = Instant::now() + COALESCE_INTERVAL;
                while let Ok(Some(row)) = tokio::time::timeout_at(until, follow.next()).await {
                    last = row.seq;
                    told.add(&row);
                }
                Some(told.event().id(last.to_string()))
            }
            Self::Hints(changes) => {
                changes.next().await?;
                // Viewers who may not read the log learn only that something changed.
                tokio::time::sleep(COALESCE_INTERVAL).await;
                Some(FeedMessage::anything().event())
            }
        }
    }
}

// === impl FeedMessage ===

impl FeedMessage {
    fn anything() -> Self {
        Self { events: vec![FeedChange { kind: "any".to_owned(), run: None, agent: None }] }
    }

    fn add(&mut self, row: &LogRow) {
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        struct FeedEventData {
            agent_id: Option<AgentId>,
        }
        let data: FeedEventData = row.data.parse().unwrap_or_default();
        let moved = FeedChange { kind: row.kind.clone(), run: row.run, agent: data.agent_id };
        if self.events.len() < MAX_CHANGES && !self.events.contains(&moved) {
            self.events.push(moved);
        } else if self.events.len() == MAX_CHANGES {
            self.events.extend(Self::anything().events);
        }
    }

    fn event(&self) -> Event {
        let json = serde_json::to_string(self).expect("our own types serialise to JSON");
        Event::default().event("moved").data(json)
    }
}

// === impl RunLogStream ===

impl RunLogStream {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            match self.follow.next().await {
                Some(event) => {
                    if let Some(actor) = self.reader.unknown(&event)
                        && let Ok(names) = names(&self.session, [actor]).await
                    {
                        self.reader.learn(names);
                    }
                    let item = self.reader.item(&event);
                    // A carriage return would end a line of the event stream.
                    let html = LogItemFragment { t: self.session.t, item: &item }
                        .render()
                        .unwrap_or_default()
                        .replace('\r', "");
                    self.ready.push_back(Event::default().event("item").id(event.seq.to_string()).data(html));
                    if event.event_kind().is_some_and(changes_the_run) {
                        self.ready.push_back(Event::default().event("changed").data(&event.kind));
                    }
                }
                None => {
                    self.over = true;
                    let ended = self.session.hub.run(&self.session.principal, self.run).await;
                    // If the stream stops for another reason, the browser reconnects.
                    if ended.is_ok_and(|run| status::has_ended(run.status)) {
                        self.ready.push_back(Event::default().event("end").data("end"));
                    }
                }
            }
        }
    }
}

/// Whether this event changes the parts around the log.
const fn changes_the_run(kind: EventKind) -> bool {
    kind.is_terminal()
        || matches!(
            kind,
            EventKind::TaskCreated
                | EventKind::TaskClaimed
                | EventKind::TaskRequeued
                | EventKind::TaskDeferred
                | EventKind::TaskWaiting
                | EventKind::TaskInputRequired
                | EventKind::TaskAuthorizationRequired
                | EventKind::TaskInputWithdrawn
                | EventKind::TaskInputReceived
                | EventKind::PermissionRequested
                | EventKind::PermissionDecided
        )
}
