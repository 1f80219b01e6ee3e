//! Progress of a run that the hub has not received yet: in order, bounded, kept while the hub is away.

mod batch;
mod capacity;

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use attache_protocol::wire::run::ProgressRequest;
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};

use self::{
    batch::ProgressBatch,
    capacity::{BacklogSize, MAX_ARTIFACT_BYTES, MAX_PROGRESS_BYTES, is_artifact},
};
use crate::progress::ProgressItem;

/// Filled by the listener of the adapter, emptied by one sender.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    state: Mutex<BacklogState>,
    moved: Notify,
    /// Notified whenever the hub accepts a call.
    heard: Notify,
}

#[derive(Debug, Default)]
struct BacklogState {
    /// The call in flight. It is repeated unchanged until the hub accepts it.
    call: Option<ProgressRequest>,
    /// The number of the newest report. It distinguishes a repeated report from a new one.
    report: i64,
    /// When text was last sent.
    spoke: Option<Instant>,
    /// The next call, being assembled.
    batch: Option<ProgressBatch>,
    pieces: VecDeque<ProgressItem>,
    /// The progress of items through the queue, as the number of the newest one.
    added: u64,
    gathered: u64,
    called: u64,
    heard: u64,
    /// The size of the waiting items: progress and artifacts.
    bytes: BacklogSize,
    /// How many items were dropped for lack of room and not reported as missing yet.
    dropped: BacklogSize,
    /// When the last item arrived, or when the drain timer was restarted.
    closed: Option<Instant>,
    /// When the hub last accepted a call since then.
    settled: Option<Instant>,
    /// Only the notice of missing items is left, which is never discarded.
    is_last_word: bool,
    /// The log of the run is full. The hub has noted that in it. Only usage totals are still sent.
    is_full: bool,
}

/// What to discard of the waiting items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiscardScope {
    /// Everything except artifacts.
    Progress,
    Everything,
}

/// The minimum interval between texts. Texts in between are joined. The first text is sent immediately.
const COALESCE_INTERVAL: Duration = Duration::from_millis(50);

// === impl Backlog ===

impl Backlog {
    /// Numbers reports from here on.
    pub(crate) fn after(report: i64) -> Self {
        Self { state: Mutex::new(BacklogState { report, ..BacklogState::default() }), ..Self::default() }
    }

    /// Adds an item if there is room. Never waits: progress must not delay the result.
    pub(crate) fn push(&self, piece: ProgressItem) {
        {
            let mut state = self.state();
            let Some(piece) = (if state.is_full { piece.usage_alone() } else { Some(piece) }) else { return };
            let limit = if is_artifact(&piece) { MAX_ARTIFACT_BYTES } else { MAX_PROGRESS_BYTES };
            // After a gap, require real room again. Otherwise there would be a gap after every item.
            let room = if *state.dropped.of(&piece) > 0 { limit / 2 } else { limit };
            if *state.bytes.of(&piece) + piece.cost() > room {
                *state.dropped.of(&piece) += 1;
                return;
            }
            state.append_loss_notice();
            state.add(piece);
        }
        self.moved.notify_one();
    }

    /// No more items will follow.
    pub(crate) fn close(&self) {
        {
            self.state().closed.get_or_insert_with(Instant::now);
        }
        self.moved.notify_one();
    }

    /// The hub is away: restart the drain timer, so that its time counts from when the hub is back.
    pub(crate) fn restart_drain_timer(&self) {
        let mut state = self.state();
        state.closed = Some(Instant::now());
        state.settled = None;
    }

    /// How long the rest has been draining, and how long the hub has accepted nothing.
    pub(crate) fn drain_times(&self) -> (Duration, Duration) {
        let state = self.state();
        let closed = state.closed.unwrap_or_else(Instant::now);
        (closed.elapsed(), state.settled.unwrap_or(closed).elapsed())
    }

    /// Discards waiting items. A notice of that is sent last.
    pub(crate) fn abandon(&self, scope: DiscardScope) {
        let mut state = self.state();
        if state.is_last_word {
            return;
        }
        let is_lost = |is_artifact: bool| scope == DiscardScope::Everything || !is_artifact;
        if let Some(call) = state.call.take_if(|call| is_lost(call.artifact.is_some())) {
            let lost = if call.artifact.is_some() { &mut state.dropped.artifacts } else { &mut state.dropped.progress };
            *lost += 1;
        }
        let batch = state.batch.take_if(|batch| is_lost(is_artifact(&batch.piece))).map(|batch| batch.piece);
        let (lost, kept) = std::mem::take(&mut state.pieces).into_iter().partition(|piece| is_lost(is_artifact(piece)));
        let lost: VecDeque<ProgressItem> = lost;
        (state.pieces, state.bytes) = (VecDeque::new(), BacklogSize::default());
        for piece in lost.iter().chain(&batch) {
            *state.dropped.of(piece) += 1;
        }
        for piece in kept {
            state.add(piece);
        }
    }

    /// The next call: the last one again until it is accepted. `None` when everything was sent and no more items
    /// follow.
    pub(crate) async fn next(&self, epoch: i64) -> Option<ProgressRequest> {
        loop {
            let due = {
                let mut state = self.state();
                if let Some(call) = &state.call {
                    return Some(call.clone());
                }
                let complete = state.gather();
                let (now, due) = (Instant::now(), state.spoke.map(|spoke| spoke + COALESCE_INTERVAL));
                match state.batch.take().or_else(|| state.final_batch()) {
                    None if state.closed.is_some() => return None,
                    None => None,
                    Some(batch) if complete || due.is_none_or(|due| now >= due) => {
                        if batch.is_text() {
                            state.spoke = Some(now);
                        }
                        state.report += 1;
                        state.called = state.gathered;
                        let call = batch.request(epoch, state.report);
                        state.call = Some(call.clone());
                        return Some(call);
                    }
                    Some(batch) => {
                        state.batch = Some(batch);
                        due
                    }
                }
            };
            match due {
                Some(due) => _ = timeout_at(due, self.moved.notified()).await,
                None => self.moved.notified().await,
            }
        }
    }

    /// The hub accepted the call, or never will.
    pub(crate) fn mark_sent(&self) {
        {
            let mut state = self.state();
            state.call = None;
            state.heard = state.called;
            state.settled = Some(Instant::now());
        }
        self.heard.notify_waiters();
    }

    /// The hub refused the call because the log of the run is full. It will refuse all others too.
    pub(crate) fn fill_up(&self) {
        {
            let mut state = self.state();
            (state.is_full, state.bytes, state.dropped) = (true, BacklogSize::default(), BacklogSize::default());
            let refused = state.call.take().and_then(|call| call.usage).map(ProgressItem::Usage);
            let batch = state.batch.take().map(|batch| batch.piece);
            let waiting = std::mem::take(&mut state.pieces);
            let mut totals =
                refused.into_iter().chain(batch.into_iter().chain(waiting).filter_map(ProgressItem::usage_alone));
            let total = totals.next_back();
            (state.gathered, state.called, state.heard) = (state.added, state.added, state.added);
            // Each is a total, so the newest one is enough.
            if let Some(total) = total {
                state.add(total);
            }
            state.settled = Some(Instant::now());
        }
        self.heard.notify_waiters();
    }

    /// Waits until the hub has received everything pushed so far, without coalescing, for at most `patience`.
    pub(crate) async fn caught_up(&self, patience: Duration) {
        let goal = self.state().added;
        let all_heard = async {
            loop {
                let mut heard = pin!(self.heard.notified());
                heard.as_mut().enable();
                {
                    let mut state = self.state();
                    if state.heard >= goal {
                        return;
                    }
                    state.spoke = None;
                }
                self.moved.notify_one();
                heard.await;
            }
        };
        let _ = timeout(patience, all_heard).await;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, BacklogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl BacklogState ===

impl BacklogState {
    fn add(&mut self, piece: ProgressItem) {
        *self.bytes.of(&piece) += piece.cost();
        self.added += 1;
        self.pieces.push_back(piece);
    }

    /// Adds a notice where items are missing.
    fn append_loss_notice(&mut self) {
        if let Some(piece) = std::mem::take(&mut self.dropped).loss_notice() {
            self.add(piece);
        }
    }

    /// The notice at the end, after everything else was sent.
    fn final_batch(&mut self) -> Option<ProgressBatch> {
        let piece = self.closed.and_then(|_| std::mem::take(&mut self.dropped).loss_notice())?;
        self.is_last_word = true;
        Some(ProgressBatch::new(piece))
    }

    /// Moves fitting items into the batch. `true` if the batch is complete.
    fn gather(&mut self) -> bool {
        loop {
            if self.batch.as_ref().is_some_and(ProgressBatch::is_complete) {
                return true;
            }
            let Some(piece) = self.pieces.pop_front() else { return self.closed.is_some() };
            *self.bytes.of(&piece) -= piece.cost();
            if let Some(batch) = &mut self.batch {
                if let Err(piece) = batch.join(piece) {
                    *self.bytes.of(&piece) += piece.cost();
                    self.pieces.push_front(piece);
                    return true;
                }
            } else {
                self.batch = Some(ProgressBatch::new(piece));
            }
            self.gathered += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::{Json, wire::adapter};
    use futures_util::FutureExt as _;

    use super::*;

    /// Every call, each accepted immediately.
    async fn calls(backlog: &Backlog) -> Vec<String> {
        let mut calls = Vec::new();
        while let Some(call) = backlog.next(3).await {
            calls.push(serde_json::to_string(&call).unwrap());
            backlog.mark_sent();
        }
        calls
    }

    #[tokio::test]
    async fn texts_of_one_kind_share_a_report_and_reports_are_numbered() {
        let backlog = Backlog::after(10);
        for (name, data) in [
            ("progress", r#"{"message":"m","percent":5}"#),
            ("chunk", r#"{"text":"a"}"#),
            ("chunk", r#""b""#),
            ("log", r#"{"level":"info","message":"l"}"#),
            ("log", r#""second""#),
            ("tool_call", r#"{"n":1.0}"#),
            ("artifact", r#"{"artifact_id":"a","parts":[ {"data":1.0}]}"#),
            ("artifact", r#"{"artifact_id":"a","parts":[]}"#),
            ("thought", r#"{"text":"hm"}"#),
            ("chunk", r#"{"text":"c"}"#),
        ] {
            backlog.push(ProgressItem::read(name, data).unwrap());
        }
        backlog.close();
        assert_eq!(
            calls(&backlog).await,
            [
                r#"{"epoch":3,"report":11,"message":"m","percent":5.0}"#,
                r#"{"epoch":3,"report":12,"chunk":{"text":"ab"}}"#,
                r#"{"epoch":3,"report":13,"log":{"level":"info","message":"l"}}"#,
                r#"{"epoch":3,"report":14,"log":"second"}"#,
                r#"{"epoch":3,"report":15,"tool_call":{"n":1.0}}"#,
                r#"{"epoch":3,"report":16,"artifact":{"artifact_id":"a","parts":[ {"data":1.0}]}}"#,
                r#"{"epoch":3,"report":17,"log":{"level":"warning","message":"an artifact of 30 bytes can't be shown: it has no parts"}}"#,
                r#"{"epoch":3,"report":18,"thought":{"text":"hm"}}"#,
                r#"{"epoch":3,"report":19,"chunk":{"text":"c"}}"#,
            ]
        );
    }

    #[tokio::test]
    async fn the_first_text_is_sent_immediately_and_later_ones_are_joined() {
        let backlog = Backlog::default();
        let now = || backlog.next(1).now_or_never().flatten().map(|call| call.chunk.unwrap().get().to_owned());
        backlog.push(ProgressItem::Chunk("a".to_owned()));
        assert_eq!(now().as_deref(), Some(r#"{"text":"a"}"#));
        backlog.mark_sent();
        // As if it were sent later, so that the test doesn't depend on timing.
        backlog.state().spoke = Some(Instant::now() + 100 * COALESCE_INTERVAL);
        backlog.push(ProgressItem::Chunk("b".to_owned()));
        assert_eq!(now(), None);
        backlog.push(ProgressItem::Chunk("c".to_owned()));
        assert_eq!(now(), None);
        backlog.state().spoke = Instant::now().checked_sub(COALESCE_INTERVAL);
        assert_eq!(now().as_deref(), Some(r#"{"text":"bc"}"#));
    }

    #[tokio::test]
    async fn a_question_waits_until_earlier_items_are_received() {
        let backlog = Backlog::default();
        backlog.push(ProgressItem::Chunk("I would".to_owned()));
        backlog.next(1).await.unwrap();
        backlog.mark_sent();
        backlog.state().spoke = Some(Instant::now() + 100 * COALESCE_INTERVAL);
        backlog.push(ProgressItem::Chunk(" like to".to_owned()));
        let heard = async {
            backlog.next(1).await.unwrap();
            // Items after the question are not waited for.
            backlog.push(ProgressItem::Log(Json::of("still talking")));
            backlog.mark_sent();
        };
        let minute = Duration::from_secs(60);
        timeout(minute, async { tokio::join!(backlog.caught_up(2 * minute), heard) }).await.unwrap();
        // An unreachable hub is not waited for either.
        backlog.caught_up(Duration::from_millis(1)).await;
        assert!(backlog.next(1).await.unwrap().log.is_some());
        backlog.mark_sent();
        assert!(backlog.caught_up(minute).now_or_never().is_some(), "nothing is waiting");
    }

    #[tokio::test]
    async fn a_call_is_repeated_until_it_is_accepted() {
        let backlog = Backlog::default();
        backlog.push(ProgressItem::Chunk("a".into()));
        let first = backlog.next(1).await.map(|call| serde_json::to_string(&call).unwrap());
        backlog.push(ProgressItem::Chunk("b".into()));
        backlog.close();
        assert_eq!(backlog.next(1).await.map(|call| serde_json::to_string(&call).unwrap()), first);
        backlog.mark_sent();
        assert_eq!(calls(&backlog).await, [r#"{"epoch":3,"report":2,"chunk":{"text":"b"}}"#]);
    }

    #[tokio::test]
    async fn items_without_room_are_dropped_and_reported_once() {
        let backlog = Backlog::default();
        let pieces = MAX_PROGRESS_BYTES / ProgressItem::Chunk("~".repeat(4096)).cost();
        for _ in 0..pieces + 7 {
            backlog.push(ProgressItem::Chunk("~".repeat(4096)));
        }
        backlog.close();
        let calls = calls(&backlog).await;
        let text: usize = calls.iter().map(|call| call.matches('~').count()).sum();
        assert_eq!(text, pieces * 4096);
        assert!(calls.iter().all(|call| call.len() < 60 << 10), "every call fits");
        let notices: Vec<&String> = calls.iter().filter(|call| call.contains("are missing here")).collect();
        assert!(matches!(notices[..], [one] if one.contains("\"7 progress updates") && Some(one) == calls.last()));
    }

    #[tokio::test]
    async fn abandoned_items_are_reported() {
        let backlog = Backlog::default();
        backlog.push(ProgressItem::Chunk("a".into()));
        backlog.next(1).await.unwrap();
        backlog.push(ProgressItem::Log(Json::of("l")));
        backlog.close();
        backlog.abandon(DiscardScope::Progress);
        let calls = calls(&backlog).await;
        assert!(calls.len() == 1 && calls[0].contains("\"2 progress updates are missing here"), "{calls:?}");
    }

    fn artifact(size: usize) -> ProgressItem {
        ProgressItem::Artifact(Json::of(&"a".repeat(size)))
    }

    #[tokio::test]
    async fn artifacts_and_progress_have_separate_limits() {
        let backlog = Backlog::default();
        for _ in 0..MAX_ARTIFACT_BYTES / (1 << 20) {
            backlog.push(artifact(1 << 20));
        }
        backlog.push(ProgressItem::Log(Json::of("l")));
        backlog.push(ProgressItem::Chunk("c".to_owned()));
        backlog.close();
        let calls = calls(&backlog).await;
        let short: Vec<&String> = calls.iter().filter(|call| call.len() < 1 << 20).collect();
        let missing = "1 artifacts and 0 progress updates are missing here: the hub was away or too slow; \
                       the result does not contain these artifacts";
        // The last artifact doesn't fit, while progress has its own room.
        assert_eq!(
            short,
            [
                &format!(r#"{{"epoch":3,"report":32,"log":{{"level":"warning","message":"{missing}"}}}}"#),
                r#"{"epoch":3,"report":33,"log":"l"}"#,
                r#"{"epoch":3,"report":34,"chunk":{"text":"c"}}"#
            ]
        );
        assert_eq!(calls.len(), 34);
    }

    #[tokio::test]
    async fn progress_is_discarded_before_artifacts() {
        let backlog = Backlog::default();
        for piece in [ProgressItem::Log(Json::of("one")), artifact(1), ProgressItem::Log(Json::of("two")), artifact(2)]
        {
            backlog.push(piece);
        }
        backlog.close();
        backlog.next(1).await.unwrap();
        backlog.abandon(DiscardScope::Progress);
        let first = backlog.next(1).await.unwrap();
        assert_eq!(first.artifact.unwrap().get(), r#""a""#);
        backlog.abandon(DiscardScope::Progress);
        assert_eq!(backlog.next(1).await.unwrap().report, first.report, "the call is still in flight");
        backlog.mark_sent();
        backlog.abandon(DiscardScope::Everything);
        let last = backlog.next(1).await.unwrap();
        let line: adapter::AdapterLogLine = last.log.unwrap().parse().unwrap();
        assert!(line.message.starts_with("1 artifacts and 2 progress updates are missing here"), "{line:?}");
        backlog.abandon(DiscardScope::Everything);
        assert_eq!(backlog.next(1).await.unwrap().report, last.report, "the notice itself is not discarded");
        backlog.mark_sent();
        assert_eq!(backlog.next(1).await, None);
    }

    #[tokio::test]
    async fn the_drain_timer_restarts_while_the_hub_accepts() {
        let (backlog, minute) = (Backlog::default(), Duration::from_secs(60));
        // Which of the two exceed a minute.
        let patience = || Into::<[Duration; 2]>::into(backlog.drain_times()).map(|time| time >= minute);
        backlog.push(ProgressItem::Log(Json::of("l")));
        backlog.close();
        assert_eq!(patience(), [false, false]);
        backlog.state().closed = Instant::now().checked_sub(minute);
        assert_eq!(patience(), [true, true]);
        backlog.next(1).await.unwrap();
        backlog.mark_sent();
        assert_eq!(patience(), [true, false]);
        backlog.restart_drain_timer();
        assert_eq!(patience(), [false, false]);
    }
}
