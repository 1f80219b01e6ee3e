//! The port over TLS: with the real client, with a browser's checks, and with changing certificates.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use attache_client::{
    Error, HubClient as Remote, HubClientOptions, HubCredential,
    channel::{self, ChannelEvent, ChannelHandle, ChannelPeer, ChannelState},
};
use attache_hub::{Certificate, Options, Tls};
use attache_protocol::{
    KeyPin, RunId, Secret,
    env::Env,
    wire::{account::AccountRequest, envelope::Ready, run::CreateRunRequest},
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, client::conn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::{net::TcpStream, sync::watch, time::timeout};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use crate::world::{PATIENCE, World};

/// A worker that records what it receives.
struct RecordingWorker(watch::Sender<Vec<ChannelEvent>>);

impl ChannelPeer for RecordingWorker {
    fn running(&self) -> Option<Vec<RunId>> {
        Some(Vec::new())
    }

    fn receive(&self, event: ChannelEvent) {
        self.0.send_modify(|heard| heard.push(event));
    }
}

fn names() -> Vec<String> {
    ["localhost", "127.0.0.1"].map(str::to_owned).to_vec()
}

fn self_signed(options: &mut Options) {
    options.tls = Some(own(&options.data, &Env::system()));
}

fn own(data: &Path, env: &Env) -> Tls {
    Tls::open(data, Certificate::SelfSigned { names: names() }, env).unwrap()
}

fn pin(world: &World) -> KeyPin {
    world.hub.options().tls.as_ref().unwrap().pin()
}

fn as_owner(world: &World, pin: Option<KeyPin>) -> HubClientOptions {
    let key = fs::read_to_string(world.data.path().join("hub/admin.key")).unwrap();
    let mut options = HubClientOptions::new(format!("https://{}", world.address), HubCredential::Key(Secret::new(key)));
    options.pin = pin;
    options
}

#[tokio::test]
async fn with_the_pin_requests_streams_and_channels_work() {
    let world = World::tuned(self_signed).await;
    assert_eq!(world.hub.origin(), format!("https://{}", world.address));
    let options = as_owner(&world, Some(pin(&world)));
    let owner = Remote::new(options.clone()).unwrap();
    let account = AccountRequest { name: Some("builder".to_owned()), ..AccountRequest::default() };
    owner.create_account(&account).await.unwrap();
    let code = Secret::new(owner.create_pairing_code("builder").await.unwrap().pairing_code);
    let attached = owner.attach(&code, Some("laptop"), None).await.unwrap();

    let worker = Arc::new(RecordingWorker(watch::Sender::new(Vec::new())));
    let device = HubClientOptions { credential: HubCredential::RuntimeToken(attached.runtime_token), ..options };
    let line = ChannelHandle::connect(channel::Options::worker(device), worker.clone()).unwrap();
    timeout(PATIENCE, line.connected()).await.unwrap();
    line.notify(Ready { credits: 1, enforces: None }.payload()).await.unwrap();

    let request = CreateRunRequest { agent_id: "builder".to_owned(), ..CreateRunRequest::default() };
    let run = owner.create_run(&request).await.unwrap().task_run_id;
    let mut events = owner.follow(run, 0);
    let mut heard = worker.0.subscribe();
    let given = |heard: &Vec<ChannelEvent>| {
        heard.iter().any(|event| matches!(event, ChannelEvent::Execute(claimed) if claimed.task_run_id == run))
    };
    timeout(PATIENCE, heard.wait_for(given)).await.unwrap().unwrap();
    owner.cancel_run(run, None).await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = timeout(PATIENCE, events.next()).await.unwrap() {
        seen.push(event.unwrap().kind);
    }
    assert_eq!(seen.last().map(String::as_str), Some("task.cancelled"), "{seen:?}");
    line.close().await;
}

#[tokio::test]
async fn without_the_right_pin_nothing_is_sent_to_the_hub() {
    let world = World::tuned(self_signed).await;
    let origin = format!("https://{}", world.address);
    let unknown = Error::Untrusted {
        address: origin.clone(),
        reason: "this machine doesn't trust its certificate".to_owned(),
        hint: "If the hub uses --tls-self-signed, pass its pin with --pin sha256:… or ATTACHE_PIN. \
               `attache hub` prints the pin when it starts, and stores it in <data>/tls.pin."
            .to_owned(),
    };
    let other = Error::Untrusted {
        address: origin,
        reason: "its key isn't the pinned one".to_owned(),
        hint:
            "If the hub has a new key, compare its pin (printed by `attache hub`, stored in <data>/tls.pin) and pass it \
               with --pin. Otherwise you may be talking to someone else."
                .to_owned(),
    };
    for (pin, expected) in [(None, unknown), (Some(KeyPin::from_digest([7; 32])), other)] {
        let options = as_owner(&world, pin);
        assert_eq!(Remote::new(options.clone()).unwrap().health().await.unwrap_err(), expected);
        let worker = Arc::new(RecordingWorker(watch::Sender::new(Vec::new())));
        let line = ChannelHandle::connect(channel::Options::worker(options), worker).unwrap();
        let mut state = line.watch();
        let broken = timeout(PATIENCE, state.wait_for(|state| matches!(state, ChannelState::Broken(_)))).await.unwrap();
        assert_eq!(*broken.unwrap(), ChannelState::Broken(expected));
    }
    let plain =
        HubClientOptions { address: format!("http://{}", world.address), ..as_owner(&world, Some(pin(&world))) };
    let refused = Remote::new(plain).unwrap_err().to_string();
    assert!(refused.starts_with("a pin requires TLS, but http://127.0.0.1:"), "{refused}");
}

#[tokio::test]
async fn a_client_that_trusts_the_certificate_itself_needs_no_pin() {
    let world = World::tuned(self_signed).await;
    let certificate = fs::read(world.data.path().join("hub/tls/certificate.pem")).unwrap();
    let options = HubClientOptions { trusted_certificate: Some(certificate), ..as_owner(&world, None) };
    assert_eq!(Remote::new(options).unwrap().health().await.unwrap().status, "ok");
}

/// Like a browser that trusts the certificate: names and dates are checked.
async fn handshake(
    world: &World,
    name: &'static str,
    protocols: &[&str],
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    let pem = fs::read(world.data.path().join("hub/tls/certificate.pem")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(world.address).await.unwrap();
    let name = ServerName::try_from(name).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

#[tokio::test]
async fn the_client_chooses_the_version_of_http() {
    let world = World::tuned(self_signed).await;
    let request = || {
        let uri = format!("https://{}/healthz", world.address);
        Request::get(uri).header("host", world.address.to_string()).body(Empty::<Bytes>::new()).unwrap()
    };
    for name in ["localhost", "127.0.0.1"] {
        let stream = handshake(&world, name, &["h2", "http/1.1"]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut sender, connection) =
            conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        assert_eq!(sender.send_request(request()).await.unwrap().status(), 200);
    }
    for protocols in [&["http/1.1"][..], &[]] {
        let stream = handshake(&world, "localhost", protocols).await;
        let (mut sender, connection) = conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let response = sender.send_request(request()).await.unwrap();
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.starts_with(b"{\"status\":\"ok\""));
    }
}

#[tokio::test]
async fn plain_http_gets_a_hint_to_use_https() {
    let world = World::tuned(self_signed).await;
    for reply in
        [world.owner.get("/healthz").await, world.owner.post("/api/v1/task-runs", json!({"agent_id": "x"})).await]
    {
        let body = reply.expect(400);
        assert_eq!(
            body,
            json!({"error": {
                "code": "invalid_request",
                "message": "This port uses TLS, but the request was plain HTTP.",
                "hint": "Use the same address with https:// (or wss://).",
            }})
        );
        assert_eq!(reply.header("connection"), "close");
    }
    let plain = HubClientOptions::new(format!("http://{}", world.address), HubCredential::None);
    let said = Remote::new(plain).unwrap().health().await.unwrap_err().to_string();
    assert_eq!(
        said,
        "This port uses TLS, but the request was plain HTTP. Use the same address with https:// (or wss://)."
    );
}

#[tokio::test]
async fn a_plain_port_rejects_tls() {
    let world = World::start().await;
    let error = Remote::new(as_owner(&world, Some(KeyPin::from_digest([7; 32])))).unwrap().health().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "can't trust https://{}: it doesn't use TLS. Use an http:// address, or start the hub with TLS.",
            world.address
        )
    );
}

#[tokio::test]
async fn a_client_that_starts_no_handshake_is_disconnected() {
    let world = World::tuned(|options| {
        self_signed(options);
        options.header_timeout = Duration::from_millis(200);
    })
    .await;
    for beginning in [&b""[..], &[0x16], &[0x16, 3, 1, 2, 0]] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, beginning).await.unwrap();
        let mut rest = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest);
        let _ = timeout(Duration::from_secs(5), read).await.expect("the hub closes");
    }
}

#[test]
fn the_self_signed_key_is_kept_and_its_certificate_renewed_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("hub");
    let env = Env::seeded(7);
    let file = |name: &str| data.join("tls").join(name);
    let certificate = || fs::read(file("certificate.pem")).unwrap();
    let pin = own(&data, &env).pin();
    for name in ["key.pem", "certificate.pem"] {
        assert_eq!(fs::metadata(file(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert_eq!(fs::read_to_string(data.join("tls.pin")).unwrap(), format!("{pin}\n"));

    let first = certificate();
    assert_eq!((own(&data, &env).pin(), certificate() == first), (pin, true), "a restart changes nothing");
    env.advance(Duration::from_secs(789 * 24 * 60 * 60));
    assert_eq!((own(&data, &env).pin(), certificate() == first), (pin, true), "there is time");
    env.advance(Duration::from_secs(2 * 24 * 60 * 60));
    assert_eq!((own(&data, &env).pin(), certificate() == first), (pin, false), "it would end within a month");

    let second = certificate();
    let more = Certificate::SelfSigned { names: vec!["hub.example".to_owned()] };
    assert_eq!((Tls::open(&data, more, &env).unwrap().pin(), certificate() == second), (pin, false), "other names");
    fs::remove_file(file("certificate.pem")).unwrap();
    assert_eq!(own(&data, &env).pin(), pin);
    fs::write(file("key.pem"), "nonsense").unwrap();
    let broken = Tls::open(&data, Certificate::SelfSigned { names: names() }, &env).unwrap_err().to_string();
    assert!(broken.ends_with("key.pem contains no PEM private key, or one protected by a password"), "{broken}");
    fs::remove_file(file("key.pem")).unwrap();
    assert_ne!(own(&data, &env).pin(), pin);
}

/// A pair of files, as another program would provide them.
fn files(folder: &Path) -> Certificate {
    Certificate::Files { certificate: folder.join("chain.pem"), key: folder.join("key.pem") }
}

/// Writes a new certificate there, and returns its pin.
fn place(folder: &Path) -> KeyPin {
    let made = tempfile::tempdir().unwrap();
    let pin = own(made.path(), &Env::system()).pin();
    for (from, to) in [("certificate.pem", "chain.pem"), ("key.pem", "key.pem")] {
        let draft: PathBuf = folder.join("draft");
        fs::copy(made.path().join("tls").join(from), &draft).unwrap();
        fs::rename(draft, folder.join(to)).unwrap();
    }
    pin
}

#[tokio::test]
async fn a_replaced_certificate_is_loaded_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let first = place(folder.path());
    let world = World::tuned(|options| {
        options.tls = Some(Tls::open(&options.data, files(folder.path()), &Env::system()).unwrap());
        options.certificate_every = Duration::from_millis(10);
    })
    .await;
    let health =
        async |pin| Remote::new(as_owner(&world, Some(pin))).unwrap().health().await.map(|health| health.status);
    assert_eq!(health(first).await, Ok("ok".to_owned()));

    let second = place(folder.path());
    timeout(PATIENCE, async {
        while pin(&world) != second {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(health(second).await, Ok("ok".to_owned()));
    assert!(matches!(health(first).await, Err(Error::Untrusted { .. })));
    // The pin file follows the certificate.
    timeout(PATIENCE, async {
        while fs::read_to_string(world.data.path().join("hub/tls.pin")).unwrap() != format!("{second}\n") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();

    fs::write(folder.path().join("chain.pem"), "nonsense").unwrap();
    let third = place(folder.path());
    fs::write(folder.path().join("key.pem"), "nonsense").unwrap();
    // The broken pair may or may not have been seen. Either way, the hub responds and loads the next one.
    assert!(health(second).await.is_ok() || health(third).await.is_ok());
    let fourth = place(folder.path());
    timeout(PATIENCE, async {
        while health(fourth).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[test]
fn mismatched_files_are_refused_with_a_reason() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let refusal = || Tls::open(data.path(), files(folder.path()), &Env::system()).unwrap_err().to_string();
    let missing = refusal();
    assert!(missing.starts_with("can't read ") && missing.contains("chain.pem"), "{missing}");
    place(folder.path());
    let other = tempfile::tempdir().unwrap();
    place(other.path());
    fs::copy(other.path().join("key.pem"), folder.path().join("key.pem")).unwrap();
    let mismatch = refusal();
    assert!(mismatch.starts_with("the certificate and the key don't match: "), "{mismatch}");
    fs::copy(folder.path().join("chain.pem"), folder.path().join("key.pem")).unwrap();
    assert!(refusal().ends_with("key.pem contains no PEM private key, or one protected by a password"));
    fs::write(folder.path().join("chain.pem"), "").unwrap();
    assert!(refusal().contains("chain.pem contains no PEM certificate"));
}

#[tokio::test]
async fn hsts_is_sent_only_if_the_host_belongs_to_the_hub() {
    let promise = async |url: Option<&str>| {
        let world = World::tuned(|options| options.public_url = url.map(str::to_owned)).await;
        world.owner.get("/healthz").await.header("strict-transport-security").to_owned()
    };
    assert_eq!(promise(Some("https://hub.example/")).await, "max-age=31536000");
    for url in [
        None,
        Some("http://hub.example"),
        Some("https://hub.example:7800"),
        Some("https://10.0.0.5"),
        Some("https://localhost"),
        Some("https://[::1]"),
    ] {
        assert_eq!(promise(url).await, "", "{url:?}");
    }
    let world = World::tuned(|options| {
        self_signed(options);
        options.public_url = Some("https://hub.example".to_owned());
    })
    .await;
    let stream = handshake(&world, "localhost", &["http/1.1"]).await;
    let (mut sender, connection) = conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("/healthz").header("host", "hub.example").body(Empty::<Bytes>::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers().get("strict-transport-security")), (200, None));
}
