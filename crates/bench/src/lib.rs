//! `attache bench`: performance as ratios within one run, because machines are noisy and ratios are not.

use std::{path::PathBuf, time::Duration};

mod a2a;
mod bare_queue;
mod calls;
mod channels;
mod console;
mod delegation;
mod growth;
mod hosts;
mod http;
mod http_connection;
pub mod lease;
mod load;
mod machine;
mod probe;
mod report;
mod server_process;
mod start;
mod store_cycle;
mod workspace;
mod world;

/// Measure this build on this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache bench runs --callers 64
  attache bench calls --callers 64
  attache bench a2a --callers 32
  attache bench growth --sizes 1000,100000
  attache bench channels --channels 10000
  attache bench console
  attache bench workspace
  attache bench delegation
  attache bench hosts
  attache bench hosts --type claude_cli --prompt 'say hello' -- claude -p {}
  attache bench start")]
pub struct Args {
    #[command(subcommand)]
    what: Benchmark,
}

#[derive(Debug, clap::Subcommand)]
enum Benchmark {
    /// Runs per second (create, claim, complete): bare SQLite loop, our store, our HTTP API
    Runs(RunsArgs),
    /// Calls per second to an agent on a channel, with and without keys, rules, quotas and limits, compared with a bare
    /// server
    Calls(RunsArgs),
    /// A2A messages per second, durable and executed in the hub's process, compared with a bare server; time to a
    /// stream's first event
    A2a(RunsArgs),
    /// How the cost of a claim and of the run list grows with the number of stored runs
    Growth(GrowthArgs),
    /// Memory of an idle channel, time until a run reaches a device, fan-out of one stream to many watchers
    Channels(channels::Args),
    /// How long the console takes to show a page, a line of output and an approval, with a long history stored
    Console(console::Args),
    /// A delegated folder under stock sshfs compared with OpenSSH's own server: throughput, small files, time to revoke
    /// a lease
    Workspace(workspace::Args),
    /// Time from the delegate command to the remote's first byte, through the hub's tunnel and directly, and time to
    /// revoke access
    Delegation(delegation::Args),
    /// Overhead compared with running the host's program directly, and delay until its output is visible
    Hosts(hosts::Args),
    /// Startup time of `attache up`, and its memory when idle
    Start(StartArgs),
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RunsArgs {
    /// Number of callers; each keeps one run or call in progress
    #[arg(long, default_value_t = 64)]
    callers: usize,
    /// Seconds per level and round
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Number of rounds, levels one after another; the median is reported
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Folder for the databases; use the disk that the hub would use
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GrowthArgs {
    /// Numbers of stored runs to compare, in ascending order
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 100_000, 1_000_000])]
    sizes: Vec<usize>,
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StartArgs {
    /// Number of starts; the median is reported
    #[arg(long, default_value_t = 5)]
    times: usize,
}

/// What went wrong, as text. A benchmark has no errors that a program would tell apart.
pub type BenchResult<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How the figures are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FiguresFormat {
    Table,
    Json,
}

pub async fn run(args: Args, shape: FiguresFormat) -> BenchResult<()> {
    match args.what {
        Benchmark::Runs(args) => runs(args, shape).await,
        Benchmark::Calls(args) => calls::run(args, shape).await,
        Benchmark::A2a(args) => a2a::run(args, shape).await,
        Benchmark::Growth(args) => growth::run(args, shape).await,
        Benchmark::Channels(args) => channels::run(args, shape).await,
        Benchmark::Console(args) => console::run(args, shape).await,
        Benchmark::Workspace(args) => workspace::run(args, shape).await,
        Benchmark::Delegation(args) => delegation::run(args, shape).await,
        Benchmark::Hosts(args) => hosts::run(args, shape).await,
        Benchmark::Start(args) => start::run(args, shape).await,
    }
}

async fn runs(args: RunsArgs, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = world::BenchFolder::make(args.dir.as_deref())?;
    let time = Duration::from_secs(args.seconds);
    let mut report = report::RunsReport::new(args.callers, args.seconds);
    for round in 0..args.rounds {
        report.probe(probe::fsyncs_per_second(&scratch.folder("probe", round)?)?);
        report.bare(bare_queue::drive(&scratch.folder("bare", round)?, args.callers, time).await?);
        report.store(store_cycle::drive(&scratch.folder("store", round)?, args.callers, time).await?);
        report.http(http::drive(&scratch.folder("http", round)?, args.callers, time).await?);
        eprintln!("round {} of {} done", round + 1, args.rounds);
    }
    report.print(shape);
    Ok(())
}
