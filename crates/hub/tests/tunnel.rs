//! Tunnels, with both ends as the client has them: bytes pass in both directions, slowly where one end is slow, and not at all
//! once the tunnel has ended.

use std::time::Duration;

use attache_client::{
    Credential, HubOptions,
    egress::{Guard, Policy},
    tunnel::{self, Reach, Tunnel, token_sha256},
};
use attache_protocol::{Secret, Timestamp, TunnelId, env::Env};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    people::person,
    world::{Client, PATIENCE, World},
};

const TOKEN: &str = "tt_0123456789abcdef0123456789abcdef";

struct Scene {
    world: World,
    id: TunnelId,
}

fn token() -> Secret<String> {
    Secret::new(TOKEN.to_owned())
}

fn in_a(time: Duration) -> Timestamp {
    Env::system().now().plus(time)
}

fn terms(expires_at: Timestamp) -> Value {
    json!({"token_sha256": token_sha256(&token()), "expires_at": expires_at})
}

fn reach(allow: &[&str]) -> Reach {
    let allow = allow.iter().map(|rule| rule.parse().unwrap()).collect();
    let guard = Guard::new(Policy { allow });
    Reach { guard, pin: None, trusted_certificate: None, connect: Duration::from_secs(15) }
}

impl Scene {
    async fn start(world: World) -> Self {
        let scene = Self { world, id: Env::system().tunnel_id() };
        scene.open(terms(in_a(Duration::from_secs(3600)))).await;
        scene
    }

    fn path(&self) -> String {
        format!("/api/v1/tunnels/{}", self.id)
    }

    async fn open(&self, terms: Value) -> Value {
        self.world.owner.put(&self.path(), terms).await.expect(200)
    }

    /// Waits for a remote in a task of its own.
    fn host_as(&self, client: &Client) -> JoinHandle<attache_client::Result<Tunnel>> {
        let key = client.header("authorization").trim_start_matches("Bearer ").to_owned();
        let options = HubOptions::new(format!("http://{}", self.world.address), Credential::Key(Secret::new(key)));
        let id = self.id;
        tokio::spawn(async move { tunnel::open_host(&options, id).await })
    }

    async fn remote(&self) -> Tunnel {
        let url = format!("ws://{}{}", self.world.address, self.path());
        timeout(PATIENCE, tunnel::open_remote(&url, &token(), &reach(&["127.0.0.1"]))).await.unwrap().unwrap()
    }

    /// The two ends of one connection.
    async fn pair(&self) -> (Tunnel, Tunnel) {
        let host = self.host_as(&self.world.owner);
        let remote = self.remote().await;
        (timeout(PATIENCE, host).await.unwrap().unwrap().unwrap(), remote)
    }
}

/// Ends, whether with an end or an error.
async fn is_cut(end: &mut Tunnel) {
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, end.read_to_end(&mut rest)).await.expect("it is cut in time");
    assert_eq!(rest, b"", "nothing more comes");
}

#[tokio::test]
async fn bytes_pass_in_both_directions_and_are_counted() {
    let scene = Scene::start(World::start().await).await;
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
    let metrics = scene.world.owner.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("attache_tunnels 1\n"), "{metrics}");
    assert!(metrics.contains("attache_tunnel_bytes_total 3000016\n"), "{metrics}");
}

#[tokio::test]
async fn several_connections_at_a_time_do_not_mix() {
    let scene = Scene::start(World::start().await).await;
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

#[tokio::test]
async fn a_remote_may_come_before_its_host_and_a_host_that_left_is_not_given_one() {
    let scene = Scene::start(World::start().await).await;
    let left = scene.host_as(&scene.world.owner);
    tokio::time::sleep(Duration::from_millis(50)).await;
    left.abort();
    // The hub hears of it.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut remote = scene.remote().await;
    let mut host = timeout(PATIENCE, scene.host_as(&scene.world.owner)).await.unwrap().unwrap().unwrap();
    host.write_all(b"hello").await.unwrap();
    host.flush().await.unwrap();
    let mut said = [0; 5];
    timeout(PATIENCE, remote.read_exact(&mut said)).await.unwrap().unwrap();
    assert_eq!(&said, b"hello");
    // One end leaves, and the other hears of it.
    drop(host);
    is_cut(&mut remote).await;
}

#[tokio::test]
async fn a_slow_reader_slows_the_sender_down() {
    let scene = Scene::start(World::start().await).await;
    let (mut host, remote) = scene.pair().await;
    let piece = vec![7; 1 << 20];
    let mut written = 0_u64;
    while timeout(Duration::from_millis(500), host.write_all(&piece)).await.is_ok() {
        written += 1 << 20;
        assert!(written < 256 << 20, "nobody reads, and everything is taken");
    }
    drop(remote);
}

#[tokio::test]
async fn the_end_of_a_tunnel_cuts_its_connections() {
    let scene = Scene::start(World::start().await).await;
    // Its time is over.
    let (mut host, mut remote) = scene.pair().await;
    let end = in_a(Duration::from_secs(2));
    scene.open(terms(end)).await;
    is_cut(&mut remote).await;
    is_cut(&mut host).await;
    assert!(Env::system().now() >= end, "not before its time");
    assert_eq!(scene.world.owner.get(&scene.path()).await.status, 404);

    // Its owner closes it, also for a host that waits.
    scene.open(terms(in_a(Duration::from_secs(3600)))).await;
    let (mut host, mut remote) = scene.pair().await;
    let waiting = scene.host_as(&scene.world.owner);
    assert_eq!(scene.world.owner.delete(&scene.path()).await.status, 204);
    is_cut(&mut remote).await;
    is_cut(&mut host).await;
    assert!(timeout(PATIENCE, waiting).await.unwrap().unwrap().is_err());
    assert_eq!(scene.world.owner.delete(&scene.path()).await.status, 404);

    // It has passed as many bytes as it may.
    let few =
        json!({"token_sha256": token_sha256(&token()), "expires_at": in_a(Duration::from_secs(60)), "max_bytes": 10});
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

#[tokio::test]
async fn a_revoked_key_cuts_what_it_opened() {
    let mut scene =
        Scene::start(World::tuned(|options| options.credential_ttl = Duration::from_millis(50)).await).await;
    let made = scene.world.owner.post("/api/v1/api-keys", json!({"name": "d", "role": "operator"})).await.expect(201);
    let daemon = scene.world.anonymous().key(made["api_key"].as_str().unwrap());
    scene.id = Env::system().tunnel_id();
    daemon.put(&scene.path(), terms(in_a(Duration::from_secs(3600)))).await.expect(200);
    let host = scene.host_as(&daemon);
    let mut remote = scene.remote().await;
    let mut host = timeout(PATIENCE, host).await.unwrap().unwrap().unwrap();
    let key = made["key"]["key_id"].as_str().unwrap();
    scene.world.owner.delete(&format!("/api/v1/api-keys/{key}")).await.expect(200);
    is_cut(&mut remote).await;
    is_cut(&mut host).await;
}

#[tokio::test]
async fn only_the_owner_and_the_token_get_in() {
    let scene = Scene::start(World::start().await).await;
    let other = person(&scene.world, "bob", "operator").await;
    assert_eq!(other.get(&scene.path()).await.refusal(), (404, "not_found".to_owned()));
    assert_eq!(other.put(&scene.path(), terms(in_a(Duration::from_secs(60)))).await.status, 404);
    assert_eq!(other.delete(&scene.path()).await.status, 404);
    let refused = timeout(PATIENCE, scene.host_as(&other)).await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused.code(), Some(attache_protocol::Code::NotFound));

    let url = format!("ws://{}{}", scene.world.address, scene.path());
    let wrong = Secret::new("tt_wrong".to_owned());
    let refused = tunnel::open_remote(&url, &wrong, &reach(&["127.0.0.1"])).await.unwrap_err();
    assert_eq!(refused.code(), Some(attache_protocol::Code::NotFound));
    assert!(!refused.to_string().contains("tt_"), "{refused}");
    // The address is somebody else's choice: a private one is called only if the owner of the machine says so.
    let refused = tunnel::open_remote(&url, &token(), &reach(&[])).await.unwrap_err();
    assert!(matches!(refused, attache_client::Error::Invalid { .. }), "{refused:?}");
    for url in ["http://127.0.0.1/", "ftp://x", "nothing"] {
        let refused = tunnel::open_remote(url, &token(), &reach(&["127.0.0.1"])).await.unwrap_err();
        assert!(refused.to_string().contains("ws://"), "{refused}");
    }
}

#[tokio::test]
async fn terms_that_cannot_be_are_refused() {
    let scene = Scene::start(World::start().await).await;
    let soon = in_a(Duration::from_secs(60));
    for wrong in [
        json!({"token_sha256": "00", "expires_at": soon}),
        json!({"token_sha256": "0".repeat(64), "expires_at": in_a(Duration::ZERO)}),
        json!({"token_sha256": "0".repeat(64), "expires_at": in_a(Duration::from_secs(40 * 24 * 60 * 60))}),
        json!({"token_sha256": "0".repeat(64), "expires_at": soon, "max_bytes": 0}),
        json!({"token_sha256": "0".repeat(64), "expires_at": soon, "token": "x"}),
        json!({"token_sha256": "0".repeat(64)}),
    ] {
        let reply = scene.world.owner.put(&scene.path(), wrong.clone()).await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()), "{wrong}");
    }
}
