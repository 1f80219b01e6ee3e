//! Counters, backlog and store metrics, as Prometheus text.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use attache_protocol::Timestamp;
use attache_store::metrics::HistogramSnapshot;

use crate::Handle;

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// By the first digit of the status: index 0 is 1xx.
    pub(crate) requests: [Counter; 5],
    pub(crate) panics: Counter,
    pub(crate) connections: Counter,
    pub(crate) connections_refused: Counter,
    pub(crate) streams: Counter,
    pub(crate) streams_refused: Counter,
    pub(crate) channels: Counter,
    pub(crate) feeds: Counter,
    pub(crate) tunnels: Counter,
    pub(crate) tunnel_connections: Counter,
    pub(crate) tunnel_bytes: Counter,
    pub(crate) run_reads: Counter,
    pub(crate) runs_created: Counter,
    pub(crate) runs_claimed: Counter,
    pub(crate) runs_finished: Counter,
}

// === impl Counter ===

impl Counter {
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn take(&self, by: u64) {
        self.0.fetch_sub(by, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Metrics ===

impl Metrics {
    pub(crate) fn answered(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.requests[class].add(1);
    }
}

/// The text of `/metrics`.
pub(crate) async fn text(hub: &Handle) -> String {
    let mut text = String::with_capacity(8192);
    counters(hub, &mut text);
    if let Some(measures) = hub.store().measures() {
        family(
            &mut text,
            "attache_runs_ended_total",
            "counter",
            "Ended runs by outcome: completed, cancelled, or the failure code.",
        );
        for (end, count) in measures.ends() {
            let _ = writeln!(text, "attache_runs_ended_total{{end=\"{end}\"}} {count}");
        }
        let seconds = |micros: u64| format!("{}", Duration::from_micros(micros).as_secs_f64());
        let number = |size: u64| size.to_string();
        let (commit, read) = (measures.commit_micros.buckets(), measures.read_micros.buckets());
        histogram(&mut text, "attache_store_commit_seconds", "Duration of store transactions.", &commit, seconds);
        histogram(&mut text, "attache_store_read_seconds", "Duration of store reads.", &read, seconds);
        let batch = measures.batch.buckets();
        histogram(&mut text, "attache_store_batch_size", "Writes per transaction.", &batch, number);
    }
    // Without an answer from the store there is no backlog to report, but the counters are still useful.
    if let Ok(live) = hub.store().live(hub.tenant()).await {
        let age = |since: Option<Timestamp>| since.map_or(0.0, |since| hub.now().since(since).as_secs_f64());
        #[allow(clippy::cast_precision_loss, reason = "Prometheus counts in floating point anyway")]
        let gauges = [
            ("attache_runs_pending", "Runs waiting for a device.", live.pending as f64),
            ("attache_runs_pending_oldest_seconds", "Age of the oldest pending run.", age(live.oldest_pending)),
            ("attache_runs_running", "Runs in progress on a device.", live.running as f64),
            ("attache_approvals_pending", "Permission requests waiting for a person.", live.permissions as f64),
            (
                "attache_approvals_pending_oldest_seconds",
                "Age of the oldest pending permission request.",
                age(live.oldest_permission),
            ),
            ("attache_devices_online", "Paired devices that are online.", live.devices as f64),
            ("attache_deliveries_pending", "Webhook deliveries still being attempted.", live.deliveries as f64),
            (
                "attache_deliveries_pending_oldest_seconds",
                "Age of the oldest pending delivery.",
                age(live.oldest_delivery),
            ),
        ];
        for (name, help, value) in gauges {
            family(&mut text, name, "gauge", help);
            let _ = writeln!(text, "{name} {value}");
        }
    }
    if let Ok(disk) = rustix::fs::statvfs(&hub.options().data) {
        family(&mut text, "attache_disk_free_bytes", "gauge", "Disk space available to this user in the data folder.");
        let _ = writeln!(text, "attache_disk_free_bytes {}", disk.f_bavail.saturating_mul(disk.f_frsize));
    }
    text
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn histogram(text: &mut String, name: &str, help: &str, buckets: &HistogramSnapshot, unit: impl Fn(u64) -> String) {
    family(text, name, "histogram", help);
    for (bound, count) in &buckets.at_most {
        let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {count}", unit(*bound));
    }
    let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {}", buckets.count);
    let _ = writeln!(text, "{name}_sum {}\n{name}_count {}", unit(buckets.sum), buckets.count);
}

fn counters(hub: &Handle, text: &mut String) {
    let metrics = hub.metrics();
    let _ = writeln!(text, "# HELP attache_http_requests_total Requests answered, by status class.");
    let _ = writeln!(text, "# TYPE attache_http_requests_total counter");
    for (class, counter) in (1..).zip(&metrics.requests) {
        let _ = writeln!(text, "attache_http_requests_total{{class=\"{class}xx\"}} {}", counter.get());
    }
    let rows = [
        ("attache_panics_total", "counter", "Requests that ended in a panic.", &metrics.panics),
        ("attache_connections", "gauge", "Open connections.", &metrics.connections),
        (
            "attache_connections_refused_total",
            "counter",
            "Connections refused because there were too many.",
            &metrics.connections_refused,
        ),
        ("attache_streams", "gauge", "Open event streams.", &metrics.streams),
        (
            "attache_streams_refused_total",
            "counter",
            "Streams, waiting requests and WebSockets refused because their caller had too many.",
            &metrics.streams_refused,
        ),
        ("attache_channels", "gauge", "Open WebSockets.", &metrics.channels),
        ("attache_run_feeds", "gauge", "Runs whose watchers share one reader.", &metrics.feeds),
        ("attache_tunnels", "gauge", "Open tunnels.", &metrics.tunnels),
        ("attache_tunnel_connections", "gauge", "Open connections through tunnels.", &metrics.tunnel_connections),
        (
            "attache_tunnel_bytes_total",
            "counter",
            "Bytes relayed through tunnels, both directions together.",
            &metrics.tunnel_bytes,
        ),
        (
            "attache_run_stream_reads_total",
            "counter",
            "Reads of run streams from the store, for pages and watchers.",
            &metrics.run_reads,
        ),
        ("attache_runs_created_total", "counter", "Runs created since the start.", &metrics.runs_created),
        ("attache_runs_claimed_total", "counter", "Runs claimed since the start.", &metrics.runs_claimed),
        ("attache_runs_finished_total", "counter", "Runs finished by workers.", &metrics.runs_finished),
    ];
    for (name, kind, help, counter) in rows {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {}", counter.get());
    }
}
