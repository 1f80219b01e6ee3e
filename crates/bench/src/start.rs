//! How quickly `attache up` answers on a fresh machine, and how much memory it uses when idle.

use std::time::Duration;

use attache_protocol::Json;
use serde::Serialize;

use super::{
    BenchResult, FiguresFormat, StartArgs,
    report::{median, millis},
    server_process::ServerProcess,
    world::BenchFolder,
};

/// Long enough for everything to settle.
const SETTLE_INTERVAL: Duration = Duration::from_secs(3);

#[derive(Serialize)]
struct StartFigures {
    up_ready_ms: f64,
    idle_hub_mib: f64,
}

#[allow(clippy::print_stdout, reason = "the report is the command's output")]
pub(super) async fn run(args: StartArgs, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = BenchFolder::make(None)?;
    let mut ready = Vec::new();
    let mut resident = Vec::new();
    for round in 0..args.times {
        let up = ServerProcess::start("up", &scratch.folder("up", round)?).await?;
        ready.push(millis(up.ready_after));
        drop(up);
        let hub = ServerProcess::start("hub", &scratch.folder("hub", round)?).await?;
        tokio::time::sleep(SETTLE_INTERVAL).await;
        resident.push(hub.resident_kib()? / 1024.0);
    }
    let (ready, resident) = (median(ready.into_iter()), median(resident.into_iter()));
    match shape {
        FiguresFormat::Json => {
            println!("{}", Json::of(&StartFigures { up_ready_ms: ready, idle_hub_mib: resident }).get());
        }
        FiguresFormat::Table => {
            println!("`attache up` is ready after {ready:.0} ms (median of {})", args.times);
            println!("an idle hub uses {resident:.1} MiB");
        }
    }
    Ok(())
}
