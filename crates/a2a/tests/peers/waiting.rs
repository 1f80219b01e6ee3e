//! What an agent outside waits for, as our caller sees it; and what our caller says without being asked.

use std::time::Duration;

use attache_a2a_wire::{Message, Part, PartContent, Task, TaskState};
use attache_protocol::{
    Json,
    rules::{recovery::Recovery, run::RunStatus},
    wire::{input_request::GiveInputRequest, run::WaitReason},
};
use serde_json::{Value, json};

use super::{
    ours::{OwnHubPeer, result},
    script::ScriptedPeer,
};
use crate::{
    obedient::{message, request, steps},
    scene::{A2aFixture, AGENT, world},
    speak::{TestBinding, TestClient, TestOperation, TestVersion},
};

async fn hubs() -> (A2aFixture, OwnHubPeer) {
    let theirs = A2aFixture::start(world()).await;
    let ours = OwnHubPeer::start().await;
    let url = format!("{}/a2a/{AGENT}", theirs.world.url);
    ours.add("outside", &url, Some(theirs.world.owner_key.expose())).await;
    (theirs, ours)
}

async fn scripted(version: &'static str) -> (ScriptedPeer, OwnHubPeer) {
    let script = ScriptedPeer::start(version).await;
    let ours = OwnHubPeer::start().await;
    ours.add("outside", &script.url, None).await;
    (script, ours)
}

/// Our owner, at the agent that stands for the one outside.
fn client(ours: &OwnHubPeer, version: TestVersion) -> TestClient {
    TestClient::new(TestBinding::Rpc, version, &ours.url, "outside").key(&ours.key)
}

fn said(task: &Task) -> Vec<Part> {
    task.status.message.as_ref().map(|message| message.parts.clone()).unwrap_or_default()
}

fn told(task: &Task, id: &str, text: &str) -> Message {
    Message { task_id: Some(task.id.clone()), ..message(id, vec![Part::text(text)]) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_there_is_one_that_our_caller_waits_for() {
    for version in [TestVersion::V10, TestVersion::V03] {
        let (theirs, ours) = hubs().await;
        let client = client(&ours, version);
        // Blocking: it answers, since the task waits for somebody.
        let mut sent = request(steps("m-1", json!([{"permit": ["shell"]}])));
        sent.configuration.get_or_insert_default().return_immediately = Some(false);
        let task = client.send(sent).await;
        assert_eq!(task.status.state, TaskState::TaskStateAuthRequired);
        let parts = said(&task);
        let [Part { content: PartContent::Text(text), .. }, Part { content: PartContent::Data(data), .. }] = &parts[..]
        else {
            panic!("{parts:?}")
        };
        assert_eq!(text, "A person must approve `shell` before the task continues: it was told so");
        assert!(data.get().contains(r#""size":9007199254740993"#), "to the byte: {}", data.get());
        let asked = theirs.pending().await;
        let data: Value = data.parse().unwrap();
        let url = format!("{}/approvals/{}", theirs.world.url, asked.permission_request_id);
        assert_eq!(data["decide_url"], url);
        // People see it too, and the task is found by its state.
        let run = ours.read(task.id.parse().unwrap()).await;
        assert_eq!((run.waiting, run.recovery), (Some(WaitReason::Approval), Some(Recovery::RemoteWaiting)));
        let events = ours.events(run.task_run_id).await;
        let required = events.iter().find(|(kind, _)| kind == "task.authorization_required").unwrap().1.clone();
        let prompt = format!(
            "The outside agent is waiting for authorization and continues on its own once it is granted.\n{text}\n{url}"
        );
        assert_eq!(required["prompt"], prompt);
        // It goes on by itself.
        theirs.decide(true).await;
        let done = client.until(&task.id, TaskState::TaskStateCompleted).await;
        assert_eq!(done.artifacts.unwrap()[0].parts, [Part::text("may shell")]);
        let kinds: Vec<String> = ours.events(run.task_run_id).await.into_iter().map(|(kind, _)| kind).collect();
        assert!(kinds.contains(&"task.input_withdrawn".to_owned()), "nobody is asked any more: {kinds:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_caller_says_while_a_permission_is_waited_for_goes_there_and_grants_nothing() {
    let (theirs, ours) = hubs().await;
    let client = client(&ours, TestVersion::V10);
    let task = client.send(request(steps("m-1", json!([{"permit": ["shell"]}])))).await;
    let after = client.send(request(told(&task, "m-2", "rather not in /tmp"))).await;
    assert_eq!(after.status.state, TaskState::TaskStateAuthRequired, "a person there still has to decide");
    let texts = |task: &Task| format!("{:?}", task.history);
    assert!(texts(&after).contains("rather not in /tmp"));
    let owner = theirs.owner();
    let there = owner.get(&theirs.pending().await.task_run_id.to_string()).await;
    assert!(texts(&there).contains("rather not in /tmp"), "{there:?}");
    theirs.decide(false).await;
    let done = client.until(&task.id, TaskState::TaskStateCompleted).await;
    assert_eq!(done.artifacts.unwrap()[0].parts, [Part::text("may not shell")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authorization_is_waited_for_through_a_restart_and_by_polling() {
    for (version, native) in [("1.0", "TASK_STATE_AUTH_REQUIRED"), ("0.3", "auth-required")] {
        let (script, ours) = scripted(version).await;
        let run = ours.run("outside", json!({"text": "hello"})).await;
        ours.in_state(run, Recovery::RemoteRunning).await;
        script.tell(TaskState::TaskStateAuthRequired, "sign in at https://agents.example/login");
        ours.when(run, |run| run.waiting == Some(WaitReason::Approval)).await;
        assert_eq!(ours.native(run).await.last().unwrap().2, native);
        let ours = ours.restart().await;
        let task = client(&ours, TestVersion::V10).get(&run.to_string()).await;
        let words = [Part::text("sign in at https://agents.example/login")];
        assert_eq!((task.status.state, said(&task)), (TaskState::TaskStateAuthRequired, words.to_vec()));
        script.tell(TaskState::TaskStateWorking, "thank you");
        ours.when(run, |run| run.waiting.is_none()).await;
        // The same question once more is a question once more.
        script.tell(TaskState::TaskStateAuthRequired, "sign in at https://agents.example/login");
        ours.when(run, |run| run.waiting == Some(WaitReason::Approval)).await;
        script.tell(TaskState::TaskStateCompleted, "done");
        let ended = ours.ended(run).await;
        assert_eq!((ended.status, result(&ended)["text"].clone()), (RunStatus::Completed, json!("done")));
        assert_eq!(script.sent().len(), 1);
        let asked = ours.events(run).await.into_iter().filter(|(kind, _)| kind == "task.authorization_required");
        assert_eq!(asked.count(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_was_answered_there_is_asked_no_more() {
    let (script, ours) = scripted("1.0").await;
    let run = ours.run("outside", json!({"text": "hello"})).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    script.tell(TaskState::TaskStateInputRequired, "which one?");
    ours.when(run, |run| run.waiting == Some(WaitReason::Input)).await;
    script.tell(TaskState::TaskStateWorking, "somebody said it");
    ours.when(run, |run| run.waiting.is_none()).await;
    script.tell(TaskState::TaskStateCompleted, "done");
    assert_eq!(ours.ended(run).await.status, RunStatus::Completed);
    assert_eq!(script.sent().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_caller_says_unasked_is_told_the_agent_once() {
    let give = async |ours: &OwnHubPeer, run, text: &str| {
        let input = GiveInputRequest { text: Some(text.to_owned()), ..GiveInputRequest::default() };
        ours.hub.give_input(&ours.owner, run, input).await.unwrap();
    };
    let logged = async |ours: &OwnHubPeer, run, many: usize| {
        while ours.events(run).await.iter().filter(|(kind, _)| kind == "task.log").count() < many {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // By stream, to the hub of somebody else.
    let (theirs, ours) = hubs().await;
    let run = ours.run("outside", json!({"text": "work", "context": {"steps": [{"hold": true}]}})).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    give(&ours, run, "faster").await;
    logged(&ours, run, 1).await;
    let there = theirs.world.hub.runs(&theirs.world.owner, Default::default()).await.unwrap().task_runs;
    let there = theirs.owner().get(&there[0].task_run_id.to_string()).await;
    let heard: Vec<_> = there.history.unwrap().into_iter().skip(1).map(|message| message.parts).collect();
    assert_eq!(heard, [[Part::text("faster")]]);
    theirs.open_gate();
    assert_eq!(ours.ended(run).await.status, RunStatus::Completed);
    // By polling; and what was told before a restart is not told again.
    let (script, ours) = scripted("1.0").await;
    let run = ours.run("outside", json!({"text": "hello"})).await;
    ours.in_state(run, Recovery::RemoteRunning).await;
    give(&ours, run, "faster").await;
    logged(&ours, run, 1).await;
    let ours = ours.restart().await;
    give(&ours, run, "slower").await;
    logged(&ours, run, 2).await;
    let sent = script.sent();
    let to: Vec<_> = sent.iter().map(|sent| (sent.task_id.as_deref(), sent.parts[0].clone())).collect();
    let theirs = Some("theirs-1");
    let wanted = [(None, "hello"), (theirs, "faster"), (theirs, "slower")].map(|(to, text)| (to, Part::text(text)));
    assert_eq!(to, wanted);
    script.tell(TaskState::TaskStateCompleted, "done");
    assert_eq!(ours.ended(run).await.status, RunStatus::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_answer_has_no_empty_end() {
    let (_theirs, ours) = hubs().await;
    let client = client(&ours, TestVersion::V10);
    let told = steps("m-1", json!([{"chunk": "one "}, {"chunk": "two"}, {"output": {"text": "one two"}}]));
    let incoming = client.open(TestOperation::Stream(request(told))).await.unwrap();
    let updates: Vec<Json> = incoming.rest().await;
    let piece = |update: &Json| update.parse::<Value>().unwrap().pointer("/artifactUpdate/artifact/parts").cloned();
    let pieces: Vec<Value> = updates.iter().filter_map(piece).collect();
    let wanted = [json!([{"text": "one "}]), json!([{"text": "two"}])];
    assert_eq!(pieces, wanted, "the whole is not sent again, and nothing empty is: {updates:?}");
    let id = updates[0].parse::<Value>().unwrap()["task"]["id"].as_str().unwrap().to_owned();
    let task = client.get(&id).await;
    assert_eq!(task.artifacts.unwrap()[0].parts, [Part::text("one "), Part::text("two")]);
    let run = ours.read(id.parse().unwrap()).await;
    let parts = json!([{"text": "one "}, {"text": "two"}]);
    assert_eq!((&result(&run)["text"], &result(&run)["artifacts"][0]["parts"]), (&json!("one two"), &parts));
}
