//! Retention limits, and the result of a removal.

use attache_protocol::Timestamp;
use attache_protocol::text_enum;

/// How many items are removed per transaction, so that writers don't wait long.
pub(crate) const ITEMS_PER_TRANSACTION: usize = 200;

/// Which items are old enough to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionLimits {
    /// The current time.
    pub at: Timestamp,
    /// Maximum number of rows of each tenant's log, and of items of each [`Class`], removed per call.
    pub max_rows: usize,
    /// Chunks of runs that ended before this are removed. Of such a run's stream only the last event stays readable. The
    /// line only moves forward, and holds for runs that end later with an earlier time. Pairing codes and requests that
    /// expired before this are removed too.
    pub chunks_before: Timestamp,
    /// Log rows older than this are removed from the front, up to the first newer one; the chain keeps its hash there.
    /// Deliveries that are not pending and were made before this are removed too, and the push configs of runs that ended
    /// before this.
    pub log_before: Timestamp,
    /// Streams (channels over SSE that follow a run) that were disconnected before this, and …
    pub streams_before: Timestamp,
    /// … other channels that were disconnected before this are removed, with their frames and what they follow, unless a
    /// live run is claimed over them or followed by them. At most `max_rows` at a time, and never the newest channel. What
    /// the log says of them stays.
    pub channels_before: Timestamp,
    /// See [`Class::Runs`].
    pub runs_before: Timestamp,
    /// See [`Class::Messages`] and [`Class::Conversations`].
    pub conversations_before: Timestamp,
    /// See [`Class::Artifacts`].
    pub artifacts_before: Timestamp,
    /// See [`Class::Keys`] and [`Class::Grants`].
    pub credentials_before: Timestamp,
}

text_enum! {
    /// A kind of item that is removed one by one, in this order.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    plain pub enum Class {
        /// Runs that ended before the line: the run with its result, events, permission requests, questions, inputs,
        /// deliveries, push configs, peer task and what it produced, and its own conversation unless other runs are part of
        /// that (then it stays, as one that was made explicitly). What it was the parent of has no parent afterwards. A run
        /// stays while its idempotency key is remembered, while it is the parent of a live run, and while a grant for more
        /// than the run itself, which one of its permission requests made, is in force.
        Runs = "runs",
        /// Messages that were added before the line.
        Messages = "messages",
        /// Conversations that were made before the line, explicitly, and that no run, and no message or artifact since the line,
        /// is part of; with their messages, artifacts and grants.
        Conversations = "conversations",
        /// Artifacts that were added before the line, that no run which is still there produced or owns the workspace of, and
        /// whose workspace no live run works in.
        Artifacts = "artifacts",
        /// Keys and sessions that expired or were revoked before the line.
        Keys = "keys",
        /// Grants that ended or were revoked before the line.
        Grants = "grants",
    }
}

/// The result of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionResult {
    /// There is more to remove.
    pub more: bool,
    /// The content hashes of the removed artifacts, sorted. Other artifacts may share the content.
    pub blobs: Vec<[u8; 32]>,
}

// === impl RetentionLimits ===

impl RetentionLimits {
    /// Items of this class from before this time are old.
    pub(crate) const fn before(&self, class: Class) -> Timestamp {
        match class {
            Class::Runs => self.runs_before,
            Class::Messages | Class::Conversations => self.conversations_before,
            Class::Artifacts => self.artifacts_before,
            Class::Keys | Class::Grants => self.credentials_before,
        }
    }
}

// === impl RetentionResult ===

impl RetentionResult {
    pub(crate) fn sorted(mut self) -> Self {
        self.blobs.sort_unstable();
        self.blobs.dedup();
        self
    }
}
