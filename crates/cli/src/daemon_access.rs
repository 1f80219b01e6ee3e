//! Access to the delegation daemon for commands: finds it or starts it, and edits its policy file.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    process::{Command, Stdio},
    time::Duration,
};

use attache_client::daemon::{self, DaemonClient};
use attache_delegation::{
    awcp_policy::{PolicyChange, PolicyChangeError, PolicyFile},
    delegator::{MAX_SOCKET_PATH, SOCKET},
};
use attache_protocol::{
    error::exit,
    rules::delegation::DelegationStatus,
    wire::{awcp::AwcpErrorCode, delegation::Delegation, output::OutputLocation},
};

use crate::{
    CommandContext, CommandFailure, home,
    output::{TextStyle, clean, time},
    prompt,
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

/// Asks the person at the terminal whether to change the policy, and changes it. `false` if no one can be asked.
pub(crate) fn ask_to_allow(
    context: &CommandContext,
    question: &str,
    change: &PolicyChange,
) -> Result<bool, CommandFailure> {
    match prompt::confirm(context, question)? {
        None => return Ok(false),
        Some(false) => {
            return Err(CommandFailure::new("denied", exit::DENIED, "not allowed; nothing was delegated"));
        }
        Some(true) => {}
    }
    let policy = policy(context)?;
    policy.change(change, &context.env)?;
    context.output.say_styled(TextStyle::Dim, format_args!("Added to {}.", policy.path().display()));
    Ok(true)
}

pub(crate) const fn style(status: DelegationStatus) -> TextStyle {
    match status {
        DelegationStatus::Completed => TextStyle::Good,
        DelegationStatus::Error | DelegationStatus::Expired => TextStyle::Bad,
        DelegationStatus::Started | DelegationStatus::Running => TextStyle::Busy,
        DelegationStatus::Created | DelegationStatus::Invited | DelegationStatus::Accepted => TextStyle::Plain,
        DelegationStatus::Cancelled => TextStyle::Dim,
    }
}

/// The result of a command that waited for this delegation: 0 completed, 4 declined by the remote, 124 expired, 1
/// otherwise.
pub(crate) fn verdict(delegation: &Delegation) -> Result<(), CommandFailure> {
    let failure = delegation.result.as_ref().and_then(|result| result.error.as_ref());
    let (code, exit) = match (delegation.status, failure.map(|failure| failure.code)) {
        (DelegationStatus::Completed, _) => return cut(delegation).map_or(Ok(()), Err),
        (DelegationStatus::Expired, Some(AwcpErrorCode::StartExpired)) => ("start_expired", exit::TIMED_OUT),
        (DelegationStatus::Expired, _) => ("expired", exit::TIMED_OUT),
        (DelegationStatus::Cancelled, _) => ("cancelled", exit::FAILED),
        (_, None) => ("failed", exit::FAILED),
        (_, Some(code)) => match code {
            AwcpErrorCode::Declined => ("declined", exit::DENIED),
            AwcpErrorCode::MountpointDenied => ("mountpoint_denied", exit::DENIED),
            AwcpErrorCode::AuthFailed => ("auth_failed", exit::DENIED),
            AwcpErrorCode::DepMissing => ("dep_missing", exit::FAILED),
            AwcpErrorCode::MountFailed => ("mount_failed", exit::FAILED),
            AwcpErrorCode::StartExpired => ("start_expired", exit::FAILED),
            AwcpErrorCode::Expired => ("expired", exit::FAILED),
            AwcpErrorCode::Cancelled => ("cancelled", exit::FAILED),
            AwcpErrorCode::TaskFailed => ("task_failed", exit::FAILED),
        },
    };
    Err(match failure {
        Some(failure) => {
            CommandFailure::new(code, exit, format!("{}: {}", failure.code, failure.message)).hint(failure.hint.clone())
        }
        None => CommandFailure::new(code, exit, format!("the delegation is {}", delegation.status)),
    })
}

/// The failure for a truncated output: how much is missing, and where the remote keeps the complete output.
fn cut(delegation: &Delegation) -> Option<CommandFailure> {
    let result = delegation.result.as_ref()?;
    let OutputLocation { bytes, artifact_id, task_run_id, lost } = result.full_output.as_ref()?;
    let here = time::size(result.final_summary.as_ref().map_or(0, String::len) as u64);
    let message = format!("the output is truncated: {here} of text, out of {} in total", time::size(*bytes));
    let failure = CommandFailure::new("output_cut", exit::FAILED, message);
    Some(match (artifact_id, lost) {
        (Some(artifact), _) => {
            let run = task_run_id.map(|run| format!(" of {run}")).unwrap_or_default();
            let remote = clean::line(&delegation.peer_url);
            failure.hint(format!(
                "The complete output is artifact {artifact}{run} at {remote}. With a key for that hub: attache artifacts get \
                 {artifact} --output FILE"
            ))
        }
        (None, Some(why)) => failure.hint(clean::line(why).into_owned()),
        (None, None) => failure.hint("The remote agent didn't keep the rest."),
    })
}

/// A one-line summary of changes to the folder.
pub(crate) fn changed(delegation: &Delegation) -> Option<String> {
    let changes = delegation.changes.as_ref()?;
    let stat = changes.diff_stat;
    Some(match stat.files_changed {
        0 => "No changes to the folder.".to_owned(),
        count => {
            let files = if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
            format!(
                "{files} changed, +{} −{} lines. See: attache delegations diff {}",
                stat.insertions, stat.deletions, delegation.delegation_id
            )
        }
    })
}
