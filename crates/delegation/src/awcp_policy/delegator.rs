//! `[delegator]`: which folders can be delegated, to whom, for how long, and how they are reached.

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
    /// Default: one hour, or `max_ttl_seconds` if that is less.
    pub default_ttl_seconds: Option<u64>,
    pub max_ttl_seconds: u64,
    pub default_access_mode: AccessMode,
    /// Limit of all delegations at a time.
    pub max_running: usize,
    pub max_per_peer: usize,
    /// Folders below these can be delegated.
    pub roots: Vec<String>,
    /// Called when all delegations of a session have ended.
    pub notify_webhook: Option<String>,
    /// The hub that provides tunnels and shows delegations. Default: the hub of the peer's URL.
    pub hub: Option<String>,
    /// The key for that hub.
    pub key_file: Option<String>,
    /// The pin of that hub, if its certificate is self-signed.
    pub pin: Option<KeyPin>,
    pub peers: Vec<TrustedPeer>,
    pub export: ExportSection,
    pub git: GitPolicySection,
    /// The originals of changed files are removed after this many days. The changes can't be reverted then.
    pub keep_originals_days: u64,
    /// When the originals of all leases take more than this, the oldest are removed first.
    pub keep_originals_bytes: u64,
    /// The copy of a staged delegation is removed after this many days, with the changes that aren't applied. A notice comes before.
    pub keep_staged_days: u64,
    /// The size of all copies together. A delegation whose copy doesn't fit fails.
    pub max_staged_bytes: u64,
}

/// An agent that folders can be delegated to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedPeer {
    pub url: String,
    #[serde(default)]
    pub key_file: Option<String>,
    /// The pin of a hub with a self-signed certificate.
    #[serde(default)]
    pub pin: Option<KeyPin>,
    #[serde(default)]
    pub reach: RouteMode,
    /// The `host:port` that the remote connects to, instead of the daemon's listening address.
    #[serde(default)]
    pub advertise: Option<String>,
}

/// How the remote reaches the export.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteMode {
    /// Directly if possible, otherwise through the hub.
    #[default]
    Auto,
    Direct,
    Tunnel,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExportSection {
    /// Never visible, in gitignore syntax.
    pub exclude: Vec<String>,
    /// Secrets to withhold, in addition to the built-in ones.
    pub withhold: Vec<String>,
    pub max_bytes: Option<u64>,
    pub max_files: Option<u64>,
    pub max_ops_per_second: Option<u32>,
    /// Mount options that the remote is asked to use, such as `dcache_timeout=60`.
    pub mount_options: Vec<String>,
}

/// Whether the policy allows a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderEligibility {
    Yes,
    /// Below a root, but no export of that root would show it.
    Withheld,
    No,
}

/// Both change the current branch, so both are off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GitPolicySection {
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
            git: GitPolicySection::default(),
            keep_originals_days: 30,
            keep_originals_bytes: 20 << 30,
            keep_staged_days: 30,
            max_staged_bytes: 20 << 30,
        }
    }
}

impl DelegatorSection {
    pub fn peer(&self, url: &str) -> Option<&TrustedPeer> {
        let url = normal_url(url)?;
        self.peers.iter().find(|peer| peer.is(&url))
    }

    /// Whether a folder is a root, or is below one and visible there. `folder` must be canonical.
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

    /// Finds mistakes: the problem, the text that shows where it is, and the fix.
    pub(super) fn check(&self) -> Result<(), ((String, String), &'static str)> {
        let wrong = |what: String, at: &str, fix| Err(((what, at.to_owned()), fix));
        for peer in &self.peers {
            if normal_url(&peer.url).is_none() {
                let what = format!("`{}` is not the URL of an agent", peer.url);
                return wrong(what, &peer.url, "Use a URL like https://hub.example.org/a2a/builder.");
            }
            if let Some(advertise) = peer.advertise.as_ref().filter(|advertise| host_port(advertise).is_none()) {
                let what = format!("`{advertise}` is not an address");
                return wrong(what, advertise, "Use a host and a port: advertise = \"192.0.2.7:2222\".");
            }
        }
        for root in &self.roots {
            if !Path::new(root).is_absolute() && root != "~" && !root.starts_with("~/") {
                let fix = "Use an absolute path, or one that starts with ~/.";
                return wrong(format!("the root `{root}` is not an absolute path"), root, fix);
            }
        }
        for url in [&self.hub, &self.notify_webhook].into_iter().flatten() {
            if normal_url(url).is_none() {
                return wrong(format!("`{url}` is not a URL"), url, "Start it with https:// or http://.");
            }
        }
        for pattern in self.export.exclude.iter().chain(&self.export.withhold) {
            let rules = ExportPatterns { exclude: vec![pattern.clone()], ..ExportPatterns::default() };
            if let Err(error) = rules.check() {
                return wrong(error.to_string(), pattern, "Use .gitignore syntax: target/, *.log, /secret.");
            }
        }
        if self.default_ttl_seconds.is_some_and(|ttl| ttl > self.max_ttl_seconds) {
            let what = format!("`default_ttl_seconds` is more than `max_ttl_seconds` ({})", self.max_ttl_seconds);
            return wrong(what, "default_ttl_seconds", "Lower it, or raise `max_ttl_seconds`.");
        }
        for (name, is_zero) in [
            ("default_ttl_seconds", self.default_ttl_seconds == Some(0)),
            ("max_ttl_seconds", self.max_ttl_seconds == 0),
            ("max_running", self.max_running == 0),
            ("max_per_peer", self.max_per_peer == 0),
        ] {
            if is_zero {
                return wrong(format!("`{name}` is 0"), name, "Use a number above 0, or leave it out.");
            }
        }
        Ok(())
    }
}

/// Splits `host:port`.
pub fn host_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

// === impl TrustedPeer ===

impl TrustedPeer {
    /// `url` must be normalised.
    pub(super) fn is(&self, url: &str) -> bool {
        normal_url(&self.url).as_deref() == Some(url)
    }
}
