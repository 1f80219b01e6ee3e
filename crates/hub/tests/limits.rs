//! Run limits: only workers that declare to enforce them get the run.

use serde_json::{Value, json};

use crate::world::{Engine, World, on_all};

on_all! {
    a_device_that_does_not_enforce_a_limit_never_sees_the_run
}

async fn create(world: &World, sandbox: Value) -> String {
    let body = json!({"agent_id": "builder", "input": {"text": "id"}, "sandbox": sandbox});
    world.owner.post("/api/v1/task-runs", body).await.expect(201)["task_run_id"].as_str().unwrap().to_owned()
}

async fn a_device_that_does_not_enforce_a_limit_never_sees_the_run(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    for (sandbox, enforces, is_given) in [
        (json!({"allow_exec": false}), "", false),
        (json!({"allow_exec": false}), "cwd_only,no_network", false),
        (json!({"allow_exec": false, "cwd_only": true}), "no_exec", false),
        (json!({"allow_exec": false}), "no_exec,a_limit_of_tomorrow", true),
        (json!({"allow_exec": true, "allow_network": true, "cwd_only": false}), "", true),
    ] {
        let run = create(&world, sandbox.clone()).await;
        let pulled = device.pull_enforcing(0, enforces).await.expect(200);
        assert_eq!(pulled["task_run"]["task_run_id"] == run.as_str(), is_given, "{sandbox} {enforces}");
        let read = world.owner.get(&format!("/api/v1/task-runs/{run}")).await.expect(200);
        if is_given {
            let path = format!("/api/v1/task-runs/{run}/complete");
            device.client.post(&path, json!({"output": {"text": "done"}})).await.expect(200);
            continue;
        }
        assert_eq!((&read["status"], &read["task_result"]["code"]), (&json!("failed"), &json!("refused")), "{read}");
        assert!(read["task_result"]["error"].as_str().unwrap().contains("enforces"), "{read}");
    }
    // A refused run doesn't block the next one.
    create(&world, json!({"cwd_only": true})).await;
    let next = world.run("builder").await;
    let pulled = device.pull_enforcing(0, "").await.expect(200);
    assert_eq!(pulled["task_run"]["task_run_id"], next["task_run_id"]);
}
