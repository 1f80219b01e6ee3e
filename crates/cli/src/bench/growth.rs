//! Whether a claim and the run list cost more when a million runs are stored.

use std::time::{Duration, Instant};

use attache_protocol::{
    Json,
    rules::run::{Status, Worker},
};
use attache_store::{
    Store as _,
    record::{Outcome, Page, RunFilter},
};
use serde::Serialize;

use super::{
    GrowthArgs, Result, Shape,
    load::quantile,
    report::millis,
    world::{Keyed, Scratch, World},
};

const CLAIMS: usize = 300;
const LISTS: usize = 30;
const FILLERS: usize = 256;

#[derive(Serialize)]
struct Figures {
    rows: Vec<Row>,
}

/// Medians, in milliseconds.
#[derive(Serialize)]
struct Row {
    stored: usize,
    claim_ms: f64,
    list_ms: f64,
    list_failed_ms: f64,
    list_agent_ms: f64,
}

#[allow(clippy::print_stdout, reason = "the report is the command's output")]
pub(super) async fn run(args: GrowthArgs, shape: Shape) -> Result<()> {
    let scratch = Scratch::make(args.dir.as_deref())?;
    let world = World::make(&scratch.folder("growth", 0)?, 2).await?;
    let mut stored = 0;
    let mut rows = Vec::new();
    for size in args.sizes {
        eprintln!("filling up to {size} runs …");
        fill(&world, size.saturating_sub(stored)).await?;
        stored = stored.max(size);
        rows.push(measure(&world, stored).await?);
    }
    world.store.close().await;
    if shape == Shape::Json {
        println!("{}", Json::of(&Figures { rows }).get());
        return Ok(());
    }
    println!("{:>10} {:>12} {:>14} {:>14} {:>14}", "stored", "claim ms", "newest 50 ms", "failed 50 ms", "agent 50 ms");
    for Row { stored, claim_ms, list_ms, list_failed_ms, list_agent_ms } in rows {
        println!("{stored:>10} {claim_ms:>12.3} {list_ms:>14.3} {list_failed_ms:>14.3} {list_agent_ms:>14.3}");
    }
    Ok(())
}

/// Whole runs of the first agent, so that what is stored looks like a hub's past.
async fn fill(world: &World, count: usize) -> Result<()> {
    let tasks: Vec<_> = (0..FILLERS)
        .map(|number| {
            let world = world.clone();
            let share = count / FILLERS + usize::from(number < count % FILLERS);
            tokio::spawn(async move {
                for _ in 0..share {
                    whole_run(&world, 0).await?;
                }
                Result::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn whole_run(world: &World, queue: usize) -> Result<Duration> {
    let queue = &world.queues[queue];
    world.store.create_run(world.context(), world.new_run(queue.agent, Keyed::No)).await?;
    let start = Instant::now();
    let claimed = world.store.claim(queue.runtime, None, Vec::new(), Duration::from_secs(120), world.env.now()).await?;
    let took = start.elapsed();
    let run = claimed.ok_or("nothing to claim although a run was created")?.run;
    let by = Worker { runtime: queue.runtime, epoch: Some(run.state.epoch) };
    let outcome = Outcome::Completed { output: Json::empty_object(), artifacts: Vec::new() };
    world.store.finish(by, run.id, outcome, None, world.env.now()).await?;
    Ok(took)
}

async fn measure(world: &World, stored: usize) -> Result<Row> {
    let mut claims = Vec::with_capacity(CLAIMS);
    for _ in 0..CLAIMS {
        claims.push(whole_run(world, 1).await?);
    }
    claims.sort_unstable();
    let agent = Some(world.queues[1].agent);
    Ok(Row {
        stored,
        claim_ms: millis(quantile(&claims, 50)),
        list_ms: list(world, RunFilter::default()).await?,
        list_failed_ms: list(world, RunFilter { status: Some(Status::Failed), ..RunFilter::default() }).await?,
        list_agent_ms: list(world, RunFilter { agent, ..RunFilter::default() }).await?,
    })
}

async fn list(world: &World, filter: RunFilter) -> Result<f64> {
    let mut took = Vec::with_capacity(LISTS);
    for _ in 0..LISTS {
        let start = Instant::now();
        world.store.runs(world.tenant, filter.clone(), Page { limit: 50, cursor: None }).await?;
        took.push(start.elapsed());
    }
    took.sort_unstable();
    Ok(millis(quantile(&took, 50)))
}
