//! In-process hints that something changed. A lost hint costs latency, never correctness: every waiter also polls.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use attache_protocol::{AgentId, ChannelId, KeyId, RunId, TenantId};
use attache_store::WakeHint;
use tokio::sync::{Notify, watch};

/// What a waiter subscribes to.
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
    /// A role, the access rules, or who may use an agent changed.
    Rights(TenantId),
    /// A frame is pending for this channel's peer, or the channel changed.
    Channel(ChannelId),
    /// A question of this run was settled.
    Asked(RunId),
    /// A delivery is due.
    Deliveries,
    Peers,
}

/// Keeps one slot per watched topic, so its size is bounded by the number of waiters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bus(Arc<Mutex<TopicSlots>>);

#[derive(Debug, Default)]
struct TopicSlots {
    watches: HashMap<Topic, watch::Sender<()>>,
    multi_watches: HashMap<Topic, Vec<Arc<MultiWatchState>>>,
}

/// Waits for many topics at once, at almost no cost while nothing happens.
#[derive(Debug)]
pub(crate) struct MultiWatch {
    bus: Bus,
    state: Arc<MultiWatchState>,
    topics: Vec<Topic>,
}

#[derive(Debug, Default)]
struct MultiWatchState {
    /// Topics that changed since the last read, without duplicates.
    moved: Mutex<Vec<Topic>>,
    notify: Notify,
}

/// One waiter's subscription to one topic.
#[derive(Debug)]
pub(crate) struct TopicWatch {
    bus: Bus,
    topic: Topic,
    receiver: watch::Receiver<()>,
}

// === impl Bus ===

impl Bus {
    /// Subscribes. Hints after this call are not missed, even while no one awaits them.
    pub(crate) fn watch(&self, topic: Topic) -> TopicWatch {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = slots.watches.entry(topic).or_insert_with(|| watch::Sender::new(())).subscribe();
        drop(slots);
        TopicWatch { bus: self.clone(), topic, receiver }
    }

    pub(crate) fn wake(&self, topics: impl IntoIterator<Item = Topic>) {
        let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in topics {
            if let Some(slot) = slots.watches.get(&topic) {
                slot.send_replace(());
            }
            for rope in slots.multi_watches.get(&topic).into_iter().flatten() {
                rope.mark_moved(topic);
            }
        }
    }

    /// Hints of other nodes may have been lost: everybody looks again.
    pub(crate) fn wake_all(&self) {
        let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in slots.watches.values() {
            slot.send_replace(());
        }
        for (topic, ropes) in &slots.multi_watches {
            for rope in ropes {
                rope.mark_moved(*topic);
            }
        }
    }
}

// === impl MultiWatch ===

impl MultiWatch {
    pub(crate) fn new(bus: &Bus) -> Self {
        Self { bus: bus.clone(), state: Arc::default(), topics: Vec::new() }
    }

    /// From now on, hints about the topic wake this waiter.
    pub(crate) fn add_topic(&mut self, topic: Topic) {
        if self.topics.contains(&topic) {
            return;
        }
        self.topics.push(topic);
        let mut slots = self.bus.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.multi_watches.entry(topic).or_default().push(self.state.clone());
    }

    pub(crate) fn remove_topic(&mut self, topic: Topic) {
        let before = self.topics.len();
        self.topics.retain(|known| *known != topic);
        if self.topics.len() < before {
            self.bus.0.lock().unwrap_or_else(PoisonError::into_inner).remove(topic, &self.state);
        }
    }

    /// Resolves with the topics that changed. Safe to drop and call again.
    pub(crate) async fn moved_topics(&self) -> Vec<Topic> {
        loop {
            let moved = mem::take(&mut *self.state.moved.lock().unwrap_or_else(PoisonError::into_inner));
            if !moved.is_empty() {
                return moved;
            }
            self.state.notify.notified().await;
        }
    }
}

impl Drop for MultiWatch {
    fn drop(&mut self) {
        let mut slots = self.bus.0.lock().unwrap_or_else(PoisonError::into_inner);
        for topic in &self.topics {
            slots.remove(*topic, &self.state);
        }
    }
}

// === impl TopicSlots ===

impl TopicSlots {
    fn remove(&mut self, topic: Topic, rope: &Arc<MultiWatchState>) {
        let Some(ropes) = self.multi_watches.get_mut(&topic) else { return };
        ropes.retain(|known| !Arc::ptr_eq(known, rope));
        if ropes.is_empty() {
            self.multi_watches.remove(&topic);
        }
    }
}

// === impl MultiWatchState ===

impl MultiWatchState {
    fn mark_moved(&self, topic: Topic) {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        if !moved.contains(&topic) {
            moved.push(topic);
        }
        drop(moved);
        self.notify.notify_one();
    }
}

// === impl Topic ===

impl Topic {
    /// Who waits for this. `None` if everybody does.
    pub(crate) fn of(woken: WakeHint) -> Option<Self> {
        Some(match woken {
            WakeHint::Run(run) => Self::Run(run),
            WakeHint::Tenant(tenant) => Self::Tenant(tenant),
            WakeHint::Queue(agent) => Self::Queue(agent),
            WakeHint::Runtime(agent) => Self::Runtime(agent),
            WakeHint::Channel(channel) => Self::Channel(channel),
            WakeHint::Asked(run) => Self::Asked(run),
            WakeHint::Deliveries => Self::Deliveries,
            WakeHint::Peers => Self::Peers,
            WakeHint::Key(key) => Self::Key(key),
            WakeHint::Rights(tenant) => Self::Rights(tenant),
            WakeHint::Everything => return None,
        })
    }
}

// === impl TopicWatch ===

impl TopicWatch {
    /// Resolves immediately if a hint came since the last call, else with the next one.
    pub(crate) async fn moved(&mut self) {
        if self.receiver.changed().await.is_err() {
            // The slot lives as long as this watch does.
            std::future::pending::<()>().await;
        }
    }

    /// Whether a hint came since the last call.
    pub(crate) fn take_moved(&mut self) -> bool {
        let has_moved = self.receiver.has_changed().unwrap_or(false);
        if has_moved {
            self.receiver.mark_unchanged();
        }
        has_moved
    }
}

impl Drop for TopicWatch {
    fn drop(&mut self) {
        let mut slots = self.bus.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.watches.get(&self.topic).is_some_and(|slot| slot.receiver_count() <= 1) {
            slots.watches.remove(&self.topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_busy_waiter_misses_no_hint_and_slots_are_freed_with_their_waiters() {
        let bus = Bus::default();
        let tenant = attache_protocol::env::Env::seeded(1).tenant_id();
        let (mut one, two) = (bus.watch(Topic::Tenant(tenant)), bus.watch(Topic::Tenant(tenant)));
        bus.wake([Topic::Tenant(tenant)]);
        one.moved().await;
        drop(one);
        assert_eq!(bus.0.lock().unwrap().watches.len(), 1);
        drop(two);
        assert_eq!(bus.0.lock().unwrap().watches.len(), 0);
    }

    #[tokio::test]
    async fn a_multi_watch_reports_changed_topics_and_frees_its_slots() {
        let bus = Bus::default();
        let env = attache_protocol::env::Env::seeded(1);
        let (one, two) = (Topic::Run(env.run_id()), Topic::Run(env.run_id()));
        let mut bell = MultiWatch::new(&bus);
        bell.add_topic(one);
        bell.add_topic(two);
        bell.add_topic(two);
        bus.wake([two, one, two]);
        assert_eq!(bell.moved_topics().await, [two, one]);
        bell.remove_topic(two);
        bus.wake([two, one]);
        assert_eq!(bell.moved_topics().await, [one]);
        drop(bell);
        assert!(bus.0.lock().unwrap().multi_watches.is_empty());
    }
}
