//! The adapter that a runtime starts and supervises: this binary, configured from the profile.

use std::{
    ffi::OsString,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use attache_runtime::{
    AdapterCommand, AdapterSource,
    profile::{Profile, Profiles},
};

use crate::{
    env::{
        config,
        context::CommandContext,
        home,
        hosts::{self, CUSTOM},
    },
    ui::failure::CommandFailure,
};

/// Executor types that aren't in the preset table.
pub(crate) const SHELL: &str = "shell";
pub(crate) const COMMAND: &str = "command";

/// Environment variables that the adapter itself reads. Tasks see fewer; hosts see those that their preset names.
const OURS: [&str; 5] = ["A2A_HOME", "AWCP_HOME", "NO_COLOR", "RUST_BACKTRACE", "RUST_LOG"];

/// The adapter of a profile: the one it names, or a supervised child with a limit of concurrent tasks. `cwd` is the
/// working folder of tasks unless the profile sets one.
pub(crate) fn source(
    context: &CommandContext,
    profile: &Profile,
    cwd: Option<&Path>,
    concurrency: NonZeroUsize,
) -> Result<AdapterSource, CommandFailure> {
    if profile.local_agent_endpoint.is_some() {
        return Ok(AdapterSource::Profile);
    }
    let home = context.home()?;
    let executor = &profile.local_executor;
    let host = || hosts::host(context, executor.kind.as_deref().unwrap_or_default(), executor.reference.as_deref());
    let mut variables: Vec<String> = OURS.map(str::to_owned).into();
    let (kind, options, program): (&str, Vec<OsString>, Vec<OsString>) =
        match (executor.kind.as_deref(), executor.reference.as_deref()) {
            (None | Some(SHELL), _) => (SHELL, Vec::new(), Vec::new()),
            (Some(COMMAND), Some(reference)) => (COMMAND, Vec::new(), hosts::split_command(reference)),
            // The runtime reports what is missing.
            (Some(COMMAND), None) => return Ok(AdapterSource::Profile),
            (Some(CUSTOM), _) => {
                let host = host()?;
                variables.extend(host.preset.env);
                ("acp", Vec::new(), std::iter::once(host.program.into_os_string()).chain(host.args).collect())
            }
            (Some(name), _) => {
                let host = host()?;
                variables.extend(host.preset.env);
                ("preset", vec![name.into(), "--program".into(), host.program.into_os_string()], Vec::new())
            }
        };
    let program_file = std::env::current_exe().map_err(|error| {
        CommandFailure::failed(format!("can't determine the path of this program: {error}"))
            .hint("Start it with its full path.")
    })?;
    let folder = home.adapters();
    home::private_folder(&folder).map_err(|error| CommandFailure::file("use the folder", &folder, &error))?;
    // Unique to this process: the adapter of a killed runtime may still be starting.
    let ready_file = folder.join(format!("{}.{}.ready", profile.runtime_id, std::process::id()));
    let mut arguments: Vec<OsString> =
        ["adapter", kind, "--listen", "127.0.0.1:0", "--exit-with-parent"].map(Into::into).into();
    arguments.extend(options);
    arguments.extend(["--concurrency".into(), concurrency.to_string().into()]);
    if let Some(kept) = executor.keep_sessions.filter(|_| !matches!(kind, SHELL | COMMAND)) {
        arguments.push(format!("--keep-sessions={}", kept.as_str()).into());
    }
    arguments.extend(["--ready-file".into(), ready_file.clone().into()]);
    if let Some(file) = &executor.instruction_file {
        arguments.extend(["--instruction-file".into(), file.into()]);
    }
    let current = || std::env::current_dir().and_then(|folder| folder.canonicalize()).ok();
    if let Some(cwd) = profile.cwd().map(PathBuf::from).or_else(|| cwd.map(Path::to_owned)).or_else(current) {
        remember_folder(context, profile, &cwd)?;
        arguments.extend(["--cwd".into(), cwd.into()]);
    }
    if !program.is_empty() {
        arguments.push("--".into());
        arguments.extend(program);
    }
    let environment = config::adapter_environment(&variables).into_pairs();
    Ok(AdapterSource::Child(AdapterCommand { program: program_file, arguments, environment, ready_file }))
}

/// Other agents of this device are kept out of the folder, also while this one doesn't run.
fn remember_folder(context: &CommandContext, profile: &Profile, folder: &Path) -> Result<(), CommandFailure> {
    let folder = folder.to_str().filter(|_| profile.cwd().is_none()).map(str::to_owned);
    if folder.is_none() || folder == profile.local_executor.started_in {
        return Ok(());
    }
    Profiles::at(context.home()?.path(), context.env.clone()).update(|set| {
        if let Some(known) = set.profiles.get_mut(&profile.key()) {
            known.local_executor.started_in = folder;
        }
    })?;
    Ok(())
}
