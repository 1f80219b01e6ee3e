//! The stream of one run: every event once and in order, or a report of what is missing.

use std::{collections::VecDeque, time::Duration};

use attache_protocol::{
    EventKind, Json, RunId, TenantId,
    rules::run::RunStatus,
    wire::event::{Event, EventPage, SeqRange, SnapshotRepair},
};

use attache_store::record::{OutlineScope, OutputMatches, RunOutline};

use crate::{
    Handle, Principal, Result, check,
    error::about,
    identity::{AccessGuard, StreamRight},
    stream::{
        StreamSlot,
        feed::{EventBatch, RunFeedReader},
    },
};

/// Follows a run until its terminal event. Ends early if the hub drains or the caller loses access.
#[derive(Debug)]
pub struct RunFollow {
    hub: Handle,
    run: RunId,
    /// Events up to this seq were read. Those not returned yet are in `ready`.
    reached: i64,
    ready: VecDeque<Event>,
    /// The shared feed, once past events are read.
    joined: Option<RunFeedReader>,
    guard: AccessGuard,
    ended: bool,
    _slot: StreamSlot,
}

/// One read of a run's stream.
#[derive(Debug)]
pub(crate) struct RunEventPage {
    pub(crate) events: Vec<Event>,
    pub(crate) status: RunStatus,
    /// Whether the page includes the newest event.
    pub(crate) is_newest: bool,
    /// Whether the run's last event is in it, or was read before.
    pub(crate) ended: bool,
    /// Whether the first event stands for removed ones.
    pub(crate) is_repaired: bool,
}

// === impl Handle ===

impl Handle {
    /// One page of the run's events.
    pub async fn run_events(
        &self,
        by: &Principal,
        run: RunId,
        after: Option<i64>,
        limit: Option<usize>,
    ) -> Result<EventPage> {
        let (after, limit) = (check::after(after)?, check::limit(limit)?);
        self.visible_run(by, run).await?;
        let page = self.run_page(by.tenant, run, after, limit).await?;
        let next = page.events.last().map_or(after, |event| event.seq);
        Ok(EventPage { events: page.events, next, status: page.status })
    }

    /// Where words are in the run's output, ignoring case.
    pub async fn output_matches(&self, by: &Principal, run: RunId, words: &str, limit: usize) -> Result<OutputMatches> {
        check::text("text", words, 1..=200)?;
        self.visible_run(by, run).await?;
        let _turn = self.long_read(by).await;
        self.metrics().run_reads.add(1);
        self.store().output_matches(by.tenant, run, &words.to_lowercase(), limit).await.map_err(about("run"))
    }

    /// The events that show the run's state up to a seq, however large its stream is.
    pub async fn run_outline(&self, by: &Principal, run: RunId, upto: i64, shown: OutlineScope) -> Result<RunOutline> {
        self.visible_run(by, run).await?;
        self.outline(by.tenant, run, upto, shown).await
    }

    pub(crate) async fn outline(
        &self,
        tenant: TenantId,
        run: RunId,
        upto: i64,
        shown: OutlineScope,
    ) -> Result<RunOutline> {
        self.metrics().run_reads.add(1);
        self.store().run_outline(tenant, run, upto, shown).await.map_err(about("run"))
    }

    /// A slot for one more stream or WebSocket of this caller.
    pub(crate) fn stream_slot(&self, by: &Principal) -> Result<StreamSlot> {
        let slot = self.stream_slots().take(by, self.options().max_streams);
        slot.inspect_err(|_| self.metrics().streams_refused.add(1))
    }

    /// Whether this caller may have one more stream, before something is created only to be followed.
    pub fn check_stream_slot(&self, by: &Principal) -> Result<()> {
        self.stream_slot(by).map(drop)
    }

    /// A slot for a request that waits. `None` if it is answered at once.
    pub(crate) fn wait_slot(&self, by: &Principal, wait: Duration) -> Result<Option<StreamSlot>> {
        if wait.is_zero() { Ok(None) } else { self.stream_slot(by).map(Some) }
    }

    /// Everything after `after` and all new events, until the run ends.
    pub async fn follow_run(&self, by: &Principal, run: RunId, after: Option<i64>) -> Result<RunFollow> {
        let reached = check::after(after)?;
        let record = self.visible_run(by, run).await?;
        Ok(RunFollow {
            hub: self.clone(),
            run,
            reached,
            ready: VecDeque::new(),
            joined: None,
            guard: AccessGuard::new(self, by, StreamRight::see_run(record)),
            ended: false,
            _slot: self.stream_slot(by)?,
        })
    }

    /// Events after a seq, preceded by `snapshot.repaired` if some of them were removed.
    pub(crate) async fn run_page(
        &self,
        tenant: TenantId,
        run: RunId,
        after: i64,
        limit: usize,
    ) -> Result<RunEventPage> {
        self.metrics().run_reads.add(1);
        let read = self.store().run_events(tenant, run, after, limit).await.map_err(about("run"))?;
        let mut events = read.events;
        let is_repaired = after < read.floor;
        if is_repaired {
            let record = self.store().run(tenant, run).await.map_err(about("run"))?;
            let snapshot = Json::of(&self.show_run(record).await?);
            let missing = SeqRange { from: after + 1, to: read.floor };
            let repaired = Event {
                seq: read.floor,
                kind: EventKind::SnapshotRepaired.to_string(),
                at: self.now(),
                data: Json::of(&SnapshotRepair { missing, snapshot }),
            };
            events.retain(|event| event.seq > read.floor);
            events.insert(0, repaired);
        }
        let is_newest = events.last().map_or(after, |event| event.seq) >= read.last_seq;
        let ended = is_newest && read.status.is_terminal();
        Ok(RunEventPage { events, status: read.status, is_newest, ended, is_repaired })
    }
}

// === impl RunFollow ===

impl RunFollow {
    /// The next event. `None` after the terminal one.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if self.guard.check_if_due().await.is_err() {
                self.ready.clear();
                self.ended = true;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            match &mut self.joined {
                Some(joined) if joined.from <= self.reached => {
                    let batch = tokio::select! {
                        batch = joined.next() => batch,
                        () = self.hub.drained() => return None,
                        _ = self.guard.broken() => return None,
                    };
                    self.take(batch);
                }
                Some(_) | None => self.read().await,
            }
        }
    }

    /// The caller with their current rights.
    pub(crate) const fn principal(&self) -> &Principal {
        self.guard.principal()
    }

    /// Reads past events on its own, and joins the feed at the end of them.
    async fn read(&mut self) {
        let tenant = self.principal().tenant;
        match self.hub.run_page(tenant, self.run, self.reached, check::MAX_PAGE).await {
            Ok(page) => {
                self.reached = page.events.last().map_or(self.reached, |event| event.seq);
                self.ended = page.ended;
                self.ready = page.events.into();
                if page.is_newest && !page.ended && self.joined.is_none() {
                    self.joined = Some(self.hub.feeds().join(&self.hub, tenant, self.run, self.reached));
                }
            }
            Err(error) => {
                tracing::debug!(run.id = %self.run, %error, "a stream could not be read");
                tokio::select! {
                    () = tokio::time::sleep(self.hub.options().poll_every) => {}
                    () = self.hub.drained() => self.ended = true,
                    _ = self.guard.broken() => self.ended = true,
                }
            }
        }
    }

    /// A batch may overlap with what this watcher has. After a gap or without a batch, it reads on its own.
    fn take(&mut self, batch: Option<EventBatch>) {
        let follows = |batch: &EventBatch| batch.events.first().is_none_or(|event| event.seq <= self.reached + 1);
        let Some(batch) = batch.filter(follows) else {
            self.joined = None;
            return;
        };
        let reached = self.reached;
        self.ready.extend(batch.events.iter().filter(|event| event.seq > reached).cloned());
        self.reached = batch.events.last().map_or(reached, |event| event.seq.max(reached));
        self.ended = batch.ended;
    }
}
