//! `attache runtime status`: shows this device's pairing, without secrets.

use std::{fs, path::Path, time::Duration};

use attache_client::{HubAddress, HubClient, HubClientOptions, HubCredential};
use attache_protocol::{AgentId, KeyPin, RuntimeId, Timestamp, wire::runtime::WalledRuns};
use attache_runtime::{
    ConnectionStatus,
    ledger::ExecutionLedger,
    profile::{LocalExecutor, Profile, Profiles},
};
use serde::Serialize;

use crate::{
    env::{context::CommandContext, walls},
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextStyle, TextTable, clean, time},
        runtime_notices,
    },
};

/// Show this device's pairing and whether its hub is reachable
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache runtime status
  attache runtime status --profile agt_…/rtm_… --json")]
pub(super) struct Args {
    /// Pairing to show [default: the active one]
    #[arg(long, value_name = "AGENT/RUNTIME")]
    profile: Option<String>,
}

/// JSON output for a profile, without secrets.
#[derive(Debug, Clone, Serialize)]
pub(in crate::commands) struct ProfileOutput {
    profile: String,
    active: bool,
    agent_id: AgentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_name: Option<String>,
    runtime_id: RuntimeId,
    api_base: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<KeyPin>,
    local_agent_endpoint: Option<String>,
    adapter: String,
    device_name: Option<String>,
    last_heartbeat_at: Option<Timestamp>,
    heartbeat_timeout_ms: u64,
    local_executor: LocalExecutor,
    sandbox: WalledRuns,
}

/// Whether a profile is the active one, which commands use by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum ActiveProfile {
    Yes,
    No,
}

#[derive(Serialize)]
struct RuntimeStatusOutput {
    #[serde(flatten)]
    view: ProfileOutput,
    /// A runtime of this agent is running on this device.
    running: bool,
    /// The last heartbeat is more recent than the timeout.
    online: bool,
    hub_reachable: bool,
    /// How the running runtime receives tasks; null if it isn't running.
    connection: Option<ConnectionStatus>,
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let home = context.home()?;
    let set = Profiles::at(home.path(), context.env.clone()).load()?;
    let profile = set.select(args.profile.as_deref())?;
    let active = ActiveProfile::of(set.active_profile.as_deref(), profile);
    let running = is_running(home.path(), profile.agent_id);
    let status = RuntimeStatusOutput {
        running,
        connection: ConnectionStatus::read(home.path(), profile.agent_id).filter(|_| running),
        online: is_online(profile, context.now()),
        hub_reachable: reachable(&context, profile).await,
        view: ProfileOutput::of(profile, active),
    };
    let output = &context.output;
    if output.is_json() {
        return output.json(&status);
    }
    let view = &status.view;
    let mut table = TextTable::new(&["", ""]);
    let mut row = |name: &str, value: TextCell| table.row([TextCell::dim(name), value]);
    row("profile", TextCell::strong(&view.profile));
    row("agent", TextCell::plain(status.view.named()));
    row("device", TextCell::plain(view.device_name.as_deref().unwrap_or("unnamed")));
    row(
        "runtime",
        if status.running { good("running") } else { TextCell::plain("not running; start it: attache runtime start") },
    );
    if let Some(connection) = &status.connection {
        row("tasks", TextCell::plain(connection_text(connection)));
        if let Some(ahead) = connection.clock_ahead_minutes {
            row("clock", TextCell::styled(runtime_notices::clock(ahead), TextStyle::Bad));
        }
    }
    row("hub", TextCell::plain(&view.api_base));
    row("hub reachable", if status.hub_reachable { good("yes") } else { TextCell::styled("no", TextStyle::Bad) });
    row("last heartbeat", TextCell::plain(time::relative_or(view.last_heartbeat_at, context.now(), "never")));
    row("executor", TextCell::plain(executor(&view.local_executor)));
    if view.local_agent_endpoint.is_none() {
        let folder = profile.cwd().unwrap_or("the one in which the runtime is started");
        row("folder", TextCell::plain(folder));
    }
    // Only an adapter of ours builds walls.
    let sandbox = match &view.local_agent_endpoint {
        Some(_) => "none; the adapter decides what a run sees",
        None => walls::describe(view.sandbox),
    };
    row("sandbox", TextCell::plain(sandbox));
    row("adapter", TextCell::plain(view.local_agent_endpoint.as_deref().unwrap_or("started by the runtime")));
    output.table(&table)
}

fn connection_text(connection: &ConnectionStatus) -> String {
    match (&connection.channel_id, &connection.reason) {
        (Some(channel), _) => format!("received over {channel}"),
        (None, Some(reason)) => format!("polled over HTTP; no channel: {}", clean::line(reason)),
        (None, None) => "polled over HTTP".to_owned(),
    }
}

fn good(text: &str) -> TextCell {
    TextCell::styled(text, TextStyle::Good)
}

pub(super) fn executor(executor: &LocalExecutor) -> String {
    let kind = executor.kind.as_deref().unwrap_or("shell");
    executor.reference.as_ref().map_or_else(|| kind.to_owned(), |reference| format!("{kind} ({reference})"))
}

/// Whether a runtime is running: it holds a lock until it exits.
pub(in crate::commands) fn is_running(home: &Path, agent: AgentId) -> bool {
    let path = ExecutionLedger::path(home, agent).with_file_name("runtime.lock");
    let Ok(file) = fs::File::open(path) else { return false };
    matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock))
}

pub(in crate::commands) fn is_online(profile: &Profile, now: Timestamp) -> bool {
    let limit = Duration::from_millis(profile.heartbeat_timeout_ms);
    profile.last_heartbeat_at.is_some_and(|at| now.since(at) < limit)
}

async fn reachable(context: &CommandContext, profile: &Profile) -> bool {
    let Ok(hub) = hub(context, profile) else { return false };
    hub.health().await.is_ok()
}

/// A client of the profile's hub without credentials.
pub(in crate::commands) fn hub(context: &CommandContext, profile: &Profile) -> Result<HubClient, CommandFailure> {
    let pin = context.pin(None, profile.pin, &HubAddress::parse(&profile.api_base)?)?;
    Ok(HubClient::new(HubClientOptions {
        pin,
        ..HubClientOptions::new(profile.api_base.as_str(), HubCredential::None)
    })?)
}

// === impl ProfileOutput ===

impl ProfileOutput {
    pub(in crate::commands) fn of(profile: &Profile, active: ActiveProfile) -> Self {
        Self {
            profile: profile.key(),
            active: active == ActiveProfile::Yes,
            agent_id: profile.agent_id,
            agent_name: profile.agent_name.clone(),
            runtime_id: profile.runtime_id,
            api_base: profile.api_base.clone(),
            pin: profile.pin,
            local_agent_endpoint: profile.local_agent_endpoint.clone(),
            adapter: profile.adapter.clone(),
            device_name: profile.device_name.clone(),
            last_heartbeat_at: profile.last_heartbeat_at,
            heartbeat_timeout_ms: profile.heartbeat_timeout_ms,
            local_executor: profile.local_executor.clone(),
            sandbox: profile.sandbox,
        }
    }
}

impl ProfileOutput {
    /// `builder (agt_…)`
    fn named(&self) -> String {
        match &self.agent_name {
            Some(name) => format!("{} ({})", clean::line(name), self.agent_id),
            None => self.agent_id.to_string(),
        }
    }
}

/// The agent's name at the time of pairing, or its id if unknown.
pub(in crate::commands) fn agent_name(profile: &Profile) -> String {
    profile.agent_name.as_deref().map_or_else(|| profile.agent_id.to_string(), |name| clean::line(name).into_owned())
}

// === impl ActiveProfile ===

impl ActiveProfile {
    pub(in crate::commands) fn of(active_profile: Option<&str>, profile: &Profile) -> Self {
        if active_profile == Some(&profile.key()) { Self::Yes } else { Self::No }
    }
}
