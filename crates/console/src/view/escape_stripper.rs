//! Removes terminal escapes and control characters from a program's output.

use super::time::size;
use crate::text::Text;

/// Processes output in chunks. An escape may span chunks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EscapeStripper {
    state: EscapeState,
    /// The number of characters in the current escape string.
    held: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    /// After a carriage return: followed by a line feed, it is a line break; otherwise, it restarts the line.
    Return,
    Escape,
    /// `ESC ( B` and similar: one more character follows.
    Charset,
    /// `ESC [ … final`.
    Control,
    /// `ESC ] … BEL` or `ESC \`, also DCS, PM, APC and SOS: a control string for the terminal.
    String,
    StringEscape,
}

/// A longer escape string is treated as text from there on.
const MAX_STRING: usize = 4_096;

/// The maximum length of one text on a page.
const MAX_EXCERPT: usize = 128 * 1024;

/// Truncates a text for a page and says how much is missing.
pub(crate) fn excerpt(text: String, t: &Text) -> String {
    if text.len() <= MAX_EXCERPT {
        return text;
    }
    let end = text.floor_char_boundary(MAX_EXCERPT);
    let rest = size(u64::try_from(text.len() - end).unwrap_or(u64::MAX));
    format!("{}\n{}", &text[..end], t.text_cut(&rest))
}

// === impl EscapeStripper ===

impl EscapeStripper {
    pub(crate) fn feed(&mut self, text: &str) -> String {
        let mut plain = String::with_capacity(text.len());
        for character in text.chars() {
            match self.state {
                EscapeState::Return => {
                    self.state = EscapeState::Text;
                    plain.push('\n');
                    if character != '\n' {
                        self.text(character, &mut plain);
                    }
                }
                EscapeState::Text => self.text(character, &mut plain),
                EscapeState::Escape => {
                    self.state = match character {
                        '[' => EscapeState::Control,
                        ']' | 'P' | '^' | '_' | 'X' => {
                            self.held = 0;
                            EscapeState::String
                        }
                        '(' | ')' | '*' | '+' | '-' | '.' | '/' | '#' | '%' | ' ' => EscapeState::Charset,
                        _ => EscapeState::Text,
                    };
                }
                EscapeState::Charset => self.state = EscapeState::Text,
                EscapeState::Control => match character {
                    '\u{40}'..='\u{7e}' => self.state = EscapeState::Text,
                    '\u{20}'..='\u{3f}' => {}
                    // Not an escape: process the character normally.
                    other => {
                        self.state = EscapeState::Text;
                        self.text(other, &mut plain);
                    }
                },
                EscapeState::String => {
                    self.held += 1;
                    match character {
                        '\u{7}' | '\u{9c}' => self.state = EscapeState::Text,
                        '\u{1b}' => self.state = EscapeState::StringEscape,
                        _ if self.held > MAX_STRING => self.state = EscapeState::Text,
                        _ => {}
                    }
                }
                EscapeState::StringEscape => {
                    self.state = if character == '\\' { EscapeState::Text } else { EscapeState::String };
                }
            }
        }
        plain
    }

    fn text(&mut self, character: char, plain: &mut String) {
        match character {
            '\u{1b}' => self.state = EscapeState::Escape,
            '\u{9b}' => self.state = EscapeState::Control,
            '\u{90}' | '\u{9d}' | '\u{9e}' | '\u{9f}' | '\u{98}' => {
                self.held = 0;
                self.state = EscapeState::String;
            }
            '\r' => self.state = EscapeState::Return,
            '\n' | '\t' => plain.push(character),
            // Bidirectional controls could make the text read differently from what it is.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => plain.push('\u{fffd}'),
            other if other.is_control() => {}
            other => plain.push(other),
        }
    }
}

/// Processes a complete text.
pub(crate) fn plain(text: &str) -> String {
    let mut reader = EscapeStripper::default();
    let mut shown = reader.feed(text);
    if reader.state == EscapeState::Return {
        shown.push('\n');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_removed_and_text_stays() {
        for (given, shown) in [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}(Bplain\u{1b}=", "plain"),
            ("\u{9b}2Jcleared", "cleared"),
            ("a\r\nb\rc\n", "a\nb\nc\n"),
            ("bell\u{7} null\u{0} tab\t", "bell null tab\t"),
            ("<script>", "<script>"),
            ("evil\u{202e}txt.exe", "evil\u{fffd}txt.exe"),
            ("\u{1b}[31\u{1b}[0mok", "ok"),
        ] {
            assert_eq!(plain(given), shown, "{given:?}");
        }
    }

    #[test]
    fn an_escape_may_span_chunks() {
        let mut reader = EscapeStripper::default();
        assert_eq!(reader.feed("one\u{1b}[3"), "one");
        assert_eq!(reader.feed("1mtwo\r"), "two");
        assert_eq!(reader.feed("\nthree"), "\nthree");
    }

    #[test]
    fn an_endless_escape_does_not_swallow_the_log() {
        let mut reader = EscapeStripper::default();
        let half = "x".repeat(MAX_STRING / 2);
        let shown: Vec<_> = ["\u{1b}]", &half, &half, "xend"].into_iter().map(|piece| reader.feed(piece)).collect();
        assert_eq!(shown, ["", "", "", "end"]);
    }
}
