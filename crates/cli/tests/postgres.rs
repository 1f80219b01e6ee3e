//! A hub whose database is on a PostgreSQL server: the same hub, another one is refused or takes over, and nothing is lost.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use attache_store::conformance::postgres_server::TestPostgresServer;

use crate::harness::{TestHome, process::signal, until};

#[test]
fn a_hub_on_postgres_survives_being_killed() {
    let Some(server) = TestPostgresServer::start() else { return };
    let url = server.create_database("hub");
    let home = TestHome::new();
    let (mut hub, runtime) = home.hub_with_builder_on(&["--database-url", &url]);
    let first = hub.ask("builder", "echo one");
    assert_eq!((&first["status"], &first["task_result"]["text"]), (&"completed".into(), &"one\n".into()), "{first}");

    let second = hub.ask("builder", "echo two");
    assert_eq!(second["status"], "completed", "{second}");

    hub.process.kill();
    let listen = hub.url.strip_prefix("http://").unwrap().to_owned();
    hub = home.server("hub", &["--listen", &listen, "--database-url", &url]);
    let runs = hub.get("/api/v1/task-runs?limit=100");
    assert_eq!(runs["task_runs"].as_array().unwrap().len(), 2, "{runs}");
    assert_eq!(hub.ask("builder", "echo three")["status"], "completed");
    home.attache(&["audit", "verify"]).succeeds();
    drop(runtime);
}

#[test]
fn a_hub_survives_a_crash_of_its_server() {
    let Some(mut server) = TestPostgresServer::start() else { return };
    let url = server.create_database("hub");
    let home = TestHome::new();
    let (hub, runtime) = home.hub_with_builder_on(&["--database-url", &url]);
    assert_eq!(hub.ask("builder", "echo one")["status"], "completed");
    let ready = || hub.call("GET", "/readyz", None);

    server.crash();
    until("the hub to notice", || (ready().status == 503).then_some(()));
    let refused = hub.call("GET", "/api/v1/task-runs", None);
    assert_eq!((refused.status, refused.error_code()), (503, "database_unreachable".to_owned()));

    server.restart();
    until("the hub to go on", || (ready().status == 200).then_some(()));
    assert_eq!(hub.ask("builder", "echo two")["status"], "completed");
    // All connections are new: reads take turns on them.
    for _ in 0..6 {
        assert_eq!(hub.get("/api/v1/task-runs?limit=100")["task_runs"].as_array().unwrap().len(), 2);
    }
    home.attache(&["audit", "verify"]).succeeds();
    drop(runtime);
}

#[test]
fn a_database_that_was_moved_is_not_called_missing() {
    let home = TestHome::new();
    let data = home.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("hub.db.moved"), "").unwrap();
    let folder = data.to_str().unwrap();
    let refused = home.attache(&["migrate", "--from", folder, "--to", "postgres://127.0.0.1:1/hub"]).exits(1).stderr;
    assert!(refused.contains(&format!("the database in {folder} was already moved to PostgreSQL")), "{refused}");
    assert!(refused.contains(&format!("kept as {folder}/hub.db.moved")), "{refused}");
}

#[test]
fn a_hub_moves_to_postgres_and_back() {
    let Some(server) = TestPostgresServer::start() else { return };
    let home = TestHome::new();
    let (mut hub, runtime) = home.hub_with_builder();
    let listen = hub.address().to_owned();
    assert_eq!(hub.ask("builder", "echo one")["status"], "completed");
    let run = hub.create_run("builder", "sleep 0.1");
    let file = home.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    home.attache(&["artifacts", "put", &run, file.to_str().unwrap()]).succeeds();
    hub.ended(&run);
    let url = server.create_database("hub");
    let refused = home.attache(&["migrate", "--to", &url]).exits(1).stderr;
    assert!(refused.contains("belongs to a hub that is running"), "{refused}");
    assert_eq!(home.attache(&["migrate"]).exits(2).stdout, "");
    hub.process.terminate();
    let empty = home.attache(&["hub", "--listen", "127.0.0.1:0", "--database-url", &url]).exits(1).stderr;
    assert!(empty.contains("is empty") && empty.contains("attache migrate"), "{empty}");
    // A copy that never began leaves the file as it was.
    let away = home.attache(&["migrate", "--to", "postgres://attache@127.0.0.1:1/hub"]).exits(1).stderr;
    assert!(away.contains("can't connect"), "{away}");

    let copied = home.attache(&["migrate", "--to", &url, "--json"]).succeeds().json();
    assert!(copied["rows"].as_u64() > copied["log_rows"].as_u64() && copied["log_rows"].as_u64() > Some(0), "{copied}");
    let data = home.a2a().join("hub");
    std::fs::rename(data.join("hub.db.moved"), data.join("hub.db")).unwrap();
    let full = home.attache(&["migrate", "--to", &url]).exits(1).stderr;
    assert!(full.contains("isn't empty"), "{full}");
    std::fs::rename(data.join("hub.db"), data.join("hub.db.moved")).unwrap();
    // Another hub's database, or an empty one, knows nothing of the artifacts in the folder, and would have them removed.
    let wrong = server.create_database("wrong");
    let refused = home.attache(&["hub", "--listen", "127.0.0.1:0", "--database-url", &wrong]).exits(1).stderr;
    assert!(refused.contains("another hub keeps its artifacts in") && refused.contains("--database-url"), "{refused}");
    assert_eq!(home.artifact_files().len(), 1);
    hub = home.server("hub", &["--listen", &listen, "--database-url", &url]);
    assert_eq!(hub.ask("builder", "echo two")["status"], "completed");
    home.attache(&["audit", "verify"]).succeeds();

    // A backup of a hub on PostgreSQL, which runs meanwhile, is one of files.
    let archive = home.path().join("hub.tar");
    home.attache(&["backup", archive.to_str().unwrap(), "--database-url", &url]).succeeds();
    let copy = TestHome::new();
    let restored = copy.a2a().join("hub");
    std::fs::create_dir_all(&restored).unwrap();
    let unpacked = std::process::Command::new("tar").arg("-xpf").arg(&archive).arg("-C").arg(&restored).status();
    assert!(unpacked.unwrap().success());
    let restored = copy.hub(&[]);
    assert_eq!(restored.get("/api/v1/task-runs?limit=100")["task_runs"].as_array().unwrap().len(), 3);

    hub.process.terminate();
    // A server that ends transactions which do nothing for a moment: what is copied is written meanwhile.
    server.psql("hub", "alter database hub set idle_in_transaction_session_timeout = '1ms'");
    home.attache(&["backup", home.path().join("again.tar").to_str().unwrap(), "--database-url", &url]).succeeds();
    server.psql("hub", "alter database hub reset idle_in_transaction_session_timeout");
    assert!(!data.join("hub.db").exists() && data.join("hub.db.moved").exists());
    let old = home.attache(&["backup", home.path().join("old.tar").to_str().unwrap()]).exits(1).stderr;
    assert!(old.contains("was moved to PostgreSQL") && old.contains("ATTACHE_DATABASE_URL"), "{old}");
    let old = home.attache(&["hub", "--listen", "127.0.0.1:0"]).exits(1).stderr;
    assert!(old.contains("was moved to PostgreSQL"), "{old}");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    home.attache(&["migrate", "--from", &url]).succeeds();
    let open = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o077;
    assert_eq!((open(&data), open(&data.join("hub.db"))), (0, 0), "nobody else can read it");
    let exists = home.attache(&["migrate", "--from", &url]).exits(1).stderr;
    assert!(exists.contains("exists already"), "{exists}");
    let keyless = home.path().join("keyless");
    std::fs::create_dir(&keyless).unwrap();
    let refused = home.attache(&["migrate", "--from", &url, "--to", keyless.to_str().unwrap()]).exits(3).stderr;
    assert!(refused.contains("doesn't have the keys of a hub"), "{refused}");
    // What was left behind says where the database is, to whoever still has its URL.
    let moved = format!("the database was moved to {}", data.join("hub.db").display());
    for key in ["seal.key", "token.key"] {
        std::fs::copy(data.join(key), keyless.join(key)).unwrap();
    }
    for args in [
        &["hub", "--listen", "127.0.0.1:0", "--database-url", &url][..],
        &["backup", home.path().join("left.tar").to_str().unwrap(), "--database-url", &url],
        &["migrate", "--from", &url, "--to", keyless.to_str().unwrap()],
    ] {
        let left = home.attache(args).exits(1).stderr;
        assert!(left.contains(&moved) && left.contains("ATTACHE_DATABASE_URL"), "{left}");
    }
    hub = home.server("hub", &["--listen", &listen]);
    assert_eq!(hub.ask("builder", "echo three")["status"], "completed");
    assert_eq!(hub.get("/api/v1/task-runs?limit=100")["task_runs"].as_array().unwrap().len(), 4);
    home.attache(&["audit", "verify"]).succeeds();
    drop(runtime);
}

#[test]
fn one_hub_serves_a_database_and_a_standby_takes_over() {
    let Some(mut server) = TestPostgresServer::start() else { return };
    let url = server.create_database("hub");
    let home = TestHome::new();
    let hub = home.hub(&["--database-url", &url]);
    hub.add_agent("kept");

    // Another folder, as on another machine. The lock of the folder isn't what refuses it.
    let other = TestHome::new();
    let refused = other.attache(&["hub", "--listen", "127.0.0.1:0", "--database-url", &url]).exits(1).stderr;
    assert!(refused.contains("another hub serves this database") && refused.contains("--standby"), "{refused}");

    let folder = home.a2a().join("hub");
    let copied = other.a2a().join("hub");
    std::fs::remove_dir_all(&copied).unwrap_or_default();
    copy(&folder, &copied);
    let standby = other.spawn("standby", &["hub", "--listen", "127.0.0.1:0", "--database-url", &url, "--standby"]);
    until("the standby to wait", || standby.stderr().contains("Standing by").then_some(()));
    assert_eq!(standby.try_wait(), None);
    let told = other.spawn("told", &["hub", "--listen", "127.0.0.1:0", "--database-url", &url, "--standby"]);
    until("another standby to wait", || told.stderr().contains("Standing by").then_some(()));
    assert!(told.terminate().success(), "a standby that is told to end has nothing to finish");

    server.crash();
    until("the standby to notice", || standby.stderr().contains("can't be reached").then_some(()));
    // Whichever of them asks first would serve.
    signal(standby.id(), "STOP");
    server.restart();
    until("the hub to go on", || (hub.call("GET", "/readyz", None).status == 200).then_some(()));
    signal(standby.id(), "CONT");
    assert_eq!(standby.try_wait(), None, "it waits for a server that is away");
    hub.process.kill();
    let address = until("the standby to serve", || {
        let said = standby.stdout() + &standby.stderr();
        let at = said.find("http://127.0.0.1:")?;
        Some(said[at..].split_whitespace().next()?.trim_end_matches(['.', ',', '/']).to_owned())
    });
    let listed = other.attache(&["agents", "list", "--json", "--hub", &address]).succeeds().stdout;
    assert!(listed.contains("kept"), "{listed}");
    drop(standby);
    // Without the keys of that hub, everything that it signed or paired would be worth nothing.
    let bare = TestHome::new().attache(&["hub", "--listen", "127.0.0.1:0", "--database-url", &url]).exits(1).stderr;
    assert!(bare.contains("whose keys aren't in") && bare.contains("--recover-owner-key"), "{bare}");
}

#[test]
fn what_is_wrong_with_a_database_is_said() {
    let Some(server) = TestPostgresServer::start() else { return };
    let home = TestHome::new();
    let refused = |url: &str| home.attache(&["hub", "--listen", "127.0.0.1:0", "--database-url", url]).exits(1).stderr;
    let missing = refused(&server.url("nowhere"));
    assert!(missing.contains("database \"nowhere\" does not exist"), "{missing}");
    let nobody = refused("postgres://127.0.0.1:1/hub");
    assert!(nobody.contains("can't connect to the database") && nobody.contains("%40"), "{nobody}");
    let nonsense = refused("mysql://127.0.0.1/hub");
    assert!(nonsense.contains("postgres://USER:PASSWORD@HOST"), "{nonsense}");
    let alone = home.attache(&["hub", "--standby"]).exits(2).stderr;
    assert!(alone.contains("--database-url"), "{alone}");
    server.psql("postgres", "create database newer");
    let url = server.url("newer");
    let hub = home.hub(&["--database-url", &url]);
    drop(hub);
    server.psql("newer", "update schema_version set version = 999");
    assert!(refused(&url).contains("newer version of attache"));
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&entry.path(), &target),
            kind if kind.is_file() => drop(std::fs::copy(entry.path(), target).unwrap()),
            _ => {}
        }
    }
}
