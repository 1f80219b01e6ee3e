//! Runs over the channel of a real hub: how they arrive, how they are reported, and the effect of a cut connection.

use std::time::{Duration, Instant};

use attache_client::ChannelFilter;
use attache_protocol::{
    rules::run::RunStatus,
    wire::{channel::ConnectionState as Line, input_request::GiveInputRequest, run::CreateRunRequest, usage::Budget},
};
use attache_runtime::{RuntimeNotice, ShutdownOutcome};
use attache_testkit::ProxyFaults;
use serde_json::json;

use crate::{
    adapter::AdapterReply,
    live_hub::{LiveHub, eventually},
};

fn answer(text: &str) -> serde_json::Value {
    json!({"success": true, "output": {"text": text, "artifact_refs": []}})
}

#[tokio::test]
async fn a_run_arrives_and_is_reported_over_the_channel() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    let connection = live.connection().unwrap();
    let channels = live.owner.channels(&ChannelFilter::default()).await.unwrap().channels;
    assert_eq!(channels.len(), 1);
    assert_eq!((connection.way.as_str(), connection.channel_id), ("channel", Some(channels[0].channel_id)));
    assert_eq!(channels[0].status, Line::Connected);

    live.world.adapter.play(AdapterReply::Stream(vec![
        ("chunk", json!({"text": "one "})),
        ("thought", json!({"text": "hm"})),
        ("log", json!({"level": "info", "message": "l"})),
        ("tool_call", json!({"name": "x", "n": 1})),
        ("chunk", json!({"text": "two"})),
        ("result", answer("one two")),
    ]));
    let run = live.create("say it").await;
    let ended = live.run_with(run, RunStatus::Completed).await;
    let result: serde_json::Value = ended.task_result.unwrap().parse().unwrap();
    assert_eq!(result, json!({"text": "one two", "artifact_refs": []}));
    let events = live
        .events(run, &["task.progress", "task.chunk", "task.thought", "task.log", "task.tool_call", "task.completed"])
        .await;
    let names: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    // The runtime adds nothing in the agent's name.
    assert_eq!(names, ["task.chunk", "task.thought", "task.log", "task.tool_call", "task.chunk", "task.completed"]);
    assert_eq!(events[3].1, json!({"name": "x", "n": 1}));
    assert_eq!(running.stop().await.unwrap(), ShutdownOutcome::Finished);
    let channel = eventually("the end of the channel", async || {
        let channel = live.owner.channel(channels[0].channel_id).await.unwrap();
        (channel.status == Line::Disconnected).then_some(channel)
    })
    .await;
    assert_eq!(channel.reason.as_deref(), Some("closed"));
}

#[tokio::test]
async fn a_cancelled_run_is_stopped_immediately() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    live.world.adapter.play(AdapterReply::Hang(vec![("chunk", json!({"text": "working"}))]));
    live.world.adapter.remembers(json!({"success": false, "error": {"code": "cancelled", "message": "stopped"},
        "usage": {"tokens": 55, "cost_usd": 0.5}}));
    let run = live.create("for ever").await;
    // On a slow machine, the answer to this report may be what reveals that the run has ended.
    eventually("the first chunk", async || live.events(run, &["task.chunk"]).await.pop()).await;
    let cancelled_at = Instant::now();
    live.owner.cancel_run(run, None).await.unwrap();
    assert_eq!(live.world.adapter.cancelled().await, run.to_string());
    assert!(cancelled_at.elapsed() < Duration::from_secs(5), "{:?}", cancelled_at.elapsed());
    live.noticed(|notice| matches!(notice, RuntimeNotice::TaskStopped { .. })).await;
    // The agent reports its usage when it has stopped, which is after the end.
    let used = eventually("the usage", async || live.owner.run(run).await.unwrap().usage).await;
    assert_eq!(used.get(), r#"{"tokens":55,"cost_usd":0.5}"#);
    // The next run is not affected.
    live.world.adapter.play(AdapterReply::Json(answer("next")));
    let next = live.create("next").await;
    live.run_with(next, RunStatus::Completed).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_run_over_its_budget_is_stopped_while_it_works() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    live.world
        .adapter
        .play(AdapterReply::Hang(vec![("progress", json!({"message": "thinking", "usage": {"tokens": 900}}))]));
    live.world.adapter.remembers(json!({"success": false, "error": {"code": "cancelled", "message": "stopped"},
        "usage": {"tokens": 1200}}));
    let budget = Budget { tokens: Some(1000), cost_usd: None };
    let request =
        CreateRunRequest { agent_id: "builder".to_owned(), budget: Some(budget), ..CreateRunRequest::default() };
    let run = live.owner.create_run(&request).await.unwrap().task_run_id;
    let used = eventually("the first report", async || live.owner.run(run).await.unwrap().usage).await;
    assert_eq!(used.get(), r#"{"tokens":900}"#);
    live.world.adapter.say("progress", json!({"usage": {"tokens": 1001}}));
    assert_eq!(live.world.adapter.cancelled().await, run.to_string());
    let ended = live.run_with(run, RunStatus::Failed).await;
    let result: serde_json::Value = ended.task_result.unwrap().parse().unwrap();
    assert_eq!(result["code"], "quota_exceeded");
    eventually("the last total", async || {
        let usage = live.owner.run(run).await.unwrap().usage.unwrap();
        (usage.get() == r#"{"tokens":1200}"#).then_some(())
    })
    .await;
    running.stop().await.unwrap();
}

/// Nothing that the hub acknowledged disappears: what the agent didn't get before its run ended is named with the end.
#[tokio::test]
async fn input_that_the_agent_did_not_get_is_named_with_the_end_of_its_run() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    let adapter = &live.world.adapter;
    let told = async |run, text: &str| {
        let request = GiveInputRequest { text: Some(text.to_owned()), ..GiveInputRequest::default() };
        live.owner.give_input(run, &request).await.unwrap().input_id
    };
    let end = async |run, status, kind| {
        live.run_with(run, status).await;
        live.events(run, &[kind]).await.pop().unwrap().1["undelivered_inputs"].clone()
    };

    // The agent says what it got.
    adapter.play(AdapterReply::Hang(Vec::new()));
    let run = live.create("long").await;
    adapter.started(1).await;
    let (one, two) = (told(run, "one").await, told(run, "two").await);
    let given = adapter.answers(2).await;
    let ids: Vec<_> = given.iter().map(|(_, body)| body["input_id"].clone()).collect();
    assert_eq!(ids, [json!(one), json!(two)]);
    adapter.finish(json!({"success": true, "output": {"text": "done"}, "inputs_taken": [one]}));
    assert_eq!(end(run, RunStatus::Completed, "task.completed").await, json!([two]));

    // An adapter that doesn't say it got what it accepted.
    adapter.play(AdapterReply::Hang(Vec::new()));
    let run = live.create("older").await;
    adapter.started(2).await;
    told(run, "three").await;
    adapter.answers(3).await;
    adapter.finish(answer("done"));
    assert_eq!(end(run, RunStatus::Completed, "task.completed").await, json!(null));

    // It accepts none, and the run fails.
    adapter.be_deaf();
    adapter.play(AdapterReply::Hang(Vec::new()));
    let run = live.create("deaf").await;
    adapter.started(3).await;
    let four = told(run, "four").await;
    adapter.answers(4).await;
    adapter.finish(json!({"success": false, "error": {"code": "task_failed", "message": "no"}}));
    assert_eq!(end(run, RunStatus::Failed, "task.failed").await, json!([four]));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_device_reconnects_to_a_restarted_hub() {
    let mut live = LiveHub::start().await;
    let running = live.connected().await;
    live.world.adapter.play(AdapterReply::Hang(vec![("chunk", json!({"text": "before "}))]));
    let run = live.create("long").await;
    live.world.adapter.started(1).await;
    eventually("the first chunk", async || (!live.events(run, &["task.chunk"]).await.is_empty()).then_some(())).await;
    live.stop_hub().await;
    live.world.adapter.say("chunk", json!({"text": "meanwhile "}));
    live.noticed(|notice| matches!(notice, RuntimeNotice::ChannelBroken { .. })).await;
    live.start_hub().await;
    eventually("the channel", async || {
        (live.count(|notice| matches!(notice, RuntimeNotice::ChannelOpen { .. })) == 2).then_some(())
    })
    .await;
    live.world.adapter.say("chunk", json!({"text": "after"}));
    let text = async || -> String {
        live.events(run, &["task.chunk"]).await.iter().map(|(_, data)| data["text"].as_str().unwrap()).collect()
    };
    eventually("the last chunk", async || text().await.ends_with("after").then_some(())).await;
    live.world.adapter.finish(answer("done"));
    live.run_with(run, RunStatus::Completed).await;
    assert_eq!(text().await, "before meanwhile after");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_bad_connection_loses_and_repeats_nothing() {
    let faults = ProxyFaults { cut: 25, halve: 15, duplicate: 60, delay: 60, max_delay: Duration::from_millis(20) };
    let live = LiveHub::behind(11, faults).await;
    let running = live.runtime();
    let count = 30;
    let mut runs = Vec::new();
    for number in 0..count {
        let text = format!("number {number}");
        let mut scene: Vec<_> = (0..6).map(|part| ("log", json!(format!("{number}.{part}")))).collect();
        scene.push(("chunk", json!({"text": text})));
        scene.push(("result", answer(&text)));
        live.world.adapter.play(AdapterReply::Stream(scene));
        runs.push(live.create(&text).await);
    }
    for (number, run) in runs.iter().enumerate() {
        live.run_with(*run, RunStatus::Completed).await;
        let events: Vec<_> = live.events(*run, &["task.log", "task.chunk"]).await;
        let mut expected: Vec<_> =
            (0..6).map(|part| ("task.log".to_owned(), json!({"message": format!("{number}.{part}")}))).collect();
        expected.push(("task.chunk".to_owned(), json!({"text": format!("number {number}")})));
        assert_eq!(events, expected, "run {number}");
    }
    live.proxy.stop_faults();
    assert_eq!(live.world.adapter.tasks().len(), count, "every run was executed once");
    let harm = live.proxy.fault_counts();
    assert!(harm.cuts + harm.halves > 5, "{harm:?}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_stopping_device_hands_back_what_it_has_not_started() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    live.world.adapter.play(AdapterReply::Hang(Vec::new()));
    let first = live.create("first").await;
    live.world.adapter.started(1).await;
    let second = live.create("second").await;
    running.shutdown.finish();
    live.world.adapter.finish(answer("done"));
    assert_eq!(running.ended().await.unwrap(), ShutdownOutcome::Finished);
    assert_eq!(live.owner.run(first).await.unwrap().status, RunStatus::Completed);
    let second = live.owner.run(second).await.unwrap();
    assert_eq!((second.status, second.attempt), (RunStatus::Pending, 0));
}

#[tokio::test]
async fn runs_arrive_however_often_the_connection_is_cut() {
    let live = LiveHub::start().await;
    let running = live.connected().await;
    for number in 0..3 {
        live.proxy.cut();
        live.world.adapter.play(AdapterReply::Json(answer("x")));
        let run = live.create(&number.to_string()).await;
        live.run_with(run, RunStatus::Completed).await;
    }
    assert_eq!(live.world.adapter.tasks().len(), 3);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it after changing how connections are opened, resumed or given up"]
async fn many_bad_connections_lose_and_repeat_nothing() {
    for seed in 100..112 {
        let faults = ProxyFaults { cut: 40, halve: 30, duplicate: 80, delay: 80, max_delay: Duration::from_millis(30) };
        let mut live = LiveHub::behind(seed, faults).await;
        let running = live.runtime();
        let count = 24;
        for number in 0..count {
            let question = json!({"id": "p", "tool": "shell", "input": {"n": number}});
            live.world.adapter.play(AdapterReply::Hang(vec![("log", json!("before")), ("permission", question)]));
            let run = live.create("x").await;
            if number % 8 == 7 {
                live.stop_hub().await;
                live.start_hub().await;
            }
            let pending = live.pending().await;
            assert_eq!(pending.task_run_id, run);
            live.decide(&pending, true).await;
            live.world.adapter.answers(number + 1).await;
            live.world.adapter.say("log", json!("after"));
            live.world.adapter.finish(answer("x"));
            let ended = live.run_with(run, RunStatus::Completed).await;
            assert_eq!((ended.attempt, ended.epoch - ended.attempt < 5), (1, true), "seed {seed}");
            let events = live.events(run, &["task.log"]).await;
            let expected = ["before", "after"].map(|message| ("task.log".to_owned(), json!({"message": message})));
            assert_eq!(events, expected, "seed {seed}, run {number}");
        }
        live.proxy.stop_faults();
        assert_eq!(live.world.adapter.tasks().len(), count, "seed {seed}: every run was executed once");
        println!("seed {seed}: {:?}", live.proxy.fault_counts());
        running.stop().await.unwrap();
    }
}
