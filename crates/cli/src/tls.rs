//! How `attache hub` and `attache up` are told to speak TLS.

use std::path::PathBuf;

use attache_hub::{Certificate, ClientCertificates, Options};

use crate::CommandFailure;

/// A certificate of the owner's, or one that the hub makes for itself.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// The certificate chain (PEM), the hub's own first; a file that changes is taken up without a restart
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key (PEM, without a password)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Make a certificate once, keep it in the data folder, and print the pin that clients need
    #[arg(long, conflicts_with = "tls_cert")]
    tls_self_signed: bool,
    /// Ask clients for a certificate: one that a key was made for (`attache keys add --certificate`) is a credential
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

    /// The certificate that was asked for, for every name that people may call this hub by.
    pub(crate) fn certificate(self, options: &Options) -> Result<Option<Certificate>, CommandFailure> {
        if self.is_set() && options.public_url.as_deref().is_some_and(|url| url.starts_with("http://")) {
            return Err(CommandFailure::usage("--public-url begins with http://, and the hub speaks TLS")
                .hint("Write it with https://, or leave TLS to what stands in front of the hub."));
        }
        if self.tls_client_certs && !self.is_set() {
            return Err(CommandFailure::usage("--tls-client-certs needs TLS on the hub's own port")
                .hint("Give it a certificate: --tls-self-signed, or --tls-cert with --tls-key."));
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

/// The host of a URL, as a certificate names it.
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
    fn a_certificate_names_everything_that_the_hub_is_called() {
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
