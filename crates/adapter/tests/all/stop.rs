//! Cancel, shutdown and leftovers: no process of a task outlives it.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use attache_adapter::{Driver, DriverRun};
use attache_protocol::wire::adapter::{HostInfo, TaskReply};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::world::{AdapterWorld, done, failed, is_alive, task, until};

/// Prints the pids of a child, of a grandchild that ignores SIGTERM, and of itself, then keeps running.
const FAMILY: &str = "sleep 600 & echo $!
    sh -c 'trap \"\" TERM; sh -c \"trap \\\"\\\" TERM; echo \\$\\$; while :; do sleep 0.1; done\" & wait' &
    echo $$
    wait";

fn cancelled() -> Value {
    failed("cancelled", "the run was cancelled; every process it started on this device was stopped")
}

async fn family(world: &AdapterWorld, task: &Value) -> (crate::world::ReceivedEvents, Vec<String>) {
    let mut events = world.stream(task).await;
    let text = events.chunks_until(|text| text.lines().count() == 3).await;
    let pids: Vec<String> = text.lines().map(str::to_owned).collect();
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    (events, pids)
}

#[tokio::test]
async fn cancel_returns_when_the_entire_group_is_dead() {
    let world = AdapterWorld::shell().await;
    let task = task(FAMILY);
    let (events, pids) = family(&world, &task).await;
    let started = Instant::now();
    let reply = world.cancel(&task).await;
    let alive: Vec<_> = pids.iter().filter(|pid| is_alive(pid)).collect();
    assert_eq!((reply.status, serde_json::from_str::<Value>(&reply.body).unwrap()), (200, cancelled()));
    assert!(alive.is_empty(), "{alive:?} of {pids:?}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(events.rest().await.last().unwrap().2, cancelled());
    assert_eq!(world.running().await, Value::Null);

    let again = world.cancel(&task).await;
    assert_eq!(serde_json::from_str::<Value>(&again.body).unwrap(), cancelled());
    world.stop().await;
}

#[tokio::test]
async fn a_task_may_clean_up_but_is_still_cancelled() {
    let world = AdapterWorld::shell().await;
    let task = task("trap 'echo tidy > tidied; exit 0' TERM; echo ready; while :; do sleep 0.01; done");
    let mut events = world.stream(&task).await;
    events.chunks_until(|text| text == "ready\n").await;
    assert_eq!(serde_json::from_str::<Value>(&world.cancel(&task).await.body).unwrap(), cancelled());
    assert_eq!(std::fs::read_to_string(world.cwd.join("tidied")).unwrap(), "tidy\n");
    world.stop().await;
}

#[tokio::test]
async fn an_ended_run_keeps_its_outcome() {
    let world = AdapterWorld::shell().await;
    let task = task("echo fine");
    world.run(&task).await;
    let reply = world.cancel(&task).await;
    assert_eq!((reply.status, serde_json::from_str::<Value>(&reply.body).unwrap()), (200, done("fine\n")));
    assert_eq!(world.run(&task).await, done("fine\n"));
    world.stop().await;
}

#[tokio::test]
async fn repeating_a_cancelled_run_is_a_new_attempt() {
    let world = AdapterWorld::shell().await;
    let task = task("if [ -e again ]; then echo second; else touch again; echo first; sleep 600; fi");
    let mut events = world.stream(&task).await;
    events.chunks_until(|text| text == "first\n").await;
    world.cancel(&task).await;
    assert_eq!(world.run(&task).await, done("second\n"));
    world.stop().await;
}

#[tokio::test]
async fn background_processes_end_with_the_task() {
    let world = AdapterWorld::shell().await;
    let started = Instant::now();
    let reply = world.run(&task("sleep 600 & echo $!")).await;
    let pid = reply["output"]["text"].as_str().unwrap().trim();
    assert!(!is_alive(pid), "{pid}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    world.stop().await;
}

#[tokio::test]
async fn a_process_that_left_the_group_does_not_delay_the_answer() {
    if std::process::Command::new("setsid").arg("true").status().is_err() {
        println!("skipped: this machine has no setsid");
        return;
    }
    let world = AdapterWorld::shell().await;
    let started = Instant::now();
    assert_eq!(world.run(&task("setsid sleep 8 & sleep 0.2; echo done")).await, done("done\n"));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    world.stop().await;
}

#[tokio::test]
async fn the_deadline_kills_the_group() {
    let world = AdapterWorld::shell().await;
    let task = crate::world::with(task(FAMILY), "deadline", crate::world::in_millis(3000));
    let (events, pids) = family(&world, &task).await;
    let (_, _, result) = events.rest().await.pop().unwrap();
    assert_eq!(result["error"]["code"], "timed_out");
    let alive: Vec<_> = pids.iter().filter(|pid| is_alive(pid)).collect();
    assert!(alive.is_empty(), "{alive:?} of {pids:?}");
    world.stop().await;
}

#[tokio::test]
async fn a_shutdown_kills_the_group_and_reports_it() {
    let world = AdapterWorld::shell().await;
    let (events, pids) = family(&world, &task(FAMILY)).await;
    let address = world.address;
    world.stop().await;
    let alive: Vec<_> = pids.iter().filter(|pid| is_alive(pid)).collect();
    assert!(alive.is_empty(), "{alive:?} of {pids:?}");
    let expected = "the adapter was shut down during the run; start it and run the task again";
    assert_eq!(events.rest().await.last().unwrap().2, failed("host_crashed", expected));
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn dropping_the_adapters_runtime_kills_the_group() {
    let pids = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = AdapterWorld::shell().await;
            family(&world, &task(FAMILY)).await.1
        })
    })
    .join()
    .unwrap();
    until("the group is gone", || pids.iter().all(|pid| !is_alive(pid))).await;
}

/// Not a test by itself: the process that the next test kills.
#[tokio::test]
#[ignore = "started by `killing_the_adapter_kills_the_group`"]
async fn an_adapter_that_waits_to_be_killed() {
    let world = AdapterWorld::shell().await;
    let (_events, pids) = family(&world, &task(FAMILY)).await;
    println!("family {}", pids.join(" "));
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn killing_the_adapter_kills_the_group() {
    dies_with_its_adapter("stop::an_adapter_that_waits_to_be_killed", 3).await;
}

/// Runs a test that prints its process family and waits, and kills it.
pub(crate) async fn dies_with_its_adapter(test: &str, family: usize) {
    let mut adapter = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", test])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(adapter.stdout.take().unwrap()).lines();
    let pids = loop {
        let line = lines.next_line().await.unwrap().expect("a line with the family");
        if let Some((_, pids)) = line.split_once("family ") {
            break pids.split(' ').map(str::to_owned).collect::<Vec<_>>();
        }
    };
    assert_eq!(pids.iter().filter(|pid| is_alive(pid)).count(), family, "{pids:?}");
    adapter.kill().await.unwrap();
    until("the group is gone", || pids.iter().all(|pid| !is_alive(pid))).await;
}

/// A defective driver: it panics, or ignores the stop signal.
#[derive(Debug)]
struct DefectiveDriver;

impl Driver for DefectiveDriver {
    fn host(&self) -> HostInfo {
        HostInfo { kind: "broken".to_owned(), version: None }
    }

    fn run(&self, job: DriverRun) -> futures_util::future::BoxFuture<'static, TaskReply> {
        Box::pin(async move {
            assert!(job.text().is_ok_and(|text| text == "hang"), "told to panic");
            job.events.log("info", "hanging");
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn a_broken_driver_does_not_block_the_slot() {
    let world = AdapterWorld::start(DefectiveDriver, |_| {}).await;
    let expected = failed("host_crashed", "the adapter's driver panicked; its log has the details");
    assert_eq!(world.run(&task("panic")).await, expected);
    let hanging = task("hang");
    let mut events = world.stream(&hanging).await;
    assert_eq!(events.next().await.unwrap().2, json!({"level": "info", "message": "hanging"}));
    assert_eq!(serde_json::from_str::<Value>(&world.cancel(&hanging).await.body).unwrap(), cancelled());
    assert_eq!(world.running().await, Value::Null);
    world.stop().await;
}
