//! What every manner of speaking has: its pipes, its arguments, numbers that are never the same twice, and what it used.

use std::collections::VecDeque;

use serde_json::Value;

use super::{
    client::{FakeHostInput, HostPipes},
    player::{FakeHostDialect, FakeUsage},
};

#[derive(Debug)]
pub(super) struct FakeProgram {
    pub(super) client: HostPipes,
    pub(super) arguments: Vec<String>,
    /// What came in while a turn was at work, and is for later.
    pub(super) waiting: VecDeque<Value>,
    /// All that was used so far.
    pub(super) spent: FakeUsage,
    serial: u64,
}

/// What a message means for the turn at work.
pub(super) enum TurnSignal {
    Nothing,
    Interrupt,
    Answer { to: Value, answer: Value },
}

// === impl FakeProgram ===

impl FakeProgram {
    pub(super) fn new(client: HostPipes, arguments: Vec<String>) -> Self {
        Self { client, arguments, waiting: VecDeque::new(), spent: FakeUsage::default(), serial: 0 }
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// JSON-RPC: requests wait for their turn.
    pub(super) fn on_rpc_message(&mut self, message: Value) -> TurnSignal {
        match (message.get("method"), message.get("id")) {
            (Some(_), Some(_)) => self.waiting.push_back(message),
            (Some(_), None) | (None, None) => {}
            (None, Some(id)) => return TurnSignal::Answer { to: id.clone(), answer: message },
        }
        TurnSignal::Nothing
    }
}

/// Serves what waits until the input ends.
pub(super) fn serve<S: FakeHostDialect>(stage: &mut S, mut serve: impl FnMut(&mut S, &Value)) {
    loop {
        while let Some(request) = stage.program().waiting.pop_front() {
            serve(stage, &request);
        }
        match stage.program().client.next() {
            FakeHostInput::Message(message) => {
                stage.on_message(message);
            }
            FakeHostInput::Interrupt => stage.interrupted_at_rest(),
            FakeHostInput::Closed => return,
        }
    }
}

/// Of a string; nothing of anything else.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
