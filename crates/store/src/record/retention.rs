//! What is removed by age, and what a removal leaves to do.

use attache_protocol::Timestamp;

/// How many things go in one transaction, so that nobody who writes waits for long.
pub(crate) const ITEMS_PER_TRANSACTION: usize = 200;

/// Which things are old enough to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// When it happens.
    pub at: Timestamp,
    /// How many rows of each tenant's log, and how many things of each [`Class`], are removed by one call at most.
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

/// A kind of thing that is removed one by one, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Runs that ended before the line: the run with its result, events, permission requests, questions, inputs,
    /// deliveries, push configs, peer task and what it produced, and its own conversation unless other runs are part of
    /// that (then it stays, as one that was made explicitly). What it was the parent of has no parent afterwards. A run
    /// stays while its idempotency key is remembered, while it is the parent of a live run, and while a grant for more
    /// than the run itself, which one of its permission requests made, is in force.
    Runs,
    /// Messages that were added before the line.
    Messages,
    /// Conversations that were made before the line, explicitly, and that no run, and no message or artifact since the line,
    /// is part of; with their messages, artifacts and grants.
    Conversations,
    /// Artifacts that were added before the line, that no run which is still there produced or owns the workspace of, and
    /// whose workspace no live run works in.
    Artifacts,
    /// Keys and sessions that expired or were revoked before the line.
    Keys,
    /// Grants that ended or were revoked before the line.
    Grants,
}

/// What a removal left to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionResult {
    /// There is more to remove.
    pub more: bool,
    /// The content of the artifacts that were removed, sorted. Other artifacts may have the same.
    pub blobs: Vec<[u8; 32]>,
}

// === impl Class ===

impl Class {
    pub(crate) const ALL: [Self; 6] =
        [Self::Runs, Self::Messages, Self::Conversations, Self::Artifacts, Self::Keys, Self::Grants];

    /// As the log has it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Messages => "messages",
            Self::Conversations => "conversations",
            Self::Artifacts => "artifacts",
            Self::Keys => "keys",
            Self::Grants => "grants",
        }
    }
}

// === impl Retention ===

impl Retention {
    /// The line before which things of this class are old.
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
