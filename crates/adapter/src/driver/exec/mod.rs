//! Drives a program that gets the task, prints its answer and exits. Its preset says how the task is passed and how the
//! output is read.
//!
//! Such a program never asks for approval: its arguments settle what it can do.

mod output_reader;

use std::{collections::BTreeMap, ffi::OsString, path::Path, time::Duration};

use attache_protocol::wire::adapter::{HostInfo, TaskReply};
use futures_util::{FutureExt as _, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use self::output_reader::ExecOutputReader;
use super::{Driver, DriverRun, reply_either_way};
use crate::{
    attachment,
    host::{HostLaunch, HostProcess, HostSetup, HostTurn, SandboxLimit, TurnVerdict, limits, outage, outcome, prompt},
    preset::ExecOutputRules,
    process::{self, PIPE_DRAIN_TIMEOUT},
    scratch::{self, ScratchFolder},
};

#[derive(Debug, Clone)]
pub struct ExecDriver {
    setup: HostSetup,
    shape: ExecOutputRules,
    limits: BTreeMap<SandboxLimit, Vec<String>>,
    budget: Vec<String>,
}

/// Placeholders in arguments.
mod place {
    /// The task. Without this placeholder the task goes to standard input.
    pub(super) const PROMPT: &str = "{prompt}";
    pub(super) const CWD: &str = "{cwd}";
    /// A file of the run where the program writes its usage.
    pub(super) const USAGE_FILE: &str = "{usage_file}";
    /// The remaining budget.
    pub(super) const COST: &str = "{cost_usd}";
}

/// How long a program may take to exit after an interrupt.
const INTERRUPT_TIMEOUT: Duration = Duration::from_millis(700);

/// How long it may take to exit after it closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_millis(300);

/// Larger usage files are ignored.
const MAX_USAGE_FILE: u64 = 256 * 1024;

// === impl ExecDriver ===

impl ExecDriver {
    pub const fn new(setup: HostSetup, shape: ExecOutputRules) -> Self {
        Self { setup, shape, limits: BTreeMap::new(), budget: Vec::new() }
    }

    /// The arguments that make the program enforce a limit.
    #[must_use]
    pub fn with_limits(mut self, limits: BTreeMap<SandboxLimit, Vec<String>>) -> Self {
        self.setup.enforces.extend(limits.keys());
        self.limits = limits;
        self
    }

    /// The arguments that pass the remaining budget, as `{cost_usd}`.
    #[must_use]
    pub fn with_budget(mut self, args: Vec<String>) -> Self {
        self.budget = args;
        self
    }

    /// The launch, and the part of the task that goes to standard input.
    fn launch(&self, asked: &ExecArguments<'_>) -> Result<(HostLaunch, Option<String>), TaskReply> {
        let (program, mut args) = (self.setup.program.clone(), self.setup.args.clone());
        let kept = asked.limits.iter().filter_map(|limit| self.limits.get(limit)).flatten();
        args.extend(kept.map(OsString::from));
        if let Some(cost) = asked.cost_usd {
            args.extend(self.budget.iter().map(|arg| arg.replace(place::COST, &cost.to_string()).into()));
        }
        let is_argument = args.iter().any(|arg| arg.to_str().is_some_and(|arg| arg.contains(place::PROMPT)));
        if is_argument {
            process::fits(asked.prompt, &program, "remove `{prompt}` from the preset's arguments")?;
        }
        let fill = |arg: &mut OsString| {
            if let Some(text) = arg.to_str().filter(|text| text.contains('{')) {
                // The task comes last, so placeholders inside it aren't replaced.
                let text = text.replace(place::CWD, &asked.cwd.display().to_string());
                let text = text.replace(place::USAGE_FILE, &asked.usage_file.display().to_string());
                *arg = text.replace(place::PROMPT, asked.prompt).into();
            }
        };
        args.iter_mut().for_each(fill);
        let launch = HostLaunch { program, args, ..HostLaunch::default() };
        Ok((launch, (!is_argument).then(|| asked.prompt.to_owned())))
    }
}

/// The values for the placeholders.
#[derive(Debug)]
struct ExecArguments<'a> {
    prompt: &'a str,
    cwd: &'a Path,
    usage_file: &'a Path,
    limits: &'a [SandboxLimit],
    cost_usd: Option<f64>,
}

impl Driver for ExecDriver {
    fn host(&self) -> HostInfo {
        self.setup.host()
    }

    fn enforces(&self) -> Vec<SandboxLimit> {
        self.setup.enforces.clone()
    }

    fn asks(&self) -> bool {
        self.setup.asks
    }

    fn runs_inside_walls(&self) -> bool {
        self.setup.needs.is_some()
    }

    fn run(&self, job: DriverRun) -> BoxFuture<'static, TaskReply> {
        let setup = limits::setup_for(&self.setup, &job);
        reply_either_way(execute(Self { setup, ..self.clone() }, job))
    }
}

async fn execute(exec: ExecDriver, job: DriverRun) -> Result<TaskReply, TaskReply> {
    let attached = attachment::of(&job)?;
    let text = job.task_text(&attached)?;
    let kept = limits::agreed(&exec.setup, &job)?;
    let given = attachment::prepare(&job, &text, attached, |_| false)?;
    let prompt = prompt::whole(prompt::system(&job).as_deref(), &given.task);
    let scratch = ScratchFolder::create(&job.scratch, &job.env).map_err(|error| process::no_scratch(&job, &error))?;
    let usage_file = scratch.file("usage.json");
    let turn = HostTurn::begin(&exec.setup.label, &job);
    let cost_usd = turn.budget().cost_usd;
    let asked = ExecArguments { prompt: &prompt, cwd: &job.cwd, usage_file: &usage_file, limits: &kept.own, cost_usd };
    let (mut launch, input) = exec.launch(&asked)?;
    launch.writes.extend(scratch.path().canonicalize());
    let mut process = HostProcess::start(&exec.setup, &launch, &kept.walled, &job).await?;
    if job.task.mcp.is_some() {
        turn.log("info", format!("{} doesn't support our MCP tools, so it can't call other agents", exec.setup.label));
    }
    let look = || limits::still_harmless(&exec.setup, &job);
    let mut heard = ExecOutputReader::new(turn, exec.shape.clone());
    let cut_short = tokio::select! {
        biased;
        worked = work(&mut process, input, &mut heard, look) => worked.err(),
        () = job.stop.cancelled() => Some(TurnVerdict::Stopped),
    };
    let patience = match cut_short {
        None => EXIT_TIMEOUT,
        Some(_) => {
            process.interrupt();
            INTERRUPT_TIMEOUT
        }
    };
    let ended = process.end(patience).await;
    if let Ok(Some(usage)) = scratch::plain_text(&usage_file, MAX_USAGE_FILE) {
        heard.usage_file(&usage);
    }
    let verdict = cut_short.unwrap_or_else(|| heard.verdict(&ended));
    let turn = heard.finish();
    drop(given);
    Ok(outcome::reply(outage::reclassify_failure(verdict, &turn.text), &turn, &ended))
}

/// Waits until the program has exited and all output was read, or until it must be stopped.
async fn work(
    process: &mut HostProcess,
    input: Option<String>,
    heard: &mut ExecOutputReader,
    look: impl Fn() -> Result<(), TurnVerdict>,
) -> Result<(), TurnVerdict> {
    let (stdin, stdout) = (process.stdin(), process.stdout());
    let gone = CancellationToken::new();
    let closed = || async {
        gone.cancelled().await;
        // A process that left the group may keep the pipes open.
        tokio::time::sleep(PIPE_DRAIN_TIMEOUT).await;
    };
    let exit = async {
        let _ = process.exited().await;
        gone.cancel();
        Ok(())
    };
    // Without input the pipe closes at once, so the program doesn't wait for more.
    let feed = process::write_stdin(stdin, input, closed()).map(Ok);
    tokio::try_join!(exit, feed, heard.read(stdout, closed(), look)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(args: &[&str]) -> ExecDriver {
        let setup = HostSetup { args: args.iter().map(Into::into).collect(), ..HostSetup::new("x", "X", "prog") };
        ExecDriver::new(setup, ExecOutputRules::default())
    }

    fn launched(
        exec: &ExecDriver,
        prompt: &str,
        limits: &[SandboxLimit],
    ) -> Result<(Vec<OsString>, Option<String>), TaskReply> {
        let (cwd, usage_file) = (Path::new("/w"), Path::new("/s/usage.json"));
        let asked = ExecArguments { prompt, cwd, usage_file, limits, cost_usd: Some(0.25) };
        exec.launch(&asked).map(|(launch, input)| (launch.args, input))
    }

    #[test]
    fn placeholders_inside_the_task_are_not_replaced() {
        let exec = exec(&["-z", "{prompt}", "--cwd={cwd}", "--usage-file", "{usage_file}"]);
        let expected = ["-z", "{cwd} it", "--cwd=/w", "--usage-file", "/s/usage.json"].map(OsString::from).to_vec();
        assert_eq!(launched(&exec, "{cwd} it", &[]), Ok((expected, None)));
        let error = launched(&exec, &"x".repeat(200_000), &[]).unwrap_err().error.unwrap();
        let expected = "the task's text has 200000 bytes, but an argument can hold 130048; remove `{prompt}` from the preset's \
                        arguments, so that `prog` gets the text on its standard input";
        assert_eq!((error.code.as_str(), error.message.as_str()), ("rejected", expected));
    }

    #[test]
    fn limits_and_budget_become_arguments() {
        let exec = exec(&["run"])
            .with_limits(BTreeMap::from([(SandboxLimit::NoNetwork, vec!["--offline".to_owned()])]))
            .with_budget(vec!["--max".to_owned(), "{cost_usd}".to_owned()]);
        assert_eq!(exec.setup.enforces, [SandboxLimit::NoNetwork]);
        let args = |limits| launched(&exec, "task", limits).unwrap();
        let expected = ["run", "--offline", "--max", "0.25"].map(OsString::from).to_vec();
        assert_eq!(args(&[SandboxLimit::NoNetwork]), (expected, Some("task".to_owned())));
        assert_eq!(args(&[]).0, ["run", "--max", "0.25"].map(OsString::from).to_vec());
    }
}
