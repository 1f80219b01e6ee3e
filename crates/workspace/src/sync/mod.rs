//! Sync mode: a delegated folder where no file system can be mounted. The remote works in a copy, and both sides are kept the
//! same over the attache-fs protocol, so that the host has one export, with one set of rules, for all remotes.
//!
//! `rules` decides what becomes of each path (read this first), `engine` carries it out (`pull`, `push`, `merge`) between
//! the copy (`local_tree`) and the host (`host_link`, `host_view`).

mod base_texts;
mod engine;
mod host_link;
mod host_view;
pub(crate) mod local_tree;
pub(crate) mod paths;
mod pull;
mod push;
mod rules;
#[cfg(test)]
mod tests;

use std::{
    io::{self, Read, Write as _},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use attache_os::folder_watcher::FolderWatcher;
use rustix::fs::statvfs;

use self::{
    base_texts::BaseTexts,
    engine::{SyncEngine, SyncStop},
    host_link::{HostLink, LinkLoss, SyncEvent},
    local_tree::LocalTree,
};
use crate::{
    export::show,
    fs_connect::{LinkFailure, LinkTerms},
    mount::{
        LostChange, MountError, MountRequest,
        attache_fs::{FLUSH_TIMEOUT, LOST, OUTAGE},
    },
};

/// A line on standard error once the copy is complete.
pub(crate) const READY: &str = "sync: the copy is complete";
/// At the end, once it is known that the host has everything but what is named with a reason of its own.
pub(crate) const SETTLED: &str = "sync: everything was sent";

/// At most this much of a disk is left for others, or a twentieth of a smaller one.
const MAX_RESERVE: u64 = 1 << 30;

/// How often everything is looked at, in case that an event was missed.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);
/// How often folders are listed again whose changes the host doesn't report.
const LIST_INTERVAL: Duration = Duration::from_secs(2);
/// How soon something that was being changed is looked at again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// A change often comes with others. They are waited for, but not for long.
const QUIET_TIME: Duration = Duration::from_millis(15);
const MAX_QUIET_TIME: Duration = Duration::from_millis(150);
const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How often the first copy is tried again because of changes meanwhile.
const MAX_FIRST_PASSES: usize = 40;
/// So many losses are named.
const MAX_NAMED: usize = 200;

/// Makes the copy, and keeps it the same as the host's folder until the input or the lease ends. `private` is a folder of this
/// lease on the same file system, out of the agent's reach.
pub(crate) fn run(
    at: &Path,
    private: &Path,
    request: &MountRequest,
    number: u64,
    input: impl Read + Send + 'static,
) -> Result<(), MountError> {
    let failed = |error: std::io::Error| MountError::Sshfs(error.to_string());
    let (link, wakes) = HostLink::new();
    let watcher = FolderWatcher::new().ok().map(Arc::new);
    if let Some(watcher) = watcher.clone() {
        let wakes = wakes.clone();
        thread::Builder::new()
            .name("attache-sync-watch".to_owned())
            .spawn(move || while watch(&watcher) && wakes.send(SyncEvent::LocalChange).is_ok() {})
            .map_err(failed)?;
    }
    thread::spawn(move || {
        let mut input = input;
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        let _ = wakes.send(SyncEvent::Closing);
    });
    let staging = private.join("staged");
    std::fs::create_dir(&staging).map_err(failed)?;
    let local = LocalTree::open(at, staging, watcher).map_err(failed)?;
    let texts = BaseTexts::create(private.join("base")).map_err(failed)?;
    let mut engine = SyncEngine::new(link, local, texts, request.access_mode);
    engine.link.ends = Instant::now().checked_add(request.lasts);
    let terms = LinkTerms::new(request, number);
    engine.link.connect(&terms).map_err(|failure| match failure {
        LinkFailure::Passing(reason) => MountError::Unreachable(reason),
        LinkFailure::Refused(reason) => MountError::Terms(reason),
        LinkFailure::Final(error) => error,
    })?;
    check_space(at, engine.link.view.total_size())?;
    materialise(&mut engine, &terms)?;
    let _ = writeln!(std::io::stderr(), "{READY}");
    let end = keep(&mut engine, &terms);
    if engine.name_unsent(&end) {
        // First, because only so much of what is written is kept.
        let _ = writeln!(std::io::stderr(), "{SETTLED}");
    }
    report(&engine);
    Ok(())
}

/// Waits until something may have changed. `false` if that can't be found out any more.
fn watch(watcher: &FolderWatcher) -> bool {
    loop {
        if watcher.wait().is_err() {
            return false;
        }
        if watcher.read().is_none_or(|events| !events.is_empty()) {
            return true;
        }
    }
}

fn check_space(at: &Path, wanted: u64) -> Result<(), MountError> {
    let free = free_space(at).map_err(|error| MountError::Sshfs(error.to_string()))?;
    // Texts are kept twice.
    if wanted.saturating_add(wanted / 4) > free {
        let text = format!("the folder has {wanted} bytes, and only {free} are free here for a copy of it");
        return Err(MountError::Sshfs(text));
    }
    Ok(())
}

/// What a copy can take of the disk: a part stays for everything else on it.
fn free_space(at: &Path) -> io::Result<u64> {
    let space = statvfs(at)?;
    let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
    Ok(bytes(space.f_bavail).saturating_sub((bytes(space.f_blocks) / 20).min(MAX_RESERVE)))
}

fn materialise(engine: &mut SyncEngine, terms: &LinkTerms) -> Result<(), MountError> {
    // What changes all the time comes later.
    for _ in 0..MAX_FIRST_PASSES {
        let is_done = match engine.pass() {
            Ok(()) => !engine.is_unsettled,
            Err(SyncStop::Link(LinkLoss::Broken)) => reconnect(engine, terms, None).is_err(),
            Err(stop) => return Err(MountError::Sshfs(stop.to_string())),
        };
        if is_done || engine.link.is_closing {
            return Ok(());
        }
        thread::sleep(QUIET_TIME);
    }
    Ok(())
}

/// Until the end. Returns why changes that are still here didn't get to the host.
fn keep(engine: &mut SyncEngine, terms: &LinkTerms) -> String {
    let (mut looked, mut listed) = (Instant::now(), Instant::now());
    while !engine.link.is_closing {
        match keep_once(engine, &mut looked, &mut listed) {
            Ok(()) => {}
            Err(SyncStop::Link(LinkLoss::Broken)) => {
                if let Err(reason) = reconnect(engine, terms, None) {
                    return reason;
                }
            }
            Err(stop) => return stop.to_string(),
        }
    }
    loop {
        match engine.flush() {
            Ok(()) => return LinkLoss::Late.to_string(),
            Err(SyncStop::Link(LinkLoss::Broken)) => {
                if let Err(reason) = reconnect(engine, terms, Some(Instant::now() + FLUSH_TIMEOUT)) {
                    return reason;
                }
            }
            Err(stop) => return stop.to_string(),
        }
    }
}

/// Waits for a change on either side, and follows it.
fn keep_once(engine: &mut SyncEngine, looked: &mut Instant, listed: &mut Instant) -> Result<(), SyncStop> {
    let wait = SCAN_INTERVAL.saturating_sub(looked.elapsed()).min(LIST_INTERVAL);
    // The longer something can't be settled, the rarer it is tried.
    let retry = (RETRY_INTERVAL * 2_u32.pow(engine.unsettled_passes.min(5))).min(wait);
    engine.link.step(if engine.is_unsettled { retry } else { wait })?;
    let since = Instant::now();
    while !engine.link.is_closing && since.elapsed() < MAX_QUIET_TIME && engine.link.step(QUIET_TIME)? {}
    if listed.elapsed() > LIST_INTERVAL {
        let unwatched = engine.link.view.unwatched();
        engine.link.list(&unwatched)?;
        *listed = Instant::now();
    }
    let is_due = engine.is_unsettled || looked.elapsed() >= SCAN_INTERVAL;
    if is_due || engine.link.has_local_change || engine.link.view.has_changed() {
        engine.pass()?;
        *looked = Instant::now();
    }
    Ok(())
}

/// Until the host answers again. An error says why it won't.
fn reconnect(engine: &mut SyncEngine, terms: &LinkTerms, until: Option<Instant>) -> Result<(), String> {
    let (mut delay, mut until) = (RECONNECT.0, until);
    loop {
        match engine.link.connect(terms) {
            Ok(()) => {
                let _ = writeln!(std::io::stderr(), "{OUTAGE}");
                return Ok(());
            }
            Err(LinkFailure::Final(_)) => return Err(LinkLoss::Ended.to_string()),
            Err(LinkFailure::Passing(_) | LinkFailure::Refused(_)) => {}
        }
        let since = Instant::now();
        while since.elapsed() < delay {
            let _ = engine.link.take(delay.saturating_sub(since.elapsed()));
        }
        if engine.link.is_closing {
            until = until.or_else(|| Some(Instant::now() + FLUSH_TIMEOUT));
        }
        if until.is_some_and(|until| Instant::now() > until) {
            return Err("the host can't be reached".to_owned());
        }
        delay = (delay * 2).min(RECONNECT.1);
    }
}

fn report(engine: &SyncEngine) {
    for (path, reason) in engine.conflicts.iter().chain(&engine.lost).take(MAX_NAMED) {
        let lost = LostChange { path: show(path), reason: reason.clone() };
        if let Ok(line) = serde_json::to_string(&lost) {
            let _ = writeln!(std::io::stderr(), "{LOST}{line}");
        }
    }
}
