//! Process output: decodes bytes to text, coalesces it into chunks, and enforces limits.

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::{Instant, sleep_until},
};

use crate::spool::ContentKind;

/// Maximum size of a chunk, and how long a smaller one is held back. The runtime coalesces again, over a longer
/// interval.
pub(crate) const MAX_CHUNK: usize = 4096;
pub(crate) const COALESCE_INTERVAL: Duration = Duration::from_millis(10);

/// Where a chunk may end when it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkBoundary {
    Anywhere,
    /// At the end of a line, if there is one.
    AtLineEnd,
}

/// Decodes bytes to text across reads. Invalid UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
struct Utf8Decoder {
    /// The start of a character that isn't complete yet.
    partial: Vec<u8>,
    has_replaced: bool,
}

/// A size limit for text: in bytes, and in bytes of its JSON form, where a control character takes six.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextLimit {
    pub(crate) bytes: usize,
    pub(crate) encoded: usize,
}

/// Passes the start of a text and counts the rest.
#[derive(Debug)]
pub(crate) struct TextGate {
    left: TextLimit,
    passed: usize,
    total: usize,
}

/// The part of a chunk that passed a gate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GatedText<'a> {
    All(&'a str),
    /// The gate closed within this chunk: this is the last text that passes.
    Last(&'a str),
    Nothing,
}

/// The start of a text, and its total length.
#[derive(Debug)]
pub(crate) struct TextHead {
    gate: TextGate,
    kept: String,
}

/// The end of a text, and its total length.
#[derive(Debug)]
pub(crate) struct TextTail {
    kept: String,
    limit: usize,
    total: usize,
}

/// Reads to the end, or until `closed` completes, and emits chunks of text.
pub(crate) async fn pump(
    from: impl AsyncRead + Unpin,
    closed: impl Future<Output = ()>,
    cut: ChunkBoundary,
    take: impl FnMut(&str),
) {
    pump_bytes(from, closed, cut, |_| {}, take).await;
}

/// Like [`pump`], and also passes on the raw bytes. Returns whether all of them were valid text.
pub(crate) async fn pump_bytes(
    mut from: impl AsyncRead + Unpin,
    closed: impl Future<Output = ()>,
    cut: ChunkBoundary,
    mut raw: impl FnMut(&[u8]),
    mut take: impl FnMut(&str),
) -> ContentKind {
    let mut decoder = Utf8Decoder::default();
    let mut pending = String::new();
    let mut due: Option<Instant> = None;
    let mut buffer = [0; MAX_CHUNK];
    tokio::pin!(closed);
    loop {
        let wait = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            read = from.read(&mut buffer) => {
                let Ok(count @ 1..) = read else { break };
                raw(&buffer[..count]);
                decoder.push(&buffer[..count], &mut pending);
                while pending.len() >= MAX_CHUNK {
                    let end = boundary(MAX_CHUNK, cut, &pending);
                    take_front(&mut pending, end, &mut take);
                    due = None;
                }
            }
            () = wait => {
                let end = boundary(pending.len(), cut, &pending);
                take_front(&mut pending, end, &mut take);
                due = None;
            }
            () = &mut closed => break,
        }
        if !pending.is_empty() {
            due.get_or_insert_with(|| Instant::now() + COALESCE_INTERVAL);
        }
    }
    decoder.finish(&mut pending);
    while !pending.is_empty() {
        let end = pending.floor_char_boundary(MAX_CHUNK);
        take_front(&mut pending, end, &mut take);
    }
    if decoder.has_replaced { ContentKind::Binary } else { ContentKind::Text }
}

fn boundary(most: usize, cut: ChunkBoundary, text: &str) -> usize {
    let most = text.floor_char_boundary(most);
    match (cut, text[..most].rfind('\n')) {
        (ChunkBoundary::AtLineEnd, Some(newline)) => newline + 1,
        _ => most,
    }
}

fn take_front(pending: &mut String, end: usize, take: &mut impl FnMut(&str)) {
    take(&pending[..end]);
    pending.drain(..end);
}

// === impl Utf8Decoder ===

impl Utf8Decoder {
    fn push(&mut self, bytes: &[u8], into: &mut String) {
        self.partial.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.partial);
        let mut rest = all.as_slice();
        loop {
            match str::from_utf8(rest) {
                Ok(text) => {
                    into.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    into.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    let Some(invalid) = error.error_len() else { break };
                    into.push(char::REPLACEMENT_CHARACTER);
                    self.has_replaced = true;
                    rest = &rest[invalid..];
                }
            }
        }
        self.partial = rest.to_vec();
    }

    fn finish(&mut self, into: &mut String) {
        if !self.partial.is_empty() {
            self.partial.clear();
            self.has_replaced = true;
            into.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

// === impl TextGate ===

impl TextGate {
    pub(crate) const fn new(limit: TextLimit) -> Self {
        Self { left: limit, passed: 0, total: 0 }
    }

    pub(crate) fn pass<'a>(&mut self, text: &'a str) -> GatedText<'a> {
        // After a gap, no later text may pass.
        let is_open = self.passed == self.total;
        self.total += text.len();
        if !is_open {
            return GatedText::Nothing;
        }
        let end = self.left.end_in(text);
        self.passed += end;
        if end == text.len() { GatedText::All(text) } else { GatedText::Last(&text[..end]) }
    }
}

// === impl TextLimit ===

impl TextLimit {
    /// Where the text must end to stay within the limit. Reduces the limit by as much.
    fn end_in(&mut self, text: &str) -> usize {
        for (at, character) in text.char_indices() {
            let (bytes, encoded) = (character.len_utf8(), encoded_len(character));
            if bytes > self.bytes || encoded > self.encoded {
                return at;
            }
            self.bytes -= bytes;
            self.encoded -= encoded;
        }
        text.len()
    }
}

const fn encoded_len(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\x08' | '\x0c' => 2,
        '\0'..='\x1f' => 6,
        _ => character.len_utf8(),
    }
}

// === impl TextHead ===

impl TextHead {
    pub(crate) const fn new(limit: TextLimit) -> Self {
        Self { gate: TextGate::new(limit), kept: String::new() }
    }

    /// Keeps and returns the part that passes.
    pub(crate) fn push<'a>(&mut self, text: &'a str) -> GatedText<'a> {
        let pass = self.gate.pass(text);
        if let GatedText::All(text) | GatedText::Last(text) = pass {
            self.kept.push_str(text);
        }
        pass
    }

    pub(crate) const fn total(&self) -> u64 {
        self.gate.total as u64
    }

    /// How many bytes are kept.
    pub(crate) const fn kept(&self) -> usize {
        self.kept.len()
    }

    pub(crate) const fn is_cut(&self) -> bool {
        self.gate.total > self.kept.len()
    }

    /// The text that was kept.
    pub(crate) fn into_kept(self) -> String {
        self.kept
    }
}

// === impl TextTail ===

impl TextTail {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { kept: String::new(), limit, total: 0 }
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.total += text.len();
        self.kept.push_str(text);
        // Trimming only at twice the limit keeps the cost per byte constant.
        if self.kept.len() > 2 * self.limit {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let start = self.kept.ceil_char_boundary(self.kept.len().saturating_sub(self.limit));
        self.kept.drain(..start);
    }

    /// The end of the text, with a note at the start if it was truncated.
    pub(crate) fn into_text(mut self) -> String {
        self.cut();
        if self.total > self.kept.len() {
            return format!("[attache: the last {} of {} bytes]\n{}", self.kept.len(), self.total, self.kept);
        }
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pieces(bytes: &[u8], cut: ChunkBoundary) -> Vec<String> {
        let mut pieces = Vec::new();
        pump(bytes, std::future::pending(), cut, |piece| pieces.push(piece.to_owned())).await;
        pieces
    }

    #[test]
    fn a_character_split_across_reads_is_decoded() {
        for split in 0..="aé€😀".len() {
            let (first, second) = "aé€😀".as_bytes().split_at(split);
            let (mut decoder, mut text) = (Utf8Decoder::default(), String::new());
            decoder.push(first, &mut text);
            decoder.push(second, &mut text);
            decoder.finish(&mut text);
            assert_eq!(text, "aé€😀", "split at {split}");
        }
    }

    #[tokio::test]
    async fn invalid_utf8_is_replaced_as_in_the_standard_library() {
        for bytes in [&b"a\xffb"[..], b"\xf0\x9f\x98", b"\xe2\x82x", b"ok\xc3", b"\xed\xa0\x80"] {
            assert_eq!(pieces(bytes, ChunkBoundary::Anywhere).await.concat(), String::from_utf8_lossy(bytes));
        }
    }

    #[tokio::test]
    async fn chunks_are_small_and_split_between_characters_or_lines() {
        let text = "é".repeat(MAX_CHUNK);
        let cut = pieces(text.as_bytes(), ChunkBoundary::Anywhere).await;
        assert_eq!(cut.iter().map(String::len).collect::<Vec<_>>(), [MAX_CHUNK, MAX_CHUNK]);
        assert_eq!(cut.concat(), text);

        let lines = format!("{}\n", "x".repeat(999)).repeat(5);
        let cut = pieces(lines.as_bytes(), ChunkBoundary::AtLineEnd).await;
        assert_eq!(cut.iter().map(String::len).collect::<Vec<_>>(), [4000, 1000]);
    }

    fn head(bytes: usize, encoded: usize) -> TextHead {
        TextHead::new(TextLimit { bytes, encoded })
    }

    #[test]
    fn a_head_keeps_the_start_and_counts_the_rest() {
        let mut whole = head(5, 100);
        assert_eq!([whole.push("ab€"), whole.push("")], [GatedText::All("ab€"), GatedText::All("")]);
        assert_eq!((whole.is_cut(), whole.total(), whole.into_kept()), (false, 5, "ab€".to_owned()));
        let mut cut = head(4, 100);
        assert_eq!([cut.push("ab€"), cut.push("c")], [GatedText::Last("ab"), GatedText::Nothing]);
        assert_eq!((cut.is_cut(), cut.total(), cut.into_kept()), (true, 6, "ab".to_owned()));
    }

    #[test]
    fn a_head_counts_the_json_form_of_the_text() {
        for character in (0..0x180).filter_map(char::from_u32).chain(['€', '😀']) {
            let encoded = serde_json::to_string(&character).unwrap().len() - 2;
            assert_eq!(encoded_len(character), encoded, "{character:?}");
        }
        let mut cut = head(100, 13);
        assert_eq!(cut.push("\0\0a\0"), GatedText::Last("\0\0a"));
    }

    #[test]
    fn a_tail_keeps_the_end_and_notes_what_is_missing() {
        let mut tail = TextTail::new(4);
        tail.push("abcd");
        assert_eq!(tail.into_text(), "abcd");
        let mut tail = TextTail::new(4);
        for piece in ["abcdef", "gh", "i€"] {
            tail.push(piece);
        }
        assert_eq!(tail.into_text(), "[attache: the last 4 of 12 bytes]\ni€");
    }
}
