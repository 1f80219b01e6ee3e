//! Drives Codex through its `app-server`: JSON-RPC over standard input and output, one process per run.

mod approval;
mod conversation;
mod item;
mod message;
mod settings;
mod turn_result;

use std::path::{Path, PathBuf};

use attache_protocol::wire::adapter::TaskReply;

use self::conversation::{CodexConversation, ThreadOptions, ThreadPersistence};
use super::{DriverRun, HostDialect, HostDriver};
use crate::{
    attachment::{self, Attachment, PreparedTask},
    host::{
        HostLaunch, HostMemory, HostProcess, HostSetup, HostTurn, TurnVerdict, limits, limits::AgreedLimits, outcome,
        prompt,
    },
};

pub type CodexDriver = HostDriver<CodexDialect>;

#[derive(Debug)]
pub struct CodexDialect;

// === impl CodexDialect ===

impl HostDialect for CodexDialect {
    async fn run(setup: HostSetup, job: DriverRun) -> Result<TaskReply, TaskReply> {
        let attached = attachment::of(&job)?;
        let text = job.task_text(&attached)?;
        let limits = limits::agreed(&setup, &job)?;
        let given = attachment::prepare(&job, &text, attached, takes)?;
        let folder = job.folder()?;
        let cwd = named(&folder)?;
        let turn = HostTurn::begin(&setup.label, &job).inside(&limits.walled);
        let launch = launch(&setup, cwd, &limits);
        let mut process = HostProcess::start(&setup, &launch, &limits.walled, &job).await?;
        let mut conversation = CodexConversation::with(&mut process, turn, &folder, &limits);
        let verdict = tokio::select! {
            biased;
            verdict = converse(&mut conversation, &process, &setup, &job, cwd, &limits, &given) => verdict,
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

/// Runs the task. Can be dropped at any await point.
async fn converse(
    conversation: &mut CodexConversation<'_>,
    process: &HostProcess,
    setup: &HostSetup,
    job: &DriverRun,
    cwd: &str,
    limits: &AgreedLimits,
    given: &PreparedTask,
) -> TurnVerdict {
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
        // A resumed thread doesn't report which commands ask to leave the sandbox, so limits need a new thread.
        let remembers = limits.own.is_empty() && setup.memory != HostMemory::Stateless;
        let earlier = setup.memory.recall(setup, conversation_id).filter(|_| remembers);
        let programs = programs(process);
        let programs: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
        let opening = ThreadOptions {
            cwd,
            instructions: prompt::system(job),
            config: settings::config(job.task.mcp.as_ref(), &limits.own, &programs),
            keeping: if remembers { ThreadPersistence::Thread(earlier.as_deref()) } else { ThreadPersistence::Nothing },
        };
        let thread = conversation.open(&opening).await?;
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
