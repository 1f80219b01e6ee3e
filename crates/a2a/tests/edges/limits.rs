//! How deep and how large things may be, and that one of them never hides the others.

use attache_a2a_wire::{ListTasks, Message, Part, PartContent, TaskList};
use attache_protocol::Json;
use serde_json::json;

use crate::{
    obedient::{immediate, message, request, steps},
    scene::{A2aFixture, world},
    speak::{TestBinding, TestOperation, TestVersion, every_way},
};

fn deep(levels: usize) -> Json {
    Json::from_text(format!("{}1{}", r#"{"a":["#.repeat(levels / 2), "]}".repeat(levels / 2))).unwrap()
}

#[tokio::test]
async fn what_nests_too_deep_for_grpc_is_carried_all_the_same() {
    let scene = A2aFixture::start(world()).await;
    for levels in [36, 46, 52] {
        let id = format!("deep {levels}");
        let own = Part { metadata: Some(deep(levels)), ..Part::new(PartContent::Data(deep(levels))) };
        let told = steps(&id, json!([{"artifact": {"artifact_id": "a", "parts": [{"raw": "no base64!"}]}}]));
        let parts = told.parts.into_iter().chain([own]).collect();
        let sent = Message { metadata: Some(deep(levels)), ..message(&id, parts) };
        let task = scene.owner().send(request(sent.clone())).await;
        assert_eq!(task.history.as_ref().unwrap()[0].parts, sent.parts);
        for (binding, version) in every_way() {
            let client = scene.client(binding, version);
            let found = client.get(&task.id).await;
            let first = &found.history.as_ref().unwrap()[0];
            assert_eq!((&first.parts, &first.metadata), (&sent.parts, &sent.metadata), "{binding:?} {version:?}");
            let raw = &found.artifacts.unwrap()[0].parts[0].content;
            assert_eq!(
                matches!(raw, PartContent::Text(_)),
                binding == TestBinding::Grpc,
                "{binding:?} {version:?}: {raw:?}"
            );
            if version == TestVersion::V10 {
                let all: TaskList =
                    client.once(TestOperation::List(ListTasks::default())).await.unwrap().parse().unwrap();
                assert!(all.tasks.iter().any(|listed| listed.id == task.id), "{binding:?}");
            }
        }
        // The same from a caller over gRPC, which our own client says beside it.
        let client = scene.client(TestBinding::Grpc, TestVersion::V10);
        let sent = Message { message_id: format!("{id} over gRPC"), ..sent };
        let task = client.send(request(sent.clone())).await;
        assert_eq!(scene.owner().get(&task.id).await.history.unwrap()[0].parts, sent.parts);
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn a_message_that_is_too_large_names_its_parts() {
    let scene = A2aFixture::start(world()).await;
    let asks = scene.owner().send(request(steps("ask", json!([{"ask": "?"}])))).await.id;
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        let who = format!("{binding:?} {version:?}");
        let large = message(&who, vec![Part::text("x".repeat(600_000))]);
        let to_task = Message { task_id: Some(asks.clone()), ..large.clone() };
        for (ask, most) in [(large.clone(), "1 MiB, and its text counts twice"), (to_task, "512 KiB")] {
            let refusal = client.refused(TestOperation::Send(request(ask))).await;
            let problem = format!("must fit into {most}; send larger content as a `url`");
            assert_eq!(refusal.violations, [("message.parts".to_owned(), problem)], "{who}");
            assert_eq!(refusal.reason, "INVALID_PARAMS", "{who}");
        }
        // What is said is true.
        let fits = message(&format!("{who} fits"), vec![Part::text("x".repeat(500_000))]);
        client.send(immediate(fits)).await;
        let data = Json::of(&"x".repeat(1_000_000));
        client.send(immediate(message(&format!("{who} data"), vec![Part::data(data)]))).await;
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn bytes_that_are_not_base64_are_refused_by_their_name() {
    let scene = A2aFixture::start(world()).await;
    // gRPC has bytes there, and HTTP+JSON of 0.3 takes any text for them.
    let texts = [
        (TestBinding::Rpc, TestVersion::V10),
        (TestBinding::Rest, TestVersion::V10),
        (TestBinding::Rpc, TestVersion::V03),
    ];
    for (binding, version) in texts {
        let client = scene.client(binding, version);
        let raw = |text: &str| Part::new(PartContent::Raw(text.to_owned()));
        let sent = message("m", vec![raw("aGk="), raw("-_8"), raw("no base64!")]);
        let refusal = client.refused(TestOperation::Send(request(sent))).await;
        let wanted = [("message.parts[2].raw".to_owned(), "isn't base64".to_owned())];
        assert_eq!(refusal.violations, wanted, "{binding:?} {version:?}");
    }
    scene.world.stop().await;
}
