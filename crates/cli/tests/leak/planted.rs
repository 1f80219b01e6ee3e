//! Tests the searcher with planted leaks: one secret of each kind in each kind of place, all of which must be
//! found.

use std::{fs, process::Command};

use rusqlite::Connection;
use serde_json::json;

use super::{
    processes::ProcessListWatch,
    search::{LeakEvidence, PlantedSecret, SecretKind},
};
use crate::harness::{TestHome, TestProcess, TestReply, until};

/// One secret of each kind, as the hub and the adapter generate them.
pub fn one_of_each() -> Vec<PlantedSecret> {
    let hex = |digit: &str| format!("{digit}f0e1d2c3b4a5968").repeat(4);
    [
        (SecretKind::RuntimeToken, format!("rt_{}", hex("1"))),
        (SecretKind::PairingCode, "K7QM-2XHD".to_owned()),
        (SecretKind::ApiKey, format!("ak_{}", hex("2"))),
        (SecretKind::AdapterSecret, format!("as_{}", hex("3"))),
        (SecretKind::Session, format!("cs_{}", hex("4"))),
        (SecretKind::LoginLink, format!("cs_{}", hex("5"))),
        (SecretKind::PollToken, format!("pp_{}", hex("6"))),
        (SecretKind::PushToken, format!("pt_{}", hex("7"))),
        (SecretKind::PushCredential, format!("pc_{}", hex("8"))),
        (SecretKind::PeerKey, format!("ak_{}", hex("9"))),
        (SecretKind::TunnelToken, format!("tt_{}", hex("a"))),
        (SecretKind::LeaseKey, format!("lk_{}", hex("b"))),
    ]
    .map(|(kind, text)| PlantedSecret::new(kind, &text))
    .into()
}

/// The ways in which a secret could be written.
fn spellings(secret: &PlantedSecret) -> Vec<String> {
    let PlantedSecret { kind, text } = secret;
    let mut ways = vec![text.clone(), text.to_uppercase(), text.to_lowercase()];
    if *kind == SecretKind::PairingCode {
        ways.extend([text.replace('-', ""), text.to_lowercase().replace('-', ""), text.replace('-', " ")]);
    } else {
        // Without its prefix, and truncated.
        ways.extend([text[3..].to_owned(), text[..40].to_owned(), text[text.len() - 30..].to_owned()]);
    }
    ways
}

#[track_caller]
fn found(evidence: &LeakEvidence, secrets: &[PlantedSecret]) -> Vec<(SecretKind, String)> {
    evidence.search(secrets).into_iter().map(|finding| (finding.kind, finding.place)).collect()
}

#[test]
fn every_spelling_of_every_kind_is_found_in_text() {
    let secrets = one_of_each();
    for secret in &secrets {
        for spelling in spellings(secret) {
            for around in [("", ""), ("token=", "&x=1"), ("\"", "\""), ("<b>", "</b>"), ("12ab", "cd34")] {
                let mut evidence = LeakEvidence::default();
                evidence.add("here", format!("{}{spelling}{}", around.0, around.1));
                assert_eq!(found(&evidence, &secrets), [(secret.kind, "here".to_owned())], "{spelling}");
            }
        }
    }
}

#[test]
fn harmless_text_is_not_reported() {
    let secrets = one_of_each();
    let mut evidence = LeakEvidence::default();
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
            let home = TestHome::new();
            let path = home.path().join(place);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, format!("{{\"line\":1}}\n{{\"text\":\"{}\"}}\n", secret.text)).unwrap();
            let mut evidence = LeakEvidence::default();
            evidence.home("device", &home, |_| Vec::new());
            assert_eq!(found(&evidence, &secrets), [(secret.kind, format!("file device/{place}"))]);
        }
    }
}

#[test]
fn the_database_is_read_before_and_after_a_checkpoint() {
    let secrets = one_of_each();
    for secret in &secrets {
        let home = TestHome::new();
        let hub = home.a2a().join("hub");
        fs::create_dir_all(&hub).unwrap();
        let database = Connection::open(hub.join("hub.db")).unwrap();
        database.execute_batch("pragma journal_mode=wal; create table t (id integer primary key, v)").unwrap();
        database.execute("insert into t (v) values (?1)", [format!("a {} b", secret.text)]).unwrap();
        let look = || {
            let mut evidence = LeakEvidence::default();
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
    let mut evidence = LeakEvidence::default();
    evidence.add("blob", [&[0, 1, 2], raw.as_slice(), &[3]].concat());
    assert_eq!(found(&evidence, &secrets), [(SecretKind::RuntimeToken, "blob".to_owned())]);
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
            let mut evidence = LeakEvidence::default();
            evidence.answer("answer", &reply(&[], &body), &[]);
            assert_eq!(found(&evidence, &secrets), [(secret.kind, "answer".to_owned())], "{body}");
        }
        let mut evidence = LeakEvidence::default();
        evidence.answer("answer", &reply(&[("location", &format!("/pair?code={}", secret.text))], ""), &[]);
        assert_eq!(found(&evidence, &secrets), [(secret.kind, "answer".to_owned())]);
    }
}

fn reply(headers: &[(&str, &str)], body: &str) -> TestReply {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    TestReply { status: 200, headers, body: body.as_bytes().to_vec() }
}

#[test]
fn arguments_of_processes_are_seen() {
    let secrets = one_of_each();
    let home = TestHome::new();
    let watch = ProcessListWatch::start();
    let mut evidence = LeakEvidence::default();
    for secret in &secrets {
        let _process =
            TestProcess::spawn("leaky", Command::new("sh").args(["-c", "sleep 1000", &secret.text]), &home.logs());
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
fn a_secret_is_allowed_only_where_it_is_shown() {
    let secrets = one_of_each();
    let (token, key) = (&secrets[0], &secrets[2]);
    let mut evidence = LeakEvidence::default();
    evidence.add_showing("answer", format!("{} {}", token.text, key.text), &[key]);
    assert_eq!(found(&evidence, &secrets), [(SecretKind::RuntimeToken, "answer".to_owned())]);
    evidence.add("later answer", key.text.clone());
    assert_eq!(
        found(&evidence, &secrets),
        [(SecretKind::RuntimeToken, "answer".to_owned()), (SecretKind::ApiKey, "later answer".to_owned())]
    );

    let home = TestHome::new();
    fs::create_dir_all(home.a2a()).unwrap();
    fs::write(home.profile_file(), &token.text).unwrap();
    fs::write(home.a2a().join("runtime.json.bak"), &token.text).unwrap();
    let mut evidence = LeakEvidence::default();
    let belongs = |file: &str| if file == ".a2a/runtime.json" { vec![token.text.clone()] } else { Vec::new() };
    evidence.home("device", &home, belongs);
    assert_eq!(
        found(&evidence, &secrets),
        [(SecretKind::RuntimeToken, "file device/.a2a/runtime.json.bak".to_owned())]
    );
}
