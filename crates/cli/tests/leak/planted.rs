//! The searcher against secrets that are leaked on purpose: one of each kind in each kind of place, and each is found.

use std::{fs, process::Command};

use rusqlite::Connection;
use serde_json::json;

use super::{
    processes::Watch,
    search::{Evidence, Kind, Secret},
};
use crate::harness::{Home, Process, Reply, until};

/// One secret of each kind, as the hub and the adapter make them.
pub fn one_of_each() -> Vec<Secret> {
    let hex = |digit: &str| format!("{digit}f0e1d2c3b4a5968").repeat(4);
    [
        (Kind::RuntimeToken, format!("rt_{}", hex("1"))),
        (Kind::PairingCode, "K7QM-2XHD".to_owned()),
        (Kind::ApiKey, format!("ak_{}", hex("2"))),
        (Kind::AdapterSecret, format!("as_{}", hex("3"))),
        (Kind::Session, format!("cs_{}", hex("4"))),
        (Kind::LoginLink, format!("cs_{}", hex("5"))),
        (Kind::PollToken, format!("pp_{}", hex("6"))),
        (Kind::PushToken, format!("pt_{}", hex("7"))),
        (Kind::PushCredential, format!("pc_{}", hex("8"))),
        (Kind::PeerKey, format!("ak_{}", hex("9"))),
        (Kind::TunnelToken, format!("tt_{}", hex("a"))),
        (Kind::LeaseKey, format!("lk_{}", hex("b"))),
    ]
    .map(|(kind, text)| Secret::new(kind, &text))
    .into()
}

/// The ways in which somebody could write a secret down.
fn spellings(secret: &Secret) -> Vec<String> {
    let Secret { kind, text } = secret;
    let mut ways = vec![text.clone(), text.to_uppercase(), text.to_lowercase()];
    if *kind == Kind::PairingCode {
        ways.extend([text.replace('-', ""), text.to_lowercase().replace('-', ""), text.replace('-', " ")]);
    } else {
        // Without its prefix, and cut off.
        ways.extend([text[3..].to_owned(), text[..40].to_owned(), text[text.len() - 30..].to_owned()]);
    }
    ways
}

#[track_caller]
fn found(evidence: &Evidence, secrets: &[Secret]) -> Vec<(Kind, String)> {
    evidence.search(secrets).into_iter().map(|finding| (finding.kind, finding.place)).collect()
}

#[test]
fn every_spelling_of_every_kind_is_found_in_text() {
    let secrets = one_of_each();
    for secret in &secrets {
        for spelling in spellings(secret) {
            for around in [("", ""), ("token=", "&x=1"), ("\"", "\""), ("<b>", "</b>"), ("12ab", "cd34")] {
                let mut evidence = Evidence::default();
                evidence.add("here", format!("{}{spelling}{}", around.0, around.1));
                assert_eq!(found(&evidence, &secrets), [(secret.kind, "here".to_owned())], "{spelling}");
            }
        }
    }
}

#[test]
fn the_innocent_is_not_accused() {
    let secrets = one_of_each();
    let mut evidence = Evidence::default();
    evidence.add("ids", "run_019a8e6bd0c57c3f9a55b7a1c2d3e4f5 rt_*** ak_… K7QM-2XH K7QN-2XHD");
    evidence.add("nothing", "");
    evidence.add("random", (0..=u8::MAX).cycle().take(100_000).collect::<Vec<_>>());
    assert_eq!(found(&evidence, &secrets), []);
}

#[test]
fn files_of_every_kind_are_read() {
    let secrets = one_of_each();
    let agent = "agt_019a8e6bd0c57c3f9a55b7a1c2d3e4f5";
    let places = [
        "logs/0001-hub.stderr".to_owned(),
        "logs/0002-runtime.stdout".to_owned(),
        format!(".a2a/logs/{agent}/execution-ledger.jsonl"),
        ".a2a/hub/blobs/ab/cdef".to_owned(),
        ".a2a/scratch/run/artifacts".to_owned(),
        "ready-0-hub".to_owned(),
    ];
    for secret in &secrets {
        for place in &places {
            let home = Home::new();
            let path = home.path().join(place);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, format!("{{\"line\":1}}\n{{\"text\":\"{}\"}}\n", secret.text)).unwrap();
            let mut evidence = Evidence::default();
            evidence.home("device", &home, |_| Vec::new());
            assert_eq!(found(&evidence, &secrets), [(secret.kind, format!("file device/{place}"))]);
        }
    }
}

#[test]
fn the_database_is_read_before_and_after_it_is_folded_together() {
    let secrets = one_of_each();
    for secret in &secrets {
        let home = Home::new();
        let hub = home.a2a().join("hub");
        fs::create_dir_all(&hub).unwrap();
        let database = Connection::open(hub.join("hub.db")).unwrap();
        database.execute_batch("pragma journal_mode=wal; create table t (id integer primary key, v)").unwrap();
        database.execute("insert into t (v) values (?1)", [format!("a {} b", secret.text)]).unwrap();
        let look = || {
            let mut evidence = Evidence::default();
            evidence.home("hub", &home, |_| Vec::new());
            found(&evidence, &secrets)
        };
        assert_eq!(look(), [(secret.kind, "file hub/.a2a/hub/hub.db-wal".to_owned())]);
        database.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(())).unwrap();
        assert_eq!(look(), [(secret.kind, "file hub/.a2a/hub/hub.db".to_owned())]);
    }
}

#[test]
fn a_token_that_is_stored_as_bytes_is_found() {
    let secrets = one_of_each();
    let raw: Vec<u8> = [0x1f, 0x0e, 0x1d, 0x2c, 0x3b, 0x4a, 0x59, 0x68].repeat(4);
    let mut evidence = Evidence::default();
    evidence.add("blob", [&[0, 1, 2], raw.as_slice(), &[3]].concat());
    assert_eq!(found(&evidence, &secrets), [(Kind::RuntimeToken, "blob".to_owned())]);
}

#[test]
fn answers_are_read_with_their_headers() {
    let secrets = one_of_each();
    for secret in &secrets {
        let page = format!("<p class=\"pin\">{}</p>", secret.text);
        let error = json!({ "error": { "code": "invalid_request", "message": format!("`{}` is wrong", secret.text) } });
        let event = json!({ "events": [{ "seq": 1, "type": "task.chunk", "data": { "text": secret.text } }] });
        let status = json!({ "profile": "agt_/rtm_", "runtime_token": secret.text });
        let doctor = json!({ "checks": [{ "name": "key", "detail": secret.text }] });
        for body in [page, error.to_string(), event.to_string(), status.to_string(), doctor.to_string()] {
            let mut evidence = Evidence::default();
            evidence.answer("answer", &reply(&[], &body), &[]);
            assert_eq!(found(&evidence, &secrets), [(secret.kind, "answer".to_owned())], "{body}");
        }
        let mut evidence = Evidence::default();
        evidence.answer("answer", &reply(&[("location", &format!("/pair?code={}", secret.text))], ""), &[]);
        assert_eq!(found(&evidence, &secrets), [(secret.kind, "answer".to_owned())]);
    }
}

fn reply(headers: &[(&str, &str)], body: &str) -> Reply {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Reply { status: 200, headers, body: body.as_bytes().to_vec() }
}

#[test]
fn arguments_of_processes_are_seen() {
    let secrets = one_of_each();
    let home = Home::new();
    let watch = Watch::start();
    let mut evidence = Evidence::default();
    for secret in &secrets {
        let _process =
            Process::spawn("leaky", Command::new("sh").args(["-c", "sleep 1000", &secret.text]), &home.logs());
        until("the process in the list", || watch.saw(&["sleep 1000", &secret.text]).then_some(()));
    }
    for line in watch.lines() {
        evidence.add("process", line);
    }
    let expected: Vec<_> = secrets.iter().map(|secret| (secret.kind, "process".to_owned())).collect();
    let mut found = found(&evidence, &secrets);
    found.dedup();
    assert_eq!(found, expected);
}

#[test]
fn a_secret_belongs_where_it_is_shown_and_nowhere_else() {
    let secrets = one_of_each();
    let (token, key) = (&secrets[0], &secrets[2]);
    let mut evidence = Evidence::default();
    evidence.add_showing("answer", format!("{} {}", token.text, key.text), &[key]);
    assert_eq!(found(&evidence, &secrets), [(Kind::RuntimeToken, "answer".to_owned())]);
    evidence.add("later answer", key.text.clone());
    assert_eq!(
        found(&evidence, &secrets),
        [(Kind::RuntimeToken, "answer".to_owned()), (Kind::ApiKey, "later answer".to_owned())]
    );

    let home = Home::new();
    fs::create_dir_all(home.a2a()).unwrap();
    fs::write(home.profile_file(), &token.text).unwrap();
    fs::write(home.a2a().join("runtime.json.bak"), &token.text).unwrap();
    let mut evidence = Evidence::default();
    let belongs = |file: &str| if file == ".a2a/runtime.json" { vec![token.text.clone()] } else { Vec::new() };
    evidence.home("device", &home, belongs);
    assert_eq!(found(&evidence, &secrets), [(Kind::RuntimeToken, "file device/.a2a/runtime.json.bak".to_owned())]);
}
