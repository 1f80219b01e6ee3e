//! A connection's recent frames with their replies: a repeated frame gets the same reply.

use std::collections::VecDeque;

use attache_protocol::wire::envelope::Envelope;

/// Enough for duplicates by the network or immediate repeats. Beyond that, actions are idempotent.
const MAX_FRAMES: usize = 64;
const MAX_BYTES: usize = 32 * 1024;

#[derive(Debug, Default)]
pub(super) struct ReplyCache {
    heard: VecDeque<CachedReply>,
    bytes: usize,
}

#[derive(Debug)]
struct CachedReply {
    name: blake3::Hash,
    said: blake3::Hash,
    /// A refused frame may be corrected and sent again with the same id.
    is_refusal: bool,
    reply: Box<str>,
}

/// What is known about a frame's id.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameRepeat<'a> {
    /// The reply to the same frame. Empty if there was none.
    Same(&'a str),
    /// The id was used for another frame that was accepted.
    Reused,
}

// === impl ReplyCache ===

impl ReplyCache {
    /// Whether this frame, or another with the same id, was seen before.
    pub(super) fn find(&self, frame: &Envelope) -> Option<FrameRepeat<'_>> {
        let (name, said) = (name(frame), content(frame));
        let known = self.heard.iter().filter(|heard| heard.name == name);
        let same = known.clone().find(|heard| heard.said == said).map(|heard| FrameRepeat::Same(&heard.reply));
        same.or_else(|| known.clone().any(|heard| !heard.is_refusal).then_some(FrameRepeat::Reused))
    }

    /// A reply that is too long to keep is rendered again when needed.
    pub(super) fn keep(&mut self, frame: &Envelope, reply: &str) {
        self.push(CachedReply { name: name(frame), said: content(frame), is_refusal: false, reply: reply.into() });
    }

    pub(super) fn keep_refusal(&mut self, frame: &Envelope, reply: &str) {
        self.push(CachedReply { name: name(frame), said: content(frame), is_refusal: true, reply: reply.into() });
    }

    fn push(&mut self, heard: CachedReply) {
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

fn name(frame: &Envelope) -> blake3::Hash {
    blake3::hash(frame.header.msg_id.as_bytes())
}

/// The content, except for what may differ when a frame is sent again.
fn content(frame: &Envelope) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in [frame.header.parent_id.as_deref().unwrap_or_default(), &frame.header.to, frame.payload.get()] {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize()
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
    fn recent_frames_are_known_and_memory_is_bounded() {
        let mut replies = ReplyCache::default();
        replies.keep(&named("a"), "one");
        replies.keep(&named("b"), "");
        assert_eq!(
            (replies.find(&named("a")), replies.find(&named("b")), replies.find(&named("c"))),
            (Some(FrameRepeat::Same("one")), Some(FrameRepeat::Same("")), None)
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
    fn a_frame_id_stands_for_its_first_content() {
        let mut replies = ReplyCache::default();
        let (wrong, right) = (frame("a", r#"{"action":"ready"}"#), frame("a", r#"{"action":"ready","credits":1}"#));
        replies.keep_refusal(&wrong, "no");
        assert_eq!((replies.find(&wrong), replies.find(&right)), (Some(FrameRepeat::Same("no")), None));
        replies.keep(&right, "yes");
        assert_eq!(
            (replies.find(&wrong), replies.find(&right)),
            (Some(FrameRepeat::Same("no")), Some(FrameRepeat::Same("yes")))
        );
        assert_eq!(replies.find(&frame("a", r#"{"action":"ready","credits":2}"#)), Some(FrameRepeat::Reused));
    }
}
