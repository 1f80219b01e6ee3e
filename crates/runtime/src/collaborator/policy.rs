//! Whether a folder is taken: the trait that decides, and the default that asks `policy.toml` anew every time, so that what a
//! person has just changed holds at once.

use std::{fmt, path::PathBuf, time::Duration};

use attache_protocol::{
    rules::assignment::CollaboratorLimits,
    wire::awcp::{AccessMode, AwcpError, AwcpErrorCode, AwcpInvite, SandboxProfile},
};

use crate::awcp_policy::{CollaboratorSection as Rules, PolicyFile};

/// Decides whose folders are taken, and on which terms.
pub trait CollaboratorPolicy: Send + Sync + fmt::Debug {
    /// Whether this invitation of this caller is taken. May read files.
    fn consider(&self, invite: &AwcpInvite, caller: &str) -> Result<DelegationConsent, AwcpError>;

    /// What the agent's card says; none while nothing is taken at all.
    fn terms(&self) -> Option<AdvertisedLimits>;

    /// Below which folders anything was ever mounted, so that leftovers can be found.
    fn roots(&self) -> Vec<PathBuf>;
}

/// Yes, within these limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationConsent {
    pub limits: CollaboratorLimits,
    pub mount_roots: Vec<PathBuf>,
    pub requires_empty_dir: bool,
}

/// What strangers may know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertisedLimits {
    pub max_ttl_seconds: u64,
    pub access_modes: Vec<AccessMode>,
}

/// `[collaborator]` of `policy.toml`.
#[derive(Debug, Clone)]
pub struct CollaboratorPolicyFile {
    file: PolicyFile,
    /// `$AWCP_HOME`.
    home: PathBuf,
    /// A person said so when the runtime was started, whatever the file says.
    is_enabled: bool,
}

/// Today the agent's processes run as the runtime's user does, with everything that this user may.
const ENFORCED: SandboxProfile = SandboxProfile::NOTHING;

// === impl CollaboratorPolicyFile ===

impl CollaboratorPolicyFile {
    /// Takes what the file allows.
    pub const fn new(file: PolicyFile, home: PathBuf) -> Self {
        Self { file, home, is_enabled: false }
    }

    /// The same, with `enabled = true`.
    #[must_use]
    pub fn enabled(self) -> Self {
        Self { is_enabled: true, ..self }
    }

    fn rules(&self) -> Result<Rules, String> {
        self.file.read().map(|policy| policy.collaborator).map_err(|invalid| invalid.to_string())
    }
}

impl CollaboratorPolicy for CollaboratorPolicyFile {
    fn consider(&self, invite: &AwcpInvite, caller: &str) -> Result<DelegationConsent, AwcpError> {
        let decline = |message: &str| AwcpError::new(&invite.delegation_id, AwcpErrorCode::Declined, message);
        // What exactly is wrong with the file is for its owner.
        let rules = self.rules().map_err(|error| {
            tracing::error!(error, "policy.toml cannot be used; every delegation is declined");
            decline("the remote's policy.toml has a mistake in it, and until it is mended nothing is taken")
        })?;
        if !rules.enabled && !self.is_enabled {
            return Err(decline("this agent's owner takes no folders"));
        }
        if !rules.takes_from(caller) {
            return Err(decline("this agent's owner takes no folders of this caller"));
        }
        Ok(DelegationConsent {
            limits: CollaboratorLimits {
                access_modes: rules.access_modes.clone(),
                max_ttl: Duration::from_secs(rules.max_ttl_seconds),
                wanted: rules.sandbox.into(),
                enforced: ENFORCED,
            },
            mount_roots: rules.roots(&self.home, self.file.home_folder()),
            requires_empty_dir: rules.requires_empty_dir,
        })
    }

    fn terms(&self) -> Option<AdvertisedLimits> {
        let rules = self.rules().ok().filter(|rules| rules.enabled || self.is_enabled)?;
        Some(AdvertisedLimits { max_ttl_seconds: rules.max_ttl_seconds, access_modes: rules.access_modes })
    }

    fn roots(&self) -> Vec<PathBuf> {
        let rules = self.rules().unwrap_or_default();
        let mut roots = rules.roots(&self.home, self.file.home_folder());
        // Where it was before somebody changed the policy.
        roots.push(self.home.join("mounts"));
        roots.dedup();
        roots
    }
}
