//! Access to the delegation daemon for commands: finds it or starts it, and opens its policy file.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use attache_client::daemon::{self, DaemonClient};
use attache_delegation::{
    awcp_policy::{PolicyChangeError, PolicyFile},
    delegator::{MAX_SOCKET_PATH, SOCKET},
};
use attache_protocol::{error::exit, wire::delegation::DaemonHealth};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use crate::{
    env::{context::CommandContext, home},
    text::errors,
    ui::failure::CommandFailure,
};

/// Maximum time for a new daemon to answer.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// A daemon that finds another one, which may be stopping, doesn't start.
const START_INTERVAL: Duration = Duration::from_secs(3);
/// Slightly longer than a stopping daemon waits for remote agents.
const STOP_TIMEOUT: Duration = Duration::from_secs(25);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A client of the daemon; starts the daemon if it isn't running.
pub(crate) async fn daemon(context: &CommandContext) -> Result<DaemonClient, CommandFailure> {
    let client = client(context)?;
    if health(&client).await?.is_some() {
        return Ok(client);
    }
    let begun = Instant::now();
    while begun.elapsed() < START_TIMEOUT {
        start(context)?;
        let started = Instant::now();
        while started.elapsed() < START_INTERVAL {
            if health(&client).await?.is_some() {
                return Ok(client);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    let log = context.config.awcp_home()?.join("logs").join("daemon.log");
    let failure = CommandFailure::failed(errors::daemon_mute());
    Err(failure.hint(errors::see_log(log.display())))
}

/// What the daemon says about itself. `None` if it isn't running. One that is just stopping is waited for.
pub(crate) async fn health(client: &DaemonClient) -> Result<Option<DaemonHealth>, daemon::Error> {
    let asked = Instant::now();
    loop {
        match client.health().await {
            Ok(health) => return Ok(Some(health)),
            Err(daemon::Error::NotRunning { .. }) => return Ok(None),
            Err(daemon::Error::NoAnswer { .. }) if asked.elapsed() < STOP_TIMEOUT => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Stops a daemon, and waits until it is gone.
pub(crate) async fn stop(health: &DaemonHealth) -> Result<(), CommandFailure> {
    let pid = i32::try_from(health.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| CommandFailure::failed("the daemon didn't report its process id"))?;
    rustix::process::kill_process(pid, Signal::TERM)
        .map_err(|error| CommandFailure::failed(format!("can't signal the daemon: {error}")))?;
    let told = Instant::now();
    while !is_gone(pid) {
        if told.elapsed() > STOP_TIMEOUT {
            return Err(CommandFailure::failed("the daemon is taking too long to stop")
                .hint("Check $AWCP_HOME/logs/daemon.log."));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Whether a process has ended. One that this process started has to be waited for.
fn is_gone(pid: Pid) -> bool {
    matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(Some(_))) || rustix::process::test_kill_process(pid).is_err()
}

/// A client of the daemon, whether or not it is running.
pub(crate) fn client(context: &CommandContext) -> Result<DaemonClient, CommandFailure> {
    let socket = context.config.awcp_home()?.join(SOCKET);
    let length = socket.as_os_str().len();
    if length > MAX_SOCKET_PATH {
        return Err(CommandFailure::usage(format!(
            "the path {} has {length} bytes, but a socket path can have at most {MAX_SOCKET_PATH}",
            socket.display()
        ))
        .hint("Set AWCP_HOME to a folder with a shorter path."));
    }
    Ok(DaemonClient::at(socket)?)
}

/// Whether the daemon is running.
pub(crate) async fn is_running(context: &CommandContext) -> Result<bool, CommandFailure> {
    Ok(health(&client(context)?).await?.is_some())
}

/// Stops a daemon that was started only for a query, unless it has work by now.
pub(crate) async fn end_idle(context: &CommandContext) {
    let Ok(client) = client(context) else { return };
    let (Ok(health), Ok(all)) = (client.health().await, client.list().await) else { return };
    if all.iter().any(|delegation| !delegation.status.has_ended()) {
        return;
    }
    // If that fails, `attache daemon --stop` can still stop it.
    let _ = stop(&health).await;
}

/// Starts a daemon that outlives this process. If two processes do so at once, the second daemon finds the first and
/// exits.
fn start(context: &CommandContext) -> Result<(), CommandFailure> {
    let home = context.config.awcp_home()?;
    let logs = home.join("logs");
    for folder in [&home, &logs] {
        home::private_folder(folder).map_err(|error| CommandFailure::file("use the folder", folder, &error))?;
    }
    let path = logs.join("daemon.log");
    let log = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let log = log.map_err(|error| CommandFailure::file("write the log", &path, &error))?;
    let failed = |error: io::Error| CommandFailure::failed(errors::daemon_start(error));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["daemon", "--detached"]).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // Deliberately not waited for: it keeps serving later commands.
    command.spawn().map(drop).map_err(failed)
}

pub(crate) fn policy(context: &CommandContext) -> Result<PolicyFile, CommandFailure> {
    let path = context.config.awcp_home()?.join("policy.toml");
    Ok(PolicyFile::at(path, context.config.user_home.clone()))
}

impl From<PolicyChangeError> for CommandFailure {
    fn from(error: PolicyChangeError) -> Self {
        match &error {
            PolicyChangeError::NotThere { .. } => Self::new("not_found", exit::NOT_FOUND, error.to_string()),
            PolicyChangeError::Invalid(invalid) => {
                let line = invalid.line.map(|line| format!(", line {line}")).unwrap_or_default();
                let message = format!("{}{line}: {}", invalid.path.display(), invalid.what);
                Self::new("policy_invalid", exit::USAGE, message).hint(invalid.fix.clone())
            }
            PolicyChangeError::NotAUrl(_) => Self::usage(error.to_string()),
            PolicyChangeError::ByHand(_) => Self::new("policy_invalid", exit::FAILED, error.to_string()),
            PolicyChangeError::File(_) => Self::failed(error.to_string()),
        }
    }
}
