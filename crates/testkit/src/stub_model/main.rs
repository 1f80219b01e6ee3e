//! The stub model as a program.

use std::{io::Write as _, process::ExitCode};

use tokio::runtime::Runtime;

use super::StubModel;

/// `stub-model [FILE]`: prints its address and serves until it is stopped. With FILE, the address is written there, too, once
/// it serves.
pub fn main() -> ExitCode {
    let file = std::env::args_os().nth(1);
    if file.as_ref().is_some_and(|file| file.as_encoded_bytes().starts_with(b"-")) {
        let _ =
            writeln!(std::io::stderr(), "Usage: stub-model [FILE]: serves until it is stopped; FILE gets its address");
        return ExitCode::from(2);
    }
    let runtime = Runtime::new().expect("the system lets a program have threads");
    let model = runtime.block_on(StubModel::start());
    let url = model.url();
    if let Some(file) = file
        && let Err(error) = std::fs::write(&file, &url)
    {
        let _ = writeln!(std::io::stderr(), "The address cannot be written to {}: {error}", file.display());
        return ExitCode::FAILURE;
    }
    let _ = writeln!(std::io::stdout(), "{url}");
    runtime.block_on(std::future::pending())
}
