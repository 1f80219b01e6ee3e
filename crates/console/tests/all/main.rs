//! All console tests: in process over the in-memory store, and in a real browser if available.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "everything here is a test or serves one")]

mod accessibility;
mod approvals;
mod assets;
mod browser;
mod browser_admin;
mod browser_approvals;
mod browser_audit;
mod browser_conversations;
mod busy_hub;
mod channels;
mod conversations;
mod delegations;
mod deliveries;
mod docs;
mod escaping;
mod host_sessions;
mod languages;
mod login;
mod notifications;
mod pages;
mod pairing;
mod palette;
mod passkeys;
mod people;
mod rules;
mod run_log;
mod runs;
mod uploads;
mod usage;
#[allow(dead_code, reason = "the tests of the command line use it, too")]
mod webdriver;
mod worktrees;
mod world;
