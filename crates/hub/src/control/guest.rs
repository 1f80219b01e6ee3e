//! How much callers without a credential may leave with an agent that serves them: they fill neither its queue nor the disk.

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

/// What each agent was sent in its present hour, in bytes. There are no more entries than agents that serve strangers.
#[derive(Debug, Default)]
pub(crate) struct Guests(Mutex<HashMap<AgentId, Received>>);

#[derive(Debug, Clone, Copy)]
struct Received {
    since: Instant,
    bytes: u64,
}

// === impl Handle ===

impl Handle {
    /// Refuses what is too much of a caller without a credential; everybody else is not asked.
    pub(crate) async fn admit_guest(&self, by: &Principal, bytes: usize) -> Result<()> {
        let PrincipalKind::Anonymous { agent } = by.who else { return Ok(()) };
        let queue = self.options().anonymous_queue;
        let filter = RunFilter { agent: Some(agent), status: Some(RunStatus::Pending), ..RunFilter::default() };
        let waiting = self.store().runs(by.tenant, filter, Pagination { limit: queue, cursor: None }).await;
        let waiting = waiting.map_err(about("agent"))?;
        // A page that goes on is full, by number or by weight.
        if waiting.items.len() >= queue || waiting.next.is_some() {
            return Err(refuse("The agent has as much waiting as it takes from callers without a credential."));
        }
        self.admit_guest_bytes(by, bytes)
    }

    /// The same of what is said to a run that is there already.
    pub(crate) fn admit_guest_bytes(&self, by: &Principal, bytes: usize) -> Result<()> {
        let PrincipalKind::Anonymous { agent } = by.who else { return Ok(()) };
        match self.guests().take(agent, bytes as u64, self.options().anonymous_bytes_per_hour) {
            true => Ok(()),
            false => Err(refuse("The agent has got as much in an hour as it takes from callers without a credential.")),
        }
    }
}

fn refuse(message: &'static str) -> Error {
    Error::new(Code::QuotaExceeded, message).hint("Try again later, or send a credential.").retry_after(HOUR / 60)
}

// === impl Guests ===

impl Guests {
    fn take(&self, agent: AgentId, bytes: u64, most: u64) -> bool {
        let now = Instant::now();
        let mut agents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let received = agents.entry(agent).or_insert(Received { since: now, bytes: 0 });
        if now.duration_since(received.since) >= HOUR {
            *received = Received { since: now, bytes: 0 };
        }
        let sum = received.bytes.saturating_add(bytes);
        if sum > most {
            return false;
        }
        received.bytes = sum;
        true
    }
}
