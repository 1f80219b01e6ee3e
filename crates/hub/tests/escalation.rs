//! Privilege escalation: someone with a weaker credential wants the rights of a stronger one, or something that
//! outlives their own.

use std::time::Duration;

use attache_protocol::{secret::Kind, wire::key::Role};
use attache_store::{WriteContext, record::NewKey};
use hyper::Method;
use serde_json::{Value, json};

use crate::{
    work::{ClaimedRunFixture, decide},
    world::{Engine, TestCaller, World, on_all},
};

pub(crate) const ACCOUNTS: &str = "/api/v1/agent-accounts";
pub(crate) const ATTACH: &str = "/api/v1/agent-runtimes/runtime/attach-via-pairing";
pub(crate) const REGISTER: &str = "/api/a2a/register";
const REQUESTS: &str = "/api/v1/agent-runtimes/runtime/pairing-requests";
pub(crate) const RUNS: &str = "/api/v1/task-runs";

on_all! {
    an_admin_cannot_transfer_an_agent_to_the_owner
    an_admin_cannot_pair_the_owners_agent
    no_rule_opens_a_private_agent
    a_transferred_agents_key_ends
    expiring_credentials_cannot_create_permanent_ones
    only_the_owner_decides_for_a_private_agent
    no_one_takes_over_a_person_by_their_first_password
    names_used_in_rules_cannot_be_taken
    a_restricted_key_of_the_owner_does_not_reach_their_shell
    no_agent_key_reaches_a_private_agent
    registering_again_needs_the_rights_to_use_the_agent
    an_admin_cannot_take_an_agent_from_the_owner
    no_standing_grant_opens_a_private_agent
    an_admin_cannot_delete_what_they_cannot_see
    a_device_reads_nothing_of_a_private_agent
    a_private_agent_stays_out_of_other_peoples_conversations
    what_a_private_agent_left_stays_private_without_its_run
    a_delegation_to_a_private_agent_is_shown_to_no_one_else
    an_admin_cannot_trust_a_card_for_a_private_agent
    a_private_agents_calls_are_approved_for_what_they_are
    no_one_elses_key_or_link_reaches_a_private_agent
    the_log_withholds_the_names_of_private_files
    the_log_withholds_the_work_of_private_agents
    only_the_owner_sees_what_a_private_agent_is_asked
    approvals_given_with_an_issued_credential_end_when_the_agent_becomes_private
    a_caller_keeps_seeing_their_runs_when_the_agent_becomes_private
    a_token_cannot_end_its_key
    ; // These expect that a change is known at once, as it is to the node that made it.
    alone:
    a_pairing_code_has_no_more_rights_than_its_creator
    a_pairing_code_ends_with_its_creator
    an_agent_has_no_more_rights_than_its_owner
    login_links_of_others_cannot_be_pushed_out
}

pub(crate) fn forbidden() -> (u16, String) {
    (403, "forbidden".to_owned())
}

pub(crate) fn not_found() -> (u16, String) {
    (404, "not_found".to_owned())
}

fn void() -> (u16, String) {
    (404, "pairing_failed".to_owned())
}

pub(crate) fn key(world: &World, reply: &Value) -> TestCaller {
    world.anonymous().key(reply["api_key"].as_str().unwrap())
}

/// A new person with a key of their own, with their role.
pub(crate) async fn person(world: &World, name: &str, role: &str) -> TestCaller {
    let user = world.owner.post("/api/v1/users", json!({"name": name, "role": role})).await.expect(201);
    let by = world.hub.authenticate_key(world.owner.header("authorization").trim_start_matches("Bearer "));
    let secret = Kind::ApiKey.generate(&world.env);
    let key = NewKey {
        id: world.env.key_id(),
        opening: None,
        issuer: None,
        agent: None,
        name: name.to_owned(),
        role: Role::from_text(role).unwrap(),
        user: Some(user["user_id"].as_str().unwrap().parse().unwrap()),
        scopes: None,
        secret: secret.hash(),
        expires_at: None,
    };
    let context = WriteContext::new(by.await.unwrap().tenant, name, world.env.now());
    world.store.create_key(context, key).await.unwrap();
    world.anonymous().key(secret.expose())
}

async fn key_of(world: &World, name: &str, role: &str, more: Value) -> TestCaller {
    let mut body = json!({"name": name, "user": name, "role": role});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    key(world, &world.owner.post("/api/v1/api-keys", body).await.expect(201))
}

/// A hub whose owner has a private shell agent, and a shared agent.
pub(crate) async fn with_local(engine: Engine) -> World {
    let world = World::timed(engine, |_| {}).await;
    world.owner.post(ACCOUNTS, json!({"name": "local", "callers": "owner"})).await.expect(201);
    world.agent("builder").await;
    world
}

pub(crate) async fn code(by: &TestCaller, agent: &str) -> crate::world::HttpReply {
    by.post(&format!("{ACCOUNTS}/{agent}/pairing-codes"), json!({})).await
}

pub(crate) async fn redeem(world: &World, made: &Value) -> crate::world::HttpReply {
    world.anonymous().post(REGISTER, json!({"pairing_token": made["pairing_code"]})).await
}

pub(crate) async fn call_local(by: &TestCaller) -> crate::world::HttpReply {
    by.post(RUNS, json!({"agent_id": "local", "input": {"text": "cat admin.key"}})).await
}

async fn an_admin_cannot_transfer_an_agent_to_the_owner(engine: Engine) {
    let world = with_local(engine).await;
    let eve = person(&world, "eve", "admin").await;
    let gift = key(&world, &eve.post(REGISTER, json!({"agent_id": "gift"})).await.expect(200));
    assert_eq!(eve.patch(&format!("{ACCOUNTS}/gift"), json!({"owner": "owner"})).await.refusal(), forbidden());
    let made = json!({"name": "present", "owner": "owner"});
    assert_eq!(eve.post(ACCOUNTS, made).await.refusal(), forbidden());
    assert_eq!(call_local(&gift).await.refusal(), not_found());
    // The owner can transfer to anyone.
    world.owner.patch(&format!("{ACCOUNTS}/builder"), json!({"owner": "eve"})).await.expect(200);
}

async fn an_admin_cannot_pair_the_owners_agent(engine: Engine) {
    let world = with_local(engine).await;
    let eve = person(&world, "eve", "admin").await;
    for agent in ["builder", "local"] {
        assert_eq!(code(&eve, agent).await.refusal(), forbidden(), "{agent}");
        let shown = world.anonymous().post(REQUESTS, json!({})).await.expect(201);
        let path = format!("/api/v1/pairing-requests/{}/decision", shown["pairing_code"].as_str().unwrap());
        assert_eq!(eve.post(&path, json!({"agent_id": agent})).await.refusal(), forbidden(), "{agent}");
    }
    // They can pair agents of people not above them, and the owner can pair their own.
    person(&world, "bob", "operator").await.post(ACCOUNTS, json!({"name": "bobs"})).await.expect(201);
    code(&eve, "bobs").await.expect(201);
    let own = key(&world, &redeem(&world, &code(&world.owner, "builder").await.expect(201)).await.expect(200));
    own.get(ACCOUNTS).await.expect(200);
}

async fn no_rule_opens_a_private_agent(engine: Engine) {
    let world = with_local(engine).await;
    let eve = person(&world, "eve", "admin").await;
    let ruled = key(&world, &eve.post(REGISTER, json!({"agent_id": "ruled"})).await.expect(200));
    for (rules, builder) in [
        ("agents:\n  ruled:\n    can_access: [agents/local, agents/builder]\n", 201),
        ("agents:\n  ruled:\n    can_access: [\"*\"]\n", 201),
        ("default: allow\n", 201),
    ] {
        eve.put("/api/v1/permission-rules", json!({"text": rules})).await.expect(200);
        assert_eq!(call_local(&ruled).await.refusal(), not_found(), "{rules}");
        assert_eq!(ruled.get(&format!("{ACCOUNTS}/local")).await.refusal(), not_found(), "{rules}");
        assert_eq!(ruled.post(RUNS, json!({"agent_id": "builder"})).await.status, builder, "{rules}");
    }
    // Only its owner can share it.
    world.owner.patch(&format!("{ACCOUNTS}/local"), json!({"callers": "everyone"})).await.expect(200);
    call_local(&ruled).await.expect(201);
}

async fn a_transferred_agents_key_ends(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ada, bob) = (person(&world, "ada", "operator").await, person(&world, "bob", "operator").await);
    bob.post(ACCOUNTS, json!({"name": "private", "callers": "owner"})).await.expect(201);
    let gift = key(&world, &ada.post(REGISTER, json!({"agent_id": "gift"})).await.expect(200));
    let later = code(&ada, "gift").await.expect(201);
    world.owner.patch(&format!("{ACCOUNTS}/gift"), json!({"owner": "ada"})).await.expect(200);
    gift.get(ACCOUNTS).await.expect(200);
    world.owner.patch(&format!("{ACCOUNTS}/gift"), json!({"owner": "bob"})).await.expect(200);
    let refused = gift.post(RUNS, json!({"agent_id": "private"})).await;
    assert_eq!(refused.refusal(), (401, "runtime_revoked".to_owned()));
    // Nor can ada pair bob's agent with an earlier code.
    assert_eq!(redeem(&world, &later).await.refusal(), void());
}

async fn a_pairing_code_has_no_more_rights_than_its_creator(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    person(&world, "ada", "operator").await;
    let manage = key_of(&world, "ada", "operator", json!({"scopes": ["manage"]})).await;
    assert_eq!(manage.post(RUNS, json!({"agent_id": "x"})).await.refusal(), forbidden());
    manage.post(ACCOUNTS, json!({"name": "mule"})).await.expect(201);
    let made = code(&manage, "mule").await.expect(201);
    assert_eq!(redeem(&world, &made).await.refusal(), forbidden());
    // Pairing a device only needs this scope.
    world.anonymous().post(ATTACH, json!({"pairing_token": made["pairing_code"]})).await.expect(200);
    // A key with fewer rights by now can't pair.
    let ada = key_of(&world, "ada", "operator", json!({})).await;
    let made = code(&ada, "mule").await.expect(201);
    world.owner.patch("/api/v1/users/ada", json!({"role": "viewer"})).await.expect(200);
    assert_eq!(redeem(&world, &made).await.refusal(), void());
    let attach = world.anonymous().post(ATTACH, json!({"pairing_token": made["pairing_code"]})).await;
    assert_eq!(attach.refusal(), void());
}

async fn a_pairing_code_ends_with_its_creator(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "stolen", "role": "owner"})).await.expect(201);
    let stolen = key(&world, &made);
    let codes = [code(&stolen, "builder").await.expect(201), code(&stolen, "builder").await.expect(201)];
    let shown = world.anonymous().post(REQUESTS, json!({})).await.expect(201);
    let path = format!("/api/v1/pairing-requests/{}/decision", shown["pairing_code"].as_str().unwrap());
    stolen.post(&path, json!({"agent_id": "builder"})).await.expect(200);
    let id = made["key"]["key_id"].as_str().unwrap();
    world.owner.delete(&format!("/api/v1/api-keys/{id}")).await.expect(200);
    assert_eq!(redeem(&world, &codes[0]).await.refusal(), void());
    let attach = json!({"pairing_token": codes[1]["pairing_code"]});
    assert_eq!(world.anonymous().post(ATTACH, attach).await.refusal(), void());
    let poll = json!({"poll_token": shown["poll_token"]});
    assert_eq!(world.anonymous().post(&format!("{REQUESTS}/poll"), poll).await.refusal(), void());
    assert_eq!(world.owner.get(&format!("{ACCOUNTS}/builder")).await.expect(200)["runtime"], Value::Null);
}

async fn expiring_credentials_cannot_create_permanent_ones(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let token = world.owner.post("/api/v1/tokens", json!({"ttl_seconds": 20})).await.expect(201);
    let token = world.anonymous().key(token["token"].as_str().unwrap());
    let end = world.env.now().plus(Duration::from_secs(60)).to_string();
    let short = json!({"name": "short", "role": "owner", "expires_at": end});
    let short = key(&world, &world.owner.post("/api/v1/api-keys", short).await.expect(201));
    for by in [&token, &short] {
        assert_eq!(by.post(REGISTER, json!({"agent_id": "ghost"})).await.refusal(), forbidden());
        assert_eq!(by.post(REGISTER, json!({"agent_id": "builder"})).await.refusal(), forbidden());
        assert_eq!(code(by, "builder").await.refusal(), forbidden());
        let shown = world.anonymous().post(REQUESTS, json!({})).await.expect(201);
        let path = format!("/api/v1/pairing-requests/{}/decision", shown["pairing_code"].as_str().unwrap());
        assert_eq!(by.post(&path, json!({"agent_id": "builder"})).await.refusal(), forbidden());
        // Denying creates nothing.
        by.post(&path, json!({})).await.expect(200);
    }
    let missing = world.owner.get(&format!("{ACCOUNTS}/ghost")).await;
    assert_eq!(missing.refusal(), not_found(), "a refusal makes nothing");
    // A role is for good, so neither an expiring nor a scoped key raises one.
    let ada = "/api/v1/users/ada";
    world.owner.post("/api/v1/users", json!({"name": "ada", "role": "operator"})).await.expect(201);
    let scoped = json!({"name": "scoped", "role": "owner", "scopes": ["admin"]});
    let scoped = key(&world, &world.owner.post("/api/v1/api-keys", scoped).await.expect(201));
    for by in [&token, &short, &scoped] {
        assert_eq!(by.patch(ada, json!({"role": "owner"})).await.refusal(), forbidden());
    }
    short.patch(ada, json!({"role": "viewer"})).await.expect(200);
    world.owner.patch(ada, json!({"role": "owner"})).await.expect(200);
}

async fn no_one_takes_over_a_person_by_their_first_password(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (dan, erin) = (person(&world, "dan", "admin").await, person(&world, "erin", "admin").await);
    let password = json!({"password": "correct horse battery"});
    let issued = |by: TestCaller, role: &'static str| {
        let world = &world;
        async move {
            let body = json!({"name": "forged", "user": "erin", "role": role});
            key(world, &by.post("/api/v1/api-keys", body).await.expect(201))
        }
    };
    let forged = issued(dan.clone(), "admin").await;
    assert_eq!(forged.patch("/api/v1/users/me", password.clone()).await.refusal(), forbidden());
    // What is made with it in turn is no better.
    let second = key(&world, &forged.post("/api/v1/api-keys", json!({"name": "second"})).await.expect(201));
    assert_eq!(second.patch("/api/v1/users/me", password.clone()).await.refusal(), forbidden());
    // The owner could set it directly, and so can Erin.
    issued(world.owner.clone(), "admin").await.patch("/api/v1/users/me", password.clone()).await.expect(200);
    let change = json!({"password": "battery horse correct", "current_password": "correct horse battery"});
    erin.patch("/api/v1/users/me", change).await.expect(200);
}

async fn only_the_owner_decides_for_a_private_agent(engine: Engine) {
    let mut work = ClaimedRunFixture::begin(engine).await;
    let world = &work.world;
    let (bob, eve) = (person(world, "bob", "operator").await, person(world, "eve", "admin").await);
    let asked = work.pending("shell", json!({"command": "ls"})).await;
    let patch = format!("{ACCOUNTS}/builder");
    world.owner.patch(&patch, json!({"callers": "owner"})).await.expect(200);
    let always = json!({"approved": true, "scope": "agent", "tool_pattern": "*"});
    for other in [&bob, &eve] {
        assert_eq!(decide(other, &asked, always.clone()).await.refusal(), not_found());
        assert_eq!(decide(other, &asked, json!({"approved": false})).await.refusal(), not_found());
    }
    work.decide(&asked, always).await.expect(200);
    let grants = world.owner.get("/api/v1/permission-grants").await.expect(200);
    let grant = format!("/api/v1/permission-grants/{}", grants["permission_grants"][0]["grant_id"].as_str().unwrap());
    for other in [&bob, &eve] {
        assert_eq!(other.delete(&grant).await.refusal(), not_found());
    }
    world.owner.delete(&grant).await.expect(200);
    world.owner.patch(&patch, json!({"callers": "everyone"})).await.expect(200);
    world.advance(Duration::from_secs(1));
    // For a shared agent, anyone who may decide can decide.
    work.complete().await.expect(200);
    work.next_run(json!({})).await;
    let open = work.pending("shell", json!({"command": "pwd"})).await;
    decide(&bob, &open, json!({"approved": true})).await.expect(200);
}

async fn names_used_in_rules_cannot_be_taken(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ada, eve) = (person(&world, "ada", "operator").await, person(&world, "eve", "admin").await);
    ada.post(ACCOUNTS, json!({"name": "mine"})).await.expect(201);
    let rules = "agents:\n  ci-bot:\n    can_access: [agents/prod]\n  \"team-*\":\n    can_access: [agents/stage]\n  \
                 \"*\":\n    cannot_access: [conversations/other_users/*]\n";
    world.owner.put("/api/v1/permission-rules", json!({"text": rules})).await.expect(200);
    for name in ["ci-bot", "team-a", "prod"] {
        assert_eq!(ada.post(REGISTER, json!({"agent_id": name})).await.refusal(), forbidden(), "{name}");
        assert_eq!(ada.post(ACCOUNTS, json!({"name": name})).await.refusal(), forbidden(), "{name}");
        let renamed = ada.patch(&format!("{ACCOUNTS}/mine"), json!({"name": name})).await;
        assert_eq!(renamed.refusal(), forbidden(), "{name}");
    }
    ada.patch(&format!("{ACCOUNTS}/mine"), json!({"name": "my-own"})).await.expect(200);
    eve.post(ACCOUNTS, json!({"name": "ci-bot"})).await.expect(201);
}

async fn an_agent_has_no_more_rights_than_its_owner(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let ada = person(&world, "ada", "operator").await;
    let helper = key(&world, &ada.post(REGISTER, json!({"agent_id": "helper"})).await.expect(200));
    ada.post(ACCOUNTS, json!({"name": "other"})).await.expect(201);
    let body = json!({"agent_id": "other"});
    let run = helper.post(RUNS, body.clone()).await.expect(201);
    world.owner.patch("/api/v1/users/ada", json!({"role": "viewer"})).await.expect(200);
    assert_eq!(ada.post(RUNS, body.clone()).await.refusal(), forbidden());
    assert_eq!(helper.post(RUNS, body.clone()).await.refusal(), forbidden());
    assert_eq!(helper.post("/api/a2a/call", json!({"task": "x", "agent_type": "other"})).await.refusal(), forbidden());
    let path = format!("{RUNS}/{}", run["task_run_id"].as_str().unwrap());
    assert_eq!(helper.post(&format!("{path}/cancel"), json!({})).await.refusal(), forbidden());
    helper.get(&path).await.expect(200);
    world.owner.patch("/api/v1/users/ada", json!({"role": "operator"})).await.expect(200);
    helper.post(RUNS, body).await.expect(201);
}

/// Callers who can't create links for others don't learn who exists.
#[tokio::test]
async fn a_login_link_does_not_reveal_users() {
    let world = World::start().await;
    let (viewer, _) = (person(&world, "val", "viewer").await, person(&world, "ada", "operator").await);
    let known = viewer.post("/api/v1/login-links", json!({"user": "ada"})).await;
    let unknown = viewer.post("/api/v1/login-links", json!({"user": "nobody"})).await;
    assert_eq!(known.refusal(), forbidden());
    assert_eq!((known.status, &known.body), (unknown.status, &unknown.body));
    viewer.post("/api/v1/login-links", json!({"user": "val"})).await.expect(201);
}

async fn a_restricted_key_of_the_owner_does_not_reach_their_shell(engine: Engine) {
    let world = with_local(engine).await;
    let task = json!({"agent_id": "local", "input": {"text": "cat admin.key"}});
    for smaller in [json!({"role": "operator"}), json!({"role": "owner", "scopes": ["read", "call", "manage"]})] {
        let mut body = json!({"name": "small"});
        body.as_object_mut().unwrap().extend(smaller.as_object().unwrap().clone());
        let small = key(&world, &world.owner.post("/api/v1/api-keys", body).await.expect(201));
        assert_eq!(small.post(RUNS, task.clone()).await.refusal(), forbidden(), "{smaller}");
        // Nor can it share the shell.
        let opened = small.patch(&format!("{ACCOUNTS}/local"), json!({"callers": "everyone"})).await;
        assert_eq!(opened.refusal(), forbidden(), "{smaller}");
        small.post(RUNS, json!({"agent_id": "builder", "input": {"text": "hi"}})).await.expect(201);
    }
    world.owner.post(RUNS, task).await.expect(201);
}

async fn no_agent_key_reaches_a_private_agent(engine: Engine) {
    let world = with_local(engine).await;
    let small = json!({"name": "small", "role": "operator"});
    let small = key(&world, &world.owner.post("/api/v1/api-keys", small).await.expect(201));
    // Neither an agent of a restricted key nor one of the owner: no person sees what it asks for.
    for by in [&small, &world.owner] {
        let helper = key(&world, &by.post(REGISTER, json!({"agent_id": "helper"})).await.expect(200));
        assert_eq!(call_local(&helper).await.refusal(), not_found());
        let call = json!({"agent_type": "local", "task": "cat admin.key"});
        assert_eq!(helper.post("/api/a2a/call", call).await.status, 404);
        helper.post(RUNS, json!({"agent_id": "builder", "input": {"text": "hi"}})).await.expect(201);
    }
}

async fn registering_again_needs_the_rights_to_use_the_agent(engine: Engine) {
    let world = with_local(engine).await;
    let device = world.device("local").await;
    for smaller in [json!({"role": "operator"}), json!({"role": "owner", "scopes": ["read", "call", "manage"]})] {
        let mut body = json!({"name": "small"});
        body.as_object_mut().unwrap().extend(smaller.as_object().unwrap().clone());
        let small = key(&world, &world.owner.post("/api/v1/api-keys", body).await.expect(201));
        assert_eq!(small.post(REGISTER, json!({"agent_id": "local"})).await.refusal(), forbidden(), "{smaller}");
    }
    // The owner's device still works for it.
    call_local(&world.owner).await.expect(201);
    assert!(device.claim().await["task_run_id"].is_string());
}

async fn an_admin_cannot_take_an_agent_from_the_owner(engine: Engine) {
    let world = with_local(engine).await;
    world.owner.patch(&format!("{ACCOUNTS}/builder"), json!({"owner": "owner"})).await.expect(200);
    let eve = person(&world, "eve", "admin").await;
    for request in [json!({"owner": "eve"}), json!({"owner": "eve", "callers": "owner"}), json!({"owner": ""})] {
        let taken = eve.patch(&format!("{ACCOUNTS}/builder"), request.clone()).await;
        assert_eq!(taken.refusal(), forbidden(), "{request}");
    }
    // Of someone who is not above them they can.
    person(&world, "bob", "operator").await.post(ACCOUNTS, json!({"name": "bobs"})).await.expect(201);
    eve.patch(&format!("{ACCOUNTS}/bobs"), json!({"owner": "eve"})).await.expect(200);
}

async fn no_standing_grant_opens_a_private_agent(engine: Engine) {
    let work = ClaimedRunFixture::tuned(engine, |options| options.tools = Some("/mcp".to_owned())).await;
    let world = &work.world;
    let me = world.owner.get("/api/v1/users").await.expect(200)["users"][0]["name"].clone();
    let owned = json!({"name": "local", "callers": "owner", "owner": me});
    world.owner.post(ACCOUNTS, owned).await.expect(201);
    let bob = person(world, "bob", "operator").await;
    // Bob may decide for the shared agent, with a pattern that also covers the owner's shell.
    let asked = work.pending("shell", json!({"command": "ls"})).await;
    decide(&bob, &asked, json!({"approved": true, "scope": "agent", "tool_pattern": "*"})).await.expect(200);
    work.complete().await.expect(200);
    world.owner.post(RUNS, json!({"agent_id": "builder"})).await.expect(201);
    let claim = work.device.claim().await;
    let run = world.anonymous().key(claim["mcp"]["token"].as_str().unwrap());
    let refused = call_local(&run).await;
    assert_eq!(refused.refusal(), (409, "approval_required".to_owned()));
    let listed = world.owner.get("/api/v1/permission-requests?state=pending").await.expect(200);
    let request = listed["permission_requests"][0].clone();
    assert_eq!(request["tool"], "remote_agent/local");
    let id = request["permission_request_id"].as_str().unwrap();
    // Each call is decided by itself, by the owner.
    assert_eq!(decide(&bob, id, json!({"approved": true})).await.refusal(), not_found());
    let always = decide(&world.owner, id, json!({"approved": true, "scope": "run"})).await;
    assert_eq!(always.refusal(), (400, "invalid_request".to_owned()));
    decide(&world.owner, id, json!({"approved": true})).await.expect(200);
    call_local(&run).await.expect(201);
}

async fn an_admin_cannot_delete_what_they_cannot_see(engine: Engine) {
    let world = with_local(engine).await;
    let (eve, ada) = (person(&world, "eve", "admin").await, person(&world, "ada", "operator").await);
    let device = world.device("local").await;
    let run = call_local(&world.owner).await.expect(201);
    let path = format!("{RUNS}/{}", run["task_run_id"].as_str().unwrap());
    device.claim().await;
    device.client.post(&format!("{path}/complete"), json!({"output": {"text": "done"}})).await.expect(200);
    assert_eq!(eve.delete(&path).await.refusal(), not_found());
    let conversation = format!("/api/v1/conversations/{}", run["conversation_id"].as_str().unwrap());
    assert_eq!(eve.delete(&conversation).await.refusal(), not_found());
    assert_eq!(ada.delete(&conversation).await.refusal(), not_found());
    assert_eq!(world.owner.delete(&path).await.status, 204);
}

async fn a_device_reads_nothing_of_a_private_agent(engine: Engine) {
    let world = with_local(engine).await;
    let bob = person(&world, "bob", "operator").await;
    bob.post(ACCOUNTS, json!({"name": "bobs"})).await.expect(201);
    let made = code(&bob, "bobs").await.expect(201);
    let attached = world.anonymous().post(ATTACH, json!({"pairing_token": made["pairing_code"]})).await.expect(200);
    let device = world.anonymous().with("x-runtime-token", attached["runtime_token"].as_str().unwrap());
    let place = world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    let id = place["conversation_id"].as_str().unwrap();
    world.owner.post(RUNS, json!({"agent_id": "bobs", "conversation_id": id})).await.expect(201);
    let agent = attached["agent_id"].as_str().unwrap();
    let claim = device.post(&format!("{ACCOUNTS}/{agent}/task-runs/pull?wait_ms=0"), json!({})).await;
    let messages = format!("/api/v1/conversations/{id}/messages");
    assert_eq!(claim.status, 200, "{:?}", claim.body);
    device.get(&messages).await.expect(200);
    world.owner.post(RUNS, json!({"agent_id": "local", "conversation_id": id})).await.expect(201);
    assert_eq!(device.get(&messages).await.refusal(), not_found());
    let workspace = claim.json()["task_run"]["workspace_id"].as_str().unwrap().to_owned();
    let artifacts = format!("/api/v1/workspaces/{workspace}/artifacts");
    assert_eq!(device.get(&artifacts).await.refusal(), not_found());
    world.owner.get(&artifacts).await.expect(200);
    world.owner.get(&messages).await.expect(200);
}

async fn a_private_agent_stays_out_of_other_peoples_conversations(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ada, bob) = (person(&world, "ada", "operator").await, person(&world, "bob", "operator").await);
    bob.post(ACCOUNTS, json!({"name": "mine", "callers": "owner"})).await.expect(201);
    let place = ada.post("/api/v1/conversations", json!({"metadata": {"space": "team"}})).await.expect(201);
    let id = place["conversation_id"].as_str().unwrap();
    let intrusion = bob.post(RUNS, json!({"agent_id": "mine", "conversation_id": id})).await;
    assert_eq!(intrusion.refusal(), forbidden());
    ada.get(&format!("/api/v1/conversations/{id}")).await.expect(200);
    let own = bob.post("/api/v1/conversations", json!({"title": "plans"})).await.expect(201);
    let own_id = own["conversation_id"].as_str().unwrap();
    bob.post(RUNS, json!({"agent_id": "mine", "conversation_id": own_id})).await.expect(201);
    // Its title is not listed for others either.
    let listed = |all: Value| {
        let all = all["conversations"].as_array().unwrap().clone();
        all.iter().any(|one| one["conversation_id"] == own["conversation_id"])
    };
    assert!(listed(bob.get("/api/v1/conversations").await.expect(200)));
    assert!(!listed(ada.get("/api/v1/conversations").await.expect(200)));
}

async fn what_a_private_agent_left_stays_private_without_its_run(engine: Engine) {
    let world = with_local(engine).await;
    let ada = person(&world, "ada", "admin").await;
    let device = world.device("local").await;
    // A conversation of its own, and one that began with a shared agent's run.
    let plans = world.owner.post("/api/v1/conversations", json!({"title": "plans"})).await.expect(201);
    let shared = world.owner.post(RUNS, json!({"agent_id": "builder"})).await.expect(201);
    for place in [plans, shared] {
        let id = place["conversation_id"].as_str().unwrap();
        let run = world.owner.post(RUNS, json!({"agent_id": "local", "conversation_id": id})).await.expect(201);
        let path = format!("{RUNS}/{}", run["task_run_id"].as_str().unwrap());
        let claim = device.claim().await;
        let workspace = claim["workspace_id"].as_str().unwrap();
        let files = format!("/api/v1/workspaces/{workspace}/artifacts");
        let notes = device.client.call(Method::PUT, &format!("{files}/notes.txt"), "secret").await.expect(201);
        let artifact = format!("/api/v1/artifacts/{}?meta=1", notes["artifact_id"].as_str().unwrap());
        device.client.post(&format!("{path}/complete"), json!({"output": {"text": "done"}})).await.expect(200);
        let conversation = format!("/api/v1/conversations/{id}");
        let messages = format!("{conversation}/messages");
        world.owner.post(&messages, json!({"text": "The key is under the mat."})).await.expect(201);
        assert_eq!(world.owner.delete(&path).await.status, 204);
        for path in [&conversation, &messages, &files, &artifact] {
            assert_eq!(ada.get(path).await.refusal(), not_found(), "{path}");
            world.owner.get(path).await.expect(200);
        }
        let joined = ada.post(RUNS, json!({"agent_id": "builder", "conversation_id": id})).await;
        assert_eq!(joined.refusal(), not_found());
    }
    let listed = ada.get("/api/v1/conversations").await.expect(200);
    assert_eq!(listed["conversations"], json!([]));
    // The owner shares the agent, but not what it did.
    world.owner.patch(&format!("{ACCOUNTS}/local"), json!({"callers": "everyone"})).await.expect(200);
    let listed = ada.get("/api/v1/conversations").await.expect(200);
    assert_eq!(listed["conversations"], json!([]));
}

async fn a_delegation_to_a_private_agent_is_shown_to_no_one_else(engine: Engine) {
    let world = with_local(engine).await;
    let (ada, val) = (person(&world, "ada", "operator").await, person(&world, "val", "viewer").await);
    let shown = |peer: &str| {
        json!({
            "status": "running", "description": "read the payroll", "peer_url": format!("http://127.0.0.1:7800/a2a/{peer}"),
            "folder": "src", "device_name": "laptop", "access_mode": "ro", "created_at": "2026-01-01T00:00:00.000Z",
        })
    };
    let (private, open) = ("dlg_0190000000007000a000000000000001", "dlg_0190000000007000a000000000000002");
    for (id, peer) in [(private, "local"), (open, "builder")] {
        let path = format!("/api/v1/delegations/{id}");
        let reply = world.owner.put(&path, shown(peer)).await;
        assert_eq!(reply.status, 200, "{:?}", reply.body);
    }
    for other in [&ada, &val] {
        let listed = other.get("/api/v1/delegations").await.expect(200);
        let ids: Vec<_> = listed["delegations"].as_array().unwrap().iter().map(|one| &one["delegation_id"]).collect();
        assert_eq!(ids, [open]);
        assert_eq!(other.get(&format!("/api/v1/delegations/{private}")).await.refusal(), not_found());
    }
    world.owner.get(&format!("/api/v1/delegations/{private}")).await.expect(200);
    // Neither a longer address nor another name opens it.
    let longer = "dlg_0190000000007000a000000000000003";
    world.owner.put(&format!("/api/v1/delegations/{longer}"), shown("local/v1")).await.expect(200);
    world.owner.patch(&format!("{ACCOUNTS}/local"), json!({"name": "shell"})).await.expect(200);
    for id in [private, longer] {
        assert_eq!(val.get(&format!("/api/v1/delegations/{id}")).await.refusal(), not_found());
    }
    val.get(&format!("/api/v1/delegations/{open}")).await.expect(200);
}

async fn an_admin_cannot_trust_a_card_for_a_private_agent(engine: Engine) {
    let world = with_local(engine).await;
    let eve = person(&world, "eve", "admin").await;
    assert_eq!(eve.post(&format!("{ACCOUNTS}/local/trust"), json!({})).await.refusal(), forbidden());
}

async fn login_links_of_others_cannot_be_pushed_out(engine: Engine) {
    let world = World::timed(engine, |options| options.credentials_per_minute = u32::MAX).await;
    let val = person(&world, "val", "viewer").await;
    let link = world.owner.post("/api/v1/login-links", json!({})).await.expect(201);
    // More than the hub keeps: with one key, and with keys enough to fill it without passing a limit per key.
    for _ in 0..300 {
        val.post("/api/v1/login-links", json!({})).await.expect(201);
    }
    let ada = person(&world, "ada", "operator").await;
    for _ in 0..20 {
        let more = key(&world, &ada.post("/api/v1/api-keys", json!({"name": "more"})).await.expect(201));
        for _ in 0..16 {
            world.advance(Duration::from_millis(1));
            more.post("/api/v1/login-links", json!({})).await.expect(201);
        }
    }
    let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1.to_owned();
    let page = world.hub.login_target(&token).await.unwrap();
    assert!(page.is_some(), "the owner's link still works");
}

async fn a_private_agents_calls_are_approved_for_what_they_are(engine: Engine) {
    let work = ClaimedRunFixture::tuned(engine, |options| options.tools = Some("/mcp".to_owned())).await;
    let world = &work.world;
    let me = world.owner.get("/api/v1/users").await.expect(200)["users"][0]["name"].clone();
    work.complete().await.expect(200);
    world.owner.post(RUNS, json!({"agent_id": "builder"})).await.expect(201);
    let run = world.anonymous().key(work.device.claim().await["mcp"]["token"].as_str().unwrap());
    for (name, callers, once, reason) in [
        ("local", "owner", json!("private_agent"), "`local` is private and acts with its owner's rights."),
        ("open", "everyone", Value::Null, "`open` does not ask for approval before each step."),
    ] {
        world.owner.post(ACCOUNTS, json!({"name": name, "callers": callers, "owner": me})).await.expect(201);
        let refused = run.post(RUNS, json!({"agent_id": name, "input": {"text": "ls"}})).await;
        assert_eq!(refused.refusal(), (409, "approval_required".to_owned()));
        let listed = world.owner.get("/api/v1/permission-requests?state=pending&limit=1").await.expect(200);
        let request = &listed["permission_requests"][0];
        assert_eq!((&request["once"], &request["undisclosed"]), (&once, &json!([])), "{request}");
        assert!(request["reason"].as_str().unwrap().starts_with(reason), "{request}");
    }
}

async fn no_one_elses_key_or_link_reaches_a_private_agent(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ada, eve) = (person(&world, "ada", "operator").await, person(&world, "eve", "admin").await);
    ada.post(ACCOUNTS, json!({"name": "shell", "callers": "owner"})).await.expect(201);
    let task = json!({"agent_id": "shell", "input": {"text": "cat secrets"}});
    let run = ada.post(RUNS, task.clone()).await.expect(201);
    let run = format!("{RUNS}/{}", run["task_run_id"].as_str().unwrap());
    let made = json!({"name": "for ada", "user": "ada", "role": "operator"});
    let made = eve.post("/api/v1/api-keys", made).await.expect(201);
    let minted = key(&world, &made);
    // Nor what is made with it in turn.
    let second = key(&world, &minted.post("/api/v1/api-keys", json!({"name": "second"})).await.expect(201));
    for by in [&minted, &second] {
        assert_eq!(by.post(RUNS, task.clone()).await.refusal(), forbidden());
        assert_eq!(by.patch(&format!("{ACCOUNTS}/shell"), json!({"callers": "everyone"})).await.refusal(), forbidden());
        assert_eq!(by.get(&run).await.refusal(), not_found());
        assert_eq!(by.get("/api/v1/users/me").await.expect(200)["name"], "ada");
    }
    let link = eve.post("/api/v1/login-links", json!({"user": "ada"})).await.expect(201);
    let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1.to_owned();
    let session = world.hub.redeem_login(&token, [192, 0, 2, 7].into()).await.unwrap();
    let id = run.rsplit_once('/').unwrap().1.parse().unwrap();
    assert_eq!(world.hub.run(&session.principal, id).await.unwrap_err().code.as_str(), "not_found");
    ada.get(&run).await.expect(200);
    // They end with the key that made them.
    let eves = world.hub.authenticate_key(eve.header("authorization").trim_start_matches("Bearer ")).await.unwrap();
    let eves = eves.actor().to_string().trim_start_matches("key:").to_owned();
    world.owner.delete(&format!("/api/v1/api-keys/{eves}")).await.expect(200);
    for by in [&minted, &second] {
        assert_eq!(by.get(ACCOUNTS).await.status, 401);
    }
    assert!(world.hub.authenticate_session(session.secret.expose()).await.is_err());
    ada.post(RUNS, task).await.expect(201);
}

async fn the_log_withholds_the_names_of_private_files(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (ada, eve) = (person(&world, "ada", "operator").await, person(&world, "eve", "admin").await);
    ada.post(ACCOUNTS, json!({"name": "shell", "callers": "owner"})).await.expect(201);
    let run = ada.post(RUNS, json!({"agent_id": "shell"})).await.expect(201);
    let workspace = run["workspace_id"].as_str().unwrap();
    let path = format!("/api/v1/workspaces/{workspace}/artifacts/resignation.txt");
    ada.call(Method::PUT, &path, "dear all").await.expect(201);
    let says = |page: &Value| page.to_string().contains("resignation");
    let withheld = eve.get("/api/v1/audit?limit=200").await.expect(200);
    assert!(!says(&withheld), "{withheld}");
    ada.patch(&format!("{ACCOUNTS}/shell"), json!({"callers": "everyone"})).await.expect(200);
    assert!(!says(&eve.get("/api/v1/audit?limit=200").await.expect(200)));
    world.advance(Duration::from_secs(1));
    let run = ada.post(RUNS, json!({"agent_id": "shell"})).await.expect(201);
    let path = format!("/api/v1/workspaces/{}/artifacts/resignation.txt", run["workspace_id"].as_str().unwrap());
    ada.call(Method::PUT, &path, "dear all").await.expect(201);
    assert!(says(&eve.get("/api/v1/audit?limit=200").await.expect(200)));
}

async fn the_log_withholds_the_work_of_private_agents(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let world = &work.world;
    let eve = person(world, "eve", "admin").await;
    work.pending("shell", json!({"command": "cat payroll"})).await;
    let says = |page: &Value| page.to_string().contains("cat payroll");
    let before = eve.get("/api/v1/audit?limit=200").await.expect(200);
    assert!(says(&before));
    world.owner.patch(&format!("{ACCOUNTS}/builder"), json!({"callers": "owner"})).await.expect(200);
    let after = eve.get("/api/v1/audit?limit=200").await.expect(200);
    assert!(!says(&after), "{after}");
    let (before, rows) = (before["events"].as_array().unwrap(), after["events"].as_array().unwrap());
    let hidden: Vec<_> = rows.iter().filter(|row| row["withheld"] == true).collect();
    assert!(hidden.iter().any(|row| row["type"] == "permission.requested"), "{hidden:?}");
    // What happened, when and by whom is still there, and so is the chain.
    for (was, is) in before.iter().zip(rows) {
        for member in ["seq", "at", "actor", "type", "task_run_id", "hash"] {
            assert_eq!(was[member], is[member]);
        }
    }
    let mut feed = eve.follow("/api/v1/audit?after=0").await;
    for row in rows {
        assert_eq!(&feed.next().await.unwrap().data, row);
    }
    assert!(says(&world.owner.get("/api/v1/audit?limit=200").await.expect(200)), "its owner reads everything");
}

async fn only_the_owner_sees_what_a_private_agent_is_asked(engine: Engine) {
    const LIST: &str = "/api/v1/permission-requests";
    let mut work = ClaimedRunFixture::tuned(engine, |options| options.tools = Some("/mcp".to_owned())).await;
    work.complete().await.expect(200);
    let made = json!({"name": "local", "callers": "owner", "owner": "owner"});
    work.world.owner.post(ACCOUNTS, made).await.expect(201);
    let created = work.world.owner.post(RUNS, json!({"agent_id": "builder"})).await.expect(201);
    work.run = created["task_run_id"].as_str().unwrap().to_owned();
    let world = &work.world;
    let run = world.anonymous().key(work.device.claim().await["mcp"]["token"].as_str().unwrap());
    assert_eq!(call_local(&run).await.refusal(), (409, "approval_required".to_owned()));
    let says = |page: &Value| page.to_string().contains("cat admin.key");
    let listed = world.owner.get(LIST).await.expect(200);
    assert!(says(&listed), "{listed}");
    let id = listed["permission_requests"][0]["permission_request_id"].as_str().unwrap().to_owned();
    let one = format!("{LIST}/{id}");
    assert!(says(&world.owner.get(&one).await.expect(200)));
    assert!(says(&world.owner.get(&work.path("")).await.expect(200)["waits_for"]));
    let others = [
        person(world, "val", "viewer").await,
        person(world, "bob", "operator").await,
        person(world, "eve", "admin").await,
        key_of(world, "owner", "owner", json!({})).await,
    ];
    // The last key is the owner's own.
    let (own, others) = others.split_last().unwrap();
    assert!(says(&own.get(&one).await.expect(200)));
    // Under another name, it is still the same agent.
    world.owner.patch(&format!("{ACCOUNTS}/local"), json!({"name": "shell"})).await.expect(200);
    for other in others {
        assert_eq!(other.get(LIST).await.expect(200)["permission_requests"], json!([]));
        assert_eq!(other.get(&one).await.refusal(), not_found());
        let waiting = other.get(&work.path("")).await.expect(200);
        assert_eq!(waiting["waits_for"]["what"], "remote_agent/local", "{waiting}");
        let bearer = other.header("authorization");
        let by = world.hub.authenticate_key(bearer.trim_start_matches("Bearer ")).await.unwrap();
        assert_eq!(world.hub.pending_permissions(&by).await.unwrap(), 0);
    }
    for other in &others[1..] {
        assert_eq!(decide(other, &id, json!({"approved": true})).await.refusal(), not_found());
    }
    let logged = json!({"permission_request_id": id, "tool": "remote_agent/local", "private": true});
    let rows = world.audit("permission.requested").await;
    assert_eq!(rows.iter().map(|row| &row.1).collect::<Vec<_>>(), [&logged]);
    decide(&world.owner, &id, json!({"approved": true})).await.expect(200);
    for other in others {
        assert_eq!(other.get(&one).await.refusal(), not_found());
        let events = other.get(&work.path("/events?limit=200")).await.expect(200);
        let asked = events["events"].as_array().unwrap().iter().find(|event| event["type"] == "permission.requested");
        assert_eq!(asked.unwrap()["data"], logged);
        assert!(!says(&events), "{events}");
    }
    assert!(!says(&others[2].get("/api/v1/audit?limit=200").await.expect(200)));
    assert!(says(&world.owner.get(&one).await.expect(200)));
    // The owner shares the agent, but not what it was asked.
    world.owner.patch(&format!("{ACCOUNTS}/shell"), json!({"callers": "everyone"})).await.expect(200);
    assert_eq!(others[0].get(&one).await.refusal(), not_found());
    assert!(says(&world.owner.get(&one).await.expect(200)));
}

async fn approvals_given_with_an_issued_credential_end_when_the_agent_becomes_private(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let world = &work.world;
    let eve = person(world, "eve", "owner").await;
    let issued = json!({"name": "issued", "user": "owner", "role": "operator"});
    let issued = key(world, &eve.post("/api/v1/api-keys", issued).await.expect(201));
    let second = key(world, &issued.post("/api/v1/api-keys", json!({"name": "second"})).await.expect(201));
    let own = key(world, &world.owner.post("/api/v1/api-keys", json!({"name": "own"})).await.expect(201));
    let tools = [(&issued, "rm"), (&second, "mv"), (&eve, "cp"), (&world.owner, "ls"), (&own, "pwd")];
    for (by, tool) in tools {
        let asked = work.pending(tool, json!({})).await;
        decide(by, &asked, json!({"approved": true, "scope": "agent", "tool_pattern": tool})).await.expect(200);
        // The run is its owner's, so nobody else approves anything in advance there, nor does a key that may do less.
        let expected = if tool == "ls" { "approved" } else { "pending" };
        assert_eq!(work.ask(tool, json!({"again": true})).await["state"], expected, "{tool}");
    }
    let open_grants = async || -> Vec<String> {
        let listed = world.owner.get("/api/v1/permission-grants").await.expect(200);
        let all = listed["permission_grants"].as_array().unwrap().clone();
        let open = all.iter().filter(|grant| grant["revoked_at"].is_null());
        let mut patterns: Vec<String> = open.map(|grant| grant["tool_pattern"].as_str().unwrap().to_owned()).collect();
        patterns.sort();
        patterns
    };
    assert_eq!(open_grants().await, ["cp", "ls", "mv", "pwd", "rm"]);
    world.owner.patch(&format!("{ACCOUNTS}/builder"), json!({"callers": "owner"})).await.expect(200);
    assert_eq!(open_grants().await, ["ls", "pwd"]);
    let mut states = Vec::new();
    for (_, tool) in tools {
        states.push(work.ask(tool, json!({"private": true})).await["state"].clone());
    }
    assert_eq!(states, ["pending", "pending", "pending", "approved", "pending"]);
}

async fn a_caller_keeps_seeing_their_runs_when_the_agent_becomes_private(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let (ada, bob) = (person(&world, "ada", "operator").await, person(&world, "bob", "operator").await);
    let task = json!({"agent_id": "builder", "input": {"text": "build"}});
    let run = ada.post(RUNS, task.clone()).await.expect(201);
    let path = format!("{RUNS}/{}", run["task_run_id"].as_str().unwrap());
    let conversation = format!("/api/v1/conversations/{}", run["conversation_id"].as_str().unwrap());
    world.owner.patch(&format!("{ACCOUNTS}/builder"), json!({"callers": "owner"})).await.expect(200);
    for (by, status) in [(&ada, 200), (&bob, 404)] {
        assert_eq!(by.get(&path).await.status, status);
        assert_eq!(by.get(&format!("{path}/events")).await.status, status);
        assert_eq!(by.get(&conversation).await.status, status);
        let listed = by.get(RUNS).await.expect(200)["task_runs"].as_array().unwrap().len();
        assert_eq!(listed, usize::from(status == 200));
    }
    // Nothing new.
    assert_eq!(ada.post(RUNS, task.clone()).await.refusal(), forbidden());
    assert_eq!(ada.post(&format!("{path}/input"), json!({"text": "more"})).await.refusal(), forbidden());
    let owners = world.owner.post(RUNS, task).await.expect(201);
    let owners = format!("{RUNS}/{}", owners["task_run_id"].as_str().unwrap());
    assert_eq!(ada.get(&owners).await.refusal(), not_found());
    ada.post(&format!("{path}/cancel"), json!({})).await.expect(200);
}

async fn a_token_cannot_end_its_key(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "ci", "scopes": ["read"]})).await.expect(201);
    let (ci, id) = (key(&world, &made), made["key"]["key_id"].as_str().unwrap());
    let token = ci.post("/api/v1/tokens", json!({"audience": null, "ttl_seconds": 60})).await.expect(201);
    let rows = world.audit("token.created").await;
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0].1["key_id"], &rows[0].1["scopes"]), (&json!(id), &json!(["read"])));
    assert!(!rows[0].1.to_string().contains(token["token"].as_str().unwrap()));
    let token = world.anonymous().key(token["token"].as_str().unwrap());
    assert_eq!(token.delete(&format!("/api/v1/api-keys/{id}")).await.refusal(), forbidden());
    ci.get(ACCOUNTS).await.expect(200);
    // The refusal says what was tried.
    let own = world.owner.post("/api/v1/tokens", json!({})).await.expect(201);
    let own = world.anonymous().key(own["token"].as_str().unwrap());
    let refused = own.patch("/api/v1/users/me", json!({})).await;
    assert_eq!(refused.refusal(), forbidden());
    assert_eq!(refused.json()["error"]["message"], "A short-lived token can't change people.");
    // A key may end itself, whatever its scopes.
    ci.delete(&format!("/api/v1/api-keys/{id}")).await.expect(200);
    assert_eq!(token.get(ACCOUNTS).await.status, 401);
}
