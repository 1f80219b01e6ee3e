//! One run: Claude Code is started as the task wants it, talked to, ended, and judged.

use std::{
    convert::Infallible,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use attache_protocol::wire::adapter::TaskReply;

use super::{
    arguments::{self, ClaudeCommandLine, ClaudeSessionMode},
    conversation::ClaudeConversation,
    request,
    session_record::ClaudeSessionRecord,
};
use crate::{
    DriverRun, attachment,
    host::{
        HostLines, HostProcess, HostSetup, HostTurn, HostWriter, InheritedSecret, TurnVerdict, limits, outcome::reply,
        process::HostExit, prompt,
    },
};

/// How long it may take to leave after its last word; hooks of the device's owner run then.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long one that closed its output may take to be gone: how it ended is worth the wait.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_millis(800);

/// Settings that are longer are not read.
const MAX_SETTINGS: u64 = 1 << 20;

/// How long it may take when nobody waits for it any more.
const ABORT_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) async fn run(setup: &HostSetup, job: &DriverRun) -> Result<TaskReply, TaskReply> {
    let attached = attachment::of(job)?;
    let text = job.task_text(&attached)?;
    let limits = limits::agreed(setup, job)?;
    let given = attachment::prepare(job, &text, attached, request::takes)?;
    let task = request::escape_slash(given.task);
    let allowed = arguments::allowed(job.task.allowed_tools.as_ref())?;
    let system = prompt::system(job);
    let allowed_by_owner = owner_settings(job).map_or_else(Vec::new, |text| arguments::allowed_by(&text));
    let mut note = ClaudeSessionRecord::find(setup, job.task.conversation_id);
    let mut turn = HostTurn::begin(&setup.label, job);
    loop {
        // Anew for each start: it can be read once.
        let tools = job.task.mcp.as_ref().map(|tools| InheritedSecret::new(&arguments::tools_file(tools)));
        let tools = tools.transpose().map_err(|error| no_descriptor(setup, &error))?;
        let line = ClaudeCommandLine {
            limits: &limits,
            allowed: allowed.as_deref(),
            tools: tools.as_ref(),
            cost_usd: turn.budget().cost_usd,
            record: note.record(),
            allowed_by_owner: &allowed_by_owner,
        };
        let mut process = HostProcess::start(&arguments::launch(setup, &line), job).await?;
        let (speaker, lines) = (HostWriter::to(process.stdin()), HostLines::of(process.stdout()));
        let mut talk = ClaudeConversation::begin(&mut turn, job, speaker, lines);
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
        if has_forgotten && matches!(note.record(), ClaudeSessionMode::Resumed(_)) && verdict != TurnVerdict::Stopped {
            turn.log("warning", "the earlier part of this conversation is not there any more: it begins anew");
            note.forget();
            continue;
        }
        if let Err(error) = note.save(&session) {
            turn.log("warning", format!("the conversation cannot be gone on with later: {error}"));
        }
        drop(given.placed);
        return Ok(reply(verdict_after_exit(verdict, &ended), &turn.finish(), &ended));
    }
}

/// Claude Code up to where it takes a task.
pub(super) async fn try_start(setup: &HostSetup, job: &DriverRun) -> Result<TaskReply, TaskReply> {
    let mut turn = HostTurn::begin(&setup.label, job);
    let mut process = HostProcess::start(&arguments::launch(setup, &ClaudeCommandLine::default()), job).await?;
    let (speaker, lines) = (HostWriter::to(process.stdin()), HostLines::of(process.stdout()));
    let mut talk = ClaudeConversation::begin(&mut turn, job, speaker, lines);
    let verdict = talk.initialize().await;
    drop(talk);
    let ended = process.end(ABORT_TIMEOUT).await;
    Ok(reply(verdict, &turn.finish(), &ended))
}

/// What it still says is heard, so that it is not cut off in the middle of a word.
async fn drain_lines(lines: &mut HostLines) -> Infallible {
    while lines.next().await.is_some() {}
    std::future::pending().await
}

/// Somebody who says that all is well and then fails did not do well.
fn verdict_after_exit(verdict: TurnVerdict, ended: &HostExit) -> TurnVerdict {
    match (&verdict, ended.status) {
        (TurnVerdict::Done { .. }, Some(status)) if !status.success() => {
            TurnVerdict::Failed { message: format!("it had answered, but ended with {status}") }
        }
        _ => verdict,
    }
}

/// The settings of the person who owns the device.
fn owner_settings(job: &DriverRun) -> Option<String> {
    let folder = job.environment.get("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    let folder = folder.or_else(|| Some(Path::new(job.environment.get("HOME")?).join(".claude")))?;
    let file = folder.join("settings.json");
    let is_short = std::fs::metadata(&file).is_ok_and(|found| found.is_file() && found.len() <= MAX_SETTINGS);
    is_short.then(|| std::fs::read_to_string(file).ok()).flatten()
}

fn no_descriptor(setup: &HostSetup, error: &io::Error) -> TaskReply {
    let message = format!("{} cannot be given its tools: {error}; close other programs on this device", setup.label);
    TaskReply::failed("host_crashed", message)
}
