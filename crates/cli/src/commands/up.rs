//! `attache up`: everything on this machine: a hub, its console, and a runtime with the built-in shell agent.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use attache_client::egress::{EgressGuard, EgressPolicy, EgressRule};
use attache_hub::{OwnerKey, OwnerKeyState, Principal};
use attache_protocol::{
    AgentId, Code, Json, KeyPin, Secret,
    error::exit,
    wire::{
        account::{Account, AccountRequest, Callers},
        pairing::AttachRequest,
        session::LoginLinkRequest,
    },
};
use attache_runtime::{
    Notice, Options, RuntimeService, Shutdown,
    profile::{Profile, Profiles},
};
use serde::Serialize;
use tokio::sync::Notify;

use crate::{
    CommandContext, CommandFailure, amount, config,
    home::{self, DEFAULT_LISTEN, Home},
    hosts,
    keep::Keep,
    local_server::{LocalServer, LocalServerOptions},
    output::TextStyle,
    process::{self, ShutdownSignals},
    runtime_notices, supervised_adapter,
    tls::TlsArgs,
};

/// Start everything on this machine: a hub, the console, and a shell agent named `local`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache up
  attache ask local \"uname -a\"        in another terminal
  attache up --listen 127.0.0.1:0     on a free port
  attache up --cwd ~/work             tasks work there, and hand over files from there
  attache up --share-local            everybody whom the hub lets call agents may use this shell

The agent `local` is a shell with your own rights: it can read your files and keys. Only you may call it, unless you
share it with --share-local. Starting it again finds the same data, the same agent and the same pairing. Ctrl-C finishes the task that runs and ends;
a second one ends at once.")]
pub(crate) struct Args {
    /// Where to listen, on this machine; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN)]
    listen: SocketAddr,
    /// The folder for database, artifacts and keys [default: $A2A_HOME/hub]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where tasks of `local` work; files that they hand over are below it [default: the current folder]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Let everybody on this hub who may call agents call `local`: they get a shell with your rights
    #[arg(long)]
    share_local: bool,
    /// How long a run may take when neither its caller nor its agent says (90s, 30m, 8h, 7d) [default: 60m]
    #[arg(long, value_name = "TIME", value_parser = amount::duration)]
    run_timeout: Option<Duration>,
    /// For how long to keep what has ended, as CLASS=TIME (runs=90d, conversations=365d, artifacts=365d, credentials=90d, events=30d, log=400d, channels=30d, streams=1h); `forever` is a time too; repeatable
    #[arg(long, value_name = "CLASS=TIME", value_parser = Keep::from_text)]
    keep: Vec<Keep>,
    /// The access rules of agents, taken over when the file changes [default: in the store]
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    /// The agent that is meant when a call names none, by name or id
    #[arg(long, value_name = "AGENT", default_value = LOCAL)]
    default_agent: String,
    #[command(flatten)]
    tls: TlsArgs,
    /// Let webhooks and outside agents (--peer) be on this private network or host (10.0.0.0/8, an address, a name, *.example.org); repeatable
    #[arg(long, value_name = "CIDR|HOST")]
    egress_allow: Vec<EgressRule>,
    /// When the key in <data>/admin.key is lost: make a new one there, and revoke the lost one
    #[arg(long)]
    recover_owner_key: bool,
    /// Write {"url":…,"agent_id":…,"pin":…} to this file once it is ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

#[derive(Serialize)]
struct UpReadyFile<'a> {
    url: &'a str,
    agent_id: AgentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<KeyPin>,
}

/// What `--json` prints once it is ready.
#[derive(Serialize)]
struct UpOutput<'a> {
    url: &'a str,
    login_url: &'a str,
    agent_id: AgentId,
    agent_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<KeyPin>,
    /// Hosts on this machine that could be agents as well.
    hosts: Vec<HostSuggestion>,
}

/// A host that is installed and no agent yet, with the command that makes it one.
#[derive(Debug, Serialize)]
struct HostSuggestion {
    name: String,
    label: String,
    command: String,
}

/// The built-in agent.
const LOCAL: &str = "local";
/// Being ready does not wait for the agent to be online for longer than this.
const ONLINE_TIMEOUT: Duration = Duration::from_millis(150);

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    if !args.listen.ip().is_loopback() {
        return Err(CommandFailure::usage("`attache up` is for this machine alone")
            .hint("Use 127.0.0.1 here; to serve other machines, run `attache hub`."));
    }
    let cwd = folder(args.cwd.as_deref().unwrap_or(Path::new(".")))?;
    home::refuse_own_folder(&context.config, args.data.as_deref(), &cwd)?;
    let ending = ShutdownSignals::of_signals()?;
    let place = LocalServerOptions { listen: args.listen, data: args.data, tls: args.tls };
    let (default_agent, permissions, recover) = (args.default_agent, args.permissions, args.recover_owner_key);
    let (run_timeout, keep) = (args.run_timeout, args.keep);
    let egress = EgressGuard::new(EgressPolicy { allow: args.egress_allow });
    let site = LocalServer::open(&context, place, |options| {
        if recover {
            options.owner_key = OwnerKey::Recover;
        }
        options.permissions = permissions;
        options.default_agent = Some(default_agent);
        options.egress = egress;
        options.run_timeout = run_timeout.unwrap_or(options.run_timeout);
        keep.into_iter().for_each(|keep| keep.apply(options));
    })
    .await?;
    let owner = site.owner().await?;
    if site.hub.owner_key() != OwnerKeyState::InFile {
        site.print_owner_key(&context.output);
    }
    let callers = if args.share_local { Callers::Everyone } else { Callers::Owner };
    let account = find_or_create(&context, &site, &owner, callers).await?;
    let profile = find_or_pair(&context, &site, &owner, &account).await?;

    let (hub, url) = (site.hub.clone(), site.local.origin.clone());
    let (own_pin, pin) = (site.pin(), site.needed_pin());
    // The hub outlives the runtime, which has to report what it finished.
    let hub_ending = ShutdownSignals { finish: Default::default(), abort: ending.abort.clone() };
    let serving = tokio::spawn(site.serve(hub_ending.clone()));
    let online = Arc::new(Notify::new());
    let working = match profile {
        Some(profile) => {
            let runtime = runtime(&context, &profile, &url, own_pin, cwd, online.clone())?;
            let shutdown = Shutdown { finish: ending.finish.clone(), abort: ending.abort.clone() };
            Some(tokio::spawn(Box::pin(runtime.run(shutdown))))
        }
        None => None,
    };
    if working.is_some() {
        let _ = tokio::time::timeout(ONLINE_TIMEOUT, online.notified()).await;
    }
    process::write_ready(args.ready_file.as_deref(), &UpReadyFile { url: &url, agent_id: account.agent_id, pin })?;
    let link = hub
        .login_link(&owner, LoginLinkRequest::default())
        .await
        .map_err(|error| CommandFailure::failed(error.message))?;
    let started = UpOutput {
        url: &url,
        login_url: &link.url,
        agent_id: account.agent_id,
        agent_name: &account.name,
        pin,
        hosts: offers(&context),
    };
    print_welcome(&context, &started)?;

    let closing = async {
        ending.finish.cancelled().await;
        hub.stop_taking_runs();
        std::future::pending::<()>().await;
    };
    let mut serving = serving;
    if let Some(working) = working {
        tokio::select! {
            stopped = working => report_runtime_exit(&context, stopped),
            () = closing => {}
            // A hub that cannot go on ends everything.
            served = &mut serving => return served.unwrap_or_else(|error| Err(CommandFailure::failed(error.to_string()))),
        }
    }
    ending.finish.cancelled().await;
    hub_ending.finish.cancel();
    serving.await.unwrap_or_else(|error| Err(CommandFailure::failed(error.to_string())))
}

/// The hub goes on without its runtime, but not silently.
fn report_runtime_exit(
    context: &CommandContext,
    stopped: Result<Result<attache_runtime::ShutdownOutcome, attache_runtime::Error>, tokio::task::JoinError>,
) {
    let failure = match stopped {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => CommandFailure::from(error),
        Err(error) => CommandFailure::new("failed", exit::FAILED, format!("the runtime stopped unexpectedly: {error}")),
    };
    context.output.say_styled(TextStyle::Bad, format_args!("The agent `{LOCAL}` does not run here: {failure}"));
    context.output.say("The hub and the console go on.");
}

fn print_welcome(context: &CommandContext, started: &UpOutput<'_>) -> Result<(), CommandFailure> {
    let output = &context.output;
    if output.is_json() {
        return output.json(started);
    }
    let strong = |text: &str| output.paint(TextStyle::Strong, text);
    output.line(format_args!("Attaché is up: {}", strong(started.url)))?;
    output.line(format_args!("Sign in (works once, for ten minutes): {}", started.login_url))?;
    output.line(format_args!("Try, in another terminal: {}", strong("attache ask local \"uname -a\"")))?;
    if !started.hosts.is_empty() {
        output.line("On this machine, and an agent with one command in a terminal of its own:")?;
    }
    for offer in &started.hosts {
        output.line(format_args!("  {}: {}", offer.label, strong(&offer.command)))?;
    }
    Ok(())
}

/// The hosts that are installed and not paired yet. None is started for this: some take seconds.
fn offers(context: &CommandContext) -> Vec<HostSuggestion> {
    let table = match hosts::table(context) {
        Ok(table) => table,
        Err(failure) => {
            context.output.say_styled(TextStyle::Busy, failure);
            return Vec::new();
        }
    };
    let paired = context.home().ok().and_then(|home| Profiles::at(home.path(), context.env.clone()).load().ok());
    let is_paired = |name: &str| {
        let mut profiles = paired.iter().flat_map(|set| set.profiles.values());
        profiles.any(|profile| profile.local_executor.kind.as_deref() == Some(name))
    };
    let (around, mut seen) = (config::detection_environment(), Vec::new());
    let mut offers = Vec::new();
    for preset in table.iter() {
        // Two rows may drive one program in two ways; the first is the usual one.
        let Some(program) = around.find(preset).filter(|program| !seen.contains(program)) else { continue };
        seen.push(program);
        if !is_paired(&preset.name) {
            let (name, agent) = (&preset.name, preset.name.trim_end_matches("_cli"));
            offers.push(HostSuggestion {
                name: name.clone(),
                label: preset.label.clone(),
                command: format!("attache runtime pair --agent {agent} --local-executor-type {name} --start"),
            });
        }
    }
    offers
}

/// The agent, for its owner alone unless it is shared now: an `up` without the word takes back what an earlier one gave.
async fn find_or_create(
    context: &CommandContext,
    site: &LocalServer,
    owner: &Principal,
    callers: Callers,
) -> Result<Account, CommandFailure> {
    let refused = |error: attache_hub::Error| {
        CommandFailure::failed(format!("the agent `{LOCAL}` cannot be made ready: {}", error.message))
            .hint(error.hint.as_deref().unwrap_or(error.code.hint()))
    };
    match site.hub.account(owner, LOCAL).await {
        Ok(account) if account.callers == callers || account.archived_at.is_some() => return Ok(account),
        Ok(_) => {
            let change = AccountRequest { callers: Some(callers), ..AccountRequest::default() };
            let account = site.hub.update_account(owner, LOCAL, change).await.map_err(refused)?;
            let now = match callers {
                Callers::Everyone => "is shared: everybody who may call agents here has a shell with your rights",
                Callers::Owner => "is yours alone from now on; to share it: attache up --share-local",
            };
            context.output.say_styled(TextStyle::Busy, format_args!("The agent `{LOCAL}` {now}."));
            return Ok(account);
        }
        Err(error) if error.code == Code::NotFound => {}
        Err(error) => return Err(refused(error)),
    }
    let request = AccountRequest {
        name: Some(LOCAL.to_owned()),
        description: Some("The shell of this machine: every task is a script.".to_owned()),
        callers: Some(callers),
        ..AccountRequest::default()
    };
    site.hub.create_account(owner, request).await.map_err(refused)
}

/// The pairing of this machine with the agent; none when a person has given the agent to another device.
async fn find_or_pair(
    context: &CommandContext,
    site: &LocalServer,
    owner: &Principal,
    account: &Account,
) -> Result<Option<Profile>, CommandFailure> {
    let home = context.home()?;
    let profiles = Profiles::at(home.path(), context.env.clone());
    let set = profiles.load()?;
    if let Some(profile) = set.profiles.values().find(|profile| profile.agent_id == account.agent_id) {
        let current = account.runtime.as_ref();
        if current.is_some_and(|runtime| runtime.runtime_id == profile.runtime_id) {
            return Ok(Some(profile.clone()));
        }
        let why = match current.and_then(|runtime| runtime.device_name.as_deref()) {
            Some(device) => format!("it was paired with another device ({device})"),
            None => "it was disconnected by a person".to_owned(),
        };
        context.output.say_styled(TextStyle::Busy, format_args!("The agent `{LOCAL}` does not run here: {why}."));
        context.output.say(format_args!("To run it here again: attache runtime unpair --profile {}", profile.key()));
        context.output.say("and start `attache up` once more.");
        return Ok(None);
    }
    if account.archived_at.is_some() {
        context.output.say_styled(TextStyle::Busy, format_args!("The agent `{LOCAL}` is archived and takes no work."));
        return Ok(None);
    }
    pair(context, &home, site, owner, account.agent_id).await.map(Some)
}

async fn pair(
    context: &CommandContext,
    home: &Home,
    site: &LocalServer,
    owner: &Principal,
    agent: AgentId,
) -> Result<Profile, CommandFailure> {
    let refused =
        |error: attache_hub::Error| CommandFailure::failed(format!("cannot pair this machine: {}", error.message));
    let code = site.hub.create_pairing_code(owner, &agent.to_string()).await.map_err(refused)?;
    let device_name = gethostname::gethostname().into_string().ok();
    let request = AttachRequest {
        pairing_token: Secret::new(code.pairing_code),
        device_name: device_name.clone(),
        labels: Some(Json::of(&std::collections::BTreeMap::from([
            ("host_type", supervised_adapter::SHELL),
            ("asks", "no"),
        ]))),
    };
    let attached = site.hub.attach(IpAddr::V4(Ipv4Addr::LOCALHOST), request).await.map_err(refused)?;
    let api_base = format!("{}/api/v1", site.local.origin);
    let token = Secret::new(attached.runtime_token);
    let mut profile = Profile::new(attached.agent_id, attached.runtime_id, token, api_base);
    profile.agent_name = attached.agent_name;
    profile.device_name = device_name;
    profile.heartbeat_timeout_ms = attached.heartbeat_timeout_ms;
    profile.local_executor.kind = Some(supervised_adapter::SHELL.to_owned());
    let kept = profile.clone();
    Profiles::at(home.path(), context.env.clone()).update(|set| {
        // What the user paired by hand stays the active one.
        let active = set.active_profile.take().filter(|key| set.profiles.contains_key(key));
        set.insert(kept);
        if active.is_some() {
            set.active_profile = active;
        }
    })?;
    Ok(profile)
}

/// The runtime and its adapter must mean the same folder, wherever each was started.
fn folder(path: &Path) -> Result<PathBuf, CommandFailure> {
    let unusable = |error| CommandFailure { exit: exit::USAGE, ..CommandFailure::file("use the folder", path, &error) };
    let path = std::fs::canonicalize(path).map_err(unusable)?;
    if !path.is_dir() {
        return Err(
            CommandFailure::usage(format!("{} is not a folder", path.display())).hint("Name a folder with --cwd DIR.")
        );
    }
    Ok(path)
}

fn runtime(
    context: &CommandContext,
    profile: &Profile,
    url: &str,
    pin: Option<KeyPin>,
    cwd: PathBuf,
    online: Arc<Notify>,
) -> Result<RuntimeService, CommandFailure> {
    let home = context.home()?;
    let mut options = Options::new(home.path());
    options.scratch = config::temporary_folder();
    options.adapter = supervised_adapter::source(context, profile, Some(&cwd), NonZeroUsize::MIN)?;
    options.cwd = Some(cwd);
    options.profile = Some(profile.key());
    // The port may be another one than last time.
    options.api_base = Some(url.to_owned());
    options.pin = pin;
    options.env = context.env.clone();
    let output = context.output;
    options.observer = Some(Arc::new(move |notice: &Notice| match notice {
        Notice::Started { .. } | Notice::AdapterReady { .. } | Notice::ChannelOpen { .. } | Notice::Reported { .. } => {
        }
        Notice::Online => online.notify_one(),
        _ => runtime_notices::print(&output, notice),
    }));
    Ok(RuntimeService::new(options)?)
}
