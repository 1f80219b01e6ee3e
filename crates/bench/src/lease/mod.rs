//! Compares a lease under stock sshfs with OpenSSH's server under the same sshfs, side by side in one run.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use attache_protocol::{env::Env, wire::awcp::AccessMode};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

mod delay_line;
mod measure;
mod memory;
pub mod openssh;
pub mod transports;

use self::{
    measure::{MeasureSize, MountFigures, measure, prepare, write_until_it_fails},
    openssh::{SshLogin, SshdProcess},
};
use attache_workspace::{
    export::{Export, ExportTerms, NoExportAudit, OriginalsFolder},
    ssh::{HostKey, LeaseAccess, LeaseAdmission, SshServer, make_key},
};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// An empty folder for all test data.
    pub dir: PathBuf,
    pub rounds: usize,
    /// The size of the big files.
    pub megabytes: usize,
    /// The number of small files.
    pub files: usize,
    /// The latency of the link, there and back.
    pub round_trip: Duration,
}

#[derive(Debug, Clone, Serialize)]
pub struct WorkspaceBenchReport {
    pub rounds: usize,
    pub round_trip_ms: u128,
    pub write_mb_per_second: BenchRatio,
    pub read_mb_per_second: BenchRatio,
    pub creates_per_second: BenchRatio,
    pub opens_per_second: BenchRatio,
    pub stats_per_second: BenchRatio,
    /// From the call that ends a lease to the error in a writing program: median and maximum.
    pub revoke_to_error_ms: f64,
    pub revoke_to_error_worst_ms: f64,
}

/// Medians over the rounds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct BenchRatio {
    pub ours: f64,
    pub openssh: f64,
    /// The median of the per-round ratios, ours to OpenSSH's: load from other processes affects both sides of a round.
    pub ratio: f64,
}

/// The way to the server.
#[derive(Clone, Copy)]
struct SimulatedLink<'a> {
    runtime: &'a tokio::runtime::Handle,
    round_trip: Duration,
}

const LOCATOR: &str = "bench";
/// How long a program can keep writing after the lease ended.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Measures, and blocks until done. Must be called within a runtime, which serves the lease.
pub fn run(options: &Options, runtime: &tokio::runtime::Handle) -> io::Result<WorkspaceBenchReport> {
    if let Some(missing) = openssh::missing().first() {
        return Err(io::Error::other(format!("this needs {missing}")));
    }
    let amount = MeasureSize { megabytes: options.megabytes, files: options.files };
    let link = SimulatedLink { runtime, round_trip: options.round_trip };
    let (mut ours, mut theirs, mut cuts) = (vec![], vec![], vec![]);
    for round in 0..options.rounds {
        let dir = options.dir.join(format!("round-{round}"));
        // The first one in a round finds the machine in a different state, so the order alternates.
        let sides: [bool; 2] = if round % 2 == 0 { [true, false] } else { [false, true] };
        for is_ours in sides {
            if is_ours {
                let (figures, cut) = measure_ours(&dir.join("ours"), amount, link)?;
                ours.push(figures);
                cuts.push(cut.as_secs_f64() * 1000.0);
            } else {
                theirs.push(measure_openssh(&dir.join("openssh"), amount, link)?);
            }
        }
        let _ = std::fs::remove_dir_all(&dir);
    }
    let compared = |figure: fn(&MountFigures) -> f64| BenchRatio {
        ours: median(ours.iter().map(figure)),
        openssh: median(theirs.iter().map(figure)),
        ratio: median(ours.iter().zip(&theirs).map(|(ours, theirs)| figure(ours) / figure(theirs))),
    };
    Ok(WorkspaceBenchReport {
        rounds: options.rounds,
        round_trip_ms: options.round_trip.as_millis(),
        write_mb_per_second: compared(|figures| figures.write),
        read_mb_per_second: compared(|figures| figures.read),
        creates_per_second: compared(|figures| figures.create),
        opens_per_second: compared(|figures| figures.open),
        stats_per_second: compared(|figures| figures.stat),
        revoke_to_error_ms: median(cuts.iter().copied()),
        revoke_to_error_worst_ms: cuts.iter().copied().fold(0.0, f64::max),
    })
}

fn measure_openssh(dir: &Path, amount: MeasureSize, link: SimulatedLink<'_>) -> io::Result<MountFigures> {
    let host = folder(dir, "host")?;
    prepare(&host, amount)?;
    let sshd = SshdProcess::start(dir, &Env::system())?;
    let path = host.to_str().ok_or_else(|| io::Error::other("choose a folder whose path is UTF-8"))?;
    let stop = CancellationToken::new();
    let _stop_at_the_end = stop.clone().drop_guard();
    let mounted = link.delay(sshd.login.clone(), &stop)?.write(dir)?.mount(path, &dir.join("mounted"), &[])?;
    measure(&mounted.mount_point, amount)
}

fn measure_ours(dir: &Path, amount: MeasureSize, link: SimulatedLink<'_>) -> io::Result<(MountFigures, Duration)> {
    let host = folder(dir, "host")?;
    prepare(&host, amount)?;
    let stop = CancellationToken::new();
    let _stop_at_the_end = stop.clone().drop_guard();
    let (login, admission) = admit_lease(dir, &host, link.runtime, stop.clone())?;
    let login = link.delay(login, &stop)?;
    let path = format!("/{LOCATOR}");
    let mounted = login.write(dir)?.mount(&path, &dir.join("mounted"), &["reconnect"])?;
    let figures = measure(&mounted.mount_point, amount)?;
    let mount_point = mounted.mount_point.clone();
    let writer = std::thread::spawn(move || write_until_it_fails(&mount_point, REVOKE_TIMEOUT));
    // After a delay: the writer must be in the middle of its work.
    std::thread::sleep(Duration::from_millis(200));
    let revoked = Instant::now();
    admission.revoke();
    let failed = writer.join().map_err(|_| io::Error::other("the writer panicked"))??;
    Ok((figures, failed.duration_since(revoked)))
}

fn admit_lease(
    dir: &Path,
    host: &Path,
    runtime: &tokio::runtime::Handle,
    stop: CancellationToken,
) -> io::Result<(SshLogin, LeaseAdmission)> {
    let env = Env::system();
    let (host_key, key) = (HostKey::generate(&env), make_key(&env));
    let export = Export::open(
        host,
        ExportTerms::new(AccessMode::Rw),
        OriginalsFolder::in_folder(dir.join("before")),
        Arc::new(NoExportAudit),
    );
    let export = Arc::new(export.map_err(io::Error::other)?);
    let server = SshServer::new(&host_key);
    let pass = LeaseAccess { key: key.public, locator: LOCATOR.to_owned(), export };
    let admission = server.admit(pass).map_err(io::Error::other)?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let port = listener.local_addr()?.port();
    runtime.spawn(async move { server.listen(listener, stop).await });
    let user = "lease".to_owned();
    Ok((SshLogin { port, user, host_key: host_key.public_openssh(), private_key: key.private }, admission))
}

// === impl SimulatedLink ===

impl SimulatedLink<'_> {
    /// The same server, behind the latency of this link.
    fn delay(self, login: SshLogin, stop: &CancellationToken) -> io::Result<SshLogin> {
        if self.round_trip.is_zero() {
            return Ok(login);
        }
        let port = self.runtime.block_on(delay_line::listen(login.port, self.round_trip, stop.clone()))?;
        Ok(SshLogin { port, ..login })
    }
}

fn folder(dir: &Path, name: &str) -> io::Result<PathBuf> {
    let folder = dir.join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
