//! The golden access table: a change of rights is a change of this file.

use attache_hub::identity::{AccessVerdict, Action, RoleColumn, verdict};
use attache_protocol::wire::key::Role;

const TABLE: &str = "
resource      action      owner admin operator viewer agent_key runtime run anonymous
agents        see         yes   yes   yes      yes    yes       -       yes -
agents        create      yes   yes   yes      -      -         -       -   -
agents        edit        yes   yes   own      -      -         -       -   -
agents        archive     yes   yes   own      -      -         -       -   -
agents        give        yes   yes   -        -      -         -       -   -
pairing       create_code yes   yes   own      -      -         -       -   -
pairing       decide      yes   yes   own      -      -         -       -   -
runtimes      see         yes   yes   yes      yes    -         -       -   -
runtimes      revoke      yes   yes   own      -      -         -       -   -
runs          see         yes   yes   yes      yes    own       own     own own
runs          create      yes   yes   yes      -      yes       -       own own
runs          cancel      yes   yes   yes      -      own       -       own own
runs          delete      yes   yes   own      -      -         -       -   -
runs          give_input  yes   yes   yes      -      own       -       own own
runs          work        -     -     -        -      own       own     -   -
permissions   see         yes   yes   yes      yes    -         -       -   -
permissions   decide      yes   yes   yes      -      -         -       -   -
grants        see         yes   yes   yes      yes    -         -       -   -
grants        revoke      yes   yes   yes      -      -         -       -   -
channels      see         yes   yes   yes      yes    own       -       -   -
agents        register    yes   yes   yes      -      -         -       -   -
conversations see         yes   yes   yes      yes    own       own     -   -
conversations list        yes   yes   yes      yes    -         -       -   -
conversations create      yes   yes   yes      -      -         -       -   -
conversations add_message yes   yes   yes      -      -         -       -   -
conversations delete      yes   yes   own      -      -         -       -   -
artifacts     see         yes   yes   yes      yes    own       own     -   -
artifacts     upload      yes   yes   yes      -      own       own     -   -
tunnels       open        own   own   own      -      own       -       -   -
delegations   see         yes   yes   yes      yes    own       -       -   -
delegations   publish     own   own   own      -      own       -       -   -
delegations   cancel      yes   yes   yes      -      own       -       -   -
deliveries    see         yes   yes   yes      yes    own       -       -   -
deliveries    resend      yes   yes   yes      -      own       -       -   -
deliveries    see_secret  own   own   own      -      own       -       -   -
keys          see         yes   yes   own      -      -         -       -   -
keys          create      yes   yes   own      -      -         -       -   -
keys          revoke      yes   yes   own      own    -         -       -   -
sessions      see         yes   yes   own      own    -         -       -   -
sessions      end         yes   yes   own      own    -         -       -   -
tokens        create      yes   yes   yes      yes    -         -       -   -
users         see         yes   yes   own      own    -         -       -   -
users         create      yes   yes   -        -      -         -       -   -
users         edit        yes   yes   own      own    -         -       -   -
users         remove      yes   yes   -        -      -         -       -   -
audit         see         yes   yes   -        -      -         -       -   -
rules         see         yes   yes   -        -      -         -       -   -
rules         set         yes   yes   -        -      -         -       -   -
quotas        see         yes   yes   -        -      -         -       -   -
quotas        set         yes   yes   -        -      -         -       -   -
usage         see         yes   yes   own      yes    -         -       -   -
login_links   create      yes   yes   own      own    -         -       -   -
metrics       see         yes   yes   -        -      -         -       -   -
";

#[test]
fn the_access_table_is_the_golden_one() {
    let columns = [Role::Owner, Role::Admin, Role::Operator, Role::Viewer].map(RoleColumn::Role);
    let shown = |verdict| match verdict {
        AccessVerdict::Yes => "yes",
        AccessVerdict::Own => "own",
        AccessVerdict::No => "-",
    };
    let mut lines = vec!["resource action owner admin operator viewer agent_key runtime run anonymous".to_owned()];
    for action in Action::ALL {
        let mut line = format!("{} {}", action.resource(), action.verb());
        for column in columns.into_iter().chain([
            RoleColumn::AgentKey,
            RoleColumn::Runtime,
            RoleColumn::Run,
            RoleColumn::Anonymous,
        ]) {
            line.push(' ');
            line.push_str(shown(verdict(column, *action)));
        }
        lines.push(line);
    }
    let golden: Vec<String> =
        TABLE.trim().lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines, golden);
}

/// Calls one endpoint of every row over HTTP with every role.
#[tokio::test]
async fn the_endpoints_follow_the_access_table() {
    use serde_json::json;
    let world = crate::world::World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let conversation = world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    let (conversation, workspace) =
        (conversation["conversation_id"].as_str().unwrap(), conversation["workspace_id"].as_str().unwrap());
    let missing_run = "run_00000000000000000000000000000001";
    let missing_permission = "prm_00000000000000000000000000000001";
    let missing_ask = "ask_00000000000000000000000000000001";
    let missing_runtime = "rtm_00000000000000000000000000000001";
    let calls = [
        ("GET", "/api/v1/agent-accounts".to_owned(), "yyyyyn"),
        ("POST", "/api/v1/agent-accounts".to_owned(), "yyynnn"),
        ("PATCH", "/api/v1/agent-accounts/nobody".to_owned(), "yyynnn"),
        ("DELETE", "/api/v1/agent-accounts/nobody".to_owned(), "yyynnn"),
        ("POST", "/api/v1/agent-accounts/builder/pairing-codes".to_owned(), "yyynnn"),
        ("POST", "/api/v1/agent-accounts/nobody/trust".to_owned(), "yyynnn"),
        ("GET", "/api/v1/pairing-requests/0000-0000".to_owned(), "yyynnn"),
        ("POST", "/api/v1/pairing-requests/0000-0000/decision".to_owned(), "yyynnn"),
        ("GET", "/api/v1/agent-runtimes".to_owned(), "yyyynn"),
        ("DELETE", format!("/api/v1/agent-runtimes/{missing_runtime}"), "yyynnn"),
        ("GET", "/api/v1/task-runs".to_owned(), "yyyyyy"),
        ("POST", "/api/v1/task-runs".to_owned(), "yyynyn"),
        ("POST", format!("/api/v1/task-runs/{missing_run}/cancel"), "yyynyn"),
        ("DELETE", format!("/api/v1/task-runs/{missing_run}"), "yyynnn"),
        ("POST", format!("/api/v1/task-runs/{missing_run}/progress"), "nnnnyy"),
        ("POST", format!("/api/v1/task-runs/{missing_run}/release"), "nnnnyy"),
        ("POST", "/api/v1/agent-runtimes/runtime/heartbeat".to_owned(), "nnnnny"),
        ("GET", "/api/v1/conversations".to_owned(), "yyyynn"),
        ("POST", "/api/v1/conversations".to_owned(), "yyynnn"),
        ("POST", format!("/api/v1/conversations/{conversation}/messages"), "yyynnn"),
        ("PUT", format!("/api/v1/workspaces/{workspace}/artifacts/a"), "yyynyy"),
        ("GET", "/api/v1/api-keys".to_owned(), "yyynnn"),
        ("POST", "/api/v1/api-keys".to_owned(), "yyynnn"),
        ("GET", "/api/v1/audit".to_owned(), "yynnnn"),
        ("GET", "/api/v1/permission-rules".to_owned(), "yynnnn"),
        ("GET", "/api/v1/quotas".to_owned(), "yynnnn"),
        ("GET", "/api/v1/usage".to_owned(), "yyyynn"),
        ("GET", "/api/v1/usage/records".to_owned(), "yyyynn"),
        ("POST", "/api/v1/login-links".to_owned(), "yyyynn"),
        ("POST", format!("/api/v1/task-runs/{missing_run}/input"), "yyynyn"),
        ("POST", format!("/api/v1/task-runs/{missing_run}/input-requests"), "nnnnyy"),
        ("POST", format!("/api/v1/task-runs/{missing_run}/permission-requests"), "nnnnyy"),
        ("GET", format!("/api/v1/task-runs/{missing_run}/input-requests/{missing_ask}"), "nnnnyy"),
        ("GET", format!("/api/v1/task-runs/{missing_run}/permission-requests/{missing_permission}"), "nnnnyy"),
        ("GET", "/api/v1/permission-requests".to_owned(), "yyyynn"),
        ("GET", format!("/api/v1/permission-requests/{missing_permission}"), "yyyynn"),
        ("POST", format!("/api/v1/permission-requests/{missing_permission}/decision"), "yyynnn"),
        ("GET", "/api/v1/permission-grants".to_owned(), "yyyynn"),
        ("DELETE", "/api/v1/permission-grants/gnt_00000000000000000000000000000001".to_owned(), "yyynnn"),
        ("GET", "/api/v1/channels".to_owned(), "yyyyyn"),
        ("GET", "/api/v1/channels/chn_00000000000000000000000000000001".to_owned(), "yyyyyn"),
        ("GET", "/api/v1/channels/chn_00000000000000000000000000000001/events".to_owned(), "yyyyyn"),
        ("POST", "/api/a2a/register".to_owned(), "yyynnn"),
        ("GET", "/api/v1/deliveries".to_owned(), "yyyyyn"),
        ("GET", "/api/v1/deliveries/dlv_00000000000000000000000000000001".to_owned(), "yyyyyn"),
        ("POST", "/api/v1/deliveries/dlv_00000000000000000000000000000001/resend".to_owned(), "yyynyn"),
        ("GET", "/api/v1/deliveries/secret".to_owned(), "yyynyn"),
    ];
    let registered = world.owner.post("/api/a2a/register", json!({"agent_id": "helper"})).await.expect(200);
    let callers = [
        world.owner.clone(),
        world.key("admin").await,
        world.key("operator").await,
        world.key("viewer").await,
        world.anonymous().key(registered["api_key"].as_str().unwrap()),
        device.client,
    ];
    let mut wrong = Vec::new();
    for (method, path, wanted) in &calls {
        let mut seen = String::new();
        for caller in &callers {
            let body = if *path == "/api/v1/task-runs/run_00000000000000000000000000000001/release" {
                r#"{"epoch":1}"#
            } else if path.ends_with("/messages") || path.ends_with("/input") {
                r#"{"text":"hi"}"#
            } else if path.ends_with("/api-keys") {
                r#"{"name":"k","role":"viewer"}"#
            } else if path.ends_with("/input-requests") {
                r#"{"prompt":"?"}"#
            } else if path.contains("/task-runs/") && path.ends_with("/permission-requests") {
                r#"{"tool":"shell","input":{}}"#
            } else if path.contains("/permission-requests/") && path.ends_with("/decision") {
                r#"{"approved":true}"#
            } else if path.ends_with("/register") {
                r#"{"agent_id":"other"}"#
            } else if *path == "/api/v1/task-runs" {
                r#"{"agent_id":"builder"}"#
            } else {
                "{}"
            };
            let reply = caller
                .with("content-type", "application/json")
                .call(method.parse().unwrap(), path, if *method == "GET" { "" } else { body })
                .await;
            seen.push(if reply.status == 403 { 'n' } else { 'y' });
        }
        if seen != *wanted {
            wrong.push(format!("{method} {path}: {seen}, wanted {wanted}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
