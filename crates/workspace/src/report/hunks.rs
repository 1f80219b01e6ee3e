//! The change of a text in hunks: as a patch shows them, and the text without some of them.

use std::{collections::BTreeSet, fmt::Write as _, ops::Range, time::Duration};

use similar::{DiffOp, DiffTag, TextDiff, udiff::UnifiedHunkHeader};

/// Two versions of a text and the hunks between them. Outside the hunks, both are the same.
#[derive(Debug)]
pub(super) struct TextHunks<'a> {
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    hunks: Vec<TextHunk>,
}

/// A hunk, in lines of the old and of the new text.
#[derive(Debug)]
struct TextHunk {
    header: String,
    ops: Vec<DiffOp>,
    old: Range<usize>,
    new: Range<usize>,
}

/// Lines around a change.
const CONTEXT: usize = 3;
/// After this time, the diff gets coarser.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

// === impl TextHunks ===

impl<'a> TextHunks<'a> {
    pub(super) fn of(old: &'a str, new: &'a str) -> Self {
        // As git does: only a line feed ends a line.
        let old: Vec<&str> = old.split_inclusive('\n').collect();
        let new: Vec<&str> = new.split_inclusive('\n').collect();
        let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_slices(&old, &new);
        let groups = diff.grouped_ops(CONTEXT).into_iter();
        let hunks = groups.filter_map(|ops| {
            let (first, last) = (ops.first()?, ops.last()?);
            Some(TextHunk {
                header: UnifiedHunkHeader::new(&ops).to_string(),
                old: first.old_range().start..last.old_range().end,
                new: first.new_range().start..last.new_range().end,
                ops,
            })
        });
        Self { hunks: hunks.collect(), old, new }
    }

    /// The first line of each hunk, in order.
    pub(super) fn headers(&self) -> impl Iterator<Item = &str> {
        self.hunks.iter().map(|hunk| &*hunk.header)
    }

    pub(super) fn len(&self) -> usize {
        self.hunks.len()
    }

    /// The numbers of lines added and removed.
    pub(super) fn lines(&self) -> (u64, u64) {
        let changes = self.hunks.iter().flat_map(|hunk| &hunk.ops).filter(|op| op.tag() != DiffTag::Equal);
        changes.fold((0, 0), |(added, removed), op| {
            (added + op.new_range().len() as u64, removed + op.old_range().len() as u64)
        })
    }

    /// Writes the hunks as a patch has them.
    pub(super) fn write(&self, text: &mut String) {
        for hunk in &self.hunks {
            let _ = writeln!(text, "{}", hunk.header);
            for (tag, old, new) in hunk.ops.iter().map(DiffOp::as_tag_tuple) {
                if tag == DiffTag::Equal {
                    self.old[old].iter().for_each(|line| write_line(' ', line, text));
                } else {
                    self.old[old].iter().for_each(|line| write_line('-', line, text));
                    self.new[new].iter().for_each(|line| write_line('+', line, text));
                }
            }
        }
    }

    /// The new text, with the old lines in place of these hunks. The first hunk has number 1.
    pub(super) fn without(&self, discarded: &BTreeSet<usize>) -> String {
        let (mut text, mut at) = (String::new(), 0);
        for (hunk, number) in self.hunks.iter().zip(1..) {
            text.extend(self.new[at..hunk.new.start].iter().copied());
            let is_discarded = discarded.contains(&number);
            let lines = if is_discarded { &self.old[hunk.old.clone()] } else { &self.new[hunk.new.clone()] };
            text.extend(lines.iter().copied());
            at = hunk.new.end;
        }
        text.extend(self.new[at..].iter().copied());
        text
    }
}

fn write_line(sign: char, line: &str, text: &mut String) {
    text.push(sign);
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(from: impl Iterator<Item = usize>) -> BTreeSet<usize> {
        from.collect()
    }

    /// Texts of few different lines, so that they have much in common, with every kind of line end.
    fn text() -> impl Strategy<Value = String> {
        let line = prop::sample::select(vec!["a\n", "b\n", "c\r\n", "\n", "d\r", "long line\n", "a\r\n"]);
        let last = prop::sample::select(vec!["", "", "end", "end\r"]);
        (prop::collection::vec(line, 0..60), last).prop_map(|(lines, last)| lines.concat() + last)
    }

    /// A text and a version of it with some lines replaced, added and removed.
    fn versions() -> impl Strategy<Value = (String, String)> {
        let edit = (0_usize..80, prop::sample::select(vec!["", "x\n", "x\r\ny\n", "a\n"]));
        let edited = (text(), prop::collection::vec(edit, 0..6)).prop_map(|(old, edits)| {
            let mut lines: Vec<&str> = old.split_inclusive('\n').collect();
            for (at, with) in edits {
                if let Some(line) = lines.get_mut(at) {
                    *line = with;
                }
            }
            let new = lines.concat();
            (old, new)
        });
        prop_oneof![edited, (text(), text())]
    }

    proptest! {
        #[test]
        fn all_hunks_none_and_some((old, new) in versions(), chosen in prop::collection::btree_set(1_usize..12, 0..8)) {
            let hunks = TextHunks::of(&old, &new);
            prop_assert_eq!(hunks.without(&BTreeSet::new()), &*new);
            prop_assert_eq!(hunks.without(&numbers(1..=hunks.len())), &*old);
            let some = hunks.without(&chosen);
            let rest = TextHunks::of(&old, &some);
            prop_assert_eq!(rest.without(&numbers(1..=rest.len())), &*old);
            // What one choice discards, the other keeps: together they are the whole change.
            let others = numbers((1..=hunks.len()).filter(|number| !chosen.contains(number)));
            let other = hunks.without(&others);
            prop_assert_eq!(some.len() + other.len(), old.len() + new.len());
        }
    }

    #[test]
    fn a_hunk_is_discarded_with_its_line_ends() {
        let old = "1\r\n2\n3\n4\n5\n6\n7\n8\n9\n10";
        let new = "one\n2\n3\n4\n5\n6\n7\n8\n9\nten\n";
        let hunks = TextHunks::of(old, new);
        assert_eq!(hunks.headers().collect::<Vec<_>>(), ["@@ -1,4 +1,4 @@", "@@ -7,4 +7,4 @@"]);
        assert_eq!(hunks.lines(), (2, 2));
        assert_eq!(hunks.without(&numbers(1..2)), "1\r\n2\n3\n4\n5\n6\n7\n8\n9\nten\n");
        assert_eq!(hunks.without(&numbers(2..3)), "one\n2\n3\n4\n5\n6\n7\n8\n9\n10");
        let mut patch = String::new();
        hunks.write(&mut patch);
        assert_eq!(
            patch,
            "@@ -1,4 +1,4 @@\n-1\r\n+one\n 2\n 3\n 4\n@@ -7,4 +7,4 @@\n 7\n 8\n 9\n-10\n\\ No newline at end of file\n+ten\n"
        );
    }

    #[test]
    fn empty_texts_have_no_lines() {
        assert_eq!(TextHunks::of("", "").len(), 0);
        let added = TextHunks::of("", "a\rb");
        assert_eq!((added.lines(), added.headers().collect::<Vec<_>>()), ((1, 0), vec!["@@ -0,0 +1 @@"]));
        assert_eq!(added.without(&numbers(1..2)), "");
        assert_eq!(TextHunks::of("a\n", "").without(&numbers(1..2)), "a\n");
    }
}
