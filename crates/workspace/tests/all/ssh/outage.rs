//! A broken connection: files that it had open for writing are reported once the remote is back, until they are written
//! again.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use attache_protocol::{env::Env, wire::awcp::AccessMode};
use attache_workspace::{
    export::{Export, ExportAudit, ExportAuditEntry, ExportTerms, FailedChanges, FailureCause, OriginalsFolder},
    ssh::{LeaseAccess, make_key},
};

use super::{
    LeaseFixture, SshTestHost, cannot_run, eventually,
    raw::{RawSftp, status, string},
};

#[derive(Default)]
struct Failures(Mutex<FailedChanges>);

impl ExportAudit for Failures {
    fn record(&self, line: &ExportAuditEntry<'_>) {
        self.0.lock().unwrap().note(line);
    }
}

impl Failures {
    fn affected(&self) -> Vec<String> {
        self.0.lock().unwrap().affected().map(attache_workspace::export::show).collect()
    }
}

fn lend(host: &SshTestHost) -> (LeaseFixture, Arc<Failures>) {
    let lease = host.lend("unused");
    let failures = Arc::new(Failures::default());
    let before = OriginalsFolder::in_folder(lease.dir.path().join("before2"));
    let export = Export::open(&lease.folder, ExportTerms::new(AccessMode::Rw), before, failures.clone()).unwrap();
    let (key, export) = (make_key(&Env::system()), Arc::new(export));
    let pass = LeaseAccess { key: key.public, locator: "loc".to_owned(), export: Arc::clone(&export) };
    let admission = host.server.admit(pass).unwrap();
    let options = host.login(key.private.clone()).write(lease.dir.path()).unwrap();
    (LeaseFixture { admission, export, private_key: key.private, options, ..lease }, failures)
}

/// Write, create and truncate.
const WRITE: u32 = 0x1a;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_open_when_the_connection_broke_affects_the_work_until_rewritten() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let (lease, failures) = lend(&host);
    let mut raw = RawSftp::open(&lease);
    let closed = raw.open_file("/loc/closed", WRITE);
    assert_eq!(status(&raw.ask(4, 2, &[&closed])), Some(0));
    for name in ["half", "again"] {
        let handle = raw.open_file(&format!("/loc/{name}"), WRITE);
        assert_eq!(status(&raw.ask(6, 3, &[&handle, &[0; 8], &string(b"half of it")])), Some(0));
    }
    // Killed: nothing is closed, and the rest never arrives.
    drop(raw);
    eventually("the connection to end", || lease.admission.connections() == 0).await;
    assert!(failures.affected().is_empty(), "without another connection, it was not an outage");
    let mut raw = RawSftp::open(&lease);
    assert_eq!(failures.affected(), ["again", "half"]);
    let handle = raw.open_file("/loc/again", WRITE);
    assert_eq!(status(&raw.ask(6, 3, &[&handle, &[0; 8], &string(b"all of it")])), Some(0));
    assert_eq!(status(&raw.ask(4, 4, &[&handle])), Some(0));
    assert_eq!(failures.affected(), ["half"]);
    let counts: Vec<_> = failures.0.lock().unwrap().counts().collect();
    assert_eq!(counts, [(FailureCause::Interrupted, 2)]);
    assert_eq!(fs::read_to_string(lease.folder.join("half")).unwrap(), "half of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_concurrent_connection_is_not_an_outage() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let (lease, failures) = lend(&host);
    let mut one = RawSftp::open(&lease);
    let handle = one.open_file("/loc/slow", WRITE);
    let _two = RawSftp::open(&lease);
    assert_eq!(status(&one.ask(6, 2, &[&handle, &[0; 8], &string(b"all of it")])), Some(0));
    assert_eq!(status(&one.ask(4, 3, &[&handle])), Some(0));
    assert!(failures.affected().is_empty());
}
