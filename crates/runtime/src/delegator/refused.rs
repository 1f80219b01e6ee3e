//! Why the daemon does not do what it is asked to.

use attache_protocol::{
    Code,
    error::{Body, Detail},
};

use crate::Error;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}. {hint}")]
pub struct Refused {
    pub code: Code,
    pub message: String,
    pub hint: String,
}

// === impl Refused ===

impl Refused {
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into() }
    }

    pub(super) fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("there is no delegation {what}"), "`attache delegations list` shows them.")
    }

    pub(super) fn body(&self) -> Body {
        let detail =
            Detail { code: self.code.as_str().to_owned(), message: self.message.clone(), hint: self.hint.clone() };
        Body { error: detail }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::new(Code::Internal, error.to_string(), "Check the disk, and who owns $AWCP_HOME.")
    }
}
