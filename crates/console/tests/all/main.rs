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
mod languages;
mod login;
mod pages;
mod pairing;
mod people;
mod rules;
mod runs;
mod usage;
mod webdriver;
mod world;
