//! The hubs that this client remembers: `contexts.json` in our home, and a private file with each one's key.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use attache_protocol::{KeyPin, Secret, error::exit};
use serde::{Deserialize, Serialize};

use crate::{CommandFailure, home};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contexts {
    /// The one that commands mean.
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
const KEYS: &str = "contexts";

/// Where the key of a remembered hub is.
pub(crate) fn key_file(home: &Path, name: &str) -> PathBuf {
    home.join(KEYS).join(format!("{name}.key"))
}

/// A name is a part of a path.
pub(crate) fn check_name(name: &str) -> Result<(), CommandFailure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('.') {
        return Ok(());
    }
    Err(CommandFailure::usage(format!("`{name}` is not a name for a hub"))
        .hint("Use letters, digits, - and _; at most 64 of them."))
}

// === impl Contexts ===

impl Contexts {
    /// Nothing is remembered where there is no file.
    pub(crate) fn load(home: &Path) -> Result<Self, CommandFailure> {
        let path = home.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(CommandFailure::file("read", &path, &error)),
        };
        serde_json::from_slice(&text).map_err(|error| {
            CommandFailure::failed(format!("{} cannot be read: {error}", path.display()))
                .hint("Correct it, or remove it and add your hubs again: attache context add")
        })
    }

    pub(crate) fn save(&self, home: &Path) -> Result<(), CommandFailure> {
        let path = home.join(FILE);
        let mut text = serde_json::to_vec_pretty(self).expect("our own types serialise to JSON");
        text.push(b'\n');
        home::write_private(&path, &text).map_err(|error| CommandFailure::file("write", &path, &error))
    }

    pub(crate) fn get(&self, name: &str) -> Result<&SavedHub, CommandFailure> {
        self.contexts.get(name).ok_or_else(|| {
            CommandFailure::new("not_found", exit::NOT_FOUND, format!("no hub is remembered as `{name}`"))
                .hint("`attache context` lists those that are; `attache context add` remembers one.")
        })
    }

    /// The key, where one is kept.
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
