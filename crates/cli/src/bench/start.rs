//! How soon `attache up` answers on a fresh machine, and what it holds in memory when nothing happens.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use attache_protocol::Json;
use serde::Serialize;

use super::{
    Result, Shape, StartArgs,
    report::{median, millis},
    world::Scratch,
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough for the local runtime to be attached and everything to be quiet.
const SETTLE: Duration = Duration::from_secs(3);

#[derive(Serialize)]
struct Figures {
    up_ready_ms: f64,
    idle_hub_mib: f64,
}

/// A process that ends with the benchmark.
struct Up(Child);

#[allow(clippy::print_stdout, reason = "the report is the command's output")]
pub(super) async fn run(args: StartArgs, shape: Shape) -> Result<()> {
    let scratch = Scratch::make(None)?;
    let mut ready = Vec::new();
    let mut resident = Vec::new();
    for round in 0..args.times {
        let folder = scratch.folder("up", round)?;
        let (up, took) = start("up", &folder).await?;
        ready.push(millis(took));
        drop(up);
        let (hub, _) = start("hub", &scratch.folder("hub", round)?).await?;
        tokio::time::sleep(SETTLE).await;
        resident.push(hub.resident_mib()?);
    }
    let (ready, resident) = (median(ready.into_iter()), median(resident.into_iter()));
    match shape {
        Shape::Json => println!("{}", Json::of(&Figures { up_ready_ms: ready, idle_hub_mib: resident }).get()),
        Shape::Table => {
            println!("`attache up` is ready after {ready:.0} ms (median of {})", args.times);
            println!("an idle hub holds {resident:.1} MiB");
        }
    }
    Ok(())
}

async fn start(command: &str, home: &Path) -> Result<(Up, Duration)> {
    let file = home.join("ready.json");
    let begin = Instant::now();
    let child = Command::new(std::env::current_exe()?)
        .args([command, "--listen", "127.0.0.1:0", "--ready-file"])
        .arg(&file)
        .env("A2A_HOME", home.join("home"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut up = Up(child);
    while !file.exists() {
        if let Some(status) = up.0.try_wait()? {
            return Err(format!("`attache {command}` ended early: {status}").into());
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("`attache {command}` did not become ready").into());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok((up, begin.elapsed()))
}

// === impl Up ===

impl Up {
    fn resident_mib(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no resident size in /proc")?;
        let kib: f64 = line.split_whitespace().nth(1).ok_or("no number in VmRSS")?.parse()?;
        Ok(kib / 1024.0)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
