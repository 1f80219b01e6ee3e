//! The process list that any user of the machine can see, watched from start to end.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Every command line seen so far, with zero bytes between its arguments.
pub struct ProcessListWatch {
    seen: Arc<Mutex<BTreeSet<Vec<u8>>>>,
    enough: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

// === impl ProcessListWatch ===

impl ProcessListWatch {
    pub fn start() -> Self {
        let (seen, enough) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let watcher = std::thread::spawn({
            let (seen, enough): (Arc<Mutex<BTreeSet<_>>>, Arc<AtomicBool>) = (seen.clone(), enough.clone());
            move || {
                while !enough.load(Ordering::Relaxed) {
                    let lines = look();
                    seen.lock().unwrap().extend(lines);
                    std::thread::sleep(Duration::from_millis(4));
                }
            }
        });
        Self { seen, enough, watcher: Some(watcher) }
    }

    /// Whether a command line with these consecutive arguments was seen.
    pub fn saw(&self, words: &[&str]) -> bool {
        let row = words.join("\0").into_bytes();
        self.seen.lock().unwrap().iter().any(|line| line.windows(row.len()).any(|part| part == row))
    }

    pub fn lines(&self) -> Vec<Vec<u8>> {
        self.seen.lock().unwrap().iter().cloned().collect()
    }
}

impl Drop for ProcessListWatch {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

fn look() -> Vec<Vec<u8>> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    processes
        .filter(|entry| entry.file_name().to_str().is_some_and(is_process))
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| !line.is_empty())
        .collect()
}
