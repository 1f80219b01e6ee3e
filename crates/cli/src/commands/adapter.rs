//! `attache adapter`: serves an agent program to this device's runtime.

use std::{
    ffi::OsString,
    fs, io,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use attache_adapter::{
    Adapter, AdapterWalls, Driver, Environment, HiddenFolder, HostMemory, Options, OtherAgentFolders,
    driver::{CommandDriver, ConformanceDriver, ShellDriver},
    preset,
};
use attache_os::control_group::ControlGroups;
use attache_protocol::{
    Secret,
    error::exit,
    secret::Kind,
    wire::{host_session::KeptSessions, run::SandboxLimit},
};
use attache_runtime::profile::Profiles;
use clap::Subcommand;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    env::{
        config,
        context::CommandContext,
        home,
        hosts::{self, CUSTOM, ChosenHost},
        walls,
    },
    server::process,
    ui::{failure::CommandFailure, output::TextStyle, signals::TerminationSignals},
};

/// Serve an agent to this device's runtime: a coding agent, a shell or any program
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache adapter shell                        every task is a shell script
  attache adapter command -- wc -w             the task goes to standard input, the answer comes from standard output
  attache adapter command -- my-agent --task {}   {} is replaced by the task
  attache adapter claude                       Claude Code; for Codex: attache adapter codex
  attache adapter preset gemini                a host from the preset table; `attache doctor` lists installed ones
  attache adapter acp -- my-agent --acp        any program that speaks the Agent Client Protocol

Then: attache runtime pair CODE --api-base URL --local-agent-endpoint http://127.0.0.1:PORT
If the profile names no adapter, `attache runtime start` starts and supervises its own. See docs/hosts.md for the supported
hosts and docs/adapter.md for how to write your own adapter in any language.")]
pub(crate) struct Args {
    #[command(subcommand)]
    driver: AdapterDriverCommand,
}

#[derive(Debug, Subcommand)]
enum AdapterDriverCommand {
    /// Run each task as a script with `sh`
    Shell(AdapterCommonArgs),
    /// Pass each task to a program, which prints the answer
    Command {
        #[command(flatten)]
        common: AdapterCommonArgs,
        /// The program and its arguments; `{}` is replaced by the task
        #[arg(required = true, last = true, value_name = "PROG")]
        program: Vec<OsString>,
    },
    /// Claude Code
    Claude(HostDriverArgs),
    /// Codex
    Codex(HostDriverArgs),
    /// A host from the preset table: gemini, hermes, opencode, …
    Preset {
        #[command(flatten)]
        host: HostDriverArgs,
        /// Preset name
        name: String,
    },
    /// A program that speaks the Agent Client Protocol
    Acp {
        #[command(flatten)]
        common: AdapterCommonArgs,
        /// Whose conversations continue the agent's session from one task to the next: its
        /// owner's, everyone's (without a value), or none [default: own]
        #[arg(long, value_name = KeptSessions::CHOICES, value_parser = hosts::kept_sessions, num_args = 0..=1, require_equals = true, default_missing_value = "all")]
        keep_sessions: Option<KeptSessions>,
        /// The program and its arguments
        #[arg(required = true, last = true, value_name = "PROG")]
        program: Vec<OsString>,
    },
    /// An agent for the public A2A conformance kits; runs many tasks at a time
    Conformance {
        #[command(flatten)]
        common: AdapterCommonArgs,
        /// Duration of slow operations; the kits call it TCK_STREAMING_TIMEOUT
        #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
        streaming_timeout: Duration,
    },
}

#[derive(Debug, clap::Args)]
struct HostDriverArgs {
    #[command(flatten)]
    common: AdapterCommonArgs,
    /// The host's program [default: found in PATH]
    #[arg(long, value_name = "PROG")]
    program: Option<String>,
    /// Whose conversations continue the host's session from one task to the next: the agent
    /// owner's, everyone's (without a value), or none [default: own]
    #[arg(long, value_name = KeptSessions::CHOICES, value_parser = hosts::kept_sessions, num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    keep_sessions: Option<KeptSessions>,
}

#[derive(Debug, clap::Args)]
struct AdapterCommonArgs {
    /// Loopback address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// File with instructions to send with every task
    #[arg(long, value_name = "FILE")]
    instruction_file: Option<PathBuf>,
    /// Working folder for tasks [default: the current folder]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Pass this environment variable to tasks; repeatable
    #[arg(long = "pass-env", value_name = "NAME")]
    pass_env: Vec<String>,
    /// Maximum number of concurrent tasks; set the same number on the runtime [default: 1]
    #[arg(long, value_name = "N")]
    concurrency: Option<NonZeroUsize>,
    /// Write {"url":…} to this file when ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Exit when standard input closes, which happens when the parent process exits
    #[arg(long)]
    exit_with_parent: bool,
}

#[derive(Serialize)]
struct AdapterReadyFile<'a> {
    url: &'a str,
    secret_file: &'a Path,
}

/// The file that holds the adapter's secret while it runs.
#[derive(Debug)]
struct AdapterSecretFile {
    path: PathBuf,
    keep: SecretRetention,
}

/// Whether the secret outlives this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecretRetention {
    /// The user chose the port. Profiles store the secret, so the next adapter on that port reuses it.
    ForNextTime,
    Remove,
}

/// The conformance kits start many tasks at once.
const CONFORMANCE_CONCURRENCY: usize = 200;

// === impl Args ===

impl Args {
    /// Whether a runtime supervises this adapter and prints its messages.
    pub(super) const fn is_supervised(&self) -> bool {
        self.driver.common().exit_with_parent
    }
}

// === impl AdapterDriverCommand ===

impl AdapterDriverCommand {
    /// Whether it drives an agent with a state folder and a model of its own.
    const fn is_host(&self) -> bool {
        match self {
            Self::Shell(_) | Self::Command { .. } | Self::Conformance { .. } => false,
            Self::Acp { .. } | Self::Claude(_) | Self::Codex(_) | Self::Preset { .. } => true,
        }
    }

    const fn common(&self) -> &AdapterCommonArgs {
        match self {
            Self::Shell(common)
            | Self::Command { common, .. }
            | Self::Conformance { common, .. }
            | Self::Acp { common, .. } => common,
            Self::Claude(host) | Self::Codex(host) | Self::Preset { host, .. } => &host.common,
        }
    }
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let mut at_a_time = None;
    let plain = |common: &AdapterCommonArgs| config::task_environment(&common.pass_env);
    check_common(&context, args.driver.common())?;
    let is_host = args.driver.is_host();
    let (driver, environment, common): (Arc<dyn Driver>, Environment, AdapterCommonArgs) = match args.driver {
        AdapterDriverCommand::Shell(common) => (Arc::new(ShellDriver), plain(&common), common),
        AdapterDriverCommand::Conformance { common, streaming_timeout } => {
            at_a_time = NonZeroUsize::new(CONFORMANCE_CONCURRENCY);
            (Arc::new(ConformanceDriver { streaming_timeout, ..ConformanceDriver::default() }), plain(&common), common)
        }
        AdapterDriverCommand::Command { common, program } => {
            let (name, words) = split(program);
            (Arc::new(CommandDriver::new(name, words)), plain(&common), common)
        }
        AdapterDriverCommand::Acp { common, keep_sessions, program } => {
            let (name, words) = split(program);
            let table = hosts::table(&context)?;
            let custom = table.get(CUSTOM).expect("a test reads the table that comes along");
            let host = hosts::named(&config::detection_environment(), custom, name, words)?;
            let (driver, environment) = host_driver(&context, host, keep_sessions, &common).await?;
            (driver, environment, common)
        }
        AdapterDriverCommand::Claude(args) => by_name(&context, "claude_cli", args).await?,
        AdapterDriverCommand::Codex(args) => by_name(&context, "codex", args).await?,
        AdapterDriverCommand::Preset { host, name } => by_name(&context, &name, host).await?,
    };
    let home = context.home()?;
    let adapters = home.adapters();
    home::private_folder(&adapters).map_err(|error| CommandFailure::file("use the folder", &adapters, &error))?;
    // Not in $A2A_HOME: the path would reveal to every task where the keys are.
    let scratch = config::temporary_folder();
    let keep = if common.listen.port() == 0 { SecretRetention::Remove } else { SecretRetention::ForNextTime };
    let earlier =
        (keep == SecretRetention::ForNextTime).then(|| home::read_secret(&home.adapter_secret(common.listen)).ok());
    let secret = earlier.flatten().unwrap_or_else(|| Kind::AdapterSecret.generate(&context.env));

    let cwd = working_directory(common.cwd, common.exit_with_parent)?;
    let walls = walls(&context, is_host, &cwd).await?;
    let mut options = Options::new(driver, secret.clone(), cwd, scratch);
    options.listen = common.listen;
    options.environment = environment;
    options.instructions = common.instruction_file.as_deref().map(read_instructions).transpose()?;
    options.concurrency = common.concurrency.or(at_a_time).unwrap_or(NonZeroUsize::MIN);
    options.env = context.env.clone();
    options.walls = Some(walls);
    let adapter = Adapter::bind(options).await.map_err(|error| {
        let exit = if matches!(error, attache_adapter::BindError::NotLoopback(_)) { exit::USAGE } else { exit::FAILED };
        CommandFailure::new("failed", exit, error.to_string())
    })?;
    let address = adapter.local_addr();
    let file = AdapterSecretFile::write(home.adapter_secret(address), &secret, keep)?;
    let url = format!("http://{address}");
    process::write_ready(common.ready_file.as_deref(), &AdapterReadyFile { url: &url, secret_file: &file.path })?;
    if !common.exit_with_parent {
        context.output.line(&url)?;
        context.output.say_styled(TextStyle::Dim, format_args!("Secret file: {}", file.path.display()));
        context.output.say_styled(
            TextStyle::Dim,
            format_args!("Next: attache runtime pair CODE --api-base URL --local-agent-endpoint {url}"),
        );
    }

    attache_os::process_tree::adopt_orphans().map_err(|error| {
        CommandFailure::failed(format!("this system doesn't let the adapter stop leftover processes of tasks: {error}"))
    })?;
    let shutdown = CancellationToken::new();
    let served = adapter.run(shutdown.clone());
    tokio::pin!(served);
    let mut signals = TerminationSignals::new()?;
    let ended = tokio::select! {
        ended = &mut served => ended,
        () = termination_requested(&mut signals, common.exit_with_parent) => {
            shutdown.cancel();
            tokio::select! {
                ended = served => ended,
                // The second signal doesn't wait for the task to finish.
                () = signals.next() => Ok(()),
            }
        }
    };
    drop(file);
    if let Some(ready) = common.ready_file.filter(|_| common.exit_with_parent) {
        // Only the parent process knows this adapter.
        let _ = fs::remove_file(ready);
    }
    ended.map_err(|error| CommandFailure::failed(format!("the adapter stopped: {error}")).hint("Restart it."))
}

/// Rejects variables and folders that would give an agent access to our own folders.
fn check_common(context: &CommandContext, common: &AdapterCommonArgs) -> Result<(), CommandFailure> {
    if let Some(name) = common.pass_env.iter().find(|name| config::OWN_VARIABLES.contains(&name.as_str())) {
        return Err(CommandFailure::usage(format!("{name} can't be passed to tasks: it leads to this machine's keys"))
            .hint("Remove it; pass what a task needs under another name."));
    }
    let cwd = working_directory(common.cwd.clone(), common.exit_with_parent)?;
    home::refuse_own_folder(&context.config, None, &cwd)
}

async fn by_name(
    context: &CommandContext,
    name: &str,
    args: HostDriverArgs,
) -> Result<(Arc<dyn Driver>, Environment, AdapterCommonArgs), CommandFailure> {
    let host = hosts::host(context, name, args.program.as_deref()).map_err(|failure| CommandFailure {
        hint: failure.hint.replace("--local-executor-ref", "--program"),
        ..failure
    })?;
    let (driver, environment) = host_driver(context, host, args.keep_sessions, &args.common).await?;
    Ok((driver, environment, args.common))
}

/// Builds the driver of a host with the environment that the host can see.
async fn host_driver(
    context: &CommandContext,
    mut host: ChosenHost,
    keep_sessions: Option<KeptSessions>,
    common: &AdapterCommonArgs,
) -> Result<(Arc<dyn Driver>, Environment), CommandFailure> {
    host.preset.env.extend(common.pass_env.iter().cloned());
    let mut setup = host.preset.setup(&host.program);
    setup.args.append(&mut host.args);
    setup.version = host.quick_version().await?;
    let kept = match keep_sessions {
        None if !host.preset.driver.keeps_sessions() => KeptSessions::Off,
        chosen => chosen.unwrap_or_default(),
    };
    if kept != KeptSessions::Off {
        let folder = host.sessions(&context.home()?)?;
        home::private_folder(&folder).map_err(|error| CommandFailure::file("use the folder", &folder, &error))?;
        setup.memory =
            if kept == KeptSessions::All { HostMemory::PerConversation(folder) } else { HostMemory::OfOwner(folder) };
    }
    Ok((preset::driver(&host.preset, setup), config::detection_environment().environment_of(&host.preset)))
}

/// The walls of this machine. Trying them out takes a moment, so it happens once, before any task.
async fn walls(context: &CommandContext, is_host: bool, cwd: &Path) -> Result<AdapterWalls, CommandFailure> {
    let launcher = walls::launcher()?;
    let (launcher, proof) = tokio::task::spawn_blocking(move || {
        let proof = launcher.prove();
        (launcher, proof)
    })
    .await
    .map_err(|error| CommandFailure::failed(format!("can't test this machine's sandbox: {error}")))?;
    tracing::debug!(%proof, "walls");
    let hide: Vec<_> = home::own_folders(&context.config).into_iter().map(HiddenFolder::new).collect();
    let (mut proved, mut made_of, proved_at) = (proof.limits(), proof.made_of, context.env.now());
    let resources = walls::resources(&hosts::table(context)?);
    let control_groups = ControlGroups::prepare(resources);
    if !proved.is_empty() && control_groups.as_ref().is_some_and(ControlGroups::limits_everything) {
        made_of.push_str(", cgroup");
    }
    let others = other_folders(context);
    if !launcher.has_namespaces() {
        let is_below = |cwd: PathBuf| {
            let is_nested = |folder: &PathBuf| *folder != cwd && folder.starts_with(&cwd);
            hide.iter().any(|folder| folder.is_below(&cwd))
                || (others.0)().map_or(true, |others| others.iter().any(is_nested))
        };
        let holds_ours = cwd.canonicalize().is_ok_and(is_below);
        // A host needs a home folder of its own inside, and a way to its model.
        proved.retain(|limit| !is_host && (*limit != SandboxLimit::CwdOnly || !holds_ours));
    }
    let launcher = Arc::new(launcher);
    Ok(AdapterWalls { launcher, proved, made_of, proved_at, hide, others, resources, control_groups })
}

/// The folders of the agents of this device, as they are now.
fn other_folders(context: &CommandContext) -> OtherAgentFolders {
    let profiles = context.home().ok().map(|home| Profiles::at(home.path(), context.env.clone()));
    OtherAgentFolders(Arc::new(move || match &profiles {
        Some(profiles) => profiles.folders().map_err(io::Error::other),
        None => Ok(Vec::new()),
    }))
}

fn split(program: Vec<OsString>) -> (OsString, Vec<OsString>) {
    let mut words = program.into_iter();
    let name = words.next().expect("clap asks for at least one value");
    (name, words.collect())
}

/// Ctrl-C reaches every process of the terminal, so a supervised adapter leaves it to its runtime.
async fn termination_requested(signals: &mut TerminationSignals, supervised: bool) {
    if supervised {
        tokio::select! {
            () = process::parent_gone() => {}
            () = signals.terminated() => {}
        }
    } else {
        signals.next().await;
    }
}

/// Parses seconds, with a fraction if wanted, up to ten minutes.
fn seconds(text: &str) -> Result<Duration, String> {
    let given = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    given.filter(|time| *time <= Duration::from_secs(600)).ok_or_else(|| "must be a number from 0 to 600".to_owned())
}

/// The runtime resolved all links of the folder when it was paired. A link in its path was added since.
fn working_directory(given: Option<PathBuf>, supervised: bool) -> Result<PathBuf, CommandFailure> {
    match given {
        Some(path) if supervised && path.canonicalize().is_ok_and(|real| real != path) => Err(CommandFailure::failed(
            format!("{} now contains a symbolic link", path.display()),
        )
        .hint("Restore the original folder. If you added the link yourself, run `attache runtime set --cwd DIR`, then start the runtime again.")),
        Some(path) => Ok(path),
        None => std::env::current_dir().map_err(|error| {
            CommandFailure::failed(format!("can't use the current folder: {error}"))
                .hint("Choose a folder with --cwd DIR.")
        }),
    }
}

fn read_instructions(path: &Path) -> Result<String, CommandFailure> {
    fs::read_to_string(path).map_err(|error| CommandFailure::file("read the instructions in", path, &error))
}

// === impl AdapterSecretFile ===

impl AdapterSecretFile {
    fn write(path: PathBuf, secret: &Secret<String>, keep: SecretRetention) -> Result<Self, CommandFailure> {
        let text = format!("{}\n", secret.expose());
        home::write_private(&path, text.as_bytes()).map_err(|error| CommandFailure::file("write", &path, &error))?;
        Ok(Self { path, keep })
    }
}

impl Drop for AdapterSecretFile {
    fn drop(&mut self) {
        if self.keep == SecretRetention::Remove
            && let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "can't remove the adapter's secret");
        }
    }
}
