//! Nodes, and what each of them has leased.

use async_trait::async_trait;
use attache_protocol::{ChannelId, DeliveryId, NodeId, Timestamp, wire::delivery::DeliveryState};

use super::{MemoryStore, state::ModelState};
use crate::{Error, NodeStore, Result, WakeHint, WriteContext, record::node::NodeRecord};

// === impl ModelState ===

impl ModelState {
    /// A connection can't be of a node that has ended.
    pub(super) fn living_node(&self, node: Option<NodeId>) -> Result<()> {
        let is_known = |node: NodeId| self.nodes.iter().any(|known| known.id == node);
        if node.is_none_or(is_known) { Ok(()) } else { Err(Error::NodeEnded) }
    }

    fn beat_node(&mut self, node: NodeId) -> Result<Vec<NodeRecord>> {
        let own = self.nodes.iter_mut().find(|known| known.id == node).ok_or(Error::NodeEnded)?;
        own.beats += 1;
        Ok(self.nodes.clone())
    }

    fn end_node(&mut self, node: NodeRecord, reason: &str, at: Timestamp) -> bool {
        if !self.nodes.contains(&node) {
            return false;
        }
        self.nodes.retain(|known| *known != node);
        let channels = self.channels.values().filter(|peer| peer.channel.node == Some(node.id));
        let channels: Vec<ChannelId> = channels.map(|peer| peer.channel.id).collect();
        for channel in channels {
            self.disconnect(channel, reason, WriteContext::SYSTEM, at);
        }
        self.delivery_leases.retain(|_, holder| *holder != node.id);
        self.leases.retain(|_, holder| *holder != node.id);
        self.woken.extend([WakeHint::Deliveries, WakeHint::Peers]);
        true
    }

    fn lease_deliveries(&mut self, node: NodeId, attempts: &[(DeliveryId, i64)]) -> Result<Vec<DeliveryId>> {
        self.living_node(Some(node))?;
        let mut leased = Vec::new();
        for (id, number) in attempts {
            let delivery = self.deliveries.values().find(|delivery| delivery.id == *id);
            let is_next =
                delivery.is_some_and(|found| found.state == DeliveryState::Pending && *number == found.attempts + 1);
            if is_next && *self.delivery_leases.entry(*id).or_insert(node) == node {
                leased.push(*id);
            }
        }
        Ok(leased)
    }

    fn lease(&mut self, node: NodeId, name: &str) -> Result<bool> {
        self.living_node(Some(node))?;
        Ok(*self.leases.entry(name.to_owned()).or_insert(node) == node)
    }

    fn release_lease(&mut self, node: NodeId, name: &str) {
        if self.leases.get(name) == Some(&node) {
            self.leases.remove(name);
            self.woken.push(WakeHint::Peers);
        }
    }
}

// === impl MemoryStore ===

#[async_trait]
impl NodeStore for MemoryStore {
    async fn start_node(&self, node: NodeId) -> Result<()> {
        self.write(|state| {
            state.nodes.push(NodeRecord { id: node, beats: 0 });
            Ok(())
        })
    }

    async fn beat_node(&self, node: NodeId) -> Result<Vec<NodeRecord>> {
        self.write(|state| state.beat_node(node))
    }

    async fn end_node(&self, node: NodeRecord, reason: &str, at: Timestamp) -> Result<bool> {
        self.write(|state| Ok(state.end_node(node, reason, at)))
    }

    async fn lease_deliveries(&self, node: NodeId, attempts: Vec<(DeliveryId, i64)>) -> Result<Vec<DeliveryId>> {
        self.write(|state| state.lease_deliveries(node, &attempts))
    }

    async fn lease(&self, node: NodeId, name: &str) -> Result<bool> {
        self.write(|state| state.lease(node, name))
    }

    async fn release_lease(&self, node: NodeId, name: &str) -> Result<()> {
        self.write(|state| {
            state.release_lease(node, name);
            Ok(())
        })
    }
}
