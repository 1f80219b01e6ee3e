//! The adapter that a runtime starts by itself: our own binary, told by the profile what to drive.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use attache_runtime::{AdapterCommand, AdapterSource, profile::Profile};

use crate::{
    Failure,
    home::{self, Home},
};

/// The kinds of agents for which we have a driver.
pub(crate) const SHELL: &str = "shell";
pub(crate) const COMMAND: &str = "command";

/// The adapter of a profile: the one it names, or a child of ours. `cwd` is where its tasks work unless the profile says.
pub(crate) fn source(home: &Home, profile: &Profile, cwd: Option<&Path>) -> Result<AdapterSource, Failure> {
    if profile.local_agent_endpoint.is_some() {
        return Ok(AdapterSource::Profile);
    }
    let executor = &profile.local_executor;
    let (kind, program) = match (executor.kind.as_deref(), executor.reference.as_deref()) {
        (None | Some(SHELL), _) => (SHELL, Vec::new()),
        (Some(COMMAND), Some(reference)) => (COMMAND, words(reference)),
        // The runtime says what is missing.
        _ => return Ok(AdapterSource::Profile),
    };
    let program_file = std::env::current_exe().map_err(|error| {
        Failure::failed(format!("cannot find the program that is running: {error}")).hint("Start it by its full path.")
    })?;
    let folder = home.adapters();
    home::private_folder(&folder).map_err(|error| Failure::file("use the folder", &folder, &error))?;
    // Of this process alone: the adapter of a runtime that was killed may still be starting.
    let ready_file = folder.join(format!("{}.{}.ready", profile.runtime_id, std::process::id()));
    let mut arguments: Vec<OsString> =
        ["adapter", kind, "--listen", "127.0.0.1:0", "--exit-with-parent"].map(Into::into).into();
    arguments.extend(["--ready-file".into(), ready_file.clone().into()]);
    if let Some(file) = &executor.instruction_file {
        arguments.extend(["--instruction-file".into(), file.into()]);
    }
    if let Some(cwd) = profile.cwd().map(PathBuf::from).or_else(|| cwd.map(Path::to_owned)) {
        arguments.extend(["--cwd".into(), cwd.into()]);
    }
    if !program.is_empty() {
        arguments.push("--".into());
        arguments.extend(program);
    }
    Ok(AdapterSource::Child(AdapterCommand { program: program_file, arguments, ready_file }))
}

/// A program with arguments that contain no blanks, or a path that may.
fn words(reference: &str) -> Vec<OsString> {
    if Path::new(reference).exists() {
        return vec![reference.into()];
    }
    reference.split_whitespace().map(Into::into).collect()
}
