//! `attache bench workspace`: a lease under stock sshfs beside OpenSSH's own server under the same sshfs.

use std::path::PathBuf;

use attache_protocol::Json;
use attache_workspace::bench::{self, BenchRatio};

use super::{BenchResult, FiguresFormat, world::BenchFolder};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Both are measured one after the other, this many times; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The size of the file that is written, and of the one that is read
    #[arg(long, default_value_t = 128)]
    megabytes: usize,
    /// How many small files are made, read and looked at
    #[arg(long, default_value_t = 500)]
    files: usize,
    /// Where the folders are made; use the disk that would be lent
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[allow(clippy::print_stdout, reason = "the report is the command's output")]
pub(super) async fn run(args: Args, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = BenchFolder::make(args.dir.as_deref())?;
    let Args { rounds, megabytes, files, .. } = args;
    let options = bench::Options { dir: scratch.folder("workspace", 0)?, rounds, megabytes, files };
    let runtime = tokio::runtime::Handle::current();
    let report = tokio::task::spawn_blocking(move || bench::run(&options, &runtime)).await??;
    if shape == FiguresFormat::Json {
        println!("{}", Json::of(&report).get());
        return Ok(());
    }
    println!("stock sshfs, {rounds} rounds side by side, medians; {megabytes} MB files, {files} files of 4 KB");
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
    println!("revoke to an error in a program that writes: {median:.1} ms, at worst {worst:.1} ms");
    Ok(())
}
