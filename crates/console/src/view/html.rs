//! Escaped markup, and the values that become markup in a sentence.

use std::fmt::{self, Write as _};

use askama::filters::HtmlSafe;
use attache_protocol::Timestamp;

use super::{
    actor::short,
    time::{DurationElement, TimeElement},
};

/// Markup that is already escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Markup(String);

/// A value that a sentence can contain. Plain text is escaped and isolated from the direction of the text around it.
pub(crate) trait ToMarkup {
    fn write(&self, html: &mut String);
}

/// Text shown as code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeSpan<'a>(pub(crate) &'a str);

/// A link within the console: path and text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageLink<'a>(pub(crate) &'a str, pub(crate) &'a str);

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

    /// One value on its own.
    pub(crate) fn of(value: impl ToMarkup) -> Self {
        let mut html = String::new();
        value.write(&mut html);
        Self(html)
    }

    /// A link to the page of an object, with its short id as text.
    pub(crate) fn id_link(path: &str, id: &str) -> Self {
        Self::of(PageLink(&format!("/{path}/{id}"), &short(id)))
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

// === impl ToMarkup ===

impl ToMarkup for str {
    fn write(&self, html: &mut String) {
        html.push_str("<bdi>");
        escape(html, self);
        html.push_str("</bdi>");
    }
}

impl ToMarkup for String {
    fn write(&self, html: &mut String) {
        self.as_str().write(html);
    }
}

impl ToMarkup for CodeSpan<'_> {
    fn write(&self, html: &mut String) {
        html.push_str("<code>");
        escape(html, self.0);
        html.push_str("</code>");
    }
}

impl ToMarkup for PageLink<'_> {
    fn write(&self, html: &mut String) {
        html.push_str("<a href=\"");
        escape(html, self.0);
        html.push_str("\">");
        escape(html, self.1);
        html.push_str("</a>");
    }
}

/// A time relative to now.
impl ToMarkup for Timestamp {
    fn write(&self, html: &mut String) {
        TimeElement::relative(*self).write(html);
    }
}

impl<T: ToMarkup + ?Sized> ToMarkup for &T {
    fn write(&self, html: &mut String) {
        (**self).write(html);
    }
}

/// Values that need no escaping.
macro_rules! safe {
    ($($kind:ty)+) => {
        $(impl ToMarkup for $kind {
            fn write(&self, html: &mut String) {
                let _ = write!(html, "{self}");
            }
        })+
    };
}

safe! { Markup TimeElement DurationElement i64 u64 u16 }

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
}
