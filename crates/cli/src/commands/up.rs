//! `attache up`: starts a hub, its console and a runtime with the built-in shell agent on this machine.

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
        runtime::WalledRuns,
        session::LoginLinkRequest,
    },
};
use attache_runtime::{
    Options, RuntimeNotice, RuntimeService, Shutdown,
    profile::{Profile, Profiles},
};
use attache_store::sql::DatabaseSharing;
use serde::Serialize;
use tokio::sync::Notify;

use crate::{
    env::{
        amount, config,
        context::CommandContext,
        home::{self, DEFAULT_LISTEN, Home},
        hosts, walls,
    },
    server::{
        keep::RetentionSetting,
        local_server::{LocalServer, LocalServerOptions},
        process,
        shared_database::{DatabaseArgs, SharedDatabase, WhenBusy},
        supervised_adapter,
        tls::TlsArgs,
    },
    text::{errors, setup as texts, terms},
    ui::{failure::CommandFailure, hint, output::TextStyle, runtime_notices, signals::ShutdownSignals},
};

/// Start everything on this machine: a hub, the console and a shell agent named `local`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache up
  attache ask local \"uname -a\"        in another terminal
  attache up --listen 127.0.0.1:0     use a free port
  attache up --cwd ~/work             run tasks in this folder
  attache up --share-local            let everyone who can call agents on this hub use this shell
  attache up --sandbox off            let tasks for `local` see all your files

The agent `local` is a shell on this machine. Its tasks see only the working folder, programs and libraries, as far as this
machine can enforce that; run `attache sandbox` to check. Only you can call it, unless you pass --share-local. If `local`
belongs to someone else on this hub, yours is `local-2`. The data, the agent and the pairing persist across restarts. Ctrl-C
finishes the running task and exits; press it again to exit immediately.")]
pub(crate) struct Args {
    /// Loopback address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN)]
    listen: SocketAddr,
    /// Data folder for the database, artifacts and keys [default: $A2A_HOME/hub]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Working folder for `local`'s tasks; their artifacts must be inside it [default: the current folder]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Let everyone who can call agents on this hub call `local`, a shell on this machine
    #[arg(long)]
    share_local: bool,
    /// Default time limit for runs (90s, 30m, 8h, 7d); callers and agents can override it [default: 60m]
    #[arg(long, value_name = "TIME", value_parser = amount::duration)]
    run_timeout: Option<Duration>,
    /// Retention of finished records as CLASS=TIME or CLASS=forever; repeatable [defaults: runs=90d,
    /// conversations=365d, artifacts=365d, credentials=90d, events=30d, log=400d, channels=30d, streams=1h]
    #[arg(long, value_name = "CLASS=TIME", value_parser = RetentionSetting::from_text)]
    keep: Vec<RetentionSetting>,
    /// Access rules file, reloaded when it changes [default: rules are kept in the store]
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    /// Default agent for calls that name none (name or id) [default: this machine's agent]
    #[arg(long, value_name = "AGENT")]
    default_agent: Option<String>,
    /// Allow webhooks and outside agents (--peer) on this private network or host (10.0.0.0/8, an address, a name,
    /// *.example.org); repeatable
    #[arg(long, value_name = "CIDR|HOST")]
    egress_allow: Vec<EgressRule>,
    /// Whose tasks for `local` see only the working folder, if this machine can enforce it (`attache sandbox`)
    #[arg(long, value_name = WalledRuns::CHOICES, value_parser = walls::walled_runs, default_value = "all")]
    sandbox: WalledRuns,
    /// Refuse uploads while less than this is free on the disk [default: 2% of it, between 256 MiB and 1 GiB]
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    disk_reserve: Option<u64>,
    /// Replace a lost owner key: write a new one to <data>/admin.key and revoke the old one
    #[arg(long)]
    recover_owner_key: bool,
    /// Write {"url":…,"agent_id":…,"pin":…} to this file when ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Serialize)]
struct UpReadyFile<'a> {
    url: &'a str,
    agent_id: AgentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<KeyPin>,
}

/// Printed by `--json` when ready.
#[derive(Serialize)]
struct UpOutput<'a> {
    url: &'a str,
    login_url: &'a str,
    agent_id: AgentId,
    agent_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<KeyPin>,
    /// Installed hosts that aren't paired as agents yet.
    hosts: Vec<HostSuggestion>,
}

/// An installed host that isn't paired yet, and the command that pairs it.
#[derive(Debug, Serialize)]
struct HostSuggestion {
    name: String,
    label: String,
    command: String,
}

/// The built-in agent.
const LOCAL: &str = "local";
/// Maximum time to wait for the agent to come online before reporting ready.
const ONLINE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    if !args.listen.ip().is_loopback() {
        return Err(CommandFailure::usage(texts::only_loopback()).hint(texts::only_loopback_do()));
    }
    let given = args.cwd.as_deref().unwrap_or(Path::new("."));
    let cwd = folder(given)?;
    home::refuse_own_folder(&context.config, args.data.as_deref(), &cwd)?;
    walls::refuse_planted_link(&context, given)?;
    let ending = ShutdownSignals::of_signals()?;
    let database = match args.database.server(&context)? {
        Some(server) => {
            let database = SharedDatabase { server, when_busy: WhenBusy::Refuse, sharing: DatabaseSharing::Alone };
            Some(database.open(&context.output, &ending.finish).await?)
        }
        None => None,
    };
    let place = LocalServerOptions { listen: args.listen, data: args.data, tls: args.tls, database, cluster: None };
    let (default_agent, permissions, recover) = (args.default_agent, args.permissions, args.recover_owner_key);
    let (run_timeout, keep, disk_reserve) = (args.run_timeout, args.keep, args.disk_reserve);
    let egress = EgressGuard::new(EgressPolicy { allow: args.egress_allow });
    let site = LocalServer::open(&context, place, |options| {
        if recover {
            options.owner_key = OwnerKey::Recover;
        }
        options.permissions = permissions;
        options.default_agent = default_agent;
        options.egress = egress;
        options.disk_reserve = disk_reserve;
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
    site.hub.set_default_agent(&account.name);
    let profile = find_or_pair(&context, &site, &owner, &account).await?;

    let (hub, url) = (site.hub.clone(), site.local.origin.clone());
    let (own_pin, pin) = (site.pin(), site.needed_pin());
    // Stop the hub last: the runtime still has to report finished runs to it.
    let hub_ending = ShutdownSignals { finish: Default::default(), abort: ending.abort.clone() };
    let serving = tokio::spawn(site.serve(hub_ending.clone()));
    let online = Arc::new(Notify::new());
    let working = match profile {
        Some(profile) => {
            let runtime = runtime(&context, &profile, &url, own_pin, (cwd.clone(), args.sandbox), online.clone())?;
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
    let walled = (args.sandbox == WalledRuns::All).then_some(&*cwd);
    print_welcome(&context, &started, working.is_some(), walled)?;

    let closing = async {
        ending.finish.cancelled().await;
        hub.stop_taking_runs();
        std::future::pending::<()>().await;
    };
    let mut serving = serving;
    if let Some(working) = working {
        tokio::select! {
            stopped = working => report_runtime_exit(&context, &account.name, stopped),
            () = closing => {}
            // If the hub fails, everything stops.
            served = &mut serving => return served.unwrap_or_else(|error| Err(CommandFailure::failed(error.to_string()))),
        }
    }
    ending.finish.cancelled().await;
    hub_ending.finish.cancel();
    serving.await.unwrap_or_else(|error| Err(CommandFailure::failed(error.to_string())))
}

/// Reports that the runtime stopped. The hub keeps running without it.
fn report_runtime_exit(
    context: &CommandContext,
    agent: &str,
    stopped: Result<Result<attache_runtime::ShutdownOutcome, attache_runtime::Error>, tokio::task::JoinError>,
) {
    let failure = match stopped {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => CommandFailure::from(error),
        Err(error) => CommandFailure::new("failed", exit::FAILED, texts::runtime_stopped(error)),
    };
    context.output.say_styled(TextStyle::Bad, texts::not_running(agent, failure));
    context.output.say(texts::hub_stays());
}

fn print_welcome(
    context: &CommandContext,
    started: &UpOutput<'_>,
    agent_runs_here: bool,
    sees_only: Option<&Path>,
) -> Result<(), CommandFailure> {
    let output = &context.output;
    if output.is_json() {
        return output.json(started);
    }
    let strong = |text: &str| output.paint(TextStyle::Strong, text);
    output.line(texts::is_up(strong(started.url)))?;
    output.line(texts::sign_in(started.login_url))?;
    if agent_runs_here {
        let command = format!("attache ask {} \"uname -a\"", started.agent_name);
        output.line(texts::try_it(strong(&command)))?;
    }
    if let Some(folder) = sees_only.filter(|_| agent_runs_here) {
        output.line(texts::sees_only(folder.display()))?;
    }
    if !started.hosts.is_empty() {
        output.line(texts::installed())?;
    }
    for offer in &started.hosts {
        output.line(texts::offer(&offer.label, strong(&offer.command)))?;
    }
    Ok(())
}

/// Lists installed hosts that aren't paired yet. Doesn't start them: some take seconds.
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
        // Two presets may drive the same program; the first is the usual one.
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

/// Finds or creates this machine's agent: the first of `local`, `local-2`, `local-3`… that is free or the owner's own.
/// It is owner-only unless `--share-local` is set: starting without the flag unshares it. Other people's agents are left
/// alone: this machine would work for whoever can call them.
async fn find_or_create(
    context: &CommandContext,
    site: &LocalServer,
    owner: &Principal,
    callers: Callers,
) -> Result<Account, CommandFailure> {
    let (mut name, mut number, mut holder) = (LOCAL.to_owned(), 1, None);
    let found = loop {
        match site.hub.account(owner, &name).await {
            Ok(account) if is_own(owner, &account) => break Some(account),
            Ok(account) => holder = holder.or(account.owner_id),
            Err(error) if error.code == Code::NotFound => break None,
            Err(error) => return Err(unprepared(&name, &error)),
        }
        number += 1;
        name = format!("{LOCAL}-{number}");
    };
    if let Some(holder) = holder {
        let holder = site.hub.user(owner, &holder.to_string()).await;
        let holder = holder.map_or_else(|_| terms::someone_else().to_owned(), |user| user.name);
        context.output.say_styled(TextStyle::Busy, texts::local_taken(holder, &name));
    }
    match found {
        Some(account) if account.callers == callers => Ok(account),
        Some(account) => {
            let change = AccountRequest { callers: Some(callers), ..AccountRequest::default() };
            let updated = site.hub.update_account(owner, &account.agent_id.to_string(), change).await;
            let account = updated.map_err(|error| unprepared(&name, &error))?;
            let text = match callers {
                Callers::Everyone => texts::now_shared(&name),
                Callers::Owner => texts::now_private(&name),
            };
            context.output.say_styled(TextStyle::Busy, text);
            Ok(account)
        }
        None => {
            let request = AccountRequest {
                name: Some(name.clone()),
                description: Some("A shell on this machine: every task is a shell script.".to_owned()),
                callers: Some(callers),
                ..AccountRequest::default()
            };
            site.hub.create_account(owner, request).await.map_err(|error| unprepared(&name, &error))
        }
    }
}

/// Whether the agent belongs to the user of the owner key, or to no one: then it belongs to the hub's owners.
fn is_own(owner: &Principal, account: &Account) -> bool {
    account.owner_id.is_none_or(|user| owner.user == Some(user))
}

fn unprepared(name: &str, error: &attache_hub::Error) -> CommandFailure {
    CommandFailure::failed(texts::unprepared(name, hint::message_of(error.code, &error.message)))
        .hint(hint::of_code(error.code, error.hint.as_deref()))
}

/// Finds or creates this machine's pairing with the agent. None if a person paired the agent with another device.
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
        let text = match current.and_then(|runtime| runtime.device_name.as_deref()) {
            Some(device) => texts::paired_elsewhere(&account.name, device),
            None => texts::disconnected(&account.name),
        };
        context.output.say_styled(TextStyle::Busy, text);
        context.output.say(texts::run_here_again(profile.key()));
        context.output.say(texts::then_restart());
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
    let refused = |error: attache_hub::Error| {
        CommandFailure::failed(texts::cant_pair(hint::message_of(error.code, &error.message)))
            .hint(hint::of_code(error.code, error.hint.as_deref()))
    };
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
        // A pairing that the user made by hand stays active.
        let active = set.active_profile.take().filter(|key| set.profiles.contains_key(key));
        set.insert(kept);
        if active.is_some() {
            set.active_profile = active;
        }
    })?;
    Ok(profile)
}

/// Makes the path absolute, so that the runtime and its adapter agree on it.
fn folder(path: &Path) -> Result<PathBuf, CommandFailure> {
    let unusable = |error| CommandFailure { exit: exit::USAGE, ..CommandFailure::file("use the folder", path, &error) };
    let path = std::fs::canonicalize(path).map_err(unusable)?;
    if !path.is_dir() {
        return Err(CommandFailure::usage(errors::not_a_folder(path.display())).hint(texts::pass_folder()));
    }
    Ok(path)
}

fn runtime(
    context: &CommandContext,
    profile: &Profile,
    url: &str,
    pin: Option<KeyPin>,
    (cwd, sandbox): (PathBuf, WalledRuns),
    online: Arc<Notify>,
) -> Result<RuntimeService, CommandFailure> {
    let home = context.home()?;
    let mut options = Options::new(home.path());
    options.scratch = config::temporary_folder();
    options.withheld = home::own_folders(&context.config);
    options.adapter = supervised_adapter::source(context, profile, Some(&cwd), NonZeroUsize::MIN)?;
    options.cwd = Some(cwd);
    options.sandbox = Some(sandbox);
    options.profile = Some(profile.key());
    // The port may differ from the last start.
    options.api_base = Some(url.to_owned());
    options.pin = pin;
    options.env = context.env.clone();
    let output = context.output;
    options.observer = Some(Arc::new(move |notice: &RuntimeNotice| match notice {
        RuntimeNotice::Started { .. }
        | RuntimeNotice::AdapterReady { .. }
        | RuntimeNotice::ChannelOpen { .. }
        | RuntimeNotice::Reported { .. } => {}
        RuntimeNotice::Online => online.notify_one(),
        _ => runtime_notices::print(&output, notice),
    }));
    Ok(RuntimeService::new(options)?)
}
