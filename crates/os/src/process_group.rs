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
    program,
    system::processes::{WATCHDOG_SCRIPT, marked, only_zombies, programs},
};

/// From SIGTERM to SIGKILL. A cancelled run is gone within a second.
const TERM_TIMEOUT: Duration = Duration::from_millis(500);

/// How long all killed processes together get to disappear on a busy machine. Only one that hangs in the kernel takes
/// longer.
const REAP_TIMEOUT: Duration = Duration::from_secs(2);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The environment variable that marks a process as part of a run, wherever it is.
pub const RUN_ID_VARIABLE: &str = "ATTACHE_TASK_RUN_ID";

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
            while self.kill_rest(&mut family) | self.is_populated() {
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

    /// Kills the family and what else carries the mark. Returns whether any of them is still alive: those that were
    /// found by their mark are remembered, because they lose it before they are dead.
    fn kill_rest(&self, family: &mut Vec<ProcessIdentity>) -> bool {
        for process in marked(&self.mark) {
            if !family.contains(&process) {
                family.push(process);
            }
        }
        process_tree::kill(family)
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
            let mut family = self.descendants();
            self.signal(Signal::KILL);
            // Repeated, because one may start another meanwhile.
            let _ = (0..5).all(|_| self.kill_rest(&mut family));
            // The end of the next run reaps it. A pid that stays recorded would hide an orphan that gets it later.
            process_tree::forget(leader);
        }
    }
}

// === impl Watchdog ===

impl Watchdog {
    fn start(mark: &str, control: Option<&ControlGroup>) -> io::Result<Self> {
        let (reader, pipe) = io::pipe()?;
        let mut command = Command::new(program::path("sh"));
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
