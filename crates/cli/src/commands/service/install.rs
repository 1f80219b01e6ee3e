//! `attache service install`: describes the service, writes its file and starts it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use attache_os::private_file;
use attache_protocol::error::exit;
use attache_runtime::profile::Profiles;
use serde::Serialize;

use super::{
    ServiceArgs, foreign,
    manager::ServiceManager,
    need_rights, read,
    spec::{STATE_FOLDER, ServiceAccount, ServiceRole, ServiceScope, ServiceSpec},
};
use crate::{
    env::{
        config,
        context::CommandContext,
        home::{DEFAULT_LISTEN, Home},
    },
    ui::{
        failure::CommandFailure,
        output::{TextStyle, clean},
    },
};

/// Install and start a service; run it again to change the service
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache service install
  attache service install --runtime
  attache service install --dry-run
  sudo attache service install --hub --system -- --listen 0.0.0.0:7800 --tls-self-signed
  sudo attache service install --runtime --system --run-as ann

Arguments after -- are passed to `attache hub` or `attache runtime start`. A hub that is a system service keeps
its data in /var/lib/attache and runs as its own user. A runtime starts agents, so it runs as the person whose agents they are.")]
pub(super) struct Args {
    #[command(flatten)]
    service: ServiceArgs,
    /// Print the file and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Write the file only; don't enable or start the service
    #[arg(long)]
    no_start: bool,
    /// Replace the file even if something else wrote it
    #[arg(long)]
    force: bool,
    /// Account that a system service runs as [default for a runtime: the user who ran sudo]
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,
    /// Arguments for `attache hub` or `attache runtime start`
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<String>,
}

#[derive(Debug, Serialize)]
struct InstallSummary {
    service: &'static str,
    role: ServiceRole,
    scope: ServiceScope,
    manager: ServiceManager,
    file: PathBuf,
    /// Whether the file is new or different.
    changed: bool,
    started: bool,
    /// What to do next.
    next: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PlannedService {
    service: &'static str,
    file: PathBuf,
    text: String,
}

/// Units are readable for everyone: they contain no secret.
const FILE_MODE: u32 = 0o644;

pub(super) fn run(context: &CommandContext, args: Args) -> Result<(), CommandFailure> {
    let (role, scope, manager) = (args.service.role(), args.service.scope(), args.service.manager());
    check_arguments(role, &args.arguments)?;
    let spec = describe(context, &args)?;
    let file = manager.file(role, scope, &context.config)?;
    let text = manager.render(&spec, &context.config)?;
    let service = role.service_name();
    if args.dry_run {
        if context.output.is_json() {
            return context.output.json(&PlannedService { service, file, text });
        }
        context.output.say_styled(TextStyle::Dim, format_args!("{} would contain:", file.display()));
        return context.output.raw(&text);
    }
    need_rights(scope, "install", role)?;
    if !args.no_start {
        manager.check(role, scope)?;
    }
    check_program(&spec)?;
    check_pairing(context, role, scope)?;
    let changed = write(&file, &text, manager, args.force)?;
    if !args.no_start {
        manager.start(role, scope, &file)?;
    }
    let started = !args.no_start;
    let next = next_steps(&spec, manager, started);
    let summary = InstallSummary { service, role, scope, manager, file, changed, started, next };
    if context.output.is_json() {
        return context.output.json(&summary);
    }
    let what = match (changed, started) {
        (true, true) => "Installed and started",
        (true, false) => "Wrote",
        (false, true) => "Already installed; restarted",
        (false, false) => "Already up to date:",
    };
    context.output.say(format_args!("{what} the {} service {service}.", scope.word()));
    context.output.line(summary.file.display())?;
    for step in &summary.next {
        context.output.say(clean::line(step));
    }
    Ok(())
}

/// Finds wrong arguments now, and not in the log of a service that doesn't start.
fn check_arguments(role: ServiceRole, arguments: &[String]) -> Result<(), CommandFailure> {
    let words = ["attache"].iter().chain(role.command()).map(|&word| word.to_owned());
    let parsed = super::super::command().try_get_matches_from(words.chain(arguments.iter().cloned()));
    parsed.map(drop).map_err(CommandFailure::from)
}

fn describe(context: &CommandContext, args: &Args) -> Result<ServiceSpec, CommandFailure> {
    let (role, scope, manager) = (args.service.role(), args.service.scope(), args.service.manager());
    let program = std::env::current_exe()
        .map_err(|error| CommandFailure::failed(format!("can't find the path of this program: {error}")))?;
    let account = match scope {
        ServiceScope::User if args.run_as.is_some() => {
            return Err(CommandFailure::usage("--run-as needs --system")
                .hint("A user service runs as its user. Run the command as that user, or add --system."));
        }
        ServiceScope::User => ServiceAccount::Own,
        ServiceScope::System => system_account(role, manager, args.run_as.clone())?,
    };
    let mut environment = match scope {
        ServiceScope::User => context.config.unusual_homes(),
        // The service doesn't use the home folders of the person who installs it.
        ServiceScope::System => Vec::new(),
    };
    if role == ServiceRole::Runtime {
        // Agents are found as in the shell from which the service is installed; a service manager has a PATH of its own.
        environment.extend(config::absolute_search_path().map(|path| ("PATH".to_owned(), path)));
    }
    Ok(ServiceSpec { role, scope, account, program, arguments: args.arguments.clone(), environment })
}

fn system_account(
    role: ServiceRole,
    manager: ServiceManager,
    user: Option<String>,
) -> Result<ServiceAccount, CommandFailure> {
    if role == ServiceRole::Hub && manager == ServiceManager::Systemd && user.is_none() {
        return Ok(ServiceAccount::Dynamic);
    }
    let Some(user) = user.or_else(config::invoking_user) else {
        return Err(CommandFailure::usage("this service needs a user")
            .hint("Name the user it runs as: --run-as USER. Or install it as that user, with --user."));
    };
    let known = Command::new(attache_os::program::path("id")).args(["-u", "--", &user]).output();
    if known.is_ok_and(|output| output.status.success()) {
        return Ok(ServiceAccount::Named(user));
    }
    Err(CommandFailure::new("not_found", exit::NOT_FOUND, format!("there is no user `{user}` on this machine"))
        .hint("Pass an existing user: --run-as USER."))
}

/// A confined service doesn't see the home folders and the temporary files of this machine, where the program may be.
fn check_program(spec: &ServiceSpec) -> Result<(), CommandFailure> {
    let hidden = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];
    let is_hidden = hidden.iter().any(|folder| spec.program.starts_with(folder));
    if spec.account == ServiceAccount::Dynamic && is_hidden {
        let program = spec.program.display();
        return Err(CommandFailure::failed(format!("a system service can't start {program}")).hint(format!(
            "It can't see people's folders. Copy the program first: sudo install {program} /usr/local/bin/attache, and \
             run that one."
        )));
    }
    Ok(())
}

/// A runtime without a pairing would end at once.
fn check_pairing(context: &CommandContext, role: ServiceRole, scope: ServiceScope) -> Result<(), CommandFailure> {
    if role != ServiceRole::Runtime || scope != ServiceScope::User {
        return Ok(());
    }
    let home = Home::at(context.config.home()?);
    let set = Profiles::at(home.path(), context.env.clone()).load()?;
    set.select(None).map(drop).map_err(|error| {
        CommandFailure::from(error).hint("Pair this device first: attache runtime pair CODE --api-base URL")
    })
}

/// Writes the file atomically; false if it has this content already. A file of someone else is left alone.
fn write(file: &Path, text: &str, manager: ServiceManager, force: bool) -> Result<bool, CommandFailure> {
    match read(file)? {
        Some(found) if found == text => return Ok(false),
        Some(found) if !found.contains(manager.marker()) && !force => return Err(foreign(file)),
        _ => {}
    }
    let failed = |error| CommandFailure::file("write", file, &error);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    private_file::replace(file, text.as_bytes(), FILE_MODE).map_err(failed)?;
    Ok(true)
}

fn next_steps(spec: &ServiceSpec, manager: ServiceManager, started: bool) -> Vec<String> {
    let options = format!("{} {}", spec.role.option(), spec.scope.option());
    let mut next = Vec::new();
    if !started {
        next.push(format!("Start it: attache service install {options}"));
        return next;
    }
    match (spec.role, &spec.account) {
        (ServiceRole::Hub, ServiceAccount::Dynamic) => {
            let home = Home::at(Path::new("/var/lib").join(STATE_FOLDER));
            let address = home.recorded_hub().map_or_else(|| format!("http://{DEFAULT_LISTEN}"), |hub| hub.origin);
            let key = home.hub().join("admin.key");
            next.push(format!("Sign in: sudo attache login --hub {address} --key-file {}", key.display()));
        }
        (ServiceRole::Hub, _) => next.push("Sign in: attache login".to_owned()),
        (ServiceRole::Runtime, _) => next.push("See whether it is connected: attache runtime status".to_owned()),
    }
    next.push(format!("See its state and its log: attache service status; attache service logs {options}"));
    if spec.scope == ServiceScope::User && manager == ServiceManager::Systemd {
        next.push("Keep it running when you log out, and start it at boot: loginctl enable-linger".to_owned());
    }
    next
}
