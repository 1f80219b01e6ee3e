//! Steps around the nodes of a database, and what they lease.

use attache_protocol::NodeId;

use super::StepGenerator;
use crate::{conformance::step::StoreStep, memory::MemoryStore, record::node::NodeRecord};

const NAMES: [&str; 2] = ["host/a", "日本"];

// === impl StepGenerator ===

impl StepGenerator {
    pub(super) async fn node(&self, model: &MemoryStore) -> StoreStep {
        let Some(known) = self.draw.recent(&self.known.nodes) else {
            return StoreStep::StartNode(self.draw.env.node_id());
        };
        let node = if self.draw.percent(5) { self.draw.env.node_id() } else { known.id };
        match self.draw.below(100) {
            0..30 => StoreStep::StartNode(self.draw.env.node_id()),
            30..45 => StoreStep::BeatNode(node),
            45..57 => {
                let stale = i64::from(self.draw.percent(20));
                let node = NodeRecord { id: node, beats: known.beats - stale };
                StoreStep::EndNode { node, reason: self.draw.text(), at: self.at() }
            }
            57..72 => {
                let mut attempts = Vec::new();
                for _ in 0..=self.draw.below(3) {
                    let (delivery, before) = self.waiting_delivery(model).await;
                    attempts.push((delivery, before + i64::from(!self.draw.percent(10))));
                }
                StoreStep::LeaseDeliveries(node, attempts)
            }
            72..97 => StoreStep::Lease(node, self.node_lease()),
            _ => StoreStep::ReleaseLease(node, self.node_lease()),
        }
    }

    fn node_lease(&self) -> String {
        self.draw.one_of(&NAMES).unwrap_or(NAMES[0]).to_owned()
    }

    /// The node of a caller, in some sequences.
    pub(super) fn some_node(&self) -> Option<NodeId> {
        match self.draw.below(100) {
            0..2 => Some(self.draw.env.node_id()),
            2..50 => self.draw.recent(&self.known.nodes).map(|node| node.id),
            _ => None,
        }
    }
}
