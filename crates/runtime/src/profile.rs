//! `runtime.json`: the agents that this device is paired with, and how to reach their hubs and adapters.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use attache_os::{
    look_up,
    path_error::{lock, private_folder, replace},
};
use attache_protocol::{
    AgentId, KeyPin, RuntimeId, Secret, Timestamp,
    env::Env,
    wire::{host_session::KeptSessions, runtime::WalledRuns},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap as _};
use serde_json::{Map, Value};

use crate::Error;

/// The profile file of one home folder.
#[derive(Debug, Clone)]
pub struct Profiles {
    path: PathBuf,
    env: Env,
}

/// The content of the file. Unknown members are kept.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ProfileSet {
    #[serde(default)]
    pub active_profile: Option<String>,
    #[serde(default)]
    pub profiles: BTreeMap<String, Profile>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// One pairing. It isn't serialisable, so that a token can't end up in `--json` output.
#[derive(Debug, Clone, Deserialize)]
pub struct Profile {
    pub agent_id: AgentId,
    /// The agent's name when it was paired, for people.
    #[serde(default)]
    pub agent_name: Option<String>,
    pub runtime_id: RuntimeId,
    pub runtime_token: Secret<String>,
    pub api_base: String,
    /// The hub must have this key. Absent if a certificate authority vouches for the hub, or without TLS.
    #[serde(default)]
    pub pin: Option<KeyPin>,
    #[serde(default)]
    pub local_agent_endpoint: Option<String>,
    /// The protocol of the adapter: `http` today.
    #[serde(default = "http")]
    pub adapter: String,
    #[serde(default)]
    pub adapter_secret: Option<Secret<String>>,
    #[serde(default)]
    pub device_name: Option<String>,
    #[serde(default)]
    pub last_heartbeat_at: Option<Timestamp>,
    #[serde(default = "two_minutes")]
    pub heartbeat_timeout_ms: u64,
    #[serde(default)]
    pub local_executor: LocalExecutor,
    /// Whose runs are inside this machine's walls without asking for limits.
    #[serde(default)]
    pub sandbox: WalledRuns,
    /// Unknown members, kept.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The program that executes tasks, as the user described it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalExecutor {
    /// The kind of host, for example `claude_cli`. A label for people.
    #[serde(rename = "type", default)]
    pub kind: Option<String>,
    #[serde(rename = "ref", default)]
    pub reference: Option<String>,
    #[serde(default)]
    pub workspace: Option<String>,
    #[serde(default)]
    pub cwd: Option<String>,
    /// Where the tasks worked at the last start, if it isn't set: the folder that the runtime was started in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_in: Option<String>,
    #[serde(default)]
    pub instruction_file: Option<String>,
    /// Whose conversations continue the host's session. Default: those of the agent's owner.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "kept_sessions")]
    pub keep_sessions: Option<KeptSessions>,
    /// Unknown members, kept.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The only way to write a profile: with its secrets, to a file with mode 0600.
struct WithSecrets<'a, T>(&'a T);

/// Earlier versions wrote `true` for everyone's conversations.
fn kept_sessions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<KeptSessions>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum StoredKeptSessions {
        Before(bool),
        Kept(Option<KeptSessions>),
    }
    Ok(match StoredKeptSessions::deserialize(deserializer)? {
        StoredKeptSessions::Before(true) => Some(KeptSessions::All),
        StoredKeptSessions::Before(false) => None,
        StoredKeptSessions::Kept(kept) => kept,
    })
}

fn http() -> String {
    "http".to_owned()
}

const fn two_minutes() -> u64 {
    120_000
}

// === impl Profiles ===

impl Profiles {
    /// The profiles below a home folder (`$A2A_HOME`).
    pub fn at(home: &Path, env: Env) -> Self {
        Self { path: home.join("runtime.json"), env }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folders in which the agents of this device work, without links.
    pub fn folders(&self) -> Result<Vec<PathBuf>, Error> {
        let set = self.load()?;
        let folders = set.profiles.values().filter_map(Profile::known_folder).map(Path::new);
        let real = folders.map(|folder| look_up::real_path(folder).map_err(Error::io(folder)));
        Ok(real.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// Reads the file. A missing file is an empty set. A file that others can read is refused.
    pub fn load(&self) -> Result<ProfileSet, Error> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ProfileSet::default()),
            Err(error) => return Err(Error::io(&self.path)(error)),
        };
        let mode = fs::metadata(&self.path).map_err(Error::io(&self.path))?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(Error::LooseProfile { path: self.path.clone(), mode });
        }
        serde_json::from_str(&text).map_err(|error| Error::BadProfile {
            path: self.path.clone(),
            // Only the position: the parser's message could contain a token.
            reason: format!("syntax error at line {}, column {}", error.line(), error.column()),
        })
    }

    /// Changes the file atomically. Other processes wait for the lock.
    pub fn update<R>(&self, change: impl FnOnce(&mut ProfileSet) -> R) -> Result<R, Error> {
        let home = self.path.parent().unwrap_or_else(|| Path::new("."));
        private_folder(home)?;
        let lock = lock(&home.join(".runtime.json.lock"))?;
        let mut set = self.load()?;
        let result = change(&mut set);
        let mut text = serde_json::to_string_pretty(&WithSecrets(&set)).expect("profiles serialise to JSON");
        text.push('\n');
        replace(&self.path, text.as_bytes(), &self.env)?;
        drop(lock);
        Ok(result)
    }
}

// === impl ProfileSet ===

impl ProfileSet {
    /// The profile with this key (`agt_…/rtm_…`), the only one of the agent or device with this name or id, or the active
    /// one.
    pub fn select(&self, key: Option<&str>) -> Result<&Profile, Error> {
        match key.or(self.active_profile.as_deref()) {
            Some(key) => self
                .profiles
                .get(key)
                .or_else(|| self.only_one_called(key))
                .ok_or_else(|| Error::UnknownProfile(key.to_owned())),
            None if self.profiles.len() == 1 => self.profiles.values().next().ok_or(Error::NoProfile),
            None => Err(Error::NoProfile),
        }
    }

    fn only_one_called(&self, name: &str) -> Option<&Profile> {
        let is_called = |profile: &&Profile| {
            profile.agent_name.as_deref() == Some(name)
                || profile.agent_id.to_string() == name
                || profile.runtime_id.to_string() == name
        };
        let mut found = self.profiles.values().filter(is_called);
        found.next().filter(|_| found.next().is_none())
    }

    /// The profile of an earlier pairing with the same agent at the same hub. Its token is invalid after a new pairing.
    pub fn of_agent(&self, agent: AgentId, api_base: &str) -> Option<&Profile> {
        self.profiles.values().find(|profile| profile.agent_id == agent && profile.api_base == api_base)
    }

    /// Adds a pairing and makes it active. Removes earlier pairings with the same agent, whose tokens are invalid.
    pub fn insert(&mut self, profile: Profile) {
        self.profiles.retain(|_, earlier| earlier.agent_id != profile.agent_id || earlier.api_base != profile.api_base);
        let key = profile.key();
        self.active_profile = Some(key.clone());
        self.profiles.insert(key, profile);
    }

    pub fn remove(&mut self, key: &str) -> Option<Profile> {
        let removed = self.profiles.remove(key);
        if removed.is_some() && self.active_profile.as_deref() == Some(key) {
            self.active_profile = self.profiles.keys().next().cloned();
        }
        removed
    }
}

// === impl Profile ===

impl Profile {
    pub fn new(agent_id: AgentId, runtime_id: RuntimeId, runtime_token: Secret<String>, api_base: String) -> Self {
        Self {
            agent_id,
            runtime_id,
            runtime_token,
            api_base,
            agent_name: None,
            pin: None,
            local_agent_endpoint: None,
            adapter: http(),
            adapter_secret: None,
            device_name: None,
            last_heartbeat_at: None,
            heartbeat_timeout_ms: two_minutes(),
            local_executor: LocalExecutor::default(),
            sandbox: WalledRuns::default(),
            other: Map::new(),
        }
    }

    pub fn key(&self) -> String {
        format!("{}/{}", self.agent_id, self.runtime_id)
    }

    /// The working folder of tasks: `cwd`, or the workspace.
    pub fn cwd(&self) -> Option<&str> {
        self.local_executor.cwd.as_deref().or(self.local_executor.workspace.as_deref())
    }

    /// Where its tasks work, as far as that is known without starting it.
    pub fn known_folder(&self) -> Option<&str> {
        self.cwd().or(self.local_executor.started_in.as_deref())
    }
}

// === impl WithSecrets ===

impl Serialize for WithSecrets<'_, ProfileSet> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ProfileSet { active_profile, profiles, other } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("active_profile", active_profile)?;
        let profiles: BTreeMap<_, _> = profiles.iter().map(|(key, profile)| (key, WithSecrets(profile))).collect();
        map.serialize_entry("profiles", &profiles)?;
        for (name, value) in other {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Serialize for WithSecrets<'_, Profile> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let profile = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("agent_id", &profile.agent_id)?;
        if let Some(name) = &profile.agent_name {
            map.serialize_entry("agent_name", name)?;
        }
        map.serialize_entry("runtime_id", &profile.runtime_id)?;
        map.serialize_entry("runtime_token", profile.runtime_token.expose())?;
        map.serialize_entry("api_base", &profile.api_base)?;
        if let Some(pin) = &profile.pin {
            map.serialize_entry("pin", pin)?;
        }
        map.serialize_entry("local_agent_endpoint", &profile.local_agent_endpoint)?;
        map.serialize_entry("adapter", &profile.adapter)?;
        if let Some(secret) = &profile.adapter_secret {
            map.serialize_entry("adapter_secret", secret.expose())?;
        }
        map.serialize_entry("device_name", &profile.device_name)?;
        map.serialize_entry("last_heartbeat_at", &profile.last_heartbeat_at)?;
        map.serialize_entry("heartbeat_timeout_ms", &profile.heartbeat_timeout_ms)?;
        map.serialize_entry("local_executor", &profile.local_executor)?;
        if profile.sandbox != WalledRuns::default() {
            map.serialize_entry("sandbox", &profile.sandbox)?;
        }
        for (name, value) in &profile.other {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.key(), self.api_base)
    }
}
