//! Recovery after a crash, an unreachable hub or a broken connection.

use std::time::Duration;

use attache_protocol::{Json, Timestamp};
use attache_runtime::{
    Error, RuntimeNotice, RuntimeService, Shutdown,
    ledger::{ExecutionLedger, ExecutionOutcome, LedgerEntry, LedgerStep},
};
use serde_json::json;

use crate::{
    adapter::AdapterReply,
    hub::error,
    runs::run_of_hub,
    world::{RuntimeWorld, agent, claim, run},
};

fn pulled(number: u128) -> LedgerEntry {
    let mut line = LedgerEntry::new(Timestamp::from_millis(0), LedgerStep::TaskPulled).of_run(run(number), 1);
    line.conversation_id = Some(format!("cnv_{number:032x}").parse().unwrap());
    line.workspace_id = Some(format!("wsp_{number:032x}").parse().unwrap());
    line.task_type = Some("prompt".to_owned());
    line
}

fn started(number: u128) -> LedgerEntry {
    LedgerEntry::new(Timestamp::from_millis(0), LedgerStep::TaskStarted).of_run(run(number), 1)
}

fn done(number: u128, text: &str) -> LedgerEntry {
    let outcome = ExecutionOutcome::completed(&Json::of(&json!({ "text": text })), None);
    LedgerEntry::outcome(Timestamp::from_millis(0), run(number), 1, &outcome)
}

#[tokio::test]
async fn an_outcome_waits_for_the_hub_and_is_named_meanwhile() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Hang(vec![]));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.adapter.started(1).await;
    world.hub.refuse_all(503, error("draining", "Going down."));
    world.adapter.finish(json!({"success": true, "output": {"text": "kept"}}));
    world.hub.until(|calls| calls.iter().filter(|call| call.name == "refused complete").count() >= 2).await;
    // The entry was on disk before the hub was contacted.
    assert_eq!(world.steps()[3], (LedgerStep::TaskCompleted, Some(run(1))));
    let beats = world.hub.calls("refused heartbeat").len();
    world.hub.until(|calls| calls.iter().filter(|call| call.name == "refused heartbeat").count() > beats).await;
    assert_eq!(world.hub.calls("refused heartbeat")[beats].body["running"], json!([run(1)]));

    world.hub.be_nice();
    assert_eq!(
        world.hub.heard("complete", 1).await,
        json!({"epoch": 1, "output": {"text": "kept"}, "inputs_taken": []})
    );
    running.stop().await.unwrap();
    assert!(world.steps().contains(&(LedgerStep::TaskReported, Some(run(1)))));
    let notices = world.notices.lock().unwrap();
    assert_eq!(
        notices.iter().filter(|notice| matches!(notice, RuntimeNotice::HubAway { .. })).count(),
        1,
        "{notices:?}"
    );
    assert_eq!(notices.iter().filter(|notice| matches!(notice, RuntimeNotice::HubBack)).count(), 1, "{notices:?}");
}

/// The text of the chunks that the hub accepted, and the position of the result among these calls.
fn told(world: &RuntimeWorld) -> (String, Option<usize>) {
    let calls = world.hub.all_calls(&["progress", "complete"]);
    let chunks = calls.iter().filter_map(|call| call.body["chunk"]["text"].as_str()).collect();
    (chunks, calls.iter().rev().position(|call| call.name == "complete"))
}

#[tokio::test]
async fn progress_waits_for_the_hub_and_is_sent_once_and_in_order() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Hang(vec![("chunk", json!({"text": "before "}))]));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.hub.heard("progress", 1).await;
    world.hub.refuse_all(503, error("draining", "Going down."));
    let mut expected = "before ".to_owned();
    for number in 0..300 {
        expected += &format!("{number} ");
        world.adapter.say("chunk", json!({"text": format!("{number} ")}));
        world.adapter.say("log", json!({"level": "info", "message": number.to_string()}));
    }
    world.hub.heard("refused progress", 2).await;
    world.hub.be_nice();
    world.adapter.say("chunk", json!({"text": "after"}));
    expected += "after";
    world.hub.until(|calls| calls.iter().any(|call| call.body["chunk"]["text"] == "after")).await;
    world.adapter.finish(json!({"success": true, "output": {"text": expected}}));
    world.hub.heard("complete", 1).await;
    running.stop().await.unwrap();
    assert_eq!(told(&world), (expected, Some(0)));
    let logs: Vec<i32> = world
        .hub
        .calls("progress")
        .iter()
        .filter_map(|call| call.body["log"]["message"].as_str()?.parse().ok())
        .collect();
    assert_eq!(logs, (0..300).collect::<Vec<_>>());
}

#[tokio::test]
async fn waiting_progress_is_sent_before_the_result() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Hang(vec![("chunk", json!({"text": "before "}))]));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.hub.heard("progress", 1).await;
    world.hub.refuse_all(503, error("draining", "Going down."));
    world.adapter.say("chunk", json!({"text": "meanwhile "}));
    world.hub.heard("refused progress", 1).await;
    world.adapter.say("chunk", json!({"text": "last"}));
    world.adapter.finish(json!({"success": true, "output": {"text": "t"}}));
    let refused = world.hub.calls("refused progress").len();
    world.hub.heard("refused progress", refused + 2).await;
    world.hub.be_nice();
    world.hub.heard("complete", 1).await;
    running.stop().await.unwrap();
    assert_eq!(told(&world), ("before meanwhile last".to_owned(), Some(0)));
    assert_eq!(world.hub.calls("refused complete").len(), 0, "the result does not overtake the progress");
}

#[tokio::test]
async fn outcomes_of_an_earlier_process_are_reported_and_stale_ones_recorded() {
    let world = RuntimeWorld::new().await;
    world.write_ledger(&[pulled(1), started(1), done(1, "first"), pulled(2), started(2), done(2, "second")]).await;
    // A torn line, as after a power loss.
    let path = ExecutionLedger::path(world.home.path(), agent());
    let mut text = std::fs::read(&path).unwrap();
    text.extend_from_slice(b"{\"at\":\"2026");
    std::fs::write(&path, text).unwrap();
    let stale = json!({"error": error("stale_epoch", "Another claim owns it.")["error"], "task_run": run_of_hub(1, 2)});
    world.hub.refuse(&format!("{}/complete", run(1)), 409, stale);
    let running = world.start();
    assert_eq!(world.hub.heard("complete", 1).await, json!({"epoch": 1, "output": {"text": "second"}}));
    running.stop().await.unwrap();
    let steps = world.steps();
    assert!(steps.contains(&(LedgerStep::TaskReportRefused, Some(run(1)))), "{steps:?}");
    assert!(steps.contains(&(LedgerStep::TaskReported, Some(run(2)))), "{steps:?}");
    // The next process has nothing left to report.
    world.start().stop().await.unwrap();
    assert_eq!(world.hub.calls("complete").len(), 1);
    assert_eq!(world.hub.calls("refused complete").len(), 1);
}

#[tokio::test]
async fn a_result_that_the_hub_refuses_becomes_a_failure() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Json(json!({"success": true, "output": {"text": "huge"}})));
    world.hub.refuse("/complete", 413, error("too_large", "The result is too large."));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    let fail = world.hub.heard("fail", 1).await;
    running.stop().await.unwrap();
    assert_eq!(
        fail["output"],
        json!({"error": "The hub did not accept the result: The result is too large. hint of too_large", "code": "adapter_invalid_reply"})
    );
}

#[tokio::test]
async fn a_restarted_runtime_rejoins_runs_that_its_adapter_still_executes() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Hang(vec![("chunk", json!({"text": "abc"}))]));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.hub.until(|calls| calls.iter().any(|call| call.body["chunk"] == json!({"text": "abc"}))).await;
    running.kill().await;

    world.hub.event("task.created", json!({}));
    world.hub.event("task.claimed", json!({"epoch": 1}));
    world.hub.event("task.chunk", json!({"text": "abc"}));
    world.hub.claimed(run_of_hub(1, 1));
    world.adapter.play(AdapterReply::Hang(vec![("chunk", json!({"text": "abc"})), ("chunk", json!({"text": "def"}))]));
    let before = world.hub.calls("heartbeat").len();
    let running = world.start();
    world.hub.until(|calls| calls.iter().any(|call| call.body["chunk"] == json!({"text": "def"}))).await;
    world.hub.heard("heartbeat", before + 1).await;
    assert_eq!(world.hub.calls("heartbeat")[before].body["running"], json!([run(1)]));
    world.adapter.finish(json!({"success": true, "output": {"text": "abcdef"}}));
    assert_eq!(world.hub.heard("complete", 1).await, json!({"epoch": 1, "output": {"text": "abcdef"}}));
    running.stop().await.unwrap();
    assert_eq!(world.adapter.tasks()[1]["input"], json!({}), "the adapter has the input already");
    assert!(world.hub.calls("release").is_empty());
}

#[tokio::test]
async fn a_run_that_ended_during_the_restart_is_reported() {
    let world = RuntimeWorld::new().await;
    world.write_ledger(&[pulled(1), started(1)]).await;
    world.adapter.remembers(json!({"success": true, "output": {"text": "alone"}}));
    let running = world.start();
    assert_eq!(world.hub.heard("complete", 1).await, json!({"epoch": 1, "output": {"text": "alone"}}));
    running.stop().await.unwrap();
    assert!(world.adapter.tasks().is_empty(), "nothing is executed twice");
}

#[tokio::test]
async fn a_started_run_that_the_adapter_no_longer_knows_is_left_to_the_hub() {
    let world = RuntimeWorld::new().await;
    world.write_ledger(&[pulled(1), started(1)]).await;
    world.hub.claimed(run_of_hub(1, 1));
    let running = world.start();
    let beat = world.hub.heard("heartbeat", 1).await;
    running.stop().await.unwrap();
    assert_eq!(beat["running"], json!([]));
    assert!(world.adapter.tasks().is_empty() && world.hub.calls("release").is_empty());
    assert!(world.steps().contains(&(LedgerStep::TaskStopped, Some(run(1)))));
}

#[tokio::test]
async fn heartbeats_are_frequent_after_a_start_and_after_the_hub_was_away() {
    let world = RuntimeWorld::new().await.with(|profile| profile.heartbeat_timeout_ms = 1_000_000);
    let running = world.start_with(|options| {
        options.pace.heartbeat = Duration::from_secs(250);
        options.pace.early_heartbeat = Duration::from_millis(100);
        options.pace.early = Duration::from_secs(3);
    });
    // Every 100 ms. The next regular heartbeat would be minutes away.
    world.hub.heard("heartbeat", 3).await;
    world.hub.until_quiet("heartbeat", Duration::from_secs(1)).await;
    let before = world.hub.calls("heartbeat").len();
    world.hub.refuse_all(503, error("draining", "Going down."));
    world.hub.heard("refused pull", 1).await;
    world.hub.be_nice();
    world.hub.heard("heartbeat", before + 3).await;
    running.stop().await.unwrap();
    assert!(world.hub.calls("refused heartbeat").is_empty(), "the pull noticed that the hub was away and is back");
}

#[tokio::test]
async fn unstarted_claims_are_handed_back_before_the_first_heartbeat() {
    let world = RuntimeWorld::new().await;
    world.write_ledger(&[pulled(1)]).await;
    world.hub.claimed(run_of_hub(1, 1));
    world.hub.claimed(run_of_hub(2, 4));
    // A hub that is away for the first attempts is asked again.
    (0..4).for_each(|_| world.hub.refuse("/release", 503, error("draining", "Going down.")));
    let running = world.start();
    world.hub.heard("heartbeat", 1).await;
    let released: Vec<_> = world.hub.calls("release").into_iter().map(|call| (call.path, call.body)).collect();
    running.kill().await;
    let path = |number| format!("/api/v1/task-runs/{}/release", run(number));
    assert_eq!(released, [(path(1), json!({"epoch": 1})), (path(2), json!({"epoch": 4}))]);
}

#[tokio::test]
async fn after_a_broken_connection_the_adapter_is_rejoined_without_duplicates() {
    let world = RuntimeWorld::new().await;
    let first = [("chunk", json!({"text": "a"})), ("log", json!("l")), ("chunk", json!({"text": "b"}))];
    world.adapter.executes(&run(1).to_string());
    world.adapter.play(AdapterReply::Break(first.to_vec()));
    let mut again = first.to_vec();
    again.push(("chunk", json!({"text": "c"})));
    again.push(("result", json!({"success": true, "output": {"text": "abc"}})));
    world.adapter.play(AdapterReply::Stream(again));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.hub.heard("complete", 1).await;
    running.stop().await.unwrap();
    let chunks: String = world
        .hub
        .calls("progress")
        .iter()
        .filter_map(|call| call.body["chunk"]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(chunks, "abc");
}

#[tokio::test]
async fn an_adapter_that_died_with_the_task_fails_the_run_and_never_repeats_it() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Break(vec![("chunk", json!({"text": "a"}))]));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    let fail = world.hub.heard("fail", 1).await;
    running.stop().await.unwrap();
    assert_eq!(fail["output"]["code"], "adapter_unreachable");
    assert_eq!(world.adapter.tasks().len(), 1);
}

#[tokio::test]
async fn an_agent_has_one_runtime_per_device() {
    let world = RuntimeWorld::new().await;
    let running = world.start();
    world.hub.heard("heartbeat", 1).await;
    let second = RuntimeService::new(world.options()).unwrap().run(Shutdown::default()).await.unwrap_err();
    assert!(matches!(second, Error::AlreadyRunning { .. }), "{second}");
    running.stop().await.unwrap();
    world.start().stop().await.unwrap();
}

#[tokio::test]
async fn a_device_without_its_ledger_hands_nothing_back() {
    for torn in [false, true] {
        let world = RuntimeWorld::new().await;
        if torn {
            world.write_ledger(&[pulled(2)]).await;
            let path = ExecutionLedger::path(world.home.path(), agent());
            let mut text = std::fs::read(&path).unwrap();
            text.extend_from_slice(b"{\"at\":\"2026-");
            std::fs::write(&path, text).unwrap();
        }
        world.hub.claimed(run_of_hub(1, 1));
        let running = world.start();
        let beat = world.hub.heard("heartbeat", 1).await;
        running.stop().await.unwrap();
        assert_eq!(beat["running"], json!([]), "the hub finds out that it is lost");
        assert!(world.hub.calls("release").is_empty() && world.adapter.tasks().is_empty());
        assert!(world.notices.lock().unwrap().contains(&RuntimeNotice::LedgerDamaged));
    }
}

#[tokio::test]
async fn a_claim_with_reported_progress_is_lost_instead_of_handed_back() {
    let world = RuntimeWorld::new().await;
    world.write_ledger(&[pulled(2)]).await;
    world.hub.claimed(run_of_hub(1, 1));
    world.hub.refuse("/release", 409, error("already_begun", "The work on this run has begun."));
    let running = world.start();
    let beat = world.hub.heard("heartbeat", 1).await;
    running.stop().await.unwrap();
    assert_eq!(beat["running"], json!([]));
    assert!(world.adapter.tasks().is_empty());
}
