//! Whoever connects and has no key, and streams that are no TCP connection of ours.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use attache_protocol::env::Env;
use attache_workspace::ssh::{InvalidKey, LeaseAccess, SshServerOptions, make_key};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{SOON, SshTestHost, cannot_run, raw::RawSftp, said};

/// A port that leads to another one, and can be cut.
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

    /// Each connection is given to `serve`.
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

    /// Ends the connections there are; new ones can be made.
    pub(crate) fn cut(&self) {
        std::mem::take(&mut *self.now.lock().unwrap()).cancel();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_key_does_not_live_long() {
    let host =
        SshTestHost::with(SshServerOptions { auth_timeout: Duration::from_millis(300), ..SshServerOptions::default() })
            .await;
    // One that says nothing, one that says who it is and then nothing, one that speaks something else.
    for first in ["", "SSH-2.0-nobody\r\n", "GET / HTTP/1.1\r\n\r\n"] {
        let begin = Instant::now();
        let mut stream = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(first.as_bytes()).unwrap();
        let mut said = Vec::new();
        let ended = stream.read_to_end(&mut said);
        assert!(begin.elapsed() < Duration::from_secs(5), "{first:?}: {:?} {ended:?}", begin.elapsed());
        assert!(said.starts_with(b"SSH-2.0-attache\r\n"), "{first:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_do_not_crowd_out_those_who_are_in() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::with(SshServerOptions { max_unauthenticated: 2, ..SshServerOptions::default() }).await;
    let lent = host.lend("loc");
    let mut raw = RawSftp::open(&lent);
    let connect = || TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    let mut banner = [0; 17];
    let mut strangers = [connect(), connect()];
    for stranger in &mut strangers {
        stranger.read_exact(&mut banner).unwrap();
    }
    // The third is closed before a word, and the one who is in does not notice.
    assert_eq!(connect().read(&mut banner).unwrap_or(0), 0);
    assert_eq!(raw.ask(17, 5, &[&super::raw::string(b"/loc")]).0, 105);
    drop(strangers);
    super::eventually("there is room again", || lent.sftp("ls\n").status.success()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_has_its_number_of_connections_and_a_connection_of_channels() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::with(SshServerOptions {
        connections_per_lease: 2,
        channels_per_connection: 2,
        ..SshServerOptions::default()
    })
    .await;
    let (lent, other) = (host.lend("loc"), host.lend("other"));
    let (one, _two) = (RawSftp::open(&lent), RawSftp::open(&lent));
    assert!(said(&lent.sftp("ls\n")).contains("Permission denied (publickey)"));
    assert!(other.sftp("ls\n").status.success());
    drop(one);
    super::eventually("there is room again", || lent.sftp("ls\n").status.success()).await;

    // ssh puts several channels into one connection when it is asked to.
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
    // It is told so, and makes a connection of its own.
    assert!(said(&third).contains("Session open refused by peer"), "{}", said(&third));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_is_served_like_a_connection() {
    if cannot_run() {
        return;
    }
    let host = SshTestHost::start().await;
    let lent = host.lend("loc");
    fs::write(lent.folder.join("file"), "text").unwrap();
    let server = host.server.clone();
    let line = CuttablePort::through(move |mut stream| {
        let server = server.clone();
        async move {
            // Small, as a relay's buffer may be.
            let (mut here, there) = tokio::io::duplex(4096);
            let copy = tokio::io::copy_bidirectional(&mut stream, &mut here);
            let _ = tokio::join!(copy, server.serve(there, "tunnel".to_owned()));
        }
    })
    .await;
    let mut login = host.login(lent.private_key.clone());
    login.port = line.port;
    let dir = tempfile::tempdir().unwrap();
    let mounted = login.write(dir.path()).unwrap().mount("/loc", &dir.path().join("mounted"), &["reconnect"]).unwrap();
    assert_eq!(fs::read_to_string(mounted.mount_point.join("file")).unwrap(), "text");
    fs::write(mounted.mount_point.join("big"), vec![b'b'; 4 << 20]).unwrap();
    assert_eq!(fs::metadata(lent.folder.join("big")).unwrap().len(), 4 << 20);
    let begin = Instant::now();
    lent.admission.revoke();
    assert_eq!(fs::read(mounted.mount_point.join("file")).unwrap_err().raw_os_error(), Some(5));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn one_key_is_one_lease() {
    let host = SshTestHost::start().await;
    let lent = host.lend("loc");
    let admit = |key: &str, locator: &str| {
        let pass = LeaseAccess { key: key.to_owned(), locator: locator.to_owned(), export: Arc::clone(&lent.export) };
        host.server.admit(pass).map(drop)
    };
    let key = make_key(&Env::system()).public;
    assert_eq!(admit("nonsense", "other"), Err(InvalidKey::Unreadable));
    for locator in ["", ".", "..", "a/b", "/a", "a\0"] {
        assert_eq!(admit(&key, locator), Err(InvalidKey::Locator), "{locator:?}");
    }
    let pass = |locator: &str| LeaseAccess {
        key: format!("{key} somebody"),
        locator: locator.to_owned(),
        export: Arc::clone(&lent.export),
    };
    let first = host.server.admit(pass("first")).unwrap();
    assert_eq!(host.server.admit(pass("second")).map(drop), Err(InvalidKey::Taken));
    first.revoke();
    assert_eq!(host.server.admit(pass("second")).map(drop), Ok(()));
}
