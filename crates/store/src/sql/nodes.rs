//! Nodes, and what each of them has leased.

use async_trait::async_trait;
use attache_protocol::{DeliveryId, NodeId, Timestamp};
use rusqlite::params;

use super::{
    SqlStore,
    connection::OptionalExtension as _,
    journal::LogStamp,
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{Error, NodeStore, Result, WakeHint, WriteContext, record::node::NodeRecord};

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    /// A connection can't be of a node that has ended.
    pub(super) fn living_node(&self, node: Option<NodeId>) -> Result<()> {
        let Some(node) = node else { return Ok(()) };
        let known = self
            .connection
            .prepare_cached("select no from nodes where id = ?1")?
            .query_row([IdBytes(node.uuid())], |row| row.get::<i64>(0))
            .optional()?;
        known.map(drop).ok_or(Error::NodeEnded)
    }

    fn start_node(&self, node: NodeId) -> Result<()> {
        self.connection.prepare_cached("insert into nodes (id) values (?1)")?.execute([IdBytes(node.uuid())])?;
        Ok(())
    }

    fn beat_node(&self, node: NodeId) -> Result<Vec<NodeRecord>> {
        self.living_node(Some(node))?;
        self.connection
            .prepare_cached("update nodes set beats = beats + 1 where id = ?1")?
            .execute([IdBytes(node.uuid())])?;
        Ok(self
            .connection
            .prepare_cached("select id, beats from nodes order by no")?
            .query_map((), |row| Ok(NodeRecord { id: rows::node_id(row.get(0)?), beats: row.get(1)? }))?
            .collect::<rusqlite::Result<_>>()?)
    }

    fn end_node(&mut self, node: NodeRecord, reason: &str, at: Timestamp) -> Result<bool> {
        let id = || IdBytes(node.id.uuid());
        let ended = self
            .connection
            .prepare_cached("delete from nodes where id = ?1 and beats = ?2")?
            .execute(params![id(), node.beats])?;
        if ended == 0 {
            return Ok(false);
        }
        let channels = self
            .connection
            .prepare_cached(
                "select id from channels indexed by channels_connected where connected = 1 and node = ?1 order by no",
            )?
            .query_map([id()], |row| row.get(0).map(rows::channel_id))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for channel in channels {
            self.disconnect(channel, reason, LogStamp { actor: WriteContext::SYSTEM, at })?;
        }
        self.connection.prepare_cached("update deliveries set node = null where node = ?1")?.execute([id()])?;
        self.connection.prepare_cached("delete from node_leases where node = ?1")?.execute([id()])?;
        self.woken.extend([WakeHint::Deliveries, WakeHint::Peers]);
        Ok(true)
    }

    fn lease_deliveries(&self, node: NodeId, attempts: &[(DeliveryId, i64)]) -> Result<Vec<DeliveryId>> {
        self.living_node(Some(node))?;
        let mut leased = Vec::new();
        for (id, number) in attempts {
            let taken = self
                .connection
                .prepare_cached(
                    "update deliveries set node = ?3
                     where id = ?1 and state = 'pending' and attempts = ?2 and (node is null or node = ?3)",
                )?
                .execute(params![IdBytes(id.uuid()), number - 1, IdBytes(node.uuid())])?;
            if taken == 1 {
                leased.push(*id);
            }
        }
        Ok(leased)
    }

    fn lease(&self, node: NodeId, name: &str) -> Result<bool> {
        self.living_node(Some(node))?;
        self.connection
            .prepare_cached("insert into node_leases (name, node) values (?1, ?2) on conflict (name) do nothing")?
            .execute(params![name, IdBytes(node.uuid())])?;
        let holder: [u8; 16] = self
            .connection
            .prepare_cached("select node from node_leases where name = ?1")?
            .query_row([name], |row| row.get(0))?;
        Ok(rows::node_id(holder) == node)
    }

    fn release_lease(&mut self, node: NodeId, name: &str) -> Result<()> {
        let freed = self
            .connection
            .prepare_cached("delete from node_leases where name = ?1 and node = ?2")?
            .execute(params![name, IdBytes(node.uuid())])?;
        if freed > 0 {
            self.woken.push(WakeHint::Peers);
        }
        Ok(())
    }
}

// === impl SqlStore ===

#[async_trait]
impl NodeStore for SqlStore {
    async fn start_node(&self, node: NodeId) -> Result<()> {
        self.write(move |transaction| transaction.start_node(node)).await
    }

    async fn beat_node(&self, node: NodeId) -> Result<Vec<NodeRecord>> {
        self.write(move |transaction| transaction.beat_node(node)).await
    }

    async fn end_node(&self, node: NodeRecord, reason: &str, at: Timestamp) -> Result<bool> {
        let reason = reason.to_owned();
        self.write(move |transaction| transaction.end_node(node, &reason, at)).await
    }

    async fn lease_deliveries(&self, node: NodeId, attempts: Vec<(DeliveryId, i64)>) -> Result<Vec<DeliveryId>> {
        self.write(move |transaction| transaction.lease_deliveries(node, &attempts)).await
    }

    async fn lease(&self, node: NodeId, name: &str) -> Result<bool> {
        let name = name.to_owned();
        self.write(move |transaction| transaction.lease(node, &name)).await
    }

    async fn release_lease(&self, node: NodeId, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.write(move |transaction| transaction.release_lease(node, &name)).await
    }
}
