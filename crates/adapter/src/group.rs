//! The process group of one run: everything that the task started and that did not leave the group.

use std::{process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    time::timeout,
};

/// From the polite signal to the final one. A cancelled run is gone within a second.
const GRACE: Duration = Duration::from_millis(500);

/// How long killed processes get to disappear; only one that hangs inside the kernel takes longer.
const BURIAL: Duration = Duration::from_millis(250);

const POLL: Duration = Duration::from_millis(5);

/// Waits for a line. Its absence means that the adapter died without a chance to end the group.
const WATCH: &str = r#"read -r line || kill -KILL -"$1""#;

/// A child that leads its own group. Dropping it kills the group.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Option<Pid>,
    watchdog: Option<Child>,
}

// === impl Group ===

impl Group {
    /// The group of a child that was started with `process_group(0)`.
    pub(crate) fn of(child: &Child) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { leader, watchdog: leader.and_then(watchdog) }
    }

    /// Ends whatever is left of the group, politely first, and returns when it is gone.
    pub(crate) async fn end(mut self, child: &mut Child) {
        for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, BURIAL)] {
            if !self.alive() {
                break;
            }
            self.signal(signal);
            let gone = async {
                // A leader that is not reaped still counts as a member.
                let _ = child.wait().await;
                while self.alive() {
                    tokio::time::sleep(POLL).await;
                }
            };
            if timeout(patience, gone).await.is_ok() {
                break;
            }
        }
        self.leader = None;
        self.dismiss().await;
    }

    /// Sends the watchdog home, now that there is nothing left to watch.
    async fn dismiss(&mut self) {
        let Some(mut watchdog) = self.watchdog.take() else { return };
        if let Some(mut stdin) = watchdog.stdin.take() {
            let _ = stdin.write_all(b"\n").await;
        }
        // One that does not go is killed when it is dropped here.
        let _ = timeout(BURIAL, watchdog.wait()).await;
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // The group may be gone by now, which is what we want.
            let _ = kill_process_group(leader, signal);
        }
    }

    fn alive(&self) -> bool {
        self.leader.is_some_and(|leader| test_kill_process_group(leader).is_ok() && !only_zombies(leader))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// A small process that outlives the adapter by an instant: when the adapter is killed, its end of the pipe closes,
/// and the group is killed with it.
fn watchdog(leader: Pid) -> Option<Child> {
    let spawned = Command::new("sh")
        .args(["-c", WATCH, "sh"])
        .arg(leader.as_raw_nonzero().to_string())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    spawned.inspect_err(|error| tracing::warn!(%error, "a run goes unwatched: `sh` cannot be started")).ok()
}

/// Whether nothing of a group runs any more. Where process 1 does not reap orphans, as in many containers, dead
/// members stay visible for ever and must not be waited for.
#[cfg(target_os = "linux")]
fn only_zombies(leader: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let group = leader.as_raw_nonzero().to_string();
    !processes.flatten().any(|process| {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { return false };
        // `pid (name) state parent group …`, where the name may hold spaces and brackets.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let (state, in_group) = (fields.next(), fields.nth(1) == Some(group.as_str()));
        in_group && !matches!(state, Some("Z" | "X"))
    })
}

#[cfg(not(target_os = "linux"))]
fn only_zombies(_leader: Pid) -> bool {
    false
}
