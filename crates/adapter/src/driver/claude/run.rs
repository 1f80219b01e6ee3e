//! One run of Claude Code: starts it, talks to it, stops it and judges the outcome.

use std::{
    convert::Infallible,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use attache_os::small_file;
use attache_protocol::wire::adapter::TaskReply;

use super::{
    ClaudeDialect,
    arguments::{self, ClaudeCommandLine, ClaudeSessionMode},
    conversation::ClaudeConversation,
    request,
    session_record::ClaudeSessionRecord,
};
use crate::{
    DriverRun, Environment, SessionChoice, attachment,
    driver::HostDialect as _,
    host::{
        HostLines, HostProcess, HostSetup, HostTurn, HostWriter, InheritedSecret, TurnVerdict, limits, memory,
        outcome::reply, process::HostExit, prompt,
    },
};

/// How long it may take to exit after its final message. The device owner's hooks run in that time.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long to wait for the exit status after it closed its output.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_millis(800);

/// Larger settings files aren't read.
const MAX_SETTINGS: u64 = 1 << 20;

/// How long the program gets to exit once its result is no longer needed.
const ABORT_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) async fn run(setup: &HostSetup, job: &DriverRun) -> Result<TaskReply, TaskReply> {
    let attached = attachment::of(job)?;
    let text = job.task_text(&attached)?;
    let limits = limits::agreed(setup, job)?;
    let given = attachment::prepare(job, &text, attached, request::takes)?;
    let task = request::escape_slash(given.task);
    let allowed = arguments::allowed(job.task.allowed_tools.as_ref())?;
    if job.plans_first() {
        arguments::check_plan_tools(allowed.as_deref())?;
    }
    let system = prompt::system(job);
    let allowed_by_owner = allowed_by_owner(job);
    let folder = job.folder()?;
    let kept = |id: &str| ClaudeDialect::kept_sessions(&job.environment, &folder, SessionChoice::Only(id));
    let mut note = ClaudeSessionRecord::new(setup, job.task.conversation_id, memory::earlier(setup, job, kept)?);
    let mut turn = HostTurn::begin(&setup.label, job).inside(&limits.walled);
    loop {
        // Created for each start, because it can only be read once.
        let tools = job.task.mcp.as_ref().map(|tools| InheritedSecret::new(&arguments::tools_file(tools)));
        let tools = tools.transpose().map_err(|error| no_descriptor(setup, &error))?;
        let line = ClaudeCommandLine {
            limits: &limits.own,
            walled: &limits.walled,
            plans: job.plans_first(),
            allowed: allowed.as_deref(),
            tools: tools.as_ref(),
            cost_usd: turn.budget().cost_usd,
            record: note.record(),
            allowed_by_owner: &allowed_by_owner,
        };
        let mut process = HostProcess::start(setup, &arguments::launch(setup, &line), &limits.walled, job).await?;
        let (speaker, lines) = (HostWriter::to(process.stdin()), HostLines::of(process.stdout()));
        let mut talk = ClaudeConversation::begin(&mut turn, job, speaker, lines);
        if job.plans_first() {
            talk = talk.planning(config_folder(&job.environment).map(|folder| folder.join("plans")));
        }
        let verdict = talk.converse(system.as_deref(), &task, &given.native).await;
        let (session, has_forgotten, mut lines) = talk.into_parts();
        let patience = match verdict {
            TurnVerdict::Done { .. } => EXIT_TIMEOUT,
            TurnVerdict::Vanished => EXIT_STATUS_TIMEOUT,
            _ => ABORT_TIMEOUT,
        };
        let ended = tokio::select! {
            ended = process.end(patience) => ended,
            never = drain_lines(&mut lines) => match never {},
        };
        if has_forgotten
            && verdict != TurnVerdict::Stopped
            && let ClaudeSessionMode::Resumed(session) = note.record()
        {
            if note.is_chosen() {
                let message = memory::lost(setup, session, "it no longer exists");
                return Ok(reply(TurnVerdict::NotAllowed { message }, &turn.finish(), &ended));
            }
            turn.log("warning", "the earlier conversation is no longer available; starting a new one");
            note.forget();
            continue;
        }
        if let Err(error) = note.save(&session) {
            turn.log("warning", format!("this conversation can't be resumed later: {error}"));
        }
        drop(given.placed);
        return Ok(reply(verdict_after_exit(verdict, &ended), &turn.finish(), &ended));
    }
}

/// Starts Claude Code up to the point where it would accept a task.
pub(super) async fn try_start(setup: &HostSetup, job: &DriverRun) -> Result<TaskReply, TaskReply> {
    let mut turn = HostTurn::begin(&setup.label, job);
    let launch = arguments::launch(setup, &ClaudeCommandLine::default());
    let mut process = HostProcess::start(setup, &launch, &[], job).await?;
    let (speaker, lines) = (HostWriter::to(process.stdin()), HostLines::of(process.stdout()));
    let mut talk = ClaudeConversation::begin(&mut turn, job, speaker, lines);
    let verdict = talk.initialize().await;
    drop(talk);
    let ended = process.end(ABORT_TIMEOUT).await;
    Ok(reply(verdict, &turn.finish(), &ended))
}

/// Reads the remaining output, so the program isn't cut off mid-message.
async fn drain_lines(lines: &mut HostLines) -> Infallible {
    while lines.next().await.is_some() {}
    std::future::pending().await
}

/// A reported success followed by a failing exit status is a failure.
fn verdict_after_exit(verdict: TurnVerdict, ended: &HostExit) -> TurnVerdict {
    match (&verdict, ended.status) {
        (TurnVerdict::Done { .. }, Some(status)) if !status.success() => {
            TurnVerdict::Failed { message: format!("it answered, but then exited with {status}") }
        }
        _ => verdict,
    }
}

/// What the device owner's settings allow without asking.
fn allowed_by_owner(job: &DriverRun) -> Vec<String> {
    let Some(folder) = config_folder(&job.environment) else { return Vec::new() };
    let file = folder.join("settings.json").canonicalize();
    let text = file.and_then(|file| small_file::read(&file, MAX_SETTINGS));
    arguments::allowed_by(text.as_deref().map_err(|error| error.kind().into()))
}

/// Where the program keeps its settings, sessions and plans.
pub(super) fn config_folder(environment: &Environment) -> Option<PathBuf> {
    let folder = environment.get("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    folder.or_else(|| Some(Path::new(environment.get("HOME")?).join(".claude")))
}

fn no_descriptor(setup: &HostSetup, error: &io::Error) -> TaskReply {
    let message = format!("can't pass the tools to {}: {error}; close other programs on this device", setup.label);
    TaskReply::failed("host_crashed", message)
}
