//! The benchmark itself, at a size that takes seconds: it measures something on both sides.

use std::{path::Path, time::Duration};

use attache_bench::lease::{self, BenchRatio, transports};
use attache_workspace::mount::MountTransport;

use super::cannot_run;

#[tokio::test(flavor = "multi_thread")]
async fn the_benchmark_measures_both_sides() {
    if cannot_run() {
        return;
    }
    if !Path::new("/usr/sbin/sshd").exists() {
        println!("skipped: this machine has no sshd (package openssh-server)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = lease::Options {
        dir: dir.path().to_owned(),
        rounds: 1,
        megabytes: 4,
        files: 20,
        round_trip: Duration::from_millis(2),
    };
    let runtime = tokio::runtime::Handle::current();
    let report = tokio::task::spawn_blocking(move || lease::run(&options, &runtime)).await.unwrap().unwrap();
    println!("{report:#?}");
    for BenchRatio { ours, openssh, ratio } in [
        report.write_mb_per_second,
        report.read_mb_per_second,
        report.creates_per_second,
        report.opens_per_second,
        report.stats_per_second,
    ] {
        assert!(ours > 0.0 && openssh > 0.0 && ratio > 0.0 && ratio.is_finite(), "{report:?}");
    }
    assert!(report.revoke_to_error_ms < 15_000.0, "{report:?}");
}

/// Every row of the comparison of transports is measured, over a link of some latency.
#[tokio::test(flavor = "multi_thread")]
async fn the_transports_are_compared() {
    if cannot_run() || crate::attache_fs::cannot_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = transports::TransportOptions {
        dir: dir.path().to_owned(),
        files: 20,
        megabytes: 2,
        round_trips: vec![Duration::from_millis(2)],
        transports: vec![MountTransport::AttacheFs],
        limit: Duration::from_secs(60),
        guard: crate::mount::guard(),
    };
    let runtime = tokio::runtime::Handle::current();
    let columns = tokio::task::spawn_blocking(move || transports::compare(&options, &runtime)).await.unwrap().unwrap();
    assert_eq!(columns.iter().map(|column| column.transport).collect::<Vec<_>>(), ["local", "attache-fs/1"]);
    for (name, value) in columns[1].rows() {
        assert!(value.is_some_and(|value| value > 0.0), "{name}");
    }
}
