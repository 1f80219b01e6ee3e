//! How this program starts itself inside walls.

use std::path::PathBuf;

use attache_sandbox::{Launcher, StageCommand};

use crate::{
    env::{config::Config, home},
    ui::failure::CommandFailure,
};

/// The first argument of the second stage, which becomes another program.
pub(crate) const STAGE: &str = "sandbox-stage";
/// The first argument of the probe.
pub(crate) const PROBE: &str = "sandbox-probe";

/// Our own folders, which nothing inside sees, even if they are in its working folder.
pub(crate) fn own_folders(config: &Config) -> Vec<PathBuf> {
    home::own_folders(config).into_iter().filter_map(|folder| folder.canonicalize().ok()).collect()
}

pub(crate) fn launcher() -> Result<Launcher, CommandFailure> {
    let program = std::env::current_exe()
        .map_err(|error| CommandFailure::failed(format!("can't find this program's own file: {error}")))?;
    Ok(Launcher::new(StageCommand { program, enter: vec![STAGE.into()], probe: vec![PROBE.into()] }))
}
