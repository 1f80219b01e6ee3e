//! Login links and console sessions.

use attache_protocol::{Code, wire::key::Role};
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_link_signs_one_browser_in_once_and_signing_out_ends_it() {
    let world = World::start().await;
    let link = world.owner.post("/api/v1/login-links", json!({})).await.expect(201);
    let url = link["url"].as_str().unwrap();
    let token = url.strip_prefix(&format!("http://{}/login?token=", world.address)).unwrap();
    let session = world.hub.redeem_login(token).await.unwrap();
    assert_eq!(session.principal.role(), Some(Role::Owner));
    assert_eq!(world.hub.redeem_login(token).await.unwrap_err().code, Code::Unauthenticated);
    let secret = session.secret.expose();
    assert_eq!(world.hub.authenticate_session(secret).await.unwrap(), session.principal);
    assert!(world.hub.authenticate_key(secret).await.is_err(), "a session is no API key");
    assert_eq!(world.anonymous().key(secret).get("/api/v1/task-runs").await.status, 401);
    let keys = world.owner.get("/api/v1/api-keys").await.expect(200);
    assert_eq!(keys["api_keys"].as_array().unwrap().len(), 1, "sessions are not listed");
    world.hub.logout(&session.principal).await.unwrap();
    assert_eq!(world.hub.authenticate_session(secret).await.unwrap_err().code, Code::Unauthenticated);
}

#[tokio::test]
async fn a_link_dies_with_its_time_and_with_its_maker() {
    let world = World::tuned(|options| options.login_ttl = std::time::Duration::ZERO).await;
    let link = world.owner.post("/api/v1/login-links", json!({})).await.expect(201);
    let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1;
    assert!(world.hub.redeem_login(token).await.is_err());

    let world = World::start().await;
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "a", "role": "admin"})).await.expect(201);
    let admin = world.anonymous().key(made["api_key"].as_str().unwrap());
    let link = admin.post("/api/v1/login-links", json!({})).await.expect(201);
    let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1;
    let key = made["key"]["key_id"].as_str().unwrap();
    world.owner.delete(&format!("/api/v1/api-keys/{key}")).await.expect(200);
    assert!(world.hub.redeem_login(token).await.is_err());
}

#[tokio::test]
async fn hints_tell_a_page_that_something_moved() {
    let world = World::start().await;
    let viewer = world.owner.post("/api/v1/api-keys", json!({"name": "v", "role": "viewer"})).await.expect(201);
    let by = world.hub.authenticate_key(viewer["api_key"].as_str().unwrap()).await.unwrap();
    let mut changes = world.hub.changes(&by).unwrap();
    world.agent("builder").await;
    assert_eq!(changes.next().await, Some(()));
    assert_eq!(world.hub.live(&by).await.unwrap().pending, 0);
    world.hub.drain();
    while changes.next().await.is_some() {}
}
