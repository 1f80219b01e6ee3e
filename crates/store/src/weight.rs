//! Size limits of one answer of the store, and of the log of one run.
//!
//! A page ends after the requested number of items, or before the one that would exceed [`MAX_PAGE_BYTES`]. It has at
//! least one item, so that paging always makes progress.

use attache_protocol::{Json, wire::event::Event};

use crate::record::{
    AccountRecord, ArtifactRecord, ConversationRecord, KeyRecord, MessageRecord, RunRecord, RuntimeRecord,
    channel::ChannelRecord,
    delegation::DelegationRecord,
    delivery::DeliveryRecord,
    task::TaskItem,
    user::UserRecord,
    worker_request::{GrantRecord, NewInput, PermissionRecord, WorkerRequestKind},
};

/// Maximum total size of a page's items, unless the first one alone is larger.
pub const MAX_PAGE_BYTES: usize = 1 << 20;
/// Maximum total size of one run's events. A worker that reports more is refused. The final event is always kept.
pub const MAX_RUN_LOG_BYTES: usize = 64 << 20;
/// How much an outline includes of the newest events, of artifacts before those, and of lifecycle events.
pub(crate) const MAX_OUTLINE_BYTES: usize = 1 << 20;

/// Something that takes space on a page.
pub trait PageWeight {
    /// Its approximate size in bytes, without what every item has.
    fn weight(&self) -> usize;
}

/// Sums up sizes until a limit.
#[derive(Debug)]
pub(crate) struct PageWeightLimit {
    limit: usize,
    total: usize,
    is_empty: bool,
}

/// Whether the log of a run with events of this size has room for this much more. A report without events always fits.
pub(crate) const fn has_room(log_bytes: usize, more: usize) -> bool {
    more == 0 || log_bytes.saturating_add(more) <= MAX_RUN_LOG_BYTES
}

/// How many of the items fit on a page.
pub(crate) fn fitting<'a, T: PageWeight + 'a>(items: impl IntoIterator<Item = &'a T>) -> usize {
    let mut scales = PageWeightLimit::new(MAX_PAGE_BYTES);
    items.into_iter().take_while(|item| scales.takes(item.weight())).count()
}

// === impl PageWeightLimit ===

impl PageWeightLimit {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, total: 0, is_empty: true }
    }

    /// Whether there is room for this much more. The first item always fits.
    pub(crate) const fn takes(&mut self, weight: usize) -> bool {
        self.total = self.total.saturating_add(weight);
        let fits = self.is_empty || self.total <= self.limit;
        self.is_empty = false;
        fits
    }
}

// === impl PageWeight ===

impl PageWeight for Event {
    fn weight(&self) -> usize {
        self.data.get().len()
    }
}

impl PageWeight for attache_protocol::log::LogRow {
    fn weight(&self) -> usize {
        self.data.get().len()
    }
}

impl PageWeight for RunRecord {
    fn weight(&self) -> usize {
        let parts = [&self.spec.context_fragments, &self.spec.allowed_tools, &self.result, &self.usage];
        self.spec.input.get().len() + parts.into_iter().flatten().map(|part| part.get().len()).sum::<usize>()
    }
}

impl PageWeight for TaskItem {
    fn weight(&self) -> usize {
        self.run.weight()
    }
}

impl PageWeight for MessageRecord {
    fn weight(&self) -> usize {
        self.text.len() + length(self.metadata.as_ref())
    }
}

impl PageWeight for PermissionRecord {
    fn weight(&self) -> usize {
        let texts = [&self.reason, &self.risk, &self.diff];
        let paths: usize = self.paths.iter().map(String::len).sum();
        self.input.get().len() + paths + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

impl PageWeight for WorkerRequestKind {
    fn weight(&self) -> usize {
        match self {
            Self::Input { prompt, parts } | Self::Authorization { prompt, parts } => {
                prompt.len() + length(parts.as_ref())
            }
            Self::Tool { tool, arguments } => tool.len() + arguments.get().len(),
        }
    }
}

impl PageWeight for NewInput {
    fn weight(&self) -> usize {
        self.parts.get().len() + length(self.message.as_ref())
    }
}

impl PageWeight for AccountRecord {
    fn weight(&self) -> usize {
        let texts = [&self.description, &self.instructions];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        texts + self.skills.get().len() + length(self.a2a.as_ref()) + length(self.approvals.as_ref())
    }
}

impl PageWeight for RuntimeRecord {
    fn weight(&self) -> usize {
        self.labels.get().len() + length(self.extensions.as_ref())
    }
}

impl PageWeight for ConversationRecord {
    fn weight(&self) -> usize {
        length(self.metadata.as_ref())
    }
}

impl PageWeight for ChannelRecord {
    fn weight(&self) -> usize {
        self.tools.get().len() + self.capabilities.get().len() + length(self.device_info.as_ref())
    }
}

impl PageWeight for DelegationRecord {
    fn weight(&self) -> usize {
        self.shown.get().len()
    }
}

/// For types that are always small.
macro_rules! light {
    ($($item:ty),*) => {$(
        impl PageWeight for $item {
            fn weight(&self) -> usize {
                0
            }
        }
    )*};
}

light!(KeyRecord, ArtifactRecord, UserRecord, DeliveryRecord, GrantRecord);

fn length(json: Option<&Json>) -> usize {
    json.map_or(0, |json| json.get().len())
}

/// The line that replaces everything a worker reports after the log is full.
pub(crate) fn full() -> Json {
    let message = format!(
        "The log of this run is full at {} MiB. What comes from here on is not kept, except how the run ends.",
        MAX_RUN_LOG_BYTES >> 20
    );
    Json::of(&std::collections::BTreeMap::from([("level", "warning"), ("message", message.as_str())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PageWeight for usize {
        fn weight(&self) -> usize {
            *self
        }
    }

    #[test]
    fn a_page_has_the_items_that_fit_and_at_least_one() {
        let half = MAX_PAGE_BYTES / 2;
        assert_eq!(fitting(&[half, half, 1]), 2);
        assert_eq!(fitting(&[MAX_PAGE_BYTES * 9, 0]), 1);
        assert_eq!(fitting(&[0, MAX_PAGE_BYTES + 1]), 1);
        assert_eq!(fitting::<usize>(&[]), 0);
    }
}
