//! Several runs at a time, with an adapter that supports them.

use std::num::NonZeroUsize;

use attache_protocol::{Json, rules::run::RunStatus, wire::runtime::DeclaredExtension};
use attache_runtime::{RuntimeNotice, RuntimeService, Shutdown, ShutdownOutcome, ledger::LedgerStep};
use serde_json::{Value, json};

use crate::{
    adapter::AdapterReply,
    live_hub::{LiveHub, eventually},
    world::{RunningRuntime, RuntimeWorld, claim, run},
};

const THREE: NonZeroUsize = NonZeroUsize::new(3).unwrap();

fn answer(text: &str) -> Value {
    json!({"success": true, "output": {"text": text, "artifact_refs": []}})
}

#[tokio::test]
async fn the_configured_number_of_runs_is_pulled_and_named_in_heartbeats() {
    let world = RuntimeWorld::new().await;
    for number in 1..=4 {
        world.adapter.play(AdapterReply::Hang(vec![]));
        world.hub.offer(claim(number, "long"));
    }
    let extension =
        DeclaredExtension { uri: "https://example.org/x/v1".to_owned(), params: Some(Json::of(&json!({"n": 1}))) };
    let running = world.start_with(|options| {
        options.concurrency = THREE;
        options.extensions = vec![extension];
    });
    world.adapter.started(3).await;
    let names = |beat: &Value| {
        let mut names: Vec<String> =
            beat["running"].as_array().unwrap().iter().map(|run| run.as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let three: Vec<String> = (1..=3).map(|number| run(number).to_string()).collect();
    let beat = eventually("a heartbeat that names all three", async || {
        let beats = world.hub.calls("heartbeat");
        beats.into_iter().map(|beat| beat.body).find(|beat| names(beat) == three)
    })
    .await;
    assert_eq!(beat["extensions"], json!([{"uri": "https://example.org/x/v1", "params": {"n": 1}}]));
    assert_eq!(world.adapter.tasks().len(), 3, "the fourth waits for a slot");

    world.adapter.finish(answer("one of them"));
    world.adapter.started(4).await;
    world.hub.heard("complete", 1).await;
    // A graceful stop waits for all of them.
    running.shutdown.finish();
    for count in 2..=4 {
        world.adapter.finish(answer("another"));
        world.hub.heard("complete", count).await;
    }
    assert_eq!(running.ended().await.unwrap(), ShutdownOutcome::Finished);
    let reported = world.steps().iter().filter(|(step, _)| *step == LedgerStep::TaskReported).count();
    assert_eq!(reported, 4);
}

#[tokio::test]
async fn a_waiting_run_blocks_no_other_over_the_channel() {
    let live = LiveHub::start().await;
    let shutdown = Shutdown::default();
    let mut options = live.world.options();
    options.concurrency = THREE;
    let running =
        RunningRuntime::new(tokio::spawn(RuntimeService::new(options).unwrap().run(shutdown.clone())), shutdown);
    live.noticed(|notice| matches!(notice, RuntimeNotice::ChannelOpen { .. })).await;

    live.world.adapter.play(AdapterReply::Hang(vec![("input_required", json!({"prompt": "which?"}))]));
    let waiting = live.create("wait").await;
    live.world.adapter.started(1).await;
    let artifact = json!({"artifact_id": "a", "name": "n", "parts": [{"data": {"n": 42.0}}], "last_chunk": true});
    for _ in 0..5 {
        live.world
            .adapter
            .play(AdapterReply::Stream(vec![("artifact", artifact.clone()), ("result", answer("quick"))]));
        let quick = live.create("quick").await;
        live.run_with(quick, RunStatus::Completed).await;
        assert_eq!(
            live.events(quick, &["artifact.changed"]).await,
            [("artifact.changed".to_owned(), artifact.clone())]
        );
    }
    live.world.adapter.finish(answer("at last"));
    live.run_with(waiting, RunStatus::Completed).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_a2a_caller_receives_the_output_byte_for_byte() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    let output = r#"{"text":"","message":{"parts":[ {"text":"m"}]},"artifacts":[{"parts":[{"data":{"n":9007199254740993,"f":42.0}}]}],"reply":"message"}"#;
    live.world.adapter.play(AdapterReply::Raw(format!(r#"{{"success":true,"output":{output}}}"#)));
    let done = live.create("exactly").await;
    let ended = live.run_with(done, RunStatus::Completed).await;
    assert_eq!(ended.task_result.unwrap().get(), output);

    live.world
        .adapter
        .play(AdapterReply::Json(json!({"success": false, "error": {"code": "rejected", "message": "not me"}})));
    let rejected = live.create("no").await;
    let ended = live.run_with(rejected, RunStatus::Failed).await;
    assert_eq!(ended.task_result.unwrap().get(), r#"{"error":"not me","code":"rejected"}"#);
    running.stop().await.unwrap();
}
