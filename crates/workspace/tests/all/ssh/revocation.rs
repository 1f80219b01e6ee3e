//! The end of a lease: it is the end at once, for whoever is connected and for whoever comes again.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read, Write},
    thread,
    time::Instant,
};

use super::{SOON, SshTestHost, cannot_run, eventually, raw::RawSftp, said};

/// Defect 2 of the peer: revocation did nothing. Writers get an error within 100 ms; the assertion leaves room for a busy
/// machine.
#[tokio::test(flavor = "multi_thread")]
async fn revoking_in_the_middle_of_a_write_is_an_io_error_and_the_key_is_refused() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lent = host.lend("loc");
    fs::write(lent.folder.join("other"), "text").unwrap();
    let mounted = lent.mount();
    let mut held = File::open(mounted.mount_point.join("other")).unwrap();
    let path = mounted.mount_point.join("file");
    let writer = thread::spawn(move || {
        let mut file = File::create(path).unwrap();
        loop {
            if let Err(error) = file.write_all(&[b'w'; 1 << 16]).and_then(|()| file.sync_all()) {
                return (Instant::now(), error);
            }
        }
    });
    eventually("the write is under way", || {
        fs::metadata(lent.folder.join("file")).is_ok_and(|file| file.len() > 1 << 20)
    })
    .await;
    let revoked = Instant::now();
    lent.admission.revoke();
    let length = fs::metadata(lent.folder.join("file")).unwrap().len();
    let (failed, error) = writer.join().unwrap();
    let after = failed.duration_since(revoked);
    println!("revoke to error: {after:?}");
    assert!(after < SOON, "{after:?}");
    assert_eq!(error.raw_os_error(), Some(5), "{error}");

    // Every way to use it again: a file that is open, a new one, a new connection.
    let begin = Instant::now();
    assert!(held.read(&mut [0; 4]).is_err());
    assert_eq!(fs::read(mounted.mount_point.join("other")).unwrap_err().raw_os_error(), Some(5));
    assert!(said(&lent.sftp("ls\n")).contains("Permission denied (publickey)"));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    // Nothing was written after the call had returned.
    assert_eq!(fs::metadata(lent.folder.join("file")).unwrap().len(), length);
    assert!(lent.export.is_revoked());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_admission_is_the_end_too() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lent = host.lend("loc");
    let mut raw = RawSftp::open(&lent);
    assert_eq!(lent.admission.connections(), 1);
    let export = std::sync::Arc::clone(&lent.export);
    drop(lent);
    let begin = Instant::now();
    assert_eq!(raw.next(), None);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert!(export.is_revoked());
}

/// An export can end by itself, without its admission: its channels end with the next request.
#[tokio::test(flavor = "multi_thread")]
async fn a_channel_ends_with_its_export() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lent = host.lend("loc");
    let mounted = lent.mount();
    lent.export.revoke();
    let begin = Instant::now();
    let error = fs::write(mounted.mount_point.join("file"), "").unwrap_err();
    assert_eq!((error.raw_os_error(), error.kind() == ErrorKind::NotFound), (Some(5), false), "{error}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert!(!lent.folder.join("file").exists());
}

/// sshfs comes again by itself after the network failed, which is no end of the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_taken_up_again() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lent = host.lend("loc");
    let line = super::unauthenticated::CuttablePort::to(host.port).await;
    let mut login = host.login(lent.private_key.clone());
    login.port = line.port;
    let dir = tempfile::tempdir().unwrap();
    let mounted = login.write(dir.path()).unwrap().mount("/loc", &dir.path().join("mounted"), &["reconnect"]).unwrap();
    fs::write(mounted.mount_point.join("file"), "before").unwrap();
    line.cut();
    let again = || fs::write(mounted.mount_point.join("file"), "after").is_ok();
    eventually("writing works again", again).await;
    assert_eq!(fs::read_to_string(lent.folder.join("file")).unwrap(), "after");
    eventually("only the new connection is there", || lent.admission.connections() == 1).await;
}
