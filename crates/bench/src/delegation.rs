//! The cost of delegating a folder: from the command to the first byte that the remote reads, through the hub's tunnel
//! compared with a direct connection, and from cancellation to the remote's first failed write. Uses real processes and
//! a real sshfs mount.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use attache_protocol::{Json, env::Env, rules::delegation::DelegationStatus, wire::delegation::Delegation};
use serde::Serialize;

use super::{
    BenchResult, FiguresFormat,
    machine::{self, BenchMachine, text},
    report::{median, millis},
    server_process::ServerProcess,
    world::BenchFolder,
};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Number of measurements per figure; the median is reported
    #[arg(long, default_value_t = 5)]
    times: usize,
    /// Megabytes to write and read back for the throughput
    #[arg(long, default_value_t = 64)]
    megabytes: u64,
    /// Folder for the test data
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The delegating machine, and how it is reached.
struct DelegatingMachine<'a> {
    machine: BenchMachine,
    folder: PathBuf,
    peer: &'a str,
}

#[derive(Serialize)]
struct DelegationFigures {
    direct: RouteFigures,
    tunnel: RouteFigures,
    tunnel_write_of_direct: f64,
    tunnel_read_of_direct: f64,
}

#[derive(Serialize)]
struct RouteFigures {
    first_byte_ms: f64,
    write_mb_per_second: f64,
    read_mb_per_second: f64,
    revoked_ms: f64,
}

const DELEGATION_TIMEOUT: Duration = Duration::from_secs(60);

#[allow(clippy::print_stdout, reason = "the report is the command's output")]
pub(super) async fn run(args: Args, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = BenchFolder::make(args.dir.as_deref())?;
    let (hub, key) = machine::hub(&scratch).await?;
    let remote = remote(&hub, &key, scratch.folder("remote", 0)?)?;
    let peer = format!("{}/a2a/builder", hub.url);
    let host = |reach: &str| DelegatingMachine::start(scratch.folder(reach, 0)?, &peer, &key, reach);
    let (direct, tunnel) = (host("direct")?, host("tunnel")?);
    let (mut straight, mut through) = (Vec::new(), Vec::new());
    for round in 0..args.times {
        straight.push(direct.measure(args.megabytes)?);
        through.push(tunnel.measure(args.megabytes)?);
        eprintln!("round {} of {} done", round + 1, args.times);
    }
    drop(remote);
    // The median of the per-round ratios: load from other processes affects both sides of a round.
    let of_direct = |figure: fn(&RouteFigures) -> f64| {
        median(straight.iter().zip(&through).map(|(direct, tunnel)| figure(tunnel) / figure(direct)))
    };
    let figures = DelegationFigures {
        tunnel_write_of_direct: of_direct(|way| way.write_mb_per_second),
        tunnel_read_of_direct: of_direct(|way| way.read_mb_per_second),
        direct: RouteFigures::median(&straight),
        tunnel: RouteFigures::median(&through),
    };
    match shape {
        FiguresFormat::Json => println!("{}", Json::of(&figures).get()),
        FiguresFormat::Table => figures.print(args.times),
    }
    Ok(())
}

/// A device with the shell agent that accepts folders.
fn remote(hub: &ServerProcess, key: &Path, home: PathBuf) -> BenchResult<BenchMachine> {
    let mut machine = BenchMachine::new(home);
    machine.policy("[collaborator]\nenabled = true\n")?;
    machine.serve(hub, key, "builder", &[])?;
    Ok(machine)
}

// === impl DelegatingMachine ===

impl<'a> DelegatingMachine<'a> {
    fn start(home: PathBuf, peer: &'a str, key: &Path, reach: &str) -> BenchResult<Self> {
        let folder = home.join("folder");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("probe"), "here\n")?;
        let mut machine = BenchMachine::new(home);
        machine.policy(&format!(
            "[delegator]\nroots = [{:?}]\n\n[[delegator.peers]]\nurl = {peer:?}\nkey_file = {:?}\nreach = {reach:?}\n",
            text(&folder)?,
            text(key)?,
        ))?;
        machine.run(&["daemon"])?;
        Ok(Self { machine, folder, peer })
    }

    fn measure(&self, megabytes: u64) -> BenchResult<RouteFigures> {
        let started = unix_nanos();
        let read = self.delegate("cat probe > /dev/null; date +%s%N")?;
        let first_byte = numbers(&self.ended(&read)?)?.first().copied().ok_or("the remote printed no time")?;
        let copy = format!(
            "date +%s%N; dd if=/dev/zero of=big bs=1M count={megabytes} conv=fsync status=none; date +%s%N; \
             dd if=big of=/dev/null bs=1M status=none; date +%s%N; rm big"
        );
        let copied = self.delegate(&copy)?;
        let [start, written, read] = numbers(&self.ended(&copied)?)?[..] else { return Err("three times".into()) };
        let rate = |nanos: i128| megabytes as f64 / (nanos as f64 / 1e9);
        Ok(RouteFigures {
            first_byte_ms: (first_byte - started) as f64 / 1e6,
            write_mb_per_second: rate(written - start),
            read_mb_per_second: rate(read - written),
            revoked_ms: self.revoke()?,
        })
    }

    /// From `attache delegations cancel` to the remote's first failed write.
    fn revoke(&self) -> BenchResult<f64> {
        let marker = self.machine.home.join("stopped");
        let _ = std::fs::remove_file(&marker);
        // It ignores SIGTERM, so that it sees the failed write before the task's processes are killed.
        let writes = "while echo x >> log; do :; done 2> /dev/null; date +%s%N";
        let script = format!("trap '' TERM; sh -c '{writes} > {}'", text(&marker)?);
        let id = self.delegate(&script)?;
        let log = self.folder.join("log");
        wait_for("the remote to write", || std::fs::metadata(&log).is_ok_and(|found| found.len() > 100))?;
        let started = unix_nanos();
        self.machine.attache(&["delegations", "cancel", &id])?;
        wait_for("the remote to stop", || std::fs::read(&marker).is_ok_and(|text| text.ends_with(b"\n")))?;
        let stopped = numbers(&std::fs::read_to_string(&marker)?)?[0];
        let _ = std::fs::remove_file(log);
        Ok((stopped - started) as f64 / 1e6)
    }

    fn delegate(&self, script: &str) -> BenchResult<String> {
        let folder = text(&self.folder)?;
        let args = ["delegate", folder, "--to", self.peer, "--background", "--json", script];
        let delegation: Delegation = serde_json::from_slice(&self.machine.attache(&args)?.stdout)?;
        Ok(delegation.delegation_id.to_string())
    }

    /// The remote's final summary.
    fn ended(&self, id: &str) -> BenchResult<String> {
        let started = Instant::now();
        while started.elapsed() < DELEGATION_TIMEOUT {
            let shown = self.machine.attache(&["delegations", "show", id, "--json"])?;
            let shown: Delegation = serde_json::from_slice(&shown.stdout)?;
            if shown.status == DelegationStatus::Completed {
                return Ok(shown.result.and_then(|result| result.final_summary).unwrap_or_default());
            }
            if shown.status.has_ended() {
                return Err(format!("the delegation ended as {}: {:?}", shown.status, shown.result).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("the delegation did not end".into())
    }
}

// === impl RouteFigures ===

impl RouteFigures {
    fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure));
        Self {
            first_byte_ms: of(|route| route.first_byte_ms),
            write_mb_per_second: of(|route| route.write_mb_per_second),
            read_mb_per_second: of(|route| route.read_mb_per_second),
            revoked_ms: of(|route| route.revoked_ms),
        }
    }
}

// === impl DelegationFigures ===

impl DelegationFigures {
    #[allow(clippy::print_stdout, reason = "the report is the command's output")]
    fn print(&self, times: usize) {
        println!("{times} rounds, medians; one sshfs mount after the other, all on this machine");
        println!(
            "{:<10} {:>18} {:>12} {:>12} {:>22}",
            "", "first byte, ms", "write MB/s", "read MB/s", "cancel to EIO, ms"
        );
        for (name, route) in [("direct", &self.direct), ("tunnel", &self.tunnel)] {
            println!(
                "{name:<10} {:>18.0} {:>12.0} {:>12.0} {:>22.0}",
                route.first_byte_ms, route.write_mb_per_second, route.read_mb_per_second, route.revoked_ms
            );
        }
        println!(
            "tunnel compared with direct: {:.2} of the write rate, {:.2} of the read rate",
            self.tunnel_write_of_direct, self.tunnel_read_of_direct
        );
    }
}

fn numbers(text: &str) -> BenchResult<Vec<i128>> {
    text.split_whitespace().map(|word| Ok(word.parse::<i128>()?)).collect()
}

fn unix_nanos() -> i128 {
    i128::from(Env::system().now().millis()) * 1_000_000
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) -> BenchResult<()> {
    let started = Instant::now();
    while !is_so() {
        if started.elapsed() > DELEGATION_TIMEOUT {
            return Err(format!("waited {:.0} ms for {what}", millis(started.elapsed())).into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
