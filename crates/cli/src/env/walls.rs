//! How this program starts itself inside walls, and what runs inside may use.

use attache_adapter::preset::PresetTable;
use attache_os::control_group::RunResources;
use attache_protocol::wire::runtime::WalledRuns;
use attache_sandbox::{Launcher, StageCommand};

use crate::ui::failure::CommandFailure;

/// The first argument of the second stage, which becomes another program.
pub(crate) const STAGE: &str = "sandbox-stage";
/// The first argument of the probe.
pub(crate) const PROBE: &str = "sandbox-probe";

pub(crate) fn launcher() -> Result<Launcher, CommandFailure> {
    let program = std::env::current_exe()
        .map_err(|error| CommandFailure::failed(format!("can't find this program's own file: {error}")))?;
    Ok(Launcher::new(StageCommand { program, enter: vec![STAGE.into()], probe: vec![PROBE.into()] }))
}

/// What a run inside may use: what the owner chose in `presets.toml`, or what is sensible here.
pub(crate) fn resources(table: &PresetTable) -> RunResources {
    let usual = RunResources::of_this_machine();
    RunResources {
        memory: table.resources.memory.map_or(usual.memory, |chosen| chosen.0),
        processes: table.resources.processes.unwrap_or(usual.processes),
    }
}

/// Parses `--sandbox off|others|all`.
pub(crate) fn walled_runs(text: &str) -> Result<WalledRuns, String> {
    WalledRuns::from_text(text).ok_or_else(|| format!("must be one of {}", WalledRuns::CHOICES.replace('|', ", ")))
}

/// Whose runs are inside the walls, for people.
pub(crate) const fn describe(runs: WalledRuns) -> &'static str {
    match runs {
        WalledRuns::Off => "only runs that ask for limits",
        WalledRuns::Others => "runs of others see only their folder",
        WalledRuns::All => "all runs see only their folder",
    }
}
