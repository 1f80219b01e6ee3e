//! Conversion errors: the path of the field, and what is wrong with it.

use std::fmt;

/// A field with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidField {
    /// The path from the request's own members, for example `message.parts[0]`.
    pub field: String,
    pub problem: String,
}

/// Prefixes the outer field's name.
pub(crate) trait WithinField {
    fn within(self, outer: impl fmt::Display) -> Self;
}

// === impl InvalidField ===

impl InvalidField {
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// For a value that doesn't know its own name. The container adds it.
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
