//! The scenarios.

use attache_a2a_wire::{
    A2aRole, GetTask, ListTasks, Message, Part, PartContent, PushAuthenticationInfo, PushConfig, SendConfiguration,
    SendMessage, TaskList, TaskState,
};
use attache_client::egress::{EgressGuard, EgressPolicy};
use attache_hub::Options;
use attache_protocol::Json;
use futures_util::FutureExt as _;
use serde_json::json;

use super::{Scenario, ScenarioRun};
use crate::{
    obedient::{immediate, message, request, steps},
    speak::{TestOperation, TestVersion},
};

pub const ALL: &[Scenario] = &[
    ("blocking", |story| blocking(story).boxed()),
    ("answered at once", |story| answered_at_once(story).boxed()),
    ("stream", |story| stream(story).boxed()),
    ("chunks", |story| chunks(story).boxed()),
    ("artifacts of each kind", |story| artifacts(story).boxed()),
    ("artifacts in pieces", |story| pieces(story).boxed()),
    ("numbers", |story| numbers(story).boxed()),
    ("files", |story| files(story).boxed()),
    ("thoughts and logs", |story| thoughts(story).boxed()),
    ("input required", |story| input(story).boxed()),
    ("input required in a stream", |story| input_stream(story).boxed()),
    ("permission given", |story| permission(story, true).boxed()),
    ("permission denied", |story| permission(story, false).boxed()),
    ("permission in a stream", |story| permission_stream(story).boxed()),
    ("rejected", |story| rejected(story).boxed()),
    ("failed", |story| failed(story).boxed()),
    ("cancelled", |story| cancelled(story).boxed()),
    ("lists and pages", |story| lists(story).boxed()),
    ("push configs", |story| pushes(story).boxed()),
    ("unknown task", |story| unknown(story).boxed()),
    ("wrong parameters", |story| wrong(story).boxed()),
    ("terminal task", |story| terminal(story).boxed()),
    ("the same message again", |story| resent(story).boxed()),
    ("a context goes on", |story| context(story).boxed()),
    ("a message as the answer", |story| reply(story).boxed()),
    ("history", |story| history(story).boxed()),
    ("joining a stream", |story| subscribed(story).boxed()),
    ("the extended card", |story| card(story).boxed()),
];

/// Subscribers are on this machine.
pub fn tune(options: &mut Options) {
    options.egress = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
}

fn text(id: &str, text: &str) -> Message {
    message(id, vec![Part::text(text)])
}

fn to(task: &str, message: Message) -> Message {
    Message { task_id: Some(task.to_owned()), ..message }
}

async fn blocking(story: &mut ScenarioRun) {
    let task = story.send("the task", request(text("m1", "hello"))).await;
    story.ask("read again", TestOperation::get(&task.id)).await;
}

async fn answered_at_once(story: &mut ScenarioRun) {
    story.client.agent = "nobody".to_owned();
    let task = story.send("waits for a worker", immediate(text("m1", "hello"))).await;
    assert_eq!(task.status.state, TaskState::TaskStateSubmitted);
    story.ask("still waits", TestOperation::get(&task.id)).await;
}

async fn stream(story: &mut ScenarioRun) {
    story.stream("updates", steps("m1", json!([{"hold": true}, {"output": {"text": "hello"}}]))).await;
}

async fn chunks(story: &mut ScenarioRun) {
    let told = json!([{"hold": true}, {"chunk": "one "}, {"chunk": "two "}, {"output": {"text": "one two three"}}]);
    story.stream("updates", steps("m1", told)).await;
}

async fn artifacts(story: &mut ScenarioRun) {
    let made = json!([
        {"artifact": {"artifact_id": "a1", "name": "words", "parts": [{"text": "hello"}]}},
        {"artifact": {"artifact_id": "a2", "parts": [
            {"raw": "AAEC/w==", "filename": "a.bin", "mediaType": "application/x-thing"}]}},
        {"artifact": {"artifact_id": "a3", "parts": [
            {"url": "https://example.org/x", "filename": "x", "mediaType": "text/html"}]}},
        {"artifact": {"artifact_id": "a4", "parts": [{"data": {"key": "value", "count": 42}}]}},
        {"output": {"text": "four", "artifacts": [{"artifact_id": "a5", "name": "last", "parts": [{"text": "five"}]}],
            "message": {"parts": [{"text": "all done"}]}}},
    ]);
    let task = story.send("the task", request(steps("m1", made))).await;
    assert_eq!(task.artifacts.as_ref().map(Vec::len), Some(5), "{task:?}");
}

async fn pieces(story: &mut ScenarioRun) {
    let made = json!([
        {"hold": true},
        {"artifact": {"artifact_id": "a1", "name": "book", "parts": [{"text": "one"}]}},
        {"artifact": {"artifact_id": "a1", "parts": [{"text": "two"}], "append": true}},
        {"artifact": {"artifact_id": "a1", "parts": [{"text": "three"}], "append": true, "last_chunk": true}},
        {"output": {"text": "", "message": {"parts": [{"text": "written"}]}}},
    ]);
    story.stream("updates", steps("m1", made)).await;
}

async fn numbers(story: &mut ScenarioRun) {
    let exact = r#"{"b":42,"huge":1e400,"timestamp":"2026-01-01T00:00:00+00:00","z":9007199254740993}"#;
    let told = format!(
        r#"{{"steps":[{{"artifact":{{"artifact_id":"a1","parts":[{{"data":{exact},"metadata":{exact}}}]}}}},{{"repeat":true}}]}}"#
    );
    let sent = Message {
        metadata: Some(Json::from_text(exact).unwrap()),
        ..message("m1", vec![Part::new(PartContent::Data(Json::from_text(told).unwrap()))])
    };
    let metadata = Some(Json::from_text(exact).unwrap());
    let task = story.send("the task", SendMessage { metadata, ..request(sent) }).await;
    let whole = Json::of(&task);
    assert_eq!(whole.get().matches(exact).count(), 9, "in history, in the artifact and in the answer: {}", whole.get());
}

async fn files(story: &mut ScenarioRun) {
    let raw = Part {
        filename: Some("a.bin".to_owned()),
        media_type: Some("application/x-thing".to_owned()),
        ..Part::new(PartContent::Raw("AAEC/w==".to_owned()))
    };
    let url = Part {
        filename: Some("b.html".to_owned()),
        media_type: Some("text/html".to_owned()),
        ..Part::new(PartContent::Url("https://example.org/b".to_owned()))
    };
    let told = steps("m1", json!([{"repeat": true}]));
    let parts = [vec![raw, url], told.parts.clone()].concat();
    story.send("the task", request(Message { parts, ..told })).await;
}

async fn thoughts(story: &mut ScenarioRun) {
    let told = json!([{"hold": true}, {"thought": "hm"}, {"log": "a line"}, {"progress": "half"},
        {"tool_call": {"name": "ls", "n": 1}}, {"output": {"text": "done"}}]);
    story.stream("updates", steps("m1", told)).await;
}

async fn input(story: &mut ScenarioRun) {
    let task = story.send("asks", request(steps("m1", json!([{"ask": "Which one?"}, {"ask": "Really?"}])))).await;
    assert_eq!(task.status.state, TaskState::TaskStateInputRequired);
    let task = story.send("asks again", request(to(&task.id, text("m2", "the left one")))).await;
    assert_eq!(task.status.state, TaskState::TaskStateInputRequired);
    let answer = Message { context_id: Some(task.context_id.clone()), ..to(&task.id, text("m3", "yes")) };
    let task = story.send("the answer", request(answer)).await;
    assert_eq!(task.status.state, TaskState::TaskStateCompleted);
}

async fn input_stream(story: &mut ScenarioRun) {
    let updates =
        story.stream("asks", steps("m1", json!([{"hold": true}, {"ask": "Which one?"}, {"hold": true}]))).await;
    let id = task_id(&updates);
    let answered = TestOperation::Stream(request(to(&id, text("m2", "the left one"))));
    let mut incoming = story.client.open(answered).await.unwrap();
    let first = incoming.next().await.unwrap();
    story.note("goes on", first.get());
    story.scene.open_gate();
    let rest: Vec<Json> = incoming.rest().await;
    let rest: Vec<&str> = rest.iter().map(Json::get).collect();
    story.note("ends", &rest.join("\n"));
}

fn task_id(updates: &[Json]) -> String {
    let last = updates.last().unwrap().get();
    last.split(r#""taskId":""#).nth(1).unwrap().split('"').next().unwrap().to_owned()
}

async fn permission(story: &mut ScenarioRun, approved: bool) {
    let task = story.send("waits for a person", request(steps("m1", json!([{"permit": ["shell"]}])))).await;
    assert_eq!(task.status.state, TaskState::TaskStateAuthRequired);
    story.scene.decide(approved).await;
    let task = story.client.until(&task.id, TaskState::TaskStateCompleted).await;
    story.note("decided", Json::of(&task).get());
}

/// 0.3 ends its stream where a permission is waited for, 1.0 does not; both show the same up to there.
async fn permission_stream(story: &mut ScenarioRun) {
    let told = json!([{"hold": true}, {"permit": ["shell"]}]);
    let mut incoming = story.client.open(TestOperation::Stream(request(steps("m1", told)))).await.unwrap();
    story.scene.open_gate();
    let mut seen = incoming.up_to("TASK_STATE_AUTH_REQUIRED").await;
    let asked = seen.pop().unwrap();
    story.note("waits for a person", asked.get());
    let task = task_id(&[asked]);
    if story.client.version == TestVersion::V03 {
        assert!(incoming.next().await.is_none(), "the event was the last");
    }
    story.scene.decide(true).await;
    if story.client.version == TestVersion::V10 {
        let rest = incoming.rest().await;
        assert!(rest.last().unwrap().get().contains("TASK_STATE_COMPLETED"), "{rest:?}");
    }
    let task = story.client.until(&task, TaskState::TaskStateCompleted).await;
    story.note("decided", Json::of(&task).get());
}

async fn rejected(story: &mut ScenarioRun) {
    let task = story.send("the task", request(steps("m1", json!([{"reject": "not today"}])))).await;
    assert_eq!(task.status.state, TaskState::TaskStateRejected);
}

async fn failed(story: &mut ScenarioRun) {
    let task = story.send("the task", request(steps("m1", json!([{"chunk": "so "}, {"fail": "it broke"}])))).await;
    assert_eq!(task.status.state, TaskState::TaskStateFailed);
}

async fn cancelled(story: &mut ScenarioRun) {
    let task = story.client.send(immediate(steps("m1", json!([{"hold": true}])))).await;
    story.client.until(&task.id, TaskState::TaskStateWorking).await;
    story.ask("cancelled", TestOperation::cancel(&task.id)).await;
    story.ask("cancelled again", TestOperation::cancel(&task.id)).await;
}

async fn lists(story: &mut ScenarioRun) {
    let mut contexts = Vec::new();
    for (id, told) in [("m1", json!([])), ("m2", json!([{"fail": "no"}])), ("m3", json!([]))] {
        contexts.push(story.client.send(request(steps(id, told))).await.context_id);
    }
    story.note("sent", "three");
    let list = |request: ListTasks| TestOperation::List(ListTasks { history_length: Some(0), ..request });
    story.ask("all tasks", list(ListTasks::default())).await;
    let page = ListTasks { page_size: Some(2), include_artifacts: Some(true), ..ListTasks::default() };
    if let Some(found) = story.ask_page("first page", list(page.clone())).await {
        assert_eq!((found.tasks.len(), found.total_size), (2, 3));
        let next = ListTasks { page_token: Some(found.next_page_token), ..page };
        story.ask_page("second page", list(next)).await;
    }
    let failed = ListTasks { status: Some(TaskState::TaskStateFailed), ..ListTasks::default() };
    story.ask("those that failed", list(failed)).await;
    let context = ListTasks { context_id: contexts.first().cloned(), ..ListTasks::default() };
    story.ask("those of the context", list(context)).await;
}

impl ScenarioRun {
    /// A page, without its token, which is not the same twice.
    async fn ask_page(&mut self, label: &str, ask: TestOperation) -> Option<TaskList> {
        if !self.client.can(&ask) {
            return None;
        }
        let found: TaskList = self.client.once(ask).await.unwrap().parse().unwrap();
        let shown = TaskList { next_page_token: "TOKEN".to_owned(), ..found.clone() };
        self.note(label, Json::of(&shown).get());
        Some(found)
    }
}

async fn pushes(story: &mut ScenarioRun) {
    let task = story.client.send(immediate(steps("m1", json!([{"hold": true}])))).await;
    story.client.until(&task.id, TaskState::TaskStateWorking).await;
    let config = PushConfig {
        id: Some("mine".to_owned()),
        // Nobody listens there, and nothing is sent: the task does not change any more.
        url: "http://127.0.0.1:9/told".to_owned(),
        token: Some("word".to_owned()),
        authentication: Some(PushAuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some("xyz".to_owned()),
        }),
        ..PushConfig::default()
    };
    story.ask("made", TestOperation::create_push(&task.id, config.clone())).await;
    let unnamed = PushConfig { id: None, token: None, authentication: None, ..config };
    story.ask("made without a name", TestOperation::create_push(&task.id, unnamed.clone())).await;
    story.ask("read", TestOperation::get_push(&task.id, "mine")).await;
    story.ask("listed", TestOperation::list_pushes(&task.id)).await;
    story.ask("deleted", TestOperation::delete_push(&task.id, "mine")).await;
    story.ask("deleted again", TestOperation::delete_push(&task.id, "mine")).await;
    story.ask("read again", TestOperation::get_push(&task.id, "mine")).await;
    story.ask("what is left", TestOperation::list_pushes(&task.id)).await;
    let private = PushConfig { url: "http://127.0.0.2/told".to_owned(), ..unnamed };
    story.ask("a private address", TestOperation::create_push(&task.id, private)).await;
}

async fn unknown(story: &mut ScenarioRun) {
    for (kind, id) in [("no id", "mine"), ("nobody's", "run_0193f6a1b2c37d4e8f90a1b2c3d4e5f6")] {
        story.ask(&format!("get {kind}"), TestOperation::get(id)).await;
        story.ask(&format!("cancel {kind}"), TestOperation::cancel(id)).await;
        story.ask(&format!("send {kind}"), TestOperation::Send(request(to(id, text("m1", "hello"))))).await;
        for (name, ask) in [
            ("stream", TestOperation::Stream(request(to(id, text("m1", "hello"))))),
            ("subscribe", TestOperation::subscribe(id)),
        ] {
            let refusal = story.client.refused(ask).await;
            story.note(&format!("{name} {kind}"), &refusal.says());
        }
        let config = PushConfig { url: "http://127.0.0.1:9/".to_owned(), ..PushConfig::default() };
        story.ask(&format!("create push {kind}"), TestOperation::create_push(id, config)).await;
        story.ask(&format!("get push {kind}"), TestOperation::get_push(id, "c")).await;
        story.ask(&format!("list pushes {kind}"), TestOperation::list_pushes(id)).await;
        story.ask(&format!("delete push {kind}"), TestOperation::delete_push(id, "c")).await;
    }
}

async fn wrong(story: &mut ScenarioRun) {
    story.ask("no message id", TestOperation::Send(request(text("", "hello")))).await;
    story.ask("no parts", TestOperation::Send(request(message("m1", Vec::new())))).await;
    let agent = Message { role: A2aRole::Agent, ..text("m1", "hello") };
    story.ask("an agent's role", TestOperation::Send(request(agent))).await;
    let everything = Message { role: A2aRole::Agent, ..message("", Vec::new()) };
    story.ask("everything", TestOperation::Send(request(everything))).await;
    let configuration = SendConfiguration { history_length: Some(-1), ..SendConfiguration::default() };
    let negative = SendMessage { configuration: Some(configuration), ..request(text("m1", "hello")) };
    story.ask("a negative history", TestOperation::Send(negative)).await;
    let empty = PushConfig { url: String::new(), ..PushConfig::default() };
    story.ask("an empty url", TestOperation::create_push("run_0193f6a1b2c37d4e8f90a1b2c3d4e5f6", empty)).await;
}

async fn terminal(story: &mut ScenarioRun) {
    let task = story.client.send(request(text("m1", "hello"))).await;
    story.ask("a message", TestOperation::Send(request(to(&task.id, text("m2", "more"))))).await;
    story.ask("a cancellation", TestOperation::cancel(&task.id)).await;
    let refusal = story.client.refused(TestOperation::subscribe(&task.id)).await;
    story.note("a subscription", &refusal.says());
}

async fn resent(story: &mut ScenarioRun) {
    let first = story.send("sent", request(text("m1", "hello"))).await;
    let again = story.send("sent again", request(text("m1", "hello"))).await;
    assert_eq!(first.id, again.id);
    let other = story.send("another", request(text("m2", "hello"))).await;
    assert_ne!(first.id, other.id);
}

async fn context(story: &mut ScenarioRun) {
    let first = story.send("a context of the hub", request(text("m1", "one"))).await;
    let on = Message { context_id: Some(first.context_id.clone()), ..text("m2", "two") };
    let second = story.send("goes on", request(on)).await;
    assert_eq!(first.context_id, second.context_id);
    let own = |id: &str| Message { context_id: Some("my own".to_owned()), ..text(id, "three") };
    let third = story.send("a context of the caller", request(own("m3"))).await;
    let fourth = story.send("goes on too", request(own("m4"))).await;
    assert_eq!((third.context_id, fourth.context_id), ("my own".to_owned(), "my own".to_owned()));
    let held = story.client.send(request(steps("m5", json!([{"ask": "?"}])))).await;
    let elsewhere = Message { context_id: Some("my own".to_owned()), ..to(&held.id, text("m6", "x")) };
    story.ask("another context than the task's", TestOperation::Send(request(elsewhere))).await;
}

async fn reply(story: &mut ScenarioRun) {
    let told = json!([{"output": {"text": "hello", "reply": "message"}}]);
    let answer = story.ask("the message", TestOperation::Send(request(steps("m1", told)))).await.unwrap();
    assert!(answer.get().starts_with(r#"{"message":{"#), "{}", answer.get());
}

async fn history(story: &mut ScenarioRun) {
    let task = story.client.send(request(steps("m1", json!([{"ask": "Which one?"}])))).await;
    story.client.send(request(to(&task.id, text("m2", "the left one")))).await;
    for length in [None, Some(0), Some(1), Some(2), Some(10)] {
        let ask = TestOperation::Get(GetTask {
            history_length: length,
            ..GetTask { id: task.id.clone(), ..GetTask::default() }
        });
        let label = length.map_or("everything".to_owned(), |length| format!("the last {length}"));
        story.ask(&label, ask).await;
    }
}

async fn subscribed(story: &mut ScenarioRun) {
    let task =
        story.client.send(immediate(steps("m1", json!([{"chunk": "one "}, {"hold": true}, {"chunk": "two"}])))).await;
    story.scene.until_said(&task.id, "one ").await;
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(story.client.open(TestOperation::subscribe(&task.id)).await.unwrap());
    }
    let mut seen = Vec::new();
    for incoming in &mut all {
        seen.push(vec![incoming.next().await.unwrap()]);
    }
    // One that leaves changes nothing for the others.
    drop(all.pop());
    story.scene.open_gate();
    for (incoming, seen) in all.into_iter().zip(&mut seen) {
        seen.extend(incoming.rest().await);
    }
    assert_eq!(seen[0], seen[1], "everybody sees the same");
    let text: Vec<&str> = seen[0].iter().map(Json::get).collect();
    story.note("updates", &text.join("\n"));
}

async fn card(story: &mut ScenarioRun) {
    story.ask("the card", TestOperation::Card).await;
}
