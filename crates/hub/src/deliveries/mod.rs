//! Sends webhooks: takes due deliveries from the store, attempts them, and records the outcome.
//!
//! A delivery is stored before it is sent, so it survives the hub. It is retried until it is acknowledged or out of
//! attempts, never twice at the same time, and never after a recorded acknowledgement. A target that keeps failing is
//! paused, and neither a target nor all targets of a host may use more than their share of the slots. Some slots are for
//! approval requests alone, because a person is waiting for those.
//!
//! Several nodes count the failures of a target together, and one of them probes it.

mod attempt;
mod body;
mod circuit_breaker;
mod push_renderer;
mod retry;
mod secret;
mod shared_circuits;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use attache_client::egress;
use attache_protocol::{DeliveryId, Timestamp, wire::delivery::DeliveryKind};
use attache_store::record::delivery::DeliveryRecord;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{Handle, bus::Topic};
use circuit_breaker::CircuitBreakers;
use shared_circuits::ProbeOwner;

pub(crate) use attempt::send_now;
pub use circuit_breaker::CircuitPolicy;
pub use push_renderer::{PushNotification, PushRenderer, PushUpdate};
pub(crate) use secret::{SecretSubject, WebhookSigners};

/// How deliveries are attempted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The delay after the first failure, the second, and so on. A failure after the last one is final.
    pub retries: Vec<Duration>,
    /// The longest `Retry-After` that is honoured.
    pub longest_retry_after: Duration,
    /// How many are in progress at a time.
    pub slots: usize,
    /// How many of them to one target.
    pub slots_per_target: usize,
    /// All targets of a host together.
    pub slots_per_host: usize,
    pub circuit_policy: CircuitPolicy,
    /// How often to look without a hint. Retries that become due give none.
    pub look_every: Duration,
    /// How long deliveries in progress may take when the hub stops. Interrupted ones are sent again after the next
    /// start.
    pub drain_timeout: Duration,
}

/// Deliveries that a person wants sent now, whatever the state of their target, and since when. Another node may send
/// one first.
#[derive(Debug, Default)]
pub(crate) struct UrgentDeliveries(Mutex<HashMap<DeliveryId, Timestamp>>);

/// The task that sends. It owns all deliveries in progress.
struct DeliverySender {
    hub: Handle,
    under_way: JoinSet<FinishedAttempt>,
    busy: HashSet<DeliveryId>,
    /// How many are in progress per target and per host.
    shares: HashMap<String, usize>,
    /// An attempt updates its target's circuit before its outcome becomes visible.
    circuits: Arc<Mutex<CircuitBreakers>>,
    /// How many due deliveries to read, past those that wait for their target.
    reach: usize,
}

struct FinishedAttempt {
    delivery: DeliveryId,
    /// Where they count.
    shares: [String; 2],
}

/// This part of the slots is for requests for approval alone.
const APPROVAL_PART: usize = 4;

/// The most that one read takes from the store.
const MAX_DUE: usize = 65_536;

/// A delivery that was urgent for longer has been sent by another node.
const URGENT_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Runs until the hub drains.
pub(crate) async fn run(hub: Handle) {
    let mut hints = hub.bus().watch(Topic::Deliveries);
    let mut outbox = DeliverySender::new(hub.clone());
    loop {
        let look_again = Instant::now() + hub.options().outbox.look_every;
        outbox.start_due().await;
        tokio::select! {
            () = hub.drained() => return outbox.finish().await,
            () = hints.moved() => {}
            () = sleep_until(look_again) => {}
            Some(ended) = outbox.under_way.join_next() => outbox.ended(ended),
        }
    }
}

/// Whether no other node makes the next attempt. It is leased to this one until it is recorded.
async fn is_ours(hub: &Handle, delivery: &DeliveryRecord) -> bool {
    let Some(node) = hub.node() else { return true };
    match hub.store().lease_deliveries(node, vec![(delivery.id, delivery.attempts + 1)]).await {
        Ok(leased) => !leased.is_empty(),
        Err(error) => {
            tracing::debug!(delivery.id = %delivery.id, %error, "a delivery could not be leased");
            sleep(hub.options().outbox.look_every).await;
            false
        }
    }
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        Self {
            // About a day in total.
            retries: [1, 5, 30, 2 * MINUTE, 10 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR]
                .map(Duration::from_secs)
                .to_vec(),
            longest_retry_after: Duration::from_secs(3 * HOUR),
            slots: 32,
            slots_per_target: 4,
            slots_per_host: 8,
            circuit_policy: CircuitPolicy::default(),
            look_every: Duration::from_secs(1),
            drain_timeout: Duration::from_secs(3),
        }
    }
}

// === impl UrgentDeliveries ===

impl UrgentDeliveries {
    pub(crate) fn add(&self, delivery: DeliveryId, at: Timestamp) {
        let mut urgent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        urgent.retain(|_, since| at < since.plus(URGENT_TIMEOUT));
        urgent.insert(delivery, at);
    }

    pub(crate) fn take(&self, delivery: DeliveryId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&delivery).is_some()
    }
}

// === impl DeliverySender ===

impl DeliverySender {
    fn new(hub: Handle) -> Self {
        let circuits = Arc::new(Mutex::new(CircuitBreakers::new(hub.options().outbox.circuit_policy)));
        Self { hub, under_way: JoinSet::new(), busy: HashSet::new(), shares: HashMap::new(), circuits, reach: 0 }
    }

    /// Starts due deliveries while slots are free.
    async fn start_due(&mut self) {
        let slots = self.hub.options().outbox.slots;
        while self.under_way.len() < slots {
            let limit = self.reach.max(2 * slots);
            let due = match self.hub.store().due_deliveries(self.hub.node(), self.hub.now(), limit).await {
                Ok(due) => due,
                Err(error) => return tracing::warn!(%error, "can't read the due deliveries"),
            };
            let found = due.len();
            if found > 0 {
                shared_circuits::learn(&self.hub, &self.circuits).await;
            }
            for delivery in due {
                if self.under_way.len() < slots && !self.busy.contains(&delivery.id) {
                    self.start(delivery);
                }
            }
            // Deliveries that wait for their target fill the page. Others behind them may be ready.
            let is_all = found < limit || limit >= MAX_DUE;
            self.reach = if found < limit / 4 { limit / 2 } else { limit };
            if is_all {
                return;
            }
            self.reach = 2 * limit;
        }
    }

    /// Skips it if its target is paused or out of slots, or it can't be rendered yet.
    fn start(&mut self, delivery: DeliveryRecord) {
        if delivery.kind == DeliveryKind::TaskUpdated && self.hub.push_renderer().is_none() {
            return;
        }
        let options = &self.hub.options().outbox;
        let (target, host) = (egress::origin(&delivery.url), egress::host(&delivery.url));
        let share = |of: &String| self.shares.get(of).copied().unwrap_or_default();
        let is_for_approval = delivery.permission.is_some() || delivery.target.is_some();
        if share(&host) >= options.slots_per_host
            || (!is_for_approval && self.under_way.len() >= options.slots - options.slots / APPROVAL_PART)
        {
            return;
        }
        let is_urgent = self.hub.urgent().take(delivery.id);
        let mut is_probe = false;
        if !is_urgent {
            let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
            if share(&target) >= options.slots_per_target || !circuits.admit(&target, self.hub.now()) {
                return;
            }
            is_probe = circuits.is_probed(&target);
        }
        let shares = [target, host];
        for share in &shares {
            *self.shares.entry(share.clone()).or_default() += 1;
        }
        self.busy.insert(delivery.id);
        let (hub, circuits) = (self.hub.clone(), self.circuits.clone());
        self.under_way.spawn(async move {
            let id = delivery.id;
            let probe = if is_probe {
                shared_circuits::begin_probe(&hub, &circuits, &shares[0]).await
            } else {
                ProbeOwner::None
            };
            if probe == ProbeOwner::AtAnotherNode {
                // Not before the next look, or this one would be repeated until the other node is done.
                sleep(hub.options().outbox.look_every).await;
            }
            if probe == ProbeOwner::AtAnotherNode || !is_ours(&hub, &delivery).await {
                circuits.lock().unwrap_or_else(PoisonError::into_inner).unknown(&shares[0]);
            } else {
                attempt::make(&hub, delivery, &circuits).await;
            }
            shared_circuits::end_probe(&hub, &shares[0], probe).await;
            FinishedAttempt { delivery: id, shares }
        });
    }

    fn ended(&mut self, ended: Result<FinishedAttempt, tokio::task::JoinError>) {
        let FinishedAttempt { delivery, shares } = match ended {
            Ok(done) => done,
            // Its delivery stays busy until the next start: better late than twice.
            Err(error) => return tracing::error!(%error, "a delivery was interrupted"),
        };
        self.busy.remove(&delivery);
        for of in shares {
            if let Some(share) = self.shares.get_mut(&of) {
                *share -= 1;
                if *share == 0 {
                    self.shares.remove(&of);
                }
            }
        }
    }

    async fn finish(mut self) {
        let drain_timeout = self.hub.options().outbox.drain_timeout;
        let all = async { while self.under_way.join_next().await.is_some() {} };
        if timeout(drain_timeout, all).await.is_err() {
            tracing::info!(
                deliveries = self.under_way.len(),
                "interrupted deliveries will be sent again after the next start"
            );
        }
    }
}
