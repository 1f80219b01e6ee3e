//! A machine in a benchmark: its own home folder, and our processes that run there until the end.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde::Deserialize;

use super::{BenchResult, server_process::ServerProcess, world::BenchFolder};

pub(super) struct BenchMachine {
    pub(super) home: PathBuf,
    running: Option<Child>,
}

#[derive(Deserialize)]
struct PairingCodeOutput {
    pairing_code: String,
}

const MACHINE_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a hub. Returns it with a file that contains its owner's key.
pub(super) async fn hub(scratch: &BenchFolder) -> BenchResult<(ServerProcess, PathBuf)> {
    let hub = ServerProcess::start("hub", &scratch.folder("hub", 0)?).await?;
    let key = scratch.folder("key", 0)?.join("key");
    std::fs::write(&key, hub.key.expose())?;
    Ok((hub, key))
}

// === impl BenchMachine ===

impl BenchMachine {
    pub(super) const fn new(home: PathBuf) -> Self {
        Self { home, running: None }
    }

    /// Pairs as a device of a new agent, with additional arguments for `runtime pair`, and starts working.
    pub(super) fn serve(&mut self, hub: &ServerProcess, key: &Path, agent: &str, pair: &[&str]) -> BenchResult<()> {
        let at_hub = ["--hub", &hub.url, "--key-file", text(key)?];
        self.attache(&[&["agents", "add", agent], &at_hub[..]].concat())?;
        let code = self.attache(&[&["agents", "code", agent, "--json"], &at_hub[..]].concat())?;
        let PairingCodeOutput { pairing_code } = serde_json::from_slice(&code.stdout)?;
        self.attache(&[&["runtime", "pair", &pairing_code, "--api-base", &hub.url], pair].concat())?;
        self.run(&["runtime", "start"])
    }

    fn command(&self, args: &[&str]) -> BenchResult<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).env("A2A_HOME", self.home.join("a2a")).env("AWCP_HOME", self.home.join("awcp"));
        command.stdin(Stdio::null());
        Ok(command)
    }

    pub(super) fn policy(&self, policy: &str) -> BenchResult<()> {
        std::fs::create_dir_all(self.home.join("awcp"))?;
        Ok(std::fs::write(self.home.join("awcp/policy.toml"), policy)?)
    }

    /// Runs `attache …` to completion.
    pub(super) fn attache(&self, args: &[&str]) -> BenchResult<Output> {
        let output = self.command(args)?.output()?;
        if output.status.success() {
            return Ok(output);
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(format!("`attache {}` failed: {stderr}", args.join(" ")).into())
    }

    /// Starts `attache …` and waits until it is ready.
    pub(super) fn run(&mut self, args: &[&str]) -> BenchResult<()> {
        let file = self.home.join("ready.json");
        let mut command = self.command(args)?;
        command.arg("--ready-file").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        let child = self.running.insert(command.spawn()?);
        while !file.exists() {
            if let Some(status) = child.try_wait()? {
                return Err(format!("`attache {}` ended early: {status}", args.join(" ")).into());
            }
            if begun.elapsed() > MACHINE_TIMEOUT {
                return Err(format!("`attache {}` did not become ready", args.join(" ")).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for BenchMachine {
    fn drop(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(super) fn text(path: &Path) -> BenchResult<&str> {
    path.to_str().ok_or_else(|| "a path is not UTF-8".into())
}
