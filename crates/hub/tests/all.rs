//! Tests of the hub, running in process on its own port, over HTTP.

#![allow(clippy::disallowed_methods, reason = "tests build and compare JSON as values")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]
#![allow(unreachable_pub, missing_debug_implementations, reason = "nobody uses a test from outside")]

mod access;
mod artifacts;
mod bad_input;
mod call;
mod channel;
mod clocks;
mod counting;
mod declared;
mod delegations;
mod deliveries;
mod document;
mod drain;
mod escalation;
mod feeds;
mod fencing;
mod golden;
mod grants;
mod handover;
mod hops;
mod host_sessions;
mod in_person;
mod input;
mod isolation;
mod life;
mod limits;
mod matrix;
mod metrics;
mod nodes;
mod notifications;
mod outside;
mod outside_walls;
mod pairing;
mod passkeys;
mod peers;
mod people;
mod permission_modes;
mod permissions;
mod port;
mod private_agents;
mod queued_rights;
mod quota;
mod rates;
mod recovery;
mod register;
mod removal;
mod run_token;
mod run_views;
mod sessions;
mod strangers;
mod stream_rights;
mod streams;
mod tls;
mod token_rotation;
mod tunnel;
mod usage_limits;
mod work;
mod worktrees;
mod world;

#[test]
fn every_file_of_tests_is_part_of_this_binary() {
    let all = include_str!("all.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(module) = name.strip_suffix(".rs").filter(|module| *module != "all") else { continue };
        assert!(all.contains(&format!("mod {module};")), "{name} is not listed in all.rs");
    }
}
