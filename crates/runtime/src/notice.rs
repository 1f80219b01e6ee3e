//! What a runtime reports to its observer. The command line turns it into text.

use std::sync::Arc;

use attache_protocol::{AgentId, ChannelId, RunId, RuntimeId, rules::run::RunStatus};

/// Called for every notice. It must return quickly.
pub type Observer = Arc<dyn Fn(&RuntimeNotice) + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeNotice {
    Started {
        agent: AgentId,
        runtime: RuntimeId,
        api_base: String,
    },
    /// The first heartbeat was answered.
    Online,
    /// Reported once, however long the hub is unreachable.
    HubAway {
        reason: String,
    },
    HubBack,
    /// How far this device's clock is ahead of the hub's. Negative: behind.
    ClockOff {
        ahead_minutes: i64,
    },
    /// From now on, work arrives over a channel.
    ChannelOpen {
        channel: ChannelId,
    },
    /// From now on, work is pulled over HTTP, until the channel is back.
    ChannelBroken {
        reason: String,
    },
    /// The ledger can't be written, so no new run is started. Reported once.
    LedgerUnwritable {
        reason: String,
    },
    LedgerWritable,
    /// The ledger is missing or damaged. Earlier claims that the hub knows of count as lost.
    LedgerDamaged,
    AdapterAway {
        reason: String,
    },
    AdapterReady {
        endpoint: String,
    },
    Pulled {
        run: RunId,
        task_type: String,
    },
    /// A run from before the restart is still executing and is followed again.
    Rejoined {
        run: RunId,
    },
    Released {
        run: RunId,
    },
    /// The run waits for a person. The text comes from the agent.
    Asked {
        run: RunId,
        question: QuestionNotice,
    },
    /// The agent received the answer and continues.
    Answered {
        run: RunId,
        answer: AnswerKind,
    },
    /// The run ended on this device.
    Ended {
        run: RunId,
        status: RunStatus,
        error: Option<String>,
    },
    /// The hub cancelled the run, or another claim holds it.
    TaskStopped {
        run: RunId,
        reason: String,
    },
    Reported {
        run: RunId,
    },
    /// The hub can't be reached now. The ledger keeps the outcome.
    ReportKept {
        run: RunId,
        reason: String,
    },
    ReportRefused {
        run: RunId,
        reason: String,
    },
    /// No new run is pulled. The current one finishes first.
    Stopping {
        running: Option<RunId>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionNotice {
    Permission { tool: String },
    Input { prompt: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    Approved,
    Denied,
    Input,
}
