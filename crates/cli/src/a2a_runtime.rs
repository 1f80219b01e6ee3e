//! The launcher `a2a-runtime`: executes the `attache` binary next to it under its own name.
//!
//! It links none of our crates, so a build doesn't compile the complete program twice.

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
        "error: can't start {}: {error}\nhint: install `attache` next to `a2a-runtime`, or in PATH",
        program.display()
    );
    ExitCode::FAILURE
}
