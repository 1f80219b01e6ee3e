//! The pieces of an answer as they came, kept within a limit and compared with the whole at the end.

use std::mem;

/// The beginning of what was streamed, and how much there was.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Gathered {
    kept: String,
    /// How it ends, once not everything is kept.
    last: String,
    total: usize,
}

/// Far more than the text of a result.
const LIMIT: usize = 4 << 20;

// === impl Gathered ===

impl Gathered {
    pub(crate) fn push(&mut self, piece: &str) {
        // Once something was left out, nothing later may follow in its place.
        if self.total == self.kept.len() {
            self.kept.push_str(&piece[..piece.floor_char_boundary(LIMIT - self.kept.len())]);
        }
        self.total += piece.len();
        if self.total > self.kept.len() {
            if self.last.is_empty() {
                self.last.clone_from(&self.kept);
                self.last.push_str(&piece[piece.floor_char_boundary(piece.len() - (self.total - self.kept.len()))..]);
            } else {
                self.last.push_str(piece);
            }
            if self.last.len() > 2 * LIMIT {
                self.last.drain(..self.last.ceil_char_boundary(self.last.len() - LIMIT));
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
    pub(crate) fn shows(&self, text: &str) -> bool {
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

    fn gathered(pieces: &[&str]) -> Gathered {
        let mut gathered = Gathered::default();
        pieces.iter().for_each(|piece| gathered.push(piece));
        gathered
    }

    #[test]
    fn a_hole_is_found() {
        assert!(gathered(&["one\n", "two\n"]).shows("one\ntwo\n"));
        assert!(!gathered(&["one\n", "three\n"]).shows("one\ntwo\nthree\n"));
        assert!(!gathered(&["one\n"]).shows("one\ntwo\n"));
        assert!(!gathered(&[]).shows("one"));
    }

    #[test]
    fn the_result_is_what_was_said_last() {
        assert!(gathered(&["I'll look.\n\n", "Two files", " differ."]).shows("Two files differ."));
        assert!(!gathered(&["I'll look.\n\n", "Two files"]).shows("Two files differ."));
        assert!(!gathered(&["Two files differ.", "And more."]).shows("Two files differ."));
    }

    #[test]
    fn white_space_at_the_ends_makes_no_difference() {
        assert!(gathered(&["one\n", "two\n", "\n"]).shows("one\ntwo"));
        assert!(gathered(&["one"]).shows("\none \n"));
        assert!(gathered(&["two\n"]).ends("one\ntwo"));
        assert!(gathered(&["two"]).ends("one\ntwo\n"));
        assert!(!gathered(&["one\ntwo"]).shows("one\n\ntwo"));
    }

    #[test]
    fn an_answer_that_was_followed_from_its_middle_is_judged_by_its_end() {
        assert!(gathered(&["two\n"]).ends("one\ntwo\n"));
        assert!(gathered(&[]).ends("one\n"));
        assert!(!gathered(&["one\n"]).ends("one\ntwo\n"));
        assert!(!gathered(&["é"]).ends("xè"));
        assert!(!gathered(&["longer than the text"]).ends("x"));
    }

    #[test]
    fn what_is_kept_has_a_limit_and_no_holes() {
        let long = "é".repeat(LIMIT);
        let mut gathered = gathered(&["x", &long, "y", &"é".repeat(LIMIT / 8), "end"]);
        assert!(gathered.shows(&format!("{}end", "é".repeat(LIMIT / 8))));
        assert!(!gathered.shows("y"));
        let (kept, total) = gathered.take();
        assert_eq!((kept.len(), total), (LIMIT - 1, 2 * LIMIT + 2 + LIMIT / 4 + 3));
        assert!(gathered.is_empty());
    }
}
