//! The protocols that a lease's holder can speak on a channel. Each is an SSH subsystem over the same export;
//! authentication, cutting and backpressure are the connection's.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use russh::{ChannelId, server::Handle};
use tokio::{runtime, sync::Semaphore};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::backpressure::RequestBackpressure;
use crate::{export::Export, fs_server::FsMounts};

/// A protocol.
pub(crate) trait Subsystem: Send + Sync {
    /// The name in the client's request.
    fn name(&self) -> &'static str;

    /// Starts it on a channel, on threads of its own.
    fn start(&self, channel: SubsystemChannel) -> io::Result<Arc<dyn SubsystemInbox>>;
}

/// A channel of a lease.
pub(crate) struct SubsystemChannel {
    pub(crate) export: Arc<Export>,
    /// The server's name for the export.
    pub(crate) locator: String,
    /// How many more files the lease can open.
    pub(crate) handles: Arc<Semaphore>,
    /// What attache-fs keeps from one connection to the next.
    pub(crate) mounts: Arc<FsMounts>,
    pub(crate) gate: Arc<RequestBackpressure>,
    pub(crate) outbox: ChannelOutbox,
    /// The connection's end waits until this is dropped.
    pub(crate) running: TaskTrackerToken,
}

/// Takes what arrives on a channel.
pub(crate) trait SubsystemInbox: Send + Sync {
    /// The reply, if it can be had without any delay.
    fn answer_inline(&self, _bytes: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn push(&self, bytes: &[u8]);

    /// No more requests follow. Those here are still answered.
    fn finish(&self);

    /// The client is gone.
    fn abandon(&self);
}

/// Received requests of one channel that are not answered yet. The connection's [`RequestBackpressure`] limits their
/// size.
pub(crate) struct RequestQueue {
    gate: Arc<RequestBackpressure>,
    state: Mutex<RequestQueueState>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct RequestQueueState {
    bytes: Vec<u8>,
    /// The thread has requests, or the start of one.
    at_work: bool,
    end: RequestQueueEnd,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum RequestQueueEnd {
    #[default]
    Open,
    Finished,
    Gone,
}

/// Sends to the client.
#[derive(Clone)]
pub(crate) struct ChannelOutbox {
    pub(super) runtime: runtime::Handle,
    pub(super) session: Handle,
    pub(super) channel: ChannelId,
}

// === impl RequestQueue ===

impl RequestQueue {
    pub(crate) fn new(gate: Arc<RequestBackpressure>) -> Self {
        Self { gate, state: Mutex::default(), arrived: Condvar::new() }
    }

    /// Whether nothing is queued or being answered.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.end == RequestQueueEnd::Open && !state.at_work && state.bytes.is_empty()
    }

    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.end == RequestQueueEnd::Open {
            state.bytes.extend_from_slice(bytes);
            self.gate.add(bytes.len());
            drop(state);
            self.arrived.notify_one();
        }
    }

    pub(crate) fn finish(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.end == RequestQueueEnd::Open {
            state.end = RequestQueueEnd::Finished;
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Queued requests are no longer answered.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.end = RequestQueueEnd::Gone;
        self.gate.answered(std::mem::take(&mut state.bytes).len());
        drop(state);
        self.arrived.notify_one();
    }

    /// Waits for more, and appends it to what is left. `false` if nothing more comes.
    pub(crate) fn take(&self, requests: &mut Vec<u8>) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.at_work = !requests.is_empty();
        let is_idle = |state: &mut RequestQueueState| state.bytes.is_empty() && state.end == RequestQueueEnd::Open;
        let mut state = self.arrived.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
        if state.end == RequestQueueEnd::Gone || state.bytes.is_empty() {
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

    pub(crate) fn answered(&self, bytes: usize) {
        self.gate.answered(bytes);
    }
}

// === impl ChannelOutbox ===

impl ChannelOutbox {
    /// Sends bytes, and may wait for the client to accept them. `false` if the connection is gone.
    pub(crate) fn send(&self, gate: &RequestBackpressure, bytes: Vec<u8>) -> bool {
        gate.while_stalled(|| self.runtime.block_on(self.session.data(self.channel, bytes)).is_ok())
    }

    /// Like a program that exits successfully, which `sftp` clients wait for.
    pub(crate) fn close(&self) {
        self.runtime.block_on(async {
            let _ = self.session.exit_status_request(self.channel, 0).await;
            let _ = self.session.eof(self.channel).await;
            let _ = self.session.close(self.channel).await;
        });
    }
}
