//! How this device is connected, kept in a small file for `attache runtime status`.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use attache_protocol::{AgentId, ChannelId, Timestamp, env::Env};
use serde::{Deserialize, Serialize};

use crate::ledger::ExecutionLedger;

/// The content of the file, valid while the runtime is running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// `channel`, or `pull` without a channel.
    pub way: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_id: Option<ChannelId>,
    pub since: Timestamp,
    /// Why there is no channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How far this device's clock is ahead of the hub's. Negative: behind. Absent below one minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_minutes: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionMode {
    Channel(ChannelId),
    Pull(String),
}

#[derive(Debug, Clone)]
pub(crate) struct ConnectionStatusFile(Arc<SharedConnectionStatus>);

#[derive(Debug)]
struct SharedConnectionStatus {
    path: PathBuf,
    env: Env,
    now: Mutex<ConnectionStatusState>,
}

#[derive(Debug, Default)]
struct ConnectionStatusState {
    /// With the time since when.
    mode: Option<(ConnectionMode, Timestamp)>,
    clock_ahead_minutes: Option<i64>,
}

// === impl ConnectionStatus ===

impl ConnectionStatus {
    /// The last reported connection of this agent's runtime.
    pub fn read(home: &Path, agent: AgentId) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path(home, agent)).ok()?).ok()
    }
}

// === impl ConnectionStatusFile ===

impl ConnectionStatusFile {
    pub(crate) fn new(home: &Path, agent: AgentId, env: Env) -> Self {
        let path = path(home, agent);
        // The file of an earlier process is out of date.
        let _ = std::fs::remove_file(&path);
        Self(Arc::new(SharedConnectionStatus { path, env, now: Mutex::default() }))
    }

    /// Returns whether the connection changed.
    pub(crate) fn set(&self, mode: ConnectionMode) -> bool {
        let mut now = self.now();
        let is_same = match (&now.mode, &mode) {
            (Some((ConnectionMode::Channel(one), _)), ConnectionMode::Channel(other)) => one == other,
            (Some((ConnectionMode::Pull(_), _)), ConnectionMode::Pull(_)) => true,
            _ => false,
        };
        if !is_same {
            now.mode = Some((mode, self.0.env.now()));
            self.write(&now);
        }
        !is_same
    }

    /// Returns whether the clock became wrong, or right again.
    pub(crate) fn set_clock(&self, ahead_minutes: Option<i64>) -> bool {
        let mut now = self.now();
        let before = std::mem::replace(&mut now.clock_ahead_minutes, ahead_minutes);
        if before != ahead_minutes {
            self.write(&now);
        }
        before.is_some() != ahead_minutes.is_some()
    }

    fn write(&self, now: &ConnectionStatusState) {
        let Some((mode, since)) = now.mode.clone() else { return };
        let (name, channel_id, reason) = match mode {
            ConnectionMode::Channel(channel) => ("channel", Some(channel), None),
            ConnectionMode::Pull(reason) => ("pull", None, Some(reason)),
        };
        let clock_ahead_minutes = now.clock_ahead_minutes;
        let connection = ConnectionStatus { way: name.to_owned(), channel_id, since, reason, clock_ahead_minutes };
        let text = serde_json::to_vec(&connection).expect("a connection serialises to JSON");
        // Not atomic: a reader in between sees an incomplete file and ignores it.
        if let Err(error) = std::fs::write(&self.0.path, text) {
            tracing::debug!(%error, "failed to write the connection status");
        }
    }

    fn now(&self) -> std::sync::MutexGuard<'_, ConnectionStatusState> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn path(home: &Path, agent: AgentId) -> PathBuf {
    ExecutionLedger::path(home, agent).with_file_name("channel.json")
}
