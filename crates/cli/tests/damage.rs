//! Backups of a hub that runs, logs that were tampered with, and files that are missing or damaged: each is told in words.
#![allow(clippy::disallowed_methods, reason = "these tests do to a database what nobody should")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, until};

fn database(home: &TestHome) -> PathBuf {
    home.a2a().join("hub/hub.db")
}

/// Changes the database of a hub that does not run.
fn tamper(home: &TestHome, sql: &str) {
    let connection = Connection::open(database(home)).unwrap();
    connection.execute_batch(sql).unwrap();
    connection.execute_batch("pragma wal_checkpoint(truncate)").unwrap();
}

fn runs(server: &TestHub) -> Vec<Value> {
    server.get("/api/v1/task-runs?limit=100")["task_runs"].as_array().unwrap().clone()
}

/// Where a hub cannot start: what it says.
fn refused(home: &TestHome) -> String {
    home.attache(&["hub", "--listen", "127.0.0.1:0"]).exits(1).stderr
}

#[test]
fn a_backup_of_a_busy_hub_is_a_whole_hub() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let ran = up.ask("local", "echo kept > kept.txt && echo kept.txt >> \"$ATTACHE_ARTIFACTS\"");
    assert_eq!(ran["status"], "completed", "{ran}");
    (0..20).for_each(|number| drop(up.create_run("local", &format!("echo {number}"))));
    let file = home.path().join("backup.tar");
    let name = file.to_str().unwrap();
    let before = runs(&up).len();
    let made = home.attache(&["backup", name, "--json"]).succeeds().json();
    up.create_run("local", "echo later");
    assert_eq!(made["bytes"], fs::metadata(&file).unwrap().len());
    let text = fs::read(&file).unwrap();
    assert!(home.attache(&["backup", name]).exits(1).stderr.contains("there already"), "nothing is written over");
    assert_eq!(fs::read(&file).unwrap(), text);
    assert_eq!(
        fs::read_dir(home.path())
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|end| end == "db"))
            .count(),
        0
    );

    let other = TestHome::new();
    let data = other.a2a().join("hub");
    fs::create_dir_all(&data).unwrap();
    assert!(Command::new("tar").args(["-xpf", name, "-C"]).arg(&data).status().unwrap().success());
    let restored = other.hub(&[]);
    assert_eq!(runs(&restored).len(), before);
    other.attache(&["audit", "verify"]).succeeds();
    let list = other.attache(&["artifacts", "list", ran["task_run_id"].as_str().unwrap(), "--json"]).succeeds().json();
    let artifact = list["artifacts"][0]["artifact_id"].as_str().unwrap().to_owned();
    assert_eq!(other.attache(&["artifacts", "get", &artifact]).succeeds().stdout, "kept\n");
}

#[test]
fn an_idle_hub_is_one_whole_file() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.create_run("builder", "x");
    let size = |name: &str| fs::metadata(home.a2a().join("hub").join(name)).map_or(0, |metadata| metadata.len());
    until("everything to be in hub.db", || (size("hub.db-wal") == 0 && size("hub.db") > 4096).then_some(()));
    let copy = home.path().join("copy.db");
    fs::copy(database(&home), &copy).unwrap();
    let rows: i64 =
        Connection::open(copy).unwrap().query_row("select count(*) from task_runs", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
}

#[test]
fn a_log_whose_front_was_cut_off_is_not_called_intact() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    (0..5).for_each(|_| drop(hub.create_run("builder", "x")));
    home.attache(&["audit", "verify"]).succeeds();
    let export = home.path().join("export.jsonl");
    let rows = home.attache(&["audit", "export"]).succeeds().stdout;
    fs::write(&export, rows.lines().take(3).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    hub.process.terminate();
    tamper(
        &home,
        "update tenants set log_floor = 4, log_floor_hash = (select hash from log where seq = 4); delete from log where seq <= 4;",
    );
    let _hub = home.hub(&[]);
    let said = home.attache(&["audit", "verify"]).exits(1).stderr;
    assert!(said.contains("rows up to 4 are missing"), "{said}");
    // An earlier export says the same.
    let against = home.attache(&["audit", "verify", "--against", export.to_str().unwrap(), "--json"]).exits(1).json();
    assert_eq!((&against["ok"], &against["broken_at"]), (&json!(false), &json!(4)));
}

#[test]
fn every_field_of_a_row_is_covered_by_the_chain() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.process.terminate();
    tamper(&home, "update log set run_seq = 7 where run is null and seq = 2;");
    let _hub = home.hub(&[]);
    let said = home.attache(&["audit", "verify"]).exits(1).stderr;
    assert!(said.contains("the log was changed at row 2"), "{said}");
}

#[test]
fn a_signed_checkpoint_knows_a_log_that_was_made_anew() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.process.terminate();
    let old = home.path().join("old.db");
    fs::copy(database(&home), &old).unwrap();
    let hub = home.hub(&[]);
    hub.create_run("builder", "what somebody wants to undo");
    let file = home.path().join("checkpoint.json");
    let checkpoint = home.attache(&["audit", "checkpoint"]).succeeds().stdout;
    fs::write(&file, &checkpoint).unwrap();
    let name = file.to_str().unwrap();
    home.attache(&["audit", "verify", "--against", name]).succeeds();
    hub.process.terminate();
    fs::copy(&old, database(&home)).unwrap();
    let hub = home.hub(&[]);
    (0..5).for_each(|_| drop(hub.create_run("builder", "something else")));
    home.attache(&["audit", "verify"]).succeeds();
    let said = home.attache(&["audit", "verify", "--against", name]).exits(1).stderr;
    assert!(said.contains("the log was changed at row"), "{said}");
    // Nobody else can make one.
    let forged = checkpoint.replacen("\"seq\": ", "\"seq\": 1", 1).replacen("\"seq\":", "\"seq\": 1", 1);
    fs::write(&file, forged).unwrap();
    let said = home.attache(&["audit", "verify", "--against", name]).exits(1).stderr;
    assert!(said.contains("signature does not fit"), "{said}");
}

#[test]
fn a_lost_database_is_not_begun_anew_by_surprise() {
    let home = TestHome::new();
    home.hub(&[]).process.terminate();
    let kept = home.path().join("kept.db");
    fs::rename(database(&home), &kept).unwrap();
    for empty in [false, true] {
        if empty {
            fs::write(database(&home), "").unwrap();
        }
        let said = refused(&home);
        assert!(said.contains("is missing or empty") && said.contains("--data DIR"), "{said}");
        assert_eq!(database(&home).exists(), empty);
    }
    fs::rename(&kept, database(&home)).unwrap();
    home.hub(&[]);
}

#[test]
fn a_lost_write_ahead_log_is_noticed() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.process.kill();
    fs::remove_file(home.a2a().join("hub/hub.db-wal")).unwrap();
    let said = refused(&home);
    assert!(said.contains("hub.db-wal is gone") && said.contains("remove hub.db-owner"), "{said}");
    fs::remove_file(home.a2a().join("hub/hub.db-owner")).unwrap();
    // Whatever was folded before is there.
    let again = home.attache(&["hub", "--listen", "127.0.0.1:0", "--ready-file", "/nowhere/at/all"]);
    assert!(!again.stderr.contains("hub.db-wal"), "{}", again.stderr);
}

#[test]
fn one_damaged_row_does_not_hide_the_others() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let first = up.ask("local", "echo one")["task_run_id"].clone();
    let second = up.ask("local", "echo two")["task_run_id"].clone();
    up.process.terminate();
    tamper(&home, "update task_runs set state = x'01' where id = 1;");
    let up = home.up(&[]);
    let ids: Vec<Value> = runs(&up).into_iter().map(|run| run["task_run_id"].clone()).collect();
    assert!(ids.contains(&second) && !ids.contains(&first), "{ids:?}");
    up.process.tells("a row of the database is damaged");
}

#[test]
fn a_damaged_or_newer_database_is_called_so() {
    let home = TestHome::new();
    home.hub(&[]).process.terminate();
    tamper(&home, "pragma user_version = 999;");
    let said = refused(&home);
    assert!(said.contains("newer version of attache") && said.contains("Update this program"), "{said}");
    fs::write(database(&home), [b'x'; 8192]).unwrap();
    let said = refused(&home);
    assert!(said.contains("the database is damaged") && said.contains("docs/backup.md"), "{said}");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn an_artifact_whose_bytes_were_changed_is_not_given_out() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let ran = up.ask("local", "echo right > it.txt && echo it.txt >> \"$ATTACHE_ARTIFACTS\"");
    let list = home.attache(&["artifacts", "list", ran["task_run_id"].as_str().unwrap(), "--json"]).succeeds().json();
    let artifact = list["artifacts"][0]["artifact_id"].as_str().unwrap().to_owned();
    assert_eq!(home.attache(&["artifacts", "get", &artifact]).succeeds().stdout, "right\n");
    let blob = files(&home.a2a().join("hub/blobs")).pop().unwrap();
    fs::write(&blob, "wrong\n").unwrap();
    let ran = home.attache(&["artifacts", "get", &artifact]).exits(1);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("was changed on the hub's disk"), "{}", ran.stderr);
    fs::remove_file(&blob).unwrap();
    let ran = home.attache(&["artifacts", "get", &artifact]).exits(1);
    assert!(ran.stderr.contains("is missing from the hub's disk"), "{}", ran.stderr);
}

#[test]
fn what_a_task_said_while_its_runtime_was_away_is_told() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let (adapter, url) = home.adapter(&["shell"]);
    let code = hub.pairing_code("builder");
    home.attache(&["runtime", "pair", &code, "--api-base", &hub.url, "--local-agent-endpoint", &url]).succeeds();
    let runtime = home.runtime(&[]);
    let text = "echo first; touch begun; until [ -e go ]; do sleep 0.05; done; echo last words; touch ended";
    let run = hub.create_run("builder", text);
    until("the task to begin", || home.path().join("begun").exists().then_some(()));
    runtime.kill();
    fs::write(home.path().join("go"), "").unwrap();
    until("the task to end", || home.path().join("ended").exists().then_some(()));
    let _runtime = home.runtime(&[]);
    assert_eq!(hub.ended(&run)["status"], "completed");
    let events = hub.get(&format!("/api/v1/task-runs/{run}/events?after=0"))["events"].clone();
    let chunks = events.as_array().unwrap().iter().filter(|event| event["type"] == "task.chunk");
    let said: String = chunks.map(|event| event["data"]["text"].as_str().unwrap()).collect();
    assert_eq!(said, "first\nlast words\n");
    drop(adapter);
}

#[test]
fn a_damaged_run_in_the_queue_does_not_stop_the_others() {
    // What was asked cannot be read, or not even the state.
    for (damage, is_readable) in [("request = '{'", true), ("state = x'01'", false)] {
        let home = TestHome::new();
        let hub = home.hub(&[]);
        hub.add_agent("builder");
        let [bad, good] = ["echo bad", "echo good"].map(|task| hub.create_run("builder", task));
        let code = hub.pairing_code("builder");
        let (_adapter, url) = home.adapter(&["shell"]);
        home.attache(&["runtime", "pair", &code, "--api-base", &hub.url, "--local-agent-endpoint", &url]).succeeds();
        hub.process.terminate();
        tamper(&home, &format!("update task_runs set {damage} where id = 1;"));
        let hub = home.hub(&["--listen", hub.url.trim_start_matches("http://")]);
        let _runtime = home.runtime(&[]);
        assert_eq!(hub.ended(&good)["status"], "completed", "{damage}");
        hub.process.tells("a run that has not ended is damaged");
        home.attache(&["audit", "verify"]).succeeds();
        let log = home.attache(&["audit", "export"]).succeeds().stdout;
        let kind = if is_readable { "task.failed" } else { "task.damaged" };
        assert!(log.lines().any(|row| row.contains(kind) && row.contains(&bad)), "{damage}: {log}");
    }
}

#[test]
fn a_damaged_run_at_work_is_ended_and_stops_nobody() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let bad = up.create_run("local", "sleep 30");
    until("the task to begin", || (up.run(&bad)["status"] == "running").then_some(()));
    up.process.kill();
    tamper(&home, "update task_runs set state = x'01' where id = 1;");
    // Nobody lost the newest writes: this test has moved them into the database.
    fs::remove_file(home.a2a().join("hub/hub.db-owner")).unwrap();
    let up = home.up(&[]);
    up.process.tells("a run that has not ended is damaged");
    assert_eq!(up.ask("local", "echo after")["status"], "completed");
    home.attache(&["runs", "list", "--status", "running"]).succeeds();
    let log = home.attache(&["audit", "export"]).succeeds().stdout;
    assert!(log.lines().any(|row| row.contains("task.damaged") && row.contains(&bad)), "{log}");
    home.attache(&["audit", "verify"]).succeeds();
}
