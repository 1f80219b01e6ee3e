//! One entry of the ledger. It never contains tokens, codes or the task's input.

use attache_protocol::{ConversationId, InputId, Json, RunId, RuntimeId, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};

/// A step on this device. Absent members are omitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    pub at: Timestamp,
    pub event: LedgerStep,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_id: Option<RuntimeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_run_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Of a run that works on a delegation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation_id: Option<String>,
    /// Of `task_completed` and `task_failed`: everything that is reported to the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Json>,
    /// Which unsolicited input the agent got, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_taken: Option<Vec<InputId>>,
    /// The reason, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerStep {
    RuntimeStarted,
    TaskPulled,
    /// Written before the adapter receives the task.
    TaskStarted,
    /// The runtime was restarted and follows the task again. Written before anything more is reported to the hub: the
    /// reports of each process are numbered separately.
    TaskRejoined,
    /// Written before the outcome is reported to the hub, as is `task_failed`.
    TaskCompleted,
    TaskFailed,
    TaskReported,
    /// The hub will never accept this outcome: its claim is gone, or the run has ended.
    TaskReportRefused,
    /// The work was stopped because the hub asked for it, or because another claim holds the run.
    TaskStopped,
    /// Handed back before it was started.
    TaskReleased,
    RuntimeStopped,
}

/// How a run ended on this device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutionOutcome {
    Completed { output: Json, usage: Option<Json>, inputs_taken: Option<Vec<InputId>> },
    Failed { output: Json, usage: Option<Json>, inputs_taken: Option<Vec<InputId>> },
}

/// Every readable entry. Torn and foreign lines are skipped.
pub(super) fn parse(text: &[u8]) -> Vec<LedgerEntry> {
    lines(text).filter_map(Result::ok).collect()
}

/// Whether every line is readable and the last one is complete. A used ledger has at least one line.
pub(super) fn is_intact(text: &[u8]) -> bool {
    text.ends_with(b"\n") && lines(text).all(|line| line.is_ok()) && lines(text).next().is_some()
}

fn lines(text: &[u8]) -> impl Iterator<Item = serde_json::Result<LedgerEntry>> {
    // Checks of the disk leave empty lines.
    let written = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    written.map(serde_json::from_slice)
}

// === impl LedgerEntry ===

impl LedgerEntry {
    pub fn new(at: Timestamp, event: LedgerStep) -> Self {
        Self {
            at,
            event,
            runtime_id: None,
            task_run_id: None,
            epoch: None,
            conversation_id: None,
            workspace_id: None,
            task_type: None,
            deadline: None,
            delegation_id: None,
            output: None,
            usage: None,
            inputs_taken: None,
            reason: None,
        }
    }

    #[must_use]
    pub fn of_run(self, run: RunId, epoch: i64) -> Self {
        Self { task_run_id: Some(run), epoch: Some(epoch), ..self }
    }

    #[must_use]
    pub fn because(self, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }

    pub fn outcome(at: Timestamp, run: RunId, epoch: i64, outcome: &ExecutionOutcome) -> Self {
        let step = match outcome {
            ExecutionOutcome::Completed { .. } => LedgerStep::TaskCompleted,
            ExecutionOutcome::Failed { .. } => LedgerStep::TaskFailed,
        };
        let (ExecutionOutcome::Completed { output, usage, inputs_taken }
        | ExecutionOutcome::Failed { output, usage, inputs_taken }) = outcome.clone();
        Self { output: Some(output), usage, inputs_taken, ..Self::new(at, step).of_run(run, epoch) }
    }

    pub fn text(&self) -> String {
        let mut text = serde_json::to_string(self).expect("a line serialises to JSON");
        debug_assert!(!text.contains('\n'), "outcomes are made one-line when they are built");
        text.push('\n');
        text
    }
}

// === impl ExecutionOutcome ===

impl ExecutionOutcome {
    pub fn completed(output: &Json, usage: Option<&Json>) -> Self {
        Self::Completed { output: one_line(output), usage: usage.map(one_line), inputs_taken: None }
    }

    /// The same, when the agent got only this of the run's unsolicited input.
    #[must_use]
    pub fn taking(mut self, inputs: Option<Vec<InputId>>) -> Self {
        let (Self::Completed { inputs_taken, .. } | Self::Failed { inputs_taken, .. }) = &mut self;
        *inputs_taken = inputs;
        self
    }

    pub fn inputs_taken(&self) -> Option<&[InputId]> {
        let (Self::Completed { inputs_taken, .. } | Self::Failed { inputs_taken, .. }) = self;
        inputs_taken.as_deref()
    }

    pub fn failed(code: &str, message: &str, usage: Option<&Json>) -> Self {
        Self::failed_until(code, message, None, usage)
    }

    /// A failure that may go away at a known time.
    pub fn failed_until(code: &str, message: &str, resets_at: Option<Timestamp>, usage: Option<&Json>) -> Self {
        #[derive(Serialize)]
        struct FailureOutput<'a> {
            error: &'a str,
            code: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            resets_at: Option<Timestamp>,
        }
        Self::Failed {
            output: Json::of(&FailureOutput { error: message, code, resets_at }),
            usage: usage.map(one_line),
            inputs_taken: None,
        }
    }

    /// A failure with more details than a code and a message.
    pub fn failed_as(output: &Json, usage: Option<&Json>) -> Self {
        Self::Failed { output: one_line(output), usage: usage.map(one_line), inputs_taken: None }
    }

    pub const fn status(&self) -> attache_protocol::rules::run::RunStatus {
        match self {
            Self::Completed { .. } => attache_protocol::rules::run::RunStatus::Completed,
            Self::Failed { .. } => attache_protocol::rules::run::RunStatus::Failed,
        }
    }
}

/// The same JSON without line breaks, which can only be between tokens. The hub receives exactly what the ledger
/// contains, so that it recognises a repeated report.
fn one_line(json: &Json) -> Json {
    if json.get().contains(['\n', '\r']) {
        Json::from_text(json.get().replace(['\n', '\r'], " ")).expect("a blank between tokens keeps JSON valid")
    } else {
        json.clone()
    }
}
