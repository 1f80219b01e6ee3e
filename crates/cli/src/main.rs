//! The binary `attache`. When called as `a2a-runtime` (a link, or the launcher of that name), it runs `attache
//! runtime`.

use std::{ffi::OsString, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let called_as_runtime =
        args.first().is_some_and(|name| Path::new(name).file_name() == Some("a2a-runtime".as_ref()));
    // Under that name too, the runtime starts its adapter as `adapter …`.
    if called_as_runtime && args.get(1).is_none_or(|first| first != "adapter") {
        args.insert(1, "runtime".into());
    }
    attache_cli::run(&args)
}
