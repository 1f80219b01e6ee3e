//! TLS for a channel: the same provider and the same trust as the HTTP client's.

use std::sync::Arc;

use rustls_platform_verifier::Verifier;
use tokio_rustls::rustls::{
    ClientConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::{Error, Result};

/// The machine's certificates, and the one (PEM) of a hub that signs its own.
pub(crate) fn config(trusted: Option<&[u8]>) -> Result<Arc<ClientConfig>> {
    let invalid = |what: String, hint: &str| Error::Invalid { what, hint: hint.to_owned() };
    let extra: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(trusted.unwrap_or_default()).collect::<Result<_, _>>().map_err(|_| {
            invalid(
                "the trusted certificate is not PEM".to_owned(),
                "Give the file that the hub was started with as --tls-cert.",
            )
        })?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let failed = |error: tokio_rustls::rustls::Error| {
        invalid(format!("cannot set up TLS: {error}"), "Install the package ca-certificates.")
    };
    let verifier = Verifier::new_with_extra_roots(extra, provider.clone()).map_err(failed)?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous() // The verifier is the platform's own; only the setter has this name.
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    // A WebSocket begins as a request of HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
