//! A faulty network: connections between devices and the hub are cut, delayed, split and duplicated at random, and
//! still every run is executed once, every event arrives once and in order, and every approval is decided once.
//!
//! `ATTACHE_SEED` repeats the order of the faults, `ATTACHE_LONG` makes it longer.

mod verdict;
mod world;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use attache_testkit::ProxyFaults;

use self::{
    verdict::CableFinding,
    world::{CableWorld, DEVICES},
};
use crate::{harness::is_long, storm};

const FAULTS: ProxyFaults =
    ProxyFaults { cut: 50, halve: 30, duplicate: 60, delay: 60, max_delay: Duration::from_millis(40) };

/// How long the network may be faulty before the test gives up on breaking it often enough.
const CABLE_TIMEOUT: Duration = Duration::from_secs(600);

#[test]
fn a_bad_cable_loses_nothing_and_repeats_nothing() {
    weather(&CablePlan { breaks: if is_long() { 3_000 } else { 500 }, kills: 0 });
}

#[test]
fn a_bad_cable_and_a_killed_hub_lose_nothing() {
    let (breaks, kills) = if is_long() { (2_000, 60) } else { (300, 12) };
    weather(&CablePlan { breaks, kills });
}

/// The minimum number of faults before the network recovers.
struct CablePlan {
    /// Broken connections.
    breaks: u64,
    /// Kills of the hub.
    kills: usize,
}

/// How long the hub lives before it is killed.
const LIFE: Duration = Duration::from_secs(3);

#[allow(clippy::print_stdout, reason = "a failure is repeated with the seed")]
fn weather(plan: &CablePlan) {
    let seed = storm::seed();
    println!("seed {seed}");
    let mut world = CableWorld::start(seed, FAULTS);
    // No new runs, and none in progress.
    let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let owner = world.owner.clone();
    let agents = world.agents();
    let (mut kills, begun) = (0, Instant::now());
    let finding = thread::scope(|scope| {
        // Also on a panic: the others must not wait forever.
        let _stop = (StopFlag(&stop), StopFlag(&over));
        let deciding = scope.spawn(|| verdict::decide(&owner, &over));
        let working: Vec<_> = agents
            .iter()
            .map(|agent| {
                let (owner, stop, traces) = (&owner, &stop, world.traces());
                scope.spawn(move || verdict::work(owner, agent, &traces, stop))
            })
            .collect();
        let mut born = Instant::now();
        while (world.harm().broken() < plan.breaks || kills < plan.kills) && begun.elapsed() < CABLE_TIMEOUT {
            thread::sleep(Duration::from_millis(50));
            if kills < plan.kills && born.elapsed() > LIFE {
                world.kill_hub();
                kills += 1;
                born = Instant::now();
            }
        }
        // Repair the connection first, so that work in progress can finish.
        world.mend();
        stop.store(true, Ordering::SeqCst);
        let runs = working.into_iter().flat_map(|work| work.join().unwrap()).collect();
        over.store(true, Ordering::SeqCst);
        CableFinding { runs, decisions: deciding.join().unwrap() }
    });
    let harm = world.harm();
    println!("seed {seed}: {harm:?}, the hub died {kills} times, {} runs in {:?}", finding.runs.len(), begun.elapsed());
    assert!(harm.broken() >= plan.breaks && harm.duplicates >= 20 && harm.delays >= 50, "{harm:?}");
    assert!(finding.runs.len() >= 3 * DEVICES && finding.decisions >= 3, "{finding:?}");
    assert_eq!(kills, plan.kills);
    let faults = finding.faults(&owner, &world.traces());
    assert!(faults.is_empty(), "seed {seed}: {} faults\n{}", faults.len(), faults.join("\n"));
    let verdict = world.home.attache(&["audit", "verify", "--json"]).succeeds().json();
    assert_eq!(verdict["ok"], true, "{verdict}");
}

struct StopFlag<'a>(&'a AtomicBool);

impl Drop for StopFlag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
