//! Authentication of channels: at the upgrade, in the first frame, and again with every frame.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite;

use super::peer::{TestPeer, WS, engine, owner_key, register_agent, run, worker};
use crate::world::World;

fn status(error: tungstenite::Error) -> u16 {
    match error {
        tungstenite::Error::Http(response) => response.status().as_u16(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn the_upgrade_checks_credential_origin_and_host() {
    let world = World::start().await;
    let good = format!("Bearer {}", owner_key(&world));
    for (headers, expected) in [
        (vec![("authorization", "Bearer ak_wrong")], 401),
        (vec![("authorization", "Basic x")], 401),
        (vec![("x-runtime-token", "rt_wrong")], 401),
        (vec![("authorization", good.as_str()), ("origin", "http://evil.example")], 403),
        (vec![("authorization", good.as_str()), ("host", "evil.example")], 421),
    ] {
        for path in [WS, "/api/a2a/connect"] {
            let refused = TestPeer::try_connect(&world, path, &headers).await.map(drop).unwrap_err();
            assert_eq!(status(refused), expected, "{headers:?}");
        }
    }
    let plain = TestPeer::try_connect(&world, "/api/a2a/connect", &[]).await.map(drop).unwrap_err();
    assert_eq!(status(plain), 401, "plain frames carry no credential of their own");
    let person = TestPeer::try_connect(&world, "/api/a2a/connect", &[("authorization", good.as_str())]).await;
    assert_eq!(status(person.map(drop).unwrap_err()), 403, "a person is no worker");
    let other = [("authorization", good.as_str()), ("sec-websocket-protocol", "something.else")];
    assert_eq!(status(TestPeer::try_connect(&world, "/api/a2a/connect", &other).await.map(drop).unwrap_err()), 400);
    assert_eq!(world.owner.get(WS).await.status, 400, "not a WebSocket at all");
}

#[tokio::test]
async fn the_first_frame_may_carry_the_credential() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect(&world, WS, None).await;
    let mut register = peer.frame("request", json!({"action": "register"}));
    let refused = peer.ask(&register).await["payload"].clone();
    assert_eq!(
        (&refused["action"], &refused["error"]["code"], &refused["error"]["field"]),
        (&json!("register"), &json!("unauthenticated"), &json!("metadata.auth_token"))
    );
    register["metadata"] = json!({"auth_token": "bearer ak_wrong"});
    assert_eq!(peer.ask(&register).await["payload"]["error"]["code"], "unauthenticated");
    register["metadata"] = json!({"auth_token": format!("bearer {key}")});
    assert_eq!(peer.ask(&register).await["payload"]["ok"], true);
    // From here on, the connection is bound to it.
    run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
}

#[tokio::test]
async fn a_peer_that_keeps_guessing_is_cut_off() {
    let world = World::start().await;
    let mut peer = TestPeer::connect(&world, WS, None).await;
    for _ in 0..5 {
        let mut frame = peer.frame("request", json!({"action": "register"}));
        frame["metadata"] = json!({"auth_token": "bearer ak_guess"});
        assert_eq!(peer.ask(&frame).await["payload"]["ok"], false);
    }
    assert_eq!(peer.closed().await, Some((1008, "unauthenticated".to_owned())));
}

#[tokio::test]
async fn guesses_over_the_channel_are_counted_like_all_others() {
    let world = World::tuned(|options| options.failures_per_minute = 3).await;
    let mut codes = Vec::new();
    for _ in 0..5 {
        let mut peer = TestPeer::connect(&world, WS, None).await;
        let mut frame = peer.frame("request", json!({"action": "register"}));
        frame["metadata"] = json!({"auth_token": "bearer ak_guess"});
        codes.push(peer.ask(&frame).await["payload"]["error"]["code"].clone());
    }
    assert_eq!(codes[..3], ["unauthenticated", "unauthenticated", "unauthenticated"]);
    assert_eq!(codes[3..], ["too_many_requests", "too_many_requests"]);
    // The same frame over HTTP uses the same counter.
    let mut frame = json!({"header": {"msg_id": "m1", "type": "request", "from": "a", "to": "b", "timestamp": 1},
        "payload": {"action": "drain"}});
    frame["metadata"] = json!({"auth_token": "bearer ak_guess"});
    let reply = world.anonymous().post("/api/envelope", frame).await;
    assert!(String::from_utf8_lossy(&reply.body).contains("too_many_requests"), "{reply:?}");
    assert_eq!(world.owner.get("/api/v1/task-runs").await.status, 200);
}

#[tokio::test]
async fn a_frame_with_its_own_token_is_verified_by_it() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut host, _) = engine(&world, json!([])).await;
    let with = |peer: &mut TestPeer, token: &str| {
        let mut frame = peer.frame("request", json!({"action": "message", "message": 1}));
        frame["metadata"] = json!({"auth_token": token});
        frame
    };
    let key = owner_key(&world);
    let good = with(&mut host, &format!("Bearer {key}"));
    assert_eq!(host.ask(&good).await["payload"]["ok"], true);
    for (token, code) in [("bearer ak_nonsense", "unauthenticated"), ("", "unauthenticated")] {
        let frame = with(&mut host, token);
        let reply = host.ask(&frame).await["payload"].clone();
        assert_eq!((&reply["error"]["code"], &reply["error"]["field"]), (&json!(code), &json!("metadata.auth_token")));
    }
    let other = register_agent(&world, "other").await;
    let frame = with(&mut host, &format!("bearer {other}"));
    assert_eq!(host.ask(&frame).await["payload"]["error"]["code"], "forbidden", "nobody speaks over another's channel");
    let frame = host.frame("request", json!({"action": "message", "message": 1}));
    assert_eq!(host.ask(&frame).await["payload"]["ok"], true, "the channel is still open");
}

#[tokio::test]
async fn a_revoked_credential_fails_the_very_next_frame() {
    let world = World::start().await;
    world.agent("builder").await;
    // A person's key.
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "k", "role": "operator"})).await.expect(201);
    let mut host = TestPeer::connect(&world, WS, made["api_key"].as_str()).await;
    host.register(json!({})).await;
    let path = format!("/api/v1/api-keys/{}", made["key"]["key_id"].as_str().unwrap());
    assert_eq!(world.owner.delete(&path).await.status, 200);
    let frame = host.frame("request", json!({"action": "message", "message": 1}));
    assert_eq!(host.ask(&frame).await["payload"]["error"]["code"], "unauthenticated");
    assert_eq!(host.closed().await, Some((1008, "unauthenticated".to_owned())));

    // A device's token, with a run that would otherwise complete.
    let device = world.device("builder").await;
    let mut peer = TestPeer::try_connect(&world, WS, &[("x-runtime-token", device.token.as_str())]).await.unwrap();
    peer.register(json!({})).await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let path = format!("/api/v1/agent-runtimes/{}", device.runtime);
    assert_eq!(world.owner.delete(&path).await.status, 200);
    let done = json!({"action": "done", "task_run_id": id, "epoch": 1, "result_summary": "x"});
    assert_eq!(peer.request(done).await["error"]["code"], "runtime_revoked");
    assert_eq!(peer.closed().await, Some((1008, "unauthenticated".to_owned())));
    assert_eq!(super::peer::read_run(&world, &id).await["task_result"]["code"], "runtime_lost");

    // An agent's replaced key.
    let (mut old, _) = worker(&world, "builder").await;
    register_agent(&world, "builder").await;
    let reply = old.request(json!({"action": "ready", "credits": 1})).await;
    assert_eq!(reply["error"]["code"], "runtime_superseded");
}

#[tokio::test]
async fn a_peer_with_a_revoked_credential_receives_nothing_more() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut sub, _) = worker(&world, "builder").await;
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "k", "role": "operator"})).await.expect(201);
    let mut host = TestPeer::connect(&world, WS, made["api_key"].as_str()).await;
    host.register(json!({})).await;
    let frame = super::engine::execute(&mut host, "builder", json!({"query": "go"}));
    let id = host.ask(&frame).await["payload"]["task_run_id"].clone();
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    sub.find_action("execute").await;
    host.find(|told| told["payload"]["type"] == "task.claimed").await;
    world.owner.delete(&format!("/api/v1/api-keys/{}", made["key"]["key_id"].as_str().unwrap())).await.expect(200);
    let secret = json!({"action": "chunk", "task_run_id": id, "epoch": 1, "text": "not for you"});
    assert_eq!(sub.request(secret).await["ok"], true);
    let mut seen = Vec::new();
    let frame = host.frame("request", json!({"action": "message", "message": 1}));
    host.send(&frame).await;
    loop {
        let told = host.next().await;
        if told["header"]["parent_id"] == frame["header"]["msg_id"] {
            assert_eq!(told["payload"]["error"]["code"], "unauthenticated");
            break;
        }
        seen.push(told["payload"]["action"].clone());
    }
    assert!(!seen.contains(&json!("chunk")), "{seen:?}");
}

#[tokio::test]
async fn actions_of_another_role_are_refused() {
    let world = World::start().await;
    world.agent("builder").await;
    let mut peer = TestPeer::connect(&world, WS, Some(&owner_key(&world))).await;
    let early = peer.request(json!({"action": "ready", "credits": 1})).await;
    assert_eq!(early["error"]["code"], "not_registered");
    let wrong = peer.request(json!({"action": "register", "peer_role": "worker"})).await;
    assert_eq!(
        (&wrong["error"]["code"], &wrong["error"]["field"]),
        (&json!("forbidden"), &json!("payload.peer_role")),
        "a person's key does not work for an agent"
    );
    peer.register(json!({})).await;
    assert_eq!(peer.request(json!({"action": "ready", "credits": 1})).await["error"]["code"], "forbidden");
    // An agent can neither see nor end another agent's run.
    world.agent("other").await;
    let (mut sub, _) = worker(&world, "builder").await;
    let id = run(&world, "other").await;
    let done = json!({"action": "done", "task_run_id": id, "epoch": 1, "result_summary": "x"});
    assert_eq!(sub.request(done).await["error"]["code"], "not_found");
    let cancel: Value = sub.request(json!({"action": "cancel", "task_run_id": id})).await;
    assert_eq!(cancel["ok"], false);
}

#[tokio::test]
async fn a_socket_keeps_its_connection_slot() {
    let world = World::tuned(|options| options.max_connections = 2).await;
    let key = owner_key(&world);
    let _one = TestPeer::connect(&world, WS, Some(&key)).await;
    let _two = TestPeer::connect(&world, WS, Some(&key)).await;
    let stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
    let mut byte = [0; 1];
    use tokio::io::AsyncReadExt as _;
    let mut stream = stream;
    let read = tokio::time::timeout(crate::world::PATIENCE, stream.read(&mut byte)).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "a third connection is turned away");
}

/// Whoever may only start runs follows none, and takes no open answer away from the key whose token they hold.
#[tokio::test]
async fn who_may_only_start_runs_is_not_told_what_happens_in_them() {
    let world = World::start().await;
    world.agent("builder").await;
    let scopes = async |scopes: Value| {
        let token =
            world.owner.post("/api/v1/tokens", json!({"ttl_seconds": 3600, "scopes": scopes})).await.expect(201);
        token["token"].as_str().unwrap().to_owned()
    };
    let execute = json!({"header": {"msg_id": "e1", "type": "request", "to": "builder", "timestamp": 1},
        "payload": {"action": "execute", "query": "cat secret"}});
    for (scopes, words) in [(scopes(json!(["call"])).await, "call"), (scopes(json!(["read"])).await, "read")] {
        let by = world.anonymous().key(&scopes);
        let reply = by.post("/api/envelope", execute.clone()).await;
        assert_eq!(reply.status, 403, "{words}: {}", String::from_utf8_lossy(&reply.body));
        assert_eq!(TestPeer::refused(&world, WS, &scopes).await, 403, "{words}");
        // The credential may also come with the first frame.
        let mut peer = TestPeer::connect(&world, WS, None).await;
        let register = json!({"action": "register", "peer_role": "host"});
        let mut frame = peer.frame("request", register);
        frame["metadata"] = json!({"auth_token": scopes});
        assert_eq!(peer.ask(&frame).await["payload"]["error"]["code"], "forbidden", "{words}");
    }
    let channels = world.owner.get("/api/v1/channels").await.expect(200);
    assert_eq!(channels["channels"], json!([]), "what is refused leaves no channel behind");
}
