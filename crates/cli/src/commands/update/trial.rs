//! Tries a program before it is trusted with anything: does it start, which version is it, does its hub become ready?

use std::{
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use attache_os::private_file;
use attache_protocol::{env::Env, wire::system::ReadyFile};
use tokio::process::{Child, Command};

use crate::env::config;

const VERSION_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The end of a program's messages that is shown.
const MAX_MESSAGE: usize = 400;

/// The version that a program prints.
pub(super) async fn version(program: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(VERSION_TIMEOUT, command.output()).await {
        Err(_) => return Err("it doesn't report its version".to_owned()),
        Ok(Err(error)) => return Err(format!("it doesn't start: {error}")),
        Ok(Ok(output)) => output,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().strip_prefix("attache ") {
        Some(version) if output.status.success() => Ok(version.to_owned()),
        _ => Err(format!("it doesn't report its version{}", end_of(&output))),
    }
}

/// Starts a hub on a free port of loopback with data of its own, waits until it is ready, and stops it.
pub(super) async fn readiness(program: &Path, timeout: Duration, env: &Env) -> Result<(), String> {
    let folder = config::temporary_folder().join(format!("attache-update-{}", env.uuid().simple()));
    private_file::folder(&folder).map_err(|error| format!("can't create {}: {error}", folder.display()))?;
    let tried = hub_becomes_ready(program, &folder, timeout).await;
    let _ = std::fs::remove_dir_all(&folder);
    tried
}

async fn hub_becomes_ready(program: &Path, folder: &Path, timeout: Duration) -> Result<(), String> {
    let ready = folder.join("ready");
    let mut command = Command::new(program);
    command.args(["hub", "--listen", "127.0.0.1:0", "--ready-file"]).arg(&ready).arg("--data").arg(folder.join("hub"));
    command.env("A2A_HOME", folder).env("AWCP_HOME", folder.join("awcp")).env_remove("NOTIFY_SOCKET");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("its hub doesn't start: {error}"))?;
    let waiting = wait_for_ready(&mut child, &ready);
    match tokio::time::timeout(timeout, waiting).await {
        Ok(Ok(())) => {}
        Ok(Err(())) => {
            let output = child.wait_with_output().await.map_err(|error| error.to_string())?;
            return Err(format!("its hub ended with {}{}", output.status, end_of(&output)));
        }
        Err(_) => return Err(format!("its hub wasn't ready after {} s", timeout.as_secs())),
    }
    stop(child).await
}

/// Err if the process ends first.
async fn wait_for_ready(child: &mut Child, file: &Path) -> Result<(), ()> {
    loop {
        let written = std::fs::read(file).ok().and_then(|text| serde_json::from_slice::<ReadyFile>(&text).ok());
        let address = written.as_ref().and_then(|ready| ready.url.strip_prefix("http://"));
        if let Some(address) = address
            && tokio::net::TcpStream::connect(address).await.is_ok()
        {
            return Ok(());
        }
        if !matches!(child.try_wait(), Ok(None)) {
            return Err(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn stop(mut child: Child) -> Result<(), String> {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(id) = id {
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
    }
    match tokio::time::timeout(STOP_TIMEOUT, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("its hub ended with {status}")),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("its hub didn't stop".to_owned()),
    }
}

/// The end of a program's output, after a colon.
fn end_of(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim();
    if text.is_empty() {
        return String::new();
    }
    let skipped = text.chars().count().saturating_sub(MAX_MESSAGE);
    format!(": {}", text.chars().skip(skipped).collect::<String>())
}
