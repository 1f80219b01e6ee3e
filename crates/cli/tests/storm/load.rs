//! Clients that create runs, watch them, cancel some, and retry when the hub doesn't answer.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    caller::StormCaller,
    dice::SeededDice,
    journal::{StormJob, StormJournal, StormPlan, is_ended},
};

/// The agents a client calls, and where their tasks leave traces.
#[derive(Debug, Clone, Copy)]
pub struct StormTargets<'a> {
    pub devices: &'a [String],
    /// The agent whose device the test simulates.
    pub ghost: &'a str,
    pub traces: &'a Path,
}

/// A job in progress.
struct StormRun {
    job: StormJob,
    run: String,
    looks: usize,
}

/// Maximum number of concurrent jobs of one client.
const FLIGHTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(15);
/// How long the last jobs may take after the storm.
const SETTLE: Duration = Duration::from_secs(240);

/// One client, until it is told to stop and all of its jobs are finished.
pub fn client(
    number: u64,
    seed: u64,
    owner: &StormCaller,
    work: StormTargets<'_>,
    journal: &StormJournal,
    stop: &AtomicBool,
) {
    let mut dice = SeededDice::new(seed, 100 + number);
    let mut flights: Vec<StormRun> = Vec::new();
    let mut made = 0;
    let mut give_up = None;
    loop {
        let stopping = stop.load(Ordering::SeqCst);
        if !stopping && flights.len() < FLIGHTS {
            let job = draw(&mut dice, &format!("client-{number}-job-{made}"), work);
            made += 1;
            if let Some(run) = create(owner, &job, journal) {
                flights.push(StormRun { job, run, looks: 0 });
            }
        }
        if flights.is_empty() && stopping {
            return;
        }
        if !flights.is_empty() {
            let chosen = dice.below(flights.len());
            if look(owner, &mut flights[chosen], &mut dice, journal) {
                flights.swap_remove(chosen);
            }
        }
        if stopping {
            let give_up = *give_up.get_or_insert_with(|| Instant::now() + SETTLE);
            if Instant::now() > give_up {
                let waiting: Vec<_> = flights.iter().map(|flight| &flight.run).collect();
                return journal.fault(format!("still not ended {SETTLE:?} after the storm: {waiting:?}"));
            }
        }
        std::thread::sleep(PAUSE);
    }
}

fn draw(dice: &mut SeededDice, name: &str, work: StormTargets<'_>) -> StormJob {
    let max_attempts = *dice.pick(&[1, 1, 2, 3]);
    let job =
        |agent: &str, text, plan| StormJob { name: name.to_owned(), agent: agent.to_owned(), text, max_attempts, plan };
    if dice.once_in(6) {
        return job(work.ghost, name.to_owned(), StormPlan::Complete);
    }
    let agent = dice.pick(work.devices);
    let trace = |step: &str| format!("echo {step} {name} $ATTACHE_TASK_RUN_ID >> '{}'", work.traces.display());
    let (begin, end) = (trace("begin"), trace("end"));
    let pause = format!("0.{:03}", 1 + dice.below(120));
    let (middle, plan) = match dice.below(10) {
        0 => (format!("sleep {pause}; echo no >&2; exit 3"), StormPlan::Fail),
        1 => ("sleep 20".to_owned(), StormPlan::Cancel),
        2 | 3 => (format!("for i in 1 2 3 4; do echo line $i; sleep {pause}; done"), StormPlan::Complete),
        4 => (format!("sleep 0.{}", 3 + dice.below(6)), StormPlan::Complete),
        _ => (format!("sleep {pause}"), StormPlan::Complete),
    };
    job(agent, format!("{begin}; {middle}; {end}; echo done {name}"), plan)
}

/// Creates the run of a job, retrying as often as necessary.
fn create(owner: &StormCaller, job: &StormJob, journal: &StormJournal) -> Option<String> {
    let body = json!({
        "agent_id": job.agent,
        "task_type": "prompt",
        "input": { "text": job.text },
        "idempotency_key": job.name,
        "max_attempts": job.max_attempts,
    });
    let reply = owner.insist("POST", "/api/v1/task-runs", Some(&body));
    if !matches!(reply.status, 200 | 201) {
        journal.fault(format!("creating {} was answered with {}: {}", job.name, reply.status, reply.text()));
        return None;
    }
    let run = reply.json();
    journal.created(job, &run);
    run["task_run_id"].as_str().map(str::to_owned)
}

/// Checks a run, and sometimes cancels it or creates it again. Returns whether it is finished.
fn look(owner: &StormCaller, flight: &mut StormRun, dice: &mut SeededDice, journal: &StormJournal) -> bool {
    flight.looks += 1;
    let patience = if flight.job.plan == StormPlan::Cancel { 5 } else { 400 };
    if flight.looks > patience || dice.once_in(150) && flight.job.max_attempts > 1 {
        cancel(owner, flight, journal);
    }
    if dice.once_in(20) {
        let again = create(owner, &flight.job, journal);
        if again.as_ref() != Some(&flight.run) {
            journal.fault(format!("{} was {} and is {again:?}", flight.job.name, flight.run));
        }
    }
    let Ok(reply) = owner.call("GET", &format!("/api/v1/task-runs/{}", flight.run), None) else { return false };
    match reply.status {
        200 => {
            let run = reply.json();
            journal.saw(&flight.job.name, &run);
            is_ended(&run)
        }
        503 => false,
        status => {
            journal.fault(format!("reading {} was answered with {status}: {}", flight.run, reply.text()));
            true
        }
    }
}

fn cancel(owner: &StormCaller, flight: &StormRun, journal: &StormJournal) {
    let path = format!("/api/v1/task-runs/{}/cancel", flight.run);
    let reply = owner.insist("POST", &path, Some(&json!({ "reason": "the client lost interest" })));
    match reply.status {
        200 => {
            journal.cancelled(&flight.job.name);
            journal.saw(&flight.job.name, &reply.json());
        }
        // It ended differently in the meantime.
        409 => {}
        status => journal.fault(format!("cancelling {} was answered with {status}: {}", flight.run, reply.text())),
    }
}
