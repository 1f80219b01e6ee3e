//! Compares what the writer remembers with the tables, for the conformance suite.

use std::fmt::Debug;

use attache_protocol::rules::retention;

use super::WriterCache;
use crate::sql::connection::Connection;

// === impl WriterCache ===

impl WriterCache {
    /// What is remembered otherwise than it would be after a restart.
    pub(in crate::sql) fn difference(&self, connection: &Connection) -> crate::Result<Option<String>> {
        let mut fresh = Self::rebuild(connection)?;
        let ledger = self.ledger.difference(&mut fresh.ledger, connection)?;
        Ok(ledger.or_else(|| {
            let (ours, theirs) = (self.contents(), fresh.contents());
            let differs = ours.into_iter().zip(theirs).find(|(ours, theirs)| ours != theirs);
            differs.map(|(ours, theirs)| format!("remembered: {ours}\nin the tables: {theirs}"))
        }))
    }

    /// In a fixed order, and without what makes no difference.
    fn contents(&self) -> Vec<String> {
        let keys = self.key_ages.iter().filter(|(created, row, key)| {
            self.keys.get(key) == Some(row) && !retention::is_key_over(*created, self.clock)
        });
        let mut damaged = self.damaged.clone();
        damaged.sort_unstable();
        vec![
            sorted("log heads", &self.heads),
            format!("deadlines {:?}", self.deadlines),
            format!("running {:?}", self.running),
            sorted("held", &self.held),
            sorted("claims of runtimes", &self.by_runtime),
            format!("running floor {}", self.running_floor),
            sorted("live", self.live.iter().filter(|(_, counts)| counts.pending + counts.running > 0)),
            sorted("counted", self.counted.iter().flatten()),
            sorted("keys", keys),
            sorted("subscribed", &self.subscribed),
            format!("damaged {damaged:?}"),
            format!("clock {:?}", self.clock),
        ]
    }
}

/// The items as text, in the order of their texts.
pub(in crate::sql) fn sorted(name: &str, items: impl IntoIterator<Item: Debug>) -> String {
    let mut texts: Vec<String> = items.into_iter().map(|item| format!("{item:?}")).collect();
    texts.sort_unstable();
    format!("{name} {texts:#?}")
}
