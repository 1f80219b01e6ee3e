//! No orphans, no losses: processes are killed at random moments under load, and everything that was acknowledged must
//! hold.
//!
//! `ATTACHE_SEED` repeats the order of the kills, `ATTACHE_LONG` makes the storm longer. A failed storm prints its seed
//! and keeps its folders, with the output of every process and the list of kills.

pub mod caller;
pub mod dice;
mod ghost;
mod journal;
mod load;
mod lost_reply;
mod sabotage;
mod verdict;
mod witness;
pub mod world;

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use attache_protocol::env::Env;

use self::{
    ghost::GhostDevice,
    journal::StormJournal,
    load::StormTargets,
    verdict::{StormEvidence, StormFindings},
    witness::LeaseWitness,
    world::{KillTally, StormWorld},
};
use crate::harness::is_long;

const DEVICES: usize = 4;
const CLIENTS: u64 = 3;

/// Sets a flag when dropped, also on a panic, so that nothing waits forever.
struct SetOnDrop<'a>(&'a [&'a AtomicBool]);

/// Prints how to repeat a failed storm.
struct StormReplayHint {
    seed: u64,
    folders: Vec<PathBuf>,
}

pub fn seed() -> u64 {
    if let Ok(seed) = std::env::var("ATTACHE_SEED") {
        return seed.parse().expect("ATTACHE_SEED is a number");
    }
    let mut bytes = [0; 4];
    Env::system().fill(&mut bytes);
    u32::from_le_bytes(bytes).into()
}

#[test]
fn nothing_is_orphaned_and_nothing_is_lost() {
    let seed = seed();
    let kills = if is_long() { 2_000 } else { 220 };
    let mut world = StormWorld::start(DEVICES);
    let journal = StormJournal::default();
    let traces = world.home.path().join("traces");
    fs::write(&traces, "").unwrap();
    let black = StormReplayHint { seed, folders: world.keep() };
    let begun = Instant::now();

    let (tally, taken, (looks, overdue)) = blow(&mut world, seed, kills, &journal, &traces);
    let blown = begun.elapsed();
    for deserter in std::mem::take(&mut world.deserters) {
        journal.fault(deserter);
    }
    // Everything read from here on comes from disk.
    world.kill_hub();
    let owner = world.owner.clone();
    let evidence =
        StormEvidence { owner: &owner, journal: &journal, devices: &world.devices, ghost: &taken, traces: &traces };
    let findings = evidence.weigh();
    let report =
        format!("seed {seed}: {tally:?} in {blown:?}, {looks} looks, at most {overdue:?} past a lease\n{findings:#?}");
    println!("{report}");
    fs::write(world.home.path().join("report"), &report).unwrap();
    let faults = journal.faults();
    assert!(faults.is_empty(), "{} faults\n{}\n{report}", faults.len(), faults[..faults.len().min(10)].join("\n"));
    check_weather(tally, kills, looks, &findings);

    let verdict = world.home.attache(&["audit", "verify", "--json"]).succeeds().json();
    assert_eq!(verdict["ok"], true, "{verdict}");
    let database = rusqlite::Connection::open(world.stop_hub()).unwrap();
    let integrity: String = database.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
    drop(world);
    black.clear();
}

/// The storm itself, and the time until every run is finished.
fn blow(
    world: &mut StormWorld,
    seed: u64,
    kills: usize,
    journal: &StormJournal,
    traces: &std::path::Path,
) -> (KillTally, Vec<ghost::AcceptedResult>, (usize, std::time::Duration)) {
    let (stop, end) = (AtomicBool::new(false), AtomicBool::new(false));
    let (ghost_agent, ghost_calls) = world.player("ghost");
    let (witness_agent, clock) = world.player("witness");
    let owner = world.owner.clone();
    let agents: Vec<_> = world.devices.iter().map(|device| device.agent.clone()).collect();
    let ghost = GhostDevice { agent: ghost_agent.clone(), calls: ghost_calls, journal };
    let witness = LeaseWitness {
        agent: witness_agent,
        clock,
        owner: owner.clone(),
        generation: world.generation.clone(),
        journal,
    };
    thread::scope(|scope| {
        let raise = SetOnDrop(&[&stop, &end]);
        let haunting = scope.spawn(|| ghost.haunt(seed, &stop, &end));
        let watching = scope.spawn(|| witness.watch(&end));
        let work = StormTargets { devices: &agents, ghost: &ghost_agent, traces };
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (owner, stop) = (&owner, &stop);
                scope.spawn(move || load::client(number, seed, owner, work, journal, stop))
            })
            .collect();
        let tally = world.storm(seed, kills, || !journal.faults().is_empty());
        world.mend();
        stop.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().unwrap();
        }
        drop(raise);
        (tally, haunting.join().unwrap(), watching.join().unwrap())
    })
}

/// A storm in which nothing happened proves nothing.
fn check_weather(tally: KillTally, kills: usize, looks: usize, findings: &StormFindings) {
    assert_eq!(tally.all(), kills);
    assert!(tally.hubs >= 20 && tally.runtimes >= 40 && tally.adapters >= 20, "{tally:?}");
    let lost = findings.failed.get("runtime_lost").copied().unwrap_or(0);
    let again = findings.requeued.get("runtime_lost").copied().unwrap_or(0);
    let released = findings.requeued.get("released").copied().unwrap_or(0);
    let enough = findings.completed >= 50 && findings.cancelled > 0 && findings.acknowledged >= 25;
    assert!(enough && lost > 0 && again > 0 && released > 0 && looks >= 100, "{looks} looks, {findings:#?}");
}

// === impl SetOnDrop ===

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        for flag in self.0 {
            flag.store(true, Ordering::SeqCst);
        }
    }
}

// === impl StormReplayHint ===

impl StormReplayHint {
    /// The folders are no longer needed.
    fn clear(mut self) {
        for folder in self.folders.drain(..) {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

impl Drop for StormReplayHint {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("repeat this storm with ATTACHE_SEED={}; its folders are kept: {:?}", self.seed, self.folders);
        }
    }
}
