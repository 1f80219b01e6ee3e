//! Pending requests to the hub: answers by message id, acknowledgements and pongs by number.

use std::collections::{BTreeMap, HashMap, VecDeque};

use attache_protocol::Json;
use tokio::sync::oneshot;

use crate::{Error, Result};

#[derive(Default)]
pub(crate) struct PendingReplies {
    answers: HashMap<String, oneshot::Sender<Result<Json>>>,
    /// By the seq of the frame, with its message id, because refusals refer to that.
    acks: BTreeMap<i64, (String, oneshot::Sender<Result<()>>)>,
    pongs: VecDeque<(u64, oneshot::Sender<Result<()>>)>,
}

// === impl PendingReplies ===

impl PendingReplies {
    /// Repeating a request replaces the earlier one, which nothing waits for any more.
    pub(crate) fn ask(&mut self, msg_id: String, answer: oneshot::Sender<Result<Json>>) {
        self.answers.insert(msg_id, answer);
    }

    pub(crate) fn tell(&mut self, seq: i64, msg_id: String, told: oneshot::Sender<Result<()>>) {
        self.acks.insert(seq, (msg_id, told));
    }

    pub(crate) fn ping(&mut self, number: u64, heard: oneshot::Sender<Result<()>>) {
        self.pongs.push_back((number, heard));
    }

    pub(crate) fn answered(&mut self, msg_id: &str, answer: Result<Json>) {
        if let Some(waiting) = self.answers.remove(msg_id) {
            // The requester may be gone.
            let _ = waiting.send(answer);
            return;
        }
        if let Err(error) = answer {
            let seq = self.acks.iter().find(|(_, (name, _))| name == msg_id).map(|(seq, _)| *seq);
            if let Some((_, told)) = seq.and_then(|seq| self.acks.remove(&seq)) {
                let _ = told.send(Err(error));
            }
        }
    }

    /// Everything up to `seq` has arrived.
    pub(crate) fn acknowledged(&mut self, seq: i64) {
        let later = self.acks.split_off(&(seq + 1));
        for (_, (_, told)) in std::mem::replace(&mut self.acks, later) {
            let _ = told.send(Ok(()));
        }
    }

    /// A pong also answers all earlier pings.
    pub(crate) fn ponged(&mut self, number: u64) {
        while self.pongs.front().is_some_and(|(sent, _)| *sent <= number) {
            if let Some((_, heard)) = self.pongs.pop_front() {
                let _ = heard.send(Ok(()));
            }
        }
    }

    pub(crate) fn fail(&mut self, error: &Error) {
        for (_, waiting) in self.answers.drain() {
            let _ = waiting.send(Err(error.clone()));
        }
        for (_, (_, told)) in std::mem::take(&mut self.acks) {
            let _ = told.send(Err(error.clone()));
        }
        for (_, heard) in self.pongs.drain(..) {
            let _ = heard.send(Err(error.clone()));
        }
    }
}
