//! Frames with one error each: every reply names the invalid field, and none closes the channel.

use serde_json::{Value, json};

use super::peer::{at_work, run, worker};
use crate::world::World;

const HEADER: &str = r#""header":{"msg_id":"x1","type":"request","timestamp":1}"#;

#[tokio::test]
async fn every_malformed_frame_gets_an_error_that_names_the_field() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let with_header = |header: &str| format!(r#"{{"header":{header},"payload":{{"action":"drain"}}}}"#);
    let with_payload = |payload: &str| format!(r#"{{{HEADER},"payload":{payload}}}"#);
    let with_metadata =
        |metadata: &str| format!(r#"{{{HEADER},"metadata":{metadata},"payload":{{"action":"drain"}}}}"#);
    let of_run = |rest: &str| with_payload(&format!(r#"{{"task_run_id":"{id}","epoch":1,{rest}}}"#));
    let big = format!(r#"{{{HEADER},"payload":{{"action":"chunk","text":"{}"}}}}"#, "x".repeat(1 << 20));
    let deep = format!(r#"{{{HEADER},"payload":{}{}}}"#, "[".repeat(100), "]".repeat(100));
    let rows: Vec<(String, &str, Value)> = vec![
        (String::new(), "invalid_json", json!(null)),
        ("{".to_owned(), "invalid_json", json!(null)),
        ("hello".to_owned(), "invalid_json", json!(null)),
        ("{}x".to_owned(), "invalid_json", json!(null)),
        ("[]".to_owned(), "invalid_frame", json!(null)),
        ("7".to_owned(), "invalid_frame", json!(null)),
        ("null".to_owned(), "invalid_frame", json!(null)),
        ("{}".to_owned(), "invalid_frame", json!("header")),
        (big, "too_large", json!(null)),
        (deep, "json_too_deep", json!(null)),
        (with_header("7"), "invalid_frame", json!("header")),
        (with_header("{}"), "invalid_frame", json!("header.msg_id")),
        (with_header(r#"{"msg_id":7}"#), "invalid_frame", json!("header.msg_id")),
        (with_header(r#"{"msg_id":""}"#), "invalid_frame", json!("header.msg_id")),
        (with_header(r#"{"msg_id":"a b"}"#), "invalid_frame", json!("header.msg_id")),
        (with_header(&format!(r#"{{"msg_id":"{}"}}"#, "x".repeat(201))), "invalid_frame", json!("header.msg_id")),
        (with_header(r#"{"msg_id":"x"}"#), "invalid_frame", json!("header.type")),
        (with_header(r#"{"msg_id":"x","type":7}"#), "invalid_frame", json!("header.type")),
        (with_header(r#"{"msg_id":"x","type":"shout"}"#), "invalid_frame", json!("header.type")),
        (with_header(r#"{"msg_id":"x","type":"request"}"#), "invalid_frame", json!("header.timestamp")),
        (with_header(r#"{"msg_id":"x","type":"request","timestamp":"1"}"#), "invalid_frame", json!("header.timestamp")),
        (
            with_header(r#"{"msg_id":"x","type":"request","timestamp":1,"from":1}"#),
            "invalid_frame",
            json!("header.from"),
        ),
        (with_header(r#"{"msg_id":"x","type":"request","timestamp":1,"to":[]}"#), "invalid_frame", json!("header.to")),
        (
            with_header(r#"{"msg_id":"x","type":"request","timestamp":1,"parent_id":{}}"#),
            "invalid_frame",
            json!("header.parent_id"),
        ),
        (with_header(r#"{"msg_id":"x","type":"request","timestamp":1,"seq":0}"#), "invalid_frame", json!("header.seq")),
        (
            with_header(r#"{"msg_id":"x","type":"request","timestamp":1,"seq":1.5}"#),
            "invalid_frame",
            json!("header.seq"),
        ),
        (with_metadata("7"), "invalid_frame", json!("metadata")),
        (with_metadata(r#"{"ttl":"3"}"#), "invalid_frame", json!("metadata.ttl")),
        (with_metadata(r#"{"trace_id":3}"#), "invalid_frame", json!("metadata.trace_id")),
        (with_metadata(r#"{"auth_token":3}"#), "invalid_frame", json!("metadata.auth_token")),
        (format!("{{{HEADER}}}"), "invalid_frame", json!("payload")),
        (with_payload("[]"), "invalid_frame", json!("payload")),
        (with_payload("{}"), "invalid_frame", json!("payload.action")),
        (with_payload(r#"{"action":7}"#), "invalid_frame", json!("payload.action")),
        (with_payload(r#"{"action":"dance"}"#), "invalid_frame", json!("payload.action")),
        (with_payload(r#"{"action":"register","peer_role":"boss"}"#), "invalid_frame", json!("payload.peer_role")),
        (with_payload(r#"{"action":"register","tools":7}"#), "invalid_frame", json!("payload.tools")),
        (
            with_payload(r#"{"action":"register","tools":[{"name":"a","input_schema":{"type":7}}]}"#),
            "invalid_frame",
            json!("payload.tools[0].input_schema"),
        ),
        (with_payload(r#"{"action":"register","capabilities":"all"}"#), "invalid_frame", json!("payload.capabilities")),
        (with_payload(r#"{"action":"register","device_info":7}"#), "invalid_request", json!("payload.device_info")),
        (with_payload(r#"{"action":"register","running":["x"]}"#), "invalid_frame", json!("payload.running")),
        (with_payload(r#"{"action":"resume"}"#), "invalid_frame", json!("payload.channel_id")),
        (
            with_payload(
                r#"{"action":"resume","channel_id":"chn_00000000000000000000000000000001","resume_token":"x"}"#,
            ),
            "invalid_frame",
            json!("payload.last_seq"),
        ),
        (with_payload(r#"{"action":"ready"}"#), "invalid_frame", json!("payload.credits")),
        (with_payload(r#"{"action":"ready","credits":-1}"#), "invalid_frame", json!("payload.credits")),
        (with_payload(r#"{"action":"ready","credits":1001}"#), "invalid_frame", json!("payload.credits")),
        (with_payload(r#"{"action":"ready","credits":"1"}"#), "invalid_frame", json!("payload.credits")),
        (with_payload(r#"{"action":"ack"}"#), "invalid_frame", json!("payload.seq")),
        (with_payload(r#"{"action":"chunk","epoch":1,"text":"x"}"#), "invalid_frame", json!("payload.task_run_id")),
        (
            with_payload(r#"{"action":"chunk","task_run_id":"nope","epoch":1,"text":"x"}"#),
            "invalid_frame",
            json!("payload.task_run_id"),
        ),
        (
            with_payload(&format!(r#"{{"action":"chunk","task_run_id":"{id}","text":"x"}}"#)),
            "invalid_frame",
            json!("payload.epoch"),
        ),
        (of_run(r#""action":"chunk""#), "invalid_frame", json!("payload.text")),
        (of_run(r#""action":"chunk","text":7"#), "invalid_frame", json!("payload.text")),
        (of_run(&format!(r#""action":"chunk","text":"{}""#, "x".repeat(70_000))), "too_large", json!("payload.text")),
        (
            of_run(&format!(r#""action":"think","thought_text":"{}""#, "x".repeat(70_000))),
            "too_large",
            json!("payload.thought_text"),
        ),
        (
            of_run(&format!(r#""action":"log","message":"{}""#, "x".repeat(70_000))),
            "too_large",
            json!("payload.message"),
        ),
        (
            of_run(&format!(r#""action":"call_tool","tool_name":"t","arguments":{{"a":"{}"}}"#, "x".repeat(300_000))),
            "too_large",
            json!("payload.arguments"),
        ),
        (of_run(r#""action":"think","thought_text":{}"#), "invalid_frame", json!("payload.thought_text")),
        (of_run(r#""action":"log","message":[]"#), "invalid_frame", json!("payload.message")),
        (of_run(r#""action":"progress","percent":101"#), "invalid_request", json!("payload.percent")),
        (of_run(r#""action":"progress","percent":"x""#), "invalid_frame", json!("payload.percent")),
        (of_run(r#""action":"progress","usage_stats":7"#), "invalid_request", json!("payload.usage_stats")),
        (of_run(r#""action":"done""#), "invalid_frame", json!("payload.result_summary")),
        (of_run(r#""action":"done","result_summary":7"#), "invalid_frame", json!("payload.result_summary")),
        (
            of_run(r#""action":"done","result_summary":"x","artifact_refs":7"#),
            "invalid_request",
            json!("payload.artifact_refs"),
        ),
        (of_run(r#""action":"done","output":[]"#), "invalid_request", json!("payload.output")),
        (of_run(r#""action":"require_approval","input":{}"#), "invalid_frame", json!("payload.tool")),
        (of_run(r#""action":"require_approval","tool":"x""#), "invalid_frame", json!("payload.input")),
        (
            of_run(r#""action":"require_approval","tool":"x","input":{},"paths":"p""#),
            "invalid_frame",
            json!("payload.paths"),
        ),
        (of_run(r#""action":"require_input""#), "invalid_frame", json!("payload.prompt")),
        (of_run(r#""action":"require_input","prompt":"x","parts":7"#), "invalid_request", json!("payload.parts")),
        (of_run(r#""action":"call_tool""#), "invalid_frame", json!("payload.tool_name")),
        (with_payload(r#"{"action":"cancel"}"#), "invalid_frame", json!("payload.task_run_id")),
        (with_payload(r#"{"action":"execute"}"#), "invalid_frame", json!("header.to")),
        (with_payload(r#"{"action":"message"}"#), "invalid_frame", json!("payload.message")),
        (
            r#"{"header":{"msg_id":"x","type":"response","timestamp":1},"payload":{"approved":true}}"#.to_owned(),
            "invalid_frame",
            json!("header.parent_id"),
        ),
        (
            r#"{"header":{"msg_id":"x","type":"response","timestamp":1,"parent_id":"p"},"payload":{"approved":true}}"#
                .to_owned(),
            "invalid_frame",
            json!("header.parent_id"),
        ),
        (
            r#"{"header":{"msg_id":"x","type":"response","timestamp":1,"parent_id":"p"},"payload":{"approved":"yes"}}"#
                .to_owned(),
            "invalid_frame",
            json!("payload.approved"),
        ),
    ];
    assert!(rows.len() >= 40);
    for (text, code, field) in rows {
        let shown: String = text.chars().take(160).collect();
        peer.send_text(text).await;
        let answer = peer.next().await;
        assert_eq!(answer["header"]["type"], "response", "{shown}");
        let payload = &answer["payload"];
        assert_eq!(payload["ok"], false, "{shown}: {payload}");
        assert_eq!(
            (&payload["error"]["code"], &payload["error"]["field"]),
            (&json!(code), &field),
            "{shown}: {payload}"
        );
        assert!(!payload["error"]["message"].as_str().unwrap().is_empty());
        assert!(payload.get("action").is_some());
    }
    peer.send_binary(vec![0xff, 0xfe]).await;
    assert_eq!(peer.next().await["payload"]["error"]["code"], "invalid_json");
    // The channel still works.
    let done = json!({"action": "done", "task_run_id": id, "epoch": 1, "result_summary": "x"});
    assert_eq!(peer.request(done).await["status"], "completed");
}

#[tokio::test]
async fn a_large_frame_is_refused_with_a_hint_to_use_an_artifact() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    peer.send_text(format!(r#"{{{HEADER},"payload":{{"action":"message","message":"{}"}}}}"#, "x".repeat(1 << 20)))
        .await;
    let answer = peer.next().await["payload"].clone();
    assert_eq!((&answer["action"], &answer["error"]["code"]), (&json!(null), &json!("too_large")));
    assert!(answer["error"]["message"].as_str().unwrap().contains("artifact"), "{answer}");
    assert_eq!(peer.request(json!({"action": "message", "message": 1})).await["ok"], true);
}

#[tokio::test]
async fn unknown_members_are_ignored_everywhere() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    peer.send_text(
        r#"{"header":{"msg_id":"x","type":"request","timestamp":1.5,"new":{}},"metadata":{"new":1,"ttl":null},"payload":{"action":"message","message":1,"new":[]},"new":0}"#,
    )
    .await;
    let answer = peer.next().await;
    assert_eq!((&answer["header"]["parent_id"], &answer["payload"]["ok"]), (&json!("x"), &json!(true)));
}

#[tokio::test]
async fn a_lone_surrogate_in_a_frame_is_replaced() {
    let world = World::start().await;
    let (mut peer, _, id) = at_work(&world).await;
    let payload =
        json!({"action": "require_approval", "task_run_id": id, "epoch": 1, "tool": "shell", "input": {"x": "HALF"}});
    let frame = peer.frame("request", payload).to_string().replace("HALF", r"a\udc00b");
    peer.send_text(frame).await;
    let asked = world.until("/api/v1/permission-requests", |listed| listed["permission_requests"][0].is_object()).await;
    assert_eq!(asked["permission_requests"][0]["input"], json!({"x": "a\u{fffd}b"}));
}
