//! The command line: commands, configuration and output. Everything else is in the library crates.
//!
//! Five rooms, each using only those below it: `commands`, `server`, `env`, `ui`, `text`.
//!
//! `run` reads the environment once ([`Config`]), parses the arguments ([`Cli`]), and hands both to the command's own
//! file in `commands/`.

mod commands;
mod env;
mod server;
mod text;
mod ui;

use std::{ffi::OsString, process::ExitCode};

use attache_protocol::error::exit;
use clap::FromArgMatches as _;

use commands::Cli;
use env::{
    config::{self, Config},
    context::CommandContext,
    executor, log,
};
use text::Language;
use ui::{
    failure::CommandFailure,
    output::{OutputFormat, TerminalOutput},
    parse_error,
};

/// Memory of a hub call is allocated on one thread and freed on another, which the C library's allocator handles
/// slowly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs one command.
///
/// Deliberately not generic: the code of all commands is compiled once here, not again in each binary.
pub fn run(args: &[OsString]) -> ExitCode {
    if let Some(ended) = commands::inside_walls(args) {
        return ended;
    }
    attache_os::process_tree::keep_inherited_descriptors();
    text::speak(Language::of(args, config::text));
    let mut command = commands::command();
    let parsed = command.try_get_matches_from_mut(args).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed.map_err(|error| error.format(&mut command)) {
        Ok(cli) => cli,
        // Arguments after `--` belong to another program.
        Err(error) if error.use_stderr() && args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json") => {
            let output = TerminalOutput::new(OutputFormat::Json, Config::from_environment().color);
            let failure = CommandFailure::from(error);
            output.failure(&failure);
            return failure.exit_code();
        }
        Err(error) => {
            let code = if error.use_stderr() { exit::USAGE } else { exit::OK };
            // Ignore a closed output.
            let _ = parse_error::print(&error, Config::from_environment().color);
            return ExitCode::from(code);
        }
    };
    if let Some(language) = cli.lang.filter(|_| !cli.json) {
        text::speak(language);
    }
    if cli.command.is_read_by_programs() {
        text::speak(Language::En);
    }
    let config = Config::from_environment();
    let format = if cli.json { OutputFormat::Json } else { OutputFormat::Text };
    let output = TerminalOutput::new(format, config.color);
    log::start(&config, &output, cli.command.process_kind());
    let context = CommandContext::new(config, output);
    let runtime = match executor::start(cli.command.process_kind()) {
        Ok(runtime) => runtime,
        Err(error) => {
            output.failure(&CommandFailure::failed(text::errors::cant_start(error)));
            return ExitCode::from(exit::FAILED);
        }
    };
    let done = runtime.block_on(cli.command.run(context));
    // A thread that still waits for input must not delay the exit.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            failure.exit_code()
        }
    }
}
