//! `attache runtime pair`: pairs this device with an agent, by redeeming a code or by showing one to confirm.

use std::path::{Path, PathBuf};

use attache_adapter::preset::{ApprovalSupport, HostProblem};
use attache_client::{HubAddress, PairingTicket};
use attache_protocol::{
    Code, KeyPin, Secret,
    pairing::PairingCode,
    wire::{account::AccountRequest, host_session::KeptSessions},
};
use attache_runtime::{
    pair::{self, PairOptions},
    profile::{LocalExecutor, Profile, ProfileSet, Profiles},
};

use super::{start, status};
use crate::{
    env::{
        config,
        context::{CommandContext, HubArgs},
        home::{self, Home},
        hosts::{self, CUSTOM},
        walls,
    },
    server::supervised_adapter,
    ui::{
        failure::CommandFailure,
        output::{TextStyle, qr, time},
        signals::TerminationSignals,
    },
};

/// Pair this device with an agent of a hub
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache runtime pair K7QM-2XHD --api-base https://hub.example.org
  attache runtime pair K7QM-2XHD --api-base https://10.0.0.5:7800 --pin sha256:…     a hub with a self-signed certificate
  attache runtime pair --api-base https://hub.example.org     show a code, a QR code and a URL to confirm it
  attache runtime pair K7QM-2XHD --local-executor-type claude_cli      Claude Code; `attache doctor` lists installed hosts
  attache runtime pair K7QM-2XHD --local-executor-type custom --local-executor-ref \"my-agent --acp\"
  attache runtime pair K7QM-2XHD --local-executor-type command --local-executor-ref ./my-agent
  attache runtime pair K7QM-2XHD --local-agent-endpoint http://127.0.0.1:7801
  attache runtime pair --agent claude --local-executor-type claude_cli --start     create the agent, pair and start in one step; requires a hub key

Pairing with the same agent again replaces its device and keeps this device's profile settings.")]
pub(super) struct Args {
    /// Pairing code for the agent; without one, this device shows a code to confirm in the console
    code: Option<String>,
    /// Pair with this agent and create it if it doesn't exist; requires a hub key, which the hub's own machine has
    #[arg(long, value_name = "NAME", conflicts_with = "code")]
    agent: Option<String>,
    /// Hub URL, with or without /api/v1 [default: this machine's hub]
    #[arg(long, value_name = "URL")]
    api_base: Option<String>,
    /// Certificate pin, if the hub uses a self-signed certificate; saved in the profile [default: $ATTACHE_PIN]
    #[arg(long, value_name = "sha256:…")]
    pin: Option<KeyPin>,
    /// Executor for tasks: a host such as `claude_cli` or `codex`, or `custom`, `command`, `shell` [default: shell, or
    /// the one this device last used for the same agent]
    #[arg(long, value_name = "TYPE")]
    local_executor_type: Option<String>,
    /// Path of the host's program if it's not the one in PATH; for `custom` and `command`, the program with its
    /// arguments
    #[arg(long, value_name = "REF")]
    local_executor_ref: Option<String>,
    /// Whose conversations continue the host's session from one task to the next: yours,
    /// everyone's (without a value), or none; with `off`, you also can't continue this device's
    /// terminal sessions [default: own]
    #[arg(long, value_name = KeptSessions::CHOICES, value_parser = hosts::kept_sessions, num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    keep_sessions: Option<KeptSessions>,
    /// Workspace folder of the agent
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Folder in which tasks start, if it's not the workspace
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// File with instructions to send with every task
    #[arg(long, value_name = "FILE")]
    instruction_file: Option<PathBuf>,
    /// URL of a running adapter [default: the runtime starts its own]
    #[arg(long, value_name = "URL")]
    local_agent_endpoint: Option<String>,
    /// File with the adapter's secret [default: the file in $A2A_HOME/adapters]
    #[arg(long, value_name = "FILE", requires = "local_agent_endpoint")]
    adapter_secret_file: Option<PathBuf>,
    /// Display name of this device [default: the host name]
    #[arg(long, value_name = "NAME")]
    device_name: Option<String>,
    /// Start the runtime after pairing, like `attache runtime start`
    #[arg(long)]
    start: bool,
}

// === impl Args ===

impl Args {
    /// Whether the command keeps running after pairing.
    pub(super) const fn stays(&self) -> bool {
        self.start
    }
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let home = context.home()?;
    let code = args.code.as_deref().map(read_code).transpose()?;
    for folder in args.workspace.iter().chain(&args.cwd) {
        home::refuse_own_folder(&context.config, None, folder)?;
        walls::refuse_planted_link(&context, folder)?;
    }
    let options = options(&context, &home, &args)?;
    let is_known = options.local_executor.kind.is_some();
    // Check the executor before redeeming the code, which works only once.
    if options.local_agent_endpoint.is_none() {
        check_executor(&context, &options.local_executor, &args).await?;
    }
    let code = match &args.agent {
        Some(agent) => Some(code_for(&context, &args, agent).await?),
        None => code,
    };
    let profile = match code {
        Some(code) => pair::redeem(home.path(), options, &code).await?,
        None => {
            let mut signals = TerminationSignals::new()?;
            let shown = |ticket: &PairingTicket| show(&context, ticket);
            tokio::select! {
                profile = pair::request(home.path(), options, shown) => profile?,
                () = signals.next() => {
                    return Err(CommandFailure::failed("interrupted before the code was confirmed")
                        .hint("Run the command again to get a new code."));
                }
            }
        }
    };
    if args.start {
        context.output.say_styled(
            TextStyle::Good,
            format_args!("Paired with {} at {}.", status::agent_name(&profile), profile.api_base),
        );
        say_executor(&context, &profile, is_known);
        return Box::pin(start::run(context, start::Args::of(&profile))).await;
    }
    done(&context, &home, &profile, is_known)
}

/// Which program will run the tasks, and whether it asks, unless that was said before pairing.
fn say_executor(context: &CommandContext, profile: &Profile, is_known: bool) {
    let executor = &profile.local_executor;
    let chosen = match &profile.local_agent_endpoint {
        Some(endpoint) => format!("the adapter at {endpoint}"),
        None => status::executor(executor),
    };
    context.output.say(format_args!("Executor: {chosen}"));
    let own = match executor.kind.as_deref() {
        Some(supervised_adapter::SHELL) => Some("The built-in shell".to_owned()),
        Some(supervised_adapter::COMMAND) => Some(format!("`{}`", executor.reference.as_deref().unwrap_or_default())),
        _ => None,
    };
    if !is_known
        && profile.local_agent_endpoint.is_none()
        && let Some(warning) = own.and_then(|label| ApprovalSupport::No.warning(&label))
    {
        context.output.say_styled(TextStyle::Busy, warning);
    }
}

fn done(context: &CommandContext, home: &Home, profile: &Profile, is_known: bool) -> Result<(), CommandFailure> {
    let output = &context.output;
    if output.is_json() {
        return output.json(&status::ProfileOutput::of(profile, status::ActiveProfile::Yes));
    }
    output.say_styled(
        TextStyle::Good,
        format_args!("Paired with {} at {}.", status::agent_name(profile), profile.api_base),
    );
    say_executor(context, profile, is_known);
    output.say(format_args!("The profile is in {}. Start the runtime:", home.profiles().display()));
    output.say("  attache runtime start");
    Ok(())
}

/// Rejects malformed codes locally: the hub limits the number of attempts.
fn read_code(text: &str) -> Result<Secret<String>, CommandFailure> {
    PairingCode::parse(text).map(|code| Secret::new(code.shown())).ok_or_else(|| {
        CommandFailure::usage("invalid pairing code")
            .hint("A code has eight letters and digits, like K7QM-2XHD. Create one in the console or with `attache agents code AGENT`.")
    })
}

fn options(context: &CommandContext, home: &Home, args: &Args) -> Result<PairOptions, CommandFailure> {
    let address = match &args.api_base {
        Some(text) => HubAddress::parse(text)?,
        None => context.choose_hub(&HubArgs::default())?.address,
    };
    let endpoint = args.local_agent_endpoint.as_deref().map(read_endpoint).transpose()?;
    let adapter_secret = match (&args.adapter_secret_file, &endpoint) {
        (Some(file), _) => Some(home::read_secret(file)?),
        (None, Some(endpoint)) => attache_runtime::read_secret(home.path(), endpoint)?,
        (None, None) => None,
    };
    let set = Profiles::at(home.path(), context.env.clone()).load()?;
    let earlier = earlier(&set, &address);
    let local_executor = LocalExecutor {
        kind: kind(args, &set, &address),
        reference: reference(args)?,
        keep_sessions: args.keep_sessions,
        workspace: args.workspace.as_deref().map(absolute).transpose()?,
        cwd: args.cwd.as_deref().map(absolute).transpose()?,
        instruction_file: args.instruction_file.as_deref().map(absolute).transpose()?,
        ..LocalExecutor::default()
    };
    let named = || earlier.and_then(|profile| profile.device_name.clone());
    let host = || gethostname::gethostname().into_string().ok();
    Ok(PairOptions {
        api_base: address.api_base(),
        device_name: args.device_name.clone().or_else(named).or_else(host),
        asks: asks(context, &local_executor, endpoint.is_some()),
        local_executor,
        local_agent_endpoint: endpoint,
        adapter_secret,
        trusted_certificate: None,
        pin: context.pin(args.pin, earlier.and_then(|profile| profile.pin), &address)?,
        env: context.env.clone(),
    })
}

/// Makes paths absolute, so that they don't depend on where the runtime starts.
fn reference(args: &Args) -> Result<Option<String>, CommandFailure> {
    let is_program = !matches!(args.local_executor_type.as_deref(), Some(supervised_adapter::COMMAND | CUSTOM) | None);
    match &args.local_executor_ref {
        Some(path) if is_program && args.local_agent_endpoint.is_none() && path.contains('/') => {
            let path = std::path::absolute(path).map_err(|error| CommandFailure::file("use", path.as_ref(), &error))?;
            Ok(path.into_os_string().into_string().ok())
        }
        other => Ok(other.clone()),
    }
}

/// An earlier pairing with the same hub, if any: it has the hub's pin and this device's name.
fn earlier<'a>(set: &'a ProfileSet, address: &HubAddress) -> Option<&'a Profile> {
    let api_base = address.api_base();
    let active = set.select(None).ok().filter(|active| active.api_base == api_base);
    active.or_else(|| set.profiles.values().find(|profile| profile.api_base == api_base))
}

/// The executor, as far as it is known before pairing. `None` if it depends on the agent of the code: the same agent keeps its
/// executor, and never gets that of another one.
fn kind(args: &Args, set: &ProfileSet, address: &HubAddress) -> Option<String> {
    if args.local_executor_type.is_some() {
        return args.local_executor_type.clone();
    }
    if args.local_agent_endpoint.is_some() {
        return Some("custom".to_owned());
    }
    let api_base = address.api_base();
    let mut paired = set.profiles.values().filter(|profile| profile.api_base == api_base);
    let is_shell = |profile: &Profile| profile.local_executor.kind.as_deref() == Some(supervised_adapter::SHELL);
    paired.all(is_shell).then(|| supervised_adapter::SHELL.to_owned())
}

/// Whether the executor asks for approval before risky steps, if known.
fn asks(context: &CommandContext, executor: &LocalExecutor, is_elsewhere: bool) -> Option<String> {
    let kind = executor.kind.as_deref().filter(|_| !is_elsewhere)?;
    let asks = match kind {
        supervised_adapter::SHELL | supervised_adapter::COMMAND => ApprovalSupport::No,
        name => hosts::table(context).ok()?.get(name)?.asks,
    };
    (asks != ApprovalSupport::Unknown).then(|| asks.as_str().to_owned())
}

/// Checks that the chosen executor works here. Without `--local-executor-type`, a device that is paired again keeps its
/// executor.
async fn check_executor(context: &CommandContext, executor: &LocalExecutor, args: &Args) -> Result<(), CommandFailure> {
    let warn = |asks: ApprovalSupport, label: &str| {
        if let Some(warning) = asks.warning(label) {
            context.output.say_styled(TextStyle::Busy, warning);
        }
    };
    let kind = match args.local_executor_type.as_deref() {
        None if executor.kind.as_deref() != Some(supervised_adapter::SHELL) => return Ok(()),
        None | Some(supervised_adapter::SHELL) => {
            warn(ApprovalSupport::No, "The built-in shell");
            return Ok(());
        }
        Some(supervised_adapter::COMMAND) if executor.reference.is_none() => {
            return Err(
                CommandFailure::usage("`command` needs a program").hint("Pass it with --local-executor-ref PROG.")
            );
        }
        Some(supervised_adapter::COMMAND) => {
            let reference = executor.reference.as_deref().unwrap_or_default();
            let folders = [&executor.cwd, &executor.workspace].into_iter().flatten().map(Path::new);
            hosts::has_command(reference, &folders.chain([Path::new("")]).collect::<Vec<_>>())?;
            warn(ApprovalSupport::No, &format!("`{reference}`"));
            return Ok(());
        }
        Some(kind) => kind,
    };
    let host = hosts::host(context, kind, executor.reference.as_deref())?;
    if args.keep_sessions.is_some_and(|kept| kept != KeptSessions::Off) {
        host.sessions(&context.home()?)?;
    }
    let around = config::detection_environment();
    let found = host.detect(&around).await;
    if let Some(trouble @ HostProblem::Untrusted(_)) = &found.problem {
        return Err(host.untrusted(trouble));
    }
    let style = if hosts::is_ready(&found) { TextStyle::Dim } else { TextStyle::Busy };
    context.output.say_styled(style, hosts::describe(&found, &around));
    if let Some(fix) = &found.fix {
        context.output.say(format_args!("  → {fix}"));
    }
    warn(host.preset.asks, &host.preset.label);
    Ok(())
}

/// Creates a pairing code for an agent, and the agent itself if it doesn't exist.
async fn code_for(context: &CommandContext, args: &Args, agent: &str) -> Result<Secret<String>, CommandFailure> {
    let hub = context.hub(&HubArgs { hub: args.api_base.clone(), pin: args.pin, ..HubArgs::default() })?;
    match hub.account(agent).await {
        Ok(_) => {}
        Err(error) if error.code() == Some(Code::NotFound) => {
            hub.create_account(&AccountRequest { name: Some(agent.to_owned()), ..AccountRequest::default() }).await?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(Secret::new(hub.create_pairing_code(agent).await?.pairing_code))
}

fn read_endpoint(text: &str) -> Result<String, CommandFailure> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err(CommandFailure::usage(format!("`{text}` isn't a valid adapter URL"))
            .hint("Use a URL such as http://127.0.0.1:7801; `attache adapter shell` prints its URL.")),
    }
}

pub(super) fn absolute(path: &std::path::Path) -> Result<String, CommandFailure> {
    let path = std::fs::canonicalize(path).map_err(|error| CommandFailure::file("use", path, &error))?;
    path.into_os_string().into_string().map_err(|path| {
        CommandFailure::usage(format!("{} isn't valid UTF-8", path.display())).hint("Use a UTF-8 path.")
    })
}

/// Prints the code to the screen only, never to the log.
fn show(context: &CommandContext, ticket: &PairingTicket) {
    let output = &context.output;
    let url = ticket.confirm_url.expose();
    if output.talk_terminal
        && let Some(drawn) = qr::render(url)
    {
        output.say(drawn);
    }
    output.say(format_args!("Code:    {}", output.paint(TextStyle::Strong, ticket.pairing_code.expose())));
    output.say(format_args!("Confirm: {url}"));
    let until = time::relative(ticket.expires_at, context.now());
    output.say_styled(
        TextStyle::Dim,
        format_args!("Waiting for confirmation. The code expires {until}. Press Ctrl-C to cancel."),
    );
}
