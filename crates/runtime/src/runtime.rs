//! The runtime of one profile: beats, pulls one run after the other, and has each executed and reported.

use std::{path::PathBuf, sync::Arc, time::Duration};

use attache_client::{Address, Backoff, Credential, Hub, HubOptions};
use attache_protocol::{
    env::Env,
    wire::{adapter::RunTask, run::ClaimedRun},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    Error, Notice,
    adapter::{Adapter, Endpoint},
    claims::Claims,
    device::Device,
    dispatch::{self, Job, Way},
    files, heartbeat,
    ledger::{self, History, Ledger, Line, Step},
    link::Link,
    notice::Observer,
    profile::{Profile, Profiles},
    recover,
    report::{self, Reports},
    stop::Shutdown,
    supervise::{AdapterCommand, Supervisor},
};

#[derive(Clone)]
pub struct Options {
    /// `$A2A_HOME`: profiles, ledgers and the adapters' secrets.
    pub home: PathBuf,
    /// `agt_…/rtm_…`; the active profile unless told.
    pub profile: Option<String>,
    /// Another address of the same hub than the profile's.
    pub api_base: Option<String>,
    pub adapter: AdapterSource,
    /// Where tasks work when the profile names neither `cwd` nor `workspace`.
    pub cwd: Option<PathBuf>,
    /// A certificate (PEM) to trust besides the machine's own.
    pub trusted_certificate: Option<Vec<u8>>,
    pub observer: Option<Observer>,
    pub pace: Pace,
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
pub struct Pace {
    /// How long a pull waits for a run.
    pub pull_wait: Duration,
    /// The longest time between two heartbeats.
    pub heartbeat: Duration,
    /// The longest time between two heartbeats soon after a start or a reconnection.
    pub early_heartbeat: Duration,
    /// How long that is.
    pub early: Duration,
}

pub struct Runtime {
    options: Options,
    profiles: Profiles,
    profile: Profile,
    hub: Hub,
}

/// How a runtime ended that was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    Finished,
    Aborted,
}

/// How long the runtime that was replaced on this device may take to notice.
const LOCK_TIME: Duration = Duration::from_secs(5);
const LAST_WORDS: Duration = Duration::from_secs(5);

// === impl Runtime ===

impl Runtime {
    pub fn new(options: Options) -> Result<Self, Error> {
        let profiles = Profiles::at(&options.home, options.env.clone());
        let mut profile = profiles.load()?.select(options.profile.as_deref())?.clone();
        if let Some(api_base) = &options.api_base {
            profile.api_base = Address::parse(api_base)?.api_base();
        }
        if matches!(options.adapter, AdapterSource::Profile) && profile.local_agent_endpoint.is_none() {
            return Err(Error::NoAdapter(profile.key()));
        }
        let credential = Credential::RuntimeToken(profile.runtime_token.clone());
        let mut hub = HubOptions::new(profile.api_base.as_str(), credential);
        hub.trusted_certificate.clone_from(&options.trusted_certificate);
        hub.env = options.env.clone();
        Ok(Self { profiles, profile, hub: Hub::new(hub)?, options })
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Works until it is told to stop, or until the hub refuses this device.
    pub async fn run(self, shutdown: Shutdown) -> Result<Stopped, Error> {
        let Self { options, profiles, profile, hub } = self;
        // Two runtimes with one token would declare each other's runs lost.
        let lock_path = ledger::make_folder(&options.home, profile.agent_id)?.join("runtime.lock");
        let lock = files::try_lock(&lock_path, LOCK_TIME).await?;
        let (ledger, history) = Ledger::open(&options.home, profile.agent_id)?;
        let link = Link::new(options.observer.clone());
        let (supervisor, endpoint) = match &options.adapter {
            AdapterSource::Child(command) => {
                let supervisor =
                    Supervisor::start(command.clone(), &options.home, options.env.clone(), link.clone()).await?;
                let endpoint = supervisor.endpoint();
                (Some(supervisor), endpoint)
            }
            AdapterSource::Profile => (None, fixed(&profile)),
        };
        let cwd = profile.cwd().map(PathBuf::from).or(options.cwd);
        let instruction_file = match &options.adapter {
            AdapterSource::Profile => profile.local_executor.instruction_file.as_ref().map(PathBuf::from),
            // The caller gave it to the child.
            AdapterSource::Child(_) => None,
        };
        let device = Arc::new(Device {
            adapter: Adapter::new(endpoint)?,
            hub,
            ledger,
            cwd,
            instruction_file,
            env: options.env,
            link,
            claims: Claims::default(),
            reports: Reports::default(),
            profile,
        });
        let stopped = live(&device, &history, &profiles, options.pace, &shutdown).await;
        if let Some(supervisor) = supervisor {
            supervisor.end().await;
        }
        drop(lock);
        stopped
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runtime({})", self.profile)
    }
}

fn fixed(profile: &Profile) -> watch::Receiver<Option<Endpoint>> {
    let endpoint =
        profile.local_agent_endpoint.clone().map(|url| Endpoint { url, secret: profile.adapter_secret.clone() });
    watch::channel(endpoint).1
}

async fn live(
    device: &Arc<Device>,
    history: &History,
    profiles: &Profiles,
    pace: Pace,
    shutdown: &Shutdown,
) -> Result<Stopped, Error> {
    let runtime = device.profile.runtime_id;
    let started = Line { runtime_id: Some(runtime), ..device.line(Step::RuntimeStarted) };
    device.ledger.append(&started).await?;
    device.link.notify(&Notice::Started {
        agent: device.profile.agent_id,
        runtime,
        api_base: device.profile.api_base.clone(),
    });
    let rejoined = recover::look_back(device, history).await;

    let quit = CancellationToken::new();
    let reports = AbortOnDropHandle::new(tokio::spawn({
        let (device, quit) = (device.clone(), quit.clone());
        async move { report::repeat(&device, quit).await }
    }));
    // Before the first heartbeat: it would declare lost what can still be handed back.
    tokio::select! {
        () = recover::hand_back(device, history) => {}
        () = shutdown.finish.cancelled() => {}
        () = device.link.denied() => {}
    }
    let beats = AbortOnDropHandle::new(tokio::spawn({
        let (device, quit, profiles) = (device.clone(), quit.clone(), profiles.clone());
        async move { heartbeat::beat(&device, &profiles, pace, quit).await }
    }));
    if let Some(job) = rejoined {
        Box::pin(dispatch::execute(device, job, &shutdown.abort)).await;
    }
    Box::pin(pull(device, pace.pull_wait, shutdown)).await;

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
    let stopped = Line { runtime_id: Some(runtime), ..device.line(Step::RuntimeStopped) };
    device.note(stopped.because(reason)).await;
    match denial {
        Some(error) => Err(error),
        None if shutdown.abort.is_cancelled() => Ok(Stopped::Aborted),
        None => Ok(Stopped::Finished),
    }
}

/// Pulls and executes one run after the other until there is a reason to stop.
async fn pull(device: &Device, wait: Duration, shutdown: &Shutdown) {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));
    while !shutdown.finish.is_cancelled() && !device.link.is_denied() {
        let asked = device.env.now();
        let answer = tokio::select! {
            answer = device.hub.pull(device.profile.agent_id, wait) => answer,
            () = shutdown.finish.cancelled() => break,
            () = device.link.denied() => break,
        };
        let pause = match answer {
            Ok(Some(claimed)) => {
                device.link.heard();
                backoff.reset();
                Box::pin(take(device, claimed, shutdown)).await;
                continue;
            }
            Ok(None) => {
                device.link.heard();
                backoff.reset();
                // A hub that answers at once although it was asked to wait must not be asked in a tight loop.
                if device.env.now().since(asked) * 2 < wait { Duration::from_millis(500).min(wait) } else { continue }
            }
            Err(error) => {
                device.link.failed(&error);
                backoff.next(&device.env)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.finish.cancelled() => {}
            () = device.link.denied() => {}
        }
    }
    if !device.link.is_denied() {
        device.link.notify(&Notice::Stopping { running: None });
        // The answer to the pull that was dropped may have been a claim.
        let history = device.ledger.history().await;
        let _ = tokio::time::timeout(LAST_WORDS, recover::hand_back(device, &history)).await;
    }
}

/// Has a claim executed, or hands it back when the runtime is stopping.
async fn take(device: &Device, claimed: ClaimedRun, shutdown: &Shutdown) {
    let (run, epoch) = (claimed.task_run_id, claimed.epoch);
    device.claims.take(run);
    let pulled = Line {
        conversation_id: Some(claimed.conversation_id),
        workspace_id: Some(claimed.workspace_id),
        task_type: Some(claimed.task_type.clone()),
        deadline: Some(claimed.deadline),
        ..device.run_line(Step::TaskPulled, run, epoch)
    };
    device.note(pulled).await;
    device.link.notify(&Notice::Pulled { run, task_type: claimed.task_type.clone() });
    if shutdown.finish.is_cancelled() {
        return recover::release(device, run, epoch).await;
    }
    device.note(device.run_line(Step::TaskStarted, run, epoch)).await;
    let job = Job { task: task(device, claimed), epoch, way: Way::Start };
    let execution = dispatch::execute(device, job, &shutdown.abort);
    tokio::pin!(execution);
    tokio::select! {
        () = &mut execution => return,
        () = shutdown.finish.cancelled() => device.link.notify(&Notice::Stopping { running: Some(run) }),
    }
    execution.await;
}

fn task(device: &Device, claimed: ClaimedRun) -> RunTask {
    RunTask {
        task_run_id: claimed.task_run_id,
        conversation_id: claimed.conversation_id,
        workspace_id: claimed.workspace_id,
        task_type: claimed.task_type,
        input: claimed.input,
        instructions: claimed.instructions,
        context_fragments: claimed.context_fragments,
        allowed_tools: claimed.allowed_tools,
        workspace_root: claimed.workspace_root,
        budget: None,
        cwd: device.cwd.as_ref().map(|cwd| cwd.display().to_string()),
        sandbox: None,
        deadline: Some(claimed.deadline),
    }
}

// === impl Options ===

impl Options {
    /// The active profile of a home folder, with the adapter that it names.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            profile: None,
            api_base: None,
            adapter: AdapterSource::Profile,
            cwd: None,
            trusted_certificate: None,
            observer: None,
            pace: Pace::default(),
            env: Env::system(),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("home", &self.home).field("profile", &self.profile).finish_non_exhaustive()
    }
}

// === impl Pace ===

impl Default for Pace {
    fn default() -> Self {
        Self {
            pull_wait: Duration::from_secs(20),
            heartbeat: Duration::from_secs(30),
            early_heartbeat: Duration::from_secs(5),
            early: Duration::from_secs(60),
        }
    }
}
