//! A fake host, and a person who answers its questions.

use std::{path::PathBuf, time::Duration};

use attache_adapter::HostSetup;
use serde_json::{Value, json};

use crate::world::{AdapterWorld, ReceivedEvent, ReceivedEvents, TEST_TIMEOUT, is_alive};

/// The test kit's fake host in one of its dialects.
pub(crate) fn fake(manner: &str) -> HostSetup {
    HostSetup { args: vec![manner.into()], ..HostSetup::new("fake", "Fake host", example("fake-host")) }
}

/// An example of this crate, built next to its tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples").join(name)
}

pub(crate) fn yes(_: &Value) -> Value {
    json!({"approved": true})
}

pub(crate) fn no(_: &Value) -> Value {
    json!({"approved": false, "comment": "not today"})
}

/// Runs a task to its end and answers each question. Returns the questions and all events.
pub(crate) async fn answered(
    world: &AdapterWorld,
    task: &Value,
    decide: impl Fn(&Value) -> Value,
) -> (Vec<Value>, Vec<ReceivedEvent>) {
    answered_within(world, task, TEST_TIMEOUT, decide).await
}

/// The same, for a host with long pauses between events.
pub(crate) async fn answered_within(
    world: &AdapterWorld,
    task: &Value,
    patience: Duration,
    decide: impl Fn(&Value) -> Value,
) -> (Vec<Value>, Vec<ReceivedEvent>) {
    let (mut events, mut all, mut questions) = (world.stream(task).await, Vec::new(), Vec::new());
    while let Some(event) = events.next_within(patience).await {
        if event.1 == "permission" {
            answer(world, task, &event.2, &decide(&event.2)).await;
            questions.push(event.2.clone());
        }
        all.push(event);
    }
    (questions, all)
}

/// All events of a run without questions.
pub(crate) async fn unasked(world: &AdapterWorld, task: &Value) -> Vec<ReceivedEvent> {
    answered(world, task, |question| panic!("nobody is to be asked {question}")).await.1
}

/// The outcome of such a run.
pub(crate) async fn ended(world: &AdapterWorld, task: &Value) -> Value {
    result(&unasked(world, task).await).clone()
}

/// All output of such a run.
pub(crate) async fn said(world: &AdapterWorld, task: &Value) -> String {
    texts(&unasked(world, task).await, "chunk", "text").concat()
}

pub(crate) async fn answer(world: &AdapterWorld, task: &Value, question: &Value, decision: &Value) {
    let (run, id) = (task["task_run_id"].as_str().unwrap(), question["id"].as_str().unwrap());
    let reply = world.post(&format!("/run-task/{run}/permission/{id}"), decision.to_string().as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// The data of the last event.
pub(crate) fn result(events: &[ReceivedEvent]) -> &Value {
    let (_, name, data) = events.last().unwrap();
    assert_eq!(name, "result");
    data
}

/// `code: message` of a failure.
pub(crate) fn failure(result: &Value) -> String {
    let text = |name: &str| result["error"][name].as_str().unwrap_or_default();
    format!("{}: {}", text("code"), text("message"))
}

/// The texts of all events of one name, in order.
pub(crate) fn texts(events: &[ReceivedEvent], name: &str, member: &str) -> Vec<String> {
    let of_name = events.iter().filter(|(_, event, _)| event == name);
    of_name.filter_map(|(_, _, data)| data[member].as_str().map(str::to_owned)).collect()
}

/// Reads until an event of this name contains this text.
pub(crate) async fn until_told(events: &mut ReceivedEvents, name: &str, wanted: &str) -> Value {
    let mut said = String::new();
    loop {
        let (_, event, data) = events.next().await.expect("more of the stream");
        if event == name {
            said.push_str(data["text"].as_str().or(data["message"].as_str()).unwrap_or_default());
            if said.contains(wanted) {
                return json!(said);
            }
        }
    }
}

/// The processes that a fake host reported with `CHILD`, once it has printed the expected text.
pub(crate) async fn children(events: &mut ReceivedEvents, wanted: &str) -> Vec<String> {
    let mut said = String::new();
    while !said.contains(wanted) {
        let (_, name, data) = events.next().await.expect("more of the stream");
        if name == "chunk" {
            said.push_str(data["text"].as_str().unwrap());
        }
    }
    let pids: Vec<String> = said.lines().next().unwrap().split(' ').skip(1).map(str::to_owned).collect();
    assert_eq!(pids.iter().filter(|pid| is_alive(pid)).count(), 2, "{said}");
    pids
}

/// Cancels, and returns when the run has ended, in time and with no process left.
pub(crate) async fn cancelled(world: &AdapterWorld, task: &Value, pids: &[String]) {
    let begun = std::time::Instant::now();
    let reply: Value = serde_json::from_str(&world.cancel(task).await.body).unwrap();
    let took = begun.elapsed();
    let left = marked(task["task_run_id"].as_str().unwrap());
    let alive: Vec<&String> = pids.iter().filter(|pid| is_alive(pid)).collect();
    assert!(alive.is_empty(), "{alive:?} of {pids:?}");
    assert_eq!(reply["error"]["code"], "cancelled", "{reply}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(left, Vec::<String>::new(), "{task} left something");
}

/// The processes of a run, wherever they went.
pub(crate) fn marked(run: &str) -> Vec<String> {
    let mark = format!("ATTACHE_TASK_RUN_ID={run}");
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_run = processes.filter(|process| {
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    });
    of_run.map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}
