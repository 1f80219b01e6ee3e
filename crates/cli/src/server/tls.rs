//! TLS options of `attache hub` and `attache up`.

use std::path::PathBuf;

use attache_hub::{Certificate, ClientCertificates, Options};

use crate::ui::failure::CommandFailure;

/// The owner's certificate, or a self-signed one.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// Certificate chain (PEM), starting with the hub's certificate; reloaded when the file changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM, without a password)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Create a self-signed certificate, keep it in the data folder, and print the pin that clients need
    #[arg(long, conflicts_with = "tls_cert")]
    tls_self_signed: bool,
    /// Request client certificates; a certificate added with `attache keys add --certificate` works as a credential
    #[arg(long)]
    tls_client_certs: bool,
}

// === impl TlsArgs ===

impl TlsArgs {
    pub(crate) const fn is_set(&self) -> bool {
        self.tls_self_signed || self.tls_cert.is_some()
    }

    pub(crate) const fn client_certificates(&self) -> ClientCertificates {
        if self.tls_client_certs { ClientCertificates::Asked } else { ClientCertificates::Ignored }
    }

    /// The configured certificate, valid for every name of this hub.
    pub(crate) fn certificate(self, options: &Options) -> Result<Option<Certificate>, CommandFailure> {
        if self.is_set() && options.public_url.as_deref().is_some_and(|url| url.starts_with("http://")) {
            return Err(CommandFailure::usage("--public-url starts with http://, but the hub uses TLS")
                .hint("Use https://, or leave TLS to the proxy in front of the hub."));
        }
        if self.tls_client_certs && !self.is_set() {
            return Err(CommandFailure::usage("--tls-client-certs requires TLS on the hub's own port")
                .hint("Add a certificate: --tls-self-signed, or --tls-cert with --tls-key."));
        }
        Ok(match (self.tls_cert, self.tls_key) {
            (Some(certificate), Some(key)) => Some(Certificate::Files { certificate, key }),
            _ if self.tls_self_signed => Some(Certificate::SelfSigned { names: names(options) }),
            _ => None,
        })
    }
}

fn names(options: &Options) -> Vec<String> {
    let mut names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let listen = options.listen.ip();
    let address = (!listen.is_unspecified()).then(|| listen.to_string());
    let machine = gethostname::gethostname().into_string().ok().filter(|name| is_host_name(name));
    let public = options.public_url.as_deref().and_then(host);
    for name in [address, machine, public].into_iter().flatten().map(|name| name.to_ascii_lowercase()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The host of a URL, in the form used in certificates.
fn host(url: &str) -> Option<String> {
    let authority = url.strip_prefix("https://")?.trim_end_matches('/');
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    (host.parse::<std::net::IpAddr>().is_ok() || is_host_name(host)).then(|| host.to_owned())
}

fn is_host_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    !name.is_empty() && name.len() <= 253 && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_covers_every_name_of_the_hub() {
        let mut options = Options::new("", "10.0.0.5:7800".parse().unwrap());
        options.public_url = Some("https://Hub.example:7800/".to_owned());
        let names = names(&options);
        for name in ["localhost", "127.0.0.1", "::1", "10.0.0.5", "hub.example"] {
            assert!(names.iter().any(|own| own == name), "{name} in {names:?}");
        }
        assert_eq!(host("https://[fd00::1]:7800"), Some("fd00::1".to_owned()));
        assert_eq!(host("https://a_b"), None);
    }
}
