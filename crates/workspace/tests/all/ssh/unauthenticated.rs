//! Clients without a key, and streams that aren't our TCP connections.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use attache_protocol::env::Env;
use attache_workspace::ssh::{InvalidLeaseKey, LeaseAccess, SshServerOptions, make_key};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{SOON, SshTestHost, cannot_run, raw::RawSftp, text_of};

/// A port that forwards to another one and can be cut.
pub(crate) struct CuttablePort {
    pub(crate) port: u16,
    now: Arc<Mutex<CancellationToken>>,
    _stop: tokio_util::sync::DropGuard,
}

// === impl CuttablePort ===

impl CuttablePort {
    pub(crate) async fn to(port: u16) -> Self {
        Self::through(move |mut here| async move {
            let mut there = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
        })
        .await
    }

    /// Passes each connection to `serve`.
    async fn through<F>(serve: impl Fn(tokio::net::TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (now, stop) = (Arc::new(Mutex::new(CancellationToken::new())), CancellationToken::new());
        let (current, stopped) = (Arc::clone(&now), stop.clone());
        tokio::spawn(stopped.run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let cut = current.lock().unwrap().clone();
                tokio::spawn(cut.run_until_cancelled_owned(serve(stream)));
            }
        }));
        Self { port, now, _stop: stop.drop_guard() }
    }

    /// Closes the open connections. New ones can be made.
    pub(crate) fn cut(&self) {
        std::mem::take(&mut *self.now.lock().unwrap()).cancel();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_key_is_closed_soon() {
    let host =
        SshTestHost::with(SshServerOptions { auth_timeout: Duration::from_millis(300), ..SshServerOptions::default() })
            .await;
    // A client that sends nothing, one that sends only its version, and one that speaks another protocol.
    for first in ["", "SSH-2.0-nobody\r\n", "GET / HTTP/1.1\r\n\r\n"] {
        let begin = Instant::now();
        let mut stream = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(first.as_bytes()).unwrap();
        let mut received = Vec::new();
        let ended = stream.read_to_end(&mut received);
        assert!(begin.elapsed() < Duration::from_secs(5), "{first:?}: {:?} {ended:?}", begin.elapsed());
        assert!(received.starts_with(b"SSH-2.0-attache\r\n"), "{first:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_clients_do_not_crowd_out_authenticated_ones() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::with(SshServerOptions { max_unauthenticated: 2, ..SshServerOptions::default() }).await;
    let lease = host.lend("loc");
    let mut raw = RawSftp::open(&lease);
    let connect = || TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    let mut banner = [0; 17];
    let mut strangers = [connect(), connect()];
    for stranger in &mut strangers {
        stranger.read_exact(&mut banner).unwrap();
    }
    // A third takes the place of the first, and the authenticated one isn't affected.
    let mut third = connect();
    third.read_exact(&mut banner).unwrap();
    strangers[0].set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut rest = Vec::new();
    let _ = strangers[0].read_to_end(&mut rest);
    assert_eq!(raw.ask(17, 5, &[&super::raw::string(b"/loc")]).0, 105);
    // Nor does anybody who only waits keep out whoever has a key.
    for _ in 0..10 {
        assert!(lease.sftp("ls\n").status.success());
    }
    drop((strangers, third));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_per_lease_and_channels_per_connection_are_limited() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::with(SshServerOptions {
        connections_per_lease: 2,
        channels_per_connection: 2,
        ..SshServerOptions::default()
    })
    .await;
    let (lease, other) = (host.lend("loc"), host.lend("other"));
    let (one, _two) = (RawSftp::open(&lease), RawSftp::open(&lease));
    assert!(text_of(&lease.sftp("ls\n")).contains("Permission denied (publickey)"));
    assert!(other.sftp("ls\n").status.success());
    drop(one);
    super::eventually("there is room again", || lease.sftp("ls\n").status.success()).await;

    // ssh multiplexes several channels over one connection if asked to.
    let dir = tempfile::tempdir().unwrap();
    let control = format!("ControlPath={}", dir.path().join("control").display());
    let mut master = RawSftp::connect(&other, &["-M", "-o", &control]);
    master.write(&super::raw::packet(1, &[&3_u32.to_be_bytes()]));
    assert_eq!(master.reply().0, 2);
    let mut second = RawSftp::connect(&other, &["-o", &control]);
    second.write(&super::raw::packet(1, &[&3_u32.to_be_bytes()]));
    assert_eq!(second.reply().0, 2);
    assert_eq!(other.admission.connections(), 1);
    let third = other.ssh(&["-o", &control, "-s"], &["sftp"]);
    // It is refused, and opens its own connection.
    assert!(text_of(&third).contains("Session open refused by peer"), "{}", text_of(&third));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_is_served_like_a_connection() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    fs::write(lease.folder.join("file"), "text").unwrap();
    let server = host.server.clone();
    let port = CuttablePort::through(move |mut stream| {
        let server = server.clone();
        async move {
            // Small, as a relay's buffer may be.
            let (mut here, there) = tokio::io::duplex(4096);
            let copy = tokio::io::copy_bidirectional(&mut stream, &mut here);
            let _ = tokio::join!(copy, server.serve(there, "tunnel".to_owned()));
        }
    })
    .await;
    let mut login = host.login(lease.private_key.clone());
    login.port = port.port;
    let dir = tempfile::tempdir().unwrap();
    let mounted = login.write(dir.path()).unwrap().mount("/loc", &dir.path().join("mounted"), &["reconnect"]).unwrap();
    assert_eq!(fs::read_to_string(mounted.mount_point.join("file")).unwrap(), "text");
    fs::write(mounted.mount_point.join("big"), vec![b'b'; 4 << 20]).unwrap();
    assert_eq!(fs::metadata(lease.folder.join("big")).unwrap().len(), 4 << 20);
    let begin = Instant::now();
    lease.admission.revoke();
    assert_eq!(fs::read(mounted.mount_point.join("file")).unwrap_err().raw_os_error(), Some(5));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn one_key_opens_one_lease() {
    let host = SshTestHost::start().await;
    let lease = host.lend("loc");
    let admit = |key: &str, locator: &str| {
        let pass = LeaseAccess { key: key.to_owned(), locator: locator.to_owned(), export: Arc::clone(&lease.export) };
        host.server.admit(pass).map(drop)
    };
    let key = make_key(&Env::system()).public;
    assert_eq!(admit("nonsense", "other"), Err(InvalidLeaseKey::Unreadable));
    for locator in ["", ".", "..", "a/b", "/a", "a\0"] {
        assert_eq!(admit(&key, locator), Err(InvalidLeaseKey::Locator), "{locator:?}");
    }
    let pass = |locator: &str| LeaseAccess {
        key: format!("{key} somebody"),
        locator: locator.to_owned(),
        export: Arc::clone(&lease.export),
    };
    let first = host.server.admit(pass("first")).unwrap();
    assert_eq!(host.server.admit(pass("second")).map(drop), Err(InvalidLeaseKey::Taken));
    first.revoke();
    assert_eq!(host.server.admit(pass("second")).map(drop), Ok(()));
}
