//! The folder where everything of ours lives on this machine, and how private its parts are.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use attache_protocol::{KeyPin, Secret};

use crate::{CommandFailure, Config};

pub(crate) use attache_client::private_file::{
    create as create_private, folder as private_folder, write as write_private,
};

/// `$A2A_HOME`. It exists and is private.
#[derive(Debug, Clone)]
pub(crate) struct Home(PathBuf);

/// Where the hub of this machine was last started, as it wrote it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalHub {
    pub(crate) origin: String,
    pub(crate) key_file: PathBuf,
}

/// Held in the hub's folder for as long as it runs.
pub(crate) const HUB_LOCK: &str = "hub.lock";

/// Where a hub listens unless told.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:7800";

// === impl Home ===

impl Home {
    /// Makes the folder, or tightens it when it is looser than 0700.
    pub(crate) fn open(config: &Config) -> Result<Self, CommandFailure> {
        let path = config.home()?;
        private_folder(&path).map_err(|error| CommandFailure::file("use the folder", &path, &error))?;
        Ok(Self(path))
    }

    /// For reading only: nothing is made.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The hub's folder, unless `--data` says otherwise.
    pub(crate) fn hub(&self) -> PathBuf {
        self.0.join("hub")
    }

    pub(crate) fn profiles(&self) -> PathBuf {
        self.0.join("runtime.json")
    }

    /// A person's own rows of the table of hosts.
    pub(crate) fn presets(&self) -> PathBuf {
        self.0.join("presets.toml")
    }

    /// Where is noted which of a host's sessions belongs to which conversation.
    pub(crate) fn host_sessions(&self) -> PathBuf {
        self.0.join("host-sessions")
    }

    pub(crate) fn adapters(&self) -> PathBuf {
        self.0.join("adapters")
    }

    /// Where the secret of the adapter at an address is kept.
    pub(crate) fn adapter_secret(&self, address: SocketAddr) -> PathBuf {
        let host = match address {
            SocketAddr::V4(address) => address.ip().to_string(),
            // As in the URL that the profile will hold.
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        self.adapters().join(format!("{host}_{}", address.port()))
    }

    fn address_file(&self) -> PathBuf {
        self.hub().join("address")
    }

    /// The hub that was started last, or where one would be.
    pub(crate) fn local_hub(&self) -> LocalHub {
        self.recorded_hub().unwrap_or_else(|| LocalHub {
            origin: format!("http://{DEFAULT_LISTEN}"),
            key_file: self.hub().join("admin.key"),
        })
    }

    /// The hub that was started last, where it said that it listens.
    pub(crate) fn recorded_hub(&self) -> Option<LocalHub> {
        let text = fs::read_to_string(self.address_file()).ok()?;
        let mut lines = text.lines();
        let origin = lines.next()?.to_owned();
        let key_file = lines.next().map_or_else(|| self.hub().join("admin.key"), PathBuf::from);
        Some(LocalHub { origin, key_file })
    }

    /// Remembers where the hub of this machine is, so that other commands find it and its owner key. While another one
    /// runs that is remembered already, commands stay with that one: it is handed back, and nothing changes.
    pub(crate) fn remember_hub(&self, hub: &LocalHub) -> Result<Option<LocalHub>, CommandFailure> {
        if let Some(first) = self.recorded_hub().filter(|first| first.key_file != hub.key_file && first.is_running()) {
            return Ok(Some(first));
        }
        let (folder, file) = (self.hub(), self.address_file());
        private_folder(&folder).map_err(|error| CommandFailure::file("use the folder", &folder, &error))?;
        let text = format!("{}\n{}\n", hub.origin, hub.key_file.display());
        write_private(&file, text.as_bytes()).map_err(|error| CommandFailure::file("write", &file, &error))?;
        Ok(None)
    }

    /// Forgets it again, unless another hub has written there since.
    pub(crate) fn forget_hub(&self, hub: &LocalHub) {
        if self.local_hub() == *hub {
            let _ = fs::remove_file(self.address_file());
        }
    }
}

// === impl LocalHub ===

impl LocalHub {
    /// Whether an origin is this hub's: the same, or its port under one of the usual names of this machine.
    pub(crate) fn is_at(&self, origin: &str) -> bool {
        let parts = |origin: &str| -> Option<(String, String, u16)> {
            let (scheme, authority) = origin.split_once("://")?;
            let (host, port) = authority.rsplit_once(':')?;
            Some((scheme.to_owned(), host.to_owned(), port.parse().ok()?))
        };
        let usual = |host: &str| matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        self.origin == origin
            || match (parts(&self.origin), parts(origin)) {
                (Some((own_scheme, own, own_port)), Some((scheme, host, port))) => {
                    own_scheme == scheme && own_port == port && usual(&own) && usual(&host)
                }
                _ => false,
            }
    }

    /// The pin of its certificate, as it wrote it down; it may change while the hub runs.
    pub(crate) fn pin(&self) -> Option<KeyPin> {
        let text = self.origin.starts_with("https://").then(|| self.key_file.with_file_name(attache_hub::PIN_FILE))?;
        fs::read_to_string(text).ok()?.parse().ok()
    }

    /// Whether the hub that this key belongs to runs now. When it does not, whoever listens at its address is a stranger.
    pub(crate) fn is_running(&self) -> bool {
        let Ok(lock) = fs::File::open(self.key_file.with_file_name(HUB_LOCK)) else { return false };
        matches!(lock.try_lock_shared(), Err(fs::TryLockError::WouldBlock))
    }
}

/// Refuses a working folder in which an agent would stand among our keys, pairings and databases.
pub(crate) fn refuse_own_folder(config: &Config, data: Option<&Path>, folder: &Path) -> Result<(), CommandFailure> {
    let real = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok();
    let Some(wanted) = real(folder) else { return Ok(()) };
    let hub = config.home.as_deref().and_then(|home| Home::at(home.to_owned()).recorded_hub());
    let hub = hub.and_then(|hub| hub.key_file.parent().map(Path::to_owned));
    let ours = [config.home.as_deref(), config.awcp_home.as_deref(), data, hub.as_deref()];
    let Some(home) = ours.into_iter().flatten().filter_map(real).find(|home| wanted.starts_with(home)) else {
        return Ok(());
    };
    Err(CommandFailure::usage(format!(
        "agents do not work in {}: it is a part of {}",
        folder.display(),
        home.display()
    ))
    .hint("Keys and pairings are kept there. Name another folder with --cwd DIR."))
}

/// Reads a file that holds a secret and nothing else.
pub(crate) fn read_secret(path: &Path) -> Result<Secret<String>, CommandFailure> {
    let text = fs::read_to_string(path).map_err(|error| CommandFailure::file("read the secret in", path, &error))?;
    let secret = text.trim();
    if secret.is_empty() || secret.contains(char::is_whitespace) {
        return Err(CommandFailure::usage(format!("{} holds no secret", path.display()))
            .hint("The file must hold the bare secret and a newline."));
    }
    Ok(Secret::new(secret.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_is_known_by_its_port_on_this_machine() {
        let hub = LocalHub { origin: "http://127.0.0.1:4711".to_owned(), key_file: "/data/admin.key".into() };
        for same in ["http://127.0.0.1:4711", "http://localhost:4711", "http://[::1]:4711"] {
            assert!(hub.is_at(same), "{same}");
        }
        let secure = LocalHub { origin: "https://127.0.0.1:4711".to_owned(), ..hub.clone() };
        assert!(secure.is_at("https://localhost:4711") && !secure.is_at("http://localhost:4711"));
        for other in [
            "http://127.0.0.1:4712",
            "http://127.0.0.2:4711",
            "http://localhost",
            "https://localhost:4711",
            "http://10.0.0.5:4711",
            "http://localhost.example.org:4711",
        ] {
            assert!(!hub.is_at(other), "{other}");
        }
    }

    #[test]
    fn the_hub_of_this_machine_is_remembered_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().to_owned());
        let default = home.local_hub();
        assert_eq!(default.origin, "http://127.0.0.1:7800");
        let hub = LocalHub { origin: "http://127.0.0.1:4711".to_owned(), key_file: "/data/admin.key".into() };
        home.remember_hub(&hub).unwrap();
        assert_eq!(home.local_hub(), hub);
        home.forget_hub(&default);
        assert_eq!(home.local_hub(), hub);
        home.forget_hub(&hub);
        assert_eq!(home.local_hub(), default);
    }
}
