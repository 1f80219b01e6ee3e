//! Hints that something moved. Losing one costs latency, never correctness: every waiter also looks by itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use attache_protocol::{AgentId, ChannelId, KeyId, RunId, TenantId};
use attache_store::Woken;
use tokio::sync::watch;

/// What a waiter is interested in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    Run(RunId),
    Tenant(TenantId),
    /// A run became pending for this agent.
    Queue(AgentId),
    /// The runtimes of this agent changed.
    Runtime(AgentId),
    /// This key was revoked.
    Key(KeyId),
    /// A frame waits for this channel's peer, or the channel changed.
    Channel(ChannelId),
    /// A question of this run was settled.
    Asked(RunId),
}

/// Keeps one slot per topic that somebody waits for, so its size is bounded by the number of waiters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bus(Arc<Mutex<HashMap<Topic, watch::Sender<()>>>>);

/// One waiter's interest in one topic.
#[derive(Debug)]
pub(crate) struct Watch {
    bus: Bus,
    topic: Topic,
    receiver: watch::Receiver<()>,
}

// === impl Bus ===

impl Bus {
    /// Registers interest. Hints that come after this call are not missed, even while nobody awaits them.
    pub(crate) fn watch(&self, topic: Topic) -> Watch {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = slots.entry(topic).or_insert_with(|| watch::Sender::new(())).subscribe();
        drop(slots);
        Watch { bus: self.clone(), topic, receiver }
    }

    pub(crate) fn wake(&self, topics: impl IntoIterator<Item = Topic>) {
        let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in topics {
            if let Some(slot) = slots.get(&topic) {
                slot.send_replace(());
            }
        }
    }
}

// === impl Topic ===

impl From<Woken> for Topic {
    fn from(woken: Woken) -> Self {
        match woken {
            Woken::Run(run) => Self::Run(run),
            Woken::Tenant(tenant) => Self::Tenant(tenant),
            Woken::Queue(agent) => Self::Queue(agent),
            Woken::Runtime(agent) => Self::Runtime(agent),
            Woken::Channel(channel) => Self::Channel(channel),
            Woken::Asked(run) => Self::Asked(run),
        }
    }
}

// === impl Watch ===

impl Watch {
    /// Resolves at once if a hint came since the last call, else with the next one.
    pub(crate) async fn moved(&mut self) {
        if self.receiver.changed().await.is_err() {
            // The slot lives as long as this watch does.
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn has_moved(&self) -> bool {
        self.receiver.has_changed().unwrap_or(false)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut slots = self.bus.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.get(&self.topic).is_some_and(|slot| slot.receiver_count() <= 1) {
            slots.remove(&self.topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hint_is_kept_for_a_waiter_that_is_busy_and_slots_go_with_their_waiters() {
        let bus = Bus::default();
        let tenant = attache_protocol::env::Env::seeded(1).tenant_id();
        let (mut one, two) = (bus.watch(Topic::Tenant(tenant)), bus.watch(Topic::Tenant(tenant)));
        bus.wake([Topic::Tenant(tenant)]);
        one.moved().await;
        drop(one);
        assert_eq!(bus.0.lock().unwrap().len(), 1);
        drop(two);
        assert_eq!(bus.0.lock().unwrap().len(), 0);
    }
}
