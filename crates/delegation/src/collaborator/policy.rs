//! Whether a delegation is accepted: the trait that decides, and the default, which reads `policy.toml` on every
//! request so that changes take effect immediately.

use std::{fmt, path::PathBuf, time::Duration};

use attache_protocol::{
    rules::assignment::CollaboratorLimits,
    wire::awcp::{AccessMode, AwcpError, AwcpErrorCode, AwcpInvite, SandboxProfile, TransportChoice},
};

use crate::awcp_policy::{CollaboratorSection as Rules, PolicyFile};

/// Decides whose folders are accepted, and on which terms.
pub trait CollaboratorPolicy: Send + Sync + fmt::Debug {
    /// Accepts this caller's invitation or declines it. May read files. `available` is what this machine can enforce.
    fn consider(
        &self,
        invite: &AwcpInvite,
        caller: &str,
        available: SandboxProfile,
    ) -> Result<DelegationConsent, AwcpError>;

    /// The limits for the agent's card. `None` while no folders are accepted.
    fn terms(&self) -> Option<AdvertisedLimits>;

    /// The folders below which anything may have been mounted, so that leftovers can be found.
    fn roots(&self) -> Vec<PathBuf>;
}

/// Acceptance, within these limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationConsent {
    pub limits: CollaboratorLimits,
    pub mount_roots: Vec<PathBuf>,
    pub requires_empty_dir: bool,
    /// How the folder may get here.
    pub transports: Vec<TransportChoice>,
}

/// The limits that the public card shows.
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
    /// Enabled when the runtime was started, regardless of the file.
    is_enabled: bool,
}

// === impl CollaboratorPolicyFile ===

impl CollaboratorPolicyFile {
    /// Accepts what the file allows.
    pub const fn new(file: PolicyFile, home: PathBuf) -> Self {
        Self { file, home, is_enabled: false }
    }

    /// Enables the role, as if the file said `enabled = true`.
    #[must_use]
    pub fn enabled(self) -> Self {
        Self { is_enabled: true, ..self }
    }

    fn rules(&self) -> Result<Rules, String> {
        self.file.read().map(|policy| policy.collaborator).map_err(|invalid| invalid.to_string())
    }
}

impl CollaboratorPolicy for CollaboratorPolicyFile {
    fn consider(
        &self,
        invite: &AwcpInvite,
        caller: &str,
        available: SandboxProfile,
    ) -> Result<DelegationConsent, AwcpError> {
        let decline = |message: &str| AwcpError::new(&invite.delegation_id, AwcpErrorCode::Declined, message);
        // The details are only for the owner of the file.
        let rules = self.rules().map_err(|error| {
            tracing::error!(error, "invalid policy.toml; every delegation is declined");
            decline("the remote's policy.toml is invalid; it accepts no delegations until that is fixed")
        })?;
        if !rules.enabled && !self.is_enabled {
            return Err(decline("this agent doesn't accept folders"));
        }
        if !rules.takes_from(caller) {
            return Err(decline("this agent doesn't accept folders from this caller"));
        }
        Ok(DelegationConsent {
            limits: CollaboratorLimits {
                access_modes: rules.access_modes.clone(),
                max_ttl: Duration::from_secs(rules.max_ttl_seconds),
                wanted: rules.sandbox.profile(available),
                available,
            },
            mount_roots: rules.roots(&self.home, self.file.home_folder()),
            requires_empty_dir: rules.requires_empty_dir,
            transports: rules.transports(),
        })
    }

    fn terms(&self) -> Option<AdvertisedLimits> {
        let rules = self.rules().ok().filter(|rules| rules.enabled || self.is_enabled)?;
        Some(AdvertisedLimits { max_ttl_seconds: rules.max_ttl_seconds, access_modes: rules.access_modes })
    }

    fn roots(&self) -> Vec<PathBuf> {
        let rules = self.rules().unwrap_or_default();
        let mut roots = rules.roots(&self.home, self.file.home_folder());
        // The default, used before the policy was changed.
        roots.push(self.home.join("mounts"));
        roots.dedup();
        roots
    }
}
