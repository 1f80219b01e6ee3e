//! What a runtime tells whoever watches it; the command line turns it into words.

use std::sync::Arc;

use attache_protocol::{AgentId, RunId, RuntimeId, rules::run::Status};

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
    /// The run ended on this device.
    Ended {
        run: RunId,
        status: Status,
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
