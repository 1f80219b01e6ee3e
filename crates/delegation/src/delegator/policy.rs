//! Whether a folder is delegated: the trait that decides, and the default, which reads `policy.toml` on every request
//! so that changes take effect immediately.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use attache_protocol::{
    Code, KeyPin, Secret,
    rules::delegation::LeaseTerms,
    wire::{awcp::AccessMode, delegation::DelegateRequest},
};

use super::{DelegatorRefusal, queue::ConcurrencyLimits};
use crate::awcp_policy::{
    DelegatorSection as Rules, InvalidPolicy, PolicyFile, TrustedPeer,
    delegator::{ExportSection, FolderEligibility, GitPolicySection},
    expand, normal_url,
};

/// Decides which folders are delegated, to whom and on which terms.
pub trait DelegatorPolicy: Send + Sync + fmt::Debug {
    /// Admits a request or refuses it. May read files.
    fn admit(&self, request: &DelegateRequest) -> Result<DelegationAdmission, DelegatorRefusal>;

    /// How many delegations run at a time.
    fn limits(&self) -> ConcurrencyLimits;

    /// The webhook to call when every delegation of a session has ended.
    fn webhook(&self) -> Option<String>;

    /// How long the originals of changed files are kept.
    fn retention(&self) -> OriginalsRetention {
        OriginalsRetention::default()
    }

    /// How large the copies of staged delegations may be, and how long they are kept.
    fn staging(&self) -> StagingLimits {
        StagingLimits::default()
    }
}

/// The limits of the copies of staged delegations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagingLimits {
    /// How long a copy is kept after the end of its delegation while something isn't applied.
    pub age: Duration,
    /// The size of all copies together. Beyond it, no new one is made.
    pub bytes: u64,
}

impl Default for StagingLimits {
    fn default() -> Self {
        Self::of(&Rules::default())
    }
}

impl StagingLimits {
    const fn of(rules: &Rules) -> Self {
        Self { age: Duration::from_secs(rules.keep_staged_days.saturating_mul(86_400)), bytes: rules.max_staged_bytes }
    }
}

/// The age and total size up to which originals are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OriginalsRetention {
    pub age: Duration,
    pub bytes: u64,
}

impl Default for OriginalsRetention {
    fn default() -> Self {
        Self::of(&Rules::default())
    }
}

impl OriginalsRetention {
    const fn of(rules: &Rules) -> Self {
        Self {
            age: Duration::from_secs(rules.keep_originals_days.saturating_mul(86_400)),
            bytes: rules.keep_originals_bytes,
        }
    }
}

/// Keys of this machine for hubs, in addition to those named in a policy.
pub trait HubKeys: Send + Sync + fmt::Debug {
    /// The key for exactly this origin.
    fn key_for(&self, origin: &str) -> Option<Secret<String>>;

    /// Folders of this machine that hold Attaché's keys, records and logs. No export shows them.
    fn private_folders(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// An admitted request: the folder, the peer and the terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationAdmission {
    /// The peer with its normalised URL.
    pub peer: TrustedPeer,
    /// Canonical: symbolic links are resolved.
    pub folder: PathBuf,
    pub terms: LeaseTerms,
    pub export: ExportSection,
    pub git: GitPolicySection,
    /// The file with the key for the peer.
    pub key_file: Option<PathBuf>,
    /// The hub that provides the tunnel and shows the delegation, if it isn't the peer's own, and its key file.
    pub hub: Option<(String, Option<PathBuf>)>,
    /// The pin of that hub, if its certificate is self-signed.
    pub hub_pin: Option<KeyPin>,
}

/// `policy.toml`.
#[derive(Debug, Clone)]
pub struct DelegatorPolicyFile {
    file: PolicyFile,
}

/// In seconds.
const DEFAULT_TTL: u64 = 3600;
/// While the policy file is invalid, nothing is admitted, and delegations admitted earlier run within these limits.
const FALLBACK_LIMITS: ConcurrencyLimits = ConcurrencyLimits { running: 1, per_peer: 1 };

// === impl DelegatorPolicyFile ===

impl DelegatorPolicyFile {
    pub const fn new(file: PolicyFile) -> Self {
        Self { file }
    }
}

impl DelegatorPolicy for DelegatorPolicyFile {
    fn admit(&self, request: &DelegateRequest) -> Result<DelegationAdmission, DelegatorRefusal> {
        let rules = self.file.read()?.delegator;
        check(request)?;
        let url = normal_url(&request.peer_url).ok_or_else(|| not_a_url(&request.peer_url))?;
        let peer = rules.peer(&url).cloned().ok_or_else(|| unlisted_peer(&url))?;
        let folder = folder_of(&request.workspace_dir)?;
        match rules.folder_eligibility(&folder, self.file.home_folder()) {
            FolderEligibility::Yes => {}
            FolderEligibility::Withheld => return Err(withheld_folder(&folder)),
            FolderEligibility::No => return Err(unlisted_folder(&folder)),
        }
        let terms = terms(&rules, request)?;
        let expanded = |path: &String| expand(path, self.file.home_folder());
        // A key file in the request takes precedence over the one in the policy.
        let key_file = request.key_file.as_ref().or(peer.key_file.as_ref()).map(expanded);
        let hub = rules.hub.clone().map(|hub| (hub, rules.key_file.as_ref().map(expanded)));
        let peer = TrustedPeer { url, ..peer };
        Ok(DelegationAdmission {
            peer,
            folder,
            terms,
            export: rules.export,
            git: rules.git,
            key_file,
            hub,
            hub_pin: rules.pin,
        })
    }

    fn limits(&self) -> ConcurrencyLimits {
        self.file.read().map_or(FALLBACK_LIMITS, |policy| ConcurrencyLimits {
            running: policy.delegator.max_running,
            per_peer: policy.delegator.max_per_peer,
        })
    }

    fn webhook(&self) -> Option<String> {
        self.file.read().ok()?.delegator.notify_webhook
    }

    fn retention(&self) -> OriginalsRetention {
        self.file
            .read()
            .map_or_else(|_| OriginalsRetention::default(), |policy| OriginalsRetention::of(&policy.delegator))
    }

    fn staging(&self) -> StagingLimits {
        self.file.read().map_or_else(|_| StagingLimits::default(), |policy| StagingLimits::of(&policy.delegator))
    }
}

fn check(request: &DelegateRequest) -> Result<(), DelegatorRefusal> {
    let invalid =
        |what: &str| Err(DelegatorRefusal::new(Code::InvalidRequest, what, "Describe the task in a few words."));
    if request.description.trim().is_empty() {
        return invalid("the description is empty");
    }
    if request.prompt.trim().is_empty() {
        return invalid("the prompt is empty");
    }
    Ok(())
}

fn terms(rules: &Rules, request: &DelegateRequest) -> Result<LeaseTerms, DelegatorRefusal> {
    let access_mode: AccessMode = request.access_mode.unwrap_or(rules.default_access_mode);
    let longest = rules.max_ttl_seconds;
    let ttl = match request.ttl_seconds {
        None => rules.default_ttl_seconds.unwrap_or(DEFAULT_TTL).min(longest),
        Some(0) => {
            let hint = "Ask for at least one second.";
            return Err(DelegatorRefusal::new(Code::InvalidRequest, "a lease can't last 0 seconds", hint));
        }
        Some(ttl) if ttl > longest => {
            let message = format!("a lease of {ttl} seconds is longer than policy.toml allows ({longest})");
            let hint = format!("Ask for at most {longest} seconds, or have a person raise `max_ttl_seconds`.");
            return Err(DelegatorRefusal::new(Code::InvalidRequest, message, hint));
        }
        Some(ttl) => ttl,
    };
    Ok(LeaseTerms { access_mode, ttl: Duration::from_secs(ttl) })
}

fn folder_of(text: &str) -> Result<PathBuf, DelegatorRefusal> {
    let path = Path::new(text);
    let unusable = |reason: &str| {
        let message = format!("{text} can't be delegated: {reason}");
        DelegatorRefusal::new(Code::InvalidRequest, message, "Give the absolute path of a folder on this machine.")
    };
    if !path.is_absolute() {
        return Err(unusable("it is not an absolute path"));
    }
    let folder = fs::canonicalize(path).map_err(|error| unusable(&error.to_string()))?;
    if folder.is_dir() { Ok(folder) } else { Err(unusable("it is not a folder")) }
}

fn not_a_url(url: &str) -> DelegatorRefusal {
    let hint = "Write it like https://hub.example.org/a2a/builder.";
    DelegatorRefusal::new(Code::InvalidRequest, format!("`{url}` is not the URL of an agent"), hint)
}

fn unlisted_peer(url: &str) -> DelegatorRefusal {
    let message = format!("{url} isn't a trusted peer");
    let hint = format!("A person can allow it with: attache delegations allow --peer {}", quote(url));
    DelegatorRefusal::new(Code::PeerNotAllowed, message, hint)
}

fn unlisted_folder(folder: &Path) -> DelegatorRefusal {
    let folder = folder.to_string_lossy();
    let message = format!("delegating {folder} isn't allowed");
    let hint = format!("A person can allow it with: attache delegations allow --folder {}", quote(&folder));
    DelegatorRefusal::new(Code::FolderNotAllowed, message, hint)
}

fn withheld_folder(folder: &Path) -> DelegatorRefusal {
    let folder = folder.to_string_lossy();
    let message = format!("{folder} is inside an allowed folder, but policy.toml withholds it");
    let hint = format!(
        "A person can allow this folder explicitly with: attache delegations allow --folder {}",
        quote(&folder)
    );
    DelegatorRefusal::new(Code::FolderNotAllowed, message, hint)
}

/// Quotes for a shell.
fn quote(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./:[]@%+=".contains(character);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

impl From<InvalidPolicy> for DelegatorRefusal {
    fn from(invalid: InvalidPolicy) -> Self {
        let line = invalid.line.map(|line| format!(", line {line}")).unwrap_or_default();
        let message = format!("{}{line}: {}", invalid.path.display(), invalid.what);
        Self::new(Code::PolicyInvalid, message, format!("{} Until then, nothing can be delegated.", invalid.fix))
    }
}
