//! The input of a tool: a command, a proposed change, or raw input. Always shown completely.

use std::fmt::Write as _;

use attache_protocol::{
    Json,
    json::{Members, pretty},
};

use super::{
    diff::DiffView,
    exact::{exact, exact_line},
    html::Markup,
    time::size,
};
use crate::text::Text;

/// Longer texts are folded.
const MAX_SHOWN: usize = 4 * 1024;
const MAX_LINES: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolInputView {
    pub(crate) blocks: Vec<ToolInputBlock>,
    /// The full raw input, if the blocks show it in another form.
    pub(crate) whole: Option<FoldedText>,
    /// A one-line summary for lists.
    pub(crate) brief: Markup,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolInputBlock {
    Command(FoldedText),
    Diff(Box<DiffView>),
    Text { name: Markup, text: FoldedText },
    Json(FoldedText),
}

/// A text whose end is folded if it is long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoldedText {
    pub(crate) shown: Markup,
    pub(crate) rest: Option<Markup>,
    pub(crate) rest_label: String,
}

/// The maximum size of one input on a page. A larger one is shown as raw JSON.
const MAX_MARKUP: usize = 1 << 20;
/// The size of the markup around one diff line.
const LINE_MARKUP: usize = 160;

const COMMANDS: [&str; 4] = ["command", "cmd", "script", "argv"];
const PATHS: [&str; 5] = ["file_path", "path", "filePath", "file", "filename"];
const DIFFS: [&str; 4] = ["diff", "patch", "unified_diff", "unifiedDiff"];
const PAIRS: [(&str, &str); 6] = [
    ("old_string", "new_string"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
    ("old_str", "new_str"),
    ("old", "new"),
    ("before", "after"),
];

// === impl ToolInputView ===

impl ToolInputView {
    pub(crate) fn new(input: &Json, t: &Text) -> Self {
        let pretty = FoldedText::new(&pretty(input.get()), t);
        let members = input.parse::<Members>().ok().filter(Members::are_distinct);
        let Some(Members(members)) = members else {
            let brief = exact_line(&head(&input.parse::<String>().unwrap_or_else(|_| input.get().to_owned())));
            let block = match input.parse::<String>() {
                Ok(text) => ToolInputBlock::Command(FoldedText::new(&text, t)),
                Err(_) => ToolInputBlock::Json(pretty),
            };
            return Self { blocks: vec![block], whole: None, brief };
        };
        let (mut blocks, mut left) = (Vec::new(), Vec::new());
        let path = PATHS.iter().find_map(|name| Some((*name, text_of(&members, name)?)));
        let (path_name, path) = path.map_or((None, None), |(name, path)| (Some(name), Some(path)));
        let diffs = diffs(&members, path.as_deref(), t);
        let in_diff = |name: &str| diffs.used.contains(&name) || (!diffs.shown.is_empty() && path_name == Some(name));
        let mut brief = None;
        for (name, value) in &members {
            let name = name.as_str();
            if COMMANDS.contains(&name)
                && let Some(command) = command(value)
            {
                brief.get_or_insert_with(|| head(&command));
                blocks.push(ToolInputBlock::Command(FoldedText::new(&command, t)));
            } else if in_diff(name) {
                // Shown by the diff.
            } else if let Ok(text) = value.parse::<String>()
                && (text.contains('\n') || text.len() > 200)
            {
                blocks.push(ToolInputBlock::Text { name: exact_line(name), text: FoldedText::new(&text, t) });
            } else {
                left.push((name, value));
            }
        }
        let shown_otherwise = left.len() < members.len();
        if brief.is_none() {
            brief = path;
        }
        blocks.extend(diffs.shown.into_iter().map(|diff| ToolInputBlock::Diff(Box::new(diff))));
        if !left.is_empty() || !shown_otherwise {
            blocks.push(ToolInputBlock::Json(FoldedText::new(&pretty_members(&left), t)));
        }
        let brief = exact_line(&brief.unwrap_or_else(|| head(input.get())));
        Self { blocks, whole: shown_otherwise.then_some(pretty), brief }
    }
}

impl ToolInputView {
    /// An undisclosed input: only a one-line summary.
    pub(crate) fn undisclosed(known: &str) -> Self {
        Self { blocks: Vec::new(), whole: None, brief: exact_line(&head(known)) }
    }

    /// The size on the page.
    pub(crate) fn weight(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(ToolInputBlock::weight).sum();
        blocks + self.whole.as_ref().map_or(0, FoldedText::weight)
    }

    /// Falls back to plain ASCII JSON if the input is too large for the page. It hides nothing either.
    pub(crate) fn or_plain(self, input: &Json, diff: Option<&str>, t: &Text) -> Self {
        if self.weight() <= MAX_MARKUP {
            return self;
        }
        let mut blocks = vec![ToolInputBlock::Json(FoldedText::new(&ascii(input.get()), t))];
        if let Some(diff) = diff {
            let text = FoldedText::new(&ascii(Json::of(diff).get()), t);
            blocks.insert(0, ToolInputBlock::Text { name: Markup::text(t.proposed_change), text });
        }
        Self { blocks, whole: None, brief: self.brief }
    }

    /// Puts the agent's diff first. A text that isn't a diff is shown as is.
    pub(crate) fn with_diff(mut self, diff: Option<&str>, t: &Text) -> Self {
        let Some(text) = diff.filter(|text| !text.trim().is_empty()) else { return self };
        let block = match DiffView::unified(None, text, t) {
            Some(diff) => ToolInputBlock::Diff(Box::new(self.without_repetition_of(diff))),
            None => ToolInputBlock::Text { name: Markup::text(t.proposed_change), text: FoldedText::new(text, t) },
        };
        self.blocks.insert(0, block);
        self
    }
}

impl ToolInputView {
    /// Takes out the only diff of the input if the agent's diff shows exactly the same change, with its place in the file.
    fn without_repetition_of(&mut self, mut diff: DiffView) -> DiffView {
        let is_diff = |block: &ToolInputBlock| matches!(block, ToolInputBlock::Diff(_));
        let repeated = self.blocks.iter().position(is_diff);
        let is_only = self.blocks.iter().filter(|block| is_diff(block)).count() == 1;
        if let Some(place) = repeated.filter(|_| is_only)
            && let ToolInputBlock::Diff(own) = &self.blocks[place]
            && own.changes() == diff.changes()
        {
            diff.path.clone_from(&own.path);
            self.blocks.remove(place);
        }
        diff
    }
}

/// The diffs of an input, and the members that they cover.
struct InputDiffs {
    shown: Vec<DiffView>,
    used: Vec<&'static str>,
}

fn diffs(members: &[(String, Json)], path: Option<&str>, t: &Text) -> InputDiffs {
    let mut found = InputDiffs { shown: Vec::new(), used: Vec::new() };
    if let Some((pair, diff)) = pair(members, path, t) {
        found.shown.push(diff);
        found.used.extend([pair.0, pair.1]);
    }
    for name in DIFFS {
        if let Some(diff) = text_of(members, name).and_then(|text| DiffView::unified(path, &text, t)) {
            found.shown.push(diff);
            found.used.push(name);
        }
    }
    // Several edits of one file. All or none: an edit that can't be parsed must not be hidden among others.
    if let Some((_, edits)) = members.iter().find(|(name, _)| name == "edits")
        && let Ok(edits) = edits.parse::<Vec<Members>>()
    {
        let only_a_pair = |edit: &Members| edit.are_distinct() && edit.0.len() == 2;
        let diffs: Option<Vec<_>> = edits
            .iter()
            .map(|edit| if only_a_pair(edit) { pair(&edit.0, path, t).map(|(_, diff)| diff) } else { None })
            .collect();
        if let Some(diffs) = diffs.filter(|diffs| !diffs.is_empty()) {
            found.shown.extend(diffs);
            found.used.push("edits");
        }
    }
    found
}

fn pair(members: &[(String, Json)], path: Option<&str>, t: &Text) -> Option<((&'static str, &'static str), DiffView)> {
    PAIRS.iter().find_map(|(old, new)| {
        let before = members.iter().find(|(name, _)| name == old)?;
        // A new file has no old text.
        let before = before.1.parse::<Option<String>>().ok()?.unwrap_or_default();
        let after = text_of(members, new)?;
        Some(((*old, *new), DiffView::between(path, &before, &after, t)))
    })
}

fn text_of(members: &[(String, Json)], wanted: &str) -> Option<String> {
    members.iter().find(|(name, _)| name == wanted)?.1.parse().ok()
}

/// A command line: a string as is, or an argument list quoted so that each argument is visible.
fn command(value: &Json) -> Option<String> {
    if let Ok(text) = value.parse::<String>() {
        return Some(text);
    }
    let arguments: Vec<String> = value.parse().ok()?;
    let quoted: Vec<_> = arguments.iter().map(|argument| quote(argument)).collect();
    Some(quoted.join(" "))
}

fn quote(argument: &str) -> String {
    let safe = |character: char| character.is_ascii_alphanumeric() || "-_./:=@%+,".contains(character);
    if !argument.is_empty() && argument.chars().all(safe) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

/// The first line of a text, shortened for a list.
pub(crate) fn head(text: &str) -> String {
    let line = text.trim_start().lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(120).collect();
    if short.len() < text.trim().len() {
        short.push('…');
    }
    short
}

fn pretty_members(members: &[(&str, &Json)]) -> String {
    let lines: Vec<_> = members
        .iter()
        .map(|(name, value)| format!("  {}: {}", Json::of(name).get(), pretty(value.get()).replace('\n', "\n  ")))
        .collect();
    if lines.is_empty() { "{}".to_owned() } else { format!("{{\n{}\n}}", lines.join(",\n")) }
}

/// JSON with all non-ASCII characters escaped.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() {
            text.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

// === impl ToolInputBlock ===

impl ToolInputBlock {
    fn weight(&self) -> usize {
        match self {
            Self::Command(text) | Self::Json(text) => text.weight(),
            Self::Text { name, text } => name.len() + text.weight(),
            Self::Diff(diff) => diff.lines.iter().chain(&diff.rest).map(|line| line.text.len() + LINE_MARKUP).sum(),
        }
    }
}

// === impl FoldedText ===

impl FoldedText {
    fn weight(&self) -> usize {
        self.shown.len() + self.rest.as_ref().map_or(0, Markup::len)
    }

    pub(crate) fn new(text: &str, t: &Text) -> Self {
        let by_lines = text.match_indices('\n').nth(MAX_LINES - 1).map_or(text.len(), |(at, _)| at + 1);
        let end = text.floor_char_boundary(by_lines.min(MAX_SHOWN));
        // Don't fold just a few characters.
        if text.len() - end < 200 {
            return Self { shown: exact(text), rest: None, rest_label: String::new() };
        }
        let (shown, rest) = text.split_at(end);
        let length = size(u64::try_from(rest.len()).unwrap_or(u64::MAX));
        Self { shown: exact(shown), rest: Some(exact(rest)), rest_label: t.not_all(&length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    fn input(json: &str) -> ToolInputView {
        ToolInputView::new(&Json::from_text(json).unwrap(), Language::En.text())
    }

    fn blocks(json: &str) -> Vec<String> {
        let shown = |block: &ToolInputBlock| match block {
            ToolInputBlock::Command(text) => format!("$ {}", text.shown),
            ToolInputBlock::Diff(diff) => format!("diff {:?} +{} -{}", diff.path, diff.added, diff.removed),
            ToolInputBlock::Text { name, text } => format!("{name}: {}", text.shown),
            ToolInputBlock::Json(text) => text.shown.to_string(),
        };
        input(json).blocks.iter().map(shown).collect()
    }

    #[test]
    fn a_command_is_shown_as_it_would_run_with_the_other_members() {
        assert_eq!(blocks(r#"{"command":"rm -rf /tmp/x\necho"}"#), ["$ rm -rf /tmp/x\necho"]);
        assert_eq!(
            blocks(r#"{"command":["git","commit","-m","it's"],"timeout":1.50}"#),
            ["$ git commit -m &#39;it&#39;\\&#39;&#39;s&#39;", "{\n  &quot;timeout&quot;: 1.50\n}"]
        );
        assert_eq!(blocks(r#""echo hi""#), ["$ echo hi"]);
        let shown = input(r#"{"command":"ls"}"#);
        assert_eq!(shown.whole.unwrap().shown.to_string(), "{\n  &quot;command&quot;: &quot;ls&quot;\n}");
    }

    #[test]
    fn a_duplicate_member_hides_nothing() {
        assert_eq!(
            blocks(r#"{"command":"ls","command":"rm -rf ~"}"#),
            ["{\n  &quot;command&quot;: &quot;ls&quot;,\n  &quot;command&quot;: &quot;rm -rf ~&quot;\n}"]
        );
    }

    #[test]
    fn edits_are_shown_as_diffs() {
        assert_eq!(
            blocks(r#"{"file_path":"a.rs","old_string":"x","new_string":"y\nz"}"#),
            [r#"diff Some(Markup("a.rs")) +2 -1"#]
        );
        assert_eq!(blocks(r#"{"path":"n","oldText":null,"newText":"y"}"#), [r#"diff Some(Markup("n")) +1 -0"#]);
        assert_eq!(
            blocks(r#"{"diff":"@@ -1 +1 @@\n-a\n+b\n","dry":true}"#),
            ["diff None +1 -1", "{\n  &quot;dry&quot;: true\n}"]
        );
        assert_eq!(
            blocks(r#"{"edits":[{"old_string":"a","new_string":"b"},{"old_string":"c","new_string":"d"}]}"#),
            ["diff None +1 -1", "diff None +1 -1"]
        );
        // An edit with unknown members is shown as raw input.
        assert!(blocks(r#"{"edits":[{"old_string":"a","new_string":"b","all":true}]}"#)[0].starts_with("{\n"));
    }

    #[test]
    fn the_proposed_change_comes_first_and_is_inert() {
        let t = Language::En.text();
        let shown = |diff: &str| {
            let input = input(r#"{"path":"a"}"#).with_diff(Some(diff), t);
            let ToolInputBlock::Diff(diff) = &input.blocks[0] else { panic!("{input:?}") };
            diff.lines.iter().map(|line| format!("{} {}", line.class, line.text)).collect::<Vec<_>>()
        };
        let lines = shown("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+<script>alert(1)</script>\n");
        assert_eq!(lines[3..], ["cut old", "add &lt;script&gt;alert(1)&lt;/script&gt;"]);
        let odd = input("{}").with_diff(Some("not a <b>diff</b>"), t);
        let ToolInputBlock::Text { text, .. } = &odd.blocks[0] else { panic!("{odd:?}") };
        assert_eq!(text.shown.to_string(), "not a &lt;b&gt;diff&lt;/b&gt;");
        assert_eq!(input("{}").with_diff(Some(" \n"), t), input("{}"));
    }

    #[test]
    fn a_change_is_shown_once_and_another_one_is_not_hidden() {
        let t = Language::En.text();
        let shown = |diff: &str| {
            let edit = r#"{"file_path":"a.rs","old_string":"let x = 1;","new_string":"let x = 2;"}"#;
            let blocks = input(edit).with_diff(Some(diff), t).blocks;
            blocks
                .into_iter()
                .map(|block| match block {
                    ToolInputBlock::Diff(diff) => {
                        format!("{:?} {}", diff.path.map(|path| path.to_string()), diff.lines.len())
                    }
                    other => format!("{other:?}"),
                })
                .collect::<Vec<_>>()
        };
        let same = "@@ -7,2 +7,2 @@\n fn f() {\n-let x = 1;\n+let x = 2;\n";
        assert_eq!(shown(same), [r#"Some("a.rs") 4"#]);
        let other = "@@ -7 +7 @@\n-let x = 1;\n+let x = 3;\n";
        assert_eq!(shown(other), ["None 3", r#"Some("a.rs") 2"#]);
    }

    #[test]
    fn long_text_is_folded_with_a_label() {
        let shown = input(&format!("{{\"command\":{}}}", Json::of(&"x".repeat(9_000)).get()));
        let ToolInputBlock::Command(text) = &shown.blocks[0] else { panic!("{shown:?}") };
        assert_eq!(text.rest.as_ref().unwrap().to_string().len(), 9_000 - MAX_SHOWN);
        assert_eq!(text.rest_label, "Not everything is shown. Show 4.7 KiB more");
        assert_eq!(shown.brief.to_string(), format!("{}…", "x".repeat(120)));
    }
}
