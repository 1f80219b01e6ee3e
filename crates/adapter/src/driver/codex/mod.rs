//! Drives Codex through its `app-server`: JSON-RPC over standard input and output, one process per run.

mod approval;
mod conversation;
mod item;
mod kept_sessions;
mod message;
mod settings;
mod turn_result;

use std::path::{Path, PathBuf};

use attache_protocol::wire::{adapter::TaskReply, host_session::CODEX_RESUME};

use self::conversation::{CodexConversation, OpenedThread, ThreadOptions, ThreadPersistence};
use super::{DialectDriver, DriverRun, HostDialect};
use crate::{
    Environment, SessionChoice, StoredHostSession,
    attachment::{self, Attachment, PreparedTask},
    host::{
        HostLaunch, HostMemory, HostProcess, HostSetup, HostTurn, TurnVerdict, limits,
        limits::AgreedLimits,
        memory::{self, EarlierSession},
        outcome, prompt,
    },
};

pub type CodexDriver = DialectDriver<CodexDialect>;

#[derive(Debug)]
pub struct CodexDialect;

/// Where the run's thread works, and the one that it continues.
struct ThreadPlan<'a> {
    cwd: &'a str,
    limits: &'a AgreedLimits,
    earlier: Option<EarlierSession>,
}

// === impl CodexDialect ===

impl HostDialect for CodexDialect {
    const TAKES_INPUT: bool = true;
    const RESUME: Option<&str> = Some(CODEX_RESUME);

    fn kept_sessions(environment: &Environment, folder: &Path, choice: SessionChoice<'_>) -> Vec<StoredHostSession> {
        home(environment).map(|home| kept_sessions::list(&home, folder, choice)).unwrap_or_default()
    }

    async fn run(setup: HostSetup, job: DriverRun) -> Result<TaskReply, TaskReply> {
        let attached = attachment::of(&job)?;
        let text = job.task_text(&attached)?;
        let limits = limits::agreed(&setup, &job)?;
        let given = attachment::prepare(&job, &text, attached, takes)?;
        let folder = job.folder()?;
        let cwd = named(&folder)?;
        let earlier = earlier_session(&setup, &job, &folder, &limits)?;
        let turn = HostTurn::begin(&setup.label, &job).inside(&limits.walled);
        let launch = launch(&setup, cwd, &limits);
        let mut process = HostProcess::start(&setup, &launch, &limits.walled, &job).await?;
        let mut conversation = CodexConversation::with(&mut process, turn, &folder, &limits);
        let plan = ThreadPlan { cwd, limits: &limits, earlier };
        let verdict = tokio::select! {
            biased;
            verdict = converse(&mut conversation, &process, &setup, &job, &given, plan) => verdict,
            () = job.stop.cancelled() => TurnVerdict::Stopped,
        };
        if verdict.cuts_short() {
            conversation.interrupt_turn().await;
        }
        let turn = conversation.close().finish();
        let ended = process.end_after(&verdict, &setup.memory).await;
        drop(given);
        Ok(outcome::reply(verdict, &turn, &ended))
    }

    /// Starts Codex up to the point where it would accept a task.
    async fn try_start(setup: HostSetup, job: DriverRun) -> Result<TaskReply, TaskReply> {
        let folder = job.folder()?;
        let cwd = named(&folder)?;
        let turn = HostTurn::begin(&setup.label, &job);
        let limits = AgreedLimits::default();
        let mut process = HostProcess::start(&setup, &launch(&setup, cwd, &limits), &[], &job).await?;
        let mut conversation = CodexConversation::with(&mut process, turn, &folder, &limits);
        let opened = async {
            conversation.initialize().await?;
            let config = settings::config(job.task.mcp.as_ref(), &[], &[]);
            conversation
                .open(&ThreadOptions { cwd, instructions: None, config, keeping: ThreadPersistence::Nothing })
                .await
        };
        let verdict = opened.await.map_or_else(|verdict| verdict, |_| TurnVerdict::Done { text: None });
        let turn = conversation.close().finish();
        let ended = process.end_after(&verdict, &setup.memory).await;
        Ok(outcome::reply(verdict, &turn, &ended))
    }
}

/// Where Codex keeps its settings and sessions.
fn home(environment: &Environment) -> Option<PathBuf> {
    let home = environment.get("CODEX_HOME").map(PathBuf::from);
    home.or_else(|| Some(Path::new(environment.get("HOME")?).join(".codex")))
}

/// Codex looks up the folder's trust level by this path.
fn named(folder: &Path) -> Result<&str, TaskReply> {
    folder.to_str().ok_or_else(|| {
        let message =
            format!("Codex can't work in `{}`: the path isn't valid UTF-8; rename the folder", folder.display());
        TaskReply::failed("rejected", message)
    })
}

fn launch(setup: &HostSetup, cwd: &str, limits: &AgreedLimits) -> HostLaunch {
    HostLaunch {
        program: setup.program.clone(),
        args: setup.args.iter().cloned().chain(settings::arguments(cwd, limits)).collect(),
        ..HostLaunch::default()
    }
}

/// Image types its models accept.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_IMAGE: usize = 3 << 20;

fn takes(attachment: &Attachment) -> bool {
    let is_small = attachment.bytes().is_some_and(|bytes| bytes.len() <= MAX_IMAGE);
    is_small && IMAGES.contains(&attachment.kind().as_str())
}

/// The session to continue. A resumed one doesn't report which commands ask to leave the sandbox, so Codex's own limits need
/// a new one.
fn earlier_session(
    setup: &HostSetup,
    job: &DriverRun,
    folder: &Path,
    limits: &AgreedLimits,
) -> Result<Option<EarlierSession>, TaskReply> {
    let kept = |id: &str| CodexDialect::kept_sessions(&job.environment, folder, SessionChoice::Only(id));
    match memory::earlier(setup, job, kept)? {
        Some(EarlierSession { id, is_chosen: true }) if !limits.own.is_empty() => {
            let why = "a run with limits uses a separate session on this device";
            Err(TaskReply::failed("refused", memory::lost(setup, &id, why)))
        }
        earlier => Ok(earlier.filter(|_| limits.own.is_empty())),
    }
}

/// Runs the task. Can be dropped at any await point.
async fn converse(
    conversation: &mut CodexConversation<'_>,
    process: &HostProcess,
    setup: &HostSetup,
    job: &DriverRun,
    given: &PreparedTask,
    plan: ThreadPlan<'_>,
) -> TurnVerdict {
    let ThreadPlan { cwd, limits, earlier } = plan;
    let work = async {
        let home = conversation.initialize().await?;
        if let Some(home) = home.filter(|home| is_temporary(Path::new(home), job)) {
            let warning = format!(
                "Codex's home is `{home}`, a temporary folder, where it doesn't install the programs for its sandbox: \
                 commands and patches may fail. Set CODEX_HOME to another folder"
            );
            conversation.log("warning", warning);
        }
        let conversation_id = job.task.conversation_id;
        let remembers = limits.own.is_empty() && setup.memory != HostMemory::Stateless;
        let programs = programs(process);
        let programs: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
        let opening = ThreadOptions {
            cwd,
            instructions: prompt::system(job),
            config: settings::config(job.task.mcp.as_ref(), &limits.own, &programs),
            keeping: match &earlier {
                _ if !remembers => ThreadPersistence::Nothing,
                None => ThreadPersistence::New,
                Some(EarlierSession { id, is_chosen: false }) => ThreadPersistence::Resumed(id),
                Some(EarlierSession { id, is_chosen: true }) => ThreadPersistence::Chosen(id),
            },
        };
        let thread = match conversation.open(&opening).await? {
            OpenedThread::Open(thread) => thread,
            OpenedThread::Lost { session, why } => {
                return Err(TurnVerdict::NotAllowed { message: memory::lost(setup, &session, &why) });
            }
        };
        if remembers {
            setup.memory.remember(setup, conversation_id, &thread);
        }
        conversation.work(&thread, &given.task, &given.native).await
    };
    work.await.unwrap_or_else(|verdict| verdict)
}

/// The folders of Codex's own programs, which it starts again inside its sandbox.
fn programs(process: &HostProcess) -> Vec<PathBuf> {
    let is_codex = |program: &PathBuf| {
        program.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("codex"))
    };
    let programs = process.programs().into_iter().filter(is_codex);
    programs.filter_map(|program| Some(program.parent()?.to_owned())).collect()
}

fn is_temporary(folder: &Path, job: &DriverRun) -> bool {
    let own = job.environment.pairs().find(|(name, _)| *name == "TMPDIR").map(|(_, value)| PathBuf::from(value));
    [Some(PathBuf::from("/tmp")), own].into_iter().flatten().any(|temporary| folder.starts_with(temporary))
}
