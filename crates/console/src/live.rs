//! The two streams behind live pages: what moved in the tenant, and the log of one run as ready-made items.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use askama::Template;
use attache_hub::{
    identity::{Action, Verdict},
    stream::{Changes, RunFollow, TenantFollow},
};
use attache_protocol::{AgentId, EventKind, RunId, log::Row};
use axum::{
    extract::{Path, Query, State},
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
    Console,
    page::{names, run},
    problem::{Fault, Result},
    session::Session,
    view::{
        log::{Body, Item, Reader},
        status,
    },
};

/// Movements within this time travel together.
const GATHER: Duration = Duration::from_millis(200);
/// More than this at once is told as "anything".
const MOST: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    after: Option<i64>,
}

/// What a page is told.
#[derive(Debug, Serialize)]
struct Told {
    events: Vec<Moved>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Moved {
    #[serde(rename = "type")]
    kind: String,
    run: Option<RunId>,
    agent: Option<AgentId>,
}

enum Feed {
    /// For those who may read the log: what moved.
    Rows(Box<TenantFollow>),
    /// For everybody else: that something moved.
    Hints(Box<Changes>),
}

#[derive(Template)]
#[template(path = "log_item.html")]
struct Fragment<'a> {
    item: &'a Item,
}

struct Log {
    console: Console,
    session: Session,
    run: RunId,
    follow: RunFollow,
    reader: Reader,
    ready: VecDeque<Event>,
    over: bool,
}

/// The tenant's feed, from where the page was rendered.
pub(crate) async fn feed(
    State(console): State<Console>,
    session: Session,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result {
    let by = &session.principal;
    let feed = if by.verdict(Action::SeeAudit) == Verdict::Yes {
        Feed::Rows(Box::new(console.hub.follow_audit(by, last_id(&headers).or(asked.after)).await?))
    } else {
        Feed::Hints(Box::new(console.hub.changes(by)?))
    };
    let events = stream::unfold(feed, async |mut feed| {
        let event = feed.next().await?;
        Some((Ok::<_, Infallible>(event), feed))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// The log of one run: every event after a seq as a ready-made item, then `end`.
pub(crate) async fn run(
    State(console): State<Console>,
    session: Session,
    Path(run): Path<String>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result {
    let id: RunId = run.parse().map_err(|_| Fault::NoSuchPath)?;
    let run = console.hub.run(&session.principal, id).await?;
    let after = last_id(&headers).or(asked.after);
    let follow = console.hub.follow_run(&session.principal, id, after).await?;
    let runtimes = run::runtimes(&console, &session, &run).await?;
    let viewer = run::viewer(&console, &session, &run, &[]).await?;
    let reader = run::reader(&run, &runtimes, &viewer, session.t);
    let log = Log { console, session, run: id, follow, reader, ready: VecDeque::new(), over: false };
    let events = stream::unfold(log, async |mut log| {
        let event = log.next().await?;
        Some((Ok::<_, Infallible>(event), log))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// Where a browser that reconnects by itself stopped.
fn last_id(headers: &HeaderMap) -> Option<i64> {
    headers.get("last-event-id")?.to_str().ok()?.parse().ok()
}

// === impl Feed ===

impl Feed {
    async fn next(&mut self) -> Option<Event> {
        match self {
            Self::Rows(follow) => {
                let first = follow.next().await?;
                let (mut last, mut told) = (first.seq, Told { events: Vec::new() });
                told.add(&first);
                let until = Instant::now() + GATHER;
                while let Ok(Some(row)) = tokio::time::timeout_at(until, follow.next()).await {
                    last = row.seq;
                    told.add(&row);
                }
                Some(told.event().id(last.to_string()))
            }
            Self::Hints(changes) => {
                changes.next().await?;
                // Whoever may not read the log learns only that it is worth looking again.
                tokio::time::sleep(GATHER).await;
                Some(Told::anything().event())
            }
        }
    }
}

// === impl Told ===

impl Told {
    fn anything() -> Self {
        Self { events: vec![Moved { kind: "any".to_owned(), run: None, agent: None }] }
    }

    fn add(&mut self, row: &Row) {
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        struct Data {
            agent_id: Option<AgentId>,
        }
        let data: Data = row.data.parse().unwrap_or_default();
        let moved = Moved { kind: row.kind.clone(), run: row.run, agent: data.agent_id };
        if self.events.len() < MOST && !self.events.contains(&moved) {
            self.events.push(moved);
        } else if self.events.len() == MOST {
            self.events.extend(Self::anything().events);
        }
    }

    fn event(&self) -> Event {
        let json = serde_json::to_string(self).expect("our own types serialise to JSON");
        Event::default().event("moved").data(json)
    }
}

// === impl Log ===

impl Log {
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
                        && let Ok(names) = names(&self.console, &self.session, [actor]).await
                    {
                        self.reader.learn(names);
                    }
                    let item = self.reader.item(&event);
                    // A carriage return would end a line of the stream.
                    let html = Fragment { item: &item }.render().unwrap_or_default().replace('\r', "");
                    self.ready.push_back(Event::default().event("item").id(event.seq.to_string()).data(html));
                    if event.event_kind().is_some_and(changes_the_run) {
                        self.ready.push_back(Event::default().event("changed").data(&event.kind));
                    }
                }
                None => {
                    self.over = true;
                    let ended = self.console.hub.run(&self.session.principal, self.run).await;
                    // A stream that stops for another reason is opened again by the browser.
                    if ended.is_ok_and(|run| status::has_ended(run.status)) {
                        self.ready.push_back(Event::default().event("end").data("end"));
                    }
                }
            }
        }
    }
}

/// Whether the parts around the log look different after this event.
const fn changes_the_run(kind: EventKind) -> bool {
    kind.is_terminal()
        || matches!(
            kind,
            EventKind::TaskCreated
                | EventKind::TaskClaimed
                | EventKind::TaskRequeued
                | EventKind::TaskWaiting
                | EventKind::TaskInputRequired
                | EventKind::TaskAuthorizationRequired
                | EventKind::TaskInputWithdrawn
                | EventKind::TaskInputReceived
                | EventKind::PermissionRequested
                | EventKind::PermissionDecided
        )
}
