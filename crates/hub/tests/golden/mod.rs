//! Every endpoint for every kind of caller: the responses, as a table in `matrix.txt`.
//!
//! A new endpoint fails until its row is written: `ATTACHE_GOLDEN=write cargo test -p attache-hub --test all golden`.

mod fixture;
mod foreign;

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use serde_json::json;

use self::fixture::{GoldenFixture, GoldenRow};
use crate::{
    document::ROUTES,
    people::person,
    world::{Engine, TestCaller, World},
};

/// Other uses of the same paths: streams, sockets, filters.
const MORE: &[(&str, &str)] = &[
    ("ws", "/api/a2a/watch/{call}"),
    ("ws", "/api/a2a/stream/{call}"),
    ("ws", "/api/a2a/connect"),
    ("ws", "/api/envelope/ws"),
    ("sse", "/api/v1/task-runs/{run}/events"),
    ("sse", "/api/v1/channels/{channel}/events"),
    ("get", "/api/v1/task-runs?agent_id={agent}"),
    ("get", "/api/v1/task-runs?conversation_id={conversation}"),
    ("get", "/api/v1/task-runs?status=pending&agent_id={agent}"),
    ("get", "/api/v1/agent-runtimes?agent_id={agent}"),
    ("get", "/api/v1/permission-requests?task_run_id={run}"),
    ("get", "/api/v1/users/me"),
    ("ws", "/api/v1/tunnels/{tunnel}"),
    ("ws", "/api/v1/tunnels/{tunnel}?end=host"),
];

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/matrix.txt");

const COLUMNS: [&str; 14] = [
    "owner",
    "admin",
    "operator",
    "other_op",
    "viewer",
    "agent_key",
    "runtime",
    "run",
    "expired",
    "revoked",
    "jwt",
    "read_only",
    "anonymous",
    "foreign",
];

/// The callers in column order. The runtime is the fixture's own device.
struct Callers {
    operator: TestCaller,
    fixed: Vec<(&'static str, TestCaller)>,
}

fn rows() -> Vec<GoldenRow> {
    ROUTES.iter().chain(MORE).map(|&(method, path)| GoldenRow { method, path }).collect()
}

async fn callers(world: &World, foreign: &TestCaller) -> Callers {
    let key = async |request| {
        let made = world.owner.post("/api/v1/api-keys", request).await.expect(201);
        (world.anonymous().key(made["api_key"].as_str().unwrap()), made["key"]["key_id"].as_str().unwrap().to_owned())
    };
    let operator = person(world, "op", "operator").await;
    let soon = world.env.now().plus(Duration::from_secs(1)).to_string();
    let (expired, _) = key(json!({"name": "e", "role": "owner", "expires_at": soon})).await;
    world.advance(Duration::from_secs(1));
    let (revoked, id) = key(json!({"name": "r", "role": "owner"})).await;
    world.owner.delete(&format!("/api/v1/api-keys/{id}")).await.expect(200);
    let (reader, _) = key(json!({"name": "s", "role": "owner", "scopes": ["read"]})).await;
    let token = world.owner.post("/api/v1/tokens", json!({"ttl_seconds": 3600})).await.expect(201);
    let helper = operator.post("/api/a2a/register", json!({"agent_id": "helper"})).await.expect(200);
    let fixed = vec![
        ("owner", world.owner.clone()),
        ("admin", person(world, "adm", "admin").await),
        ("operator", operator.clone()),
        ("other_op", person(world, "op2", "operator").await),
        ("viewer", person(world, "vi", "viewer").await),
        ("agent_key", world.anonymous().key(helper["api_key"].as_str().unwrap())),
        ("expired", expired),
        ("revoked", revoked),
        ("jwt", world.anonymous().key(token["token"].as_str().unwrap())),
        ("read_only", reader),
        ("anonymous", world.anonymous()),
        ("foreign", foreign.clone()),
    ];
    Callers { operator, fixed }
}

#[tokio::test]
async fn every_caller_gets_the_answer_in_the_table() {
    let (world, foreign) = World::two_tenants(Engine::Model).await;
    let callers = callers(&world, &foreign).await;
    let mut text = format!("{:<68}{}\n", "endpoint", COLUMNS.map(|name| format!("{name:<10}")).join("").trim_end());
    for row in rows() {
        let mut line = format!("{:<68}", format!("{} {}", row.method.to_uppercase(), row.path));
        for column in COLUMNS {
            // A new fixture for every cell, because many requests end what they act on.
            let mut scene = GoldenFixture::new(&world, &callers.operator);
            let caller = match callers.fixed.iter().find(|(name, _)| *name == column) {
                Some((_, caller)) => caller.clone(),
                None if column == "run" => scene.of_the_run().await,
                None => scene.device().await,
            };
            let path = scene.fill(row.path).await;
            let body = scene.body(&row).await;
            let answer = row.ask(&world, &caller, &path, body).await;
            let _ = write!(line, "{:<10}", answer.status);
            scene.end().await;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if std::env::var("ATTACHE_GOLDEN").is_ok_and(|word| word == "write") {
        std::fs::write(FILE, &text).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    let differing: Vec<_> = text.lines().filter(|line| !kept.lines().any(|known| known == *line)).collect();
    assert!(
        kept == text,
        "these rows are not in tests/golden/matrix.txt; look at each, then run with ATTACHE_GOLDEN=write:\n{}\n{}",
        text.lines().next().unwrap_or_default(),
        differing.join("\n")
    );
}

#[test]
fn the_table_has_every_endpoint() {
    let kept = std::fs::read_to_string(FILE).unwrap();
    let name = |row: &GoldenRow| format!("{} {}", row.method.to_uppercase(), row.path);
    let known: BTreeSet<&str> = kept.lines().skip(1).filter_map(|line| line.get(..68)).map(str::trim_end).collect();
    let missing: Vec<String> = rows().iter().map(name).filter(|row| !known.contains(row.as_str())).collect();
    assert_eq!(missing, Vec::<String>::new());
}
