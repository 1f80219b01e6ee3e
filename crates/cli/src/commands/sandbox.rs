//! `attache sandbox`: runs a command inside walls, or shows which walls this machine has.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    num::NonZeroU64,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{ExitCode, ExitStatus},
};

use attache_adapter::{GuardedRepository, MemorySize};
use attache_os::control_group::{ControlGroups, RunResources};
use attache_protocol::{error::exit, wire::run::SandboxLimit};
use attache_sandbox::{Launcher, Proof, Walls};
use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions},
};
use serde::Serialize;
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
};

use crate::{
    env::{config, context::CommandContext, home, hosts, walls},
    ui::failure::CommandFailure,
};

/// Run a command in a sandbox: its own folder, no network, no other programs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache sandbox                                     test and show what this machine can enforce
  attache sandbox -- make test                        only this folder, no network
  attache sandbox --net all --read ~/.cargo -- cargo fetch
  attache sandbox --no-exec -- python3 untrusted.py   it can't start other programs

Agents get the same walls when a caller asks for limits (`attache ask --sandbox cwd-only,no-network`).
Exits with the command's own status.")]
pub(crate) struct Args {
    /// Network access
    #[arg(long, value_name = "WHICH", default_value = "none")]
    net: NetworkChoice,
    /// Another file or folder that it can read; repeatable
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// Another folder that it can write to; repeatable
    #[arg(long, value_name = "DIR")]
    write: Vec<PathBuf>,
    /// Let it see all files that you can see
    #[arg(long, conflicts_with_all = ["read", "write"])]
    all_files: bool,
    /// Don't let it start other programs
    #[arg(long)]
    no_exec: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum NetworkChoice {
    None,
    All,
}

/// The exit statuses of shells for a program that can't be started, and one that isn't there.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended a program.
const SIGNALLED: i32 = 128;

#[derive(Serialize)]
struct SandboxReport {
    enforces: Vec<SandboxLimit>,
    #[serde(flatten)]
    proof: Proof,
    resources: ResourceReport,
}

/// What a run may use, if its adapter is started from here. Absent if it isn't limited.
#[derive(Serialize)]
struct ResourceReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<u32>,
    /// Why something isn't limited, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

/// The second stage and the probe, which run inside. Called before anything else of the program runs.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "the streams of the program that it becomes")]
pub(crate) fn inside_walls(args: &[OsString]) -> Option<ExitCode> {
    let (kind, what) = (args.get(1)?.to_str()?, args.get(2).and_then(|what| what.to_str()));
    let failed = |error: io::Error, exit: u8| {
        eprintln!("attache: {error}");
        ExitCode::from(exit)
    };
    match kind {
        walls::STAGE => {
            let Err(error) = attache_sandbox::enter(args.iter().skip(2).cloned());
            let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
            Some(failed(error, status))
        }
        walls::PROBE => Some(match attache_sandbox::probe(what.unwrap_or_default()) {
            Ok(results) => {
                let text = serde_json::to_vec(&results).unwrap_or_default();
                let _ = io::stdout().write_all(&text);
                ExitCode::SUCCESS
            }
            Err(error) => failed(error, exit::FAILED),
        }),
        _ => None,
    }
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let launcher = walls::launcher()?;
    if args.command.is_empty() {
        return show(&context, &launcher);
    }
    let mut limits = vec![SandboxLimit::CwdOnly, SandboxLimit::NoNetwork, SandboxLimit::NoExec];
    limits.retain(|limit| match limit {
        SandboxLimit::CwdOnly => !args.all_files,
        SandboxLimit::NoNetwork => args.net == NetworkChoice::None,
        SandboxLimit::NoExec => args.no_exec,
    });
    let proof = launcher.prove();
    if let Some(unproved) = limits.iter().find(|limit| !proof.limits().contains(limit)) {
        let hint = proof.missing.first().cloned().unwrap_or_else(|| "Run `attache sandbox` for details.".to_owned());
        return Err(
            CommandFailure::failed(format!("this machine can't enforce {unproved}, so nothing was started")).hint(hint)
        );
    }
    let folder = |path: &PathBuf| path.canonicalize().map_err(|error| CommandFailure::file("use", path, &error));
    let cwd = std::env::current_dir()
        .and_then(|cwd| cwd.canonicalize())
        .map_err(|error| CommandFailure::failed(format!("can't use the current folder: {error}")))?;
    let mut inside = Walls::open(cwd).limit(&limits);
    inside.read = args.read.iter().map(folder).collect::<Result<_, _>>()?;
    inside.write = args.write.iter().map(folder).collect::<Result<_, _>>()?;
    inside.hide = home::own_folders(&context.config);
    // One that isn't there yet could be made inside, and would then be ours.
    for own in
        inside.hide.iter().filter(|own| inside.write.iter().chain([&inside.cwd]).any(|open| own.starts_with(open)))
    {
        home::private_folder(own).map_err(|error| CommandFailure::file("create", own, &error))?;
    }
    inside.terminal = true;
    inside.processes = Some(walls::resources(&hosts::table(&context)?).processes);
    // Held until the command has ended.
    let guarded = match launcher.has_namespaces() {
        true => {
            let folders = inside.write.iter().chain([&inside.cwd]).map(PathBuf::as_path);
            GuardedRepository::new(folders, &inside.hide, &config::temporary_folder(), &context.env)
                .map_err(|error| CommandFailure::failed(format!("can't set up the sandbox: {error}")))?
        }
        false => GuardedRepository::default(),
    };
    inside.fixed.clone_from(&guarded.fixed);
    let mut words = args.command.into_iter();
    let program = words.next().unwrap_or_default();
    let (bwrap, arguments) = launcher
        .command(&inside, &program)
        .map_err(|error| CommandFailure::failed(format!("can't set up the sandbox: {error}")))?;
    let mut command = Command::new(bwrap);
    command.args(arguments).args(words);
    config::OWN_VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    // Whoever is orphaned inside becomes a child of this process.
    let _ = attache_os::machine::inherit_orphans();
    let ended = wait(command).await;
    if launcher.has_namespaces() {
        // The last one is the first process of the namespace, which ends after all others.
        while !matches!(rustix::process::wait(WaitOptions::empty()), Err(error) if error != Errno::INTR) {}
    }
    drop(guarded);
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let code =
                status.code().or_else(|| Some(SIGNALLED + status.signal()?)).and_then(|code| u8::try_from(code).ok());
            Err(CommandFailure::quiet(code.unwrap_or(exit::FAILED)))
        }
        Err(error) => Err(CommandFailure::failed(format!("can't start `{}`: {error}", program.display()))),
    }
}

/// Waits for the command, and passes on signals that are meant for it. Those of the terminal reach it directly.
async fn wait(mut command: Command) -> io::Result<ExitStatus> {
    let _ignored = (signal(SignalKind::interrupt())?, signal(SignalKind::quit())?);
    let (mut terminate, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let mut child = command.spawn()?;
    loop {
        tokio::select! {
            ended = child.wait() => return ended,
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(id, Signal::TERM);
        }
    }
}

/// Which limits hold on this machine, one line per attempt.
fn show(context: &CommandContext, launcher: &Launcher) -> Result<(), CommandFailure> {
    let proof = launcher.prove();
    let output = &context.output;
    let enforces = proof.limits();
    let resources = ResourceReport::of(walls::resources(&hosts::table(context)?), launcher);
    if output.is_json() {
        return output.json(&SandboxReport { enforces, proof, resources });
    }
    output.line(format_args!("Enforced here: {proof}"))?;
    for result in &proof.attempts {
        let mark = if result.held { "refused" } else { "OPEN" };
        output.line(format_args!("  {mark:<8} {}", result.attempt.describe()))?;
    }
    for missing in &proof.missing {
        output.line(missing)?;
    }
    output.line(resources.describe())
}

// === impl ResourceReport ===

impl ResourceReport {
    fn of(resources: RunResources, launcher: &Launcher) -> Self {
        let support = ControlGroups::support();
        // Elsewhere, the kernel counts the processes of a user namespace, but never those of root.
        let is_counted = launcher.has_namespaces() && !rustix::process::geteuid().is_root();
        Self {
            memory: support.memory.then_some(resources.memory.get()),
            processes: (support.processes || is_counted).then_some(resources.processes.get()),
            missing: support.missing,
        }
    }

    fn describe(&self) -> String {
        let memory = self.memory.and_then(NonZeroU64::new).map(|bytes| format!("{} of memory", MemorySize(bytes)));
        let processes = self.processes.map(|count| format!("{count} processes"));
        let limits: Vec<String> = memory.into_iter().chain(processes).collect();
        let limits =
            if limits.is_empty() { "all of this machine's memory and processes".to_owned() } else { limits.join(", ") };
        match &self.missing {
            Some(why) => format!("A run can use {limits}. Not everything is limited: {why}."),
            None => format!("A run can use {limits}."),
        }
    }
}
