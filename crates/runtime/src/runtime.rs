//! The runtime of one profile: sends heartbeats, pulls runs, and has each one executed and reported.

use std::{
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_client::{
    HubAddress, HubClient, HubClientOptions, HubCredential,
    channel::{self, ChannelHandle},
};
use attache_delegation::collaborator::Collaborator;
use attache_os::lock;
use attache_protocol::{
    Json, KeyPin,
    env::Env,
    wire::{
        adapter::WORKTREE_FOLDER,
        runtime::{DeclaredExtension, WalledRuns},
    },
};
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    Error, RuntimeNotice,
    adapter::{AdapterClient, Endpoint},
    claims::HeldClaims,
    clock::HubClock,
    connection_status::ConnectionStatusFile,
    device::DeviceRuntime,
    dispatch, heartbeat,
    hub_transport::HubTransport,
    inbox::ChannelInbox,
    ledger::{self, ExecutionLedger, LedgerEntry, LedgerHistory, LedgerStep},
    link::HubLink,
    notice::Observer,
    profile::{Profile, Profiles},
    recover,
    report::{self, ReportQueue},
    shutdown::Shutdown,
    supervise::{AdapterCommand, AdapterSupervisor},
    work_loop::WorkLoop,
    worktree_decisions::{self, WorktreeNotice},
};

#[derive(Clone)]
pub struct Options {
    /// `$A2A_HOME`: profiles, ledgers and the adapters' secrets.
    pub home: PathBuf,
    /// The folder in which adapters create the private folders of runs. Default: `scratch` below the home folder.
    pub scratch: PathBuf,
    /// Folders that hold keys, from which no file is handed over. Default: the home folder.
    pub withheld: Vec<PathBuf>,
    /// `agt_…/rtm_…`. Default: the active profile.
    pub profile: Option<String>,
    /// Another address of the same hub, instead of the profile's.
    pub api_base: Option<String>,
    pub adapter: AdapterSource,
    /// The working folder of tasks if the profile has neither `cwd` nor `workspace`.
    pub cwd: Option<PathBuf>,
    /// A certificate (PEM) to trust in addition to the machine's own.
    pub trusted_certificate: Option<Vec<u8>>,
    /// The hub must have this key, instead of the profile's.
    pub pin: Option<KeyPin>,
    pub observer: Option<Observer>,
    pub pace: RuntimeTimings,
    /// How many runs are executed at a time. Default: 1. More requires an adapter that supports it.
    pub concurrency: NonZeroUsize,
    /// The A2A extensions that the device declares for its agent.
    pub extensions: Vec<DeclaredExtension>,
    /// Whose runs are inside the machine's walls without asking for limits, instead of what the profile says.
    pub sandbox: Option<WalledRuns>,
    /// Accepts delegated folders. Default: none.
    pub collaborator: Option<Collaborator>,
    pub env: Env,
}

/// Which adapter executes tasks.
#[derive(Debug, Clone)]
pub enum AdapterSource {
    /// The one at the profile's `local_agent_endpoint`.
    Profile,
    /// A child process of the runtime.
    Child(AdapterCommand),
}

/// How often the runtime contacts the hub when idle.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeTimings {
    /// How long a pull waits for a run.
    pub pull_wait: Duration,
    /// The longest interval between two heartbeats.
    pub heartbeat: Duration,
    /// The longest interval between two heartbeats soon after a start or a reconnection.
    pub early_heartbeat: Duration,
    /// How long "soon" lasts.
    pub early: Duration,
    pub channel: channel::ChannelTimings,
}

pub struct RuntimeService {
    options: Options,
    profiles: Profiles,
    profile: Profile,
    hub: HubClient,
    /// The options of the channel.
    channel: channel::Options,
}

/// How a runtime ended after it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownOutcome {
    Finished,
    Aborted,
}

/// What the list of channels shows about the device.
#[derive(Serialize)]
struct DeviceInfo<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    device_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_type: Option<&'a str>,
    version: &'static str,
}

/// How long to wait for the replaced runtime on this device to notice.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

// === impl RuntimeService ===

impl RuntimeService {
    pub fn new(options: Options) -> Result<Self, Error> {
        let profiles = Profiles::at(&options.home, options.env.clone());
        let mut profile = profiles.load()?.select(options.profile.as_deref())?.clone();
        if let Some(api_base) = &options.api_base {
            profile.api_base = HubAddress::parse(api_base)?.api_base();
        }
        if matches!(options.adapter, AdapterSource::Profile) && profile.local_agent_endpoint.is_none() {
            return Err(Error::NoAdapter(profile.key()));
        }
        let credential = HubCredential::RuntimeToken(profile.runtime_token.clone());
        let mut hub = HubClientOptions::new(profile.api_base.as_str(), credential);
        hub.trusted_certificate.clone_from(&options.trusted_certificate);
        hub.pin = options.pin.or(profile.pin);
        hub.env = options.env.clone();
        let channel = channel::Options {
            device_info: Some(Json::of(&DeviceInfo::of(&profile))),
            // Every heartbeat declares them. Whether the adapter asks is not known yet.
            extensions: None,
            pace: options.pace.channel,
            ..channel::Options::worker(hub.clone())
        };
        Ok(Self { profiles, profile, hub: HubClient::new(hub)?, channel, options })
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Runs until it is asked to stop, or until the hub refuses this device.
    pub async fn run(self, shutdown: Shutdown) -> Result<ShutdownOutcome, Error> {
        let Self { options, profiles, profile, hub, channel } = self;
        // Two runtimes with one token would report each other's runs as lost.
        let lock_path = ledger::make_folder(&options.home, profile.agent_id)?.join("runtime.lock");
        let lock = lock::acquire(&lock_path, LOCK_TIMEOUT).await.map_err(Error::io(&lock_path))?;
        let lock = lock.ok_or(Error::AlreadyRunning { path: lock_path })?;
        let (ledger, history) = ExecutionLedger::open(&options.home, profile.agent_id)?;
        let link = HubLink::new(options.observer.clone());
        let (supervisor, endpoint) = match &options.adapter {
            AdapterSource::Child(command) => {
                let supervisor =
                    AdapterSupervisor::start(command.clone(), &options.home, options.env.clone(), link.clone()).await?;
                let endpoint = supervisor.endpoint();
                (Some(supervisor), endpoint)
            }
            AdapterSource::Profile => (None, fixed(&profile)),
        };
        let extensions = declared(&options);
        let cwd = profile.cwd().map(PathBuf::from).or(options.cwd);
        let instruction_file = match &options.adapter {
            AdapterSource::Profile => profile.local_executor.instruction_file.as_ref().map(PathBuf::from),
            // The caller passed it to the child.
            AdapterSource::Child(_) => None,
        };
        if let Some(role) = options.collaborator.clone()
            && tokio::task::spawn_blocking(move || role.sweep()).await.is_err()
        {
            tracing::error!("failed to remove the mounts of an earlier process");
        }
        let claims = HeldClaims::default();
        let presence = ConnectionStatusFile::new(&options.home, profile.agent_id, options.env.clone());
        let worktree_notice = Arc::new(WorktreeNotice::default());
        let inbox = ChannelInbox::new(claims.clone(), link.clone(), presence.clone(), worktree_notice.clone());
        let mut device = DeviceRuntime {
            adapter: AdapterClient::new(endpoint)?,
            transport: HubTransport { hub, channel: None },
            inbox: inbox.clone(),
            presence,
            ledger,
            cwd,
            scratch: options.scratch,
            worktrees: options.home.join(WORKTREE_FOLDER),
            worktree_notice: worktree_notice.clone(),
            profiles: profiles.clone(),
            withheld: options.withheld,
            instruction_file,
            collaborator: options.collaborator,
            extensions,
            agent: Mutex::default(),
            walled: options.sandbox.unwrap_or(profile.sandbox),
            env: options.env,
            clock: HubClock::new(),
            link,
            claims,
            reports: ReportQueue::default(),
            profile,
        };
        takes_as_many(&device.adapter, options.concurrency).await?;
        let rejoined = begin(&device, &history, &shutdown).await?;
        // Only now: registering a channel releases every claim that isn't held here.
        device.transport.channel = Some(ChannelHandle::connect(channel, inbox)?);
        let device = Arc::new(device);
        let stopped = serve(&device, rejoined, &profiles, (options.pace, options.concurrency), &shutdown).await;
        if let Some(channel) = device.channel() {
            channel.close().await;
        }
        if let Some(supervisor) = supervisor {
            supervisor.end().await;
        }
        drop(lock);
        stopped
    }
}

impl std::fmt::Debug for RuntimeService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runtime({})", self.profile)
    }
}

impl<'a> DeviceInfo<'a> {
    fn of(profile: &'a Profile) -> Self {
        Self {
            device_name: profile.device_name.as_deref(),
            host_type: profile.local_executor.kind.as_deref(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

fn declared(options: &Options) -> Vec<DeclaredExtension> {
    let borrows = options.collaborator.as_ref().and_then(Collaborator::extension);
    options.extensions.iter().cloned().chain(borrows).collect()
}

fn fixed(profile: &Profile) -> watch::Receiver<Option<Endpoint>> {
    let endpoint =
        profile.local_agent_endpoint.clone().map(|url| Endpoint { url, secret: profile.adapter_secret.clone() });
    watch::channel(endpoint).1
}

/// Fails if the adapter executes fewer tasks at a time: the clock of a claimed run is ticking, so it must not wait.
async fn takes_as_many(adapter: &AdapterClient, asked: NonZeroUsize) -> Result<(), Error> {
    if asked == NonZeroUsize::MIN {
        return Ok(());
    }
    let health = adapter.health().await.map_err(|trouble| Error::Adapter {
        program: "of the profile".to_owned(),
        reason: format!("it does not report how many tasks it executes at a time ({trouble:?}); start it first"),
    })?;
    if health.places() < asked {
        return Err(Error::TooManyAtATime { asked: asked.get(), takes: health.places().get() });
    }
    Ok(())
}

/// Contacts the hub for the first time, and recovers what an earlier process left.
async fn begin(
    device: &DeviceRuntime,
    history: &LedgerHistory,
    shutdown: &Shutdown,
) -> Result<Vec<dispatch::RunDispatch>, Error> {
    let runtime = device.profile.runtime_id;
    let started = LedgerEntry { runtime_id: Some(runtime), ..device.ledger_entry(LedgerStep::RuntimeStarted) };
    device.ledger.append(&started).await?;
    device.link.notify(&RuntimeNotice::Started {
        agent: device.profile.agent_id,
        runtime,
        api_base: device.profile.api_base.clone(),
    });
    let rejoined = recover::recover_claims(device, history).await;
    // Before the first heartbeat and before the channel, which would release what can still be handed back.
    tokio::select! {
        () = recover::hand_back(device, history) => {}
        () = shutdown.finish.cancelled() => {}
        () = device.link.denied() => {}
    }
    Ok(rejoined)
}

async fn serve(
    device: &Arc<DeviceRuntime>,
    rejoined: Vec<dispatch::RunDispatch>,
    profiles: &Profiles,
    (pace, concurrency): (RuntimeTimings, NonZeroUsize),
    shutdown: &Shutdown,
) -> Result<ShutdownOutcome, Error> {
    let runtime = device.profile.runtime_id;
    let quit = CancellationToken::new();
    let reports = AbortOnDropHandle::new(tokio::spawn({
        let (device, quit) = (device.clone(), quit.clone());
        async move { report::repeat(&device, quit).await }
    }));
    let beats = AbortOnDropHandle::new(tokio::spawn({
        let (device, quit, profiles) = (device.clone(), quit.clone(), profiles.clone());
        async move { heartbeat::run_heartbeats(&device, &profiles, pace, quit).await }
    }));
    let worktrees = AbortOnDropHandle::new(tokio::spawn({
        let (device, quit) = (device.clone(), quit.clone());
        async move { worktree_decisions::carry_out(&device, quit).await }
    }));
    WorkLoop { device: device.clone(), wait: pace.pull_wait, concurrency, shutdown: shutdown.clone() }
        .run(rejoined)
        .await;

    quit.cancel();
    for task in [beats, reports, worktrees] {
        if task.await.is_err() {
            tracing::error!("a part of the runtime stopped unexpectedly");
        }
    }
    let denial = device.link.take_denial();
    let reason = match &denial {
        Some(error) => error.to_string(),
        None => "asked to stop".to_owned(),
    };
    let stopped = LedgerEntry { runtime_id: Some(runtime), ..device.ledger_entry(LedgerStep::RuntimeStopped) };
    device.note(stopped.because(reason)).await;
    match denial {
        Some(error) => Err(error),
        None if shutdown.abort.is_cancelled() => Ok(ShutdownOutcome::Aborted),
        None => Ok(ShutdownOutcome::Finished),
    }
}

// === impl Options ===

impl Options {
    /// The active profile of a home folder, with its adapter.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        let home = home.into();
        Self {
            scratch: home.join("scratch"),
            withheld: vec![home.clone()],
            home,
            profile: None,
            api_base: None,
            adapter: AdapterSource::Profile,
            cwd: None,
            trusted_certificate: None,
            pin: None,
            observer: None,
            pace: RuntimeTimings::default(),
            concurrency: NonZeroUsize::MIN,
            extensions: Vec::new(),
            sandbox: None,
            collaborator: None,
            env: Env::system(),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("home", &self.home).field("profile", &self.profile).finish_non_exhaustive()
    }
}

// === impl RuntimeTimings ===

impl Default for RuntimeTimings {
    fn default() -> Self {
        Self {
            pull_wait: Duration::from_secs(20),
            heartbeat: Duration::from_secs(30),
            early_heartbeat: Duration::from_secs(5),
            early: Duration::from_secs(60),
            channel: channel::ChannelTimings::default(),
        }
    }
}
