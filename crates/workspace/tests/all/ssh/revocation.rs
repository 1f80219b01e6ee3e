//! The end of a lease takes effect immediately, for open connections and for new ones.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read, Write},
    thread,
    time::Instant,
};

use attache_workspace::mount::MountTransport;

use super::{SOON, SshTestHost, cannot_run, eventually, raw::RawSftp, text_of};

over_every_transport! {
    revoking_in_the_middle_of_a_write_is_an_io_error_and_the_key_is_refused,
    a_channel_ends_with_its_export,
}

/// Defect 2 of the peer: revocation did nothing. Writers get an error within 100 ms. The assertion leaves room for a
/// busy machine.
async fn revoking_in_the_middle_of_a_write_is_an_io_error_and_the_key_is_refused(transport: MountTransport) {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    fs::write(lease.folder.join("other"), "text").unwrap();
    let mounted = lease.mount_as(transport).await;
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
    eventually("the write is in progress", || {
        fs::metadata(lease.folder.join("file")).is_ok_and(|file| file.len() > 1 << 20)
    })
    .await;
    let revoked = Instant::now();
    lease.admission.revoke();
    let length = fs::metadata(lease.folder.join("file")).unwrap().len();
    let (failed, error) = writer.join().unwrap();
    let after = failed.duration_since(revoked);
    println!("revoke to error: {after:?}");
    assert!(after < SOON, "{after:?}");
    assert_eq!(error.raw_os_error(), Some(5), "{error}");

    // Every way to use it again: an open file, a new one, a new connection.
    let begin = Instant::now();
    assert!(held.read(&mut [0; 4]).is_err());
    assert_eq!(fs::read(mounted.mount_point.join("other")).unwrap_err().raw_os_error(), Some(5));
    assert!(text_of(&lease.sftp("ls\n")).contains("Permission denied (publickey)"));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    // Nothing was written after the call had returned.
    assert_eq!(fs::metadata(lease.folder.join("file")).unwrap().len(), length);
    assert!(lease.export.is_revoked());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_admission_also_ends_the_lease() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let mut raw = RawSftp::open(&lease);
    assert_eq!(lease.admission.connections(), 1);
    let export = std::sync::Arc::clone(&lease.export);
    drop(lease);
    let begin = Instant::now();
    assert_eq!(raw.next(), None);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert!(export.is_revoked());
}

/// An export can end without its admission: its channels end with the next request.
async fn a_channel_ends_with_its_export(transport: MountTransport) {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let mounted = lease.mount_as(transport).await;
    lease.export.revoke();
    let begin = Instant::now();
    let error = fs::write(mounted.mount_point.join("file"), "").unwrap_err();
    assert_eq!((error.raw_os_error(), error.kind() == ErrorKind::NotFound), (Some(5), false), "{error}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert!(!lease.folder.join("file").exists());
}

/// sshfs reconnects after a network failure, which isn't the end of the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_restored() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let port = super::unauthenticated::CuttablePort::to(host.port).await;
    let mut login = host.login(lease.private_key.clone());
    login.port = port.port;
    let dir = tempfile::tempdir().unwrap();
    let mounted = login.write(dir.path()).unwrap().mount("/loc", &dir.path().join("mounted"), &["reconnect"]).unwrap();
    fs::write(mounted.mount_point.join("file"), "before").unwrap();
    port.cut();
    let again = || fs::write(mounted.mount_point.join("file"), "after").is_ok();
    eventually("writing works again", again).await;
    assert_eq!(fs::read_to_string(lease.folder.join("file")).unwrap(), "after");
    eventually("only the new connection is there", || lease.admission.connections() == 1).await;
}
