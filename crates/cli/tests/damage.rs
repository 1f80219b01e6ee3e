//! Backups of a running hub, tampered logs, and missing or damaged files: each is reported clearly.
#![allow(clippy::disallowed_methods, reason = "these tests do to a database what nobody should")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, TestProcess, process, until};

fn database(home: &TestHome) -> PathBuf {
    home.a2a().join("hub/hub.db")
}

/// Changes the database of a stopped hub.
fn tamper(home: &TestHome, sql: &str) {
    let connection = Connection::open(database(home)).unwrap();
    connection.execute_batch(sql).unwrap();
    connection.execute_batch("pragma wal_checkpoint(truncate)").unwrap();
}

fn runs(server: &TestHub) -> Vec<Value> {
    server.get("/api/v1/task-runs?limit=100")["task_runs"].as_array().unwrap().clone()
}

/// The error message of a hub that can't start.
fn refused(home: &TestHome) -> String {
    home.attache(&["hub", "--listen", "127.0.0.1:0"]).exits(1).stderr
}

#[test]
fn a_backup_of_a_busy_hub_is_complete() {
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
    assert!(home.attache(&["backup", name]).exits(1).stderr.contains("already exists"), "nothing is overwritten");
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

/// Starts `attache backup` with the usual umask, which lets everyone read new files, and waits until it is at work.
fn start_backup(home: &TestHome, file: &Path) -> TestProcess {
    let mut command = home.program("sh");
    command.args(["-c", r#"umask 022; exec "$0" backup "$1""#, env!("CARGO_BIN_EXE_attache")]).arg(file);
    let backup = TestProcess::spawn("backup", &mut command, &home.logs());
    until("the copy of the database to begin", || {
        assert!(backup.is_running(), "{}", backup.stderr());
        files(file.parent().unwrap()).iter().any(|file| file.to_string_lossy().ends_with(".db")).then_some(())
    });
    backup
}

/// Makes the database so large that copying it takes a while.
fn enlarge_database(home: &TestHome) {
    let connection = Connection::open(database(home)).unwrap();
    connection.execute_batch("create table ballast (bytes blob)").unwrap();
    for _ in 0..10 {
        connection.execute("insert into ballast values (zeroblob(30000000))", []).unwrap();
    }
}

/// A folder for backups that everyone can read.
fn shared_folder(home: &TestHome) -> PathBuf {
    let folder = home.path().join("backups");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The entries of a folder, without those that vanish in the meantime.
fn entries(folder: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let paths = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    paths.filter_map(|path| fs::metadata(&path).ok().map(|metadata| (path, metadata))).collect()
}

/// The only entry of a folder.
#[track_caller]
fn only_entry(folder: &Path) -> (PathBuf, fs::Metadata) {
    let mut found = entries(folder);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn mode(metadata: &fs::Metadata) -> u32 {
    metadata.permissions().mode() & 0o777
}

#[test]
fn only_the_owner_can_read_a_backup_while_it_is_made() {
    let home = TestHome::new();
    home.hub(&[]).process.terminate();
    let folder = shared_folder(&home);
    let file = folder.join("hub.tar");
    enlarge_database(&home);
    let backup = start_backup(&home, &file);
    // Nothing else is there: neither the copy nor an empty archive.
    let (draft, metadata) = only_entry(&folder);
    assert_eq!((metadata.is_dir(), mode(&metadata)), (true, 0o700));
    let mut sizes = Vec::new();
    while backup.is_running() {
        for (path, metadata) in entries(&folder) {
            if path == draft {
                assert_eq!(mode(&metadata), 0o700);
                continue;
            }
            assert_eq!((path.as_path(), mode(&metadata)), (file.as_path(), 0o600));
            sizes.push(metadata.len());
        }
    }
    assert!(backup.wait().success(), "{}", backup.stderr());
    let (left, metadata) = only_entry(&folder);
    assert_eq!((left.as_path(), mode(&metadata)), (file.as_path(), 0o600));
    sizes.retain(|size| *size != metadata.len());
    assert_eq!(sizes, Vec::<u64>::new(), "the archive appears only when it is complete");
    assert!(Command::new("tar").arg("-tf").arg(&file).status().unwrap().success());
}

#[test]
fn an_interrupted_or_failed_backup_does_not_block_the_next_one() {
    let home = TestHome::new();
    home.hub(&[]).process.terminate();
    let folder = shared_folder(&home);
    let file = folder.join("hub.tar");
    let name = file.to_str().unwrap();
    let names = || entries(&folder).into_iter().map(|(path, _)| path).collect::<Vec<_>>();

    enlarge_database(&home);
    let backup = start_backup(&home, &file);
    process::signal(backup.id(), "INT");
    assert_eq!(backup.wait().code(), Some(1), "{}", backup.stderr());
    assert!(backup.stderr().contains("the backup was interrupted"), "{}", backup.stderr());
    assert_eq!(names(), Vec::<PathBuf>::new());

    // After `kill -9`, the private folder stays behind.
    start_backup(&home, &file).kill();
    let (left, metadata) = only_entry(&folder);
    assert_eq!((metadata.is_dir(), mode(&metadata)), (true, 0o700));
    home.attache(&["backup", name]).succeeds();
    fs::remove_dir_all(left).unwrap();

    // Failures before and during the work leave nothing behind.
    assert!(home.attache(&["backup", name]).exits(1).stderr.contains("already exists"));
    home.attache(&["backup", folder.join("missing/hub.tar").to_str().unwrap()]).exits(1);
    fs::write(database(&home), [b'x'; 8192]).unwrap();
    let output = home.attache(&["backup", folder.join("other.tar").to_str().unwrap()]).exits(1).stderr;
    assert!(output.contains("can't copy"), "{output}");
    assert_eq!(names(), [file.as_path()]);
}

#[test]
fn an_idle_hub_is_one_complete_file() {
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
fn a_log_with_missing_first_rows_is_not_intact() {
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
    // An earlier export detects the same.
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
    assert!(said.contains("the log was modified at row 2"), "{said}");
}

#[test]
fn a_signed_checkpoint_detects_a_rewritten_log() {
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
    assert!(said.contains("the log was modified at row"), "{said}");
    // Nobody else can create a valid checkpoint.
    let forged = checkpoint.replacen("\"seq\": ", "\"seq\": 1", 1).replacen("\"seq\":", "\"seq\": 1", 1);
    fs::write(&file, forged).unwrap();
    let said = home.attache(&["audit", "verify", "--against", name]).exits(1).stderr;
    assert!(said.contains("signature is invalid"), "{said}");
}

#[test]
fn a_lost_database_is_not_silently_recreated() {
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
fn a_lost_write_ahead_log_is_detected() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.process.kill();
    fs::remove_file(home.a2a().join("hub/hub.db-wal")).unwrap();
    let said = refused(&home);
    assert!(said.contains("hub.db-wal is gone") && said.contains("remove hub.db-owner"), "{said}");
    fs::remove_file(home.a2a().join("hub/hub.db-owner")).unwrap();
    // Everything that was checkpointed before is still there.
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
fn a_damaged_or_newer_database_is_reported() {
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
fn a_corrupted_artifact_is_not_served() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let ran = up.ask("local", "echo right > it.txt && echo it.txt >> \"$ATTACHE_ARTIFACTS\"");
    let list = home.attache(&["artifacts", "list", ran["task_run_id"].as_str().unwrap(), "--json"]).succeeds().json();
    let artifact = list["artifacts"][0]["artifact_id"].as_str().unwrap().to_owned();
    assert_eq!(home.attache(&["artifacts", "get", &artifact]).succeeds().stdout, "right\n");
    let blob = home.artifact_files().pop().unwrap();
    fs::write(&blob, "wrong\n").unwrap();
    let ran = home.attache(&["artifacts", "get", &artifact]).exits(1);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("was modified on the hub's disk"), "{}", ran.stderr);
    fs::remove_file(&blob).unwrap();
    let ran = home.attache(&["artifacts", "get", &artifact]).exits(1);
    assert!(ran.stderr.contains("is missing from the hub's disk"), "{}", ran.stderr);
}

#[test]
fn output_produced_while_the_runtime_was_away_is_delivered() {
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
    // Either the input is unreadable, or even the state.
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
fn a_damaged_running_run_fails_and_blocks_no_other() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let bad = up.create_run("local", "sleep 30");
    until("the task to begin", || (up.run(&bad)["status"] == "running").then_some(()));
    up.process.kill();
    tamper(&home, "update task_runs set state = x'01' where id = 1;");
    // No writes are lost here: the test has moved them into the database.
    fs::remove_file(home.a2a().join("hub/hub.db-owner")).unwrap();
    let up = home.up(&[]);
    up.process.tells("a run that has not ended is damaged");
    assert_eq!(up.ask("local", "echo after")["status"], "completed");
    home.attache(&["runs", "list", "--status", "running"]).succeeds();
    let log = home.attache(&["audit", "export"]).succeeds().stdout;
    assert!(log.lines().any(|row| row.contains("task.damaged") && row.contains(&bad)), "{log}");
    home.attache(&["audit", "verify"]).succeeds();
}
