//! A program that gets the task, prints and ends. A row says how the task goes in and how the output is read.
//!
//! Such a program asks nobody: what it may do is settled by its arguments.

mod heard;

use std::{collections::BTreeMap, ffi::OsString, path::Path, time::Duration};

use attache_protocol::wire::adapter::{Host, TaskReply};
use futures_util::{FutureExt as _, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use self::heard::Heard;
use super::{Driver, Job, settled};
use crate::{
    attachment,
    host::{Launch, Limit, Process, Setup, Turn, Verdict, limits, outage, outcome, prompt},
    preset::ExecShape,
    process::{self, LINGER},
    scratch::{self, Scratch},
};

#[derive(Debug, Clone)]
pub struct Exec {
    setup: Setup,
    shape: ExecShape,
    limits: BTreeMap<Limit, Vec<String>>,
    budget: Vec<String>,
}

/// What stands in an argument for something of the run.
mod place {
    /// The task. Without it the task is the standard input.
    pub(super) const PROMPT: &str = "{prompt}";
    pub(super) const CWD: &str = "{cwd}";
    /// A file of the run's own, where the program writes what it used.
    pub(super) const USAGE_FILE: &str = "{usage_file}";
    /// What is left to spend.
    pub(super) const COST: &str = "{cost_usd}";
}

/// How long a program may take to end after an interrupt.
const FAREWELL: Duration = Duration::from_millis(700);

/// How long it may take after it has closed its output.
const END: Duration = Duration::from_millis(300);

/// A file about usage that is longer is none.
const LONGEST_USAGE: u64 = 256 * 1024;

// === impl Exec ===

impl Exec {
    pub const fn new(setup: Setup, shape: ExecShape) -> Self {
        Self { setup, shape, limits: BTreeMap::new(), budget: Vec::new() }
    }

    /// The arguments by which the program is told to keep a limit.
    #[must_use]
    pub fn with_limits(mut self, limits: BTreeMap<Limit, Vec<String>>) -> Self {
        self.setup.enforces.extend(limits.keys());
        self.limits = limits;
        self
    }

    /// The arguments that tell it what is left to spend, as `{cost_usd}`.
    #[must_use]
    pub fn with_budget(mut self, args: Vec<String>) -> Self {
        self.budget = args;
        self
    }

    /// What to start, and what of the task goes to its standard input.
    fn launch(&self, asked: &Asked<'_>) -> Result<(Launch, Option<String>), TaskReply> {
        let (program, mut args) = (self.setup.program.clone(), self.setup.args.clone());
        let kept = asked.limits.iter().filter_map(|limit| self.limits.get(limit)).flatten();
        args.extend(kept.map(OsString::from));
        if let Some(cost) = asked.cost_usd {
            args.extend(self.budget.iter().map(|arg| arg.replace(place::COST, &cost.to_string()).into()));
        }
        let is_argument = args.iter().any(|arg| arg.to_str().is_some_and(|arg| arg.contains(place::PROMPT)));
        if is_argument {
            process::fits(asked.prompt, &program, "leave `{prompt}` out of the row's arguments")?;
        }
        let fill = |arg: &mut OsString| {
            if let Some(text) = arg.to_str().filter(|text| text.contains('{')) {
                // The task last: what looks like a place in it is none.
                let text = text.replace(place::CWD, &asked.cwd.display().to_string());
                let text = text.replace(place::USAGE_FILE, &asked.usage_file.display().to_string());
                *arg = text.replace(place::PROMPT, asked.prompt).into();
            }
        };
        args.iter_mut().for_each(fill);
        let launch = Launch { program, args, ..Launch::default() };
        Ok((launch, (!is_argument).then(|| asked.prompt.to_owned())))
    }
}

/// What a run puts into the arguments.
#[derive(Debug)]
struct Asked<'a> {
    prompt: &'a str,
    cwd: &'a Path,
    usage_file: &'a Path,
    limits: &'a [Limit],
    cost_usd: Option<f64>,
}

impl Driver for Exec {
    fn host(&self) -> Host {
        self.setup.host()
    }

    fn enforces(&self) -> Vec<Limit> {
        self.setup.enforces.clone()
    }

    fn asks(&self) -> bool {
        self.setup.asks
    }

    fn run(&self, job: Job) -> BoxFuture<'static, TaskReply> {
        settled(execute(self.clone(), job))
    }
}

async fn execute(exec: Exec, job: Job) -> Result<TaskReply, TaskReply> {
    let attached = attachment::of(&job)?;
    let text = job.words(&attached)?;
    let kept = limits::agreed(&exec.setup, &job)?;
    let given = attachment::give(&job, &text, attached, |_| false)?;
    let prompt = prompt::whole(prompt::system(&job).as_deref(), &given.task);
    let scratch = Scratch::create(&job.scratch, &job.env).map_err(|error| process::no_scratch(&job, &error))?;
    let usage_file = scratch.file("usage.json");
    let turn = Turn::begin(&exec.setup.label, &job);
    let cost_usd = turn.budget().cost_usd;
    let asked = Asked { prompt: &prompt, cwd: &job.cwd, usage_file: &usage_file, limits: &kept, cost_usd };
    let (launch, input) = exec.launch(&asked)?;
    let mut process = Process::start(&launch, &job).await?;
    if job.task.mcp.is_some() {
        turn.log("info", format!("{} takes no tools of ours, so it cannot put other agents to work", exec.setup.label));
    }
    let look = || limits::still_harmless(&exec.setup, &job);
    let mut heard = Heard::new(turn, exec.shape.clone());
    let cut_short = tokio::select! {
        biased;
        worked = work(&mut process, input, &mut heard, look) => worked.err(),
        () = job.stop.cancelled() => Some(Verdict::Stopped),
    };
    let patience = match cut_short {
        None => END,
        Some(_) => {
            process.interrupt();
            FAREWELL
        }
    };
    let ended = process.end(patience).await;
    if let Ok(Some(usage)) = scratch::plain_text(&usage_file, LONGEST_USAGE) {
        heard.usage_file(&usage);
    }
    let verdict = cut_short.unwrap_or_else(|| heard.verdict(&ended));
    let turn = heard.finish();
    drop(given);
    Ok(outcome::reply(outage::honest(verdict, &turn.text), &turn, &ended))
}

/// Until the program has ended and all that it printed was read, or must be stopped.
async fn work(
    process: &mut Process,
    input: Option<String>,
    heard: &mut Heard,
    look: impl Fn() -> Result<(), Verdict>,
) -> Result<(), Verdict> {
    let (stdin, stdout) = (process.stdin(), process.stdout());
    let gone = CancellationToken::new();
    let closed = || async {
        gone.cancelled().await;
        // A process that left the group may hold the pipes open.
        tokio::time::sleep(LINGER).await;
    };
    let exit = async {
        let _ = process.exited().await;
        gone.cancel();
        Ok(())
    };
    // Without an input the pipe closes at once, so that nobody waits for more.
    let feed = process::feed(stdin, input, closed()).map(Ok);
    tokio::try_join!(exit, feed, heard.read(stdout, closed(), look)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(args: &[&str]) -> Exec {
        let setup = Setup { args: args.iter().map(Into::into).collect(), ..Setup::new("x", "X", "prog") };
        Exec::new(setup, ExecShape::default())
    }

    fn launched(exec: &Exec, prompt: &str, limits: &[Limit]) -> Result<(Vec<OsString>, Option<String>), TaskReply> {
        let (cwd, usage_file) = (Path::new("/w"), Path::new("/s/usage.json"));
        let asked = Asked { prompt, cwd, usage_file, limits, cost_usd: Some(0.25) };
        exec.launch(&asked).map(|(launch, input)| (launch.args, input))
    }

    #[test]
    fn places_are_filled_and_the_task_is_not_searched_for_more() {
        let exec = exec(&["-z", "{prompt}", "--cwd={cwd}", "--usage-file", "{usage_file}"]);
        let expected = ["-z", "{cwd} it", "--cwd=/w", "--usage-file", "/s/usage.json"].map(OsString::from).to_vec();
        assert_eq!(launched(&exec, "{cwd} it", &[]), Ok((expected, None)));
        let error = launched(&exec, &"x".repeat(200_000), &[]).unwrap_err().error.unwrap();
        let expected = "the task's text has 200000 bytes and one argument holds 130048; leave `{prompt}` out of the row's \
                        arguments, so that `prog` gets the text on its standard input";
        assert_eq!((error.code.as_str(), error.message.as_str()), ("rejected", expected));
    }

    #[test]
    fn limits_and_budget_become_arguments() {
        let exec = exec(&["run"])
            .with_limits(BTreeMap::from([(Limit::NoNetwork, vec!["--offline".to_owned()])]))
            .with_budget(vec!["--max".to_owned(), "{cost_usd}".to_owned()]);
        assert_eq!(exec.setup.enforces, [Limit::NoNetwork]);
        let args = |limits| launched(&exec, "task", limits).unwrap();
        let expected = ["run", "--offline", "--max", "0.25"].map(OsString::from).to_vec();
        assert_eq!(args(&[Limit::NoNetwork]), (expected, Some("task".to_owned())));
        assert_eq!(args(&[]).0, ["run", "--max", "0.25"].map(OsString::from).to_vec());
    }
}
