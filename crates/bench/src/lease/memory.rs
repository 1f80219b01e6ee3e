//! How much memory processes use, as Linux counts it.

use std::fs;

const KIB_PER_MB: f64 = 1000.0 / 1.024;

/// The most that this process used since [`forget_peak`], in MB.
pub(super) fn peak() -> Option<f64> {
    read("self", "VmHWM:")
}

/// What this process uses now, in MB.
pub(super) fn now() -> Option<f64> {
    read("self", "VmRSS:")
}

pub(super) fn forget_peak() {
    // Where that isn't possible, the figure is too large.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The most that a file system used: the child of the guard of its mount.
pub(super) fn peak_of_child(guard: u32) -> Option<f64> {
    let threads = fs::read_dir(format!("/proc/{guard}/task")).ok()?.flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<String> =
        children.flat_map(|ids| ids.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    children.iter().filter_map(|id| read(id, "VmHWM:")).reduce(f64::max)
}

fn read(process: &str, figure: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(figure))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / KIB_PER_MB)
}
