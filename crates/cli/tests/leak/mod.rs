//! No secret leaks: a whole world is lived through with everything that logs at its loudest, and then every secret that
//! ever existed in it is searched for everywhere.

mod browser;
mod planted;
mod processes;
mod search;
mod world;
mod wrong;

use search::{Evidence, Kind};
use world::World;

#[test]
fn no_secret_is_found_anywhere() {
    let mut world = World::start();
    world.pair_with_a_code();
    world.pair_from_the_device();
    world.work();
    world.make_keys();
    world.replace_a_device();
    world.visit_the_console();
    world.crash_the_hub();
    world.make_mistakes();
    world.ask_for_everything();
    let (evidence, secrets, canary) = world.end();

    // The search is worth nothing unless it sees what is there: a fake token that was put into the work on purpose is
    // found wherever work leaves traces.
    let seen = evidence.search(&[canary]);
    let seen = Evidence::places(&seen);
    for place in [
        "file alpha/.a2a/logs/agt_",
        "file alpha/logs/",
        "file hub/.a2a/hub/hub.db",
        "file hub/.a2a/hub/blobs/",
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
    for place in ["command doctor", "command runtime status", "mistake ", "adapter mistake ", "answer GET /metrics"] {
        assert!(evidence.has(place), "nothing of {place} was looked at");
    }

    for kind in [
        Kind::RuntimeToken,
        Kind::PairingCode,
        Kind::ApiKey,
        Kind::AdapterSecret,
        Kind::Session,
        Kind::LoginLink,
        Kind::PollToken,
    ] {
        assert!(secrets.iter().any(|secret| secret.kind == kind), "no {kind:?} was captured");
    }
    let findings = evidence.search(&secrets);
    assert!(findings.is_empty(), "{findings:#?}");
}
