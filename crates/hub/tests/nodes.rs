//! Several hubs on one store: what each holds is its own, what a dead one held is free, and changes reach all of them even
//! if every hint between them is lost.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use attache_client::egress::{EgressGuard, EgressPolicy};
use attache_hub::{
    NodeOptions, Options,
    deliveries::CircuitPolicy,
    in_process::{AgentFailure, AgentOutput, InProcessAgent, InProcessRun},
};
use attache_protocol::env::Env;
use attache_store::{Store, record::shared_value::SharedValueKind};
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    channel::peer::{TestPeer, read_run, register_agent, run, until_status},
    counting::Counting,
    deliveries::receiver::{ReceiverAnswer, WebhookReceiver},
    handover,
    world::{PATIENCE, TestCaller, World, node_stores},
};

/// How soon every node must know of a change.
const BOUND: Duration = Duration::from_millis(1500);

/// Three nodes. No hint passes between them, so everything that one learns of another it has looked up.
async fn deaf(tune: impl FnOnce(&mut Options)) -> World {
    World::on_nodes(node_stores(3, 100), tune).await
}

/// Nodes that notice soon that another one is dead.
fn watchful(options: &mut Options) {
    options.nodes = Some(NodeOptions {
        look_every: Duration::from_millis(50),
        timeout: Duration::from_millis(600),
        ..NodeOptions::default()
    });
}

async fn channel(world: &World, node: usize, channel: &Value) -> Value {
    let path = format!("/api/v1/channels/{}", channel.as_str().unwrap());
    world.at(node, &world.owner).get(&path).await.expect(200)
}

async fn audited(world: &World, kind: &str) -> usize {
    world.audit(kind).await.len()
}

#[tokio::test]
async fn starting_and_stopping_a_node_touches_nothing_of_the_others() {
    let mut stores = node_stores(4, 100);
    let spare = stores.pop().unwrap();
    let mut world = World::on_nodes(stores, watchful).await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect_at(&world, 0, &key).await;
    let registered = peer.register(json!({})).await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let before = read_run(&world, &id).await;

    world.nodes[2].stop();
    let late = world.start_node(spare).await;
    assert_eq!(world.at(late, &world.owner).get("/api/v1/agent-accounts").await.status, 200);
    sleep(Duration::from_millis(900)).await;

    assert_eq!(channel(&world, late, &registered["channel_id"]).await["status"], "connected");
    let after = read_run(&world, &id).await;
    assert_eq!((&after["status"], &after["lease_until"]), (&before["status"], &before["lease_until"]));
    assert_eq!(audited(&world, "channel.disconnected").await, 0);
    // The peer goes on as if nothing had happened.
    let done = json!({"action": "done", "task_run_id": id, "epoch": 1, "output": {"text": "nine"}});
    assert_eq!(peer.request(done).await["ok"], true);
}

#[tokio::test]
async fn what_a_dead_node_held_is_free_and_its_peers_go_on_elsewhere() {
    let world = deaf(watchful).await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect_at(&world, 0, &key).await;
    let registered = peer.register(json!({})).await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;

    world.nodes[0].kill().await;
    let begun = Instant::now();
    let lost = loop {
        let shown = channel(&world, 1, &registered["channel_id"]).await;
        if shown["status"] == "disconnected" {
            break shown;
        }
        assert!(begun.elapsed() < PATIENCE, "{shown}");
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(lost["reason"], "node_lost");

    let mut peer = TestPeer::connect_at(&world, 1, &key).await;
    let resume = json!({"action": "resume", "channel_id": registered["channel_id"],
        "resume_token": registered["resume_token"], "last_seq": 1});
    assert_eq!(peer.request(resume).await["ok"], true);
    let done = json!({"action": "done", "task_run_id": id, "epoch": 1, "output": {"text": "nine"}});
    assert_eq!(peer.request(done).await["ok"], true);
    let read = world.at(2, &world.owner).get(&format!("/api/v1/task-runs/{id}")).await.expect(200);
    assert_eq!(read["status"], "completed");
}

#[tokio::test]
async fn a_stale_connection_on_another_node_neither_claims_nor_closes() {
    // Nodes look at each other's changes only once a minute: the store alone must refuse.
    let world = deaf(|options| {
        options.nodes = Some(NodeOptions {
            look_every: Duration::from_secs(60),
            timeout: Duration::from_secs(600),
            ..NodeOptions::default()
        });
    })
    .await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut stale = TestPeer::connect_at(&world, 0, &key).await;
    let registered = stale.register(json!({})).await;
    let channel_id = &registered["channel_id"];

    let mut peer = TestPeer::connect_at(&world, 1, &key).await;
    let resume = json!({"action": "resume", "channel_id": channel_id,
        "resume_token": registered["resume_token"], "last_seq": 0});
    assert_eq!(peer.request(resume).await["ok"], true);

    // It asks for work at a node that hasn't heard of the other connection.
    let id = run(&world, "builder").await;
    stale.notify(json!({"action": "ready", "credits": 1})).await;
    assert_eq!(stale.closed().await.map(|(code, _)| code), Some(1008));
    assert_eq!(read_run(&world, &id).await["status"], "pending");
    assert_eq!(channel(&world, 2, channel_id).await["status"], "connected");

    peer.notify(json!({"action": "ready", "credits": 1})).await;
    let execute = peer.find_action("execute").await;
    assert_eq!(execute["payload"]["task_run_id"], json!(id));
    assert_eq!(audited(&world, "task.claimed").await, 1);
    assert_eq!(audited(&world, "channel.disconnected").await, 1, "when it was resumed");
}

#[tokio::test]
async fn a_stale_connection_that_breaks_leaves_the_channel_open() {
    let world = deaf(|options| {
        options.nodes = Some(NodeOptions {
            look_every: Duration::from_secs(60),
            timeout: Duration::from_secs(600),
            ..NodeOptions::default()
        });
    })
    .await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut stale = TestPeer::connect_at(&world, 0, &key).await;
    let registered = stale.register(json!({})).await;
    let mut peer = TestPeer::connect_at(&world, 1, &key).await;
    let resume = json!({"action": "resume", "channel_id": registered["channel_id"],
        "resume_token": registered["resume_token"], "last_seq": 0});
    assert_eq!(peer.request(resume).await["ok"], true);
    stale.close().await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    let begun = Instant::now();
    while read_run(&world, &id).await["status"] != "running" {
        assert!(begun.elapsed() < PATIENCE);
        // Without hints, a session looks for work when its peer says something.
        peer.notify(json!({"action": "ready", "credits": 1})).await;
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(channel(&world, 2, &registered["channel_id"]).await["status"], "connected");
}

/// How long until the reply at every node fits.
async fn until_all(world: &World, caller: &TestCaller, path: &str, fits: impl Fn(u16, &Value) -> bool) -> Duration {
    let begun = Instant::now();
    for node in 0..world.nodes.len() {
        loop {
            let reply = world.at(node, caller).get(path).await;
            if fits(reply.status, &reply.json()) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "node {node} never learns it: {}", reply.json());
            sleep(Duration::from_millis(10)).await;
        }
    }
    begun.elapsed()
}

#[tokio::test]
async fn a_revoked_key_is_refused_by_every_node_in_time() {
    let world = deaf(|_| {}).await;
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "gone", "role": "viewer"})).await.expect(201);
    let key = world.anonymous().key(made["api_key"].as_str().unwrap());
    until_all(&world, &key, "/api/v1/agent-accounts", |status, _| status == 200).await;
    let path = format!("/api/v1/api-keys/{}", made["key"]["key_id"].as_str().unwrap());
    world.at(0, &world.owner).delete(&path).await.expect(200);
    let took = until_all(&world, &key, "/api/v1/agent-accounts", |status, _| status == 401).await;
    assert!(took <= BOUND, "{took:?}");
}

#[tokio::test]
async fn a_removed_user_is_refused_by_every_node_in_time() {
    let world = deaf(|_| {}).await;
    world.owner.post("/api/v1/users", json!({"name": "eve", "role": "operator"})).await.expect(201);
    let made = json!({"name": "eve", "user": "eve", "role": "operator"});
    let made = world.owner.post("/api/v1/api-keys", made).await.expect(201);
    let eve = world.anonymous().key(made["api_key"].as_str().unwrap());
    until_all(&world, &eve, "/api/v1/agent-accounts", |status, _| status == 200).await;
    world.at(2, &world.owner).delete("/api/v1/users/eve").await.expect(200);
    let took = until_all(&world, &eve, "/api/v1/agent-accounts", |status, _| status == 401).await;
    assert!(took <= BOUND, "{took:?}");
}

#[tokio::test]
async fn access_rules_reach_every_node_in_time() {
    let world = deaf(|_| {}).await;
    for name in ["alice", "bob"] {
        world.owner.post("/api/v1/users", json!({"name": name, "role": "operator"})).await.expect(201);
    }
    let key = json!({"name": "alice", "user": "alice", "role": "operator"});
    let made = world.owner.post("/api/v1/api-keys", key).await.expect(201);
    let alice = world.anonymous().key(made["api_key"].as_str().unwrap());
    let registered = alice.post("/api/a2a/register", json!({"agent_id": "seeker"})).await.expect(200);
    let seeker = world.anonymous().key(registered["api_key"].as_str().unwrap());
    world.agent("vault").await;
    world.owner.patch("/api/v1/agent-accounts/vault", json!({"owner": ""})).await.expect(200);
    let sees = |wanted: bool| {
        move |_: u16, list: &Value| {
            let names = list["agent_accounts"].as_array().unwrap().iter().map(|agent| &agent["name"]);
            names.into_iter().any(|name| name == "vault") == wanted
        }
    };
    until_all(&world, &seeker, "/api/v1/agent-accounts", sees(true)).await;
    let body = json!({"text": "default: deny\n"}).to_string();
    let owner = world.at(0, &world.owner).with("content-type", "application/json");
    owner.call(Method::PUT, "/api/v1/permission-rules", body).await.expect(200);
    let took = until_all(&world, &seeker, "/api/v1/agent-accounts", sees(false)).await;
    assert!(took <= BOUND, "{took:?}");
}

fn callable(options: &mut Options) {
    options.egress = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
    options.outbox.look_every = Duration::from_millis(10);
}

/// Creates runs of `builder` with a callback and completes them. Returns the deliveries' ids.
async fn complete_with_callbacks(world: &World, count: usize, url: &str) -> BTreeSet<String> {
    world.agent("builder").await;
    let device = world.device("builder").await;
    let mut ids = BTreeSet::new();
    for _ in 0..count {
        let body = json!({"task": "count", "agent_type": "builder", "callback_url": url});
        let call = world.owner.post("/api/a2a/call", body).await.expect(200);
        ids.insert(call["call_id"].as_str().unwrap().replace("a2a-", "dlv_"));
        let run = device.claim().await;
        let path = format!("/api/v1/task-runs/{}/complete", run["task_run_id"].as_str().unwrap());
        device.client.post(&path, json!({"epoch": 1, "output": {"text": "nine"}})).await.expect(200);
    }
    ids
}

#[tokio::test]
async fn every_webhook_is_sent_once_however_many_nodes_there_are() {
    const COUNT: usize = 24;
    // All hints arrive, so that all nodes reach for each delivery at the same time.
    let world = World::on_nodes(node_stores(3, 0), callable).await;
    let receiver = WebhookReceiver::start(&[]).await;
    let ids = complete_with_callbacks(&world, COUNT, &receiver.url()).await;
    for id in &ids {
        world.until(&format!("/api/v1/deliveries/{id}"), |shown| shown["state"] == "delivered").await;
    }
    // Whoever was slower would have sent it by now.
    sleep(Duration::from_millis(300)).await;
    assert_eq!(receiver.count(), COUNT);
    let mut received = BTreeSet::new();
    for _ in 0..COUNT {
        received.insert(receiver.next().await.id().to_owned());
    }
    assert_eq!(received, ids);
}

/// The node that makes the next attempt of the delivery.
async fn holder(world: &World, delivery: &str) -> usize {
    for (place, node) in world.nodes.iter().enumerate() {
        let attempts = vec![(delivery.parse().unwrap(), 1)];
        if !node.store.lease_deliveries(node.hub.node().unwrap(), attempts).await.unwrap().is_empty() {
            return place;
        }
    }
    panic!("no node has leased {delivery}");
}

#[tokio::test]
async fn an_attempt_of_a_dead_node_is_made_again_by_another_one() {
    let world = deaf(|options| {
        watchful(options);
        callable(options);
    })
    .await;
    let receiver = WebhookReceiver::start(&[ReceiverAnswer::Never]).await;
    let ids = complete_with_callbacks(&world, 1, &receiver.url()).await;
    let id = ids.first().unwrap();
    assert_eq!(receiver.next().await.id(), id);
    // Nobody else makes the attempt while the node lives, whose answer never comes.
    sleep(Duration::from_millis(900)).await;
    assert_eq!(receiver.count(), 1);
    let holder = holder(&world, id).await;
    world.nodes[holder].kill().await;
    assert_eq!(receiver.next().await.id(), id);
    let other = (holder + 1) % world.nodes.len();
    let begun = Instant::now();
    loop {
        let shown = world.at(other, &world.owner).get(&format!("/api/v1/deliveries/{id}")).await.expect(200);
        if shown["state"] == "delivered" {
            assert_eq!(shown["attempts"], 1);
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{shown}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Says which node works.
struct Labelled(usize);

impl InProcessAgent for Labelled {
    async fn work(&self, _: InProcessRun) -> Result<AgentOutput, AgentFailure> {
        Ok(AgentOutput::text(self.0.to_string()))
    }
}

/// Calls the agent at a node and returns the text of its result.
async fn asked(world: &World, node: usize) -> String {
    let body = json!({"agent_id": "inner", "input": {"text": "who"}});
    let run = world.at(node, &world.owner).post("/api/v1/task-runs", body).await.expect(201);
    let path = format!("/api/v1/task-runs/{}", run["task_run_id"].as_str().unwrap());
    let begun = Instant::now();
    loop {
        let read = world.at(node, &world.owner).get(&path).await.expect(200);
        if read["status"] == "completed" {
            return read["task_result"]["text"].as_str().unwrap().to_owned();
        }
        assert!(begun.elapsed() < PATIENCE && read["status"] != "failed", "{read}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_hosted_agent_works_at_one_node_and_then_at_another() {
    let world = deaf(watchful).await;
    let key = world.owner.header("authorization").strip_prefix("Bearer ").unwrap().to_owned();
    let mut hosted = Vec::new();
    for (place, node) in world.nodes.iter().enumerate() {
        let by = node.hub.authenticate_key(&key).await.unwrap();
        hosted.push(node.hub.host(&by, "inner", Labelled(place)).await.unwrap());
    }
    let first = asked(&world, 0).await;
    for node in 0..3 {
        assert_eq!(asked(&world, node).await, first, "one node works for it, and no other takes over");
    }
    assert_eq!(audited(&world, "runtime.attached").await, 1);
    assert_eq!(audited(&world, "runtime.superseded").await, 0);

    let first: usize = first.parse().unwrap();
    world.nodes[first].kill().await;
    let other = (first + 1) % 3;
    let second: usize = asked(&world, other).await.parse().unwrap();
    assert_ne!(second, first);
}

#[tokio::test]
async fn a_node_that_was_taken_for_dead_goes_on_as_a_new_one() {
    let world = deaf(watchful).await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect_at(&world, 0, &key).await;
    let registered = peer.register(json!({})).await;
    let former = world.nodes[0].hub.node().unwrap();
    // Somebody who saw its newest beat ends it.
    let store: &Arc<dyn Store> = &world.nodes[1].store;
    let begun = Instant::now();
    loop {
        let other = world.nodes[1].hub.node().unwrap();
        let nodes = store.beat_node(other).await.unwrap();
        let own = nodes.into_iter().find(|node| node.id == former).unwrap();
        if store.end_node(own, "node_lost", world.env.now()).await.unwrap() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE);
    }
    // Its connection ends, and the peer resumes at the same node.
    assert_eq!(peer.closed().await.map(|(code, _)| code), Some(1008));
    let mut peer = TestPeer::connect_at(&world, 0, &key).await;
    let resume = json!({"action": "resume", "channel_id": registered["channel_id"],
        "resume_token": registered["resume_token"], "last_seq": 0});
    assert_eq!(peer.request(resume).await["ok"], true);
    assert_ne!(world.nodes[0].hub.node(), Some(former));
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    until_status(&world, &id, "running").await;
}

/// Works for an agent elsewhere, and at its first node never ends.
struct Bridge {
    place: usize,
    hangs: bool,
}

impl InProcessAgent for Bridge {
    async fn work(&self, _: InProcessRun) -> Result<AgentOutput, AgentFailure> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(AgentOutput::text(self.place.to_string()))
    }
}

#[tokio::test]
async fn a_run_of_the_bridge_goes_on_at_another_node_when_its_own_dies() {
    let world = deaf(watchful).await;
    let agent = world.agent("inner").await.parse().unwrap();
    let key = world.owner.header("authorization").strip_prefix("Bearer ").unwrap().to_owned();
    let tenant = world.hub.authenticate_key(&key).await.unwrap().tenant;
    let host = async |place: usize| {
        world.nodes[place].hub.host_here(tenant, agent, Bridge { place, hangs: place == 0 }).await.unwrap()
    };
    let _first = host(0).await.expect("nobody else works for it");
    assert!(host(1).await.is_none() && host(2).await.is_none());
    let id = run(&world, "inner").await;
    until_status(&world, &id, "running").await;
    assert!(host(1).await.is_none());

    world.nodes[0].kill().await;
    let begun = Instant::now();
    let _second = loop {
        if let Some(hosted) = host(1).await {
            break hosted;
        }
        assert!(begun.elapsed() < PATIENCE);
        sleep(Duration::from_millis(20)).await;
    };
    assert!(host(2).await.is_none());
    let ended = until_status(&world, &id, "completed").await;
    assert_eq!(ended["task_result"]["text"], "1");
    assert_eq!(audited(&world, "task.claimed").await, 1, "its claim was taken over");
}

#[tokio::test]
async fn two_owners_at_different_nodes_cannot_revoke_each_other() {
    let world = deaf(|_| {}).await;
    for round in 0..6 {
        let mut owners = Vec::new();
        for name in ["one", "two"] {
            let made = json!({"name": format!("{name}-{round}"), "role": "owner"});
            let made = world.owner.post("/api/v1/api-keys", made).await.expect(201);
            let key = world.anonymous().key(made["api_key"].as_str().unwrap());
            owners.push((key, format!("/api/v1/api-keys/{}", made["key"]["key_id"].as_str().unwrap())));
        }
        let (one, two) = (world.at(round % 3, &owners[0].0), world.at((round + 1) % 3, &owners[1].0));
        let (first, second) = tokio::join!(one.delete(&owners[1].1), two.delete(&owners[0].1));
        let mut replies = [first.status, second.status];
        replies.sort_unstable();
        assert_eq!(replies, [200, 401]);
    }
}

#[tokio::test]
async fn a_login_link_is_spent_once_at_whatever_node() {
    let world = deaf(|_| {}).await;
    let from = [192, 0, 2, 7].into();
    for round in 0..6 {
        let link = world.at(round % 3, &world.owner).post("/api/v1/login-links", json!({})).await.expect(201);
        let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1;
        for node in &world.nodes {
            let target = node.hub.login_target(token).await.unwrap().expect("it isn't used yet");
            assert_eq!(target.role.as_str(), "owner");
        }
        let (one, two) = (&world.nodes[(round + 1) % 3].hub, &world.nodes[(round + 2) % 3].hub);
        let (first, second) = tokio::join!(one.redeem_login(token, from), two.redeem_login(token, from));
        let opened: Vec<_> = [first, second].into_iter().flatten().collect();
        assert_eq!(opened.len(), 1, "one browser is signed in");
        for node in &world.nodes {
            assert!(node.hub.authenticate_session(opened[0].secret.expose()).await.is_ok());
            assert_eq!(node.hub.login_target(token).await.unwrap(), None);
            assert!(node.hub.redeem_login(token, from).await.is_err());
        }
    }
    assert_eq!(audited(&world, "session.opened").await, 6);
}

#[tokio::test]
async fn the_secrets_of_a_start_reach_the_worker_through_any_node() {
    let world = deaf(|_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let id = handover::delegation(&world, &device.client, "builder").await;
    device.claim().await;
    let path = format!("/api/v1/task-runs/{id}/input");
    let asked = json!({"epoch": 1, "prompt": "START?"});
    let asked = world.at(0, &device.client).post(&format!("{path}-requests"), asked).await.expect(201);
    world.at(1, &world.owner).post(&path, json!({"parts": handover::in_full()})).await.expect(200);
    let answer = format!("{path}-requests/{}", asked["input_request_id"].as_str().unwrap());
    let given = world.at(2, &device.client).get(&answer).await.expect(200);
    assert_eq!(given["parts"], handover::in_full());
    // Whoever else may see the run sees that something was given, and no node shows what.
    for node in 0..3 {
        let events = world.at(node, &world.owner).get(&format!("/api/v1/task-runs/{id}/events?after=0")).await;
        let events = String::from_utf8_lossy(&events.body).into_owned();
        assert!(events.contains("***") && !events.contains(handover::KEY), "{events}");
    }
    let done = json!({"epoch": 1, "output": {"text": "nine"}});
    world.at(0, &device.client).post(&format!("/api/v1/task-runs/{id}/complete"), done).await.expect(200);
    let begun = Instant::now();
    loop {
        let kept = world.nodes[1].store.shared_values(SharedValueKind::StartSecrets, world.env.now()).await.unwrap();
        if kept.is_empty() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "they are never removed");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_a_device_reports_to_one_node_is_known_to_all() {
    let world = deaf(|_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let id = run(&world, "builder").await;
    device.claim().await;
    let recovery = async |node: usize| {
        let read = world.at(node, &world.owner).get(&format!("/api/v1/task-runs/{id}")).await.expect(200);
        let list = world.at(node, &world.owner).get("/api/v1/task-runs?status=running").await.expect(200);
        assert_eq!(list["task_runs"][0]["recovery"], read["recovery"]);
        read["recovery"].clone()
    };
    for round in 0..3 {
        for (report, expected) in [(json!([id]), "done_unreconciled"), (json!([]), "remote_running")] {
            let beat = json!({"running": [id], "unreported": report});
            let path = "/api/v1/agent-runtimes/runtime/heartbeat";
            world.at(round, &device.client).post(path, beat).await.expect(200);
            for node in 0..3 {
                assert_eq!(recovery(node).await, expected);
            }
        }
    }
}

#[tokio::test]
async fn the_failures_of_a_target_count_together_and_what_a_person_resends_does_not_wait() {
    let world = deaf(|options| {
        callable(options);
        options.outbox.circuit_policy = CircuitPolicy { failures: 3, pause: Duration::from_secs(3600) };
        options.outbox.retries = vec![Duration::from_millis(10); 50];
        options.outbox.slots_per_target = 1;
    })
    .await;
    let receiver = WebhookReceiver::start(&[ReceiverAnswer::Status(500); 100]).await;
    let ids = complete_with_callbacks(&world, 9, &receiver.url()).await;
    let settled = async || {
        let mut before = 0;
        while receiver.count() == 0 || receiver.count() > before {
            before = receiver.count();
            sleep(Duration::from_millis(400)).await;
        }
        before
    };
    // When the third failure is recorded, the other two nodes may be in the middle of a call.
    let called = settled().await;
    assert!((3..=5).contains(&called), "{called}");
    for (place, id) in ids.iter().take(3).enumerate() {
        world.at(place, &world.owner).post(&format!("/api/v1/deliveries/{id}/resend"), json!({})).await.expect(200);
        let begun = Instant::now();
        while receiver.count() == called + place {
            assert!(begun.elapsed() < PATIENCE, "node {place} doesn't send it");
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(settled().await, called + place + 1);
    }
}

#[tokio::test]
async fn nodes_allow_together_what_one_would_allow() {
    let world = deaf(|options| {
        watchful(options);
        options.failures_per_minute = 9;
    })
    .await;
    let wrong = world.anonymous().key("ak_wrong");
    let refusals = async |node: usize| world.at(node, &wrong).get("/api/v1/task-runs").await.status;
    // The first of them learns of the others with its next beat.
    sleep(Duration::from_millis(400)).await;
    for node in 0..3 {
        let mut replies = Vec::new();
        for _ in 0..4 {
            replies.push(refusals(node).await);
        }
        assert_eq!(replies, [401, 401, 401, 429], "node {node}");
    }
    // Two nodes have five each, of which three are used.
    world.nodes[2].kill().await;
    for node in 0..2 {
        let (begun, mut more) = (Instant::now(), 0);
        while more < 2 {
            assert!(begun.elapsed() < PATIENCE, "node {node} allows only {more} more");
            more += usize::from(refusals(node).await == 401);
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(refusals(node).await, 429);
    }
}

/// A removal that has looked for rows, and not yet removed anything, is overtaken by an upload of the same content.
#[tokio::test(flavor = "multi_thread")]
async fn content_that_one_node_removes_can_be_uploaded_at_another() {
    let mut stores = node_stores(3, 100);
    let slow = Arc::new(Counting::new(stores.remove(0)));
    stores.insert(0, slow.clone());
    let world = Arc::new(World::on_nodes(stores, |_| {}).await);
    let conversation = async || world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    let (first, second) = (conversation().await, conversation().await);
    let upload = async |node: usize, conversation: &Value| {
        let workspace = conversation["workspace_id"].as_str().unwrap();
        let path = format!("/api/v1/workspaces/{workspace}/artifacts/report");
        world.at(node, &world.owner).call(Method::PUT, &path, "the same content").await.expect(201)
    };
    upload(0, &first).await;

    let release = slow.hold("unused_blobs");
    let path = format!("/api/v1/conversations/{}", first["conversation_id"].as_str().unwrap());
    let deleting = async {
        let deleted = world.at(0, &world.owner).delete(&path).await;
        assert!(deleted.status < 300, "{deleted:?}");
    };
    let uploading = async {
        while slow.calls("unused_blobs") == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        upload(1, &second).await
    };
    let releasing = async {
        sleep(Duration::from_millis(500)).await;
        drop(release);
    };
    let ((), uploaded, ()) = tokio::join!(deleting, uploading, releasing);

    let path = format!("/api/v1/artifacts/{}", uploaded["artifact_id"].as_str().unwrap());
    let read = world.at(2, &world.owner).get(&path).await;
    assert_eq!((read.status, &read.body[..]), (200, &b"the same content"[..]));
    // Nothing is left of what the two told each other.
    for kind in [SharedValueKind::ArtifactUpload, SharedValueKind::ArtifactRemoval] {
        assert_eq!(world.store.shared_values(kind, Env::system().now()).await.unwrap(), []);
    }
}
