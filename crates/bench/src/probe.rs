//! How many flushes per second this disk can do: figures of a durable store mean little without it.

use std::{
    fs::File,
    io::{Seek as _, SeekFrom, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use super::BenchResult;

const PROBE_DURATION: Duration = Duration::from_millis(500);
const FILE_PAGES: u64 = 256;

pub(super) fn fsyncs_per_second(folder: &Path) -> BenchResult<f64> {
    let page = [7_u8; 4096];
    let mut file = File::create(folder.join("probe"))?;
    for _ in 0..FILE_PAGES {
        file.write_all(&page)?;
    }
    file.sync_all()?;
    let start = Instant::now();
    let mut count = 0_u32;
    while start.elapsed() < PROBE_DURATION {
        file.seek(SeekFrom::Start(u64::from(count) % FILE_PAGES * 4096))?;
        file.write_all(&page)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}
