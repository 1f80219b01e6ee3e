//! Follows a run: its events from a cursor, exactly once and in order, over as many connections as it takes.

use std::{collections::VecDeque, fmt, time::Duration};

use attache_protocol::{
    EventKind, Json, RunId, Timestamp,
    wire::event::{Event, SeqRange},
};
use reqwest::{
    Method, Response,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
};
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use crate::{
    Backoff, Error, HubClient, Result,
    sse::{SseMessage, SseParser},
};

/// The events of one run. `next` is cancel-safe.
pub struct EventStream {
    hub: HubClient,
    run: RunId,
    /// The seq of the last event returned.
    seen: i64,
    state: EventStreamState,
    ready: VecDeque<Event>,
    backoff: Backoff,
    /// How long the hub may be unreachable before the stream gives up.
    patience: Duration,
    away_since: Option<Instant>,
    /// How many times in a row an event was missing.
    gaps: u32,
}

enum EventStreamState {
    Waiting {
        until: Instant,
    },
    Open(Box<EventConnection>),
    /// The hub closed the stream without new events: did the run end before `seen`?
    Closed,
    Ended,
}

struct EventConnection {
    response: Response,
    parser: SseParser,
    /// Whether this connection has received anything.
    fruitful: bool,
}

/// The members of an event's data that matter for the cursor.
#[derive(Deserialize)]
struct GapRange {
    missing: SeqRange,
}

/// Events are at most 1 MiB at the hub, with a small envelope around them.
const MAX_EVENT: usize = 4 << 20;
const MAX_GAPS: u32 = 5;

// === impl EventStream ===

impl EventStream {
    pub(crate) fn new(hub: HubClient, run: RunId, after: i64) -> Self {
        Self {
            hub,
            run,
            seen: after,
            state: EventStreamState::Waiting { until: Instant::now() },
            ready: VecDeque::new(),
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(5)),
            patience: Duration::from_secs(120),
            away_since: None,
            gaps: 0,
        }
    }

    /// How long the hub may be unreachable before the stream fails. Two minutes by default.
    #[must_use]
    pub fn timeout(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// How long the hub has been unreachable. `None` while it isn't.
    pub fn away_for(&self) -> Option<Duration> {
        self.away_since.map(|since| since.elapsed())
    }

    /// How long it may be unreachable.
    pub const fn patience(&self) -> Duration {
        self.patience
    }

    /// The seq to continue from, should this stream be dropped.
    pub const fn cursor(&self) -> i64 {
        self.seen
    }

    /// The next event. `None` after the event that ends the run. An error is always the last item.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.seen = event.seq;
                if event.event_kind().is_some_and(EventKind::is_terminal) {
                    self.state = EventStreamState::Ended;
                    self.ready.clear();
                }
                return Some(Ok(event));
            }
            if let Err(error) = self.advance().await {
                self.state = EventStreamState::Ended;
                return Some(Err(error));
            }
            if matches!(self.state, EventStreamState::Ended) && self.ready.is_empty() {
                return None;
            }
        }
    }

    /// Takes one step towards the next event. Cancel-safe.
    async fn advance(&mut self) -> Result<()> {
        match &mut self.state {
            EventStreamState::Waiting { until } => {
                tokio::time::sleep_until(*until).await;
                match self.connect().await {
                    Ok(connection) => {
                        self.away_since = None;
                        self.state = EventStreamState::Open(Box::new(connection));
                    }
                    Err(error) => self.retry(error)?,
                }
            }
            EventStreamState::Open(connection) => {
                let read = timeout(self.hub.timeouts().idle, connection.response.chunk()).await;
                match read {
                    Ok(Ok(Some(bytes))) => {
                        if let Err(error) = connection.parser.push(&bytes) {
                            return Err(self.hub.bad_reply(&error.to_string()));
                        }
                        self.take()?;
                    }
                    Ok(Ok(None)) if connection.fruitful => self.wait(),
                    Ok(Ok(None)) => self.state = EventStreamState::Closed,
                    Ok(Err(error)) => {
                        let error = self.hub.unreachable(&error);
                        self.retry(error)?;
                    }
                    // Silent for too long: the connection may be dead without notice.
                    Err(_) => self.wait(),
                }
            }
            EventStreamState::Closed => match self.hub.run_events(self.run, self.seen, None).await {
                Ok(page) if page.events.is_empty() && page.status.is_terminal() => self.state = EventStreamState::Ended,
                Ok(page) => {
                    self.accept_all(page.events);
                    self.wait();
                }
                Err(error) => self.retry(error)?,
            },
            EventStreamState::Ended => {}
        }
        Ok(())
    }

    async fn connect(&self) -> Result<EventConnection> {
        let mut url = self.hub.api(&["task-runs", &self.run.to_string(), "events"]);
        url.query_pairs_mut().append_pair("after", &self.seen.to_string());
        let request = self
            .hub
            .request(Method::GET, url)
            .header(ACCEPT, "text/event-stream")
            .header("last-event-id", HeaderValue::from(self.seen));
        let sent = timeout(self.hub.timeouts().request, self.hub.execute(request));
        let response = sent.await.unwrap_or_else(|_| {
            Err(Error::Unreachable { address: self.hub.address().origin(), reason: "no answer in time".to_owned() })
        })?;
        let status = response.status().as_u16();
        if status != 200 {
            let body = self.hub.read(response).await?;
            return Err(self.hub.refused(status, &body));
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return Err(self.hub.bad_reply("it didn't send an event stream"));
        }
        Ok(EventConnection { response, parser: SseParser::new(MAX_EVENT), fruitful: false })
    }

    /// Moves received events to the ready queue.
    fn take(&mut self) -> Result<()> {
        let EventStreamState::Open(connection) = &mut self.state else { return Ok(()) };
        let mut events = Vec::new();
        while let Some(message) = connection.parser.pop() {
            let Some(event) = read(&message, self.hub.env().now()) else {
                return Err(self.hub.bad_reply("its stream contains an unreadable event"));
            };
            events.push(event);
        }
        connection.fruitful |= !events.is_empty();
        let before = self.ready.len();
        let whole = self.accept_all(events);
        if self.ready.len() > before {
            self.backoff.reset();
            self.gaps = 0;
        }
        if !whole {
            // The missing event is in the log. Reading again from the cursor gets it.
            self.gaps += 1;
            tracing::warn!(run.id = %self.run, after = self.seen, "a stream skipped an event; reading again");
            if self.gaps > MAX_GAPS {
                return Err(self.hub.bad_reply("its stream skips events"));
            }
            self.wait();
        }
        Ok(())
    }

    /// Queues the events that follow without a gap. Returns false if one is missing.
    fn accept_all(&mut self, events: Vec<Event>) -> bool {
        let mut last = self.ready.back().map_or(self.seen, |event| event.seq);
        for event in events {
            if event.kind == EventKind::SnapshotRepaired {
                // The events before it are gone for good, and it replaces them.
                let to = event.data.parse().map_or(event.seq, |GapRange { missing }| missing.to);
                last = last.max(to);
                self.ready.push_back(Event { seq: last, ..event });
            } else if event.seq == last + 1 {
                last = event.seq;
                self.ready.push_back(event);
            } else if event.seq > last {
                return false;
            }
        }
        true
    }

    fn wait(&mut self) {
        let until = Instant::now() + self.backoff.next(self.hub.env());
        self.state = EventStreamState::Waiting { until };
    }

    /// Schedules a retry, unless the error is final or the hub has been unreachable for too long.
    fn retry(&mut self, error: Error) -> Result<()> {
        let passing = error.is_passing() || matches!(error, Error::BadReply { .. });
        let away = self.away_since.get_or_insert_with(Instant::now).elapsed();
        if !passing || away > self.patience {
            return Err(error);
        }
        tracing::debug!(run.id = %self.run, %error, "the stream broke and will be resumed");
        self.wait();
        Ok(())
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("run", &self.run).field("seen", &self.seen).finish_non_exhaustive()
    }
}

/// The data of a message is the complete event. A server that sends only the event's own data is supported as well.
fn read(message: &SseMessage, now: Timestamp) -> Option<Event> {
    if let Ok(event) = serde_json::from_str::<Event>(&message.data) {
        return Some(event);
    }
    let seq = message.id.parse().ok()?;
    let data = Json::from_text(message.data.as_str()).ok()?;
    Some(Event { seq, kind: message.event.clone(), at: now, data })
}
