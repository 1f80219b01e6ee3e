//! Finds words in the output of a run, event by event.

use attache_protocol::EventKind;
use serde_json::Value;

use crate::record::OutputMatches;

/// Reads a run's events in order. A text that several events continue is searched as one.
#[derive(Debug)]
pub(crate) struct OutputSearch<'a> {
    /// In lowercase.
    words: &'a str,
    limit: usize,
    /// The end of the text that the next event may continue, and of which kind it is.
    tail: String,
    tail_kind: Option<EventKind>,
    found: OutputMatches,
}

/// Whether to read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchStep {
    Continue,
    Full,
}

// === impl OutputSearch ===

impl<'a> OutputSearch<'a> {
    pub(crate) fn new(words: &'a str, limit: usize) -> Self {
        Self { words, limit, tail: String::new(), tail_kind: None, found: OutputMatches::default() }
    }

    /// Data that isn't JSON has no words.
    pub(crate) fn take(&mut self, seq: i64, kind: &str, data: &str) -> SearchStep {
        let kind: Option<EventKind> = EventKind::parse(kind);
        let data: Value = serde_json::from_str(data).unwrap_or_default();
        let flows = kind.filter(|kind| matches!(kind, EventKind::TaskChunk | EventKind::TaskThought));
        let mut text = match flows {
            Some(_) if flows == self.tail_kind => std::mem::take(&mut self.tail),
            _ => String::new(),
        };
        match flows {
            Some(_) => push_shown(data.get("text").and_then(Value::as_str).unwrap_or_default(), &mut text),
            None => push_all(&data, &mut text),
        }
        let matched = text.match_indices(self.words).last().map(|(at, _)| at + self.words.len());
        if matched.is_some() {
            if self.found.seqs.len() == self.limit {
                self.found.more = true;
                return SearchStep::Full;
            }
            self.found.seqs.push(seq);
        }
        self.tail_kind = flows;
        if flows.is_some() {
            // Too short to have the words, and without what belongs to a match.
            let from = text.len().saturating_sub(self.words.len().saturating_sub(1)).max(matched.unwrap_or(0));
            self.tail = text.split_off(text.ceil_char_boundary(from));
        }
        SearchStep::Continue
    }

    pub(crate) fn done(self) -> OutputMatches {
        self.found
    }
}

/// The text in lowercase, without the escape sequences of a terminal.
fn push_shown(text: &str, into: &mut String) {
    let mut rest = text;
    while let Some((before, escaped)) = rest.split_once('\u{1b}') {
        into.push_str(&before.to_lowercase());
        rest = match escaped.strip_prefix('[') {
            Some(sequence) => sequence.trim_start_matches(|character| ('\x20'..='\x3f').contains(&character)),
            None => escaped,
        };
        // The sequence ends with one more character.
        let mut characters = rest.chars();
        characters.next();
        rest = characters.as_str();
    }
    into.push_str(&rest.to_lowercase());
}

/// Every text in the value.
fn push_all(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => {
            push_shown(text, into);
            into.push('\n');
        }
        Value::Array(values) => values.iter().for_each(|value| push_all(value, into)),
        Value::Object(members) => members.values().for_each(|value| push_all(value, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::{Json, env::Env};

    use super::*;

    fn search(words: &str, limit: usize, events: &[(&str, &str)]) -> OutputMatches {
        let mut search = OutputSearch::new(words, limit);
        for ((kind, data), seq) in events.iter().zip(1..) {
            if search.take(seq, kind, data) == SearchStep::Full {
                break;
            }
        }
        search.done()
    }

    #[test]
    fn words_are_found_in_every_kind_of_output() {
        let events = [
            ("task.chunk", r#"{"text":"An ERR"}"#),
            ("task.chunk", r#"{"text":"or \u001b[31mred\u001b[0m"}"#),
            ("task.thought", r#"{"text":"err"}"#),
            ("task.chunk", r#"{"text":"or"}"#),
            ("task.tool_call", r#"{"input":{"command":"cat error.log"},"output":["登录错误"]}"#),
            ("task.log", "not JSON"),
            ("task.log", r#"{"message":"error error"}"#),
        ];
        let found = |words: &str| search(words, 9, &events).seqs;
        assert_eq!(found("error"), [2, 5, 7]);
        assert_eq!(found("error red"), [2]);
        assert_eq!((found("登录"), found("command")), (vec![5], vec![]));
        let cut = search("error", 2, &events);
        assert_eq!((cut.seqs, cut.more), (vec![2, 5], true));
        assert!(!search("error", 3, &events).more);
    }

    /// However a text is cut into events, each match ends in one of the events that are named.
    #[test]
    fn a_text_in_pieces_is_searched_as_one() {
        let env = Env::seeded(3);
        for words in ["a", "ab", "aba", "é修", "修修"] {
            for _ in 0..500 {
                let mut drawn = [0_u8; 12];
                env.fill(&mut drawn);
                let letters: Vec<char> =
                    drawn.iter().map(|byte| ['a', 'b', 'é', '修'][usize::from(byte % 4)]).collect();
                let mut pieces = vec![String::new()];
                for (letter, byte) in letters.iter().zip(drawn) {
                    pieces.last_mut().unwrap().push(*letter);
                    if byte >= 128 {
                        pieces.push(String::new());
                    }
                }
                let events: Vec<String> =
                    pieces.iter().map(|piece| format!("{{\"text\":{}}}", Json::of(piece).get())).collect();
                let events: Vec<(&str, &str)> = events.iter().map(|data| ("task.chunk", data.as_str())).collect();
                // Matches as a reader counts them, from the left.
                let (whole, mut wanted) = (pieces.concat(), Vec::new());
                for (at, _) in whole.match_indices(words) {
                    let mut end = at + words.len();
                    let place = pieces.iter().position(|piece| match end.checked_sub(piece.len()) {
                        Some(rest) if rest > 0 => {
                            end = rest;
                            false
                        }
                        _ => true,
                    });
                    wanted.push(i64::try_from(place.unwrap()).unwrap() + 1);
                }
                wanted.dedup();
                assert_eq!(search(words, 99, &events).seqs, wanted, "{words} in {pieces:?}");
            }
        }
    }
}
