//! The binary `attache`.

use std::process::ExitCode;

fn main() -> ExitCode {
    attache_cli::run(std::env::args_os())
}
