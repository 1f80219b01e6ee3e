//! Builds a run's outline: the events that show its state, out of a stream that may be far larger.

use attache_protocol::EventKind;
use attache_protocol::wire::event::Event;

use crate::{
    entry,
    record::RunOutline,
    weight::{MAX_OUTLINE_BYTES, PageWeight as _, PageWeightLimit},
};

#[derive(Debug)]
pub(crate) struct OutlineBuilder {
    floor: i64,
    events: Vec<Event>,
    /// The oldest of the newest events, once they were read.
    reached: Option<i64>,
    is_whole: bool,
}

// === impl OutlineBuilder ===

impl OutlineBuilder {
    pub(crate) const fn new(floor: i64) -> Self {
        Self { floor, events: Vec::new(), reached: None, is_whole: true }
    }

    /// Takes events that only the run's stream has, newest first. An outline keeps lasting ones, not transient ones.
    pub(crate) fn newest<E>(&mut self, events: impl Iterator<Item = Result<Event, E>>) -> Result<(), E> {
        let mut scales = PageWeightLimit::new(MAX_OUTLINE_BYTES);
        for event in events {
            let event = event?;
            if !scales.takes(event.weight()) {
                self.is_whole = false;
                return Ok(());
            }
            self.reached = Some(event.seq);
            if matches!(
                event.event_kind(),
                Some(EventKind::TaskChunk | EventKind::TaskProgress | EventKind::ArtifactChanged)
            ) {
                self.events.push(event);
            }
        }
        // There is nothing before them.
        self.reached = Some(self.floor + 1);
        Ok(())
    }

    /// The seq up to which artifacts haven't been read yet, if the outline goes up to `upto`.
    pub(crate) fn reached(&self, upto: i64) -> i64 {
        self.reached.map_or(upto, |reached| reached - 1)
    }

    /// Takes earlier artifacts, or lifecycle events, newest first.
    pub(crate) fn take<E>(&mut self, events: impl Iterator<Item = Result<Event, E>>) -> Result<(), E> {
        let mut scales = PageWeightLimit::new(MAX_OUTLINE_BYTES);
        for event in events {
            let event = event?;
            // The final event is always included, and leaves room for earlier ones.
            let weight = if entry::shows_output(&event.kind) { 0 } else { event.weight() };
            if !scales.takes(weight) {
                self.is_whole = false;
                break;
            }
            self.events.push(event);
        }
        Ok(())
    }

    pub(crate) fn done(mut self) -> RunOutline {
        self.events.sort_by_key(|event| event.seq);
        RunOutline { events: self.events, floor: self.floor, is_whole: self.is_whole }
    }
}
