//! Login links and console sessions.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use attache_protocol::{
    Code,
    wire::key::{CreateKeyRequest, Role},
};
use serde_json::{Value, json};

use crate::world::{TestCaller, World};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// The token of a new link.
async fn link(by: &TestCaller, body: Value) -> String {
    let link = by.post("/api/v1/login-links", body).await.expect(201);
    link["url"].as_str().unwrap().split_once("token=").unwrap().1.to_owned()
}

#[tokio::test]
async fn a_link_signs_one_browser_in_once_and_signing_out_ends_it() {
    let world = World::start().await;
    let link = world.owner.post("/api/v1/login-links", json!({})).await.expect(201);
    let url = link["url"].as_str().unwrap();
    let token = url.strip_prefix(&format!("http://{}/login?token=", world.address)).unwrap();
    let session = world.hub.redeem_login(token, HERE).await.unwrap();
    assert_eq!(session.principal.role(), Some(Role::Owner));
    assert_eq!(world.hub.redeem_login(token, HERE).await.unwrap_err().code, Code::Unauthenticated);
    let secret = session.secret.expose();
    assert_eq!(world.hub.authenticate_session(secret).await.unwrap(), session.principal);
    assert!(world.hub.authenticate_key(secret).await.is_err(), "a session is no API key");
    assert_eq!(world.anonymous().key(secret).get("/api/v1/task-runs").await.status, 401);
    let keys = world.owner.get("/api/v1/api-keys").await.expect(200);
    assert_eq!(keys["api_keys"].as_array().unwrap().len(), 1, "sessions are no keys");
    world.hub.logout(&session.principal).await.unwrap();
    assert_eq!(world.hub.authenticate_session(secret).await.unwrap_err().code, Code::Unauthenticated);
}

#[tokio::test]
async fn a_link_ends_with_its_expiry_and_its_creator() {
    let world = World::tuned(|options| options.login_ttl = std::time::Duration::ZERO).await;
    let link = world.owner.post("/api/v1/login-links", json!({})).await.expect(201);
    let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1;
    assert!(world.hub.redeem_login(token, HERE).await.is_err());

    let world = World::start().await;
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "a", "role": "admin"})).await.expect(201);
    let admin = world.anonymous().key(made["api_key"].as_str().unwrap());
    let link = admin.post("/api/v1/login-links", json!({})).await.expect(201);
    let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1;
    let key = made["key"]["key_id"].as_str().unwrap();
    world.owner.delete(&format!("/api/v1/api-keys/{key}")).await.expect(200);
    assert!(world.hub.redeem_login(token, HERE).await.is_err());
}

#[tokio::test]
async fn hints_tell_a_page_that_something_changed() {
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

/// A key that expires in 20 seconds, its link, its session, and what that creates: nothing lives longer or has more
/// rights.
#[tokio::test]
async fn nothing_created_with_a_credential_outlives_or_exceeds_it() {
    let world = World::timed(crate::world::Engine::Sqlite, |_| {}).await;
    let end = world.env.now().plus(Duration::from_secs(20));
    let body = json!({"name": "short", "role": "admin", "expires_at": end.to_string()});
    let short = world.owner.post("/api/v1/api-keys", body).await.expect(201);
    let short = world.anonymous().key(short["api_key"].as_str().unwrap());
    let session = world.hub.redeem_login(&link(&short, json!({})).await, HERE).await.unwrap();
    assert_eq!(session.expires_at, end);
    let by = session.principal.clone();
    let request = |name: &str| CreateKeyRequest { name: name.to_owned(), ..CreateKeyRequest::default() };
    let made = world.hub.create_key(&by, request("persistent")).await.unwrap();
    assert_eq!(made.key.expires_at, Some(end));
    let later = Some(world.env.now().plus(Duration::from_secs(21)));
    let refused = world.hub.create_key(&by, CreateKeyRequest { expires_at: later, ..request("later") }).await;
    assert_eq!(refused.unwrap_err().code, Code::InvalidRequest);
    // Another session from the session, a password, a person with one, an agent with its own key.
    let again = world.hub.login_link(&by, Default::default()).await.unwrap();
    let again = world.hub.redeem_login(again.url.split_once("token=").unwrap().1, HERE).await.unwrap();
    assert_eq!(again.expires_at, end);
    let forbidden = (403, "forbidden".to_owned());
    let password = json!({"name": "ghost", "role": "admin", "password": "correct horse battery"});
    assert_eq!(short.post("/api/v1/users", password).await.refusal(), forbidden);
    let mine = json!({"password": "correct horse battery"});
    assert_eq!(short.patch("/api/v1/users/me", mine.clone()).await.refusal(), forbidden);
    assert_eq!(short.post("/api/a2a/register", json!({"agent_id": "ghost"})).await.refusal(), forbidden);
    let mine = attache_protocol::wire::user::UpdateUserRequest {
        password: Some(attache_protocol::Secret::new("correct horse battery".to_owned())),
        ..Default::default()
    };
    for by in [&by, &again.principal] {
        assert_eq!(world.hub.update_user(by, "me", mine.clone()).await.unwrap_err().code, Code::Forbidden);
    }
    let token = short.post("/api/v1/tokens", json!({"ttl_seconds": 3600})).await.expect(201);
    assert!(token["expires_at"].as_str().unwrap() <= end.to_string().as_str());
    world.advance(Duration::from_secs(21));
    for session in [&session, &again] {
        assert!(world.hub.authenticate_session(session.secret.expose()).await.is_err());
    }
    let persistent = world.anonymous().key(made.api_key.as_deref().unwrap());
    assert_eq!(persistent.get("/api/v1/task-runs").await.status, 401);
    assert_eq!(world.anonymous().key(token["token"].as_str().unwrap()).get("/api/v1/task-runs").await.status, 401);
}

#[tokio::test]
async fn a_session_ends_with_its_key_its_user_and_its_role() {
    let world = World::start().await;
    world.owner.post("/api/v1/users", json!({"name": "ada", "role": "admin"})).await.expect(201);
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "k", "user": "ada", "role": "admin"})).await;
    let made = made.expect(201);
    let ada = world.anonymous().key(made["api_key"].as_str().unwrap());
    let open = async |by: &TestCaller| world.hub.redeem_login(&link(by, json!({})).await, HERE).await.unwrap();
    let alive = async |secret: &str| world.hub.authenticate_session(secret).await;
    let session = open(&ada).await;
    assert_eq!(alive(session.secret.expose()).await.unwrap().role(), Some(Role::Admin));
    world.owner.patch("/api/v1/users/ada", json!({"role": "viewer"})).await.expect(200);
    assert_eq!(alive(session.secret.expose()).await.unwrap().role(), Some(Role::Viewer));
    world.owner.patch("/api/v1/users/ada", json!({"role": "admin"})).await.expect(200);
    // A session opened from the session ends too.
    let again = world.hub.login_link(&session.principal, Default::default()).await.unwrap();
    let again = world.hub.redeem_login(again.url.split_once("token=").unwrap().1, HERE).await.unwrap();
    let key = made["key"]["key_id"].as_str().unwrap();
    world.owner.delete(&format!("/api/v1/api-keys/{key}")).await.expect(200);
    for session in [&session, &again] {
        assert_eq!(alive(session.secret.expose()).await.unwrap_err().code, Code::Unauthenticated);
    }
    let other = world.owner.post("/api/v1/api-keys", json!({"name": "k", "user": "ada", "role": "admin"})).await;
    let other = world.anonymous().key(other.expect(201)["api_key"].as_str().unwrap());
    let session = open(&other).await;
    world.owner.delete("/api/v1/users/ada").await.expect(200);
    assert_eq!(alive(session.secret.expose()).await.unwrap_err().code, Code::Unauthenticated);
}

#[tokio::test]
async fn a_link_for_another_user_works_unless_their_role_is_higher() {
    let world = World::start().await;
    for (name, role) in [("ada", "admin"), ("bob", "viewer")] {
        world.owner.post("/api/v1/users", json!({"name": name, "role": role})).await.expect(201);
    }
    let key = async |user: &str, role: &str| {
        let body = json!({"name": user, "user": user, "role": role});
        let made = world.owner.post("/api/v1/api-keys", body).await.expect(201);
        world.anonymous().key(made["api_key"].as_str().unwrap())
    };
    let (ada, bob) = (key("ada", "admin").await, key("bob", "viewer").await);
    let shown = ada.post("/api/v1/login-links", json!({"user": "bob"})).await.expect(201);
    assert_eq!((&shown["user_name"], &shown["role"]), (&json!("bob"), &json!("viewer")));
    let token = shown["url"].as_str().unwrap().split_once("token=").unwrap().1;
    let target = world.hub.login_target(token).await.unwrap().unwrap();
    assert_eq!((target.user.as_deref(), target.role), (Some("bob"), Role::Viewer));
    let session = world.hub.redeem_login(token, HERE).await.unwrap();
    let bobs = bob.get("/api/v1/users/me").await.expect(200);
    assert_eq!(json!(session.principal.user), bobs["user_id"]);
    assert_eq!(session.principal.role(), Some(Role::Viewer));
    for (by, body, expected) in [
        (&ada, json!({"user": "owner"}), 403),
        (&bob, json!({"user": "ada"}), 403),
        (&ada, json!({"user": "nobody"}), 404),
        (&ada, json!({"for": "bob"}), 400),
        (&bob, json!({}), 201),
    ] {
        assert_eq!(by.post("/api/v1/login-links", body.clone()).await.status, expected, "{body}");
    }
}

#[tokio::test]
async fn sessions_are_listed_ended_and_in_the_log() {
    let world = World::start().await;
    world.owner.post("/api/v1/users", json!({"name": "bob", "role": "viewer"})).await.expect(201);
    let body = json!({"name": "bob", "user": "bob", "role": "viewer"});
    let made = world.owner.post("/api/v1/api-keys", body).await.expect(201);
    let bob = world.anonymous().key(made["api_key"].as_str().unwrap());
    let own = world.hub.redeem_login(&link(&world.owner, json!({})).await, HERE).await.unwrap();
    let session = world.hub.redeem_login(&link(&bob, json!({})).await, HERE).await.unwrap();
    let list = world.owner.get("/api/v1/sessions").await.expect(200);
    assert_eq!(list["sessions"].as_array().unwrap().len(), 2);
    let shown = &bob.get("/api/v1/sessions").await.expect(200)["sessions"];
    assert_eq!(shown.as_array().unwrap().len(), 1);
    let shown = &shown[0];
    assert_eq!(
        (&shown["address"], &shown["opened_by"], &shown["role"], &shown["ended_at"]),
        (&json!("192.0.2.7"), &made["key"]["key_id"], &json!("viewer"), &json!(null))
    );
    let listed = &list["sessions"];
    let owners = listed.as_array().unwrap().iter().find(|one| one["role"] == "owner").unwrap();
    let path = |session: &Value| format!("/api/v1/sessions/{}", session["session_id"].as_str().unwrap());
    assert_eq!(bob.delete(&path(owners)).await.status, 404, "those of others are not there");
    assert!(bob.delete(&path(shown)).await.expect(200)["ended_at"].is_string());
    assert!(world.hub.authenticate_session(session.secret.expose()).await.is_err());
    assert!(world.hub.authenticate_session(own.secret.expose()).await.is_ok());
    // Nor does a key of theirs that may do less sign its person out.
    let lesser = world.key("viewer").await;
    assert_eq!(lesser.delete(&path(owners)).await.refusal(), (403, "forbidden".to_owned()));
    assert!(world.hub.authenticate_session(own.secret.expose()).await.is_ok());
    let ids =
        |rows: Vec<(String, Value)>| rows.into_iter().map(|(_, data)| data["session_id"].clone()).collect::<Vec<_>>();
    assert_eq!(world.audit("login_link.created").await.len(), 2);
    assert_eq!(ids(world.audit("session.opened").await), [owners["session_id"].clone(), shown["session_id"].clone()]);
    assert_eq!(ids(world.audit("session.ended").await), [shown["session_id"].clone()]);
}

#[tokio::test]
async fn over_plain_http_a_session_lasts_a_working_day() {
    for (public_url, hours) in [(None, 12), (Some("https://hub.example".to_owned()), 30 * 24)] {
        let world = World::tuned(|options| options.public_url = public_url).await;
        let link = world.owner.post("/api/v1/login-links", json!({})).await.expect(201);
        let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1;
        let session = world.hub.redeem_login(token, [127, 0, 0, 1].into()).await.unwrap();
        let left = session.expires_at.since(world.hub.now());
        let most = Duration::from_secs(hours * 60 * 60);
        assert!(left <= most && left + Duration::from_secs(60) > most, "{left:?}");
    }
}
