//! One run: Claude Code is started as the task wants it, talked to, ended, and judged.

use std::{
    convert::Infallible,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    time::Duration,
};

use attache_protocol::wire::adapter::TaskReply;

use super::{
    arguments::{self, Line, Record},
    record::Note,
    request,
    talk::Talk,
};
use crate::{
    Job,
    host::{Lines, Process, Setup, Speaker, Turn, Verdict, limits, outcome::reply, process::Ended, prompt},
    process::no_scratch,
    scratch::Scratch,
};

/// How long it may take to leave after its last word; hooks of the device's owner run then.
const FAREWELL: Duration = Duration::from_secs(3);

/// How long one that closed its output may take to be gone: how it ended is worth the wait.
const LAST_BREATH: Duration = Duration::from_millis(800);

/// How long it may take when nobody waits for it any more.
const SHORT_FAREWELL: Duration = Duration::from_millis(100);

pub(super) async fn run(setup: &Setup, job: &Job) -> Result<TaskReply, TaskReply> {
    let task = request::words(job.text()?);
    let limits = limits::agreed(setup, job)?;
    let allowed = arguments::allowed(job.task.allowed_tools.as_ref())?;
    let scratch = Scratch::create(&job.scratch, &job.env).map_err(|error| no_scratch(job, &error))?;
    let tools = write_tools(&scratch, job).map_err(|error| no_scratch(job, &error))?;
    let system = prompt::system(job);
    let mut note = Note::find(setup, job.task.conversation_id);
    let mut turn = Turn::begin(&setup.label, job);
    loop {
        let line = Line {
            limits: &limits,
            allowed: allowed.as_deref(),
            tools: tools.as_deref(),
            cost_usd: turn.budget().cost_usd,
            record: note.record(),
        };
        let mut process = Process::start(&arguments::launch(setup, &line), job)?;
        let (speaker, lines) = (Speaker::to(process.stdin()), Lines::of(process.stdout()));
        let mut talk = Talk::begin(&mut turn, job, speaker, lines);
        let verdict = talk.hold(system.as_deref(), &task).await;
        let (session, has_forgotten, mut lines) = talk.over();
        let patience = match verdict {
            Verdict::Done { .. } => FAREWELL,
            Verdict::Vanished => LAST_BREATH,
            _ => SHORT_FAREWELL,
        };
        let ended = tokio::select! {
            ended = process.end(patience) => ended,
            never = hear_out(&mut lines) => match never {},
        };
        if has_forgotten && matches!(note.record(), Record::Resumed(_)) && verdict != Verdict::Stopped {
            turn.log("warning", "the earlier part of this conversation is not there any more: it begins anew");
            note.forget();
            continue;
        }
        if let Err(error) = note.keep(&session) {
            turn.log("warning", format!("the conversation cannot be gone on with later: {error}"));
        }
        return Ok(reply(judged(verdict, &ended), &turn.finish(), &ended));
    }
}

/// What it still says is heard, so that it is not cut off in the middle of a word.
async fn hear_out(lines: &mut Lines) -> Infallible {
    while lines.next().await.is_some() {}
    std::future::pending().await
}

/// Somebody who says that all is well and then fails did not do well.
fn judged(verdict: Verdict, ended: &Ended) -> Verdict {
    match (&verdict, ended.status) {
        (Verdict::Done { .. }, Some(status)) if !status.success() => {
            Verdict::Failed { message: format!("it had answered, but ended with {status}") }
        }
        _ => verdict,
    }
}

/// The file that tells of our tools, readable for nobody else.
fn write_tools(scratch: &Scratch, job: &Job) -> io::Result<Option<PathBuf>> {
    let Some(tools) = &job.task.mcp else { return Ok(None) };
    let path = scratch.file("tools.json");
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(arguments::tools_file(tools).as_bytes())?;
    Ok(Some(path))
}
