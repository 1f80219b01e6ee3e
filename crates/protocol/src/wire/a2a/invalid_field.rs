//! What cannot be turned into the model, or from it: the field by its path, and what is wrong with it.

use std::fmt;

/// A field that cannot be what it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidField {
    /// From the request's own members down, for example `message.parts[0]`.
    pub field: String,
    pub problem: String,
}

/// Puts the name of the outer field before that of the inner one.
pub(in crate::wire::a2a) trait WithinField {
    fn within(self, outer: impl fmt::Display) -> Self;
}

// === impl InvalidField ===

impl InvalidField {
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// Of a value that does not know what it is called; whoever holds it says so.
    pub fn itself(problem: impl Into<String>) -> Self {
        Self::new("", problem)
    }
}

// === impl WithinField ===

impl WithinField for InvalidField {
    fn within(mut self, outer: impl fmt::Display) -> Self {
        self.field = if self.field.is_empty() { outer.to_string() } else { format!("{outer}.{}", self.field) };
        self
    }
}

impl<T> WithinField for Result<T, InvalidField> {
    fn within(self, outer: impl fmt::Display) -> Self {
        self.map_err(|invalid| invalid.within(outer))
    }
}
