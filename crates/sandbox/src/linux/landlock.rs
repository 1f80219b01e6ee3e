//! Landlock: files outside the view, TCP, and sockets and signals of others. It also holds without namespaces.

use std::{io, ops::RangeInclusive, path::PathBuf};

use ::landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, Scope, path_beneath_rules,
};

use crate::{FileView, NetworkAccess, Walls};

use super::{open_path::OpenPath, view};

/// What we know of. Older kernels enforce what they can, and the probe reports the rest.
const KNOWN: ABI = ABI::V6;

/// Where a program inside can listen if it shares this machine's network: on ports of development servers, and on one that
/// the system chooses. On any other, it could take the place of a service that is down for a moment, and be told its secrets.
const LISTENING: &[RangeInclusive<u16>] = &[
    0..=0,
    1313..=1313,
    3000..=3010,
    4000..=4010,
    4173..=4180,
    4200..=4200,
    4321..=4321,
    5000..=5010,
    5173..=5180,
    6006..=6006,
    8000..=8010,
    8080..=8090,
    8888..=8890,
    9000..=9010,
    9222..=9222,
];

/// Restricts this thread and everything it starts. `opened` is what can be seen besides the system, if there are no
/// namespaces: others may replace what is at its path. In namespaces, it's a mount, which nobody can move.
pub(super) fn restrict(walls: &Walls, opened: Option<&[OpenPath]>) -> io::Result<()> {
    apply(walls, opened).map_err(io::Error::other)
}

fn apply(walls: &Walls, opened: Option<&[OpenPath]>) -> Result<(), ::landlock::RulesetError> {
    let is_in_namespaces = opened.is_none();
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort).scope(Scope::from_all(KNOWN))?;
    if walls.files == FileView::Declared {
        rules = rules.handle_access(AccessFs::from_all(KNOWN))?;
    }
    // Nothing else is in a private network namespace.
    if walls.network != NetworkAccess::All && !is_in_namespaces {
        rules = rules.handle_access(AccessNet::from_all(KNOWN))?;
    }
    let shares_network = walls.network == NetworkAccess::All && walls.files == FileView::Declared;
    if shares_network {
        rules = rules.handle_access(AccessNet::BindTcp)?;
    }
    let mut rules = rules.create()?.set_compatibility(CompatLevel::BestEffort);
    if walls.files == FileView::Declared {
        let everything = AccessFs::from_all(KNOWN);
        let device: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        rules = rules
            .add_rules(path_beneath_rules(readable(walls, is_in_namespaces), AccessFs::from_read(KNOWN)))?
            .add_rules(path_beneath_rules(view::DEVICES, device))?;
        for path in opened.unwrap_or_default() {
            let access = if path.is_writable { everything } else { AccessFs::from_read(KNOWN) };
            let access = if path.is_folder { access } else { access & AccessFs::from_file(KNOWN) };
            rules = rules.add_rule(PathBeneath::new(path, access))?;
        }
        if is_in_namespaces {
            rules = rules.add_rules(path_beneath_rules(writable(walls), everything))?;
            // What it can't see isn't there, so it can list every folder.
            rules = rules.add_rules(path_beneath_rules(["/"], AccessFs::ReadDir))?;
        }
    }
    if shares_network {
        for port in LISTENING.iter().cloned().flatten() {
            rules = rules.add_rule(NetPort::new(port, AccessNet::BindTcp))?;
        }
    }
    rules.restrict_self()?;
    Ok(())
}

fn readable(walls: &Walls, is_in_namespaces: bool) -> Vec<PathBuf> {
    let own = std::env::current_exe().ok();
    let mut paths = view::system();
    paths.push("/proc".into());
    if is_in_namespaces {
        // Otherwise the terminals and the shared memory of others are there.
        paths.push("/dev".into());
        paths.extend(walls.read.iter().cloned());
    }
    paths.extend(own);
    paths
}

/// By their paths, in namespaces.
fn writable(walls: &Walls) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = walls.write.iter().chain([&walls.cwd]).cloned().collect();
    // Its own, and empty.
    paths.extend(walls.private.iter().cloned());
    paths.extend(walls.overlays.iter().map(|one| one.shown_at.clone()));
    paths.extend(["/tmp", "/var/tmp", "/dev/shm", "/dev/pts"].map(PathBuf::from));
    paths
}
