//! A driver that asks: permission before a step, input from its caller, and unsolicited input.

use attache_adapter::{Driver, DriverRun};
use attache_protocol::{
    Json,
    wire::adapter::{AdapterPermissionRequest, HostInfo, TaskOutput, TaskReply},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::{Value, json};

use crate::world::{AdapterWorld, RawReply, done, failed, in_millis, task, with};

/// Carries out each word of the task's text in turn and reports the answers.
#[derive(Debug)]
struct AskingDriver;

impl Driver for AskingDriver {
    fn host(&self) -> HostInfo {
        HostInfo { kind: "inquirer".to_owned(), version: None }
    }

    fn accepts_unsolicited(&self) -> bool {
        true
    }

    fn run(&self, job: DriverRun) -> BoxFuture<'static, TaskReply> {
        async move {
            let mut heard = Vec::new();
            for word in job.text().unwrap().split(' ') {
                match word {
                    "input" => heard.push(match job.question_handle.input("Which one?", None).await {
                        Some(parts) => parts.get().to_owned(),
                        None => return TaskReply::failed("task_failed", "stopped"),
                    }),
                    "unasked" => heard.push(job.question_handle.next_unsolicited().await.parts.get().to_owned()),
                    "flood" => (0..3000).for_each(|_| job.events.chunk("x".repeat(4096))),
                    id => {
                        let input = Json::from_text(r#"{"command":"rm -r  out"}"#).unwrap();
                        let asked = AdapterPermissionRequest {
                            cwd: Some("/srv".to_owned()),
                            paths: vec!["/srv/out".to_owned()],
                            risk: Some("high".to_owned()),
                            ..AdapterPermissionRequest::new(id, "shell", input)
                        };
                        match job.question_handle.permission(&asked).await {
                            Some(given) => heard.push(serde_json::to_string(&given).unwrap()),
                            None => return TaskReply::failed("task_failed", "stopped"),
                        }
                    }
                }
            }
            TaskReply::done(&TaskOutput { text: heard.join(" "), ..TaskOutput::default() })
        }
        .boxed()
    }
}

async fn answer(world: &AdapterWorld, task: &Value, what: &str, body: Value) -> RawReply {
    let run = task["task_run_id"].as_str().unwrap();
    world.post(&format!("/run-task/{run}/{what}"), body.to_string().as_bytes()).await
}

fn question(id: &str) -> Value {
    json!({"id": id, "tool": "shell", "input": {"command": "rm -r  out"}, "cwd": "/srv", "paths": ["/srv/out"], "risk": "high"})
}

#[tokio::test]
async fn a_question_waits_for_its_first_answer() {
    let world = AdapterWorld::start(AskingDriver, |_| {}).await;
    let task = task("p1");
    let mut events = world.stream(&task).await;
    assert_eq!(events.next().await, Some((1, "permission".to_owned(), question("p1"))));

    let unknown = answer(&world, &task, "permission/p9", json!({"approved": true})).await;
    assert_eq!(unknown.status, 404);
    let wrong = answer(&world, &task, "permission/p1", json!({"approved": "yes"})).await;
    assert_eq!(wrong.status, 400);
    // A late reader sees the question too.
    assert_eq!(world.stream(&task).await.next().await, Some((1, "permission".to_owned(), question("p1"))));

    let given = json!({"approved": true, "scope": "run", "comment": "this once"});
    let first = answer(&world, &task, "permission/p1", given).await;
    assert_eq!((first.status, first.body.as_str()), (200, "{}"));
    let expected = done(r#"{"approved":true,"scope":"run","comment":"this once"}"#);
    assert_eq!(events.rest().await, [(2, "result".to_owned(), expected)]);
    // A repeated, late answer is accepted and changes nothing.
    assert_eq!(answer(&world, &task, "permission/p1", json!({"approved": false})).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_question_id_cannot_be_reused() {
    let world = AdapterWorld::start(AskingDriver, |_| {}).await;
    let task = task("p1 p1");
    let mut events = world.stream(&task).await;
    events.next().await.unwrap();
    assert_eq!(answer(&world, &task, "permission/p1", json!({"approved": true})).await.status, 200);
    let expected = done(r#"{"approved":true} {"approved":false,"comment":"the question id `p1` was already used"}"#);
    assert_eq!(events.rest().await, [(2, "result".to_owned(), expected)]);
    world.stop().await;
}

#[tokio::test]
async fn input_answers_the_oldest_question_or_the_one_it_names() {
    let world = AdapterWorld::start(AskingDriver, |_| {}).await;
    let task = task("input input unasked");
    let mut events = world.stream(&task).await;
    let asked = |id: &str| json!({"id": id, "prompt": "Which one?"});
    assert_eq!(events.next().await, Some((1, "input_required".to_owned(), asked("input-1"))));
    assert_eq!(answer(&world, &task, "input", json!({"id": "input-7", "parts": []})).await.status, 404);
    assert_eq!(answer(&world, &task, "input", json!({"id": "input-1", "parts": [{"text": "a"}]})).await.status, 200);
    assert_eq!(events.next().await, Some((2, "input_required".to_owned(), asked("input-2"))));
    // A repeated answer to the first question doesn't answer the second.
    assert_eq!(answer(&world, &task, "input", json!({"id": "input-1", "parts": [{"text": "z"}]})).await.status, 200);
    assert_eq!(answer(&world, &task, "input", json!({"parts": [{"text": "b"}]})).await.status, 200);
    assert_eq!(answer(&world, &task, "input", json!({"parts": [1.0]})).await.status, 200);
    let expected = done(r#"[{"text":"a"}] [{"text":"b"}] [1.0]"#);
    assert_eq!(events.rest().await, [(3, "result".to_owned(), expected)]);
    world.stop().await;
}

#[tokio::test]
async fn an_open_question_is_replayed_to_late_readers() {
    let world = AdapterWorld::start(AskingDriver, |_| {}).await;
    let task = task("flood p1");
    let mut events = world.stream(&task).await;
    let mut last = events.next().await.unwrap();
    while last.1 != "permission" {
        last = events.next().await.unwrap();
    }
    assert_eq!(last, (3001, "permission".to_owned(), question("p1")));
    let mut late = world.stream(&task).await;
    let mut last = late.next().await.unwrap();
    assert_eq!(last.1, "log", "{last:?}");
    while last.1 != "permission" {
        last = late.next().await.unwrap();
    }
    assert_eq!(world.cancel(&task).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn the_deadline_is_paused_while_a_question_is_open() {
    let world = AdapterWorld::start(AskingDriver, |_| {}).await;
    let task = with(task("p1 unasked"), "deadline", in_millis(2500));
    let mut events = world.stream(&task).await;
    events.next().await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(3000)).await;
    assert_eq!(answer(&world, &task, "permission/p1", json!({"approved": true})).await.status, 200);
    let ended = events.rest().await;
    let message = "the run's deadline passed; every process it started on this device was stopped";
    assert_eq!(ended, [(2, "result".to_owned(), failed("timed_out", message))]);
    world.stop().await;
}

#[tokio::test]
async fn a_cancelled_run_does_not_wait_for_its_answer() {
    let world = AdapterWorld::start(AskingDriver, |_| {}).await;
    for words in ["p1", "input"] {
        let task = task(words);
        let mut events = world.stream(&task).await;
        events.next().await.unwrap();
        assert_eq!(world.cancel(&task).await.status, 200);
        let message = "the run was cancelled; every process it started on this device was stopped";
        assert_eq!(events.rest().await, [(2, "result".to_owned(), failed("cancelled", message))]);
    }
    world.stop().await;
}

#[tokio::test]
async fn unsolicited_input_is_refused_by_drivers_that_ignore_it() {
    let world = AdapterWorld::shell().await;
    let task = task("echo begun; exec sleep 100");
    let mut events = world.stream(&task).await;
    events.next().await.unwrap();
    let refused = answer(&world, &task, "input", json!({"parts": [{"text": "use port 8080"}]})).await;
    assert_eq!(refused.status, 404, "{refused:?}");
    assert_eq!(world.cancel(&task).await.status, 200);
    world.stop().await;
}
