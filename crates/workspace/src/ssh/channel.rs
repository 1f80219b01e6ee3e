//! SFTP as a subsystem: requests are queued as they arrive, and the channel's own thread answers them in order.
//!
//! Clients rely on the order (a write, then a close, then a rename). A thread can block in a file operation without
//! delaying other channels, and is fastest if it never waits while requests are queued. A single quick request that
//! finds the thread idle is answered where it arrives: waking two threads costs more than the work.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    backpressure::RequestBackpressure,
    subsystem::{ChannelOutbox, RequestQueue, Subsystem, SubsystemChannel, SubsystemInbox},
};
use crate::sftp::{SftpSession, first_packet, is_quick};

/// Replies are sent at this size, or when nothing is left to answer.
const REPLY_BATCH: usize = 64 * 1024;

pub(super) struct Sftp;

struct SftpInbox {
    queue: RequestQueue,
    conversation: Mutex<SftpSession>,
}

// === impl Sftp ===

impl Subsystem for Sftp {
    fn name(&self) -> &'static str {
        "sftp"
    }

    fn start(&self, channel: SubsystemChannel) -> io::Result<Arc<dyn SubsystemInbox>> {
        let SubsystemChannel { export, locator, handles, gate, outbox, running, .. } = channel;
        let conversation = SftpSession::new(export, &locator, handles);
        let queue = RequestQueue::new(Arc::clone(&gate));
        let inbox = Arc::new(SftpInbox { queue, conversation: Mutex::new(conversation) });
        let requests = Arc::clone(&inbox);
        std::thread::Builder::new().name("sftp".to_owned()).spawn(move || {
            answer_all(&requests, &gate, &outbox);
            drop(running);
        })?;
        Ok(inbox)
    }
}

/// Answers until the client has no more requests, or is gone. Then closes the channel.
fn answer_all(inbox: &SftpInbox, gate: &RequestBackpressure, outbox: &ChannelOutbox) {
    let left_over = converse(inbox, gate, outbox);
    inbox.queue.abandon();
    inbox.queue.answered(left_over);
    outbox.close();
}

/// Returns how many bytes are left unanswered.
fn converse(inbox: &SftpInbox, gate: &RequestBackpressure, outbox: &ChannelOutbox) -> usize {
    let mut requests = Vec::new();
    let mut replies = Vec::new();
    while inbox.queue.take(&mut requests) {
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
            if replies.len() >= REPLY_BATCH && !outbox.send(gate, std::mem::take(&mut replies)) {
                return requests.len();
            }
        }
        drop(conversation);
        let answered = requests.len() - rest.len();
        requests.drain(..answered);
        inbox.queue.answered(answered);
        if !replies.is_empty() && !outbox.send(gate, std::mem::take(&mut replies)) {
            break;
        }
    }
    requests.len()
}

// === impl SftpInbox ===

impl SubsystemInbox for SftpInbox {
    /// The reply, if the input is a single quick request and nothing is queued before it.
    fn answer_inline(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let is_idle = self.queue.is_idle();
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

    fn push(&self, bytes: &[u8]) {
        self.queue.push(bytes);
    }

    fn finish(&self) {
        self.queue.finish();
    }

    fn abandon(&self) {
        self.queue.abandon();
    }
}
