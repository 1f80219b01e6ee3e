//! The adapter as a component: `Options -> bind -> run`, one run at a time by default, nothing left behind at the end.

use std::{io, net::SocketAddr, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use attache_os::look_up;
use attache_protocol::{
    Code, Json, RunId, WorkspaceId,
    env::Env,
    wire::{
        adapter::{HostInfo, RunTask, RunTools, TaskReply, WallsProof},
        host_session::HostSession,
    },
};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    AdapterWalls, Driver, DriverRun, EventSink, Options, QuestionHandle, SandboxLimit,
    error::AdapterRefusal,
    execution::{Execution, StopReason},
    guard::RequestGuard,
    host::limits,
    listener::{AdapterConnection, AdapterListener},
    repository::repository_around,
    scratch,
    slot::{RunAdmission, RunSlots},
    surface, working_folder, worktree,
};

/// How long open connections get to read their last events during shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// An adapter that is bound to its port. It answers once `run` is called.
#[derive(Debug)]
pub struct Adapter {
    listener: TcpListener,
    service: Arc<AdapterService>,
    address: SocketAddr,
}

/// Why an adapter can't start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "an adapter executes commands, so it can only listen on this device; use 127.0.0.1 or [::1] instead of {0}"
    )]
    NotLoopback(SocketAddr),
    #[error("can't listen on {address}; is another adapter using it? Port 0 picks a free one")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("can't use the working folder `{path}`; create it or choose another")]
    Directory { path: PathBuf, source: io::Error },
}

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct AdapterService {
    options: Options,
    guard: RequestGuard,
    slots: RunSlots,
    /// Owns the runs, which outlive the requests that started them.
    runs: TaskTracker,
}

// === impl Adapter ===

impl Adapter {
    pub async fn bind(mut options: Options) -> Result<Self, BindError> {
        if !options.listen.ip().is_loopback() {
            return Err(BindError::NotLoopback(options.listen));
        }
        options.cwd = tokio::fs::canonicalize(&options.cwd)
            .await
            .map_err(|source| BindError::Directory { path: options.cwd.clone(), source })?;
        scratch::sweep(&options.scratch);
        let failed = |source| BindError::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let guard = RequestGuard::new(options.secret.hash(), address);
        let slots = RunSlots::new(options.concurrency);
        let service = AdapterService { options, guard, slots, runs: TaskTracker::new() };
        Ok(Self { listener, service: Arc::new(service), address })
    }

    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until shutdown. Then it stops the running task, delivers the result to its readers, and returns.
    pub async fn run(self, shutdown: CancellationToken) -> io::Result<()> {
        let Self { listener, service, .. } = self;
        let stopping = shutdown.clone();
        let router = surface::router(service.clone()).into_make_service_with_connect_info::<AdapterConnection>();
        let server = axum::serve(AdapterListener::new(listener), router)
            .with_graceful_shutdown(async move { stopping.cancelled().await });
        let server = async { server.await };
        tokio::pin!(server);
        let served = tokio::select! {
            served = &mut server => Some(served),
            () = shutdown.cancelled() => None,
        };
        for execution in service.slots.close() {
            execution.stop(StopReason::Shutdown);
        }
        service.runs.close();
        let drained = async {
            service.runs.wait().await;
            match served {
                Some(served) => served,
                // A client that doesn't read must not delay shutdown.
                None => tokio::time::timeout(DRAIN_TIMEOUT, &mut server).await.unwrap_or(Ok(())),
            }
        };
        drained.await
    }
}

/// Starts the adapter's agent as for a task, up to the point where it would get one, then stops it. Errors are
/// sentences for people.
pub async fn try_start(options: &Options) -> Result<(), String> {
    let env = &options.env;
    let task = RunTask {
        task_run_id: env.run_id(),
        conversation_id: env.conversation_id(),
        workspace_id: WorkspaceId::from_uuid(env.uuid()),
        task_type: "message".to_owned(),
        input: Json::empty_object(),
        instructions: None,
        context_fragments: None,
        allowed_tools: None,
        workspace_root: None,
        budget: None,
        cwd: None,
        sandbox: None,
        default_sandbox: None,
        permission_mode: None,
        worktrees: None,
        for_owner: false,
        host_session: None,
        parent_task_run_id: None,
        // Nothing listens there: this only tests whether the host accepts the tools.
        mcp: Some(RunTools { url: "http://127.0.0.1:9/mcp".to_owned(), token: "none".to_owned() }),
        deadline: None,
        files: Vec::new(),
    };
    let execution = Arc::new(Execution::new(task.task_run_id));
    let reply = options.driver.try_start(job(options, task, &execution)).await;
    reply.error.map_or(Ok(()), |error| Err(error.message))
}

fn job(options: &Options, task: RunTask, execution: &Arc<Execution>) -> DriverRun {
    DriverRun {
        cwd: task.cwd.as_ref().map_or_else(|| options.cwd.clone(), |cwd| options.cwd.join(cwd)),
        standing: options.instructions.clone(),
        environment: options.environment.clone(),
        scratch: options.scratch.clone(),
        hidden: options.walls.as_ref().map(AdapterWalls::folders).unwrap_or_default(),
        worktree: None,
        walls: options.walls.clone().filter(|_| options.driver.runs_inside_walls()),
        env: options.env.clone(),
        events: EventSink::of(execution.clone()),
        question_handle: QuestionHandle::of(execution.clone()),
        stop: execution.stop_token(),
        task,
    }
}

/// Decides what the run doesn't see, which it can't hand over or have shown to people either.
fn hide(job: &mut DriverRun) -> io::Result<()> {
    if let Some(walls) = job.walls.as_ref().filter(|_| limits::is_walled(job)) {
        job.hidden = walls.hidden(&job.real_folder()?)?;
    }
    Ok(())
}

/// Runs the driver where the run is to work, once it may.
async fn execute(driver: Arc<dyn Driver>, mut job: DriverRun, execution: &Execution, env: Env) -> TaskReply {
    let events = job.events.clone();
    let source = match working_folder::hold_source(&job).await {
        Ok(source) => source,
        Err(refused) => return execution.attribute_stop(refused),
    };
    let worktree = match worktree::enter(&mut job).await {
        Ok(worktree) => worktree,
        Err(refused) => return refused,
    };
    let folder = working_folder::hold(&job).await;
    drop(source);
    let (reply, _folder) = match folder {
        Ok(folder) => match hide(&mut job) {
            Ok(()) => (execution.drive(driver, job, env).await, folder),
            Err(error) => {
                let message = format!("can't set up the sandbox: {error}");
                (TaskReply::failed("host_crashed", message), folder)
            }
        },
        Err(refused) => (execution.attribute_stop(refused), None),
    };
    if let Some(worktree) = worktree {
        worktree::leave(worktree, &reply, &events).await;
    }
    reply
}

// === impl AdapterService ===

impl AdapterService {
    pub(crate) const fn guard(&self) -> &RequestGuard {
        &self.guard
    }

    pub(crate) fn host(&self) -> HostInfo {
        self.options.driver.host()
    }

    pub(crate) fn enforces(&self) -> Vec<SandboxLimit> {
        let walls = self.options.walls.as_ref().filter(|_| self.options.driver.runs_inside_walls());
        let mut limits = self.options.driver.enforces();
        limits.extend(walls.into_iter().flat_map(|walls| walls.proved.iter().copied()));
        limits.sort_unstable();
        limits.dedup();
        limits
    }

    pub(crate) fn walls(&self) -> Option<WallsProof> {
        let walls = self.options.walls.as_ref().filter(|_| self.options.driver.runs_inside_walls())?;
        let limits = walls.proved.iter().map(|limit| limit.as_str().to_owned()).collect();
        Some(WallsProof { limits, made_of: walls.made_of.clone(), proved_at: walls.proved_at })
    }

    /// How many tasks run at a time.
    pub(crate) const fn concurrency(&self) -> NonZeroUsize {
        self.slots.count()
    }

    pub(crate) fn asks(&self) -> bool {
        self.options.driver.asks()
    }

    pub(crate) fn plans(&self) -> bool {
        self.options.driver.plans()
    }

    /// Whether the working folder is in a git repository, so that runs can have worktrees.
    pub(crate) fn makes_worktrees(&self) -> bool {
        repository_around(&self.options.cwd).is_ok_and(|found| found.is_some())
    }

    /// The sessions that the agent keeps for the working folder, newest first.
    pub(crate) async fn sessions(&self) -> Vec<HostSession> {
        let (driver, environment) = (self.options.driver.clone(), self.options.environment.clone());
        let cwd = self.options.cwd.clone();
        tokio::task::spawn_blocking(move || driver.sessions(&environment, &cwd)).await.unwrap_or_default()
    }

    pub(crate) fn accepts_unsolicited(&self) -> bool {
        self.options.driver.accepts_unsolicited()
    }

    /// The current runs, oldest first.
    pub(crate) fn running(&self) -> Vec<RunId> {
        self.slots.running().iter().map(|execution| execution.id()).collect()
    }

    pub(crate) fn find(&self, id: RunId) -> Option<Arc<Execution>> {
        self.slots.find(id)
    }

    /// Starts the task, or joins it if it is running or has just ended.
    pub(crate) fn run(&self, task: RunTask) -> Result<Arc<Execution>, AdapterRefusal> {
        match self.slots.admit(task.task_run_id) {
            RunAdmission::Join(execution) => Ok(execution),
            RunAdmission::Start(execution) => {
                tracing::info!(run.id = %task.task_run_id, task_type = task.task_type, "run started");
                self.runs.spawn(self.start(task, execution.clone()));
                Ok(execution)
            }
            RunAdmission::Busy(running) => {
                let message = match self.slots.count().get() {
                    1 => format!("this adapter runs one task at a time and is busy with {running}"),
                    count => format!("this adapter is running {count} tasks, its maximum"),
                };
                Err(AdapterRefusal::new(Code::Busy, message, "Retry when that run has ended, or cancel it."))
            }
            RunAdmission::Closed => {
                Err(AdapterRefusal::new(Code::Draining, "this adapter is shutting down", "Start it again, then retry."))
            }
        }
    }

    fn start(&self, task: RunTask, execution: Arc<Execution>) -> impl Future<Output = ()> + use<> {
        let options = &self.options;
        let job = job(options, task, &execution);
        let (driver, env) = (options.driver.clone(), options.env.clone());
        async move {
            if job.plans_first() && !driver.plans() {
                let message = format!(
                    "{} can't be made to plan first, so the task was not started; use an agent that can (Claude Code), or \
                     another permission mode",
                    driver.host().kind
                );
                return execution.finish(TaskReply::failed("refused", message));
            }
            if job.task.host_session.is_some() && !driver.continues_sessions() {
                let message = format!(
                    "{} doesn't continue sessions on this device, so the task was not started; start a new conversation, or                      let it (`--keep-sessions own`)",
                    driver.host().kind
                );
                return execution.finish(TaskReply::failed("refused", message));
            }
            let cwd = job.cwd.clone();
            // Another run may have closed a folder above it.
            let _ = tokio::task::spawn_blocking(move || look_up::real_path(&cwd)).await;
            match tokio::fs::metadata(&job.cwd).await {
                Ok(metadata) if metadata.is_dir() => {
                    let reply = execute(driver, job, &execution, env).await;
                    execution.finish(reply);
                }
                _ => {
                    let message = format!(
                        "the working folder `{}` doesn't exist on this device; create it or set another `cwd`",
                        job.cwd.display()
                    );
                    execution.finish(TaskReply::failed("task_failed", message));
                }
            }
        }
    }
}
