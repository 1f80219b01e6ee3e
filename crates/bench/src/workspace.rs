//! `attache bench workspace`: a lease under stock sshfs compared with OpenSSH's own server under the same sshfs, or, with
//! several latencies, the transports of a lease compared with each other.

use std::{path::PathBuf, time::Duration};

use crate::lease::{
    self, BenchRatio,
    transports::{TransportOptions, compare},
};
use attache_protocol::{Json, wire::awcp::TransportChoice};
use attache_workspace::mount::{GuardCommand, MountTransport};

use super::{BenchResult, FiguresFormat, world::BenchFolder};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Number of rounds, both sides one after the other; the median is reported
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Size in megabytes of the file that is written, and of the one that is read
    #[arg(long, default_value_t = 128)]
    megabytes: usize,
    /// Number of small files that are created, read and listed
    #[arg(long, default_value_t = 500)]
    files: usize,
    /// Latency of the link in milliseconds, there and back
    #[arg(long, default_value_t = 0, value_name = "MS", conflicts_with = "rtt")]
    openssh_rtt: u64,
    /// Compare the transports with each other at these latencies, instead of comparing with OpenSSH
    #[arg(long, value_name = "MS,…", value_delimiter = ',')]
    rtt: Vec<u64>,
    /// Only this transport, with --rtt; repeatable
    #[arg(long, value_name = "attache-fs|sshfs", requires = "rtt", value_parser = transport)]
    transport: Vec<TransportChoice>,
    /// Give up a step after so many seconds, with --rtt
    #[arg(long, default_value_t = 60, value_name = "SECONDS", requires = "rtt")]
    limit: u64,
    /// Folder for the test data; use the disk that you would delegate from
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

fn transport(text: &str) -> Result<TransportChoice, String> {
    TransportChoice::from_text(text).ok_or_else(|| format!("it must be one of {}", TransportChoice::CHOICES))
}

#[allow(clippy::print_stdout, reason = "the report is the command's output")]
pub(super) async fn run(args: Args, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = BenchFolder::make(args.dir.as_deref())?;
    if !args.rtt.is_empty() {
        return compare_transports(args, scratch.folder("workspace", 0)?, shape).await;
    }
    let Args { rounds, megabytes, files, openssh_rtt: rtt, .. } = args;
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

#[allow(clippy::print_stdout, reason = "the report is the command's output")]
async fn compare_transports(args: Args, dir: PathBuf, shape: FiguresFormat) -> BenchResult<()> {
    let wanted = |transport: &MountTransport| {
        args.transport.is_empty() || args.transport.iter().any(|choice| choice.wire_name() == transport.name())
    };
    let transports: Vec<MountTransport> = MountTransport::ALL.into_iter().filter(wanted).collect();
    if let Some(missing) = transports.iter().find_map(|transport| transport.missing().into_iter().next()) {
        return Err(format!("{missing}. {}", missing.fix()).into());
    }
    let guard = GuardCommand { program: std::env::current_exe()?, args: vec!["mount-guard".into()] };
    let options = TransportOptions {
        dir,
        files: args.files,
        megabytes: args.megabytes,
        round_trips: args.rtt.iter().copied().map(Duration::from_millis).collect(),
        transports,
        limit: Duration::from_secs(args.limit),
        guard,
    };
    let runtime = tokio::runtime::Handle::current();
    let columns = tokio::task::spawn_blocking(move || compare(&options, &runtime)).await??;
    if shape == FiguresFormat::Json {
        println!("{}", Json::of(&columns).get());
        return Ok(());
    }
    println!("{} files in a git repository, {} MB read and written, one run", args.files, args.megabytes);
    print!("{:<24}", "");
    for column in &columns {
        let at = column.round_trip_ms.map(|ms| format!(" {ms} ms")).unwrap_or_default();
        print!(" {:>20}", format!("{}{at}", column.transport));
    }
    println!();
    let rows = columns.first().map(|column| column.rows().len()).unwrap_or_default();
    for row in 0..rows {
        print!("{:<24}", columns[0].rows()[row].0);
        for column in &columns {
            let value = match column.rows()[row].1 {
                Some(value) if value < 10.0 => format!("{value:.2}"),
                Some(value) => format!("{value:.0}"),
                None if column.round_trip_ms.is_none() || columns[0].rows()[row].1.is_none() => "-".to_owned(),
                None => format!("> {}", args.limit),
            };
            print!(" {value:>20}");
        }
        println!();
    }
    Ok(())
}
