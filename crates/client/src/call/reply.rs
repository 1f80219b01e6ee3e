//! An agent's answer, as Rust types.

use std::time::Duration;

use attache_protocol::{
    Json,
    wire::{
        call::{CallId, CallResult, CallStats, CallStatus},
        output::OutputLocation,
    },
};

use super::{CallError, CallFailed};
use crate::Error;

/// The answer to a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReply {
    pub call_id: CallId,
    pub summary: String,
    /// The agent's further output, byte for byte.
    pub details: Option<Json>,
    /// Files the agent handed over, under its own names.
    pub artifact_refs: Option<Json>,
    /// Set if the summary isn't exactly what the agent printed: the full length, and where the full output is.
    pub full_output: Option<OutputLocation>,
    pub usage: CallUsage,
}

/// The usage of the call, as the agent reported it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CallUsage {
    pub duration: Duration,
    pub tokens: Option<f64>,
    /// In US dollars.
    pub cost: Option<f64>,
}

// === impl CallReply ===

impl CallReply {
    /// The result of a call that has ended.
    pub(super) fn of(call_id: CallId, result: CallResult) -> Result<Self, CallError> {
        match (result.status, result.result) {
            (CallStatus::Completed, Some(answer)) => Ok(Self {
                call_id,
                summary: text(&answer.summary),
                details: answer.details,
                artifact_refs: answer.artifact_refs,
                full_output: answer.full_output,
                usage: CallUsage::from(&result.stats),
            }),
            (CallStatus::Failed | CallStatus::Cancelled, _) => {
                let code = result.code.unwrap_or_else(|| "task_failed".to_owned());
                let message = result.error.as_ref().map_or_else(|| "The call failed.".to_owned(), text);
                Err(CallFailed { call_id, code, message }.into())
            }
            (CallStatus::Started | CallStatus::Running | CallStatus::Completed, _) => {
                let reason = "it reported an ended call without a result".to_owned();
                Err(Error::BadReply { address: call_id.to_string(), reason }.into())
            }
        }
    }
}

/// A JSON string as text. If it isn't valid text, the original JSON.
pub(super) fn text(json: &Json) -> String {
    json.parse().unwrap_or_else(|_| json.get().to_owned())
}

// === impl CallUsage ===

impl From<&CallStats> for CallUsage {
    fn from(stats: &CallStats) -> Self {
        let number = |given: &Option<Json>| given.as_ref().and_then(|number| number.parse().ok());
        Self {
            duration: Duration::from_millis(stats.duration_ms),
            tokens: number(&stats.tokens),
            cost: number(&stats.cost),
        }
    }
}
