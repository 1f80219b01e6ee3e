//! A stopping hub ends long waits, finishes requests in flight, and closes its store.

use std::time::{Duration, Instant};

use attache_hub::{Hub, Options};
use attache_protocol::env::Env;
use serde_json::json;

use crate::{life::wait_for_connections, world::World};

#[tokio::test]
async fn stopping_ends_long_waits_and_streams_at_once() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let created = world.run("builder").await;
    let run = created["task_run_id"].as_str().unwrap().to_owned();
    device.claim().await;
    let mut stream = world.owner.follow(&format!("/api/v1/task-runs/{run}/events?after=2")).await;
    let pulling = tokio::spawn(async move { device.pull(30_000).await });
    wait_for_connections(&world, 2).await;
    let (hub, address) = (world.hub.clone(), world.address);
    let begun = Instant::now();
    let (served, _data) = world.stop();
    assert_eq!(pulling.await.unwrap().expect(200), json!({"task_run": null}));
    assert_eq!(stream.next().await, None);
    served.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(hub.is_draining());
    assert!(hub.ready().await.is_err());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_draining_hub_is_alive_but_not_ready() {
    let world = World::start().await;
    assert_eq!(world.anonymous().get("/readyz").await.status, 200);
    let health = world.anonymous().get("/healthz").await.expect(200);
    assert_eq!((&health["status"], &health["durability"]), (&json!("ok"), &json!("nothing")));
    world.hub.drain();
    // The port is closed by now, so call the router directly.
    let ask = |path: &str| {
        let request = hyper::Request::get(path).body(axum::body::Body::empty()).unwrap();
        tower::ServiceExt::oneshot(attache_hub::router(world.hub.clone()), request)
    };
    assert_eq!(ask("/readyz").await.unwrap().status(), 503);
    assert_eq!(ask("/healthz").await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_hub_that_is_told_to_stop_serves_until_proxies_have_noticed() {
    let world = World::tuned(|options| options.shutdown_delay = Duration::from_secs(3)).await;
    world.agent("builder").await;
    let (hub, owner, stranger) = (world.hub.clone(), world.owner.clone(), world.anonymous());
    let begun = Instant::now();
    let (served, _data) = world.stop();
    loop {
        let reply = stranger.get("/readyz").await;
        if reply.status == 503 {
            assert_eq!(reply.json()["error"]["code"], "draining");
            break;
        }
    }
    let body = json!({"agent_id": "builder", "input": {"text": "a task"}});
    owner.post("/api/v1/task-runs", body).await.expect(201);
    assert!(!hub.is_draining());
    served.await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_first_start_creates_the_owner_key_and_a_lost_file_can_be_recovered() {
    use std::{os::unix::fs::PermissionsExt as _, sync::Arc};
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("hub");
    let store = Arc::new(attache_store::memory::MemoryStore::new());
    let options = || Options::new(&data, "127.0.0.1:7800".parse().unwrap());
    let first = Hub::start(options(), store.clone(), Env::system()).await.unwrap();
    let file = data.join("admin.key");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&data), mode(&file), mode(&data.join("pairing.key"))), (0o700, 0o600, 0o600));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("ak_") && text.ends_with('\n') && text.lines().count() == 1);
    first.authenticate_key(text.trim()).await.unwrap();

    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::remove_file(&file).unwrap();
    Hub::start(options(), store.clone(), Env::system()).await.unwrap();
    assert_eq!((mode(&data), file.exists()), (0o700, false), "a second start makes no second owner");
    let mut recover = options();
    recover.owner_key = attache_hub::OwnerKey::Recover;
    let third = Hub::start(recover, store, Env::system()).await.unwrap();
    let again = std::fs::read_to_string(&file).unwrap();
    third.authenticate_key(again.trim()).await.unwrap();
    assert!(third.authenticate_key(text.trim()).await.is_err(), "the lost one is void");
    assert_eq!(third.owner_key(), attache_hub::OwnerKeyState::Recovered { revoked: 1 });
}
