//! Against the A2A surface of another hub.

use std::time::Duration;

use attache_hub::control::RunQuery;
use attache_protocol::{
    RunId,
    rules::{recovery::Recovery, run::RunStatus},
    wire::{input_request::GiveInputRequest, run::Run},
};
use serde_json::json;

use super::ours::{OwnHubPeer, result};
use crate::{
    obedient::ScriptedA2aAgent,
    scene::{A2aFixture, AGENT, world},
};

async fn both() -> (A2aFixture, OwnHubPeer) {
    let theirs = A2aFixture::start(world()).await;
    let ours = OwnHubPeer::start().await;
    let url = format!("{}/a2a/{AGENT}", theirs.world.url);
    ours.add("outside", &url, Some(theirs.world.owner_key.expose())).await;
    (theirs, ours)
}

fn steps(steps: serde_json::Value) -> serde_json::Value {
    json!({"text": "work", "context": {"steps": steps}})
}

/// The runs that the other hub made of ours.
async fn theirs_of(theirs: &A2aFixture) -> Vec<Run> {
    let query = RunQuery::default();
    theirs.world.hub.runs(&theirs.world.owner, query).await.unwrap().task_runs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_done_by_an_agent_of_another_hub() {
    let (theirs, ours) = both().await;
    let made = json!([
        {"progress": "reading"},
        {"artifact": {"artifact_id": "a1", "name": "report", "parts": [{"text": "one "}]}},
        {"artifact": {"artifact_id": "a1", "parts": [{"text": "two"}], "append": true, "last_chunk": true}},
        {"output": {"text": "done", "artifacts": [{"artifact_id": "a1", "name": "report",
            "parts": [{"text": "one two"}, {"data": {"n": 42.0}}]}], "message": {"parts": [{"text": "bye"}]}}},
    ]);
    let run = ours.run("outside", steps(made)).await;
    let ended = ours.ended(run).await;
    assert_eq!(ended.status, RunStatus::Completed, "{ended:?}");
    let output = result(&ended);
    assert_eq!(output["message"], json!({"parts": [{"text": "bye"}]}), "{output}");
    assert_eq!(output["artifacts"][0]["artifact_id"], json!("a1"), "{output}");
    assert!(ended.task_result.as_ref().is_some_and(|result| format!("{result:?}").contains("42.0")), "to the byte");
    let there = theirs_of(&theirs).await;
    assert_eq!(there.len(), 1);
    let their_id = there[0].task_run_id;
    assert_ne!(their_id, run, "their task's id is not ours");
    let native = ours.native(run).await;
    assert_eq!(native.first().map(|(kind, id, _)| (kind.as_str(), id.clone())), Some(("linked", their_id.to_string())));
    assert_eq!(native.last().map(|(_, _, state)| state.as_str()), Some("TASK_STATE_COMPLETED"), "{native:?}");
    let kinds: Vec<String> = ours.events(run).await.into_iter().map(|(kind, _)| kind).collect();
    assert!(kinds.contains(&"artifact.changed".to_owned()) && kinds.contains(&"task.progress".to_owned()), "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_and_refusals_are_told_in_their_own_words() {
    let (_theirs, ours) = both().await;
    let failed = ours.run("outside", steps(json!([{"fail": "the disk is full"}]))).await;
    let rejected = ours.run("outside", steps(json!([{"reject": "not my job"}]))).await;
    let (failed, rejected) = (ours.ended(failed).await, ours.ended(rejected).await);
    let said = |run: &Run| (result(run)["error"].clone(), result(run)["code"].clone());
    assert_eq!(said(&failed), (json!("the disk is full"), json!("task_failed")));
    assert_eq!(said(&rejected), (json!("not my job"), json!("rejected")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_of_the_agent_goes_to_our_caller_and_the_answer_back() {
    let (theirs, ours) = both().await;
    let run = ours.run("outside", steps(json!([{"ask": "which colour?"}]))).await;
    let waiting = ours.when(run, |run| run.waiting.is_some()).await;
    assert_eq!(waiting.recovery, Some(Recovery::RemoteWaiting));
    let asked = ours.events(run).await.into_iter().find(|(kind, _)| kind == "task.input_required").unwrap().1;
    assert_eq!(asked["prompt"], json!("which colour?"));
    let answer = GiveInputRequest { text: Some("blue".to_owned()), ..GiveInputRequest::default() };
    ours.hub.give_input(&ours.owner, run, answer).await.unwrap();
    let ended = ours.ended(run).await;
    assert_eq!(
        (ended.status, result(&ended)["text"].clone()),
        (RunStatus::Completed, json!("answered blue")),
        "{ended:?}"
    );
    assert_eq!(theirs_of(&theirs).await.len(), 1, "the answer went to the same task");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cancelled_here_is_cancelled_there() {
    let (theirs, ours) = both().await;
    let run = ours.run("outside", steps(json!([{"hold": true}]))).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    ours.hub.cancel_run(&ours.owner, run, Default::default()).await.unwrap();
    let their_id: RunId = theirs_of(&theirs).await[0].task_run_id;
    let ended = tokio::time::timeout(super::ours::PATIENCE, async {
        loop {
            let found = theirs.world.hub.run(&theirs.world.owner, their_id).await.unwrap();
            if found.status.is_terminal() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(ended.await.unwrap().status, RunStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_hub_goes_on_after_a_restart_without_a_second_execution() {
    let (theirs, ours) = both().await;
    let run = ours.run("outside", steps(json!([{"hold": true}, {"ask": "sure?"}]))).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    let ours = ours.restart().await;
    theirs.gate.add_permits(1);
    ours.when(run, |run| run.waiting.is_some()).await;
    // Also while it waits for an answer.
    let ours = ours.restart().await;
    let answer = GiveInputRequest { text: Some("yes".to_owned()), ..GiveInputRequest::default() };
    ours.hub.give_input(&ours.owner, run, answer).await.unwrap();
    let ended = ours.ended(run).await;
    assert_eq!(
        (ended.status, result(&ended)["text"].clone()),
        (RunStatus::Completed, json!("answered yes")),
        "{ended:?}"
    );
    assert_eq!((theirs_of(&theirs).await.len(), ended.attempt), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_hub_goes_on_after_it_was_killed_without_a_second_execution() {
    let theirs = A2aFixture::start(world()).await;
    let ours = OwnHubPeer::mortal().await;
    ours.add("outside", &format!("{}/a2a/{AGENT}", theirs.world.url), Some(theirs.world.owner_key.expose())).await;
    let run = ours.run("outside", steps(json!([{"hold": true}]))).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    let ours = ours.reborn().await;
    theirs.gate.add_permits(1);
    let ended = ours.ended(run).await;
    assert_eq!(
        (ended.status, ended.attempt, theirs_of(&theirs).await.len()),
        (RunStatus::Completed, 1, 1),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_is_taken_up_again() {
    let (theirs, cable) = OwnHubPeer::behind_a_cable().await;
    let agent = ScriptedA2aAgent::default();
    let gate = agent.gate.clone();
    let _hosted = theirs.hub.host(&theirs.owner, AGENT, agent).await.unwrap();
    let ours = OwnHubPeer::start().await;
    ours.add("outside", &format!("{}/a2a/{AGENT}", theirs.url), Some(&theirs.key)).await;
    let piece = |text: &str, append: bool| json!({"artifact": {"artifact_id": "a1", "parts": [{"text": text}], "append": append}});
    let made =
        [piece("one ", false), json!({"hold": true}), piece("two ", true), json!({"hold": true}), piece("three", true)];
    let run = ours.run("outside", steps(json!(made))).await;
    for seen in ["one ", "two "] {
        let is_there = async |ours: &OwnHubPeer| {
            let events = ours.events(run).await;
            events.iter().any(|(kind, data)| kind == "artifact.changed" && data.to_string().contains(seen))
        };
        while !is_there(&ours).await {
            assert!(!ours.read(run).await.status.is_terminal(), "{:?}", ours.read(run).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        cable.cut();
        gate.add_permits(1);
    }
    let ended = ours.ended(run).await;
    assert_eq!(ended.status, RunStatus::Completed, "{ended:?}");
    let parts = json!([{"text": "one "}, {"text": "two "}, {"text": "three"}]);
    assert_eq!(result(&ended)["artifacts"][0]["parts"], parts, "{ended:?}");
    let there = theirs.hub.runs(&theirs.owner, RunQuery::default()).await.unwrap().task_runs;
    assert_eq!((there.len(), cable.fault_counts().cuts >= 2), (1, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_an_outside_agent_is_shown_nowhere() {
    let (theirs, ours) = both().await;
    let key = theirs.world.owner_key.expose();
    let run = ours.run("outside", json!({"text": "hello"})).await;
    assert_eq!(ours.ended(run).await.status, RunStatus::Completed);
    for path in [
        "/api/v1/agent-accounts/outside".to_owned(),
        "/api/v1/agent-accounts".to_owned(),
        "/api/v1/audit".to_owned(),
        "/api/v1/agent-runtimes".to_owned(),
        format!("/api/v1/task-runs/{run}"),
        format!("/api/v1/task-runs/{run}/events"),
    ] {
        let text = ours.get(&path).await;
        assert!(text.len() > 20 && !text.contains(key), "{path}: {text}");
    }
    let account: serde_json::Value = serde_json::from_str(&ours.get("/api/v1/agent-accounts/outside").await).unwrap();
    assert_eq!((&account["peer"]["has_key"], &account["peer"]["problem"]), (&json!(true), &json!(null)), "{account}");
}
