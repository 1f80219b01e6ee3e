//! What every manner of speaking has: its pipes, its arguments, numbers that are never the same twice, and what it used.

use std::collections::VecDeque;

use serde_json::Value;

use super::{
    client::{Client, Incoming},
    play::{Spent, Stage},
};

#[derive(Debug)]
pub(super) struct Program {
    pub(super) client: Client,
    pub(super) arguments: Vec<String>,
    /// What came in while a turn was at work, and is for later.
    pub(super) waiting: VecDeque<Value>,
    /// All that was used so far.
    pub(super) spent: Spent,
    serial: u64,
}

/// What a message means for the turn at work.
pub(super) enum Heard {
    Nothing,
    Interrupt,
    Answer { to: Value, answer: Value },
}

// === impl Program ===

impl Program {
    pub(super) fn new(client: Client, arguments: Vec<String>) -> Self {
        Self { client, arguments, waiting: VecDeque::new(), spent: Spent::default(), serial: 0 }
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// JSON-RPC: requests wait for their turn.
    pub(super) fn hear_rpc(&mut self, message: Value) -> Heard {
        match (message.get("method"), message.get("id")) {
            (Some(_), Some(_)) => self.waiting.push_back(message),
            (Some(_), None) | (None, None) => {}
            (None, Some(id)) => return Heard::Answer { to: id.clone(), answer: message },
        }
        Heard::Nothing
    }
}

/// Serves what waits until the input ends.
pub(super) fn serve<S: Stage>(stage: &mut S, mut serve: impl FnMut(&mut S, &Value)) {
    loop {
        while let Some(request) = stage.program().waiting.pop_front() {
            serve(stage, &request);
        }
        match stage.program().client.next() {
            Incoming::Message(message) => {
                stage.hear(message);
            }
            Incoming::Interrupt => stage.interrupted_at_rest(),
            Incoming::Closed => return,
        }
    }
}

/// Of a string; nothing of anything else.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
