//! The command line from outside: real binaries in separate processes, each with its own home folder.
//!
//! A new suite is a file in this folder and a `mod` line here; `tidy` fails if a file is forgotten.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_methods, reason = "tests build and compare JSON as values")]
#![allow(unreachable_pub, missing_debug_implementations, reason = "nobody uses a test from outside")]

mod harness;

/// A browser for tests, shared with those of the console.
#[path = "../../console/tests/all/webdriver.rs"]
#[allow(dead_code, clippy::print_stdout, reason = "not every suite uses every part; it says why a test is skipped")]
mod webdriver;

/// The keys of a browser's push subscription, shared with the tests of the hub.
#[path = "../../hub/tests/notifications/browser.rs"]
mod push_browser;

mod a2a;
mod access;
mod adapter;
mod agents;
mod approvals;
mod ask;
mod basics;
mod bucket;
mod cable;
mod calls;
mod channels;
mod checklist;
mod conformance;
mod contexts;
mod damage;
mod day;
mod delegated_folders;
mod delegations;
mod deliveries;
mod deployment;
mod device;
mod disk;
mod documents;
mod hosts;
mod interop;
mod language;
mod leak;
mod lists;
mod long_output;
mod mcp;
mod names;
mod nested_workspaces;
mod notifications;
mod packages;
mod pairing;
mod people;
mod postgres;
mod presets;
mod removal;
mod repositories;
mod resources;
mod sandbox;
mod service;
mod sessions;
mod several_hubs;
mod storm;
mod terminal;
mod tidy;
mod tls;
mod up;
mod update;
mod walkthrough;
mod worktrees;
