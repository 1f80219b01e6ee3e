//! Signing in by link, the permissions and lifetime of a session, and recovery of a lost owner key, with the real
//! binary.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    time::Duration,
};

use attache_protocol::env::Env;
use serde_json::{Value, json};

use crate::{
    harness::{TestHome, TestHub, http, process, until},
    leak::browser::{ScriptlessBrowser, between},
};

fn status(url: &str, key: &str) -> u16 {
    let bearer = format!("Bearer {key}");
    http::send("GET", &format!("{url}/api/v1/task-runs"), &[("authorization", &bearer)], b"").unwrap().status
}

fn link(hub: &TestHub, key: &str) -> String {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    let made = http::json("POST", &format!("{}/api/v1/login-links", hub.url), &headers, Some(&json!({}))).unwrap();
    made.expect(201).json()["url"].as_str().unwrap().to_owned()
}

/// A short-lived key opens a session, and the session creates an admin key: all of them end with the key.
#[test]
fn sessions_and_keys_end_with_a_short_lived_key() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let end = Env::system().now().plus(Duration::from_secs(5)).to_string();
    let body = json!({"name": "short", "role": "admin", "expires_at": end});
    let short = hub.post("/api/v1/api-keys", &body).expect(201).json()["api_key"].as_str().unwrap().to_owned();
    let (browser, _) = ScriptlessBrowser::sign_in(&hub, &link(&hub, &short));
    let page = browser.post("/settings/keys", &[("name", "persistent"), ("role", "admin")]).expect(200).text();
    let persistent = between(&page, "id=\"secret\">", "<").to_owned();
    assert!(persistent.starts_with("ak_"), "{persistent}");
    until("the key's time is over", || (status(&hub.url, &short) == 401).then_some(()));
    assert_eq!(status(&hub.url, &persistent), 401, "no key outlives the one that made it");
    assert_eq!(browser.get("/people").status, 303, "and no session");
    let keys = home.attache(&["keys", "--json"]).succeeds().json();
    let made = keys["api_keys"].as_array().unwrap().iter().find(|key| key["name"] == "persistent").unwrap().clone();
    assert_eq!(made["expires_at"].as_str().unwrap(), end);
}

#[test]
fn a_link_signs_in_its_user_and_sessions_can_be_ended() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    home.attache(&["users", "add", "ada", "--role", "viewer"]).succeeds();
    let made = home.attache(&["login", "--user", "ada"]).succeeds();
    assert!(made.stderr.contains("ada (viewer)"), "{}", made.stderr);
    let url = made.stdout.trim();
    let path = url.strip_prefix(&hub.url).unwrap();
    let shown = http::send("GET", &format!("{}{path}", hub.url), &[], b"").unwrap().text();
    assert!(shown.contains("signs you in as ada (viewer)"), "{shown}");
    let (browser, _) = ScriptlessBrowser::sign_in(&hub, url);
    assert_eq!(browser.get("/runs").status, 200);
    let sessions = home.attache(&["sessions", "--json"]).succeeds().json();
    let ada = sessions["sessions"].as_array().unwrap().iter().find(|one| one["role"] == "viewer").unwrap().clone();
    let table = home.attache(&["sessions"]).succeeds().stdout;
    assert!(table.contains("ada") && table.contains("open"), "{table}");
    home.attache(&["sessions", "end", ada["session_id"].as_str().unwrap()]).succeeds();
    assert_eq!(browser.get("/runs").status, 303);
    // The console creates such links and ends sessions too.
    let (owner, _) = ScriptlessBrowser::sign_in(&hub, home.attache(&["login"]).succeeds().stdout.trim());
    let user = home.attache(&["users", "show", "ada", "--json"]).succeeds().json();
    let page = owner.post(&format!("/people/{}/login-link", user["user_id"].as_str().unwrap()), &[]).expect(200).text();
    let url = between(&page, "id=\"link\">", "<").to_owned();
    let (browser, _) = ScriptlessBrowser::sign_in(&hub, &url);
    let listed = owner.get("/sessions").expect(200).text();
    assert!(listed.contains("ada"), "{listed}");
    let id = between(&listed, "action=\"/sessions/", "/end\"").to_owned();
    assert_eq!(owner.post(&format!("/sessions/{id}/end"), &[]).status, 303);
    assert_eq!(browser.get("/runs").status, 303, "the newest one was ada's");
    let wrong = hub.post("/api/v1/login-links", &json!({"name": "ada"}));
    assert_eq!(wrong.status, 400, "what is misspelt is not ignored: {}", wrong.text());
    let kinds = |kind: &str| {
        let page = hub.get("/api/v1/audit?after=0&limit=200");
        page["events"].as_array().unwrap().iter().filter(|row| row["type"] == kind).count()
    };
    assert_eq!((kinds("login_link.created"), kinds("session.opened"), kinds("session.ended")), (3, 3, 2));
}

#[test]
fn a_lost_owner_key_is_revoked_when_a_new_one_is_made() {
    let home = TestHome::new();
    let lost = {
        let hub = home.hub(&[]);
        let lost = home.owner_key();
        assert_eq!(status(&hub.url, &lost), 200);
        lost
    };
    let file = home.a2a().join("hub/admin.key");
    fs::remove_file(&file).unwrap();
    {
        // Without the option, nothing is created, and the messages are accurate.
        let (hub, ready) = home.ready("hub", &["hub", "--listen", "127.0.0.1:0"]);
        hub.tells("No valid owner key in");
        hub.tells("--recover-owner-key");
        assert!(!hub.stderr().contains("The owner key is in"));
        assert!(!file.exists());
        let doctor = home.attache(&["doctor"]).exits(1);
        assert!(doctor.stdout.contains("--recover-owner-key"), "{}", doctor.stdout);
        assert_eq!(status(ready["url"].as_str().unwrap(), &lost), 200, "whoever has it may still use it");
    }
    let refused = home.attache(&["up", "--listen", "127.0.0.1:0"]).exits(1);
    assert!(refused.stderr.contains("--recover-owner-key"), "{}", refused.stderr);
    {
        let hub = home.hub(&["--recover-owner-key"]);
        hub.process.tells("The lost key is revoked.");
        assert_ne!(home.owner_key(), lost);
        assert_eq!((status(&hub.url, &lost), status(&hub.url, &home.owner_key())), (401, 200));
    }
    fs::write(&file, "ak_nonsense\n").unwrap();
    let up = home.up(&["--recover-owner-key"]);
    assert_eq!((status(&up.url, &home.owner_key()), status(&up.url, "ak_nonsense")), (200, 401));
    let keys: Value = up.get("/api/v1/api-keys");
    let good = keys["api_keys"].as_array().unwrap().iter().filter(|key| key["revoked_at"].is_null()).count();
    assert_eq!(good, 1);
}

/// Whoever has owners with passwords of their own can do without the first one.
#[test]
fn an_owner_who_was_removed_is_not_created_again() {
    let home = TestHome::new();
    let removed = {
        let hub = home.hub(&[]);
        let boss = json!({ "name": "boss", "role": "owner", "password": "correct horse battery" });
        hub.post("/api/v1/users", &boss).expect(201);
        assert!(hub.call("DELETE", "/api/v1/users/owner", None).status < 300);
        home.owner_key()
    };
    let (hub, ready) = home.ready("hub", &["hub", "--listen", "127.0.0.1:0"]);
    hub.tells("No valid owner key in");
    assert_eq!(home.owner_key(), removed, "no other key was written");
    assert_eq!(status(ready["url"].as_str().unwrap(), &removed), 401);
}

/// Another user prepared the place where a secret will be written.
#[test]
fn secrets_are_not_written_through_links_or_into_foreign_folders() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let (stolen, planted) = (home.path().join("stolen"), home.path().join("ci.key"));
    symlink(&stolen, &planted).unwrap();
    let refused = home.attache(&["keys", "add", "ci", "--to-file", planted.to_str().unwrap()]);
    assert_ne!(refused.status, Some(0), "{}", refused.stderr);
    assert!(!stolen.exists() && fs::symlink_metadata(&planted).unwrap().is_symlink());
    let foreign = home.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    if chown(&foreign, Some(12_345), None).is_ok() {
        let file = foreign.join("ci.key");
        let refused = home.attache(&["keys", "add", "ci", "--to-file", file.to_str().unwrap()]).exits(1);
        assert!(refused.stderr.contains("belongs to another user"), "{}", refused.stderr);
        assert_eq!(fs::read_dir(&foreign).unwrap().count(), 0);
    }
    let keys = hub.get("/api/v1/api-keys");
    let ci = keys["api_keys"].as_array().unwrap().iter().filter(|key| key["name"] == "ci").cloned();
    assert!(ci.clone().all(|key| key["revoked_at"].is_string()), "a key that nobody got is not left behind");
}

/// The ready file is as private as the secrets that it names.
#[test]
fn a_ready_file_is_not_written_through_links_or_into_foreign_folders() {
    let home = TestHome::new();
    let (stolen, planted) = (home.path().join("stolen"), home.path().join("ready"));
    fs::write(&stolen, "precious").unwrap();
    symlink(&stolen, &planted).unwrap();
    let mut command = home.command(&["hub", "--listen", "127.0.0.1:0", "--ready-file", planted.to_str().unwrap()]);
    let hub = process::TestProcess::spawn("hub", &mut command, &home.logs());
    until("the hub", || fs::symlink_metadata(&planted).is_ok_and(|found| found.is_file()).then_some(()));
    assert_eq!(fs::read_to_string(&stolen).unwrap(), "precious");
    assert_eq!(fs::metadata(&planted).unwrap().permissions().mode() & 0o777, 0o600);
    let ready: Value = serde_json::from_slice(&fs::read(&planted).unwrap()).unwrap();
    assert!(ready["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{ready}");
    hub.terminate();
    // A file of another user is replaced, not written to; a folder of another user isn't touched.
    if chown(&planted, Some(12_345), None).is_ok() {
        let before = fs::read(&planted).unwrap();
        let kept = home.path().join("kept");
        fs::hard_link(&planted, &kept).unwrap();
        let hub = process::TestProcess::spawn("hub", &mut command, &home.logs());
        until("the hub", || (fs::metadata(&planted).ok()?.uid() != 12_345).then_some(()));
        assert_eq!(fs::read(&kept).unwrap(), before);
        hub.terminate();
        let foreign = home.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        chown(&foreign, Some(12_345), None).unwrap();
        let file = foreign.join("ready");
        let refused =
            home.attache(&["hub", "--listen", "127.0.0.1:0", "--ready-file", file.to_str().unwrap()]).exits(1);
        assert!(refused.stderr.contains("belongs to another user"), "{}", refused.stderr);
        assert_eq!(fs::read_dir(&foreign).unwrap().count(), 0);
    }
}
