//! What becomes of a run when the model account of its agent reaches a usage limit.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    people::person,
    world::{Engine, TestDevice, World, on_all},
};

on_all! {
    a_run_waits_for_the_limit_to_reset_and_goes_on
    a_run_that_waits_too_long_fails
    a_run_that_waits_can_be_cancelled
    the_fallback_agent_goes_on_with_the_task
    a_worker_can_not_name_the_run_that_goes_on
    only_an_agent_that_the_caller_may_use_can_be_the_fallback
    the_fallback_agent_plans_first_if_its_owner_wants_it
    ; // These expect that a change is known at once, as it is to the node that made it.
    alone:
    the_fallback_agent_gets_only_what_the_caller_may_send_it_then
}

const HOUR: Duration = Duration::from_secs(60 * 60);

struct LimitFixture {
    world: World,
    device: TestDevice,
}

impl LimitFixture {
    async fn begin(engine: Engine, on_limit: Option<&str>) -> Self {
        let world = World::timed(engine, |options| options.tools = Some("/mcp".to_owned())).await;
        let agent = world.agent("builder").await;
        if let Some(on_limit) = on_limit {
            let path = format!("/api/v1/agent-accounts/{agent}");
            let set = world.owner.patch(&path, json!({"on_limit": on_limit})).await.expect(200);
            assert_eq!(set["on_limit"], on_limit);
        }
        let device = world.device(&agent).await;
        Self { world, device }
    }

    async fn ask(&self, fallback: Option<&str>) -> Value {
        let mut body = json!({"agent_id": "builder", "input": {"text": "build"}, "workspace_root": "/src"});
        if let Some(fallback) = fallback {
            body["fallback_agent_id"] = json!(fallback);
        }
        self.world.owner.post("/api/v1/task-runs", body).await.expect(201)
    }

    /// Claims the run and reports that a limit was met.
    async fn meet_limit(&self, resets_in: Option<Duration>) -> Value {
        let claim = self.device.claim().await;
        self.report_limit(&claim, resets_in).await
    }

    async fn report_limit(&self, claim: &Value, resets_in: Option<Duration>) -> Value {
        let resets_at = resets_in.map(|wait| self.world.env.now().plus(wait).to_string());
        let output =
            json!({"error": "limit reached", "code": "usage_limit", "resets_at": resets_at, "continued_by": "run_1"});
        let body = json!({"epoch": claim["epoch"], "output": output, "usage": {"tokens": 30}});
        let path = format!("{}/fail", path_of(claim));
        self.device.client.post(&path, body).await.expect(200);
        self.world.owner.get(&path_of(claim)).await.expect(200)
    }
}

fn path_of(run: &Value) -> String {
    format!("/api/v1/task-runs/{}", run["task_run_id"].as_str().unwrap())
}

async fn a_run_waits_for_the_limit_to_reset_and_goes_on(engine: Engine) {
    let at = LimitFixture::begin(engine, Some("wait")).await;
    let run = at.ask(None).await;
    let resets = at.world.env.now().plus(HOUR);
    let waits = at.meet_limit(Some(HOUR)).await;
    let until = resets.plus(Duration::from_secs(15)).to_string();
    assert_eq!((&waits["status"], &waits["deferred_until"]), (&json!("pending"), &json!(until)));
    assert_eq!((&waits["attempt"], &waits["task_result"]), (&json!(0), &Value::Null), "it uses no attempt");
    assert_eq!(at.world.audit("task.deferred").await[0].1, json!({"until": until, "usage": {"tokens": 30}}));

    at.world.advance(HOUR);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(at.device.try_claim().await, Value::Null, "nobody can claim it before");
    at.world.advance(Duration::from_secs(16));
    at.world.until(&path_of(&run), |run| run["deferred_until"].is_null()).await;
    let again = at.device.claim().await;
    assert_eq!((&again["epoch"], &again["attempt"]), (&json!(2), &json!(1)));
    let done = json!({"epoch": 2, "output": {"text": "built"}});
    at.device.client.post(&format!("{}/complete", path_of(&run)), done).await.expect(200);

    // An agent that doesn't know when its limit resets tries again after a while.
    at.ask(None).await;
    let waits = at.meet_limit(None).await;
    assert_eq!(waits["deferred_until"], json!(at.world.env.now().plus(HOUR / 2).to_string()));
}

async fn a_run_that_waits_too_long_fails(engine: Engine) {
    let at = LimitFixture::begin(engine, Some("wait")).await;
    at.ask(None).await;
    let failed = at.meet_limit(Some(9 * 24 * HOUR)).await;
    assert_eq!((&failed["status"], &failed["task_result"]["code"]), (&json!("failed"), &json!("usage_limit")));
}

async fn a_run_that_waits_can_be_cancelled(engine: Engine) {
    let at = LimitFixture::begin(engine, Some("wait")).await;
    at.ask(None).await;
    let waits = at.meet_limit(Some(HOUR)).await;
    let cancelled = at.world.owner.post(&format!("{}/cancel", path_of(&waits)), json!({})).await.expect(200);
    assert_eq!((&cancelled["status"], &cancelled["deferred_until"]), (&json!("cancelled"), &Value::Null));
    at.world.advance(2 * HOUR);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(at.device.try_claim().await, Value::Null);
}

async fn the_fallback_agent_goes_on_with_the_task(engine: Engine) {
    let at = LimitFixture::begin(engine, None).await;
    let other = at.world.agent("other").await;
    let other = at.world.device(&other).await;
    let first = at.ask(Some("other")).await;
    let failed = at.meet_limit(Some(HOUR)).await;
    assert_eq!((&failed["status"], &failed["task_result"]["code"]), (&json!("failed"), &json!("usage_limit")));
    let next = other.claim().await;
    assert_eq!(failed["task_result"]["continued_by"], next["task_run_id"]);
    let next = at.world.owner.get(&path_of(&next)).await.expect(200);
    assert_eq!((&next["continues"], &next["input"]), (&first["task_run_id"], &json!({"text": "build"})));
    assert_eq!((&next["conversation_id"], &next["caller"]), (&first["conversation_id"], &first["caller"]));
    assert_eq!(next["workspace_root"], Value::Null, "a folder of one device means nothing to another");

    // A repeated report finds the same run.
    assert_eq!(other.try_claim().await, Value::Null);
    // Without a fallback, and where the agent's owner wants it so, the run fails.
    at.ask(None).await;
    assert_eq!(at.meet_limit(None).await["task_result"]["continued_by"], Value::Null);
    at.world.owner.patch("/api/v1/agent-accounts/builder", json!({"on_limit": "fail"})).await.expect(200);
    at.ask(Some("other")).await;
    assert_eq!(at.meet_limit(None).await["task_result"]["continued_by"], Value::Null);
    assert_eq!(other.try_claim().await, Value::Null);
    // An agent that is gone by then gets nothing.
    at.world.owner.patch("/api/v1/agent-accounts/builder", json!({"on_limit": "fallback"})).await.expect(200);
    at.ask(Some("other")).await;
    at.world.owner.delete("/api/v1/agent-accounts/other").await.expect(200);
    assert_eq!(at.meet_limit(None).await["task_result"]["code"], "usage_limit");
}

async fn a_worker_can_not_name_the_run_that_goes_on(engine: Engine) {
    let at = LimitFixture::begin(engine, Some("fail")).await;
    at.ask(None).await;
    assert_eq!(at.meet_limit(None).await["task_result"].get("continued_by"), None);
}

async fn only_an_agent_that_the_caller_may_use_can_be_the_fallback(engine: Engine) {
    let at = LimitFixture::begin(engine, None).await;
    let ask = |fallback: &str| json!({"agent_id": "builder", "fallback_agent_id": fallback});
    let refusal = |reply: &crate::world::HttpReply| reply.refusal().0;
    let owner = &at.world.owner;
    assert_eq!(refusal(&owner.post("/api/v1/task-runs", ask("nobody")).await), 404);
    assert_eq!(refusal(&owner.post("/api/v1/task-runs", ask("builder")).await), 400);
    let folder = json!({"agent_id": "builder", "fallback_agent_id": "builder", "task_type": "awcp"});
    assert!(matches!(refusal(&owner.post("/api/v1/task-runs", folder).await), 400 | 403));

    let (ann, ben) = (person(&at.world, "ann", "admin").await, person(&at.world, "ben", "operator").await);
    let private = json!({"name": "anns", "callers": "owner"});
    ann.post("/api/v1/agent-accounts", private).await.expect(201);
    let refused = ben.post("/api/v1/task-runs", ask("anns")).await;
    assert!(matches!(refusal(&refused), 403 | 404), "{refused:?}");

    // A run's token passes work on with the rights of its run, and names nobody else.
    at.ask(None).await;
    let claim = at.device.claim().await;
    let token = claim["mcp"]["token"].as_str().unwrap();
    for name in ["second", "third"] {
        at.world.agent(name).await;
    }
    let task = json!({"agent_id": "second", "fallback_agent_id": "third"});
    let refused = at.world.anonymous().key(token).post("/api/v1/task-runs", task).await;
    assert!(matches!(refusal(&refused), 403 | 404), "{refused:?}");
}

/// The caller owns the first agent and chooses when its limit is met: that could be long after the right was taken away.
async fn the_fallback_agent_gets_only_what_the_caller_may_send_it_then(engine: Engine) {
    let at = LimitFixture::begin(engine, None).await;
    let owner = &at.world.owner;
    at.world.agent("other").await;
    let other = at.world.device("other").await;
    let ask = json!({"agent_id": "builder", "fallback_agent_id": "other", "input": {"text": "build"}});
    let (agent, user) = ("/api/v1/agent-accounts/other", "/api/v1/users/ben");
    let ben = person(&at.world, "ben", "operator").await;
    for change in ["nothing", "private", "demoted", "removed"] {
        ben.post("/api/v1/task-runs", ask.clone()).await.expect(201);
        let claim = at.device.claim().await;
        match change {
            "private" => drop(owner.patch(agent, json!({"callers": "owner"})).await.expect(200)),
            "demoted" => drop(owner.patch(user, json!({"role": "viewer"})).await.expect(200)),
            "removed" => drop(owner.delete(user).await.expect(200)),
            _ => {}
        }
        let failed = at.report_limit(&claim, None).await;
        assert_eq!(failed["task_result"]["code"], "usage_limit", "{change}");
        if change == "nothing" {
            let next = other.claim().await;
            assert_eq!(failed["task_result"]["continued_by"], next["task_run_id"]);
            let done = json!({"epoch": next["epoch"], "output": {}});
            other.client.post(&format!("{}/complete", path_of(&next)), done).await.expect(200);
        } else {
            assert_eq!(failed["task_result"]["continued_by"], Value::Null, "{change}");
            assert_eq!(other.try_claim().await, Value::Null, "{change}");
        }
        owner.patch(agent, json!({"callers": "everyone"})).await.expect(200);
        if change == "demoted" {
            owner.patch(user, json!({"role": "operator"})).await.expect(200);
        }
    }
}

async fn the_fallback_agent_plans_first_if_its_owner_wants_it(engine: Engine) {
    let at = LimitFixture::begin(engine, None).await;
    at.world.agent("other").await;
    let other = at.world.device("other").await;
    let first = json!({"approvals": {"mode": "plan_first"}});
    at.world.owner.patch("/api/v1/agent-accounts/other", first).await.expect(200);
    at.ask(Some("other")).await;
    assert_eq!(at.meet_limit(None).await["task_result"]["continued_by"], Value::Null, "it can't be held to a plan");

    let plans = json!({"extensions": [{"uri": "https://attache.dev/ext/plans/v1"}]});
    other.client.post("/api/v1/agent-runtimes/runtime/heartbeat", plans).await.expect(200);
    at.ask(Some("other")).await;
    let failed = at.meet_limit(None).await;
    let next = other.claim().await;
    assert_eq!(failed["task_result"]["continued_by"], next["task_run_id"]);
    assert_eq!(next["permission_mode"], "plan_first");
}
