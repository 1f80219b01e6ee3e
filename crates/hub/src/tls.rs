//! TLS on the hub's port, with the owner's certificate or a self-signed one.
//!
//! A changed certificate is loaded without a restart. If it is invalid, that is logged and the previous one stays.

mod clients;
mod self_signed;

use std::{
    fmt, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use attache_os::private_file;
use attache_protocol::{KeyPin, env::Env};
use aws_lc_rs::digest::{SHA256, digest};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::aws_lc_rs::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::ParsedCertificate,
    },
    server::TlsStream,
};

use crate::identity::IdentityFolder;

pub use clients::ClientCertificates;
pub(crate) use clients::Fingerprint;

use clients::AnyCertificateVerifier;

/// The TLS configuration of the port. Clones share the certificate.
#[derive(Clone)]
pub struct Tls(Arc<TlsShared>);

/// Where the certificate comes from.
#[derive(Debug, Clone)]
pub enum Certificate {
    /// PEM files: the chain, starting with the hub's own certificate, and its key.
    Files { certificate: PathBuf, key: PathBuf },
    /// Created once and kept in the hub's folder, for these names and addresses.
    SelfSigned { names: Vec<String> },
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("can't read {path}: {source}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("can't write {path}: {source}", path = .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{path} contains no PEM certificate; provide the full chain, the hub's certificate first", path = .0.display())]
    Certificate(PathBuf),
    #[error("{path} contains no PEM private key, or one protected by a password", path = .0.display())]
    Key(PathBuf),
    #[error("the certificate and the key don't match: {0}")]
    Mismatch(rustls::Error),
    #[error("can't create a certificate: {0}")]
    Make(rcgen::Error),
}

struct TlsShared {
    certificate: Certificate,
    clients: ClientCertificates,
    data: PathBuf,
    loaded: RwLock<LoadedCertificate>,
    /// The last version of the files that was tried.
    tried: Mutex<Option<CertificateVersion>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateCheck {
    Same,
    Replaced,
}

#[derive(Clone)]
struct LoadedCertificate {
    acceptor: TlsAcceptor,
    pin: KeyPin,
    /// The loaded version, to notice changes.
    stamp: CertificateVersion,
}

/// Identifies a version of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CertificateVersion {
    /// Device, inode, size and change time of both files.
    Files([(u64, u64, u64, i64, i64); 2]),
    Own(Vec<u8>),
}

/// A certificate and its key, as PEM.
struct PemPair {
    certificate: Vec<u8>,
    key: Vec<u8>,
    /// The source paths, for errors.
    paths: [PathBuf; 2],
}

/// Next to the owner key, for commands on the same machine.
pub const PIN_FILE: &str = "tls.pin";

// === impl Tls ===

impl Tls {
    /// Loads or creates the certificate, and writes its pin to `tls.pin` in the hub's folder.
    pub fn open(data: &Path, certificate: Certificate, env: &Env) -> Result<Self, TlsError> {
        Self::open_for(data, certificate, ClientCertificates::Ignored, env)
    }

    /// The same, for a port that may request client certificates.
    pub fn open_for(
        data: &Path,
        certificate: Certificate,
        clients: ClientCertificates,
        env: &Env,
    ) -> Result<Self, TlsError> {
        IdentityFolder::open(data).map_err(|source| TlsError::Write { path: data.to_owned(), source })?;
        let loaded = load(&certificate, clients, data, env)?;
        write_pin(data, loaded.pin)?;
        let (data, loaded, tried) = (data.to_owned(), RwLock::new(loaded), Mutex::default());
        Ok(Self(Arc::new(TlsShared { certificate, clients, data, loaded, tried })))
    }

    pub fn client_certificates(&self) -> ClientCertificates {
        self.0.clients
    }

    /// The pin of the current key.
    pub fn pin(&self) -> KeyPin {
        self.loaded().pin
    }

    pub fn is_self_signed(&self) -> bool {
        matches!(self.0.certificate, Certificate::SelfSigned { .. })
    }

    /// The names and addresses in the self-signed certificate.
    pub(crate) fn names(&self) -> &[String] {
        match &self.0.certificate {
            Certificate::Files { .. } => &[],
            Certificate::SelfSigned { names } => names,
        }
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = self.loaded().acceptor;
        acceptor.accept(stream).await
    }

    /// Checks the certificate periodically while the hub serves.
    pub(crate) async fn watch(self, every: Duration, env: Env) {
        loop {
            tokio::time::sleep(every).await;
            let (tls, env) = (self.clone(), env.clone());
            match tokio::task::spawn_blocking(move || tls.look(&env)).await {
                Ok(Ok(CertificateCheck::Replaced)) => tracing::info!(pin = %self.pin(), "the certificate was replaced"),
                Ok(Ok(CertificateCheck::Same)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the new certificate can't be used; the hub keeps the previous one");
                }
                Err(error) => tracing::warn!(%error, "could not check the certificate"),
            }
        }
    }

    /// Loads a changed certificate. An unusable version is reported once and not tried again.
    fn look(&self, env: &Env) -> Result<CertificateCheck, TlsError> {
        let TlsShared { certificate, clients, data, loaded, tried } = &*self.0;
        let known = self.loaded().stamp;
        if let Certificate::Files { certificate, key } = certificate {
            let Ok(now) = CertificateVersion::of_files(certificate, key) else {
                // It is being replaced right now: check again next time.
                return Ok(CertificateCheck::Same);
            };
            let mut tried = tried.lock().unwrap_or_else(PoisonError::into_inner);
            if now == known || tried.as_ref() == Some(&now) {
                return Ok(CertificateCheck::Same);
            }
            *tried = Some(now);
        }
        let fresh = load(certificate, *clients, data, env)?;
        if fresh.stamp == known {
            return Ok(CertificateCheck::Same);
        }
        let pin = fresh.pin;
        *loaded.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        write_pin(data, pin)?;
        Ok(CertificateCheck::Replaced)
    }

    fn loaded(&self) -> LoadedCertificate {
        self.0.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?})", self.0.certificate)
    }
}

fn load(
    certificate: &Certificate,
    clients: ClientCertificates,
    data: &Path,
    env: &Env,
) -> Result<LoadedCertificate, TlsError> {
    match certificate {
        Certificate::Files { certificate, key } => {
            // Before the content: a file that changes in between is read again next time.
            let stamp = CertificateVersion::of_files(certificate, key)?;
            let pair = PemPair::read(certificate, key)?;
            pair.load(stamp, clients)
        }
        Certificate::SelfSigned { names } => {
            let pair = self_signed::keep(data, names, env)?;
            let stamp = CertificateVersion::Own(pair.certificate.clone());
            pair.load(stamp, clients)
        }
    }
}

fn write_pin(data: &Path, pin: KeyPin) -> Result<(), TlsError> {
    let path = data.join(PIN_FILE);
    private_file::write(&path, format!("{pin}\n").as_bytes()).map_err(|source| TlsError::Write { path, source })
}

// === impl PemPair ===

impl PemPair {
    fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let read = |path: &Path| fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source });
        let paths = [certificate.to_owned(), key.to_owned()];
        Ok(Self { certificate: read(certificate)?, key: read(key)?, paths })
    }

    fn load(self, stamp: CertificateVersion, clients: ClientCertificates) -> Result<LoadedCertificate, TlsError> {
        let [certificate_path, key_path] = self.paths;
        let chain = CertificateDer::pem_slice_iter(&self.certificate).collect::<Result<Vec<_>, _>>();
        let Some(chain) = chain.ok().filter(|chain| !chain.is_empty()) else {
            return Err(TlsError::Certificate(certificate_path));
        };
        let Ok(key) = PrivateKeyDer::from_pem_slice(&self.key) else {
            return Err(TlsError::Key(key_path));
        };
        let pin = pin_of(&chain[0]).map_err(|_| TlsError::Certificate(certificate_path))?;
        let provider = Arc::new(default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Mismatch)?;
        let config = match clients {
            ClientCertificates::Ignored => config.with_no_client_auth(),
            ClientCertificates::Asked => config.with_client_cert_verifier(Arc::new(AnyCertificateVerifier(provider))),
        };
        let mut config = config.with_single_cert(chain, key).map_err(TlsError::Mismatch)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(LoadedCertificate { acceptor: TlsAcceptor::from(Arc::new(config)), pin, stamp })
    }
}

fn pin_of(certificate: &CertificateDer<'_>) -> Result<KeyPin, rustls::Error> {
    let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
    let hash = digest(&SHA256, &key);
    Ok(KeyPin::from_digest(hash.as_ref().try_into().expect("SHA-256 gives 32 bytes")))
}

// === impl CertificateVersion ===

impl CertificateVersion {
    fn of_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let stamp = |path: &Path| {
            // Follows links, which certificate tools often switch. A mode change counts as well.
            let file = fs::metadata(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })?;
            Ok((file.dev(), file.ino(), file.size(), file.ctime(), file.ctime_nsec()))
        };
        Ok(Self::Files([stamp(certificate)?, stamp(key)?]))
    }
}
