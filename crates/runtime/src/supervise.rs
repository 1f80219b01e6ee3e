//! Supervises an adapter as a child process: starts it, restarts it when it dies, and ends it by closing its stdin.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use attache_client::Backoff;
use attache_protocol::{Secret, env::Env, wire::system::ReadyFile};
use tokio::{
    process::{Child, ChildStdin, Command},
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{Error, RuntimeNotice, adapter::Endpoint, link::HubLink};

/// How to start an adapter. The arguments already tell it to write `ready_file`, to exit when its stdin closes, and
/// where its instruction file is.
#[derive(Debug, Clone)]
pub struct AdapterCommand {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Its complete environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The file in which the adapter announces its address: `{"url":"http://127.0.0.1:PORT"}`. No other process may use
    /// it, not even an earlier runtime of the same profile, whose adapter may still be starting.
    pub ready_file: PathBuf,
}

/// Keeps one adapter running until it is ended.
#[derive(Debug)]
pub(crate) struct AdapterSupervisor {
    endpoint: watch::Receiver<Option<Endpoint>>,
    /// Dropping it ends the adapter, even if nothing waits for that.
    end: DropGuard,
    task: JoinHandle<()>,
}

/// The pipe is kept apart from the process, because waiting for a process closes its pipes.
struct AdapterProcess {
    child: Child,
    stdin: Option<ChildStdin>,
}

struct SupervisorTask {
    command: AdapterCommand,
    home: PathBuf,
    env: Env,
    link: HubLink,
    endpoint: watch::Sender<Option<Endpoint>>,
    end: CancellationToken,
}

const READY_TIMEOUT: Duration = Duration::from_secs(20);
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// An adapter that ran this long is not in a crash loop.
const STABLE_UPTIME: Duration = Duration::from_secs(30);

// === impl AdapterSupervisor ===

impl AdapterSupervisor {
    /// Starts the adapter and returns once it listens. The first start must succeed.
    pub(crate) async fn start(command: AdapterCommand, home: &Path, env: Env, link: HubLink) -> Result<Self, Error> {
        let (endpoint, seen) = watch::channel(None);
        let end = CancellationToken::new();
        let supervisor = SupervisorTask { command, home: home.to_owned(), env, link, endpoint, end: end.clone() };
        let process = supervisor.launch().await?;
        Ok(Self { endpoint: seen, end: end.drop_guard(), task: tokio::spawn(supervisor.supervise(process)) })
    }

    pub(crate) fn endpoint(&self) -> watch::Receiver<Option<Endpoint>> {
        self.endpoint.clone()
    }

    pub(crate) async fn end(self) {
        drop(self.end);
        if self.task.await.is_err() {
            tracing::error!("the adapter's supervisor stopped unexpectedly");
        }
    }
}

// === impl SupervisorTask ===

impl SupervisorTask {
    async fn supervise(self, mut process: AdapterProcess) {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
        let mut since = Instant::now();
        loop {
            let status = tokio::select! {
                status = process.child.wait() => status,
                () = self.end.cancelled() => return end(process).await,
            };
            let reason = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            self.endpoint.send_replace(None);
            self.link.notify(&RuntimeNotice::AdapterAway { reason: format!("it stopped ({reason})") });
            if since.elapsed() > STABLE_UPTIME {
                backoff.reset();
            }
            process = loop {
                tokio::select! {
                    () = tokio::time::sleep(backoff.next(&self.env)) => {}
                    () = self.end.cancelled() => return,
                }
                match self.launch().await {
                    Ok(process) => break process,
                    Err(error) => tracing::warn!(%error, "failed to start the adapter; trying again"),
                }
            };
            since = Instant::now();
        }
    }

    async fn launch(&self) -> Result<AdapterProcess, Error> {
        let failed = |reason: String| Error::Adapter { program: self.command.program.display().to_string(), reason };
        let ready_file = &self.command.ready_file;
        match fs::remove_file(ready_file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io(ready_file)(error)),
            _ => {}
        }
        let mut child = Command::new(&self.command.program)
            .args(&self.command.arguments)
            .env_clear()
            .envs(self.command.environment.iter().map(|(name, value)| (name, value)))
            // Open for as long as this process lives. When it closes, the adapter knows that its parent is gone.
            .stdin(Stdio::piped())
            // A signal to the runtime's group must not reach the adapter: the current task may finish first.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let stdin = child.stdin.take();
        let listening = timeout(READY_TIMEOUT, async {
            loop {
                if let Some(ReadyFile { url, .. }) =
                    fs::read(ready_file).ok().and_then(|text| serde_json::from_slice(&text).ok())
                {
                    return Ok(url);
                }
                tokio::select! {
                    status = child.wait() => {
                        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                        return Err(format!("it exited immediately ({status})"));
                    }
                    () = tokio::time::sleep(Duration::from_millis(10)) => {}
                }
            }
        });
        let url = match listening.await {
            Ok(Ok(url)) => url,
            Ok(Err(reason)) => return Err(failed(reason)),
            Err(_) => {
                return Err(failed(format!("it did not start listening within {} seconds", READY_TIMEOUT.as_secs())));
            }
        };
        let _ = fs::remove_file(ready_file);
        let secret = read_secret(&self.home, &url)?;
        self.link.notify(&RuntimeNotice::AdapterReady { endpoint: url.clone() });
        self.endpoint.send_replace(Some(Endpoint { url, secret }));
        Ok(AdapterProcess { child, stdin })
    }
}

/// The secret that an adapter in this home folder wrote for its endpoint. `None` if the adapter requires none.
pub fn read_secret(home: &Path, endpoint: &str) -> Result<Option<Secret<String>>, Error> {
    let Some(name) = secret_name(endpoint) else { return Ok(None) };
    let path = home.join("adapters").join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(Secret::new(text.trim().to_owned()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path)(error)),
    }
}

/// `127.0.0.1_7801` for `http://127.0.0.1:7801`.
fn secret_name(endpoint: &str) -> Option<String> {
    let url = reqwest::Url::parse(endpoint).ok()?;
    Some(format!("{}_{}", url.host_str()?, url.port_or_known_default()?))
}

/// Closes the adapter's stdin and waits. Kills it if it doesn't exit.
async fn end(process: AdapterProcess) {
    let AdapterProcess { mut child, stdin } = process;
    drop(stdin);
    if timeout(EXIT_TIMEOUT, child.wait()).await.is_err() {
        tracing::warn!("the adapter did not exit; killing it");
        if let Err(error) = child.kill().await {
            tracing::warn!(%error, "failed to kill the adapter");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_ready_file_is_read_once_and_removed() {
        let home = tempfile::tempdir().unwrap();
        let ready_file = home.path().join("ready");
        fs::write(&ready_file, r#"{"url":"http://127.0.0.1:1"}"#).unwrap();
        let script = format!(r#"echo '{{"url":"http://127.0.0.1:2"}}' > {}; exec cat"#, ready_file.display());
        let command = AdapterCommand {
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: std::env::vars_os().collect(),
            ready_file: ready_file.clone(),
        };
        let supervisor =
            AdapterSupervisor::start(command, home.path(), Env::seeded(1), HubLink::new(None)).await.unwrap();
        let endpoint = supervisor.endpoint().borrow().as_ref().map(|endpoint| endpoint.url.clone());
        assert_eq!((endpoint.as_deref(), ready_file.exists()), (Some("http://127.0.0.1:2"), false));
        supervisor.end().await;
    }

    #[test]
    fn a_secret_is_found_by_its_endpoint() {
        assert_eq!(secret_name("http://127.0.0.1:7801/"), Some("127.0.0.1_7801".to_owned()));
        assert_eq!(secret_name("http://localhost"), Some("localhost_80".to_owned()));
        assert_eq!(secret_name("nonsense"), None);
    }
}
