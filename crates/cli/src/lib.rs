//! The command line: commands, configuration and output. Everything else is in the library crates.
//!
//! `run` reads the environment once ([`Config`]), parses the arguments ([`Cli`]), and hands both to the command's own
//! file in `commands/`.

mod adapter_probe;
mod amount;
mod collaborator_setup;
mod commands;
mod config;
mod context;
mod contexts;
mod daemon_access;
mod device_silence;
mod failure;
mod follow;
mod hint;
mod home;
mod hosts;
mod hub_agents;
mod ids;
mod keep;
mod local_server;
mod log;
mod names;
mod output;
mod port_conflict;
mod process;
mod prompt;
mod queue_reason;
mod run_questions;
mod runtime_notices;
mod secret_prompt;
mod storage_watch;
mod streamed_answer;
mod supervised_adapter;
mod tar;
mod tls;
mod tool_calls;
mod tool_input;

use std::{ffi::OsString, process::ExitCode};

use attache_protocol::error::exit;
use clap::FromArgMatches as _;

use commands::Cli;
use config::Config;
use context::CommandContext;
use failure::CommandFailure;

/// Memory of a hub call is allocated on one thread and freed on another, which the C library's allocator handles
/// slowly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs one command.
///
/// Deliberately not generic: the code of all commands is compiled once here, not again in each binary.
pub fn run(args: &[OsString]) -> ExitCode {
    attache_os::process_tree::keep_inherited_descriptors();
    let mut command = commands::command();
    let parsed = command.try_get_matches_from_mut(args).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed.map_err(|error| error.format(&mut command)) {
        Ok(cli) => cli,
        // Arguments after `--` belong to another program.
        Err(error) if error.use_stderr() && args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json") => {
            let output = output::TerminalOutput::new(&Config::from_environment(), output::OutputFormat::Json);
            let failure = CommandFailure::from(error);
            output.failure(&failure);
            return failure.exit_code();
        }
        Err(error) => {
            let code = if error.use_stderr() { exit::USAGE } else { exit::OK };
            // Ignore a closed output.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let config = Config::from_environment();
    let format = if cli.json { output::OutputFormat::Json } else { output::OutputFormat::Text };
    let output = output::TerminalOutput::new(&config, format);
    log::start(&config, &output, cli.command.process_kind());
    let context = CommandContext::new(config, output);
    let runtime = match process::executor(cli.command.process_kind()) {
        Ok(runtime) => runtime,
        Err(error) => {
            output.failure(&CommandFailure::failed(format!("can't start: {error}")));
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
