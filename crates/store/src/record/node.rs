//! Nodes that serve a database together.

use attache_protocol::NodeId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRecord {
    pub id: NodeId,
    /// How often it has shown that it is alive.
    pub beats: i64,
}
