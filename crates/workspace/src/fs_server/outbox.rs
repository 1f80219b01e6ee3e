//! Frames on their way to the client. Urgent ones overtake the rest, so that nobody who waits for an answer waits behind
//! files that are sent just in case.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// What a frame waits for: only for those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FsUrgency {
    /// Replies and changes.
    Reply,
    /// File contents that were asked for.
    Data,
    /// Folders that were not asked for.
    Tree,
    /// File contents that were not asked for.
    Content,
}

#[derive(Debug, Default)]
pub(super) struct FsOutbox {
    state: Mutex<OutboxState>,
    arrived: Condvar,
    sent: Condvar,
}

#[derive(Debug, Default)]
struct OutboxState {
    queues: [VecDeque<Vec<u8>>; 4],
    bytes: usize,
    /// Pushed content that the client has not confirmed.
    unconfirmed: u64,
    ended: bool,
}

/// Frames are sent in batches of about this size: small enough that an urgent one never waits long.
const BATCH: usize = 64 << 10;
/// More is not queued: its producer waits.
const MAX_QUEUED: usize = 8 << 20;
/// How much content may be under way without having been asked for.
const MAX_UNCONFIRMED: u64 = 4 << 20;

// === impl FsOutbox ===

impl FsOutbox {
    /// Queues a frame, and waits while too much is queued. Frames after the end are dropped.
    pub(super) fn push(&self, frame: Vec<u8>, urgency: FsUrgency) {
        let is_full = |state: &mut OutboxState| state.bytes > MAX_QUEUED && !state.ended;
        let mut state = self.sent.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return;
        }
        state.bytes += frame.len();
        state.queues[urgency as usize].push_back(frame);
        drop(state);
        self.arrived.notify_one();
    }

    /// Queues content that wasn't requested, once there is room for it. `false` after the end.
    pub(super) fn push_content(&self, frame: Vec<u8>) -> bool {
        let is_full = |state: &mut OutboxState| state.unconfirmed > MAX_UNCONFIRMED && !state.ended;
        let mut state = self.sent.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return false;
        }
        state.unconfirmed += frame.len() as u64;
        state.bytes += frame.len();
        state.queues[FsUrgency::Content as usize].push_back(frame);
        drop(state);
        self.arrived.notify_one();
        true
    }

    /// The client has received so much pushed content.
    pub(super) fn confirm(&self, bytes: u64) {
        let mut state = self.lock();
        state.unconfirmed = state.unconfirmed.saturating_sub(bytes);
        drop(state);
        self.sent.notify_all();
    }

    /// Waits for frames. `None` at the end.
    pub(super) fn next_batch(&self) -> Option<Vec<u8>> {
        let is_empty = |state: &mut OutboxState| state.bytes == 0 && !state.ended;
        let mut state = self.arrived.wait_while(self.lock(), is_empty).unwrap_or_else(PoisonError::into_inner);
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            let Some(frame) = state.queues.iter_mut().find_map(VecDeque::pop_front) else { break };
            state.bytes -= frame.len();
            if batch.is_empty() {
                batch = frame;
            } else {
                batch.extend_from_slice(&frame);
            }
        }
        drop(state);
        self.sent.notify_all();
        (!batch.is_empty()).then_some(batch)
    }

    /// Sends only this any more. Returns once it is on its way, or after a moment.
    pub(super) fn say_last(&self, frame: Vec<u8>, time: Duration) {
        let mut state = self.lock();
        if state.ended {
            return;
        }
        state.queues = Default::default();
        state.bytes = frame.len();
        state.queues[FsUrgency::Reply as usize].push_back(frame);
        state.ended = true;
        drop(state);
        self.arrived.notify_all();
        let is_queued = |state: &mut OutboxState| state.bytes > 0;
        drop(self.sent.wait_timeout_while(self.lock(), time, is_queued));
    }

    /// What is queued is still sent.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.arrived.notify_all();
        self.sent.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_frames_overtake_the_rest() {
        let outbox = FsOutbox::default();
        assert!(outbox.push_content(vec![3; BATCH]));
        outbox.push(vec![2], FsUrgency::Tree);
        outbox.push(vec![1; BATCH], FsUrgency::Data);
        outbox.push(vec![0], FsUrgency::Reply);
        let order: Vec<u8> = (0..2).flat_map(|_| outbox.next_batch().unwrap()).collect();
        assert_eq!(order[0], 0);
        assert_eq!(order[1], 1);
        assert_eq!(order[1 + BATCH], 2);
        assert_eq!(order[2 + BATCH], 3);
        outbox.end();
        assert_eq!(outbox.next_batch(), None);
        assert!(!outbox.push_content(vec![3]));
    }

    #[test]
    fn unconfirmed_content_waits_and_replies_do_not() {
        let outbox = FsOutbox::default();
        let large = usize::try_from(MAX_UNCONFIRMED).unwrap() + 1;
        assert!(outbox.push_content(vec![3; large]));
        while outbox.lock().bytes > 0 {
            outbox.next_batch();
        }
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| outbox.push_content(vec![3]));
            outbox.push(vec![0], FsUrgency::Reply);
            assert_eq!(outbox.next_batch(), Some(vec![0]));
            outbox.confirm(large as u64);
            assert!(waiting.join().unwrap());
        });
    }
}
