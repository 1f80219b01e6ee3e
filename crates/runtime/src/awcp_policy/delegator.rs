//! `[delegator]`: to whom folders may be lent, which, for how long, and how they are reached.

use std::{
    fs,
    path::{Path, PathBuf},
};

use attache_protocol::{KeyPin, wire::awcp::AccessMode};
use attache_workspace::export::ExportPatterns;
use serde::Deserialize;

use super::{expand, normal_url};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DelegatorSection {
    /// An hour, or the most that is allowed, unless a person says so.
    pub default_ttl_seconds: Option<u64>,
    pub max_ttl_seconds: u64,
    pub default_access_mode: AccessMode,
    /// At a time, of all that is lent.
    pub max_running: usize,
    pub max_per_peer: usize,
    /// What is below one of these may be lent.
    pub roots: Vec<String>,
    /// Is posted to when everything of a session is done.
    pub notify_webhook: Option<String>,
    /// The hub that tunnels and shows delegations; else that of the peer's own URL.
    pub hub: Option<String>,
    /// The key for that hub.
    pub key_file: Option<String>,
    /// Of that hub, when it made its own certificate.
    pub pin: Option<KeyPin>,
    pub peers: Vec<TrustedPeer>,
    pub export: ExportSection,
    pub git: GitSection,
    /// After so many days the originals of what a lease changed are removed; it cannot be put back then.
    pub keep_originals_days: u64,
    /// When the originals of all leases take more than this, those of the oldest go first.
    pub keep_originals_bytes: u64,
}

/// An agent that may be lent something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedPeer {
    pub url: String,
    #[serde(default)]
    pub key_file: Option<String>,
    /// Of a hub that made its own certificate.
    #[serde(default)]
    pub pin: Option<KeyPin>,
    #[serde(default)]
    pub reach: RouteMode,
    /// `host:port` that the remote dials instead of the address that the daemon listens on.
    #[serde(default)]
    pub advertise: Option<String>,
}

/// How the remote gets at the folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteMode {
    /// Directly where that can work, through the hub otherwise.
    #[default]
    Auto,
    Direct,
    Tunnel,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExportSection {
    /// Never shown, in gitignore's syntax.
    pub exclude: Vec<String>,
    /// Secrets, besides those that are withheld anyway.
    pub withhold: Vec<String>,
    pub max_bytes: Option<u64>,
    pub max_files: Option<u64>,
    pub max_ops_per_second: Option<u32>,
    /// What the remote is asked to mount it with, such as `dcache_timeout=60`.
    pub mount_options: Vec<String>,
}

/// What a policy says of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderEligibility {
    Yes,
    /// It is below a root, and among what no lease of that root shows.
    Withheld,
    No,
}

/// Both touch the current branch, so both are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GitSection {
    pub git_init: bool,
    pub auto_commit: bool,
}

// === impl DelegatorSection ===

impl Default for DelegatorSection {
    fn default() -> Self {
        Self {
            default_ttl_seconds: None,
            max_ttl_seconds: 86_400,
            default_access_mode: AccessMode::Rw,
            max_running: 8,
            max_per_peer: 4,
            roots: Vec::new(),
            notify_webhook: None,
            hub: None,
            key_file: None,
            pin: None,
            peers: Vec::new(),
            export: ExportSection::default(),
            git: GitSection::default(),
            keep_originals_days: 30,
            keep_originals_bytes: 20 << 30,
        }
    }
}

impl DelegatorSection {
    pub fn peer(&self, url: &str) -> Option<&TrustedPeer> {
        let url = normal_url(url)?;
        self.peers.iter().find(|peer| peer.is(&url))
    }

    /// Whether a folder, with every link in its path followed, is one of the roots, or below one and shown there.
    pub fn folder_eligibility(&self, folder: &Path, person: Option<&Path>) -> FolderEligibility {
        let roots = self.roots.iter().filter_map(|root| fs::canonicalize(expand(root, person)).ok());
        let around: Vec<PathBuf> = roots.filter(|root| folder.starts_with(root)).collect();
        let (exclude, withhold) = (self.export.exclude.clone(), self.export.withhold.clone());
        let rules = ExportPatterns { include: Vec::new(), exclude, withhold };
        match around.iter().any(|root| rules.show(root, folder).unwrap_or(false)) {
            true => FolderEligibility::Yes,
            false if around.is_empty() => FolderEligibility::No,
            false => FolderEligibility::Withheld,
        }
    }

    /// What is wrong (and the text that shows where), and how it is mended.
    pub(super) fn check(&self) -> Result<(), ((String, String), &'static str)> {
        let wrong = |what: String, at: &str, fix| Err(((what, at.to_owned()), fix));
        for peer in &self.peers {
            if normal_url(&peer.url).is_none() {
                let what = format!("`{}` is not the URL of an agent", peer.url);
                return wrong(what, &peer.url, "Write it like https://hub.example.org/a2a/builder.");
            }
            if let Some(advertise) = peer.advertise.as_ref().filter(|advertise| host_port(advertise).is_none()) {
                let what = format!("`{advertise}` is not an address");
                return wrong(what, advertise, "Write a host and a port: advertise = \"192.0.2.7:2222\".");
            }
        }
        for root in &self.roots {
            if !Path::new(root).is_absolute() && root != "~" && !root.starts_with("~/") {
                let fix = "Write the whole path, or one that begins with ~/.";
                return wrong(format!("the root `{root}` is not a whole path"), root, fix);
            }
        }
        for url in [&self.hub, &self.notify_webhook].into_iter().flatten() {
            if normal_url(url).is_none() {
                return wrong(format!("`{url}` is not a URL"), url, "Write it with https:// or http://.");
            }
        }
        for pattern in self.export.exclude.iter().chain(&self.export.withhold) {
            let rules = ExportPatterns { exclude: vec![pattern.clone()], ..ExportPatterns::default() };
            if let Err(error) = rules.check() {
                return wrong(error.to_string(), pattern, "Write it as in a .gitignore: target/, *.log, /secret.");
            }
        }
        if self.default_ttl_seconds.is_some_and(|ttl| ttl > self.max_ttl_seconds) {
            let what = format!("`default_ttl_seconds` is more than `max_ttl_seconds` ({})", self.max_ttl_seconds);
            return wrong(what, "default_ttl_seconds", "Write at most that, or raise `max_ttl_seconds`.");
        }
        for (name, is_zero) in [
            ("default_ttl_seconds", self.default_ttl_seconds == Some(0)),
            ("max_ttl_seconds", self.max_ttl_seconds == 0),
            ("max_running", self.max_running == 0),
            ("max_per_peer", self.max_per_peer == 0),
        ] {
            if is_zero {
                return wrong(format!("`{name}` is 0"), name, "Write a number above 0, or leave it out.");
            }
        }
        Ok(())
    }
}

/// The two halves of `host:port`.
pub fn host_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

// === impl TrustedPeer ===

impl TrustedPeer {
    /// `url` is in its normal form.
    pub(super) fn is(&self, url: &str) -> bool {
        normal_url(&self.url).as_deref() == Some(url)
    }
}
