//! Untrusted text shown exactly and inertly: even invisible characters are visible.

use std::fmt::Write as _;

use attache_protocol::hidden_text::is_hidden;

use super::html::{Markup, escape};

/// The names of the first 32 control characters. Not every font has glyphs for them.
const NAMES: [&str; 32] = [
    "NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "TAB", "LF", "VT", "FF", "CR", "SO", "SI", "DLE",
    "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US",
];

/// Keeps line breaks and tabs. Shows control, invisible and reordering characters by name.
pub(crate) fn exact(text: &str) -> Markup {
    write(text, |character| matches!(character, '\n' | '\t'))
}

/// For names and paths: shows line breaks and tabs by name too.
pub(crate) fn exact_line(text: &str) -> Markup {
    write(text, |_| false)
}

fn write(text: &str, keep: impl Fn(char) -> bool) -> Markup {
    let mut html = String::with_capacity(text.len() + 16);
    let mut plain_from = 0;
    for (at, character) in text.char_indices() {
        if keep(character) || !is_hidden(character) {
            continue;
        }
        escape(&mut html, &text[plain_from..at]);
        plain_from = at + character.len_utf8();
        html.push_str("<i class=\"odd\">");
        match usize::try_from(u32::from(character)).ok().and_then(|at| NAMES.get(at)) {
            Some(name) => html.push_str(name),
            None if character == '\x7f' => html.push_str("DEL"),
            None => {
                let _ = write!(html, "U+{:04X}", u32::from(character));
            }
        }
        html.push_str("</i>");
    }
    escape(&mut html, &text[plain_from..]);
    Markup::trusted(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_named_and_markup_is_text() {
        for (given, shown) in [
            ("ls -l\n\tx", "ls -l\n\tx"),
            ("<b>&\"'", "&lt;b&gt;&amp;&quot;&#39;"),
            ("\u{1b}[31mred\r\n", "<i class=\"odd\">ESC</i>[31mred<i class=\"odd\">CR</i>\n"),
            ("evil\u{202e}txt.exe", "evil<i class=\"odd\">U+202E</i>txt.exe"),
            (
                "rm\u{a0}-rf\u{200b}\u{7f}",
                "rm<i class=\"odd\">U+00A0</i>-rf<i class=\"odd\">U+200B</i><i class=\"odd\">DEL</i>",
            ),
            ("\u{e0041}漢字 é 😀\u{fe0f}", "<i class=\"odd\">U+E0041</i>漢字 é 😀\u{fe0f}"),
        ] {
            assert_eq!(exact(given).to_string(), shown, "{given:?}");
        }
        assert_eq!(exact_line("a\nb\t").to_string(), "a<i class=\"odd\">LF</i>b<i class=\"odd\">TAB</i>");
    }
}
