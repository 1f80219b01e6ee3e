//! The table of processes (`/proc`), and handles that stay with a process (pidfds).

use std::{collections::BTreeMap, path::PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::process_tree::{ProcessIdentity, ProcessStat};

/// Waits for two lines: the leader's id, and the end. If one doesn't arrive, the adapter died before it could end the
/// group and the processes that left it. Its arguments are the run's mark and, if there is one, its control group.
pub(crate) const WATCHDOG_SCRIPT: &str = r#"read -r leader && read -r line && exit
below() {
    for child in $(cat /proc/"$1"/task/*/children); do
        echo "$child"
        below "$child"
    done
}
[ -z "$2" ] || echo 1 > "$2/cgroup.kill"
if [ -n "$leader" ]; then
    family=$(below "$leader")
    kill -KILL -"$leader"
    kill -KILL $family
fi
for pass in 1 2 3; do
    for file in $(grep -lszxF -e "$1" /proc/[0-9]*/environ); do
        file=${file#/proc/}
        kill -KILL "${file%/environ}"
    done
done
[ -z "$2" ] || for pass in 1 2 3 4 5; do
    rmdir "$2" && break
    sleep 0.2
done"#;

/// All processes.
pub(crate) fn all() -> BTreeMap<i32, ProcessStat> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let read = |process: std::fs::DirEntry| {
        let id = process.file_name().to_str()?.parse().ok()?;
        Some((id, parse(&std::fs::read_to_string(process.path().join("stat")).ok()?)?))
    };
    processes.filter_map(read).collect()
}

/// Parses `pid (name) state parent …`, where the name can contain spaces and parentheses.
fn parse(text: &str) -> Option<ProcessStat> {
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    // The twenty-second field overall.
    Some(ProcessStat { parent, began: fields.nth(17)?.parse().ok()?, is_dead })
}

/// Kills this process, but not another one that got its pid since.
pub(crate) fn kill(process: ProcessIdentity) {
    // The handle stays with whichever process has the pid now. Its start time tells whether it is the right one.
    let Ok(handle) = pidfd_open(process.id, PidfdFlags::empty()) else { return };
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id.as_raw_nonzero()));
    if stat.ok().and_then(|stat| parse(&stat)).is_some_and(|stat| stat.began == process.began) {
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
}

/// The programs of the processes that carry the mark.
pub(crate) fn programs(mark: &str) -> Vec<PathBuf> {
    let program = |process: Pid| std::fs::read_link(format!("/proc/{}/exe", process.as_raw_nonzero())).ok();
    marked(mark).into_iter().filter_map(|process| program(process.id)).collect()
}

/// Our processes that carry the mark, also those that left the group: hosts start their tools in separate sessions. A
/// process that is being killed has no environment any more, some time before it is dead.
pub(crate) fn marked(mark: &str) -> Vec<ProcessIdentity> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let identity = |process: std::fs::DirEntry| {
        let id = process.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let environment = std::fs::read(process.path().join("environ")).ok()?;
        let is_marked = environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
        let stat = is_marked.then(|| std::fs::read_to_string(process.path().join("stat")))?.ok()?;
        Some(ProcessIdentity { id, began: parse(&stat)?.began })
    };
    processes.filter_map(identity).collect()
}

/// Whether nothing in a group runs any more. Where process 1 doesn't reap orphans, as in many containers, dead members
/// stay visible forever and must not be waited for.
pub(crate) fn only_zombies(leader: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let group = leader.as_raw_nonzero().to_string();
    !processes.flatten().any(|process| {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { return false };
        // `pid (name) state parent group …`, where the name can contain spaces and parentheses.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let (state, in_group) = (fields.next(), fields.nth(1) == Some(group.as_str()));
        in_group && !matches!(state, Some("Z" | "X"))
    })
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_process_with_any_name_is_parsed() {
        let text = "42 (a ) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 1";
        assert_eq!(parse(text), Some(ProcessStat { parent: 7, began: 98765, is_dead: false }));
        assert_eq!(parse("1 (x) Z"), None);
        let own = all()[&getpid().as_raw_nonzero().get()];
        assert!(!own.is_dead && own.began > 0);
    }
}
