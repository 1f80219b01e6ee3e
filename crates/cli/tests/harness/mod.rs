//! Shared test harness: temporary homes, processes that are awaited and stopped, and plain HTTP.
//!
//! ```ignore
//! let home = Home::new();
//! let hub = home.hub(&[]);                       // `attache hub`, on a free port
//! let agent = hub.add_agent("builder");          // agt_…
//! let code = hub.pairing_code("builder");
//! home.attache(&["runtime", "pair", &code, "--api-base", &hub.url]).succeeds();
//! let runtime = home.runtime(&[]);               // `attache runtime start`
//! let run = hub.ask("builder", "echo hi");       // waits for the end: the run as JSON
//! runtime.kill();                                // -9
//! ```
//!
//! Nothing sleeps and hopes: everything that takes time is polled with [`until`].
#![allow(dead_code, reason = "not every suite uses every part")]

pub mod home;
pub mod http;
pub mod process;
pub mod server;
pub mod small_disk;
pub mod terminal;

use std::time::{Duration, Instant};

pub use home::TestHome;
pub use http::TestReply;
pub use process::{FinishedProcess, TestProcess};
pub use server::TestHub;
pub use small_disk::SmallDisk;
pub use terminal::TestTerminal;

/// How long anything may take before the test gives up. Generous, because the machine may be busy.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Polls until there is a result, or fails with a description of what it waited for.
#[track_caller]
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + LIMIT;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < give_up, "waited {LIMIT:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the long suites are enabled: `./test --long`.
pub fn is_long() -> bool {
    std::env::var_os("ATTACHE_LONG").is_some()
}

/// Whether a program is installed. If not, says that the test is skipped and which Debian package has it.
pub fn has(program: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Some administrative programs are in folders that aren't everyone's.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join(program)).any(|file| file.is_file());
    if !found {
        eprintln!("skipped: `{program}` is not installed (Debian: apt-get install {package})");
    }
    found
}
