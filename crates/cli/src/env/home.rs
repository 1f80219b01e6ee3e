//! The `$A2A_HOME` folder: its layout and the permissions of its files.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use attache_protocol::{KeyPin, Secret};

use crate::{env::config::Config, text::errors, ui::failure::CommandFailure};

pub(crate) use attache_os::private_file::{create as create_private, folder as private_folder, write as write_private};

/// `$A2A_HOME`. It exists and is private.
#[derive(Debug, Clone)]
pub(crate) struct Home(PathBuf);

/// The address and key file that this machine's hub recorded at its last start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalHub {
    pub(crate) origin: String,
    pub(crate) key_file: PathBuf,
}

/// Lock file in the hub's folder, held while the hub runs.
pub(crate) const HUB_LOCK: &str = "hub.lock";

/// The database in a hub's data folder.
pub(crate) const DATABASE: &str = "hub.db";
/// What `attache migrate` leaves of the database that it has copied to a server.
pub(crate) const MOVED_DATABASE: &str = "hub.db.moved";
/// The default listen address of a hub.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:7800";

// === impl Home ===

impl Home {
    /// Creates the folder, or restricts its mode to 0700.
    pub(crate) fn open(config: &Config) -> Result<Self, CommandFailure> {
        let path = config.home()?;
        private_folder(&path).map_err(|error| CommandFailure::file("use the folder", &path, &error))?;
        Ok(Self(path))
    }

    /// For reading only; creates nothing.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The default data folder of the hub.
    pub(crate) fn hub(&self) -> PathBuf {
        self.0.join("hub")
    }

    pub(crate) fn profiles(&self) -> PathBuf {
        self.0.join("runtime.json")
    }

    /// The user's own host presets.
    pub(crate) fn presets(&self) -> PathBuf {
        self.0.join("presets.toml")
    }

    /// The approval request that `attache approvals show` showed last.
    pub(crate) fn shown_approval(&self) -> PathBuf {
        self.0.join("shown-approval.json")
    }

    /// Maps conversations to sessions of hosts.
    pub(crate) fn host_sessions(&self) -> PathBuf {
        self.0.join("host-sessions")
    }

    /// The worktrees of runs.
    pub(crate) fn worktrees(&self) -> PathBuf {
        self.0.join(attache_protocol::wire::adapter::WORKTREE_FOLDER)
    }

    pub(crate) fn adapters(&self) -> PathBuf {
        self.0.join("adapters")
    }

    /// The secret file of the adapter at an address.
    pub(crate) fn adapter_secret(&self, address: SocketAddr) -> PathBuf {
        let host = match address {
            SocketAddr::V4(address) => address.ip().to_string(),
            // Same form as in the URL that the profile stores.
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        self.adapters().join(format!("{host}_{}", address.port()))
    }

    fn address_file(&self) -> PathBuf {
        self.hub().join("address")
    }

    /// The hub that was started last, or the default location.
    pub(crate) fn local_hub(&self) -> LocalHub {
        self.recorded_hub().unwrap_or_else(|| LocalHub {
            origin: format!("http://{DEFAULT_LISTEN}"),
            key_file: self.hub().join("admin.key"),
        })
    }

    /// The hub that was started last, at the address it recorded.
    pub(crate) fn recorded_hub(&self) -> Option<LocalHub> {
        let text = fs::read_to_string(self.address_file()).ok()?;
        let mut lines = text.lines();
        let origin = lines.next()?.to_owned();
        let key_file = lines.next().map_or_else(|| self.hub().join("admin.key"), PathBuf::from);
        Some(LocalHub { origin, key_file })
    }

    /// Records the address of this machine's hub, so that other commands find it and its owner key. If another recorded
    /// hub is still running, keeps that record and returns it.
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

    /// Removes the record, unless another hub has replaced it since.
    pub(crate) fn forget_hub(&self, hub: &LocalHub) {
        if self.local_hub() == *hub {
            let _ = fs::remove_file(self.address_file());
        }
    }
}

// === impl LocalHub ===

impl LocalHub {
    /// Whether an origin means this hub: the same, or the same port under the other name of that address. Secrets are sent
    /// to the recorded origin only, because `localhost` may also be `[::1]`, where somebody else can listen.
    pub(crate) fn is_at(&self, origin: &str) -> bool {
        let parts = |origin: &str| -> Option<(String, String, u16)> {
            let (scheme, authority) = origin.split_once("://")?;
            let (host, port) = authority.rsplit_once(':')?;
            Some((scheme.to_owned(), host.to_owned(), port.parse().ok()?))
        };
        let usual = |host: &str| matches!(host, "localhost" | "127.0.0.1");
        self.origin == origin
            || match (parts(&self.origin), parts(origin)) {
                (Some((own_scheme, own, own_port)), Some((scheme, host, port))) => {
                    own_scheme == scheme && own_port == port && usual(&own) && usual(&host)
                }
                _ => false,
            }
    }

    /// The recorded pin of its certificate; may change while the hub runs.
    pub(crate) fn pin(&self) -> Option<KeyPin> {
        let text = self.origin.starts_with("https://").then(|| self.key_file.with_file_name(attache_hub::PIN_FILE))?;
        fs::read_to_string(text).ok()?.parse().ok()
    }

    /// Whether this hub is running. If not, whatever listens at its address isn't trusted.
    pub(crate) fn is_running(&self) -> bool {
        let Ok(lock) = fs::File::open(self.key_file.with_file_name(HUB_LOCK)) else { return false };
        matches!(lock.try_lock_shared(), Err(fs::TryLockError::WouldBlock))
    }
}

/// Refuses a working folder that contains our keys, pairings or databases.
pub(crate) fn refuse_own_folder(config: &Config, data: Option<&Path>, folder: &Path) -> Result<(), CommandFailure> {
    let real = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok();
    let Some(wanted) = real(folder) else { return Ok(()) };
    let ours = own_folders(config).into_iter().chain(data.map(Path::to_owned));
    let Some(home) = ours.filter_map(|path| real(&path)).find(|home| wanted.starts_with(home)) else {
        return Ok(());
    };
    Err(CommandFailure::usage(errors::own_folder(folder.display(), home.display())).hint(errors::own_folder_do()))
}

/// The folders that hold keys and pairings: the homes of this machine, and the data of its hub.
pub(crate) fn own_folders(config: &Config) -> Vec<PathBuf> {
    let hub = config.home.as_deref().and_then(|home| Home::at(home.to_owned()).recorded_hub());
    let hub = hub.and_then(|hub| hub.key_file.parent().map(Path::to_owned));
    [config.home.clone(), config.awcp_home.clone(), hub].into_iter().flatten().collect()
}

/// Reads a file that holds a secret and nothing else.
pub(crate) fn read_secret(path: &Path) -> Result<Secret<String>, CommandFailure> {
    let text = fs::read_to_string(path).map_err(|error| CommandFailure::file("read the secret in", path, &error))?;
    let secret = text.trim();
    if secret.is_empty() || secret.contains(char::is_whitespace) {
        return Err(CommandFailure::usage(errors::no_secret(path.display())).hint(errors::only_secret()));
    }
    Ok(Secret::new(secret.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_hub_is_recognised_by_its_port() {
        let hub = LocalHub { origin: "http://127.0.0.1:4711".to_owned(), key_file: "/data/admin.key".into() };
        for same in ["http://127.0.0.1:4711", "http://localhost:4711"] {
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
    fn the_local_hub_is_recorded_and_removed() {
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
