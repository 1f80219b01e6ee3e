//! TLS trust: the machine's certificates, or one pinned key. Shared by HTTP and channels.

use std::{io, sync::Arc};

use attache_protocol::KeyPin;
use aws_lc_rs::digest::{SHA256, digest};
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs::default_provider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{Error, HubClientOptions, Result};

/// Accepts one key, whatever the certificate around it says. Names and dates only matter if the key is unknown.
#[derive(Debug)]
struct PinVerifier {
    pin: KeyPin,
    provider: Arc<CryptoProvider>,
}

/// The reason of a failed handshake, for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsDistrust {
    /// The key isn't the pinned one.
    OtherKey,
    /// This machine doesn't trust the certificate.
    Unknown,
    /// No TLS at all.
    Plain,
}

/// TLS for a server of which only the key is known.
pub(crate) fn pinned(pin: KeyPin, protocols: &[&str]) -> Result<ClientConfig> {
    verified(Some(pin), None, protocols)
}

/// TLS for a hub, with the given ALPN protocols.
pub(crate) fn config(options: &HubClientOptions, protocols: &[&str]) -> Result<ClientConfig> {
    verified(options.pin, options.trusted_certificate.as_deref(), protocols)
}

/// TLS for a server of another kind: it is trusted as this machine trusts servers, or if one of these certificates (PEM)
/// vouches for it.
pub fn trusting(certificates: Option<&[u8]>) -> Result<Arc<ClientConfig>> {
    verified(None, certificates, &[]).map(Arc::new)
}

pub(crate) fn verified(pin: Option<KeyPin>, trusted: Option<&[u8]>, protocols: &[&str]) -> Result<ClientConfig> {
    let invalid = |what: String, hint: &str| Error::Invalid { what, hint: hint.to_owned() };
    let provider = Arc::new(default_provider());
    let failed =
        |error: rustls::Error| invalid(format!("can't set up TLS: {error}"), "Install the package ca-certificates.");
    let verifier: Arc<dyn ServerCertVerifier> = match pin {
        Some(pin) => Arc::new(PinVerifier { pin, provider: provider.clone() }),
        None => {
            let trusted = trusted.unwrap_or_default();
            let extra: Vec<CertificateDer<'static>> =
                CertificateDer::pem_slice_iter(trusted).collect::<Result<_, _>>().map_err(|_| {
                    invalid(
                        "the trusted certificate isn't PEM".to_owned(),
                        "Use the file that the hub was started with as --tls-cert.",
                    )
                })?;
            Arc::new(Verifier::new_with_extra_roots(extra, provider.clone()).map_err(failed)?)
        }
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous() // The verifier is the platform's own, or stricter; only the setter has this name.
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok(config)
}

/// Performs the TLS handshake over a connection.
pub(crate) async fn connect(
    config: Arc<ClientConfig>,
    host: &str,
    stream: TcpStream,
    origin: &str,
) -> Result<TlsStream<TcpStream>> {
    let broken = |reason: String| Error::Unreachable { address: origin.to_owned(), reason };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| broken(error.to_string()))?;
    let connected = TlsConnector::from(config).connect(name, stream).await;
    connected.map_err(|error| distrusted(origin, &error).unwrap_or_else(|| broken(error.to_string())))
}

/// The error for a hub whose certificate isn't trusted. `None` for any other cause.
pub(crate) fn distrusted(address: &str, cause: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let (reason, hint) = match TlsDistrust::find(cause)? {
        TlsDistrust::OtherKey => (
            "its key isn't the pinned one",
            "If the hub has a new key, compare its pin (printed by `attache hub`, stored in <data>/tls.pin) and pass it \
             with --pin. Otherwise you may be talking to someone else.",
        ),
        TlsDistrust::Unknown => (
            "this machine doesn't trust its certificate",
            "If the hub uses --tls-self-signed, pass its pin with --pin sha256:… or ATTACHE_PIN. \
             `attache hub` prints the pin when it starts, and stores it in <data>/tls.pin.",
        ),
        TlsDistrust::Plain => ("it doesn't use TLS", "Use an http:// address, or start the hub with TLS."),
    };
    Some(Error::Untrusted { address: address.to_owned(), reason: reason.to_owned(), hint: hint.to_owned() })
}

// === impl TlsDistrust ===

impl TlsDistrust {
    fn find(cause: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut cause = Some(cause);
        while let Some(error) = cause {
            // An I/O error hides the error it wraps.
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            let found = match inner {
                Some(inner) => inner.downcast_ref::<rustls::Error>(),
                None => error.downcast_ref::<rustls::Error>(),
            };
            match found {
                Some(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
                    return Some(Self::OtherKey);
                }
                Some(rustls::Error::InvalidCertificate(_)) => return Some(Self::Unknown),
                Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
                    return Some(Self::Plain);
                }
                _ => {}
            }
            // The error wrapped by an I/O error may itself be an I/O error.
            cause = match inner {
                Some(inner) => Some(inner as &(dyn std::error::Error + 'static)),
                None => error.source(),
            };
        }
        None
    }
}

// === impl PinVerifier ===

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        let hash = digest(&SHA256, &key);
        let shown = KeyPin::from_digest(hash.as_ref().try_into().expect("SHA-256 gives 32 bytes"));
        if shown == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        tracing::debug!(pin = %shown, "the hub's key isn't the pinned one");
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
