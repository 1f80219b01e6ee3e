//! Our store without the HTTP surface: create, claim, finish through the `Store` trait.

use std::{path::Path, sync::Arc, time::Duration};

use attache_protocol::{Json, rules::run::Worker};
use attache_store::{Store as _, record::Outcome};

use super::{
    Result,
    load::{self, Caller, Measured, OUTPUT_BYTES, QUEUES},
    world::{self, Keyed, Queue, World},
};

struct Direct {
    world: Arc<World>,
    queue: Queue,
    output: Json,
}

pub(super) async fn drive(folder: &Path, callers: usize, time: Duration) -> Result<Measured> {
    let world = Arc::new(World::make(folder, QUEUES).await?);
    let output = world::text_of(OUTPUT_BYTES);
    let callers = (0..callers)
        .map(|number| Direct {
            world: Arc::clone(&world),
            queue: world.queues[number % QUEUES].clone(),
            output: output.clone(),
        })
        .collect();
    let measured = load::drive(callers, time).await?;
    world.store.close().await;
    Ok(measured)
}

// === impl Direct ===

impl Caller for Direct {
    async fn cycle(&mut self) -> Result<()> {
        let World { store, env, .. } = &*self.world;
        store.create_run(self.world.context(), self.world.new_run(self.queue.agent, Keyed::Yes)).await?;
        let claimed = store
            .claim(self.queue.runtime, None, Vec::new(), Duration::from_secs(120), env.now())
            .await?
            .ok_or("nothing to claim although a run was created")?;
        let by = Worker { runtime: self.queue.runtime, epoch: Some(claimed.run.state.epoch) };
        let outcome = Outcome::Completed { output: self.output.clone(), artifacts: Vec::new() };
        store.finish(by, claimed.run.id, outcome, None, env.now()).await?;
        Ok(())
    }
}
