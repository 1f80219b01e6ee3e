//! Who calls whom: cloud to terminal, terminal to cloud, and terminal to terminal, always through the hub.

use attache_hub::in_process::{AgentFailure, AgentOutput, InProcessAgent, InProcessRun};
use serde_json::{Value, json};

use super::watcher::{Socket, call, register_agent, timeless};
use crate::world::{TestCaller, World};

/// The organisation's knowledge agent, hosted in process.
struct Knowledge;

impl InProcessAgent for Knowledge {
    async fn work(&self, work: InProcessRun) -> Result<AgentOutput, AgentFailure> {
        Ok(AgentOutput::text(format!("resources/docs says about `{}`: rate-limit yourself", work.text())))
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["knowledge_query".to_owned()]
    }
}

async fn host_knowledge(world: &World) -> attache_hub::in_process::HostedAgent {
    let key = world.owner.header("authorization").strip_prefix("Bearer ").unwrap().to_owned();
    let by = world.hub.authenticate_key(&key).await.unwrap();
    world.hub.host(&by, "knowledge", Knowledge).await.unwrap()
}

/// A terminal agent with its key, connected by plain frames.
async fn terminal(world: &World, name: &str) -> (TestCaller, Socket) {
    let client = world.anonymous().key(&register_agent(world, name).await);
    let socket = Socket::open(world, "/api/a2a/connect", &client).await;
    (client, socket)
}

/// Takes the next task, which must be this one, reports progress, and answers.
async fn answer(socket: &mut Socket, task: &str, context: Value, summary: &str) {
    let pushed = socket.next().await.unwrap();
    assert_eq!((&pushed["type"], &pushed["data"]), (&json!("task"), &json!({"task": task, "context": context})));
    let id = &pushed["task_id"];
    socket.send(json!({"type": "progress", "task_id": id, "data": {"goal": "reading", "progress": 0.3}})).await;
    let stats = json!({"tokens": 1500, "cost": 0.05});
    let data = json!({"summary": summary, "details": {"modules": 9}, "stats": stats});
    socket.send(json!({"type": "result", "task_id": id, "data": data})).await;
}

fn frames(summary: &str) -> Vec<Value> {
    vec![
        json!({"type": "progress", "data": {"goal": "reading", "progress": 0.3}}),
        json!({"type": "completed", "data": {"result": {"summary": summary, "details": {"modules": 9}},
            "stats": {"duration_ms": 0, "tokens": 1500, "cost": 0.05}}}),
    ]
}

#[tokio::test]
async fn the_cloud_calls_the_agent_on_a_laptop() {
    let world = World::start().await;
    let (_, mut laptop) = terminal(&world, "user123-laptop").await;
    let body = json!({"task": "analyse ~/Code/Agent", "agent_type": "user123-laptop", "context": {"files": ["a.py"]}});
    let id = call(&world.owner, body).await;
    let watcher = Socket::open(&world, &format!("/api/a2a/watch/{id}"), &world.owner).await;
    answer(&mut laptop, "analyse ~/Code/Agent", json!({"files": ["a.py"]}), "nine modules").await;
    assert_eq!(watcher.rest().await, frames("nine modules"));
}

#[tokio::test]
async fn a_terminal_calls_the_in_process_knowledge_agent() {
    let world = World::start().await;
    let _hosted = host_knowledge(&world).await;
    let (terminal, _socket) = terminal(&world, "user123-laptop").await;
    let id = call(&terminal, json!({"task": "crawler rules", "agent_type": "knowledge_query"})).await;
    let frames = Socket::open(&world, &format!("/api/a2a/watch/{id}"), &terminal).await.rest().await;
    assert_eq!(
        frames,
        [json!({"type": "completed", "data": {
            "result": {"summary": "resources/docs says about `crawler rules`: rate-limit yourself", "details": null},
            "stats": {"duration_ms": 0, "tokens": null, "cost": null}}})]
    );
}

#[tokio::test]
async fn two_laptops_reach_each_other_through_the_hub() {
    let world = World::start().await;
    let (alice, mut alices) = terminal(&world, "alice").await;
    let (bob, mut bobs) = terminal(&world, "bob").await;
    let there = call(&alice, json!({"task": "which branch?", "agent_type": "bob"})).await;
    let watcher = Socket::open(&world, &format!("/api/a2a/watch/{there}"), &alice).await;
    answer(&mut bobs, "which branch?", json!(null), "main").await;
    assert_eq!(watcher.rest().await, frames("main"));
    let back = call(&bob, json!({"task": "and yours?", "agent_type": "alice"})).await;
    answer(&mut alices, "and yours?", json!(null), "topic").await;
    let watcher = Socket::open(&world, &format!("/api/a2a/watch/{back}"), &bob).await;
    assert_eq!(watcher.rest().await, frames("topic"));
    // Bob worked on the call, so he sees it. Someone else's agent does not.
    world.agent("carol").await;
    world.owner.post("/api/v1/users", json!({"name": "carol"})).await.expect(201);
    world.owner.patch("/api/v1/agent-accounts/carol", json!({"owner": "carol"})).await.expect(200);
    let body = json!({"pairing_token": world.code("carol").await});
    let registered = world.anonymous().post("/api/a2a/register", body).await.expect(200);
    let third = world.anonymous().key(registered["api_key"].as_str().unwrap());
    assert_eq!(third.get(&format!("/api/a2a/result/{there}")).await.status, 404);
    let seen = timeless(bob.get(&format!("/api/a2a/result/{there}")).await.expect(200));
    assert_eq!(seen["result"]["summary"], "main");
}
