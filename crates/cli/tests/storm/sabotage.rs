//! Tests of the checks themselves: each must detect its kind of damage.

use std::{
    fs,
    io::Write as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::{
    SetOnDrop,
    ghost::{AcceptedResult, GhostDevice},
    journal::StormJournal,
    load::{self, StormTargets},
    verdict::StormEvidence,
    world::StormWorld,
};
use crate::harness::until;

/// Damage to the hub's database, and the expected findings.
const DAMAGE: &[(&str, &str)] = &[
    ("delete from task_runs where id = (select min(id) from task_runs)", "was acknowledged and does not exist"),
    (
        r#"update task_runs set result = '{"text":"another"}'
           where id = (select max(id) from task_runs where status = 2)"#,
        "had ended and has changed",
    ),
    // The packed state starts with the epoch: the first claim becomes the third.
    (
        "update task_runs set state = cast(x'03' || substr(state, 2) as blob)
           where id = (select max(id) from task_runs where substr(state, 1, 1) = x'01')",
        "in the events of",
    ),
    ("delete from chunks where run = (select max(run) from chunks) and seq = 3", "in the events of"),
    (
        "insert into task_runs (uid, tenant, agent, status, priority, created, ended, state, request)
         select randomblob(16), tenant, agent, 4, priority, created, ended, state, request
           from task_runs where ended is not null limit 1",
        "a job ran twice",
    ),
];

/// A few jobs without failures.
fn work(world: &StormWorld, journal: &StormJournal, traces: &Path) -> Vec<AcceptedResult> {
    let (stop, end) = (AtomicBool::new(false), AtomicBool::new(false));
    let honest = AtomicBool::new(true);
    let (ghost_agent, calls) = world.player("ghost");
    let ghost = GhostDevice { agent: ghost_agent.clone(), calls, journal };
    let agents = [world.devices[0].agent.clone()];
    let work = StormTargets { devices: &agents, ghost: &ghost_agent, traces };
    thread::scope(|scope| {
        let raise = SetOnDrop(&[&stop, &end]);
        let haunting = scope.spawn(|| ghost.haunt(1, &honest, &end));
        let client = scope.spawn(|| load::client(0, 1, &world.owner, work, journal, &stop));
        until("some jobs", || (journal.entries().len() >= 20).then_some(()));
        stop.store(true, Ordering::SeqCst);
        client.join().unwrap();
        drop(raise);
        haunting.join().unwrap()
    })
}

/// The current findings of the checks.
fn faults(world: &StormWorld, journal: &StormJournal, ghost: &[AcceptedResult], traces: &Path) -> Vec<String> {
    let journal = journal.copied();
    StormEvidence { owner: &world.owner, journal: &journal, devices: &world.devices, ghost, traces }.weigh();
    journal.faults()
}

#[track_caller]
fn sees(faults: &[String], expected: &str) {
    assert!(faults.iter().any(|fault| fault.contains(expected)), "{expected:?} is not in {faults:#?}");
}

fn append(path: &Path, text: &str) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn every_check_detects_its_damage() {
    let mut world = StormWorld::start(1);
    let journal = StormJournal::default();
    let traces = world.home.path().join("traces");
    fs::write(&traces, "").unwrap();
    let ghost = work(&world, &journal, &traces);
    assert_eq!(journal.faults(), Vec::<String>::new());
    assert_eq!(faults(&world, &journal, &ghost, &traces), Vec::<String>::new());

    let database = world.stop_hub();
    let copy = database.with_extension("copy");
    // Everything is in one file; the write-ahead log is empty.
    open(&database).query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(())).unwrap();
    fs::copy(&database, &copy).unwrap();
    for (damage, expected) in DAMAGE {
        spoil(&database, damage);
        world.resume_hub();
        sees(&faults(&world, &journal, &ghost, &traces), expected);
        restore(&world.stop_hub(), &copy);
    }
    spoil(&database, "update log set actor = 'nobody' where seq = (select max(seq) / 2 from log)");
    world.resume_hub();
    world.home.attache(&["audit", "verify"]).exits(1);
    restore(&world.stop_hub(), &copy);
    world.resume_hub();
    assert_eq!(faults(&world, &journal, &ghost, &traces), Vec::<String>::new());

    let text = fs::read_to_string(&traces).unwrap();
    let run = text.lines().next().unwrap().rsplit_once(' ').unwrap().1.to_owned();
    append(&traces, &format!("begin again {run}\n"));
    sees(&faults(&world, &journal, &ghost, &traces), "was executed");
    let lines: String = ["task_completed", "task_reported"]
        .map(|event| {
            format!(r#"{{"event":"{event}","task_run_id":"{run}","epoch":9,"output":{{"text":"lost"}}}}"#) + "\n"
        })
        .concat();
    append(&world.devices[0].home.ledger_file(&world.devices[0].agent), &lines);
    sees(&faults(&world, &journal, &ghost, &traces), "the hub took");
}

fn spoil(database: &Path, damage: &str) {
    assert_eq!(open(database).execute(damage, []).unwrap(), 1, "{damage}");
}

fn restore(database: &Path, copy: &Path) {
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{suffix}", database.display()));
    }
    fs::copy(copy, database).unwrap();
}

fn open(database: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(database).unwrap()
}
