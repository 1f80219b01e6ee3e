//! What `dist/deploy` hands out, used for real: the proxy in front of a hub and its standby, and the compose file.

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use attache_store::conformance::postgres_server::TestPostgresServer;

use crate::harness::{TestHome, TestProcess, has, until};

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/deploy").join(file)
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A certificate for 127.0.0.1 and its key in one file, as the proxy wants them, and the pin of the key.
fn certificate(home: &TestHome) -> (PathBuf, String) {
    let ready = home.path().join("ready.json");
    let hub = ["hub", "--listen", "127.0.0.1:0", "--tls-self-signed", "--ready-file", ready.to_str().unwrap()];
    let hub = home.spawn("certificate", &hub);
    until("a certificate", || ready.exists().then_some(()));
    hub.terminate();
    let made = home.a2a().join("hub/tls");
    let both =
        [made.join("certificate.pem"), made.join("key.pem")].map(|file| fs::read_to_string(file).unwrap()).concat();
    let file = home.path().join("hub.pem");
    fs::write(&file, both).unwrap();
    (file, fs::read_to_string(home.a2a().join("hub/tls.pin")).unwrap().trim().to_owned())
}

/// The configuration that is handed out, with the addresses of a test in place of those it is written for.
pub fn configuration(replaced: &[(&str, &str)]) -> String {
    let text = fs::read_to_string(deploy("haproxy.cfg")).unwrap();
    replaced.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from} isn't in the configuration");
        text.replace(from, to)
    })
}

#[test]
fn a_proxy_finds_the_hub_that_serves() {
    if !has("haproxy", "haproxy") {
        return;
    }
    let Some(server) = TestPostgresServer::start() else { return };
    let database = server.create_database("hub");
    let throwaway = TestHome::new();
    let (pem, pin) = certificate(&throwaway);
    let (outside, plain, one, two) = (free_address(), free_address(), free_address(), free_address());
    let public = format!("https://{outside}");

    let home = TestHome::new();
    let proxy = home.path().join("haproxy.cfg");
    let changed = configuration(&[
        ("maxconn 8000", "maxconn 100"),
        ("hub-1:7800", &one),
        ("hub-2:7800", &two),
        ("bind :80\n", &format!("bind {plain}\n")),
        ("bind :443 ", &format!("bind {outside} ")),
        ("/etc/haproxy/hub.pem", pem.to_str().unwrap()),
        ("Host hub.example.org", &format!("Host {outside}")),
    ]);
    fs::write(&proxy, changed).unwrap();
    let mut haproxy = home.program("haproxy");
    let proxy = TestProcess::spawn("haproxy", haproxy.arg("-db").arg("-f").arg(&proxy), &home.logs());

    // The same folder, as with a shared volume.
    let hub = |name, listen| {
        let database = ["--standby", "--database-url", &database];
        let outside = ["--public-url", &public, "--trusted-proxy", "127.0.0.1"];
        home.spawn(name, &[&["hub", "--listen", listen], &database[..], &outside[..]].concat())
    };
    let first = hub("first", &one);
    until("the first hub", || home.a2a().join("hub/admin.key").exists().then_some(()));
    let second = hub("second", &two);
    until("a standby", || second.stderr().contains("Standing by").then_some(()));

    let key = home.a2a().join("hub/admin.key");
    let through = |args: &[&str]| {
        let given = ["--hub", &public, "--pin", &pin, "--key-file", key.to_str().unwrap()];
        home.attache(&[args, &given[..]].concat())
    };
    until("the proxy to find the hub", || (through(&["agents", "list"]).status == Some(0)).then_some(()));
    through(&["agents", "add", "builder"]).succeeds();
    let code = through(&["agents", "code", "builder", "--json"]).succeeds().json();
    let code = code["pairing_code"].as_str().unwrap();
    home.attache(&["runtime", "pair", code, "--api-base", &public, "--pin", &pin]).succeeds();
    let runtime = home.runtime(&[]);
    let answer = through(&["ask", "builder", "echo one"]).succeeds().stdout;
    assert_eq!(answer, "one\n");

    first.kill();
    until("the standby to serve", || (through(&["agents", "list"]).status == Some(0)).then_some(()));
    assert_eq!(through(&["ask", "builder", "echo two"]).succeeds().stdout, "two\n");
    let runs = through(&["runs", "list", "--json"]).succeeds().stdout;
    assert!(runs.contains("echo one") && runs.contains("echo two"), "{runs}");
    drop((runtime, proxy, second));
}

#[test]
fn the_compose_file_is_well_formed() {
    let Some(python) = std::env::var_os("ATTACHE_PYTHON") else {
        return eprintln!("skipped: ATTACHE_PYTHON isn't set (./test sets it)");
    };
    let read = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
    let file = fs::File::open(deploy("compose.yaml")).unwrap();
    let output = Command::new(python).args(["-c", read]).stdin(file).output().unwrap();
    let file: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));

    let names = |member: &str| -> BTreeSet<String> { file[member].as_object().unwrap().keys().cloned().collect() };
    let services = names("services");
    assert_eq!(services, ["database", "hub-1", "hub-2", "proxy"].map(str::to_owned).into());
    for service in &services {
        let service = &file["services"][service];
        let volumes = service["volumes"].as_array().unwrap().iter().map(|volume| volume.as_str().unwrap());
        for volume in volumes.filter_map(|volume| Some(volume.split_once(':')?.0)) {
            let known = volume.starts_with("./") || names("volumes").contains(volume);
            assert!(known, "{volume} is named nowhere");
        }
    }
    // The options are those of the program: what it refuses is only the one that is wrong here.
    let options = file["services"]["hub-1"]["command"].as_array().unwrap().iter();
    let options: Vec<&str> = options.map(|option| option.as_str().unwrap()).collect();
    let refused = TestHome::new().attache(&[&options[..], &["--max-connections=1"]].concat()).exits(2).stderr;
    assert!(refused.contains("'--max-connections <N>'"), "{refused}");
}
