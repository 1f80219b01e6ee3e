//! Why the daemon refuses a request.

use attache_protocol::{
    Code,
    error::{ErrorBody, ErrorDetail},
};

use crate::Error;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}. {hint}")]
pub struct DelegatorRefusal {
    pub code: Code,
    pub message: String,
    pub hint: String,
}

// === impl DelegatorRefusal ===

impl DelegatorRefusal {
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into() }
    }

    pub(super) fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("no delegation {what}"), "`attache delegations list` shows all of them.")
    }

    pub(super) fn body(&self) -> ErrorBody {
        let detail = ErrorDetail {
            code: self.code.as_str().to_owned(),
            message: self.message.clone(),
            hint: self.hint.clone(),
            remedy: None,
        };
        ErrorBody { error: detail }
    }
}

impl From<Error> for DelegatorRefusal {
    fn from(error: Error) -> Self {
        Self::new(Code::Internal, error.to_string(), "Check the disk and the owner of $AWCP_HOME.")
    }
}
