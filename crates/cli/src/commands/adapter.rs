//! `attache adapter`: the last hop on a device, for our own kinds of agents.

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
    Adapter, Driver, Environment, HostMemory, Options,
    driver::{CommandDriver, ConformanceDriver, ShellDriver},
    preset,
};
use attache_protocol::{Secret, error::exit, secret::Kind};
use clap::Subcommand;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    CommandContext, CommandFailure, config, home,
    hosts::{self, CUSTOM, ChosenHost},
    output::TextStyle,
    process::{self, TerminationSignals},
};

/// Serve an agent to this device's runtime: a coding agent, a shell, any program
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache adapter shell                        every task is a shell script
  attache adapter command -- wc -w             the task on standard input, the answer from standard output
  attache adapter command -- my-agent --task {}   the task in the place of {}
  attache adapter claude                       Claude Code; `attache adapter codex` is Codex
  attache adapter preset gemini                a host of the table; `attache doctor` says which are here
  attache adapter acp -- my-agent --acp        any program that speaks the Agent Client Protocol

Then: attache runtime pair CODE --api-base URL --local-agent-endpoint http://127.0.0.1:PORT
`attache runtime start` supervises an adapter of its own when the profile names none. docs/hosts.md is about the hosts,
docs/adapter.md says how to write an adapter of your own in any language.")]
pub(crate) struct Args {
    #[command(subcommand)]
    driver: AdapterDriverCommand,
}

#[derive(Debug, Subcommand)]
enum AdapterDriverCommand {
    /// The task's text is a script for `sh`
    Shell(AdapterCommonArgs),
    /// The task's text goes to a program, which prints the answer
    Command {
        #[command(flatten)]
        common: AdapterCommonArgs,
        /// The program and its arguments; an argument `{}` stands for the task's text
        #[arg(required = true, last = true, value_name = "PROG")]
        program: Vec<OsString>,
    },
    /// Claude Code
    Claude(HostDriverArgs),
    /// Codex
    Codex(HostDriverArgs),
    /// A host of the table, by its name: gemini, hermes, opencode, …
    Preset {
        #[command(flatten)]
        host: HostDriverArgs,
        /// The host's name
        name: String,
    },
    /// A program that speaks the Agent Client Protocol
    Acp {
        #[command(flatten)]
        common: AdapterCommonArgs,
        /// Let the agent remember a conversation from one task to the next
        #[arg(long)]
        keep_sessions: bool,
        /// The program and its arguments
        #[arg(required = true, last = true, value_name = "PROG")]
        program: Vec<OsString>,
    },
    /// Behaves as the public A2A conformance kits ask, many tasks at a time
    Conformance {
        #[command(flatten)]
        common: AdapterCommonArgs,
        /// How long things take that take a while; the kits call it TCK_STREAMING_TIMEOUT
        #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
        streaming_timeout: Duration,
    },
}

#[derive(Debug, clap::Args)]
struct HostDriverArgs {
    #[command(flatten)]
    common: AdapterCommonArgs,
    /// The host's program [default: what PATH has]
    #[arg(long, value_name = "PROG")]
    program: Option<String>,
    /// Let the host remember a conversation from one task to the next
    #[arg(long)]
    keep_sessions: bool,
}

#[derive(Debug, clap::Args)]
struct AdapterCommonArgs {
    /// Where to listen, on this device only; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A file with instructions that go with every task
    #[arg(long, value_name = "FILE")]
    instruction_file: Option<PathBuf>,
    /// Where tasks work [default: here]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Let tasks see this environment variable as well (may be repeated)
    #[arg(long = "pass-env", value_name = "NAME")]
    pass_env: Vec<String>,
    /// How many tasks execute at a time; give the runtime the same number [default: 1]
    #[arg(long, value_name = "N")]
    concurrency: Option<NonZeroUsize>,
    /// Write {"url":…} to this file once it listens
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// End when standard input is closed, which it is when the parent ends
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
    /// A port that the user chose: profiles remember the secret, so the next adapter there uses it again.
    ForNextTime,
    Remove,
}

/// The kits ask many things at once.
const CONFORMANCE_CONCURRENCY: usize = 200;

// === impl Args ===

impl Args {
    /// Whether a runtime supervises this adapter, which then does the talking.
    pub(super) const fn is_supervised(&self) -> bool {
        self.driver.common().exit_with_parent
    }
}

// === impl AdapterDriverCommand ===

impl AdapterDriverCommand {
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
    // Not in our home: its path would tell every task where our keys are.
    let scratch = config::temporary_folder();
    let keep = if common.listen.port() == 0 { SecretRetention::Remove } else { SecretRetention::ForNextTime };
    let earlier =
        (keep == SecretRetention::ForNextTime).then(|| home::read_secret(&home.adapter_secret(common.listen)).ok());
    let secret = earlier.flatten().unwrap_or_else(|| Kind::AdapterSecret.generate(&context.env));

    let mut options = Options::new(driver, secret.clone(), working_directory(common.cwd)?, scratch);
    options.listen = common.listen;
    options.environment = environment;
    options.instructions = common.instruction_file.as_deref().map(read_instructions).transpose()?;
    options.concurrency = common.concurrency.or(at_a_time).unwrap_or(NonZeroUsize::MIN);
    options.env = context.env.clone();
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
        context.output.say_styled(TextStyle::Dim, format_args!("Its secret is in {}.", file.path.display()));
        context.output.say_styled(
            TextStyle::Dim,
            format_args!("Next: attache runtime pair CODE --api-base URL --local-agent-endpoint {url}"),
        );
    }

    attache_adapter::adopt_orphans().map_err(|error| {
        CommandFailure::failed(format!("this system does not let an adapter end what tasks leave: {error}"))
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
                // The second signal does not wait for the task's end.
                () = signals.next() => Ok(()),
            }
        }
    };
    drop(file);
    if let Some(ready) = common.ready_file.filter(|_| common.exit_with_parent) {
        // Nobody but the parent knows of it.
        let _ = fs::remove_file(ready);
    }
    ended.map_err(|error| CommandFailure::failed(format!("the adapter cannot go on: {error}")).hint("Start it again."))
}

/// What an agent sees never leads into a folder of ours.
fn check_common(context: &CommandContext, common: &AdapterCommonArgs) -> Result<(), CommandFailure> {
    if let Some(name) = common.pass_env.iter().find(|name| config::OWN_VARIABLES.contains(&name.as_str())) {
        return Err(CommandFailure::usage(format!("tasks do not see {name}: it leads to the keys of this machine"))
            .hint("Leave it out; hand a task what it needs under another name."));
    }
    let cwd = working_directory(common.cwd.clone())?;
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

/// The driver of a host, and what the host may see.
async fn host_driver(
    context: &CommandContext,
    mut host: ChosenHost,
    keep_sessions: bool,
    common: &AdapterCommonArgs,
) -> Result<(Arc<dyn Driver>, Environment), CommandFailure> {
    host.preset.env.extend(common.pass_env.iter().cloned());
    let mut setup = host.preset.setup(&host.program);
    setup.args.append(&mut host.args);
    setup.version = host.quick_version().await?;
    if keep_sessions {
        let folder = host.sessions(&context.home()?)?;
        home::private_folder(&folder).map_err(|error| CommandFailure::file("use the folder", &folder, &error))?;
        setup.memory = HostMemory::PerConversation(folder);
    }
    Ok((preset::driver(&host.preset, setup), config::detection_environment().environment_of(&host.preset)))
}

fn split(program: Vec<OsString>) -> (OsString, Vec<OsString>) {
    let mut words = program.into_iter();
    let name = words.next().expect("clap asks for at least one value");
    (name, words.collect())
}

/// A supervised adapter leaves Ctrl-C, which reaches the whole terminal, to the runtime above it.
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

/// Seconds, or parts of one, up to ten minutes.
fn seconds(text: &str) -> Result<Duration, String> {
    let given = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    given.filter(|time| *time <= Duration::from_secs(600)).ok_or_else(|| "must be a number from 0 to 600".to_owned())
}

fn working_directory(given: Option<PathBuf>) -> Result<PathBuf, CommandFailure> {
    match given {
        Some(path) => Ok(path),
        None => std::env::current_dir().map_err(|error| {
            CommandFailure::failed(format!("the current folder cannot be used: {error}"))
                .hint("Name one with --cwd DIR.")
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
            tracing::warn!(path = %self.path.display(), %error, "the adapter's secret could not be removed");
        }
    }
}
