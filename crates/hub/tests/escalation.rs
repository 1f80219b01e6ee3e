//! Attacks on who may do what: somebody with a lesser credential wants what a greater one may do, or what outlives their own.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    work::{ClaimedRunFixture, decide},
    world::{Engine, TestCaller, World, on_both},
};

const ACCOUNTS: &str = "/api/v1/agent-accounts";
const ATTACH: &str = "/api/v1/agent-runtimes/runtime/attach-via-pairing";
const REGISTER: &str = "/api/a2a/register";
const REQUESTS: &str = "/api/v1/agent-runtimes/runtime/pairing-requests";
const RUNS: &str = "/api/v1/task-runs";

on_both! {
    an_admin_gives_no_agent_to_the_owner_to_act_for_them
    an_admin_does_not_become_an_agent_of_the_owner
    no_rule_opens_an_agent_that_is_its_owners_alone
    a_given_agents_key_ends
    a_pairing_code_is_worth_no_more_than_its_maker
    a_pairing_code_ends_with_its_maker
    what_expires_makes_nothing_that_does_not
    only_its_owner_decides_for_an_agent_that_is_theirs_alone
    nobody_takes_a_name_that_a_rule_speaks_about
    an_agent_asks_for_no_more_than_its_owner_may
    a_smaller_key_of_the_owner_does_not_reach_their_shell
}

fn forbidden() -> (u16, String) {
    (403, "forbidden".to_owned())
}

fn not_found() -> (u16, String) {
    (404, "not_found".to_owned())
}

fn void() -> (u16, String) {
    (404, "pairing_failed".to_owned())
}

fn key(world: &World, reply: &Value) -> TestCaller {
    world.anonymous().key(reply["api_key"].as_str().unwrap())
}

/// A new person with a key of their role.
async fn person(world: &World, name: &str, role: &str) -> TestCaller {
    world.owner.post("/api/v1/users", json!({"name": name, "role": role})).await.expect(201);
    key_of(world, name, role, json!({})).await
}

async fn key_of(world: &World, name: &str, role: &str, more: Value) -> TestCaller {
    let mut body = json!({"name": name, "user": name, "role": role});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    key(world, &world.owner.post("/api/v1/api-keys", body).await.expect(201))
}

/// A hub whose owner has a shell of their own, and an agent for everybody.
async fn with_local(engine: Engine) -> World {
    let world = World::timed(engine, |_| {}).await;
    world.owner.post(ACCOUNTS, json!({"name": "local", "callers": "owner"})).await.expect(201);
    world.agent("builder").await;
    world
}

async fn code(by: &TestCaller, agent: &str) -> crate::world::HttpReply {
    by.post(&format!("{ACCOUNTS}/{agent}/pairing-codes"), json!({})).await
}

async fn redeem(world: &World, made: &Value) -> crate::world::HttpReply {
    world.anonymous().post(REGISTER, json!({"pairing_token": made["pairing_code"]})).await
}

async fn call_local(by: &TestCaller) -> crate::world::HttpReply {
    by.post(RUNS, json!({"agent_id": "local", "input": {"text": "cat admin.key"}})).await
}

async fn an_admin_gives_no_agent_to_the_owner_to_act_for_them(engine: Engine) {
    let world = with_local(engine).await;
    let eve = person(&world, "eve", "admin").await;
    let gift = key(&world, &eve.post(REGISTER, json!({"agent_id": "gift"})).await.expect(200));
    assert_eq!(eve.patch(&format!("{ACCOUNTS}/gift"), json!({"owner": "owner"})).await.refusal(), forbidden());
    let made = json!({"name": "present", "owner": "owner"});
    assert_eq!(eve.post(ACCOUNTS, made).await.refusal(), forbidden());
    assert_eq!(call_local(&gift).await.refusal(), not_found());
    // The owner gives whom they like.
    world.owner.patch(&format!("{ACCOUNTS}/builder"), json!({"owner": "eve"})).await.expect(200);
}

async fn an_admin_does_not_become_an_agent_of_the_owner(engine: Engine) {
    let world = with_local(engine).await;
    let eve = person(&world, "eve", "admin").await;
    for agent in ["builder", "local"] {
        assert_eq!(code(&eve, agent).await.refusal(), forbidden(), "{agent}");
        let shown = world.anonymous().post(REQUESTS, json!({})).await.expect(201);
        let path = format!("/api/v1/pairing-requests/{}/decision", shown["pairing_code"].as_str().unwrap());
        assert_eq!(eve.post(&path, json!({"agent_id": agent})).await.refusal(), forbidden(), "{agent}");
    }
    // Agents of people who are not above them are theirs to pair, and the owner pairs their own.
    person(&world, "bob", "operator").await.post(ACCOUNTS, json!({"name": "bobs"})).await.expect(201);
    code(&eve, "bobs").await.expect(201);
    let own = key(&world, &redeem(&world, &code(&world.owner, "builder").await.expect(201)).await.expect(200));
    call_local(&own).await.expect(201);
}

async fn no_rule_opens_an_agent_that_is_its_owners_alone(engine: Engine) {
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
    // Sharing is its owner's.
    world.owner.patch(&format!("{ACCOUNTS}/local"), json!({"callers": "everyone"})).await.expect(200);
    call_local(&ruled).await.expect(201);
}

async fn a_given_agents_key_ends(engine: Engine) {
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
    // Nor does ada become bob's agent with a code from before.
    assert_eq!(redeem(&world, &later).await.refusal(), void());
}

async fn a_pairing_code_is_worth_no_more_than_its_maker(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    person(&world, "ada", "operator").await;
    let manage = key_of(&world, "ada", "operator", json!({"scopes": ["manage"]})).await;
    assert_eq!(manage.post(RUNS, json!({"agent_id": "x"})).await.refusal(), forbidden());
    manage.post(ACCOUNTS, json!({"name": "mule"})).await.expect(201);
    let made = code(&manage, "mule").await.expect(201);
    assert_eq!(redeem(&world, &made).await.refusal(), forbidden());
    // A device does what it is given: that is what the scope is for.
    world.anonymous().post(ATTACH, json!({"pairing_token": made["pairing_code"]})).await.expect(200);
    // Whoever may do less by now pairs nothing.
    let ada = key_of(&world, "ada", "operator", json!({})).await;
    let made = code(&ada, "mule").await.expect(201);
    world.owner.patch("/api/v1/users/ada", json!({"role": "viewer"})).await.expect(200);
    assert_eq!(redeem(&world, &made).await.refusal(), void());
    let attach = world.anonymous().post(ATTACH, json!({"pairing_token": made["pairing_code"]})).await;
    assert_eq!(attach.refusal(), void());
}

async fn a_pairing_code_ends_with_its_maker(engine: Engine) {
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

async fn what_expires_makes_nothing_that_does_not(engine: Engine) {
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
        // Saying no makes nothing.
        by.post(&path, json!({})).await.expect(200);
    }
    let missing = world.owner.get(&format!("{ACCOUNTS}/ghost")).await;
    assert_eq!(missing.refusal(), not_found(), "a refusal makes nothing");
}

async fn only_its_owner_decides_for_an_agent_that_is_theirs_alone(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
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
    // The same for what another agent would tell it.
    world.owner.patch(&patch, json!({"callers": "everyone"})).await.expect(200);
    world.owner.post(ACCOUNTS, json!({"name": "local", "callers": "owner"})).await.expect(201);
    let told = work.pending("remote_agent/local", json!({"task": "cat admin.key"})).await;
    assert_eq!(decide(&bob, &told, json!({"approved": true})).await.refusal(), forbidden());
    work.decide(&told, json!({"approved": true})).await.expect(200);
    // What everybody may put to work, everybody who may decide decides for.
    let open = work.pending("shell", json!({"command": "pwd"})).await;
    decide(&bob, &open, json!({"approved": true})).await.expect(200);
}

async fn nobody_takes_a_name_that_a_rule_speaks_about(engine: Engine) {
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

async fn an_agent_asks_for_no_more_than_its_owner_may(engine: Engine) {
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

/// Who may not make links for others is not told who there is.
#[tokio::test]
async fn a_login_link_does_not_tell_who_there_is() {
    let world = World::start().await;
    let (viewer, _) = (person(&world, "val", "viewer").await, person(&world, "ada", "operator").await);
    let known = viewer.post("/api/v1/login-links", json!({"user": "ada"})).await;
    let unknown = viewer.post("/api/v1/login-links", json!({"user": "nobody"})).await;
    assert_eq!(known.refusal(), forbidden());
    assert_eq!((known.status, &known.body), (unknown.status, &unknown.body));
    viewer.post("/api/v1/login-links", json!({"user": "val"})).await.expect(201);
}

async fn a_smaller_key_of_the_owner_does_not_reach_their_shell(engine: Engine) {
    let world = with_local(engine).await;
    let task = json!({"agent_id": "local", "input": {"text": "cat admin.key"}});
    for smaller in [json!({"role": "operator"}), json!({"role": "owner", "scopes": ["read", "call", "manage"]})] {
        let mut body = json!({"name": "small"});
        body.as_object_mut().unwrap().extend(smaller.as_object().unwrap().clone());
        let small = key(&world, &world.owner.post("/api/v1/api-keys", body).await.expect(201));
        assert_eq!(small.post(RUNS, task.clone()).await.refusal(), forbidden(), "{smaller}");
        // Nor does it open the shell for others.
        let opened = small.patch(&format!("{ACCOUNTS}/local"), json!({"callers": "everyone"})).await;
        assert_eq!(opened.refusal(), forbidden(), "{smaller}");
        small.post(RUNS, json!({"agent_id": "builder", "input": {"text": "hi"}})).await.expect(201);
    }
    world.owner.post(RUNS, task).await.expect(201);
}
