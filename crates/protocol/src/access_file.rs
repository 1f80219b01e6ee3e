//! `permissions.yaml`: parses and writes the rules of [`crate::rules::access`], and locates errors.
//!
//! ```yaml
//! default: own            # own (its own user's things, and shared agents), deny or allow; may be left out if there are agents
//! agents:
//!   user123-laptop:       # a name, an id, or a pattern in quotes: "*"
//!     can_access:
//!       - conversations/user123/*
//!       - resources/public/*
//!     cannot_access:
//!       - conversations/other_users/*
//!       - agents/*/memory/*
//! ```
//!
//! A file with any invalid part is rejected: a typo in a denial must not grant access.

use std::fmt;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput};

use crate::rules::access::{self, AccessPattern, AccessRule, AccessRuleSet, Fallback, NameGlob};

/// All errors in a file, in line order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct RulesFileReport {
    pub mistakes: Vec<RulesFileMistake>,
}

/// One error, its position, and how to fix it. Lines and columns count from 1, as in editors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesFileMistake {
    pub line: usize,
    pub column: usize,
    pub what: String,
    pub hint: String,
}

/// A YAML node with its position.
struct YamlNode<'a> {
    at: Marker,
    value: YamlValue<'a>,
}

enum YamlValue<'a> {
    Text(std::borrow::Cow<'a, str>),
    /// No value.
    Empty,
    List(Vec<YamlNode<'a>>),
    Map(Vec<(YamlNode<'a>, YamlNode<'a>)>),
}

struct RulesFileReader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    text: &'a str,
}

/// Rules are short. A larger or deeper file is probably the wrong one.
const MAX_FILE_BYTES: usize = 1 << 20;
const MAX_NESTING: usize = 8;

pub fn parse(text: &str) -> Result<AccessRuleSet, RulesFileReport> {
    if text.len() > MAX_FILE_BYTES {
        let mistake = RulesFileMistake::new(
            Marker::new(0, 1, 0),
            format!("the file has {} bytes; the limit is {MAX_FILE_BYTES}", text.len()),
            "Check that it is the permissions file, and use patterns with * instead of long lists.",
        );
        return Err(RulesFileReport { mistakes: vec![mistake] });
    }
    let document = RulesFileReader { parser: Parser::new_from_str(text), text }.document();
    let document = document.map_err(|mistake| RulesFileReport { mistakes: vec![*mistake] })?;
    let mut mistakes = Vec::new();
    let rules = match document {
        Some(document) if !document.is_blank() => rules(document, &mut mistakes),
        blank => {
            // A file emptied by mistake must not grant what `default: deny` denied.
            let at = blank.map_or(Marker::new(0, 1, 0), |document| document.at);
            let hint = "Write `default: own` to let agents reach what belongs to their own user and what is shared.";
            mistakes.push(RulesFileMistake::new(at, "the file has no rules".to_owned(), hint));
            AccessRuleSet::default()
        }
    };
    mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
    if mistakes.is_empty() { Ok(rules) } else { Err(RulesFileReport { mistakes }) }
}

/// Writes rules that [`parse`] reads back unchanged.
pub fn render(rules: &AccessRuleSet) -> String {
    use fmt::Write as _;
    let mut text = format!("default: {}\n", rules.fallback.as_str());
    text.push_str(if rules.entries.is_empty() { "agents: {}\n" } else { "agents:\n" });
    for entry in &rules.entries {
        let _ = writeln!(text, "  {}:", quoted(entry.agents.as_str()));
        for (name, patterns) in [("can_access", &entry.can_access), ("cannot_access", &entry.cannot_access)] {
            let _ = writeln!(text, "    {name}:{}", if patterns.is_empty() { " []" } else { "" });
            for pattern in patterns {
                let _ = writeln!(text, "      - {}", quoted(pattern.as_str()));
            }
        }
    }
    text
}

/// Quotes text that YAML would read as something else. Plain names and paths stay unquoted.
fn quoted(text: &str) -> String {
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|character| character.is_ascii_alphanumeric() || "-_./*".contains(character))
        && !["null", "true", "false", "yes", "no", "on", "off"].contains(&&*text.to_ascii_lowercase());
    // A JSON string is a YAML string.
    if is_plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

fn rules(document: YamlNode<'_>, mistakes: &mut Vec<RulesFileMistake>) -> AccessRuleSet {
    let mut rules = AccessRuleSet::default();
    for (key, value) in members(document, "the file", &["default", "agents"], mistakes) {
        match &*key {
            "default" => match fallback(&value) {
                Ok(fallback) => rules.fallback = fallback,
                Err(mistake) => mistakes.push(mistake),
            },
            _ => rules.entries = entries(value, mistakes),
        }
    }
    rules
}

fn fallback(node: &YamlNode<'_>) -> Result<Fallback, RulesFileMistake> {
    let hint = "Write `default: own`, `default: deny` or `default: allow`.";
    let YamlValue::Text(text) = &node.value else {
        return Err(RulesFileMistake::new(node.at, "the default is not a word".to_owned(), hint));
    };
    Fallback::from_text(text).ok_or_else(|| {
        RulesFileMistake::new(node.at, format!("`{}` is not a valid default", text.escape_debug()), hint)
    })
}

fn entries(node: YamlNode<'_>, mistakes: &mut Vec<RulesFileMistake>) -> Vec<AccessRule> {
    let mut entries: Vec<AccessRule> = Vec::new();
    let at = node.at;
    let agents = match node.value {
        YamlValue::Map(agents) => agents,
        YamlValue::Empty => Vec::new(),
        YamlValue::Text(_) | YamlValue::List(_) => {
            let hint = "Write each agent's name and a colon on its own line, indented by two spaces.";
            mistakes.push(RulesFileMistake::new(at, "`agents` is not a list of agents".to_owned(), hint));
            Vec::new()
        }
    };
    for (key, value) in agents {
        let name = match name(&key) {
            Ok(name) if entries.iter().any(|entry| entry.agents == name) => {
                let what = format!("`{name}` appears twice");
                mistakes.push(RulesFileMistake::new(key.at, what, "Merge the two entries."));
                continue;
            }
            Ok(name) => name,
            Err(mistake) => {
                mistakes.push(mistake);
                continue;
            }
        };
        let what = format!("`{name}`");
        let mut entry = AccessRule { agents: name, can_access: Vec::new(), cannot_access: Vec::new() };
        for (key, value) in members(value, &what, &["can_access", "cannot_access"], mistakes) {
            let list = if key == "can_access" { &mut entry.can_access } else { &mut entry.cannot_access };
            *list = patterns(&key, value, mistakes);
        }
        entries.push(entry);
    }
    entries
}

fn name(node: &YamlNode<'_>) -> Result<NameGlob, RulesFileMistake> {
    let hint = "Write an agent's name, its id, or a pattern in quotes.";
    let YamlValue::Text(text) = &node.value else {
        return Err(RulesFileMistake::new(node.at, "this is not an agent's name".to_owned(), hint));
    };
    if text.contains('/') {
        return Err(RulesFileMistake::new(node.at, format!("`{}` is not an agent's name", text.escape_debug()), hint));
    }
    text.parse().map_err(|mistake| RulesFileMistake::of(node.at, mistake))
}

fn patterns(key: &str, node: YamlNode<'_>, mistakes: &mut Vec<RulesFileMistake>) -> Vec<AccessPattern> {
    let hint = "Write each pattern on its own line, as in `- resources/public/*`.";
    let items = match node.value {
        YamlValue::List(items) => items,
        YamlValue::Empty => return Vec::new(),
        YamlValue::Text(_) | YamlValue::Map(_) => {
            mistakes.push(RulesFileMistake::new(node.at, format!("`{key}` is not a list"), hint));
            return Vec::new();
        }
    };
    let mut patterns = Vec::new();
    for item in items {
        match &item.value {
            YamlValue::Text(text) => match text.parse() {
                Ok(pattern) => patterns.push(pattern),
                Err(mistake) => mistakes.push(RulesFileMistake::of(item.at, mistake)),
            },
            YamlValue::Empty | YamlValue::List(_) | YamlValue::Map(_) => {
                mistakes.push(RulesFileMistake::new(
                    item.at,
                    format!("`{key}` contains something that is not a pattern"),
                    hint,
                ));
            }
        }
    }
    patterns
}

/// The members of a map. Each known name may appear once.
fn members<'a>(
    node: YamlNode<'a>,
    what: &str,
    known: &[&str],
    mistakes: &mut Vec<RulesFileMistake>,
) -> Vec<(String, YamlNode<'a>)> {
    let names: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    let hint = format!("Allowed: {}, each once.", names.join(" and "));
    let pairs = match node.value {
        YamlValue::Map(pairs) => pairs,
        YamlValue::Empty => Vec::new(),
        YamlValue::Text(_) | YamlValue::List(_) => {
            mistakes.push(RulesFileMistake::new(node.at, format!("{what} is not a map"), &hint));
            Vec::new()
        }
    };
    let mut members: Vec<(String, YamlNode<'a>)> = Vec::new();
    for (key, value) in pairs {
        let name = match &key.value {
            YamlValue::Text(name) => name.to_string(),
            YamlValue::Empty | YamlValue::List(_) | YamlValue::Map(_) => String::new(),
        };
        if !known.contains(&name.as_str()) {
            mistakes.push(RulesFileMistake::new(
                key.at,
                format!("{what} can't contain `{}`", name.escape_debug()),
                &hint,
            ));
        } else if members.iter().any(|(before, _)| *before == name) {
            mistakes.push(RulesFileMistake::new(key.at, format!("{what} contains `{name}` twice"), &hint));
        } else {
            members.push((name, value));
        }
    }
    members
}

// === impl YamlNode ===

impl YamlNode<'_> {
    /// Whether the node has no content.
    fn is_blank(&self) -> bool {
        match &self.value {
            YamlValue::Empty => true,
            YamlValue::Map(pairs) => pairs.is_empty(),
            YamlValue::Text(_) | YamlValue::List(_) => false,
        }
    }
}

// === impl RulesFileReader ===

impl<'a> RulesFileReader<'a> {
    /// The file's document. `None` if it has only comments.
    fn document(mut self) -> Result<Option<YamlNode<'a>>, Box<RulesFileMistake>> {
        let mut document = None;
        loop {
            let (event, span) = self.event()?;
            match event {
                Event::StreamEnd => return Ok(document),
                Event::DocumentStart(_) if document.is_some() => {
                    let what = "a second document starts here".to_owned();
                    return Err(Box::new(RulesFileMistake::new(
                        span.start,
                        what,
                        "Remove the line `---` and merge the documents.",
                    )));
                }
                Event::DocumentStart(_) => {
                    let first = self.event()?;
                    document = Some(self.node(first, 0)?);
                }
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => return Err(Box::new(RulesFileMistake::clever(span.start))),
            }
        }
    }

    fn node(&mut self, (event, span): (Event<'a>, Span), depth: usize) -> Result<YamlNode<'a>, Box<RulesFileMistake>> {
        let at = span.start;
        if depth > MAX_NESTING {
            let hint = "The deepest level is a pattern in an agent's list.";
            return Err(Box::new(RulesFileMistake::new(at, "this is nested too deeply".to_owned(), hint)));
        }
        let value = match event {
            Event::Scalar(text, ScalarStyle::Plain, 0, None) if matches!(&*text, "" | "~" | "null") => YamlValue::Empty,
            Event::Scalar(text, _, 0, None) => YamlValue::Text(text),
            Event::SequenceStart(0, None) => {
                let mut items = Vec::new();
                loop {
                    match self.event()? {
                        (Event::SequenceEnd, _) => break YamlValue::List(items),
                        item => items.push(self.node(item, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(0, None) => {
                let mut pairs = Vec::new();
                loop {
                    match self.event()? {
                        (Event::MappingEnd, _) => break YamlValue::Map(pairs),
                        key => {
                            let key = self.node(key, depth + 1)?;
                            let value = self.event()?;
                            pairs.push((key, self.node(value, depth + 1)?));
                        }
                    }
                }
            }
            // Anchors, aliases and tags could expand a short file into a huge one. Rules don't need them.
            _ => return Err(Box::new(RulesFileMistake::clever(at))),
        };
        Ok(YamlNode { at, value })
    }

    fn event(&mut self) -> Result<(Event<'a>, Span), Box<RulesFileMistake>> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(Box::new(self.not_yaml(&error))),
            None => Ok((Event::StreamEnd, Span::empty(Marker::new(0, 1, 0)))),
        }
    }

    fn not_yaml(&self, error: &ScanError) -> RulesFileMistake {
        let at = *error.marker();
        let line = self.text.lines().nth(at.line().saturating_sub(1)).unwrap_or_default().trim_start();
        let begins_with_a_star = line.trim_start_matches("- ").starts_with('*');
        let hint = if begins_with_a_star {
            "Quote values that start with a star: \"*\"."
        } else {
            "Indent with two spaces per level, and write `name:` and `- pattern` as in the example."
        };
        RulesFileMistake::new(at, format!("this is not valid YAML ({})", error.info()), hint)
    }
}

// === impl RulesFileMistake ===

impl RulesFileMistake {
    fn new(at: Marker, what: String, hint: &str) -> Self {
        Self { line: at.line(), column: at.col() + 1, what, hint: hint.to_owned() }
    }

    fn of(at: Marker, access::PatternError { what, hint }: access::PatternError) -> Self {
        Self { line: at.line(), column: at.col() + 1, what, hint }
    }

    fn clever(at: Marker) -> Self {
        let hint = "Write it out, and quote values that start with a star or an ampersand.";
        Self::new(at, "anchors, aliases and tags are not supported".to_owned(), hint)
    }
}

impl fmt::Display for RulesFileMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, what, hint } = self;
        write!(f, "line {line}, column {column}: {what}. {hint}")
    }
}

// === impl RulesFileReport ===

impl fmt::Display for RulesFileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.mistakes.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{mistake}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
