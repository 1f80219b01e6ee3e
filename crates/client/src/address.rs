//! The address of a hub: an origin, or an origin with `/api/v1`, as people type it.

use std::fmt;

use reqwest::Url;

use crate::{Error, HubClientOptions};

/// The origin of a hub, and the URLs below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubAddress(Url);

// === impl HubAddress ===

impl HubAddress {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let invalid = |why: &str| Error::Invalid {
            what: format!("`{text}` isn't a hub address: {why}"),
            hint: "Use a form like http://127.0.0.1:7800 or https://hub.example.org/api/v1.".to_owned(),
        };
        let mut url = Url::parse(&with_scheme(text.trim())).map_err(|_| invalid("it isn't a URL"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(invalid("it must start with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            // The text isn't repeated, because it may contain a password.
            return Err(Error::Invalid {
                what: "the address of the hub must not contain a user name or password".to_owned(),
                hint: "Pass the key in a file (--key-file) or in ATTACHE_KEY.".to_owned(),
            });
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it must not have a query or a fragment"));
        }
        if !matches!(url.path().trim_end_matches('/'), "" | "/api/v1") {
            return Err(invalid("its path must be empty or /api/v1"));
        }
        url.set_path("");
        Ok(Self(url))
    }

    /// The address of a hub, validated together with the other options.
    pub(crate) fn of(options: &HubClientOptions) -> Result<Self, Error> {
        let address = Self::parse(&options.address)?;
        if options.pin.is_some() && !address.is_encrypted() {
            return Err(Error::Invalid {
                what: format!("a pin requires TLS, but {address} doesn't use it"),
                hint: "Use an https:// address, or remove the pin (--pin, ATTACHE_PIN).".to_owned(),
            });
        }
        Ok(address)
    }

    /// `http://127.0.0.1:7800`
    pub fn origin(&self) -> String {
        self.0.as_str().trim_end_matches('/').to_owned()
    }

    /// `http://127.0.0.1:7800/api/v1`, the form stored in profiles.
    pub fn api_base(&self) -> String {
        format!("{}/api/v1", self.origin())
    }

    pub fn is_loopback(&self) -> bool {
        let host = self.0.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// The host and port to connect to.
    pub(crate) fn host_and_port(&self) -> (&str, u16) {
        let host = self.0.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        (host, self.0.port_or_known_default().unwrap_or(80))
    }

    pub fn port(&self) -> u16 {
        self.host_and_port().1
    }

    pub fn is_encrypted(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// A URL below the origin; every segment is escaped.
    pub(crate) fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.0.clone();
        url.path_segments_mut().expect("http URLs have a path").clear().extend(segments);
        url
    }
}

/// The default scheme: http on loopback, where nothing leaves this machine, https everywhere else.
fn with_scheme(text: &str) -> String {
    // A bare word is more likely a mistake than a host.
    let names_a_host = text.contains(['.', ':']) || text.starts_with("localhost");
    if !names_a_host || text.contains("://") {
        return text.to_owned();
    }
    let encrypted = format!("https://{text}");
    match Url::parse(&encrypted).map(HubAddress) {
        Ok(address) if address.is_loopback() => format!("http://{text}"),
        Ok(_) | Err(_) => encrypted,
    }
}

impl fmt::Display for HubAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_address_are_the_same() {
        for text in ["http://127.0.0.1:7800", "http://127.0.0.1:7800/", " http://127.0.0.1:7800/api/v1/ "] {
            let address = HubAddress::parse(text).unwrap();
            assert_eq!(address.origin(), "http://127.0.0.1:7800");
            assert_eq!(address.api_base(), "http://127.0.0.1:7800/api/v1");
            assert!(address.is_loopback());
        }
        assert!(HubAddress::parse("http://[::1]:1").unwrap().is_loopback());
        assert!(!HubAddress::parse("https://hub.example.org").unwrap().is_loopback());
        let url = HubAddress::parse("http://h").unwrap().url(&["api", "a/b?c", "é"]);
        assert_eq!(url.as_str(), "http://h/api/a%2Fb%3Fc/%C3%A9");
    }

    #[test]
    fn an_address_without_a_scheme_is_completed() {
        for (text, origin) in [
            ("127.0.0.1:18800", "http://127.0.0.1:18800"),
            ("localhost:7800", "http://localhost:7800"),
            ("[::1]:7800/api/v1", "http://[::1]:7800"),
            ("hub.example.org", "https://hub.example.org"),
            ("10.0.0.5:7800", "https://10.0.0.5:7800"),
        ] {
            assert_eq!(HubAddress::parse(text).unwrap().origin(), origin, "{text}");
        }
        let error = HubAddress::parse("me:hunter2@h").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    #[test]
    fn an_invalid_address_includes_the_correct_form() {
        for text in ["", "not a hub", "ftp://h", "http://h/console", "http://h?x=1"] {
            let error = HubAddress::parse(text).unwrap_err();
            assert!(error.to_string().contains("http://127.0.0.1:7800"), "{error}");
        }
        let error = HubAddress::parse("http://me:hunter2@h").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}
