//! Runs one program for one run: its own process group, its output streamed and kept, an honest outcome.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    process::Stdio,
    time::Duration,
};

use attache_protocol::wire::adapter::{TaskOutput, TaskReply};
use rustix::io::Errno;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, ChildStdin, Command},
};
use tokio_util::sync::CancellationToken;

use crate::{
    DriverRun, EventSink, artifacts,
    attachment::PlacedFiles,
    output::{ChunkBoundary, GateOutput, TextGate, TextHead, TextLimit, TextTail, pump, pump_bytes},
    process_group::{ProcessGroup, RUN_ID_VARIABLE},
    process_tree,
    scratch::ScratchFolder,
    spool::{ContentKind, OutputSpool},
};

/// How much of the standard output is the answer, and how much of the standard error is streamed. The hub takes bodies
/// of 4 MiB; the JSON form stays well below that.
pub(crate) const MAX_STREAM: TextLimit = TextLimit { bytes: 1024 * 1024, encoded: 3 * 1024 * 1024 - 1024 };

/// How much of the end of the standard error a failure's message holds.
pub(crate) const MAX_STDERR: usize = 64 * 1024;

/// How much of the standard output's end a failure's message holds when the standard error is empty.
const MAX_STDOUT_TAIL: usize = 2 * 1024;

/// What one argument or variable may hold. Linux allows 128 KiB including the name and the final zero.
pub(crate) const MAX_ARGUMENT: usize = 127 * 1024;

/// How long the pipes are read after the group is gone: a process that left the group may hold them open.
pub(crate) const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// What to start.
#[derive(Debug)]
pub(crate) struct ProgramSpec {
    pub(crate) name: OsString,
    pub(crate) args: Vec<OsString>,
    /// Written to the standard input, which is empty otherwise.
    pub(crate) stdin: Option<String>,
    /// What came with the task.
    pub(crate) files: PlacedFiles,
}

/// What a process left behind.
#[derive(Debug)]
struct ProgramExit {
    /// None when it was told to stop.
    status: Option<io::Result<ExitStatus>>,
    answer: TextHead,
    answer_end: TextTail,
    errors: TextTail,
    spool: OutputSpool,
    content: ContentKind,
}

/// Starts the program, waits for its end or for the stop, and leaves nothing of its group behind.
pub(crate) async fn run(program: ProgramSpec, scratch: ScratchFolder, job: DriverRun) -> TaskReply {
    let artifact_list = scratch.file("artifacts");
    let mut child = match process_tree::spawn(&mut command(&program, &artifact_list, &job), None) {
        Ok(child) => child,
        Err(error) => return not_started(&program.name, &error),
    };
    let group = ProcessGroup::of(&child, job.task.task_run_id);
    tracing::info!(run.id = %job.task.task_run_id, pid = child.id(), program = %program.name.display(), "process started");
    let ended = supervise(&mut child, group, program.stdin, OutputSpool::new(scratch.file("output")), &job).await;
    let name = program.name.display();
    let failed = !matches!(&ended.status, Some(Ok(status)) if status.success());
    if failed && let Some(total) = ended.answer.is_cut().then(|| ended.answer.total()) {
        let kept = ended.answer.kept();
        job.events.log(
            "warning",
            format!(
                "the output was cut: {kept} of {total} bytes are here; only a task that completes hands over the rest"
            ),
        );
    }
    match ended.status {
        None => TaskReply::failed("cancelled", format!("`{name}` was stopped")),
        Some(Err(error)) => TaskReply::failed("host_crashed", format!("`{name}` could not be waited for: {error}")),
        Some(Ok(status)) if !status.success() => {
            TaskReply::failed("task_failed", failure(&name.to_string(), status, ended.errors, ended.answer_end))
        }
        Some(Ok(_)) => match artifacts::collect(artifact_list, job.cwd.clone(), job.task.cwd.is_some()).await {
            Ok(mut artifact_refs) => {
                let text = ended.answer.into_kept();
                let beside = ended.spool.beside(&text, ended.content);
                let (full_output, file) = beside.map_or((None, None), |(full, file)| (Some(full), file));
                if let Some(file) = file {
                    artifact_refs.insert(0, file);
                    // The runtime takes the file after this.
                    job.events.keep_scratch(scratch);
                }
                TaskReply::done(&TaskOutput { text, artifact_refs, full_output, ..TaskOutput::default() })
            }
            Err(message) => TaskReply::failed("task_failed", message),
        },
    }
}

fn command(program: &ProgramSpec, artifact_list: &std::path::Path, job: &DriverRun) -> Command {
    let mut command = command_for_run(&program.name, job);
    command
        .args(&program.args)
        .env("ATTACHE_ARTIFACTS", artifact_list)
        .stdin(if program.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(folder) = program.files.folder() {
        command.env("ATTACHE_FILES", folder);
    }
    if let Some(instructions) = job.instructions() {
        command.env("ATTACHE_INSTRUCTIONS", instructions);
    }
    command
}

/// A program of this run: in its folder and a group of its own, with the variables that every task may see.
pub(crate) fn command_for_run(program: &OsStr, job: &DriverRun) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(&job.cwd)
        .env_clear()
        .envs(job.environment.pairs())
        .env(RUN_ID_VARIABLE, job.task.task_run_id.to_string())
        .env("ATTACHE_CONVERSATION_ID", job.task.conversation_id.to_string())
        .env("ATTACHE_WORKSPACE_ID", job.task.workspace_id.to_string())
        .process_group(0)
        .kill_on_drop(true);
    command
}

async fn supervise(
    child: &mut Child,
    group: ProcessGroup,
    input: Option<String>,
    mut spool: OutputSpool,
    job: &DriverRun,
) -> ProgramExit {
    let (events, stop) = (&job.events, &job.stop);
    let mut content = ContentKind::Text;
    let (mut answer, mut answer_end) = (TextHead::new(MAX_STREAM), TextTail::new(MAX_STDOUT_TAIL));
    let (mut errors, mut streamed) = (TextTail::new(MAX_STDERR), TextGate::new(MAX_STREAM));
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let gone = CancellationToken::new();
    let closed = || async {
        gone.cancelled().await;
        tokio::time::sleep(PIPE_DRAIN_TIMEOUT).await;
    };
    let end = async {
        let status = tokio::select! {
            // A process that has ended by itself was not stopped.
            biased;
            status = child.wait() => Some(status),
            () = stop.cancelled() => None,
        };
        // Also after a normal end: what the task left running in the background ends with it.
        group.end(child).await;
        gone.cancel();
        status
    };
    let read_answer = async {
        if let Some(stdout) = stdout {
            let take = |piece: &str| {
                answer_end.push(piece);
                // The chunks are the answer: what is not kept of it is not streamed either.
                match answer.push(piece) {
                    GateOutput::All(text) => events.chunk(text),
                    GateOutput::Last(text) => {
                        if !text.is_empty() {
                            events.chunk(text);
                        }
                        events.log(
                            "warning",
                            "the output is long: what follows is not shown here, and handed over as a file if the task completes",
                        );
                    }
                    GateOutput::Nothing => {}
                }
            };
            content = pump_bytes(stdout, closed(), ChunkBoundary::Anywhere, |bytes| spool.push(bytes), take).await;
        }
    };
    let read_errors = async {
        if let Some(stderr) = stderr {
            let take = |piece: &str| {
                errors.push(piece);
                match streamed.pass(piece) {
                    GateOutput::All(text) => log(events, text),
                    GateOutput::Last(text) => {
                        if !text.is_empty() {
                            log(events, text);
                        }
                        events.log("warning", "the standard error is too long: what follows is not shown");
                    }
                    GateOutput::Nothing => {}
                }
            };
            pump(stderr, closed(), ChunkBoundary::AtLineEnd, take).await;
        }
    };
    let (status, (), (), ()) = tokio::join!(end, write_stdin(stdin, input, closed()), read_answer, read_errors);
    ProgramExit { status, answer, answer_end, errors, spool, content }
}

fn log(events: &EventSink, text: &str) {
    events.log("info", text.strip_suffix('\n').unwrap_or(text));
}

/// Refuses a text that is too long for an argument.
pub(crate) fn fits(text: &str, program: &OsStr, instead: &str) -> Result<(), TaskReply> {
    if text.len() <= MAX_ARGUMENT {
        return Ok(());
    }
    let message = format!(
        "the task's text has {} bytes and one argument holds {MAX_ARGUMENT}; {instead}, so that `{}` gets the text on its \
         standard input",
        text.len(),
        program.display()
    );
    Err(TaskReply::failed("rejected", message))
}

/// Writes the task's text. A program that does not read all of it is free to do so.
pub(crate) async fn write_stdin(stdin: Option<ChildStdin>, input: Option<String>, closed: impl Future<Output = ()>) {
    if let (Some(mut stdin), Some(input)) = (stdin, input) {
        tokio::select! {
            _ = stdin.write_all(input.as_bytes()) => {}
            () = closed => {}
        }
    }
}

fn failure(name: &str, status: ExitStatus, errors: TextTail, answer_end: TextTail) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("`{name}` ended with exit status {code}"),
        (None, Some(signal)) => format!("`{name}` was killed by signal {signal}"),
        (None, None) => format!("`{name}` ended with {status}"),
    };
    let (errors, answer_end) = (errors.into_text(), answer_end.into_text());
    if !errors.trim().is_empty() {
        format!("{how}. The end of its standard error:\n{}", errors.trim_end())
    } else if !answer_end.trim().is_empty() {
        format!("{how}. It wrote nothing to its standard error; the end of its output:\n{}", answer_end.trim_end())
    } else {
        format!("{how} and wrote nothing")
    }
}

pub(crate) fn not_started(program: &OsStr, error: &io::Error) -> TaskReply {
    let name = program.display();
    if Errno::from_io_error(error) == Some(Errno::TOOBIG) {
        let message = format!(
            "`{name}` cannot be started: its arguments and variables are too long for the system; shorten the task's \
             text or the instructions (each at most {MAX_ARGUMENT} bytes)"
        );
        return TaskReply::failed("rejected", message);
    }
    if error.kind() == io::ErrorKind::InvalidInput {
        let message = format!("`{name}` cannot be started: the task's text or instructions hold a zero character");
        return TaskReply::failed("rejected", message);
    }
    let fix = match error.kind() {
        io::ErrorKind::NotFound => "install it, or start the adapter with the program's full path",
        io::ErrorKind::PermissionDenied => "make it executable (chmod +x), or start the adapter with another program",
        _ => "try it by hand on this device",
    };
    TaskReply::failed("host_crashed", format!("`{name}` cannot be started: {error}; {fix}"))
}

pub(crate) fn no_scratch(job: &DriverRun, error: &io::Error) -> TaskReply {
    let folder = job.scratch.display();
    TaskReply::failed(
        "host_crashed",
        format!("no private folder can be made in `{folder}`: {error}; make room there or set TMPDIR"),
    )
}
