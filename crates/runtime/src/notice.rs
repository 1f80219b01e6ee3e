//! What a runtime tells whoever watches it; the command line turns it into words.

use std::sync::Arc;

use attache_protocol::{AgentId, ChannelId, RunId, RuntimeId, rules::run::RunStatus};

/// Called for everything worth telling. It must return quickly.
pub type Observer = Arc<dyn Fn(&Notice) + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Started {
        agent: AgentId,
        runtime: RuntimeId,
        api_base: String,
    },
    /// The first heartbeat was answered.
    Online,
    /// Told once, however long the hub stays away.
    HubAway {
        reason: String,
    },
    HubBack,
    /// This device's clock is ahead of the hub's by so much, or behind it where the number is negative.
    ClockOff {
        ahead_minutes: i64,
    },
    /// Work comes over a channel from now on.
    ChannelOpen {
        channel: ChannelId,
    },
    /// Work is pulled over HTTP from now on, until the channel is back.
    ChannelBroken {
        reason: String,
    },
    /// The ledger cannot be written, so nothing new is begun. Told once.
    LedgerUnwritable {
        reason: String,
    },
    LedgerWritable,
    /// The ledger is missing or damaged: claims of before that the hub knows of count as lost.
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
    /// A run of before the restart is still executing and is followed again.
    Rejoined {
        run: RunId,
    },
    Released {
        run: RunId,
    },
    /// The run waits for a person. The text is the agent's own.
    Asked {
        run: RunId,
        question: QuestionNotice,
    },
    /// The agent has the answer, and goes on.
    Answered {
        run: RunId,
        answer: AnswerNotice,
    },
    /// The run ended on this device.
    Ended {
        run: RunId,
        status: RunStatus,
        error: Option<String>,
    },
    /// The hub cancelled the run or gave it to another claim.
    TaskStopped {
        run: RunId,
        reason: String,
    },
    Reported {
        run: RunId,
    },
    /// The hub cannot be told now; the ledger keeps the outcome.
    ReportKept {
        run: RunId,
        reason: String,
    },
    ReportRefused {
        run: RunId,
        reason: String,
    },
    /// No new run is pulled; the one that executes is finished first.
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
pub enum AnswerNotice {
    Approved,
    Denied,
    Input,
}
