//! Saved hubs: `contexts.json` in `$A2A_HOME`, and a private key file for each.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use attache_protocol::{KeyPin, Secret, error::exit};
use serde::{Deserialize, Serialize};

use crate::{env::home, ui::failure::CommandFailure};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contexts {
    /// The hub that commands use by default.
    #[serde(default)]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, SavedHub>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedHub {
    pub(crate) hub: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pin: Option<KeyPin>,
}

const FILE: &str = "contexts.json";
const LOCK: &str = "contexts.lock";
const KEYS: &str = "contexts";

/// The key file of a saved hub.
pub(crate) fn key_file(home: &Path, name: &str) -> PathBuf {
    home.join(KEYS).join(format!("{name}.key"))
}

/// Validates a name, which becomes part of a path.
pub(crate) fn check_name(name: &str) -> Result<(), CommandFailure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('.') {
        return Ok(());
    }
    Err(CommandFailure::usage(format!("`{name}` isn't a valid name for a hub"))
        .hint("Use letters, digits, - and _, at most 64 characters."))
}

// === impl Contexts ===

impl Contexts {
    /// Loads the file; empty if it doesn't exist.
    pub(crate) fn load(home: &Path) -> Result<Self, CommandFailure> {
        let path = home.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(CommandFailure::file("read", &path, &error)),
        };
        serde_json::from_slice(&text).map_err(|error| {
            CommandFailure::failed(format!("can't parse {}: {error}", path.display()))
                .hint("Fix the file, or remove it and add your hubs again: attache context add")
        })
    }

    /// Loads the file to change it. Whoever else wants to waits until the lock is dropped, so no change is lost.
    pub(crate) fn load_to_change(home: &Path) -> Result<(fs::File, Self), CommandFailure> {
        home::private_folder(home).map_err(|error| CommandFailure::file("use the folder", home, &error))?;
        let path = home.join(LOCK);
        let held = attache_os::lock::wait(&path).map_err(|error| CommandFailure::file("lock", &path, &error))?;
        Ok((held, Self::load(home)?))
    }

    pub(crate) fn save(&self, home: &Path) -> Result<(), CommandFailure> {
        let path = home.join(FILE);
        let mut text = serde_json::to_vec_pretty(self).expect("our own types serialise to JSON");
        text.push(b'\n');
        home::write_private(&path, &text).map_err(|error| CommandFailure::file("write", &path, &error))
    }

    pub(crate) fn get(&self, name: &str) -> Result<&SavedHub, CommandFailure> {
        self.contexts.get(name).ok_or_else(|| {
            CommandFailure::new("not_found", exit::NOT_FOUND, format!("no saved hub named `{name}`"))
                .hint("List saved hubs: `attache context`. Add one: `attache context add`.")
        })
    }

    /// The saved key, if any.
    pub(crate) fn key(home: &Path, name: &str) -> Result<Option<Secret<String>>, CommandFailure> {
        let path = key_file(home, name);
        path.exists().then(|| home::read_secret(&path)).transpose()
    }

    pub(crate) fn save_key(&self, home: &Path, name: &str, key: &Secret<String>) -> Result<(), CommandFailure> {
        let (folder, path) = (home.join(KEYS), key_file(home, name));
        home::private_folder(&folder).map_err(|error| CommandFailure::file("use the folder", &folder, &error))?;
        let text = format!("{}\n", key.expose());
        home::write_private(&path, text.as_bytes()).map_err(|error| CommandFailure::file("write", &path, &error))
    }

    pub(crate) fn remove(&mut self, home: &Path, name: &str) -> Result<(), CommandFailure> {
        self.contexts.remove(name);
        if self.current.as_deref() == Some(name) {
            self.current = None;
        }
        self.save(home)?;
        let path = key_file(home, name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CommandFailure::file("remove", &path, &error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
