//! Push notification configs of runs.

use attache_protocol::Timestamp;

/// Who is notified of a run's changes, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPushConfig {
    /// The subscriber's id for it, or ours. Unique in its run.
    pub id: String,
    pub url: String,
    /// The subscriber's token and credentials, sealed by the hub.
    pub sealed: Option<Vec<u8>>,
    pub version: PushVersion,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushConfigRecord {
    pub id: String,
    pub url: String,
    pub sealed: Option<Vec<u8>>,
    pub version: PushVersion,
    pub created_at: Timestamp,
}

/// The subscriber's version of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushVersion {
    V10,
    V03,
}

// === impl NewPushConfig ===

impl NewPushConfig {
    pub(crate) fn into_record(self, created_at: Timestamp) -> PushConfigRecord {
        let Self { id, url, sealed, version } = self;
        PushConfigRecord { id, url, sealed, version, created_at }
    }
}
