//! Makes a failing sequence small, so that a person can read it.

use super::{
    Engine,
    run::{Failure, run_steps},
    step::Step,
};
use crate::memory::Memory;

/// Leaves out whatever the failure does not need: first big parts, then single steps.
pub async fn shrink(failure: Failure, engine: &mut dyn Engine) -> Failure {
    let Some(mut problem) = fails(&failure.steps, engine).await else {
        let problem = format!("{}\n(the same steps did not fail a second time)", failure.problem);
        return Failure { problem, ..failure };
    };
    let mut steps = failure.steps;
    let mut part = steps.len().div_ceil(2);
    while part > 0 {
        let mut from = 0;
        while from < steps.len() {
            let to = (from + part).min(steps.len());
            let fewer: Vec<Step> = steps[..from].iter().chain(&steps[to..]).cloned().collect();
            match fails(&fewer, engine).await {
                Some(still) => (steps, problem) = (fewer, still),
                None => from = to,
            }
        }
        part /= 2;
    }
    Failure { steps, problem, ..failure }
}

async fn fails(steps: &[Step], engine: &mut dyn Engine) -> Option<String> {
    engine.reset().await;
    run_steps(steps, &Memory::new(), engine).await.err()
}
