//! How this device is connected, kept in a small file for whoever asks for its status.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use attache_protocol::{AgentId, ChannelId, Timestamp, env::Env};
use serde::{Deserialize, Serialize};

use crate::ledger::ExecutionLedger;

/// What the file says. It is true as long as the runtime lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// `channel`, or `pull` while there is none.
    pub way: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_id: Option<ChannelId>,
    pub since: Timestamp,
    /// Why there is no channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// By how much this device's clock is ahead of the hub's, or behind it where the number is negative. Nothing while
    /// it is less than a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_minutes: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionMode {
    Channel(ChannelId),
    Pull(String),
}

#[derive(Debug, Clone)]
pub(crate) struct ConnectionStatusFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    env: Env,
    now: Mutex<ConnectionStatusState>,
}

#[derive(Debug, Default)]
struct ConnectionStatusState {
    /// And since when.
    mode: Option<(ConnectionMode, Timestamp)>,
    clock_ahead_minutes: Option<i64>,
}

// === impl ConnectionStatus ===

impl ConnectionStatus {
    /// How the runtime of this agent is connected, as it said last.
    pub fn read(home: &Path, agent: AgentId) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path(home, agent)).ok()?).ok()
    }
}

// === impl ConnectionStatusFile ===

impl ConnectionStatusFile {
    pub(crate) fn new(home: &Path, agent: AgentId, env: Env) -> Self {
        let path = path(home, agent);
        // What an earlier process wrote is not true any more.
        let _ = std::fs::remove_file(&path);
        Self(Arc::new(Inner { path, env, now: Mutex::default() }))
    }

    /// True when the device was connected otherwise before.
    pub(crate) fn set(&self, way: ConnectionMode) -> bool {
        let mut now = self.now();
        let is_same = match (&now.mode, &way) {
            (Some((ConnectionMode::Channel(one), _)), ConnectionMode::Channel(other)) => one == other,
            (Some((ConnectionMode::Pull(_), _)), ConnectionMode::Pull(_)) => true,
            _ => false,
        };
        if !is_same {
            now.mode = Some((way, self.0.env.now()));
            self.write(&now);
        }
        !is_same
    }

    /// True when the clock was right and is not, or the other way round.
    pub(crate) fn set_clock(&self, ahead_minutes: Option<i64>) -> bool {
        let mut now = self.now();
        let before = std::mem::replace(&mut now.clock_ahead_minutes, ahead_minutes);
        if before != ahead_minutes {
            self.write(&now);
        }
        before.is_some() != ahead_minutes.is_some()
    }

    fn write(&self, now: &ConnectionStatusState) {
        let Some((way, since)) = now.mode.clone() else { return };
        let (name, channel_id, reason) = match way {
            ConnectionMode::Channel(channel) => ("channel", Some(channel), None),
            ConnectionMode::Pull(reason) => ("pull", None, Some(reason)),
        };
        let clock_ahead_minutes = now.clock_ahead_minutes;
        let connection = ConnectionStatus { way: name.to_owned(), channel_id, since, reason, clock_ahead_minutes };
        let text = serde_json::to_vec(&connection).expect("a connection serialises to JSON");
        // A few bytes that nobody depends on: a reader that comes in between sees nothing.
        if let Err(error) = std::fs::write(&self.0.path, text) {
            tracing::debug!(%error, "the state of the channel cannot be noted");
        }
    }

    fn now(&self) -> std::sync::MutexGuard<'_, ConnectionStatusState> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn path(home: &Path, agent: AgentId) -> PathBuf {
    ExecutionLedger::path(home, agent).with_file_name("channel.json")
}
