//! Steps that an agent's settings approve in advance: its permission mode and its trusted commands.

use serde_json::{Value, json};

use crate::{
    work::{ClaimedRunFixture, id},
    world::{Engine, on_both},
};

on_both! {
    settings_approve_only_what_they_name
    a_standing_denial_overrides_the_settings
    a_private_agent_keeps_none_of_them
    approving_in_advance_takes_the_right_to_decide
}

const AGENT: &str = "/api/v1/agent-accounts/builder";

async fn set(work: &ClaimedRunFixture, approvals: Value) {
    work.world.owner.patch(AGENT, json!({"approvals": approvals})).await.expect(200);
}

/// Whether a step is approved at once. If not, it is denied.
async fn is_approved(work: &ClaimedRunFixture, body: Value) -> bool {
    let mut body = body;
    body["epoch"] = json!(1);
    body["cwd"] = json!("/src");
    let asked = work.device.client.post(&work.path("/permission-requests"), body).await.expect(201);
    if asked["approved"].is_null() {
        work.decide(&id(&asked), json!({"approved": false})).await.expect(200);
    }
    asked["approved"] == json!(true)
}

fn run(command: &str) -> Value {
    json!({"tool": "Bash", "input": {"command": command}, "assured": ["in_folder"]})
}

fn edit(assured: &[&str]) -> Value {
    json!({"tool": "Edit", "input": {"file_path": "/src/a"}, "paths": ["/src/a"], "assured": assured})
}

async fn settings_approve_only_what_they_name(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    assert!(!is_approved(&work, run("git diff")).await && !is_approved(&work, edit(&["folder_edit"])).await);

    set(&work, json!({"trusted_commands": ["git diff *"]})).await;
    assert!(is_approved(&work, run("git diff --stat")).await);
    assert!(!is_approved(&work, run("git diff; rm -rf /")).await);
    let answered =
        &work.world.owner.get("/api/v1/permission-requests?limit=2").await.expect(200)["permission_requests"][1];
    assert_eq!(
        (&answered["state"], &answered["source"], &answered["decided_by"], &answered["comment"]),
        (&json!("approved"), &json!("mode"), &json!("system"), &json!("`git diff *` is a trusted command"))
    );
    assert!(!is_approved(&work, json!({"tool": "Bash", "input": {"command": "git diff"}})).await, "where does it run?");
    let hidden = json!({"assured": ["in_folder"], "tool": "Bash", "input": {"command": "git diff"}, "undisclosed": ["the rest of the input"]});
    assert!(!is_approved(&work, hidden).await);

    set(&work, json!({"mode": "accept_edits"})).await;
    assert!(!is_approved(&work, run("git diff")).await, "the settings are replaced");
    assert!(is_approved(&work, edit(&["folder_edit", "something new"])).await);
    assert!(!is_approved(&work, edit(&[])).await && !is_approved(&work, edit(&["walled"])).await);
    set(&work, json!({"mode": "accept_walled"})).await;
    assert!(is_approved(&work, edit(&["walled"])).await && !is_approved(&work, edit(&["folder_edit"])).await);
    assert_eq!(work.state().await.1, Value::Null, "the run never waits");

    for (wrong, field) in [
        (json!({"trusted_commands": ["bash *"]}), "approvals.trusted_commands[0]"),
        (json!({"trusted_commands": ["git diff", "a; b"]}), "approvals.trusted_commands[1]"),
    ] {
        let refused = work.world.owner.patch(AGENT, json!({"approvals": wrong})).await.expect(400);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("`{field}` ")), "{message}");
    }
    work.world.owner.patch(AGENT, json!({"approvals": {"mode": "trust me"}})).await.expect(400);
}

async fn a_standing_denial_overrides_the_settings(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let asked = work.pending("Bash", json!({"command": "git diff"})).await;
    work.decide(&asked, json!({"approved": false, "scope": "agent", "tool_pattern": "Bash"})).await.expect(200);
    set(&work, json!({"trusted_commands": ["git diff *"], "mode": "accept_walled"})).await;
    let walled = json!({"tool": "Bash", "input": {"command": "git diff"}, "assured": ["walled"]});
    let asked = work.device.client.post(&work.path("/permission-requests"), walled).await.expect(201);
    assert_eq!(asked["approved"], json!(false));
}

async fn a_private_agent_keeps_none_of_them(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    set(&work, json!({"trusted_commands": ["git diff *"], "mode": "accept_edits", "timeout_ms": 60000})).await;
    work.world.owner.patch(AGENT, json!({"callers": "owner"})).await.expect(200);
    let agent = work.world.owner.get(AGENT).await.expect(200);
    assert_eq!(agent["approvals"], json!({"timeout_ms": 60000}));
}

async fn approving_in_advance_takes_the_right_to_decide(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let owner = &work.world.owner;
    let key =
        owner.post("/api/v1/api-keys", json!({"name": "k", "scopes": ["read", "call", "manage"]})).await.expect(201);
    let key = work.world.anonymous().key(key["api_key"].as_str().unwrap());
    for approvals in [json!({"mode": "accept_walled"}), json!({"trusted_commands": ["git diff *"]})] {
        let refused = key.patch(AGENT, json!({"approvals": approvals})).await;
        assert_eq!(refused.refusal(), (403, "forbidden".to_owned()));
    }
    // Given to someone else, it trusts nothing that they haven't chosen.
    owner.post("/api/v1/users", json!({"name": "bob", "role": "operator"})).await.expect(201);
    set(&work, json!({"mode": "accept_edits", "timeout_ms": 60000})).await;
    owner.patch(AGENT, json!({"owner": "bob"})).await.expect(200);
    assert_eq!(owner.get(AGENT).await.expect(200)["approvals"], json!({"timeout_ms": 60000}));
}
