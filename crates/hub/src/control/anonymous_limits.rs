//! Limits for callers without a credential, so that they can't fill an agent's queue or the disk.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use attache_protocol::{AgentId, Code, rules::run::RunStatus};
use attache_store::record::{Pagination, RunFilter};
use tokio::time::Instant;

use crate::{Error, Handle, Principal, Result, error::about, identity::PrincipalKind};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Bytes that each agent received in the current hour. There are at most as many entries as agents that serve anonymous
/// callers.
#[derive(Debug, Default)]
pub(crate) struct AnonymousUsage(Mutex<HashMap<AgentId, ReceivedBytes>>);

#[derive(Debug, Clone, Copy)]
struct ReceivedBytes {
    since: Instant,
    bytes: u64,
}

// === impl Handle ===

impl Handle {
    /// Applies the limits to callers without a credential. Other callers are not limited here.
    pub(crate) async fn admit_anonymous(&self, by: &Principal, bytes: usize) -> Result<()> {
        let PrincipalKind::Anonymous { agent } = by.who else { return Ok(()) };
        let queue = self.options().anonymous_queue;
        let filter = RunFilter { agent: Some(agent), status: Some(RunStatus::Pending), ..RunFilter::default() };
        let waiting = self.store().runs(by.tenant, filter, Pagination { limit: queue, cursor: None }).await;
        let waiting = waiting.map_err(about("agent"))?;
        // A page with a continuation is full, by count or by size.
        if waiting.items.len() >= queue || waiting.next.is_some() {
            return Err(refuse("The agent's queue for callers without a credential is full."));
        }
        self.admit_anonymous_bytes(by, bytes)
    }

    /// The same for input to an existing run.
    pub(crate) fn admit_anonymous_bytes(&self, by: &Principal, bytes: usize) -> Result<()> {
        let PrincipalKind::Anonymous { agent } = by.who else { return Ok(()) };
        match self.anonymous_usage().take(agent, bytes as u64, self.options().anonymous_bytes_per_hour) {
            true => Ok(()),
            false => Err(refuse("The agent has received its hourly limit from callers without a credential.")),
        }
    }
}

fn refuse(message: &'static str) -> Error {
    Error::new(Code::QuotaExceeded, message).hint("Try again later, or send a credential.").retry_after(HOUR / 60)
}

// === impl AnonymousUsage ===

impl AnonymousUsage {
    fn take(&self, agent: AgentId, bytes: u64, most: u64) -> bool {
        let now = Instant::now();
        let mut agents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let received = agents.entry(agent).or_insert(ReceivedBytes { since: now, bytes: 0 });
        if now.duration_since(received.since) >= HOUR {
            *received = ReceivedBytes { since: now, bytes: 0 };
        }
        let sum = received.bytes.saturating_add(bytes);
        if sum > most {
            return false;
        }
        received.bytes = sum;
        true
    }
}
