//! What the hub removes by age: one class of things, one setting each.

use std::time::Duration;

use crate::Options;

/// A class of things that are kept for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepClass {
    /// Runs that have ended, with their results, approvals, inputs, webhooks and what they produced.
    Runs,
    /// The events of runs that have ended: output, progress, tool calls.
    Events,
    /// Messages, and conversations that nothing happens in.
    Conversations,
    /// Artifacts that no run produced.
    Artifacts,
    /// Keys, sessions and standing decisions, after their end.
    Credentials,
    /// Rows of the log.
    Log,
    /// Channels that are disconnected.
    Channels,
    /// Streams over HTTP that have ended.
    Streams,
}

// === impl KeepClass ===

impl KeepClass {
    pub const ALL: [Self; 8] = [
        Self::Runs,
        Self::Events,
        Self::Conversations,
        Self::Artifacts,
        Self::Credentials,
        Self::Log,
        Self::Channels,
        Self::Streams,
    ];

    /// As people name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Events => "events",
            Self::Conversations => "conversations",
            Self::Artifacts => "artifacts",
            Self::Credentials => "credentials",
            Self::Log => "log",
            Self::Channels => "channels",
            Self::Streams => "streams",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// For how long these are kept.
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
