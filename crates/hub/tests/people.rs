//! People: users and passwords, keys with scopes, tokens, and ownership of agents.

use std::{net::IpAddr, process::Stdio, time::Duration};

use attache_hub::identity::Action;
use attache_protocol::{Code, Secret, wire::key::KeyScope};
use serde_json::{Value, json};

use crate::world::{Engine, TestCaller, World, on_all};

const PASSWORD: &str = "correct horse battery";
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

on_all! {
    people_are_added_changed_and_removed
    no_one_can_exceed_their_own_role
    keys_act_for_their_user_within_their_scopes
    a_token_ends_with_its_key
    agents_have_owners
    the_name_of_an_archived_agent_stays_with_its_owner
    the_name_that_an_agent_had_stays_with_its_owner
    a_weaker_key_cannot_become_a_stronger_one
    a_weaker_key_cannot_revoke_a_stronger_one
    a_refusal_to_remove_the_last_owner_changes_nothing
    ; // These expect that a change is known at once, as it is to the node that made it.
    alone:
    a_password_opens_a_session_until_it_changes
    a_removed_person_leaves_no_key_behind
}

fn secret(text: &str) -> Secret<String> {
    Secret::new(text.to_owned())
}

/// Adds a person and returns their key.
pub async fn person(world: &World, name: &str, role: &str) -> TestCaller {
    world.owner.post("/api/v1/users", json!({"name": name, "role": role})).await.expect(201);
    key_of(world, name, json!({"role": role})).await
}

async fn key_of(world: &World, user: &str, mut request: Value) -> TestCaller {
    request["name"] = json!("a key");
    request["user"] = json!(user);
    let made = world.owner.post("/api/v1/api-keys", request).await.expect(201);
    world.anonymous().key(made["api_key"].as_str().unwrap())
}

async fn people_are_added_changed_and_removed(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let me = world.owner.get("/api/v1/users/me").await.expect(200);
    assert_eq!((&me["name"], &me["role"], &me["has_password"]), (&json!("owner"), &json!("owner"), &json!(false)));
    let body = json!({"name": "ada", "role": "operator", "password": PASSWORD});
    let ada = world.owner.post("/api/v1/users", body.clone()).await.expect(201);
    assert_eq!(
        ada,
        json!({"user_id": ada["user_id"], "name": "ada", "role": "operator", "has_password": true,
            "created_at": ada["created_at"], "removed_at": null})
    );
    assert_eq!(world.owner.post("/api/v1/users", body).await.refusal(), (409, "name_taken".to_owned()));
    for bad in [
        json!({"name": "Ada"}),
        json!({"name": "me"}),
        json!({"name": "usr_1"}),
        json!({"name": ""}),
        json!({"name": "bob", "password": "short"}),
        json!({"name": "bob", "password": "x".repeat(1025)}),
        json!({"name": "bob", "role": "god"}),
        json!({"name": "bob", "admin": true}),
    ] {
        let reply = world.owner.post("/api/v1/users", bad.clone()).await;
        assert_eq!(reply.refusal(), (400, "invalid_request".to_owned()), "{bad}");
        assert!(!String::from_utf8_lossy(&reply.body).contains("short"));
    }
    let id = ada["user_id"].as_str().unwrap();
    for name in ["ada", id] {
        assert_eq!(world.owner.get(&format!("/api/v1/users/{name}")).await.expect(200), ada);
    }
    let listed = world.owner.get("/api/v1/users").await.expect(200);
    assert_eq!(listed, json!({"users": [ada, me], "next_cursor": null}));
    let changed = world.owner.patch("/api/v1/users/ada", json!({"name": "lovelace", "role": "viewer"})).await;
    assert_eq!(changed.expect(200)["role"], "viewer");
    assert_eq!(world.owner.get("/api/v1/users/ada").await.refusal(), (404, "not_found".to_owned()));
    let key = key_of(&world, "lovelace", json!({})).await;
    assert_eq!(key.get("/api/v1/users/me").await.expect(200)["name"], "lovelace");
    let removed = world.owner.delete("/api/v1/users/lovelace").await.expect(200);
    assert!(removed["removed_at"].is_string());
    assert_eq!(key.get("/api/v1/users/me").await.status, 401, "at once");
    assert_eq!(world.owner.delete("/api/v1/users/owner").await.refusal(), (409, "last_owner".to_owned()));
    let lower = world.owner.patch("/api/v1/users/owner", json!({"role": "admin"})).await;
    assert_eq!(lower.refusal(), (409, "last_owner".to_owned()));
    let shown = world.owner.get("/api/v1/audit?limit=200").await;
    let log = String::from_utf8_lossy(&shown.body).into_owned();
    assert!(!log.contains(PASSWORD) && !log.contains("argon2"), "{log}");
    let rows: Vec<Value> =
        world.audit("user.created").await.into_iter().map(|(_, data)| data["name"].clone()).collect();
    assert_eq!(rows, [json!("owner"), json!("ada")]);
}

async fn no_one_can_exceed_their_own_role(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let admin = person(&world, "adm", "admin").await;
    let operator = person(&world, "op", "operator").await;
    let viewer = person(&world, "vi", "viewer").await;
    let refused = |reply: crate::world::HttpReply| reply.refusal().0;
    assert_eq!(refused(admin.post("/api/v1/users", json!({"name": "x", "role": "owner"})).await), 403);
    assert_eq!(refused(admin.patch("/api/v1/users/op", json!({"role": "owner"})).await), 403);
    assert_eq!(refused(admin.patch("/api/v1/users/owner", json!({"role": "viewer"})).await), 403);
    assert_eq!(refused(admin.patch("/api/v1/users/owner", json!({"password": PASSWORD})).await), 403);
    world.owner.post("/api/v1/users", json!({"name": "other-admin", "role": "admin"})).await.expect(201);
    let other = admin.patch("/api/v1/users/other-admin", json!({"password": PASSWORD})).await;
    assert_eq!(refused(other), 403, "a password signs in as the other admin");
    assert_eq!(refused(admin.delete("/api/v1/users/owner").await), 403);
    assert_eq!(refused(admin.post("/api/v1/api-keys", json!({"name": "k", "user": "owner"})).await), 403);
    assert_eq!(refused(admin.post("/api/v1/api-keys", json!({"name": "k", "role": "owner"})).await), 403);
    let above = json!({"name": "k", "user": "vi", "role": "operator"});
    assert_eq!(refused(world.owner.post("/api/v1/api-keys", above).await), 400);
    for person in [&operator, &viewer] {
        assert_eq!(refused(person.post("/api/v1/users", json!({"name": "x"})).await), 403);
        assert_eq!(refused(person.get("/api/v1/users/owner").await), 404, "others are not there");
        assert_eq!(refused(person.patch("/api/v1/users/me", json!({"role": "operator"})).await), 403);
        assert_eq!(refused(person.delete("/api/v1/users/me").await), 403);
        assert_eq!(person.get("/api/v1/users").await.expect(200)["users"].as_array().unwrap().len(), 1);
    }
    assert_eq!(refused(operator.post("/api/v1/api-keys", json!({"name": "k", "user": "vi"})).await), 403);
    // A person's rights shrink with their role, whatever their keys say.
    world.owner.patch("/api/v1/users/op", json!({"role": "viewer"})).await.expect(200);
    assert_eq!(refused(operator.post("/api/v1/conversations", json!({})).await), 403);
}

async fn a_password_opens_a_session_until_it_changes(engine: Engine) {
    let world = World::timed(engine, |options| options.sign_in_failures_per_minute = 6).await;
    world.owner.post("/api/v1/users", json!({"name": "ada", "password": PASSWORD})).await.expect(201);
    let sign_in = async |name: &str, password: &str| world.hub.sign_in(name, &secret(password), HERE).await;
    let session = sign_in(" Ada ", PASSWORD).await.unwrap();
    let by = session.principal.clone();
    assert_eq!(world.hub.authenticate_session(session.secret.expose()).await.unwrap(), by);
    for (name, password) in [("ada", "wrong"), ("nobody", PASSWORD), ("owner", PASSWORD), ("", ""), ("x y", "")] {
        assert_eq!(sign_in(name, password).await.unwrap_err().code, Code::Unauthenticated, "{name}");
    }
    // Changing her own password requires the old one, and ends every session but this one.
    let other = sign_in("ada", PASSWORD).await.unwrap();
    let change = |current: Option<&str>| attache_protocol::wire::user::UpdateUserRequest {
        password: Some(secret("another long password")),
        current_password: current.map(secret),
        ..Default::default()
    };
    assert_eq!(world.hub.update_user(&by, "me", change(None)).await.unwrap_err().code, Code::InvalidRequest);
    assert_eq!(world.hub.update_user(&by, "me", change(Some("no"))).await.unwrap_err().code, Code::Forbidden);
    world.hub.update_user(&by, "me", change(Some(PASSWORD))).await.unwrap();
    assert!(world.hub.authenticate_session(session.secret.expose()).await.is_ok(), "the one that changed it stays");
    assert!(world.hub.authenticate_session(other.secret.expose()).await.is_err());
    // An admin's change ends all of them, and so does removing her.
    world.owner.patch("/api/v1/users/ada", json!({"password": PASSWORD})).await.expect(200);
    assert!(world.hub.authenticate_session(session.secret.expose()).await.is_err());
    let session = sign_in("ada", PASSWORD).await.unwrap();
    world.owner.delete("/api/v1/users/ada").await.expect(200);
    assert!(world.hub.authenticate_session(session.secret.expose()).await.is_err());
    // Five failures above. One more is allowed, then every attempt is rejected.
    assert_eq!(sign_in("ada", PASSWORD).await.unwrap_err().code, Code::Unauthenticated);
    let refused = sign_in("ada", PASSWORD).await.unwrap_err();
    assert_eq!((refused.code, refused.limited.unwrap().per_minute), (Code::TooManyRequests, 6));
}

async fn keys_act_for_their_user_within_their_scopes(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let operator = person(&world, "op", "operator").await;
    world.owner.post("/api/v1/agent-accounts", json!({"name": "builder"})).await.expect(201);
    let reader = key_of(&world, "owner", json!({"role": "owner", "scopes": ["read"]})).await;
    assert_eq!(reader.get("/api/v1/task-runs").await.status, 200);
    let refused = reader.post("/api/v1/task-runs", json!({"agent_id": "builder"})).await;
    assert_eq!(refused.refusal(), (403, "forbidden".to_owned()));
    assert!(String::from_utf8_lossy(&refused.body).contains("`call`"));
    // A key can't grant more than it has.
    let clerk = key_of(&world, "owner", json!({"role": "owner", "scopes": ["admin", "read", "admin"]})).await;
    let made = clerk.post("/api/v1/api-keys", json!({"name": "k"})).await.expect(201);
    assert_eq!(made["key"]["scopes"], json!(["read", "admin"]));
    assert_eq!(clerk.post("/api/v1/api-keys", json!({"name": "k", "scopes": ["call"]})).await.refusal().0, 403);
    assert_eq!(clerk.post("/api/v1/api-keys", json!({"name": "k", "scopes": []})).await.refusal().0, 400);
    let user = json!({"name": "bob", "password": PASSWORD});
    assert_eq!(clerk.post("/api/v1/users", user).await.refusal().0, 403, "a password has no scopes");
    let link = clerk.post("/api/v1/login-links", json!({})).await.expect(201);
    let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1.to_owned();
    let session = world.hub.redeem_login(&token, HERE).await.unwrap();
    assert_eq!(session.principal.scopes, Some(vec![KeyScope::Read, KeyScope::Admin]));
    // Operators manage their own keys.
    let own = operator.post("/api/v1/api-keys", json!({"name": "mine"})).await.expect(201);
    let listed = operator.get("/api/v1/api-keys").await.expect(200);
    assert_eq!(listed["api_keys"].as_array().unwrap().len(), 2);
    let foreign = made["key"]["key_id"].as_str().unwrap();
    assert_eq!(operator.delete(&format!("/api/v1/api-keys/{foreign}")).await.refusal().0, 404);
    let own = own["key"]["key_id"].as_str().unwrap();
    assert!(operator.delete(&format!("/api/v1/api-keys/{own}")).await.expect(200)["revoked_at"].is_string());
    // An expired key is rejected.
    let soon = world.env.now().plus(Duration::from_secs(60)).to_string();
    let short = key_of(&world, "op", json!({"expires_at": soon})).await;
    assert_eq!(short.get("/api/v1/users/me").await.status, 200);
    world.advance(Duration::from_secs(60));
    assert_eq!(short.get("/api/v1/users/me").await.refusal(), (401, "unauthenticated".to_owned()));
}

async fn a_token_ends_with_its_key(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let made = json!({"name": "k", "role": "admin", "scopes": ["read", "call"]});
    let made = world.owner.post("/api/v1/api-keys", made).await.expect(201);
    let key = world.anonymous().key(made["api_key"].as_str().unwrap());
    let token = key.post("/api/v1/tokens", json!({"scopes": ["read"], "ttl_seconds": 120})).await.expect(201);
    assert_eq!((&token["token_type"], token["expires_at"].as_str().unwrap().len()), (&json!("Bearer"), 24));
    let by = world.anonymous().key(token["token"].as_str().unwrap());
    assert_eq!(by.get("/api/v1/task-runs").await.status, 200);
    assert_eq!(by.post("/api/v1/conversations", json!({})).await.refusal().0, 403, "less than the key");
    assert_eq!(key.post("/api/v1/tokens", json!({"scopes": ["admin"]})).await.refusal().0, 403, "never more");
    for bad in [json!({"ttl_seconds": 3601}), json!({"ttl_seconds": 0}), json!({"audience": "a b"}), json!({"x": 1})] {
        assert_eq!(key.post("/api/v1/tokens", bad.clone()).await.refusal().0, 400, "{bad}");
    }
    // A token can't create anything that outlives it.
    let whole = world.owner.post("/api/v1/tokens", json!({})).await.expect(201);
    let whole = world.anonymous().key(whole["token"].as_str().unwrap());
    for (path, body) in [
        ("/api/v1/tokens", json!({})),
        ("/api/v1/api-keys", json!({"name": "k"})),
        ("/api/v1/login-links", json!({})),
        ("/api/v1/users", json!({"name": "x"})),
    ] {
        assert_eq!(whole.post(path, body).await.refusal(), (403, "forbidden".to_owned()), "{path}");
    }
    assert_eq!(whole.patch("/api/v1/users/me", json!({"password": PASSWORD})).await.refusal().0, 403);
    whole.post("/api/v1/agent-accounts", json!({"name": "by-token"})).await.expect(201);
    // A token with another audience is rejected.
    let other = key.post("/api/v1/tokens", json!({"audience": "https://other.example"})).await.expect(201);
    let other = world.anonymous().key(other["token"].as_str().unwrap());
    assert_eq!(other.get("/api/v1/task-runs").await.refusal(), (401, "unauthenticated".to_owned()));
    // Revoking the key ends its tokens and their open streams.
    world.agent("builder").await;
    let run = world.run("builder").await;
    let events = by.follow(&format!("/api/v1/task-runs/{}/events", run["task_run_id"].as_str().unwrap())).await;
    let id = made["key"]["key_id"].as_str().unwrap();
    world.owner.delete(&format!("/api/v1/api-keys/{id}")).await.expect(200);
    assert_eq!(by.get("/api/v1/task-runs").await.refusal(), (401, "unauthenticated".to_owned()));
    events.rest().await;
    // The others expire, and so do their streams.
    let events = whole.follow(&format!("/api/v1/task-runs/{}/events", run["task_run_id"].as_str().unwrap())).await;
    world.advance(Duration::from_secs(900));
    assert_eq!(whole.get("/api/v1/task-runs").await.refusal(), (401, "unauthenticated".to_owned()));
    events.rest().await;
}

async fn a_weaker_key_cannot_become_a_stronger_one(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let made = |request: Value| async {
        let made = world.owner.post("/api/v1/api-keys", request).await.expect(201);
        world.anonymous().key(made["api_key"].as_str().unwrap())
    };
    // The person has no password yet. Only a credential with all of their rights can set one.
    let viewer = made(json!({"name": "dashboard", "role": "viewer"})).await;
    let reply = viewer.patch("/api/v1/users/me", json!({"password": PASSWORD})).await;
    assert_eq!(reply.refusal(), (403, "forbidden".to_owned()));
    assert_eq!(viewer.get("/api/v1/deliveries/secret").await.refusal(), (403, "forbidden".to_owned()));
    // Nothing created with a key outlives it.
    let end = world.env.now().plus(Duration::from_secs(600));
    let brief = made(json!({"name": "brief", "role": "owner", "expires_at": end})).await;
    let heir = brief.post("/api/v1/api-keys", json!({"name": "forever"})).await.expect(201);
    assert_eq!(heir["key"]["expires_at"], json!(end));
    let later = json!({"name": "later", "expires_at": end.plus(Duration::from_millis(1))});
    assert_eq!(brief.post("/api/v1/api-keys", later).await.refusal(), (400, "invalid_request".to_owned()));
    let token = brief.post("/api/v1/tokens", json!({"ttl_seconds": 3600})).await.expect(201);
    assert_eq!(token["expires_at"], json!(end));
    // An agent's key can see and call, so a key without both scopes can't create one.
    let manager = made(json!({"name": "manager", "role": "owner", "scopes": ["manage"]})).await;
    let reply = manager.post("/api/a2a/register", json!({"agent_id": "sly"})).await;
    assert_eq!(reply.refusal(), (403, "forbidden".to_owned()));
    let whole = made(json!({"name": "whole", "role": "owner", "scopes": ["manage", "read", "call"]})).await;
    whole.post("/api/a2a/register", json!({"agent_id": "plain"})).await.expect(200);
}

async fn a_removed_person_leaves_no_key_behind(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let zed = person(&world, "zed", "operator").await;
    let register = |client: TestCaller, name: &'static str| async move {
        let made = client.post("/api/a2a/register", json!({"agent_id": name})).await.expect(200);
        client.key(made["api_key"].as_str().unwrap())
    };
    let theirs = register(zed.clone(), "zed-agent").await;
    let ours = register(world.owner.clone(), "our-agent").await;
    theirs.get("/api/v1/agent-accounts").await.expect(200);
    world.owner.delete("/api/v1/users/zed").await.expect(200);
    assert_eq!(theirs.get("/api/v1/agent-accounts").await.status, 401);
    assert_eq!(zed.get("/api/v1/agent-accounts").await.status, 401);
    ours.get("/api/v1/agent-accounts").await.expect(200);
}

async fn a_refusal_to_remove_the_last_owner_changes_nothing(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let made = world.owner.post("/api/a2a/register", json!({"agent_id": "mine"})).await.expect(200);
    let agent = world.anonymous().key(made["api_key"].as_str().unwrap());
    let rows = async || world.owner.get("/api/v1/audit?after=0&limit=200").await.expect(200)["events"].clone();
    let before = rows().await;
    let refused = world.owner.delete("/api/v1/users/owner").await;
    assert_eq!(refused.refusal().0, 409);
    agent.get("/api/v1/agent-accounts").await.expect(200);
    assert_eq!(rows().await, before);
}

async fn agents_have_owners(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (op, other) = (person(&world, "op", "operator").await, person(&world, "other", "operator").await);
    let made = op.post("/api/v1/agent-accounts", json!({"name": "mine"})).await.expect(201);
    let own = op.get("/api/v1/users/me").await.expect(200);
    assert_eq!(made["owner_id"], own["user_id"]);
    let registered = op.post("/api/a2a/register", json!({"agent_id": "mine"})).await.expect(200);
    let taken = other.post("/api/a2a/register", json!({"agent_id": "mine"})).await;
    assert_eq!(taken.refusal(), (409, "name_taken".to_owned()));
    let key = world.anonymous().key(registered["api_key"].as_str().unwrap());
    assert_eq!(key.get("/api/v1/agent-accounts").await.status, 200, "nobody took it");
    let path = "/api/v1/agent-accounts/mine";
    assert_eq!(other.patch(path, json!({"description": "x"})).await.refusal().0, 403);
    assert_eq!(other.post(&format!("{path}/pairing-codes"), json!({})).await.refusal().0, 403);
    assert_eq!(other.delete(path).await.refusal().0, 403);
    assert_eq!(op.patch(path, json!({"owner": "other"})).await.refusal().0, 403, "only an admin gives agents away");
    op.post(&format!("{path}/pairing-codes"), json!({})).await.expect(201);
    let given = world.owner.patch(path, json!({"owner": "other"})).await.expect(200);
    let theirs = other.get("/api/v1/users/me").await.expect(200);
    assert_eq!(given["owner_id"], theirs["user_id"]);
    assert_eq!(op.patch(path, json!({"description": "x"})).await.refusal().0, 403);
    other.patch(path, json!({"description": "x"})).await.expect(200);
    let device = world.device("mine").await;
    let runtime = format!("/api/v1/agent-runtimes/{}", device.runtime);
    assert_eq!(op.delete(&runtime).await.refusal().0, 403);
    other.delete(&runtime).await.expect(200);
    assert_eq!(world.owner.patch(path, json!({"owner": ""})).await.expect(200)["owner_id"], Value::Null);
    assert_eq!(world.owner.patch(path, json!({"owner": "nobody"})).await.refusal(), (404, "not_found".to_owned()));
    // An idempotency key belongs to the person, whichever of their keys they use.
    let body = json!({"agent_id": "mine", "idempotency_key": "once"});
    let first = op.post("/api/v1/task-runs", body.clone()).await.expect(201);
    let again = key_of(&world, "op", json!({})).await.post("/api/v1/task-runs", body.clone()).await.expect(200);
    assert_eq!(first["task_run_id"], again["task_run_id"]);
    let theirs = other.post("/api/v1/task-runs", body).await.expect(201);
    assert_ne!(first["task_run_id"], theirs["task_run_id"]);
}

#[tokio::test]
async fn a_token_survives_a_restart() {
    let world = World::timed(Engine::Sqlite, |_| {}).await;
    let file = world.data.path().join("hub/token.key");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let token = world.owner.post("/api/v1/tokens", json!({})).await.expect(201);
    let token = token["token"].as_str().unwrap().to_owned();
    let keys = world.anonymous().get("/.well-known/jwks.json").await.expect(200);
    let world = world.restart().await;
    assert_eq!(world.anonymous().get("/.well-known/jwks.json").await.expect(200), keys);
    assert_eq!(world.anonymous().key(&token).get("/api/v1/users/me").await.expect(200)["name"], "owner");
}

#[test]
fn every_action_has_a_scope_and_every_scope_an_action() {
    let used: std::collections::BTreeSet<KeyScope> = Action::ALL.iter().map(|action| action.scope()).collect();
    assert_eq!(used.into_iter().collect::<Vec<_>>(), KeyScope::ALL);
}

#[tokio::test]
async fn another_library_verifies_a_token_with_the_published_keys() {
    const SCRIPT: &str = "
import json, sys, jwt
from jwt import PyJWK
given = json.load(sys.stdin)
key = PyJWK(given['jwks']['keys'][0])
claims = jwt.decode(given['token'], key.key, algorithms=['EdDSA'], audience=given['origin'], issuer=given['origin'])
assert jwt.get_unverified_header(given['token']) == {'alg': 'EdDSA', 'kid': given['jwks']['keys'][0]['kid'], 'typ': 'JWT'}
print(claims['role'])
";
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let pythons = [
        std::env::var("ATTACHE_PYTHON").unwrap_or_default(),
        format!("{root}/target/python/bin/python3"),
        "python3".to_owned(),
    ];
    let has_it = |python: &&String| {
        let asked =
            std::process::Command::new(python).args(["-c", "import jwt, cryptography"]).stderr(Stdio::null()).status();
        !python.is_empty() && asked.is_ok_and(|status| status.success())
    };
    let Some(python) = pythons.iter().find(has_it) else {
        eprintln!("skipped: no Python here has the packages PyJWT and cryptography");
        return;
    };
    let world = World::start().await;
    let token = world.owner.post("/api/v1/tokens", json!({})).await.expect(201);
    let jwks = world.anonymous().get("/.well-known/jwks.json").await;
    assert_eq!(jwks.header("cache-control"), "public, max-age=300");
    let given =
        json!({"token": token["token"], "jwks": jwks.expect(200), "origin": format!("http://{}", world.address)});
    let mut child = std::process::Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), given.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "owner");
}

/// Callers may still use the name, and would reach whoever takes it.
async fn the_name_of_an_archived_agent_stays_with_its_owner(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ann, bob) = (person(&world, "ann", "operator").await, person(&world, "bob", "operator").await);
    let admin = person(&world, "joe", "admin").await;
    let agents = "/api/v1/agent-accounts";
    let reviewer = json!({"name": "reviewer"});
    ann.post(agents, reviewer.clone()).await.expect(201);
    ann.delete(&format!("{agents}/reviewer")).await.expect(200);
    // Whichever way bob tries to get it.
    let other = bob.post(agents, json!({"name": "other"})).await.expect(201);
    let other = format!("{agents}/{}", other["agent_id"].as_str().unwrap());
    let refused = bob.post(agents, reviewer.clone()).await;
    let said = refused.json()["error"].clone();
    assert_eq!(refused.refusal(), (409, "name_taken".to_owned()));
    assert_eq!(
        (&said["message"], &said["hint"]),
        (
            &json!("Someone else's agent had this name, and its callers may still use it."),
            &json!("Choose another name, or ask an owner or admin of the hub to create the agent and give it to you."),
        )
    );
    assert_eq!(bob.patch(&other, reviewer.clone()).await.refusal(), (409, "name_taken".to_owned()));
    let registered = bob.post("/api/a2a/register", json!({"agent_id": "reviewer"})).await;
    assert_eq!(registered.refusal(), (409, "name_taken".to_owned()));
    let skilled = json!({"skills": [{"id": "reviewer", "name": "reviewer"}]});
    bob.patch(&other, skilled).await.expect(200);
    let call = json!({"agent_type": "reviewer", "task": "x"});
    assert_eq!(ann.post("/api/a2a/call", call.clone()).await.status, 404);
    bob.post("/api/a2a/call", call).await.expect(200);
    assert_eq!(ann.post("/api/v1/task-runs", json!({"agent_id": "reviewer", "input": {}})).await.status, 404);
    // Its owner has it again, also by renaming.
    ann.post(agents, reviewer.clone()).await.expect(201);
    ann.delete(&format!("{agents}/reviewer")).await.expect(200);
    ann.post(agents, json!({"name": "new"})).await.expect(201);
    ann.patch(&format!("{agents}/new"), reviewer.clone()).await.expect(200);
    ann.delete(&format!("{agents}/reviewer")).await.expect(200);
    // An admin gives it to somebody else, who is its owner from then on.
    world.advance(Duration::from_secs(1));
    admin.post(agents, json!({"name": "reviewer", "owner": "bob"})).await.expect(201);
    bob.delete(&format!("{agents}/reviewer")).await.expect(200);
    assert_eq!(ann.post(agents, reviewer.clone()).await.refusal(), (409, "name_taken".to_owned()));
    bob.patch(&other, reviewer).await.expect(200);
}

async fn a_weaker_key_cannot_revoke_a_stronger_one(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let key = async |role: &str| -> Value {
        world.owner.post("/api/v1/api-keys", json!({"name": role, "role": role})).await.expect(201)
    };
    let path = |made: &Value| format!("/api/v1/api-keys/{}", made["key"]["key_id"].as_str().unwrap());
    let made = [key("owner").await, key("admin").await, key("operator").await, key("operator").await];
    let [owners, admins, operators, others] = &made;
    for (weaker, stronger) in [(admins, owners), (operators, owners), (operators, admins)] {
        let caller = world.anonymous().key(weaker["api_key"].as_str().unwrap());
        assert_eq!(caller.delete(&path(stronger)).await.refusal(), (403, "forbidden".to_owned()));
    }
    let operator = world.anonymous().key(operators["api_key"].as_str().unwrap());
    assert_eq!(operator.delete(&path(others)).await.status, 200, "one like itself");
    assert_eq!(operator.delete(&path(operators)).await.status, 200, "itself");
    assert_eq!(world.owner.delete(&path(owners)).await.status, 200);
}

/// The same callers use it after the agent was renamed.
async fn the_name_that_an_agent_had_stays_with_its_owner(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ann, bob) = (person(&world, "ann", "operator").await, person(&world, "bob", "operator").await);
    let admin = person(&world, "joe", "admin").await;
    let agents = "/api/v1/agent-accounts";
    let (planner, renamed) = (json!({"name": "planner"}), json!({"name": "planner-two"}));
    let made = ann.post(agents, planner.clone()).await.expect(201);
    let agent = format!("{agents}/{}", made["agent_id"].as_str().unwrap());
    for by in [&ann, &admin] {
        by.patch(&agent, renamed.clone()).await.expect(200);
        let refused = bob.post(agents, planner.clone()).await;
        let said = refused.json()["error"].clone();
        assert_eq!(refused.refusal(), (409, "name_taken".to_owned()));
        assert_eq!(
            (&said["message"], &said["hint"]),
            (
                &json!("Someone else's agent had this name, and its callers may still use it."),
                &json!(
                    "Choose another name, or ask an owner or admin of the hub to create the agent and give it to you."
                ),
            )
        );
        let registered = bob.post("/api/a2a/register", json!({"agent_id": "planner"})).await;
        assert_eq!(registered.refusal(), (409, "name_taken".to_owned()));
        // Not by having such a skill either.
        let skilled = json!({"name": "other", "skills": [{"id": "planner", "name": "planner"}]});
        let other = bob.post(agents, skilled).await.expect(201);
        assert_eq!(ann.post("/api/a2a/call", json!({"agent_type": "planner", "task": "x"})).await.status, 404);
        let other = format!("{agents}/{}", other["agent_id"].as_str().unwrap());
        assert_eq!(bob.patch(&other, planner.clone()).await.refusal(), (409, "name_taken".to_owned()));
        bob.delete(&other).await.expect(200);
        // Its owner has it again.
        ann.patch(&agent, planner.clone()).await.expect(200);
    }
    // An admin gives it to somebody else, who has it from then on.
    ann.patch(&agent, renamed).await.expect(200);
    let mut given = planner.clone();
    given["owner"] = json!("bob");
    let given = admin.post(agents, given).await.expect(201);
    bob.patch(&format!("{agents}/{}", given["agent_id"].as_str().unwrap()), json!({"name": "mine"})).await.expect(200);
    assert_eq!(ann.post(agents, planner.clone()).await.refusal(), (409, "name_taken".to_owned()));
    bob.post(agents, planner).await.expect(201);
}
