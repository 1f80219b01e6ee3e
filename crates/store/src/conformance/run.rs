//! Runs sequences against the model and an engine, and reports differences.

use std::{fmt, ops::Range};

use attache_protocol::Timestamp;

use super::{
    EngineUnderTest, generate::StepGenerator, generator_state::GeneratorState, perform::perform, shrink::shrink,
    step::StoreStep, step_result::StepResult, verify,
};
use crate::memory::MemoryStore;

/// A sequence in which the engine was wrong.
#[derive(Debug)]
pub struct ConformanceFailure {
    pub seed: u64,
    /// The steps up to the one that failed.
    pub steps: Vec<StoreStep>,
    /// How many steps the sequence had before it was shrunk.
    pub of: usize,
    pub problem: String,
}

/// A running sequence.
struct SequenceRun<'a> {
    model: &'a MemoryStore,
    engine: &'a mut dyn EngineUnderTest,
    known: GeneratorState,
    /// The time of the sweep, if it was the last step.
    swept: Option<Timestamp>,
}

/// Runs the sequences of these seeds on one engine, which is reset before each. Stops at the first failure and shrinks
/// it.
pub async fn run_sequences(
    seeds: Range<u64>,
    steps: usize,
    engine: &mut dyn EngineUnderTest,
) -> Result<(), Box<ConformanceFailure>> {
    for seed in seeds {
        engine.reset().await;
        if let Err(failure) = run_sequence(seed, steps, &MemoryStore::new(), engine).await {
            return Err(Box::new(shrink(*failure, engine).await));
        }
    }
    Ok(())
}

/// Runs one sequence of this many random steps and a sweep, then reads and checks everything.
pub async fn run_sequence(
    seed: u64,
    steps: usize,
    model: &MemoryStore,
    engine: &mut dyn EngineUnderTest,
) -> Result<(), Box<ConformanceFailure>> {
    let mut generator = StepGenerator::new(seed);
    let mut run = SequenceRun { model, engine, known: GeneratorState::default(), swept: None };
    let mut done = Vec::with_capacity(steps + 1);
    for index in 0..=steps {
        let step = if index == steps { generator.last() } else { generator.next(model).await };
        done.push(step.clone());
        match run.step(step.clone()).await {
            Ok(answer) => generator.learn(&step, &answer),
            Err(problem) => return Err(Box::new(ConformanceFailure { seed, of: done.len(), steps: done, problem })),
        }
    }
    match run.check().await {
        Ok(()) => Ok(()),
        Err(problem) => Err(Box::new(ConformanceFailure { seed, of: done.len(), steps: done, problem })),
    }
}

/// Runs the given steps, then reads and checks everything. Returns the problem, if there is one.
pub async fn run_steps(
    steps: &[StoreStep],
    model: &MemoryStore,
    engine: &mut dyn EngineUnderTest,
) -> Result<(), String> {
    let mut run = SequenceRun { model, engine, known: GeneratorState::default(), swept: None };
    for step in steps {
        let _answer = run.step(step.clone()).await?;
    }
    run.check().await
}

// === impl SequenceRun ===

impl SequenceRun<'_> {
    /// The common answer.
    async fn step(&mut self, step: StoreStep) -> Result<StepResult, String> {
        if let StoreStep::Crash = step {
            self.engine.crash_and_reopen().await;
        }
        if let StoreStep::CreateTenant { id, name, at } = &step {
            let model = self.model.create_tenant(*id, name, *at).await;
            let engine = self.engine.create_tenant(*id, name, *at).await;
            if model != engine {
                return Err(format!("{step:?}\nthe model says {model:?}, the engine says {engine:?}"));
            }
        }
        self.swept = if let StoreStep::Sweep { at, .. } = step { Some(at) } else { None };
        let answer = self.compare(step.clone()).await?;
        self.known.learn(&step, &answer);
        match self.engine.stale_memory().await {
            None => Ok(answer),
            Some(stale) => Err(format!("{step:?}\n{stale}")),
        }
    }

    async fn compare(&self, step: StoreStep) -> Result<StepResult, String> {
        let model = perform(self.model, step.clone()).await;
        let engine = perform(self.engine.store(), step.clone()).await;
        if model == engine {
            return Ok(model);
        }
        Err(format!("{step:?}\n{}", difference(&format!("{model:#?}"), &format!("{engine:#?}"))))
    }

    async fn check(&self) -> Result<(), String> {
        for step in verify::reads(&self.known, self.swept) {
            let answer = self.compare(step.clone()).await?;
            let broken = answer.ok().and_then(|value| verify::broken(&step, &value, self.swept));
            if let Some(broken) = broken {
                return Err(format!("{step:?}\n{broken}"));
            }
        }
        verify::unbalanced(self.model, &self.known).await.map_or(Ok(()), Err)
    }
}

// === impl ConformanceFailure ===

impl fmt::Display for ConformanceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.problem)?;
        writeln!(f, "after these {} steps of {}:", self.steps.len(), self.of)?;
        self.steps.iter().enumerate().try_for_each(|(index, step)| writeln!(f, "{:>4} {step:?}", index + 1))
    }
}

/// The differing lines of two texts, with some context.
fn difference(model: &str, engine: &str) -> String {
    const AROUND: usize = 4;
    let (left, right): (Vec<&str>, Vec<&str>) = (model.lines().collect(), engine.lines().collect());
    let same = |mut pairs: Box<dyn Iterator<Item = (&&str, &&str)> + '_>| {
        let mut count = 0;
        while pairs.next().is_some_and(|(left, right)| left == right) {
            count += 1;
        }
        count
    };
    let front: usize = same(Box::new(left.iter().zip(&right)));
    let back: usize = same(Box::new(left.iter().rev().zip(right.iter().rev())));
    let part = |lines: &[&str]| {
        let from = front.saturating_sub(AROUND);
        let to = lines.len().saturating_sub(back.saturating_sub(AROUND)).max(from).min(lines.len());
        lines[from..to].join("\n")
    };
    format!("the model says:\n{}\nthe engine says:\n{}", part(&left), part(&right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_its_location() {
        let lines = |middle: &str| format!("1\n2\n3\n4\n5\n6\n{middle}\n7\n8\n9\n10\n11\n12");
        assert_eq!(
            difference(&lines("a"), &lines("b")),
            "the model says:\n3\n4\n5\n6\na\n7\n8\n9\n10\nthe engine says:\n3\n4\n5\n6\nb\n7\n8\n9\n10"
        );
    }
}
