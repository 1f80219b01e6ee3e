//! The question bridge against a real hub: a question reaches people, and the answer reaches the waiting process.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use attache_protocol::{
    Json,
    rules::{permission::PermissionState, run::RunStatus},
    wire::{input_request::GiveInputRequest, permission::PermissionRequest, run::WaitReason},
};
use attache_runtime::{AnswerKind, QuestionNotice, RuntimeNotice};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    adapter::AdapterReply,
    live_hub::{LiveHub, eventually},
};

fn question() -> (&'static str, Value) {
    let data = json!({"id": "p/1", "tool": "shell", "input": {"command": "rm -r out"}, "cwd": "/srv",
        "paths": ["/srv/out"], "reason": "clean", "risk": "high"});
    ("permission", data)
}

fn done() -> Value {
    json!({"success": true, "output": {"text": "done", "artifact_refs": []}})
}

fn approved() -> (String, Value) {
    ("permission/p/1".to_owned(), json!({"approved": true, "scope": "once", "comment": "as you wish"}))
}

fn subject(request: &PermissionRequest) -> Value {
    json!({"tool": request.tool, "input": request.input, "cwd": request.cwd, "paths": request.paths,
        "reason": request.reason, "risk": request.risk})
}

#[tokio::test]
async fn a_decision_reaches_the_process_immediately() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    live.world.adapter.play(AdapterReply::Hang(vec![question()]));
    let run = live.create("risky").await;
    let pending = live.pending().await;
    assert_eq!(
        subject(&pending),
        json!({"tool": "shell", "input": {"command": "rm -r out"}, "cwd": "/srv", "paths": ["/srv/out"],
            "reason": "clean", "risk": "high"})
    );
    assert_eq!((pending.task_run_id, pending.channel_id), (run, live.connection().unwrap().channel_id));
    assert_eq!(live.owner.run(run).await.unwrap().waiting, Some(WaitReason::Approval));

    let decided = Instant::now();
    live.decide(&pending, true).await;
    assert_eq!(live.world.adapter.answers(1).await, [approved()]);
    println!("decision to process: {:?}", decided.elapsed());
    assert!(decided.elapsed() < Duration::from_secs(5), "{:?}", decided.elapsed());
    live.world.adapter.finish(done());
    live.run_with(run, RunStatus::Completed).await;
    running.stop().await.unwrap();
    let asked = live.count(
        |notice| matches!(notice, RuntimeNotice::Asked { question: QuestionNotice::Permission { tool }, .. } if tool == "shell"),
    );
    assert_eq!(
        (asked, live.count(|notice| matches!(notice, RuntimeNotice::Answered { answer: AnswerKind::Approved, .. }))),
        (1, 1)
    );
}

#[tokio::test]
async fn a_question_survives_a_restart_of_the_hub() {
    let mut live = LiveHub::start().await;
    let running = live.connected().await;
    live.world.adapter.play(AdapterReply::Hang(vec![question()]));
    let run = live.create("risky").await;
    let pending = live.pending().await;
    live.stop_hub().await;
    live.noticed(|notice| matches!(notice, RuntimeNotice::ChannelBroken { .. })).await;
    live.start_hub().await;
    let after = live.pending().await;
    assert_eq!(after, PermissionRequest { channel_id: after.channel_id, ..pending });
    live.decide(&after, true).await;
    assert_eq!(live.world.adapter.answers(1).await, [approved()]);
    live.world.adapter.finish(done());
    live.run_with(run, RunStatus::Completed).await;
    running.stop().await.unwrap();
    assert_eq!(live.world.adapter.answers(1).await.len(), 1);
}

#[tokio::test]
async fn a_question_survives_a_restart_of_the_runtime() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    live.world.adapter.play(AdapterReply::Hang(vec![question()]));
    let run = live.create("risky").await;
    let pending = live.pending().await;
    running.kill().await;
    live.world.adapter.play(AdapterReply::Join);
    let running = live.runtime();
    live.noticed(|notice| matches!(notice, RuntimeNotice::Rejoined { .. })).await;
    eventually("the question, asked again", async || {
        (live.count(|notice| matches!(notice, RuntimeNotice::Asked { .. })) == 2).then_some(())
    })
    .await;
    assert_eq!(live.pending().await.permission_request_id, pending.permission_request_id);
    live.decide(&pending, true).await;
    assert_eq!(live.world.adapter.answers(1).await, [approved()]);
    live.world.adapter.say("chunk", json!({"text": "going on"}));
    live.world.adapter.finish(done());
    live.run_with(run, RunStatus::Completed).await;
    assert_eq!(
        live.events(run, &["task.chunk"]).await,
        [("task.chunk".to_owned(), json!({"text": "going on"}))],
        "the reports of the new process are not mistaken for old ones"
    );
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_decision_made_while_the_runtime_is_down_arrives_when_it_is_back() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    live.world.adapter.play(AdapterReply::Hang(vec![question()]));
    let run = live.create("risky").await;
    let pending = live.pending().await;
    running.kill().await;
    live.decide(&pending, false).await;
    live.world.adapter.play(AdapterReply::Join);
    let running = live.runtime();
    let denied = json!({"approved": false, "scope": "once", "comment": "as you wish"});
    assert_eq!(live.world.adapter.answers(1).await, [("permission/p/1".to_owned(), denied)]);
    live.world.adapter.finish(done());
    live.run_with(run, RunStatus::Completed).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_decision_arrives_although_the_connection_is_cut() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    live.world.adapter.play(AdapterReply::Hang(vec![question()]));
    let run = live.create("risky").await;
    let pending = live.pending().await;
    // The connection is cut at the moment of the decision.
    live.proxy.cut();
    live.decide(&pending, true).await;
    live.proxy.cut();
    assert_eq!(live.world.adapter.answers(1).await, [approved()]);
    live.world.adapter.finish(done());
    live.run_with(run, RunStatus::Completed).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn input_reaches_the_question_and_the_run() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    live.world.adapter.play(AdapterReply::Hang(vec![("input_required", json!({"prompt": "Which one?"}))]));
    let run = live.create("curious").await;
    eventually("a waiting run", async || {
        (live.owner.run(run).await.unwrap().waiting == Some(WaitReason::Input)).then_some(())
    })
    .await;
    let give = async |text: &str| {
        let request = GiveInputRequest { text: Some(text.to_owned()), ..GiveInputRequest::default() };
        live.owner.give_input(run, &request).await.unwrap().input_id
    };
    give("the first").await;
    let answers = live.world.adapter.answers(1).await;
    assert_eq!(answers, [("input".to_owned(), json!({"parts": [{"text": "the first"}]}))]);
    // Unsolicited input.
    let input_id = give("hurry").await;
    let answers = live.world.adapter.answers(2).await;
    assert_eq!(answers[1], ("input".to_owned(), json!({"parts": [{"text": "hurry"}], "input_id": input_id})));
    live.world.adapter.finish(done());
    live.run_with(run, RunStatus::Completed).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_invalid_question_fails_the_run() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    live.world.adapter.play(AdapterReply::Hang(vec![("permission", json!({"tool": "shell"}))]));
    let run = live.create("strange").await;
    let failed = live.run_with(run, RunStatus::Failed).await;
    let result: Value = failed.task_result.unwrap().parse().unwrap();
    assert_eq!(result["code"], "adapter_invalid_reply");
    assert_eq!(live.world.adapter.cancelled().await, run.to_string());
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_third_party_adapter_asks_people() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python-asking-adapter/adapter.py");
    let started =
        tokio::process::Command::new("python3").args([script, "0"]).stdout(Stdio::piped()).kill_on_drop(true).spawn();
    let mut python = match started {
        Ok(python) => python,
        Err(error) => return println!("skipped: can't start python3: {error}"),
    };
    let line = BufReader::new(python.stdout.take().unwrap()).lines().next_line().await.unwrap().unwrap();
    let live = LiveHub::start().await;
    let work = live.world.path("work");
    std::fs::create_dir(&work).unwrap();
    live.change_profile(|profile| {
        profile.local_agent_endpoint = Some(line.strip_prefix("listening on ").unwrap().to_owned());
        profile.local_executor.cwd = Some(work.clone());
    });
    let running = live.connected().await;
    let run = live.create("run: echo x >> out; wc -l < out\nask: Which one?\nrun: rm out").await;
    let pending = live.pending().await;
    assert_eq!(pending.input, Json::from_text(r#"{"command": "echo x >> out; wc -l < out"}"#).unwrap());
    live.decide(&pending, true).await;
    eventually("a waiting run", async || {
        (live.owner.run(run).await.unwrap().waiting == Some(WaitReason::Input)).then_some(())
    })
    .await;
    let request = GiveInputRequest { text: Some("the first".to_owned()), ..GiveInputRequest::default() };
    live.owner.give_input(run, &request).await.unwrap();
    let pending = live.pending().await;
    live.decide(&pending, false).await;
    let failed = live.run_with(run, RunStatus::Failed).await;
    let result: Value = failed.task_result.unwrap().parse().unwrap();
    assert_eq!(result, json!({"error": "`rm out` was not allowed: as you wish", "code": "permission_denied"}));
    assert_eq!(std::fs::read_to_string(format!("{work}/out")).unwrap(), "x\n", "the allowed command ran once");
    assert_eq!(live.owner.permission(pending.permission_request_id).await.unwrap().state, PermissionState::Denied);
    running.stop().await.unwrap();
    python.kill().await.unwrap();
}

#[tokio::test]
async fn a_question_too_large_for_a_frame_is_still_answered() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    let (name, mut data) = question();
    data["input"] = json!({"command": "x".repeat(3 << 19)});
    live.world.adapter.play(AdapterReply::Hang(vec![(name, data)]));
    let run = live.create("risky").await;
    let [(path, answer)] = &live.world.adapter.answers(1).await[..] else { panic!("one answer") };
    assert_eq!((path.as_str(), &answer["approved"]), ("permission/p/1", &json!(false)));
    assert!(answer["comment"].as_str().unwrap().starts_with("the request could not be sent: "), "{answer}");
    live.world.adapter.finish(done());
    live.run_with(run, RunStatus::Completed).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn the_caller_learns_that_the_agent_accepts_no_input() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    live.world.adapter.be_deaf();
    live.world.adapter.play(AdapterReply::Hang(vec![]));
    let run = live.create("for a while").await;
    live.world.adapter.started(1).await;
    let input = GiveInputRequest { text: Some("hurry".to_owned()), ..GiveInputRequest::default() };
    live.owner.give_input(run, &input).await.unwrap();
    let logged = eventually("a log line", async || live.events(run, &["task.log"]).await.pop()).await.1;
    let message = "the agent on this device doesn't accept input while it works; the input was not delivered";
    assert_eq!((&logged["level"], &logged["message"]), (&json!("warning"), &json!(message)));
    live.world.adapter.finish(done());
    live.run_with(run, RunStatus::Completed).await;
    running.stop().await.unwrap();
}
