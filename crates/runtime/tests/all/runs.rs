//! The lifecycle of a run in a running runtime.

use std::time::{Duration, Instant};

use attache_protocol::env::Env;
use attache_runtime::{ConnectionStatus, RuntimeNotice, ShutdownOutcome, ledger::LedgerStep};
use serde_json::json;

use crate::{
    adapter::AdapterReply,
    hub::error,
    world::{RuntimeWorld, SECRET, TOKEN, agent, claim, run, runtime},
};

#[tokio::test]
async fn a_run_is_pulled_executed_and_reported_with_its_progress() {
    let world = RuntimeWorld::new().await.with(|profile| {
        profile.device_name = Some("laptop".into());
        profile.local_executor.cwd = Some("/srv/work".into());
    });
    world.adapter.play(AdapterReply::Stream(vec![
        ("chunk", json!({"text": "one "})),
        ("chunk", json!({"text": "two"})),
        ("log", json!({"level": "info", "message": "l"})),
        (
            "result",
            json!({"success": true, "output": {"text": "one two", "artifact_refs": [], "usage": {"tokens": 7}}}),
        ),
    ]));
    world.hub.offer(claim(7, "say it"));
    let running = world.start();
    let complete = world.hub.heard("complete", 1).await;
    assert_eq!(
        complete,
        json!({"epoch": 1, "output": {"text": "one two", "artifact_refs": [], "usage": {"tokens": 7}}, "usage": {"tokens": 7},
            "inputs_taken": []})
    );
    assert_eq!(running.stop().await.unwrap(), ShutdownOutcome::Finished);

    assert_eq!(
        world.adapter.tasks(),
        [
            json!({"task_run_id": run(7), "conversation_id": format!("cnv_{:032x}", 7), "workspace_id": format!("wsp_{:032x}", 7),
            "task_type": "prompt", "input": {"text": "say it"}, "instructions": "be brief", "cwd": "/srv/work",
            "default_sandbox": {"cwd_only": true}, "deadline": "2030-01-01T00:00:00.000Z"})
        ]
    );
    assert_eq!(world.adapter.secrets(), [Some(format!("Bearer {SECRET}"))]);
    let reports: Vec<_> = world.hub.calls("progress").into_iter().map(|call| call.body).collect();
    assert_eq!(
        reports,
        [
            json!({"epoch": 1, "report": 1, "chunk": {"text": "one two"}}),
            json!({"epoch": 1, "report": 2, "log": {"level": "info", "message": "l"}})
        ]
    );
    assert!(world.hub.calls("heartbeat").iter().any(|beat| beat.body["running"] == json!([])));
    let seven = Some(run(7));
    assert_eq!(
        world.steps(),
        [
            (LedgerStep::RuntimeStarted, None),
            (LedgerStep::TaskPulled, seven),
            (LedgerStep::TaskStarted, seven),
            (LedgerStep::TaskCompleted, seven),
            (LedgerStep::TaskReported, seven),
            (LedgerStep::RuntimeStopped, None)
        ]
    );
    let written = world.written();
    assert!(written.contains("task_completed") && !written.contains(TOKEN) && !written.contains(SECRET));
    assert!(world.profiles().load().unwrap().select(None).unwrap().last_heartbeat_at.is_some());
}

#[tokio::test]
async fn the_deadline_uses_the_clock_of_the_device_from_the_first_run_on() {
    let (world, env) = (RuntimeWorld::new().await, Env::seeded(1));
    world.adapter.play(AdapterReply::Json(json!({"success": true, "output": {"text": "said", "artifact_refs": []}})));
    // The device's clock is 61 minutes fast, and the first heartbeat is not answered.
    let off = Duration::from_secs(61 * 60);
    world.hub.stop_clock(env.now().minus(off));
    world.hub.refuse("/heartbeat", 503, error("overloaded", "no"));
    let mut claimed = claim(7, "say it");
    claimed["deadline"] = json!(env.now().minus(Duration::from_secs(60)));
    world.hub.offer(claimed);
    let running = world.start_with(|options| options.env = env.clone());
    world.hub.heard("complete", 1).await;
    running.stop().await.unwrap();
    assert_eq!(world.adapter.tasks()[0]["deadline"], json!(env.now().plus(Duration::from_secs(60 * 60))));
    let notices = world.notices.lock().unwrap();
    let reported = notices.iter().filter(|notice| matches!(notice, RuntimeNotice::ClockOff { .. }));
    assert_eq!(reported.collect::<Vec<_>>(), [&RuntimeNotice::ClockOff { ahead_minutes: 61 }], "it is reported once");
    let connection = ConnectionStatus::read(world.home.path(), agent()).unwrap();
    assert_eq!((connection.way.as_str(), connection.clock_ahead_minutes), ("pull", Some(61)));
}

#[tokio::test]
async fn the_data_of_a_claim_reaches_the_adapter_but_no_file() {
    const RUN_TOKEN: &str = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJydW4ifQ.c2lnbmF0dXJl";
    let world = RuntimeWorld::new().await;
    let mut claimed = claim(7, "say it");
    claimed["budget"] = json!({"tokens": 43, "cost_usd": 0.25});
    claimed["sandbox"] = json!({"cwd_only": true, "allow_network": false});
    claimed["mcp"] = json!({"url": "https://as.the.hub/knows/itself/mcp", "token": RUN_TOKEN});
    world.adapter.play(AdapterReply::Json(json!({"success": true, "output": {"text": "said", "artifact_refs": []}})));
    world.hub.offer(claimed);
    let running = world.start();
    world.hub.heard("complete", 1).await;
    assert_eq!(running.stop().await.unwrap(), ShutdownOutcome::Finished);
    let task = &world.adapter.tasks()[0];
    assert_eq!(task["budget"], json!({"tokens": 43, "cost_usd": 0.25}));
    assert_eq!(task["sandbox"], json!({"cwd_only": true, "allow_network": false}));
    let url = format!("{}/knows/itself/mcp", world.hub.url);
    assert_eq!(task["mcp"], json!({"url": url, "token": RUN_TOKEN}), "at the address by which the device reaches it");
    assert!(!world.written().contains(RUN_TOKEN), "neither the ledger nor the log contains it");
    let sent = world.hub.all_calls(&["progress", "complete", "heartbeat"]);
    assert!(sent.iter().all(|call| !call.body.to_string().contains(RUN_TOKEN)), "and it isn't sent back to the hub");
}

#[tokio::test]
async fn a_plain_json_adapter_and_its_failures_are_understood() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Json(
        json!({"success": false, "error": {"code": "model_unreachable", "message": "no model"}}),
    ));
    world.adapter.play(AdapterReply::Json(json!({"success": true})));
    world.adapter.play(AdapterReply::Json(json!("nonsense")));
    world.adapter.play(AdapterReply::Status(500, json!({"success": false, "error": {"code": "own", "message": "m"}})));
    world.adapter.play(AdapterReply::Status(401, json!({"error": {"code": "unauthenticated", "message": "no"}})));
    for number in 1..=5 {
        world.hub.offer(claim(number, "x"));
    }
    let running = world.start();
    let last = world.hub.heard("fail", 5).await;
    running.stop().await.unwrap();
    let codes: Vec<_> = world.hub.calls("fail").into_iter().map(|call| call.body["output"]["code"].clone()).collect();
    let invalid = "adapter_invalid_reply";
    assert_eq!(codes, ["model_unreachable", invalid, invalid, "own", invalid]);
    assert!(last["output"]["error"].as_str().unwrap().contains("--adapter-secret-file"), "{last}");
    assert_eq!(world.hub.calls("fail")[0].body["output"]["error"], "no model");
}

#[tokio::test]
async fn a_missing_adapter_fails_the_run_with_a_clear_message() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let world = RuntimeWorld::new()
        .await
        .with(|profile| profile.local_agent_endpoint = Some(format!("http://127.0.0.1:{port}")));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    let fail = world.hub.heard("fail", 1).await;
    running.stop().await.unwrap();
    assert_eq!(fail["output"]["code"], "adapter_unreachable");
    assert!(fail["output"]["error"].as_str().unwrap().contains("Can't reach the adapter"), "{fail}");
}

#[tokio::test]
async fn a_cancelled_run_stops_immediately_at_the_adapter() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Hang(vec![("chunk", json!({"text": "working"}))]));
    world.hub.event("task.created", json!({}));
    world.hub.event("task.claimed", json!({"epoch": 1}));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.adapter.started(1).await;
    world.hub.heard("progress", 1).await;
    let asked = Instant::now();
    world.hub.event("task.cancelled", json!({"reason": "enough"}));
    assert_eq!(world.adapter.cancelled().await, run(1).to_string());
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    running.stop().await.unwrap();
    assert_eq!(world.steps()[3], (LedgerStep::TaskStopped, Some(run(1))));
    assert!(world.hub.calls("complete").is_empty() && world.hub.calls("fail").is_empty());
}

#[tokio::test]
async fn a_heartbeat_can_stop_a_run_too() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Hang(vec![]));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.adapter.started(1).await;
    world.hub.until(|calls| calls.iter().any(|call| call.body["running"] == json!([run(1)]))).await;
    world.hub.cancel_by_heartbeat(run(1));
    assert_eq!(world.adapter.cancelled().await, run(1).to_string());
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_heartbeat_about_an_earlier_claim_stops_nothing() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Hang(vec![]));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.adapter.started(1).await;
    world.hub.claimed(run_of_hub(1, 1));
    world.hub.cancel_by_heartbeat(run(1));
    world.hub.heard(&format!("get {}", run(1)), 1).await;
    world.adapter.finish(json!({"success": true, "output": {"text": "done"}}));
    world.hub.heard("complete", 1).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn stopping_finishes_the_started_run_first() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Hang(vec![]));
    world.hub.offer(claim(1, "x"));
    world.hub.offer(claim(2, "never pulled"));
    let running = world.start();
    world.adapter.started(1).await;
    running.shutdown.finish();
    world.adapter.finish(json!({"success": true, "output": {"text": "done"}}));
    assert_eq!(running.ended().await.unwrap(), ShutdownOutcome::Finished);
    assert_eq!(world.hub.calls("complete").len(), 1);
    assert_eq!(world.adapter.tasks().len(), 1);
    assert!(world.notices.lock().unwrap().contains(&RuntimeNotice::Stopping { running: Some(run(1)) }));
}

#[tokio::test]
async fn aborting_stops_the_run_and_reports_it() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Hang(vec![]));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.adapter.started(1).await;
    running.shutdown.abort();
    assert_eq!(running.ended().await.unwrap(), ShutdownOutcome::Aborted);
    assert_eq!(world.adapter.cancelled().await, run(1).to_string());
    let fail = world.hub.heard("fail", 1).await;
    assert_eq!(
        fail,
        json!({"epoch": 1, "output": {"error": "The runtime was stopped before the task finished.", "code": "runtime_stopped"}})
    );
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_handed_back_on_stop() {
    let world = RuntimeWorld::new().await;
    let running = world.start();
    world.hub.heard("pull", 1).await;
    // The hub claimed it for this device, but the answer crossed with the stop.
    world.hub.claimed(run_of_hub(5, 3));
    assert_eq!(running.stop().await.unwrap(), ShutdownOutcome::Finished);
    let releases = world.hub.calls("release");
    assert_eq!(releases.len(), 1);
    assert_eq!(releases[0].path, format!("/api/v1/task-runs/{}/release", run(5)));
    assert_eq!(releases[0].body, json!({"epoch": 3}));
}

#[tokio::test]
async fn a_superseded_device_stops_with_a_clear_message() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Hang(vec![]));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.adapter.started(1).await;
    world.hub.refuse_all(401, error("runtime_superseded", "Another device was paired."));
    let stopped = running.ended().await.unwrap_err();
    assert_eq!(stopped.to_string(), "This device was replaced. hint of runtime_superseded");
    assert_eq!(stopped.exit_code(), 4);
    assert_eq!(world.adapter.cancelled().await, run(1).to_string());

    world.hub.refuse_all(401, error("runtime_revoked", "Revoked."));
    let stopped = world.start().ended().await.unwrap_err();
    assert_eq!(stopped.to_string(), "This device was disconnected from its agent. hint of runtime_revoked");
    world.hub.refuse_all(401, error("unauthenticated", "Who?"));
    let stopped = world.start().ended().await.unwrap_err();
    assert!(stopped.to_string().contains("new pairing code for the same agent"), "{stopped}");
}

#[tokio::test]
async fn files_of_a_result_are_uploaded_and_replaced_by_their_ids() {
    let world = RuntimeWorld::new().await;
    let cwd = world.path("work");
    std::fs::create_dir(&cwd).unwrap();
    std::fs::write(format!("{cwd}/report.txt"), "the report").unwrap();
    std::fs::write(world.path("secret.txt"), "outside").unwrap();
    std::os::unix::fs::symlink("../secret.txt", format!("{cwd}/innocent.txt")).unwrap();
    let world = world.with(|profile| profile.local_executor.workspace = Some(cwd));
    let art = "art_00000000000000000000000000000001";
    let output = json!({"text": "t", "artifact_refs": [art, {"path": "report.txt", "name": "final.txt", "media_type": "text/plain"}]});
    world.adapter.play(AdapterReply::Json(json!({"success": true, "output": output})));
    world.hub.offer(claim(7, "x"));
    for (number, path) in [(8, "../secret.txt"), (9, "innocent.txt")] {
        let output = json!({"text": "t", "artifact_refs": [{"path": path}]});
        world.adapter.play(AdapterReply::Json(json!({"success": true, "output": output})));
        world.hub.offer(claim(number, "x"));
    }
    let running = world.start();
    let complete = world.hub.heard("complete", 1).await;
    assert_eq!(
        complete["output"],
        json!({"text": "t", "artifact_refs": [art, "art_00000000000000000000000000000009"]})
    );
    world.hub.heard("fail", 2).await;
    running.stop().await.unwrap();
    let uploads = world.hub.calls("upload");
    assert_eq!(uploads.len(), 1, "nothing from outside is uploaded");
    assert_eq!(uploads[0].path, format!("/api/v1/workspaces/wsp_{:032x}/artifacts/final.txt", 7));
    assert_eq!(uploads[0].body, json!("the report"));
    for fail in world.hub.calls("fail") {
        let message = fail.body["output"]["error"].as_str().unwrap();
        assert!(message.contains("outside the task's folder"), "{message}");
    }
}

#[tokio::test]
async fn the_devices_instructions_come_before_the_agents() {
    let world = RuntimeWorld::new().await;
    let file = world.path("instructions.md");
    std::fs::write(&file, "be kind\n").unwrap();
    let world = world.with(|profile| profile.local_executor.instruction_file = Some(file.clone()));
    world.adapter.play(AdapterReply::Json(json!({"success": true, "output": {"text": ""}})));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.hub.heard("complete", 1).await;
    std::fs::remove_file(&file).unwrap();
    world.hub.offer(claim(2, "x"));
    let fail = world.hub.heard("fail", 1).await;
    running.stop().await.unwrap();
    assert_eq!(world.adapter.tasks()[0]["instructions"], "be kind\n\nbe brief");
    assert!(fail["output"]["error"].as_str().unwrap().contains("Can't read the device's instruction file"), "{fail}");
}

/// A run in the hub's listing.
pub(crate) fn run_of_hub(number: u128, epoch: i64) -> serde_json::Value {
    json!({"task_run_id": run(number), "agent_id": crate::world::agent(), "agent_name": "a",
        "conversation_id": format!("cnv_{number:032x}"), "workspace_id": format!("wsp_{number:032x}"),
        "parent_task_run_id": null, "status": "running", "waiting": null, "recovery": null, "task_type": "prompt",
        "attempt": 1, "max_attempts": 1, "epoch": epoch, "priority": 0, "timeout_ms": 1, "input": {},
        "task_result": null, "usage": null, "caller": "key:k", "trace_id": null, "runtime_id": runtime(),
        "created_at": "2026-01-01T00:00:00.000Z", "claimed_at": null, "lease_expires_at": null, "expires_at": null,
        "ended_at": null, "last_seq": 1})
}

#[tokio::test]
async fn a_failure_that_the_hub_refuses_is_shortened() {
    let world = RuntimeWorld::new().await;
    let long = "é".repeat(3000);
    world.adapter.play(AdapterReply::Json(json!({"success": false, "error": {"code": "tool_failed", "message": long},
        "usage": {"tokens": 7}})));
    world.hub.refuse("/fail", 413, error("too_large", "no"));
    world.hub.offer(claim(7, "x"));
    let running = world.start();
    let failed = world.hub.heard("fail", 1).await;
    let cut = format!("{}…", "é".repeat(1000));
    assert_eq!(failed["output"], json!({"error": cut, "code": "tool_failed"}));
    running.stop().await.unwrap();
    let seven = Some(run(7));
    assert_eq!(
        world.steps()[3..],
        [
            (LedgerStep::TaskFailed, seven),
            (LedgerStep::TaskFailed, seven),
            (LedgerStep::TaskReported, seven),
            (LedgerStep::RuntimeStopped, None)
        ]
    );
}

/// After one refusal, nothing is sent in vain. Usage is still sent.
#[tokio::test]
async fn a_full_log_receives_only_usage() {
    let world = RuntimeWorld::new().await;
    world.hub.refuse("/progress", 413, error("log_full", "The log of this run is full."));
    world.adapter.play(AdapterReply::Hang(vec![("chunk", json!({"text": "one too many"}))]));
    world.hub.offer(claim(1, "x"));
    let running = world.start();
    world.adapter.started(1).await;
    world.hub.heard("refused progress", 1).await;
    for number in 0..50 {
        world.adapter.say("chunk", json!({"text": format!("chunk {number}")}));
        world.adapter.say("log", json!({"level": "info", "message": "m"}));
    }
    world.adapter.say("progress", json!({"message": "m", "usage": {"tokens": 7}}));
    assert_eq!(world.hub.heard("progress", 1).await["usage"], json!({"tokens": 7}));
    world.adapter.finish(json!({"success": true, "output": {"text": "whole"}}));
    assert_eq!(world.hub.heard("complete", 1).await["output"]["text"], "whole");
    running.stop().await.unwrap();
    assert_eq!(world.hub.calls("progress").len(), 1, "the total, and nothing else");
}

#[tokio::test]
async fn a_short_failure_that_the_hub_refuses_is_not_repeated() {
    let world = RuntimeWorld::new().await;
    world.adapter.play(AdapterReply::Json(json!({"success": false, "error": {"code": "own", "message": "no"}})));
    world.hub.refuse("/fail", 422, error("invalid_request", "no"));
    world.hub.offer(claim(7, "x"));
    let running = world.start();
    world.hub.heard("refused fail", 1).await;
    running.stop().await.unwrap();
    assert_eq!(world.hub.calls("fail"), []);
    assert_eq!(world.steps()[4], (LedgerStep::TaskReportRefused, Some(run(7))));
}
