//! The result of a call.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    Json, Timestamp,
    rules::run::RunStatus,
    wire::{envelope::FrameObject, output::OutputLocation, run::Run},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// Queued for its agent.
    Started,
    Running,
    Completed,
    Failed,
    Cancelled,
}

/// `GET /api/a2a/result/{call_id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallResult {
    pub status: CallStatus,
    /// For a completed call.
    pub result: Option<CallAnswer>,
    pub stats: CallStats,
    /// For a call that failed or was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallAnswer {
    /// The answer as text: a JSON string.
    pub summary: Json,
    pub details: Option<Json>,
    /// Files the agent produced, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_refs: Option<Json>,
    /// Present if the summary is not exactly what the agent printed: the length of the complete output, and where it
    /// is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output: Option<OutputLocation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallStats {
    /// From the claim to the end, or to now.
    pub duration_ms: u64,
    /// As reported by the agent. Null if not reported.
    pub tokens: Option<Json>,
    /// In US dollars, as reported by the agent.
    pub cost: Option<Json>,
}

/// The data of the last frame if the call completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCompletedData {
    pub result: Option<CallAnswer>,
    pub stats: CallStats,
}

/// The data of the last frame if it did not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFailedData {
    /// What happened, as text.
    pub error: Json,
    pub code: String,
}

// === impl CallStatus ===

impl From<RunStatus> for CallStatus {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Pending => Self::Started,
            RunStatus::Running => Self::Running,
            RunStatus::Completed => Self::Completed,
            RunStatus::Failed => Self::Failed,
            RunStatus::Cancelled => Self::Cancelled,
        }
    }
}

// === impl CallResult ===

impl CallResult {
    /// The run as its caller sees it at this time.
    pub fn of(run: &Run, now: Timestamp) -> Self {
        let status = CallStatus::from(run.status);
        let (result, failed) = match status {
            CallStatus::Started | CallStatus::Running => (None, None),
            CallStatus::Completed => (run.task_result.as_ref().map(CallAnswer::of), None),
            CallStatus::Failed | CallStatus::Cancelled => {
                (None, Some(CallFailedData::of(status, run.task_result.as_ref())))
            }
        };
        let (error, code) = failed.map(|failed| (failed.error, failed.code)).unzip();
        Self { status, result, stats: CallStats::of(run, now), error, code }
    }
}

// === impl CallAnswer ===

impl CallAnswer {
    /// `text` is the summary. An output without text is shown as details.
    fn of(output: &Json) -> Self {
        let object = FrameObject::read("output", output.get()).ok();
        let member = |name: &str| object.as_ref().and_then(|object| object.raw(name)).and_then(json);
        let refs = member("artifact_refs").filter(|refs| refs.get() != "[]");
        let full_output = OutputLocation::of(output);
        match member("text").filter(|text| text.get().starts_with('"')) {
            Some(summary) => Self { summary, details: member("details"), artifact_refs: refs, full_output },
            None => Self { summary: Json::of(""), details: Some(output.clone()), artifact_refs: refs, full_output },
        }
    }
}

// === impl CallFailedData ===

impl CallFailedData {
    fn of(status: CallStatus, result: Option<&Json>) -> Self {
        let object = result.and_then(|result| FrameObject::read("result", result.get()).ok());
        let text = |name: &str| {
            object.as_ref().and_then(|object| object.raw(name)).filter(|text| text.starts_with('"')).and_then(json)
        };
        let (code, otherwise) = match status {
            CallStatus::Cancelled => ("cancelled".to_owned(), "The call was cancelled."),
            _ => {
                let code = text("code").and_then(|code| code.parse().ok());
                (code.unwrap_or_else(|| "task_failed".to_owned()), "The call failed.")
            }
        };
        let error = text("error").or_else(|| text("reason")).unwrap_or_else(|| Json::of(otherwise));
        Self { error, code }
    }
}

// === impl CallStats ===

impl CallStats {
    fn of(run: &Run, now: Timestamp) -> Self {
        let ended = run.ended_at.unwrap_or(now);
        let duration = run.claimed_at.map(|claimed| ended.since(claimed)).unwrap_or_default();
        let usage = run.usage.as_ref().and_then(|usage| FrameObject::read("usage", usage.get()).ok());
        let number = |name: &str| {
            let text = usage.as_ref().and_then(|usage| usage.raw(name))?;
            json(text).filter(|_| text.starts_with(|first: char| first.is_ascii_digit() || first == '-'))
        };
        Self {
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            tokens: number("tokens"),
            cost: number("cost_usd"),
        }
    }
}

fn json(text: &str) -> Option<Json> {
    Json::from_text(text).ok()
}
