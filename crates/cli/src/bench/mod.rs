//! `attache bench`: how fast we are, as ratios in one run, because the machine is noisy and ratios are not.

use std::{path::PathBuf, time::Duration};

mod a2a;
mod bare_queue;
mod calls;
mod channels;
mod delegation;
mod growth;
mod hosts;
mod http;
mod http_connection;
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
  attache bench workspace
  attache bench delegation
  attache bench hosts
  attache bench hosts --type claude_cli --prompt 'say hello' -- claude -p {}
  attache bench start")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Benchmark,
}

#[derive(Debug, clap::Subcommand)]
enum Benchmark {
    /// Whole runs per second (create, claim, complete): a bare SQLite loop, our store, our HTTP API
    Runs(RunsArgs),
    /// Calls per second to an agent on a channel, with and without keys, rules, quotas and limits, beside a bare server
    Calls(RunsArgs),
    /// A2A messages per second, durable and done by an agent in the hub's process, beside a bare server; the first event of a stream
    A2a(RunsArgs),
    /// How the cost of a claim and of the run list grows with the number of stored runs
    Growth(GrowthArgs),
    /// What an idle channel costs, how soon work reaches a device, how one stream reaches many watchers
    Channels(channels::Args),
    /// A lent folder under stock sshfs beside OpenSSH's own server: throughput, small files, and how soon a lease is cut
    Workspace(workspace::Args),
    /// From the command to the first byte at the remote, through the hub's tunnel beside the straight way, and back to nothing
    Delegation(delegation::Args),
    /// What we add to a host's own program, and how soon what it prints is seen
    Hosts(hosts::Args),
    /// How soon `attache up` is ready, and how much memory it holds when idle
    Start(StartArgs),
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RunsArgs {
    /// How many callers keep one run or call each under way
    #[arg(long, default_value_t = 64)]
    callers: usize,
    /// How long each level is driven in each round
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Levels are measured one after the other, this many times; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where the databases are made; use the disk that the hub would use
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GrowthArgs {
    /// The numbers of stored runs to compare, in ascending order
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 100_000, 1_000_000])]
    sizes: Vec<usize>,
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StartArgs {
    /// How often to start it; the median counts
    #[arg(long, default_value_t = 5)]
    times: usize,
}

/// What went wrong, in words; a benchmark has no errors that a program would tell apart.
pub(crate) type BenchResult<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How the figures are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FiguresFormat {
    Table,
    Json,
}

pub(crate) async fn run(args: Args, shape: FiguresFormat) -> BenchResult<()> {
    match args.what {
        Benchmark::Runs(args) => runs(args, shape).await,
        Benchmark::Calls(args) => calls::run(args, shape).await,
        Benchmark::A2a(args) => a2a::run(args, shape).await,
        Benchmark::Growth(args) => growth::run(args, shape).await,
        Benchmark::Channels(args) => channels::run(args, shape).await,
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
