//! Tools: schemas at registration and at every call, `allowed_tools`, and paths that stay inside `workspace_root`.

use serde_json::{Value, json};

use super::{
    engine::execute,
    peer::{TestPeer, engine, worker},
};
use crate::world::World;

fn tools() -> Value {
    let path = json!({"type": "string", "format": "path"});
    json!([
        {"name": "read", "description": "reads", "input_schema": {
            "type": "object", "required": ["path"], "additionalProperties": false,
            "properties": {"path": path, "more": {"type": "array", "items": path}, "deep": {"type": "object", "properties": {"p": path}}, "limit": {"type": "integer", "maximum": 10}},
        }, "output_schema": {"type": "object", "required": ["text"]}},
        {"name": "shell", "description": "runs", "input_schema": {"type": "object"}},
    ])
}

/// A worker with a run of an engine that has the tools.
async fn at_work(world: &World) -> (TestPeer, TestPeer, Value) {
    world.agent("builder").await;
    let (mut sub, _) = worker(world, "builder").await;
    let (mut host, _) = engine(world, tools()).await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    let frame = execute(
        &mut host,
        "builder",
        json!({"query": "go", "allowed_tools": ["read"], "workspace_root": "/srv/project"}),
    );
    let id = host.ask(&frame).await["payload"]["task_run_id"].clone();
    sub.find_action("execute").await;
    (sub, host, id)
}

fn call(id: &Value, tool: &str, arguments: Value) -> Value {
    json!({"action": "call_tool", "task_run_id": id, "epoch": 1, "tool_name": tool, "arguments": arguments})
}

#[tokio::test]
async fn a_forbidden_call_is_refused_before_the_engine_sees_it() {
    let world = World::start().await;
    let (mut sub, mut host, id) = at_work(&world).await;
    for (tool, arguments, field) in [
        ("shell", json!({}), "payload.tool_name"),
        ("unknown", json!({}), "payload.tool_name"),
        ("read", json!({}), "payload.arguments"),
        ("read", json!({"path": 7}), "payload.arguments.path"),
        ("read", json!({"path": "a", "limit": 11}), "payload.arguments.limit"),
        ("read", json!({"path": "a", "extra": 1}), "payload.arguments"),
        ("read", json!({"path": "../secret"}), "payload.arguments.path"),
        ("read", json!({"path": "a/../../secret"}), "payload.arguments.path"),
        ("read", json!({"path": "/etc/passwd"}), "payload.arguments.path"),
        ("read", json!({"path": "/srv/projectile/x"}), "payload.arguments.path"),
        ("read", json!({"path": "/srv/project/../x"}), "payload.arguments.path"),
        ("read", json!({"path": "a\u{0}b"}), "payload.arguments.path"),
        ("read", json!({"path": "~/.ssh/id"}), "payload.arguments.path"),
        ("read", json!({"path": "a", "more": ["ok", "../x"]}), "payload.arguments.more.1"),
        ("read", json!({"path": "a", "deep": {"p": "/"}}), "payload.arguments.deep.p"),
    ] {
        let reply = sub.request(call(&id, tool, arguments.clone())).await;
        assert_eq!(
            (&reply["ok"], &reply["error"]["code"], &reply["error"]["field"]),
            (&json!(false), &json!("tool_refused"), &json!(field)),
            "{tool} {arguments}: {reply}"
        );
    }
    // Two parsers of the same text must not see different paths.
    let id_text = id.as_str().unwrap();
    sub.send_text(format!(
        r#"{{"header":{{"msg_id":"twice","type":"request","timestamp":1}},"payload":{{"action":"call_tool","task_run_id":"{id_text}","epoch":1,"tool_name":"read","arguments":{{"path":"../x","path":"a"}}}}}}"#
    ))
    .await;
    assert_eq!(
        sub.find(|frame| frame["header"]["parent_id"] == "twice").await["payload"]["error"]["code"],
        "tool_refused"
    );
    let seen: Vec<_> =
        host.settle().await.into_iter().filter(|frame| frame["payload"]["action"] == "call_tool").collect();
    assert_eq!(seen, Vec::<Value>::new(), "the engine saw none of it");

    let frame = sub.frame(
        "request",
        call(&id, "read", json!({"path": "src/../main.rs", "more": ["/srv/project/a"], "deep": {"p": "."}})),
    );
    sub.send(&frame).await;
    let asked = host.find_action("call_tool").await;
    // The engine's result is checked against its own schema.
    let mut reply = host.frame("response", json!({"action": "call_tool", "ok": true, "result": {"wrong": 1}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    let refused = host.ask(&reply).await["payload"].clone();
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["field"]),
        (&json!("tool_refused"), &json!("payload.result"))
    );
    let mut reply = host.frame("response", json!({"action": "call_tool", "ok": true, "result": {"text": "main"}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    host.send(&reply).await;
    assert_eq!(sub.find_action("call_tool").await["payload"]["result"], json!({"text": "main"}));
}

#[tokio::test]
async fn tools_are_checked_when_they_are_registered() {
    let world = World::start().await;
    let mut peer = TestPeer::connect(&world, super::peer::WS, Some(&super::peer::owner_key(&world))).await;
    let schema = |schema: Value| json!([{"name": "t", "input_schema": schema}]);
    for (tools, field) in [
        (json!({}), "payload.tools"),
        (json!([{"description": "x"}]), "payload.tools[0].name"),
        (json!([{"name": "a"}, {"name": "a"}]), "payload.tools[1].name"),
        (schema(json!({"type": "nonsense"})), "payload.tools[0].input_schema"),
        (schema(json!({"$ref": "https://example.com/schema"})), "payload.tools[0].input_schema"),
    ] {
        let reply = peer.request(json!({"action": "register", "tools": tools})).await;
        assert_eq!((&reply["ok"], &reply["error"]["field"]), (&json!(false), &json!(field)), "{reply}");
    }
    let many: Vec<_> = (0..300).map(|number| json!({"name": format!("t{number}")})).collect();
    assert_eq!(peer.request(json!({"action": "register", "tools": many})).await["ok"], false);
    let channels = world.owner.get("/api/v1/channels").await.expect(200);
    assert_eq!(channels["channels"], json!([]), "what is refused leaves no channel behind");
    peer.register(json!({"tools": tools()})).await;
}

#[tokio::test]
async fn without_an_engine_on_a_channel_there_are_no_tools() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut sub, _) = worker(&world, "builder").await;
    let id = super::peer::run(&world, "builder").await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    sub.find_action("execute").await;
    let reply = sub.request(call(&json!(id), "read", json!({}))).await;
    assert_eq!((&reply["ok"], &reply["error"]["code"]), (&json!(false), &json!("tool_refused")));
}

#[tokio::test]
async fn only_the_engine_can_answer_a_tool_call() {
    let world = World::start().await;
    let (mut sub, mut host, id) = at_work(&world).await;
    let frame = sub.frame("request", call(&id, "read", json!({"path": "a"})));
    sub.send(&frame).await;
    let asked = host.find_action("call_tool").await;
    let other = super::peer::register_agent(&world, "other").await;
    let mut other = TestPeer::connect(&world, super::peer::WS, Some(&other)).await;
    other.register(json!({"peer_role": "host"})).await;
    let mut reply = other.frame("response", json!({"action": "call_tool", "ok": true, "result": {"text": "lie"}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    assert_eq!(other.ask(&reply).await["payload"]["error"]["code"], "not_found");
    let mut reply = host.frame("response", json!({"ok": true, "result": {"text": "truth"}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    host.send(&reply).await;
    assert_eq!(sub.find_action("call_tool").await["payload"]["result"], json!({"text": "truth"}));
}

/// A token of the engine's key has the engine's name, but not all of its rights.
#[tokio::test]
async fn a_token_that_only_reads_answers_no_tool_call() {
    let world = World::start().await;
    let (mut sub, mut host, id) = at_work(&world).await;
    let frame = sub.frame("request", call(&id, "read", json!({"path": "a"})));
    sub.send(&frame).await;
    let asked = host.find_action("call_tool").await;
    let token = world.owner.post("/api/v1/tokens", json!({"scopes": ["read"]})).await.expect(201);
    let reader = world.anonymous().key(token["token"].as_str().unwrap());
    let mut reply = host.frame("response", json!({"action": "call_tool", "ok": true, "result": {"text": "lie"}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    assert_eq!(reader.post("/api/envelope", reply.clone()).await.refusal(), (403, "forbidden".to_owned()));
    reply["metadata"] = json!({"auth_token": token["token"]});
    assert_eq!(host.ask(&reply).await["payload"]["error"]["code"], "forbidden");
    let mut reply = host.frame("response", json!({"ok": true, "result": {"text": "truth"}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    host.send(&reply).await;
    assert_eq!(sub.find_action("call_tool").await["payload"]["result"], json!({"text": "truth"}));
}

/// A private agent is told only what a credential with all rights of its owner says, also in a run that wasn't started in
/// person.
#[tokio::test]
async fn a_key_that_only_calls_answers_no_tool_call_of_a_private_agent() {
    let world = World::start().await;
    world.owner.post("/api/v1/agent-accounts", json!({"name": "builder", "callers": "owner"})).await.expect(201);
    let (mut sub, _) = worker(&world, "builder").await;
    let (mut host, _) = engine(&world, tools()).await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    let token = world.owner.post("/api/v1/tokens", json!({"ttl_seconds": 3600})).await.expect(201);
    let mut frame = execute(&mut host, "builder", json!({"query": "go", "allowed_tools": ["read"]}));
    frame["metadata"] = json!({"auth_token": token["token"]});
    let id = host.ask(&frame).await["payload"]["task_run_id"].clone();
    sub.find_action("execute").await;
    let frame = sub.frame("request", call(&id, "read", json!({"path": "a"})));
    sub.send(&frame).await;
    let asked = host.find_action("call_tool").await;
    let narrow = json!({"name": "narrow", "scopes": ["read", "call"]});
    let narrow = world.owner.post("/api/v1/api-keys", narrow).await.expect(201);
    let narrow = world.anonymous().key(narrow["api_key"].as_str().unwrap());
    let mut reply = host.frame("response", json!({"action": "call_tool", "ok": true, "result": {"text": "lie"}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    assert_eq!(narrow.post("/api/envelope", reply).await.refusal(), (403, "forbidden".to_owned()));
    let mut reply = host.frame("response", json!({"ok": true, "result": {"text": "truth"}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    host.send(&reply).await;
    assert_eq!(sub.find_action("call_tool").await["payload"]["result"], json!({"text": "truth"}));
}

/// A frame that registers tools over HTTP.
fn registration(tools: &Value) -> Value {
    json!({
        "header": {"msg_id": "r1", "type": "request", "from": "test", "to": "hub", "timestamp": 1_700_000_000},
        "payload": {"action": "register", "tools": tools},
    })
}

#[tokio::test]
async fn registering_tools_requires_the_right_to_create_runs() {
    let world = World::start().await;
    let frame = registration(&json!([{"name": "t", "input_schema": {"pattern": "^a$"}}]));
    let reply = world.key("viewer").await.post("/api/envelope", frame.clone()).await;
    assert_eq!(reply.refusal(), (403, "forbidden".to_owned()));
    assert_eq!(world.key("operator").await.post("/api/envelope", frame).await.status, 200);
}

#[tokio::test]
async fn a_schema_that_is_too_expensive_is_refused() {
    let world = World::start().await;
    let letters: serde_json::Map<_, _> =
        (0..10).map(|number| (format!("p{number}"), json!({"pattern": format!("^[\\pL]{{200}}x{number}$")}))).collect();
    let many: serde_json::Map<_, _> =
        (0..100).map(|number| (format!("p{number}"), json!({"pattern": format!("^{number}$")}))).collect();
    let mut doubled = json!({"$ref": "#/$defs/d0", "$defs": {"d40": {"type": "string"}}});
    for number in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        doubled["$defs"][format!("d{number}")] = json!({"allOf": [next, next]});
    }
    for schema in [
        json!({"properties": letters}),
        json!({"properties": many}),
        json!({"pattern": "^((((a{100}){100}){100}){100})$"}),
        json!({"patternProperties": {"[\\pL]{200}": true}}),
        json!({"pattern": "a".repeat(2000)}),
        doubled,
    ] {
        let frame = registration(&json!([{"name": "t", "input_schema": schema}]));
        let reply = world.owner.post("/api/envelope", frame).await;
        assert_eq!(reply.json()["error"]["field"], "payload.tools[0].input_schema", "{schema}");
    }
}

#[tokio::test]
async fn arguments_that_are_too_expensive_to_check_are_refused() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut sub, _) = worker(&world, "builder").await;
    let list = json!({"$defs": {"list": {"allOf": [{"items": {"$ref": "#/$defs/list"}}, {"items": {"$ref": "#/$defs/list"}}]}},
        "properties": {"list": {"$ref": "#/$defs/list"}}});
    let (mut host, _) = engine(&world, json!([{"name": "walk", "input_schema": list}])).await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    let frame = execute(&mut host, "builder", json!({"query": "go"}));
    let id = host.ask(&frame).await["payload"]["task_run_id"].clone();
    sub.find_action("execute").await;
    let deep = (0..50).fold(json!([]), |inner, _| json!([inner]));
    let reply = sub.request(call(&id, "walk", json!({"list": deep}))).await;
    assert_eq!(
        (&reply["error"]["code"], &reply["error"]["field"]),
        (&json!("tool_refused"), &json!("payload.arguments")),
        "{reply}"
    );
    let frame = sub.frame("request", call(&id, "walk", json!({"list": [[[]]]})));
    sub.send(&frame).await;
    host.find_action("call_tool").await;
}

/// What a tool returns is said to the agent, too: a token, which is made to be handed on, doesn't say it to a run that its
/// person started with their own key.
#[tokio::test]
async fn a_token_answers_no_tool_call_of_an_unwalled_run() {
    let world = World::start().await;
    let (mut sub, mut host, id) = at_work(&world).await;
    let frame = sub.frame("request", call(&id, "read", json!({"path": "a"})));
    sub.send(&frame).await;
    let asked = host.find_action("call_tool").await;
    let token = world.owner.post("/api/v1/tokens", json!({"ttl_seconds": 3600})).await.expect(201);
    let mut other = TestPeer::connect(&world, super::peer::WS, token["token"].as_str()).await;
    other.register(json!({"peer_role": "host", "tools": tools()})).await;
    let mut reply = other.frame("response", json!({"action": "call_tool", "ok": true, "result": {"text": "lie"}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    assert_eq!(other.ask(&reply).await["payload"]["error"]["code"], "forbidden");
    let mut reply = host.frame("response", json!({"ok": true, "result": {"text": "truth"}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    host.send(&reply).await;
    assert_eq!(sub.find_action("call_tool").await["payload"]["result"], json!({"text": "truth"}));
}
