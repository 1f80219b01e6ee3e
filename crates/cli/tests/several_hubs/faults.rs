//! Hubs are killed, paused, restarted, and their database crashes, while people call agents through a proxy. What was
//! acknowledged happens once.

use std::{
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::Value;

use super::{
    cluster::{Caller, Cluster},
    load::{self, AcknowledgedRun, CAPPED, DEVICES, Device},
    verdict::{judge_callback, judge_decisions, judge_executions, judge_history, judge_quota},
};
use crate::{
    deliveries::CallbackReceiver,
    harness::{is_long, process::signal, until},
    storm::{dice::SeededDice, seed},
};

const CLIENTS: usize = 3;
/// How many runs the agent with a quota may have.
const QUOTA: usize = 12;

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

/// Whether the hub's own history of a run is one that can be, at whatever node it is read.
fn check_history(caller: &Caller, run: &AcknowledgedRun) -> Result<Value, String> {
    let path = format!("/api/v1/task-runs/{}", run.id);
    let shown = caller.call("GET", &path, None).json();
    let page = caller.call("GET", &format!("{path}/events?after=0"), None).expect(200).json();
    let events = page["events"].as_array().map_or(&[][..], Vec::as_slice);
    match judge_history(&shown, events) {
        Ok(()) => Ok(shown),
        Err(wrong) => Err(format!("{} ({}): {wrong}\n{events:#?}", run.id, run.mark)),
    }
}

fn check_completed(caller: &Caller, run: &AcknowledgedRun) -> Result<(), String> {
    let shown = check_history(caller, run)?;
    if shown["status"] == "completed" { Ok(()) } else { Err(format!("{} ({}) ended as {shown}", run.id, run.mark)) }
}

#[track_caller]
fn none_is_wrong(seed: u64, what: &str, verdicts: impl IntoIterator<Item = Result<(), String>>) {
    let wrong: Vec<String> = verdicts.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "seed {seed}: {} {what}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_was_acknowledged_happens_once_whatever_dies() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let seed = seed();
    let faults = if is_long() { 300 } else { 8 };
    let executed = cluster.homes[0].path().join("executed");
    fs::write(&executed, "").unwrap();
    let mut devices: Vec<_> = (0..DEVICES).map(|number| Device::start(&cluster, &format!("agent-{number}"))).collect();
    devices.push(Device::start(&cluster, CAPPED));
    let asking = Device::start_asking(&cluster);
    if asking.is_none() {
        println!("skipped: approvals, because python3 is not installed");
    }
    let quota = serde_json::json!({ "agent": CAPPED, "calls": QUOTA });
    cluster.nodes[0].call("PUT", "/api/v1/quotas", Some(&quota)).expect(200);
    let (caller, receiver) = (cluster.through_proxy(), CallbackReceiver::start(&[]));
    let callback = format!("{}/ended", receiver.origin);
    let (stop, all_decided, mut dice) = (AtomicBool::new(false), AtomicBool::new(false), SeededDice::new(seed, 0));
    let mut struck: BTreeMap<&str, usize> = BTreeMap::new();
    let (runs, spent, asked, decisions) = thread::scope(|scope| {
        let (caller, executed, callback, stop, decided) = (&caller, &executed, &callback, &stop, &all_decided);
        let callers: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || load::call(number, caller, executed, callback, stop)))
            .collect();
        let spenders = [0, 1].map(|number| scope.spawn(move || load::spend(number, caller, stop)));
        let asker = asking.is_some().then(|| scope.spawn(|| load::ask(caller, stop)));
        let deciders = [true, false].map(|approved| scope.spawn(move || load::decide(approved, caller, decided)));
        for _ in 0..faults {
            thread::sleep(dice.millis(200, 1000));
            *struck.entry(strike(&mut cluster, &mut dice)).or_default() += 1;
        }
        cluster.is_served();
        stop.store(true, Ordering::Relaxed);
        let runs: Vec<AcknowledgedRun> = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
        let spent: Vec<AcknowledgedRun> = spenders.into_iter().flat_map(|spender| spender.join().unwrap()).collect();
        let asked = asker.map_or_else(Vec::new, |asker| asker.join().unwrap());
        for status in ["pending", "running"] {
            let path = format!("/api/v1/task-runs?status={status}&limit=1");
            let list = || caller.call("GET", &path, None).expect(200).json();
            until("every run to end", || list()["task_runs"].as_array().unwrap().is_empty().then_some(()));
        }
        decided.store(true, Ordering::Relaxed);
        let decisions: Vec<_> = deciders.into_iter().flat_map(|decider| decider.join().unwrap()).collect();
        (runs, spent, asked, decisions)
    });
    let (calls, quota, questions) = (runs.len(), spent.len(), asked.len());
    println!("seed {seed}: {calls} runs, {quota} under a quota, {questions} that ask, through {struck:?}");

    none_is_wrong(seed, "runs are wrong", runs.iter().chain(&spent).map(|run| check_completed(&caller, run)));
    none_is_wrong(seed, "runs that ask are wrong", asked.iter().map(|run| check_history(&caller, run).map(drop)));
    let requests = load::list(&caller, "/api/v1/permission-requests?agent_id=asking", "permission_requests");
    assert_eq!(requests.len(), asked.len(), "each run that asks has one request");
    let of_run = |request: &Value| {
        caller.call("GET", &format!("/api/v1/task-runs/{}", request["task_run_id"].as_str().unwrap()), None).json()
    };
    let verdicts = requests.iter().map(|request| judge_decisions(request, &of_run(request), &decisions));
    none_is_wrong(seed, "decisions are wrong", verdicts);
    let capped = load::list(&caller, &format!("/api/v1/task-runs?agent_id={CAPPED}"), "task_runs");
    none_is_wrong(seed, "quotas are wrong", [judge_quota(QUOTA, spent.len(), capped.len())]);
    assert_eq!(spent.len(), QUOTA, "enough was tried to use it up");
    let last = runs.last().expect("somebody called");
    until("the last callback", || judge_callback(&last.id, &receiver.received()).ok());
    until("every callback", || {
        let received = receiver.received();
        runs.iter().all(|run| judge_callback(&run.id, &received).is_ok()).then_some(())
    });
    let received = receiver.received();
    none_is_wrong(seed, "callbacks are wrong", runs.iter().map(|run| judge_callback(&run.id, &received)));
    let wanted: Vec<&str> = runs.iter().map(|run| run.mark.as_str()).collect();
    none_is_wrong(seed, "executions are wrong", [judge_executions(&fs::read_to_string(&executed).unwrap(), &wanted)]);
    let home = &cluster.homes[0];
    let key = home.a2a().join("hub/admin.key");
    let at = ["--hub", &cluster.nodes[1].url, "--key-file", key.to_str().unwrap()];
    let verdict = home.attache(&[&["audit", "verify", "--json"], &at[..]].concat());
    assert_eq!(verdict.succeeds().json()["ok"], true);
    drop((devices, asking));
}
