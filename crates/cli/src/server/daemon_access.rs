//! Access to the delegation daemon for commands: finds it or starts it, and opens its policy file.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    process::{Command, Stdio},
    time::Duration,
};

use attache_client::daemon::{self, DaemonClient};
use attache_delegation::{
    awcp_policy::{PolicyChangeError, PolicyFile},
    delegator::{MAX_SOCKET_PATH, SOCKET},
};
use attache_protocol::error::exit;

use crate::{
    env::{context::CommandContext, home},
    ui::failure::CommandFailure,
};

/// Maximum time for a new daemon to answer.
const START_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A client of the daemon; starts the daemon if it isn't running.
pub(crate) async fn daemon(context: &CommandContext) -> Result<DaemonClient, CommandFailure> {
    let client = client(context)?;
    match client.health().await {
        Err(daemon::Error::NotRunning { .. }) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Ok(client),
    }
    start(context)?;
    let mut waited = Duration::ZERO;
    loop {
        match client.health().await {
            Ok(_) => return Ok(client),
            Err(daemon::Error::NotRunning { .. }) if waited < START_TIMEOUT => {
                tokio::time::sleep(POLL_INTERVAL).await;
                waited += POLL_INTERVAL;
            }
            Err(error) => {
                let failure = CommandFailure::from(error);
                let log = context.config.awcp_home()?.join("logs").join("daemon.log");
                return Err(
                    failure.hint(format!("The daemon was started but doesn't answer. See its log: {}", log.display()))
                );
            }
        }
    }
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
    match client(context)?.health().await {
        Ok(_) => Ok(true),
        Err(daemon::Error::NotRunning { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Stops a daemon that was started only for a query, unless it has work by now.
pub(crate) async fn end_idle(context: &CommandContext) {
    let Ok(client) = client(context) else { return };
    let (Ok(health), Ok(all)) = (client.health().await, client.list().await) else { return };
    if all.iter().any(|delegation| !delegation.status.has_ended()) {
        return;
    }
    if let Some(pid) = i32::try_from(health.pid).ok().and_then(rustix::process::Pid::from_raw) {
        // If the signal fails, `attache daemon --stop` can still stop it.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
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
    let failed = |error: io::Error| CommandFailure::failed(format!("can't start the daemon: {error}"));
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
