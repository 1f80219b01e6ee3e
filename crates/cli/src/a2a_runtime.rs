//! The launcher `a2a-runtime`: becomes the `attache` that lies beside it, under its own name.
//!
//! It links nothing of ours, so a build does not generate the whole program twice.

use std::{
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode},
};

fn main() -> ExitCode {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("attache")).filter(|file| file.is_file());
    let program = beside.unwrap_or_else(|| PathBuf::from("attache"));
    let error = Command::new(&program).arg0("a2a-runtime").args(std::env::args_os().skip(1)).exec();
    eprintln!(
        "error: cannot start {}: {error}\nhint: install `attache` beside `a2a-runtime`, or on PATH",
        program.display()
    );
    ExitCode::FAILURE
}
