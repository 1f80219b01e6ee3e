//! In-process agents, called in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use attache_hub::{
    control::CallHeaders,
    in_process::{AgentFailure, AgentOutput, InProcessAgent, InProcessRun},
    stream::CallDetail,
};
use attache_protocol::{
    Json,
    wire::call::{CallId, CallRequest},
};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::timeout};

use super::watcher::{Socket, call, result, timeless};
use crate::world::{Engine, PATIENCE, World};

/// Follows a script.
#[derive(Default, Clone)]
struct ScriptedAgent {
    begun: Arc<Notify>,
    go_on: Arc<Notify>,
    dropped: Arc<AtomicBool>,
}

struct DropFlag(Arc<AtomicBool>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl ScriptedAgent {
    /// Waits until the pending work was dropped.
    async fn is_dropped(&self) {
        let dropped = async {
            while !self.dropped.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, dropped).await.expect("the work is dropped");
    }
}

impl InProcessAgent for ScriptedAgent {
    async fn work(&self, work: InProcessRun) -> Result<AgentOutput, AgentFailure> {
        match work.text() {
            "fail" => Err(AgentFailure::new("no wish to")),
            "panic" => panic!("as it was told"),
            "wait" => {
                let _dropped = DropFlag(self.dropped.clone());
                self.begun.notify_one();
                self.go_on.notified().await;
                Ok(AgentOutput::text("waited"))
            }
            text => {
                work.progress("working", 0.5).await?;
                work.send_chunk("so far so good").await?;
                let context = work.context().cloned().unwrap_or_else(Json::empty_object);
                let usage = Json::from_text(r#"{"tokens":7}"#).unwrap();
                Ok(AgentOutput::text(format!("done: {text}")).details(context).usage(usage))
            }
        }
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["obey".to_owned()]
    }
}

async fn hosted(world: &World, agent: ScriptedAgent) -> attache_hub::in_process::HostedAgent {
    let key = world.owner.header("authorization").strip_prefix("Bearer ").unwrap().to_owned();
    let by = world.hub.authenticate_key(&key).await.unwrap();
    world.hub.host(&by, "inner", agent).await.unwrap()
}

/// Waits until the call has ended.
async fn ended(world: &World, id: &str) -> Value {
    let frames = Socket::open(world, &format!("/api/a2a/watch/{id}"), &world.owner).await.rest().await;
    assert!(!frames.is_empty());
    result(&world.owner, id).await
}

#[tokio::test]
async fn an_agent_never_gets_a_run_with_limits_it_does_not_enforce() {
    let world = World::start().await;
    let _hosted = hosted(&world, ScriptedAgent::default()).await;
    let body = json!({"agent_id": "inner", "input": {"text": "id"}, "sandbox": {"allow_exec": false}});
    let run = world.owner.post("/api/v1/task-runs", body).await.expect(201)["task_run_id"].as_str().unwrap().to_owned();
    let read = timeout(PATIENCE, async {
        loop {
            let read = world.owner.get(&format!("/api/v1/task-runs/{run}")).await.expect(200);
            if read["status"] != "pending" && read["status"] != "running" {
                return read;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let read = read.await.expect("the run ends");
    assert_eq!((&read["status"], &read["task_result"]["code"]), (&json!("failed"), &json!("refused")), "{read}");
}

#[tokio::test]
async fn an_in_process_agent_is_called_in_memory_and_watched_like_any_other() {
    let world = World::start().await;
    let hosted = hosted(&world, ScriptedAgent::default()).await;
    let key = world.owner.header("authorization").strip_prefix("Bearer ").unwrap().to_owned();
    let by = world.hub.authenticate_key(&key).await.unwrap();
    let request = CallRequest {
        task: "dig".to_owned(),
        agent_type: Some("obey".to_owned()),
        context: Some(Json::from_text(r#"{ "n":1e400}"#).unwrap()),
        ..CallRequest::default()
    };
    let id: CallId = world.hub.call(&by, request, CallHeaders::default()).await.unwrap();
    let mut follow = world.hub.watch_call(&by, id, CallDetail::Everything, None).await.unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = timeout(PATIENCE, follow.next()).await.unwrap() {
        frames.push(frame.text());
    }
    assert_eq!(
        frames[..2],
        [
            r#"{"type":"progress","data":{"goal":"working","progress":0.5}}"#.to_owned(),
            r#"{"type":"message","data":{"kind":"chunk","text":"so far so good"}}"#.to_owned(),
        ]
    );
    assert!(frames[2].starts_with(
        r#"{"type":"completed","data":{"result":{"summary":"done: dig","details":{ "n":1e400}},"stats":{"duration_ms":"#
    ));
    assert_eq!(frames.len(), 3);
    let account = world.owner.get("/api/v1/agent-accounts/inner").await.expect(200);
    assert_eq!(account["agent_id"], json!(hosted.agent_id()));
    assert_eq!((&account["status"], &account["runtime"]["device_name"]), (&json!("online"), &json!("in process")));
}

#[tokio::test]
async fn failures_and_panics_end_the_run_but_not_the_agent() {
    let world = World::start().await;
    let _hosted = hosted(&world, ScriptedAgent::default()).await;
    for (task, error, code) in [("fail", "no wish to", "task_failed"), ("panic", "The agent crashed.", "host_crashed")]
    {
        let id = call(&world.owner, json!({"task": task})).await;
        let ended = ended(&world, &id).await;
        assert_eq!((&ended["error"], &ended["code"]), (&json!(error), &json!(code)));
    }
    let id = call(&world.owner, json!({"task": "go on"})).await;
    assert_eq!(
        timeless(ended(&world, &id).await),
        json!({"status": "completed", "result": {"summary": "done: go on", "details": {}},
            "stats": {"duration_ms": 0, "tokens": 7, "cost": null}})
    );
}

#[tokio::test]
async fn a_cancelled_call_drops_the_work_and_others_go_on() {
    let world = World::start().await;
    let agent = ScriptedAgent::default();
    let _hosted = hosted(&world, agent.clone()).await;
    let id = call(&world.owner, json!({"task": "wait"})).await;
    timeout(PATIENCE, agent.begun.notified()).await.unwrap();
    let other = call(&world.owner, json!({"task": "meanwhile"})).await;
    assert_eq!(ended(&world, &other).await["status"], "completed", "several tasks at the same time");
    let run = id.replace("a2a-", "run_");
    world.owner.post(&format!("/api/v1/task-runs/{run}/cancel"), json!({})).await.expect(200);
    agent.is_dropped().await;
    assert_eq!(result(&world.owner, &id).await["status"], "cancelled");
}

#[tokio::test]
async fn work_in_progress_finishes_before_the_hosting_ends() {
    let world = World::start().await;
    let agent = ScriptedAgent::default();
    let hosted = hosted(&world, agent.clone()).await;
    let id = call(&world.owner, json!({"task": "wait"})).await;
    timeout(PATIENCE, agent.begun.notified()).await.unwrap();
    agent.go_on.notify_one();
    timeout(PATIENCE, hosted.stop()).await.unwrap();
    assert_eq!(result(&world.owner, &id).await["result"]["summary"], "waited");
    let id = call(&world.owner, json!({"task": "later"})).await;
    assert_eq!(result(&world.owner, &id).await["status"], "started", "nobody takes it any more");
}

#[tokio::test]
async fn work_that_does_not_end_in_time_fails_with_a_message() {
    let world = World::start().await;
    let agent = ScriptedAgent::default();
    let hosted = hosted(&world, agent.clone()).await;
    let id = call(&world.owner, json!({"task": "wait"})).await;
    timeout(PATIENCE, agent.begun.notified()).await.unwrap();
    timeout(PATIENCE, hosted.stop()).await.unwrap();
    agent.is_dropped().await;
    let ended = result(&world.owner, &id).await;
    assert_eq!((&ended["status"], &ended["code"]), (&json!("failed"), &json!("runtime_lost")), "{ended}");
    assert_eq!(ended["error"], "The program that hosts the agent was stopped.");
}

#[tokio::test]
async fn a_long_task_keeps_its_claim() {
    let lease = Duration::from_secs(1);
    let world = World::timed(Engine::Model, |options| {
        options.heartbeat_timeout = lease;
        options.claim_grace = Duration::ZERO;
    })
    .await;
    let agent = ScriptedAgent::default();
    let _hosted = hosted(&world, agent.clone()).await;
    let id = call(&world.owner, json!({"task": "wait"})).await;
    timeout(PATIENCE, agent.begun.notified()).await.unwrap();
    // Several leases long, each renewed in time.
    let run = format!("/api/v1/task-runs/{}", id.replace("a2a-", "run_"));
    for _ in 0..4 {
        world.advance(lease * 3 / 4);
        world.until(&run, |run| run["lease_expires_at"] == json!(world.env.now().plus(lease))).await;
    }
    agent.go_on.notify_one();
    assert_eq!(ended(&world, &id).await["status"], "completed");
}

/// Passes everything on, eventually to itself.
struct ForwardingAgent;

impl InProcessAgent for ForwardingAgent {
    async fn work(&self, work: InProcessRun) -> Result<AgentOutput, AgentFailure> {
        let agent_type = Some(if work.text() == "dig" { "inner" } else { "lazy" }.to_owned());
        let request = CallRequest { task: work.text().to_owned(), agent_type, ..CallRequest::default() };
        let call = work.call(request).await?;
        let mut follow = work.hub().watch_call(work.principal(), call, CallDetail::Everything, None).await?;
        while follow.next().await.is_some() {}
        let result = work.hub().call_result(work.principal(), call).await?;
        match (result.result, result.error) {
            (Some(answer), _) => Ok(AgentOutput::text(answer.summary.parse::<String>().unwrap())),
            (None, error) => Err(AgentFailure::new(error.unwrap().parse::<String>().unwrap())),
        }
    }
}

#[tokio::test]
async fn agents_can_call_each_other_but_loops_are_refused() {
    let world = World::start().await;
    let _inner = hosted(&world, ScriptedAgent::default()).await;
    let key = world.owner.header("authorization").strip_prefix("Bearer ").unwrap().to_owned();
    let by = world.hub.authenticate_key(&key).await.unwrap();
    let _lazy = world.hub.host(&by, "lazy", ForwardingAgent).await.unwrap();
    let id = call(&world.owner, json!({"task": "dig", "agent_type": "lazy"})).await;
    assert_eq!(ended(&world, &id).await["result"]["summary"], "done: dig");
    let id = call(&world.owner, json!({"task": "circle", "agent_type": "lazy"})).await;
    let ended = ended(&world, &id).await;
    assert_eq!(ended["error"], "This call would create a loop: lazy → lazy.", "{ended}");
}
