//! Text of others made harmless for a terminal: no escapes, no cursor tricks, no reordering of letters.

use std::borrow::Cow;

/// Keeps line breaks and tabs; every other control character becomes visible.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    replace(text, |character| matches!(character, '\n' | '\t'))
}

/// For a cell or a name: line breaks become visible as well.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    replace(text, |_| false)
}

fn replace(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    let bad = |character: char| is_unsafe(character) && !keep(character);
    if !text.chars().any(bad) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    // A carriage return before a line break is only how some systems end lines.
    let text = text.replace("\r\n", "\n");
    for character in text.chars() {
        match character {
            _ if !bad(character) => clean.push(character),
            '\n' => clean.push('⏎'),
            '\t' => clean.push(' '),
            // The control pictures of Unicode stand in for the first 32 characters.
            '\0'..='\x1f' => clean.extend(char::from_u32(0x2400 + u32::from(character))),
            _ => clean.push('\u{fffd}'),
        }
    }
    Cow::Owned(clean)
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
        assert_eq!(line("two\nlines\u{202e}gnp.exe\u{7f}"), "two⏎lines\u{fffd}gnp.exe\u{fffd}");
    }
}
