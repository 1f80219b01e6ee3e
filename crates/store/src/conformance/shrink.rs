//! Shrinks a failing sequence, so that a person can read it.

use super::{
    EngineUnderTest,
    run::{ConformanceFailure, run_steps},
    step::StoreStep,
};
use crate::memory::MemoryStore;

/// Removes everything the failure doesn't need: first large parts, then single steps.
pub async fn shrink(failure: ConformanceFailure, engine: &mut dyn EngineUnderTest) -> ConformanceFailure {
    let Some(mut problem) = fails(&failure.steps, engine).await else {
        let problem = format!("{}\n(the same steps did not fail a second time)", failure.problem);
        return ConformanceFailure { problem, ..failure };
    };
    let mut steps = failure.steps;
    let mut part = steps.len().div_ceil(2);
    while part > 0 {
        let mut from = 0;
        while from < steps.len() {
            let to = (from + part).min(steps.len());
            let fewer: Vec<StoreStep> = steps[..from].iter().chain(&steps[to..]).cloned().collect();
            match fails(&fewer, engine).await {
                Some(still) => (steps, problem) = (fewer, still),
                None => from = to,
            }
        }
        part /= 2;
    }
    ConformanceFailure { steps, problem, ..failure }
}

async fn fails(steps: &[StoreStep], engine: &mut dyn EngineUnderTest) -> Option<String> {
    engine.reset().await;
    run_steps(steps, &MemoryStore::new(), engine).await.err()
}
