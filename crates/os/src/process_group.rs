//! The processes of one run: the group of the started process, and processes that left the group, with or without the
//! run's mark. Where the run has a control group, everything in it.

use std::{
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use attache_protocol::RunId;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::{
    process::{Child, Command},
    time::{Instant, timeout_at},
};

use crate::{
    control_group::{ControlGroup, ExceededResources},
    process_tree::{self, ProcessIdentity},
};

/// From SIGTERM to SIGKILL. A cancelled run is gone within a second.
const TERM_TIMEOUT: Duration = Duration::from_millis(500);

/// How long all killed processes together get to disappear on a busy machine. Only one that hangs in the kernel takes
/// longer.
const REAP_TIMEOUT: Duration = Duration::from_secs(2);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The environment variable that marks a process as part of a run, wherever it is.
pub const RUN_ID_VARIABLE: &str = "ATTACHE_TASK_RUN_ID";

/// Waits for two lines: the leader's id, and the end. If one doesn't arrive, the adapter died before it could end the
/// group and the processes that left it. Its arguments are the run's mark and, if there is one, its control group.
const WATCHDOG_SCRIPT: &str = r#"read -r leader && read -r line && exit
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

/// A child that leads its own process group. Dropping it kills the group.
#[derive(Debug)]
pub struct ProcessGroup {
    leader: Option<Pid>,
    /// `ATTACHE_TASK_RUN_ID=run_…`, as in the environment of everything that the run started.
    mark: String,
    watchdog: Option<Watchdog>,
    control: Option<ControlGroup>,
}

/// A small process that outlives the adapter by a moment: when the adapter is killed, its end of the pipe closes, and
/// the watchdog kills the group.
#[derive(Debug)]
struct Watchdog {
    process: Child,
    pipe: io::PipeWriter,
}

// === impl ProcessGroup ===

impl ProcessGroup {
    /// Starts the leader of a group. The command has `process_group(0)` and the run's mark in its environment.
    /// Descriptors that are passed on stay open in it, under the same numbers. It is in the control group, if there is one.
    pub fn spawn(
        command: &mut Command,
        handed: Vec<Arc<OwnedFd>>,
        control: Option<ControlGroup>,
        run: RunId,
    ) -> io::Result<(Child, Self)> {
        let mark = format!("{RUN_ID_VARIABLE}={run}");
        // First, so that there is no moment in which nobody would end the leader.
        let watchdog = Watchdog::start(&mark, control.as_ref())
            .inspect_err(|error| tracing::warn!(%error, "failed to start `sh`; the run has no watchdog"));
        let mut group = Self { leader: None, mark, watchdog: watchdog.ok(), control };
        let entrance = group.control.as_ref().map(ControlGroup::entrance).transpose()?;
        let child = process_tree::spawn(command, handed, entrance)?;
        group.leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let (Some(leader), Some(watchdog)) = (group.leader, &mut group.watchdog) {
            watchdog.tell(&leader.as_raw_nonzero().to_string());
        }
        Ok((child, group))
    }

    /// Interrupts only the leader, as Ctrl-C would.
    pub fn interrupt(&self) {
        if let Some(leader) = self.leader {
            let _ = kill_process(leader, Signal::INT);
        }
    }

    /// The programs that the run currently executes, where the system reports them.
    pub fn programs(&self) -> Vec<PathBuf> {
        programs(&self.mark)
    }

    /// Ends the rest of the group, gracefully first, and returns when it is gone, with what it wanted beyond its limits.
    pub async fn end(mut self, child: &mut Child) -> ExceededResources {
        let mut buried = Instant::now() + REAP_TIMEOUT;
        // While the leader lives, everything it started is below it.
        let mut family: Vec<ProcessIdentity> = self.descendants();
        for (signal, patience) in [(Signal::TERM, TERM_TIMEOUT), (Signal::KILL, REAP_TIMEOUT)] {
            if !self.alive() {
                break;
            }
            let until = Instant::now() + patience;
            if signal == Signal::KILL {
                buried = until;
                family.extend(self.descendants());
            }
            self.signal(signal);
            let gone = async {
                // A leader that isn't reaped still counts as a member.
                let _ = child.wait().await;
                while self.alive() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            };
            if timeout_at(until, gone).await.is_ok() {
                break;
            }
        }
        if let Some(leader) = self.leader.take() {
            process_tree::forget(leader);
        }
        if let Some(control) = &self.control {
            control.kill();
        }
        let gone = async {
            while kill_marked(&self.mark) | process_tree::kill(&family) | self.is_populated() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        if timeout_at(buried, gone).await.is_err() {
            tracing::warn!("failed to end some processes of a run");
        }
        self.end_watchdog(buried).await;
        // Not needed any more, and removed here.
        self.control.take().map(|control| control.exceeded()).unwrap_or_default()
    }

    fn is_populated(&self) -> bool {
        self.control.as_ref().is_some_and(|control| !control.is_empty())
    }

    /// Ends the watchdog, now that there is nothing left to watch.
    async fn end_watchdog(&mut self, until: Instant) {
        let Some(mut watchdog) = self.watchdog.take() else { return };
        watchdog.tell("");
        let id = watchdog.process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        // If it doesn't exit, it is killed when it is dropped here.
        if timeout_at(until, watchdog.process.wait()).await.is_ok()
            && let Some(id) = id
        {
            process_tree::forget(id);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // The group may already be gone, which is fine.
            let _ = kill_process_group(leader, signal);
        }
    }

    fn descendants(&self) -> Vec<ProcessIdentity> {
        self.leader.map(process_tree::below).unwrap_or_default()
    }

    fn alive(&self) -> bool {
        self.leader.is_some_and(|leader| test_kill_process_group(leader).is_ok() && !only_zombies(leader))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            let family = self.descendants();
            self.signal(Signal::KILL);
            // Repeated, because one may start another meanwhile.
            let _ = (0..5).all(|_| kill_marked(&self.mark) | process_tree::kill(&family));
            // The end of the next run reaps it. A pid that stays recorded would hide an orphan that gets it later.
            process_tree::forget(leader);
        }
    }
}

// === impl Watchdog ===

impl Watchdog {
    fn start(mark: &str, control: Option<&ControlGroup>) -> io::Result<Self> {
        let (reader, pipe) = io::pipe()?;
        let mut command = Command::new("sh");
        command
            .args(["-c", WATCHDOG_SCRIPT, "sh", mark])
            .args(control.map(ControlGroup::path))
            .env_clear()
            .current_dir("/")
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        Ok(Self { process: process_tree::start(&mut command)?, pipe })
    }

    /// A line is short enough to fit into the pipe before anyone reads it.
    fn tell(&mut self, line: &str) {
        let _ = self.pipe.write_all(format!("{line}\n").as_bytes());
    }
}

/// Kills processes that left the group: hosts start their tools in separate sessions. Returns whether there were any,
/// dying ones included.
#[cfg(target_os = "linux")]
fn kill_marked(mark: &str) -> bool {
    let found: Vec<Pid> = marked(mark).collect();
    for process in &found {
        let _ = kill_process(*process, Signal::KILL);
    }
    !found.is_empty()
}

#[cfg(not(target_os = "linux"))]
fn kill_marked(_mark: &str) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn programs(mark: &str) -> Vec<PathBuf> {
    let program = |process: Pid| std::fs::read_link(format!("/proc/{}/exe", process.as_raw_nonzero())).ok();
    marked(mark).filter_map(program).collect()
}

#[cfg(not(target_os = "linux"))]
fn programs(_mark: &str) -> Vec<PathBuf> {
    Vec::new()
}

/// Our processes that carry the mark. A dead process has no environment any more.
#[cfg(target_os = "linux")]
fn marked(mark: &str) -> impl Iterator<Item = Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(move |process| {
        let id = process.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let environment = std::fs::read(process.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()).then_some(id)
    })
}

/// Whether nothing in a group runs any more. Where process 1 doesn't reap orphans, as in many containers, dead members
/// stay visible forever and must not be waited for.
#[cfg(target_os = "linux")]
fn only_zombies(leader: Pid) -> bool {
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

#[cfg(not(target_os = "linux"))]
fn only_zombies(_leader: Pid) -> bool {
    false
}
