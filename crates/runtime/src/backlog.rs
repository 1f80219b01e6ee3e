//! What the hub has not heard yet of a run: in its order, within a bound, kept while the hub is away.

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

/// Filled by whoever listens to the adapter and emptied by one teller.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    state: Mutex<BacklogState>,
    moved: Notify,
    /// Rings whenever the hub took a call.
    heard: Notify,
}

#[derive(Debug, Default)]
struct BacklogState {
    /// Made and not yet taken by the hub; it is repeated as it is.
    call: Option<ProgressRequest>,
    /// The number of the newest report, which tells a repeated one from a new one.
    report: i64,
    /// When text was last told.
    spoke: Option<Instant>,
    /// The call after it, in the making.
    batch: Option<ProgressBatch>,
    pieces: VecDeque<ProgressItem>,
    /// How far each piece has come, as the number of the newest one.
    added: u64,
    gathered: u64,
    called: u64,
    heard: u64,
    /// What they take of the room for progress, and of that for what the agent made.
    bytes: BacklogSize,
    /// How many pieces found no room and are not confessed yet.
    dropped: BacklogSize,
    /// When nothing more was to come, or the patience with the hub began anew.
    closed: Option<Instant>,
    /// When the hub last took a call since then.
    settled: Option<Instant>,
    /// Nothing is left but the news of what is missing, which is never given up.
    is_last_word: bool,
    /// The log of the run takes no more events. The hub has said so in it; only totals of what was used are still told.
    is_full: bool,
}

/// What is given up of what still waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BacklogDiscard {
    /// All but what the agent made.
    Progress,
    Everything,
}

/// How soon text may follow text; what comes in between is gathered. The first word is not kept waiting.
const COALESCE_INTERVAL: Duration = Duration::from_millis(50);

// === impl Backlog ===

impl Backlog {
    /// Reports are counted from here on.
    pub(crate) fn after(report: i64) -> Self {
        Self { state: Mutex::new(BacklogState { report, ..BacklogState::default() }), ..Self::default() }
    }

    /// Takes the piece if there is room. It never waits: progress must not delay the result.
    pub(crate) fn push(&self, piece: ProgressItem) {
        {
            let mut state = self.state();
            let Some(piece) = (if state.is_full { piece.usage_alone() } else { Some(piece) }) else { return };
            let limit = if is_artifact(&piece) { MAX_ARTIFACT_BYTES } else { MAX_PROGRESS_BYTES };
            // After a gap there must be real room again, or there would be a gap after every piece.
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

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        {
            self.state().closed.get_or_insert_with(Instant::now);
        }
        self.moved.notify_one();
    }

    /// The hub is away: how long it takes to hear the rest counts from when it is back.
    pub(crate) fn restart_drain_timer(&self) {
        let mut state = self.state();
        state.closed = Some(Instant::now());
        state.settled = None;
    }

    /// For how long the hub has been hearing the rest, and for how long it has taken nothing of it.
    pub(crate) fn drain_times(&self) -> (Duration, Duration) {
        let state = self.state();
        let closed = state.closed.unwrap_or_else(Instant::now);
        (closed.elapsed(), state.settled.unwrap_or(closed).elapsed())
    }

    /// Gives up what still waits; the news of that is told last.
    pub(crate) fn abandon(&self, loss: BacklogDiscard) {
        let mut state = self.state();
        if state.is_last_word {
            return;
        }
        let is_lost = |is_artifact: bool| loss == BacklogDiscard::Everything || !is_artifact;
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

    /// The call to make now: the last one again until it is told. None when all is told and nothing more comes.
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

    /// The hub took the call, or will never take it.
    pub(crate) fn mark_sent(&self) {
        {
            let mut state = self.state();
            state.call = None;
            state.heard = state.called;
            state.settled = Some(Instant::now());
        }
        self.heard.notify_waiters();
    }

    /// The hub refused the call, because the log of the run is full: it will refuse every other one too.
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
            // Each is a total, so the newest says all.
            if let Some(total) = total {
                state.add(total);
            }
            state.settled = Some(Instant::now());
        }
        self.heard.notify_waiters();
    }

    /// Waits until the hub has heard what was pushed so far, at once instead of gathered; no longer than `patience`.
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

    /// Says what is missing, where it is missing.
    fn append_loss_notice(&mut self) {
        if let Some(piece) = std::mem::take(&mut self.dropped).loss_notice() {
            self.add(piece);
        }
    }

    /// The same at the end, when all that is left was told.
    fn final_batch(&mut self) -> Option<ProgressBatch> {
        let piece = self.closed.and_then(|_| std::mem::take(&mut self.dropped).loss_notice())?;
        self.is_last_word = true;
        Some(ProgressBatch::new(piece))
    }

    /// Moves what fits into the batch; true when the batch need not wait for more.
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

    /// Every call, each told at once.
    async fn calls(backlog: &Backlog) -> Vec<String> {
        let mut calls = Vec::new();
        while let Some(call) = backlog.next(3).await {
            calls.push(serde_json::to_string(&call).unwrap());
            backlog.mark_sent();
        }
        calls
    }

    #[tokio::test]
    async fn texts_of_a_kind_share_a_report_and_reports_are_counted() {
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
                r#"{"epoch":3,"report":17,"log":{"level":"warning","message":"an artifact of 30 bytes cannot be shown: it has no parts"}}"#,
                r#"{"epoch":3,"report":18,"thought":{"text":"hm"}}"#,
                r#"{"epoch":3,"report":19,"chunk":{"text":"c"}}"#,
            ]
        );
    }

    #[tokio::test]
    async fn the_first_word_goes_at_once_and_the_next_ones_together() {
        let backlog = Backlog::default();
        let now = || backlog.next(1).now_or_never().flatten().map(|call| call.chunk.unwrap().get().to_owned());
        backlog.push(ProgressItem::Chunk("a".to_owned()));
        assert_eq!(now().as_deref(), Some(r#"{"text":"a"}"#));
        backlog.mark_sent();
        // As if it were told at a later moment, so that the test does not depend on how fast it is.
        backlog.state().spoke = Some(Instant::now() + 100 * COALESCE_INTERVAL);
        backlog.push(ProgressItem::Chunk("b".to_owned()));
        assert_eq!(now(), None);
        backlog.push(ProgressItem::Chunk("c".to_owned()));
        assert_eq!(now(), None);
        backlog.state().spoke = Instant::now().checked_sub(COALESCE_INTERVAL);
        assert_eq!(now().as_deref(), Some(r#"{"text":"bc"}"#));
    }

    #[tokio::test]
    async fn whoever_asks_waits_until_all_was_heard_and_no_longer() {
        let backlog = Backlog::default();
        backlog.push(ProgressItem::Chunk("I would".to_owned()));
        backlog.next(1).await.unwrap();
        backlog.mark_sent();
        backlog.state().spoke = Some(Instant::now() + 100 * COALESCE_INTERVAL);
        backlog.push(ProgressItem::Chunk(" like to".to_owned()));
        let heard = async {
            backlog.next(1).await.unwrap();
            // What is said after the question is not waited for.
            backlog.push(ProgressItem::Log(Json::of("still talking")));
            backlog.mark_sent();
        };
        let minute = Duration::from_secs(60);
        timeout(minute, async { tokio::join!(backlog.caught_up(2 * minute), heard) }).await.unwrap();
        // A hub that is away is not waited for either.
        backlog.caught_up(Duration::from_millis(1)).await;
        assert!(backlog.next(1).await.unwrap().log.is_some());
        backlog.mark_sent();
        assert!(backlog.caught_up(minute).now_or_never().is_some(), "nothing is left");
    }

    #[tokio::test]
    async fn a_call_is_repeated_until_it_is_told() {
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
    async fn what_finds_no_room_is_dropped_and_confessed_once() {
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
        let confessed: Vec<&String> = calls.iter().filter(|call| call.contains("are missing here")).collect();
        assert!(matches!(confessed[..], [one] if one.contains("\"7 pieces of progress") && Some(one) == calls.last()));
    }

    #[tokio::test]
    async fn what_is_abandoned_is_confessed() {
        let backlog = Backlog::default();
        backlog.push(ProgressItem::Chunk("a".into()));
        backlog.next(1).await.unwrap();
        backlog.push(ProgressItem::Log(Json::of("l")));
        backlog.close();
        backlog.abandon(BacklogDiscard::Progress);
        let calls = calls(&backlog).await;
        assert!(calls.len() == 1 && calls[0].contains("\"2 pieces of progress are missing here"), "{calls:?}");
    }

    fn artifact(size: usize) -> ProgressItem {
        ProgressItem::Artifact(Json::of(&"a".repeat(size)))
    }

    #[tokio::test]
    async fn artifacts_and_progress_take_none_of_each_others_room() {
        let backlog = Backlog::default();
        for _ in 0..MAX_ARTIFACT_BYTES / (1 << 20) {
            backlog.push(artifact(1 << 20));
        }
        backlog.push(ProgressItem::Log(Json::of("l")));
        backlog.push(ProgressItem::Chunk("c".to_owned()));
        backlog.close();
        let calls = calls(&backlog).await;
        let short: Vec<&String> = calls.iter().filter(|call| call.len() < 1 << 20).collect();
        let missing = "1 artifacts and 0 pieces of progress are missing here: the hub was away or too slow; \
                       the result comes without these artifacts";
        // The last artifact finds no room beside the others, and the progress has all of its own.
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
    async fn progress_is_given_up_before_what_the_agent_made() {
        let backlog = Backlog::default();
        for piece in [ProgressItem::Log(Json::of("one")), artifact(1), ProgressItem::Log(Json::of("two")), artifact(2)]
        {
            backlog.push(piece);
        }
        backlog.close();
        backlog.next(1).await.unwrap();
        backlog.abandon(BacklogDiscard::Progress);
        let first = backlog.next(1).await.unwrap();
        assert_eq!(first.artifact.unwrap().get(), r#""a""#);
        backlog.abandon(BacklogDiscard::Progress);
        assert_eq!(backlog.next(1).await.unwrap().report, first.report, "the call is still under way");
        backlog.mark_sent();
        backlog.abandon(BacklogDiscard::Everything);
        let last = backlog.next(1).await.unwrap();
        let line: adapter::AdapterLogLine = last.log.unwrap().parse().unwrap();
        assert!(line.message.starts_with("1 artifacts and 2 pieces of progress are missing here"), "{line:?}");
        backlog.abandon(BacklogDiscard::Everything);
        assert_eq!(backlog.next(1).await.unwrap().report, last.report, "the news itself is not given up");
        backlog.mark_sent();
        assert_eq!(backlog.next(1).await, None);
    }

    #[tokio::test]
    async fn patience_lasts_as_long_as_the_hub_hears() {
        let (backlog, minute) = (Backlog::default(), Duration::from_secs(60));
        // Which of the two are more than a minute.
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
