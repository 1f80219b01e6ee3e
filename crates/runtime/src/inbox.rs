//! What arrives over the channel: claims waiting their turn, runs to stop, and input for the executing run.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use attache_client::channel::{ChannelEvent, ChannelHandle, ChannelPeer};
use attache_protocol::{
    InputId, Json, RunId,
    wire::{envelope::Ready, run::ClaimedRun},
};
use tokio::{sync::watch, time::Instant};

use crate::{
    RuntimeNotice,
    claims::HeldClaims,
    connection_status::{ConnectionMode, ConnectionStatusFile},
    link::HubLink,
    worktree_decisions::WorktreeNotice,
};

#[derive(Debug)]
pub(crate) struct ChannelInbox {
    state: Mutex<InboxState>,
    /// Changes when anything in here does.
    moved: watch::Sender<u64>,
    claims: HeldClaims,
    link: HubLink,
    presence: ConnectionStatusFile,
    worktree_notice: Arc<WorktreeNotice>,
}

#[derive(Debug, Default)]
struct InboxState {
    claimed: VecDeque<ClaimedRun>,
    inputs: VecDeque<(RunId, CallerInput)>,
    /// Input that the adapter accepted, of runs at work.
    accepted: Vec<(RunId, InputId)>,
    /// Runs that, according to the hub, this device no longer holds. The hub doesn't say which claim it means.
    doubted: VecDeque<RunId>,
    /// The ids of recently received inputs.
    heard: VecDeque<String>,
    /// Counts connections, so that a credit can be matched to the open one.
    connection: u64,
    is_open: bool,
    /// The connection over which an unused credit was granted.
    credit: Option<u64>,
    /// Since when a claim may be in flight over a broken connection.
    unsure: Option<Instant>,
    /// Until when claims in flight may still arrive over the new connection.
    settling: Option<Instant>,
    /// The answer to a pull was lost, and it may have been a claim.
    is_answer_lost: bool,
}

/// Unsolicited input from the caller of a run.
#[derive(Debug, Clone)]
pub(crate) struct CallerInput {
    /// The hub's id, if it says it.
    pub(crate) id: Option<InputId>,
    pub(crate) parts: Json,
}

/// How many inputs can wait for the run, and how many ids are remembered.
const MAX_INPUTS: usize = 64;
const SETTLING_INTERVAL: Duration = Duration::from_secs(3);
/// By then the hub has given up on a broken connection, and no claim is made over it any more.
const UNSURE_TIMEOUT: Duration = Duration::from_secs(150);

// === impl ChannelInbox ===

impl ChannelInbox {
    pub(crate) fn new(
        claims: HeldClaims,
        link: HubLink,
        presence: ConnectionStatusFile,
        worktree_notice: Arc<WorktreeNotice>,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            moved: watch::Sender::new(0),
            claims,
            link,
            presence,
            worktree_notice,
        })
    }

    /// The next claim that arrived over the channel.
    pub(crate) fn pop(&self) -> Option<ClaimedRun> {
        self.state().claimed.pop_front()
    }

    /// Changes whenever something arrives or the connection changes.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// Unsolicited input from the caller of the run.
    pub(crate) async fn input(&self, run: RunId) -> CallerInput {
        let mut moved = self.watch();
        loop {
            {
                let mut state = self.state();
                let place = state.inputs.iter().position(|(of, _)| *of == run);
                if let Some((_, input)) = place.and_then(|place| state.inputs.remove(place)) {
                    return input;
                }
            }
            // The sender lives in `self`, so waiting can't fail.
            let _ = moved.changed().await;
        }
    }

    /// The adapter accepted this input.
    pub(crate) fn accept(&self, run: RunId, input: Option<InputId>) {
        self.state().accepted.extend(input.map(|input| (run, input)));
    }

    /// The run has ended. Returns which of its input the adapter accepted; what still waits never gets there.
    pub(crate) fn close(&self, run: RunId) -> Vec<InputId> {
        let mut state = self.state();
        state.inputs.retain(|(of, _)| *of != run);
        state.accepted.extract_if(.., |(of, _)| *of == run).map(|(_, input)| input).collect()
    }

    /// Waits until the hub says that this device doesn't hold the run.
    pub(crate) async fn claim_questioned(&self, run: RunId) {
        let mut moved = self.watch();
        while !self.is_doubted(run) {
            let _ = moved.changed().await;
        }
    }

    /// Whether the hub said so since the last check.
    pub(crate) fn is_doubted(&self, run: RunId) -> bool {
        let mut state = self.state();
        let before = state.doubted.len();
        state.doubted.retain(|doubted| *doubted != run);
        state.doubted.len() < before
    }

    /// The hub says that this device doesn't hold the run. It may mean an earlier claim, so the holder asks the hub.
    pub(crate) fn question_claim(&self, run: RunId) {
        {
            let mut state = self.state();
            if self.claims.named().contains(&run) && !state.doubted.contains(&run) {
                state.doubted.push_back(run);
            }
        }
        self.notify_watchers();
    }

    /// Input that did not arrive over the channel.
    pub(crate) fn give_input(&self, run: RunId, input: CallerInput) {
        {
            let mut state = self.state();
            if state.inputs.len() >= MAX_INPUTS {
                tracing::warn!(run.id = %run, "the adapter does not accept input; dropping some of it");
                state.inputs.pop_front();
            }
            state.inputs.push_back((run, input));
        }
        self.notify_watchers();
    }

    /// Whether the hub can be granted a run: none was granted over this connection.
    pub(crate) fn may_grant(&self) -> bool {
        let state = self.state();
        state.is_open && state.credit != Some(state.connection)
    }

    /// Grants the hub one run, unless one was already granted over this connection.
    pub(crate) async fn grant(&self, channel: &ChannelHandle, enforces: Vec<String>) {
        {
            let mut state = self.state();
            if !state.is_open || state.credit == Some(state.connection) {
                return;
            }
            // Set before it is sent: the run may arrive immediately.
            state.credit = Some(state.connection);
        }
        if let Err(error) = channel.notify(Ready { credits: 1, enforces: Some(enforces) }.payload()).await {
            tracing::debug!(%error, "failed to grant a credit");
        }
    }

    /// Revokes the credit.
    pub(crate) async fn revoke(&self, channel: &ChannelHandle) {
        self.state().credit = None;
        if let Err(error) = channel.notify(Ready { credits: 0, enforces: None }.payload()).await {
            tracing::debug!(%error, "failed to revoke the credit");
        }
    }

    /// Whether a claim that this device doesn't know of may be in flight.
    pub(crate) fn expects(&self) -> ClaimExpectation {
        let state = self.state();
        match (state.unsure, state.credit) {
            _ if state.settling.is_some_and(|until| Instant::now() < until) => ClaimExpectation::Unsure,
            (Some(since), _) if since.elapsed() < UNSURE_TIMEOUT => ClaimExpectation::Unsure,
            (Some(_), _) => ClaimExpectation::Overdue,
            (None, _) if state.is_answer_lost => ClaimExpectation::Overdue,
            (None, Some(_)) if state.is_open => ClaimExpectation::Perhaps,
            (None, _) => ClaimExpectation::Nothing,
        }
    }

    /// The hub confirmed that nothing is in flight.
    pub(crate) fn clear_expectation(&self) {
        let mut state = self.state();
        state.unsure = None;
        state.is_answer_lost = false;
    }

    /// A pull may have been answered with a claim. The hub must be asked before it is told what executes here.
    pub(crate) fn mark_pull_answer_lost(&self) {
        self.state().is_answer_lost = true;
    }

    fn notify_watchers(&self) {
        self.moved.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn state(&self) -> std::sync::MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimExpectation {
    Nothing,
    /// Over the open connection.
    Perhaps,
    /// Over a broken connection.
    Unsure,
    /// Over a broken connection, for so long that the hub must be asked, or in a lost answer.
    Overdue,
}

impl ChannelPeer for ChannelInbox {
    fn running(&self) -> Option<Vec<RunId>> {
        Some(self.claims.started_runs())
    }

    fn receive(&self, event: ChannelEvent) {
        match event {
            ChannelEvent::Connected { channel, .. } => {
                {
                    let mut state = self.state();
                    state.connection += 1;
                    state.is_open = true;
                    state.credit = None;
                    // What was in flight arrives again over this connection, or went back to the queue.
                    if state.unsure.take().is_some() {
                        state.settling = Some(Instant::now() + SETTLING_INTERVAL);
                    }
                }
                self.link.hub_answered();
                if self.presence.set(ConnectionMode::Channel(channel)) {
                    self.link.notify(&RuntimeNotice::ChannelOpen { channel });
                }
            }
            ChannelEvent::Broken(error) => {
                {
                    let mut state = self.state();
                    if state.is_open && state.credit.take().is_some() {
                        state.unsure.get_or_insert_with(Instant::now);
                    }
                    state.is_open = false;
                }
                if error.is_denied() {
                    self.link.failed(&error);
                }
                if self.presence.set(ConnectionMode::Pull(error.to_string())) {
                    self.link.notify(&RuntimeNotice::ChannelBroken { reason: error.to_string() });
                }
            }
            ChannelEvent::Execute(claimed) => {
                let (run, epoch) = (claimed.task_run_id, claimed.epoch);
                let mut state = self.state();
                state.credit = None;
                // Held before it is acknowledged, so that a new channel names it.
                if self.claims.take_new(run, epoch).is_some() {
                    state.claimed.push_back(*claimed);
                } else {
                    tracing::debug!(run.id = %run, epoch, "ignored a claim that was handed back or is already held");
                }
            }
            ChannelEvent::Cancel(run) => self.question_claim(run),
            // It came too late. The hub tells its sender.
            ChannelEvent::Input { run, .. } if !self.claims.named().contains(&run) => {
                tracing::debug!(run.id = %run, "ignored input to a run that isn't at work here");
            }
            ChannelEvent::Input { run, parts, input_id, msg_id } => {
                {
                    let mut state = self.state();
                    if state.heard.contains(&msg_id) {
                        return;
                    }
                    state.heard.push_back(msg_id);
                    if state.heard.len() > MAX_INPUTS {
                        state.heard.pop_front();
                    }
                }
                self.give_input(run, CallerInput { id: input_id, parts });
            }
            ChannelEvent::WorktreeDecisions => self.worktree_notice.give(),
            ChannelEvent::Drain => tracing::debug!("the hub is draining"),
            ChannelEvent::Other(frame) => tracing::debug!(action = frame.action(), "ignored an unknown frame"),
        }
        self.notify_watchers();
    }
}
