//! Who is notified of what: the end of a call, and a permission request that waits for a person.

use serde_json::json;

use super::receiver::{ReceiverAnswer, WebhookReceiver, completed, read, secret, tried, world};
use crate::world::{Engine, on_all};

const START: &str = "2023-11-14T22:13:20.000Z";

on_all! {
    the_end_of_a_call_is_delivered_signed_and_recorded
    a_task_accepts_a_callback_and_a_budget_like_a_call
    failed_and_cancelled_runs_are_delivered_too
    a_pending_permission_goes_to_the_runs_callback_or_the_agents_webhook
    the_query_of_a_url_is_sent_and_never_shown
    a_run_without_a_callback_sends_nothing
    a_webhook_does_not_say_what_a_private_agent_is_asked
}

async fn the_end_of_a_call_is_delivered_signed_and_recorded(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let body = json!({"task": "count", "agent_type": "builder", "callback_url": receiver.url()});
    let call = world.owner.post("/api/a2a/call", body).await.expect(200)["call_id"].as_str().unwrap().to_owned();
    let run = device.claim().await["task_run_id"].as_str().unwrap().to_owned();
    world.advance(std::time::Duration::from_millis(1500));
    let output = json!({"text": "nine", "details": {"n": 9}});
    let done = json!({"epoch": 1, "output": output, "usage": {"tokens": 12, "cost_usd": 0.5}});
    device.client.post(&format!("/api/v1/task-runs/{run}/complete"), done).await.expect(200);

    let told = receiver.next().await;
    let result = world.owner.get(&format!("/api/a2a/result/{call}")).await.expect(200);
    let ended = "2023-11-14T22:13:21.500Z";
    let expected = json!({
        "event": "run_ended", "call_id": call, "task_run_id": run, "status": "completed",
        "result": {"summary": "nine", "details": {"n": 9}}, "error": null, "code": null,
        "stats": {"duration_ms": 1500, "tokens": 12, "cost": 0.5}, "ended_at": ended,
    });
    assert_eq!(told.json(), expected);
    assert_eq!((&told.json()["result"], &told.json()["stats"]), (&result["result"], &result["stats"]));
    assert_eq!((told.place.as_str(), &told.headers["content-type"]), ("/done", &"application/json".parse().unwrap()));
    let verified = told.verify(&secret(&world.owner).await, world.env.now()).unwrap();
    let delivery = run.replace("run_", "dlv_");
    assert_eq!(verified.delivery, delivery);
    assert!(told.verify("wh_other", world.env.now()).is_err());

    let shown = json!({
        "delivery_id": delivery, "kind": "run_ended", "task_run_id": run, "permission_request_id": null,
        "url": receiver.url(), "state": "delivered", "attempts": 1, "next_attempt_at": null, "last_attempt_at": ended,
        "last_status": 200, "last_error": null, "created_at": ended, "delivered_at": ended,
    });
    assert_eq!(tried(&world, &delivery, 1, "delivered").await, shown);
    for query in ["", "?state=delivered", &format!("?task_run_id={run}")] {
        let list = world.owner.get(&format!("/api/v1/deliveries{query}")).await.expect(200);
        assert_eq!(list, json!({"deliveries": [shown], "next_cursor": null}), "{query}");
    }
    let none = world.owner.get("/api/v1/deliveries?state=pending").await.expect(200);
    assert_eq!(none, json!({"deliveries": [], "next_cursor": null}));
    let row = json!({"delivery_id": delivery, "task_run_id": run, "attempt": 1, "status": 200});
    assert_eq!(world.audit("delivery.delivered").await, [("system".to_owned(), row)]);
    assert_eq!(receiver.count(), 1);
}

async fn a_task_accepts_a_callback_and_a_budget_like_a_call(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let task = |url: &str| {
        json!({"task": {"description": "count"}, "callback_url": url, "callback_events": ["approval"],
            "budget": {"tokens": 9}})
    };
    let refused = world.owner.post("/api/a2a/v1/tasks", task("https://10.0.0.1/")).await;
    assert_eq!(refused.refusal(), (403, "egress_refused".to_owned()));
    world.owner.post("/api/a2a/v1/tasks", task(&receiver.url())).await.expect(201);
    let claimed = device.claim().await;
    assert_eq!(claimed["input"], json!({"text": "count"}));
    let run = format!("/api/v1/task-runs/{}", claimed["task_run_id"].as_str().unwrap());
    let asked = json!({"epoch": 1, "tool": "rm", "input": {"path": "a.old"}});
    device.client.post(&format!("{run}/permission-requests"), asked).await.expect(201);
    assert_eq!(receiver.next().await.json()["event"], "permission_requested");
    let used = json!({"epoch": 1, "usage": {"tokens": 10}});
    device.client.post(&format!("{run}/progress"), used).await;
    let told = receiver.next().await.json();
    assert_eq!((&told["event"], &told["code"]), (&json!("run_ended"), &json!("quota_exceeded")));
}

async fn failed_and_cancelled_runs_are_delivered_too(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let create = json!({"agent_id": "builder", "callback_url": receiver.url(), "callback_events": ["ended"]});
    for (verb, body, status, error, code) in [
        ("fail", json!({"epoch": 1, "output": {"error": "no disk"}}), "failed", "no disk", "task_failed"),
        ("cancel", json!({"reason": "not needed"}), "cancelled", "not needed", "cancelled"),
    ] {
        let run = world.owner.post("/api/v1/task-runs", create.clone()).await.expect(201)["task_run_id"].clone();
        let run = run.as_str().unwrap();
        device.claim().await;
        let who = if verb == "fail" { &device.client } else { &world.owner };
        who.post(&format!("/api/v1/task-runs/{run}/{verb}"), body).await.expect(200);
        let expected = json!({
            "event": "run_ended", "call_id": run.replace("run_", "a2a-"), "task_run_id": run, "status": status,
            "result": null, "error": error, "code": code,
            "stats": {"duration_ms": 0, "tokens": null, "cost": null}, "ended_at": START,
        });
        assert_eq!(receiver.next().await.json(), expected);
    }
}

async fn a_pending_permission_goes_to_the_runs_callback_or_the_agents_webhook(engine: Engine) {
    let (callback, webhook) = (WebhookReceiver::start(&[]).await, WebhookReceiver::start(&[]).await);
    let (world, device) = world(engine, |_| {}).await;
    let policy = json!({"approvals": {"webhook_url": format!("{}?key=hunter2", webhook.url())}});
    let account = world.owner.patch("/api/v1/agent-accounts/builder", policy).await.expect(200);
    assert_eq!(account["approvals"], json!({"webhook_url": format!("{}?key=***", webhook.url())}));
    let asks = json!({"epoch": 1, "tool": "shell", "input": {"command": "make"}, "cwd": "/src", "paths": ["/src/a"],
        "reason": "to build", "risk": "low", "diff": "+all: done\n", "undisclosed": ["environment"]});
    for (events, receiver, of) in
        [(json!(["ended", "approval"]), &callback, ""), (json!(["ended"]), &webhook, "?agent_id=builder")]
    {
        let create = json!({"agent_id": "builder", "callback_url": callback.url(), "callback_events": events});
        let run = world.owner.post("/api/v1/task-runs", create).await.expect(201)["task_run_id"].clone();
        let run = run.as_str().unwrap();
        device.claim().await;
        let asked = device.client.post(&format!("/api/v1/task-runs/{run}/permission-requests"), asks.clone()).await;
        let permission = asked.expect(201)["permission_request_id"].as_str().unwrap().to_owned();
        let told = receiver.next().await;
        let expected = json!({
            "event": "permission_requested", "permission_request_id": permission, "task_run_id": run,
            "agent_name": "builder", "tool": "shell", "input": {"command": "make"}, "cwd": "/src",
            "paths": ["/src/a"], "reason": "to build", "risk": "low", "diff": "+all: done\n",
            "undisclosed": ["environment"], "expires_at": "2023-11-15T22:13:20.000Z",
            "decide_url": format!("{}/approvals/{permission}", world.hub.origin()),
        });
        assert_eq!(told.json(), expected);
        assert_eq!(told.id(), permission.replace("prm_", "dlv_"));
        let secret = world.owner.get(&format!("/api/v1/deliveries/secret{of}")).await.expect(200);
        told.verify(secret["secret"].as_str().unwrap(), world.env.now()).unwrap();
        let shown = tried(&world, told.id(), 1, "delivered").await;
        assert_eq!(
            (&shown["kind"], &shown["permission_request_id"]),
            (&json!("permission_requested"), &json!(permission))
        );
        world.owner.post(&format!("/api/v1/task-runs/{run}/cancel"), json!({})).await.expect(200);
        assert_eq!(callback.next().await.json()["status"], "cancelled");
    }
    assert_eq!((callback.count(), webhook.count()), (3, 1));
}

async fn the_query_of_a_url_is_sent_and_never_shown(engine: Engine) {
    let receiver = WebhookReceiver::start(&[ReceiverAnswer::Status(404)]).await;
    let (world, device) = world(engine, |_| {}).await;
    let url = format!("{}?key=hunter2&x", receiver.url());
    let delivery = completed(&world.owner, &device, &url).await;
    assert_eq!(receiver.next().await.place, "/done?key=hunter2&x");
    tried(&world, &delivery, 1, "pending").await;
    assert_eq!(read(&world, &delivery).await["url"], format!("{}?key=***&***", receiver.url()));
    let run = delivery.replace("dlv_", "run_");
    for path in
        ["/api/v1/deliveries", "/api/v1/audit?limit=200", "/api/v1/task-runs", &format!("/api/v1/task-runs/{run}")]
    {
        let body = world.owner.get(path).await.body;
        assert!(!String::from_utf8_lossy(&body).contains("hunter2"), "{path}");
    }
    let back = json!({"approvals": {"webhook_url": format!("{}?key=***", receiver.url())}});
    let refused = world.owner.patch("/api/v1/agent-accounts/builder", back).await;
    assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()));
}

async fn a_run_without_a_callback_sends_nothing(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |_| {}).await;
    let run = world.run("builder").await["task_run_id"].as_str().unwrap().to_owned();
    device.claim().await;
    let done = json!({"epoch": 1, "output": {"text": "nine"}});
    device.client.post(&format!("/api/v1/task-runs/{run}/complete"), done).await.expect(200);
    let told = completed(&world.owner, &device, &receiver.url()).await;
    assert_eq!(receiver.next().await.id(), told);
    let list = world.owner.get("/api/v1/deliveries").await.expect(200);
    assert_eq!(list["deliveries"].as_array().unwrap().len(), 1);
    let alone = json!({"agent_id": "builder", "callback_events": ["approval"]});
    let refused = world.owner.post("/api/v1/task-runs", alone).await;
    assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()));
}

async fn a_webhook_does_not_say_what_a_private_agent_is_asked(engine: Engine) {
    let receiver = WebhookReceiver::start(&[]).await;
    let (world, device) = world(engine, |options| options.tools = Some("/mcp".to_owned())).await;
    let private = json!({"name": "local", "callers": "owner", "owner": "owner"});
    world.owner.post("/api/v1/agent-accounts", private).await.expect(201);
    let create = json!({"agent_id": "builder", "callback_url": receiver.url(), "callback_events": ["approval"]});
    world.owner.post("/api/v1/task-runs", create).await.expect(201);
    let run = world.anonymous().key(device.claim().await["mcp"]["token"].as_str().unwrap());
    let call = json!({"agent_id": "local", "input": {"text": "cat admin.key"}});
    assert_eq!(run.post("/api/v1/task-runs", call).await.status, 409);
    let told = receiver.next().await.json();
    assert_eq!((&told["tool"], &told["private"]), (&json!("remote_agent/local"), &json!(true)));
    assert_eq!(told["input"], json!(null));
    assert!(!told.to_string().contains("cat admin.key"), "{told}");
}
