//! Landlock: files outside the view, TCP, and sockets and signals of others. It also holds without namespaces.

use std::{io, ops::RangeInclusive, path::PathBuf};

use ::landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, Scope, path_beneath_rules,
};

use crate::{FileView, NetworkAccess, Walls};

use super::view;

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

/// Restricts this thread and everything it starts.
pub(super) fn restrict(walls: &Walls, is_in_namespaces: bool) -> io::Result<()> {
    apply(walls, is_in_namespaces).map_err(io::Error::other)
}

fn apply(walls: &Walls, is_in_namespaces: bool) -> Result<(), ::landlock::RulesetError> {
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort).scope(Scope::from_all(KNOWN))?;
    if walls.files == FileView::Declared {
        rules = rules.handle_access(AccessFs::from_all(KNOWN))?;
    }
    // A network of its own has nobody else in it.
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
            .add_rules(path_beneath_rules(view::DEVICES, device))?
            .add_rules(path_beneath_rules(writable(walls, is_in_namespaces), everything))?;
        if is_in_namespaces {
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
    }
    paths.extend(walls.read.iter().cloned().chain(own));
    paths
}

fn writable(walls: &Walls, is_in_namespaces: bool) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = walls.write.iter().chain([&walls.cwd]).cloned().collect();
    if is_in_namespaces {
        // Its own, and empty.
        paths.extend(walls.private.iter().cloned());
        paths.extend(walls.stand_ins.iter().map(|one| one.shown_at.clone()));
        paths.extend(["/tmp", "/var/tmp", "/dev/shm", "/dev/pts"].map(PathBuf::from));
    }
    paths
}
