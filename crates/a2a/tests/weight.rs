//! However much an agent says, and however many tasks there are: an answer stays small, and so does what it costs.

use attache_a2a_wire::{ListTasks, Part, PushConfig, TaskList, TaskState};
use attache_protocol::{EventKind, Json};
use serde_json::json;

use crate::{
    obedient::{immediate, message, request, steps},
    scene::{A2aFixture, world},
    speak::{PATIENCE, TestBinding, TestOperation, TestVersion, every_way},
};

/// What no answer may weigh.
const MAX_ANSWER: usize = 5_000_000;

#[tokio::test]
async fn a_task_that_said_nine_megabytes_is_an_answer_below_five() {
    let scene = A2aFixture::start(world().on_sqlite()).await;
    let story = json!([{"artifact": {"artifact_id": "kept", "parts": [{"text": "first of all"}]}}, {"flood": 150},
        {"hold": null}, {"fail": "enough"}]);
    let task = scene.owner().send(immediate(steps("flood", story))).await.id;
    scene.until_said(&task, "149 ").await;
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        let mut stream = client.open(TestOperation::subscribe(&task)).await.unwrap();
        let first = stream.next().await.unwrap();
        assert!(first.get().len() < MAX_ANSWER, "{binding:?} {version:?}: {} bytes", first.get().len());
    }
    scene.open_gate();
    scene.owner().until(&task, TaskState::TaskStateFailed).await;
    for (binding, version) in every_way() {
        let answer = scene.client(binding, version).once(TestOperation::get(&task)).await.unwrap();
        assert!(answer.get().len() < MAX_ANSWER, "{binding:?} {version:?}: {} bytes", answer.get().len());
        assert!(answer.get().contains("first of all"), "an artifact is not lost in what was said since");
        assert!(answer.get().contains("149 "), "the newest is kept");
        assert!(answer.get().contains(r#""truncated":true"#), "and that something is missing is said");
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn lists_come_in_pages_that_one_answer_can_carry() {
    let scene = A2aFixture::start(world().on_sqlite()).await;
    let client = scene.owner();
    let mut sent = Vec::new();
    for number in 0..8 {
        let data = Part::data(Json::of(&"x".repeat(900_000)));
        sent.push(client.send(request(message(&format!("m{number}"), vec![data]))).await.id);
    }
    for include_artifacts in [None, Some(true)] {
        let (mut seen, mut token) = (Vec::new(), None);
        loop {
            let ask = ListTasks { page_token: token, include_artifacts, ..ListTasks::default() };
            let answer = client.once(TestOperation::List(ask)).await.unwrap();
            assert!(answer.get().len() < MAX_ANSWER, "{} bytes", answer.get().len());
            let page: TaskList = answer.parse().unwrap();
            assert_eq!(page.total_size, 8);
            seen.extend(page.tasks.into_iter().map(|task| task.id));
            token = Some(page.next_page_token).filter(|token| !token.is_empty());
            if token.is_none() {
                break;
            }
        }
        seen.reverse();
        assert_eq!(seen, sent);
    }
    // The hub's own list shows long tasks by their beginning, so all of them are on one page.
    let url = format!("{}/api/v1/task-runs?limit=200", scene.world.url);
    let answer = crate::speak::http().get(url).bearer_auth(scene.world.owner_key.expose()).send().await.unwrap();
    let page = answer.text().await.unwrap();
    assert!(page.len() < MAX_ANSWER / 10, "{} bytes", page.len());
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    assert_eq!(page["task_runs"].as_array().map(Vec::len), Some(8));
    assert!(page["next_cursor"].is_null(), "nothing is left for another page");
    scene.world.stop().await;
}

/// A list says what a task does, and its result; a task that is read says everything.
#[tokio::test]
async fn a_list_shows_each_task_from_its_record() {
    let scene = A2aFixture::start(world()).await;
    let client = scene.owner();
    let waits = client.send(request(steps("waits", json!([{"chunk": "so far"}, {"ask": "which?"}])))).await;
    let done = client.send(request(steps("done", json!([{"chunk": "an"}, {"output": {"text": "answer"}}])))).await;
    let ask = ListTasks { include_artifacts: Some(true), ..ListTasks::default() };
    let page: TaskList = client.once(TestOperation::List(ask)).await.unwrap().parse().unwrap();
    let [listed_done, listed_waits] = page.tasks.as_slice() else { panic!("{page:?}") };
    assert_eq!((&listed_done.id, &listed_done.artifacts), (&done.id, &done.artifacts));
    assert_eq!(listed_done.status, done.status);
    assert_eq!((&listed_waits.id, listed_waits.status.state), (&waits.id, TaskState::TaskStateInputRequired));
    assert_eq!(listed_waits.status.timestamp, waits.status.timestamp);
    assert_eq!(listed_waits.history, waits.history);
    scene.world.stop().await;
}

#[tokio::test]
async fn the_log_of_a_run_ends_at_64_mebibytes_and_the_run_does_not() {
    for world in [world(), world().on_sqlite()] {
        let scene = A2aFixture::start(world).await;
        let story = steps("much", json!([{"flood": 1_200}]));
        let task = scene.owner().send(immediate(story)).await.id;
        let run = task.parse().unwrap();
        let ended = scene.world.hub.await_run(&scene.world.owner, run, Some(4 * PATIENCE)).await.unwrap();
        let result = ended.task_result.unwrap();
        assert!(result.get().contains("This run's log is full: its events take 64 MiB."), "{}", result.get());
        let newest = scene.world.hub.run_events(&scene.world.owner, run, Some(ended.last_seq - 2), None).await.unwrap();
        let kinds: Vec<&str> = newest.events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, [EventKind::TaskLog.as_str(), "task.completed"]);
        assert!(newest.events[0].data.get().contains("is full at 64 MiB"), "{}", newest.events[0].data.get());
        let answer = scene.owner().once(TestOperation::get(&task)).await.unwrap();
        assert!(answer.get().len() < MAX_ANSWER);
        scene.world.stop().await;
    }
}

#[tokio::test]
async fn a_caller_has_so_many_streams_and_no_more() {
    let scene = A2aFixture::start(world().tuned(|options| options.max_streams = 3)).await;
    let task = scene.owner().send(immediate(steps("s", json!([{"hold": null}])))).await.id;
    let mut open = Vec::new();
    for binding in [TestBinding::Rpc, TestBinding::Rest, TestBinding::Grpc] {
        let mut stream = scene.client(binding, TestVersion::V10).open(TestOperation::subscribe(&task)).await.unwrap();
        stream.next().await.unwrap();
        open.push(stream);
    }
    for (binding, version) in every_way() {
        let refusal = scene.client(binding, version).refused(TestOperation::subscribe(&task)).await;
        assert_eq!(refusal.reason, "TOO_MANY_REQUESTS", "{binding:?} {version:?}");
    }
    let url = format!("{}/api/v1/task-runs/{task}/events", scene.world.url);
    let events = || {
        let request = crate::speak::http().get(&url).bearer_auth(scene.world.owner_key.expose());
        request.header("accept", "text/event-stream").send()
    };
    assert_eq!(events().await.unwrap().status(), 429);
    open.pop();
    let freed = async {
        while events().await.unwrap().status() != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("a stream that is closed makes room");
    scene.world.stop().await;
}

/// All callers without a credential are one: they would read each other's webhooks, and nobody answers for them.
#[tokio::test]
async fn strangers_set_no_webhooks_and_read_none() {
    let scene = A2aFixture::start(world()).await;
    scene.switch(json!({"anonymous": true})).await;
    let config =
        PushConfig { id: Some("c".to_owned()), url: "https://example.org/x".to_owned(), ..PushConfig::default() };
    for (binding, version) in every_way() {
        let stranger = scene.stranger(binding, version);
        let task = stranger.send(immediate(steps("hold", json!([{"ask": "?"}])))).await.id;
        for ask in [
            TestOperation::create_push(&task, config.clone()),
            TestOperation::get_push(&task, "c"),
            TestOperation::list_pushes(&task),
            TestOperation::delete_push(&task, "c"),
        ] {
            assert_eq!(stranger.refused(ask).await.reason, "UNAUTHENTICATED", "{binding:?} {version:?}");
        }
        let mut with_config = immediate(steps("inline", json!([])));
        with_config.configuration.as_mut().unwrap().task_push_notification_config = Some(config.clone());
        assert_eq!(
            stranger.refused(TestOperation::Send(with_config)).await.reason,
            "UNAUTHENTICATED",
            "{binding:?} {version:?}"
        );
        // And the card behind a credential stays there, however open the agent is.
        scene.switch(json!({"anonymous": true, "extended_card": true})).await;
        let refusal = stranger.refused(TestOperation::Card).await;
        assert_eq!(refusal.reason, "UNAUTHENTICATED", "{binding:?} {version:?}: {refusal:?}");
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn who_is_refused_before_it_was_read_is_told_that_the_connection_ends() {
    let scene = A2aFixture::start(world().tuned(|options| options.anonymous_per_minute = 1)).await;
    let url = format!("{}/a2a/obedient/", scene.world.url);
    let post = || crate::speak::http().post(&url).header("content-type", "application/json").body("{}").send();
    assert_eq!(post().await.unwrap().headers().get("connection"), None);
    let refused = post().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["connection"].to_str().unwrap()), (429, "close"));
    scene.world.stop().await;
}
