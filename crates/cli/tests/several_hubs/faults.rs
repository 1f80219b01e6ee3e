//! Hubs are killed, paused, restarted, and their database crashes, while people call agents through a proxy. What was
//! acknowledged happens once.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::cluster::{Caller, Cluster};
use crate::{
    harness::{TestHome, TestProcess, is_long, process::signal, until},
    storm::{dice::SeededDice, seed},
};

const CLIENTS: usize = 3;
const DEVICES: usize = 2;

/// A run that the hub has acknowledged, and what it writes when it is executed.
struct AcknowledgedRun {
    id: String,
    mark: String,
}

/// A device with an agent of its own, which reaches the hubs through the proxy.
fn device(cluster: &Cluster, agent: &str) -> (TestHome, TestProcess) {
    let home = TestHome::new();
    cluster.nodes[0].add_agent(agent);
    let code = cluster.nodes[0].pairing_code(agent);
    home.attache(&["runtime", "pair", &code, "--api-base", &cluster.proxy.url]).succeeds();
    let runtime = home.runtime(&["--concurrency", "2"]);
    (home, runtime)
}

/// Creates runs until it is told to stop. Each is repeated with its key until a hub acknowledges it.
fn client(number: usize, caller: &Caller, executed: &Path, stop: &AtomicBool) -> Vec<AcknowledgedRun> {
    let mut acknowledged = Vec::new();
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mark = format!("{number}-{round}");
        let body = json!({
            "agent_id": format!("agent-{}", (number + round) % DEVICES),
            "input": { "text": format!("echo {mark} >> {}", executed.display()) },
            "max_attempts": 1,
            "idempotency_key": mark,
        });
        let reply = caller.call("POST", "/api/v1/task-runs", Some(&body));
        // 200: it had been stored although its answer was lost.
        assert!(matches!(reply.status, 200 | 201), "{} {:?}", reply.status, String::from_utf8_lossy(&reply.body));
        acknowledged.push(AcknowledgedRun { id: reply.json()["task_run_id"].as_str().unwrap().to_owned(), mark });
        // Not more than the devices can work off.
        thread::sleep(Duration::from_millis(200));
    }
    acknowledged
}

/// One fault, and back again. Returns its name.
fn strike(cluster: &mut Cluster, dice: &mut SeededDice) -> &'static str {
    let node = dice.below(3);
    match dice.below(8) {
        0..=2 => {
            cluster.nodes[node].process.kill();
            thread::sleep(dice.millis(0, 1500));
            cluster.restart(node);
            "killed"
        }
        3..=4 => {
            cluster.nodes[node].process.terminate();
            cluster.restart(node);
            "restarted"
        }
        5..=6 => {
            let id = cluster.nodes[node].process.id();
            signal(id, "STOP");
            // Sometimes past the time after which the others take it for dead.
            thread::sleep(dice.millis(500, 13_500));
            signal(id, "CONT");
            "paused"
        }
        _ => {
            cluster.server.crash();
            cluster.server.restart();
            "database"
        }
    }
}

/// Whether a run ended as it should, and its stream is complete at whatever node it is read.
fn check(caller: &Caller, run: &AcknowledgedRun) -> Result<(), String> {
    let shown = caller.call("GET", &format!("/api/v1/task-runs/{}", run.id), None).json();
    if shown["status"] != "completed" {
        return Err(format!("{} ({}) ended as {shown}", run.id, run.mark));
    }
    let page = caller.call("GET", &format!("/api/v1/task-runs/{}/events?after=0", run.id), None).expect(200).json();
    let events = page["events"].as_array().unwrap();
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    let is_complete = numbers.iter().copied().eq(1..=numbers.len() as u64) && !numbers.is_empty();
    let ends = events.iter().filter(|event| event["type"] == "task.completed").count();
    match is_complete && ends == 1 {
        true => Ok(()),
        false => Err(format!("{} has the events {numbers:?} with {ends} ends", run.id)),
    }
}

#[test]
fn what_was_acknowledged_happens_once_whatever_dies() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let seed = seed();
    let faults = if is_long() { 300 } else { 8 };
    let executed = cluster.homes[0].path().join("executed");
    fs::write(&executed, "").unwrap();
    let devices: Vec<_> = (0..DEVICES).map(|number| device(&cluster, &format!("agent-{number}"))).collect();
    let caller = cluster.through_proxy();
    let (stop, mut dice) = (AtomicBool::new(false), SeededDice::new(seed, 0));
    let mut struck: BTreeMap<&str, usize> = BTreeMap::new();
    let runs: Vec<AcknowledgedRun> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (caller, executed, stop) = (&caller, &executed, &stop);
                scope.spawn(move || client(number, caller, executed, stop))
            })
            .collect();
        for _ in 0..faults {
            thread::sleep(dice.millis(200, 1000));
            *struck.entry(strike(&mut cluster, &mut dice)).or_default() += 1;
        }
        cluster.is_served();
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    println!("seed {seed}: {} runs through {struck:?}", runs.len());

    for status in ["pending", "running"] {
        let path = format!("/api/v1/task-runs?status={status}&limit=1");
        let list = || caller.call("GET", &path, None).expect(200).json();
        until("every run to end", || list()["task_runs"].as_array().unwrap().is_empty().then_some(()));
    }
    let wrong: Vec<String> = runs.iter().filter_map(|run| check(&caller, run).err()).collect();
    assert!(wrong.is_empty(), "seed {seed}: {} of {}\n{}", wrong.len(), runs.len(), wrong.join("\n"));
    let text = fs::read_to_string(&executed).unwrap();
    let mut marks: Vec<&str> = text.lines().collect();
    marks.sort_unstable();
    let mut wanted: Vec<&str> = runs.iter().map(|run| run.mark.as_str()).collect();
    wanted.sort_unstable();
    assert_eq!(marks, wanted, "seed {seed}: each was executed exactly once");
    let home = &cluster.homes[0];
    let key = home.a2a().join("hub/admin.key");
    let at = ["--hub", &cluster.nodes[1].url, "--key-file", key.to_str().unwrap()];
    let verdict = home.attache(&[&["audit", "verify", "--json"], &at[..]].concat());
    assert_eq!(verdict.succeeds().json()["ok"], true);
    drop(devices);
}

/// Nodes are restarted one after the other, as for an update. A proxy that retries on another node hides it from callers.
#[test]
fn a_rolling_restart_fails_no_request_and_repeats_no_run() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    cluster.is_served();
    let executed = cluster.homes[0].path().join("executed");
    fs::write(&executed, "").unwrap();
    let devices: Vec<_> = (0..DEVICES).map(|number| device(&cluster, &format!("agent-{number}"))).collect();
    let (caller, stop, refused) = (cluster.through_proxy(), AtomicBool::new(false), AtomicUsize::new(0));
    let runs = thread::scope(|scope| {
        let creating = scope.spawn(|| client(0, &caller, &executed, &stop));
        let reading = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                match caller.try_call("GET", "/api/v1/agent-accounts", None) {
                    Ok(reply) if reply.status == 200 => {}
                    Ok(reply) => {
                        let text = String::from_utf8_lossy(&reply.body).into_owned();
                        panic!("a request was answered with {}: {text}", reply.status);
                    }
                    // The connection was refused or cut before an answer: the proxy would try the next node.
                    Err(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                }
            }
        });
        for node in 0..3 {
            cluster.nodes[node].process.terminate();
            cluster.restart(node);
            cluster.is_served();
        }
        stop.store(true, Ordering::Relaxed);
        reading.join().unwrap();
        creating.join().unwrap()
    });
    println!("{} runs; {} connections were cut", runs.len(), refused.load(Ordering::Relaxed));
    for run in &runs {
        let ended = || -> Option<Value> {
            let shown = caller.call("GET", &format!("/api/v1/task-runs/{}", run.id), None).json();
            (shown["status"] == "completed").then_some(shown)
        };
        until("the run to end", ended);
    }
    let mut marks: Vec<String> = fs::read_to_string(&executed).unwrap().lines().map(str::to_owned).collect();
    let mut wanted: Vec<String> = runs.into_iter().map(|run| run.mark).collect();
    marks.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(marks, wanted);
    drop(devices);
}
