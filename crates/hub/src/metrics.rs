//! Counters, written as Prometheus text.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
};

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
pub(crate) fn text(hub: &Handle) -> String {
    let metrics = hub.metrics();
    let mut text = String::with_capacity(2048);
    let _ = writeln!(text, "# HELP attache_http_requests_total Requests answered, by class of status.");
    let _ = writeln!(text, "# TYPE attache_http_requests_total counter");
    for (class, counter) in (1..).zip(&metrics.requests) {
        let _ = writeln!(text, "attache_http_requests_total{{class=\"{class}xx\"}} {}", counter.get());
    }
    let rows = [
        ("attache_panics_total", "counter", "Requests that ended in a panic.", &metrics.panics),
        ("attache_connections", "gauge", "Connections that are open.", &metrics.connections),
        (
            "attache_connections_refused_total",
            "counter",
            "Connections refused because there were too many.",
            &metrics.connections_refused,
        ),
        ("attache_streams", "gauge", "Event streams that are open.", &metrics.streams),
        ("attache_channels", "gauge", "WebSockets that are open.", &metrics.channels),
        ("attache_run_feeds", "gauge", "Runs whose watchers share one reading.", &metrics.feeds),
        ("attache_tunnels", "gauge", "Tunnels that are open.", &metrics.tunnels),
        (
            "attache_tunnel_connections",
            "gauge",
            "Connections through tunnels that are open.",
            &metrics.tunnel_connections,
        ),
        (
            "attache_tunnel_bytes_total",
            "counter",
            "Bytes relayed through tunnels, both directions together.",
            &metrics.tunnel_bytes,
        ),
        (
            "attache_run_stream_reads_total",
            "counter",
            "Readings of a run's stream from the store, for pages and watchers.",
            &metrics.run_reads,
        ),
        ("attache_runs_created_total", "counter", "Runs created since the start.", &metrics.runs_created),
        ("attache_runs_claimed_total", "counter", "Runs claimed since the start.", &metrics.runs_claimed),
        ("attache_runs_finished_total", "counter", "Runs finished by workers.", &metrics.runs_finished),
    ];
    for (name, kind, help, counter) in rows {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {}", counter.get());
    }
    text
}
