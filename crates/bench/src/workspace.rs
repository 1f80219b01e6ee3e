//! `attache bench workspace`: a lease under stock sshfs compared with OpenSSH's own server under the same sshfs.

use std::{path::PathBuf, time::Duration};

use crate::lease::{self, BenchRatio};
use attache_protocol::Json;

use super::{BenchResult, FiguresFormat, world::BenchFolder};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Number of rounds, both sides one after the other; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Size in megabytes of the file that is written, and of the one that is read
    #[arg(long, default_value_t = 128)]
    megabytes: usize,
    /// Number of small files that are created, read and listed
    #[arg(long, default_value_t = 500)]
    files: usize,
    /// Latency of the link in milliseconds, there and back
    #[arg(long, default_value_t = 0, value_name = "MS")]
    rtt: u64,
    /// Folder for the test data; use the disk that you would delegate from
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[allow(clippy::print_stdout, reason = "the report is the command's output")]
pub(super) async fn run(args: Args, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = BenchFolder::make(args.dir.as_deref())?;
    let Args { rounds, megabytes, files, rtt, .. } = args;
    let options = lease::Options {
        dir: scratch.folder("workspace", 0)?,
        rounds,
        megabytes,
        files,
        round_trip: Duration::from_millis(rtt),
    };
    let runtime = tokio::runtime::Handle::current();
    let report = tokio::task::spawn_blocking(move || lease::run(&options, &runtime)).await??;
    if shape == FiguresFormat::Json {
        println!("{}", Json::of(&report).get());
        return Ok(());
    }
    println!(
        "stock sshfs, {rounds} rounds side by side, medians; {megabytes} MB files, {files} files of 4 KB, {rtt} ms away"
    );
    println!("{:<26} {:>10} {:>10} {:>8}", "", "ours", "OpenSSH", "ratio");
    for (name, BenchRatio { ours, openssh, ratio }) in [
        ("write, MB/s", report.write_mb_per_second),
        ("read, MB/s", report.read_mb_per_second),
        ("create + write 4 KB, /s", report.creates_per_second),
        ("open + read 4 KB, /s", report.opens_per_second),
        ("stat, /s", report.stats_per_second),
    ] {
        println!("{name:<26} {ours:>10.0} {openssh:>10.0} {ratio:>8.2}");
    }
    let (median, worst) = (report.revoke_to_error_ms, report.revoke_to_error_worst_ms);
    println!("revoke to error in a writing program: {median:.1} ms, at worst {worst:.1} ms");
    Ok(())
}
