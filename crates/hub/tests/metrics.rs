//! Metrics for alerts: backlog and its age, outcomes of runs, store performance, and free disk space.

use std::time::Duration;

use serde_json::json;

use crate::world::{Engine, World};

async fn metric(world: &World, name: &str) -> Option<f64> {
    let text = String::from_utf8_lossy(&world.owner.get("/metrics").await.body).into_owned();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test]
async fn the_backlog_is_counted_with_its_age() {
    let world = World::timed(Engine::Sqlite, |_| {}).await;
    world.agent("builder").await;
    let get = async |name: &str| metric(&world, name).await.unwrap_or_else(|| panic!("there is no {name}"));
    assert_eq!(get("attache_runs_pending").await, 0.0);
    assert_eq!(get("attache_devices_online").await, 0.0);
    let device = world.device("builder").await;
    let beat = json!({"agent_id": device.agent, "running": []});
    device.client.post("/api/v1/agent-runtimes/runtime/heartbeat", beat).await.expect(200);
    assert_eq!(get("attache_devices_online").await, 1.0);
    world.run("builder").await;
    world.run("builder").await;
    world.advance(Duration::from_secs(90));
    assert_eq!(get("attache_runs_pending").await, 2.0);
    assert_eq!(get("attache_runs_pending_oldest_seconds").await, 90.0);
    let run = device.claim().await;
    let (id, epoch) = (run["task_run_id"].as_str().unwrap().to_owned(), run["epoch"].clone());
    assert_eq!((get("attache_runs_pending").await, get("attache_runs_running").await), (1.0, 1.0));
    let ask = json!({"epoch": epoch, "tool": "Bash", "input": {"command": "ls"}});
    let asked = device.client.post(&format!("/api/v1/task-runs/{id}/permission-requests"), ask).await.expect(201);
    world.advance(Duration::from_secs(10));
    assert_eq!(get("attache_approvals_pending").await, 1.0);
    assert_eq!(get("attache_approvals_pending_oldest_seconds").await, 10.0);
    let decide = format!("/api/v1/permission-requests/{}/decision", asked["permission_request_id"].as_str().unwrap());
    world.owner.post(&decide, json!({"approved": true})).await.expect(200);
    assert_eq!(get("attache_approvals_pending").await, 0.0);
    let done = json!({"epoch": epoch, "output": {"text": "done"}});
    device.client.post(&format!("/api/v1/task-runs/{id}/complete"), done).await.expect(200);
    assert_eq!(get("attache_runs_ended_total{end=\"completed\"}").await, 1.0);
    let other = device.claim().await;
    let failed = json!({"epoch": other["epoch"], "output": {"error": "no", "code": "host_crashed"}});
    let path = format!("/api/v1/task-runs/{}/fail", other["task_run_id"].as_str().unwrap());
    device.client.post(&path, failed).await.expect(200);
    assert_eq!(get("attache_runs_ended_total{end=\"host_crashed\"}").await, 1.0);
    assert_eq!(get("attache_deliveries_pending").await, 0.0);
    assert!(get("attache_disk_free_bytes").await > 0.0);
}

#[tokio::test]
async fn the_store_reports_commit_times_and_batch_sizes() {
    let world = World::timed(Engine::Sqlite, |_| {}).await;
    world.agent("builder").await;
    for name in ["attache_store_commit_seconds", "attache_store_batch_size", "attache_store_read_seconds"] {
        let count = metric(&world, &format!("{name}_count")).await.unwrap_or_else(|| panic!("there is no {name}"));
        assert!(count >= 1.0, "{name}: {count}");
        let all = metric(&world, &format!("{name}_bucket{{le=\"+Inf\"}}")).await.unwrap();
        assert!(all >= count, "{name}: {all} of {count}");
        assert!(metric(&world, &format!("{name}_sum")).await.is_some());
    }
}
