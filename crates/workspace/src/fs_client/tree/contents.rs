//! Contents of small files, within a budget: those that came last.

use std::{sync::Arc, time::Instant};

use super::{FsAttributes, Tree};

// === impl Tree ===

impl Tree {
    /// The content, if it is complete and current.
    pub(in super::super) fn content(&self, ino: u64, now: Instant) -> Option<Arc<[u8]>> {
        let node = self.nodes.get(&ino)?;
        node.content.clone().filter(|_| !node.is_pending() && (node.validity.holds(now) || node.names.is_empty()))
    }

    pub(in super::super) fn drop_content(&mut self, ino: u64) {
        if let Some(content) = self.nodes.get_mut(&ino).and_then(|node| node.content.take()) {
            self.content_bytes -= content.len();
            self.contents.retain(|other| *other != ino);
        }
    }

    /// Keeps the content of a file, if it belongs to the attributes that are known. `false` if it doesn't.
    pub(in super::super) fn keep_content(&mut self, ino: u64, attributes: &FsAttributes, data: Arc<[u8]>) -> bool {
        let Some(node) = self.nodes.get(&ino) else { return false };
        if data.len() as u64 != attributes.size || !node.attributes.is_same_content(attributes) || node.is_pending() {
            return false;
        }
        if data.len() > self.content_budget {
            return true;
        }
        self.drop_content(ino);
        while self.content_bytes + data.len() > self.content_budget {
            let Some(oldest) = self.contents.front().copied() else { break };
            self.drop_content(oldest);
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            self.content_bytes += data.len();
            self.contents.push_back(ino);
            node.content = Some(data);
        }
        true
    }

    /// Keeps pushed content.
    pub(in super::super) fn keep_pushed(&mut self, path: &[u8], attributes: &FsAttributes, data: Arc<[u8]>) {
        if let Some(ino) = self.at(path).filter(|ino| *ino == self.number(attributes.inode)) {
            let _ = self.keep_content(ino, attributes, data);
        }
    }
}
