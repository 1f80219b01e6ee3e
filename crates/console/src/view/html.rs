//! Escaped markup, and templates whose placeholders can hold markup.

use std::fmt::{self, Write as _};

use askama::filters::HtmlSafe;

use super::time::TimeElement;
use crate::text::{SentencePart, parts};

/// Markup that is already escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Markup(String);

/// The value of a placeholder.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PlaceholderValue<'a> {
    Text(&'a str),
    Code(&'a str),
    When(TimeElement),
    Markup(&'a Markup),
    /// A link within the console: path and text.
    Link(&'a str, &'a str),
}

// === impl Markup ===

impl Markup {
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn text(text: &str) -> Self {
        let mut html = String::with_capacity(text.len());
        escape(&mut html, text);
        Self(html)
    }

    /// Fills a catalogue text. Text in backticks is shown as code.
    pub(crate) fn sentence(template: &str, blanks: &[(&str, PlaceholderValue<'_>)]) -> Self {
        let mut html = String::with_capacity(template.len() + 64);
        let mut in_code = false;
        for piece in parts(template) {
            match piece {
                SentencePart::Text(words) => {
                    for (index, part) in words.split('`').enumerate() {
                        if index > 0 {
                            html.push_str(if in_code { "</code>" } else { "<code>" });
                            in_code = !in_code;
                        }
                        escape(&mut html, part);
                    }
                }
                SentencePart::Placeholder(name) => match blanks.iter().find(|(blank, _)| *blank == name) {
                    Some((_, blank)) => blank.write(&mut html),
                    None => escape(&mut html, name),
                },
            }
        }
        if in_code {
            html.push_str("</code>");
        }
        Self(html)
    }

    /// Our own text with untrusted parts. Text in backticks is shown as code.
    pub(crate) fn marked(text: &str) -> Self {
        let mut html = String::with_capacity(text.len() + 32);
        for (index, part) in text.split('`').enumerate() {
            let (before, after) = if index % 2 == 1 { ("<code>", "</code>") } else { ("", "") };
            html.push_str(before);
            escape(&mut html, part);
            html.push_str(after);
        }
        Self(html)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Wraps markup that this crate generated.
    pub(crate) fn trusted(html: String) -> Self {
        Self(html)
    }
}

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Markup {}

// === impl PlaceholderValue ===

impl PlaceholderValue<'_> {
    fn write(&self, html: &mut String) {
        match self {
            Self::Text(text) => {
                html.push_str("<bdi>");
                escape(html, text);
                html.push_str("</bdi>");
            }
            Self::Code(code) => {
                html.push_str("<code>");
                escape(html, code);
                html.push_str("</code>");
            }
            Self::When(when) => {
                let _ = write!(html, "{when}");
            }
            Self::Markup(markup) => html.push_str(&markup.0),
            Self::Link(href, text) => {
                html.push_str("<a href=\"");
                escape(html, href);
                html.push_str("\">");
                escape(html, text);
                html.push_str("</a>");
            }
        }
    }
}

pub(crate) fn escape(html: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_text_keeps_braces_and_closes_code() {
        assert_eq!(Markup::marked("`{a}` <b> `open").to_string(), "<code>{a}</code> &lt;b&gt; <code>open</code>");
    }

    #[test]
    fn a_sentence_escapes_its_placeholder_values() {
        let html = Markup::sentence(
            "Run `a < b` on {who}, {code}",
            &[("who", PlaceholderValue::Text("<script>{code}")), ("code", PlaceholderValue::Code("\"x\""))],
        );
        assert_eq!(
            html.to_string(),
            "Run <code>a &lt; b</code> on <bdi>&lt;script&gt;{code}</bdi>, <code>&quot;x&quot;</code>"
        );
    }
}
