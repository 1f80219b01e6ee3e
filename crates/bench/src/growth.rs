//! How the cost of a claim and of the run list grows up to a million stored runs.

use std::time::{Duration, Instant};

use attache_protocol::{
    Json,
    rules::run::{RunStatus, WorkerRef},
};
use attache_store::{
    Store as _,
    record::{Pagination, RunFilter, RunResult},
};
use serde::Serialize;

use super::{
    BenchResult, FiguresFormat, GrowthArgs,
    load::quantile,
    report::millis,
    world::{BenchFolder, BenchWorld, IdempotencyMode},
};

const CLAIMS: usize = 300;
const LISTS: usize = 30;
const FILLERS: usize = 256;
/// As many runs as one sweep always indexes while nothing else writes.
const RUNS_PER_SWEEP: usize = 2_000;

#[derive(Serialize)]
struct GrowthFigures {
    rows: Vec<GrowthRow>,
}

/// Medians, in milliseconds.
#[derive(Serialize)]
struct GrowthRow {
    stored: usize,
    claim_ms: f64,
    list_ms: f64,
    list_failed_ms: f64,
    list_agent_ms: f64,
    search_ms: f64,
}

#[allow(clippy::print_stdout, reason = "the report is the command's output")]
pub(super) async fn run(args: GrowthArgs, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = BenchFolder::make(args.dir.as_deref())?;
    let world = BenchWorld::make(&scratch.folder("growth", 0)?, 2).await?;
    let mut stored = 0;
    let mut rows = Vec::new();
    for size in args.sizes {
        eprintln!("filling up to {size} runs …");
        fill(&world, size.saturating_sub(stored)).await?;
        stored = stored.max(size);
        rows.push(measure(&world, stored).await?);
    }
    world.store.close().await;
    if shape == FiguresFormat::Json {
        println!("{}", Json::of(&GrowthFigures { rows }).get());
        return Ok(());
    }
    println!(
        "{:>10} {:>12} {:>14} {:>14} {:>14} {:>14}",
        "stored", "claim ms", "newest 50 ms", "failed 50 ms", "agent 50 ms", "search ms"
    );
    for GrowthRow { stored, claim_ms, list_ms, list_failed_ms, list_agent_ms, search_ms } in rows {
        println!(
            "{stored:>10} {claim_ms:>12.3} {list_ms:>14.3} {list_failed_ms:>14.3} {list_agent_ms:>14.3} {search_ms:>14.3}"
        );
    }
    Ok(())
}

/// Complete runs of the first agent, so that the stored data looks like a hub's history.
pub(super) async fn fill(world: &BenchWorld, count: usize) -> BenchResult<()> {
    let tasks: Vec<_> = (0..FILLERS)
        .map(|number| {
            let world = world.clone();
            let share = count / FILLERS + usize::from(number < count % FILLERS);
            tokio::spawn(async move {
                for _ in 0..share {
                    whole_run(&world, 0).await?;
                }
                BenchResult::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn whole_run(world: &BenchWorld, queue: usize) -> BenchResult<Duration> {
    let queue = &world.queues[queue];
    world.store.create_run(world.context(), world.new_run(queue.agent, IdempotencyMode::No)).await?;
    let start = Instant::now();
    let claimed = world.store.claim(queue.runtime, None, Vec::new(), Duration::from_secs(120), world.env.now()).await?;
    let took = start.elapsed();
    let run = claimed.ok_or("nothing to claim although a run was created")?.run;
    let by = WorkerRef { runtime: queue.runtime, epoch: Some(run.state.epoch) };
    let outcome = RunResult::Completed { output: Json::empty_object(), artifacts: Vec::new() };
    world.store.finish(by, run.id, outcome, None, None, world.env.now()).await?;
    Ok(took)
}

async fn measure(world: &BenchWorld, stored: usize) -> BenchResult<GrowthRow> {
    let mut claims = Vec::with_capacity(CLAIMS);
    for _ in 0..CLAIMS {
        claims.push(whole_run(world, 1).await?);
    }
    claims.sort_unstable();
    let agent = Some(world.queues[1].agent);
    // A hub sweeps every second and indexes meanwhile.
    for _ in 0..=stored / RUNS_PER_SWEEP {
        world.store.sweep(Duration::from_secs(120), world.env.now()).await?;
    }
    Ok(GrowthRow {
        stored,
        claim_ms: millis(quantile(&claims, 50)),
        list_ms: list(world, RunFilter::default()).await?,
        list_failed_ms: list(world, RunFilter { status: Some(RunStatus::Failed), ..RunFilter::default() }).await?,
        list_agent_ms: list(world, RunFilter { agent, ..RunFilter::default() }).await?,
        search_ms: list(world, RunFilter { text: Some("no such words".to_owned()), ..RunFilter::default() }).await?,
    })
}

async fn list(world: &BenchWorld, filter: RunFilter) -> BenchResult<f64> {
    let mut took = Vec::with_capacity(LISTS);
    for _ in 0..LISTS {
        let start = Instant::now();
        world.store.runs(world.tenant, filter.clone(), Pagination { limit: 50, cursor: None }).await?;
        took.push(start.elapsed());
    }
    took.sort_unstable();
    Ok(millis(quantile(&took, 50)))
}
