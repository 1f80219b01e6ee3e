//! The events of one run, kept so that whoever joins later reads them from the first; bounded, oldest out first.

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

/// What one event costs beside its data.
const EVENT_OVERHEAD: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedEvent {
    /// From 1, without gaps as long as nothing was dropped.
    pub(crate) seq: u64,
    pub(crate) name: &'static str,
    pub(crate) data: Json,
}

#[derive(Debug)]
pub(crate) struct EventLog {
    events: VecDeque<Arc<RecordedEvent>>,
    /// Questions that are older than what is kept and still open: whoever joins must hear them.
    pinned: BTreeMap<u64, Arc<RecordedEvent>>,
    /// The questions that are open.
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

    /// A question: it is kept until it is settled. Answers its seq.
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
        // The newest event always stays: the last one of a run is its result.
        while self.bytes > self.limit && self.events.len() > 1 {
            if let Some(dropped) = self.events.pop_front() {
                self.bytes -= cost(&dropped.data);
                if self.open.contains(&dropped.seq) {
                    self.pinned.insert(dropped.seq, dropped);
                }
            }
        }
    }

    /// Where a reader that has seen `seq` goes on. One that claims to have seen more than there is comes from an earlier
    /// life of the adapter and starts anew.
    pub(crate) const fn resume(&self, seq: u64) -> u64 {
        if seq > self.last { 0 } else { seq }
    }

    /// The event that follows `seq`. A reader that is behind what is kept is told so by a `log` event in its place.
    pub(crate) fn after(&self, seq: u64) -> Option<Arc<RecordedEvent>> {
        let kept = self.pinned.range(seq + 1..).next().map(|(_, event)| event);
        if let Some(event) = kept.filter(|event| event.seq == seq + 1) {
            return Some(event.clone());
        }
        let first = kept.or_else(|| self.events.front())?.seq;
        if seq + 1 < first {
            let message = format!(
                "events {} to {} of this run were dropped: at most {} bytes are kept for readers that come late or are slow",
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
    fn the_oldest_events_go_first_and_a_late_reader_is_told() {
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
        let note = "log {\"level\":\"warning\",\"message\":\"events 1 to 2 of this run were dropped: at most 195 bytes \
                    are kept for readers that come late or are slow\"}";
        assert_eq!(seen(&record, 0), [&[(2, note.to_owned())], &kept[..]].concat());
    }

    #[test]
    fn an_open_question_outlives_what_is_dropped_around_it() {
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
