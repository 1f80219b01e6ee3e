//! Several hubs on one PostgreSQL database: any request may land on any of them, and any of them may die.

mod cluster;
mod faults;
mod load;
mod rolling;
mod verdict;

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::json;

use self::cluster::Cluster;
use crate::harness::{TestHome, until};

#[test]
fn any_request_may_land_on_any_hub() {
    let Some(cluster) = Cluster::start(3) else { return };
    let [one, two, three] = &cluster.nodes[..] else { unreachable!() };
    one.add_agent("builder");
    let device = TestHome::new();
    device.attache(&["runtime", "pair", &two.pairing_code("builder"), "--api-base", &two.url]).succeeds();
    let runtime = device.runtime(&[]);
    let answer = three.ask("builder", "echo one");
    assert_eq!((&answer["status"], &answer["task_result"]["text"]), (&"completed".into(), &"one\n".into()), "{answer}");

    // What one node stores, the others serve.
    let run = answer["task_run_id"].as_str().unwrap();
    let home = &cluster.homes[0];
    let file = home.path().join("file");
    fs::write(&file, "content").unwrap();
    home.attache(&["artifacts", "put", run, file.to_str().unwrap(), "--hub", &one.url]).succeeds();
    let stored = &two.get(&format!("/api/v1/workspaces/{}/artifacts", answer["workspace_id"].as_str().unwrap()));
    let artifact = stored["artifacts"][0]["artifact_id"].as_str().unwrap();
    let key = home.a2a().join("hub/admin.key");
    let got = device.path().join("got");
    let options = ["--hub", &three.url, "--key-file", key.to_str().unwrap(), "-o", got.to_str().unwrap()];
    device.attache(&[&["artifacts", "get", artifact], &options[..]].concat()).succeeds();
    assert_eq!(fs::read_to_string(got).unwrap(), "content");

    // A sign-in link of one node works at another one.
    let link = one.post("/api/v1/login-links", &json!({})).expect(201).json();
    let token = link["url"].as_str().unwrap().split_once("token=").unwrap().1.to_owned();
    let headers = [("content-type", "application/x-www-form-urlencoded"), ("origin", two.url.as_str())];
    let form = format!("token={token}");
    let signed_in = crate::harness::http::send("POST", &format!("{}/login", two.url), &headers, form.as_bytes());
    assert!(signed_in.unwrap().header("set-cookie").is_some());

    // A key that is revoked at one node is refused by all of them.
    let made = two.post("/api/v1/api-keys", &json!({"name": "gone", "role": "viewer"})).expect(201).json();
    let bearer = format!("Bearer {}", made["api_key"].as_str().unwrap());
    let asked = |node: &crate::harness::TestHub| {
        let url = format!("{}/api/v1/agent-accounts", node.url);
        crate::harness::http::json("GET", &url, &[("authorization", &bearer)], None).unwrap().status
    };
    assert_eq!(cluster.nodes.iter().map(asked).collect::<Vec<_>>(), [200; 3]);
    three.call("DELETE", &format!("/api/v1/api-keys/{}", made["key"]["key_id"].as_str().unwrap()), None).expect(200);
    for node in &cluster.nodes {
        until("the key to be refused", || (asked(node) == 401).then_some(()));
    }
    home.attache(&["audit", "verify", "--hub", &two.url, "--key-file", key.to_str().unwrap()]).succeeds();
    drop(runtime);
}

/// Who doesn't belong to them is told why, and what to do.
#[test]
fn a_hub_that_does_not_belong_to_the_others_is_refused() {
    let Some(cluster) = Cluster::start(1) else { return };
    let arguments = cluster.arguments();
    let refused = |home: &TestHome, changed: &[(&str, &str)]| {
        let mut all = vec!["hub", "--listen", "127.0.0.1:0"];
        all.extend(arguments.iter().map(String::as_str));
        for (option, value) in changed {
            let at = all.iter().position(|argument| argument == option).unwrap();
            all[at + 1] = value;
        }
        home.attache(&all).exits(1).stderr
    };
    let home = TestHome::new();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let missing = refused(&home, &[("--cluster-key-file", &path("missing"))]);
    assert!(missing.contains("is missing") && missing.contains("copy their file"), "{missing}");
    home.keep_secret("other", &"0f".repeat(32));
    let other = refused(&home, &[("--cluster-key-file", &path("other"))]);
    assert!(other.contains("it belongs to another hub"), "{other}");
    fs::set_permissions(path("other"), fs::Permissions::from_mode(0o644)).unwrap();
    let open = refused(&home, &[("--cluster-key-file", &path("other"))]);
    assert!(open.contains("every user of this machine has access to") && open.contains("chmod o="), "{open}");
    let elsewhere = refused(&home, &[("--artifacts-folder", &path("artifacts"))]);
    assert!(
        elsewhere.contains("the other nodes of this hub don't keep their artifacts in")
            && elsewhere.contains("--artifacts s3://"),
        "{elsewhere}"
    );
    let mut other_place = vec!["hub", "--listen", "127.0.0.1:0"];
    other_place.extend(arguments.iter().map(String::as_str));
    let at = other_place.iter().position(|argument| *argument == "--artifacts-folder").unwrap();
    other_place.splice(at..at + 2, ["--artifacts", "s3://bucket/hub"]);
    let mut with_keys = TestHome::new();
    for (name, value) in
        [("AWS_ACCESS_KEY_ID", "AKIATESTS"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_ENDPOINT_URL", "http://127.0.0.1:1")]
    {
        with_keys.set(name, value);
    }
    let bucket = with_keys.attache(&other_place).exits(1).stderr;
    assert!(bucket.contains("don't keep their artifacts in s3://bucket/hub"), "{bucket}");
    other_place.drain(at..at + 2);
    let own = home.attache(&other_place).exits(1).stderr;
    assert!(own.contains("the other nodes of this hub don't keep their artifacts in"), "{own}");
    let alone = home.attache(&["hub", "--listen", "127.0.0.1:0", "--database-url", &cluster.url]).exits(1).stderr;
    assert!(alone.contains("another hub serves this database"), "{alone}");
    // The folder of another hub has other keys.
    let stranger = TestHome::new();
    assert!(stranger.hub(&[]).process.terminate().success());
    fs::remove_file(stranger.a2a().join("hub/hub.db")).unwrap();
    let folder = refused(&stranger, &[]);
    assert!(folder.contains("is another hub's") && folder.contains("--data DIR"), "{folder}");
    // Another address isn't refused, because changing it takes one restart after the other.
    let mut all = vec!["hub", "--listen", "127.0.0.1:0"];
    all.extend(arguments.iter().map(String::as_str));
    let at = all.iter().position(|argument| *argument == "--public-url").unwrap();
    all[at + 1] = "http://other.example.org";
    home.ready("hub", &all).0.tells("don't have the same --public-url");
    let no_server = home.attache(&["hub", "--cluster-key-file", &path("other")]).exits(2).stderr;
    assert!(no_server.contains("--cluster-key-file requires a hub on PostgreSQL"), "{no_server}");
    let plain = ["hub", "--cluster-key-file", &path("other"), "--node-url", "http://10.0.0.5:7800"];
    let plain = home.attache(&plain).exits(2).stderr;
    assert!(plain.contains("the other hubs would send keys unencrypted to http://10.0.0.5:7800"), "{plain}");
    assert_eq!(cluster.nodes[0].call("GET", "/readyz", None).status, 200);
}
