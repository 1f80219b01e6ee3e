//! The frames of a connection that were heard lately, with their replies: a frame that comes twice is answered the same.

use std::collections::VecDeque;

/// Enough for what a network duplicates or a peer repeats at once. Actions are idempotent beyond that.
const MAX_FRAMES: usize = 64;
const MAX_BYTES: usize = 32 * 1024;

#[derive(Debug, Default)]
pub(super) struct Replies {
    heard: VecDeque<(u64, Box<str>)>,
    bytes: usize,
}

// === impl Replies ===

impl Replies {
    /// The reply to this frame if it was heard before; empty when there was nothing to say.
    pub(super) fn find(&self, msg_id: &str) -> Option<&str> {
        let name = name(msg_id);
        self.heard.iter().find(|(known, _)| *known == name).map(|(_, reply)| &**reply)
    }

    /// A reply that is too long to keep is made again when it is needed.
    pub(super) fn keep(&mut self, msg_id: &str, reply: &str) {
        if reply.len() > MAX_BYTES / 4 {
            return;
        }
        self.bytes += reply.len();
        self.heard.push_back((name(msg_id), reply.into()));
        while self.heard.len() > MAX_FRAMES || self.bytes > MAX_BYTES {
            let Some((_, oldest)) = self.heard.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}

fn name(msg_id: &str) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(msg_id.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_heard_lately_is_known_and_memory_is_bounded() {
        let mut replies = Replies::default();
        replies.keep("a", "one");
        replies.keep("b", "");
        assert_eq!((replies.find("a"), replies.find("b"), replies.find("c")), (Some("one"), Some(""), None));
        for number in 0..1000 {
            replies.keep(&number.to_string(), &"x".repeat(5000));
            replies.keep("long", &"x".repeat(MAX_BYTES));
        }
        assert!(replies.bytes <= MAX_BYTES && replies.heard.len() <= MAX_FRAMES);
        assert_eq!((replies.find("a"), replies.find("long")), (None, None));
        assert!(replies.find("999").is_some());
    }
}
