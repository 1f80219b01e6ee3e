//! Parses URLs strictly: anything two parsers could read differently is refused.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use reqwest::Url;

use super::EgressRefusal;

/// A URL with valid syntax. The guard judges where it leads each time it is called.
#[derive(Clone, PartialEq, Eq)]
pub struct CheckedUrl {
    url: Url,
    host: UrlHost,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UrlHost {
    /// Lower case, ASCII.
    Name(String),
    Address(IpAddr),
}

pub(super) const MAX_URL: usize = 2048;

/// Names that only have a meaning in a local network.
const LOCAL: [&str; 13] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "onion",
    "test",
    "invalid",
];

/// Ports above 1023 of protocols that could be abused with crafted bytes.
const ODD_PORTS: [u16; 24] = [
    1719, 1720, 1723, 2049, 3306, 3659, 4045, 4190, 5060, 5061, 5432, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669,
    6679, 6697, 10080, 11211, 27017,
];

/// The origin of a URL, such as `https://hooks.example.org`, for logs and to distinguish targets. Unparsable URLs share
/// one of their own.
pub fn origin(url: &str) -> String {
    CheckedUrl::read(url).map_or_else(|_| "unreadable".to_owned(), |checked| checked.origin())
}

/// The host of a URL, without its port.
pub fn host(url: &str) -> String {
    let checked = CheckedUrl::read(url).ok();
    checked.and_then(|checked| checked.url.host_str().map(str::to_owned)).unwrap_or_else(|| "unreadable".to_owned())
}

/// The URL with the values of its query replaced by `***`, because they may be secrets.
pub fn masked(url: &str) -> String {
    let Some((place, query)) = url.split_once('?') else { return url.to_owned() };
    let mask = |pair: &str| match pair.split_once('=') {
        Some((name, _)) => format!("{name}=***"),
        None if pair.is_empty() => String::new(),
        None => "***".to_owned(),
    };
    format!("{place}?{}", query.split('&').map(mask).collect::<Vec<_>>().join("&"))
}

// === impl CheckedUrl ===

impl CheckedUrl {
    pub(super) fn read(text: &str) -> Result<Self, EgressRefusal> {
        if text.len() > MAX_URL {
            return Err(EgressRefusal::TooLong);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte)) {
            return Err(EgressRefusal::Malformed("it contains spaces, backslashes or non-ASCII characters"));
        }
        let (scheme, rest) = text.split_once("://").ok_or(EgressRefusal::Scheme)?;
        let is_plain = match scheme.to_ascii_lowercase().as_str() {
            "http" => true,
            "https" => false,
            _ => return Err(EgressRefusal::Scheme),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        // Errors don't repeat the text, because it may contain a password.
        if authority.contains('@') {
            return Err(EgressRefusal::Credentials);
        }
        if tail.contains('#') {
            return Err(EgressRefusal::Fragment);
        }
        let (host, port) = split_port(authority)?;
        let host = UrlHost::read(host)?;
        let port = match port {
            Some(digits) => read_port(digits)?,
            None if is_plain => 80,
            None => 443,
        };
        // The HTTP library parses the text again. A disagreement means that one of us is being tricked.
        let url = Url::parse(text).map_err(|_| EgressRefusal::Malformed("it isn't a URL"))?;
        let is_same_host = match (&host, url.host_str().map(|host| host.trim_matches(['[', ']']))) {
            (UrlHost::Name(name), Some(other)) => name == other,
            (UrlHost::Address(address), Some(other)) => other.parse() == Ok(*address),
            (_, None) => false,
        };
        if !is_same_host || url.port_or_known_default() != Some(port) || !url.username().is_empty() {
            return Err(EgressRefusal::Malformed("it is ambiguous"));
        }
        Ok(Self { url, host, port })
    }

    pub const fn host(&self) -> &UrlHost {
        &self.host
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The bare host, for TLS.
    pub(crate) fn host_text(&self) -> &str {
        self.url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    /// `hooks.example.org:443`, for messages and the `host` field of a request.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.url.host_str().unwrap_or_default(), self.port)
    }

    /// The full URL. Its path and query may contain a secret: keep it out of logs.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// `https://hooks.example.org`, for logs and messages.
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    pub(super) const fn url(&self) -> &Url {
        &self.url
    }

    pub(super) fn is_plain(&self) -> bool {
        self.url.scheme() == "http"
    }

    /// Why this URL may only be called if one of the owner's rules covers it.
    pub(super) fn needs_rule(&self) -> Option<EgressRefusal> {
        let is_odd = self.port < 1024 && !matches!(self.port, 80 | 443) || ODD_PORTS.contains(&self.port);
        if is_odd {
            Some(EgressRefusal::Port { port: self.port })
        } else if self.is_plain() {
            Some(EgressRefusal::PlainHttp { origin: self.origin() })
        } else {
            None
        }
    }
}

impl fmt::Debug for CheckedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checked({}/…)", self.origin())
    }
}

// === impl UrlHost ===

impl UrlHost {
    fn read(text: &str) -> Result<Self, EgressRefusal> {
        if let Some(rest) = text.strip_prefix('[') {
            let inner = rest.strip_suffix(']').ok_or(EgressRefusal::Malformed("a bracket isn't closed"))?;
            // Outsiders have no say in zones (`%eth0`), and no address parsed here has one.
            let address: Ipv6Addr = inner.parse().map_err(|_| EgressRefusal::OddAddress)?;
            return Ok(Self::Address(IpAddr::V6(address)));
        }
        let name = text.to_ascii_lowercase();
        if looks_numeric(&name) {
            // Libraries disagree about decimal, octal, hexadecimal and shortened forms.
            let address: Ipv4Addr = name.parse().map_err(|_| EgressRefusal::OddAddress)?;
            return Ok(Self::Address(IpAddr::V4(address)));
        }
        if name.is_empty() {
            return Err(EgressRefusal::Malformed("it has no host"));
        }
        if name.ends_with('.') {
            return Err(EgressRefusal::Malformed("the host ends with a dot"));
        }
        if !is_name(&name) {
            return Err(EgressRefusal::Malformed("the host isn't a name or an address"));
        }
        Ok(Self::Name(name))
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), EgressRefusal> {
    let after_bracket = authority.find(']').map_or(0, |at| at + 1);
    match authority[after_bracket..].split_once(':') {
        None => Ok((authority, None)),
        Some((before, _)) if after_bracket > 0 && !before.is_empty() => {
            Err(EgressRefusal::Malformed("there is something between the bracket and the port"))
        }
        Some((before, port)) => Ok((&authority[..after_bracket + before.len()], Some(port))),
    }
}

fn read_port(digits: &str) -> Result<u16, EgressRefusal> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let port = digits.parse().ok().filter(|_| is_plain);
    port.ok_or(EgressRefusal::Malformed("the port isn't a number from 1 to 65535"))
}

/// Whether a parser might read the name as an IPv4 address: its last label, ignoring a trailing dot, is a number.
pub(super) fn looks_numeric(name: &str) -> bool {
    let last = name.strip_suffix('.').unwrap_or(name).rsplit('.').next().unwrap_or_default();
    let is_hexadecimal =
        last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_hexadecimal || !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether this is a valid DNS name in lower case.
pub(super) fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Whether the name only has a meaning inside a network.
pub(super) fn is_local(name: &str) -> bool {
    !name.contains('.')
        || LOCAL.iter().any(|local| name.strip_suffix(local).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}
