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
    way: Mutex<Option<Way>>,
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
        Self(Arc::new(Inner { path, env, way: Mutex::new(None) }))
    }

    /// True when the device was connected otherwise before.
    pub(crate) fn set(&self, way: Way) -> bool {
        {
            let mut now = self.0.way.lock().unwrap_or_else(PoisonError::into_inner);
            let is_same = match (&*now, &way) {
                (Some(Way::Channel(one)), Way::Channel(other)) => one == other,
                (Some(Way::Pull(_)), Way::Pull(_)) => true,
                _ => false,
            };
            if is_same {
                return false;
            }
            *now = Some(way.clone());
        }
        let (name, channel_id, reason) = match way {
            Way::Channel(channel) => ("channel", Some(channel), None),
            Way::Pull(reason) => ("pull", None, Some(reason)),
        };
        let connection = Connection { way: name.to_owned(), channel_id, since: self.0.env.now(), reason };
        let text = serde_json::to_vec(&connection).expect("a connection serialises to JSON");
        // A few bytes that nobody depends on: a reader that comes in between sees nothing.
        if let Err(error) = std::fs::write(&self.0.path, text) {
            tracing::debug!(%error, "the state of the channel cannot be noted");
        }
        true
    }
}

fn path(home: &Path, agent: AgentId) -> PathBuf {
    Ledger::path(home, agent).with_file_name("channel.json")
}
