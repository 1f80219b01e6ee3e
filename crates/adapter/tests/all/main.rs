//! The adapter against real processes and real HTTP on loopback.

#![allow(clippy::disallowed_methods, reason = "`json!` builds value trees, which tests may compare")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is a failure")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

mod acp;
mod artifacts;
mod claude;
mod codex;
mod command;
mod conformance;
mod document;
mod drivers;
mod exec;
mod guard;
mod hosts;
mod preset;
mod python;
mod question;
mod real;
mod real_acp;
mod real_claude;
mod real_codex;
mod shell;
mod stop;
mod stream;
mod world;

#[test]
fn every_file_here_is_part_of_this_binary() {
    let own = include_str!("main.rs");
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        assert!(module == "main" || own.contains(&format!("\nmod {module};")), "{name} is not run");
    }
}
