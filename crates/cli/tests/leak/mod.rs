//! No secret leaks: a complete scenario runs with maximum logging, and then every secret that ever existed in it is
//! searched for everywhere.

pub mod browser;
mod misuse;
mod planted;
mod processes;
mod search;
mod world;

use search::{LeakEvidence, PlantedSecret, SecretKind};
use world::LeakWorld;

use crate::harness::TestHome;

#[test]
fn no_secret_is_found_anywhere() {
    let mut world = LeakWorld::start();
    world.pair_with_a_code();
    world.pair_from_the_device();
    world.work();
    world.make_keys();
    world.replace_a_device();
    world.add_an_agent_elsewhere();
    world.ask_elsewhere();
    world.subscribe();
    let lends = world.delegate_folders();
    world.visit_the_console();
    world.crash_the_hub();
    world.ask_elsewhere();
    world.make_mistakes();
    world.ask_for_everything();
    let (evidence, secrets, canary) = world.end();

    // Check the search itself: a fake token that was planted in the work must be found wherever work leaves traces.
    let seen = evidence.search(&[canary]);
    let seen = LeakEvidence::places(&seen);
    for place in [
        "file alpha/.a2a/logs/agt_",
        "file alpha/logs/",
        "file hub/.a2a/hub/hub.db",
        "file hub/.a2a/hub/blobs/",
        "file elsewhere/.a2a/hub/hub.db",
        "crashed file hub/.a2a/hub/hub.db-wal",
        "answer GET /api/v1/task-runs/",
        "answer GET /api/v1/agent-accounts",
        "page /runs/",
        "page /agents/",
        "command runs show",
        "process",
    ] {
        assert!(seen.iter().any(|found| found.starts_with(place)), "the canary is not in {place}: {seen:#?}");
    }
    for place in ["page /delegations/", "answer A2A SendMessage", "file lender/.AWCP/"] {
        assert!(!lends || seen.iter().any(|found| found.starts_with(place)), "the canary is not in {place}: {seen:#?}");
    }
    for place in ["command doctor", "command runtime status", "mistake ", "adapter mistake ", "answer GET /metrics"] {
        assert!(evidence.has(place), "nothing of {place} was looked at");
    }

    for kind in [
        SecretKind::RuntimeToken,
        SecretKind::PairingCode,
        SecretKind::ApiKey,
        SecretKind::AdapterSecret,
        SecretKind::Session,
        SecretKind::LoginLink,
        SecretKind::PollToken,
        SecretKind::PushToken,
        SecretKind::PushCredential,
        SecretKind::PeerKey,
    ] {
        assert!(secrets.iter().any(|secret| secret.kind == kind), "no {kind:?} was captured");
    }
    for kind in [SecretKind::TunnelToken, SecretKind::LeaseKey] {
        assert_eq!(secrets.iter().any(|secret| secret.kind == kind), lends, "{kind:?}");
    }
    let findings = evidence.search(&secrets);
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn a_hub_with_a_runtime_in_it_shows_its_login_link_and_nothing_else() {
    let home = TestHome::logging("trace");
    let up = home.up(&[]);
    let output = up.process.says("Try it in another terminal");
    let link = browser::between(&output, "token=", "\n");
    let profiles = home.profiles();
    let profile = profiles["profiles"].as_object().unwrap().values().next().unwrap();
    let mut secrets = vec![
        PlantedSecret::new(SecretKind::LoginLink, link),
        PlantedSecret::new(SecretKind::ApiKey, &up.key),
        PlantedSecret::new(SecretKind::RuntimeToken, profile["runtime_token"].as_str().unwrap()),
    ];
    up.agent_is("local", "online");
    let run = up.ask("local", "env; cat \"$HOME\"/.a2a/adapters/*_* | wc -c >&2");
    assert_eq!(run["status"], "completed", "{run}");
    let adapters = std::fs::read_dir(home.a2a().join("adapters")).unwrap().flatten();
    let files = adapters.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    secrets.extend(
        files
            .filter(|text| text.starts_with("as_"))
            .map(|text| PlantedSecret::new(SecretKind::AdapterSecret, text.trim())),
    );
    assert_eq!(secrets.len(), 4, "{secrets:?}");
    let (browser, _) = browser::ScriptlessBrowser::sign_in(&up, &format!("{}/login?token={link}", up.url));
    secrets.push(PlantedSecret::new(SecretKind::Session, &browser.session));

    let mut evidence = LeakEvidence::default();
    for path in ["/runs", "/agents", "/audit", "/settings"] {
        evidence.answer(format!("page {path}"), &browser.get(path).expect(200), &[]);
    }
    let path = format!("/api/v1/task-runs/{}/events", run["task_run_id"].as_str().unwrap());
    evidence.answer("events", &up.call("GET", &path, None).expect(200), &[]);
    assert!(up.process.terminate().success(), "{}", up.process.stderr());
    let kinds_in = |file: &str| match file {
        ".a2a/runtime.json" => Some(SecretKind::RuntimeToken),
        ".a2a/hub/admin.key" => Some(SecretKind::ApiKey),
        file if file.ends_with("-up.stdout") => Some(SecretKind::LoginLink),
        _ => None,
    };
    evidence.home("up", &home, |file| {
        let belongs = secrets.iter().filter(|secret| kinds_in(file) == Some(secret.kind));
        belongs.map(|secret| secret.text.clone()).collect()
    });
    let findings = evidence.search(&secrets);
    assert!(findings.is_empty(), "{findings:#?}");
}
