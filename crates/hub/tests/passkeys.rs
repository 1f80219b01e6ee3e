//! Passkeys: added in person, signed in with, and needed for approvals where an agent's owner says so.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use attache_hub::{
    Principal, Result,
    control::DecisionOrigin,
    identity::{CreationOptions, RequestOptions, SignedInSession},
};
use attache_protocol::{
    Code, PasskeyId, PermissionId, Secret,
    rules::permission::{DecisionScope, PermissionState},
    wire::permission::{DecisionRequest, PermissionRequest},
};
use serde_json::{Value, json};

use crate::{
    escalation::person,
    work::{ClaimedRunFixture, decide, id},
    world::{Engine, TestCaller, World, on_all},
};

/// Uses nothing of the hub, so that the hub's own tests and these share it.
#[allow(dead_code, reason = "the tests of the hub's functions use it, too")]
#[path = "../src/identity/webauthn/fake.rs"]
mod fake;

use self::fake::{FakeAuthenticator, FakeKey};

on_all! {
    a_passkey_is_added_signs_in_and_ends_its_sessions
    a_challenge_counts_once_for_two_minutes_and_for_its_purpose
    an_agents_approvals_need_a_passkey
    a_confirmation_covers_what_was_shown_and_nothing_else
    ; // These expect that a change is known at once, as it is to the node that made it.
    alone:
    a_passkey_is_added_in_person
    wrong_passkeys_are_limited_like_wrong_passwords
    only_the_owner_in_person_says_what_approvals_need
    nothing_is_approved_in_advance_or_from_a_notification
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const ORIGIN: &str = "https://hub.example";
const PASSWORD: &str = "correct horse battery";
const BUILDER: &str = "/api/v1/agent-accounts/builder";

fn secret(text: &str) -> Secret<String> {
    serde_json::from_value(json!(text)).unwrap()
}

/// A person with a console session and an authenticator.
struct PasskeyOwner {
    session: Principal,
    fake: FakeAuthenticator,
}

// === impl PasskeyOwner ===

impl PasskeyOwner {
    /// Signed in with a link of their own key.
    async fn of(world: &World, caller: &TestCaller) -> Self {
        let link = caller.post("/api/v1/login-links", json!({})).await.expect(201);
        let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1.to_owned();
        let session = world.hub.redeem_login(&token, HERE).await.unwrap().principal;
        Self { session, fake: FakeAuthenticator::new(ORIGIN, FakeKey::es256()) }
    }

    async fn options(&self, world: &World, password: Option<&str>) -> Result<CreationOptions> {
        world.hub.passkey_creation(&self.session, ORIGIN, password.map(secret)).await
    }

    async fn add(&self, world: &World, password: Option<&str>) -> Result<PasskeyId> {
        let options = self.options(world, password).await?;
        let made = serde_json::from_value(self.fake.create(&options.challenge)).unwrap();
        world.hub.add_passkey(&self.session, "phone", made).await.map(|added| added.id)
    }

    async fn sign_in(&mut self, world: &World) -> Result<SignedInSession> {
        let options = world.hub.passkey_sign_in(ORIGIN, HERE).await?;
        let signed = serde_json::from_value(self.fake.get(&options.challenge)).unwrap();
        world.hub.sign_in_with_passkey(signed, HERE).await
    }

    async fn confirmation(&self, world: &World, permission: &str, decision: DecisionRequest) -> Result<RequestOptions> {
        let permission = permission.parse().unwrap();
        world.hub.approval_confirmation(&self.session, permission, decision, ORIGIN).await
    }

    async fn decide(&mut self, world: &World, permission: &str, challenge: &str) -> Result<PermissionRequest> {
        let signed = serde_json::from_value(self.fake.get(challenge)).unwrap();
        let permission: PermissionId = permission.parse().unwrap();
        world.hub.decide_with_passkey(&self.session, permission, signed, None).await
    }

    async fn approve(&mut self, world: &World, permission: &str, scope: DecisionScope) -> Result<PermissionRequest> {
        let options = self.confirmation(world, permission, approval(scope)).await?;
        self.decide(world, permission, &options.challenge).await
    }
}

fn approval(scope: DecisionScope) -> DecisionRequest {
    let (tool_pattern, until, comment) = (None, None, None);
    DecisionRequest { approved: true, scope, tool_pattern, until, this_channel_only: false, comment }
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code
}

async fn a_passkey_is_added_signs_in_and_ends_its_sessions(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let ada = person(&world, "ada", "operator").await;
    let mut owner = PasskeyOwner::of(&world, &ada).await;
    let options = owner.options(&world, None).await.unwrap();
    assert_eq!(
        (options.rp_id.as_str(), options.user_name.as_str(), options.algorithms, options.timeout_ms),
        ("hub.example", "ada", [-7, -8, -257], 120_000)
    );
    let id = owner.add(&world, None).await.unwrap();
    let listed = world.hub.passkeys(&owner.session).await.unwrap();
    assert_eq!(
        listed.iter().map(|one| (one.id, one.name.as_str(), one.last_used_at)).collect::<Vec<_>>(),
        [(id, "phone", None)]
    );
    assert_eq!(owner.options(&world, None).await.unwrap().exclude, [fake::text(&owner.fake.id)]);

    world.advance(Duration::from_secs(60));
    let signed_in = owner.sign_in(&world).await.unwrap();
    assert_eq!(signed_in.principal.user, owner.session.user);
    let used = world.hub.passkeys(&signed_in.principal).await.unwrap()[0].last_used_at;
    assert_eq!(used, Some(world.env.now()));
    let sessions = ada.get("/api/v1/sessions").await.expect(200);
    let newest = &sessions["sessions"][0];
    assert_eq!((&newest["passkey_id"], &newest["opened_by"]), (&json!(id), &Value::Null), "{sessions}");
    let opened = world.audit("session.opened").await.pop().unwrap().1;
    assert_eq!((&opened["passkey_id"], &opened["address"]), (&json!(id), &json!("192.0.2.7")));
    let added = world.audit("passkey.added").await;
    assert_eq!(added[0].1, json!({"passkey_id": id, "user_id": owner.session.user, "name": "phone"}));

    // Somebody else can't remove it.
    let bob = PasskeyOwner::of(&world, &person(&world, "bob", "admin").await).await;
    assert_eq!(code(world.hub.remove_passkey(&bob.session, id).await), Code::NotFound);
    world.hub.remove_passkey(&owner.session, id).await.unwrap();
    world.until("/healthz", |_| true).await;
    let ended = async || world.hub.authenticate_session(signed_in.secret.expose()).await;
    assert_eq!(code(ended().await), Code::Unauthenticated);
    assert_eq!(code(owner.sign_in(&world).await), Code::PasskeyRefused);
    assert!(world.hub.recheck(&owner.session).await.is_ok(), "the other session goes on");
    assert_eq!(world.audit("passkey.removed").await.len(), 1);

    // A counter that doesn't advance is that of a copy.
    owner.fake.counter = Some(7);
    owner.add(&world, None).await.unwrap();
    owner.sign_in(&world).await.unwrap();
    owner.fake.counter = Some(7);
    let refused = owner.sign_in(&world).await.unwrap_err();
    assert!(refused.message.contains("counter went back"), "{refused:?}");

    // Who is removed can't sign in.
    world.owner.delete("/api/v1/users/ada").await.expect(200);
    assert_eq!(code(owner.sign_in(&world).await), Code::PasskeyRefused);
}

async fn a_challenge_counts_once_for_two_minutes_and_for_its_purpose(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let ada = person(&world, "ada", "operator").await;
    let mut owner = PasskeyOwner::of(&world, &ada).await;
    let options = owner.options(&world, None).await.unwrap();
    let made = || serde_json::from_value(owner.fake.create(&options.challenge)).unwrap();
    // Another session of the same person.
    let other = PasskeyOwner::of(&world, &ada).await;
    assert_eq!(code(world.hub.add_passkey(&other.session, "x", made()).await), Code::PasskeyRefused);
    assert_eq!(code(world.hub.add_passkey(&owner.session, "x", made()).await), Code::PasskeyRefused, "used up");
    let late = owner.options(&world, None).await.unwrap();
    world.advance(Duration::from_secs(120));
    let made = serde_json::from_value(owner.fake.create(&late.challenge)).unwrap();
    assert_eq!(code(world.hub.add_passkey(&owner.session, "x", made).await), Code::PasskeyRefused, "too late");
    owner.add(&world, None).await.unwrap();

    let sign = |owner: &mut PasskeyOwner, challenge: &str| serde_json::from_value(owner.fake.get(challenge)).unwrap();
    let options = world.hub.passkey_sign_in(ORIGIN, HERE).await.unwrap();
    let signed: attache_hub::identity::PasskeyAssertion = sign(&mut owner, &options.challenge);
    world.hub.sign_in_with_passkey(signed.clone(), HERE).await.unwrap();
    assert_eq!(code(world.hub.sign_in_with_passkey(signed, HERE).await), Code::PasskeyRefused, "once");
    // What was asked for something else signs nobody in.
    let options = owner.options(&world, None).await.unwrap();
    let signed = sign(&mut owner, &options.challenge);
    assert_eq!(code(world.hub.sign_in_with_passkey(signed, HERE).await), Code::PasskeyRefused);
    // A passkey that the hub doesn't know, and one that says it is somebody else's.
    let options = world.hub.passkey_sign_in(ORIGIN, HERE).await.unwrap();
    let mut unknown = FakeAuthenticator::new(ORIGIN, FakeKey::es256());
    let signed = serde_json::from_value(unknown.get(&options.challenge)).unwrap();
    assert_eq!(code(world.hub.sign_in_with_passkey(signed, HERE).await), Code::PasskeyRefused);
    let options = world.hub.passkey_sign_in(ORIGIN, HERE).await.unwrap();
    let mut named = owner.fake.get(&options.challenge);
    named["userHandle"] = json!(fake::text(&[1; 16]));
    let signed = serde_json::from_value(named).unwrap();
    assert_eq!(code(world.hub.sign_in_with_passkey(signed, HERE).await), Code::PasskeyRefused);
    // Where browsers have none.
    for origin in ["http://127.0.0.1:7800", "http://hub.example"] {
        assert_eq!(code(world.hub.passkey_sign_in(origin, HERE).await), Code::InvalidRequest, "{origin}");
    }
}

async fn a_passkey_is_added_in_person(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let ada = person(&world, "ada", "admin").await;
    let mut owner = PasskeyOwner::of(&world, &ada).await;
    let by_key = ada.header("authorization").trim_start_matches("Bearer ").to_owned();
    let by_key = world.hub.authenticate_key(&by_key).await.unwrap();
    let options = async |by: &Principal| world.hub.passkey_creation(by, ORIGIN, None).await;
    assert_eq!(code(options(&by_key).await), Code::Forbidden, "not in the console");
    // Sessions that can do less than she can, and one that somebody else opened for her.
    let less = ada.post("/api/v1/api-keys", json!({"name": "less"})).await.expect(201);
    let less = world.anonymous().key(less["api_key"].as_str().unwrap());
    assert_eq!(code(options(&PasskeyOwner::of(&world, &less).await.session).await), Code::Forbidden);
    let soon = json!({"name": "soon", "role": "admin", "expires_at": "2099-01-01T00:00:00Z"});
    let soon = ada.post("/api/v1/api-keys", soon).await.expect(201);
    let soon = world.anonymous().key(soon["api_key"].as_str().unwrap());
    assert_eq!(code(options(&PasskeyOwner::of(&world, &soon).await.session).await), Code::Forbidden);
    let link = world.owner.post("/api/v1/login-links", json!({"user": "ada"})).await.expect(201);
    let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1.to_owned();
    let issued = world.hub.redeem_login(&token, HERE).await.unwrap().principal;
    assert_eq!(code(options(&issued).await), Code::Forbidden);

    // Who has a password gives it, as for a new one.
    world.owner.patch("/api/v1/users/ada", json!({"password": PASSWORD})).await.expect(200);
    owner.session = world.hub.sign_in("ada", &secret(PASSWORD), HERE).await.unwrap().principal;
    assert_eq!(code(owner.add(&world, None).await), Code::InvalidRequest);
    assert_eq!(code(owner.add(&world, Some("wrong password")).await), Code::Forbidden);
    owner.add(&world, Some(PASSWORD)).await.unwrap();
    // A session from a passkey is as good as one from a password.
    owner.session = owner.sign_in(&world).await.unwrap().principal;
    owner.fake = FakeAuthenticator::new(ORIGIN, FakeKey::ed25519());
    owner.add(&world, Some(PASSWORD)).await.unwrap();
    // The same one again, and one too many.
    let options = owner.options(&world, Some(PASSWORD)).await.unwrap();
    let again = serde_json::from_value(owner.fake.create(&options.challenge)).unwrap();
    assert_eq!(code(world.hub.add_passkey(&owner.session, "x", again).await), Code::InvalidRequest);
    for _ in 2..16 {
        owner.fake = FakeAuthenticator::new(ORIGIN, FakeKey::ed25519());
        owner.add(&world, Some(PASSWORD)).await.unwrap();
    }
    assert!(owner.add(&world, Some(PASSWORD)).await.unwrap_err().message.contains("already have 16"));
    // A new password ends the session, and the passkeys stay.
    world.owner.patch("/api/v1/users/ada", json!({"password": "another good password"})).await.expect(200);
    assert_eq!(code(world.hub.recheck(&owner.session).await), Code::Unauthenticated);
    owner.sign_in(&world).await.unwrap();
}

async fn wrong_passkeys_are_limited_like_wrong_passwords(engine: Engine) {
    let world = World::timed(engine, |options| options.sign_in_failures_per_minute = 3).await;
    let mut owner = PasskeyOwner::of(&world, &person(&world, "ada", "operator").await).await;
    owner.add(&world, None).await.unwrap();
    for _ in 0..5 {
        owner.sign_in(&world).await.unwrap();
    }
    let good = std::mem::replace(&mut owner.fake, FakeAuthenticator::new(ORIGIN, FakeKey::es256()));
    for _ in 0..3 {
        assert_eq!(code(owner.sign_in(&world).await), Code::PasskeyRefused);
    }
    owner.fake = good;
    assert_eq!(code(owner.sign_in(&world).await), Code::TooManyRequests);
    assert_eq!(
        code(world.hub.sign_in("ada", &secret(PASSWORD), HERE).await),
        Code::TooManyRequests,
        "counted together"
    );
}

/// The owner of the hub, with a passkey, whose agent `builder` demands it.
async fn confirmed(engine: Engine) -> (ClaimedRunFixture, PasskeyOwner) {
    let work = ClaimedRunFixture::begin(engine).await;
    let owner = PasskeyOwner::of(&work.world, &work.world.owner).await;
    let refused = work.world.owner.patch(BUILDER, json!({"confirm_approvals": "passkey"})).await;
    assert_eq!(refused.refusal(), (403, "passkey_required".to_owned()), "nobody could approve");
    owner.add(&work.world, None).await.unwrap();
    let set = work.world.owner.patch(BUILDER, json!({"confirm_approvals": "passkey"})).await.expect(200);
    assert_eq!(set["confirm_approvals"], "passkey");
    (work, owner)
}

async fn an_agents_approvals_need_a_passkey(engine: Engine) {
    let (work, mut owner) = confirmed(engine).await;
    let world = &work.world;
    let permission = work.pending("shell", json!({"command": "ls"})).await;
    assert_eq!(work.permission(&permission).await["confirm_approvals"], "passkey");
    let required = (403, "passkey_required".to_owned());
    for body in [json!({"approved": true}), json!({"approved": true, "scope": "agent"})] {
        let refused = work.decide(&permission, body).await;
        assert_eq!(refused.refusal(), required);
        assert!(refused.json()["error"]["hint"].as_str().unwrap().contains("in the console"));
    }
    let place = DecisionOrigin { via: "console", from: None };
    let plain =
        world.hub.decide(&owner.session, permission.parse().unwrap(), approval(DecisionScope::Once), place).await;
    assert_eq!(code(plain), Code::PasskeyRequired);
    assert_eq!(work.permission(&permission).await["state"], "pending");

    let decided = owner.approve(world, &permission, DecisionScope::Once).await.unwrap();
    assert_eq!((decided.state, decided.decided_via.as_deref()), (PermissionState::Approved, Some("passkey")));
    assert_eq!(work.answer(&permission, 0).await["approved"], true);
    // A denial needs none, with any key that may decide.
    let permission = work.pending("shell", json!({"command": "rm"})).await;
    work.decide(&permission, json!({"approved": false})).await.expect(200);
    // What was confirmed for the whole run answers the next request.
    let permission = work.pending("shell", json!({"command": "cargo test"})).await;
    owner.approve(world, &permission, DecisionScope::Run).await.unwrap();
    assert_eq!(work.ask("shell", json!({"command": "cargo test"})).await["approved"], true);
    // A person who may decide, but has no passkey.
    let permission = work.pending("shell", json!({"command": "who"})).await;
    let ada = PasskeyOwner::of(world, &person(world, "ada", "admin").await).await;
    let refused = ada.confirmation(world, &permission, approval(DecisionScope::Once)).await;
    assert_eq!(code(refused), Code::PasskeyRequired);
}

async fn a_confirmation_covers_what_was_shown_and_nothing_else(engine: Engine) {
    let (work, mut owner) = confirmed(engine).await;
    let world = &work.world;
    let (first, second) =
        (work.pending("shell", json!({"command": "ls"})).await, work.pending("shell", json!({"command": "rm"})).await);
    let options = owner.confirmation(world, &first, approval(DecisionScope::Once)).await.unwrap();
    assert_eq!((options.allow.len(), options.rp_id.as_str()), (1, "hub.example"));
    // For another request.
    assert_eq!(code(owner.decide(world, &second, &options.challenge).await), Code::PasskeyRefused);
    assert_eq!(code(owner.decide(world, &first, &options.challenge).await), Code::PasskeyRefused, "used up");
    // In another session, and with the passkey of somebody else.
    let mut ada = PasskeyOwner::of(world, &person(world, "ada", "admin").await).await;
    ada.add(world, None).await.unwrap();
    let options = owner.confirmation(world, &first, approval(DecisionScope::Once)).await.unwrap();
    assert_eq!(code(ada.decide(world, &first, &options.challenge).await), Code::PasskeyRefused);
    let options = owner.confirmation(world, &first, approval(DecisionScope::Once)).await.unwrap();
    std::mem::swap(&mut owner.fake, &mut ada.fake);
    assert_eq!(code(owner.decide(world, &first, &options.challenge).await), Code::PasskeyRefused);
    std::mem::swap(&mut owner.fake, &mut ada.fake);
    // Too late, unverified, on another page, and with a challenge for signing in.
    let options = owner.confirmation(world, &first, approval(DecisionScope::Once)).await.unwrap();
    world.advance(Duration::from_secs(121));
    work.beat().await;
    assert_eq!(code(owner.decide(world, &first, &options.challenge).await), Code::PasskeyRefused);
    let wrong: [&dyn Fn(&mut FakeAuthenticator); 3] =
        [&|fake| fake.flags = 0x01, &|fake| fake.origin = "https://evil.hub.example".to_owned(), &|fake| {
            fake.host = "example".to_owned();
        }];
    for change in wrong {
        let options = owner.confirmation(world, &first, approval(DecisionScope::Once)).await.unwrap();
        let (flags, origin, host) = (owner.fake.flags, owner.fake.origin.clone(), owner.fake.host.clone());
        change(&mut owner.fake);
        assert_eq!(code(owner.decide(world, &first, &options.challenge).await), Code::PasskeyRefused);
        (owner.fake.flags, owner.fake.origin, owner.fake.host) = (flags, origin, host);
    }
    let options = world.hub.passkey_sign_in(ORIGIN, HERE).await.unwrap();
    assert_eq!(code(owner.decide(world, &first, &options.challenge).await), Code::PasskeyRefused);
    assert_eq!(work.permission(&first).await["state"], "pending");
    // Exactly what was confirmed is decided.
    let decision = DecisionRequest { comment: Some("only this".to_owned()), ..approval(DecisionScope::Run) };
    let options = owner.confirmation(world, &first, decision).await.unwrap();
    let decided = owner.decide(world, &first, &options.challenge).await.unwrap();
    assert_eq!((decided.scope, decided.comment.as_deref()), (Some(DecisionScope::Run), Some("only this")));
    assert_eq!(work.permission(&second).await["state"], "pending");
}

async fn only_the_owner_in_person_says_what_approvals_need(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let ada = person(&world, "ada", "operator").await;
    let owner = PasskeyOwner::of(&world, &ada).await;
    owner.add(&world, None).await.unwrap();
    let on = json!({"confirm_approvals": "passkey"});
    let new = json!({"name": "adas", "confirm_approvals": "passkey"});
    assert_eq!(ada.post("/api/v1/agent-accounts", new).await.expect(201)["confirm_approvals"], "passkey");
    let path = "/api/v1/agent-accounts/adas";
    let scoped = json!({"name": "scoped", "scopes": ["read", "call", "decide", "manage"]});
    let scoped = ada.post("/api/v1/api-keys", scoped).await.expect(201);
    let scoped = world.anonymous().key(scoped["api_key"].as_str().unwrap());
    let token = ada.post("/api/v1/tokens", json!({})).await.expect(201);
    let token = world.anonymous().key(token["token"].as_str().unwrap());
    let issued = json!({"name": "issued", "user": "ada", "role": "operator"});
    let issued = world.owner.post("/api/v1/api-keys", issued).await.expect(201);
    let issued = world.anonymous().key(issued["api_key"].as_str().unwrap());
    for other in [&world.owner, &scoped, &token, &issued] {
        let refused = other.patch(path, json!({"confirm_approvals": "none"})).await;
        assert_eq!(refused.refusal(), (403, "forbidden".to_owned()));
        // What doesn't change it is theirs as before.
        let kept = json!({"description": "x", "confirm_approvals": "passkey"});
        other.patch(path, kept).await.expect(200);
    }
    assert_eq!(world.owner.get(path).await.expect(200)["confirm_approvals"], "passkey");
    ada.patch(path, json!({"confirm_approvals": "none"})).await.expect(200);
    assert_eq!(world.owner.patch(path, on.clone()).await.refusal(), (403, "forbidden".to_owned()));
    ada.patch(path, on).await.expect(200);
    let changed = world.audit("agent.updated").await;
    assert_eq!(changed.last().unwrap().1["confirm_approvals"], "passkey");
}

async fn nothing_is_approved_in_advance_or_from_a_notification(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let world = &work.world;
    let mut owner = PasskeyOwner::of(world, &world.owner).await;
    owner.add(world, None).await.unwrap();
    let step = json!({"epoch": 1, "tool": "shell", "input": {"command": "ls"}, "cwd": "/src", "assured": ["walled"]});
    let ask = async || work.device.client.post(&work.path("/permission-requests"), step.clone()).await.expect(201);
    world.owner.patch(BUILDER, json!({"approvals": {"mode": "accept_walled"}})).await.expect(200);
    assert_eq!(ask().await["approved"], true);
    let permission = work.pending("Edit", json!({"path": "a"})).await;
    work.decide(&permission, json!({"approved": true, "scope": "agent"})).await.expect(200);
    assert_eq!(work.ask("Edit", json!({"path": "a"})).await["approved"], true);

    let set = world.owner.patch(BUILDER, json!({"confirm_approvals": "passkey"})).await.expect(200);
    assert_eq!(set["ended"], json!(["grants"]), "they were given without a passkey");
    let permission = id(&ask().await);
    assert_eq!(work.permission(&permission).await["state"], "pending", "nor does the mode approve");
    work.pending("Edit", json!({"path": "a"})).await;
    assert_eq!(decide(&world.owner, &permission, json!({"approved": true})).await.refusal().1, "passkey_required");
    owner.approve(world, &permission, DecisionScope::Agent).await.unwrap();
    assert_eq!(ask().await["approved"], true, "this one was given with a passkey");
    // Turning it on again ends nothing.
    world.owner.patch(BUILDER, json!({"confirm_approvals": "passkey"})).await.expect(200);
    assert_eq!(ask().await["approved"], true);
}
