//! What is somebody's own JSON comes out as it went in, to the byte, whichever way it took.

use attache_a2a_wire::{ListTasks, Message, Part, PartContent, PushConfig, SendConfiguration, SendMessage};
use attache_client::egress::{EgressGuard, EgressPolicy};
use attache_hub::Options;
use attache_protocol::Json;

use crate::{
    obedient::{message, request},
    push::PushReceiver,
    scene::{A2aFixture, world},
    speak::{TestBinding, TestOperation, TestVersion, every_way},
};

/// Everything that a careless relay changes. Objects only: 0.3 has no other data.
const EXACT: &[&str] = &[
    r#"{"n":9007199254740993}"#,
    r#"{"n":-9223372036854775809}"#,
    r#"{"n":123456789012345678901234567890}"#,
    r#"{"m":-1E-400,"n":1e400}"#,
    r#"{"same":1,"same":2}"#,
    r#"{"status":{"timestamp":"yesterday"},"timestamp":"2026-01-01T00:00:00+00:00"}"#,
    r#"{"data":{},"final":true,"jsonrpc":"1.0","kind":"task","parts":[],"text":"x"}"#,
    r#"{"empty":{},"list":[],"no":false,"none":null,"word":"","zero":0}"#,
    r#"{"a":42,"é":"😀"}"#,
];

/// How an object is written, which gRPC does not carry: order, spaces, escapes, and other ways to write a number.
const WRITTEN: &[&str] = &[
    r#"{"a":42,"b":42.0,"c":4.2e1,"d":42.00}"#,
    r#"{"z":1,"a":2,"m":{"z":1,"a":2}}"#,
    r#"{"timestamp":"2026-01-01T00:00:00+00:00","status":{"timestamp":"yesterday"}}"#,
    r#"{"kind":"task","final":true,"text":"x","data":{},"parts":[],"jsonrpc":"1.0"}"#,
    r#"{"empty":{},"list":[],"none":null,"no":false,"zero":0,"word":""}"#,
    r#"{"é":"\u00e9","quote":"\"","slash":"\/","line":"\n","emoji":"😀"}"#,
    r#"{ "spaced" : [ 1 , 2 ] }"#,
];

/// What this binding must carry.
fn exact(binding: TestBinding) -> impl Iterator<Item = &'static str> {
    let all = [EXACT, WRITTEN].into_iter().flatten().copied();
    all.filter(move |text| binding != TestBinding::Grpc || EXACT.contains(text))
}

fn tune(options: &mut Options) {
    options.egress = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
}

fn json(text: &str) -> Json {
    Json::from_text(text).unwrap()
}

/// A message that carries it as data, as the part's metadata and as its own, and asks for an artifact of the same kind.
fn carrying(id: &str, exact: &str) -> Message {
    let told = format!(
        r#"{{"steps":[{{"hold":true}},{{"artifact":{{"artifact_id":"a1","parts":[{{"data":{exact},"metadata":{exact}}}]}}}}]}}"#
    );
    let own = Part { metadata: Some(json(exact)), ..Part::new(PartContent::Data(json(exact))) };
    let parts = vec![own, Part::new(PartContent::Data(json(&told)))];
    Message { metadata: Some(json(exact)), ..message(id, parts) }
}

#[tokio::test]
async fn json_passes_untouched_over_every_binding() {
    for world in [world(), world().on_sqlite()] {
        let scene = A2aFixture::start(world.tuned(tune)).await;
        for (binding, version) in every_way() {
            let client = scene.client(binding, version);
            for (at, exact) in exact(binding).enumerate() {
                let sent = carrying(&format!("{binding:?}{version:?}{at}"), exact);
                scene.open_gate();
                let task = client.send(request(sent.clone())).await;
                let who = format!("{binding:?} {version:?} {exact}");
                let artifact = &task.artifacts.as_ref().unwrap()[0].parts[0];
                assert_eq!(artifact.content, PartContent::Data(json(exact)), "{who}");
                assert_eq!(artifact.metadata.as_ref().map(Json::get), Some(exact), "{who}");
                let first = &task.history.as_ref().unwrap()[0];
                assert_eq!((&first.parts, &first.metadata), (&sent.parts, &sent.metadata), "{who}");
                assert_eq!(client.get(&task.id).await, task, "{who}");
            }
        }
        scene.world.stop().await;
    }
}

#[tokio::test]
async fn json_passes_untouched_through_lists_streams_and_notifications() {
    let scene = A2aFixture::start(world().on_sqlite().tuned(tune)).await;
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        let receiver = PushReceiver::start().await;
        for (at, exact) in exact(binding).enumerate() {
            let who = format!("{binding:?} {version:?} {exact}");
            let push = PushConfig { url: receiver.url(), ..PushConfig::default() };
            let configuration =
                SendConfiguration { task_push_notification_config: Some(push), ..SendConfiguration::default() };
            let sent = carrying(&format!("{binding:?}{version:?}{at}"), exact);
            let context = format!("context {binding:?} {version:?} {at}");
            let sent = Message { context_id: Some(context.clone()), ..sent };
            let sent = SendMessage { configuration: Some(configuration), ..request(sent) };
            let mut incoming = client.open(TestOperation::Stream(sent)).await.unwrap();
            incoming.next().await.unwrap();
            scene.open_gate();
            let seen = incoming.rest().await;
            let updates: Vec<&str> = seen.iter().map(Json::get).filter(|it| it.contains("artifactUpdate")).collect();
            assert_eq!(updates.len(), 1, "{who}: {seen:?}");
            assert_eq!(updates[0].matches(exact).count(), 2, "{who}: {}", updates[0]);
            let told = receiver.until_all("COMPLETED", "completed").await;
            match version {
                // The artifact by itself, just before the end.
                TestVersion::V10 => {
                    let artifact = told.iter().find(|it| it.body.contains("artifactUpdate"));
                    let artifact = artifact.unwrap_or_else(|| panic!("{who}: {told:?}"));
                    assert_eq!(artifact.body.matches(exact).count(), 2, "{who}: {}", artifact.body);
                }
                // Twice in the message's part, once as its metadata, three times in what it tells; twice in the
                // artifact.
                TestVersion::V03 => {
                    let task = &told.last().unwrap().body;
                    assert!(task.matches(exact).count() >= 5, "{who}: {task}");
                }
            }
            if version == TestVersion::V10 {
                let all =
                    ListTasks { context_id: Some(context), include_artifacts: Some(true), ..ListTasks::default() };
                let found = client.once(TestOperation::List(all)).await.unwrap();
                assert!(found.get().matches(exact).count() >= 5, "{who}: {}", found.get());
            }
        }
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn data_that_is_no_object_passes_in_1_0() {
    let scene = A2aFixture::start(world()).await;
    for (binding, version) in every_way().filter(|(_, version)| *version == TestVersion::V10) {
        let client = scene.client(binding, version);
        for (at, exact) in ["null", "9007199254740993", "1e400", r#""text""#, "[1,[2.5]]", "true"].iter().enumerate() {
            let part = Part::new(PartContent::Data(json(exact)));
            let task = client.send(request(message(&format!("{binding:?}{at}"), vec![part.clone()]))).await;
            assert_eq!(task.history.unwrap()[0].parts, [part], "{binding:?} {exact}");
        }
    }
    scene.world.stop().await;
}
