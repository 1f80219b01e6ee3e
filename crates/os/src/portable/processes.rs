//! A run is the processes of its group: which others there are isn't known.

use std::{collections::BTreeMap, path::PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use crate::process_tree::{ProcessIdentity, ProcessStat};

/// Waits for two lines: the leader's id, and the end. If one doesn't arrive, the adapter died before it could end the
/// group.
pub(crate) const WATCHDOG_SCRIPT: &str = r#"read -r leader && read -r line && exit
[ -z "$leader" ] || kill -KILL -"$leader""#;

/// No processes are known.
pub(crate) const fn all() -> BTreeMap<i32, ProcessStat> {
    BTreeMap::new()
}

/// Kills the process with this pid.
pub(crate) fn kill(process: ProcessIdentity) {
    let _ = kill_process(process.id, Signal::KILL);
}

/// Processes that left the group aren't found.
pub(crate) const fn marked(_mark: &str) -> Vec<ProcessIdentity> {
    Vec::new()
}

/// The programs of the processes that carry the mark.
pub(crate) const fn programs(_mark: &str) -> Vec<PathBuf> {
    Vec::new()
}

/// Whether nothing in a group runs any more. Members that nobody waited for count.
pub(crate) const fn only_zombies(_leader: Pid) -> bool {
    false
}
