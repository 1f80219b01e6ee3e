//! One of our servers in its own process, which ends with the benchmark.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use attache_protocol::Secret;
use serde::Deserialize;

use super::BenchResult;

const READY_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct ServerProcess {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub(super) url: String,
    /// The owner's key.
    pub(super) key: Secret<String>,
    pub(super) ready_after: Duration,
}

#[derive(Deserialize)]
struct ServerReadyFile {
    url: String,
}

// === impl ServerProcess ===

impl ServerProcess {
    /// Starts `attache up` or `attache hub` with its own home folder.
    pub(super) async fn start(command: &str, home: &Path) -> BenchResult<Self> {
        let file = home.join("ready.json");
        let begin = Instant::now();
        let mut child = Command::new(std::env::current_exe()?)
            .args([command, "--listen", "127.0.0.1:0", "--ready-file"])
            .arg(&file)
            .env("A2A_HOME", home.join("home"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        while !file.exists() {
            if let Some(status) = child.try_wait()? {
                return Err(format!("`attache {command}` exited early: {status}").into());
            }
            if begin.elapsed() > READY_TIMEOUT {
                let _ = child.kill();
                return Err(format!("`attache {command}` did not become ready").into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let ready_after = begin.elapsed();
        let ServerReadyFile { url, .. } = serde_json::from_slice(&std::fs::read(&file)?)?;
        let key = std::fs::read_to_string(home.join("home/hub/admin.key"))?;
        Ok(Self { child, url, key: Secret::new(key.trim().to_owned()), ready_after })
    }

    pub(super) fn resident_kib(&self) -> BenchResult<f64> {
        let resident = attache_os::machine::resident_kib(self.child.id());
        Ok(resident.ok_or("this system doesn't tell how much memory a process uses")? as f64)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
