//! `attache context`: saved hubs and keys.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::harness::TestHome;

#[test]
fn hubs_that_are_saved_at_the_same_time_are_all_kept() {
    let client = TestHome::new();
    let key = client.keep_secret("key", "ak_none");
    let names: Vec<String> = (0..8).map(|number| format!("hub-{number}")).collect();
    std::thread::scope(|scope| {
        let (client, key) = (&client, &key);
        for name in &names {
            let add = ["context", "add", name, "--hub", "http://127.0.0.1:9", "--key-file", key];
            scope.spawn(move || client.attache(&add).succeeds());
        }
    });
    let list = client.attache(&["context", "--json"]).succeeds().json();
    let saved: Vec<&str> =
        list["contexts"].as_array().unwrap().iter().map(|saved| saved["name"].as_str().unwrap()).collect();
    assert_eq!(saved, names);
}

#[test]
fn hubs_and_their_keys_are_saved() {
    let (server, other, client) = (TestHome::new(), TestHome::new(), TestHome::new());
    let (hub, second) = (server.hub(&[]), other.hub(&[]));
    hub.add_agent("builder");
    second.add_agent("crawler");
    let key = client.keep_secret("first.key", &hub.key);
    client.attache(&["agents"]).exits(5);
    client.attache(&["context", "add", "work", "--hub", &hub.url, "--key-file", &key]).succeeds();
    fs::remove_file(&key).unwrap();
    let key = client.keep_secret("second.key", &second.key);
    let added = client.attache(&["context", "add", "lab", "--hub", &second.url, "--key-file", &key]).succeeds();
    assert!(added.stderr.contains("The current hub is still work"), "{}", added.stderr);
    let agent = |args: &[&str]| client.attache(args).succeeds().json()["agent_accounts"][0]["name"].clone();
    assert_eq!(agent(&["agents", "--json"]), "builder", "nobody chose the other one");
    client.attache(&["context", "add", "lab", "--hub", &second.url, "--key-file", &key, "--use"]).succeeds();
    assert_eq!(agent(&["agents", "--json"]), "crawler");
    assert_eq!(agent(&["agents", "--json", "--context", "work"]), "builder");
    client.attache(&["context", "use", "work"]).succeeds();
    assert_eq!(agent(&["agents", "--json"]), "builder");
    // A key is sent only to its own hub.
    client.attache(&["agents", "--hub", &second.url]).exits(4);
    let list = client.attache(&["context", "--json"]).succeeds().json();
    assert_eq!(list["current"], "work");
    assert!(!list.to_string().contains("ak_"), "{list}");
    let file = client.a2a().join("contexts/work.key");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    client.attache(&["context", "remove", "work"]).succeeds();
    assert!(!file.exists());
    client.attache(&["agents"]).exits(5);
    client.attache(&["context", "use", "nowhere"]).exits(3);
    let no_key = client.attache(&["context", "add", "h1", "--hub", &hub.url]).exits(2).stderr;
    assert!(no_key.contains("missing hub key") && no_key.contains("--key-file"), "{no_key}");
    client.attache(&["context", "add", "../x", "--hub", &hub.url, "--key-file", &key]).exits(2);
}
