//! Client certificates: requested, proved by the handshake, and identified by fingerprint. Issuer and expiry don't
//! matter: a certificate has the rights of the key created for it.

use std::sync::Arc;

use attache_protocol::{digest::hex, secret::SecretHash};
use aws_lc_rs::digest::{SHA256, digest};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{
        ParsedCertificate,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

/// Whether the port requests client certificates. Clients without one are served too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    #[default]
    Ignored,
    Asked,
}

/// The SHA-256 of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

/// Accepts every certificate whose holder has its private key.
#[derive(Debug)]
pub(super) struct AnyCertificateVerifier(pub(super) Arc<CryptoProvider>);

// === impl Fingerprint ===

impl Fingerprint {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(digest(&SHA256, certificate).as_ref().try_into().expect("SHA-256 gives 32 bytes"))
    }

    /// Of the first valid certificate in a PEM text, if any.
    pub(crate) fn of_pem(text: &str) -> Option<Self> {
        let certificate = CertificateDer::from_pem_slice(text.as_bytes()).ok()?;
        ParsedCertificate::try_from(&certificate).ok()?;
        Some(Self::of(&certificate))
    }

    /// Its hash in the store. Can't collide with bearer secrets, which have a different prefix.
    pub(crate) fn hash(self) -> SecretHash {
        SecretHash::of(&format!("certificate:{}", hex(&self.0)))
    }
}

// === impl AnyCertificateVerifier ===

impl ClientCertVerifier for AnyCertificateVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        ParsedCertificate::try_from(certificate).map_err(|_| CertificateError::BadEncoding)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
