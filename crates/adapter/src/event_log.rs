//! The events of one run, kept for readers that join later. Bounded: the oldest events are dropped first.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use attache_protocol::{
    Json,
    wire::adapter::{AdapterLogLine, event},
};

/// How much of a run's events is kept for those who join.
pub(crate) const MAX_LOG_BYTES: usize = 8 * 1024 * 1024;

/// Accounted per event, besides its data.
const EVENT_OVERHEAD: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedEvent {
    /// Starts at 1, without gaps unless events were dropped.
    pub(crate) seq: u64,
    pub(crate) name: &'static str,
    pub(crate) data: Json,
}

#[derive(Debug)]
pub(crate) struct EventLog {
    events: VecDeque<Arc<RecordedEvent>>,
    /// Open questions older than the retained events. Late readers must still see them.
    pinned: BTreeMap<u64, Arc<RecordedEvent>>,
    /// Sequence numbers of the open questions.
    open: Vec<u64>,
    bytes: usize,
    limit: usize,
    last: u64,
}

// === impl EventLog ===

impl EventLog {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { events: VecDeque::new(), pinned: BTreeMap::new(), open: Vec::new(), bytes: 0, limit, last: 0 }
    }

    /// Records a question, which is kept until it is settled. Returns its seq.
    pub(crate) fn push_question(&mut self, name: &'static str, data: Json) -> u64 {
        self.open.push(self.last + 1);
        self.push(name, data);
        self.last
    }

    pub(crate) fn close_question(&mut self, seq: u64) {
        self.open.retain(|open| *open != seq);
        self.pinned.remove(&seq);
    }

    pub(crate) fn push(&mut self, name: &'static str, data: Json) {
        self.last += 1;
        self.bytes += cost(&data);
        self.events.push_back(Arc::new(RecordedEvent { seq: self.last, name, data }));
        // The newest event always stays: the last event of a run is its result.
        while self.bytes > self.limit && self.events.len() > 1 {
            if let Some(dropped) = self.events.pop_front() {
                self.bytes -= cost(&dropped.data);
                if self.open.contains(&dropped.seq) {
                    self.pinned.insert(dropped.seq, dropped);
                }
            }
        }
    }

    /// Where a reader that has seen `seq` continues. A reader that claims more than exists saw an earlier adapter
    /// process, and starts from the beginning.
    pub(crate) const fn resume(&self, seq: u64) -> u64 {
        if seq > self.last { 0 } else { seq }
    }

    /// The event after `seq`. If it was dropped, the reader gets a `log` event that says so.
    pub(crate) fn after(&self, seq: u64) -> Option<Arc<RecordedEvent>> {
        let kept = self.pinned.range(seq + 1..).next().map(|(_, event)| event);
        if let Some(event) = kept.filter(|event| event.seq == seq + 1) {
            return Some(event.clone());
        }
        let first = kept.or_else(|| self.events.front())?.seq;
        if seq + 1 < first {
            let message = format!(
                "events {} to {} of this run were dropped: only {} bytes are kept for late or slow readers",
                seq + 1,
                first - 1,
                self.limit
            );
            let data = Json::of(&AdapterLogLine::new("warning", message));
            return Some(Arc::new(RecordedEvent { seq: first - 1, name: event::LOG, data }));
        }
        let index = usize::try_from(seq + 1 - first).ok()?;
        self.events.get(index).cloned()
    }
}

fn cost(data: &Json) -> usize {
    data.get().len() + EVENT_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(record: &EventLog, mut cursor: u64) -> Vec<(u64, String)> {
        let mut seen = Vec::new();
        while let Some(event) = record.after(cursor) {
            cursor = event.seq;
            seen.push((event.seq, format!("{} {}", event.name, event.data.get())));
        }
        seen
    }

    #[test]
    fn the_oldest_events_are_dropped_and_late_readers_are_notified() {
        let mut record = EventLog::new(3 * (EVENT_OVERHEAD + 1));
        assert_eq!(seen(&record, 0), []);
        for number in 1..=5 {
            record.push(event::CHUNK, Json::of(&number));
        }
        let kept = [(3, "chunk 3".to_owned()), (4, "chunk 4".to_owned()), (5, "chunk 5".to_owned())];
        assert_eq!(seen(&record, 2), kept);
        assert_eq!(seen(&record, 4), kept[2..]);
        assert_eq!(seen(&record, 5), []);
        assert_eq!([record.resume(0), record.resume(5), record.resume(6)], [0, 5, 0]);
        let note = "log {\"level\":\"warning\",\"message\":\"events 1 to 2 of this run were dropped: only 195 bytes \
                    are kept for late or slow readers\"}";
        assert_eq!(seen(&record, 0), [&[(2, note.to_owned())], &kept[..]].concat());
    }

    #[test]
    fn an_open_question_is_never_dropped() {
        let mut record = EventLog::new(2 * (EVENT_OVERHEAD + 1));
        record.push(event::CHUNK, Json::of(&1));
        assert_eq!(record.push_question(event::PERMISSION, Json::of(&2)), 2);
        for number in 3..=6 {
            record.push(event::CHUNK, Json::of(&number));
        }
        let names =
            |record: &EventLog| seen(record, 0).into_iter().map(|(seq, text)| (seq, text[..5].to_owned())).collect();
        let told = |pairs: &[(u64, &str)]| pairs.iter().map(|(seq, text)| (*seq, (*text).to_owned())).collect();
        let expected: Vec<(u64, String)> =
            told(&[(1, "log {"), (2, "permi"), (4, "log {"), (5, "chunk"), (6, "chunk")]);
        let all: Vec<(u64, String)> = names(&record);
        assert_eq!(all, expected);
        record.close_question(2);
        let expected: Vec<(u64, String)> = told(&[(4, "log {"), (5, "chunk"), (6, "chunk")]);
        let all: Vec<(u64, String)> = names(&record);
        assert_eq!(all, expected);
    }

    #[test]
    fn the_newest_event_stays_however_large() {
        let mut record = EventLog::new(10);
        record.push(event::CHUNK, Json::of("small"));
        record.push(event::RESULT, Json::of(&"x".repeat(100)));
        assert_eq!(record.after(1).map(|event| (event.seq, event.name)), Some((2, event::RESULT)));
    }
}
