//! Sanitises untrusted text for a terminal: no escape sequences, cursor movement or bidirectional tricks.

use std::borrow::Cow;

use attache_protocol::hidden_text::is_hidden;

/// Keeps line breaks and tabs; makes every other control character visible, and those that reorder text.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    replace(text, |character| matches!(character, '\n' | '\t'))
}

/// For a cell or a name: makes line breaks visible too.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    replace(text, |_| false)
}

/// For text that a person decides on: also shows invisible characters by their code point.
pub(crate) fn exact(text: &str) -> Cow<'_, str> {
    numbered(text, |character| matches!(character, '\n' | '\t'))
}

/// The same for a cell or a name.
pub(crate) fn exact_line(text: &str) -> Cow<'_, str> {
    numbered(text, |_| false)
}

fn numbered(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    let bad = |character: char| !keep(character) && is_hidden(character);
    if !text.chars().any(bad) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            _ if !bad(character) => clean.push(character),
            '\0'..='\x1f' => clean.extend(char::from_u32(0x2400 + u32::from(character))),
            other => clean.push_str(&code_point(other)),
        }
    }
    Cow::Owned(clean)
}

fn replace(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    let bad = |character: char| is_unsafe(character) && !keep(character);
    if !text.chars().any(bad) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    // A carriage return before a line break is just a Windows line ending.
    let text = text.replace("\r\n", "\n");
    for character in text.chars() {
        match character {
            _ if !bad(character) => clean.push(character),
            '\n' => clean.push('⏎'),
            '\t' => clean.push(' '),
            // Unicode has control pictures for the first 32 characters.
            '\0'..='\x1f' => clean.extend(char::from_u32(0x2400 + u32::from(character))),
            other => clean.push_str(&code_point(other)),
        }
    }
    Cow::Owned(clean)
}

fn code_point(character: char) -> String {
    format!("⟨U+{:04X}⟩", u32::from(character))
}

fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_visible_and_plain_text_stays() {
        assert_eq!(lines("a\tb\nc é 漢"), "a\tb\nc é 漢");
        assert_eq!(lines("\x1b]0;owned\x07\r\nnext\rover"), "␛]0;owned␇\nnext␍over");
        assert_eq!(line("two\nlines\u{202e}gnp.exe\u{7f}"), "two⏎lines⟨U+202E⟩gnp.exe⟨U+007F⟩");
    }

    #[test]
    fn invisible_characters_are_shown_by_code_point() {
        assert_eq!(exact("ls\n\t漢 é"), "ls\n\t漢 é");
        assert_eq!(exact("rm\u{a0}-rf\u{200b}\u{202e}\x1b[8m\r\n"), "rm⟨U+00A0⟩-rf⟨U+200B⟩⟨U+202E⟩␛[8m␍\n");
        assert_eq!(exact_line("a\nb\u{7f}"), "a␊b⟨U+007F⟩");
    }
}
