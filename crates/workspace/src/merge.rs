//! A three-way merge of text, line by line.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

/// Lines that one side put in place of some of the base.
struct LineEdit<'a> {
    base: Range<usize>,
    lines: &'a [&'a [u8]],
}

/// A place where both sides changed the same lines differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergeConflict {
    /// The number of lines before it in our version.
    pub(crate) line: usize,
    pub(crate) base: Vec<u8>,
    pub(crate) ours: Vec<u8>,
    pub(crate) theirs: Vec<u8>,
}

/// Whose lines are taken where both sides changed the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MergePreference {
    Neither,
    Theirs,
}

/// After this, the diff is coarser, and a conflict more likely.
const DIFF_TIMEOUT: Duration = Duration::from_secs(1);

/// What both sides made of the base, or `None` if they changed the same lines differently, or one isn't text. Edits of
/// neighbouring lines count as the same place: whoever wrote them didn't see the other.
pub(crate) fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    merge_or_conflicts(base, ours, theirs).ok()
}

/// Like [`merge`], with the places of the conflicts. There are none if one isn't text.
pub(crate) fn merge_or_conflicts(base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<Vec<u8>, Vec<MergeConflict>> {
    merge_lines(base, ours, theirs, MergePreference::Neither)
}

/// Like [`merge`], with their lines where both sides changed the same ones. `None` if one isn't text.
pub(crate) fn merge_favoring_theirs(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    merge_lines(base, ours, theirs, MergePreference::Theirs).ok()
}

fn merge_lines(
    base: &[u8],
    ours: &[u8],
    theirs: &[u8],
    choice: MergePreference,
) -> Result<Vec<u8>, Vec<MergeConflict>> {
    if [base, ours, theirs].iter().any(|text| !is_text(text)) {
        return Err(Vec::new());
    }
    let (base, ours, theirs) = (lines(base), lines(ours), lines(theirs));
    let (our_edits, their_edits) = (edits(&base, &ours), edits(&base, &theirs));
    let (mut one, mut other) = (our_edits.into_iter().peekable(), their_edits.into_iter().peekable());
    let (mut merged, mut conflicts): (Vec<&[u8]>, Vec<MergeConflict>) = (Vec::new(), Vec::new());
    // In lines of the base, and of our version.
    let (mut at, mut line) = (0, 0);
    loop {
        let start = match (one.peek(), other.peek()) {
            (None, None) => break,
            (Some(edit), None) | (None, Some(edit)) => edit.base.start,
            (Some(left), Some(right)) => left.base.start.min(right.base.start),
        };
        // All edits of both sides that overlap or touch each other are one place.
        let (mut left, mut right, mut end) = (Vec::new(), Vec::new(), start);
        loop {
            if let Some(edit) = one.next_if(|edit| edit.base.start <= end) {
                end = end.max(edit.base.end);
                left.push(edit);
            } else if let Some(edit) = other.next_if(|edit| edit.base.start <= end) {
                end = end.max(edit.base.end);
                right.push(edit);
            } else {
                break;
            }
        }
        merged.extend(&base[at..start]);
        line += start - at;
        let (mine, yours) = (side(&base, start..end, &left), side(&base, start..end, &right));
        if right.is_empty() || mine == yours {
            merged.extend(&mine);
        } else if left.is_empty() || choice == MergePreference::Theirs {
            merged.extend(&yours);
        } else {
            let base = base[start..end].concat();
            conflicts.push(MergeConflict { line, base, ours: mine.concat(), theirs: yours.concat() });
        }
        line += mine.len();
        at = end;
    }
    merged.extend(&base[at..]);
    if conflicts.is_empty() { Ok(merged.concat()) } else { Err(conflicts) }
}

/// A part of the base with the edits of one side.
fn side<'a>(base: &[&'a [u8]], part: Range<usize>, edits: &[LineEdit<'a>]) -> Vec<&'a [u8]> {
    let (mut lines, mut at) = (Vec::new(), part.start);
    for edit in edits {
        lines.extend(&base[at..edit.base.start]);
        lines.extend(edit.lines);
        at = edit.base.end;
    }
    lines.extend(&base[at..part.end]);
    lines
}

pub(crate) fn is_text(content: &[u8]) -> bool {
    !content.contains(&0) && std::str::from_utf8(content).is_ok()
}

/// With their ends.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn edits<'a>(base: &[&[u8]], side: &'a [&'a [u8]]) -> Vec<LineEdit<'a>> {
    let until = Some(Instant::now() + DIFF_TIMEOUT);
    let changed = capture_diff_slices_deadline(Algorithm::Myers, base, side, until).into_iter();
    let changed = changed.filter(|op| !matches!(op, DiffOp::Equal { .. }));
    changed.map(|op| LineEdit { base: op.old_range(), lines: &side[op.new_range()] }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn their_lines_are_taken_only_where_both_changed_the_same() {
        let base = b"one\ntwo\nthree\nfour\nfive\n";
        let (ours, theirs) = (b"one\nmine\nthree\nfour\nFIVE\n", b"one\ntheirs\nthree\nfour\nfive\n");
        assert_eq!(merge(base, ours, theirs), None);
        let merged = merge_favoring_theirs(base, ours, theirs).unwrap();
        assert_eq!(String::from_utf8(merged).unwrap(), "one\ntheirs\nthree\nfour\nFIVE\n");
        assert_eq!(merge_favoring_theirs(base, b"\0", theirs), None);
    }

    #[test]
    fn edits_of_different_lines_are_merged() {
        let base = b"one\ntwo\nthree\nfour\nfive\n";
        let merged = merge(base, b"ONE\ntwo\nthree\nfour\nfive\n", b"one\ntwo\nthree\nfour\nfive\nsix\n");
        assert_eq!(merged.as_deref(), Some(&b"ONE\ntwo\nthree\nfour\nfive\nsix\n"[..]));
        let removed = merge(base, b"two\nthree\nfour\nfive\n", b"one\ntwo\nthree\nFOUR\nfive\n");
        assert_eq!(removed.as_deref(), Some(&b"two\nthree\nFOUR\nfive\n"[..]));
        let same = merge(base, b"1\ntwo\nthree\nfour\nfive", b"1\ntwo\nthree\nfour\nfive");
        assert_eq!(same.as_deref(), Some(&b"1\ntwo\nthree\nfour\nfive"[..]));
    }

    #[test]
    fn edits_of_the_same_place_and_binary_content_are_not() {
        let base = b"one\ntwo\nthree\n";
        assert_eq!(merge(base, b"ONE\ntwo\nthree\n", b"Eins\ntwo\nthree\n"), None);
        assert_eq!(merge(base, b"ONE\ntwo\nthree\n", b"one\nTWO\nthree\n"), None, "they are neighbours");
        assert_eq!(merge(base, b"one\ntwo\nthree\na\n", b"one\ntwo\nthree\nb\n"), None);
        assert_eq!(merge(base, b"one\0\ntwo\nthree\n", base), None);
    }

    #[test]
    fn a_conflict_says_where_it_is() {
        let (base, ours) = (b"1\n2\n3\n4\n5\n6\n7\n", b"0\n1\n2\n3\nfour\n5\n6\n7\n");
        let conflicts = merge_or_conflicts(base, ours, b"1\n2\n3\nvier\nf\xC3\xBCnf\n6\n7\n8\n").unwrap_err();
        let conflict = MergeConflict {
            line: 4,
            base: b"4\n5\n".to_vec(),
            ours: b"four\n5\n".to_vec(),
            theirs: b"vier\nf\xC3\xBCnf\n".to_vec(),
        };
        assert_eq!(conflicts, [conflict]);
        assert_eq!(merge_or_conflicts(b"\0", b"a", b"b"), Err(Vec::new()));
    }

    proptest! {
        #[test]
        fn an_edit_of_one_side_is_taken_as_it_is(base in "([a-c]\n){0,8}", ours in "([a-d]\n){0,8}[a-d]?") {
            let (base, ours) = (base.as_bytes(), ours.as_bytes());
            prop_assert_eq!(merge(base, ours, base), Some(ours.to_vec()));
            prop_assert_eq!(merge(base, base, ours), Some(ours.to_vec()));
            prop_assert_eq!(merge(base, ours, ours), Some(ours.to_vec()));
        }

        /// The order of the sides decides nothing.
        #[test]
        fn a_merge_is_the_same_from_both_sides(
            base in "([a-c]\n){0,8}", ours in "([a-d]\n){0,8}", theirs in "([a-e]\n){0,8}",
        ) {
            let (base, ours, theirs) = (base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
            prop_assert_eq!(merge(base, ours, theirs), merge(base, theirs, ours));
            if let Err(conflicts) = merge_or_conflicts(base, ours, theirs) {
                prop_assert!(conflicts.iter().all(|place| place.ours != place.theirs));
            }
        }

        /// Whatever was added on either side is in the result.
        #[test]
        fn no_new_line_gets_lost(
            base in proptest::collection::vec("[a-z]\n", 0..12),
            ours in proptest::collection::vec((0_usize..12, any::<bool>()), 0..4),
            theirs in proptest::collection::vec((0_usize..12, any::<bool>()), 0..4),
        ) {
            let edited = |edits: &[(usize, bool)], who: &str| {
                let mut lines = base.clone();
                let mut added = Vec::new();
                for (number, (at, replaces)) in edits.iter().enumerate() {
                    let at = (*at).min(lines.len());
                    let line = format!("{who}{number}\n");
                    if *replaces && at < lines.len() && !lines[at].starts_with(who) {
                        lines[at].clone_from(&line);
                    } else {
                        lines.insert(at, line.clone());
                    }
                    added.push(line);
                }
                (lines.concat(), added)
            };
            let ((ours, our_lines), (theirs, their_lines)) = (edited(&ours, "OURS"), edited(&theirs, "THEIRS"));
            if let Some(merged) = merge(base.concat().as_bytes(), ours.as_bytes(), theirs.as_bytes()) {
                let merged = String::from_utf8(merged).unwrap();
                for line in our_lines.iter().chain(&their_lines) {
                    prop_assert!(merged.contains(line.as_str()), "{line:?} in {merged:?}");
                }
            }
        }
    }
}
