//! The streamed chunks of an answer, kept up to a limit and compared with the final result.

use std::mem;

/// The start of the streamed text and its total length.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamedAnswer {
    kept: String,
    /// The end of the text, once the middle is dropped.
    last: String,
    total: usize,
}

/// Much larger than the text of a result.
const MAX_STREAMED: usize = 4 << 20;

// === impl StreamedAnswer ===

impl StreamedAnswer {
    pub(crate) fn push(&mut self, piece: &str) {
        // After the first dropped chunk, append nothing more: the kept text must have no gaps.
        if self.total == self.kept.len() {
            self.kept.push_str(&piece[..piece.floor_char_boundary(MAX_STREAMED - self.kept.len())]);
        }
        self.total += piece.len();
        if self.total > self.kept.len() {
            if self.last.is_empty() {
                self.last.clone_from(&self.kept);
                self.last.push_str(&piece[piece.floor_char_boundary(piece.len() - (self.total - self.kept.len()))..]);
            } else {
                self.last.push_str(piece);
            }
            if self.last.len() > 2 * MAX_STREAMED {
                self.last.drain(..self.last.ceil_char_boundary(self.last.len() - MAX_STREAMED));
            }
        }
    }

    /// All of the text, if all of it is kept.
    pub(crate) fn whole(&self) -> Option<&str> {
        (self.total == self.kept.len()).then_some(&*self.kept)
    }

    /// Discards the text of a device that lost the run.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The kept text and the total number of bytes.
    pub(crate) fn take(&mut self) -> (String, usize) {
        let Self { kept, total, .. } = mem::take(self);
        (kept, total)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether the stream ends with the complete text, ignoring leading and trailing whitespace.
    pub(crate) fn contains_answer(&self, text: &str) -> bool {
        let text = text.trim();
        self.end().trim_end().ends_with(text) && (text.len() <= self.end().len())
    }

    /// Whether the text ends with the stream. This is all that can be checked if following started in the middle.
    pub(crate) fn ends(&self, text: &str) -> bool {
        self.total == self.kept.len() && text.trim_end().ends_with(self.kept.trim_end())
    }

    /// The end of the stream, at least as long as a result can be.
    fn end(&self) -> &str {
        if self.last.is_empty() { &self.kept } else { &self.last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streamed(pieces: &[&str]) -> StreamedAnswer {
        let mut gathered = StreamedAnswer::default();
        pieces.iter().for_each(|piece| gathered.push(piece));
        gathered
    }

    #[test]
    fn a_gap_is_detected() {
        assert!(streamed(&["one\n", "two\n"]).contains_answer("one\ntwo\n"));
        assert!(!streamed(&["one\n", "three\n"]).contains_answer("one\ntwo\nthree\n"));
        assert!(!streamed(&["one\n"]).contains_answer("one\ntwo\n"));
        assert!(!streamed(&[]).contains_answer("one"));
    }

    #[test]
    fn the_result_is_the_last_message() {
        assert!(streamed(&["I'll look.\n\n", "Two files", " differ."]).contains_answer("Two files differ."));
        assert!(!streamed(&["I'll look.\n\n", "Two files"]).contains_answer("Two files differ."));
        assert!(!streamed(&["Two files differ.", "And more."]).contains_answer("Two files differ."));
    }

    #[test]
    fn leading_and_trailing_whitespace_is_ignored() {
        assert!(streamed(&["one\n", "two\n", "\n"]).contains_answer("one\ntwo"));
        assert!(streamed(&["one"]).contains_answer("\none \n"));
        assert!(streamed(&["two\n"]).ends("one\ntwo"));
        assert!(streamed(&["two"]).ends("one\ntwo\n"));
        assert!(!streamed(&["one\ntwo"]).contains_answer("one\n\ntwo"));
    }

    #[test]
    fn an_answer_followed_from_the_middle_is_compared_by_its_end() {
        assert!(streamed(&["two\n"]).ends("one\ntwo\n"));
        assert!(streamed(&[]).ends("one\n"));
        assert!(!streamed(&["one\n"]).ends("one\ntwo\n"));
        assert!(!streamed(&["é"]).ends("xè"));
        assert!(!streamed(&["longer than the text"]).ends("x"));
    }

    #[test]
    fn the_kept_text_is_limited_and_has_no_gaps() {
        let long = "é".repeat(MAX_STREAMED);
        let mut gathered = streamed(&["x", &long, "y", &"é".repeat(MAX_STREAMED / 8), "end"]);
        assert!(gathered.contains_answer(&format!("{}end", "é".repeat(MAX_STREAMED / 8))));
        assert!(!gathered.contains_answer("y"));
        let (kept, total) = gathered.take();
        assert_eq!((kept.len(), total), (MAX_STREAMED - 1, 2 * MAX_STREAMED + 2 + MAX_STREAMED / 4 + 3));
        assert!(gathered.is_empty());
    }
}
