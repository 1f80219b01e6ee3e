//! The daemon backend, with a daemon that drops requests and without a daemon.

use std::{
    io::{Seek as _, SeekFrom, Write as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use attache_client::daemon::DaemonClient;
use attache_mcp::{DaemonBackend, DelegationBackend as _, StartDaemon, ToolError};
use attache_protocol::{DelegationId, wire::delegation::DelegateRequest};
use serde_json::json;
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, net::UnixListener};

/// Counts attempts to start the daemon.
#[derive(Clone, Default)]
struct CountedStarts(Arc<AtomicUsize>);

#[async_trait]
impl StartDaemon for CountedStarts {
    async fn start_daemon(&self) -> Result<(), ToolError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn daemon(home: &TempDir) -> (DaemonBackend<CountedStarts>, CountedStarts) {
    let woken = CountedStarts::default();
    let client = DaemonClient::at(home.path().join("daemon.sock")).unwrap();
    (DaemonBackend::new(client, woken.clone(), home.path().join("delegations")), woken)
}

/// Accepts requests and disconnects without answering.
fn deaf(home: &TempDir) -> Arc<AtomicUsize> {
    let (listener, heard) =
        (UnixListener::bind(home.path().join("daemon.sock")).unwrap(), Arc::<AtomicUsize>::default());
    let count = heard.clone();
    tokio::spawn(async move {
        while let Ok((mut line, _)) = listener.accept().await {
            if line.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    heard
}

fn request() -> DelegateRequest {
    let peer = "http://127.0.0.1:1/a2a/builder";
    let value = json!({"description": "d", "prompt": "Build it.", "peer_url": peer, "workspace_dir": "/src"});
    serde_json::from_value(value).unwrap()
}

fn id() -> DelegationId {
    "dlg_00000000000000000000000000000007".parse().unwrap()
}

#[tokio::test]
async fn a_delegation_that_may_have_started_is_not_retried() {
    let home = TempDir::new().unwrap();
    let heard = deaf(&home);
    let (daemon, woken) = daemon(&home);
    let counts = || (heard.load(Ordering::SeqCst), woken.0.load(Ordering::SeqCst));

    let trouble = daemon.delegate(request()).await.unwrap_err();
    assert_eq!((trouble.code.as_str(), counts()), ("outcome_unknown", (1, 0)), "{trouble}");
    assert!(trouble.hint.contains("`attache delegations`"), "{trouble}");
    // Read-only requests are retried.
    let trouble = daemon.get(id(), None, Duration::ZERO).await.unwrap_err();
    assert_eq!((trouble.code.as_str(), counts()), ("outcome_unknown", (3, 1)), "{trouble}");
}

#[tokio::test]
async fn a_daemon_that_is_not_running_is_started_once() {
    let home = TempDir::new().unwrap();
    let (daemon, woken) = daemon(&home);
    let trouble = daemon.delegate(request()).await.unwrap_err();
    assert_eq!((trouble.code.as_str(), woken.0.load(Ordering::SeqCst)), ("unreachable", 1), "{trouble}");
}

#[tokio::test]
async fn only_the_end_of_a_long_log_is_read() {
    let home = TempDir::new().unwrap();
    let (daemon, _) = daemon(&home);
    let folder = home.path().join("delegations").join(id().to_string());
    std::fs::create_dir_all(&folder).unwrap();
    // A sparse file of one terabyte: it needs no disk space and doesn't fit in memory.
    let mut audit = std::fs::File::create(folder.join("audit.jsonl")).unwrap();
    audit.seek(SeekFrom::Start(1 << 40)).unwrap();
    audit.write_all(b"the end\n").unwrap();
    let log = daemon.log(id()).await.unwrap();
    assert_eq!(log.len(), "== audit.jsonl\n".len() + (256 << 10));
    assert!(log.starts_with("== audit.jsonl\n\0") && log.ends_with("\0the end\n"));
}
