//! Quotas hold under concurrency, runs that exceed them are stopped, and usage can be read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinSet};

use crate::{
    call::watcher::{Socket, call, result},
    work::ClaimedRunFixture,
    world::{Engine, HttpReply, TestCaller, World, on_all},
};

const QUOTAS: &str = "/api/v1/quotas";

on_all! {
    exactly_a_thousand_of_ten_thousand_calls_pass
    runs_that_report_together_do_not_overspend
    a_run_over_its_quota_is_stopped_and_its_worker_notified
    a_worker_on_a_channel_is_stopped
    usage_of_a_cancelled_run_is_counted
    usage_is_kept_by_day_and_by_call
    a_child_run_gets_what_is_left_of_the_budget
    a_claim_has_the_remaining_budget
    reserved_quota_can_be_retried_after_a_minute
    quotas_are_set_read_and_removed
}

async fn put(client: &TestCaller, body: Value) -> HttpReply {
    client.with("content-type", "application/json").call(Method::PUT, QUOTAS, body.to_string()).await
}

async fn exactly_a_thousand_of_ten_thousand_calls_pass(engine: Engine) {
    const CALLS: usize = 10_000;
    const CALLERS: usize = 64;
    const LIMIT: usize = 1_000;
    let world = World::timed(engine, |options| options.sweep_every = Duration::from_secs(60)).await;
    world.agent("builder").await;
    put(&world.owner, json!({"agent": "builder", "calls": LIMIT})).await.expect(200);
    let (next, passed, refused) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (next, passed, refused) = (next.clone(), passed.clone(), refused.clone());
        let (address, bearer) = (world.address, world.owner.header("authorization").to_owned());
        callers.spawn(async move {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            let connection = tokio::spawn(connection);
            let body = Bytes::from_static(br#"{"task":"x","agent_type":"builder"}"#);
            while next.fetch_add(1, Ordering::Relaxed) < CALLS {
                let request = Request::post("/api/a2a/call")
                    .header(header::HOST, address.to_string())
                    .header(header::AUTHORIZATION, &bearer)
                    .header(header::CONTENT_TYPE, "application/json")
                    .body(Full::new(body.clone()))
                    .unwrap();
                let reply = sender.send_request(request).await.unwrap();
                match reply.status().as_u16() {
                    200 => passed.fetch_add(1, Ordering::Relaxed),
                    429 => refused.fetch_add(1, Ordering::Relaxed),
                    other => panic!("{other}"),
                };
                reply.into_body().collect().await.unwrap();
            }
            connection.abort();
        });
    }
    callers.join_all().await;
    assert_eq!((passed.load(Ordering::Relaxed), refused.load(Ordering::Relaxed)), (LIMIT, CALLS - LIMIT));
    let quota = &world.owner.get(QUOTAS).await.expect(200)["quotas"][0];
    assert_eq!((&quota["held"]["calls"], &quota["spent"]["calls"]), (&json!(LIMIT), &json!(0)));
}

/// Thirty runs want ten tokens each out of a hundred, all at once.
async fn runs_that_report_together_do_not_overspend(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    put(&world.owner, json!({"agent": "builder", "tokens": 100, "cost_usd": 1})).await.expect(200);
    let mut asking = JoinSet::new();
    for _ in 0..30 {
        let owner = world.owner.clone();
        let body = json!({"agent_id": "builder", "budget": {"tokens": 10, "cost_usd": 0.1}});
        asking.spawn(async move { owner.post("/api/v1/task-runs", body).await.status });
    }
    let created = asking.join_all().await.into_iter().filter(|status| *status == 201).count();
    assert_eq!(created, 10, "what they hold covers them");
    let mut working = JoinSet::new();
    for _ in 0..created {
        let run = device.claim().await["task_run_id"].as_str().unwrap().to_owned();
        let device = device.client.clone();
        working.spawn(async move {
            let used = |tokens: u64| json!({"usage": {"tokens": tokens, "cost_usd": 0.05}});
            let path = format!("/api/v1/task-runs/{run}");
            device.post(&format!("{path}/progress"), used(4)).await.expect(200);
            let mut body = used(6);
            body["output"] = json!({"text": "done"});
            device.post(&format!("{path}/complete"), body).await.expect(200);
        });
    }
    working.join_all().await;
    let quota = world.owner.get(QUOTAS).await.expect(200)["quotas"][0].clone();
    assert_eq!(quota["spent"], json!({"calls": 10, "tokens": 60, "cost_usd": 0.5}));
    assert_eq!(quota["held"], json!({"calls": 0, "tokens": 0, "cost_usd": 0}));
    // Unused reservations are available to others.
    let body = json!({"agent_id": "builder", "budget": {"tokens": 40}});
    world.owner.post("/api/v1/task-runs", body.clone()).await.expect(201);
    let refused = world.owner.post("/api/v1/task-runs", body).await;
    assert_eq!(refused.refusal(), (429, "quota_exceeded".to_owned()));
}

async fn a_run_over_its_quota_is_stopped_and_its_worker_notified(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let (world, device) = (&work.world, &work.device);
    put(&world.owner, json!({"agent": "builder", "tokens": 100})).await.expect(200);
    let said = device.client.post(&work.path("/progress"), json!({"usage": {"tokens": 90}})).await.expect(200);
    assert_eq!(said["status"], "running");
    let said = device.client.post(&work.path("/progress"), json!({"message": "more", "usage": {"tokens": 101}})).await;
    assert_eq!(said.expect(200)["status"], "failed");
    let run = work.read().await;
    assert_eq!((&run["status"], &run["task_result"]["code"]), (&json!("failed"), &json!("quota_exceeded")));
    assert_eq!(run["usage"], json!({"tokens": 101}));
    // The heartbeat reports it too, for a device that reports nothing for a while.
    let beat = json!({"running": [work.run]});
    let beat = device.client.post("/api/v1/agent-runtimes/runtime/heartbeat", beat).await.expect(200);
    assert_eq!(beat["cancelled"], json!([work.run]));
    let refused = world.owner.post("/api/v1/task-runs", json!({"agent_id": "builder"})).await;
    assert_eq!(refused.refusal(), (429, "quota_exceeded".to_owned()));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    let wanted = "The daily quota of the agent `builder` is used up: 101 of 100 tokens used, 0 reserved by runs \
                  in progress.";
    assert_eq!(message, wanted);
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{wait}");
    world.advance(Duration::from_secs(wait));
    world.owner.post("/api/v1/task-runs", json!({"agent_id": "builder"})).await.expect(201);
    // An invalid report is rejected with a message.
    for (usage, field) in [(json!({"tokens": -1}), "usage.tokens"), (json!({"cost_usd": "1"}), "usage.cost_usd")] {
        let reply = device.client.post(&work.path("/progress"), json!({"usage": usage})).await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()));
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(message, format!("`{field}` must be a non-negative number."));
    }
}

async fn a_worker_on_a_channel_is_stopped(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let (mut worker, _) = crate::channel::peer::worker(&world, "builder").await;
    put(&world.owner, json!({"agent": "builder", "cost_usd": 0.5})).await.expect(200);
    worker.notify(json!({"action": "ready", "credits": 1})).await;
    let run = world.run("builder").await["task_run_id"].clone();
    worker.find_action("execute").await;
    let usage = json!({"tokens": 5, "cost_usd": 0.75});
    worker.notify(json!({"action": "progress", "task_run_id": run, "epoch": 1, "usage_stats": usage})).await;
    let stop = worker.find_action("cancel").await;
    assert_eq!(stop["payload"]["task_run_id"], run);
    let run = world.owner.get(&format!("/api/v1/task-runs/{}", run.as_str().unwrap())).await.expect(200);
    assert_eq!(run["task_result"]["code"], "quota_exceeded");
}

/// The worker of a cancelled run learns the cost only once its agent has stopped, after the end.
async fn usage_of_a_cancelled_run_is_counted(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let (world, device) = (&work.world, &work.device);
    put(&world.owner, json!({"agent": "builder", "tokens": 1000, "cost_usd": 5})).await.expect(200);
    device.client.post(&work.path("/progress"), json!({"epoch": 1, "usage": {"tokens": 10}})).await.expect(200);
    world.owner.post(&work.path("/cancel"), json!({})).await.expect(200);
    let spent = async || world.owner.get(QUOTAS).await.expect(200)["quotas"][0]["spent"].clone();
    assert_eq!(spent().await, json!({"calls": 1, "tokens": 10, "cost_usd": 0}));
    // The totals are written by now.
    world.owner.get("/api/v1/usage").await.expect(200);

    let total = json!({"tokens": 70, "cost_usd": 0.5});
    let late = async |path: &str, body: Value| {
        let reply = device.client.post(&work.path(path), body).await;
        assert_eq!(reply.refusal(), (409, "run_ended".to_owned()));
    };
    late("/progress", json!({"epoch": 1, "usage": {"tokens": 40}})).await;
    late("/fail", json!({"epoch": 1, "output": {"error": "stopped", "code": "cancelled"}, "usage": total})).await;
    // A total only grows, and the same one is recorded once.
    late("/progress", json!({"epoch": 1, "usage": total})).await;
    late("/progress", json!({"epoch": 1, "usage": {"tokens": 9000}})).await;
    let run = work.read().await;
    assert_eq!((&run["status"], &run["usage"]), (&json!("cancelled"), &total));
    assert_eq!(spent().await, json!({"calls": 1, "tokens": 70, "cost_usd": 0.5}));
    let rows = world.owner.get("/api/v1/usage").await.expect(200)["rows"].clone();
    let row = &rows.as_array().unwrap()[0];
    let counted = ["calls", "failed", "tokens", "cost_usd", "reported", "unknown"].map(|name| row[name].clone());
    assert_eq!(counted, [json!(1), json!(1), json!(70), json!(0.5), json!(1), json!(0)]);
    let log = world.owner.get("/api/v1/audit?limit=200").await.expect(200);
    let told: Vec<&Value> =
        log["events"].as_array().unwrap().iter().filter(|row| row["type"] == "task.usage").collect();
    assert_eq!(told.len(), 2);
    assert_eq!(told[1]["data"], json!({"task_run_id": work.run, "usage": total}));
}

async fn usage_is_kept_by_day_and_by_call(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let world = &work.world;
    let body =
        json!({"output": {"text": "x"}, "usage": {"tokens": 1500, "cost_usd": 0.05, "cost_source": "estimated"}});
    world.advance(Duration::from_secs(5));
    work.device.client.post(&work.path("/complete"), body).await.expect(200);
    let run = work.read().await;
    let report = world.owner.get("/api/v1/usage").await.expect(200);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(row["day"], run["created_at"].as_str().unwrap().split('T').next().unwrap());
    for (name, wanted) in [
        ("user_name", json!("owner")),
        ("agent_name", json!("builder")),
        ("calls", json!(1)),
        ("failed", json!(0)),
        ("tokens", json!(1500)),
        ("cost_usd", json!(0.05)),
        ("estimated", json!(1)),
        ("duration_ms", json!(5000)),
    ] {
        assert_eq!(row[name], wanted, "{name}");
    }
    let records = world.owner.get("/api/v1/usage/records?agent=builder").await.expect(200);
    let call = format!("a2a-{}", work.run.trim_start_matches("run_"));
    assert_eq!(
        records["usage_records"],
        json!([{"call_id": call, "caller": run["caller"], "callee": "builder", "tokens": 1500, "cost": 0.05,
            "cost_source": "estimated", "duration_ms": 5000}])
    );
    let other_day = world.owner.get("/api/v1/usage/records?day=2001-01-01").await.expect(200);
    assert_eq!(other_day["usage_records"], json!([]));
    // An operator sees their own usage.
    let operator = world.owner.post("/api/v1/users", json!({"name": "ann", "role": "operator"})).await;
    operator.expect(201);
    let key = json!({"name": "ann", "user": "ann", "role": "operator"});
    let key = world.owner.post("/api/v1/api-keys", key).await.expect(201);
    let operator = world.anonymous().key(key["api_key"].as_str().unwrap());
    assert_eq!(operator.get("/api/v1/usage").await.expect(200)["rows"], json!([]));
    assert_eq!(operator.get("/api/v1/usage/records").await.expect(200)["usage_records"], json!([]));
    let foreign = operator.get("/api/v1/usage/records?user=owner").await;
    let unknown = operator.get("/api/v1/usage/records?user=nobody").await;
    assert_eq!((unknown.status, &unknown.body), (200, &foreign.body), "who else there is stays unknown");
    let unknown = world.owner.get("/api/v1/usage/records?user=nobody").await;
    assert_eq!(unknown.refusal(), (404, "not_found".to_owned()));
    assert_eq!(operator.get(QUOTAS).await.refusal(), (403, "forbidden".to_owned()));
}

async fn a_child_run_gets_what_is_left_of_the_budget(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let body = json!({"agent_id": "builder", "budget": {"tokens": 100, "cost_usd": 1}});
    let parent = world.owner.post("/api/v1/task-runs", body).await.expect(201)["task_run_id"].clone();
    device.claim().await;
    let path = format!("/api/v1/task-runs/{}", parent.as_str().unwrap());
    let used = |tokens: u64| json!({"usage": {"tokens": tokens, "cost_usd": 0.25}});
    let part = |budget: Value| {
        let body = json!({"agent_id": "builder", "parent_task_run_id": parent, "budget": budget});
        world.owner.post("/api/v1/task-runs", body)
    };
    device.client.post(&format!("{path}/progress"), used(60)).await.expect(200);
    // It has no quota of its own. Its limit is its reservation.
    put(&world.owner, json!({"agent": "builder", "tokens": 1000, "cost_usd": 10})).await.expect(200);
    for (wanted, tokens, cost) in [
        (Value::Null, 40, json!(0.75)),
        (json!({"tokens": 10}), 10, json!(0.75)),
        (json!({"tokens": 50, "cost_usd": 0.5}), 40, json!(0.5)),
    ] {
        let before = world.owner.get(QUOTAS).await.expect(200)["quotas"][0]["held"].clone();
        let made = part(wanted).await.expect(201)["task_run_id"].as_str().unwrap().to_owned();
        let held = world.owner.get(QUOTAS).await.expect(200)["quotas"][0]["held"].clone();
        let tokens_more = held["tokens"].as_u64().unwrap() - before["tokens"].as_u64().unwrap();
        let cost_more = held["cost_usd"].as_f64().unwrap() - before["cost_usd"].as_f64().unwrap();
        assert_eq!((tokens_more, json!(cost_more)), (tokens, cost));
        world.owner.post(&format!("/api/v1/task-runs/{made}/cancel"), json!({})).await.expect(200);
    }
    device.client.post(&format!("{path}/progress"), used(100)).await.expect(200);
    assert_eq!(part(json!({"tokens": 1})).await.refusal(), (429, "quota_exceeded".to_owned()));
}

async fn a_claim_has_the_remaining_budget(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let claim = async |body: Value| {
        let mut body = body;
        body["agent_id"] = json!("builder");
        world.owner.post("/api/v1/task-runs", body).await.expect(201);
        device.claim().await
    };
    let end = async |run: &Value, usage: Value| {
        let path = format!("/api/v1/task-runs/{}/complete", run["task_run_id"].as_str().unwrap());
        device.client.post(&path, json!({"output": {"text": "x"}, "usage": usage})).await.expect(200);
    };
    let unlimited = claim(json!({})).await;
    assert_eq!(unlimited.get("budget"), None, "nothing limits it");
    end(&unlimited, json!({"tokens": 7})).await;

    let own = claim(json!({"budget": {"tokens": 100, "cost_usd": 0.5}})).await;
    assert_eq!(own["budget"], json!({"tokens": 100, "cost_usd": 0.5}));
    end(&own, json!({"tokens": 50})).await;

    // 57 tokens are used today.
    put(&world.owner, json!({"agent": "builder", "tokens": 1000})).await.expect(200);
    put(&world.owner, json!({"cost_usd": 2})).await.expect(200);
    let first = claim(json!({})).await;
    assert_eq!(first["budget"], json!({"tokens": 943, "cost_usd": 2}));
    end(&first, json!({"tokens": 900, "cost_usd": 1.75})).await;
    let nearly = claim(json!({})).await;
    assert_eq!(nearly["budget"], json!({"tokens": 43, "cost_usd": 0.25}), "the rest, and no more");
    end(&nearly, json!({"tokens": 3})).await;
    let smaller = claim(json!({"budget": {"tokens": 10}})).await;
    assert_eq!(smaller["budget"], json!({"tokens": 10, "cost_usd": 0.25}), "the smaller of both");
}

async fn reserved_quota_can_be_retried_after_a_minute(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    put(&world.owner, json!({"agent": "builder", "tokens": 100})).await.expect(200);
    let ask = |tokens: u64| {
        let body = json!({"agent_id": "builder", "budget": {"tokens": tokens}});
        world.owner.post("/api/v1/task-runs", body)
    };
    ask(60).await.expect(201);
    let refused = ask(50).await;
    assert_eq!((refused.refusal(), refused.header("retry-after")), ((429, "quota_exceeded".to_owned()), "60"));
    let wanted = "The daily quota of the agent `builder` has too little left: 0 of 100 tokens used, 60 reserved by \
                  runs in progress. A `budget` of 40 tokens would fit.";
    assert_eq!(refused.json()["error"]["message"], wanted);
    // A request that exceeds the daily limit can't succeed before the next day.
    assert!(ask(101).await.header("retry-after").parse::<u64>().unwrap() > 60);
    ask(40).await.expect(201);
    let refused = world.owner.post("/api/v1/task-runs", json!({"agent_id": "builder"})).await;
    assert_eq!((refused.refusal().0, refused.header("retry-after")), (429, "60"));
}

async fn quotas_are_set_read_and_removed(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let set =
        put(&world.owner, json!({"user": "owner", "agent": "builder", "calls": 2, "cost_usd": 0.5})).await.expect(200);
    assert_eq!((&set["user_name"], &set["agent_name"]), (&json!("owner"), &json!("builder")));
    assert_eq!((&set["calls"], &set["tokens"], &set["cost_usd"]), (&json!(2), &Value::Null, &json!(0.5)));
    for body in
        [json!({"user": "nobody", "calls": 1}), json!({"agent": "nobody", "calls": 1}), json!({"user": "owner"})]
    {
        assert_eq!(put(&world.owner, body).await.refusal(), (404, "not_found".to_owned()));
    }
    for body in [json!({"cost_usd": -1}), json!({"cost_usd": "1"}), json!({"calls": -1}), json!({"cals": 1})] {
        assert_eq!(put(&world.owner, body).await.refusal(), (400, "invalid_request".to_owned()));
    }
    let bad = json!({"agent_id": "builder", "budget": {"cost_usd": -1}});
    assert_eq!(world.owner.post("/api/v1/task-runs", bad).await.refusal(), (400, "invalid_request".to_owned()));
    let body = json!({"task": "x", "agent_type": "builder"});
    for _ in 0..2 {
        let id = call(&world.owner, body.clone()).await;
        assert_eq!(result(&world.owner, &id).await["status"], "started");
    }
    let refused = world.owner.post("/api/a2a/call", body.clone()).await;
    assert_eq!(refused.refusal(), (429, "quota_exceeded".to_owned()));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("the user `owner` with the agent `builder`"), "{message}");
    // The same call again changes nothing.
    assert_eq!(put(&world.owner, json!({"user": "owner", "agent": "builder"})).await.status, 204);
    assert_eq!(world.owner.get(QUOTAS).await.expect(200), json!({"quotas": [], "next_cursor": null}));
    call(&world.owner, body).await;
}

/// Invalid numbers in a plain agent's frame get a reply, and its run continues.
#[tokio::test]
async fn plain_frames_with_impossible_numbers_are_refused() {
    let world = World::start().await;
    let registered = world.owner.post("/api/a2a/register", json!({"agent_id": "laptop"})).await.expect(200);
    let client = world.anonymous().key(registered["api_key"].as_str().unwrap());
    let mut socket = Socket::open(&world, "/api/a2a/connect", &client).await;
    let id = call(&world.owner, json!({"task": "x", "agent_type": "laptop"})).await;
    let task = socket.next().await.unwrap()["task_id"].clone();
    let data = json!({"summary": "x", "stats": {"tokens": -5, "cost": 0.1}});
    socket.send(json!({"type": "result", "task_id": task, "data": data})).await;
    let answer = socket.next().await.unwrap();
    assert_eq!(answer["type"], "error", "{answer}");
    assert_eq!(result(&world.owner, &id).await["status"], "running");
}
