//! Accounts for outside A2A agents: how they are added, what is shown of them, and which cards are trusted.

use std::sync::{Arc, Mutex};

use attache_client::egress::{EgressGuard, EgressPolicy};
use axum::{extract::State, http::HeaderMap, routing::get};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::world::{Engine, World, on_all};

on_all! {
    an_outside_agent_is_shown_without_its_key
    a_changed_card_is_used_once_a_person_trusts_it
    an_agent_is_outside_or_has_devices
    a_key_is_sent_only_to_the_url_it_was_given_for
    ; // These expect that a change is known at once, as it is to the node that made it.
    alone:
    registering_with_a_url_makes_an_outside_agent
    an_outside_agents_key_belongs_to_the_agent_and_not_a_person
}

const ACCOUNTS: &str = "/api/v1/agent-accounts";
const ATTACH: &str = "/api/v1/agent-runtimes/runtime/attach-via-pairing";
const REGISTER: &str = "/api/a2a/register";
/// The key that the outside agent expects.
const KEY: &str = "pk_6a3f0c5d9e8b7a1f2c4d6e8f0a1b3c5d";

/// An agent on loopback that only serves a card and records its readers' credentials.
struct CardServer {
    url: String,
    shared: Arc<CardServerState>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct CardServerState {
    card: Mutex<String>,
    seen: Mutex<Vec<Option<String>>>,
}

// === impl CardServer ===

impl CardServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(CardServerState::default());
        let card = async |State(shared): State<Arc<CardServerState>>, headers: HeaderMap| {
            let proof = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
            shared.seen.lock().unwrap().push(proof);
            shared.card.lock().unwrap().clone()
        };
        let router = axum::Router::new().route("/.well-known/agent-card.json", get(card)).with_state(shared.clone());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let elsewhere = Self { url, shared, task };
        elsewhere.describe("Books journeys");
        elsewhere
    }

    fn describe(&self, description: &str) {
        let interface =
            json!({"url": format!("{}/rpc", self.url), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
        let skill = json!({"id": "book", "name": "Book", "description": "Books", "tags": ["travel"]});
        let card = json!({"name": "travel", "description": description, "version": "1", "skills": [skill],
            "supportedInterfaces": [interface], "capabilities": {}, "defaultInputModes": [], "defaultOutputModes": []});
        *self.shared.card.lock().unwrap() = card.to_string();
    }

    /// The readers' credentials since the last call.
    fn seen(&self) -> Vec<Option<String>> {
        std::mem::take(&mut self.shared.seen.lock().unwrap())
    }
}

impl Drop for CardServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn world(engine: Engine) -> World {
    World::timed(engine, |options| {
        options.egress = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
    })
    .await
}

/// Reads the card of the only outside agent again, as the bridge does.
async fn read_again(world: &World) {
    let outside = world.hub.outside_agents().await.unwrap();
    assert_eq!(outside.len(), 1, "{outside:?}");
    world.hub.read_card(&outside[0]).await.unwrap();
}

async fn everything_logged(world: &World) -> String {
    world.owner.get("/api/v1/audit?limit=200").await.expect(200).to_string()
}

async fn an_outside_agent_is_shown_without_its_key(engine: Engine) {
    let (world, elsewhere) = (world(engine).await, CardServer::start().await);
    let body = json!({"name": "travel", "peer": {"url": elsewhere.url, "key": KEY}});
    let made = world.owner.post(ACCOUNTS, body).await.expect(201);
    assert_eq!(elsewhere.seen(), [Some(format!("Bearer {KEY}"))]);
    let pin = made["peer"]["card_pin"].as_str().unwrap().to_owned();
    let expected = json!({
        "agent_id": made["agent_id"], "name": "travel", "status": "offline", "description": "Books journeys",
        "instructions": null, "skills": [{"id": "book", "name": "Book", "description": "Books", "tags": ["travel"]}],
        "a2a": null, "approvals": null, "owner_id": made["owner_id"], "settings_by_owner": true, "callers": "everyone",
        "run_timeout_ms": null, "on_limit": "fallback", "confirm_approvals": "none", "runtime": null,
        "peer": {"url": elsewhere.url, "has_key": true, "card_pin": pin, "pinned_at": "2023-11-14T22:13:20.000Z",
            "offered_pin": null, "binding": "JSONRPC", "protocol_version": "1.0", "problem": null},
        "created_at": "2023-11-14T22:13:20.000Z", "archived_at": null,
    });
    assert_eq!(made, expected);
    assert_eq!(world.owner.get(&format!("{ACCOUNTS}/travel")).await.expect(200), expected);
    assert_eq!(world.owner.get(ACCOUNTS).await.expect(200)["agent_accounts"], json!([expected]));

    // The owner's description takes precedence over the card. The key stays unless it is removed.
    let (path, peer) = (format!("{ACCOUNTS}/travel"), json!({"url": elsewhere.url}));
    let changed = world.owner.patch(&path, json!({"description": "Ours", "peer": peer})).await.expect(200);
    assert_eq!((&changed["description"], &changed["peer"]), (&json!("Ours"), &expected["peer"]));
    let peer = json!({"url": elsewhere.url, "key": ""});
    let changed = world.owner.patch(&path, json!({"peer": peer})).await.expect(200);
    assert_eq!(changed["peer"]["has_key"], false);
    assert_eq!(elsewhere.seen(), [Some(format!("Bearer {KEY}")), None]);

    let agent = &made["agent_id"];
    let owner = world.audit("peer.pinned").await[0].0.clone();
    let set = (owner.clone(), json!({"agent_id": agent, "url": elsewhere.url}));
    assert_eq!(world.audit("peer.set").await, [set.clone(), set.clone(), set]);
    let digest = pin.strip_prefix("sha256:").unwrap();
    assert_eq!(world.audit("peer.pinned").await, [(owner, json!({"agent_id": agent, "digest": digest}))]);
    assert!(!everything_logged(&world).await.contains(KEY));
}

async fn a_changed_card_is_used_once_a_person_trusts_it(engine: Engine) {
    let (world, elsewhere) = (world(engine).await, CardServer::start().await);
    let wrong = format!("sha256:{}", "0".repeat(64));
    let with_pin = |pin: &str| json!({"name": "travel", "peer": {"url": elsewhere.url, "card_pin": pin}});
    let refused = world.owner.post(ACCOUNTS, with_pin(&wrong)).await;
    assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()));
    assert!(
        refused.json()["error"]["message"].as_str().unwrap().starts_with("`peer.card_pin` does not match the card")
    );
    assert_eq!(world.owner.get(ACCOUNTS).await.expect(200)["agent_accounts"], json!([]), "nothing was made");
    let made = world.owner.post(ACCOUNTS, json!({"name": "travel", "peer": {"url": elsewhere.url}})).await.expect(201);
    let first = made["peer"]["card_pin"].as_str().unwrap().to_owned();

    let (path, trust) = (format!("{ACCOUNTS}/travel"), format!("{ACCOUNTS}/travel/trust"));
    let nothing = world.owner.post(&trust, json!({})).await;
    assert_eq!(nothing.refusal(), (409, "nothing_to_trust".to_owned()));
    read_again(&world).await;
    assert_eq!(world.owner.get(&path).await.expect(200)["peer"], made["peer"], "the same card is no news");

    elsewhere.describe("Books journeys, and reads your mail");
    read_again(&world).await;
    let offered = world.owner.get(&path).await.expect(200)["peer"].clone();
    let second = offered["offered_pin"].as_str().unwrap().to_owned();
    assert_ne!(second, first);
    assert_eq!(offered["card_pin"], json!(first), "the one that is trusted stays so");
    let problem = offered["problem"].as_str().unwrap();
    assert!(problem.contains(&second) && problem.contains("attache agents trust"), "{problem}");

    for (who, status) in [(world.key("viewer").await, 403), (world.anonymous(), 401)] {
        assert_eq!(who.post(&trust, json!({})).await.refusal().0, status);
    }
    let refused = world.owner.post(&trust, json!({"card_pin": "sha256:x"})).await;
    assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()));
    for not_looked_at in [&first, &wrong] {
        let refused = world.owner.post(&trust, json!({"card_pin": not_looked_at})).await;
        assert_eq!(refused.refusal(), (409, "version_changed".to_owned()));
    }
    assert_eq!(world.owner.get(&path).await.expect(200)["peer"], offered, "nobody trusted anything yet");
    let trusted = world.owner.post(&trust, json!({"card_pin": second})).await.expect(200);
    assert_eq!(trusted["peer"]["card_pin"], json!(second));
    assert_eq!((&trusted["peer"]["offered_pin"], &trusted["peer"]["problem"]), (&Value::Null, &Value::Null));
    assert_eq!(world.owner.post(&trust, json!({})).await.refusal(), (409, "nothing_to_trust".to_owned()));
    let digests = [&first, &second].map(|pin| pin.strip_prefix("sha256:").unwrap().to_owned());
    assert_eq!(
        world.audit("peer.card_changed").await[0].1,
        json!({"agent_id": made["agent_id"], "digest": digests[1]})
    );
    assert_eq!(world.audit("peer.trusted").await[0].1, json!({"agent_id": made["agent_id"], "digest": digests[1]}));
    assert_eq!(world.audit("peer.pinned").await[0].1, json!({"agent_id": made["agent_id"], "digest": digests[0]}));
}

async fn an_agent_is_outside_or_has_devices(engine: Engine) {
    let (world, elsewhere) = (world(engine).await, CardServer::start().await);
    let peer = json!({"url": elsewhere.url});
    world.agent("builder").await;
    let device = world.device("builder").await;
    let path = format!("{ACCOUNTS}/builder");
    let before = world.owner.get(&path).await.expect(200);
    let refused = world.owner.patch(&path, json!({"description": "changed", "peer": peer})).await;
    assert_eq!(refused.refusal(), (409, "is_paired".to_owned()));
    assert_eq!(world.owner.get(&path).await.expect(200), before, "a refusal changes nothing");
    let refused = world.owner.post(REGISTER, json!({"agent_id": "builder", "url": elsewhere.url})).await;
    assert_eq!(refused.refusal(), (409, "is_paired".to_owned()));
    device.pull(0).await.expect(200);

    // Once the device is gone, it can become an outside agent, and then no device can pair.
    let code = world.code("builder").await;
    world.owner.delete(&format!("/api/v1/agent-runtimes/{}", device.runtime)).await.expect(200);
    let changed = world.owner.patch(&path, json!({"peer": peer})).await.expect(200);
    assert_eq!(changed["peer"]["url"], json!(elsewhere.url));
    let refused = world.anonymous().post(ATTACH, json!({"pairing_token": code})).await;
    assert_eq!(refused.refusal(), (409, "is_peer".to_owned()));
    let refused = world.owner.post(REGISTER, json!({"agent_id": "builder"})).await;
    assert_eq!(refused.refusal(), (409, "is_peer".to_owned()));
    assert_eq!(world.owner.get(&path).await.expect(200), changed);
    // It is removed with its account.
    world.owner.delete(&path).await.expect(200);
    assert!(world.hub.outside_agents().await.unwrap().is_empty());
}

async fn registering_with_a_url_makes_an_outside_agent(engine: Engine) {
    let (world, elsewhere) = (world(engine).await, CardServer::start().await);
    let body = json!({"agent_id": "travel", "url": elsewhere.url, "capabilities": ["books"]});
    let first = world.owner.post(REGISTER, body.clone()).await.expect(200);
    let account = world.owner.get(&format!("{ACCOUNTS}/travel")).await.expect(200);
    assert_eq!((&first["agent_id"], &first["account_id"]), (&json!("travel"), &account["agent_id"]));
    assert_eq!((&account["peer"]["url"], &account["runtime"]), (&json!(elsewhere.url), &Value::Null));
    // Its key is for calling others. It can't claim runs.
    let key = |registered: &Value| world.anonymous().key(registered["api_key"].as_str().unwrap());
    world.agent("builder").await;
    key(&first).post("/api/v1/task-runs", json!({"agent_id": "builder"})).await.expect(201);
    let pull = format!("{ACCOUNTS}/travel/task-runs/pull");
    assert_eq!(key(&first).post(&pull, json!({})).await.refusal().0, 403);
    assert_eq!(key(&first).post(ACCOUNTS, json!({"name": "more"})).await.refusal().0, 403);

    let second = world.owner.post(REGISTER, body).await.expect(200);
    assert_eq!(second["account_id"], first["account_id"]);
    assert_eq!(key(&first).get(ACCOUNTS).await.refusal().0, 401, "the key before is void");
    key(&second).get(ACCOUNTS).await.expect(200);

    let code = world.code("builder").await;
    for (body, status, field) in [
        (json!({"pairing_token": code, "url": elsewhere.url}), 400, "`url`"),
        (json!({"agent_id": "other", "url": "http://10.0.0.1"}), 403, "`peer.url`"),
        (json!({"agent_id": "other", "url": format!("{}/nothing", elsewhere.url)}), 400, "`peer.url`"),
    ] {
        let refused = world.owner.post(REGISTER, body).await;
        assert_eq!(refused.refusal().0, status);
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(field), "{message}");
    }
    assert_eq!(world.owner.get(&format!("{ACCOUNTS}/other")).await.refusal().0, 404, "nothing was made");
}

/// Its key is subject to the access rules, belongs to no person, and ends with its agent or its transfer.
async fn an_outside_agents_key_belongs_to_the_agent_and_not_a_person(engine: Engine) {
    let (world, elsewhere) = (world(engine).await, CardServer::start().await);
    world.agent("builder").await;
    let body = json!({"agent_id": "travel", "url": elsewhere.url});
    let register = async || {
        let registered = world.owner.post(REGISTER, body.clone()).await.expect(200);
        (world.anonymous().key(registered["api_key"].as_str().unwrap()), registered["account_id"].clone())
    };
    let (key, agent) = register().await;
    assert_eq!(key.get("/api/v1/users/me").await.refusal(), (403, "forbidden".to_owned()));
    assert_eq!(key.get("/api/v1/agent-runtimes").await.refusal(), (403, "forbidden".to_owned()));
    let run = key.post("/api/v1/task-runs", json!({"agent_id": "builder"})).await.expect(201);
    assert_eq!(run["caller"], json!(format!("agent:{}", agent.as_str().unwrap())));
    let part = json!({"agent_id": "builder", "parent_task_run_id": run["task_run_id"]});
    key.post("/api/v1/task-runs", part).await.expect(201);
    let seen = key.get("/api/v1/task-runs").await.expect(200);
    assert_eq!(seen["task_runs"].as_array().unwrap().len(), 2);
    let cancel = format!("/api/v1/task-runs/{}/cancel", run["task_run_id"].as_str().unwrap());
    key.post(&cancel, json!({})).await.expect(200);
    let rules = json!({"text": "agents:\n  travel:\n    cannot_access: [agents/builder]\n"});
    world.owner.put("/api/v1/permission-rules", rules).await.expect(200);
    let denied = key.post("/api/v1/task-runs", json!({"agent_id": "builder"})).await;
    assert_eq!(denied.refusal(), (404, "not_found".to_owned()));

    // After a transfer, its key no longer works. The same for an archived agent.
    world.owner.post("/api/v1/users", json!({"name": "ada"})).await.expect(201);
    world.owner.patch(&format!("{ACCOUNTS}/travel"), json!({"owner": "ada"})).await.expect(200);
    assert_eq!(key.get(ACCOUNTS).await.refusal().0, 401);
    world.owner.patch(&format!("{ACCOUNTS}/travel"), json!({"owner": "owner"})).await.expect(200);
    let (key, _) = register().await;
    key.get(ACCOUNTS).await.expect(200);
    world.owner.delete(&format!("{ACCOUNTS}/travel")).await.expect(200);
    assert_eq!(key.get(ACCOUNTS).await.refusal().0, 401);
}

async fn a_key_is_sent_only_to_the_url_it_was_given_for(engine: Engine) {
    let (world, one, two) = (world(engine).await, CardServer::start().await, CardServer::start().await);
    let body = json!({"name": "travel", "peer": {"url": one.url, "key": KEY}});
    world.owner.post(ACCOUNTS, body).await.expect(201);
    let moved = world.owner.patch(&format!("{ACCOUNTS}/travel"), json!({"peer": {"url": two.url}})).await.expect(200);
    assert_eq!((&moved["peer"]["url"], &moved["peer"]["has_key"]), (&json!(two.url), &json!(false)));
    read_again(&world).await;
    assert_eq!(two.seen(), [None, None]);
    let back = world.owner.patch(&format!("{ACCOUNTS}/travel"), json!({"peer": {"url": one.url}})).await.expect(200);
    assert_eq!(back["peer"]["has_key"], false, "what was forgotten stays so");
    assert_eq!(one.seen(), [Some(format!("Bearer {KEY}")), None]);
}
