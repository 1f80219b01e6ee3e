//! `attache runtime pair`: connect this device to an agent, with a code from a person or a code for one.

use std::path::PathBuf;

use attache_adapter::preset::{ApprovalSupport, HostProblem};
use attache_client::{HubAddress, PairingTicket};
use attache_protocol::{Code, KeyPin, Secret, pairing::PairingCode, wire::account::AccountRequest};
use attache_runtime::{
    pair::{self, PairOptions},
    profile::{LocalExecutor, Profile, ProfileSet, Profiles},
};

use super::{start, status};
use crate::{
    CommandContext, CommandFailure, config,
    context::HubArgs,
    home::{self, Home},
    hosts::{self, CUSTOM},
    output::{TextStyle, qr, time},
    process::TerminationSignals,
    supervised_adapter,
};

/// Pair this device with an agent of a hub
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache runtime pair K7QM-2XHD --api-base https://hub.example.org
  attache runtime pair K7QM-2XHD --api-base https://10.0.0.5:7800 --pin sha256:…     a hub with a certificate of its own
  attache runtime pair --api-base https://hub.example.org     show a code, a QR code and an address to confirm it at
  attache runtime pair K7QM-2XHD --local-executor-type claude_cli      Claude Code; `attache doctor` lists what is here
  attache runtime pair K7QM-2XHD --local-executor-type custom --local-executor-ref \"my-agent --acp\"
  attache runtime pair K7QM-2XHD --local-executor-type command --local-executor-ref ./my-agent
  attache runtime pair K7QM-2XHD --local-agent-endpoint http://127.0.0.1:7801
  attache runtime pair --agent claude --local-executor-type claude_cli --start     all at once, with a key of the hub

Pairing again with the same agent replaces its device and keeps what the profile says about this one.")]
pub(super) struct Args {
    /// The code that a person made for the agent; without one, this device shows a code to confirm
    code: Option<String>,
    /// Pair with this agent, which is made where there is none; it takes a key of the hub, as on the hub's own machine
    #[arg(long, value_name = "NAME", conflicts_with = "code")]
    agent: Option<String>,
    /// The hub: its origin, with or without /api/v1 [default: the hub of this machine]
    #[arg(long, value_name = "URL")]
    api_base: Option<String>,
    /// The pin of a hub that made its own certificate; the profile keeps it [default: $ATTACHE_PIN]
    #[arg(long, value_name = "sha256:…")]
    pin: Option<KeyPin>,
    /// What executes tasks: a host such as `claude_cli` or `codex`, `custom`, `command`, `shell` [default: shell]
    #[arg(long, value_name = "TYPE")]
    local_executor_type: Option<String>,
    /// The host's program, where PATH has none or another; for `custom` and `command` the program with its arguments
    #[arg(long, value_name = "REF")]
    local_executor_ref: Option<String>,
    /// Let the host remember a conversation from one task to the next
    #[arg(long)]
    keep_sessions: bool,
    /// The folder that the agent works in
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Where tasks start, when it is not the workspace
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// A file with instructions that go with every task
    #[arg(long, value_name = "FILE")]
    instruction_file: Option<PathBuf>,
    /// An adapter that runs already; without one, the runtime supervises its own
    #[arg(long, value_name = "URL")]
    local_agent_endpoint: Option<String>,
    /// A file with that adapter's secret [default: what it wrote to $A2A_HOME/adapters]
    #[arg(long, value_name = "FILE", requires = "local_agent_endpoint")]
    adapter_secret_file: Option<PathBuf>,
    /// What people call this device [default: the host name]
    #[arg(long, value_name = "NAME")]
    device_name: Option<String>,
    /// Start working at once, as `attache runtime start` does
    #[arg(long)]
    start: bool,
}

// === impl Args ===

impl Args {
    /// Whether it stays when it is done.
    pub(super) const fn stays(&self) -> bool {
        self.start
    }
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let home = context.home()?;
    let code = args.code.as_deref().map(read_code).transpose()?;
    for folder in args.workspace.iter().chain(&args.cwd) {
        home::refuse_own_folder(&context.config, None, folder)?;
    }
    let options = options(&context, &home, &args)?;
    // Looked at before the code is spent: a profile that nothing can execute is not what anybody wants.
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
                    return Err(CommandFailure::failed("interrupted before anybody confirmed the code")
                        .hint("Run the same command again for a new code."));
                }
            }
        }
    };
    if args.start {
        context.output.say_styled(
            TextStyle::Good,
            format_args!("Paired with {} at {}.", status::agent_name(&profile), profile.api_base),
        );
        return Box::pin(start::run(context, start::Args::of(&profile))).await;
    }
    done(&context, &home, &profile)
}

fn done(context: &CommandContext, home: &Home, profile: &Profile) -> Result<(), CommandFailure> {
    let output = &context.output;
    if output.is_json() {
        return output.json(&status::ProfileOutput::of(profile, status::ActiveProfile::Yes));
    }
    output.say_styled(
        TextStyle::Good,
        format_args!("Paired with {} at {}.", status::agent_name(profile), profile.api_base),
    );
    output.say(format_args!("The profile is in {}. Start working:", home.profiles().display()));
    output.say("  attache runtime start");
    Ok(())
}

/// A code that cannot be right is not sent: attempts are counted.
fn read_code(text: &str) -> Result<Secret<String>, CommandFailure> {
    PairingCode::parse(text).map(|code| Secret::new(code.shown())).ok_or_else(|| {
        CommandFailure::usage("this is not a pairing code")
            .hint("A code has eight letters and digits, like K7QM-2XHD. Make one in the console or with `attache agents code AGENT`.")
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
        kind: kind(args, earlier),
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

/// A path means the same wherever the runtime is started.
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

/// The earlier pairing with the same hub, if there is one. A device that is paired again stays what it was, unless told.
fn earlier<'a>(set: &'a ProfileSet, address: &HubAddress) -> Option<&'a Profile> {
    let api_base = address.api_base();
    let active = set.select(None).ok().filter(|active| active.api_base == api_base);
    active.or_else(|| set.profiles.values().find(|profile| profile.api_base == api_base))
}

fn kind(args: &Args, earlier: Option<&Profile>) -> Option<String> {
    args.local_executor_type.clone().or_else(|| match (&args.local_agent_endpoint, earlier) {
        (Some(_), _) => Some("custom".to_owned()),
        (None, Some(profile)) => profile.local_executor.kind.clone(),
        (None, None) => Some(supervised_adapter::SHELL.to_owned()),
    })
}

/// Whether what executes the tasks asks before a risky step, where that is known.
fn asks(context: &CommandContext, executor: &LocalExecutor, is_elsewhere: bool) -> Option<String> {
    let kind = executor.kind.as_deref().filter(|_| !is_elsewhere)?;
    let asks = match kind {
        supervised_adapter::SHELL | supervised_adapter::COMMAND => ApprovalSupport::No,
        name => hosts::table(context).ok()?.get(name)?.asks,
    };
    (asks != ApprovalSupport::Unknown).then(|| asks.as_str().to_owned())
}

/// A device that is paired again without a word about its executor keeps the one it has.
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
                CommandFailure::usage("`command` needs a program").hint("Name it with --local-executor-ref PROG.")
            );
        }
        Some(supervised_adapter::COMMAND) => {
            let reference = executor.reference.as_deref().unwrap_or_default();
            hosts::has_command(reference)?;
            warn(ApprovalSupport::No, &format!("`{reference}`"));
            return Ok(());
        }
        Some(kind) => kind,
    };
    let host = hosts::host(context, kind, executor.reference.as_deref())?;
    if args.keep_sessions {
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

/// A fresh code for an agent of the hub, which is made where there is none.
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
        _ => Err(CommandFailure::usage(format!("`{text}` is not the address of an adapter"))
            .hint("Write it like http://127.0.0.1:7801; `attache adapter shell` prints its own.")),
    }
}

fn absolute(path: &std::path::Path) -> Result<String, CommandFailure> {
    let path = std::fs::canonicalize(path).map_err(|error| CommandFailure::file("use", path, &error))?;
    path.into_os_string().into_string().map_err(|path| {
        CommandFailure::usage(format!("{} is not valid UTF-8", path.display())).hint("Use a path that is.")
    })
}

/// The code is for the screen alone, so it does not go through the log.
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
        format_args!("Waiting until somebody confirms it; it expires {until}. Ctrl-C ends this."),
    );
}
