//! Input over HTTP: a worker asks its caller and waits, and the caller answers or sends unsolicited input.

use std::time::Duration;

use attache_protocol::Json;
use hyper::Method;
use serde_json::{Value, json};

use crate::{
    work::ClaimedRunFixture,
    world::{Engine, on_all},
};

on_all! {
    a_question_waits_for_its_answer
    unsolicited_input_arrives_in_order
    the_same_key_returns_the_same_input
    an_answer_applies_to_the_named_question
    unsolicited_input_answers_no_question
    a_message_reaches_its_worker_unchanged
    input_outside_a_claim_is_refused
    an_unanswered_question_ends_the_run
    others_have_a_day_for_all_questions_together
    callers_without_a_credential_have_minutes
}

async fn a_question_waits_for_its_answer(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let ask = json!({"epoch": 1, "prompt": "Which branch?", "parts": [{"text": "main"}], "request_id": "q", "x": 1});
    let path = work.path("/input-requests");
    let asked = work.device.client.post(&path, ask.clone()).await.expect(201);
    let id = asked["input_request_id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("ask_"));
    assert_eq!(asked, json!({"input_request_id": id, "state": "pending", "parts": null}));
    assert_eq!(work.device.client.post(&path, ask).await.expect(201), asked, "the same name is the same question");
    assert_eq!(work.state().await, ("running".to_owned(), json!("input"), json!("remote_waiting")));
    let (client, answer) = (work.device.client.clone(), format!("{path}/{id}?wait_ms=30000"));
    let waiting = tokio::spawn(async move { client.get(&answer).await });
    let given = work.world.owner.post(&work.path("/input"), json!({"text": "release \"1\""})).await.expect(200);
    assert_eq!((&given["task_run_id"], &given["status"]), (&json!(work.run), &json!("running")));
    assert!(given["input_id"].as_str().unwrap().starts_with("inp_"));
    let parts = json!([{"text": "release \"1\""}]);
    let answered = json!({"input_request_id": id, "state": "answered", "parts": parts});
    assert_eq!(waiting.await.unwrap().expect(200), answered);
    assert_eq!(work.device.client.get(&format!("{path}/{id}")).await.expect(200), answered);
    assert_eq!(work.state().await, ("running".to_owned(), Value::Null, json!("remote_running")));
    let events = work.events().await;
    let told = ["task.input_required", "action.required", "task.waiting", "task.input_received", "task.waiting"];
    assert_eq!(events[2..], told);
    work.complete().await.expect(200);
}

/// "Delete production?" is not answered by a reply to an earlier question.
async fn an_answer_applies_to_the_named_question(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let ask = async |prompt: &str| {
        let ask = json!({"epoch": 1, "prompt": prompt});
        let asked = work.device.client.post(&work.path("/input-requests"), ask).await.expect(201);
        asked["input_request_id"].as_str().unwrap().to_owned()
    };
    let waits_for = async || work.world.owner.get(&work.path("")).await.expect(200)["waits_for"].clone();
    let give = async |question: &str, text: &str| {
        let answer = json!({"text": text, "input_request_id": question});
        work.world.owner.post(&work.path("/input"), answer).await
    };
    let first = ask("Clean up?").await;
    assert_eq!(waits_for().await, json!({"kind": "input", "id": first, "what": "Clean up?"}));
    give(&first, "yes").await.expect(200);
    let second = ask("Delete production?").await;
    let late = give(&first, "yes").await;
    assert_eq!(late.refusal(), (409, "not_waiting".to_owned()));
    assert_eq!(waits_for().await["id"], second, "and the other question is still open");
    // Among several open ones, the named one.
    let third = ask("Which branch?").await;
    give(&third, "main").await.expect(200);
    assert_eq!(waits_for().await["id"], second);
    let path = format!("{}/{third}", work.path("/input-requests"));
    assert_eq!(work.device.client.get(&path).await.expect(200)["parts"], json!([{"text": "main"}]));
    let unknown = give("ask_00000000000000000000000000", "x").await;
    assert!(matches!(unknown.status, 400 | 409), "{unknown:?}");
}

/// The question may have come while it was written.
async fn unsolicited_input_answers_no_question(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let ask = json!({"epoch": 1, "prompt": "Delete production?"});
    let asked = work.device.client.post(&work.path("/input-requests"), ask).await.expect(201);
    let message = json!({"text": "yes, use winnow", "unsolicited": true});
    work.world.owner.post(&work.path("/input"), message).await.expect(200);
    assert_eq!(work.world.owner.get(&work.path("")).await.expect(200)["waits_for"]["id"], asked["input_request_id"]);
    let path = work.path("/events?after=0");
    let events = work.world.owner.get(&path).await.expect(200)["events"].clone();
    let heard =
        events.as_array().unwrap().iter().rfind(|event| event["type"] == "task.input_received").unwrap().clone();
    assert_eq!(heard["data"]["input_request_id"], Value::Null);
    assert_eq!(heard["data"]["parts"], json!([{"text": "yes, use winnow"}]));
    let both = json!({"text": "yes", "unsolicited": true, "input_request_id": asked["input_request_id"]});
    assert_eq!(work.world.owner.post(&work.path("/input"), both).await.refusal(), (400, "invalid_request".to_owned()));
}

async fn unsolicited_input_arrives_in_order(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let client = work.world.owner.with("content-type", "application/json");
    let parts = r#"[{"text":"a","n":1.0}, {"data":{"b":9007199254740993}}]"#;
    let body = format!(r#"{{"parts":{parts}}}"#);
    let given = client.call(Method::POST, &work.path("/input"), body).await.expect(200);
    let page = work.world.owner.get(&work.path("/events?after=2")).await;
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(text.contains(&format!(r#""parts":{parts}"#)), "{text}");
    let event = &page.json()["events"][0];
    assert_eq!((&event["type"], &event["data"]["input_id"]), (&json!("task.input_received"), &given["input_id"]));
    assert_eq!(event["data"]["input_request_id"], Value::Null);
    assert_eq!(work.state().await.1, Value::Null);
}

async fn the_same_key_returns_the_same_input(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let path = work.path("/input");
    let body = json!({"text": "go on", "idempotency_key": "k1"});
    let first = work.world.owner.post(&path, body.clone()).await.expect(200);
    assert_eq!(work.world.owner.post(&path, body).await.expect(200), first);
    let other = json!({"text": "go on", "idempotency_key": "k2"});
    assert_ne!(work.world.owner.post(&path, other).await.expect(200)["input_id"], first["input_id"]);
    let heard = work.events().await.into_iter().filter(|kind| kind == "task.input_received").count();
    assert_eq!(heard, 2);
}

async fn a_message_reaches_its_worker_unchanged(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let path = work.path("/input-requests");
    let asked = work.device.client.post(&path, json!({"epoch": 1, "prompt": "Which?"})).await.expect(201);
    let key = work.world.owner.header("authorization").strip_prefix("Bearer ").unwrap().to_owned();
    let by = work.world.hub.authenticate_key(&key).await.unwrap();
    let (run, text) = (work.run.parse().unwrap(), r#"{"messageId":"m","metadata":{"n": 9007199254740993}}"#);
    let parts = || Json::from_text(r#"[{"text":"main"}]"#).unwrap();
    let message = || Json::from_text(text).unwrap();
    let given = work.world.hub.give_message(&by, run, parts(), message(), "m".to_owned()).await.unwrap();
    let again = work.world.hub.give_message(&by, run, parts(), message(), "m".to_owned()).await.unwrap();
    assert_eq!(given, again, "one message is one input");
    let id = asked["input_request_id"].as_str().unwrap();
    let answer = work.device.client.get(&format!("{path}/{id}")).await;
    assert_eq!(
        String::from_utf8(answer.body.to_vec()).unwrap(),
        format!(r#"{{"input_request_id":"{id}","state":"answered","parts":[{{"text":"main"}}],"message":{text}}}"#)
    );
    let events = work.world.owner.get(&work.path("/events")).await;
    let shown = String::from_utf8(events.body.to_vec()).unwrap();
    assert!(shown.contains(&format!(r#""parts":[{{"text":"main"}}],"message":{text}}}"#)), "{shown}");
    let bad = Json::from_text("[]").unwrap();
    let refused = work.world.hub.give_message(&by, run, parts(), bad, "n".to_owned()).await.unwrap_err();
    assert_eq!(refused.message, "`message` must be a JSON object.");
}

async fn input_outside_a_claim_is_refused(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    for refused in [&work.device.client, &work.world.key("viewer").await] {
        let reply = refused.post(&work.path("/input"), json!({"text": "x"})).await;
        assert_eq!(reply.refusal(), (403, "forbidden".to_owned()));
    }
    let pending = work.world.run("builder").await;
    let path = format!("/api/v1/task-runs/{}/input", pending["task_run_id"].as_str().unwrap());
    let early = work.world.owner.post(&path, json!({"text": "x"})).await;
    assert_eq!(early.refusal(), (409, "not_waiting".to_owned()));
    assert_eq!(early.json()["task_run"]["status"], "pending");
    work.complete().await.expect(200);
    let late = work.world.owner.post(&work.path("/input"), json!({"text": "x"})).await;
    assert_eq!(late.refusal(), (409, "run_ended".to_owned()));
    let asked = work.device.client.post(&work.path("/input-requests"), json!({"prompt": "?"})).await;
    assert_eq!(asked.refusal(), (409, "run_ended".to_owned()));
}

async fn an_unanswered_question_ends_the_run(engine: Engine) {
    let work = ClaimedRunFixture::patient(engine).await;
    let asked = work.device.client.post(&work.path("/input-requests"), json!({"prompt": "?"})).await.expect(201);
    work.world.advance(Duration::from_secs(7 * 24 * 60 * 60));
    let id = asked["input_request_id"].as_str().unwrap();
    let answer = work.device.client.get(&work.path(&format!("/input-requests/{id}?wait_ms=5000"))).await.expect(200);
    assert_eq!((&answer["state"], &answer["parts"]), (&json!("expired"), &Value::Null));
    let read = work.read().await;
    assert_eq!((&read["status"], &read["task_result"]["code"]), (&json!("failed"), &json!("timed_out")));
}

const HOUR: Duration = Duration::from_secs(60 * 60);

/// While a run waits, it holds a slot of somebody's device.
async fn others_have_a_day_for_all_questions_together(engine: Engine) {
    let mut work = ClaimedRunFixture::patient(engine).await;
    work.complete().await.expect(200);
    let ann = crate::people::person(&work.world, "ann", "operator").await;
    let run = ann.post("/api/v1/task-runs", json!({"agent_id": "builder"})).await.expect(201);
    work.run = run["task_run_id"].as_str().unwrap().to_owned();
    work.device.claim().await;
    let ask = async |name: &str| {
        let asked = json!({"epoch": 1, "prompt": "?", "request_id": name});
        work.device.client.post(&work.path("/input-requests"), asked).await.expect(201)
    };
    ask("first").await;
    work.world.advance(10 * HOUR);
    ann.post(&work.path("/input"), json!({"text": "a"})).await.expect(200);
    // Neither working nor waiting for the owner's approval is the caller's time.
    work.world.advance(Duration::from_secs(60));
    let approval = work.pending("Bash", json!({"command": "make"})).await;
    work.world.advance(12 * HOUR);
    work.decide(&approval, json!({"approved": true})).await.expect(200);
    ask("second").await;
    work.world.advance(13 * HOUR);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(work.read().await["status"], "running");
    work.world.advance(HOUR + Duration::from_secs(1));
    let ended = work.world.until(&work.path(""), |run| run["status"] != "running").await;
    assert_eq!((&ended["status"], &ended["task_result"]["code"]), (&json!("failed"), &json!("timed_out")));
}

async fn callers_without_a_credential_have_minutes(engine: Engine) {
    let mut work = ClaimedRunFixture::patient(engine).await;
    work.complete().await.expect(200);
    work.world.owner.patch("/api/v1/agent-accounts/builder", json!({"a2a": {"anonymous": true}})).await.expect(200);
    let agent = work.world.owner.get("/api/v1/agent-accounts/builder").await.expect(200);
    let agent = agent["agent_id"].as_str().unwrap().parse().unwrap();
    let stranger = work.world.hub.anonymous(agent).await.unwrap();
    let request = attache_protocol::wire::run::CreateRunRequest {
        agent_id: agent.to_string(),
        ..attache_protocol::wire::run::CreateRunRequest::default()
    };
    let headers = attache_hub::control::CallHeaders::default();
    work.world.hub.create_run(&stranger, request, headers).await.unwrap();
    let claim = work.device.claim().await;
    work.run = claim["task_run_id"].as_str().unwrap().to_owned();
    work.device.client.post(&work.path("/input-requests"), json!({"epoch": 1, "prompt": "?"})).await.expect(201);
    work.world.advance(Duration::from_secs(5 * 60 + 1));
    let ended = work.world.until(&work.path(""), |run| run["status"] != "running").await;
    assert_eq!((&ended["status"], &ended["task_result"]["code"]), (&json!("failed"), &json!("timed_out")));
}
