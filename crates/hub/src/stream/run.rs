//! The stream of one run: every event once and in order, or a statement of what is missing.

use std::collections::VecDeque;

use attache_protocol::{
    Json, RunId,
    rules::run::Status,
    wire::event::{Event, EventPage, Range, Repaired, SNAPSHOT_REPAIRED},
};

use crate::{
    Handle, Principal, Result,
    bus::{Topic, Watch},
    control::check,
    error::about,
    identity::Guard,
    render,
};

/// Follows a run until its terminal event. Ends early when the hub drains or the caller is not welcome any more.
#[derive(Debug)]
pub struct RunFollow {
    hub: Handle,
    principal: Principal,
    run: RunId,
    after: i64,
    ready: VecDeque<Event>,
    watch: Watch,
    guard: Guard,
    ended: bool,
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
        let (events, status, _) = self.page(by, run, after, limit).await?;
        let next = events.last().map_or(after, |event| event.seq);
        Ok(EventPage { events, next, status })
    }

    /// Everything after `after`, and what comes, until the run ends.
    pub async fn follow_run(&self, by: &Principal, run: RunId, after: Option<i64>) -> Result<RunFollow> {
        let after = check::after(after)?;
        // Interest is registered before the first look, so that nothing falls in between.
        let watch = self.bus().watch(Topic::Run(run));
        self.visible_run(by, run).await?;
        Ok(RunFollow {
            hub: self.clone(),
            principal: by.clone(),
            run,
            after,
            ready: VecDeque::new(),
            watch,
            guard: Guard::new(self, by),
            ended: false,
        })
    }

    /// Events after a seq, led by `snapshot.repaired` when some of them are gone; and whether the stream is at its end.
    async fn page(&self, by: &Principal, run: RunId, after: i64, limit: usize) -> Result<(Vec<Event>, Status, bool)> {
        let read = self.store().run_events(by.tenant, run, after, limit).await.map_err(about("run"))?;
        let mut events = read.events;
        if after < read.floor {
            let snapshot = Json::of(&render::run(self.store().run(by.tenant, run).await.map_err(about("run"))?));
            let missing = Range { from: after + 1, to: read.floor };
            let repaired = Event {
                seq: read.floor,
                kind: SNAPSHOT_REPAIRED.to_owned(),
                at: self.now(),
                data: Json::of(&Repaired { missing, snapshot }),
            };
            events.retain(|event| event.seq > read.floor);
            events.insert(0, repaired);
        }
        let reached = events.last().map_or(after, |event| event.seq);
        Ok((events, read.status, read.status.is_terminal() && reached >= read.last_seq))
    }
}

// === impl RunFollow ===

impl RunFollow {
    /// The next event; `None` after the terminal one.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.after = event.seq;
                return Some(event);
            }
            if self.ended || self.guard.welcome().await.is_err() {
                return None;
            }
            let page = self.hub.page(&self.principal, self.run, self.after, check::MAX_PAGE).await;
            match page {
                Ok((events, _, ended)) => {
                    self.ended = ended;
                    self.ready = events.into();
                    if !self.ready.is_empty() || ended {
                        continue;
                    }
                }
                Err(error) => tracing::debug!(run.id = %self.run, %error, "a stream could not be read"),
            }
            tokio::select! {
                () = self.watch.moved() => {}
                () = tokio::time::sleep(self.hub.options().poll_every) => {}
                () = self.hub.drained() => self.ended = true,
                _ = self.guard.broken() => self.ended = true,
            }
        }
    }
}
