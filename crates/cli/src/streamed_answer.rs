//! The pieces of an answer as they came, kept within a limit and compared with the whole at the end.

use std::mem;

/// The beginning of what was streamed, and how much there was.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamedAnswer {
    kept: String,
    /// How it ends, once not everything is kept.
    last: String,
    total: usize,
}

/// Far more than the text of a result.
const MAX_STREAMED: usize = 4 << 20;

// === impl StreamedAnswer ===

impl StreamedAnswer {
    pub(crate) fn push(&mut self, piece: &str) {
        // Once something was left out, nothing later may follow in its place.
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

    /// Forgets what a device wrote that does not go on.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What was kept, and how many bytes there were.
    pub(crate) fn take(&mut self) -> (String, usize) {
        let Self { kept, total, .. } = mem::take(self);
        (kept, total)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether the whole text came, after whatever was said before it. White space at its ends is nothing that anybody sees.
    pub(crate) fn contains_answer(&self, text: &str) -> bool {
        let text = text.trim();
        self.end().trim_end().ends_with(text) && (text.len() <= self.end().len())
    }

    /// Whether the pieces are how the text ends: all that can be known when its beginning was not asked for.
    pub(crate) fn ends(&self, text: &str) -> bool {
        self.total == self.kept.len() && text.trim_end().ends_with(self.kept.trim_end())
    }

    /// The last of what came, at least as much as a result holds.
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
    fn a_hole_is_found() {
        assert!(streamed(&["one\n", "two\n"]).contains_answer("one\ntwo\n"));
        assert!(!streamed(&["one\n", "three\n"]).contains_answer("one\ntwo\nthree\n"));
        assert!(!streamed(&["one\n"]).contains_answer("one\ntwo\n"));
        assert!(!streamed(&[]).contains_answer("one"));
    }

    #[test]
    fn the_result_is_what_was_said_last() {
        assert!(streamed(&["I'll look.\n\n", "Two files", " differ."]).contains_answer("Two files differ."));
        assert!(!streamed(&["I'll look.\n\n", "Two files"]).contains_answer("Two files differ."));
        assert!(!streamed(&["Two files differ.", "And more."]).contains_answer("Two files differ."));
    }

    #[test]
    fn white_space_at_the_ends_makes_no_difference() {
        assert!(streamed(&["one\n", "two\n", "\n"]).contains_answer("one\ntwo"));
        assert!(streamed(&["one"]).contains_answer("\none \n"));
        assert!(streamed(&["two\n"]).ends("one\ntwo"));
        assert!(streamed(&["two"]).ends("one\ntwo\n"));
        assert!(!streamed(&["one\ntwo"]).contains_answer("one\n\ntwo"));
    }

    #[test]
    fn an_answer_that_was_followed_from_its_middle_is_judged_by_its_end() {
        assert!(streamed(&["two\n"]).ends("one\ntwo\n"));
        assert!(streamed(&[]).ends("one\n"));
        assert!(!streamed(&["one\n"]).ends("one\ntwo\n"));
        assert!(!streamed(&["é"]).ends("xè"));
        assert!(!streamed(&["longer than the text"]).ends("x"));
    }

    #[test]
    fn what_is_kept_has_a_limit_and_no_holes() {
        let long = "é".repeat(MAX_STREAMED);
        let mut gathered = streamed(&["x", &long, "y", &"é".repeat(MAX_STREAMED / 8), "end"]);
        assert!(gathered.contains_answer(&format!("{}end", "é".repeat(MAX_STREAMED / 8))));
        assert!(!gathered.contains_answer("y"));
        let (kept, total) = gathered.take();
        assert_eq!((kept.len(), total), (MAX_STREAMED - 1, 2 * MAX_STREAMED + 2 + MAX_STREAMED / 4 + 3));
        assert!(gathered.is_empty());
    }
}
