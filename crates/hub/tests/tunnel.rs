//! Tunnels, with both ends using the client: bytes pass in both directions, with backpressure, and not at all once the
//! tunnel has ended.

use std::time::Duration;

use attache_client::{
    HubClientOptions, HubCredential,
    egress::{EgressGuard, EgressPolicy},
    tunnel::{self, TunnelDialOptions, TunnelStream, token_sha256},
};
use attache_hub::Options;
use attache_protocol::{DelegationId, Secret, Timestamp, TunnelId, env::Env};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    people::person,
    world::{PATIENCE, TestCaller, World, node_stores},
};

const TOKEN: &str = "tt_0123456789abcdef0123456789abcdef";

macro_rules! on_one_and_three {
    ($($name:ident)*) => {
        mod on_one_hub {
            $(#[tokio::test]
            async fn $name() {
                super::$name(1).await;
            })*
        }

        mod on_three_nodes {
            $(#[tokio::test]
            async fn $name() {
                super::$name(3).await;
            })*
        }
    };
}

// Of several nodes, each connection meets any of them: the tunnel is at one, and its ends at others.
on_one_and_three! {
    bytes_pass_in_both_directions_and_are_counted
    several_connections_at_a_time_do_not_mix
    a_remote_may_connect_before_its_host_and_a_host_that_left_is_skipped
    a_slow_reader_slows_the_sender_down
    the_end_of_a_tunnel_cuts_its_connections
    a_revoked_key_cuts_its_socket_in_a_tunnel_of_another_key
    a_tunnel_requires_the_callers_own_live_delegation
    the_end_of_a_delegation_cuts_its_tunnels_and_the_log_says_so
    a_revoked_key_cuts_what_it_opened
    a_revoked_key_cuts_what_it_renewed
    only_the_owner_and_the_token_get_in
    invalid_terms_are_refused
}

async fn world(nodes: usize, tune: impl FnOnce(&mut Options)) -> World {
    World::on_nodes(node_stores(nodes, 50), tune).await
}

struct TunnelFixture {
    world: World,
    id: TunnelId,
    delegation: DelegationId,
}

fn token() -> Secret<String> {
    Secret::new(TOKEN.to_owned())
}

fn in_a(time: Duration) -> Timestamp {
    Env::system().now().plus(time)
}

fn hour() -> Timestamp {
    in_a(Duration::from_secs(3600))
}

fn terms(delegation: DelegationId, expires_at: Timestamp) -> Value {
    json!({"delegation_id": delegation, "token_sha256": token_sha256(&token()), "expires_at": expires_at})
}

/// A delegation of this caller, as its daemon publishes it.
async fn publish(by: &TestCaller, delegation: DelegationId, status: &str) {
    let shown = json!({"status": status, "description": "x", "peer_url": "https://a.example/a2a/b", "folder": "src",
        "device_name": "laptop", "access_mode": "rw", "created_at": Env::system().now()});
    by.put(&format!("/api/v1/delegations/{delegation}"), shown).await.expect(200);
}

fn new_delegation() -> DelegationId {
    DelegationId::from_uuid(Env::system().uuid())
}

fn reach(allow: &[&str]) -> TunnelDialOptions {
    let allow = allow.iter().map(|rule| rule.parse().unwrap()).collect();
    let guard = EgressGuard::new(EgressPolicy { allow });
    TunnelDialOptions { guard, pin: None, trusted_certificate: None, connect: Duration::from_secs(15) }
}

impl TunnelFixture {
    async fn start(world: World) -> Self {
        let scene = Self { world, id: Env::system().tunnel_id(), delegation: new_delegation() };
        publish(&scene.world.owner, scene.delegation, "started").await;
        scene.open(terms(scene.delegation, hour())).await;
        scene
    }

    fn path(&self) -> String {
        format!("/api/v1/tunnels/{}", self.id)
    }

    async fn open(&self, terms: Value) -> Value {
        self.world.owner.put(&self.path(), terms).await.expect(200)
    }

    /// Waits for a remote in a separate task.
    fn host_as(&self, client: &TestCaller) -> JoinHandle<attache_client::Result<TunnelStream>> {
        let key = client.header("authorization").trim_start_matches("Bearer ").to_owned();
        let options =
            HubClientOptions::new(format!("http://{}", self.world.address), HubCredential::Key(Secret::new(key)));
        let id = self.id;
        tokio::spawn(async move { tunnel::open_host(&options, id).await })
    }

    async fn remote(&self) -> TunnelStream {
        let url = format!("ws://{}{}", self.world.address, self.path());
        timeout(PATIENCE, tunnel::open_remote(&url, &token(), &reach(&["127.0.0.1"]))).await.unwrap().unwrap()
    }

    /// The two ends of one connection.
    async fn pair(&self) -> (TunnelStream, TunnelStream) {
        let host = self.host_as(&self.world.owner);
        let remote = self.remote().await;
        (timeout(PATIENCE, host).await.unwrap().unwrap().unwrap(), remote)
    }
}

/// Ends, either cleanly or with an error.
async fn is_cut(end: &mut TunnelStream) {
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, end.read_to_end(&mut rest)).await.expect("it is cut in time");
    assert_eq!(rest, b"", "nothing more comes");
}

async fn bytes_pass_in_both_directions_and_are_counted(nodes: usize) {
    let scene = TunnelFixture::start(world(nodes, |_| {}).await).await;
    let (mut host, mut remote) = scene.pair().await;
    remote.write_all(b"SSH-2.0-remote\r\n").await.unwrap();
    remote.flush().await.unwrap();
    let mut said = [0; 16];
    timeout(PATIENCE, host.read_exact(&mut said)).await.unwrap().unwrap();
    assert_eq!(&said, b"SSH-2.0-remote\r\n");

    let much: Vec<u8> = (0..3_000_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let sent = much.clone();
    let sender = tokio::spawn(async move {
        host.write_all(&sent).await.unwrap();
        host.shutdown().await.unwrap();
    });
    let mut heard = Vec::new();
    timeout(PATIENCE, remote.read_to_end(&mut heard)).await.unwrap().unwrap();
    assert!(heard == much, "every byte, in order");
    sender.await.unwrap();

    let shown = scene.world.owner.get(&scene.path()).await.expect(200);
    assert_eq!(shown["relayed_bytes"], 3_000_016);
    assert_eq!(shown["tunnel_id"], scene.id.to_string());
    assert_eq!(shown["url"], format!("ws://{}{}", scene.world.address, scene.path()));
    // Each node counts its own.
    if nodes > 1 {
        return;
    }
    let metrics = scene.world.owner.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("attache_tunnels 1\n"), "{metrics}");
    assert!(metrics.contains("attache_tunnel_bytes_total 3000016\n"), "{metrics}");
}

async fn several_connections_at_a_time_do_not_mix(nodes: usize) {
    let scene = TunnelFixture::start(world(nodes, |_| {}).await).await;
    let mut pairs = Vec::new();
    for _ in 0..4 {
        pairs.push(scene.pair().await);
    }
    for (at, (host, _)) in pairs.iter_mut().enumerate() {
        host.write_all(format!("to {at}").as_bytes()).await.unwrap();
        host.flush().await.unwrap();
    }
    for (at, (_, remote)) in pairs.iter_mut().enumerate() {
        let mut said = [0; 4];
        timeout(PATIENCE, remote.read_exact(&mut said)).await.unwrap().unwrap();
        assert_eq!(said, format!("to {at}").as_bytes());
    }
    assert_eq!(scene.world.owner.get(&scene.path()).await.expect(200)["open_connections"], 4);
}

async fn a_remote_may_connect_before_its_host_and_a_host_that_left_is_skipped(nodes: usize) {
    let scene = TunnelFixture::start(world(nodes, |_| {}).await).await;
    let left = scene.host_as(&scene.world.owner);
    tokio::time::sleep(Duration::from_millis(50)).await;
    left.abort();
    // Give the hub time to notice.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut remote = scene.remote().await;
    let mut host = timeout(PATIENCE, scene.host_as(&scene.world.owner)).await.unwrap().unwrap().unwrap();
    host.write_all(b"hello").await.unwrap();
    host.flush().await.unwrap();
    let mut said = [0; 5];
    timeout(PATIENCE, remote.read_exact(&mut said)).await.unwrap().unwrap();
    assert_eq!(&said, b"hello");
    // One end leaves, and the other is notified.
    drop(host);
    is_cut(&mut remote).await;
}

async fn a_slow_reader_slows_the_sender_down(nodes: usize) {
    let scene = TunnelFixture::start(world(nodes, |_| {}).await).await;
    let (mut host, remote) = scene.pair().await;
    let piece = vec![7; 1 << 20];
    let mut written = 0_u64;
    while timeout(Duration::from_millis(500), host.write_all(&piece)).await.is_ok() {
        written += 1 << 20;
        assert!(written < 256 << 20, "nobody reads, and everything is taken");
    }
    drop(remote);
}

async fn the_end_of_a_tunnel_cuts_its_connections(nodes: usize) {
    let scene = TunnelFixture::start(world(nodes, |_| {}).await).await;
    // It expires.
    let (mut host, mut remote) = scene.pair().await;
    let end = in_a(Duration::from_secs(2));
    scene.open(terms(scene.delegation, end)).await;
    is_cut(&mut remote).await;
    is_cut(&mut host).await;
    assert!(Env::system().now() >= end, "not before its time");
    assert_eq!(scene.world.owner.get(&scene.path()).await.status, 404);

    // Its owner closes it, also for a waiting host.
    scene.open(terms(scene.delegation, hour())).await;
    let (mut host, mut remote) = scene.pair().await;
    let waiting = scene.host_as(&scene.world.owner);
    assert_eq!(scene.world.owner.delete(&scene.path()).await.status, 204);
    is_cut(&mut remote).await;
    is_cut(&mut host).await;
    assert!(timeout(PATIENCE, waiting).await.unwrap().unwrap().is_err());
    assert_eq!(scene.world.owner.delete(&scene.path()).await.status, 404);

    // It has reached its byte limit.
    let mut few = terms(scene.delegation, hour());
    few["max_bytes"] = json!(10);
    scene.open(few).await;
    let (mut host, mut remote) = scene.pair().await;
    host.write_all(b"0123456789").await.unwrap();
    host.flush().await.unwrap();
    let mut said = [0; 10];
    timeout(PATIENCE, remote.read_exact(&mut said)).await.unwrap().unwrap();
    host.write_all(b"x").await.unwrap();
    host.flush().await.unwrap();
    is_cut(&mut remote).await;
}

/// The tunnel belongs to one key, and a socket in it to another key of the same person.
async fn a_revoked_key_cuts_its_socket_in_a_tunnel_of_another_key(nodes: usize) {
    let scene = TunnelFixture::start(world(nodes, |_| {}).await).await;
    let made = scene.world.owner.post("/api/v1/api-keys", json!({"name": "d", "role": "operator"})).await.expect(201);
    let second = scene.world.anonymous().key(made["api_key"].as_str().unwrap());
    let host = scene.host_as(&second);
    let mut remote = scene.remote().await;
    let mut host = timeout(PATIENCE, host).await.unwrap().unwrap().unwrap();
    let key = made["key"]["key_id"].as_str().unwrap();
    scene.world.owner.delete(&format!("/api/v1/api-keys/{key}")).await.expect(200);
    is_cut(&mut host).await;
    is_cut(&mut remote).await;
    scene.world.owner.get(&scene.path()).await.expect(200);
}

async fn a_tunnel_requires_the_callers_own_live_delegation(nodes: usize) {
    let scene = TunnelFixture::start(world(nodes, |_| {}).await).await;
    let (daemon, bob) = (person(&scene.world, "ann", "operator").await, person(&scene.world, "bob", "operator").await);
    let [unknown, foreign, over] = [new_delegation(), new_delegation(), new_delegation()];
    publish(&bob, foreign, "started").await;
    publish(&daemon, over, "started").await;
    publish(&daemon, over, "completed").await;
    let path = format!("/api/v1/tunnels/{}", Env::system().tunnel_id());
    let mut answers = Vec::new();
    for delegation in [unknown, foreign, over, scene.delegation] {
        let refused = daemon.put(&path, terms(delegation, hour())).await;
        assert_eq!(refused.refusal(), (404, "not_found".to_owned()));
        answers.push(refused.json()["error"].clone());
    }
    for answer in &mut answers {
        answer.as_object_mut().unwrap().remove("request_id");
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "what is not yours is as unknown as what is not there: {answers:?}");
    assert_eq!(daemon.get(&path).await.status, 404);
    publish(&daemon, unknown, "invited").await;
    assert_eq!(daemon.put(&path, terms(unknown, hour())).await.expect(200)["delegation_id"], json!(unknown));
}

async fn the_end_of_a_delegation_cuts_its_tunnels_and_the_log_says_so(nodes: usize) {
    let mut scene = TunnelFixture::start(world(nodes, |_| {}).await).await;
    for revoked in [true, false] {
        if !revoked {
            (scene.id, scene.delegation) = (Env::system().tunnel_id(), new_delegation());
            publish(&scene.world.owner, scene.delegation, "started").await;
            scene.open(terms(scene.delegation, hour())).await;
        }
        let (mut host, mut remote) = scene.pair().await;
        host.write_all(b"0123456789").await.unwrap();
        host.flush().await.unwrap();
        timeout(PATIENCE, remote.read_exact(&mut [0; 10])).await.unwrap().unwrap();
        // A person asks to end it, or its daemon reports that it ended.
        if revoked {
            let path = format!("/api/v1/delegations/{}/cancel", scene.delegation);
            scene.world.owner.post(&path, json!({})).await.expect(200);
        } else {
            publish(&scene.world.owner, scene.delegation, "completed").await;
        }
        is_cut(&mut remote).await;
        is_cut(&mut host).await;
        assert_eq!(scene.world.owner.get(&scene.path()).await.status, 404);
        let again = scene.world.owner.put(&scene.path(), terms(scene.delegation, hour())).await;
        assert_eq!(again.refusal(), (404, "not_found".to_owned()));

        let of_it = |rows: Vec<(String, Value)>| {
            rows.into_iter().filter(|(_, data)| data["tunnel_id"] == json!(scene.id)).collect::<Vec<_>>()
        };
        let opened = of_it(scene.world.audit("tunnel.opened").await);
        assert_eq!(opened.len(), 1);
        assert_eq!(opened[0].1["delegation_id"], json!(scene.delegation));
        let closed = timeout(PATIENCE, async {
            loop {
                let rows = of_it(scene.world.audit("tunnel.closed").await);
                if !rows.is_empty() {
                    return rows;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let row = json!({"tunnel_id": scene.id, "delegation_id": scene.delegation, "bytes": 10});
        assert_eq!(closed.await.expect("the row of its end"), [(opened[0].0.clone(), row)]);
    }
}

async fn a_revoked_key_cuts_what_it_opened(nodes: usize) {
    let mut scene =
        TunnelFixture::start(world(nodes, |options| options.credential_ttl = Duration::from_millis(50)).await).await;
    let made = scene.world.owner.post("/api/v1/api-keys", json!({"name": "d", "role": "operator"})).await.expect(201);
    let daemon = scene.world.anonymous().key(made["api_key"].as_str().unwrap());
    scene.id = Env::system().tunnel_id();
    scene.delegation = new_delegation();
    publish(&daemon, scene.delegation, "started").await;
    daemon.put(&scene.path(), terms(scene.delegation, hour())).await.expect(200);
    let host = scene.host_as(&daemon);
    let mut remote = scene.remote().await;
    let mut host = timeout(PATIENCE, host).await.unwrap().unwrap().unwrap();
    let key = made["key"]["key_id"].as_str().unwrap();
    scene.world.owner.delete(&format!("/api/v1/api-keys/{key}")).await.expect(200);
    is_cut(&mut remote).await;
    is_cut(&mut host).await;
}

/// What was renewed with a key lasts no longer than that key, whoever opened it.
async fn a_revoked_key_cuts_what_it_renewed(nodes: usize) {
    let scene = TunnelFixture::start(world(nodes, |_| {}).await).await;
    let made = scene.world.owner.post("/api/v1/api-keys", json!({"name": "d", "role": "operator"})).await.expect(201);
    let second = scene.world.anonymous().key(made["api_key"].as_str().unwrap());
    second.put(&scene.path(), terms(scene.delegation, hour())).await.expect(200);
    let (mut host, mut remote) = scene.pair().await;
    let key = made["key"]["key_id"].as_str().unwrap();
    scene.world.owner.delete(&format!("/api/v1/api-keys/{key}")).await.expect(200);
    is_cut(&mut remote).await;
    is_cut(&mut host).await;
    scene.world.owner.get(&scene.path()).await.expect(404);
}

async fn only_the_owner_and_the_token_get_in(nodes: usize) {
    let scene = TunnelFixture::start(world(nodes, |_| {}).await).await;
    let other = person(&scene.world, "bob", "operator").await;
    assert_eq!(other.get(&scene.path()).await.refusal(), (404, "not_found".to_owned()));
    assert_eq!(other.put(&scene.path(), terms(scene.delegation, hour())).await.status, 404);
    // Even with their own delegation.
    let own = new_delegation();
    publish(&other, own, "started").await;
    assert_eq!(other.put(&scene.path(), terms(own, hour())).await.status, 404);
    // Also at a node that doesn't have it, if they say that another one has passed the request on.
    for node in 0..nodes {
        let posing = scene.world.at(node, &other).with("x-attache-forwarded", "x");
        assert_eq!(posing.put(&scene.path(), terms(own, hour())).await.status, 404, "node {node}");
    }
    assert_eq!(scene.world.owner.put(&scene.path(), terms(scene.delegation, hour())).await.status, 200);
    assert_eq!(other.delete(&scene.path()).await.status, 404);
    let refused = timeout(PATIENCE, scene.host_as(&other)).await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused.code(), Some(attache_protocol::Code::NotFound));

    let url = format!("ws://{}{}", scene.world.address, scene.path());
    let wrong = Secret::new("tt_wrong".to_owned());
    let refused = tunnel::open_remote(&url, &wrong, &reach(&["127.0.0.1"])).await.unwrap_err();
    assert_eq!(refused.code(), Some(attache_protocol::Code::NotFound));
    assert!(!refused.to_string().contains("tt_"), "{refused}");
    // The address is chosen by someone else: a private one is called only if the machine's owner allows it.
    let refused = tunnel::open_remote(&url, &token(), &reach(&[])).await.unwrap_err();
    assert!(matches!(refused, attache_client::Error::Invalid { .. }), "{refused:?}");
    for url in ["http://127.0.0.1/", "ftp://x", "nothing"] {
        let refused = tunnel::open_remote(url, &token(), &reach(&["127.0.0.1"])).await.unwrap_err();
        assert!(refused.to_string().contains("ws://"), "{refused}");
    }
}

async fn invalid_terms_are_refused(nodes: usize) {
    let scene = TunnelFixture::start(world(nodes, |_| {}).await).await;
    let changed = |member: &str, value: Value| {
        let mut terms = terms(scene.delegation, hour());
        terms[member] = value;
        terms
    };
    let (hash, end) = (token_sha256(&token()), hour());
    let other = new_delegation();
    publish(&scene.world.owner, other, "started").await;
    for wrong in [
        changed("token_sha256", json!("00")),
        changed("expires_at", json!(in_a(Duration::ZERO))),
        changed("expires_at", json!(in_a(Duration::from_secs(40 * 24 * 60 * 60)))),
        changed("max_bytes", json!(0)),
        changed("token", json!("x")),
        json!({"delegation_id": scene.delegation, "token_sha256": hash}),
        json!({"token_sha256": hash, "expires_at": end}),
        // It stays with the delegation it was opened for.
        changed("delegation_id", json!(other)),
    ] {
        let reply = scene.world.owner.put(&scene.path(), wrong.clone()).await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()), "{wrong}");
    }
}
