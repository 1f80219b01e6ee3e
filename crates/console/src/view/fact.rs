//! A name and a value in a list of details.

use attache_protocol::Timestamp;

use super::html::Markup;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) value: Markup,
    pub(crate) mono: bool,
}

// === impl Fact ===

impl Fact {
    pub(crate) fn text(name: &'static str, value: &str) -> Self {
        Self { name, value: Markup::text(value), mono: false }
    }

    pub(crate) fn code(name: &'static str, value: &str) -> Self {
        Self { name, value: Markup::text(value), mono: true }
    }

    pub(crate) fn markup(name: &'static str, value: Markup) -> Self {
        Self { name, value, mono: false }
    }

    /// A time relative to now.
    pub(crate) fn when(name: &'static str, at: Timestamp) -> Self {
        Self::markup(name, Markup::of(at))
    }

    /// Markup shown as code.
    pub(crate) fn exact(name: &'static str, value: Markup) -> Self {
        Self { name, value, mono: true }
    }
}
