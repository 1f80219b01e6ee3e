//! Runs one program for one run: in its own process group, with its output streamed and kept, and judges the outcome.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::ExitStatus,
    process::Stdio,
    time::Duration,
};

use attache_os::{
    control_group::{ControlGroup, ExceededResources},
    process_group::{ProcessGroup, RUN_ID_VARIABLE},
    program,
};
use attache_protocol::wire::adapter::{TaskOutput, TaskReply};
use attache_sandbox::{FileView, Walls};
use rustix::io::Errno;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, ChildStdin, Command},
};
use tokio_util::sync::CancellationToken;

use crate::{
    AdapterWalls, DriverRun, EventSink, SandboxLimit, artifacts,
    host::{git, inside},
    output::{ChunkBoundary, GatedText, TextGate, TextHead, TextLimit, TextTail, pump, pump_bytes},
    placed_files::PlacedFiles,
    repository::GuardedRepository,
    resources,
    scratch::ScratchFolder,
    spool::{ContentKind, OutputSpool},
    worktree,
};

/// How much of the standard output becomes the answer, and how much of the standard error is streamed. The hub accepts
/// bodies of 4 MiB, and the JSON form stays well below that.
pub(crate) const MAX_STREAM: TextLimit = TextLimit { bytes: 1024 * 1024, encoded: 3 * 1024 * 1024 - 1024 };

/// How much of the end of the standard error goes into a failure message.
pub(crate) const MAX_STDERR: usize = 64 * 1024;

/// How much of the end of the standard output goes into a failure message if the standard error is empty.
const MAX_STDOUT_TAIL: usize = 2 * 1024;

/// Maximum size of one argument or variable. Linux allows 128 KiB, including the name and the terminating zero.
pub(crate) const MAX_ARGUMENT: usize = 127 * 1024;

/// How long the pipes are read after the group is gone. A process that left the group may keep them open.
pub(crate) const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// What to start.
#[derive(Debug)]
pub(crate) struct ProgramSpec {
    pub(crate) name: OsString,
    pub(crate) args: Vec<OsString>,
    /// Written to standard input, which is otherwise empty.
    pub(crate) stdin: Option<String>,
    /// The task's attachments.
    pub(crate) files: PlacedFiles,
    /// The walls around it. Without any, it runs like every other program of the user.
    pub(crate) limits: Vec<SandboxLimit>,
    /// What it can read inside them, besides its folder.
    pub(crate) reads: Vec<PathBuf>,
}

/// The result of a process.
#[derive(Debug)]
struct ProgramExit {
    /// `None` if it was told to stop.
    status: Option<io::Result<ExitStatus>>,
    exceeded: ExceededResources,
    answer: TextHead,
    answer_end: TextTail,
    errors: TextTail,
    spool: OutputSpool,
    content: ContentKind,
}

/// Starts the program, waits until it exits or is stopped, and leaves no process of its group behind.
pub(crate) async fn run(program: ProgramSpec, scratch: ScratchFolder, job: DriverRun) -> TaskReply {
    let artifact_list = scratch.file("artifacts");
    let walls = job.walls.as_ref().filter(|_| !program.limits.is_empty());
    let _reserved = walls.and_then(|_| PlacedFiles::reserve(&job));
    // Held until every process is gone.
    let repository = match walls.map(|walls| GuardedRepository::of_run(walls, &job)).transpose() {
        Ok(repository) => repository,
        Err(error) => return not_started(&program.name, &error),
    };
    let start = |control: Option<ControlGroup>, variables: Vec<_>| {
        let mut command = command(&program, repository.as_ref(), &scratch, &artifact_list, &job)?;
        command.envs(variables);
        ProcessGroup::spawn(&mut command, Vec::new(), control, job.task.task_run_id)
    };
    let started = match walls {
        Some(walls) => walls.control_group(job.task.task_run_id).and_then(|control| start(control, Vec::new())),
        // Somebody else may have worked in the folder, and left programs there that git would execute.
        None => start(None, git::variables(&job, git::GitSettings::Own).await),
    };
    let (mut child, group) = match started {
        Ok(started) => started,
        Err(error) => return not_started(&program.name, &error),
    };
    tracing::info!(run.id = %job.task.task_run_id, pid = child.id(), program = %program.name.display(), "process started");
    let ended = supervise(&mut child, group, program.stdin, OutputSpool::new(scratch.file("output")), &job).await;
    let name = program.name.display();
    let failed = !matches!(&ended.status, Some(Ok(status)) if status.success());
    if failed && let Some(total) = ended.answer.is_cut().then(|| ended.answer.total()) {
        let kept = ended.answer.kept();
        job.events.log(
            "warning",
            format!("the output was truncated to {kept} of {total} bytes; the rest is only kept if the task completes"),
        );
    }
    let limit_reached = resources::report(ended.exceeded, &job.events);
    match ended.status {
        None => TaskReply::failed("cancelled", format!("`{name}` was stopped")),
        Some(Err(error)) => TaskReply::failed("host_crashed", format!("couldn't wait for `{name}`: {error}")),
        Some(Ok(status)) if !status.success() => {
            let why = failure(&name.to_string(), status, ended.errors, ended.answer_end);
            let why = limit_reached.into_iter().chain([why]).collect::<Vec<_>>().join("\n");
            TaskReply::failed("task_failed", why)
        }
        Some(Ok(_)) => match artifacts::collect(artifact_list, &job).await {
            Ok(mut artifact_refs) => {
                let text = ended.answer.into_kept();
                let beside = ended.spool.beside(&text, ended.content);
                let (full_output, file) = beside.map_or((None, None), |(full, file)| (Some(full), file));
                if let Some(file) = file {
                    artifact_refs.insert(0, file);
                    // The runtime fetches the file after this.
                    job.events.keep_scratch(scratch);
                }
                TaskReply::done(&TaskOutput { text, artifact_refs, full_output, ..TaskOutput::default() })
            }
            Err(message) => TaskReply::failed("task_failed", message),
        },
    }
}

fn command(
    program: &ProgramSpec,
    repository: Option<&GuardedRepository>,
    scratch: &ScratchFolder,
    artifact_list: &Path,
    job: &DriverRun,
) -> io::Result<Command> {
    let mut command = match (&job.walls, repository) {
        (Some(walls), Some(repository)) => inside_walls(program, repository, walls, scratch, job)?,
        _ => command_outside_walls(&program.name, job)?,
    };
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
    Ok(command)
}

/// The program inside the walls of its run, with a temporary folder that ends with it. If it sees only its folder, its
/// home folder has nothing but toolchains.
fn inside_walls(
    program: &ProgramSpec,
    repository: &GuardedRepository,
    own: &AdapterWalls,
    scratch: &ScratchFolder,
    job: &DriverRun,
) -> io::Result<Command> {
    let mut walls = Walls::open(job.real_folder()?).limit(&program.limits);
    walls.write.push(scratch.path().canonicalize()?);
    walls.hide.clone_from(&job.hidden);
    walls.fixed.clone_from(&repository.fixed);
    walls.processes = Some(own.resources.processes);
    // What comes with other runs isn't this one's.
    if let Some((came, placed)) = PlacedFiles::hidden(job, &walls.cwd)? {
        // Namespaces cover all of them, and show its own again. Otherwise it is a part of the folder like every other.
        if own.launcher.has_namespaces() {
            walls.hide.push(came);
            walls.write.extend(placed.filter(|_| program.files.folder().is_some()));
        }
    }
    walls.read.extend(program.reads.iter().cloned());
    // A program outside the system's folders.
    let name = Path::new(&program.name);
    walls.read.extend(name.is_absolute().then(|| name.to_owned()));
    if walls.files == FileView::Declared {
        let worked_in = inside::all_worked_in(&walls, job)?;
        inside::show_toolchains(&mut walls, &job.environment, &worked_in);
        inside::keep_sound(&mut walls, &worked_in);
    }
    worktree::open(&mut walls, job);
    let (name, words) = own.launcher.command(&walls, &program.name)?;
    let mut command = command_for_run(&name, job);
    command.args(words).env("TMPDIR", scratch.path());
    Ok(command)
}

/// A program that nothing confines. A name is looked up in `PATH`, but not where runs work: one of them could have put a
/// program there for the next one, which may be somebody else's.
pub(crate) fn command_outside_walls(name: &OsStr, job: &DriverRun) -> io::Result<Command> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Ok(command_for_run(name, job));
    }
    let search_path = job.environment.get("PATH").map_or(OsStr::new(program::SYSTEM_PATH), OsString::as_os_str);
    let found = program::find_in(search_path, name, &job.worked_in()?)
        .ok_or_else(|| io::Error::from(rustix::io::Errno::NOENT))?;
    let mut command = command_for_run(found.as_os_str(), job);
    command.arg0(name);
    Ok(command)
}

/// A program of this run, in its folder and in its own process group, with the variables every task may see.
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
            // A process that exited on its own was not stopped.
            biased;
            status = child.wait() => Some(status),
            () = stop.cancelled() => None,
        };
        // Also after a normal exit: background processes of the task end with it.
        let exceeded = group.end(child).await;
        gone.cancel();
        (status, exceeded)
    };
    let read_answer = async {
        if let Some(stdout) = stdout {
            let take = |piece: &str| {
                answer_end.push(piece);
                // The chunks are the answer, so anything not kept isn't streamed either.
                match answer.push(piece) {
                    GatedText::All(text) => events.chunk(text),
                    GatedText::Last(text) => {
                        if !text.is_empty() {
                            events.chunk(text);
                        }
                        events.log(
                            "warning",
                            "the output is too long to show here; it is handed over as a file if the task completes",
                        );
                    }
                    GatedText::Nothing => {}
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
                    GatedText::All(text) => log(events, text),
                    GatedText::Last(text) => {
                        if !text.is_empty() {
                            log(events, text);
                        }
                        events.log("warning", "the standard error is too long; the rest is not shown");
                    }
                    GatedText::Nothing => {}
                }
            };
            pump(stderr, closed(), ChunkBoundary::AtLineEnd, take).await;
        }
    };
    let ((status, exceeded), (), (), ()) =
        tokio::join!(end, write_stdin(stdin, input, closed()), read_answer, read_errors);
    ProgramExit { status, exceeded, answer, answer_end, errors, spool, content }
}

fn log(events: &EventSink, text: &str) {
    events.log("info", text.strip_suffix('\n').unwrap_or(text));
}

/// Rejects a text that is too long for an argument.
pub(crate) fn fits(text: &str, program: &OsStr, instead: &str) -> Result<(), TaskReply> {
    if text.len() <= MAX_ARGUMENT {
        return Ok(());
    }
    let message = format!(
        "the task's text has {} bytes, but an argument can hold {MAX_ARGUMENT}; {instead}, so that `{}` gets the text on its \
         standard input",
        text.len(),
        program.display()
    );
    Err(TaskReply::failed("rejected", message))
}

/// Writes the task's text. The program doesn't have to read all of it.
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
        (Some(code), _) => format!("`{name}` exited with status {code}"),
        (None, Some(signal)) => format!("`{name}` was killed by signal {signal}"),
        (None, None) => format!("`{name}` exited with {status}"),
    };
    let (errors, answer_end) = (errors.into_text(), answer_end.into_text());
    if !errors.trim().is_empty() {
        format!("{how}. End of its standard error:\n{}", errors.trim_end())
    } else if !answer_end.trim().is_empty() {
        format!("{how}. Its standard error is empty. End of its output:\n{}", answer_end.trim_end())
    } else {
        format!("{how} without any output")
    }
}

pub(crate) fn not_started(program: &OsStr, error: &io::Error) -> TaskReply {
    let name = program.display();
    if Errno::from_io_error(error) == Some(Errno::TOOBIG) {
        let message = format!(
            "can't start `{name}`: its arguments and environment are too long for the system; shorten the task's \
             text or the instructions (each at most {MAX_ARGUMENT} bytes)"
        );
        return TaskReply::failed("rejected", message);
    }
    if error.kind() == io::ErrorKind::InvalidInput {
        let message = format!("can't start `{name}`: the task's text or instructions contain a NUL character");
        return TaskReply::failed("rejected", message);
    }
    let fix = match error.kind() {
        io::ErrorKind::NotFound => "install it, or start the adapter with the program's full path",
        io::ErrorKind::PermissionDenied => "make it executable (chmod +x), or start the adapter with another program",
        _ => "try to run it on this device",
    };
    TaskReply::failed("host_crashed", format!("can't start `{name}`: {error}; {fix}"))
}

pub(crate) fn no_scratch(job: &DriverRun, error: &io::Error) -> TaskReply {
    let folder = job.scratch.display();
    TaskReply::failed(
        "host_crashed",
        format!("can't create a private folder in `{folder}`: {error}; free up space or set TMPDIR"),
    )
}
