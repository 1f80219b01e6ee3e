//! The runtime of one profile: beats, pulls runs, and has each executed and reported.

use std::{
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use attache_client::{
    HubAddress, HubClient, HubCredential, HubOptions,
    channel::{self, ChannelHandle},
};
use attache_protocol::{Json, KeyPin, env::Env, wire::runtime::DeclaredExtension};
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    Error, Notice,
    adapter::{AdapterClient, Endpoint},
    claims::HeldClaims,
    clock::HubClock,
    collaborator::Collaborator,
    connection_status::ConnectionStatusFile,
    device::DeviceRuntime,
    dispatch, files, heartbeat,
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
};

#[derive(Clone)]
pub struct Options {
    /// `$A2A_HOME`: profiles, ledgers and the adapters' secrets.
    pub home: PathBuf,
    /// Where the adapters of this device make the private folders of runs; `scratch` below the home unless told.
    pub scratch: PathBuf,
    /// `agt_…/rtm_…`; the active profile unless told.
    pub profile: Option<String>,
    /// Another address of the same hub than the profile's.
    pub api_base: Option<String>,
    pub adapter: AdapterSource,
    /// Where tasks work when the profile names neither `cwd` nor `workspace`.
    pub cwd: Option<PathBuf>,
    /// A certificate (PEM) to trust besides the machine's own.
    pub trusted_certificate: Option<Vec<u8>>,
    /// The only key that the hub may have, when it is not the profile's.
    pub pin: Option<KeyPin>,
    pub observer: Option<Observer>,
    pub pace: RuntimeTimings,
    /// How many runs are executed at a time, 1 unless told. An adapter must be made for more than one.
    pub concurrency: NonZeroUsize,
    /// The A2A extensions that the device declares for its agent.
    pub extensions: Vec<DeclaredExtension>,
    /// Takes folders that others lend; nothing unless told.
    pub collaborator: Option<Collaborator>,
    pub env: Env,
}

/// Which adapter executes the tasks.
#[derive(Debug, Clone)]
pub enum AdapterSource {
    /// The one that the profile's `local_agent_endpoint` names.
    Profile,
    /// A child process of the runtime.
    Child(AdapterCommand),
}

/// How often the runtime talks when there is nothing to say.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeTimings {
    /// How long a pull waits for a run.
    pub pull_wait: Duration,
    /// The longest time between two heartbeats.
    pub heartbeat: Duration,
    /// The longest time between two heartbeats soon after a start or a reconnection.
    pub early_heartbeat: Duration,
    /// How long that is.
    pub early: Duration,
    pub channel: channel::ChannelTimings,
}

pub struct RuntimeService {
    options: Options,
    profiles: Profiles,
    profile: Profile,
    hub: HubClient,
    /// What the channel is made of.
    channel: channel::Options,
}

/// How a runtime ended that was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownOutcome {
    Finished,
    Aborted,
}

/// What people see of the device in the list of channels.
#[derive(Serialize)]
struct DeviceInfo<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    device_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_type: Option<&'a str>,
    version: &'static str,
}

/// How long the runtime that was replaced on this device may take to notice.
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
        let mut hub = HubOptions::new(profile.api_base.as_str(), credential);
        hub.trusted_certificate.clone_from(&options.trusted_certificate);
        hub.pin = options.pin.or(profile.pin);
        hub.env = options.env.clone();
        let channel = channel::Options {
            device_info: Some(Json::of(&DeviceInfo::of(&profile))),
            // Every heartbeat declares them; whether the adapter asks is not known yet.
            extensions: None,
            pace: options.pace.channel,
            ..channel::Options::worker(hub.clone())
        };
        Ok(Self { profiles, profile, hub: HubClient::new(hub)?, channel, options })
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Works until it is told to stop, or until the hub refuses this device.
    pub async fn run(self, shutdown: Shutdown) -> Result<ShutdownOutcome, Error> {
        let Self { options, profiles, profile, hub, channel } = self;
        // Two runtimes with one token would declare each other's runs lost.
        let lock_path = ledger::make_folder(&options.home, profile.agent_id)?.join("runtime.lock");
        let lock = files::try_lock(&lock_path, LOCK_TIMEOUT).await?;
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
            // The caller gave it to the child.
            AdapterSource::Child(_) => None,
        };
        if let Some(role) = options.collaborator.clone()
            && tokio::task::spawn_blocking(move || role.sweep()).await.is_err()
        {
            tracing::error!("what an earlier life left mounted could not be removed");
        }
        let claims = HeldClaims::default();
        let presence = ConnectionStatusFile::new(&options.home, profile.agent_id, options.env.clone());
        let inbox = ChannelInbox::new(claims.clone(), link.clone(), presence.clone());
        let mut device = DeviceRuntime {
            adapter: AdapterClient::new(endpoint)?,
            transport: HubTransport { hub, channel: None },
            inbox: inbox.clone(),
            presence,
            ledger,
            cwd,
            scratch: options.scratch,
            instruction_file,
            collaborator: options.collaborator,
            extensions,
            asks: AtomicBool::new(false),
            env: options.env,
            clock: HubClock::new(),
            link,
            claims,
            reports: ReportQueue::default(),
            profile,
        };
        takes_as_many(&device.adapter, options.concurrency).await?;
        let rejoined = begin(&device, &history, &shutdown).await?;
        // Only now: a channel that registers gives back every claim that is not held here.
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

/// A run that is claimed has a clock that runs: more than the adapter executes at once are not asked for.
async fn takes_as_many(adapter: &AdapterClient, asked: NonZeroUsize) -> Result<(), Error> {
    if asked == NonZeroUsize::MIN {
        return Ok(());
    }
    let health = adapter.health().await.map_err(|trouble| Error::Adapter {
        program: "of the profile".to_owned(),
        reason: format!("it does not say how many tasks it takes at a time ({trouble:?}); start it first"),
    })?;
    if health.places() < asked {
        return Err(Error::TooManyAtATime { asked: asked.get(), takes: health.places().get() });
    }
    Ok(())
}

/// Says hello, and picks up what an earlier process left.
async fn begin(
    device: &DeviceRuntime,
    history: &LedgerHistory,
    shutdown: &Shutdown,
) -> Result<Vec<dispatch::RunDispatch>, Error> {
    let runtime = device.profile.runtime_id;
    let started = LedgerEntry { runtime_id: Some(runtime), ..device.ledger_entry(LedgerStep::RuntimeStarted) };
    device.ledger.append(&started).await?;
    device.link.notify(&Notice::Started {
        agent: device.profile.agent_id,
        runtime,
        api_base: device.profile.api_base.clone(),
    });
    let rejoined = recover::recover_claims(device, history).await;
    // Before the first heartbeat and before the channel: they would give up what can still be handed back.
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
    WorkLoop { device: device.clone(), wait: pace.pull_wait, concurrency, shutdown: shutdown.clone() }
        .run(rejoined)
        .await;

    quit.cancel();
    for task in [beats, reports] {
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
    /// The active profile of a home folder, with the adapter that it names.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        let home = home.into();
        Self {
            scratch: home.join("scratch"),
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
