//! Who may do what, as a golden table: a change of rights is a change of this file.

use attache_hub::identity::{Action, Column, Verdict, verdict};
use attache_protocol::wire::key::Role;

const TABLE: &str = "
resource      action      owner admin operator viewer runtime
agents        see         yes   yes   yes      yes    -
agents        create      yes   yes   yes      -      -
agents        edit        yes   yes   yes      -      -
agents        archive     yes   yes   yes      -      -
pairing       create_code yes   yes   yes      -      -
pairing       decide      yes   yes   yes      -      -
runtimes      see         yes   yes   yes      yes    -
runtimes      revoke      yes   yes   yes      -      -
runs          see         yes   yes   yes      yes    own
runs          create      yes   yes   yes      -      -
runs          cancel      yes   yes   yes      -      -
runs          work        -     -     -        -      own
conversations see         yes   yes   yes      yes    own
conversations list        yes   yes   yes      yes    -
conversations create      yes   yes   yes      -      -
conversations add_message yes   yes   yes      -      -
artifacts     see         yes   yes   yes      yes    own
artifacts     upload      yes   yes   yes      -      own
keys          see         yes   yes   -        -      -
keys          create      yes   yes   -        -      -
keys          revoke      yes   yes   own      own    -
audit         see         yes   yes   -        -      -
login_links   create      yes   yes   -        -      -
metrics       see         yes   yes   -        -      -
";

#[test]
fn the_table_of_rights_is_the_golden_one() {
    let columns = [Role::Owner, Role::Admin, Role::Operator, Role::Viewer].map(Column::Role);
    let shown = |verdict| match verdict {
        Verdict::Yes => "yes",
        Verdict::Own => "own",
        Verdict::No => "-",
    };
    let mut lines = vec!["resource action owner admin operator viewer runtime".to_owned()];
    for action in Action::ALL {
        let mut line = format!("{} {}", action.resource(), action.verb());
        for column in columns.into_iter().chain([Column::Runtime]) {
            line.push(' ');
            line.push_str(shown(verdict(column, *action)));
        }
        lines.push(line);
    }
    let golden: Vec<String> =
        TABLE.trim().lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines, golden);
}

/// Asks over HTTP, with every role, for one thing of every row that has an endpoint.
#[tokio::test]
async fn the_endpoints_keep_to_the_table() {
    use serde_json::json;
    let world = crate::world::World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let conversation = world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    let (conversation, workspace) =
        (conversation["conversation_id"].as_str().unwrap(), conversation["workspace_id"].as_str().unwrap());
    let missing_run = "run_00000000000000000000000000000001";
    let missing_runtime = "rtm_00000000000000000000000000000001";
    let calls = [
        ("GET", "/api/v1/agent-accounts".to_owned(), "yyyyn"),
        ("POST", "/api/v1/agent-accounts".to_owned(), "yyynn"),
        ("PATCH", "/api/v1/agent-accounts/nobody".to_owned(), "yyynn"),
        ("DELETE", "/api/v1/agent-accounts/nobody".to_owned(), "yyynn"),
        ("POST", "/api/v1/agent-accounts/builder/pairing-codes".to_owned(), "yyynn"),
        ("GET", "/api/v1/pairing-requests/0000-0000".to_owned(), "yyynn"),
        ("POST", "/api/v1/pairing-requests/0000-0000/decision".to_owned(), "yyynn"),
        ("GET", "/api/v1/agent-runtimes".to_owned(), "yyyyn"),
        ("DELETE", format!("/api/v1/agent-runtimes/{missing_runtime}"), "yyynn"),
        ("GET", "/api/v1/task-runs".to_owned(), "yyyyy"),
        ("POST", "/api/v1/task-runs".to_owned(), "yyynn"),
        ("POST", format!("/api/v1/task-runs/{missing_run}/cancel"), "yyynn"),
        ("POST", format!("/api/v1/task-runs/{missing_run}/progress"), "nnnny"),
        ("POST", format!("/api/v1/task-runs/{missing_run}/release"), "nnnny"),
        ("POST", "/api/v1/agent-runtimes/runtime/heartbeat".to_owned(), "nnnny"),
        ("GET", "/api/v1/conversations".to_owned(), "yyyyn"),
        ("POST", "/api/v1/conversations".to_owned(), "yyynn"),
        ("POST", format!("/api/v1/conversations/{conversation}/messages"), "yyynn"),
        ("PUT", format!("/api/v1/workspaces/{workspace}/artifacts/a"), "yyyny"),
        ("GET", "/api/v1/api-keys".to_owned(), "yynnn"),
        ("POST", "/api/v1/api-keys".to_owned(), "yynnn"),
        ("GET", "/api/v1/audit".to_owned(), "yynnn"),
        ("POST", "/api/v1/login-links".to_owned(), "yynnn"),
    ];
    let callers = [
        world.owner.clone(),
        world.key("admin").await,
        world.key("operator").await,
        world.key("viewer").await,
        device.client,
    ];
    let mut wrong = Vec::new();
    for (method, path, wanted) in &calls {
        let mut seen = String::new();
        for caller in &callers {
            let body = if *path == "/api/v1/task-runs/run_00000000000000000000000000000001/release" {
                r#"{"epoch":1}"#
            } else if path.ends_with("/messages") {
                r#"{"text":"hi"}"#
            } else if path.ends_with("/api-keys") {
                r#"{"name":"k","role":"viewer"}"#
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
