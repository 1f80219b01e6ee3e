//! A task passed between agents has a hop limit, so that it can't circulate.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_chain_of_calls_ends_after_eight_hops() {
    let world = World::start().await;
    world.agent("builder").await;
    let mut parent = world.run("builder").await["task_run_id"].clone();
    let child = |parent: &serde_json::Value| json!({"agent_id": "builder", "parent_task_run_id": parent});
    for _ in 0..8 {
        let created = world.owner.post("/api/v1/task-runs", child(&parent)).await.expect(201);
        assert_eq!(created["parent_task_run_id"], parent);
        parent = created["task_run_id"].clone();
    }
    let refused = world.owner.post("/api/v1/task-runs", child(&parent)).await;
    assert_eq!(refused.refusal(), (409, "loop_refused".to_owned()));
    let unknown = json!("run_00000000000000000000000000000001");
    let refused = world.owner.post("/api/v1/task-runs", child(&unknown)).await;
    assert_eq!(refused.refusal(), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn the_number_of_hops_is_an_option() {
    let world = World::tuned(|options| options.hops = 0).await;
    world.agent("builder").await;
    let parent = world.run("builder").await["task_run_id"].clone();
    let child = json!({"agent_id": "builder", "parent_task_run_id": parent});
    assert_eq!(world.owner.post("/api/v1/task-runs", child).await.refusal(), (409, "loop_refused".to_owned()));
}
