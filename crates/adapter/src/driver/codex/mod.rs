//! Codex, through its `app-server`: JSON-RPC over its standard input and output, one process for one run.

mod approval;
mod ending;
mod item;
mod message;
mod run;
mod settings;

use std::path::{Path, PathBuf};

use attache_protocol::wire::adapter::{Host, TaskReply};
use futures_util::future::BoxFuture;

use self::run::{Conversation, Keeping, Opening};
use super::{Driver, Job, settled};
use crate::{
    Limit,
    host::{Launch, Memory, Process, Setup, Turn, Verdict, limits, outcome, prompt},
};

#[derive(Debug, Clone)]
pub struct Codex {
    setup: Setup,
}

// === impl Codex ===

impl Codex {
    pub const fn new(setup: Setup) -> Self {
        Self { setup }
    }
}

impl Driver for Codex {
    fn host(&self) -> Host {
        self.setup.host()
    }

    fn run(&self, job: Job) -> BoxFuture<'static, TaskReply> {
        settled(execute(self.setup.clone(), job))
    }
}

async fn execute(setup: Setup, job: Job) -> Result<TaskReply, TaskReply> {
    let task = job.text()?;
    let limits = limits::agreed(&setup, &job)?;
    // Codex looks for the folder's trust by this path.
    let folder = job.folder()?;
    let Some(cwd) = folder.to_str() else {
        let message = format!("Codex cannot work in `{}`: its name is not UTF-8; rename it", folder.display());
        return Err(TaskReply::failed("rejected", message));
    };
    let turn = Turn::begin(&setup.label, &job);
    let token = job.task.mcp.iter().map(|tools| (settings::TOKEN.into(), tools.token.clone().into()));
    let launch = Launch {
        program: setup.program.clone(),
        args: setup.args.iter().cloned().chain(settings::arguments(cwd, &limits)).collect(),
        variables: token.collect(),
    };
    let mut process = Process::start(&launch, &job)?;
    let mut conversation = Conversation::with(&mut process, turn, &folder, &limits);
    let verdict = tokio::select! {
        biased;
        verdict = talk(&mut conversation, &process, &setup, &job, cwd, &limits, &task) => verdict,
        () = job.stop.cancelled() => Verdict::Stopped,
    };
    if verdict.cuts_short() {
        conversation.halt().await;
    }
    let turn = conversation.close().finish();
    let ended = process.end_after(&verdict, &setup.memory).await;
    Ok(outcome::reply(verdict, &turn, &ended))
}

/// Has Codex do the task. May be dropped at any await.
async fn talk(
    conversation: &mut Conversation<'_>,
    process: &Process,
    setup: &Setup,
    job: &Job,
    cwd: &str,
    limits: &[Limit],
    task: &str,
) -> Verdict {
    let work = async {
        let home = conversation.greet().await?;
        if let Some(home) = home.filter(|home| is_temporary(Path::new(home), job)) {
            let warning = format!(
                "Codex keeps its things in `{home}`, a temporary folder, and makes no programs for its sandbox there: \
                 commands and patches may fail. Set CODEX_HOME to another folder"
            );
            conversation.log("warning", warning);
        }
        let conversation_id = job.task.conversation_id;
        // An earlier thread does not tell which commands want out of the sandbox, so limits need a new one.
        let remembers = limits.is_empty() && setup.memory != Memory::Stateless;
        let earlier = setup.memory.recall(setup, conversation_id).filter(|_| remembers);
        let programs = programs(process);
        let programs: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
        let opening = Opening {
            cwd,
            instructions: prompt::system(job),
            config: settings::config(job.task.mcp.as_ref(), limits, &programs),
            keeping: if remembers { Keeping::Thread(earlier.as_deref()) } else { Keeping::Nothing },
        };
        let thread = conversation.open(&opening).await?;
        if remembers {
            setup.memory.note(setup, conversation_id, &thread);
        }
        conversation.work(&thread, task).await
    };
    work.await.unwrap_or_else(|verdict| verdict)
}

/// The folders of Codex's own programs: it starts itself inside of its sandbox.
fn programs(process: &Process) -> Vec<PathBuf> {
    let is_codex = |program: &PathBuf| {
        program.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("codex"))
    };
    let programs = process.programs().into_iter().filter(is_codex);
    programs.filter_map(|program| Some(program.parent()?.to_owned())).collect()
}

fn is_temporary(folder: &Path, job: &Job) -> bool {
    let own = job.environment.pairs().find(|(name, _)| *name == "TMPDIR").map(|(_, value)| PathBuf::from(value));
    [Some(PathBuf::from("/tmp")), own].into_iter().flatten().any(|temporary| folder.starts_with(temporary))
}
