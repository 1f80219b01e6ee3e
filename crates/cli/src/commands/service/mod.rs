//! `attache service`: runs the hub or the runtime as a service of this machine, started at boot or login.

mod install;
mod launchd;
mod manager;
mod spec;
mod systemd;

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
};

use attache_protocol::error::exit;
use clap::Subcommand;
use serde::Serialize;

use self::{
    manager::{ServiceManager, ServiceState},
    spec::{ServiceRole, ServiceScope},
};
use crate::{
    env::context::CommandContext,
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextStyle, TextTable},
    },
};

/// Run the hub or the runtime as a service (systemd, launchd)
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache service install                                   your own hub, started at login
  sudo attache service install --system -- --listen 0.0.0.0:7800 --tls-self-signed
  attache service install --runtime                         stay connected with this device's pairing
  attache service install --runtime --dry-run               print the unit and change nothing
  attache service status
  attache service logs --runtime -f
  attache service uninstall --runtime                       data and pairings are kept

A user service starts at login; run `loginctl enable-linger` to start it at boot. A system service needs root.
See docs/install.md.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ServiceCommand,
}

#[derive(Debug, Subcommand)]
enum ServiceCommand {
    Install(install::Args),
    /// Stop a service and remove it; data and pairings are kept
    #[command(after_help = "Examples:
  attache service uninstall
  sudo attache service uninstall --hub --system")]
    Uninstall {
        #[command(flatten)]
        service: ServiceArgs,
        /// Remove the file even if something else wrote it
        #[arg(long)]
        force: bool,
    },
    /// Show the installed services and whether they are running
    #[command(after_help = "Examples:
  attache service status
  attache service status --hub --json")]
    Status {
        #[command(flatten)]
        service: ServiceArgs,
    },
    /// Show a service's log
    #[command(after_help = "Examples:
  attache service logs
  attache service logs --runtime -n 20 -f")]
    Logs {
        #[command(flatten)]
        service: ServiceArgs,
        /// Number of lines
        #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
        lines: u32,
        /// Keep printing new lines
        #[arg(long, short)]
        follow: bool,
    },
}

/// Options that select a service.
#[derive(Debug, Clone, Copy, clap::Args)]
struct ServiceArgs {
    /// The hub (the default)
    #[arg(long, conflicts_with = "runtime")]
    hub: bool,
    /// The runtime, which runs tasks for the agents that this device is paired with
    #[arg(long)]
    runtime: bool,
    /// A system service, started at boot (the default for root)
    #[arg(long, conflicts_with = "user")]
    system: bool,
    /// A service of this user, started at login (the default for everyone else)
    #[arg(long)]
    user: bool,
    /// Service manager [default: that of this operating system]
    #[arg(long, value_name = "NAME")]
    manager: Option<ServiceManager>,
}

/// A service that runs, to be restarted after an update.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunningService {
    role: ServiceRole,
    scope: ServiceScope,
    manager: ServiceManager,
}

/// A service in the list.
#[derive(Debug, Serialize)]
struct ListedService {
    service: &'static str,
    role: ServiceRole,
    scope: ServiceScope,
    manager: ServiceManager,
    file: PathBuf,
    #[serde(flatten)]
    state: ServiceState,
}

#[derive(Debug, Serialize)]
struct ServiceList {
    services: Vec<ListedService>,
}

#[derive(Debug, Serialize)]
struct UninstallSummary {
    service: &'static str,
    scope: ServiceScope,
    file: PathBuf,
    /// False if there was nothing to remove.
    changed: bool,
}

pub(super) fn run(context: &CommandContext, args: Args) -> Result<(), CommandFailure> {
    match args.command {
        ServiceCommand::Install(args) => install::run(context, args),
        ServiceCommand::Uninstall { service, force } => uninstall(context, service, force),
        ServiceCommand::Status { service } => status(context, service),
        ServiceCommand::Logs { service, lines, follow } => {
            let found = installed(context, service)?;
            let one = found.first().ok_or_else(|| not_installed(service))?;
            let (role, scope) = (one.role, one.scope);
            let mut reader = one.manager.log_reader(role, scope, (lines, follow), &context.config)?;
            let error = reader.exec();
            let program = reader.get_program().to_string_lossy().into_owned();
            Err(CommandFailure::failed(format!("can't run `{program}`: {error}"))
                .hint("The log is kept by the service manager of this machine. Is it installed?"))
        }
    }
}

fn uninstall(context: &CommandContext, args: ServiceArgs, force: bool) -> Result<(), CommandFailure> {
    let (role, scope, manager) = (args.role(), args.scope(), args.manager());
    let file = manager.file(role, scope, &context.config)?;
    let found = read(&file)?;
    if let Some(text) = &found {
        need_rights(scope, "uninstall", role)?;
        if !text.contains(manager.marker()) && !force {
            return Err(foreign(&file));
        }
        let has_manager = manager.check(role, scope).is_ok();
        if has_manager {
            manager.stop(role, scope).or_else(|failure| match manager.state(role, scope).active.as_str() {
                // It was never loaded.
                "inactive" | "unknown" => Ok(()),
                _ => Err(failure),
            })?;
        }
        fs::remove_file(&file).map_err(|error| CommandFailure::file("remove", &file, &error))?;
        if has_manager {
            manager.forget(role, scope)?;
        }
    }
    let summary = UninstallSummary { service: role.service_name(), scope, file, changed: found.is_some() };
    if context.output.is_json() {
        return context.output.json(&summary);
    }
    let (name, word) = (role.service_name(), scope.word());
    if !summary.changed {
        context.output.say(format_args!("The {word} service {name} isn't installed."));
        return Ok(());
    }
    context.output.say(format_args!("Removed the {word} service {name}."));
    context.output.say_styled(TextStyle::Dim, "Data, keys and pairings are kept; see docs/install.md to remove them.");
    Ok(())
}

fn status(context: &CommandContext, args: ServiceArgs) -> Result<(), CommandFailure> {
    let services = installed(context, args)?;
    if services.is_empty() && (args.hub || args.runtime || args.system || args.user) {
        return Err(not_installed(args));
    }
    if context.output.is_json() {
        return context.output.json(&ServiceList { services });
    }
    if services.is_empty() {
        context.output.say("No services are installed. To install one: attache service install");
        return Ok(());
    }
    let mut table = TextTable::new(&["SERVICE", "SCOPE", "STATE", "AT START", "PID", "FILE"]);
    for service in &services {
        let style = match service.state.active.as_str() {
            "active" => TextStyle::Good,
            "failed" => TextStyle::Bad,
            _ => TextStyle::Plain,
        };
        table.row([
            TextCell::strong(service.service),
            TextCell::plain(service.scope.word()),
            TextCell::styled(&service.state.active, style),
            TextCell::plain(&service.state.enabled),
            TextCell::plain(service.state.pid.map_or_else(|| "–".to_owned(), |pid| pid.to_string())),
            TextCell::dim(service.file.to_string_lossy()),
        ]);
    }
    context.output.table(&table)
}

/// The running services that `attache service install` made for a program. Those of the system are left out without root.
pub(super) fn running(context: &CommandContext, program: &Path) -> Result<Vec<RunningService>, CommandFailure> {
    let manager = ServiceManager::of_this_system();
    let mut found = Vec::new();
    for role in ServiceRole::ALL {
        for scope in ServiceScope::ALL {
            let Ok(file) = manager.file(role, scope, &context.config) else { continue };
            let Some(text) = read(&file)? else { continue };
            let is_ours = text.contains(manager.marker()) && text.contains(&*program.to_string_lossy());
            let may = scope == ServiceScope::User || rustix::process::geteuid().is_root();
            if is_ours && may && manager.state(role, scope).active == "active" {
                found.push(RunningService { role, scope, manager });
            }
        }
    }
    Ok(found)
}

/// The installed services that the options select; all of them without options.
fn installed(context: &CommandContext, args: ServiceArgs) -> Result<Vec<ListedService>, CommandFailure> {
    let manager = args.manager();
    let mut found = Vec::new();
    for role in ServiceRole::ALL {
        for scope in ServiceScope::ALL {
            if !args.allows_role(role) || !args.allows_scope(scope) {
                continue;
            }
            let file = manager.file(role, scope, &context.config)?;
            if file.exists() {
                let state = manager.state(role, scope);
                found.push(ListedService { service: role.service_name(), role, scope, manager, file, state });
            }
        }
    }
    Ok(found)
}

/// The content of a file; None if there is none.
fn read(file: &Path) -> Result<Option<String>, CommandFailure> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CommandFailure::file("read", file, &error)),
    }
}

fn need_rights(scope: ServiceScope, doing: &str, role: ServiceRole) -> Result<(), CommandFailure> {
    if scope == ServiceScope::User || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let role = role.option();
    Err(CommandFailure::new("denied", exit::DENIED, format!("only root can {doing} a system service")).hint(format!(
        "Run `sudo attache service {doing} {role} --system`, or use your own service manager: {role} --user."
    )))
}

fn foreign(file: &Path) -> CommandFailure {
    CommandFailure::failed(format!("{} wasn't written by `attache service install`", file.display()))
        .hint("Nothing was changed. Look at the file; to replace or remove it anyway, add --force.")
}

fn not_installed(args: ServiceArgs) -> CommandFailure {
    let role = args.role();
    CommandFailure::new("not_found", exit::NOT_FOUND, format!("the service {} isn't installed", role.service_name()))
        .hint(format!(
            "Install it with `attache service install {}`. To list all: attache service status",
            role.option()
        ))
}

// === impl RunningService ===

impl RunningService {
    pub(super) const fn name(self) -> &'static str {
        self.role.service_name()
    }

    /// Restarts it and waits until it is ready.
    pub(super) fn restart(self) -> Result<(), CommandFailure> {
        self.manager.restart(self.role, self.scope)
    }
}

// === impl ServiceArgs ===

impl ServiceArgs {
    const fn role(self) -> ServiceRole {
        if self.runtime { ServiceRole::Runtime } else { ServiceRole::Hub }
    }

    fn scope(self) -> ServiceScope {
        match (self.system, self.user) {
            (true, _) => ServiceScope::System,
            (_, true) => ServiceScope::User,
            _ if rustix::process::geteuid().is_root() => ServiceScope::System,
            _ => ServiceScope::User,
        }
    }

    fn manager(self) -> ServiceManager {
        self.manager.unwrap_or(ServiceManager::of_this_system())
    }

    fn allows_role(self, role: ServiceRole) -> bool {
        !(self.hub || self.runtime) || self.role() == role
    }

    fn allows_scope(self, scope: ServiceScope) -> bool {
        !(self.system || self.user) || self.scope() == scope
    }
}
