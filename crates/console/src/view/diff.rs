//! A proposed change as diff lines, from an old and a new text or from a unified diff. Every line is shown exactly.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline, group_diff_ops};

use super::{exact::exact_line, html::Markup};
use crate::text::Text;

/// Lines shown at first. The rest is folded.
const MAX_SHOWN: usize = 60;
/// Unchanged context lines around a change.
const CONTEXT_LINES: usize = 3;
/// How long comparing may take. After that, the diff is correct but coarser.
const MAX_TIME: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiffView {
    pub(crate) path: Option<Markup>,
    pub(crate) added: usize,
    pub(crate) removed: usize,
    pub(crate) lines: Vec<DiffLine>,
    pub(crate) rest: Vec<DiffLine>,
    pub(crate) rest_label: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiffLine {
    /// `same`, `cut`, `add` or `hunk`.
    pub(crate) class: &'static str,
    /// Line numbers, if known.
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) text: Markup,
}

// === impl DiffView ===

impl DiffView {
    /// The removed and added lines, without the marks of what changed within them.
    pub(crate) fn changes(&self) -> Vec<(&'static str, String)> {
        let unmarked = |text: &Markup| {
            let mut text = text.to_string();
            for mark in ["<ins>", "</ins>", "<del>", "</del>"] {
                text = text.replace(mark, "");
            }
            text
        };
        let lines = self.lines.iter().chain(&self.rest).filter(|line| matches!(line.class, "cut" | "add"));
        lines.map(|line| (line.class, unmarked(&line.text))).collect()
    }

    /// The diff between the old and the new text.
    pub(crate) fn between(path: Option<&str>, old: &str, new: &str, t: &Text) -> Self {
        Self::new(path, lines_between(old, new, t), t)
    }

    /// `None` if the text isn't a unified diff.
    pub(crate) fn unified(path: Option<&str>, text: &str, t: &Text) -> Option<Self> {
        let mut lines = Vec::new();
        let mut hunk: Option<DiffHunk> = None;
        let mut is_one = false;
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            if let Some(next) = DiffHunk::parse(line) {
                is_one = true;
                hunk = Some(next);
                lines.push(DiffLine::quiet(line));
                continue;
            }
            match hunk.as_mut().and_then(|hunk| hunk.line(line)) {
                Some(read) => lines.push(read),
                None => lines.push(DiffLine::quiet(line)),
            }
        }
        is_one.then(|| Self::new(path, lines, t))
    }

    fn new(path: Option<&str>, mut lines: Vec<DiffLine>, t: &Text) -> Self {
        let count = |class| lines.iter().filter(|line: &&DiffLine| line.class == class).count();
        let (added, removed) = (count("add"), count("cut"));
        let rest = lines.split_off(lines.len().min(MAX_SHOWN));
        let rest_label = if rest.is_empty() { String::new() } else { t.more_lines(rest.len() as u64) };
        Self { path: path.map(exact_line), added, removed, lines, rest, rest_label }
    }
}

// === impl DiffLine ===

impl DiffLine {
    fn new(class: &'static str, text: Markup) -> Self {
        Self { class, old: String::new(), new: String::new(), text }
    }

    /// A header line that isn't part of the content.
    fn quiet(text: &str) -> Self {
        Self::new("hunk", exact_line(text))
    }
}

/// The position in a hunk, and how many lines remain.
#[derive(Debug, Clone, Copy)]
struct DiffHunk {
    old: usize,
    new: usize,
    old_left: usize,
    new_left: usize,
}

// === impl DiffHunk ===

impl DiffHunk {
    /// `@@ -12,5 +12,6 @@ …`
    fn parse(line: &str) -> Option<Self> {
        let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
        let (old, new) = ranges.split_once(" +")?;
        let range = |text: &str| -> Option<(usize, usize)> {
            let (start, count) = text.split_once(',').unwrap_or((text, "1"));
            Some((start.parse().ok()?, count.parse().ok()?))
        };
        let ((old, old_left), (new, new_left)) = (range(old)?, range(new)?);
        Some(Self { old, new, old_left, new_left })
    }

    /// `None` after the end of the hunk, or for an invalid line.
    fn line(&mut self, line: &str) -> Option<DiffLine> {
        let (class, text) = match line.as_bytes().first() {
            Some(b'+') => ("add", &line[1..]),
            Some(b'-') => ("cut", &line[1..]),
            Some(b' ') => ("same", &line[1..]),
            // Some programs omit the leading space of an empty line.
            None => ("same", ""),
            Some(_) => return None,
        };
        let mut read = DiffLine::new(class, exact_line(text));
        if class != "add" {
            self.old_left = self.old_left.checked_sub(1)?;
            read.old = self.old.to_string();
            self.old = self.old.saturating_add(1);
        }
        if class != "cut" {
            self.new_left = self.new_left.checked_sub(1)?;
            read.new = self.new.to_string();
            self.new = self.new.saturating_add(1);
        }
        Some(read)
    }
}

fn lines_between(old: &str, new: &str, t: &Text) -> Vec<DiffLine> {
    let (old, new) = (lines_of(old), lines_of(new));
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(Instant::now() + MAX_TIME));
    let (mut lines, mut shown) = (Vec::new(), 0);
    // Long unchanged stretches are replaced by a count. The full input is shown below.
    let skip = |lines: &mut Vec<DiffLine>, count: usize| {
        if count > 0 {
            lines.push(DiffLine::new("hunk", Markup::text(&t.same_lines(count as u64))));
        }
    };
    for op in group_diff_ops(ops, CONTEXT_LINES).into_iter().flatten() {
        skip(&mut lines, op.old_range().start.saturating_sub(shown));
        shown = op.old_range().end;
        let (from, to) = (&old[op.old_range()], &new[op.new_range()]);
        match (op.tag(), from, to) {
            (DiffTag::Equal, from, _) => lines.extend(from.iter().map(|text| DiffLine::new("same", exact_line(text)))),
            (_, [from], [to]) => {
                lines.push(DiffLine::new("cut", marked(from, to, "del")));
                lines.push(DiffLine::new("add", marked(to, from, "ins")));
            }
            (_, from, to) => {
                lines.extend(from.iter().map(|text| DiffLine::new("cut", exact_line(text))));
                lines.extend(to.iter().map(|text| DiffLine::new("add", exact_line(text))));
            }
        }
    }
    skip(&mut lines, old.len().saturating_sub(shown));
    lines
}

fn lines_of(text: &str) -> Vec<&str> {
    if text.is_empty() { Vec::new() } else { text.split('\n').collect() }
}

/// The text with the parts that differ from the other one marked.
fn marked(text: &str, other: &str, tag: &str) -> Markup {
    let ahead: usize =
        text.chars().zip(other.chars()).take_while(|(a, b)| a == b).map(|(character, _)| character.len_utf8()).sum();
    let behind: usize = text[ahead..]
        .chars()
        .rev()
        .zip(other[ahead..].chars().rev())
        .take_while(|(a, b)| a == b)
        .map(|(character, _)| character.len_utf8())
        .sum();
    let end = text.len() - behind;
    let (before, middle, after) = (exact_line(&text[..ahead]), exact_line(&text[ahead..end]), exact_line(&text[end..]));
    if middle.is_empty() || (ahead == 0 && behind == 0) {
        return exact_line(text);
    }
    Markup::trusted(format!("{before}<{tag}>{middle}</{tag}>{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    fn shown(diff: &DiffView) -> Vec<String> {
        let number = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        diff.lines
            .iter()
            .map(|line| format!("{} {}/{} {}", line.class, number(&line.old), number(&line.new), line.text))
            .collect()
    }

    #[test]
    fn two_texts_become_a_diff() {
        let old = "one\ntwo\nimage: x:15.8\nfour\nfive\nsix\nseven\neight\nnine\n";
        let new = old.replace("15.8", "16.4").replace("nine", "nine\nten");
        let diff = DiffView::between(Some("a<b.yaml"), old, &new, Language::En.text());
        assert_eq!(diff.path.as_ref().unwrap().to_string(), "a&lt;b.yaml");
        assert_eq!((diff.added, diff.removed), (2, 1));
        assert_eq!(
            shown(&diff),
            [
                "same -/- one",
                "same -/- two",
                "cut -/- image: x:1<del>5.8</del>",
                "add -/- image: x:1<ins>6.4</ins>",
                "same -/- four",
                "same -/- five",
                "same -/- six",
                "same -/- seven",
                "same -/- eight",
                "same -/- nine",
                "add -/- ten",
                "same -/- ",
            ]
        );
    }

    #[test]
    fn distant_lines_are_counted_and_a_huge_change_is_not_compared() {
        let old: String = (0..40).map(|number| format!("line {number}\n")).collect();
        let diff = DiffView::between(None, &old, &old.replace("line 20\n", ""), Language::En.text());
        let lines = shown(&diff);
        assert_eq!(lines.first().unwrap(), "hunk -/- 17 unchanged lines");
        assert_eq!(lines[4], "cut -/- line 20");
        assert_eq!(lines.len(), 9);
        let (many, other) = ("a\n".repeat(3_000), "b\n".repeat(3_000));
        let diff = DiffView::between(None, &many, &other, Language::En.text());
        assert_eq!((diff.added, diff.removed, diff.lines.len()), (3_000, 3_000, MAX_SHOWN));
        assert_eq!(diff.rest.len(), 6_001 - MAX_SHOWN);
    }

    #[test]
    fn a_unified_diff_is_parsed_and_a_wrong_length_hides_nothing() {
        let text = "--- a/x\n+++ b/x\n@@ -3,3 +3,3 @@ fn\n keep\n-old \u{202e}\n+new <b>\n keep\n+beyond the hunk\n";
        let diff = DiffView::unified(None, text, Language::En.text()).unwrap();
        assert_eq!(
            shown(&diff),
            [
                "hunk -/- --- a/x",
                "hunk -/- +++ b/x",
                "hunk -/- @@ -3,3 +3,3 @@ fn",
                "same 3/3 keep",
                "cut 4/- old <i class=\"odd\">U+202E</i>",
                "add -/4 new &lt;b&gt;",
                "same 5/5 keep",
                "hunk -/- +beyond the hunk",
            ]
        );
        assert_eq!(DiffView::unified(None, "- a list\n- of things\n", Language::En.text()), None);
    }
}
