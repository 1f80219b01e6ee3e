//! The nodes that serve a database together, and what each of them holds.

use attache_protocol::{DeliveryId, NodeId, Timestamp};

use crate::store_part::store_part;
use crate::{Result, record::node::NodeRecord};

store_part! {
    /// The rules of [`crate::Store`] apply here too. Nothing here is logged, except the channels that `end_node` closes, as
    /// `close_channels` does.
    ///
    /// A node that has ended or never started is unknown. It can't open or resume channels or lease anything
    /// ([`crate::Error::NodeEnded`]). The times of nodes aren't compared: a node that sees the same number of heartbeats for long
    /// enough, by their own clock, may end the node.
    pub trait NodeStore, layer NodeStoreLayer, call NodeCall {
        /// A new node.
        async fn start_node(&self, node: NodeId) -> Result<()>;

        /// The node is alive. Returns all nodes in the order in which they started. `NodeEnded` for an unknown one.
        async fn beat_node(&self, node: NodeId) -> Result<Vec<NodeRecord>>;

        /// Ends the node, unless it has beaten since: closes its connected channels in order of creation, and frees what it
        /// has leased. Returns whether it did.
        async fn end_node(&self, node: NodeRecord, reason: &str, at: Timestamp) -> Result<bool>;

        /// Leases the next attempt of each delivery to the node, and returns those that are its own now or were before. Left
        /// out are unknown ones, those that aren't pending, whose next attempt has another number, and those of another node.
        /// The lease lasts until the attempt is recorded or the node ends.
        async fn lease_deliveries(&self, node: NodeId, attempts: Vec<(DeliveryId, i64)>) -> Result<Vec<DeliveryId>>;

        /// Leases a name to the node, until it is released or the node ends. Returns whether it is the node's now or was
        /// before.
        async fn lease(&self, node: NodeId, name: &str) -> Result<bool>;

        /// Frees a name, if it is leased to the node.
        async fn release_lease(&self, node: NodeId, name: &str) -> Result<()>;
    }
}
