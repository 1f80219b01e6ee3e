//! The frames of a connection that were heard lately, with their replies: a frame that comes twice is answered the same.

use std::collections::VecDeque;

use attache_protocol::wire::envelope::Envelope;

/// Enough for what a network duplicates or a peer repeats at once. Actions are idempotent beyond that.
const MAX_FRAMES: usize = 64;
const MAX_BYTES: usize = 32 * 1024;

#[derive(Debug, Default)]
pub(super) struct Replies {
    heard: VecDeque<Heard>,
    bytes: usize,
}

#[derive(Debug)]
struct Heard {
    name: u64,
    /// What a frame that was refused said: one that was put right under the same name is heard.
    said: Option<u64>,
    reply: Box<str>,
}

// === impl Replies ===

impl Replies {
    /// The reply to this frame if it was heard before; empty when there was nothing to say.
    pub(super) fn find(&self, frame: &Envelope) -> Option<&str> {
        let name = name(frame);
        let mut known = self.heard.iter().filter(|heard| heard.name == name);
        known.find(|heard| heard.said.is_none_or(|said| said == content(frame))).map(|heard| &*heard.reply)
    }

    /// A reply that is too long to keep is made again when it is needed.
    pub(super) fn keep(&mut self, frame: &Envelope, reply: &str) {
        self.push(Heard { name: name(frame), said: None, reply: reply.into() });
    }

    pub(super) fn keep_refusal(&mut self, frame: &Envelope, reply: &str) {
        self.push(Heard { name: name(frame), said: Some(content(frame)), reply: reply.into() });
    }

    fn push(&mut self, heard: Heard) {
        if heard.reply.len() > MAX_BYTES / 4 {
            return;
        }
        self.bytes += heard.reply.len();
        self.heard.push_back(heard);
        while self.heard.len() > MAX_FRAMES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.heard.pop_front() else { return };
            self.bytes -= oldest.reply.len();
        }
    }
}

fn name(frame: &Envelope) -> u64 {
    short(blake3::hash(frame.header.msg_id.as_bytes()))
}

/// Everything but what may differ when a frame is sent again.
fn content(frame: &Envelope) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for part in [frame.header.parent_id.as_deref().unwrap_or_default(), &frame.header.to, frame.payload.get()] {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    short(hasher.finalize())
}

fn short(hash: blake3::Hash) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, payload: &str) -> Envelope {
        let header = format!(r#"{{"msg_id":"{name}","type":"request","timestamp":1}}"#);
        Envelope::parse(&format!(r#"{{"header":{header},"payload":{payload}}}"#)).unwrap()
    }

    fn named(name: &str) -> Envelope {
        frame(name, r#"{"action":"drain"}"#)
    }

    #[test]
    fn what_was_heard_lately_is_known_and_memory_is_bounded() {
        let mut replies = Replies::default();
        replies.keep(&named("a"), "one");
        replies.keep(&named("b"), "");
        assert_eq!(
            (replies.find(&named("a")), replies.find(&named("b")), replies.find(&named("c"))),
            (Some("one"), Some(""), None)
        );
        for number in 0..1000 {
            replies.keep(&named(&number.to_string()), &"x".repeat(5000));
            replies.keep(&named("long"), &"x".repeat(MAX_BYTES));
        }
        assert!(replies.bytes <= MAX_BYTES && replies.heard.len() <= MAX_FRAMES);
        assert_eq!((replies.find(&named("a")), replies.find(&named("long"))), (None, None));
        assert!(replies.find(&named("999")).is_some());
    }

    #[test]
    fn a_refusal_is_of_what_was_said() {
        let mut replies = Replies::default();
        let (wrong, right) = (frame("a", r#"{"action":"ready"}"#), frame("a", r#"{"action":"ready","credits":1}"#));
        replies.keep_refusal(&wrong, "no");
        assert_eq!((replies.find(&wrong), replies.find(&right)), (Some("no"), None));
        replies.keep(&right, "yes");
        assert_eq!((replies.find(&wrong), replies.find(&right)), (Some("no"), Some("yes")));
    }
}
