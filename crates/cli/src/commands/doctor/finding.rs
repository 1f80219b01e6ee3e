//! One finding of `attache doctor`: what was checked, how it is, and how to fix it.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct DoctorFinding {
    /// A stable name: `home`, `hub`, `key`, `profiles`, …
    pub(super) check: &'static str,
    pub(super) state: FindingState,
    pub(super) message: String,
    /// Suggested fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FindingState {
    Ok,
    Warning,
    Problem,
}

// === impl DoctorFinding ===

impl DoctorFinding {
    fn new(check: &'static str, state: FindingState, message: impl Into<String>) -> Self {
        Self { check, state, message: message.into(), fix: None }
    }

    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, FindingState::Ok, message)
    }

    pub(super) fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, FindingState::Warning, message)
    }

    pub(super) fn problem(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, FindingState::Problem, message)
    }

    pub(super) fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()).filter(|fix| !fix.is_empty()), ..self }
    }
}
