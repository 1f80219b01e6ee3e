//! One SFTP channel: requests are queued as they arrive, and the channel's own thread answers them in order.
//!
//! Clients rely on the order (a write, then a close, then a rename). A thread can block in a file operation without
//! delaying other channels, and is fastest if it never waits while requests are queued. A single quick request that
//! finds the thread idle is answered where it arrives: waking two threads costs more than the work.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use russh::{ChannelId, server::Handle};
use tokio::runtime;

use super::backpressure::RequestBackpressure;
use crate::sftp::{SftpSession, first_packet, is_quick};

/// Replies are sent at this size, or when nothing is left to answer.
const REPLY_BATCH: usize = 64 * 1024;

/// Received requests of one channel that are not answered yet. The connection's [`RequestBackpressure`] limits their
/// size.
pub(super) struct SftpInbox {
    gate: Arc<RequestBackpressure>,
    state: Mutex<SftpInboxState>,
    arrived: Condvar,
    conversation: Mutex<SftpSession>,
}

#[derive(Debug, Default)]
struct SftpInboxState {
    bytes: Vec<u8>,
    /// The thread has requests, or the start of one.
    at_work: bool,
    end: SftpInboxEnd,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SftpInboxEnd {
    #[default]
    Open,
    /// No more requests follow. Those here are still answered.
    Finished,
    /// The client is gone.
    Gone,
}

/// Sends replies to the client.
pub(super) struct SftpOutbox {
    pub(super) runtime: runtime::Handle,
    pub(super) session: Handle,
    pub(super) channel: ChannelId,
}

/// Answers until the client has no more requests, or is gone. Then closes the channel.
pub(super) fn answer_all(inbox: &SftpInbox, outbox: &SftpOutbox) {
    let left_over = converse(inbox, outbox);
    inbox.abandon();
    inbox.gate.answered(left_over);
    outbox.close();
}

/// Returns how many bytes are left unanswered.
fn converse(inbox: &SftpInbox, outbox: &SftpOutbox) -> usize {
    let mut requests = Vec::new();
    let mut replies = Vec::new();
    while inbox.take(&mut requests) {
        let mut rest = requests.as_slice();
        let mut conversation = inbox.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let packet = match first_packet(rest) {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, "closing the SFTP channel");
                    return requests.len();
                }
            };
            rest = &rest[4 + packet.len()..];
            if let Err(error) = conversation.answer(packet, &mut replies) {
                tracing::debug!(%error, "closing the SFTP channel");
                return requests.len();
            }
            if replies.len() >= REPLY_BATCH && !inbox.gate.while_stalled(|| outbox.send(&mut replies)) {
                return requests.len();
            }
        }
        drop(conversation);
        let answered = requests.len() - rest.len();
        requests.drain(..answered);
        inbox.gate.answered(answered);
        if !replies.is_empty() && !inbox.gate.while_stalled(|| outbox.send(&mut replies)) {
            break;
        }
    }
    requests.len()
}

// === impl SftpInbox ===

impl SftpInbox {
    pub(super) fn new(gate: Arc<RequestBackpressure>, conversation: SftpSession) -> Self {
        Self { gate, state: Mutex::default(), arrived: Condvar::new(), conversation: Mutex::new(conversation) }
    }

    /// The reply, if the input is a single quick request and nothing is queued before it.
    pub(super) fn answer_inline(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = state.end == SftpInboxEnd::Open && !state.at_work && state.bytes.is_empty();
        drop(state);
        let packet = first_packet(bytes).ok().flatten().filter(|packet| packet.len() + 4 == bytes.len())?;
        if !is_idle || !is_quick(packet) {
            return None;
        }
        // Only the caller passes new requests to the thread, so it stays idle meanwhile.
        let mut conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        let mut replies = Vec::new();
        // An end of the session is handled on the thread, which then closes the channel.
        conversation.answer(packet, &mut replies).is_ok().then_some(replies)
    }

    pub(super) fn push(&self, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.end == SftpInboxEnd::Open {
            state.bytes.extend_from_slice(bytes);
            self.gate.add(bytes.len());
            drop(state);
            self.arrived.notify_one();
        }
    }

    pub(super) fn finish(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.end == SftpInboxEnd::Open {
            state.end = SftpInboxEnd::Finished;
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Queued requests are no longer answered.
    pub(super) fn abandon(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.end = SftpInboxEnd::Gone;
        self.gate.answered(std::mem::take(&mut state.bytes).len());
        drop(state);
        self.arrived.notify_one();
    }

    /// Waits for more, and appends it to what is left. `false` if nothing more comes.
    fn take(&self, requests: &mut Vec<u8>) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.at_work = !requests.is_empty();
        let is_idle = |state: &mut SftpInboxState| state.bytes.is_empty() && state.end == SftpInboxEnd::Open;
        let mut state = self.arrived.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
        if state.end == SftpInboxEnd::Gone || state.bytes.is_empty() {
            return false;
        }
        state.at_work = true;
        if requests.is_empty() {
            std::mem::swap(requests, &mut state.bytes);
        } else {
            requests.append(&mut state.bytes);
        }
        true
    }
}

// === impl SftpOutbox ===

impl SftpOutbox {
    /// Sends the replies. `false` if the connection is gone.
    fn send(&self, replies: &mut Vec<u8>) -> bool {
        let batch = std::mem::take(replies);
        self.runtime.block_on(self.session.data(self.channel, batch)).is_ok()
    }

    /// Like a program that exits successfully, which `sftp` clients wait for.
    fn close(&self) {
        self.runtime.block_on(async {
            let _ = self.session.exit_status_request(self.channel, 0).await;
            let _ = self.session.eof(self.channel).await;
            let _ = self.session.close(self.channel).await;
        });
    }
}
