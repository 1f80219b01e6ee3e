//! Deleting runs and conversations from the command line, and retention that bounds a hub's growth.
#![allow(clippy::disallowed_methods, reason = "these tests let years pass in a database")]

use std::path::Path;

use rusqlite::Connection;
use serde_json::json;

use crate::harness::{TestHome, until};

fn count(database: &Path, table: &str) -> i64 {
    let connection = Connection::open(database).unwrap();
    connection.query_row(&format!("select count(*) from {table}"), [], |row| row.get(0)).unwrap()
}

#[test]
fn runs_and_conversations_are_deleted() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let ran = up.ask("local", "echo kept > kept.txt && echo kept.txt >> \"$ATTACHE_ARTIFACTS\"");
    let run = ran["task_run_id"].as_str().unwrap();
    assert_eq!(home.artifact_files().len(), 1);
    let deleted = home.attache(&["runs", "delete", run, "--yes", "--json"]).succeeds().json();
    assert_eq!(deleted, json!({"deleted": run}));
    assert_eq!(home.artifact_files().len(), 0);
    let gone = home.attache(&["runs", "show", run]).exits(3).stderr;
    assert!(gone.contains("No such run"), "{gone}");
    home.attache(&["runs", "delete", run, "--yes"]).exits(3);

    let conversation = home.attache(&["conversations", "add", "--title", "x"]).succeeds().stdout;
    let conversation = conversation.trim();
    home.attache(&["ask", "local", "--conversation", conversation, "echo hi"]).succeeds();
    home.attache(&["conversations", "delete", conversation, "--yes"]).succeeds();
    home.attache(&["conversations", "show", conversation]).exits(3);
    assert_eq!(up.get("/api/v1/task-runs")["task_runs"], json!([]));
    let live = up.create_run("local", "sleep 60");
    let refused = home.attache(&["runs", "delete", &live, "--yes"]).exits(1).stderr;
    assert!(refused.contains("has not ended") && refused.contains("attache runs cancel"), "{refused}");
    home.attache(&["audit", "verify"]).succeeds();
}

/// Creates many records and lets three months pass; only the log is left.
#[test]
fn retention_bounds_growth() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let database = home.a2a().join("hub/hub.db");
    for number in 0..5 {
        let task = format!("echo {} > out.txt && echo out.txt >> \"$ATTACHE_ARTIFACTS\"", number % 2);
        assert_eq!(up.ask("local", &task)["status"], "completed");
    }
    for number in 0..40 {
        let run = up.create_run("local", &format!("echo {number}"));
        if number % 2 == 0 {
            up.post(&format!("/api/v1/task-runs/{run}/cancel"), &json!({}));
        }
    }
    until("every run to end", || {
        let live = up.get("/api/v1/task-runs?status=pending")["task_runs"].as_array().unwrap().len()
            + up.get("/api/v1/task-runs?status=running")["task_runs"].as_array().unwrap().len();
        (live == 0).then_some(())
    });
    up.process.terminate();
    assert_eq!((count(&database, "task_runs"), home.artifact_files().len()), (45, 2));
    let connection = Connection::open(&database).unwrap();
    let quarter = 91_i64 * 24 * 60 * 60 * 1000;
    connection
        .execute_batch(&format!(
            "update task_runs set created = created - {quarter}, ended = ended - {quarter};
             update artifacts set created = created - {quarter}; update messages set created = created - {quarter};"
        ))
        .unwrap();
    drop(connection);
    let _hub = home.hub(&[]);
    // Retention runs soon after a start.
    until("everything to be removed", || (count(&database, "task_runs") == 0).then_some(()));
    until("the files to be removed", || home.artifact_files().is_empty().then_some(()));
    for table in [
        "chunks",
        "agent_runs",
        "messages",
        "artifacts",
        "artifact_edges",
        "permission_requests",
        "asks",
        "inputs",
        "follows",
        "push_configs",
        "peer_tasks",
        "conversations",
        "deleted_keys",
    ] {
        assert_eq!(count(&database, table), 0, "{table}");
    }
    home.attache(&["audit", "verify"]).succeeds();
    let removed = home.attache(&["audit", "export"]).succeeds().stdout;
    assert!(removed.contains("data.removed"), "the log says so");
}
