//! How this device is connected, kept in a small file for whoever asks for its status.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use attache_protocol::{AgentId, ChannelId, Timestamp, env::Env};
use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;

/// What the file says. It is true as long as the runtime lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
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
pub(crate) enum Way {
    Channel(ChannelId),
    Pull(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Presence(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    env: Env,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    /// And since when.
    way: Option<(Way, Timestamp)>,
    clock_ahead_minutes: Option<i64>,
}

// === impl Connection ===

impl Connection {
    /// How the runtime of this agent is connected, as it said last.
    pub fn read(home: &Path, agent: AgentId) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path(home, agent)).ok()?).ok()
    }
}

// === impl Presence ===

impl Presence {
    pub(crate) fn new(home: &Path, agent: AgentId, env: Env) -> Self {
        let path = path(home, agent);
        // What an earlier process wrote is not true any more.
        let _ = std::fs::remove_file(&path);
        Self(Arc::new(Inner { path, env, now: Mutex::default() }))
    }

    /// True when the device was connected otherwise before.
    pub(crate) fn set(&self, way: Way) -> bool {
        let mut now = self.now();
        let is_same = match (&now.way, &way) {
            (Some((Way::Channel(one), _)), Way::Channel(other)) => one == other,
            (Some((Way::Pull(_), _)), Way::Pull(_)) => true,
            _ => false,
        };
        if !is_same {
            now.way = Some((way, self.0.env.now()));
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

    fn write(&self, now: &Now) {
        let Some((way, since)) = now.way.clone() else { return };
        let (name, channel_id, reason) = match way {
            Way::Channel(channel) => ("channel", Some(channel), None),
            Way::Pull(reason) => ("pull", None, Some(reason)),
        };
        let clock_ahead_minutes = now.clock_ahead_minutes;
        let connection = Connection { way: name.to_owned(), channel_id, since, reason, clock_ahead_minutes };
        let text = serde_json::to_vec(&connection).expect("a connection serialises to JSON");
        // A few bytes that nobody depends on: a reader that comes in between sees nothing.
        if let Err(error) = std::fs::write(&self.0.path, text) {
            tracing::debug!(%error, "the state of the channel cannot be noted");
        }
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn path(home: &Path, agent: AgentId) -> PathBuf {
    Ledger::path(home, agent).with_file_name("channel.json")
}
