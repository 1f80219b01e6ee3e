//! `attache bench channels`: the cost of an idle channel, the time until a run reaches a device, and the fan-out of a
//! stream.

pub(super) mod device;
mod dispatch;
mod fanout;
mod idle;

use std::path::PathBuf;

use attache_client::{HubClient, HubClientOptions, HubCredential};
use attache_protocol::Json;
use serde::Serialize;

use self::{dispatch::DispatchLatencies, fanout::FanoutFigures, idle::IdleFigures};
use super::{BenchResult, FiguresFormat, server_process::ServerProcess, world::BenchFolder};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Number of idle channels for the memory measurement; 0 skips it
    #[arg(long, default_value_t = 10_000)]
    channels: usize,
    /// Number of runs per latency measurement; 0 skips it
    #[arg(long, default_value_t = 300)]
    runs: usize,
    /// Number of callers that keep the hub busy for the latency under load
    #[arg(long, default_value_t = 16)]
    callers: usize,
    /// Number of watchers of one run; 0 skips it
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// Folder for the databases; use the disk that the hub would use
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Default, Serialize)]
struct ChannelFigures {
    idle: Option<IdleFigures>,
    dispatch: Option<DispatchLatencies>,
    fanout: Option<FanoutFigures>,
}

pub(super) async fn run(args: Args, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = BenchFolder::make(args.dir.as_deref())?;
    let mut figures = ChannelFigures::default();
    if args.runs > 0 {
        let hub = ServerProcess::start("hub", &scratch.folder("dispatch", 0)?).await?;
        figures.dispatch = Some(dispatch::measure(&hub, &scratch.folder("device", 0)?, args.runs, args.callers).await?);
    }
    if args.watchers > 0 {
        let hub = ServerProcess::start("hub", &scratch.folder("fanout", 0)?).await?;
        figures.fanout = Some(fanout::measure(&hub, args.watchers).await?);
    }
    if args.channels > 0 {
        let hub = ServerProcess::start("hub", &scratch.folder("idle", 0)?).await?;
        figures.idle = Some(idle::measure(&hub, args.channels).await?);
    }
    figures.print(shape);
    Ok(())
}

/// The hub with its owner's key.
fn owner(hub: &ServerProcess) -> BenchResult<HubClient> {
    Ok(HubClient::new(HubClientOptions::new(hub.url.as_str(), HubCredential::Key(hub.key.clone())))?)
}

// === impl ChannelFigures ===

impl ChannelFigures {
    #[allow(clippy::print_stdout, reason = "the report is the command's output")]
    fn print(&self, shape: FiguresFormat) {
        if shape == FiguresFormat::Json {
            return println!("{}", Json::of(self).get());
        }
        if let Some(DispatchLatencies { rest, load, decision, busy_runs_per_second }) = &self.dispatch {
            println!("create -> adapter, idle hub: p50 {:.2} ms, p99 {:.2} ms", rest.p50_ms, rest.p99_ms);
            println!(
                "create -> adapter, under {busy_runs_per_second:.0} runs/s: p50 {:.2} ms, p99 {:.2} ms",
                load.p50_ms, load.p99_ms
            );
            println!("decision -> process continues: p50 {:.2} ms, p99 {:.2} ms", decision.p50_ms, decision.p99_ms);
        }
        if let Some(FanoutFigures { watchers, events, deliveries_per_second, one_watcher_per_second }) = &self.fanout {
            println!(
                "{events} events to {watchers} watchers: {deliveries_per_second:.0} deliveries/s \
                 (one watcher alone: {one_watcher_per_second:.0}/s)"
            );
        }
        if let Some(IdleFigures { channels, kib_per_channel, hub_mib }) = &self.idle {
            println!("{channels} idle channels: {kib_per_channel:.1} KiB each, hub total {hub_mib:.0} MiB");
        }
    }
}
