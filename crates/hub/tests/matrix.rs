//! The golden access table: a change of rights is a change of this file.

use attache_hub::identity::{AccessVerdict, Action, RoleColumn, verdict};
use attache_protocol::wire::key::{KeyScope, Role};

const TABLE: &str = "
resource      action      scope  owner admin operator viewer agent_key runtime run anonymous
agents        see         read   yes   yes   yes      yes    yes       -       yes -
agents        create      manage yes   yes   yes      -      -         -       -   -
agents        edit        manage yes   yes   own      -      -         -       -   -
agents        archive     manage yes   yes   own      -      -         -       -   -
agents        give        manage yes   yes   -        -      -         -       -   -
pairing       create_code manage yes   yes   own      -      -         -       -   -
pairing       decide      manage yes   yes   own      -      -         -       -   -
runtimes      see         read   yes   yes   yes      yes    -         -       -   -
runtimes      revoke      manage yes   yes   own      -      -         -       -   -
host_sessions see         read   own   own   own      -      -         -       -   -
runs          see         read   yes   yes   yes      yes    own       own     own own
runs          create      call   yes   yes   yes      -      yes       -       own own
runs          cancel      call   yes   yes   yes      -      own       -       own own
worktrees     decide      manage own   own   own      -      -         -       -   -
runs          delete      manage yes   yes   own      -      -         -       -   -
runs          give_input  call   yes   yes   yes      -      own       -       own own
runs          work        manage -     -     -        -      own       own     -   -
permissions   see         read   yes   yes   yes      yes    -         -       -   -
permissions   decide      decide yes   yes   yes      -      -         -       -   -
grants        see         read   yes   yes   yes      yes    -         -       -   -
grants        revoke      decide yes   yes   yes      -      -         -       -   -
channels      see         read   yes   yes   yes      yes    own       -       -   -
agents        register    manage yes   yes   yes      -      -         -       -   -
conversations see         read   yes   yes   yes      yes    own       own     -   -
conversations list        read   yes   yes   yes      yes    -         -       -   -
conversations create      call   yes   yes   yes      -      -         -       -   -
conversations add_message call   yes   yes   yes      -      -         -       -   -
conversations delete      manage yes   yes   own      -      -         -       -   -
artifacts     see         read   yes   yes   yes      yes    own       own     -   -
artifacts     upload      call   yes   yes   yes      -      own       own     -   -
tunnels       open        call   own   own   own      -      own       -       -   -
delegations   see         read   yes   yes   yes      yes    own       -       -   -
delegations   publish     call   own   own   own      -      own       -       -   -
delegations   cancel      call   yes   yes   yes      -      own       -       -   -
deliveries    see         read   yes   yes   yes      yes    own       -       -   -
deliveries    resend      admin  yes   yes   yes      -      own       -       -   -
deliveries    see_secret  call   own   own   own      -      own       -       -   -
notifications see         read    own   own   own      own    -         -       -   -
notifications set         admin   own   own   own      own    -         -       -   -
notifications connect_chat admin  yes   yes   -        -      -         -       -   -
keys          see         admin  yes   yes   own      -      -         -       -   -
keys          create      admin  yes   yes   own      -      -         -       -   -
keys          revoke      admin  yes   yes   own      own    -         -       -   -
sessions      see         admin  yes   yes   own      own    -         -       -   -
sessions      end         admin  yes   yes   own      own    -         -       -   -
tokens        create      read   yes   yes   yes      yes    -         -       -   -
users         see         admin  yes   yes   own      own    -         -       -   -
users         create      admin  yes   yes   -        -      -         -       -   -
users         edit        admin  yes   yes   own      own    -         -       -   -
users         remove      admin  yes   yes   -        -      -         -       -   -
audit         see         admin  yes   yes   -        -      -         -       -   -
rules         see         admin  yes   yes   -        -      -         -       -   -
rules         set         admin  yes   yes   -        -      -         -       -   -
quotas        see         admin  yes   yes   -        -      -         -       -   -
quotas        set         admin  yes   yes   -        -      -         -       -   -
usage         see         read   yes   yes   own      yes    -         -       -   -
login_links   create      admin  yes   yes   own      own    -         -       -   -
metrics       see         read   yes   yes   -        -      -         -       -   -
";

#[test]
fn the_access_table_is_the_golden_one() {
    let columns = [Role::Owner, Role::Admin, Role::Operator, Role::Viewer].map(RoleColumn::Role);
    let shown = |verdict| match verdict {
        AccessVerdict::Yes => "yes",
        AccessVerdict::Own => "own",
        AccessVerdict::No => "-",
    };
    let mut lines =
        vec!["resource action scope owner admin operator viewer agent_key runtime run anonymous".to_owned()];
    for action in Action::ALL {
        let mut line = format!("{} {} {}", action.resource(), action.verb(), action.scope().as_str());
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

#[test]
fn the_documentation_lists_every_scope() {
    let document = include_str!("../../../docs/identity.md");
    let rows = document.lines().skip_while(|line| !line.starts_with("| scope |")).skip(2);
    let listed: Vec<&str> = rows.map_while(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(listed, KeyScope::ALL.map(KeyScope::as_str));
}

/// Whether an owner, an admin, an operator, a viewer, an agent's key and a runtime may call the endpoints of a row.
fn callers_of(row: &str) -> String {
    let wanted: Vec<&str> = row.split(' ').collect();
    let mut rows = TABLE.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let cells = rows.find(|cells| cells.starts_with(&wanted)).expect(row);
    cells[3..9].iter().map(|cell| if *cell == "-" { 'n' } else { 'y' }).collect()
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
        ("GET", "/api/v1/agent-accounts".to_owned(), callers_of("agents see")),
        ("POST", "/api/v1/agent-accounts".to_owned(), callers_of("agents create")),
        ("PATCH", "/api/v1/agent-accounts/nobody".to_owned(), callers_of("agents edit")),
        ("DELETE", "/api/v1/agent-accounts/nobody".to_owned(), callers_of("agents archive")),
        ("POST", "/api/v1/agent-accounts/builder/pairing-codes".to_owned(), callers_of("pairing create_code")),
        ("POST", "/api/v1/agent-accounts/nobody/trust".to_owned(), callers_of("agents edit")),
        ("GET", "/api/v1/pairing-requests/0000-0000".to_owned(), callers_of("pairing decide")),
        ("POST", "/api/v1/pairing-requests/0000-0000/decision".to_owned(), callers_of("pairing decide")),
        ("GET", "/api/v1/agent-runtimes".to_owned(), callers_of("runtimes see")),
        ("DELETE", format!("/api/v1/agent-runtimes/{missing_runtime}"), callers_of("runtimes revoke")),
        ("GET", "/api/v1/task-runs".to_owned(), callers_of("runs see")),
        ("POST", "/api/v1/task-runs".to_owned(), callers_of("runs create")),
        ("POST", format!("/api/v1/task-runs/{missing_run}/cancel"), callers_of("runs cancel")),
        ("DELETE", format!("/api/v1/task-runs/{missing_run}"), callers_of("runs delete")),
        ("POST", format!("/api/v1/task-runs/{missing_run}/progress"), callers_of("runs work")),
        ("POST", format!("/api/v1/task-runs/{missing_run}/release"), callers_of("runs work")),
        // An agent with its own key does this over its channel.
        ("POST", "/api/v1/agent-runtimes/runtime/heartbeat".to_owned(), "nnnnny".to_owned()),
        ("GET", "/api/v1/conversations".to_owned(), callers_of("conversations list")),
        ("POST", "/api/v1/conversations".to_owned(), callers_of("conversations create")),
        ("POST", format!("/api/v1/conversations/{conversation}/messages"), callers_of("conversations add_message")),
        ("PUT", format!("/api/v1/workspaces/{workspace}/artifacts/a"), callers_of("artifacts upload")),
        ("GET", "/api/v1/api-keys".to_owned(), callers_of("keys see")),
        ("POST", "/api/v1/api-keys".to_owned(), callers_of("keys create")),
        ("GET", "/api/v1/audit".to_owned(), callers_of("audit see")),
        ("GET", "/api/v1/permission-rules".to_owned(), callers_of("rules see")),
        ("GET", "/api/v1/quotas".to_owned(), callers_of("quotas see")),
        ("GET", "/api/v1/usage".to_owned(), callers_of("usage see")),
        ("GET", "/api/v1/usage/records".to_owned(), callers_of("usage see")),
        ("POST", "/api/v1/login-links".to_owned(), callers_of("login_links create")),
        ("POST", format!("/api/v1/task-runs/{missing_run}/input"), callers_of("runs give_input")),
        ("POST", format!("/api/v1/task-runs/{missing_run}/input-requests"), callers_of("runs work")),
        ("POST", format!("/api/v1/task-runs/{missing_run}/permission-requests"), callers_of("runs work")),
        ("GET", format!("/api/v1/task-runs/{missing_run}/input-requests/{missing_ask}"), callers_of("runs work")),
        (
            "GET",
            format!("/api/v1/task-runs/{missing_run}/permission-requests/{missing_permission}"),
            callers_of("runs work"),
        ),
        ("GET", "/api/v1/permission-requests".to_owned(), callers_of("permissions see")),
        ("GET", format!("/api/v1/permission-requests/{missing_permission}"), callers_of("permissions see")),
        (
            "POST",
            format!("/api/v1/permission-requests/{missing_permission}/decision"),
            callers_of("permissions decide"),
        ),
        ("GET", "/api/v1/permission-grants".to_owned(), callers_of("grants see")),
        (
            "DELETE",
            "/api/v1/permission-grants/gnt_00000000000000000000000000000001".to_owned(),
            callers_of("grants revoke"),
        ),
        ("GET", "/api/v1/channels".to_owned(), callers_of("channels see")),
        ("GET", "/api/v1/channels/chn_00000000000000000000000000000001".to_owned(), callers_of("channels see")),
        ("GET", "/api/v1/channels/chn_00000000000000000000000000000001/events".to_owned(), callers_of("channels see")),
        ("POST", "/api/a2a/register".to_owned(), callers_of("agents register")),
        ("GET", "/api/v1/deliveries".to_owned(), callers_of("deliveries see")),
        ("GET", "/api/v1/deliveries/dlv_00000000000000000000000000000001".to_owned(), callers_of("deliveries see")),
        (
            "POST",
            "/api/v1/deliveries/dlv_00000000000000000000000000000001/resend".to_owned(),
            callers_of("deliveries resend"),
        ),
        ("GET", "/api/v1/deliveries/secret".to_owned(), callers_of("deliveries see_secret")),
        ("GET", "/api/v1/notification-targets".to_owned(), callers_of("notifications see")),
        (
            "DELETE",
            "/api/v1/notification-targets/ntf_00000000000000000000000000000001".to_owned(),
            callers_of("notifications set"),
        ),
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
