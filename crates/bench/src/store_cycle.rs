//! Our store without the HTTP surface: create, claim and complete through the `Store` trait.

use std::{path::Path, sync::Arc, time::Duration};

use attache_protocol::{Json, rules::run::WorkerRef};
use attache_store::{Store as _, record::RunResult};

use super::{
    BenchResult,
    load::{self, LoadCaller, LoadMeasurement, OUTPUT_BYTES, QUEUES},
    world::{self, BenchAgent, BenchWorld, IdempotencyMode},
};

struct StoreCaller {
    world: Arc<BenchWorld>,
    queue: BenchAgent,
    output: Json,
}

pub(super) async fn drive(folder: &Path, callers: usize, time: Duration) -> BenchResult<LoadMeasurement> {
    let world = Arc::new(BenchWorld::make(folder, QUEUES).await?);
    let output = world::text_of(OUTPUT_BYTES);
    let callers = (0..callers)
        .map(|number| StoreCaller {
            world: Arc::clone(&world),
            queue: world.queues[number % QUEUES].clone(),
            output: output.clone(),
        })
        .collect();
    let measured = load::drive(callers, time).await?;
    world.store.close().await;
    Ok(measured)
}

// === impl StoreCaller ===

impl LoadCaller for StoreCaller {
    async fn cycle(&mut self) -> BenchResult<()> {
        let BenchWorld { store, env, .. } = &*self.world;
        store.create_run(self.world.context(), self.world.new_run(self.queue.agent, IdempotencyMode::Yes)).await?;
        let claimed = store
            .claim(self.queue.runtime, None, Vec::new(), Duration::from_secs(120), env.now())
            .await?
            .ok_or("no run to claim although one was created")?;
        let by = WorkerRef { runtime: self.queue.runtime, epoch: Some(claimed.run.state.epoch) };
        let outcome = RunResult::Completed { output: self.output.clone(), artifacts: Vec::new() };
        store.finish(by, claimed.run.id, outcome, None, None, env.now()).await?;
        Ok(())
    }
}
