//! People, their keys and tokens on the command line, and signing in with a password.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::harness::{TestHome, http};

const PASSWORD: &str = "correct horse battery";

/// Runs a command that reads a password from standard input.
fn typed(command: &mut Command, lines: &str) -> (bool, String, String) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("attache starts");
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn sign_in(url: &str, name: &str, password: &str) -> http::TestReply {
    let body = format!("name={name}&password={}", password.replace(' ', "+"));
    let headers = [("content-type", "application/x-www-form-urlencoded"), ("origin", url)];
    http::send("POST", &format!("{url}/login"), &headers, body.as_bytes()).unwrap()
}

#[test]
fn people_sign_in_with_a_password_until_it_changes() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let mut add = home.command(&["users", "add", "ada", "--role", "admin", "--password", "--json"]);
    let (ok, shown, said) = typed(&mut add, &format!("{PASSWORD}\n"));
    assert!(ok, "{said}");
    assert!(!shown.contains(PASSWORD) && !said.contains(PASSWORD));
    let ada: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&ada["name"], &ada["role"], &ada["has_password"]), (&json!("ada"), &json!("admin"), &json!(true)));

    let entered = sign_in(&hub.url, "ada", PASSWORD);
    assert_eq!(entered.status, 303);
    assert_eq!(entered.header("location"), Some("/runs"));
    let cookie = entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let look = || http::send("GET", &format!("{}/agents", hub.url), &[("cookie", &cookie)], b"").unwrap().status;
    assert_eq!(look(), 200);
    let wrong = sign_in(&hub.url, "ada", "wrong");
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    let foreign = [("content-type", "application/x-www-form-urlencoded"), ("sec-fetch-site", "cross-site")];
    let body = format!("name=ada&password={}", PASSWORD.replace(' ', "+"));
    let foreign = http::send("POST", &format!("{}/login", hub.url), &foreign, body.as_bytes()).unwrap();
    assert_eq!((foreign.status, foreign.header("set-cookie")), (403, None), "another site signs nobody in");

    let (ok, _, said) = typed(&mut home.command(&["users", "set", "ada", "--password"]), "another long password\n");
    assert!(ok, "{said}");
    assert_eq!(look(), 303, "a new password ends her sessions");
    assert_eq!(sign_in(&hub.url, "ada", PASSWORD).status, 401);
    let (ok, _, said) = typed(&mut home.command(&["users", "set", "ada", "--password"]), "short\n");
    assert!(!ok && said.contains("12 characters"), "{said}");
}

#[test]
fn wrong_passwords_from_one_address_lock_nobody_out_from_another() {
    let home = TestHome::new();
    let hub = home.hub(&["--trusted-proxy", "127.0.0.1"]);
    let (ok, _, said) = typed(&mut home.command(&["users", "add", "ada", "--password"]), &format!("{PASSWORD}\n"));
    assert!(ok, "{said}");
    let from = |address: &str, password: &str| {
        let body = format!("name=ada&password={}", password.replace(' ', "+"));
        let headers = [("content-type", "application/x-www-form-urlencoded"), ("x-forwarded-for", address)];
        http::send("POST", &format!("{}/login", hub.url), &headers, body.as_bytes()).unwrap().status
    };
    for _ in 0..10 {
        assert_eq!(from("192.0.2.1", "wrong"), 401);
    }
    assert_eq!(from("192.0.2.1", PASSWORD), 429, "the address that guesses has to wait");
    assert_eq!(from("192.0.2.2", PASSWORD), 303, "the person does not");
    let sessions = home.attache(&["sessions", "--json"]).succeeds().json();
    assert_eq!(sessions["sessions"][0]["address"], "192.0.2.2");
}

#[test]
fn people_their_keys_and_their_tokens_are_managed() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    home.attache(&["users", "add", "ada"]).succeeds();
    let people = home.attache(&["users"]).succeeds().stdout;
    let names: Vec<&str> = people.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["ada", "owner"], "{people}");
    let file = home.path().join("ada.key");
    let file = file.to_str().unwrap();
    let add = ["keys", "add", "reader", "--user", "ada", "--scope", "read", "--expires", "2099-01-01T00:00:00Z"];
    home.attache(&[&add[..], &["--to-file", file]].concat()).succeeds();
    let keys = home.attache(&["keys", "--json"]).succeeds().json();
    let key = keys["api_keys"].as_array().unwrap().iter().find(|key| key["name"] == "reader").unwrap();
    assert_eq!((&key["scopes"], &key["role"]), (&json!(["read"]), &json!("operator")));
    home.attache(&["agents", "--key-file", file]).succeeds();
    let denied = home.attache(&["ask", "builder", "true", "--key-file", file]).exits(4);
    assert!(denied.stderr.contains("`call`"), "{}", denied.stderr);

    let token = home.attache(&["tokens", "--ttl", "60", "--key-file", file]).succeeds().stdout;
    assert_eq!(token.trim().split('.').count(), 3, "not a token");
    let bearer = format!("Bearer {}", token.trim());
    let ask = || http::send("GET", &format!("{}/api/v1/agent-accounts", hub.url), &[("authorization", &bearer)], b"");
    assert_eq!(ask().unwrap().status, 200);
    let removed = home.attache(&["users", "remove", "ada", "--json"]).succeeds().json();
    assert_eq!(removed, json!({"removed": "ada"}));
    assert_eq!(ask().unwrap().status, 401);
    home.attache(&["agents", "--key-file", file]).exits(4);
    let last = home.attache(&["users", "remove", "owner"]).exits(1);
    assert!(last.stderr.contains("attache users set"), "{}", last.stderr);
}
