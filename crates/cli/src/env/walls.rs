//! How this program starts itself inside walls, and what runs inside may use.

use std::{
    collections::VecDeque,
    ffi::OsString,
    path::{Path, PathBuf},
};

use attache_adapter::preset::PresetTable;
use attache_os::control_group::RunResources;
use attache_protocol::wire::runtime::WalledRuns;
use attache_runtime::profile::Profiles;
use attache_sandbox::{Launcher, StageCommand};

use super::context::CommandContext;
use crate::{text::agents, ui::failure::CommandFailure};

/// The first argument of the second stage, which becomes another program.
pub(crate) const STAGE: &str = "sandbox-stage";
/// More than any system follows.
const MAX_LINKS: usize = 64;
/// The first argument of the probe.
pub(crate) const PROBE: &str = "sandbox-probe";

pub(crate) fn launcher() -> Result<Launcher, CommandFailure> {
    let program = std::env::current_exe()
        .map_err(|error| CommandFailure::failed(format!("can't find this program's own file: {error}")))?;
    Ok(Launcher::new(StageCommand { program, enter: vec![STAGE.into()], probe: vec![PROBE.into()] }))
}

/// Refuses a folder that is reached through a link in the folder of an agent: a task of that agent may have put it there.
pub(crate) fn refuse_planted_link(context: &CommandContext, folder: &Path) -> Result<(), CommandFailure> {
    let Ok(home) = context.home() else { return Ok(()) };
    let folders = Profiles::at(home.path(), context.env.clone()).folders()?;
    // The shell knows through which links it came here.
    let is_current = |here: &PathBuf| here.is_absolute() && here.canonicalize().ok() == std::env::current_dir().ok();
    let here = std::env::var_os("PWD").map(PathBuf::from).filter(is_current);
    let whole = here.map_or_else(|| std::path::absolute(folder).unwrap_or_default(), |here| here.join(folder));
    let is_planted = |link: &PathBuf| folders.iter().any(|folder| link.starts_with(folder));
    match links_of(&whole).into_iter().find(is_planted) {
        Some(link) => Err(CommandFailure::usage(format!("{} is a link in an agent's folder", link.display()))
            .hint("A task of that agent may have created the link. Pass the real path of the folder.")),
        None => Ok(()),
    }
}

/// The links that a path leads through, where they really are.
fn links_of(path: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut ahead: VecDeque<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    let mut real = PathBuf::new();
    while let Some(part) = ahead.pop_front().filter(|_| links.len() < MAX_LINKS) {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(&part);
        if let Ok(target) = real.read_link() {
            links.push(real.clone());
            real.pop();
            for part in target.components().rev() {
                ahead.push_front(part.as_os_str().to_owned());
            }
        }
    }
    links
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
pub(crate) fn describe(runs: WalledRuns) -> &'static str {
    match runs {
        WalledRuns::Off => agents::walled_off(),
        WalledRuns::Others => agents::walled_others(),
        WalledRuns::All => agents::walled_all(),
    }
}
