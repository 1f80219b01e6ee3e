//! The async runtime of a command: how many threads, and how many open files.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

/// What a command needs from its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessKind {
    /// Runs until it is stopped.
    Server,
    /// Serves its parent process, which prints the messages.
    Child,
    /// Measures: uses every core and doesn't log.
    Bench,
    /// Sends requests, prints the result and exits.
    Client,
}

/// The async runtime of a command: multi-threaded for a server, single-threaded for a client.
pub(crate) fn start(weight: ProcessKind) -> io::Result<Runtime> {
    if matches!(weight, ProcessKind::Server | ProcessKind::Bench) {
        allow_files();
    }
    match weight {
        ProcessKind::Server | ProcessKind::Child | ProcessKind::Bench => {
            Builder::new_multi_thread().enable_all().build()
        }
        ProcessKind::Client => Builder::new_current_thread().enable_all().build(),
    }
}

/// Raises the limit of open files: every connection is one, and the usual shell limit is far below a hub's needs.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the hub still works, with fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
