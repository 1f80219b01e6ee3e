//! Retention by age: one setting per class of records.

use attache_protocol::text_enum;
use std::time::Duration;

use crate::Options;

text_enum! {
    /// A class of records with its own retention.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    plain pub enum KeepClass {
        /// Ended runs, with their results, approvals, inputs, webhooks and artifacts.
        Runs = "runs",
        /// The events of ended runs: output, progress, tool calls.
        Events = "events",
        /// Messages, and inactive conversations.
        Conversations = "conversations",
        /// Artifacts that no run produced.
        Artifacts = "artifacts",
        /// Ended keys, sessions and standing grants.
        Credentials = "credentials",
        /// Log rows.
        Log = "log",
        /// Disconnected channels.
        Channels = "channels",
        /// Ended HTTP streams.
        Streams = "streams",
    }
}

// === impl KeepClass ===

impl KeepClass {
    /// The setting for this class.
    pub const fn setting(self, options: &mut Options) -> &mut Duration {
        match self {
            Self::Runs => &mut options.keep_runs,
            Self::Events => &mut options.keep_chunks,
            Self::Conversations => &mut options.keep_conversations,
            Self::Artifacts => &mut options.keep_artifacts,
            Self::Credentials => &mut options.keep_credentials,
            Self::Log => &mut options.keep_log,
            Self::Channels => &mut options.keep_channels,
            Self::Streams => &mut options.keep_streams,
        }
    }
}
