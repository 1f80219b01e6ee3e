//! The pieces of an answer as they came, kept within a limit and compared with the whole at the end.

use std::mem;

/// The beginning of what was streamed, and how much there was.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Gathered {
    kept: String,
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
    }

    /// Forgets what a device wrote that does not go on.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What was kept, and how many bytes there were.
    pub(crate) fn take(&mut self) -> (String, usize) {
        let Self { kept, total } = mem::take(self);
        (kept, total)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether the pieces are the whole text. White space at the end is nothing that anybody sees.
    pub(crate) fn is(&self, text: &str) -> bool {
        if self.total == self.kept.len() {
            return self.kept.trim_end() == text.trim_end();
        }
        self.total == text.len() && text.starts_with(&self.kept)
    }

    /// Whether the pieces are how the text ends: all that can be known when its beginning was not asked for.
    pub(crate) fn ends(&self, text: &str) -> bool {
        if self.total == self.kept.len() {
            return text.trim_end().ends_with(self.kept.trim_end());
        }
        text.len().checked_sub(self.total).and_then(|start| text.get(start..)).is_some_and(|end| self.is(end))
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
        assert!(gathered(&["one\n", "two\n"]).is("one\ntwo\n"));
        assert!(!gathered(&["one\n", "three\n"]).is("one\ntwo\nthree\n"));
        assert!(!gathered(&["one\n"]).is("one\ntwo\n"));
        assert!(!gathered(&["one\n", "one\n"]).is("one\n"));
    }

    #[test]
    fn white_space_at_the_end_makes_no_difference() {
        assert!(gathered(&["one\n", "two\n", "\n"]).is("one\ntwo"));
        assert!(gathered(&["one"]).is("one \n"));
        assert!(gathered(&["two\n"]).ends("one\ntwo"));
        assert!(gathered(&["two"]).ends("one\ntwo\n"));
        assert!(!gathered(&["one\ntwo"]).is("one\n\ntwo"));
        assert!(!gathered(&[" one"]).is("one"));
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
        let mut gathered = gathered(&["x", &long, "y"]);
        assert!(gathered.is(&format!("x{long}y")));
        let (kept, total) = gathered.take();
        assert_eq!((kept.len(), total), (LIMIT - 1, 2 * LIMIT + 2));
        assert!(gathered.is_empty());
    }
}
