//! What a service of this machine is, independent of the service manager: its program, environment and limits.
//!
//! The renderers ([`super::systemd`], [`super::launchd`]) translate a [`ServiceSpec`]; neither knows a fact of its own about
//! the hub or the runtime.

use std::{path::PathBuf, time::Duration};

use attache_protocol::error::exit;
use serde::Serialize;

/// The part of Attaché that a service runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ServiceRole {
    Hub,
    Runtime,
}

/// Whose service manager starts it: this user's, at login, or the system's, at boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ServiceScope {
    User,
    System,
}

/// The user that a service runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServiceAccount {
    /// The user of the service manager.
    Own,
    /// An existing user.
    Named(String),
    /// A user that exists only while the service runs, with data in a folder of its own.
    Dynamic,
}

/// How much the service manager takes away from the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceConfinement {
    /// Everything that a server of HTTP and its own files doesn't need.
    Server,
    /// The same, as far as an unprivileged service manager can do it.
    UnprivilegedServer,
    /// Only restrictions that no person's agent would notice.
    AgentStarter,
}

/// When the service counts as started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It says so.
    Notified,
    /// Its program was executed.
    Executed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceSpec {
    pub(super) role: ServiceRole,
    pub(super) scope: ServiceScope,
    pub(super) account: ServiceAccount,
    pub(super) program: PathBuf,
    /// Arguments for the role's command, after its own.
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
}

/// The data folder of a hub with a dynamic user, below `/var/lib`.
pub(super) const STATE_FOLDER: &str = "attache";

/// Pause before a failed service is started again.
pub(super) const RESTART_DELAY: Duration = Duration::from_secs(5);

/// Failures that a restart doesn't cure: wrong arguments, no pairing, and a device that was replaced or disconnected.
pub(super) const FINAL_EXITS: [u8; 3] = [exit::USAGE, exit::NOT_FOUND, exit::DENIED];

// === impl ServiceRole ===

impl ServiceRole {
    pub(super) const ALL: [Self; 2] = [Self::Hub, Self::Runtime];

    /// The name of the service, without the manager's ending.
    pub(super) const fn service_name(self) -> &'static str {
        match self {
            Self::Hub => "attache-hub",
            Self::Runtime => "attache-runtime",
        }
    }

    /// The option that selects it.
    pub(super) const fn option(self) -> &'static str {
        match self {
            Self::Hub => "--hub",
            Self::Runtime => "--runtime",
        }
    }

    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::Hub => "Attaché hub",
            Self::Runtime => "Attaché runtime",
        }
    }

    /// The command that runs in the foreground.
    pub(super) const fn command(self) -> &'static [&'static str] {
        match self {
            Self::Hub => &["hub"],
            Self::Runtime => &["runtime", "start"],
        }
    }

    pub(super) const fn readiness(self) -> Readiness {
        match self {
            Self::Hub => Readiness::Notified,
            // It is ready when its hub answers, which may be tomorrow.
            Self::Runtime => Readiness::Executed,
        }
    }

    /// How long it may take to stop: requests in flight finish, and so does the running task.
    pub(super) const fn stop_timeout(self) -> Duration {
        match self {
            Self::Hub => Duration::from_secs(60),
            Self::Runtime => Duration::from_secs(300),
        }
    }
}

// === impl ServiceScope ===

impl ServiceScope {
    pub(super) const ALL: [Self; 2] = [Self::User, Self::System];

    /// The option that selects it.
    pub(super) const fn option(self) -> &'static str {
        match self {
            Self::User => "--user",
            Self::System => "--system",
        }
    }

    /// The word that people read.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::System => "system",
        }
    }
}

// === impl ServiceSpec ===

impl ServiceSpec {
    /// The complete command line.
    pub(super) fn command_line(&self) -> Vec<String> {
        let program = self.program.to_string_lossy().into_owned();
        let own = self.role.command().iter().map(|&word| word.to_owned());
        [program].into_iter().chain(own).chain(self.arguments.iter().cloned()).collect()
    }

    pub(super) const fn confinement(&self) -> ServiceConfinement {
        match (self.role, self.scope) {
            (ServiceRole::Hub, ServiceScope::System) => ServiceConfinement::Server,
            (ServiceRole::Hub, ServiceScope::User) => ServiceConfinement::UnprivilegedServer,
            (ServiceRole::Runtime, _) => ServiceConfinement::AgentStarter,
        }
    }
}
