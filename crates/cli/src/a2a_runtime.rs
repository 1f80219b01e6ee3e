//! The binary `a2a-runtime`: a second name of `attache runtime`.

use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    // The runtime starts its adapter with its own binary, whichever of the two that is.
    if args.get(1).is_none_or(|first| first != "adapter") {
        args.insert(1.min(args.len()), "runtime".into());
    }
    attache_cli::run(args)
}
