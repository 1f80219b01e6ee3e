//! Runs the conformance suite. A failure prints its seed; `ATTACHE_CONFORMANCE_SEED=<seed>` runs that sequence alone.
//! `ATTACHE_CONFORMANCE_SEQUENCES=<count>` changes how many each test runs, from that seed on or from its first.

use std::{env, ops::Range};

use async_trait::async_trait;
use attache_protocol::{TenantId, Timestamp};
use attache_store::{
    Result, Store,
    conformance::{EngineUnderTest, run_sequences},
    memory::MemoryStore,
};

/// Random steps per sequence.
pub(crate) const STEPS: usize = 60;

/// The model as an engine: it survives crashes because it never notices them.
#[derive(Debug, Default)]
struct Model(MemoryStore);

/// Runs the sequences of these seeds on the engine, unless the environment says otherwise. `test` is the test's own name.
pub(crate) async fn conform(test: &str, seeds: Range<u64>, engine: &mut dyn EngineUnderTest) {
    if let Err(failure) = run_sequences(wanted(seeds), STEPS, engine).await {
        let seed = failure.seed;
        panic!("{failure}\nreplay it: ATTACHE_CONFORMANCE_SEED={seed} cargo test -p attache-store --test all {test}");
    }
}

fn wanted(seeds: Range<u64>) -> Range<u64> {
    let count = number("ATTACHE_CONFORMANCE_SEQUENCES");
    match number("ATTACHE_CONFORMANCE_SEED") {
        Some(seed) => seed..seed + count.unwrap_or(1),
        None => seeds.start..count.map_or(seeds.end, |count| seeds.start + count),
    }
}

#[allow(clippy::disallowed_methods, reason = "a person replays a failing sequence through the environment")]
fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

// === impl Model ===

#[async_trait]
impl EngineUnderTest for Model {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    async fn create_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<()> {
        self.0.create_tenant(id, name, at).await
    }

    async fn crash_and_reopen(&mut self) {}

    async fn reset(&mut self) {
        self.0 = MemoryStore::new();
    }
}

#[tokio::test]
async fn the_model_agrees_with_itself() {
    conform("the_model_agrees_with_itself", 0..300, &mut Model::default()).await;
}
