//! `policy.toml`: what people allow this machine to delegate and to accept. Only people write it. A missing or invalid
//! file allows nothing.

pub mod collaborator;
pub mod delegator;
mod edit;
mod normalize;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use attache_os::path_error::{lock, private_folder, replace};
use attache_protocol::{KeyPin, env::Env};
use serde::Deserialize;

pub use collaborator::CollaboratorSection;
pub use delegator::{DelegatorSection, RouteMode, TrustedPeer};
pub use normalize::{expand, normal_url};

use crate::Error;

/// The location of the policy, and the home folder that `~` stands for.
#[derive(Debug, Clone)]
pub struct PolicyFile {
    path: PathBuf,
    home_folder: Option<PathBuf>,
}

/// The complete file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AwcpPolicy {
    pub delegator: DelegatorSection,
    pub collaborator: CollaboratorSection,
}

/// A mistake in the file: where it is and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}. {fix}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
pub struct InvalidPolicy {
    pub path: PathBuf,
    pub line: Option<usize>,
    pub what: String,
    pub fix: String,
}

/// A change that a person makes with a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyChange {
    AddPeer { url: String, key_file: Option<PathBuf>, pin: Option<KeyPin> },
    RemovePeer { url: String },
    AddRoot(PathBuf),
    RemoveRoot(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum PolicyChangeError {
    #[error(transparent)]
    Invalid(#[from] InvalidPolicy),
    #[error("no {what} `{name}` in {}", path.display())]
    NotThere { what: &'static str, name: String, path: PathBuf },
    #[error("`{0}` is not the URL of an agent. Write it like https://hub.example.org/a2a/builder")]
    NotAUrl(String),
    #[error("{}: a command can't change a file written this way. Use an editor.", .0.display())]
    ByHand(PathBuf),
    #[error(transparent)]
    File(#[from] Error),
}

const KEYS: &str = "Fix it in an editor. docs/delegations.md describes every key.";

// === impl PolicyFile ===

impl PolicyFile {
    /// `person` is the home folder that `~` stands for.
    pub const fn at(path: PathBuf, person: Option<PathBuf>) -> Self {
        Self { path, home_folder: person }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The home folder that `~` stands for.
    pub fn home_folder(&self) -> Option<&Path> {
        self.home_folder.as_deref()
    }

    pub fn read(&self) -> Result<AwcpPolicy, InvalidPolicy> {
        self.parse(&self.text()?)
    }

    /// Changes the file and keeps everything else in it, comments included. Returns whether it changed.
    pub fn change(&self, change: &PolicyChange, env: &Env) -> Result<bool, PolicyChangeError> {
        // If the file is a symbolic link, its target is changed.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        if let Some(folder) = path.parent() {
            private_folder(folder).map_err(Error::from)?;
        }
        let _lock = lock(&path.with_extension("toml.lock")).map_err(Error::from)?;
        let text = self.text()?;
        let before = self.parse(&text)?;
        let mut wanted = before.clone();
        match change {
            PolicyChange::AddPeer { url, key_file, pin } => {
                let url = normal_url(url).ok_or_else(|| PolicyChangeError::NotAUrl(url.clone()))?;
                let key_file = key_file.as_ref().map(|file| file.to_string_lossy().into_owned());
                match wanted.delegator.peers.iter_mut().find(|peer| peer.is(&url)) {
                    Some(peer) => {
                        let (key_file, pin) = (key_file.or_else(|| peer.key_file.clone()), pin.or(peer.pin));
                        if (&key_file, pin) == (&peer.key_file, peer.pin) {
                            return Ok(false);
                        }
                        // Rewritten, keeping its other members.
                        (peer.key_file, peer.pin) = (key_file, pin);
                    }
                    None => {
                        wanted.delegator.peers.push(TrustedPeer { url, key_file, pin: *pin, ..TrustedPeer::default() });
                    }
                }
            }
            PolicyChange::RemovePeer { url } => {
                let url = normal_url(url).ok_or_else(|| PolicyChangeError::NotAUrl(url.clone()))?;
                let peers = wanted.delegator.peers.len();
                wanted.delegator.peers.retain(|peer| !peer.is(&url));
                if wanted.delegator.peers.len() == peers {
                    return Err(self.not_there("peer", &url));
                }
            }
            PolicyChange::AddRoot(root) => {
                let root = root.to_string_lossy().into_owned();
                if wanted.delegator.roots.contains(&root) {
                    return Ok(false);
                }
                wanted.delegator.roots.push(root);
            }
            PolicyChange::RemoveRoot(root) => {
                let same = |listed: &String| expand(listed, self.home_folder()) == *root || Path::new(listed) == root;
                let roots = wanted.delegator.roots.len();
                wanted.delegator.roots.retain(|listed| !same(listed));
                if wanted.delegator.roots.len() == roots {
                    return Err(self.not_there("folder", &root.to_string_lossy()));
                }
            }
        }
        let written = edit::apply(&text, &before.delegator, &wanted.delegator);
        // Whatever the file looked like, the result must parse to the intended policy.
        match written.filter(|written| self.parse(written).is_ok_and(|policy| policy.means(&wanted))) {
            Some(written) => replace(&path, written.as_bytes(), env).map_err(Error::from)?,
            None => return Err(PolicyChangeError::ByHand(path)),
        }
        Ok(true)
    }

    fn not_there(&self, what: &'static str, name: &str) -> PolicyChangeError {
        PolicyChangeError::NotThere { what, name: name.to_owned(), path: self.path.clone() }
    }

    fn text(&self) -> Result<String, InvalidPolicy> {
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => {
                Err(self.invalid(None, format!("can't read it: {error}"), "Check its owner and permissions."))
            }
        }
    }

    fn parse(&self, text: &str) -> Result<AwcpPolicy, InvalidPolicy> {
        let policy: AwcpPolicy = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            self.invalid(line, error.message().trim_end_matches('.').to_owned(), KEYS)
        })?;
        policy.delegator.check().and_then(|()| policy.collaborator.check()).map_err(|(what, fix)| {
            // The mistake is in a value, so search for the value to find its line.
            let line = text.lines().position(|line| line.contains(&what.1)).map(|index| index + 1);
            self.invalid(line, what.0, fix)
        })?;
        Ok(policy)
    }

    fn invalid(&self, line: Option<usize>, what: String, fix: &str) -> InvalidPolicy {
        InvalidPolicy { path: self.path.clone(), line, what, fix: fix.to_owned() }
    }
}

// === impl AwcpPolicy ===

impl AwcpPolicy {
    /// Equal apart from the order of peers.
    fn means(&self, other: &Self) -> bool {
        let sorted = |policy: &Self| {
            let mut policy = policy.clone();
            policy.delegator.peers.sort_by(|one, another| one.url.cmp(&another.url));
            policy
        };
        sorted(self) == sorted(other)
    }
}

#[cfg(test)]
mod tests;
