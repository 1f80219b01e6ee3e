//! The service manager of this machine: where its files are, and the programs that control it.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use attache_os::program;
use attache_protocol::error::exit;
use serde::Serialize;

use super::{
    launchd,
    spec::{ServiceRole, ServiceScope, ServiceSpec},
    systemd,
};
use crate::{env::config::Config, ui::failure::CommandFailure};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum ServiceManager {
    Systemd,
    Launchd,
}

/// What the service manager says about a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ServiceState {
    /// `active`, `inactive`, `failed`, …, or `unknown` if the manager doesn't answer.
    pub(super) active: String,
    /// `enabled` if it starts at boot or login.
    pub(super) enabled: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pid: Option<u32>,
}

const UNKNOWN: &str = "unknown";

// === impl ServiceManager ===

impl ServiceManager {
    /// The one of this operating system.
    pub(super) const fn of_this_system() -> Self {
        if cfg!(target_os = "macos") { Self::Launchd } else { Self::Systemd }
    }

    /// The file that describes a service.
    pub(super) fn file(
        self,
        role: ServiceRole,
        scope: ServiceScope,
        config: &Config,
    ) -> Result<PathBuf, CommandFailure> {
        let folder = match (self, scope) {
            (Self::Systemd, ServiceScope::System) => PathBuf::from("/etc/systemd/system"),
            (Self::Systemd, ServiceScope::User) => match &config.config_home {
                Some(folder) => folder.join("systemd/user"),
                None => person(config)?.join(".config/systemd/user"),
            },
            (Self::Launchd, ServiceScope::System) => PathBuf::from("/Library/LaunchDaemons"),
            (Self::Launchd, ServiceScope::User) => person(config)?.join("Library/LaunchAgents"),
        };
        Ok(folder.join(match self {
            Self::Systemd => format!("{}.service", role.service_name()),
            Self::Launchd => format!("{}.plist", launchd::label(role)),
        }))
    }

    pub(super) fn render(self, spec: &ServiceSpec, config: &Config) -> Result<String, CommandFailure> {
        Ok(match self {
            Self::Systemd => systemd::render(spec),
            Self::Launchd => launchd::render(spec, &log_folder(spec.scope, config)?),
        })
    }

    /// The line of our own files.
    pub(super) const fn marker(self) -> &'static str {
        match self {
            Self::Systemd => systemd::MARKER,
            Self::Launchd => launchd::MARKER,
        }
    }

    /// Fails if the manager doesn't run here, or isn't there for this user.
    pub(super) fn check(self, role: ServiceRole, scope: ServiceScope) -> Result<(), CommandFailure> {
        let foreground = format!("attache {}", role.command().join(" "));
        match (self, scope) {
            (Self::Systemd, ServiceScope::System) if !Path::new("/run/systemd/system").is_dir() => {
                Err(CommandFailure::failed("systemd isn't running on this machine").hint(format!(
                    "Run `{foreground}` under this machine's service manager, or write the unit without starting it: --no-start."
                )))
            }
            (Self::Systemd, ServiceScope::User) => {
                let asked = run("systemctl", &["--user", "show-environment"]);
                if asked.is_ok_and(|output| output.status.success()) {
                    return Ok(());
                }
                Err(CommandFailure::failed("systemd isn't running for this user").hint(format!(
                    "Sign in as this user (not with su or sudo), install it for the system with --system, run `{foreground}` \
                     by hand, or write the unit without starting it: --no-start."
                )))
            }
            (Self::Systemd, ServiceScope::System) => Ok(()),
            (Self::Launchd, _) if !cfg!(target_os = "macos") => {
                Err(CommandFailure::failed("launchd exists only on macOS")
                    .hint("To print the file: --dry-run. To install for systemd: --manager systemd."))
            }
            (Self::Launchd, _) => Ok(()),
        }
    }

    /// Starts the service now and whenever the machine or the session starts. A changed service is restarted.
    pub(super) fn start(self, role: ServiceRole, scope: ServiceScope, file: &Path) -> Result<(), CommandFailure> {
        match self {
            Self::Systemd => {
                let name = role.service_name();
                systemctl(scope, &["daemon-reload"])?;
                systemctl(scope, &["enable", name])?;
                self.restart(role, scope).map_err(|failure| {
                    failure.hint(format!("See why: attache service logs {} {}", role.option(), scope.option()))
                })
            }
            Self::Launchd => {
                // It is fine if the service isn't loaded yet.
                let _ = launchctl(&["bootout", &target(role, scope)]);
                launchctl(&["bootstrap", &domain(scope), &file.to_string_lossy()])
            }
        }
    }

    /// Restarts it and waits until it is ready.
    pub(super) fn restart(self, role: ServiceRole, scope: ServiceScope) -> Result<(), CommandFailure> {
        match self {
            Self::Systemd => {
                // Lets a service start again after its manager gave up on it.
                let _ = systemctl(scope, &["reset-failed", role.service_name()]);
                systemctl(scope, &["restart", role.service_name()])
            }
            Self::Launchd => launchctl(&["kickstart", "-k", &target(role, scope)]),
        }
    }

    /// Stops the service, now and for good.
    pub(super) fn stop(self, role: ServiceRole, scope: ServiceScope) -> Result<(), CommandFailure> {
        match self {
            Self::Systemd => systemctl(scope, &["disable", "--now", role.service_name()]),
            Self::Launchd => launchctl(&["bootout", &target(role, scope)]),
        }
    }

    /// Forgets a service whose file is gone.
    pub(super) fn forget(self, role: ServiceRole, scope: ServiceScope) -> Result<(), CommandFailure> {
        match self {
            Self::Systemd => {
                systemctl(scope, &["daemon-reload"])?;
                let _ = systemctl(scope, &["reset-failed", role.service_name()]);
                Ok(())
            }
            Self::Launchd => Ok(()),
        }
    }

    pub(super) fn state(self, role: ServiceRole, scope: ServiceScope) -> ServiceState {
        let text = match self {
            Self::Systemd => run(
                "systemctl",
                &[option(scope), "show", role.service_name(), "--property=ActiveState,UnitFileState,MainPID"],
            ),
            Self::Launchd => run("launchctl", &["print", &target(role, scope)]),
        };
        let text = text.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
        match self {
            Self::Systemd => ServiceState::of_systemd(&text),
            Self::Launchd => ServiceState::of_launchd(&text),
        }
    }

    /// The program that prints a service's log.
    pub(super) fn log_reader(
        self,
        role: ServiceRole,
        scope: ServiceScope,
        (lines, follow): (u32, bool),
        config: &Config,
    ) -> Result<Command, CommandFailure> {
        let lines = lines.to_string();
        let mut command;
        match self {
            Self::Systemd => {
                command = Command::new(program::path("journalctl"));
                let unit = match scope {
                    ServiceScope::User => "--user-unit",
                    ServiceScope::System => "--unit",
                };
                command.args([unit, role.service_name(), "--lines", &lines, "--no-pager"]);
            }
            Self::Launchd => {
                command = Command::new(program::path("tail"));
                command.args(["-n", &lines]);
            }
        }
        if follow {
            command.arg("-f");
        }
        if self == Self::Launchd {
            command.arg(launchd::log_file(role, &log_folder(scope, config)?));
        }
        Ok(command)
    }
}

// === impl ServiceState ===

impl ServiceState {
    /// From `KEY=value` lines.
    fn of_systemd(text: &str) -> Self {
        let value = |key: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            found.filter(|value| !value.is_empty())
        };
        Self {
            active: value("ActiveState").unwrap_or(UNKNOWN).to_owned(),
            enabled: value("UnitFileState").unwrap_or(UNKNOWN).to_owned(),
            pid: value("MainPID").and_then(|pid| pid.parse().ok()).filter(|pid| *pid != 0),
        }
    }

    /// From `key = value` lines; nothing if it isn't loaded.
    fn of_launchd(text: &str) -> Self {
        let value = |key: &str| {
            text.lines().find_map(|line| line.trim().strip_prefix(key)?.trim_start().strip_prefix('=')).map(str::trim)
        };
        let loaded = !text.is_empty();
        let active = match value("state") {
            Some("running") => "active",
            Some(_) => "inactive",
            None => UNKNOWN,
        };
        Self {
            active: active.to_owned(),
            enabled: if loaded { "enabled" } else { UNKNOWN }.to_owned(),
            pid: value("pid").and_then(|pid| pid.parse().ok()),
        }
    }
}

fn person(config: &Config) -> Result<PathBuf, CommandFailure> {
    config.user_home.clone().ok_or_else(|| {
        CommandFailure::usage("no home folder found").hint("Set HOME, or install the service with --system.")
    })
}

fn log_folder(scope: ServiceScope, config: &Config) -> Result<PathBuf, CommandFailure> {
    Ok(match scope {
        ServiceScope::System => PathBuf::from("/Library/Logs"),
        ServiceScope::User => person(config)?.join("Library/Logs"),
    })
}

const fn option(scope: ServiceScope) -> &'static str {
    scope.option()
}

/// launchd's name of a scope.
fn domain(scope: ServiceScope) -> String {
    match scope {
        ServiceScope::System => "system".to_owned(),
        ServiceScope::User => format!("gui/{}", rustix::process::getuid().as_raw()),
    }
}

fn target(role: ServiceRole, scope: ServiceScope) -> String {
    format!("{}/{}", domain(scope), launchd::label(role))
}

fn run(name: &str, args: &[&str]) -> io::Result<Output> {
    Command::new(program::path(name)).args(args).output()
}

fn systemctl(scope: ServiceScope, args: &[&str]) -> Result<(), CommandFailure> {
    let mut all = vec![option(scope)];
    all.extend(args);
    succeed("systemctl", &all)
}

fn launchctl(args: &[&str]) -> Result<(), CommandFailure> {
    succeed("launchctl", args)
}

fn succeed(program: &str, args: &[&str]) -> Result<(), CommandFailure> {
    let line = format!("{program} {}", args.join(" "));
    match run(program, args) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let messages = String::from_utf8_lossy(&output.stderr);
            Err(CommandFailure::failed(format!("`{line}` failed: {}", messages.trim())))
        }
        Err(error) => Err(CommandFailure::new("failed", exit::FAILED, format!("can't run `{line}`: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_service_managers_are_understood() {
        let state = |active: &str, enabled: &str, pid| ServiceState {
            active: active.to_owned(),
            enabled: enabled.to_owned(),
            pid,
        };
        let text = "MainPID=812\nActiveState=active\nUnitFileState=enabled\n";
        assert_eq!(ServiceState::of_systemd(text), state("active", "enabled", Some(812)));
        let text = "MainPID=0\nActiveState=failed\nUnitFileState=\n";
        assert_eq!(ServiceState::of_systemd(text), state("failed", "unknown", None));
        assert_eq!(ServiceState::of_systemd(""), state("unknown", "unknown", None));
        let text = "io.attache.hub = {\n\tactive count = 1\n\tstate = running\n\n\tpid = 812\n}\n";
        assert_eq!(ServiceState::of_launchd(text), state("active", "enabled", Some(812)));
        let text = "io.attache.hub = {\n\tstate = not running\n}\n";
        assert_eq!(ServiceState::of_launchd(text), state("inactive", "enabled", None));
        assert_eq!(ServiceState::of_launchd(""), state("unknown", "unknown", None));
    }
}
