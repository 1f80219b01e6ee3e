//! The host names the hub answers to. Protects against DNS rebinding.

use std::net::{IpAddr, SocketAddr};

use attache_protocol::Code;
use axum::http::{HeaderMap, Uri, header};

use crate::{Error, Options, Result, Tls};

/// The hub's own hosts and origins.
#[derive(Debug, Clone)]
pub(crate) struct OwnNames {
    /// `host:port`, lower case.
    hosts: Vec<String>,
    origins: Vec<String>,
    /// When listening on all addresses, any address with our port is ours. Names are not, because rebinding uses names.
    any_address: Option<WildcardAddress>,
}

/// What answers under any name.
const HEALTH_CHECKS: [&str; 2] = ["/healthz", "/readyz"];

#[derive(Debug, Clone, Copy)]
struct WildcardAddress {
    scheme: &'static str,
    port: u16,
    default_port: u16,
}

/// The `host[:port]` of an origin URL without a path. `None` for anything else.
pub(crate) fn authority(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let host = rest.strip_suffix('/').unwrap_or(rest);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
    (!host.is_empty() && host.bytes().all(plain)).then_some(host)
}

// === impl OwnNames ===

impl OwnNames {
    pub(crate) fn new(options: &Options) -> Self {
        let (scheme, port) = (options.scheme(), options.listen.port());
        let default_port = if scheme == "https" { 443 } else { 80 };
        let mut hosts = Vec::new();
        let mut push = |host: &str| {
            hosts.push(format!("{host}:{port}"));
            if port == default_port {
                hosts.push(host.to_owned());
            }
        };
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            push(host);
        }
        if !options.listen.ip().is_unspecified() {
            push(&bracketed(options.listen.ip()));
        }
        // No other site can have a certificate for these names, so they can't be rebound.
        for name in options.tls.iter().flat_map(Tls::names) {
            push(&name.parse().map_or_else(|_| name.clone(), bracketed));
        }
        let mut origins: Vec<String> = hosts.iter().map(|host| format!("{scheme}://{host}")).collect();
        if let Some(url) = options.public_url.as_deref().map(str::to_ascii_lowercase)
            && let Some(authority) = authority(&url)
        {
            let scheme = &url[..url.len() - url.trim_start_matches("https://").trim_start_matches("http://").len()];
            let default = if scheme == "https://" { ":443" } else { ":80" };
            let bare = authority.strip_suffix(default).unwrap_or(authority);
            hosts.extend([bare.to_owned(), authority.to_owned()]);
            if !has_port(bare) {
                hosts.push(format!("{bare}{default}"));
            }
            origins.push(format!("{scheme}{bare}"));
        }
        let any_address =
            options.listen.ip().is_unspecified().then_some(WildcardAddress { scheme, port, default_port });
        Self { hosts, origins, any_address }
    }

    /// Rejects a request for another host, or from another site's page. A balancer asks for the health of the address that it
    /// knows, often without a name, and is told nothing that callers without a key aren't told anyway.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<()> {
        if !HEALTH_CHECKS.contains(&uri.path()) {
            self.check_hosts(uri, headers)?;
        }
        match headers.get(header::ORIGIN) {
            None => Ok(()),
            Some(origin) => self.check_origin(origin.to_str().unwrap_or_default()),
        }
    }

    fn check_hosts(&self, uri: &Uri, headers: &HeaderMap) -> Result<()> {
        let mut named = false;
        for host in headers.get_all(header::HOST) {
            named = true;
            self.check_host(host.to_str().unwrap_or_default())?;
        }
        if let Some(authority) = uri.authority() {
            named = true;
            self.check_host(authority.as_str())?;
        }
        if named { Ok(()) } else { Err(wrong_host()) }
    }

    fn check_host(&self, host: &str) -> Result<()> {
        if self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)) || self.is_own_address(host) {
            return Ok(());
        }
        Err(wrong_host())
    }

    fn check_origin(&self, origin: &str) -> Result<()> {
        let address = || {
            let scheme = self.any_address?.scheme;
            origin.strip_prefix(scheme)?.strip_prefix("://")
        };
        let own = self.origins.iter().any(|own| own.eq_ignore_ascii_case(origin))
            || address().is_some_and(|host| self.is_own_address(host));
        if own {
            return Ok(());
        }
        Err(Error::new(Code::ForeignOrigin, "Pages from other sites can't call the hub."))
    }

    fn is_own_address(&self, host: &str) -> bool {
        let Some(own) = self.any_address else { return false };
        match host.parse::<SocketAddr>() {
            Ok(address) => address.port() == own.port,
            Err(_) => own.port == own.default_port && host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok(),
        }
    }
}

fn wrong_host() -> Error {
    Error::new(Code::WrongHost, "The hub does not answer to this host name.")
}

fn bracketed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(names: &OwnNames, host: &str, origin: Option<&str>) -> Option<Code> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        names.check(&Uri::from_static("/"), &headers).err().map(|error| error.code)
    }

    #[test]
    fn loopback_answers_to_its_own_names_only() {
        let names = OwnNames::new(&Options::new("", "127.0.0.1:7800".parse().unwrap()));
        for good in ["127.0.0.1:7800", "localhost:7800", "LOCALHOST:7800", "[::1]:7800"] {
            assert_eq!(verdict(&names, good, None), None, "{good}");
            assert_eq!(verdict(&names, good, Some("http://localhost:7800")), None);
        }
        for bad in ["127.0.0.1", "127.0.0.1:7801", "evil.example:7800", "10.0.0.1:7800", "", "localhost:7800.evil"] {
            assert_eq!(verdict(&names, bad, None), Some(Code::WrongHost), "{bad}");
        }
        for bad in ["http://evil.example", "null", "https://localhost:7800", "http://localhost:7801"] {
            assert_eq!(verdict(&names, "localhost:7800", Some(bad)), Some(Code::ForeignOrigin), "{bad}");
        }
    }

    #[test]
    fn names_in_the_self_signed_certificate_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["localhost", "127.0.0.1", "fd00::1", "box.lan"].map(str::to_owned).to_vec();
        let mut options = Options::new(folder.path(), "0.0.0.0:443".parse().unwrap());
        let certificate = crate::Certificate::SelfSigned { names };
        options.tls = Some(Tls::open(folder.path(), certificate, &attache_protocol::env::Env::system()).unwrap());
        let names = OwnNames::new(&options);
        for good in ["localhost", "box.lan:443", "Box.lan", "[fd00::1]", "192.168.1.7", "192.168.1.7:443"] {
            assert_eq!(verdict(&names, good, Some(&format!("https://{}", good.to_ascii_lowercase()))), None, "{good}");
            let plain = format!("http://{good}");
            assert_eq!(verdict(&names, good, Some(&plain)), Some(Code::ForeignOrigin), "{plain}");
        }
        for bad in ["evil.example", "box.lan:80", "192.168.1.7:80"] {
            assert_eq!(verdict(&names, bad, None), Some(Code::WrongHost), "{bad}");
        }
    }

    #[test]
    fn a_public_url_adds_its_host_and_listening_everywhere_adds_addresses() {
        let mut options = Options::new("", "0.0.0.0:7800".parse().unwrap());
        options.public_url = Some("https://Hub.example/".to_owned());
        let names = OwnNames::new(&options);
        for good in ["hub.example", "hub.example:443", "192.168.1.7:7800"] {
            assert_eq!(verdict(&names, good, Some("https://hub.example")), None, "{good}");
        }
        assert_eq!(verdict(&names, "192.168.1.7:7800", Some("http://192.168.1.7:7800")), None);
        assert_eq!(verdict(&names, "192.168.1.7:7801", None), Some(Code::WrongHost));
        assert_eq!(verdict(&names, "hub.example:7800", None), Some(Code::WrongHost));
        assert_eq!(verdict(&names, "hub.example", Some("http://hub.example")), Some(Code::ForeignOrigin));
    }
}
